//! What a probe costs: built, answered, judged; and what a packet's way costs. Beside each stands a
//! peer that does the same or less with a general library, from the same run on the same machine:
//! the ratio travels, the nanoseconds do not.
//!
//! | aim | at most |
//! | --- | --- |
//! | build one probe | 300 ns |
//! | parse and settle one answer, caches warm | 300 ns |
//! | judge one sample | 50 ns |
//! | look up one route among 100 000 prefixes | 100 ns |
//! | move 100 000 prefixes in adit's own table | 5 ms |

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on must fail")]

#[path = "loaded/mod.rs"]
mod loaded;
#[path = "../tests/sim/mod.rs"]
mod sim;

use std::hash::Hasher;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use adit::engine::health::{Health, Rules, State};
use adit::engine::window::Outcome;
use adit::engine::{Drain, Engine, Layout, Route, RouteTable, Setup, Time, Tunnel, WallTime, schedule};
use adit::wire::payload::{self, Fields};
use adit::wire::probe::{self, Arrived};
use adit::wire::{Onion, Stamp, Template, gre};
use criterion::{Criterion, criterion_group, criterion_main};
use loaded::Loaded;
use pnet::packet::icmp::{IcmpPacket, IcmpTypes, MutableIcmpPacket};
use pnet::packet::ip::IpNextHeaderProtocols;
use pnet::packet::ipv4::{self, MutableIpv4Packet};
use sim::{secret, tunnel};
use siphasher::sip128::{Hasher128, SipHasher24};

fn onions() -> [(&'static str, Onion); 2] {
    let plain = tunnel(0).onion;
    let (local, far) = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2));
    let ends = adit::wire::Ends::V6 { local, far };
    let full = gre::Options { key: Some(4711), checksum: true, sequence: true };
    [
        ("v4 in v4", plain.clone()),
        ("v6 in v6, key, checksum, sequence", Onion { outer: ends, inner: ends, encapsulation: full.into(), ..plain }),
    ]
}

fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("build one probe");
    let mut buffer = [0; 2048];
    for (name, onion) in onions() {
        let (template, secret) = (Template::new(&onion), secret());
        let mut sequence = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                sequence += 1;
                let fields = Fields { tunnel: 7, sequence, sent: sequence };
                let stamp = Stamp { fields, identifier: 1, ip_id: 1 };
                black_box(template.emit(black_box(&stamp), &secret, None, &mut buffer))
            });
        });
    }
    let mut sequence = 0;
    group.bench_function("peer: pnet builds the same headers, no tag", |bencher| {
        bencher.iter(|| {
            sequence += 1;
            build_with_pnet(black_box(sequence), &mut buffer);
        });
    });
    group.bench_function("part: SipHash-2-4-128 of 72 bytes", |bencher| {
        bencher.iter(|| sip(black_box(&buffer[..72])));
    });
    group.finish();
}

fn sip(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&[7; 16]);
    hasher.write(bytes);
    hasher.finish128().h1
}

/// The same packet with pnet alone: two IPv4 headers with their checksums, GRE, ICMP with its
/// checksum over 72 bytes.
fn build_with_pnet(sequence: u16, buffer: &mut [u8]) {
    buffer[20..24].copy_from_slice(&[0, 0, 8, 0]);
    let mut message = MutableIcmpPacket::new(&mut buffer[44..124]).unwrap();
    message.set_icmp_type(IcmpTypes::EchoRequest);
    message.set_checksum(0);
    buffer[50..52].copy_from_slice(&sequence.to_be_bytes());
    let sum = pnet::packet::icmp::checksum(&IcmpPacket::new(&buffer[44..124]).unwrap());
    MutableIcmpPacket::new(&mut buffer[44..124]).unwrap().set_checksum(sum);
    for (at, length, protocol) in [(24, 100, IpNextHeaderProtocols::Icmp), (0, 124, IpNextHeaderProtocols::Gre)] {
        let mut header = MutableIpv4Packet::new(&mut buffer[at..124]).unwrap();
        header.set_version(4);
        header.set_header_length(5);
        header.set_dscp(48);
        header.set_total_length(length);
        header.set_identification(sequence);
        header.set_flags(ipv4::Ipv4Flags::DontFragment);
        header.set_ttl(64);
        header.set_next_level_protocol(protocol);
        header.set_source(Ipv4Addr::new(192, 0, 2, 1));
        header.set_destination(Ipv4Addr::new(203, 0, 113, 2));
        header.set_checksum(0);
        let sum = ipv4::checksum(&header.to_immutable());
        header.set_checksum(sum);
    }
}

/// Few enough tunnels that all they remember stays in the caches: what the code itself costs.
const WARM: u32 = 64;
/// So many that each answer finds its tunnel in main memory, as with a hundred thousand.
const COLD: u32 = 4_096;

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn answer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse and settle one answer");
    for (name, count) in
        [("Engine::handle_datagram, warm", WARM), ("Engine::handle_datagram, out of main memory", COLD)]
    {
        let mut loaded = Loaded::new(count);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|wanted| {
                let (mut done, mut spent) = (0_u64, Duration::ZERO);
                while done < wanted {
                    loaded.send();
                    let begun = Instant::now();
                    loaded.settle();
                    spent += begun.elapsed();
                    done += loaded.answers.len() as u64;
                }
                let share = u128::from(wanted) * spent.as_nanos() / u128::from(done.max(1));
                Duration::from_nanos(u64::try_from(share).unwrap())
            });
        });
        let received: u64 = loaded.engine.tunnels(loaded.now).iter().map(|view| view.counters.received).sum();
        let refused: u64 = loaded.engine.rejects().iter().sum();
        assert_eq!((received, refused), (loaded.sent(), 0), "not what was to be measured");
    }

    let mut loaded = Loaded::new(1);
    loaded.send();
    let answer = loaded.answers[0].clone();
    let secret = secret();
    group.bench_function("part: probe::parse", |bencher| {
        bencher.iter(|| probe::parse(Arrived::V4(black_box(&answer)), &secret).unwrap().fields);
    });
    group.bench_function("peer: etherparse slices the two IP packets, no sums, no tag", |bencher| {
        bencher.iter(|| {
            let outer = etherparse::SlicedPacket::from_ip(black_box(&answer)).unwrap();
            let inner = etherparse::SlicedPacket::from_ip(&answer[24..]).unwrap();
            (black_box(outer), black_box(inner)).1.transport.is_some()
        });
    });
    // What is refused early is cheap: others' pings, which the kernel's filter keeps off anyhow.
    let mut ping = answer.clone();
    let magic = ping.windows(4).position(|window| window == payload::MAGIC).unwrap();
    ping[magic] ^= 0xFF;
    sim::far::seal(&mut ping[24..]);
    group.bench_function("refused: another's ping", |bencher| {
        bencher.iter(|| probe::parse(Arrived::V4(black_box(&ping)), &secret).unwrap_err());
    });
    group.finish();
}

fn judge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("judge one sample");
    for (name, every) in [("window of 300, clean", u64::MAX), ("window of 300, every 10th fails", 10)] {
        let mut health = Health::starting_as(State::Healthy, Rules::default());
        let mut second = 0_u64;
        let mut next = move || {
            second += 1;
            let outcome = if second.is_multiple_of(every) {
                Outcome::Failure
            } else {
                Outcome::Success(Duration::from_millis(10))
            };
            health.judge(black_box(Time::from_nanos(second * 1_000_000_000)), outcome)
        };
        (0..1_000).for_each(|_| _ = next());
        group.bench_function(name, |bencher| bencher.iter(&mut next));
    }
    group.finish();
}

fn lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("look up one route");
    let v4 = (0..90_000_u32).map(|number| format!("{}/24", Ipv4Addr::from(0x0A00_0000 + (number << 8))));
    let v6 = (0..10_000_u16).map(|number| format!("2001:db8:{number:x}::/48"));
    let route = |(prefix, tunnel): (String, u32)| Route {
        prefix: prefix.parse().unwrap(),
        tunnel: tunnel % 1_000,
        priority: 100,
        weight: 1,
        device: None,
        via: None,
        place: 0,
        onlink: false,
    };
    let table = RouteTable::new(v4.chain(v6).zip(0..).map(route).collect(), Vec::new(), 1_000, false);
    assert_eq!(table.prefixes(), 100_000);
    let noise = |number: u64| u32::try_from(schedule::mix(5, number) >> 32).unwrap();
    let v4: Vec<IpAddr> =
        (0..4_096).map(|number| Ipv4Addr::from(0x0A00_0000 + noise(number) % (90_000 << 8)).into()).collect();
    let v6: Vec<IpAddr> = (0..4_096)
        .map(|number| {
            let [_, _, high, low] = (noise(number) % 10_000).to_be_bytes();
            Ipv6Addr::new(0x2001, 0xdb8, u16::from_be_bytes([high, low]), 1, 2, 3, 4, 5).into()
        })
        .collect();
    let mut at = 0;
    for (name, addresses) in [("IPv4, among 100 000 prefixes", v4), ("IPv6, among 100 000 prefixes", v6)] {
        assert!(addresses.iter().all(|address| table.pick(0, *address, 0).is_some()));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                at = (at + 1) % addresses.len();
                table.pick(0, black_box(addresses[at]), 7).map(|(_, route)| route.tunnel)
            });
        });
    }
    group.finish();
}

/// A verdict about a tunnel that all prefixes prefer: traffic leaves it, or comes back.
fn verdict(criterion: &mut Criterion) {
    let route = |number: u32| Route {
        prefix: format!("{}/24", Ipv4Addr::from(0x1400_0000 + ((number / 2) << 8))).parse().unwrap(),
        tunnel: number % 2,
        priority: 100 * (1 + number % 2),
        weight: 1,
        device: Some(format!("t{}", number % 2)),
        via: None,
        place: 0,
        onlink: false,
    };
    let setup = Setup {
        tunnels: vec![tunnel(0), tunnel(1)],
        routes: (0..200_000).map(route).collect(),
        places: Vec::new(),
        steers: true,
        secret: secret(),
        record: false,
        associations: std::collections::BTreeMap::new(),
    };
    let mut engine = Engine::new(Time::ZERO, WallTime(0), setup);
    assert_eq!(engine.routes().prefixes(), 100_000);
    let mut drained = false;
    criterion.bench_function("one verdict moves 100 000 prefixes: Engine::set_drain", |bencher| {
        bencher.iter(|| {
            drained = !drained;
            engine.set_drain(Time::ZERO, 0, drained.then_some(Drain::Down));
            engine.poll_steer()
        });
    });
}

/// A configuration of a hundred thousand tunnels, each with a route, is read again, and is the same.
fn reload(criterion: &mut Criterion) {
    const COUNT: u32 = 100_000;
    let route = |number: u32| Route {
        prefix: format!("{}/24", Ipv4Addr::from(0x1400_0000 + (number << 8))).parse().unwrap(),
        tunnel: number,
        priority: 100,
        weight: 1,
        device: Some(format!("t{number}")),
        via: None,
        place: 0,
        onlink: false,
    };
    let tunnels: Vec<Tunnel> = (0..COUNT).map(tunnel).collect();
    let routes: Vec<Route> = (0..COUNT).map(route).collect();
    let setup = Setup {
        tunnels: tunnels.clone(),
        routes: routes.clone(),
        places: Vec::new(),
        steers: true,
        secret: secret(),
        record: false,
        associations: std::collections::BTreeMap::new(),
    };
    let mut engine = Engine::new(Time::ZERO, WallTime(0), setup);
    let layout = || Layout {
        tunnels: tunnels.clone(),
        routes: routes.clone(),
        places: Vec::new(),
        steers: true,
        associations: std::collections::BTreeMap::new(),
    };
    criterion.bench_function("100 000 tunnels go on over a reload: Engine::handle_reload", |bencher| {
        bencher.iter_batched(
            layout,
            |layout| assert_eq!(engine.handle_reload(Time::ZERO, layout).kept, 100_000),
            criterion::BatchSize::PerIteration,
        );
    });
}

criterion_group!(benches, build, answer, judge, lookup, verdict, reload);
criterion_main!(benches);
