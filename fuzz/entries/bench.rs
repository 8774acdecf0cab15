//! An engine of a few tunnels, and the far ends of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use adit::engine::health::Rules;
use adit::engine::settings::{Check, ReturnPath, Source, Terms, Timeout};
use adit::engine::{Engine, Route, Setup, Time, Tunnel, WallTime};
use adit::reflect::plan::Fault;
use adit::reflect::{FarTunnel, Reflector, Wrap};
use adit::wire::esp::{Algorithm, Shape};
use adit::wire::payload::{Key, Secret};
use adit::wire::probe::Arrived;
use adit::wire::{Direction, Encapsulation, Ends, Kind, Onion, Style, gre};

pub(crate) const START: Time = Time::from_nanos(1_000_000_000_000);
pub(crate) const WALL: WallTime = WallTime(1_800_000_000_000_000_000);

fn v4(number: u8, index: u8) -> IpAddr {
    Ipv4Addr::new(10, number, 0, index).into()
}

fn tunnel(index: u8, name: &str, encapsulation: Encapsulation) -> Tunnel {
    let esp = matches!(encapsulation, Encapsulation::Esp(_));
    Tunnel {
        name: name.to_owned(),
        onion: Onion {
            style: Style { kind: Kind::Request, direction: Direction::Bidirectional },
            outer: Ends::new(v4(1, 1), v4(2, index)).unwrap(),
            encapsulation,
            inner: Ends::new(v4(3, 2 * index), v4(3, 2 * index + 1)).unwrap(),
            ttl: 64,
            dscp: 48,
            size: 72,
        },
        check: Check {
            enabled: true,
            interval: Duration::from_secs(1),
            timeout: if index == 1 { Timeout::Auto } else { Timeout::Fixed(Duration::from_millis(500)) },
            early_retry: true,
            return_path: ReturnPath::Strict,
            mark_key: None,
            rules: Rules::default(),
        },
        namespace: 0,
        egress: 0,
        exit: 0,
        terms: esp.then_some(Terms { source: Source::Installed, esn: false, replay_window: 64 }),
        interface: None,
        targets: None,
    }
}

pub(crate) fn tunnels() -> Vec<Tunnel> {
    let gre = |key| gre::Options { key, checksum: false, sequence: false }.into();
    vec![
        tunnel(0, "ams-1", gre(None)),
        tunnel(1, "fra-1", gre(Some(7))),
        tunnel(2, "esp-1", Encapsulation::Esp(Shape::new(Algorithm::Aes128Gcm, false))),
    ]
}

pub(crate) fn engine() -> Engine {
    let route = |tunnel: u32| Route {
        prefix: "10.9.0.0/16".parse().unwrap(),
        tunnel,
        priority: 100 * (tunnel + 1),
        weight: 1,
        device: None,
        via: None,
        place: 0,
        onlink: false,
    };
    let setup = Setup {
        tunnels: tunnels(),
        routes: (0..3).map(route).collect(),
        places: Vec::new(),
        steers: false,
        secret: Secret { key: Key::new([3; 16]), epoch: 5 },
        record: false,
        associations: BTreeMap::new(),
    };
    Engine::new(START, WALL, setup)
}

/// The far ends, with these faults.
pub(crate) fn reflector(faults: Vec<Fault>) -> Reflector {
    let far = |tunnel: Tunnel| {
        let Onion { outer, inner, encapsulation, .. } = tunnel.onion;
        let wrap = Wrap::Gre(encapsulation.gre()?);
        Some(FarTunnel {
            name: tunnel.name,
            outer: outer.reversed(),
            inner: inner.reversed(),
            further: Vec::new(),
            wrap,
        })
    };
    Reflector::new(START, tunnels().into_iter().filter_map(far).collect(), None, faults)
}

/// Lets so many turns of the loop happen, the far ends answering with these faults. Gives the time then.
pub(crate) fn turns(engine: &mut Engine, faults: Vec<Fault>, turns: u32) -> Time {
    let (mut far, mut now, mut air) = (reflector(faults), START, BTreeMap::new());
    let mut buffer = [0; 1_500];
    for turn in 0..turns {
        let next = [engine.next_wakeup(now), air.keys().next().map(|&(at, _)| at)];
        let Some(next) = next.into_iter().flatten().min() else { break };
        now = now.max(next);
        engine.handle_wakeup(now);
        while let Some(entry) = air.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), bytes): ((Time, usize), Vec<u8>) = entry.remove_entry();
            engine.handle_datagram(now, at, 0, 0, Arrived::V4(&bytes));
        }
        engine.handle_timeout(now);
        let mut answers = Vec::new();
        while let Some(transmit) = engine.poll_transmit(now, &mut buffer) {
            let _ = far.handle(now, Arrived::V4(&buffer[..transmit.length]), &mut answers);
            engine.handle_sent(now, now, [transmit].iter());
        }
        let order = turn as usize * 1_000;
        air.extend(answers.into_iter().enumerate().map(|(number, answer)| ((answer.at, order + number), answer.bytes)));
    }
    now
}
