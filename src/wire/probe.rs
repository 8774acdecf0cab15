//! The onion: outer IP, GRE or ESP, inner IP, ICMP echo, payload; built from a template and parsed.

use std::net::IpAddr;

use pnet::packet::{icmp, icmpv6, ip::IpNextHeaderProtocol, ipv4, ipv6};

use super::payload::{self, Fields, Secret};
use super::{Ends, Family, Reject, esp, gre, ip};

use super::icmp as echo;
pub use super::icmp::Kind;

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
    /// Bytes after the ICMP header: at least [`payload::LEN`]; more pads the probe with zeros.
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

/// What changes from one probe of a tunnel to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The payload's fields.
    pub fields: Fields,
    /// ICMP identifier.
    pub identifier: u16,
    /// IPv4 identification of the outer and the inner header; made non-zero, because the kernel
    /// would otherwise spend time on choosing one.
    pub ip_id: u16,
}

/// What seals one probe of an ESP tunnel.
#[derive(Clone, Copy)]
pub struct Seal<'a> {
    /// The association.
    pub outbound: &'a esp::Outbound,
    /// Its sequence number, never used before.
    pub sequence: u64,
}

/// A tunnel's probe, built once, patched for every sending.
#[derive(Debug, Clone)]
pub struct Template {
    bytes: Box<[u8]>,
    outer: Ends,
    inner: Ends,
    destination: IpAddr,
    encapsulation: Encapsulation,
    inner_at: usize,
    icmp_at: usize,
    /// Where the inner packet ends; ESP has more behind it.
    end: usize,
}

impl Template {
    /// Builds everything that stays the same.
    #[must_use]
    pub fn new(onion: &Onion) -> Self {
        let Onion { outer, inner, encapsulation, .. } = *onion;
        let inner_at = encapsulation.inner_at(outer.family());
        let icmp_at = inner_at + header_len(inner.family());
        let end = icmp_at + echo::HEADER + usize::from(onion.size).max(payload::LEN);
        let mut bytes = vec![0; encapsulation.length(outer.family(), end - inner_at)].into_boxed_slice();

        if let Some(protocol) = encapsulation.protocol() {
            let header = IpFields { ttl: onion.ttl, dscp: onion.dscp, protocol };
            header.emit(outer.local(), outer.far(), &mut bytes);
        }
        if let Encapsulation::Gre(options) = encapsulation {
            gre::emit(options, inner.family(), &mut bytes[header_len(outer.family())..]);
        }
        let protocol = match inner.family() {
            Family::V4 => ip::ICMP,
            Family::V6 => ip::ICMPV6,
        };
        let header = IpFields { ttl: INNER_TTL, dscp: onion.dscp, protocol };
        let kind = onion.style.kind;
        let (source, destination) = onion.way();
        header.emit(source, destination, &mut bytes[inner_at..end]);
        emit_echo(kind, inner.family(), &mut bytes[icmp_at..end]);
        let destination = match encapsulation {
            Encapsulation::Gre(_) | Encapsulation::Esp(_) => outer.far(),
            Encapsulation::Device => destination,
        };
        Self { bytes, outer, inner, destination, encapsulation, inner_at, icmp_at, end }
    }

    /// The length of the probe as it leaves, outer header included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never true; here because a length without it looks forgotten.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Where the probe is sent.
    #[must_use]
    pub const fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Writes one probe into the beginning of `out` and returns its length, or `None` if `out` is
    /// too short, or an ESP probe has nothing to seal it: it never leaves in the clear.
    pub fn emit(&self, stamp: &Stamp, secret: &Secret, seal: Option<Seal<'_>>, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.bytes.len())?;
        out.copy_from_slice(&self.bytes);
        let message = &mut out[self.icmp_at..self.end];
        message[4..6].copy_from_slice(&stamp.identifier.to_be_bytes());
        let [.., high, low] = stamp.fields.sequence.to_be_bytes();
        message[6..8].copy_from_slice(&[high, low]);
        let body = message[echo::HEADER..].first_chunk_mut::<{ payload::LEN }>()?;
        payload::emit(stamp.fields, self.inner, secret, body);
        echo::seal(self.inner, message);
        let ip_id = stamp.ip_id.max(1);
        seal_ip(self.inner.family(), ip_id, &mut out[self.inner_at..]);
        let outer_len = header_len(self.outer.family());
        match self.encapsulation {
            Encapsulation::Gre(options) => {
                let [a, b, c, d] = [4, 5, 6, 7].map(|i| stamp.fields.sequence.to_be_bytes()[i]);
                gre::patch(options, u32::from_be_bytes([a, b, c, d]), &mut out[outer_len..]);
            }
            Encapsulation::Esp(shape) => {
                let Seal { outbound, sequence } = seal?;
                let (family, length) = (self.inner.family(), self.end - self.inner_at);
                outbound.seal(shape, self.outer, sequence, family, length, &mut out[outer_len..]);
            }
            Encapsulation::Device => return Some(out.len()),
        }
        seal_ip(self.outer.family(), ip_id, out);
        Some(out.len())
    }
}

/// The length of an IP header without options or extensions.
pub(crate) const fn header_len(family: Family) -> usize {
    match family {
        Family::V4 => ip::V4_HEADER,
        Family::V6 => ip::V6_HEADER,
    }
}

/// The fields of an IP header that are not addresses or lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IpFields {
    pub(crate) ttl: u8,
    pub(crate) dscp: u8,
    pub(crate) protocol: u8,
}

impl IpFields {
    /// Writes an IP header over the beginning of `packet`, for all of `packet`. The two addresses
    /// are of one family; the IPv4 identification and checksum stay for [`seal_ip`].
    pub(crate) fn emit(self, source: IpAddr, destination: IpAddr, packet: &mut [u8]) {
        let length = packet.len();
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                if let Some(mut header) = ipv4::MutableIpv4Packet::new(packet) {
                    header.set_version(4);
                    header.set_header_length(5);
                    header.set_dscp(self.dscp);
                    header.set_total_length(u16::try_from(length).unwrap_or(u16::MAX));
                    header.set_flags(ipv4::Ipv4Flags::DontFragment);
                    header.set_ttl(self.ttl);
                    header.set_next_level_protocol(IpNextHeaderProtocol(self.protocol));
                    header.set_source(source);
                    header.set_destination(destination);
                }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                if let Some(mut header) = ipv6::MutableIpv6Packet::new(packet) {
                    header.set_version(6);
                    header.set_traffic_class(self.dscp << 2);
                    let payload = length - ip::V6_HEADER;
                    header.set_payload_length(u16::try_from(payload).unwrap_or(u16::MAX));
                    header.set_next_header(IpNextHeaderProtocol(self.protocol));
                    header.set_hop_limit(self.ttl);
                    header.set_source(source);
                    header.set_destination(destination);
                }
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
        }
    }
}

/// Puts the identification and the checksum into an IPv4 header; IPv6 has neither.
pub(crate) fn seal_ip(family: Family, ip_id: u16, header: &mut [u8]) {
    match family {
        Family::V4 => {
            header[4..6].copy_from_slice(&ip_id.to_be_bytes());
            header[10..12].fill(0);
            let value = super::checksum::of(&header[..ip::V4_HEADER]);
            header[10..12].copy_from_slice(&value.to_be_bytes());
        }
        Family::V6 => {}
    }
}

fn emit_echo(kind: Kind, family: Family, message: &mut [u8]) {
    let number = kind.number(family);
    match family {
        Family::V4 => {
            if let Some(mut header) = icmp::MutableIcmpPacket::new(message) {
                header.set_icmp_type(icmp::IcmpType(number));
            }
        }
        Family::V6 => {
            if let Some(mut header) = icmpv6::MutableIcmpv6Packet::new(message) {
                header.set_icmpv6_type(icmpv6::Icmpv6Type(number));
            }
        }
    }
}

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
pub(super) fn peel(outer: ip::Packet<'_>) -> Result<Unpacked<'_>, Reject> {
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
    let packet = match outer.protocol {
        esp::PROTOCOL => outer.payload,
        esp::udp::PROTOCOL => esp::udp::parse(outer.payload)?,
        _ => return peel(outer).map(Outermost::Plain),
    };
    let outer = Ends::new(outer.destination, outer.source).ok_or(Reject::OuterMalformed)?;
    Ok(Outermost::Sealed(Sealed { outer, packet }))
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
