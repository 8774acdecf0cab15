//! Probes on their way out.

use std::net::IpAddr;

use pnet::packet::{icmp, icmpv6, ip::IpNextHeaderProtocol, ipv4, ipv6};

use super::{Encapsulation, INNER_TTL, Kind, Onion, header_len};
use crate::wire::payload::{self, Fields, Secret};
use crate::wire::{Ends, Family, checksum, esp, gre, icmp as echo, ip};

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
            let value = checksum::of(&header[..ip::V4_HEADER]);
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
