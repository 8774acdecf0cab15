//! Checked views of IPv4 and IPv6 headers; etherparse does the reading.

use std::net::IpAddr;

use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, err};

use super::{Reject, checksum};

/// The IP protocol number of ICMPv4.
pub const ICMP: u8 = 1;
/// The IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// The length of an IPv4 header without options.
pub const V4_HEADER: usize = 20;
/// The length of an IPv6 header.
pub const V6_HEADER: usize = 40;

/// Which header of the onion is read; decides which [`Reject`] reasons it can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The outermost header, whose checksum the kernel has verified.
    Outer,
    /// A header inside a tunnel, which nobody has verified yet.
    Inner,
}

impl Layer {
    const fn truncated(self) -> Reject {
        match self {
            Self::Outer => Reject::OuterTruncated,
            Self::Inner => Reject::InnerTruncated,
        }
    }

    const fn malformed(self) -> Reject {
        match self {
            Self::Outer => Reject::OuterMalformed,
            Self::Inner => Reject::InnerMalformed,
        }
    }

    const fn fragment(self) -> Reject {
        match self {
            Self::Outer => Reject::OuterFragment,
            Self::Inner => Reject::InnerFragment,
        }
    }
}

/// An IP packet that is whole and consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The protocol of the payload: IPv4's protocol, IPv6's (first) next header.
    pub protocol: u8,
    /// TTL or hop limit as it arrived.
    pub ttl: u8,
    /// What the packet carries, cut to the header's length field.
    pub payload: &'a [u8],
}

/// Reads an IPv4 packet (RFC 791). Options are skipped.
///
/// # Errors
/// A header that does not fit, contradicts itself, belongs to a fragment, or, for
/// [`Layer::Inner`], has a wrong checksum.
pub fn parse_v4(bytes: &[u8], layer: Layer) -> Result<Packet<'_>, Reject> {
    let header = Ipv4HeaderSlice::from_slice(bytes).map_err(|error| match error {
        err::ipv4::HeaderSliceError::Len(_) => layer.truncated(),
        err::ipv4::HeaderSliceError::Content(_) => layer.malformed(),
    })?;
    let (length, total) = (header.slice().len(), usize::from(header.total_len()));
    if total < length || total > bytes.len() {
        return Err(layer.malformed());
    }
    if layer == Layer::Inner && checksum::of(header.slice()) != 0 {
        return Err(Reject::InnerChecksum);
    }
    if header.is_fragmenting_payload() {
        return Err(layer.fragment());
    }
    Ok(Packet {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        protocol: header.protocol().0,
        ttl: header.ttl(),
        payload: &bytes[length..total],
    })
}

/// Reads an IPv6 packet (RFC 8200). Extension headers are left in the payload, so that a packet
/// with one fails the caller's check of the protocol: a probe never has any.
///
/// # Errors
/// A header that does not fit or contradicts itself.
pub fn parse_v6(bytes: &[u8], layer: Layer) -> Result<Packet<'_>, Reject> {
    let header = Ipv6HeaderSlice::from_slice(bytes).map_err(|error| match error {
        err::ipv6::HeaderSliceError::Len(_) => layer.truncated(),
        err::ipv6::HeaderSliceError::Content(_) => layer.malformed(),
    })?;
    let total = V6_HEADER + usize::from(header.payload_length());
    if total > bytes.len() {
        return Err(layer.malformed());
    }
    let protocol = header.next_header().0;
    if protocol == FRAGMENT_HEADER {
        return Err(layer.fragment());
    }
    Ok(Packet {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        protocol,
        ttl: header.hop_limit(),
        payload: &bytes[V6_HEADER..total],
    })
}

/// The next-header value of a fragment (RFC 8200 section 4.5).
const FRAGMENT_HEADER: u8 = 44;
