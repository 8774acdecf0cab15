//! From a datagram to an answer that counts, or to a reason why it does not.

use super::diagnose::LegAnswer;
use super::{Engine, Interface, Namespace, Time, endpoints};
use crate::wire::probe::{Arrived, Outermost, Path};
use crate::wire::{self, Reject};

/// What an answer is to.
pub(super) enum Answer {
    /// The probe of this sequence of the tunnel of this index.
    Probe(u32, u64),
    /// A probe of a diagnosis.
    Leg(LegAnswer),
}

impl Engine {
    /// Takes a datagram that arrived at `at`, no later than `now`, by the network interface of this
    /// index (0 if that is not known).
    pub fn handle_datagram(
        &mut self,
        now: Time,
        at: Time,
        namespace: Namespace,
        interface: Interface,
        arrived: Arrived<'_>,
    ) {
        let at = at.min(now);
        let result = match wire::probe::outermost(arrived) {
            Ok(Outermost::Sealed(sealed)) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                let result = self.open(now, namespace, sealed, &mut scratch);
                self.scratch = scratch;
                result
            }
            Ok(Outermost::Plain(unpacked)) => {
                let claimed = wire::payload::claimed_tunnel(unpacked.echo.payload);
                if let Some(number) = claimed.filter(|number| endpoints::is_number(*number)) {
                    return self.endpoint_datagram(at, namespace, number, unpacked);
                }
                let claimed = claimed.and_then(|number| self.numbered(number));
                let reply = wire::probe::prove(unpacked, &self.secret);
                let checked = reply.and_then(|reply| self.check_way(&reply, namespace, interface));
                checked.map_err(|reject| (reject, claimed))
            }
            Err(reject) => Err((reject, None)),
        };
        match result {
            Ok(Answer::Probe(tunnel, sequence)) => self.answered(at, tunnel, sequence),
            Ok(Answer::Leg(answer)) => self.leg_answered(at, &answer),
            Err((Reject::IcmpType, _)) if self.hinted(at, arrived) => {}
            Err((reject, claimed)) => self.rejected(at, reject, claimed),
        }
    }

    /// What an answer is to, if it came the way it must; one to a diagnosis in any case.
    pub(super) fn check_way(
        &self,
        reply: &wire::Reply<'_>,
        namespace: Namespace,
        interface: Interface,
    ) -> Result<Answer, Reject> {
        if let Some(answer) = self.leg_answer(reply, namespace, interface) {
            return Ok(Answer::Leg(answer));
        }
        let tunnel = self.numbered(reply.fields.tunnel).ok_or(Reject::UnknownTunnel)?;
        let prober = &self.probers[tunnel as usize];
        if prober.settings.namespace != namespace {
            return Err(Reject::WrongNamespace);
        }
        prober.check_way(reply, interface, |path| self.is_ours(path, namespace, interface))?;
        Ok(Answer::Probe(tunnel, reply.fields.sequence))
    }

    /// Whether what came so came through a tunnel of ours.
    pub(super) fn is_ours(&self, path: &Path, namespace: Namespace, interface: Interface) -> bool {
        match *path {
            Path::Bare => interface != 0 && self.devices.contains(&(namespace, interface)),
            Path::Gre { outer, key } => self.ways.contains(&(namespace, outer, key)),
            // Only an association of ours can have opened it.
            Path::Esp { .. } => true,
        }
    }

    /// The index of the tunnel that probes name by this number.
    pub(super) fn numbered(&self, number: u32) -> Option<u32> {
        // Nearly always there is no gap: where it would be then is where it is.
        let first = self.by_number.first()?.0;
        let there = self.by_number.get(number.wrapping_sub(first) as usize).filter(|(there, _)| *there == number);
        if let Some(&(_, tunnel)) = there {
            return Some(tunnel);
        }
        let at = self.by_number.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.by_number[at].1)
    }

    /// Keeps an ICMP error about a probe for people to read. It moves nothing else: anybody can send
    /// one.
    fn hinted(&mut self, at: Time, arrived: Arrived<'_>) -> bool {
        let Some(quote) = wire::quote::parse(arrived, &self.secret) else { return false };
        let wall = self.wall(at);
        if endpoints::is_number(quote.fields.tunnel) {
            return self.endpoint_hinted(wall, quote);
        }
        if self.leg_hinted(quote) {
            return true;
        }
        let Some(tunnel) = self.numbered(quote.fields.tunnel) else { return false };
        self.probers[tunnel as usize].last_hint = Some((wall, quote));
        self.hints += 1;
        true
    }

    fn rejected(&mut self, at: Time, reject: Reject, claimed: Option<u32>) {
        self.rejects[reject.index()] += 1;
        let wall = self.wall(at);
        if let Some(prober) = claimed.and_then(|tunnel| self.probers.get_mut(tunnel as usize)) {
            prober.counters.forged += u64::from(matches!(reject, Reject::Tag | Reject::EspIcv));
            prober.last_reject = Some((wall, reject));
        }
    }
}
