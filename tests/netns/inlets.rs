//! The filter of the sockets that receive ESP, in a real kernel: the users' ESP comes there, too.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;

use adit::io::clock::Clock;
use adit::io::netns;
use adit::io::raw::{self, Inbox, Receiver};
use adit::wire::esp::udp::PORT;
use adit::wire::filter::{Pass, Protocol, RANGES};
use adit::wire::probe::Arrived;
use adit::wire::{Family, checksum};
use tokio::runtime::{Builder, Runtime};

use crate::by_hand::Injector;
use crate::kit::{FAR, NEAR, Pair, address, eventually};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let exact = [
        ("esp_over_ipv4", Family::V4, Protocol::Esp),
        ("esp_over_ipv6", Family::V6, Protocol::Esp),
        ("esp_in_udp_over_ipv4", Family::V4, Protocol::EspInUdp),
        ("esp_in_udp_over_ipv6", Family::V6, Protocol::EspInUdp),
    ];
    let exact = exact.map(|(name, family, protocol)| {
        case(format!("inlets::of_{name}_exactly_our_spis_pass"), move || exactly_our_spis_pass(family, protocol))
    });
    let little = case("inlets::where_a_filter_has_little_room_ours_pass_all_the_same", little_room);
    exact.into_iter().chain([little]).collect()
}

/// A socket that receives ESP in the near namespace, and somebody who sends it there.
struct Ear {
    receiver: Receiver,
    family: Family,
    protocol: Protocol,
    clock: Clock,
    inbox: Inbox,
    injector: Injector,
    // The last to go.
    pair: Pair,
    runtime: Runtime,
}

impl Ear {
    fn open(family: Family, protocol: Protocol) -> Self {
        let (pair, clock) = (Pair::new(), Clock::start());
        let opened =
            netns::within(Some(&pair.near), || raw::open_receiver(family, protocol, Pass::Answers { epoch: 1 }));
        let opened = opened.unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let receiver = runtime.block_on(async { opened.register(clock.now()) }).unwrap();
        let injector = Injector::of(&pair.far, family);
        Self { receiver, family, protocol, clock, inbox: Inbox::default(), injector, pair, runtime }
    }

    fn near(&self) -> &File {
        &self.pair.near
    }

    /// Those of these SPIs whose packets pass; `last` must be one of them.
    fn passed(&mut self, spis: &[u32], last: u32) -> BTreeSet<u32> {
        let _inside = self.runtime.enter();
        let (family, protocol) = (self.family, self.protocol);
        let packets: Vec<_> = spis.iter().chain([&last]).map(|spi| packet(family, protocol, *spi)).collect();
        self.injector.send(&packets);
        let mut passed = BTreeSet::new();
        let (receiver, clock, inbox) = (&mut self.receiver, &self.clock, &mut self.inbox);
        eventually("the last packet", || {
            receiver.drain(clock, 0, inbox).unwrap();
            inbox.deliver(|_, _, _, arrived| passed.extend(Some(spi(protocol, arrived))));
            passed.contains(&last)
        });
        passed
    }
}

/// An ESP packet as the far router sends it, and where to.
fn packet(family: Family, protocol: Protocol, spi: u32) -> (IpAddr, Vec<u8>) {
    let mut esp = [spi.to_be_bytes(), 7_u32.to_be_bytes()].concat();
    esp.resize(48, 0xA5);
    let (number, payload) = match protocol {
        Protocol::EspInUdp => (17, udp(family, &esp)),
        Protocol::Esp | Protocol::Gre | Protocol::Icmp => (50, esp),
    };
    let near = address(NEAR[usize::from(family == Family::V6)]);
    (near, [header(family, number, payload.len()), payload].concat())
}

fn octets(text: &str) -> Vec<u8> {
    match address(text) {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn header(family: Family, protocol: u8, length: usize) -> Vec<u8> {
    let total = |more| u16::try_from(length + more).unwrap().to_be_bytes();
    match family {
        Family::V4 => {
            let [high, low] = total(20);
            let fixed = vec![0x45, 0, high, low, 0, 1, 0x40, 0, 64, protocol, 0, 0];
            let mut header = [fixed, octets(FAR[0]), octets(NEAR[0])].concat();
            let sum = checksum::of(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        Family::V6 => {
            let [high, low] = total(0);
            [vec![0x60, 0, 0, 0, high, low, protocol, 64], octets(FAR[1]), octets(NEAR[1])].concat()
        }
    }
}

/// RFC 3948: without a checksum over IPv4; over IPv6 it must have one (RFC 8200 section 8.1).
fn udp(family: Family, esp: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + esp.len()).unwrap();
    let mut packet = [PORT, PORT, length, 0].map(u16::to_be_bytes).concat();
    packet.extend(esp);
    if family == Family::V6 {
        let pseudo = [octets(FAR[1]), octets(NEAR[1]), u32::from(length).to_be_bytes().to_vec(), vec![0, 0, 0, 17]];
        let sum = checksum::of(&[pseudo.concat(), packet.clone()].concat());
        packet[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

fn spi(protocol: Protocol, arrived: Arrived<'_>) -> u32 {
    let packet = match arrived {
        Arrived::V4(bytes) => &bytes[20..],
        Arrived::V6 { payload, .. } => payload,
    };
    let at = if protocol == Protocol::EspInUdp { 8 } else { 0 };
    u32::from_be_bytes(*packet[at..].first_chunk().unwrap())
}

/// So many SPIs as a key exchange draws them, in ascending order, by the seed.
fn scattered(seed: u64, count: usize) -> Vec<u32> {
    let draw = |number| u32::try_from(adit::engine::schedule::mix(seed, number) >> 32).unwrap();
    let spis: BTreeSet<u32> = (0..).map(draw).filter(|spi| *spi > 255).take(count).collect();
    assert_eq!(spis.len(), count, "two are the same");
    spis.into_iter().collect()
}

fn exactly_our_spis_pass(family: Family, protocol: Protocol) {
    let mut ear = Ear::open(family, protocol);
    // Twice: the second filter replaces the first.
    for seed in [1, 2] {
        let (ours, others) = (scattered(seed, 800), scattered(seed + 10, 800));
        ear.receiver.listen(&ours).unwrap();
        let set: BTreeSet<u32> = ours.iter().copied().collect();
        // Few at a time, so that all of them have room in the queue of an ordinary user's socket.
        for (ours, others) in ours.chunks(20).zip(others.chunks(20)) {
            let beside = ours.iter().flat_map(|spi| [spi - 1, *spi, spi.saturating_add(1)]);
            let sent: Vec<u32> = beside.chain(others.iter().copied()).collect();
            let expected: BTreeSet<u32> = sent.iter().copied().filter(|spi| set.contains(spi)).collect();
            let last = *ours.last().unwrap();
            assert_eq!(ear.passed(&sent, last), expected);
        }
    }
}

/// A kernel before Linux 6.8 has 20 kB for all filters of a socket, the old one and the new one together
/// while one takes the other's place.
fn little_room() {
    let mut ear = Ear::open(Family::V4, Protocol::Esp);
    // Where namespaces have no limit of their own yet, the host's is this one, unless somebody changed it.
    let limit = || Ok(std::fs::write("/proc/sys/net/core/optmem_max", "20480").is_ok());
    let limited = netns::within(Some(ear.near()), limit).unwrap();
    for seed in [3, 4, 5] {
        let ours = scattered(seed, RANGES);
        ear.receiver.listen(&ours).unwrap();
        for few in ours.chunks(60) {
            assert_eq!(ear.passed(few, few[0]), few.iter().copied().collect());
        }
        let outside = [ours[0] - 1, ours[RANGES - 1] + 1];
        assert_eq!(ear.passed(&outside, ours[0]), BTreeSet::from([ours[0]]));
        let between: Vec<u32> = ours.windows(2).map(|pair| pair[0] + 1).filter(|spi| !ours.contains(spi)).collect();
        let passed: usize = between.chunks(60).map(|few| ear.passed(few, ours[0]).len() - 1).sum();
        assert!(passed > 0 || !limited, "the room was not little");
        assert!(passed < RANGES * 2 / 3, "{passed} of {} gaps are open", between.len());
    }
}
