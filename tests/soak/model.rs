//! What must be so, whatever happens:
//!
//! - a tunnel whose far end is dead is down, within a bound; one whose far end is there is not, within a bound;
//! - no tunnel whose far end was there all the time goes down for a moment, whatever happens to adit;
//! - what an operator has drained stays drained;
//! - numbers of events only grow, over all restarts;
//! - after a restart without damage no state has changed, and nothing panics.

use std::io::Write;
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::deeds::Deed;
use crate::kit::eventually;
use crate::site::{Running, Site, TUNNELS};

pub(crate) struct Model {
    seed: u64,
    site: Site,
    daemon: Option<Running>,
    /// The far end of each tunnel, while it is there.
    far: [Option<Running>; 2],
    drained: [bool; 2],
    /// The greatest number of an event that was seen.
    last: u64,
    /// All that was done.
    done: Vec<Deed>,
    /// Clients that do not hang up.
    clients: Vec<UnixStream>,
    /// Of all daemons so far.
    logs: String,
}

impl Model {
    pub(crate) fn start(seed: u64) -> Self {
        let site = Site::new();
        let (daemon, [ams, fra]) = site.healthy();
        let far = [Some(ams), Some(fra)];
        let (drained, last, done, clients) = ([false; 2], 0, Vec::new(), Vec::new());
        Self { seed, site, daemon: Some(daemon), far, drained, last, done, clients, logs: String::new() }
    }

    /// Does something, and sees that all is as it must be afterwards.
    pub(crate) fn suffer(&mut self, deed: Deed) {
        self.done.push(deed);
        let before = self.are_down();
        self.carry_out(deed);
        if matches!(deed, Deed::KillProber | Deed::KillAll | Deed::Restart) {
            self.require(self.are_down() == before, "who is down is so after a restart, too, at once");
        }
        self.settle();
        self.hear();
    }

    pub(crate) fn end(mut self) {
        self.stop(Signal::SIGTERM);
        self.require(!self.logs.contains("panicked"), "nothing panics");
    }

    fn carry_out(&mut self, deed: Deed) {
        match deed {
            Deed::Cut(tunnel) => self.far[tunnel] = None,
            Deed::Heal(tunnel) if self.far[tunnel].is_none() => {
                self.far[tunnel] = Some(self.site.far(TUNNELS[tunnel]));
            }
            Deed::Heal(_) => {}
            Deed::Stop(span) => {
                self.daemon().send_prober(Signal::SIGSTOP);
                std::thread::sleep(span);
                self.daemon().send_prober(Signal::SIGCONT);
            }
            Deed::KillProber => {
                let before = self.daemon().prober();
                self.daemon().send_prober(Signal::SIGKILL);
                eventually("another prober", || self.daemon().prober() != before);
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

    fn stop(&mut self, signal: Signal) {
        let daemon = self.daemon.take().expect("a daemon");
        daemon.send(signal);
        let ended = daemon.end();
        self.require(signal == Signal::SIGKILL || ended.success(), "it ends well");
        self.logs.push_str(&self.site.read("adit.conf.log"));
    }

    fn begin_after(&mut self, signal: Signal) {
        self.stop(signal);
        self.daemon = Some(self.site.daemon());
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
        self.daemon = Some(self.site.daemon());
    }

    fn view(&self, tunnel: usize) -> Value {
        // A prober that is killed answers nobody for a moment, and one with many clients may ask to come again.
        let answer = self.site.adit(&["status", TUNNELS[tunnel], "--json"]);
        serde_json::from_slice(&answer.stdout).unwrap_or_default()
    }

    fn are_down(&self) -> [bool; 2] {
        [0, 1].map(|tunnel| {
            let mut state = Value::Null;
            eventually("an answer", || {
                state = self.view(tunnel)["state"].clone();
                state.is_string()
            });
            state == "down"
        })
    }

    /// Waits until what is said agrees with what is.
    fn settle(&self) {
        for tunnel in [0, 1] {
            let mut view = Value::Null;
            let agrees = crate::kit::holds_within(crate::kit::PATIENCE, &mut || {
                view = self.view(tunnel);
                let is_right = match view["state"].as_str() {
                    Some("down") => self.far[tunnel].is_none(),
                    Some("healthy" | "degraded") => self.far[tunnel].is_some(),
                    _ => false,
                };
                is_right && view["drained"] == self.drained[tunnel]
            });
            let alive = self.far[tunnel].is_some();
            self.require(agrees, &format!("{} with its far end there: {alive}, says {view}", TUNNELS[tunnel]));
        }
    }

    /// Hears what has been told since the last time.
    fn hear(&mut self) {
        let text = self.site.say(&["events", "--json", "--since", &self.last.to_string()]);
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for event in events.iter().filter(|event| event["kind"] != "gap") {
            let id = event["id"].as_u64().unwrap();
            self.require(id > self.last, &format!("numbers grow: {id} after {}", self.last));
            self.last = id;
            if event["kind"] == "transition" && event["to"] == "down" {
                let tunnel = TUNNELS.iter().position(|name| event["tunnel"] == *name).unwrap();
                self.require(self.far[tunnel].is_none(), &format!("it was there all the time: {event}"));
            }
        }
    }

    fn require(&self, holds: bool, what: &str) {
        let Self { seed, done, .. } = self;
        let log = || self.site.read("adit.conf.log");
        let last = &done[done.len().saturating_sub(12)..];
        assert!(holds, "{what}\nseed {seed}, deed {}, the last: {last:?}\n{}", done.len(), log());
    }
}
