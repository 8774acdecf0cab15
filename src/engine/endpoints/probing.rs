//! Probes of endpoints: due, sent, settled.

use std::time::Duration;

use super::round::{Outcome, Said};
use super::{Endpoints, State};
use crate::engine::event::Kind;
use crate::engine::inflight::{Purpose, Settled, Standing};
use crate::engine::prober::Prober;
use crate::engine::{Engine, Namespace, Time, Transmit, Unsent, WallTime, schedule};
use crate::wire::probe::{self, Unpacked};
use crate::wire::quote::Quote;
use crate::wire::{Reject, Stamp, payload::Fields};

impl Engine {
    /// Settles what has passed its deadline, and queues what is due.
    pub(in crate::engine) fn attend_endpoints(&mut self, now: Time) {
        while let Some(&(_, number)) = self.endpoints.due.first().filter(|(at, _)| *at <= now) {
            self.expire_endpoint(number, now, true);
            let Endpoints { all, queue, .. } = &mut self.endpoints;
            if all.get_mut(&number).is_some_and(|watched| watched.take_turn(now)) {
                queue.push_back(number);
            }
            self.rearm_endpoint(number);
        }
    }

    /// Writes the next probe of an endpoint into `buffer`, if one is to leave now.
    pub(in crate::engine) fn transmit_to_endpoint(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let buffer = buffer.get_mut(..probe::PLAIN)?;
        loop {
            let number = self.endpoints.queue.pop_front()?;
            let Some(watched) = self.endpoints.get(number) else { continue };
            let timeout = watched.timeout();
            let sequence = watched.in_flight.send(now, self.stalls.total, timeout, Purpose::Regular);
            let stamp = Stamp {
                fields: Fields { tunnel: number, sequence, sent: now.as_nanos() },
                identifier: watched.identifier(self.secret.epoch),
                ip_id: 0,
            };
            let (egress, destination) = (watched.settings.egress, watched.settings.address);
            let length = probe::request(destination, &stamp, &self.secret, buffer)?;
            watched.queued = false;
            watched.counters.sent += 1;
            if let Some(round) = &mut watched.round {
                round.sent(now, schedule::TICK);
            }
            self.listening.extend(now, timeout);
            self.rearm_endpoint(number);
            return Some(Transmit { tunnel: number, sequence, due: None, egress, destination, length });
        }
    }

    /// A probe has left at this time, or, where this host has held it up, by now.
    pub(in crate::engine) fn endpoint_sent(&mut self, number: u32, sequence: u64, at: Time, now: Time) {
        let Some(watched) = self.endpoints.get(number) else { return };
        let timeout = watched.timeout();
        if let Some(probe) = watched.in_flight.left(sequence, at, now).filter(|probe| probe.held_up) {
            self.held_up = self.held_up.max(probe.left().since(probe.sent));
            self.listening.extend(now, timeout);
        }
        self.rearm_endpoint(number);
    }

    /// The kernel did not take a probe: this host's own trouble, whatever the reason.
    pub(in crate::engine) fn endpoint_unsent(&mut self, now: Time, number: u32, sequence: u64, unsent: Unsent) {
        let Some(watched) = self.endpoints.get(number) else { return };
        watched.counters.sent = watched.counters.sent.saturating_sub(1);
        let settings = &watched.settings;
        let why = match unsent {
            Unsent::LocalFault(error) | Unsent::Refused(error) => match settings.source {
                Some(source) => format!("{error} (source {source}: is it an address of this host?)"),
                None => error.to_owned(),
            },
            Unsent::Missing => self.needs.why(self.needs.missing(settings.namespace, settings.egress)).to_owned(),
        };
        if watched.in_flight.settle(sequence, Standing::Inconclusive).is_some() {
            self.settle_endpoint(number, now, &Outcome::Unsent(why));
        }
        self.rearm_endpoint(number);
    }

    /// Takes what names an endpoint, and says what is wrong with it.
    pub(in crate::engine) fn endpoint_datagram(
        &mut self,
        at: Time,
        namespace: Namespace,
        number: u32,
        unpacked: Unpacked<'_>,
    ) {
        let near = unpacked.ends.local();
        let reply = probe::prove_plain(unpacked, &self.secret);
        let wall = self.wall(at);
        let Some(watched) = self.endpoints.get(number) else {
            let reject = reply.err().unwrap_or(Reject::UnknownTunnel);
            self.rejects[reject.index()] += 1;
            return;
        };
        let reply = reply.and_then(|reply| match watched.settings.namespace == namespace {
            true => Ok(reply.fields.sequence),
            false => Err(Reject::WrongNamespace),
        });
        match reply {
            Ok(sequence) => {
                watched.near = Some(near);
                watched.last_reject.take_if(|(_, reject)| *reject == Reject::WrongPath);
                self.endpoint_answered(at, number, sequence);
            }
            // Through a tunnel that the kernel has a device for, too: it unwraps the answer, and hands it over once more.
            Err(Reject::WrongPath) => watched.last_reject = Some((wall, Reject::WrongPath)),
            Err(reject) => {
                watched.counters.forged += u64::from(reject == Reject::Tag);
                watched.last_reject = Some((wall, reject));
                self.rejects[reject.index()] += 1;
            }
        }
    }

    /// An ICMP error about a probe: kept for people to read, as those of tunnels.
    pub(in crate::engine) fn endpoint_hinted(&mut self, at: WallTime, quote: Quote) -> bool {
        let Some(watched) = self.endpoints.get(quote.fields.tunnel) else { return false };
        watched.last_hint = Some((at, quote));
        self.hints += 1;
        true
    }

    fn endpoint_answered(&mut self, at: Time, number: u32, sequence: u64) {
        // A deadline before this arrival comes first.
        self.expire_endpoint(number, at, false);
        let Some(watched) = self.endpoints.get(number) else { return };
        let (counters, rejects) = (&mut watched.counters, &mut self.rejects);
        match watched.in_flight.answer(sequence) {
            Settled::Now(probe) => {
                let rtt = probe.took(at);
                // Only a stall leaves a probe waiting past its time-out: too late for a success, and no failure.
                let is_late = rtt > probe.timeout();
                counters.late += u64::from(is_late);
                rejects[Reject::Late.index()] += u64::from(is_late);
                self.settle_endpoint(number, at, &if is_late { Outcome::Spoilt } else { Outcome::Answered(rtt) });
            }
            Settled::Duplicate => {
                counters.duplicate += 1;
                rejects[Reject::Duplicate.index()] += 1;
            }
            Settled::Late(_) => {
                counters.late += 1;
                rejects[Reject::Late.index()] += 1;
            }
            Settled::NeverSent => rejects[Reject::NeverSent.index()] += 1,
        }
        self.rearm_endpoint(number);
    }

    /// Settles the probes whose deadline is before `now`, or at it where that is `inclusive`.
    fn expire_endpoint(&mut self, number: u32, now: Time, inclusive: bool) {
        let stalls = self.stalls;
        while let Some(watched) = self.endpoints.get(number) {
            let deadline = |(sequence, probe)| (Prober::deadline(probe, stalls), sequence);
            let first = watched.in_flight.waiting().map(deadline).min();
            let Some((deadline, sequence)) = first.filter(|&(at, _)| at < now || inclusive && at == now) else {
                return;
            };
            let ear = watched.settings.ear();
            let Some(probe) = watched.in_flight.settle(sequence, Standing::Lost) else { return };
            let is_deaf = self.deaf.get(&ear).is_some_and(|(at, _)| *at >= probe.sent);
            self.settle_endpoint(number, deadline, &if is_deaf { Outcome::Spoilt } else { Outcome::Lost });
        }
    }

    /// What is in flight says nothing any more: in one namespace, or wherever it is.
    pub(in crate::engine) fn let_endpoints_go(&mut self, now: Time, namespace: Option<Namespace>) {
        let is_here = |of: Namespace| namespace.is_none_or(|namespace| namespace == of);
        for number in self.endpoints.order.clone() {
            let Some(watched) = self.endpoints.get(number).filter(|it| is_here(it.settings.namespace)) else {
                continue;
            };
            let waiting: Vec<u64> = watched.in_flight.waiting().map(|(sequence, _)| sequence).collect();
            for sequence in waiting {
                if let Some(watched) = self.endpoints.get(number) {
                    watched.in_flight.settle(sequence, Standing::Inconclusive);
                }
                self.settle_endpoint(number, now, &Outcome::Spoilt);
            }
            self.rearm_endpoint(number);
        }
    }

    /// Takes the outcome of a settled probe: the way to every change of an endpoint's state.
    fn settle_endpoint(&mut self, number: u32, at: Time, outcome: &Outcome) {
        let wall = self.wall(at);
        let Some(watched) = self.endpoints.get(number) else { return };
        watched.note(wall, outcome);
        if let Outcome::Answered(rtt) = outcome
            && watched.state != State::Reachable
        {
            self.enter_endpoint(at, number, State::Reachable, format!("answered after {}", millis(*rtt)));
        }
        let Some(watched) = self.endpoints.get(number).filter(|watched| watched.is_round_over()) else { return };
        let Some(mut round) = watched.round.take() else { return };
        let said = round.end(at.ceil(schedule::TICK), watched.state);
        if said == Said::More {
            watched.round = Some(round);
            return;
        }
        let is_conclusive = said != Said::Nothing;
        if let Said::State(state, reason) = said {
            self.enter_endpoint(at, number, state, reason);
        }
        if let Some(watched) = self.endpoints.get(number) {
            watched.close_round(at, is_conclusive);
        }
    }

    /// An endpoint is in a state, for a reason. Told if either is news: of what answers, or does not, the reason is not.
    fn enter_endpoint(&mut self, at: Time, number: u32, to: State, reason: String) {
        let wall = self.wall(at);
        let Some(watched) = self.endpoints.get(number) else { return };
        let (from, name) = (watched.state, watched.settings.name.clone());
        let is_news = from != to || to == State::Unknown && watched.reason != reason;
        watched.reason.clone_from(&reason);
        if from != to {
            (watched.state, watched.since) = (to, wall);
        }
        if is_news {
            self.tell(at, Kind::Endpoint { endpoint: name, from, to, reason });
        }
    }
}

fn millis(duration: Duration) -> String {
    let micros = duration.as_micros();
    format!("{}.{:02} ms", micros / 1_000, micros % 1_000 / 10)
}
