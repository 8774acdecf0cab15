//! The daemon's log: to the journal, which this plays, and to those who do not take it.

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::kit::{eventually, ms, uninterrupted};
use crate::site::{Running, Site};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("log::where_standard_error_is_the_journal_it_gets_fields", journal),
        case("log::a_journal_that_hangs_stops_nothing", hanging),
        case("log::a_standard_error_that_nobody_reads_stops_nothing", unread),
    ]
}

/// In a mount namespace of its own, where the journal's socket is one of ours.
const IN_ANOTHER_RUN: &str = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && touch /run/made && \
     while [ ! -S /run/systemd/journal/socket ]; do sleep 0.05; done && exec \"$@\"";

/// A daemon whose standard error is the journal, and the journal, which has been seen to first.
fn journaled(site: &Site, before: impl FnOnce(&Path)) -> (Running, UnixDatagram) {
    let inner = site.command("run", "adit.conf");
    let log = File::create(site.path("journal.log")).unwrap();
    let meta = log.metadata().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", IN_ANOTHER_RUN, "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.env("JOURNAL_STREAM", format!("{}:{}", meta.dev(), meta.ino()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let daemon = Running::start(&site.pair.near, &mut command);
    let run = format!("/proc/{}/root/run", daemon.child.id());
    eventually("another /run", || Path::new(&run).join("made").exists());
    let path = Path::new(&run).join("systemd/journal/socket");
    let aside = path.with_extension("new");
    let socket = UnixDatagram::bind(&aside).unwrap();
    before(&aside);
    std::fs::rename(aside, path).unwrap();
    socket.set_read_timeout(Some(ms(20_000))).unwrap();
    (daemon, socket)
}

/// Entries until one that has this in it.
fn until(socket: &UnixDatagram, what: &str) -> Vec<String> {
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|entry: &String| entry.contains(what)) {
        let mut buffer = [0; 65_536];
        let length = uninterrupted(|| socket.recv(&mut buffer)).unwrap_or_else(|error| panic!("{error}: {seen:#?}"));
        seen.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    seen
}

fn journal() {
    let site = Site::new();
    let (daemon, socket) = journaled(&site, |_| ());
    let seen = until(&socket, "ADIT_TO=down\n");
    assert!(seen[0].contains("ADIT_PART=steward\n") && seen[0].contains("PRIORITY=6\n"), "{}", seen[0]);
    let told = seen.iter().find(|entry| entry.contains("ADIT_TO=down\n") && entry.contains("ams-1"));
    let told = told.cloned().unwrap_or_else(|| until(&socket, "ADIT_TUNNEL=ams-1\nADIT_FROM=unknown").pop().unwrap());
    for field in [
        "PRIORITY=5",
        "MESSAGE_ID=03d365a118e5438e9f0591e153c3bebf",
        "ADIT_TUNNEL=ams-1",
        "ADIT_FROM=unknown",
        "ADIT_TO=down",
        "ADIT_RULE=1",
        "ADIT_PART=prober",
        "SYSLOG_IDENTIFIER=adit",
    ] {
        assert!(told.lines().any(|line| line == field), "{field}: {told}");
    }
    let message = told.lines().find(|line| line.starts_with("MESSAGE=")).unwrap();
    assert!(message.contains("tunnel=ams-1") && message.contains("to=down"), "for whoever reads that only: {message}");
    daemon.send(Signal::SIGTERM);
    until(&socket, "MESSAGE=stopped\n");
    assert!(daemon.end().success());
    assert_eq!(site.read("journal.log"), "", "nothing twice");
}

/// Far more than all the buffers on the way have room for.
const MANY: usize = 250;

/// A daemon that does as it should, and has something to say all the time.
fn goes_on(site: &Site) {
    site.await_state("ams-1", "down");
    for _ in 0..MANY {
        site.say(&["drain", "ams-1"]);
        site.say(&["undrain", "ams-1"]);
    }
}

fn hanging() {
    let site = Site::new();
    // It has no room for a single entry.
    let (daemon, socket) = journaled(&site, |path| {
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        let refused = std::iter::repeat_with(|| sender.send_to(b"-", path)).find_map(Result::err);
        assert_eq!(refused.unwrap().kind(), std::io::ErrorKind::WouldBlock);
    });
    goes_on(&site);
    // What has waited is there when the journal goes on.
    let seen = until(&socket, "ADIT_DRAINED=true\n");
    assert!(seen.iter().any(|entry| entry.contains("MESSAGE=started")), "{seen:#?}");
    drop((daemon, socket));
}

/// A pipe that has no room left.
fn full() -> (PipeReader, File, usize) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut writer = File::from(std::os::fd::OwnedFd::from(writer));
    // The default of pipe(7).
    let room = 65_536;
    writer.write_all(&vec![b'-'; room]).unwrap();
    (reader, writer, room)
}

fn unread() {
    let site = Site::new();
    let (mut reader, writer, room) = full();
    let daemon = Running::start(&site.pair.near, site.command("run", "adit.conf").stderr(writer));
    goes_on(&site);
    let reading = std::thread::spawn(move || {
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        said
    });
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    let said = reading.join().unwrap();
    let said = &said[room..];
    for line in ["serving the local socket", "started", "tunnel=\"ams-1\" from=unknown to=down", "stopped"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(said.matches("drained=true").count(), MANY, "none of them is lost: {said}");
}
