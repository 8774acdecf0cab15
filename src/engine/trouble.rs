//! The prober's own troubles: noticed, counted, told, and never a tunnel's failure (law 4).
//!
//! Whether this process was stopped or starved is seen by how much later it goes on than it should have:
//!
//! | from | to | who looks |
//! | --- | --- | --- |
//! | the wake-up that was asked for | the wake-up | [`Engine::handle_wakeup`] |
//! | the wake-up | the end of reading | [`Engine::handle_drained`] |
//! | the end of reading | the next wake-up | the next [`Engine::handle_wakeup`] |
//! | a probe's stamp | the return of the system call that sends it | [`Engine::handle_sent`], [`Engine::handle_flushed`] |
//!
//! So that a stop is seen though no timer was due in it, a wake-up is asked for now and then for as long as
//! an answer may come.

use std::time::Duration;

use serde::Serialize;

use super::event::Kind;
use super::time::WallTime;
use super::{Ear, Engine, Time, Transmit, endpoints};

/// Every kind of trouble that is told, and what it means. The names are for ever.
pub const KINDS: [(&str, &str); 13] = [
    ("stall", "this process was stopped or starved"),
    ("suspend", "the host slept"),
    ("clock-step", "the wall clock was set"),
    ("receive-overflow", "packets were lost in this host's receive queue"),
    ("receive", "this host could not read all that had arrived"),
    ("send", "this host was short of buffers or memory"),
    ("sequence-state", "sequence numbers could not be recorded, or not in time"),
    ("kernel-associations", "the kernel does not show its associations"),
    ("kernel-overrun", "the kernel told more of its routes than could be heard"),
    ("memory", "what is known of the tunnels could not be written down"),
    ("memory-lost", "what was known of the tunnels could not be read"),
    ("recording", "events were left out of the recording"),
    ("fail-static", "too many tunnels went down while this host was in trouble"),
];

/// What it means that a probe has come to nothing by this.
pub(super) fn meaning(why: &str) -> &'static str {
    let known = KINDS.iter().find(|(kind, _)| *kind == why).map(|(_, meaning)| *meaning);
    known.unwrap_or("its network namespace went away")
}

/// Going on this much later than it should have is a stall: the engine was stopped or starved.
pub const STALL: Duration = Duration::from_millis(50);
/// Woken this much later than was asked for, this process is behind with its work: bursts wait as long as they can.
const BEHIND: Duration = Duration::from_millis(4);
/// Between two wake-ups while an answer may come. A stop of at least this, [`STALL`] and a tick together is
/// always seen; answers may have been held up by a shorter one, but not by more than that.
const BEAT: Duration = STALL;
/// The same local fault is told once in this time, and counted always.
const FAULT_QUIET: Duration = Duration::from_secs(10);
/// A wall clock that is set by less is being kept right.
const STEP: Duration = Duration::from_secs(1);
/// Beside that it may run faster or slower by this part while it is kept right: as far as `chronyd` goes.
const SLEW: u32 = 10;

/// A kind of trouble.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) count: u64,
    told: Time,
    last: Time,
    pub(super) reason: String,
}

/// A local fault: the prober's own trouble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Its kind.
    pub fault: &'static str,
    /// How often.
    pub count: u64,
    /// When it was last.
    pub at: WallTime,
    /// In words.
    pub reason: String,
}

/// When this process was seen to run, and how long it must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listening {
    /// It ran then for the last time.
    seen: Time,
    /// Answers may come until then.
    until: Time,
    /// The longest time-out so far.
    patience: Duration,
}

impl Listening {
    pub(super) const fn new(now: Time) -> Self {
        Self { seen: now, until: Time::ZERO, patience: Duration::ZERO }
    }

    /// When this process was seen to run last.
    pub(super) const fn seen(&self) -> Time {
        self.seen
    }

    pub(super) const fn see(&mut self, now: Time) {
        self.seen = now;
    }

    /// An answer may come from now on, for as long as this.
    pub(super) fn extend(&mut self, now: Time, timeout: Duration) {
        self.patience = self.patience.max(timeout);
        self.until = self.until.max(now + timeout);
    }

    /// When this process wants to be woken only to see whether it runs.
    pub(super) fn beat(&self) -> Option<Time> {
        (self.seen < self.until).then(|| self.seen + BEAT)
    }
}

impl Engine {
    /// Says what the wall clock shows, so that events can be dated. Nothing else depends on it.
    pub const fn set_wall(&mut self, now: Time, wall: WallTime) {
        self.wall_offset = wall.0.saturating_sub(now.as_nanos());
    }

    /// The same, told if the clock was set. The host may have been `asleep` since it was last asked, which
    /// the wall clock was not.
    pub fn handle_clock(&mut self, now: Time, wall: WallTime, asleep: Duration) {
        let before = self.wall_offset;
        self.set_wall(now, wall);
        let ahead = i128::from(self.wall_offset) - i128::from(before) - asleep.as_nanos().cast_signed();
        let step = Duration::from_nanos(u64::try_from(ahead.unsigned_abs()).unwrap_or(u64::MAX));
        if step > STEP + now.since(self.listening.seen) / SLEW {
            let way = if ahead > 0 { "ahead" } else { "back" };
            let reason = format!("the wall clock was set {way} by {} s; nothing is reckoned by it", step.as_secs());
            self.fault(now, None, "clock-step", &reason);
        }
    }

    /// Begins a wake-up: a late one is the engine's own trouble.
    pub fn handle_wakeup(&mut self, now: Time) {
        let late = self.lateness(now);
        self.lag.note(late);
        if late > BEHIND {
            self.outbox.hold_back(now, late);
        }
        if late >= STALL {
            self.stalled(now, late, "stall", &format!("woken {} ms late", late.as_millis()));
        }
    }

    /// All that had arrived by now has been read, but is yet to be handed in.
    pub fn handle_drained(&mut self, now: Time) {
        let late = self.lateness(now);
        if late >= STALL {
            self.stalled(now, late, "stall", &format!("stopped for {} ms while reading", late.as_millis()));
        }
    }

    /// How much later it is than this process should have run. A timer may be due before it is set (an early
    /// retry that had to wait for a burst's end): it is late only since this process ran last, which was the
    /// last time to see to it.
    fn lateness(&mut self, now: Time) -> Duration {
        let wanted =
            [self.timers.earliest(), self.endpoints.earliest(), self.listening.beat()].into_iter().flatten().min();
        // Whoever wakes this process does so a tick at a time.
        let wanted = wanted.map(|wanted| wanted.ceil(self.tick));
        let seen = std::mem::replace(&mut self.listening.seen, now);
        wanted.map_or(Duration::ZERO, |wanted| now.since(wanted.max(seen)))
    }

    /// Probes that [`Self::poll_transmit`] gave out, oldest first, have left between `begun` and now, or never
    /// will: one after the other, each in its part of that time. But meanwhile, or since their stamp, this process
    /// may have been stopped: then their answers are waited for from now on.
    pub fn handle_sent<'a>(&mut self, begun: Time, now: Time, sent: impl ExactSizeIterator<Item = &'a Transmit>) {
        let (count, span) = (u32::try_from(sent.len()).unwrap_or(u32::MAX).max(1), now.since(begun));
        for (place, &Transmit { tunnel, sequence, due, .. }) in (0_u32..).zip(sent) {
            let at = begun + span * place / count;
            if endpoints::is_number(tunnel) {
                self.endpoint_sent(tunnel, sequence, at, now);
                continue;
            }
            let Some(prober) = self.probers.get_mut(tunnel as usize) else { continue };
            let timeout = prober.timeout();
            // One that was refused has its outcome.
            if let Some(probe) = prober.left(sequence, at, now) {
                let left = probe.left();
                if probe.held_up {
                    self.held_up = self.held_up.max(left.since(probe.sent));
                    self.listening.extend(now, timeout);
                }
                due.into_iter().for_each(|due| self.late.note(left.since(due)));
            }
            self.rearm(tunnel);
        }
    }

    /// All that was to leave has left, or never will: was this process stopped meanwhile?
    pub fn handle_flushed(&mut self, now: Time) {
        let longest = std::mem::take(&mut self.held_up);
        if longest >= STALL {
            self.listening.seen = now;
            self.stalled(now, longest, "stall", &format!("stopped for {} ms while sending", longest.as_millis()));
        }
    }

    /// The host was suspended: answers may have been lost while nobody listened.
    pub fn handle_suspend(&mut self, now: Time, asleep: Duration) {
        self.stalled(now, Duration::ZERO, "suspend", &format!("the host slept for {} s", asleep.as_secs()));
        (0..self.count()).for_each(|tunnel| self.let_go(now, tunnel, "suspend"));
        self.let_endpoints_go(now, None);
    }

    /// What is in flight through a tunnel is no sample: answers may come while nobody listens.
    pub(super) fn let_go(&mut self, now: Time, tunnel: u32, why: &'static str) {
        let prober = &self.probers[tunnel as usize];
        let waiting: Vec<u64> = prober.in_flight.waiting().map(|(sequence, _)| sequence).collect();
        waiting.into_iter().for_each(|sequence| self.inconclusive(tunnel, sequence, now, why));
        self.rearm(tunnel);
    }

    fn stalled(&mut self, now: Time, lost: Duration, name: &'static str, reason: &str) {
        self.stalls.end = now;
        self.stalls.total += lost;
        self.listening.extend(now, self.listening.patience);
        self.fault(now, None, name, reason);
        // Deadlines have moved; a timer at the old one would only wake us for nothing.
        (0..self.count()).for_each(|tunnel| self.rearm(tunnel));
        self.rearm_endpoints();
    }

    /// A socket has lost packets for want of room: probes in flight may have been answered.
    pub fn handle_overflow(&mut self, now: Time, ear: Ear, dropped: u32) {
        self.deaf(now, ear, "receive-overflow", &format!("{dropped} packets lost in the receive queue"));
        let lost = self.overflowed.entry(ear).or_default();
        *lost = lost.saturating_add(dropped.into());
    }

    /// A socket could not be read, or not to its end: probes in flight may have been answered.
    pub fn handle_deaf(&mut self, now: Time, ear: Ear, reason: &str) {
        self.deaf(now, ear, "receive", reason);
    }

    fn deaf(&mut self, now: Time, ear: Ear, name: &'static str, reason: &str) {
        self.deaf.insert(ear, (now, name));
        self.fault(now, None, name, reason);
    }

    /// Events are left out of the recording.
    pub fn handle_unrecorded(&mut self, now: Time, why: &str) {
        self.fault(now, None, "recording", why);
    }

    /// The prober's own troubles, the last of each kind.
    #[must_use]
    pub fn troubles(&self) -> Vec<Trouble> {
        let trouble = |fault: &Fault| Trouble {
            fault: fault.name,
            count: fault.count,
            at: self.wall(fault.last),
            reason: fault.reason.clone(),
        };
        self.faults.iter().map(trouble).collect()
    }

    pub(super) fn fault(&mut self, now: Time, tunnel: Option<String>, name: &'static str, reason: &str) {
        self.note_sign(now, name);
        let fault = self.count_fault(now, name, reason);
        if fault.count == 1 || now.since(fault.told) >= FAULT_QUIET {
            fault.told = now;
            self.tell(now, Kind::LocalFault { tunnel, fault: name, reason: reason.to_owned() });
        }
    }

    pub(super) fn count_fault(&mut self, now: Time, name: &'static str, reason: &str) -> &mut Fault {
        debug_assert!(KINDS.iter().any(|(kind, _)| *kind == name), "{name} is not among the kinds of trouble");
        let at = self.faults.iter().position(|fault| fault.name == name);
        let at = at.unwrap_or_else(|| {
            self.faults.push(Fault { name, count: 0, told: Time::ZERO, last: now, reason: String::new() });
            self.faults.len() - 1
        });
        let fault = &mut self.faults[at];
        fault.count += 1;
        fault.last = now;
        reason.clone_into(&mut fault.reason);
        fault
    }
}
