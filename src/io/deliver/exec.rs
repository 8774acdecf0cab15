//! A program that is told by its standard input.
//!
//! It has a group of processes of its own, and its time. When that is over, or nobody waits any more, the whole group
//! is killed. What it leaves behind when it ends by itself is killed, too, if it still holds its output: else it has
//! been sent into the background on purpose.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::{HEARD, Report, said};
use crate::notice::Message;

/// Where programs are looked for by a script.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long the rest of its output may take when it has ended.
const REST: Duration = Duration::from_millis(200);
/// The longest value in its environment.
const VALUE: usize = 4_096;

/// Runs it, and waits for its end or for that of its time.
pub(super) async fn run(name: &str, command: &[String], message: &Message, timeout: Duration) -> Report {
    let mut child = match spawn(name, command, message) {
        Ok(child) => child,
        Err(error) => return Report::failed(format!("cannot be run: {error}")),
    };
    let (ended, words) = attend(&mut child, message, timeout).await;
    let words = |how: String| if words.is_empty() { how } else { format!("{how}: {words}") };
    match ended {
        Some(Ok(status)) if status.success() => Report::told(words("done".to_owned())),
        Some(Ok(status)) => Report::failed(words(format!("ended with {status}"))),
        Some(Err(error)) => Report::failed(format!("how it ended is not known: {error}")),
        None => Report::failed(words(format!("was killed: not done in {}", humantime::format_duration(timeout)))),
    }
}

/// Tells a program, and hears it out. How it ended, unless it took too long; and the beginning of what it said.
async fn attend(child: &mut Child, message: &Message, timeout: Duration) -> (Option<io::Result<ExitStatus>>, String) {
    let group = Group::of(child);
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut complaint, mut answer) = (Vec::new(), Vec::new());
    let ended = {
        let write = async {
            if let Some(mut input) = input {
                // It need not read what it is told.
                let _ = input.write_all(message.body.as_bytes()).await;
            }
        };
        let talk = async { tokio::join!(write, listen(output, &mut answer), listen(errors, &mut complaint)) };
        tokio::pin!(talk);
        let mut has_said_all = false;
        let wait = async {
            loop {
                tokio::select! {
                    ended = child.wait() => break ended,
                    _ = &mut talk, if !has_said_all => has_said_all = true,
                }
            }
        };
        let ended = tokio::time::timeout(timeout, wait).await.ok();
        if ended.is_some() && (has_said_all || tokio::time::timeout(REST, talk).await.is_ok()) {
            group.release();
        }
        ended
    };
    let words = [complaint, answer].iter().map(|bytes| said(bytes)).find(|words| !words.is_empty());
    (ended, words.unwrap_or_default())
}

fn spawn(name: &str, command: &[String], message: &Message) -> io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let one = |value: &Option<String>| value.clone().unwrap_or_default();
    let text = &message.text[..message.text.floor_char_boundary(VALUE)];
    Command::new(program)
        .args(arguments)
        .env_clear()
        .envs([("PATH", PATH), ("ADIT_SINK", name), ("ADIT_TEXT", text)])
        .env("ADIT_COUNT", message.count.to_string())
        .env("ADIT_TUNNEL", one(&message.tunnel))
        .env("ADIT_STATE", one(&message.state))
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Reads all that is said, and keeps the beginning.
async fn listen(from: Option<impl AsyncRead + Unpin>, heard: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut buffer = [0; 1_024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let room = HEARD.saturating_sub(heard.len());
        heard.extend_from_slice(&buffer[..length.min(room)]);
    }
}

/// A group of processes, killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    /// It has ended by itself.
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Nobody may be left in it.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}
