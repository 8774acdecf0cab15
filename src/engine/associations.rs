//! The security associations of one ESP tunnel: which one seals, which ones open, and why there may
//! be none to use.
//!
//! A tunnel without usable keys is unknown, with the reason, and never down: that it cannot be probed
//! says nothing about what it carries.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use super::Time;
use super::numbers::Numbers;
use super::obstacle::Obstacle;
use super::settings::{Source, Terms};
use crate::wire::Ends;
use crate::wire::esp::{Fingerprint, Inbound, IvSeed, Keys, Outbound};
use crate::wire::probe::Seal;

/// How long the old inbound association is accepted after a new pair was installed, unless said
/// otherwise: the far router may send by it until it has the new pair too.
pub const GRACE: Duration = Duration::from_secs(30);

/// A pair of associations, ready for use.
pub struct Pair {
    /// Seals probes.
    pub outbound: Outbound,
    /// Opens answers.
    pub inbound: Inbound,
    /// Sequence numbers that nobody has used.
    pub numbers: Numbers,
    /// Names the outbound key.
    pub outbound_key: Fingerprint,
    /// Names the inbound key.
    pub inbound_key: Fingerprint,
}

/// What a pair of associations is made of.
#[derive(Clone)]
pub struct Material {
    /// The SPI of probes.
    pub spi_out: u32,
    /// The SPI of answers.
    pub spi_in: u32,
    /// Seals probes.
    pub key_out: Keys,
    /// Opens answers.
    pub key_in: Keys,
    /// Whether sequence numbers have 64 bits (RFC 4304).
    pub esn: bool,
    /// Size of the replay window; 0 is none.
    pub replay_window: u32,
}

/// What tells pairs of associations apart, without their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairName {
    /// The SPI of probes.
    pub spi_out: u32,
    /// The SPI of answers.
    pub spi_in: u32,
    /// Names the outbound key.
    pub key_out: Fingerprint,
    /// Names the inbound key.
    pub key_in: Fingerprint,
    /// Whether sequence numbers have 64 bits.
    pub esn: bool,
    /// Size of the replay window; 0 is none.
    pub replay_window: u32,
}

impl Pair {
    /// What tells it from others.
    #[must_use]
    pub const fn name(&self) -> PairName {
        PairName {
            spi_out: self.outbound.spi(),
            spi_in: self.inbound.spi(),
            key_out: self.outbound_key,
            key_in: self.inbound_key,
            esn: self.inbound.esn(),
            replay_window: self.inbound.replay_window(),
        }
    }
}

impl Material {
    /// What tells it from others.
    #[must_use]
    pub fn name(&self) -> PairName {
        let Self { spi_out, spi_in, esn, replay_window, .. } = *self;
        PairName {
            spi_out,
            spi_in,
            key_out: self.outbound_key(),
            key_in: self.key_in.fingerprint(),
            esn,
            replay_window,
        }
    }

    /// The same pair from the far router's side.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            spi_out: self.spi_in,
            spi_in: self.spi_out,
            key_out: self.key_in.clone(),
            key_in: self.key_out.clone(),
            ..*self
        }
    }

    /// The highest sequence number that there is.
    #[must_use]
    pub fn last(&self) -> u64 {
        if self.esn { u64::MAX } else { u32::MAX.into() }
    }

    /// Names the outbound key.
    #[must_use]
    pub fn outbound_key(&self) -> Fingerprint {
        self.key_out.fingerprint()
    }

    /// The pair, with a random seed for its IVs.
    #[must_use]
    pub fn pair(&self, seed: &IvSeed, numbers: Numbers) -> Pair {
        let Self { spi_out, spi_in, key_out, key_in, esn, replay_window } = self;
        Pair {
            outbound: Outbound::new(*spi_out, *esn, key_out, seed),
            inbound: Inbound::new(*spi_in, *esn, *replay_window, key_in),
            numbers,
            outbound_key: self.outbound_key(),
            inbound_key: key_in.fingerprint(),
        }
    }
}

/// What an ESP tunnel starts with.
pub struct Start {
    /// Keys from the configuration; those that are installed come later.
    pub pair: Option<Pair>,
    /// Why nobody knows which sequence numbers of the pair have been used.
    pub lost: Option<String>,
}

/// The first of a pair's SPIs, outbound and inbound, that the kernel has, too: the outbound one for the far
/// endpoint, the inbound one for the near one.
#[must_use]
pub fn clash(outer: Ends, [spi_out, spi_in]: [u32; 2], known: &BTreeSet<(IpAddr, u32)>) -> Option<u32> {
    let pair = [(outer.far(), spi_out), (outer.local(), spi_in)];
    pair.into_iter().find(|association| known.contains(association)).map(|(_, spi)| spi)
}

/// What `adit sa show` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AssociationView {
    /// The tunnel's name.
    pub tunnel: String,
    /// Where keys come from: `static` or `installed`.
    pub keys: &'static str,
    /// The pair in use; null while there is none.
    pub pair: Option<PairView>,
    /// SPIs of old inbound associations that are still accepted.
    pub retiring: Vec<u32>,
    /// Why the tunnel cannot be probed; null if it can.
    pub obstacle: Option<String>,
}

/// A pair, without its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairView {
    /// How packets are sealed.
    pub algorithm: &'static str,
    /// The SPI of probes.
    pub spi_out: u32,
    /// The SPI of answers.
    pub spi_in: u32,
    /// Whether sequence numbers have 64 bits.
    pub esn: bool,
    /// Size of the replay window; 0 is none.
    pub replay_window: u32,
    /// The next probe's sequence number.
    pub next_sequence: u64,
    /// How many thousandths of the sequence numbers are used.
    pub used_per_mille: u32,
    /// The highest sequence number of an answer that proved itself.
    pub highest_received: u64,
    /// Names the outbound key.
    pub fingerprint_out: String,
    /// Names the inbound key.
    pub fingerprint_in: String,
}

impl PairView {
    fn of(pair: &Pair) -> Self {
        Self {
            algorithm: pair.outbound.algorithm().name(),
            spi_out: pair.outbound.spi(),
            spi_in: pair.inbound.spi(),
            esn: pair.outbound.esn(),
            replay_window: pair.inbound.replay_window(),
            next_sequence: pair.numbers.peek(),
            used_per_mille: pair.numbers.share_used(),
            highest_received: pair.inbound.highest(),
            fingerprint_out: pair.outbound_key.to_string(),
            fingerprint_in: pair.inbound_key.to_string(),
        }
    }
}

/// The associations of one tunnel.
pub(super) struct Associations {
    current: Option<Pair>,
    /// Old inbound associations, and until when they are accepted.
    retiring: Vec<(Inbound, Time)>,
    /// Why nobody knows which sequence numbers have been used.
    lost: Option<String>,
    /// Why more numbers could not be reserved, the last time.
    unwritten: Option<String>,
    conflict: Option<u32>,
    noted: Spis,
}

/// By which SPIs packets come and go.
#[derive(Default)]
pub(super) struct Spis {
    pub(super) inbound: Vec<u32>,
    pub(super) outbound: Option<u32>,
}

impl Associations {
    pub(super) fn new(Start { pair, lost }: Start) -> Self {
        Self { current: pair, retiring: Vec::new(), lost, unwritten: None, conflict: None, noted: Spis::default() }
    }

    /// Why the tunnel cannot be probed now.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        let Some(pair) = &self.current else { return Some(Obstacle::NotInstalled) };
        if let Some(spi) = self.conflict {
            return Some(Obstacle::Conflict(spi));
        }
        if let Some(why) = &self.lost {
            return Some(Obstacle::StateLost(why.clone()));
        }
        if pair.numbers.exhausted() {
            return Some(Obstacle::Exhausted);
        }
        // What was reserved before can still be used.
        let why = self.unwritten.as_ref().filter(|_| pair.numbers.ready() == 0);
        why.map(|why| Obstacle::Unwritten(why.clone()))
    }

    /// What people are shown; the keys themselves are not to be had.
    pub(super) fn view(&self, tunnel: &str, terms: Option<Terms>) -> AssociationView {
        let installed = terms.is_none_or(|terms| terms.source == Source::Installed);
        AssociationView {
            tunnel: tunnel.to_owned(),
            keys: if installed { "installed" } else { "static" },
            pair: self.current.as_ref().map(PairView::of),
            retiring: self.retiring.iter().map(|(inbound, _)| inbound.spi()).collect(),
            obstacle: self.obstacle().map(|obstacle| obstacle.to_string()),
        }
    }

    /// Puts a new pair in use; the old inbound association is accepted until `until`.
    pub(super) fn install(&mut self, pair: Pair, until: Time) {
        (self.lost, self.unwritten) = (None, None);
        if let Some(old) = self.current.replace(pair) {
            self.retiring.push((old.inbound, until));
        }
    }

    /// Lets go of what has been accepted long enough, and says whether there was any.
    pub(super) fn retire(&mut self, now: Time) -> bool {
        let before = self.retiring.len();
        self.retiring.retain(|(_, until)| *until > now);
        before != self.retiring.len()
    }

    /// When the next old association is let go of.
    pub(super) fn retires(&self) -> Option<Time> {
        self.retiring.iter().map(|(_, until)| *until).min()
    }

    /// Nobody knows any more which numbers have been used.
    pub(super) fn lose(&mut self, why: String) {
        self.lost = Some(why);
    }

    /// Begins the pair's numbers anew, if nobody knew which had been used. Otherwise they are in use,
    /// and to begin below the next one would use some of them twice.
    pub(super) fn begin(&mut self, numbers: Numbers) -> bool {
        match &mut self.current {
            Some(pair) if self.lost.is_some() => pair.numbers = numbers,
            Some(_) | None => return false,
        }
        self.lost = None;
        true
    }

    /// Whether nobody knows which numbers have been used.
    pub(super) const fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// More numbers have been reserved.
    pub(super) fn grant(&mut self, mark: u64) {
        self.unwritten = None;
        if let Some(pair) = &mut self.current {
            pair.numbers.grant(mark);
        }
    }

    /// More numbers could not be reserved: they are to be asked for again.
    pub(super) fn deny(&mut self, why: &str) {
        self.unwritten = Some(why.to_owned());
        if let Some(pair) = &mut self.current {
            pair.numbers.retry();
        }
    }

    pub(super) fn set_conflict(&mut self, conflict: Option<u32>) {
        self.conflict = conflict;
    }

    /// A sequence number for one probe; `None` until more have been reserved.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.current.as_mut()?.numbers.take()
    }

    /// Whether nine tenths of the numbers have just been used up.
    pub(super) fn became_scarce(&mut self) -> bool {
        self.current.as_mut().is_some_and(|pair| pair.numbers.became_scarce())
    }

    /// What seals the probe that a number was taken for.
    pub(super) fn seal(&self, sequence: u64) -> Option<Seal<'_>> {
        Some(Seal { outbound: &self.current.as_ref()?.outbound, sequence })
    }

    /// The association that opens packets with this SPI.
    pub(super) fn opener(&mut self, spi: u32) -> Option<&mut Inbound> {
        let current = self.current.iter_mut().map(|pair| &mut pair.inbound);
        current.chain(self.retiring.iter_mut().map(|(inbound, _)| inbound)).find(|inbound| inbound.spi() == spi)
    }

    /// The SPIs that were noted the last time.
    pub(super) fn enlisted(&mut self) -> Spis {
        std::mem::take(&mut self.noted)
    }

    /// Notes the SPIs of now.
    pub(super) fn enlist(&mut self) -> &Spis {
        let outbound = self.current.as_ref().map(|pair| pair.outbound.spi());
        self.noted = Spis { inbound: self.inbound_spis().collect(), outbound };
        &self.noted
    }

    /// Whether packets with this SPI are this tunnel's.
    pub(super) fn receives(&self, spi: u32) -> bool {
        self.inbound_spis().any(|own| own == spi)
    }

    /// Every SPI that answers may bear.
    pub(super) fn inbound_spis(&self) -> impl Iterator<Item = u32> {
        let current = self.current.iter().map(|pair| pair.inbound.spi());
        current.chain(self.retiring.iter().map(|(inbound, _)| inbound.spi()))
    }

    pub(super) const fn current(&self) -> Option<&Pair> {
        self.current.as_ref()
    }

    pub(super) const fn current_mut(&mut self) -> Option<&mut Pair> {
        self.current.as_mut()
    }
}
