//! What the engine is told about a tunnel: values that the configuration has made sure of.

use std::net::IpAddr;
use std::time::Duration;

use super::health::Rules;
use crate::wire::filter::Protocol;
use crate::wire::probe::Encapsulation;
use crate::wire::{Direction, Ends, Family, Onion, payload};

/// A network namespace, by index.
pub type Namespace = u32;
/// A sending socket, by index.
pub type Egress = u32;
/// The kernel's index of a network interface; 0 is none.
pub type Interface = u32;

/// A receiving socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ear {
    /// Where it listens.
    pub namespace: Namespace,
    /// The family of the packets that it is given.
    pub family: Family,
    /// What they carry.
    pub protocol: Protocol,
}

/// One tunnel.
#[derive(Clone)]
pub struct Tunnel {
    /// The name in every output.
    pub name: String,
    /// Its probes.
    pub onion: Onion,
    /// How it is checked.
    pub check: Check,
    /// The namespace whose sockets its answers come to.
    pub namespace: Namespace,
    /// The socket its probes leave by.
    pub egress: Egress,
    /// A number for that socket and its namespace that another run also finds
    /// ([`exit`](super::memory::exit)): their indices may be others then.
    pub exit: u64,
    /// For ESP: what a pair of associations is made with.
    pub terms: Option<Terms>,
    /// The index of the kernel's tunnel device, by which answers must come: 0 while it is missing,
    /// `None` where there is no device.
    pub interface: Option<Interface>,
    /// Of several targets, those beside the far end of the probes' inner addresses.
    pub targets: Option<Targets>,
}

/// Several targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// All but the first.
    pub further: Vec<IpAddr>,
    /// How many of all must answer a round for it to be a success.
    pub quorum: usize,
}

impl Targets {
    /// The most that there may be.
    pub const MAX: usize = 16;
}

impl Tunnel {
    /// The socket that its answers come to, if they come the strict way.
    #[must_use]
    pub const fn ear(&self) -> Ear {
        let onion = &self.onion;
        let (family, protocol) = match (onion.style.direction, onion.encapsulation) {
            (Direction::Bidirectional, Encapsulation::Gre(_)) => (onion.outer.family(), Protocol::Gre),
            (Direction::Bidirectional, Encapsulation::Esp(shape)) => {
                (onion.outer.family(), if shape.udp() { Protocol::EspInUdp } else { Protocol::Esp })
            }
            (Direction::Bidirectional, Encapsulation::Device) | (Direction::Unidirectional, _) => {
                (onion.inner.family(), Protocol::Icmp)
            }
        };
        Ear { namespace: self.namespace, family, protocol }
    }

    /// The way by which an answer inside it comes, where any of the tunnels may bring it.
    pub(super) const fn way(&self) -> Option<(Namespace, Ends, Option<u32>)> {
        match self.onion.encapsulation {
            Encapsulation::Gre(options) => Some((self.namespace, self.onion.outer, options.key)),
            Encapsulation::Esp(_) | Encapsulation::Device => None,
        }
    }

    /// All sockets that they may come to: with `return_path = "any"` a tunnel of any kind may bring
    /// them.
    pub fn ears(&self) -> impl Iterator<Item = Ear> + use<> {
        let (own, any) = (self.ear(), self.check.return_path == ReturnPath::Any);
        let families = [Family::V4, Family::V6].into_iter().filter(move |_| any);
        let each = |family| Protocol::ALL.map(|protocol| (family, protocol));
        let others = families.flat_map(each).map(move |(family, protocol)| Ear { family, protocol, ..own });
        others.filter(move |ear| *ear != own).chain([own])
    }

    /// Whether the probes of the other one go the same way, so that what is known of one holds for both.
    pub(super) fn goes_the_way_of(&self, other: &Self) -> bool {
        // Which algorithm seals is a matter of the pair.
        let alike = Onion { encapsulation: self.onion.encapsulation, ..other.onion.clone() };
        let is_sealed_alike = match (self.onion.encapsulation, other.onion.encapsulation) {
            (Encapsulation::Esp(own), Encapsulation::Esp(other)) => own.udp() == other.udp(),
            (own, other) => own == other,
        };
        is_sealed_alike
            && self.onion == alike
            && self.namespace == other.namespace
            && self.egress == other.egress
            && self.source() == other.source()
            && self.further() == other.further()
    }

    /// Targets beside the first.
    pub(super) fn further(&self) -> &[IpAddr] {
        self.targets.as_ref().map_or(&[], |targets| &targets.further)
    }

    /// Whether pairs of associations of the other one, its predecessor, are still good here: those from files
    /// in any case, if nobody says otherwise, and those that were handed over for the same endpoints.
    pub(super) fn may_take_pairs_of(&self, before: &Self) -> bool {
        let (own, old) = (&self.onion, &before.onion);
        match (own.encapsulation, old.encapsulation) {
            (Encapsulation::Esp(shape), Encapsulation::Esp(old_shape)) if self.source() == before.source() => {
                let is_same = own.outer == old.outer && shape.udp() == old_shape.udp();
                self.source() == Some(Source::Static) || is_same && self.namespace == before.namespace
            }
            _ => false,
        }
    }

    /// Where the keys of its pairs come from.
    fn source(&self) -> Option<Source> {
        self.terms.map(|terms| terms.source)
    }
}

/// What a pair of security associations is made with, unless it says otherwise itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Where the keys come from.
    pub source: Source,
    /// Whether sequence numbers have 64 bits (RFC 4304).
    pub esn: bool,
    /// Size of the replay window; 0 is none.
    pub replay_window: u32,
}

/// Where a pair's keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From files, for ever.
    Static,
    /// Handed over at run time, kept in memory only.
    Installed,
}

/// How a tunnel is checked.
#[derive(Clone)]
pub struct Check {
    /// A tunnel that is not checked stays unknown and carries no penalty.
    pub enabled: bool,
    /// Time from one probe to the next.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Timeout,
    /// Whether the two confirming probes leave as soon as an answer is suspiciously late.
    pub early_retry: bool,
    /// Which way an answer must come.
    pub return_path: ReturnPath,
    /// The key of the reflector's mark: with one, an answer without the mark is none.
    pub mark_key: Option<payload::Key>,
    /// The numbers of the health rules.
    pub rules: Rules,
}

impl Check {
    /// Whether all of it is the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let Self { enabled, interval, timeout, early_retry, return_path, mark_key, rules } = other;
        let is_marked_alike = match (&self.mark_key, mark_key) {
            (Some(own), Some(other)) => own.is(other),
            (own, other) => own.is_none() && other.is_none(),
        };
        is_marked_alike
            && (self.enabled, self.interval, self.timeout) == (*enabled, *interval, *timeout)
            && (self.early_retry, self.return_path, self.rules) == (*early_retry, *return_path, *rules)
    }
}

/// How long an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// Always the same.
    Fixed(Duration),
    /// Three times the 99th percentile of the last minutes' round-trip times, between
    /// [`Timeout::AUTO_MIN`] and [`Timeout::AUTO_MAX`].
    Auto,
}

impl Timeout {
    /// The least that `auto` waits.
    pub const AUTO_MIN: Duration = Duration::from_millis(200);
    /// The most that `auto` waits, and what it waits while no round-trip time is known.
    pub const AUTO_MAX: Duration = Duration::from_millis(500);

    /// The longest time-out that this setting can give.
    #[must_use]
    pub const fn longest(self) -> Duration {
        match self {
            Self::Fixed(timeout) => timeout,
            Self::Auto => Self::AUTO_MAX,
        }
    }
}

/// Which way the answer to a bidirectional probe must come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnPath {
    /// Through the tunnel that was probed.
    Strict,
    /// Through any tunnel of ours.
    Any,
}
