//! The two ends of a header, in one address family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Family {
    /// IPv4 (RFC 791).
    V4,
    /// IPv6 (RFC 8200).
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// The EtherType that GRE uses for it (RFC 2784 section 2.4, RFC 7676 section 4).
    #[must_use]
    pub const fn ethertype(self) -> u16 {
        match self {
            Self::V4 => 0x0800,
            Self::V6 => 0x86DD,
        }
    }
}

/// This side's address and the far router's, seen from here whichever way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ends {
    /// IPv4 addresses.
    V4 {
        /// This side.
        local: Ipv4Addr,
        /// The far router.
        far: Ipv4Addr,
    },
    /// IPv6 addresses.
    V6 {
        /// This side.
        local: Ipv6Addr,
        /// The far router.
        far: Ipv6Addr,
    },
}

impl Ends {
    /// Two addresses of one family, or `None`.
    #[must_use]
    pub const fn new(local: IpAddr, far: IpAddr) -> Option<Self> {
        match (local, far) {
            (IpAddr::V4(local), IpAddr::V4(far)) => Some(Self::V4 { local, far }),
            (IpAddr::V6(local), IpAddr::V6(far)) => Some(Self::V6 { local, far }),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// This side's address.
    #[must_use]
    pub const fn local(self) -> IpAddr {
        match self {
            Self::V4 { local, .. } => IpAddr::V4(local),
            Self::V6 { local, .. } => IpAddr::V6(local),
        }
    }

    /// The far router's address.
    #[must_use]
    pub const fn far(self) -> IpAddr {
        match self {
            Self::V4 { far, .. } => IpAddr::V4(far),
            Self::V6 { far, .. } => IpAddr::V6(far),
        }
    }

    /// The family of both.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::V4 { .. } => Family::V4,
            Self::V6 { .. } => Family::V6,
        }
    }

    /// The same two ends seen from the other one.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { local, far } => Self::V4 { local: far, far: local },
            Self::V6 { local, far } => Self::V6 { local: far, far: local },
        }
    }

    /// Far address, then local one, 16 bytes each, IPv4 mapped (RFC 4291 section 2.5.5.2): the
    /// form that the probe's tag covers.
    #[must_use]
    pub fn octets(self) -> [u8; 32] {
        let (local, far) = match self {
            Self::V4 { local, far } => (local.to_ipv6_mapped(), far.to_ipv6_mapped()),
            Self::V6 { local, far } => (local, far),
        };
        let mut octets = [0; 32];
        octets[..16].copy_from_slice(&far.octets());
        octets[16..].copy_from_slice(&local.octets());
        octets
    }
}
