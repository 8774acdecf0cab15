//! What becomes of a round's probes: from an answer, a deadline or a probe that did not leave to the one sample.

use std::time::Duration;

use super::{Fate, Going, Part, Target};
use crate::engine::inflight::{Probe, Standing};
use crate::engine::{Engine, Failure, Time, Transmit, Unsent};
use crate::wire::Reject;

impl Engine {
    /// An answer to one of a round's probes.
    pub(in crate::engine) fn part_answered(&mut self, at: Time, tunnel: u32, sequence: u64) {
        let wall = self.wall(at);
        let prober = &mut self.probers[tunnel as usize];
        let Some(rounds) = &prober.rounds else { return };
        let (round, place) = rounds.split(sequence);
        if round >= prober.in_flight.next() {
            self.rejects[Reject::NeverSent.index()] += 1;
            return;
        }
        match (prober.in_flight.get(round).copied(), rounds.get(round, place)) {
            (Some(probe), Some(part)) if part.fate == Fate::Waiting => {
                let rtt = part.took(&probe, at);
                if rtt > probe.timeout() {
                    self.part_late(at, tunnel, [round, sequence], probe);
                } else {
                    prober.note_target(round, place, rtt, wall);
                    self.conclude(tunnel, round, at, Some(rtt), None, "stall");
                }
            }
            (_, Some(Part { fate: Fate::Answered, .. })) => {
                prober.counters.duplicate += 1;
                self.rejects[Reject::Duplicate.index()] += 1;
            }
            (probe, part) => {
                prober.counters.late += 1;
                self.rejects[Reject::Late.index()] += 1;
                if let (Some(probe), Some(part)) = (probe, part) {
                    self.note_late_part(at, tunnel, [round, sequence], probe, part);
                }
            }
        }
    }

    /// An answer after its time, to a probe that nobody has given up so far.
    fn part_late(&mut self, at: Time, tunnel: u32, [round, sequence]: [u64; 2], probe: Probe) {
        let stalls = self.stalls;
        let prober = &mut self.probers[tunnel as usize];
        prober.counters.late += 1;
        self.rejects[Reject::Late.index()] += 1;
        let Some(rounds) = &mut prober.rounds else { return };
        let (_, place) = rounds.split(sequence);
        // A stall leaves one waiting past its time-out, and may have held up its answer.
        if probe.left() < stalls.end {
            rounds.set(round, place, Fate::Spoilt);
            self.conclude(tunnel, round, at, None, None, "stall");
            return;
        }
        rounds.lose(round, place);
        prober.counters.lost += 1;
        if let Some(part) = rounds.get(round, place) {
            self.note_late_part(at, tunnel, [round, sequence], probe, part);
        }
        self.conclude(tunnel, round, at, None, None, "stall");
    }

    /// A late answer that would have made a quorum tells how slow the path has become.
    fn note_late_part(&mut self, at: Time, tunnel: u32, [round, sequence]: [u64; 2], probe: Probe, part: Part) {
        let prober = &mut self.probers[tunnel as usize];
        let Some(rounds) = &mut prober.rounds else { return };
        if part.fate != Fate::Lost {
            return;
        }
        let (_, place) = rounds.split(sequence);
        rounds.set(round, place, Fate::Late);
        let answered = rounds.having(round, Fate::Answered) + rounds.having(round, Fate::Late);
        if answered == rounds.quorum && !part.held_up {
            prober.note_late(at, part.took(&probe, at));
            self.warn_if_slow(tunnel, at);
        }
    }

    /// The deadline of a round.
    pub(in crate::engine) fn expire_round(&mut self, tunnel: u32, round: u64, deadline: Time) {
        let prober = &mut self.probers[tunnel as usize];
        if let Some(rounds) = &mut prober.rounds {
            prober.counters.lost += rounds.give_up(round, false);
        }
        self.conclude(tunnel, round, deadline, None, None, "stall");
    }

    /// Settles a round, if what has become of its probes decides it. Of a failure, why; else it is who was silent.
    fn conclude(
        &mut self,
        tunnel: u32,
        round: u64,
        at: Time,
        rtt: Option<Duration>,
        failure: Option<Failure>,
        why: &'static str,
    ) {
        let prober = &mut self.probers[tunnel as usize];
        let Some(rounds) = &prober.rounds else { return };
        let Some(standing) = rounds.verdict(round) else { return };
        let failure = failure.unwrap_or_else(|| Failure::Silent(rounds.silent(round)));
        let Some(probe) = prober.in_flight.settle(round, standing) else { return };
        match standing {
            // Where a smaller quorum holds since, the last answer has been here for a while.
            Standing::Answered => {
                let rtt = rtt.unwrap_or_else(|| rounds.slowest(round));
                self.sample(tunnel, at, probe.purpose, true, Ok(rtt));
            }
            Standing::Lost => self.sample(tunnel, at, probe.purpose, probe.retried, Err(failure)),
            Standing::Inconclusive => {
                prober.spoil(round);
                self.note_inconclusive(tunnel, probe.purpose, at, why);
            }
            Standing::Waiting => {}
        }
    }

    /// One of a round's probes has not left.
    pub(in crate::engine) fn part_unsent(&mut self, now: Time, tunnel: u32, sequence: u64, unsent: Unsent) {
        let prober = &mut self.probers[tunnel as usize];
        prober.counters.sent = prober.counters.sent.saturating_sub(1);
        let Some(rounds) = &mut prober.rounds else { return };
        let (round, place) = rounds.split(sequence);
        if let Some(Target { tally, .. }) = rounds.targets.get_mut(place) {
            tally.sent = tally.sent.saturating_sub(1);
        }
        if rounds.get(round, place).is_none_or(|part| part.fate != Fate::Waiting) {
            return;
        }
        let failure = match unsent {
            Unsent::LocalFault(error) => {
                rounds.set(round, place, Fate::Spoilt);
                self.try_again(now, tunnel, round);
                let name = self.name(tunnel).to_owned();
                self.fault(now, Some(name), "send", error);
                None
            }
            Unsent::Refused(error) => Some(Failure::Refused(error)),
            Unsent::Missing => {
                let need = self.needs.missing(prober.settings.namespace, prober.settings.egress);
                Some(Failure::Missing(need))
            }
        };
        if let (Some(failure), Some(rounds)) = (failure, &mut self.probers[tunnel as usize].rounds) {
            rounds.lose(round, place);
            self.probers[tunnel as usize].counters.lost += 1;
            self.conclude(tunnel, round, now, None, Some(failure), "send");
        }
        self.rearm(tunnel);
    }

    /// Sends a round again, if too few of its probes are left for a quorum.
    fn try_again(&mut self, now: Time, tunnel: u32, round: u64) {
        let prober = &mut self.probers[tunnel as usize];
        let open = prober.rounds.as_ref().is_none_or(|rounds| rounds.verdict(round).is_none());
        let Some(probe) = (if open { None } else { prober.in_flight.settle(round, Standing::Inconclusive) }) else {
            return;
        };
        prober.spoil(round);
        self.put_off(now, tunnel, &probe);
    }

    /// The next probe of a round that is on its way out.
    pub(in crate::engine) fn go_on(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        while let Some(going) = self.going.take() {
            let Going { tunnel, round, next, item } = going;
            let Some(prober) = self.probers.get_mut(tunnel as usize) else { continue };
            let Some(rounds) = &prober.rounds else { continue };
            if next >= rounds.count() {
                continue;
            }
            let sequence = rounds.sequence(round, next);
            let is_open = prober.in_flight.get(round).is_some_and(|probe| probe.standing == Standing::Waiting);
            if !is_open || !prober.is_probed() {
                prober.spoil(round);
                continue;
            }
            let Ok(number) = self.number(now, item) else {
                // It is sent again as a whole, if it can be.
                let prober = &mut self.probers[tunnel as usize];
                prober.in_flight.settle(round, Standing::Inconclusive);
                prober.spoil(round);
                self.rearm(tunnel);
                continue;
            };
            self.going = Some(Going { next: next + 1, ..going });
            return self.emit(now, tunnel, sequence, number, None, buffer);
        }
        None
    }

    /// Since when answers to a tunnel may last have been lost on this side of the wire.
    pub(in crate::engine) fn deaf_since(&self, tunnel: u32) -> Option<Time> {
        let ears = self.probers[tunnel as usize].settings.ears();
        ears.filter_map(|ear| self.deaf.get(&ear)).map(|(at, _)| *at).max()
    }
}
