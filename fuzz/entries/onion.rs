//! What arrives, down to the proof: a forged packet never becomes an answer.
//!
//! The first byte says what is put right before the packet is read, so that checks are no walls: its
//! checksums, and the tag of a payload.

use std::net::Ipv6Addr;

use adit::wire::payload::{self, Fields, Key, Secret};
use adit::wire::probe::{self, Arrived, Outermost, Path};
use adit::wire::{Ends, Family, Reject, checksum, icmp, quote};

const LONGEST: usize = 512;
/// All that this run has ever sent: the golden packets of `fixtures/packets` are answers to it.
const SENT: Fields = Fields { tunnel: 7, sequence: 0x1_0000_0042, sent: 1_234_567_890_123 };
const SUMS: u8 = 1;
const TAG: u8 = 2;

pub(crate) fn run(bytes: &[u8]) {
    let Some((&mend, packet)) = bytes.split_first() else { return };
    let mut buffer = [0; LONGEST];
    let length = packet.len().min(LONGEST);
    let packet = &mut buffer[..length];
    packet.copy_from_slice(&bytes[1..=length]);
    if mend & SUMS != 0 {
        mend_outer(packet, mend & TAG != 0);
    }
    let arrived = arrived(packet);
    let quote = quote::parse(arrived, &secret());
    let reply = probe::parse(arrived, &secret());
    assert!(quote.is_none() || reply.is_err(), "an answer and an error at once");
    if mend & TAG == 0 {
        assert!(quote.is_none_or(|quote| quote.fields == SENT));
        assert!(reply.as_ref().map_or(true, |reply| reply.fields == SENT), "a forged packet is no answer");
    }
    match (probe::outermost(arrived), &reply) {
        (Ok(Outermost::Plain(unpacked)), reply) => {
            let proven = probe::prove(unpacked, &secret());
            assert_eq!(proven.map(|reply| reply.fields), reply.map(|reply| reply.fields), "both ways say the same");
            assert_eq!(probe::claimed_tunnel(arrived), payload::claimed_tunnel(unpacked.echo.payload));
        }
        (Ok(Outermost::Sealed(sealed)), reply) => {
            assert_eq!(reply.as_ref().err(), Some(&Reject::OuterProtocol));
            assert!(packet.ends_with(sealed.packet) || sealed.packet.len() < packet.len());
        }
        (Err(_), reply) => assert!(reply.is_err()),
    }
    if let Ok(reply) = reply {
        super::deep();
        let mut again = [0; payload::LEN];
        payload::emit(reply.fields, reply.inner, &secret(), &mut again);
        assert_eq!(again[..payload::MARKED], reply.payload[..payload::MARKED]);
        let same_family = matches!((reply.inner, reply.path), (_, Path::Bare | Path::Gre { .. }));
        assert!(same_family, "this opens nothing");
    }
}

pub(crate) fn secret() -> Secret {
    Secret { key: Key::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]), epoch: 0x0123_4567_89ab_cdef }
}

/// As a raw socket would hand it over: IPv6 without its header, the addresses beside it.
pub(crate) fn arrived(bytes: &[u8]) -> Arrived<'_> {
    let address = |at: usize| Ipv6Addr::from(*bytes[at..].first_chunk::<16>().unwrap());
    if bytes.len() >= 40 && bytes[0] >> 4 == 6 {
        Arrived::V6 { protocol: bytes[6], source: address(8), destination: address(24), payload: &bytes[40..] }
    } else {
        Arrived::V4(bytes)
    }
}

/// Puts right what can be put right from the outer header on.
pub(crate) fn mend_outer(packet: &mut [u8], tag: bool) {
    let Some((header, protocol)) = ip(packet) else { return };
    // The outermost header's checksum is the kernel's to look at, but a quoted one is looked at as well.
    match protocol {
        47 => mend_gre(&mut packet[header..], tag),
        1 | 58 => mend_inner(packet, tag),
        _ => {}
    }
}

fn mend_gre(packet: &mut [u8], tag: bool) {
    let Some(&flags) = packet.first() else { return };
    let words = [0x80, 0x20, 0x10].iter().filter(|bit| flags & **bit != 0).count();
    let inner = 4 + 4 * words;
    if packet.len() < inner {
        return;
    }
    mend_inner(&mut packet[inner..], tag);
    if flags & 0x80 != 0 {
        packet[4..6].fill(0);
        let sum = checksum::of(packet);
        packet[4..6].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Length of the header, and protocol.
fn ip(packet: &[u8]) -> Option<(usize, u8)> {
    let (header, protocol) = match packet.first()? >> 4 {
        4 => (usize::from(packet[0] & 0x0F) * 4, *packet.get(9)?),
        _ => (40, *packet.get(6)?),
    };
    (header >= 20 && packet.len() >= header).then_some((header, protocol))
}

/// An IP packet with ICMP, whose checksums nobody else looks at.
pub(crate) fn mend_inner(packet: &mut [u8], tag: bool) {
    let Some((header, protocol)) = ip(packet) else { return };
    let v4 = packet[0] >> 4 == 4;
    if v4 {
        packet[10..12].fill(0);
        let sum = checksum::of(&packet[..header]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let total = usize::from(u16::from_be_bytes(if v4 { [packet[2], packet[3]] } else { [packet[4], packet[5]] }));
    let total = if v4 { total } else { header + total };
    let ends = ends(packet, v4);
    let end = packet.len();
    let Some(message) = packet.get_mut(header..total.min(end)).filter(|message| message.len() >= icmp::HEADER) else {
        return;
    };
    if !matches!(protocol, 1 | 58) {
        return;
    }
    let error = if v4 { matches!(message[0], 3 | 11 | 12) } else { (1..=4).contains(&message[0]) };
    if error {
        mend_outer(&mut message[icmp::HEADER..], tag);
    } else if tag {
        let request = matches!(message[0], 8 | 128);
        mend_tag(&mut message[icmp::HEADER..], if request { ends.reversed() } else { ends });
    }
    icmp::seal(ends, message);
}

/// Near address, then far one, as in an answer.
fn ends(packet: &[u8], v4: bool) -> Ends {
    let address = |at: usize| Ipv6Addr::from(*packet[at..].first_chunk::<16>().unwrap());
    if v4 {
        let [source, destination] = [12, 16].map(|at| *packet[at..].first_chunk::<4>().unwrap());
        Ends::V4 { local: destination.into(), far: source.into() }
    } else {
        Ends::V6 { local: address(24), far: address(8) }
    }
}

fn mend_tag(body: &mut [u8], ends: Ends) {
    let Some(body) = body.first_chunk_mut::<{ payload::LEN }>() else { return };
    let number = |at: usize| u64::from_be_bytes(*body[at..].first_chunk().unwrap());
    let tunnel = u32::from_be_bytes(*body[8..].first_chunk().unwrap());
    let mut right = [0; payload::LEN];
    payload::emit(Fields { tunnel, sequence: number(24), sent: number(32) }, ends, &secret(), &mut right);
    body[40..56].copy_from_slice(&right[40..56]);
    debug_assert_eq!(ends.family(), Family::of(ends.far()));
}
