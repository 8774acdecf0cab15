//! Probes of diagnoses on their way out, and what comes back.

use super::leg::{Leg, Shot};
use super::{Course, FIRST, LegAnswer};
use crate::engine::prober::Prober;
use crate::engine::{Engine, Interface, Namespace, Need, Time, Transmit, Unsent, schedule};
use crate::wire::payload::Fields;
use crate::wire::quote::Quote;
use crate::wire::{Encapsulation, Reject, Reply, Stamp};

impl Engine {
    /// Writes the next probe of a diagnosis into `buffer`, if one may leave now.
    pub(in crate::engine) fn poll_leg(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        loop {
            let is_due = |shot: &Shot| shot.is_due() && shot.at <= now;
            let due = self.diagnoses.courses.iter().enumerate().find_map(|(at, course)| {
                let legs = course.legs.iter().enumerate().skip(course.from).filter(|_| course.done.is_none());
                let mut shots = legs.flat_map(|(leg, it)| (0..it.shots.len()).map(move |shot| (leg, shot)));
                shots.find(|&(leg, shot)| is_due(&course.legs[leg].shots[shot])).map(|(leg, shot)| (at, leg, shot))
            });
            let (course, leg, shot) = due?;
            let transmit = self.write_leg(now, (course, leg, shot), buffer);
            if transmit.is_some() {
                return transmit;
            }
        }
    }

    /// Writes one probe of a diagnosis; without one, it has been put off, or will never leave.
    fn write_leg(
        &mut self,
        now: Time,
        (course, leg, shot): (usize, usize, usize),
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let tunnel = self.numbered(self.diagnoses.courses[course].of);
        let prober = tunnel.and_then(|tunnel| self.probers.get_mut(tunnel as usize));
        let course = &mut self.diagnoses.courses[course];
        let (number, Some(prober)) = (course.number, prober) else {
            course.legs[leg].bar("the tunnel has gone meanwhile");
            return None;
        };
        course.sequence += 1;
        let sequence = sequence(prober, &course.legs[leg], course.sequence, now);
        let leg = &mut course.legs[leg];
        let seals = matches!(leg.encapsulation, Encapsulation::Esp(_));
        if seals && leg.encapsulation != prober.settings.onion.encapsulation {
            leg.bar("the tunnel has other keys meanwhile");
            return None;
        }
        let mut associations = prober.associations.as_deref_mut().filter(|_| seals);
        let taken = associations.as_mut().and_then(|associations| associations.take());
        if seals && taken.is_none() {
            // More are asked for as soon as regular probes need them; here as well.
            leg.shots[shot].put_off(now);
            tunnel.into_iter().for_each(|tunnel| self.reserve(tunnel));
            return None;
        }
        let [.., high, low] = schedule::mix(sequence, number.into()).to_be_bytes();
        let stamp = Stamp {
            fields: Fields { tunnel: number, sequence, sent: now.as_nanos() },
            identifier: leg.identifier,
            ip_id: u16::from_be_bytes([high, low]),
        };
        let seal = taken.and_then(|taken| associations.as_ref().and_then(|associations| associations.seal(taken)));
        let Some(length) = leg.template.emit(&stamp, &self.secret, seal, buffer) else {
            leg.bar("it is longer than this program sends");
            return None;
        };
        leg.shots[shot].leave(now, sequence);
        let (egress, destination) = (leg.egress, leg.template.destination());
        if seals {
            tunnel.into_iter().for_each(|tunnel| self.reserve(tunnel));
        }
        Some(Transmit { tunnel: number, sequence, due: None, egress, destination, length })
    }

    /// A probe of a diagnosis was not taken by the kernel.
    pub(in crate::engine) fn leg_unsent(&mut self, now: Time, number: u32, sequence: u64, unsent: Unsent) {
        let tunnel = self.diagnosed(number);
        let namespace = tunnel.map(|tunnel| self.probers[tunnel as usize].settings.namespace);
        let missing = |egress| namespace.map(|namespace| self.needs.missing(namespace, egress));
        let why = |need: Option<Need>| need.map_or("", |need| self.needs.why(need)).to_owned();
        let Some((leg, at)) = self.diagnoses.get_mut(number).and_then(|course| course.shot(sequence)) else { return };
        match unsent {
            Unsent::LocalFault(error) => leg.put_off_or_give_up(at, now, error),
            Unsent::Refused(error) => leg.refuse(at, error.to_owned()),
            Unsent::Missing => leg.refuse(at, why(missing(leg.egress))),
        }
    }

    /// What an answer says, if it is one to a probe of a diagnosis.
    pub(in crate::engine) fn leg_answer(
        &self,
        reply: &Reply<'_>,
        namespace: Namespace,
        interface: Interface,
    ) -> Option<LegAnswer> {
        let number = Some(reply.fields.tunnel).filter(|number| *number >= FIRST)?;
        let sequence = reply.fields.sequence;
        let course = self.diagnoses.under_way().find(|course| course.number == number)?;
        let prober = &self.probers[self.numbered(course.of)? as usize];
        let known = |leg: &&Leg| leg.shots.iter().any(|shot| shot.sent.is_some() && shot.sequence == sequence);
        let leg = course.legs.iter().find(known)?;
        let key = prober.settings.check.mark_key.as_ref().filter(|_| leg.is_inside());
        let way = if prober.settings.namespace == namespace {
            prober.check_way_of(leg.style.direction, leg.inner, key, reply, interface, |path| {
                self.is_ours(path, namespace, interface)
            })
        } else {
            Err(Reject::WrongNamespace)
        };
        Some(LegAnswer { number, sequence, path: reply.path, interface, way })
    }

    /// Whether the probe of this number and sequence of a diagnosis waits for its answer.
    pub(in crate::engine) fn awaits(&self, answer: &LegAnswer) -> bool {
        let course = self.diagnoses.under_way().find(|course| course.number == answer.number);
        let shots = course.into_iter().flat_map(Course::shots);
        shots.into_iter().any(|shot| shot.sequence == answer.sequence && shot.sent.is_some() && !shot.is_settled())
    }

    /// An answer to a probe of a diagnosis has come.
    pub(in crate::engine) fn leg_answered(&mut self, at: Time, answer: &LegAnswer) {
        let &LegAnswer { number, sequence, path, interface, way } = answer;
        let known = self.diagnoses.get_mut(number).and_then(|course| course.shot(sequence));
        if let Some((leg, shot)) = known {
            leg.answered(shot, at, path, interface, way);
        }
    }

    /// An ICMP error about a probe of a diagnosis; whether it is one.
    pub(in crate::engine) fn leg_hinted(&mut self, quote: Quote) -> bool {
        let Some(course) = self.diagnoses.get_mut(quote.fields.tunnel) else { return false };
        let known = course.shot(quote.fields.sequence);
        known.map(|(leg, _)| leg.hint = Some(quote)).is_some()
    }
}

/// The sequence of a probe. Where GRE packets bear one, a router may drop what is out of order: so it is one of
/// the tunnel's own then, which no regular probe will have.
fn sequence(prober: &mut Prober, leg: &Leg, next: u64, now: Time) -> u64 {
    let is_numbered = leg.encapsulation.gre().is_some_and(|options| options.sequence);
    if is_numbered { prober.skip(now) } else { next }
}
