//! From a probe that is due, or wanted at once, to bytes that leave.

use std::time::Duration;

use super::event::Kind;
use super::inflight::{Probe, Purpose, Standing};
use super::outbox::Item;
use super::prober::Burst;
use super::rounds::Going;
use super::{Engine, Failure, Time, Transmit, Unsent, endpoints, schedule};
use crate::wire::{Stamp, payload::Fields};

/// A burst probe leaves this long before its outcome would fall out of the short window, and a tick, because the next
/// wake-up may be as far away.
const SLACK: Duration = Duration::from_millis(20);

impl Engine {
    pub(super) fn retry_early(&mut self, tunnel: u32, now: Time) {
        let prober = &self.probers[tunnel as usize];
        if !prober.is_probed() {
            return;
        }
        let late =
            prober.in_flight.waiting().find(|(_, probe)| prober.early(probe, self.stalls).is_some_and(|at| at <= now));
        if let Some((sequence, probe)) = late {
            let sent = probe.sent;
            self.probers[tunnel as usize].in_flight.set_retried(sequence);
            self.start_burst(tunnel, sent, true);
        }
    }

    /// Whether a regular probe has been queued.
    pub(super) fn queue_due(&mut self, tunnel: u32, now: Time) -> bool {
        let prober = &mut self.probers[tunnel as usize];
        if now < prober.next_due || !prober.is_probed() {
            return false;
        }
        let (due, check) = (prober.next_due, &prober.settings.check);
        let (interval, step) = (check.interval, schedule::step(check, self.longest_tick));
        let next = due + schedule::jittered(interval, step, schedule::mix(u64::from(prober.number), due.as_nanos()));
        prober.next_due = schedule::resumed(next, interval, now).ceil(step);
        let first = !std::mem::replace(&mut prober.started, true);
        let queues = !std::mem::replace(&mut prober.queued, true);
        if queues {
            self.outbox.push(Item { tunnel, purpose: Purpose::Regular, not_after: due });
        }
        if first {
            prober.health.make_room(interval);
            self.start_burst(tunnel, now, false);
        }
        queues
    }

    /// Queues two confirming probes. `origin` is when the probe was sent that they confirm: the
    /// outcomes of all three must fall into the short window.
    pub(super) fn start_burst(&mut self, tunnel: u32, origin: Time, confirms_failure: bool) {
        let prober = &mut self.probers[tunnel as usize];
        prober.burst = Burst { left: 2, confirms_failure, answered: false };
        let not_after = origin + prober.settings.check.rules.down_window - SLACK - self.tick;
        for _ in 0..2 {
            self.outbox.push(Item { tunnel, purpose: Purpose::Burst, not_after });
        }
    }

    /// Writes the next probe into `buffer`, if one may leave now.
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        if self.going.is_some()
            && let Some(transmit) = self.go_on(now, buffer)
        {
            return Some(transmit);
        }
        loop {
            // Endpoints and diagnoses have time: their probes delay none of a tunnel's.
            let Some(item) = self.outbox.pop(now) else {
                return self.transmit_to_endpoint(now, buffer).or_else(|| self.poll_leg(now, buffer));
            };
            let Item { tunnel, purpose, not_after } = item;
            let prober = &mut self.probers[tunnel as usize];
            if !prober.is_probed() {
                // It waited here when the tunnel's keys went away.
                prober.queued &= purpose != Purpose::Regular;
                self.rearm(tunnel);
                continue;
            }
            match purpose {
                Purpose::Regular => prober.queued = false,
                Purpose::Burst if prober.burst.confirms_failure && prober.burst.answered => {
                    prober.burst.left = prober.burst.left.saturating_sub(1);
                    self.rearm(tunnel);
                    continue;
                }
                Purpose::Burst => {}
            }
            let Ok(number) = self.number(now, item) else {
                self.rearm(tunnel);
                continue;
            };
            let prober = &mut self.probers[tunnel as usize];
            let timeout = prober.timeout();
            let mut sequence = prober.in_flight.send(now, self.stalls.total, timeout, purpose);
            self.listening.extend(now, timeout);
            if prober.rounds.is_some() {
                sequence = self.begin_round(now, item, sequence);
            }
            let due = (purpose == Purpose::Regular).then_some(not_after);
            return self.emit(now, tunnel, sequence, number, due, buffer);
        }
    }

    /// What is in flight is a round: the sequence of its first probe. The others follow.
    fn begin_round(&mut self, now: Time, item: Item, round: u64) -> u64 {
        let (tunnel, stalls, deaf) = (item.tunnel, self.stalls, self.deaf_since(item.tunnel));
        let prober = &mut self.probers[tunnel as usize];
        prober.begin_round(round, now, stalls, deaf);
        self.going = Some(Going { tunnel, round, next: 1, item });
        prober.rounds.as_ref().map_or(round, |rounds| rounds.sequence(round, 0))
    }

    /// Writes a probe into `buffer`.
    pub(super) fn emit(
        &mut self,
        now: Time,
        tunnel: u32,
        sequence: u64,
        number: Option<u64>,
        due: Option<Time>,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let prober = &mut self.probers[tunnel as usize];
        let [.., high, low] = schedule::mix(sequence, u64::from(prober.number)).to_be_bytes();
        let stamp = Stamp {
            fields: Fields { tunnel: prober.number, sequence, sent: now.as_nanos() },
            identifier: prober.identifier(self.secret.epoch),
            ip_id: u16::from_be_bytes([high, low]),
        };
        let associations = prober.associations.as_ref();
        let seal = number.and_then(|number| associations.and_then(|associations| associations.seal(number)));
        let template = match &mut prober.rounds {
            None => &prober.template,
            Some(rounds) => rounds.leaving(sequence).unwrap_or(&prober.template),
        };
        let Some(length) = template.emit(&stamp, &self.secret, seal, buffer) else {
            // It will be a failure, and is waited for as if it had left.
            self.rearm(tunnel);
            return None;
        };
        prober.counters.sent += 1;
        let (egress, destination) = (prober.settings.egress, template.destination());
        Some(Transmit { tunnel, sequence, due, egress, destination, length })
    }

    /// A sequence number for an ESP probe; the others need none. While there is none, the probe waits,
    /// or its tunnel ends.
    pub(super) fn number(&mut self, now: Time, item: Item) -> Result<Option<u64>, ()> {
        let prober = &mut self.probers[item.tunnel as usize];
        let Some(associations) = &mut prober.associations else { return Ok(None) };
        let number = associations.take();
        if number.is_some() {
            if associations.became_scarce() {
                let reason =
                    "nine tenths of the association's sequence numbers are used: give it new keys and SPIs".to_owned();
                let tunnel = Some(prober.settings.name.clone());
                self.tell(now, Kind::Warning { tunnel, reason });
            }
            self.reserve(item.tunnel);
            return Ok(number);
        }
        self.review(now, item.tunnel);
        let prober = &mut self.probers[item.tunnel as usize];
        if prober.is_probed() {
            let (wait, name) = (prober.back_off(now, "sequence-state"), prober.settings.name.clone());
            prober.queued |= item.purpose == Purpose::Regular;
            self.outbox.delay(now + wait, item);
            self.reserve(item.tunnel);
            self.fault(now, Some(name), "sequence-state", "the next sequence numbers are not reserved yet");
        }
        Err(())
    }

    /// Takes a probe that [`Self::poll_transmit`] gave out and the kernel did not take.
    pub fn handle_unsent(&mut self, now: Time, tunnel: u32, sequence: u64, unsent: Unsent) {
        if endpoints::is_number(tunnel) {
            return self.endpoint_unsent(now, tunnel, sequence, unsent);
        }
        let Some(prober) = self.probers.get_mut(tunnel as usize) else {
            return self.leg_unsent(now, tunnel, sequence, unsent);
        };
        if prober.rounds.is_some() {
            return self.part_unsent(now, tunnel, sequence, unsent);
        }
        prober.counters.sent = prober.counters.sent.saturating_sub(1);
        match unsent {
            Unsent::LocalFault(error) => {
                let Some(probe) = prober.in_flight.settle(sequence, Standing::Inconclusive) else { return };
                self.put_off(now, tunnel, &probe);
                let name = self.probers[tunnel as usize].settings.name.clone();
                self.fault(now, Some(name), "send", error);
            }
            Unsent::Refused(error) => self.refused(now, tunnel, sequence, Failure::Refused(error)),
            Unsent::Missing => {
                let need = self.needs.missing(prober.settings.namespace, prober.settings.egress);
                self.refused(now, tunnel, sequence, Failure::Missing(need));
            }
        }
        self.rearm(tunnel);
    }

    /// Sends another in the place of a probe that this host had no room for, a while later.
    pub(super) fn put_off(&mut self, now: Time, tunnel: u32, probe: &Probe) {
        let prober = &mut self.probers[tunnel as usize];
        let wait = prober.back_off(now, "send");
        let not_after = match probe.purpose {
            Purpose::Regular => probe.sent,
            Purpose::Burst => probe.sent + prober.settings.check.rules.down_window,
        };
        prober.queued |= probe.purpose == Purpose::Regular;
        self.outbox.delay(now + wait, Item { tunnel, purpose: probe.purpose, not_after });
    }

    fn refused(&mut self, now: Time, tunnel: u32, sequence: u64, failure: Failure) {
        if let Some(probe) = self.probers[tunnel as usize].in_flight.settle(sequence, Standing::Lost) {
            self.sample(tunnel, now, probe.purpose, probe.retried, Err(failure));
        }
    }
}
