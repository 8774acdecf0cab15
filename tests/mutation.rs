//! Hostile bytes: every truncation and single-bit flip of every golden packet, and seeded random
//! mutations of them, through every parser and the engine. Nothing panics, and nothing changed is
//! ever taken for an answer that says something else than the original.
//!
//! `ADIT_MUTATIONS=1000000` sets how many random ones (100 000 unless set).

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

mod packets;
mod sealed;
mod sim;

use std::net::Ipv6Addr;

use adit::engine::settings::ReturnPath;
use adit::engine::{Engine, Setup, Time, Tunnel, WallTime, schedule};
use adit::wire::esp::{self, Inbound};
use adit::wire::payload::Secret;
use adit::wire::probe::{self, Arrived};
use adit::wire::{Direction, Ends, Onion, Reject, gre, icmp, ip, payload, quote};
use packets::{Fixture, arrived, secret};
use sim::{Sim, at_ms, ms, tunnel};

struct Golden {
    name: String,
    bytes: Vec<u8>,
    accept: bool,
    /// Where the ICMP message begins, if there is one of ours.
    icmp_at: Option<usize>,
}

fn goldens() -> Vec<Golden> {
    let golden = |fixture: Fixture| {
        let bytes = fixture.bytes();
        let magic = bytes.windows(4).position(|window| window == payload::MAGIC);
        let icmp_at = magic.and_then(|at| at.checked_sub(icmp::HEADER));
        Golden { name: fixture.name, accept: fixture.accept, icmp_at, bytes }
    };
    packets::all().into_iter().map(golden).collect()
}

/// An engine with tunnels of the goldens' kinds, all with index 7 among them.
fn engine() -> Engine {
    let fixtures = packets::named("sent-");
    let settings = |index: u32| {
        let fixture = &fixtures[index as usize % fixtures.len()];
        let mut tunnel = Tunnel { onion: fixture.onion(), ..tunnel(index) };
        tunnel.check.return_path = if index.is_multiple_of(2) { ReturnPath::Any } else { ReturnPath::Strict };
        tunnel
    };
    let setup = Setup {
        tunnels: (0..24).map(settings).collect(),
        routes: Vec::new(),
        places: Vec::new(),
        steers: false,
        secret: secret(),
        record: false,
        associations: Default::default(),
    };
    Engine::new(Time::ZERO, WallTime(0), setup)
}

/// What the parsers make of a packet.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    /// It may pass for an answer.
    Answer,
    /// It is an ICMP error that quotes a probe.
    Hint,
    Refused,
}

/// Whatever is not refused must say what the goldens say.
fn read(bytes: &[u8], what: &dyn Fn() -> String) -> Read {
    let arrived = arrived(bytes);
    let _ = probe::claimed_tunnel(arrived);
    let quote = quote::parse(arrived, &secret());
    if let Some(quote) = quote {
        assert_eq!(quote.fields, packets::FIELDS, "{}", what());
    }
    match probe::parse(arrived, &secret()) {
        Ok(reply) => {
            assert_eq!(reply.fields, packets::FIELDS, "{}", what());
            assert_eq!(quote, None, "an answer and an error at once: {}", what());
            Read::Answer
        }
        Err(Reject::IcmpType) if quote.is_some() => Read::Hint,
        Err(_) => Read::Refused,
    }
}

#[test]
fn every_truncation_is_refused_without_a_panic() {
    let mut engine = engine();
    for golden in goldens() {
        for length in 0..golden.bytes.len() {
            let cut = &golden.bytes[..length];
            let what = || format!("{} cut to {length}", golden.name);
            assert_eq!(read(cut, &what), Read::Refused, "{}", what());
            engine.handle_datagram(Time::ZERO, Time::ZERO, 0, 0, arrived(cut));
        }
    }
}

#[test]
fn every_single_bit_flip_is_refused_or_says_the_same() {
    let mut engine = engine();
    let (mut accepted, mut flips) = (0_u32, 0_u32);
    for golden in goldens() {
        let mut bytes = golden.bytes.clone();
        for bit in 0..bytes.len() * 8 {
            let (byte, mask) = (bit / 8, 0x80 >> (bit % 8));
            bytes[byte] ^= mask;
            let what = || format!("{}, byte {byte}, mask {mask:#04x}", golden.name);
            if read(&bytes, &what) == Read::Answer {
                accepted += 1;
                let inside = golden.icmp_at.is_some_and(|at| byte >= at);
                assert!(!(golden.accept && inside), "{}: a changed message was taken", what());
            }
            engine.handle_datagram(Time::ZERO, Time::ZERO, 0, 0, arrived(&bytes));
            bytes[byte] ^= mask;
            flips += 1;
        }
    }
    println!("{flips} flips, of which {accepted} change nothing that counts (TTL, DSCP, outer header)");
    assert!(flips > 150_000);
    assert!(accepted < flips / 10, "{accepted} of {flips}: too many to be harmless");
    let received: u64 = engine.tunnels(Time::ZERO).iter().map(|view| view.counters.received).sum();
    assert_eq!(received, 0, "none of these was ever sent");
}

/// A flip anywhere under a checksum of the inner packet is seen, whatever else is wrong.
#[test]
fn every_flip_of_an_inner_ipv4_header_is_refused() {
    for golden in goldens().into_iter().filter(|golden| golden.accept && golden.name.contains("-v4-in-")) {
        if golden.name.contains("uni") {
            continue;
        }
        let inner_at = golden.icmp_at.unwrap() - ip::V4_HEADER;
        for bit in inner_at * 8..golden.bytes.len() * 8 {
            let mut bytes = golden.bytes.clone();
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            assert!(probe::parse(arrived(&bytes), &secret()).is_err(), "{}, bit {bit}", golden.name);
        }
    }
}

struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.drawn += 1;
        schedule::mix(self.seed, self.drawn)
    }

    /// Below `end`, which must not be zero.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        let [byte, ..] = self.next().to_be_bytes();
        // The values at which length and version fields turn.
        if byte < 64 {
            [0, 1, 4, 5, 0x45, 0x46, 0x4F, 0x60, 0x7F, 0x80, 0xFF, 0xFE][usize::from(byte) % 12]
        } else {
            byte
        }
    }

    /// Overwrites, inserts, deletes or splices; one to three times.
    fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            let length = self.below(9);
            match self.below(6) {
                0 | 1 => bytes.iter_mut().skip(at).take(length).for_each(|byte| *byte = self.byte()),
                2 => {
                    let noise: Vec<u8> = (0..length).map(|_| self.byte()).collect();
                    bytes.splice(at..at, noise);
                }
                3 => _ = bytes.drain(at..(at + length).min(bytes.len())),
                4 => {
                    let from = self.below(other.len() + 1);
                    bytes.truncate(at);
                    bytes.extend(&other[from..]);
                }
                // The headers of one, all of the other from the same place on.
                _ => {
                    bytes.truncate(at);
                    bytes.extend(other.get(at..).unwrap_or_default());
                }
            }
        }
    }
}

fn mutations() -> u64 {
    std::env::var("ADIT_MUTATIONS").ok().map_or(100_000, |number| number.parse().unwrap())
}

/// Every parser of its own, as if somebody called it with these bytes.
fn feed_all_parsers(bytes: &[u8], secret: &Secret, random: &mut Random) {
    let address = |last: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    let ends = Ends::V6 { local: address(1), far: address(2) };
    for layer in [ip::Layer::Outer, ip::Layer::Inner] {
        for packet in [ip::parse_v4(bytes, layer), ip::parse_v6(bytes, layer)].into_iter().flatten() {
            assert!(packet.payload.len() <= bytes.len());
            let _ = icmp::parse(&packet);
        }
    }
    if let Ok((_, rest)) = gre::parse(bytes) {
        assert!(rest.len() + 4 <= bytes.len());
    }
    let packet =
        ip::Packet { source: ends.far(), destination: ends.local(), protocol: ip::ICMPV6, ttl: 1, payload: bytes };
    let _ = icmp::parse(&packet);
    let _ = icmp::parse(&ip::Packet { source: "192.0.2.1".parse().unwrap(), ..packet });
    let _ = payload::parse(bytes, ends, secret);
    let _ = payload::claimed_tunnel(bytes);
    if let Ok(packet) = esp::udp::parse(bytes) {
        assert!(packet.len() + esp::udp::HEADER <= bytes.len());
    }
    let protocol = [gre::PROTOCOL, ip::ICMP, ip::ICMPV6, 17][random.below(4)];
    for arrived in
        [Arrived::V4(bytes), Arrived::V6 { protocol, source: address(2), destination: address(1), payload: bytes }]
    {
        let _ = probe::claimed_tunnel(arrived);
        let _ = quote::parse(arrived, secret);
        if let Ok(reply) = probe::parse(arrived, secret) {
            assert_eq!(reply.fields, packets::FIELDS);
        }
    }
}

#[test]
fn random_mutations_of_golden_packets() {
    let (goldens, mut engine, secret) = (goldens(), engine(), secret());
    let mut random = Random { seed: 0xAD17, drawn: 0 };
    let mut hints = 0;
    for number in 0..mutations() {
        let one = &goldens[random.below(goldens.len())];
        let other = &goldens[random.below(goldens.len())];
        let mut bytes = one.bytes.clone();
        random.mutate(&mut bytes, &other.bytes);
        let what = || format!("mutation {number}, of {} with {}: {bytes:02x?}", one.name, other.name);
        // Cut at the start, too, so that the inner parsers meet what the outer ones would refuse.
        if number % 4 == 0 {
            let skip = random.below(64).min(bytes.len());
            feed_all_parsers(&bytes[skip..], &secret, &mut random);
        }
        hints += u64::from(read(&bytes, &what) == Read::Hint);
        engine.handle_datagram(Time::ZERO, Time::ZERO, 0, 0, arrived(&bytes));
    }
    let received: u64 = engine.tunnels(Time::ZERO).iter().map(|view| view.counters.received).sum();
    assert_eq!(received, 0, "none of these was ever sent");
    let refused: u64 = engine.rejects().iter().sum();
    assert_eq!(engine.hints(), hints);
    assert_eq!(refused + hints, mutations(), "each is counted under one reason, or as a hint");
    let met = Reject::ALL.iter().filter(|reject| engine.rejects()[reject.index()] > 0).count();
    assert!(met >= 24, "only {met} reasons were met: too little gets past the first checks");
}

/// Probes in flight, and mutations of their true answers: an answer that is taken settles the very
/// probe it was made for.
#[test]
fn random_mutations_of_true_answers() {
    let start = |round: u32| {
        let mut settings = tunnel(0);
        settings.check.timeout = adit::engine::settings::Timeout::Fixed(ms(60_000));
        let (key, checksum) = ((round % 2 == 1).then_some(9), round % 3 == 1);
        settings.onion.encapsulation = gre::Options { key, checksum, sequence: false }.into();
        if round % 4 == 3 {
            settings.onion.style.direction = Direction::Unidirectional;
            settings.onion.inner = settings.onion.outer;
        }
        let mut sim = Sim::new(vec![settings], Vec::new(), 1);
        sim.keep_bytes = true;
        sim.far[0].rtt = ms(50_000);
        sim.run_until(at_ms(3));
        let onion: Onion = sim.tunnels[0].onion.clone();
        let answers: Vec<Vec<u8>> =
            sim.sent.iter().map(|sent| sim.far[0].answer(&sent.bytes, onion.style.direction, &onion)).collect();
        assert_eq!(answers.len(), 3);
        (sim, answers)
    };
    let mut random = Random { seed: 0xBEEF, drawn: 0 };
    let (mut taken, mut round) = (0, 0);
    let (mut sim, mut answers) = start(round);
    for _ in 0..mutations() / 4 {
        let one = random.below(answers.len());
        let mut bytes = answers[one].clone();
        if random.below(2) == 0 {
            let bit = random.below(bytes.len() * 8);
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
        } else {
            let other = answers[random.below(answers.len())].clone();
            random.mutate(&mut bytes, &other);
        }
        let before = sim.view(0).counters.received;
        sim.engine.handle_datagram(sim.now, sim.now, 0, 0, arrived(&bytes));
        if sim.view(0).counters.received > before {
            taken += 1;
            let fields = probe::parse(arrived(&bytes), &sim::secret()).unwrap().fields;
            let sequences: Vec<u64> = sim.sent.iter().map(|sent| sent.sequence).collect();
            assert!(sequences.contains(&fields.sequence));
            assert_eq!(fields.tunnel, 0);
            let own = sim.sent.iter().find(|sent| sent.sequence == fields.sequence).unwrap();
            assert_eq!(fields.sent, own.at.as_nanos(), "the send time is the probe's own");
            round += 1;
            (sim, answers) = start(round);
        }
    }
    println!("{taken} changed answers were taken: TTL, DSCP, identification and the like");
    assert!(taken > 0);
}

/// An ESP packet, and an association that has opened those that came before it.
struct Sealed {
    fixture: sealed::Fixture,
    at: usize,
    bytes: Vec<u8>,
}

impl Sealed {
    /// The first packets of each association: the others only differ in length.
    fn all() -> Vec<Self> {
        let accepted = sealed::all().into_iter().filter(|fixture| fixture.name.starts_with("accept-"));
        let each = |fixture: sealed::Fixture| {
            // Without what lies behind a datagram, which means nothing.
            let end = |bytes: &[u8]| {
                if fixture.udp { usize::from(bytes[4]) << 8 | usize::from(bytes[5]) } else { bytes.len() }
            };
            let whole = |packet: &sealed::Packet| packet.bytes()[..end(&packet.bytes())].to_vec();
            let bytes: Vec<Vec<u8>> = fixture.packets.iter().take(4).map(whole).collect();
            bytes.into_iter().enumerate().map(move |(at, bytes)| Self { fixture: fixture.clone(), at, bytes })
        };
        accepted.flat_map(each).collect()
    }

    fn inbound(&self) -> Inbound {
        let mut inbound = self.fixture.inbound();
        for packet in &self.fixture.packets[..self.at] {
            self.fixture.open(&mut inbound, &packet.bytes()).unwrap();
        }
        inbound
    }

    /// What is under the ICV, and the ICV.
    fn esp<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.fixture.udp { esp::udp::parse(bytes).ok() } else { Some(bytes) }
    }

    /// Nothing comes of these bytes, and the packet itself is still taken.
    fn refuses(&self, inbound: &mut Inbound, bytes: &[u8], what: &dyn Fn() -> String) {
        let highest = inbound.highest();
        assert!(self.fixture.open(inbound, bytes).is_err(), "{}", what());
        assert_eq!(inbound.highest(), highest, "{}", what());
    }

    fn opens(&self, mut inbound: Inbound) {
        let opened = self.fixture.open(&mut inbound, &self.bytes).map_err(Reject::label);
        assert_eq!(opened, self.fixture.packets[self.at].outcome(), "{}", self.fixture.name);
    }
}

#[test]
fn every_truncation_of_an_esp_packet_is_refused_and_moves_nothing() {
    for sealed in Sealed::all() {
        let mut inbound = sealed.inbound();
        for length in 0..sealed.bytes.len() {
            let what = || format!("{}, packet {} cut to {length}", sealed.fixture.name, sealed.at);
            sealed.refuses(&mut inbound, &sealed.bytes[..length], &what);
        }
        sealed.opens(inbound);
    }
}

#[test]
fn every_single_bit_flip_of_an_esp_packet_is_refused_and_moves_nothing() {
    let (mut flips, mut harmless) = (0_u32, 0_u32);
    for sealed in Sealed::all() {
        let mut inbound = sealed.inbound();
        let original = sealed.esp(&sealed.bytes).unwrap();
        for bit in 0..sealed.bytes.len() * 8 {
            let mut bytes = sealed.bytes.clone();
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            let what = || format!("{}, packet {}, bit {bit}", sealed.fixture.name, sealed.at);
            if sealed.esp(&bytes) == Some(original) {
                // The far end's port or the checksum: no part of ESP.
                assert!(sealed.fixture.udp && [0, 1, 6, 7].contains(&(bit / 8)), "{}", what());
                harmless += 1;
            } else {
                sealed.refuses(&mut inbound, &bytes, &what);
            }
            flips += 1;
        }
        sealed.opens(inbound);
    }
    println!("{flips} flips, of which {harmless} are outside ESP");
    assert!(flips > 100_000);
}

#[test]
fn random_mutations_of_esp_packets() {
    let all = Sealed::all();
    let genuine: Vec<&[u8]> = all.iter().map(|sealed| sealed.esp(&sealed.bytes).unwrap()).collect();
    let mut inbounds: Vec<Inbound> = all.iter().map(Sealed::inbound).collect();
    let mut random = Random { seed: 0xE5B, drawn: 0 };
    let mut met = [0_u64; Reject::COUNT];
    for number in 0..mutations() / 4 {
        let (at, other) = (random.below(all.len()), random.below(all.len()));
        let mut bytes = all[at].bytes.clone();
        random.mutate(&mut bytes, &all[other].bytes);
        let highest = inbounds[at].highest();
        match all[at].fixture.open(&mut inbounds[at], &bytes) {
            // Unchanged after all, or another one of the same association.
            Ok(_) => assert!(genuine.contains(&all[at].esp(&bytes).unwrap()), "mutation {number}: {bytes:02x?}"),
            Err(reject) => {
                met[reject.index()] += 1;
                let moved = inbounds[at].highest() > highest;
                assert!(!moved || genuine.contains(&all[at].esp(&bytes).unwrap()), "mutation {number}: {bytes:02x?}");
            }
        }
    }
    let met = met.iter().filter(|count| **count > 0).count();
    assert!(met >= 7, "only {met} reasons were met");
}
