//! A daemon under a service manager, which this plays: readiness, status, watchdog, end.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::kit::{eventually, ms};
use crate::site::{Running, Site};
use crate::steering::stage::Stage;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("manager::it_is_ready_when_routes_are_reconciled_and_says_how_it_goes", ready),
        case("manager::where_standard_error_is_the_journal_it_gets_fields", journal),
        case("manager::the_watchdog_is_fed_only_while_the_prober_goes_on", watchdog),
    ]
}

struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn start(site: &Site) -> (Self, Running) {
        let path = site.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(ms(20_000))).unwrap();
        let mut command = site.command("run", "adit.conf");
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "30000000");
        (Self { socket }, Running::start(&site.pair.near, &mut command))
    }

    fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("a word to the manager");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// What is told until this is among it.
    fn until(&self, word: &str) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            told.push(self.next());
            if told.last().unwrap().lines().any(|line| line.starts_with(word)) {
                return told;
            }
            assert!(told.len() < 500, "{word} is not told: {told:?}");
        }
    }
}

fn ready() {
    let stage = Stage::new("mode = \"metric\"\n");
    let (manager, daemon) = Manager::start(&stage.site);
    manager.until("READY=1");
    assert_eq!(stage.ours().len(), 4, "reconciled: {:#?}", stage.ours());
    manager.until("STATUS=2 healthy, 0 degraded, 0 down; 0 routes penalised");
    stage.lose_all(0);
    manager.until("STATUS=1 healthy, 0 degraded, 1 down; 2 routes penalised");
    daemon.send(Signal::SIGTERM);
    manager.until("STOPPING=1");
    assert!(daemon.end().success());
}

fn watchdog() {
    let site = Site::new();
    let (manager, daemon) = Manager::start(&site);
    let begin = Instant::now();
    (0..3).for_each(|_| drop(manager.until("WATCHDOG=1")));
    assert!(begin.elapsed() > Duration::from_secs(1), "not more often than there is something to prove");
    daemon.send_prober(Signal::SIGSTOP);
    while manager.socket.set_read_timeout(Some(ms(2_500))).is_ok() {
        let mut buffer = [0; 64];
        if manager.socket.recv(&mut buffer).is_err() {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(15), "it is fed though nothing goes on");
    }
    daemon.send_prober(Signal::SIGCONT);
    manager.socket.set_read_timeout(Some(ms(20_000))).unwrap();
    manager.until("WATCHDOG=1");
}

/// In a mount namespace of its own, where the journal's socket is one of ours.
const IN_ANOTHER_RUN: &str = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && touch /run/made && \
     while [ ! -S /run/systemd/journal/socket ]; do sleep 0.05; done && exec \"$@\"";

fn journal() {
    let site = Site::new();
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
    let socket = UnixDatagram::bind(Path::new(&run).join("systemd/journal/socket")).unwrap();
    socket.set_read_timeout(Some(ms(20_000))).unwrap();
    let mut seen = Vec::new();
    let told = loop {
        let mut buffer = [0; 16_384];
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}: {seen:#?}"));
        let entry = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if entry.contains("ADIT_TO") && entry.contains("ams-1") {
            break entry;
        }
        seen.push(entry);
    };
    let field = |name: &str, value: &str| {
        let plain = format!("{name}={value}\n");
        let length = u64::try_from(value.len()).unwrap().to_le_bytes();
        let binary = format!("{name}\n{}{value}\n", String::from_utf8_lossy(&length));
        assert!(told.contains(&plain) || told.contains(&binary), "{name}={value}: {told:?}");
    };
    field("MESSAGE_ID", "03d365a118e5438e9f0591e153c3bebf");
    field("ADIT_TUNNEL", "ams-1");
    field("ADIT_FROM", "unknown");
    field("ADIT_TO", "down");
    field("ADIT_RULE", "1");
    field("SYSLOG_IDENTIFIER", "adit");
    assert_eq!(site.read("journal.log"), "", "nothing twice");
}
