//! What must be so, whatever happens:
//!
//! - a tunnel whose far end is dead is down, within a bound; one whose far end is there is not, within a bound;
//! - no tunnel whose far end was there all the time is called sick for a moment, whatever happens to adit: from when it
//!   is healthy until its far end dies no probe fails and it does not become degraded, nor is it ever down while its far
//!   end is there;
//! - what an operator has drained stays drained;
//! - numbers of events only grow, over all restarts;
//! - after a restart without damage no state has changed: none after a stop, and after a kill none but of a moment before;
//! - nothing panics.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use adit::engine::Time;
use adit::io::clock::Clock;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::deeds::Deed;
use crate::kit::eventually;
use crate::site::{Running, Site, TUNNELS};

/// Until a verdict is on the disk: at once, and if changes go on, once a second; and a disk may be busy.
const WRITTEN: Duration = Duration::from_secs(2);

pub(crate) struct Model {
    seed: u64,
    pub(crate) site: Site,
    pub(crate) daemon: Option<Running>,
    /// The far end of each tunnel, while it is there.
    pub(crate) far: [Option<Running>; 2],
    pub(crate) drained: [bool; 2],
    /// Whether each tunnel was last told to be healthy.
    healthy: [bool; 2],
    /// Whether it has had no reason to be anything else since.
    pub(crate) well: [bool; 2],
    /// When its last transition was heard of.
    told: [Time; 2],
    clock: Clock,
    /// The greatest number of an event that was seen.
    last: u64,
    /// What all daemons have written down of their events.
    recording: BufReader<File>,
    /// The beginning of its next line.
    line: Vec<u8>,
    /// All that was done.
    pub(crate) done: Vec<Deed>,
    /// Clients that do not hang up.
    pub(crate) clients: Vec<UnixStream>,
    /// Of all daemons so far.
    pub(crate) logs: String,
}

impl Model {
    pub(crate) fn start(seed: u64) -> Self {
        let site = Site::new();
        let (daemon, [ams, fra]) = site.healthy();
        let recording = BufReader::new(File::open(site.path("record.jsonl")).unwrap());
        let mut model = Self {
            seed,
            site,
            daemon: Some(daemon),
            far: [Some(ams), Some(fra)],
            drained: [false; 2],
            healthy: [false; 2],
            well: [false; 2],
            told: [Time::ZERO; 2],
            clock: Clock::start(),
            last: 0,
            recording,
            line: Vec::new(),
            done: Vec::new(),
            clients: Vec::new(),
            logs: String::new(),
        };
        model.hear();
        model.require(model.healthy == [true; 2], "both are healthy");
        model.well = [true; 2];
        model
    }

    /// Does something, and sees that all is as it must be afterwards.
    pub(crate) fn suffer(&mut self, deed: Deed) {
        let before = self.states();
        // What is told from here on is of this deed.
        self.hear();
        self.done.push(deed);
        let is_written = self.told.map(|at| deed == Deed::Restart || self.clock.now().since(at) > WRITTEN);
        self.carry_out(deed);
        if matches!(deed, Deed::KillProber | Deed::KillAll | Deed::Restart) {
            self.compare(&before, is_written);
        }
        self.settle();
        self.hear();
        for tunnel in [0, 1] {
            self.well[tunnel] |= self.healthy[tunnel] && self.far[tunnel].is_some();
        }
    }

    /// How many tunnels it would be a mistake to call sick now.
    pub(crate) fn well(&self) -> usize {
        self.well.iter().filter(|well| **well).count()
    }

    pub(crate) fn end(mut self) {
        // What was done last may show late.
        self.suffer(Deed::Rest(Duration::from_secs(1)));
        self.stop(Signal::SIGTERM);
        self.hear_the_dead();
        self.require(!self.logs.contains("panicked"), "nothing panics");
    }

    fn view(&self, tunnel: usize) -> Value {
        // A prober that is killed answers nobody for a moment, and one with many clients may ask to come again.
        let answer = self.site.adit(&["status", TUNNELS[tunnel], "--json"]);
        serde_json::from_slice(&answer.stdout).unwrap_or_default()
    }

    fn states(&self) -> [String; 2] {
        [0, 1].map(|tunnel| {
            let mut state = None;
            eventually("an answer", || {
                state = self.view(tunnel)["state"].as_str().map(str::to_owned);
                state.is_some()
            });
            state.unwrap()
        })
    }

    /// What is on the disk is known after a restart, too, at once.
    fn compare(&self, before: &[String; 2], is_written: [bool; 2]) {
        let after = self.states();
        for tunnel in (0..2).filter(|tunnel| is_written[*tunnel]) {
            let (name, before, after) = (TUNNELS[tunnel], &before[tunnel], &after[tunnel]);
            let holds = (before == "down") == (after == "down") && (after == "healthy" || !self.well[tunnel]);
            self.require(holds, &format!("{name}: {before} before a restart, {after} after it"));
        }
    }

    /// Waits until what is said agrees with what is.
    fn settle(&self) {
        for tunnel in [0, 1] {
            let mut view = Value::Null;
            let agrees = crate::kit::holds_within(crate::kit::PATIENCE, &mut || {
                view = self.view(tunnel);
                let is_right = match view["state"].as_str() {
                    Some("down") => self.far[tunnel].is_none(),
                    Some("healthy") => self.far[tunnel].is_some(),
                    Some("degraded") => self.far[tunnel].is_some() && !self.well[tunnel],
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
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        for event in events.filter(|event| event["kind"] != "gap") {
            let id = event["id"].as_u64().unwrap();
            self.require(id > self.last, &format!("numbers grow: {id} after {}", self.last));
            self.take(id, &event);
        }
    }

    /// Reads what a process that has ended, or its successor, told since, and cannot be asked for any more.
    pub(crate) fn hear_the_dead(&mut self) {
        while self.recording.read_until(b'\n', &mut self.line).unwrap() > 0 && self.line.ends_with(b"\n") {
            // A kill may have torn it.
            let event: Value = serde_json::from_slice(&std::mem::take(&mut self.line)).unwrap_or_default();
            if let Some(id) = event["id"].as_u64().filter(|id| *id > self.last) {
                self.take(id, &event);
            }
        }
    }

    fn take(&mut self, id: u64, event: &Value) {
        self.last = id;
        let Some(tunnel) = TUNNELS.iter().position(|name| event["tunnel"] == *name) else { return };
        let (alive, well) = (self.far[tunnel].is_some(), self.well[tunnel]);
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        let is_right = match (text("kind"), text("from"), text("to")) {
            ("sample", ..) => !well || event["ok"] != false,
            ("transition", _, "down") | ("transition", "unknown", "degraded") => !alive,
            ("transition", "down", "degraded") => alive,
            ("transition", "healthy", "degraded") => !well,
            // Of a far end that dies just now it may be told a moment late.
            ("transition", _, to) => to == "healthy",
            _ => true,
        };
        self.require(is_right, &format!("with its far end there: {alive}, and well: {well}: {event}"));
        if event["kind"] == "transition" {
            self.healthy[tunnel] = event["to"] == "healthy";
            self.told[tunnel] = self.clock.now();
        }
    }

    pub(crate) fn require(&self, holds: bool, what: &str) {
        let Self { seed, done, .. } = self;
        let log = || {
            // What it is about may be of the daemon before.
            let (before, now) = (self.logs.lines(), self.site.read("adit.conf.log"));
            let lines: Vec<&str> = before.chain(now.lines()).collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        let last = &done[done.len().saturating_sub(12)..];
        assert!(holds, "{what}\nseed {seed}, deed {}, the last: {last:?}\n{}", done.len(), log());
    }
}
