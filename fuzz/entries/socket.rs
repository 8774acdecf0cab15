//! One client of the local socket, whatever it sends: the answer is HTTP and no failure of ours, and a stranger
//! changes nothing.
//!
//! The first byte says whether the client is one who may change things. Nothing here waits: server, engine and
//! client take turns until none of them has anything to do.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use adit::engine::Engine;
use adit::engine::snapshot::TunnelView;
use adit::io::local::{self, Handle, Question};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};

use super::bench;

/// More than any request or answer.
const ROOM: usize = 4 << 20;
/// Rounds in which nobody has anything to do.
const QUIET: u32 = 3;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().unwrap();
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((&choice, request)) = bytes.split_first() else { return };
    let is_stranger = choice & 1 != 0;
    RUNTIME.with(|runtime| {
        let _within = runtime.enter();
        let mut engine = bench::engine();
        let before = engine.tunnels(bench::START);
        let answer = answer(&mut engine, request, is_stranger);
        judge(&answer);
        let same: fn(&TunnelView) -> String = |view| serde_json::to_string(view).unwrap();
        let after = engine.tunnels(bench::START);
        assert!(!is_stranger || before.iter().map(same).eq(after.iter().map(same)), "a stranger changes nothing");
        assert!(engine.associations(None).iter().all(|view| serde_json::to_value(view).is_ok()));
    });
}

fn answer(engine: &mut Engine, request: &[u8], is_stranger: bool) -> Vec<u8> {
    let (ask, mut asked) = mpsc::channel::<Question>(16);
    let (_told, last_event) = watch::channel(engine.events().last());
    let (mut client, server) = tokio::io::duplex(ROOM);
    let user = nix::unistd::geteuid().as_raw();
    let user = if is_stranger { user.wrapping_add(1) } else { user };
    let mut visit = pin!(local::attend(server, (user, user), Handle::new(ask, last_event)));
    let mut context = Context::from_waker(Waker::noop());
    let written = Pin::new(&mut client).poll_write(&mut context, request);
    assert!(matches!(written, Poll::Ready(Ok(length)) if length == request.len()), "there is room");
    let (mut answer, mut quiet) = (Vec::new(), 0);
    while quiet < QUIET {
        let over = visit.as_mut().poll(&mut context).is_ready();
        let mut busy = read(&mut client, &mut context, &mut answer);
        while let Ok(question) = asked.try_recv() {
            question(engine, bench::START);
            busy = true;
        }
        quiet = if busy { 0 } else { quiet + 1 };
        if over {
            while read(&mut client, &mut context, &mut answer) {}
            break;
        }
        assert!(answer.len() < ROOM, "bounded");
    }
    answer
}

/// Whether there was something.
fn read(client: &mut DuplexStream, context: &mut Context<'_>, answer: &mut Vec<u8>) -> bool {
    let mut room = [0; 16 << 10];
    let mut room = ReadBuf::new(&mut room);
    let read = Pin::new(client).poll_read(context, &mut room);
    answer.extend_from_slice(room.filled());
    matches!(read, Poll::Ready(Ok(()))) && !room.filled().is_empty()
}

fn judge(answer: &[u8]) {
    if answer.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(answer);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).unwrap_or_else(|| panic!("{text}"));
    assert!(matches!(status.parse::<u16>(), Ok(100 | 200..500 | 503)), "{text}");
    if status == "200" {
        super::deep();
    }
    let Some((head, body)) = text.split_once("\r\n\r\n") else { panic!("no end of the head: {text}") };
    let head = head.to_ascii_lowercase();
    let whole = head.contains("content-length: ") && status != "100";
    if whole && head.contains("json\r\n") | head.ends_with("json") && !body.is_empty() {
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{text}");
    }
}
