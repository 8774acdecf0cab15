//! What can happen, and doing it.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::kit::eventually;
use crate::model::Model;
use crate::site::{Running, TUNNELS};

/// Until the probes that no far end answered have been judged, at twice their time-out. A stop before that puts it off,
/// and if it is longer than the window, they are all that is known of the outage then: ten answers make the tunnel
/// healthy, and those probes make it degraded once more.
const LAST_OUTCOME: Duration = Duration::from_secs(1);

/// Of the daemon's processes, one or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Prober,
    Steward,
    Both,
}

/// One trouble, or the end of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// The far end of a tunnel dies.
    Cut(usize),
    /// It is there again.
    Heal(usize),
    /// A part of the daemon, or all of it, gets no processor time for so long.
    Stop(Part, Duration),
    /// The prober is killed.
    KillProber,
    /// All of the daemon is killed, and started again.
    KillAll,
    /// The daemon is stopped and started as an upgrade does it.
    Restart,
    /// The configuration is read again, and is the same.
    Reload,
    /// It is read again, and wrong.
    BadReload,
    /// An operator drains a tunnel, or ends that.
    Drain(usize),
    /// Clients come, say half of something, and hang up, or do not.
    Clients(u64),
    /// The file of verdicts is damaged while nobody looks, and the daemon killed.
    Damage,
    /// Nothing, for so long.
    Rest(Duration),
}

impl Deed {
    /// The next one.
    pub(crate) fn draw(draw: &mut impl FnMut(u64) -> u64) -> Self {
        let tunnel = usize::from(draw(2) == 1);
        match draw(14) {
            // Rare, because it takes a tunnel long to recover.
            0 if draw(2) == 0 => Self::Cut(tunnel),
            0..=3 => Self::Heal(tunnel),
            4 | 5 => {
                let part = match draw(3) {
                    0 => Part::Prober,
                    1 => Part::Steward,
                    _ => Part::Both,
                };
                Self::Stop(part, Duration::from_millis(200 + draw(6_000)))
            }
            6 => Self::KillProber,
            7 => Self::KillAll,
            8 => Self::Restart,
            9 => Self::Reload,
            10 => Self::BadReload,
            11 => Self::Drain(tunnel),
            12 => Self::Clients(1 + draw(60)),
            _ if draw(4) == 0 => Self::Damage,
            _ => Self::Rest(Duration::from_millis(draw(3_000))),
        }
    }
}

impl Model {
    pub(crate) fn carry_out(&mut self, deed: Deed) {
        match deed {
            Deed::Cut(tunnel) => (self.far[tunnel], self.well[tunnel]) = (None, false),
            Deed::Heal(tunnel) if self.far[tunnel].is_none() => {
                self.far[tunnel] = Some(self.site.far(TUNNELS[tunnel]));
                std::thread::sleep(LAST_OUTCOME);
            }
            Deed::Heal(_) => {}
            Deed::Stop(part, span) => {
                self.send(part, Signal::SIGSTOP);
                std::thread::sleep(span);
                self.send(part, Signal::SIGCONT);
            }
            Deed::KillProber => {
                let before = self.daemon().prober();
                self.daemon().send_prober(Signal::SIGKILL);
                eventually("another prober", || self.daemon().prober() != before);
                self.hear_the_dead();
            }
            Deed::KillAll => self.begin_after(Signal::SIGKILL),
            Deed::Restart => self.begin_after(Signal::SIGTERM),
            Deed::Reload => self.require(self.site.adit(&["reload"]).status.success(), "the same configuration holds"),
            Deed::BadReload => self.reload_badly(),
            Deed::Drain(tunnel) => {
                let what = if self.drained[tunnel] { "undrain" } else { "drain" };
                self.site.say(&[what, TUNNELS[tunnel]]);
                self.drained[tunnel] ^= true;
            }
            Deed::Clients(count) => self.come(count),
            Deed::Damage => self.damage(),
            Deed::Rest(span) => std::thread::sleep(span),
        }
    }

    fn daemon(&self) -> &Running {
        self.daemon.as_ref().expect("a daemon")
    }

    fn send(&self, part: Part, signal: Signal) {
        if part != Part::Prober {
            self.daemon().send(signal);
        }
        if part != Part::Steward {
            self.daemon().send_prober(signal);
        }
    }

    pub(crate) fn stop(&mut self, signal: Signal) {
        let daemon = self.daemon.take().expect("a daemon");
        daemon.send(signal);
        let ended = daemon.end();
        self.require(signal == Signal::SIGKILL || ended.success(), "it ends well");
        self.logs.push_str(&self.site.read("adit.conf.log"));
    }

    fn begin(&mut self) {
        self.daemon = Some(self.site.daemon());
        self.hear_the_dead();
    }

    fn begin_after(&mut self, signal: Signal) {
        self.stop(signal);
        self.begin();
    }

    fn reload_badly(&self) {
        let right = self.site.read("adit.conf");
        self.site.write("adit.conf", &format!("{right}\n[[tunnel]]\nname = 7\n"));
        let answer = self.site.adit(&["reload"]);
        self.site.write("adit.conf", &right);
        self.require(answer.status.code() == Some(78), "a wrong configuration is refused");
    }

    fn come(&mut self, count: u64) {
        self.clients.clear();
        for number in 0..count {
            // More than there are places for may be hung up on.
            let Ok(mut client) = UnixStream::connect(self.site.path("adit.sock")) else { continue };
            let _ = client.write_all(b"GET /v1/tunnels HTTP/1.1\r\nHost: ");
            if number.is_multiple_of(2) {
                self.clients.push(client);
            }
        }
    }

    fn damage(&mut self) {
        self.stop(Signal::SIGKILL);
        let path = self.site.path("state/states");
        if let Ok(mut bytes) = std::fs::read(&path) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            // A drain was in that file only.
            self.drained = [false; 2];
        }
        self.begin();
    }
}
