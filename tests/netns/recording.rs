//! A recording that nobody takes, at the start, while it runs and at the end: probing goes on.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;

use crate::kit::eventually;
use crate::site::{Site, TUNNELS};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("recording::one_that_nobody_takes_stops_nothing", untaken),
        case("recording::one_that_cannot_be_opened_stops_nothing", unopened),
        case("recording::a_clean_end_does_not_wait_long_for_it", end),
    ]
}

/// A FIFO in the place of the recording: a disk that says nothing for as long as nobody reads.
fn fifo(site: &Site) {
    nix::unistd::mkfifo(&site.path("record.jsonl"), Mode::S_IRWXU).unwrap();
}

/// Its end for reading, and how many bytes are in there, which is all that it has room for.
fn full(site: &Site) -> (File, usize) {
    let open =
        |options: &mut OpenOptions| options.custom_flags(libc::O_NONBLOCK).open(site.path("record.jsonl")).unwrap();
    let reader = open(OpenOptions::new().read(true));
    let (mut writer, mut written) = (open(OpenOptions::new().write(true)), 0);
    let refused = loop {
        match writer.write(&[b'\n'; 4096]) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    (reader, written)
}

/// All that is written until nobody writes any more.
fn read(mut reader: File) -> String {
    let flags = OFlag::from_bits_retain(fcntl(&reader, FcntlArg::F_GETFL).unwrap());
    fcntl(&reader, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK)).unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

fn received(site: &Site, name: &str) -> u64 {
    let view: Value = serde_json::from_str(&site.http("GET", &format!("/v1/tunnels/{name}")).2).unwrap();
    view["counters"]["received"].as_u64().unwrap()
}

fn goes_on(site: &Site) {
    let so_far = TUNNELS.map(|name| received(site, name));
    for (name, so_far) in TUNNELS.into_iter().zip(so_far) {
        eventually("more answers", || received(site, name) > so_far + 10);
    }
}

fn untaken() {
    let site = Site::new();
    fifo(&site);
    let (reader, room) = full(&site);
    // From its first line on it waits.
    let (daemon, [ams, _fra]) = site.healthy();
    goes_on(&site);
    drop(ams);
    site.await_state("ams-1", "down");
    let reading = std::thread::spawn(move || read(reader));
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success(), "{}", site.read("adit.conf.log"));
    let text = reading.join().unwrap();
    let told: Vec<Value> = text[room..].lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds = [&told[0], told.last().unwrap()].map(|event| event["kind"].clone());
    assert_eq!(kinds, ["start", "stop"]);
    let ids: Vec<_> = told.iter().map(|event| event["id"].as_u64()).collect();
    assert!(ids.windows(2).all(|pair| pair[0].map(|id| id + 1) == pair[1]), "one is missing: {ids:?}");
    // Nothing is said on standard error: there is no gap.
    site.write("taken.jsonl", &text[room..]);
    let replayed = {
        let paths = ["adit.conf", "taken.jsonl"].map(|name| site.path(name));
        let [config, file] = paths.each_ref().map(|path| path.to_str().unwrap());
        site.say(&["replay", "--json", "--config", config, file])
    };
    assert!(replayed.lines().any(|line| line.contains("\"ams-1\"") && line.contains("\"to\":\"down\"")), "{replayed}");
}

fn unopened() {
    let site = Site::new();
    // No reader: to open it would take until there is one.
    fifo(&site);
    let (daemon, _far) = site.healthy();
    goes_on(&site);
    let log = site.read("adit.conf.log");
    assert!(log.contains("cannot record to") && log.contains("nobody reads it"), "{log}");
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

fn end() {
    let site = Site::new();
    fifo(&site);
    let (_reader, _) = full(&site);
    let (daemon, _far) = site.healthy();
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    // The steward would end a prober that takes too long.
    let log = site.read("adit.conf.log");
    assert!(log.contains("the recording lacks the last") && !log.contains("does not end by itself"), "{log}");
}
