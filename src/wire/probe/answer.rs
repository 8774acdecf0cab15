//! Answers on their way in.

use super::Kind;
use crate::wire::payload::{self, Fields, Secret};
use crate::wire::{Ends, Family, Reject, esp, gre, icmp as echo, ip};

/// Bytes as a raw socket gives them.
#[derive(Debug, Clone, Copy)]
pub enum Arrived<'a> {
    /// A raw IPv4 socket gives the packet with its header.
    V4(&'a [u8]),
    /// A raw IPv6 socket gives the payload only; the addresses come beside it.
    V6 {
        /// The socket's protocol.
        protocol: u8,
        /// Source address.
        source: std::net::Ipv6Addr,
        /// Destination address.
        destination: std::net::Ipv6Addr,
        /// What follows the IPv6 header.
        payload: &'a [u8],
    },
}

impl<'a> Arrived<'a> {
    /// The outermost packet.
    ///
    /// # Errors
    /// As [`ip::parse_v4`]; for IPv6 the kernel has checked the header.
    pub fn packet(self) -> Result<ip::Packet<'a>, Reject> {
        match self {
            Self::V4(bytes) => ip::parse_v4(bytes, ip::Layer::Outer),
            Self::V6 { protocol, source, destination, payload } => {
                Ok(ip::Packet { source: source.into(), destination: destination.into(), protocol, ttl: 0, payload })
            }
        }
    }
}

/// How an answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// As an ordinary packet.
    Bare,
    /// Inside GRE.
    Gre {
        /// The outer addresses, seen from here.
        outer: Ends,
        /// The key, if there was one.
        key: Option<u32>,
    },
    /// Inside ESP, opened by an association of ours.
    Esp {
        /// The outer addresses, seen from here.
        outer: Ends,
        /// The association's SPI.
        spi: u32,
        /// Whether UDP was around it (RFC 3948).
        udp: bool,
    },
}

/// A message from inside (or outside) a tunnel, unpacked: not yet known to be ours.
#[derive(Debug, Clone, Copy)]
pub struct Unpacked<'a> {
    /// How it came.
    pub path: Path,
    /// Its IP header (the inner one if encapsulated).
    pub packet: ip::Packet<'a>,
    /// The IP packet's bytes, header included, where it was encapsulated.
    pub inner: Option<&'a [u8]>,
    /// Its addresses, seen from here: the source is the far one.
    pub ends: Ends,
    /// The echo message.
    pub echo: echo::Echo<'a>,
}

/// Peels outer IP, GRE and inner IP off an ICMP echo message.
///
/// # Errors
/// The first thing that is wrong.
pub fn unpack(arrived: Arrived<'_>) -> Result<Unpacked<'_>, Reject> {
    peel(arrived.packet()?)
}

/// Peels a packet whose outermost header has been read.
pub(in crate::wire) fn peel(outer: ip::Packet<'_>) -> Result<Unpacked<'_>, Reject> {
    let outer_ends = Ends::new(outer.destination, outer.source).ok_or(Reject::OuterMalformed)?;
    match (outer.protocol, outer_ends.family()) {
        (gre::PROTOCOL, _) => {
            let (header, inner) = gre::parse(outer.payload)?;
            inside(Path::Gre { outer: outer_ends, key: header.key }, header.inner, inner)
        }
        (ip::ICMP, Family::V4) | (ip::ICMPV6, Family::V6) => echo_in(Path::Bare, outer, None),
        _ => Err(Reject::OuterProtocol),
    }
}

/// Peels the inner packet of a tunnel.
///
/// # Errors
/// The first thing that is wrong.
pub fn inside(path: Path, family: Family, inner: &[u8]) -> Result<Unpacked<'_>, Reject> {
    let packet = match family {
        Family::V4 => ip::parse_v4(inner, ip::Layer::Inner)?,
        Family::V6 => ip::parse_v6(inner, ip::Layer::Inner)?,
    };
    echo_in(path, packet, Some(inner))
}

fn echo_in<'a>(path: Path, packet: ip::Packet<'a>, inner: Option<&'a [u8]>) -> Result<Unpacked<'a>, Reject> {
    let malformed = if inner.is_some() { Reject::InnerMalformed } else { Reject::OuterMalformed };
    let ends = Ends::new(packet.destination, packet.source).ok_or(malformed)?;
    match (packet.protocol, ends.family()) {
        (ip::ICMP, Family::V4) | (ip::ICMPV6, Family::V6) => {}
        _ => return Err(Reject::InnerProtocol),
    }
    let echo = echo::parse(&packet)?;
    Ok(Unpacked { path, packet, inner, ends, echo })
}

/// An ESP packet as it arrived, still sealed.
#[derive(Debug, Clone, Copy)]
pub struct Sealed<'a> {
    /// The outer addresses, seen from here.
    pub outer: Ends,
    /// Whether UDP was around it (RFC 3948).
    pub udp: bool,
    /// From the ESP header on.
    pub packet: &'a [u8],
}

/// What a packet shows before anything is opened.
#[derive(Debug, Clone, Copy)]
pub enum Outermost<'a> {
    /// An echo message, bare or in GRE.
    Plain(Unpacked<'a>),
    /// An ESP packet, bare or in UDP (RFC 3948).
    Sealed(Sealed<'a>),
}

/// Peels as far as can be peeled without a key.
///
/// # Errors
/// The first thing that is wrong.
pub fn outermost(arrived: Arrived<'_>) -> Result<Outermost<'_>, Reject> {
    let outer = arrived.packet()?;
    let (packet, udp) = match outer.protocol {
        esp::PROTOCOL => (outer.payload, false),
        esp::udp::PROTOCOL => (esp::udp::parse(outer.payload)?, true),
        _ => return peel(outer).map(Outermost::Plain),
    };
    let outer = Ends::new(outer.destination, outer.source).ok_or(Reject::OuterMalformed)?;
    Ok(Outermost::Sealed(Sealed { outer, udp, packet }))
}

/// An answer whose payload proves that it is this run's own. Whether it came in time, once, and
/// the way it must, is the engine's to say.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// The payload's fields.
    pub fields: Fields,
    /// How it came.
    pub path: Path,
    /// Inner addresses, seen from here.
    pub inner: Ends,
    /// The payload, for the mark.
    pub payload: &'a [u8; payload::LEN],
}

/// Parses what may be an answer to a probe.
///
/// # Errors
/// The first thing that is wrong. Every style comes back as an echo reply, so a request with our
/// payload (a probe seen on its way out, say) is [`Reject::IcmpType`].
pub fn parse<'a>(arrived: Arrived<'a>, secret: &Secret) -> Result<Reply<'a>, Reject> {
    prove(unpack(arrived)?, secret)
}

/// As [`parse`], for what has been unpacked.
///
/// # Errors
/// The first thing that is wrong.
pub fn prove<'a>(unpacked: Unpacked<'a>, secret: &Secret) -> Result<Reply<'a>, Reject> {
    match unpacked.echo.kind {
        Kind::Reply => {}
        Kind::Request => return Err(Reject::IcmpType),
    }
    let (fields, payload) = payload::parse(unpacked.echo.payload, unpacked.ends, secret)?;
    Ok(Reply { fields, path: unpacked.path, inner: unpacked.ends, payload })
}

/// The tunnel that a refused answer claims to belong to: for counting only, anybody can write it.
#[must_use]
pub fn claimed_tunnel(arrived: Arrived<'_>) -> Option<u32> {
    payload::claimed_tunnel(unpack(arrived).ok()?.echo.payload)
}
