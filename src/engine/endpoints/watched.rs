//! One endpoint's run-time state, and what it decides by itself.

use std::collections::VecDeque;
use std::time::Duration;

use super::round::{Outcome, Round};
use super::{Endpoint, State};
use crate::engine::inflight::InFlight;
use crate::engine::prober::{Counters, Prober, Stalls};
use crate::engine::snapshot::Dated;
use crate::engine::time::{Time, WallTime};
use crate::engine::{Reject, schedule};
use crate::wire::quote::Quote;

/// So many of the last samples are kept: a hundred show a loss of 1 %.
const SAMPLES: usize = 100;
/// A failure among the round-trip times.
const FAILED: u32 = u32::MAX;

/// An endpoint that is probed.
pub(super) struct Watched {
    /// What its probes call it: no other endpoint and no tunnel of this run has it, before or after.
    pub(super) number: u32,
    pub(super) settings: Endpoint,
    pub(super) state: State,
    pub(super) since: WallTime,
    pub(super) reason: String,
    pub(super) in_flight: InFlight,
    pub(super) round: Option<Round>,
    /// When the next round begins, or the last one was to.
    pub(super) next_round: Time,
    /// How many there have been.
    pub(super) rounds: u32,
    /// A probe waits to be sent.
    pub(super) queued: bool,
    /// When it wants attention next.
    pub(super) armed: Option<Time>,
    pub(super) counters: Counters,
    /// To which of this host's addresses the last answer came: the kernel chose it.
    pub(super) near: Option<std::net::IpAddr>,
    pub(super) last_failure: Option<Dated>,
    pub(super) last_reject: Option<(WallTime, Reject)>,
    pub(super) last_hint: Option<(WallTime, Quote)>,
    /// The last samples, oldest first: round-trip times in microseconds.
    samples: VecDeque<u32>,
}

/// What the last samples say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) samples: usize,
    pub(super) failures: usize,
    /// Of the successes: the last, the least, the mean.
    pub(super) rtt: Option<[u32; 3]>,
}

impl Watched {
    pub(super) fn new(number: u32, settings: Endpoint, first: Time, since: WallTime) -> Self {
        Self {
            number,
            settings,
            state: State::Unknown,
            since,
            reason: "no round has ended yet".to_owned(),
            in_flight: InFlight::default(),
            round: None,
            next_round: first,
            rounds: 0,
            queued: false,
            armed: None,
            counters: Counters::default(),
            near: None,
            last_failure: None,
            last_reject: None,
            last_hint: None,
            samples: VecDeque::new(),
        }
    }

    /// Goes on with other settings, as far as they do not say what is probed.
    pub(super) fn resettle(&mut self, first: Time, settings: Endpoint) {
        let before = std::mem::replace(&mut self.settings, settings);
        let (own, old) = (self.settings.timing, before.timing);
        if own.interval < old.interval || own.retry_interval < old.retry_interval {
            self.next_round = self.next_round.min(first);
        }
    }

    /// When this endpoint wants attention next.
    pub(super) fn attention(&self, stalls: Stalls) -> Option<Time> {
        let deadlines = self.in_flight.waiting().map(|(_, probe)| Prober::deadline(probe, stalls));
        deadlines.chain(self.next_probe()).min()
    }

    /// When a probe is to be queued next; `None` while one is, or while what was sent is waited for.
    pub(super) fn next_probe(&self) -> Option<Time> {
        match &self.round {
            _ if self.queued => None,
            Some(round) => round.wants_more().then_some(round.next),
            None => Some(self.next_round),
        }
    }

    /// Whether a probe is to be sent now, which is then waiting for that; a round may begin with it.
    pub(super) fn take_turn(&mut self, now: Time) -> bool {
        if self.next_probe().is_none_or(|next| next > now) {
            return false;
        }
        if self.round.is_none() {
            self.round = Some(Round::new(now, self.settings.timing.count));
            self.rounds = self.rounds.wrapping_add(1);
        }
        self.queued = true;
        true
    }

    /// Whether nothing of the round is under way any more.
    pub(super) fn is_round_over(&self) -> bool {
        !self.queued && self.in_flight.count() == 0 && self.round.as_ref().is_some_and(|round| !round.wants_more())
    }

    /// The round is over: when the next one begins. While nobody knows that there is an answer, soon; what a stall has
    /// missed is not caught up with.
    pub(super) fn close_round(&mut self, now: Time, is_conclusive: bool) {
        let timing = self.settings.timing;
        self.round = None;
        let pause = match self.state {
            State::Reachable if is_conclusive => timing.interval,
            State::Reachable | State::Unknown | State::Unreachable => timing.retry_interval.min(timing.interval),
        };
        let noise = schedule::mix(u64::from(self.number), self.next_round.as_nanos());
        let next = self.next_round + schedule::jittered(pause, schedule::TICK, noise);
        self.next_round = schedule::resumed(next, pause, now).ceil(schedule::TICK);
    }

    /// The ICMP identifier: another one each round, since a stateful box on the way may have pinned the last one to a
    /// way that is broken.
    pub(super) fn identifier(&self, epoch: u64) -> u16 {
        let bits = schedule::mix(epoch, u64::from(self.number) << 32 | u64::from(self.rounds));
        let [high, low, ..] = bits.to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// One of its probes has come to this.
    pub(super) fn note(&mut self, at: WallTime, outcome: &Outcome) {
        let failed = |reason: &str| Some(Dated { at, reason: reason.to_owned() });
        match outcome {
            Outcome::Answered(rtt) => {
                self.counters.received += 1;
                self.sample(u32::try_from(rtt.as_micros()).unwrap_or(FAILED - 1).min(FAILED - 1));
            }
            Outcome::Lost => {
                self.counters.lost += 1;
                self.last_failure = failed("timeout");
                self.sample(FAILED);
            }
            Outcome::Unsent(why) => {
                self.counters.local_faults += 1;
                self.last_failure = failed(&format!("not sent: {why}"));
            }
            Outcome::Spoilt => self.counters.local_faults += 1,
        }
        if let Some(round) = &mut self.round {
            round.note(outcome);
        }
    }

    fn sample(&mut self, rtt_us: u32) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(rtt_us);
    }

    pub(super) fn summary(&self) -> Summary {
        let successes = || self.samples.iter().copied().filter(|&rtt| rtt != FAILED);
        let (count, sum) = successes().fold((0, 0), |(count, sum), rtt| (count + 1, sum + u64::from(rtt)));
        let mean = u32::try_from(sum / count.max(1)).unwrap_or(u32::MAX);
        let rtt = successes().next_back().zip(successes().min()).map(|(last, least)| [last, least, mean]);
        Summary {
            samples: self.samples.len(),
            failures: self.samples.iter().filter(|&&rtt| rtt == FAILED).count(),
            rtt,
        }
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.settings.timing.timeout
    }
}
