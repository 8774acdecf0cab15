//! ESP: packets that scapy has sealed, and the laws of sealing, opening and the replay window.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

mod sealed;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use adit::wire::esp::replay::Window;
use adit::wire::esp::{self, Algorithm, Inbound, IvSeed, Keys, Outbound, SPI_MIN, Shape, udp};
use adit::wire::{Ends, Family, Reject};
use proptest::prelude::*;
use proptest::sample::select;
use zeroize::Zeroizing;

#[test]
fn what_scapy_sealed_opens_or_is_refused_for_its_reason() {
    for fixture in sealed::all() {
        let mut inbound = fixture.inbound();
        for packet in &fixture.packets {
            let what = format!("{}: {} {}", fixture.name, fixture.about, packet.about);
            let found = fixture.open(&mut inbound, &packet.bytes());
            assert_eq!(found.map_err(Reject::label), packet.outcome(), "{what}");
            if let Some(highest) = packet.highest {
                assert_eq!(inbound.highest(), highest, "{what}");
            }
        }
    }
}

const SPI: u32 = SPI_MIN;
const V4: Ends = Ends::V4 { local: Ipv4Addr::new(192, 0, 2, 1), far: Ipv4Addr::new(203, 0, 113, 2) };
const V6: Ends = Ends::V6 {
    local: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    far: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
};
/// Where the lower half of a number wraps.
const WRAP: u64 = 1 << 32;

fn keys(algorithm: Algorithm) -> Keys {
    Keys::new(algorithm, Zeroizing::new((1..).take(algorithm.key_len()).collect())).unwrap()
}

fn outbound(algorithm: Algorithm, esn: bool) -> Outbound {
    Outbound::new(SPI, esn, &keys(algorithm), &IvSeed::new([7; 16]))
}

fn seal(outbound: &Outbound, shape: Shape, outer: Ends, sequence: u64, family: Family, inner: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xEE; shape.length(inner.len())];
    packet[shape.inner_at()..][..inner.len()].copy_from_slice(inner);
    outbound.seal(shape, outer, sequence, family, inner.len(), &mut packet);
    packet
}

/// A short packet under the cheapest algorithm, where only its number matters.
fn numbered(esn: bool, sequence: u64) -> Vec<u8> {
    let shape = Shape::new(Algorithm::NullHmacSha256, false);
    seal(&outbound(Algorithm::NullHmacSha256, esn), shape, V4, sequence, Family::V4, b"inner")
}

/// Opens a packet of [`numbered`], and returns its whole number.
fn open(inbound: &mut Inbound, packet: &[u8]) -> Result<u64, Reject> {
    let mut scratch = Vec::new();
    inbound.open(packet, &mut scratch).map(|opened| {
        assert_eq!((opened.inner, opened.packet), (Family::V4, &b"inner"[..]));
        opened.sequence
    })
}

proptest! {
    #[test]
    fn what_is_sealed_opens_to_the_same(
        algorithm in select(&Algorithm::ALL[..]),
        esn: bool,
        udp: bool,
        outer in select(&[V4, V6][..]),
        family in select(&[Family::V4, Family::V6][..]),
        low in 1..=u32::MAX - 64,
        rounds in 0..3_u64,
        inner in prop::collection::vec(any::<u8>(), 0..1_500),
    ) {
        let (shape, outbound) = (Shape::new(algorithm, udp), outbound(algorithm, esn));
        let mut inbound = Inbound::new(SPI, esn, 64, &keys(algorithm));
        // Two packets of each round before, so that the far end knows which one it is.
        let rounds = if esn { rounds } else { 0 };
        for half in 1..=rounds * 2 {
            let before = seal(&outbound, shape, outer, half * WRAP / 2, family, &inner);
            inbound.open(&before[shape.esp_at()..], &mut Vec::new()).unwrap();
        }
        let sequence = rounds * WRAP + u64::from(low);
        let packet = seal(&outbound, shape, outer, sequence, family, &inner);
        let esp = if udp { udp::parse(&packet).unwrap() } else { &packet };
        let header = esp::peek(esp).unwrap();
        prop_assert_eq!((header.spi, header.sequence), (SPI, low));
        let mut scratch = Vec::new();
        let opened = inbound.open(esp, &mut scratch);
        let expected = esp::Opened { inner: family, packet: &inner, sequence, is_new: true };
        prop_assert_eq!(opened, Ok(expected));
        prop_assert_eq!(inbound.open(esp, &mut scratch), Err(Reject::EspReplay));
        let hidden = algorithm != Algorithm::NullHmacSha256 && inner.len() >= 16;
        prop_assert!(!(hidden && packet.windows(16).any(|window| *window == inner[..16])));
    }

    #[test]
    fn every_packet_has_an_iv_of_its_own(
        algorithm in select(&Algorithm::ALL[..]),
        one in 1..u64::MAX,
        other in 1..u64::MAX,
        seed: [u8; 16],
    ) {
        prop_assume!(one != other);
        let (shape, keys) = (Shape::new(algorithm, false), keys(algorithm));
        let iv = |sequence, seed| {
            let outbound = Outbound::new(SPI, true, &keys, &IvSeed::new(seed));
            seal(&outbound, shape, V4, sequence, Family::V4, b"inner")[esp::HEADER..shape.inner_at()].to_vec()
        };
        prop_assert_eq!(iv(one, seed), iv(one, seed));
        prop_assert!(algorithm.iv_len() == 0 || iv(one, seed) != iv(other, seed));
        let mut another = seed;
        another[3] ^= 1;
        prop_assert!(algorithm.iv_len() == 0 || iv(one, seed) != iv(one, another), "another run");
    }

    /// RFC 768, RFC 8200 section 8.1; over IPv4 there is none (RFC 3948 section 2.1).
    #[test]
    fn udp_over_ipv6_has_a_checksum(inner in prop::collection::vec(any::<u8>(), 0..200), sequence in 1..u64::MAX) {
        use pnet::packet::udp::{UdpPacket, ipv6_checksum};
        let (shape, outbound) = (Shape::new(Algorithm::Aes128Gcm, true), outbound(Algorithm::Aes128Gcm, true));
        let Ends::V6 { local, far } = V6 else { unreachable!() };
        let packet = seal(&outbound, shape, V6, sequence, Family::V4, &inner);
        let datagram = UdpPacket::new(&packet).unwrap();
        prop_assert_eq!((datagram.get_source(), datagram.get_destination()), (udp::PORT, udp::PORT));
        prop_assert_eq!(usize::from(datagram.get_length()), packet.len());
        prop_assert_eq!(datagram.get_checksum(), ipv6_checksum(&datagram, &local, &far));
        let packet = seal(&outbound, shape, V4, sequence, Family::V4, &inner);
        prop_assert_eq!(UdpPacket::new(&packet).unwrap().get_checksum(), 0);
    }
}

/// What a window must do, told by a set.
struct Model {
    width: u64,
    top: u64,
    seen: BTreeSet<u64>,
}

impl Model {
    fn new(width: u32) -> Self {
        Self { width: width.into(), top: 0, seen: BTreeSet::new() }
    }

    /// Whether the window reaches this number: it is not too old, and 0 is none.
    fn reaches(&self, sequence: u64) -> bool {
        sequence != 0 && sequence.saturating_add(self.width) > self.top
    }

    fn take(&mut self, sequence: u64) -> bool {
        let new = self.reaches(sequence) && self.seen.insert(sequence);
        if new {
            self.top = self.top.max(sequence);
        }
        new
    }
}

/// Widths at which words begin and end, and others.
fn width() -> impl Strategy<Value = u32> {
    prop_oneof![select(&[32, 33, 63, 64, 65, 127, 128, 129, 4_095, 4_096][..]), 32..=4_096_u32]
}

/// Steps ahead and back: by one, within a word, within the window, about its end, far beyond.
fn steps() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![4 => -3..4_i64, 4 => -70..70_i64, 3 => -5_000..5_000_i64, 1 => -70_000..70_000_i64];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn the_window_takes_what_the_set_takes(width in width(), base in 0..=3 * WRAP, steps in steps()) {
        let (mut window, mut model) = (Window::new(width), Model::new(width));
        let mut at = base;
        for step in steps {
            // Mostly about the highest number, sometimes about the last one.
            let from = if step % 3 == 0 { at } else { model.top.max(base) };
            at = from.saturating_add_signed(step);
            let new = window.is_new(at);
            prop_assert_eq!(window.take(at), new);
            prop_assert_eq!(new, model.take(at), "{}, width {}, highest {}", at, width, model.top);
            prop_assert_eq!(window.top(), model.top);
        }
        let all = model.top.saturating_sub(5_000)..=model.top + 200;
        for sequence in all {
            let new = model.reaches(sequence) && !model.seen.contains(&sequence);
            prop_assert_eq!(window.is_new(sequence), new, "{} of width {} below {}", sequence, width, model.top);
        }
    }

    #[test]
    fn whatever_comes_in_whatever_order_within_the_window_is_taken_once(
        order in Just((1..=64_u64).collect::<Vec<_>>()).prop_shuffle(),
        base in select(&[0, 64, WRAP - 64, WRAP - 32, WRAP - 1, WRAP, 5 * WRAP - 33][..]),
    ) {
        let mut window = Window::new(64);
        for number in &order {
            prop_assert!(window.take(base + number), "{}", number);
            prop_assert!(!window.take(base + number), "{}", number);
        }
        prop_assert!((1..=64).all(|number| !window.is_new(base + number)));
        prop_assert_eq!(window.top(), base + 64);
    }

    /// RFC 4303 appendix A2.2: a number is inside the window, or less than a round ahead of it.
    #[test]
    fn the_upper_half_is_found_for_every_number_that_may_come(
        width in width(),
        top in prop_oneof![0..20 * WRAP, 0..10_000_u64, WRAP - 5_000..WRAP + 5_000, any::<u64>()],
        ahead in prop_oneof![0..10_000_u64, 0..WRAP, WRAP - 10_000..WRAP],
    ) {
        let mut window = Window::new(width);
        let _ = window.take(top);
        let last = top.saturating_sub(u64::from(width)).saturating_add(WRAP);
        let oldest = (top + 1).saturating_sub(u64::from(width));
        let sequence = oldest.saturating_add(ahead).min(last);
        prop_assert_eq!(window.extend(low(sequence)), sequence, "highest {}", top);
    }

    /// The same where the window's lower end is about to cross into another round.
    #[test]
    fn the_upper_half_is_found_about_the_edges(width in width(), round in 0..3_u64, edge in -2..=2_i64, from in 0..4_u64) {
        let mut window = Window::new(width);
        let top = (round * WRAP + u64::from(width) - 1).saturating_add_signed(edge);
        let _ = window.take(top);
        let oldest = (top + 1).saturating_sub(u64::from(width));
        for sequence in [oldest + from, top.saturating_sub(from), top + 1 + from, oldest + WRAP - 1 - from] {
            prop_assert_eq!(window.extend(low(sequence)), sequence, "highest {}", top);
        }
    }

    #[test]
    fn extended_numbers_cross_the_wrap_in_both_directions(width in width(), steps in steps(), round in 1..4_u64) {
        let mut inbound = Inbound::new(SPI, true, width, &keys(Algorithm::NullHmacSha256));
        let mut model = Model::new(width);
        for half in 1..round * 2 {
            let sequence = half * WRAP / 2;
            prop_assert_eq!(open(&mut inbound, &numbered(true, sequence)), Ok(sequence));
            model.take(sequence);
        }
        let mut at = round * WRAP - 20;
        for step in steps.into_iter().take(60) {
            at = at.saturating_add_signed(step);
            let expected = if model.take(at) { Ok(at) } else { Err(Reject::EspReplay) };
            prop_assert_eq!(open(&mut inbound, &numbered(true, at)), expected, "{} below {}", at, model.top);
            prop_assert_eq!(inbound.highest(), model.top);
        }
    }

    /// Forgeries between the true packets, near and far by their number: nothing comes of them.
    #[test]
    fn forgeries_move_nothing(esn: bool, steps in steps(), forged in any::<u32>(), at in 8..26_usize) {
        let mut inbound = Inbound::new(SPI, esn, 64, &keys(Algorithm::NullHmacSha256));
        let (mut model, mut sequence) = (Model::new(64), 100_000_u64);
        for step in steps.into_iter().take(40) {
            sequence = sequence.saturating_add_signed(step).max(1);
            let packet = numbered(esn, sequence);
            let mut forgery = packet.clone();
            forgery[4..8].copy_from_slice(&forged.wrapping_add(low(sequence)).to_be_bytes());
            forgery[at] ^= 1;
            prop_assert_eq!(open(&mut inbound, &forgery), Err(Reject::EspIcv));
            prop_assert_eq!(inbound.highest(), model.top);
            let expected = if model.take(sequence) { Ok(sequence) } else { Err(Reject::EspReplay) };
            prop_assert_eq!(open(&mut inbound, &packet), expected);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn low(sequence: u64) -> u32 {
    sequence as u32
}

/// Nobody knows where a far end begins: it may have been up for long, or be told to begin high.
#[test]
fn the_first_number_may_be_any() {
    for esn in [false, true] {
        for first in [1, 63, 64, 10_000, 0x7FFF_FFFF, 0x8000_0000, WRAP - 65, WRAP - 64, WRAP - 1] {
            let mut inbound = Inbound::new(SPI, esn, 64, &keys(Algorithm::NullHmacSha256));
            assert_eq!(open(&mut inbound, &numbered(esn, first)), Ok(first), "{first}, extended: {esn}");
        }
    }
}

#[test]
fn without_a_window_extended_numbers_are_still_found() {
    let mut inbound = Inbound::new(SPI, true, 0, &keys(Algorithm::NullHmacSha256));
    for sequence in [1, 0x8000_0000, WRAP - 1, WRAP + 5, WRAP - 1, 5, WRAP + 5, WRAP + 0x7000_0000, 2 * WRAP] {
        assert_eq!(open(&mut inbound, &numbered(true, sequence)), Ok(sequence));
    }
}

#[test]
fn a_probe_is_sealed_and_opened_without_an_allocation() {
    for algorithm in Algorithm::ALL {
        let (shape, outbound) = (Shape::new(algorithm, true), outbound(algorithm, true));
        let mut inbound = Inbound::new(SPI, true, 64, &keys(algorithm));
        let (mut packet, mut scratch) = (vec![0; shape.length(100)], Vec::new());
        let mut turn = |sequence| {
            packet[shape.inner_at()..][..100].fill(0x5A);
            outbound.seal(shape, V6, sequence, Family::V4, 100, &mut packet);
            let opened = inbound.open(udp::parse(&packet).unwrap(), &mut scratch).unwrap();
            assert_eq!((opened.sequence, opened.packet.len()), (sequence, 100));
        };
        let first = allocation_counter::measure(|| turn(1)).count_total;
        assert_eq!(first, 1, "the scratch space, or nothing is counted");
        let later = allocation_counter::measure(|| (2..1_000).for_each(&mut turn)).count_total;
        assert_eq!(later, 0, "{}", algorithm.name());
    }
}

#[test]
fn the_last_number_is_where_its_width_ends() {
    let last = |esn| outbound(Algorithm::Aes256Gcm, esn).last();
    assert_eq!((last(false), last(true)), (0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF));
    assert_eq!(numbered(false, 0xFFFF_FFFF)[4..8], [0xFF; 4]);
}

#[test]
#[should_panic(expected = "no such sequence number")]
fn numbers_of_32_bits_do_not_wrap() {
    numbered(false, WRAP);
}

#[test]
#[should_panic(expected = "no such sequence number")]
fn zero_is_never_sent() {
    numbered(true, 0);
}

#[test]
#[should_panic(expected = "a shape of another algorithm")]
fn a_packet_is_sealed_in_its_own_shape() {
    let shape = Shape::new(Algorithm::Aes128Gcm, false);
    seal(&outbound(Algorithm::Aes256Gcm, false), shape, V4, 1, Family::V4, b"inner");
}

#[test]
fn nothing_that_holds_a_key_can_be_printed_or_written_out() {
    /// Of two implementations that fit, none can be chosen: this compiles only while the second
    /// one does not fit.
    trait Silent<Which> {
        fn is() {}
    }
    impl<T> Silent<()> for T {}
    impl<T: std::fmt::Debug> Silent<u8> for T {}
    impl<T: std::fmt::Display> Silent<u16> for T {}
    impl<T: serde::Serialize> Silent<u32> for T {}
    <Keys as Silent<_>>::is();
    <IvSeed as Silent<_>>::is();
    <Outbound as Silent<_>>::is();
    <Inbound as Silent<_>>::is();
}
