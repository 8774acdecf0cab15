//! ESP: what was sealed opens, once; what was changed or forged does not, and moves nothing.
//!
//! The first byte chooses what the others are: a packet as it arrives, an inner packet to be sealed and
//! changed, the inside of a packet that proves itself, or the sequence numbers of packets.

use adit::wire::esp::{self, Algorithm, HEADER, ICV, Inbound, IvSeed, Keys, Outbound, Shape, udp};
use adit::wire::{Ends, Family, Reject};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

const SPI: u32 = 0x2001;
const OUTER: Ends = Ends::V6 {
    local: std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    far: std::net::Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
};
const LONGEST: usize = 512;

pub(crate) fn run(bytes: &[u8]) {
    let Some((&[choice, window], rest)) = bytes.split_first_chunk() else { return };
    let rest = &rest[..rest.len().min(LONGEST)];
    let algorithm = Algorithm::ALL[usize::from(choice >> 4) % Algorithm::ALL.len()];
    // None, the narrowest, odd ones, the widest.
    let window = if window < 0xF0 { u32::from(window) } else { 4_096 - u32::from(window & 0x0F) };
    let terms = Terms { algorithm, esn: choice & 4 != 0, udp: choice & 8 != 0, window, key: u8::from(choice & 3 != 0) };
    match choice & 3 {
        0 => arrives(&terms, rest),
        1 => sealed_and_changed(&terms, rest),
        2 => proves_itself(&Terms { algorithm: Algorithm::NullHmacSha256, ..terms }, rest),
        _ => numbers(&Terms { algorithm: Algorithm::NullHmacSha256, ..terms }, rest),
    }
}

struct Terms {
    algorithm: Algorithm,
    esn: bool,
    udp: bool,
    window: u32,
    /// What a fuzzer has seen sealed, it can send: what arrives must open under keys that seal nothing.
    key: u8,
}

impl Terms {
    fn material(&self) -> Vec<u8> {
        (0..=255).map(|byte: u8| byte ^ self.key).take(self.algorithm.key_len()).collect()
    }

    fn keys(&self) -> Keys {
        let material = self.material();
        Keys::new(self.algorithm, Zeroizing::new(material)).unwrap()
    }

    fn inbound(&self) -> Inbound {
        Inbound::new(SPI, self.esn, self.window, &self.keys())
    }

    fn outbound(&self) -> Outbound {
        Outbound::new(SPI, self.esn, &self.keys(), &IvSeed::new([7; 16]))
    }

    fn shape(&self) -> Shape {
        Shape::new(self.algorithm, self.udp)
    }
}

/// Nobody without the key has ever sealed this.
fn arrives(terms: &Terms, bytes: &[u8]) {
    let packet = if terms.udp { udp::parse(bytes) } else { Ok(bytes) };
    let Ok(packet) = packet else { return };
    let mut inbound = terms.inbound();
    let mut scratch = Vec::new();
    let refused = inbound.open(packet, &mut scratch).unwrap_err();
    assert!(matches!(refused, Reject::EspTruncated | Reject::EspSpi | Reject::EspIcv), "{refused}");
    assert_eq!(inbound.highest(), 0, "a forged packet moves nothing");
}

/// A sequence number, what to change (a length, two places and bytes), an inner packet.
fn sealed_and_changed(terms: &Terms, bytes: &[u8]) {
    let Some((&[number, high, cut, at, flip, at_too, flip_too], inner)) = bytes.split_first_chunk() else { return };
    let outbound = terms.outbound();
    let round = if terms.esn { u64::from(high) } else { 0 };
    let sequence = (round << 32) + u64::from(number) + 1;
    let family = if flip & 1 == 0 { Family::V4 } else { Family::V6 };
    let shape = terms.shape();
    let mut packet = vec![0; shape.length(inner.len())];
    packet[shape.inner_at()..][..inner.len()].copy_from_slice(inner);
    outbound.seal(shape, OUTER, sequence, family, inner.len(), &mut packet);

    let mut changed = packet.clone();
    changed.truncate(packet.len() - usize::from(cut).min(packet.len()));
    for (at, flip) in [(at, flip & !1), (at_too, flip_too)] {
        let length = changed.len().max(1);
        if let Some(byte) = changed.get_mut(usize::from(at) % length) {
            *byte ^= flip;
        }
    }
    let esp_of = |packet: &[u8]| if terms.udp { udp::parse(packet).map(<[u8]>::to_vec) } else { Ok(packet.to_vec()) };
    let genuine = esp_of(&packet).unwrap();
    let mut inbound = terms.inbound();
    let mut scratch = Vec::new();
    match esp_of(&changed) {
        Ok(packet) if packet == genuine => {}
        Ok(packet) => {
            assert!(inbound.open(&packet, &mut scratch).is_err(), "a changed packet never opens");
            assert_eq!(inbound.highest(), 0, "and moves nothing");
        }
        Err(_) => assert!(terms.udp),
    }
    if terms.esn && sequence >> 32 > 0 {
        // Too far ahead for anybody to guess the upper half, unless there was a packet before.
        return;
    }
    let opened = inbound.open(&genuine, &mut scratch).unwrap();
    assert_eq!((opened.inner, opened.packet, opened.sequence, opened.is_new), (family, inner, sequence, true));
    let again = inbound.open(&genuine, &mut scratch).err();
    assert_eq!(again, (inbound.replay_window() > 0).then_some(Reject::EspReplay), "once only, where there is a window");
    assert!(!inbound.examine(&genuine, &mut scratch).unwrap().is_new || inbound.replay_window() == 0);
}

/// With a right ICV over whatever is inside.
fn proves_itself(terms: &Terms, body: &[u8]) {
    let packet = null(terms, 1, body);
    let mut scratch = Vec::new();
    match terms.inbound().open(&packet, &mut scratch) {
        Ok(opened) => {
            super::deep();
            // Written again it is the same, unless there was more padding than is needed.
            let inner = opened.packet;
            let shape = Shape::new(terms.algorithm, false);
            let mut again = vec![0; shape.length(inner.len())];
            again[shape.inner_at()..][..inner.len()].copy_from_slice(inner);
            terms.outbound().seal(shape, OUTER, 1, opened.inner, inner.len(), &mut again);
            assert!(again.len() <= packet.len());
            assert!(again.len() < packet.len() || again == packet);
        }
        Err(Reject::EspTruncated) => assert!(body.len() < 2 || !body.len().is_multiple_of(4)),
        Err(Reject::EspPadding | Reject::EspNextHeader) => {}
        Err(other) => panic!("it is whole and proves itself, and yet {other}"),
    }
}

/// Packets with these numbers, each right; four bytes a number: so far ahead of the highest one or behind.
fn numbers(terms: &Terms, bytes: &[u8]) {
    let mut inbound = terms.inbound();
    let width = u64::from(inbound.replay_window());
    let (mut taken, mut scratch) = (Vec::new(), Vec::new());
    for step in bytes.chunks_exact(4).take(24) {
        let step = i64::from(i32::from_be_bytes([step[0], step[1], step[2], step[3]]));
        let last = if terms.esn { u64::MAX } else { u32::MAX.into() };
        let sequence = inbound.highest().saturating_add_signed(step).min(last);
        // No inner packet, and what padding that needs.
        let packet = null(terms, sequence, &[1, 2, 2, 4]);
        let top = inbound.highest();
        let fits = width == 0 || (sequence > top || top - sequence < width) && sequence > 0;
        match inbound.open(&packet, &mut scratch) {
            Ok(opened) => {
                super::deep();
                assert_eq!(opened.sequence, sequence);
                assert!(fits && (width == 0 || !taken.contains(&sequence)), "{sequence} after {taken:?}");
                taken.push(sequence);
                assert_eq!(inbound.highest(), top.max(sequence));
            }
            Err(refused) => {
                // An extended number that is far behind cannot be told from one of the next round.
                assert!(refused == Reject::EspReplay || terms.esn && refused == Reject::EspIcv, "{refused}");
                assert!(!fits || taken.contains(&sequence), "{sequence} after {taken:?}");
                assert_eq!(inbound.highest(), top);
            }
        }
    }
}

/// A packet under NULL and HMAC-SHA-256-128 (RFC 2410, RFC 4868), made without a line of adit's.
fn null(terms: &Terms, sequence: u64, body: &[u8]) -> Vec<u8> {
    let [h0, h1, h2, h3, l0, l1, l2, l3] = sequence.to_be_bytes();
    let mut packet = [&SPI.to_be_bytes()[..], &[l0, l1, l2, l3], body].concat();
    let mut mac = Hmac::<Sha256>::new_from_slice(&terms.material()).unwrap();
    mac.update(&packet);
    if terms.esn {
        mac.update(&[h0, h1, h2, h3]);
    }
    packet.extend_from_slice(&mac.finalize().into_bytes()[..ICV]);
    debug_assert_eq!(packet.len(), HEADER + body.len() + ICV);
    debug_assert!(esp::peek(&packet).is_ok());
    packet
}
