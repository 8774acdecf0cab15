//! From a probe's outcome to everything that follows: settled once, a sample, a verdict, a penalty,
//! routes, events.

use std::time::Duration;

use super::event::Kind;
use super::health::Transition;
use super::inflight::{Purpose, Settled, Standing};
use super::memory::place;
use super::prober::Prober;
use super::routes::Moved;
use super::window::Outcome;
use super::{Engine, Failure, State, Time};
use crate::wire::Reject;

/// Prefixes that are told one by one when they move together; there may be many thousand.
const TOLD: usize = 64;

impl Engine {
    pub(super) fn answered(&mut self, at: Time, tunnel: u32, sequence: u64) {
        // A deadline before this arrival comes first, or the samples would be out of order.
        self.expire(tunnel, at, false);
        let prober = &mut self.probers[tunnel as usize];
        if prober.rounds.is_some() {
            self.part_answered(at, tunnel, sequence);
            self.rearm(tunnel);
            return;
        }
        match prober.in_flight.answer(sequence) {
            Settled::Now(probe) => {
                let rtt = probe.took(at);
                if rtt > probe.timeout() {
                    // Only a stall leaves a probe waiting past its time-out: too late to be a
                    // success, and our own trouble, so no failure.
                    prober.counters.late += 1;
                    if !probe.held_up {
                        prober.note_late(at, rtt);
                    }
                    self.rejects[Reject::Late.index()] += 1;
                    self.note_inconclusive(tunnel, probe.purpose, at, "stall");
                } else {
                    self.sample(tunnel, at, probe.purpose, true, Ok(rtt));
                }
            }
            Settled::Duplicate => {
                prober.counters.duplicate += 1;
                self.rejects[Reject::Duplicate.index()] += 1;
            }
            Settled::Late(probe) => {
                prober.counters.late += 1;
                self.rejects[Reject::Late.index()] += 1;
                if let Some(probe) = probe.filter(|probe| !probe.held_up) {
                    prober.note_late(at, probe.took(at));
                    self.warn_if_slow(tunnel, at);
                }
            }
            Settled::NeverSent => self.rejects[Reject::NeverSent.index()] += 1,
        }
        self.rearm(tunnel);
    }

    /// Settles the probes whose deadline is before `now`, or at it where that is `inclusive`.
    pub(super) fn expire(&mut self, tunnel: u32, now: Time, inclusive: bool) {
        loop {
            let prober = &mut self.probers[tunnel as usize];
            let stalls = self.stalls;
            let expired =
                prober.in_flight.waiting().map(|(sequence, probe)| (Prober::deadline(probe, stalls), sequence)).min();
            let Some((deadline, sequence)) =
                expired.filter(|&(deadline, _)| deadline < now || inclusive && deadline == now)
            else {
                return;
            };
            let deaf = prober.settings.ears().filter_map(|ear| self.deaf.get(&ear)).max().copied();
            let deaf = deaf.filter(|(at, _)| prober.in_flight.get(sequence).is_some_and(|probe| *at >= probe.sent));
            if let Some((_, why)) = deaf {
                self.inconclusive(tunnel, sequence, deadline, why);
            } else if prober.rounds.is_some() {
                self.expire_round(tunnel, sequence, deadline);
            } else if let Some(probe) = prober.in_flight.settle(sequence, Standing::Lost) {
                self.sample(tunnel, deadline, probe.purpose, probe.retried, Err(Failure::Timeout));
            }
        }
    }

    /// Takes the outcome of a settled probe: the way to every transition.
    pub(super) fn sample(
        &mut self,
        tunnel: u32,
        at: Time,
        purpose: Purpose,
        retried: bool,
        result: Result<Duration, Failure>,
    ) {
        let wall = self.wall(at);
        let prober = &mut self.probers[tunnel as usize];
        let at = at.max(prober.last_sample);
        prober.last_sample = at;
        prober.unconfirmed = prober.unconfirmed.saturating_sub(1);
        self.note_burst(tunnel, purpose);
        let prober = &mut self.probers[tunnel as usize];
        let outcome = match result {
            Ok(rtt) => {
                prober.note_success(rtt);
                Outcome::Success(rtt)
            }
            Err(failure) => {
                prober.note_failure(wall, failure);
                Outcome::Failure
            }
        };
        let refused = matches!(result, Err(Failure::Refused(_) | Failure::Missing(_)));
        if refused != prober.refused || refused {
            self.note_refused(tunnel, at, refused);
        }
        let prober = &mut self.probers[tunnel as usize];
        let transition = prober.health.judge(at, outcome);
        prober.follow_path(at);
        self.record_sample(tunnel, at, Some(outcome));
        if let Some(transition) = transition {
            self.transition(tunnel, transition);
        }
        self.warn_if_slow(tunnel, at);
        self.confirm(tunnel, at, purpose, retried, outcome);
    }

    /// Two more probes after a failure while not down, and after a success while down.
    fn confirm(&mut self, tunnel: u32, at: Time, purpose: Purpose, retried: bool, outcome: Outcome) {
        let prober = &self.probers[tunnel as usize];
        if purpose == Purpose::Burst || prober.burst.left > 0 {
            return;
        }
        let down = prober.health.state() == State::Down;
        match outcome {
            Outcome::Failure if !down && !retried => self.start_burst(tunnel, at - prober.timeout(), true),
            Outcome::Success(_) if down => self.start_burst(tunnel, at, false),
            Outcome::Failure | Outcome::Success(_) => {}
        }
    }

    /// What follows from a transition.
    fn transition(&mut self, tunnel: u32, transition: Transition) {
        let Transition { at, from, to, reason } = transition;
        let prober = &mut self.probers[tunnel as usize];
        (prober.held, prober.undrained) = (None, false);
        self.enter(at, tunnel, [from, to], reason.rule, reason.to_string());
    }

    /// A tunnel has another state.
    pub(super) fn enter(&mut self, at: Time, tunnel: u32, [from, to]: [State; 2], rule: u8, reason: String) {
        let wall = self.wall(at);
        self.states[place(from)] = self.states[place(from)].saturating_sub(1);
        self.states[place(to)] += 1;
        let prober = &mut self.probers[tunnel as usize];
        prober.since = wall;
        match prober.transitions.iter_mut().find(|(before, after, _)| (*before, *after) == (from, to)) {
            Some((_, _, count)) => *count += 1,
            None => prober.transitions.push((from, to, 1)),
        }
        let (name, penalty) = (prober.settings.name.clone(), prober.penalty());
        self.tell(at, Kind::Transition { tunnel: name, from, to, rule, reason, penalty });
        // The kernel's routes first: their traffic waits for it.
        self.weigh(at, tunnel, [from, to]);
        self.reorder(at, tunnel);
    }

    /// Computes a tunnel's penalty anew and moves the traffic for which that makes a difference.
    pub(super) fn steer(&mut self, at: Time, tunnel: u32) {
        self.steered.push_back(tunnel);
        self.reorder(at, tunnel);
    }

    fn reorder(&mut self, at: Time, tunnel: u32) {
        let penalty = self.probers[tunnel as usize].penalty();
        let Moved { count, first } = self.routes.set_penalty(tunnel, penalty, TOLD);
        self.route_changes += count as u64;
        for change in &first {
            let kind = self.moved(change);
            self.tell(at, kind);
        }
        if count > first.len() {
            let tunnel = self.name(tunnel).to_owned();
            self.tell(at, Kind::Routes { tunnel, moved: count });
        }
    }

    pub(super) fn inconclusive(&mut self, tunnel: u32, sequence: u64, at: Time, why: &'static str) {
        let prober = &mut self.probers[tunnel as usize];
        if let Some(probe) = prober.in_flight.settle(sequence, Standing::Inconclusive) {
            prober.spoil(sequence);
            self.note_inconclusive(tunnel, probe.purpose, at, why);
        }
    }

    pub(super) fn note_inconclusive(&mut self, tunnel: u32, purpose: Purpose, at: Time, why: &'static str) {
        self.probers[tunnel as usize].note_spoilt(at, why);
        self.note_burst(tunnel, purpose);
        self.record_sample(tunnel, at, None);
    }

    fn note_burst(&mut self, tunnel: u32, purpose: Purpose) {
        if purpose == Purpose::Burst {
            let burst = &mut self.probers[tunnel as usize].burst;
            burst.left = burst.left.saturating_sub(1);
        }
    }

    fn record_sample(&mut self, tunnel: u32, at: Time, outcome: Option<Outcome>) {
        if !self.record {
            return;
        }
        let (ok, rtt) = match outcome {
            Some(Outcome::Success(rtt)) => (Some(true), Some(rtt)),
            Some(Outcome::Failure) => (Some(false), None),
            None => (None, None),
        };
        let rtt_us = rtt.map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX));
        let tunnel = self.name(tunnel).to_owned();
        self.tell(at, Kind::Sample { tunnel, t: at, ok, inconclusive: ok.is_none(), rtt_us });
    }

    pub(super) fn warn_if_slow(&mut self, tunnel: u32, at: Time) {
        let prober = &mut self.probers[tunnel as usize];
        if prober.became_slow() {
            let reason = format!(
                "the round-trip time, {} ms, is above 70 % of the time-out, {} ms: raise timeout",
                prober.rtt.smoothed().unwrap_or_default().as_millis(),
                prober.timeout().as_millis(),
            );
            let tunnel = prober.settings.name.clone();
            self.tell(at, Kind::Warning { tunnel: Some(tunnel), reason });
        }
    }
}
