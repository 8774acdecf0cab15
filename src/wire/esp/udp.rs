//! ESP in UDP (RFC 3948), for paths through a NAT.

use std::net::Ipv6Addr;

use crate::wire::{Ends, Reject, checksum};

/// The IP protocol number of UDP.
pub const PROTOCOL: u8 = 17;
/// The bytes of a UDP header.
pub const HEADER: usize = 8;
/// The port of IKE and ESP behind a NAT (RFC 3948 section 2.1).
pub const PORT: u16 = 4500;

/// What a NAT keep-alive holds (RFC 3948 section 2.3).
const KEEP_ALIVE: [u8; 1] = [0xFF];
/// What stands in front of IKE where ESP has its SPI (RFC 3948 section 2.2).
const IKE: [u8; 4] = [0; 4];

/// Takes the ESP packet out of what follows the outer IP header.
///
/// The far end's port may be any, for a NAT in front of it gives it another one. The checksum is
/// not looked at (RFC 3948 section 2.1 has it zero): the ICV proves more.
///
/// # Errors
/// A datagram that is not whole or too short to tell what it is, one to another port than
/// [`PORT`], a keep-alive, IKE.
pub fn parse(bytes: &[u8]) -> Result<&[u8], Reject> {
    let (header, _) = bytes.split_first_chunk::<HEADER>().ok_or(Reject::UdpTruncated)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let payload = bytes.get(HEADER..length).ok_or(Reject::UdpTruncated)?;
    if u16::from_be_bytes([header[2], header[3]]) != PORT {
        return Err(Reject::UdpPort);
    }
    if payload == KEEP_ALIVE {
        return Err(Reject::KeepAlive);
    }
    match payload.first_chunk::<4>() {
        None => Err(Reject::UdpTruncated),
        Some(&IKE) => Err(Reject::Ike),
        Some(_) => Ok(payload),
    }
}

/// Writes the header of the datagram that all of `packet` is. The checksum is zero over IPv4
/// (RFC 3948 section 2.1); over IPv6 zero is only for receivers that were told to take it
/// (RFC 6935), which nobody can know of the far router.
pub(super) fn emit(outer: Ends, packet: &mut [u8]) {
    #[expect(clippy::cast_possible_truncation, reason = "no longer than an IP packet, see Outbound::seal")]
    let length = packet.len() as u16;
    packet[..2].copy_from_slice(&PORT.to_be_bytes());
    packet[2..4].copy_from_slice(&PORT.to_be_bytes());
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet[6..8].fill(0);
    if let Ends::V6 { local, far } = outer {
        let sum = checksum_v6(local, far, packet);
        packet[6..8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Over the pseudo-header of RFC 8200 section 8.1 and the datagram.
fn checksum_v6(source: Ipv6Addr, destination: Ipv6Addr, datagram: &[u8]) -> u16 {
    let sum = datagram.len() as u64 + u64::from(PROTOCOL);
    let sum = checksum::sum(checksum::sum(sum, &source.octets()), &destination.octets());
    match checksum::finish(checksum::sum(sum, datagram)) {
        // Zero would mean that there is none (RFC 768); this is its other form.
        0 => 0xFFFF,
        sum => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_of_zero_is_sent_in_its_other_form() {
        let (local, far) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let mut datagram = [0; HEADER + 2];
        emit(Ends::V6 { local, far }, &mut datagram);
        let sum = [datagram[6], datagram[7]];
        datagram[HEADER..].copy_from_slice(&sum);
        emit(Ends::V6 { local, far }, &mut datagram);
        assert_eq!(datagram[6..8], [0xFF, 0xFF]);
    }
}
