//! What the engine is told about a tunnel: values that the configuration has made sure of.

use std::time::Duration;

use super::health::Rules;
use crate::wire::filter::Protocol;
use crate::wire::{Direction, Family, Onion, payload};

/// A network namespace, by index.
pub type Namespace = u32;
/// A sending socket, by index.
pub type Egress = u32;

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
}

impl Tunnel {
    /// The socket that its answers come to, if they come the strict way.
    #[must_use]
    pub const fn ear(&self) -> Ear {
        let (family, protocol) = match self.onion.style.direction {
            Direction::Bidirectional => (self.onion.outer.family(), Protocol::Gre),
            Direction::Unidirectional => (self.onion.inner.family(), Protocol::Icmp),
        };
        Ear { namespace: self.namespace, family, protocol }
    }

    /// All sockets that they may come to: with `return_path = "any"` a tunnel of either family may
    /// bring them.
    pub fn ears(&self) -> impl Iterator<Item = Ear> + use<> {
        let (own, any) = (self.ear(), self.check.return_path == ReturnPath::Any);
        let other = move |family| any && own.protocol == Protocol::Gre && family != own.family;
        let others = [Family::V4, Family::V6].into_iter().filter(move |&family| other(family));
        others.map(move |family| Ear { family, ..own }).chain([own])
    }
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
