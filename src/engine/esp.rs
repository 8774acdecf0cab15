//! What ESP tunnels need beyond the others: pairs of associations that come and go, packets that must
//! be opened first, sequence numbers that must be reserved, and a way to be unknown with a reason.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::associations::{AssociationView, Associations, Pair, Start, clash};
use super::event::Kind;
use super::numbers::Numbers;
use super::obstacle::Obstacle;
use super::receive::Answer;
use super::settings::{Source, Terms};
use super::{Engine, Namespace, Prober, Time};
use crate::wire::esp::{Fingerprint, Opened, Shape, peek};
use crate::wire::probe::{self, Encapsulation, Sealed};
use crate::wire::{Ends, Path, Reject};

/// Sequence numbers that want to be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// Whose: the outbound key.
    pub key: Fingerprint,
    /// All numbers below this one.
    pub mark: u64,
}

/// Why a pair of associations was not put to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The tunnel has another encapsulation.
    NotEsp,
    /// Another tunnel between the same endpoints, or this one's pair in use, has this SPI.
    SpiTaken(u32),
    /// The kernel has an association with this SPI for the same address.
    Conflict(u32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEsp => f.write_str("the tunnel is not encapsulated in ESP by adit"),
            Self::SpiTaken(spi) => write!(f, "SPI {spi:#x} is in use already; choose another one"),
            Self::Conflict(spi) => write!(f, "{}", Obstacle::Conflict(*spi)),
        }
    }
}

/// That a far router's numbers have gone back is told once in this time.
const ROLLBACK_QUIET: Duration = Duration::from_secs(600);

/// What tells the associations apart that packets come by.
pub(super) type Inlet = (Namespace, Ends, u32);

impl Engine {
    /// Takes note of the associations that the tunnels start with.
    pub(super) fn set_out(&mut self, now: Time, tunnel: u32, start: Start) {
        let start = Start { pair: start.pair.map(|pair| self.unspent(pair)), ..start };
        let Some(prober) = self.probers.get_mut(tunnel as usize) else { return };
        prober.associations = Some(Box::new(Associations::new(start)));
        if let Some(key) = prober.follow_pair() {
            self.keys.insert(key, tunnel);
        }
        self.enlist(tunnel);
        self.reserve(tunnel);
        self.review(now, tunnel);
    }

    /// A pair whose keys may have been in use before: with no number that was used with them in this run.
    fn unspent(&mut self, pair: Pair) -> Pair {
        match self.spent.remove(&pair.outbound_key) {
            Some(used) => Pair { numbers: pair.numbers.after(used), ..pair },
            None => pair,
        }
    }

    /// Notes anew, of all tunnels, by which SPIs their packets come and go, and whose keys are whose.
    pub(super) fn list_associations(&mut self) {
        (self.inlets, self.exits, self.keys) = Default::default();
        for prober in &mut self.probers {
            // Nothing that was noted of a tunnel may take away what is noted of another one now.
            prober.associations.iter_mut().for_each(|associations| drop(associations.enlisted()));
        }
        for tunnel in 0..self.count() {
            let associations = self.probers[tunnel as usize].associations.as_ref();
            let key = associations.and_then(|associations| Some(associations.current()?.outbound_key));
            self.keys.extend(key.map(|key| (key, tunnel)));
            self.enlist(tunnel);
        }
        self.inlets_changed = true;
    }

    /// Whether [`Self::install`] would take a pair with these SPIs.
    ///
    /// # Errors
    /// Why not.
    pub fn may_install(&self, tunnel: u32, spi_out: u32, spi_in: u32) -> Result<(), Refusal> {
        let prober = self.probers.get(tunnel as usize).ok_or(Refusal::NotEsp)?;
        prober.associations.as_ref().ok_or(Refusal::NotEsp)?;
        let outer = prober.settings.onion.outer;
        let namespace = prober.settings.namespace;
        if self.inlets.contains_key(&(namespace, outer, spi_in)) {
            return Err(Refusal::SpiTaken(spi_in));
        }
        if self.exits.contains(&(namespace, outer.far(), spi_out)) {
            return Err(Refusal::SpiTaken(spi_out));
        }
        let known = self.kernel.get(&namespace);
        match known.and_then(|known| clash(outer, [spi_out, spi_in], known)) {
            Some(spi) => Err(Refusal::Conflict(spi)),
            None => Ok(()),
        }
    }

    /// Puts a fresh pair of associations to use, at once; what the old one receives is accepted for
    /// `grace` longer.
    ///
    /// # Errors
    /// As [`Self::may_install`]; then nothing has changed.
    pub fn install(&mut self, now: Time, tunnel: u32, pair: Pair, grace: Duration) -> Result<(), Refusal> {
        self.may_install(tunnel, pair.outbound.spi(), pair.inbound.spi())?;
        let (spi_out, spi_in) = (pair.outbound.spi(), pair.inbound.spi());
        let pair = self.unspent(pair);
        let prober = &mut self.probers[tunnel as usize];
        let key = pair.outbound_key;
        let Some(associations) = &mut prober.associations else { return Err(Refusal::NotEsp) };
        let before = associations.current().map(|pair| pair.outbound_key);
        associations.install(pair, now + grace);
        prober.follow_pair();
        let name = prober.settings.name.clone();
        before.iter().for_each(|key| {
            self.keys.remove(key);
        });
        self.keys.insert(key, tunnel);
        self.enlist(tunnel);
        self.tell(now, Kind::Association { tunnel: name, spi_out, spi_in });
        self.reserve(tunnel);
        self.review(now, tunnel);
        // The old inbound association has a time to be let go of.
        self.rearm(tunnel);
        Ok(())
    }

    /// What a tunnel's pairs are made with, if it is ESP.
    #[must_use]
    pub fn terms(&self, tunnel: u32) -> Option<Terms> {
        self.probers.get(tunnel as usize)?.settings.terms
    }

    /// Of a tunnel's pair: the outbound key, its SPI, the last sequence number that there is, and
    /// whether nobody knows which have been used.
    #[must_use]
    pub fn recorded(&self, tunnel: u32) -> Option<(Fingerprint, u32, u64, bool)> {
        let associations = self.probers.get(tunnel as usize)?.associations.as_ref()?;
        let pair = associations.current()?;
        Some((pair.outbound_key, pair.outbound.spi(), pair.outbound.last(), associations.is_lost()))
    }

    /// The associations of all ESP tunnels, or of one.
    #[must_use]
    pub fn associations(&self, tunnel: Option<u32>) -> Vec<AssociationView> {
        let chosen = match tunnel.map(|tunnel| tunnel as usize) {
            Some(tunnel) => self.probers.get(tunnel..=tunnel).unwrap_or_default(),
            None => &self.probers,
        };
        chosen.iter().filter_map(association_view).collect()
    }

    /// The associations of the ESP tunnels among some tunnels, from a place in the order of the configuration
    /// on, and the place of the next tunnel; `None` if there are no more.
    #[must_use]
    pub fn associations_from(&self, from: usize, count: usize) -> (Vec<AssociationView>, Option<usize>) {
        let to = from.saturating_add(count).min(self.probers.len());
        let some = self.probers.get(from..to).unwrap_or_default();
        (some.iter().filter_map(association_view).collect(), Some(to).filter(|to| *to < self.probers.len()))
    }

    /// Numbers have been reserved, durably.
    pub fn handle_reserved(&mut self, now: Time, key: Fingerprint, mark: u64) {
        let Some(&tunnel) = self.keys.get(&key) else { return };
        if let Some(associations) = &mut self.probers[tunnel as usize].associations {
            associations.grant(mark);
        }
        self.review(now, tunnel);
    }

    /// Numbers could not be reserved: those that were before can still be used.
    pub fn handle_unreserved(&mut self, now: Time, key: Fingerprint, reason: &str) {
        let Some(&tunnel) = self.keys.get(&key) else { return };
        if let Some(associations) = &mut self.probers[tunnel as usize].associations {
            associations.deny(reason);
        }
        let name = self.name(tunnel).to_owned();
        self.fault(now, Some(name), "sequence-state", reason);
        // Whoever writes takes a rest after a failure; so this is no busy loop.
        self.reserve(tunnel);
        self.review(now, tunnel);
    }

    /// The record of used numbers turned out not to be what it was: nothing may be sent any more.
    pub fn handle_state_lost(&mut self, now: Time, key: Fingerprint, why: &str) {
        let Some(&tunnel) = self.keys.get(&key) else { return };
        if let Some(associations) = &mut self.probers[tunnel as usize].associations {
            associations.lose(why.to_owned());
        }
        self.review(now, tunnel);
    }

    /// Begins the sequence numbers of a tunnel's pair, of which some have been reserved; only where
    /// nobody knew which had been used. Says whether it did.
    #[must_use]
    pub fn begin(&mut self, now: Time, tunnel: u32, numbers: Numbers) -> bool {
        let associations = self.probers.get_mut(tunnel as usize).and_then(|prober| prober.associations.as_mut());
        if !associations.is_some_and(|associations| associations.begin(numbers)) {
            return false;
        }
        self.reserve(tunnel);
        self.review(now, tunnel);
        true
    }

    /// The name of the tunnel that seals with a key.
    #[must_use]
    pub fn whose(&self, key: Fingerprint) -> Option<&str> {
        self.keys.get(&key).map(|&tunnel| self.name(tunnel))
    }

    /// The next reservation that is wanted.
    pub fn poll_reserve(&mut self) -> Option<Reserve> {
        self.wanted.pop()
    }

    /// Asks for more numbers, if it is time to.
    pub(super) fn reserve(&mut self, tunnel: u32) {
        let associations = self.probers[tunnel as usize].associations.as_mut();
        let known = associations.filter(|associations| !associations.is_lost());
        let Some(pair) = known.and_then(|associations| associations.current_mut()) else { return };
        let key = pair.outbound_key;
        self.wanted.extend(pair.numbers.wants().map(|mark| Reserve { key, mark }));
    }

    /// The security associations for ESP that the kernel has in a namespace, by destination and SPI.
    pub fn handle_kernel_associations(&mut self, now: Time, namespace: Namespace, known: BTreeSet<(IpAddr, u32)>) {
        self.kernel.insert(namespace, known);
        for tunnel in 0..self.count() {
            self.review(now, tunnel);
        }
    }

    /// The kernel's associations cannot be seen for now: what was seen last holds until they can.
    pub fn handle_unseen(&mut self, now: Time, why: &str) {
        let reason =
            format!("the kernel's security associations cannot be seen, so that no collision is noticed: {why}");
        self.fault(now, None, "kernel-associations", &reason);
    }

    /// Looks whether a tunnel can be probed, and draws the consequences if that has changed.
    pub(super) fn review(&mut self, now: Time, tunnel: u32) {
        let prober = &mut self.probers[tunnel as usize];
        let (outer, namespace) = (prober.settings.onion.outer, prober.settings.namespace);
        let Some(associations) = &mut prober.associations else { return };
        let spis = associations.current().map(|pair| [pair.outbound.spi(), pair.inbound.spi()]);
        let known = self.kernel.get(&namespace);
        associations.set_conflict(spis.zip(known).and_then(|(spis, known)| clash(outer, spis, known)));
        let obstacle = associations.obstacle();
        self.set_obstacle(now, tunnel, obstacle);
    }

    /// Lets go of old inbound associations whose time is over.
    pub(super) fn retire(&mut self, tunnel: u32, now: Time) {
        let associations = self.probers[tunnel as usize].associations.as_mut();
        if associations.is_some_and(|associations| associations.retire(now)) {
            self.enlist(tunnel);
        }
    }

    /// Notes anew by which SPIs a tunnel's packets come and go.
    fn enlist(&mut self, tunnel: u32) {
        let prober = &mut self.probers[tunnel as usize];
        let Some(associations) = &mut prober.associations else { return };
        let (outer, namespace) = (prober.settings.onion.outer, prober.settings.namespace);
        let before = associations.enlisted();
        for spi in before.inbound {
            self.inlets.remove(&(namespace, outer, spi));
        }
        if let Some(spi) = before.outbound {
            self.exits.remove(&(namespace, outer.far(), spi));
        }
        let now = associations.enlist();
        self.inlets.extend(now.inbound.iter().map(|&spi| ((namespace, outer, spi), tunnel)));
        self.exits.extend(now.outbound.iter().map(|&spi| (namespace, outer.far(), spi)));
        self.inlets_changed = true;
    }

    /// The SPIs that ESP packets in a namespace may bear, if they have changed since the last time
    /// that this was asked for; in order.
    pub fn poll_inlets(&mut self) -> Option<Vec<(Namespace, u32)>> {
        if !std::mem::replace(&mut self.inlets_changed, false) {
            return None;
        }
        let spis: BTreeSet<(Namespace, u32)> =
            self.inlets.keys().map(|&(namespace, _, spi)| (namespace, spi)).collect();
        Some(spis.into_iter().collect())
    }

    /// What [`Self::poll_inlets`] gave last could not be put to use.
    pub const fn list_inlets_again(&mut self) {
        self.inlets_changed = true;
    }

    /// Opens an ESP packet and makes sure that it holds an answer of this run that came as it must.
    pub(super) fn open(
        &mut self,
        now: Time,
        namespace: Namespace,
        sealed: Sealed<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<Answer, (Reject, Option<u32>)> {
        let header = peek(sealed.packet).map_err(|reject| (reject, None))?;
        let spi = header.spi;
        let tunnel = *self.inlets.get(&(namespace, sealed.outer, spi)).ok_or((Reject::EspSpi, None))?;
        // Whatever is wrong from here on, the SPI says whom it concerns.
        let whose = |reject| (reject, Some(tunnel));
        let associations = self.probers[tunnel as usize].associations.as_mut();
        let opener = associations.and_then(|associations| associations.opener(spi)).ok_or(whose(Reject::EspSpi))?;
        let opened = opener.examine(sealed.packet, scratch).map_err(whose)?;
        let (sequence, is_new) = (opened.sequence, opened.is_new);
        let path = Path::Esp { outer: sealed.outer, spi, udp: sealed.udp };
        let answer = self.answer_in(namespace, path, &opened);
        if is_new {
            return answer.map_err(whose);
        }
        let answer = answer.map_err(|_| whose(Reject::EspReplay))?;
        if self.cannot_be_old(now, tunnel, &answer, sequence) { Ok(answer) } else { Err(whose(Reject::EspReplay)) }
    }

    /// Which tunnel's probe is answered by what is in a packet, and which one of them.
    fn answer_in(&self, namespace: Namespace, path: Path, opened: &Opened<'_>) -> Result<Answer, Reject> {
        let unpacked = probe::inside(path, opened.inner, opened.packet)?;
        let reply = probe::prove(unpacked, &self.secret)?;
        self.check_way(&reply, namespace, 0)
    }

    /// Whether a packet that came by a tunnel's association, with a number that is not new, is no replay all
    /// the same: it answers a probe that is in flight, and nobody has seen that before. So it is where the
    /// far router has begun its numbers anew, as one does that starts again with static keys; to call its
    /// tunnel dead would be wrong. The replay window stays where it is.
    fn cannot_be_old(&mut self, now: Time, tunnel: u32, answer: &Answer, sequence: u64) -> bool {
        let is_awaited = match answer {
            Answer::Leg(answer) => self.awaits(answer),
            Answer::Probe(probed, probe) => {
                self.probers.get(*probed as usize).is_some_and(|prober| prober.awaits(*probe))
            }
        };
        let prober = &mut self.probers[tunnel as usize];
        let is_static = prober.settings.terms.is_some_and(|terms| terms.source == Source::Static);
        if !is_static || !is_awaited {
            return false;
        }
        let told = prober.rollback_told.is_none_or(|told| now.since(told) >= ROLLBACK_QUIET);
        if told {
            prober.rollback_told = Some(now);
            let tunnel = prober.settings.name.clone();
            let reason = format!(
                "sequence-rollback: the far router's numbers have gone back to {sequence}: has it restarted, or do two \
                 routers share these keys? Another receiver would take them for replays: fresh keys and SPIs are better"
            );
            self.tell(now, Kind::Warning { tunnel: Some(tunnel), reason });
        }
        true
    }
}

impl Prober {
    /// Makes probes that fit the algorithm of the pair in use, and names its outbound key.
    pub(super) fn follow_pair(&mut self) -> Option<Fingerprint> {
        let pair = self.associations.as_ref()?.current()?;
        let key = pair.outbound_key;
        if let Encapsulation::Esp(shape) = self.settings.onion.encapsulation {
            let shape = Shape::new(pair.outbound.algorithm(), shape.udp());
            self.settings.onion.encapsulation = Encapsulation::Esp(shape);
            self.template = crate::wire::Template::new(&self.settings.onion);
            if let Some(rounds) = &mut self.rounds {
                rounds.follow(&self.settings.onion);
            }
        }
        Some(key)
    }
}

fn association_view(prober: &Prober) -> Option<AssociationView> {
    let settings = &prober.settings;
    prober.associations.as_ref().map(|associations| associations.view(&settings.name, settings.terms))
}
