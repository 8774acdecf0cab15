//! ICMP echo: RFC 792 (v4) and RFC 4443 section 4 (v6).

use etherparse::{Icmpv4Slice, Icmpv4Type, Icmpv6Slice, Icmpv6Type};

use super::{Ends, Family, Reject, checksum, ip};

/// The length of an echo message's header.
pub const HEADER: usize = 8;

/// The two echo messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Echo request: ICMPv4 type 8, ICMPv6 type 128.
    Request,
    /// Echo reply: ICMPv4 type 0, ICMPv6 type 129.
    Reply,
}

impl Kind {
    /// The type number in a family.
    #[must_use]
    pub const fn number(self, family: Family) -> u8 {
        match (self, family) {
            (Self::Request, Family::V4) => 8,
            (Self::Reply, Family::V4) => 0,
            (Self::Request, Family::V6) => 128,
            (Self::Reply, Family::V6) => 129,
        }
    }
}

/// An echo message whose checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Request or reply.
    pub kind: Kind,
    /// The identifier: 16 bits that every ping on the host shares, so no identity.
    pub identifier: u16,
    /// The 16-bit sequence number.
    pub sequence: u16,
    /// What the message carries.
    pub payload: &'a [u8],
}

/// Reads the ICMP message in an IP packet's payload.
///
/// # Errors
/// Anything but a complete echo message with code 0 and a right checksum.
pub fn parse<'a>(packet: &ip::Packet<'a>) -> Result<Echo<'a>, Reject> {
    let bytes = packet.payload;
    if bytes.len() < HEADER {
        return Err(Reject::IcmpTruncated);
    }
    let ends = Ends::new(packet.destination, packet.source).ok_or(Reject::WrongInner)?;
    if checksum::finish(checksum::sum(pseudo_header(ends, bytes.len()), bytes)) != 0 {
        return Err(Reject::IcmpChecksum);
    }
    let (kind, header, payload) = match ends.family() {
        Family::V4 => parse_v4(bytes)?,
        Family::V6 => parse_v6(bytes)?,
    };
    Ok(Echo { kind, identifier: header.id, sequence: header.seq, payload })
}

type Parts<'a> = (Kind, etherparse::IcmpEchoHeader, &'a [u8]);

fn parse_v4(bytes: &[u8]) -> Result<Parts<'_>, Reject> {
    let message = Icmpv4Slice::from_slice(bytes).map_err(|_| Reject::IcmpTruncated)?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other type is refused alike")]
    match message.icmp_type() {
        Icmpv4Type::EchoRequest(header) => Ok((Kind::Request, header, message.payload())),
        Icmpv4Type::EchoReply(header) => Ok((Kind::Reply, header, message.payload())),
        _ => Err(type_or_code(message.type_u8(), Family::V4)),
    }
}

fn parse_v6(bytes: &[u8]) -> Result<Parts<'_>, Reject> {
    let message = Icmpv6Slice::from_slice(bytes).map_err(|_| Reject::IcmpTruncated)?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other type is refused alike")]
    match message.icmp_type() {
        Icmpv6Type::EchoRequest(header) => Ok((Kind::Request, header, message.payload())),
        Icmpv6Type::EchoReply(header) => Ok((Kind::Reply, header, message.payload())),
        _ => Err(type_or_code(message.type_u8(), Family::V6)),
    }
}

/// etherparse gives an echo type only with code 0; this tells the two faults apart.
fn type_or_code(number: u8, family: Family) -> Reject {
    let echo = [Kind::Request, Kind::Reply].iter().any(|kind| kind.number(family) == number);
    if echo { Reject::IcmpCode } else { Reject::IcmpType }
}

/// The sum that the checksum starts from: nothing for ICMPv4, the pseudo-header of RFC 8200
/// section 8.1 for ICMPv6.
#[must_use]
pub fn pseudo_header(ends: Ends, length: usize) -> u64 {
    match ends {
        Ends::V4 { .. } => 0,
        Ends::V6 { local, far } => {
            let addresses = checksum::sum(checksum::sum(0, &local.octets()), &far.octets());
            // As words of 32 bits, so that the length and the protocol add up like the addresses.
            addresses + length as u64 + u64::from(ip::ICMPV6)
        }
    }
}

/// Fills in the checksum of a message.
pub fn seal(ends: Ends, message: &mut [u8]) {
    message[2..4].fill(0);
    let total = checksum::sum(pseudo_header(ends, message.len()), message);
    message[2..4].copy_from_slice(&checksum::finish(total).to_be_bytes());
}
