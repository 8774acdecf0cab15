//! Echo requests in no tunnel, whose IP header the kernel makes.
//!
//! It chooses the source by the route that it finds, so nobody knows it beforehand: the tag of such a probe covers
//! the far address alone, the near one left unspecified.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Kind, Path, Reply, Stamp, Unpacked};
use crate::wire::payload::{self, Secret};
use crate::wire::{Ends, Family, Reject, icmp};

/// The length of one, from the ICMP header on.
pub const PLAIN: usize = icmp::HEADER + payload::LEN;

/// What the tag covers.
pub(in crate::wire) const fn tagged(far: IpAddr) -> Ends {
    match far {
        IpAddr::V4(far) => Ends::V4 { local: Ipv4Addr::UNSPECIFIED, far },
        IpAddr::V6(far) => Ends::V6 { local: Ipv6Addr::UNSPECIFIED, far },
    }
}

/// Writes an echo request to this address into the beginning of `out` and returns its length, or `None` if `out` is
/// too short.
pub fn request(far: IpAddr, stamp: &Stamp, secret: &Secret, out: &mut [u8]) -> Option<usize> {
    let (ends, message) = (tagged(far), out.get_mut(..PLAIN)?);
    let [a, b] = stamp.identifier.to_be_bytes();
    let [.., c, d] = stamp.fields.sequence.to_be_bytes();
    message[..icmp::HEADER].copy_from_slice(&[Kind::Request.number(ends.family()), 0, 0, 0, a, b, c, d]);
    payload::emit(stamp.fields, ends, secret, message[icmp::HEADER..].first_chunk_mut()?);
    match ends.family() {
        Family::V4 => icmp::seal(ends, message),
        // That of ICMPv6 covers the source, too, and is the kernel's to fill in (RFC 3542 section 3.1).
        Family::V6 => {}
    }
    Some(PLAIN)
}

/// As [`prove`](super::prove), for what may be an answer to such a probe.
///
/// # Errors
/// The first thing that is wrong. In a tunnel is [`Reject::WrongPath`].
pub fn prove_plain<'a>(unpacked: Unpacked<'a>, secret: &Secret) -> Result<Reply<'a>, Reject> {
    match unpacked.echo.kind {
        Kind::Reply => {}
        Kind::Request => return Err(Reject::IcmpType),
    }
    let (fields, payload) = payload::parse(unpacked.echo.payload, tagged(unpacked.ends.far()), secret)?;
    match unpacked.path {
        Path::Bare => Ok(Reply { fields, path: unpacked.path, inner: unpacked.ends, payload }),
        Path::Gre { .. } | Path::Esp { .. } => Err(Reject::WrongPath),
    }
}
