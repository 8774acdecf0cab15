//! The packets that a far router makes of those that come to it.

use super::{FarTunnel, Wrap};
use crate::wire::esp::Shape;
use crate::wire::icmp::{self, Kind};
use crate::wire::probe::{self, Encapsulation, IpFields, Unpacked};
use crate::wire::{Family, Reject, checksum, gre, ip};

/// What a router answers to an echo request: the addresses swapped, TTL fresh, payload untouched.
pub(super) fn answer(unpacked: &Unpacked<'_>) -> Vec<u8> {
    let family = unpacked.ends.family();
    let (header, protocol) = match family {
        Family::V4 => (ip::V4_HEADER, ip::ICMP),
        Family::V6 => (ip::V6_HEADER, ip::ICMPV6),
    };
    let echo = &unpacked.echo;
    let mut packet = vec![0; header + icmp::HEADER + echo.payload.len()];
    let fields = IpFields { ttl: probe::INNER_TTL, dscp: 0, protocol };
    fields.emit(unpacked.packet.destination, unpacked.packet.source, &mut packet);
    probe::seal_ip(family, echo.sequence.max(1), &mut packet);
    let message = &mut packet[header..];
    message[0] = Kind::Reply.number(family);
    message[4..6].copy_from_slice(&echo.identifier.to_be_bytes());
    message[6..8].copy_from_slice(&echo.sequence.to_be_bytes());
    message[icmp::HEADER..].copy_from_slice(echo.payload);
    packet
}

/// What a router makes of a packet that is not for itself: TTL less one (RFC 1812 section 5.3.1),
/// all else untouched.
pub(super) fn forward(inner: &[u8], family: Family) -> Result<Vec<u8>, Reject> {
    let mut packet = inner.to_vec();
    let ttl_at = match family {
        Family::V4 => 8,
        Family::V6 => 7,
    };
    let ttl = packet.get_mut(ttl_at).ok_or(Reject::InnerTruncated)?;
    // A router would send "time exceeded"; a probe never comes so far.
    *ttl = ttl.checked_sub(1).filter(|&ttl| ttl > 0).ok_or(Reject::InnerMalformed)?;
    if family == Family::V4 {
        let header = usize::from(packet[0] & 0x0F) * 4;
        packet[10..12].fill(0);
        let value = checksum::of(&packet[..header]);
        packet[10..12].copy_from_slice(&value.to_be_bytes());
    }
    // What follows the packet inside the tunnel is no part of it.
    let length = |at: usize| packet.get(at..at + 2).map_or(0, |two| usize::from(u16::from_be_bytes([two[0], two[1]])));
    let total = match family {
        Family::V4 => length(2),
        Family::V6 => ip::V6_HEADER + length(4),
    };
    packet.truncate(total);
    Ok(packet)
}

/// Puts a packet into a tunnel; `None` where there is no sequence number to seal it with.
pub(super) fn encapsulate(tunnel: &mut FarTunnel, inner: Family, packet: &[u8], count: u32) -> Option<Vec<u8>> {
    let (outer, family) = (tunnel.outer, tunnel.outer.family());
    let encapsulation = match &tunnel.wrap {
        Wrap::Gre(options) => Encapsulation::Gre(*options),
        Wrap::Esp { pair, udp } => Encapsulation::Esp(Shape::new(pair.outbound.algorithm(), *udp)),
    };
    let mut bytes = vec![0; encapsulation.length(family, packet.len())];
    let inner_at = encapsulation.inner_at(family);
    bytes[inner_at..inner_at + packet.len()].copy_from_slice(packet);
    let fields = IpFields { ttl: 64, dscp: 0, protocol: encapsulation.protocol().unwrap_or_default() };
    fields.emit(outer.local(), outer.far(), &mut bytes);
    let behind = &mut bytes[probe::header_len(family)..];
    match (&mut tunnel.wrap, encapsulation) {
        (Wrap::Gre(options), _) => {
            gre::emit(*options, inner, behind);
            gre::patch(*options, count, behind);
        }
        (Wrap::Esp { pair, .. }, Encapsulation::Esp(shape)) => {
            let sequence = pair.numbers.take()?;
            pair.outbound.seal(shape, outer, sequence, inner, packet.len(), behind);
        }
        (Wrap::Esp { .. }, Encapsulation::Gre(_) | Encapsulation::Device) => return None,
    }
    let [.., high, low] = count.to_be_bytes();
    probe::seal_ip(family, u16::from_be_bytes([high, low]).max(1), &mut bytes);
    Some(bytes)
}
