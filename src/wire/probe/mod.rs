//! The onion: outer IP, GRE or ESP, inner IP, ICMP echo, payload; built from a template and parsed.
//!
//! | file | holds |
//! | --- | --- |
//! | here | what decides a tunnel's probes: style, encapsulation, addresses |
//! | `template` | built once, patched for every sending |
//! | `answer` | what arrives, layer by layer, up to the proof that it is ours |
//! | `plain` | probes in no tunnel, to an endpoint |

mod answer;
mod plain;
mod template;

use std::net::IpAddr;

use super::{Ends, Family, esp, gre, ip};

pub use super::icmp::Kind;
pub(super) use answer::peel;
pub use answer::{
    Arrived, Outermost, Path, Reply, Sealed, Unpacked, claimed_tunnel, inside, outermost, parse, prove, unpack,
};
pub(super) use plain::tagged;
pub use plain::{PLAIN, prove_plain, request};
pub(crate) use template::{IpFields, seal_ip};
pub use template::{Seal, Stamp, Template};

/// Whether the answer comes back inside the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// There and back inside the tunnel.
    Bidirectional,
    /// There inside the tunnel, back bare, by ordinary routing.
    Unidirectional,
}

/// One of the four probe styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Style {
    /// Echo request, or an echo reply that the far router routes back.
    pub kind: Kind,
    /// Which way the answer takes.
    pub direction: Direction,
}

/// What is wrapped around the inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encapsulation {
    /// An outer IP header and GRE.
    Gre(gre::Options),
    /// An outer IP header and ESP, sealed by an association of adit's own.
    Esp(esp::Shape),
    /// Nothing: the kernel's own tunnel device or policy wraps the inner packet.
    Device,
}

impl From<gre::Options> for Encapsulation {
    fn from(options: gre::Options) -> Self {
        Self::Gre(options)
    }
}

impl Encapsulation {
    /// The name in the configuration and in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gre(_) => "gre",
            Self::Esp(_) => "esp",
            Self::Device => "device",
        }
    }

    /// The options of GRE, where it is that.
    #[must_use]
    pub const fn gre(self) -> Option<gre::Options> {
        match self {
            Self::Gre(options) => Some(options),
            Self::Esp(_) | Self::Device => None,
        }
    }

    /// The protocol number in the outer header, if there is one.
    #[must_use]
    pub const fn protocol(self) -> Option<u8> {
        match self {
            Self::Gre(_) => Some(gre::PROTOCOL),
            Self::Esp(shape) => Some(shape.protocol()),
            Self::Device => None,
        }
    }

    /// The length of a whole packet around an inner one of this length.
    #[must_use]
    pub const fn length(self, outer: Family, inner: usize) -> usize {
        match self {
            Self::Gre(options) => header_len(outer) + options.header_len() + inner,
            Self::Esp(shape) => header_len(outer) + shape.length(inner),
            Self::Device => inner,
        }
    }

    /// Where the inner packet begins.
    pub(crate) const fn inner_at(self, outer: Family) -> usize {
        match self {
            Self::Gre(options) => header_len(outer) + options.header_len(),
            Self::Esp(shape) => header_len(outer) + shape.inner_at(),
            Self::Device => 0,
        }
    }
}

/// Everything that decides a tunnel's probes, but for what changes from one to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Onion {
    /// Probe style.
    pub style: Style,
    /// Outer addresses: this side's endpoint and the far router's.
    pub outer: Ends,
    /// What is between the two headers.
    pub encapsulation: Encapsulation,
    /// Inner addresses: those between which the answer must travel, far to local.
    pub inner: Ends,
    /// Outer TTL or hop limit; the inner one is always 64.
    pub ttl: u8,
    /// DSCP of both headers (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// Bytes after the ICMP header: at least [`super::payload::LEN`]; more pads the probe with zeros.
    pub size: u16,
}

impl Onion {
    /// Source and destination of the inner packet as it is sent: a request goes from here to the far
    /// router, a reply the way its answer will come.
    #[must_use]
    pub const fn way(&self) -> (IpAddr, IpAddr) {
        match self.style.kind {
            Kind::Request => (self.inner.local(), self.inner.far()),
            Kind::Reply => (self.inner.far(), self.inner.local()),
        }
    }
}

/// Inner TTL of a probe.
pub const INNER_TTL: u8 = 64;

/// The length of an IP header without options or extensions.
pub(crate) const fn header_len(family: Family) -> usize {
    match family {
        Family::V4 => ip::V4_HEADER,
        Family::V6 => ip::V6_HEADER,
    }
}
