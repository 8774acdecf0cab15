//! A daemon under a service manager, which this plays: readiness, status, watchdog, end.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use adit::io::clock::Clock;
use nix::sys::signal::Signal;

use crate::kit::{ms, uninterrupted};
use crate::site::{Running, Site};
use crate::steering::stage::Stage;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("manager::it_is_ready_when_routes_are_reconciled_and_says_how_it_goes", ready),
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
        let length = uninterrupted(|| self.socket.recv(&mut buffer)).expect("a word to the manager");
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
    let begin = Clock::start();
    (0..3).for_each(|_| drop(manager.until("WATCHDOG=1")));
    assert!(begin.age() > Duration::from_secs(1), "not more often than there is something to prove");
    daemon.send_prober(Signal::SIGSTOP);
    while manager.socket.set_read_timeout(Some(ms(2_500))).is_ok() {
        let mut buffer = [0; 64];
        if uninterrupted(|| manager.socket.recv(&mut buffer)).is_err() {
            break;
        }
        assert!(begin.age() < Duration::from_secs(15), "it is fed though nothing goes on");
    }
    daemon.send_prober(Signal::SIGCONT);
    manager.socket.set_read_timeout(Some(ms(20_000))).unwrap();
    manager.until("WATCHDOG=1");
}
