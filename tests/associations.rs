//! ESP tunnels in the engine, under virtual time: the far end is the reflector, which is as pure as the
//! engine is. That both agree proves nothing about ESP itself; for that there are the packets made by
//! others (`tests/esp.rs`) and the real kernel (`tests/lab`).

#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on must fail")]

mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use adit::engine::associations::{GRACE, Material, Start};
use adit::engine::esp::Refusal;
use adit::engine::event::{Event, Kind};
use adit::engine::numbers::{BLOCK, Numbers};
use adit::engine::penalty::DOWN;
use adit::engine::settings::{ReturnPath, Source, Terms};
use adit::engine::{Engine, Pair, Setup, State, Time, Tunnel, WallTime};
use adit::reflect::{FarTunnel, Reflector, Wrap};
use adit::wire::esp::{Algorithm, Keys, Shape, peek};
use adit::wire::probe::Arrived;
use adit::wire::{Direction, Encapsulation, Ends, Family, Kind as ProbeKind, Reject, Style, gre};
use serde_json::Value;
use sim::esp::{ALL, esp_tunnel, gcm, material, numbers, seed, started};
use sim::ms;
use zeroize::Zeroizing;

fn far_tunnel(tunnel: &Tunnel, material: &Material, udp: bool) -> FarTunnel {
    let far = material.reversed();
    let wrap = Wrap::Esp { pair: Box::new(far.pair(&seed(200), numbers(&far))), udp };
    FarTunnel {
        further: Vec::new(),
        name: tunnel.name.clone(),
        outer: tunnel.onion.outer.reversed(),
        inner: tunnel.onion.inner.reversed(),
        wrap,
    }
}

/// An engine, a reflector, and the packets between them.
struct Wire {
    engine: Engine,
    far: Reflector,
    tunnels: Vec<Tunnel>,
    now: Time,
    /// Everything that left, and that the far end answered, with its destination's family.
    sent: Vec<Vec<u8>>,
    answers: Vec<Vec<u8>>,
    /// Nothing arrives anywhere.
    cut: bool,
    /// No reservation can be written down.
    full: bool,
    told: u64,
    events: Vec<Event>,
}

impl Wire {
    fn new(tunnels: Vec<Tunnel>, near: BTreeMap<u32, Start>, far: Vec<FarTunnel>) -> Self {
        let setup = Setup {
            tunnels: tunnels.clone(),
            routes: Vec::new(),
            places: Vec::new(),
            steers: false,
            secret: sim::secret(),
            record: true,
            associations: near,
        };
        Self {
            engine: Engine::new(Time::ZERO, WallTime(0), setup),
            far: Reflector::new(Time::ZERO, far, None, Vec::new()),
            tunnels,
            now: Time::ZERO,
            sent: Vec::new(),
            answers: Vec::new(),
            cut: false,
            full: false,
            told: 0,
            events: Vec::new(),
        }
    }

    /// One tunnel with keys at both ends.
    fn single(material: &Material) -> Self {
        let tunnel = esp_tunnel(0, material.key_out.algorithm(), false);
        let far = far_tunnel(&tunnel, material, false);
        Self::new(vec![tunnel], BTreeMap::from([(0, started(material))]), vec![far])
    }

    /// The same, and its next numbers are these.
    fn from(material: &Material, numbers: Numbers) -> Self {
        let tunnel = esp_tunnel(0, material.key_out.algorithm(), false);
        let far = far_tunnel(&tunnel, material, false);
        let start = Start { pair: Some(material.pair(&seed(100), numbers)), lost: None };
        Self::new(vec![tunnel], BTreeMap::from([(0, start)]), vec![far])
    }

    fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(next) = self.engine.next_wakeup(self.now).filter(|next| *next < end) {
            self.now = self.now.max(next);
            self.engine.handle_wakeup(self.now);
            self.engine.handle_timeout(self.now);
            self.transmit();
            if let Some(reserve) = self.full.then(|| self.engine.poll_reserve()).flatten() {
                self.engine.handle_unreserved(self.now, reserve.key, "no space left on device");
            }
            self.collect();
        }
        self.now = end;
        self.collect();
    }

    fn collect(&mut self) {
        self.events.extend(self.engine.events().after(self.told).cloned());
        self.told = self.engine.events().last();
    }

    fn transmit(&mut self) {
        let mut buffer = vec![0; 2048];
        while let Some(transmit) = self.engine.poll_transmit(self.now, &mut buffer) {
            let probe = buffer[..transmit.length].to_vec();
            self.sent.push(probe.clone());
            self.engine.handle_sent(self.now, self.now, [transmit].iter());
            let mut answers = Vec::new();
            if !self.cut {
                let _ = self.far.handle(self.now, arrived(&probe), &mut answers);
            }
            for answer in answers {
                self.answers.push(answer.bytes.clone());
                self.deliver(&answer.bytes);
            }
        }
    }

    fn deliver(&mut self, bytes: &[u8]) {
        let at = self.now + ms(1);
        self.engine.handle_datagram(at, at, 0, 0, arrived(bytes));
    }

    fn state(&self, tunnel: u32) -> State {
        self.engine.state(tunnel).unwrap()
    }

    fn reason(&mut self, tunnel: u32) -> String {
        self.engine.tunnel(self.now, tunnel).unwrap().reason
    }

    fn rejects(&self, reject: Reject) -> u64 {
        self.engine.rejects()[reject.index()]
    }

    fn install(&mut self, material: &Material, salt: u8) -> Result<(), Refusal> {
        self.engine.install(self.now, 0, material.pair(&seed(salt), numbers(material)), GRACE)
    }

    /// The far end has this pair only from now on.
    fn far_has(&mut self, material: &Material) {
        let far = far_tunnel(&self.tunnels[0], material, false);
        self.far = Reflector::new(self.now, vec![far], None, Vec::new());
    }

    fn entered(&self) -> Vec<State> {
        let state = |event: &Event| if let Kind::Transition { to, .. } = event.kind { Some(to) } else { None };
        self.events.iter().filter_map(state).collect()
    }

    fn warnings(&self) -> Vec<String> {
        let warning =
            |event: &Event| if let Kind::Warning { reason, .. } = &event.kind { Some(reason.clone()) } else { None };
        self.events.iter().filter_map(warning).collect()
    }
}

/// What a raw socket would give of a packet with its IP header.
fn arrived(bytes: &[u8]) -> Arrived<'_> {
    sim::arrived(bytes)
}

/// SPI and sequence number of a packet in IPv4.
fn header(packet: &[u8]) -> (u32, u32) {
    let header = peek(&packet[20..]).unwrap();
    (header.spi, header.sequence)
}

fn families(tunnel: &mut Tunnel, outer: Family, inner: Family) {
    let v6 = |local: &str, far: &str| Ends::new(local.parse().unwrap(), far.parse().unwrap()).unwrap();
    if outer == Family::V6 {
        tunnel.onion.outer = v6("2001:db8::1", "2001:db8:1::2");
    }
    if inner == Family::V6 {
        tunnel.onion.inner = v6("fd00:100::8", "fd00:100::9");
    }
    if tunnel.onion.style.direction == Direction::Unidirectional {
        tunnel.onion.inner = match inner {
            Family::V4 => Ends::new("192.0.2.1".parse().unwrap(), "203.0.113.2".parse().unwrap()).unwrap(),
            Family::V6 => v6("2001:db8::1", "2001:db8:1::2"),
        };
    }
}

#[test]
fn every_style_algorithm_and_family_is_healthy_and_nothing_is_rejected() {
    let both = [false, true];
    for algorithm in Algorithm::ALL {
        for bits in 0..64_u32 {
            let bit = |at: u32| bits >> at & 1 == 1;
            let family = |v6| if v6 { Family::V6 } else { Family::V4 };
            let (esn, udp) = (both[usize::from(bit(0))], both[usize::from(bit(1))]);
            let mut tunnel = esp_tunnel(0, algorithm, udp);
            tunnel.onion.style = Style {
                kind: if bit(2) { ProbeKind::Reply } else { ProbeKind::Request },
                direction: if bit(3) { Direction::Unidirectional } else { Direction::Bidirectional },
            };
            families(&mut tunnel, family(bit(4)), family(bit(5)));
            let described = format!("{:?} esn {esn}", tunnel.onion);
            let material = material(algorithm, 1, esn);
            let mut far = far_tunnel(&tunnel, &material, udp);
            if bit(3) {
                // What is inside the tunnel is elsewhere, so that the answer goes out bare.
                let inside = if bit(5) { "fd00:9::9" } else { "10.9.9.9" };
                far.inner = Ends::new(tunnel.onion.inner.far(), inside.parse().unwrap()).unwrap();
            }
            let mut wire = Wire::new(vec![tunnel], BTreeMap::from([(0, started(&material))]), vec![far]);
            wire.run_for(ms(5_000));
            assert_eq!(wire.state(0), State::Healthy, "{described}");
            assert_eq!(wire.engine.rejects().iter().sum::<u64>(), 0, "{described}");
        }
    }
}

#[test]
fn a_tunnel_without_keys_is_unknown_with_the_reason_and_never_down() {
    let mut wire = Wire::new(vec![esp_tunnel(0, Algorithm::Aes256Gcm, false)], BTreeMap::new(), Vec::new());
    wire.run_for(Duration::from_secs(60));
    assert_eq!((wire.state(0), wire.sent.len()), (State::Unknown, 0));
    assert!(wire.reason(0).starts_with("no-keys: "), "{}", wire.reason(0));
    assert_eq!(wire.entered(), []);

    let material = gcm(1);
    wire.far_has(&material);
    wire.install(&material, 1).unwrap();
    wire.run_for(ms(3_000));
    assert_eq!(wire.state(0), State::Healthy);
}

#[test]
fn a_new_pair_seals_at_once_and_the_old_inbound_is_accepted_for_the_grace_time() {
    let (old, new) = (gcm(1), gcm(2));
    let mut wire = Wire::single(&old);
    wire.run_for(ms(5_000));
    let before = wire.sent.len();
    wire.install(&new, 2).unwrap();
    // The far end seals by the old one a little longer, and opens the new one already.
    let mut far = far_tunnel(&wire.tunnels[0], &new, false);
    if let Wrap::Esp { pair, .. } = &mut far.wrap {
        let late = old.reversed().pair(&seed(201), Numbers::new(1_000, ALL, old.last()));
        pair.outbound = late.outbound;
        pair.numbers = late.numbers;
    }
    wire.far = Reflector::new(wire.now, vec![far], None, Vec::new());
    wire.run_for(GRACE - ms(1));
    assert!(
        wire.sent[before..].iter().all(|probe| header(probe).0 == new.spi_out),
        "the new one from the first probe on"
    );
    assert_eq!((wire.state(0), wire.engine.rejects().iter().sum::<u64>()), (State::Healthy, 0));
    wire.run_for(Duration::from_secs(10));
    assert_eq!(wire.state(0), State::Down, "the old one is not accepted for ever");
    assert!(wire.rejects(Reject::EspSpi) > 0);

    wire.far_has(&new);
    wire.run_for(Duration::from_secs(10));
    assert_eq!(wire.state(0), State::Degraded);
}

#[test]
fn no_sequence_number_is_used_twice_under_one_spi_whatever_is_installed_meanwhile() {
    let mut wire = Wire::single(&gcm(1));
    for number in 2..20 {
        wire.run_for(ms(2_345));
        wire.install(&gcm(number), 1).unwrap();
        wire.far_has(&gcm(number));
        wire.cut = number % 3 == 0;
    }
    let used: BTreeSet<(u32, u32)> = wire.sent.iter().map(|probe| header(probe)).collect();
    assert_eq!(used.len(), wire.sent.len());
    assert!(wire.sent.len() > 60);
}

#[test]
fn nothing_leaves_before_its_number_is_reserved_and_waiting_is_no_verdict() {
    let material = gcm(1);
    let tunnel = esp_tunnel(0, Algorithm::Aes256Gcm, false);
    let far = far_tunnel(&tunnel, &material, false);
    let start = Start { pair: Some(material.pair(&seed(1), Numbers::new(5_000, 5_000, material.last()))), lost: None };
    let mut wire = Wire::new(vec![tunnel], BTreeMap::from([(0, start)]), vec![far]);
    wire.run_for(Duration::from_secs(20));
    assert_eq!((wire.state(0), wire.sent.len()), (State::Unknown, 0));
    let reserve = wire.engine.poll_reserve().unwrap();
    assert_eq!(reserve.key, material.outbound_key());
    assert_eq!(reserve.mark, 5_000 + BLOCK);
    assert_eq!(wire.engine.poll_reserve(), None, "asked for once");

    wire.engine.handle_unreserved(wire.now, reserve.key, "no space left on the device");
    wire.run_for(ms(2_000));
    assert_eq!(wire.engine.poll_reserve().map(|again| again.mark), Some(5_000 + BLOCK), "and again after a failure");
    wire.engine.handle_reserved(wire.now, reserve.key, reserve.mark);
    wire.run_for(ms(3_000));
    assert_eq!(wire.state(0), State::Healthy);
    assert_eq!(header(&wire.sent[0]).1, 5_000);
    assert_eq!(wire.entered(), [State::Healthy]);
}

#[test]
fn a_block_is_asked_for_before_the_last_one_is_used_up() {
    let material = gcm(1);
    let tunnel = esp_tunnel(0, Algorithm::Aes256Gcm, false);
    let far = far_tunnel(&tunnel, &material, false);
    let start = Start { pair: Some(material.pair(&seed(1), Numbers::new(1, 1 + BLOCK, material.last()))), lost: None };
    let mut wire = Wire::new(vec![tunnel], BTreeMap::from([(0, start)]), vec![far]);
    let mut marks = Vec::new();
    for _ in 0..(3 * BLOCK / 100) {
        wire.run_for(Duration::from_secs(100));
        while let Some(reserve) = wire.engine.poll_reserve() {
            marks.push(reserve.mark);
            wire.engine.handle_reserved(wire.now, reserve.key, reserve.mark);
        }
    }
    assert!(marks.len() >= 3 && marks.windows(2).all(|pair| pair[1] > pair[0]), "{marks:?}");
    assert_eq!(wire.state(0), State::Healthy);
    assert_eq!(wire.engine.self_view().local_faults, [], "it never had to wait");
}

#[test]
fn the_end_of_the_numbers_is_announced_and_then_ends_the_probing_as_unknown() {
    let last = u64::from(u32::MAX);
    let mut wire = Wire::from(&gcm(1), Numbers::new(last / 10 * 9 - 3, ALL, last));
    wire.run_for(Duration::from_secs(10));
    let alarms = |wire: &Wire| wire.warnings().iter().filter(|text| text.contains("nine tenths")).count();
    assert_eq!((alarms(&wire), wire.state(0)), (1, State::Healthy));

    let mut wire = Wire::from(&gcm(1), Numbers::new(last - 4, ALL, last));
    wire.run_for(Duration::from_secs(60));
    assert_eq!(wire.state(0), State::Unknown);
    assert!(wire.reason(0).starts_with("sequence-exhausted: "), "{}", wire.reason(0));
    assert_eq!(header(wire.sent.last().unwrap()).1, u32::MAX, "the last one may be used");
    assert_eq!(wire.entered(), [State::Healthy, State::Unknown], "and never down");

    wire.install(&gcm(2), 3).unwrap();
    wire.far_has(&gcm(2));
    wire.run_for(Duration::from_secs(5));
    assert_eq!(wire.state(0), State::Healthy);
}

#[test]
fn lost_sequence_state_halts_that_tunnel_alone_and_a_new_beginning_revives_it() {
    let all: Vec<Material> = (1..4).map(gcm).collect();
    let tunnels: Vec<Tunnel> = (0..3).map(|index| esp_tunnel(index, Algorithm::Aes256Gcm, false)).collect();
    let far = tunnels.iter().zip(&all).map(|(tunnel, material)| far_tunnel(tunnel, material, false)).collect();
    let mut near: BTreeMap<u32, Start> = (0..).zip(&all).map(|(index, material)| (index, started(material))).collect();
    near.get_mut(&0).unwrap().lost = Some("the record is missing; run `adit sa begin`".to_owned());
    let mut wire = Wire::new(tunnels, near, far);
    wire.run_for(Duration::from_secs(10));
    assert_eq!([0, 1, 2].map(|tunnel| wire.state(tunnel)), [State::Unknown, State::Healthy, State::Healthy]);
    assert_eq!(wire.reason(0), "sequence-state-lost: the record is missing; run `adit sa begin`");
    assert!(wire.sent.iter().all(|probe| header(probe).0 != all[0].spi_out));

    wire.engine.handle_state_lost(wire.now, all[1].outbound_key(), "the file has changed under us");
    wire.run_for(Duration::from_secs(10));
    assert_eq!([0, 1, 2].map(|tunnel| wire.state(tunnel)), [State::Unknown, State::Unknown, State::Healthy]);

    assert!(wire.engine.begin(wire.now, 0, Numbers::new(70_000, ALL, all[0].last())));
    wire.run_for(Duration::from_secs(5));
    assert_eq!(wire.state(0), State::Healthy);
    let first = wire.sent.iter().map(|probe| header(probe)).find(|(spi, _)| *spi == all[0].spi_out);
    assert_eq!(first, Some((all[0].spi_out, 70_000)));
}

#[test]
fn an_association_that_the_kernel_has_too_halts_its_tunnel_until_it_is_gone() {
    let all = [gcm(1), gcm(2)];
    let tunnels: Vec<Tunnel> = (0..2).map(|index| esp_tunnel(index, Algorithm::Aes256Gcm, false)).collect();
    let far = tunnels.iter().zip(&all).map(|(tunnel, material)| far_tunnel(tunnel, material, false)).collect();
    let near = (0..).zip(&all).map(|(index, material)| (index, started(material))).collect();
    let ends = tunnels[0].onion.outer;
    let mut wire = Wire::new(tunnels, near, far);
    wire.run_for(Duration::from_secs(5));
    let elsewhere: IpAddr = "198.51.100.77".parse().unwrap();
    let harmless = [(elsewhere, all[0].spi_out), (ends.far(), all[0].spi_in), (ends.local(), all[0].spi_out)];
    wire.engine.handle_kernel_associations(wire.now, 0, harmless.into());
    wire.engine.handle_kernel_associations(wire.now, 1, [(ends.far(), all[0].spi_out)].into());
    wire.run_for(Duration::from_secs(5));
    assert_eq!(wire.state(0), State::Healthy, "another destination, another namespace");

    for clash in [(ends.far(), all[0].spi_out), (ends.local(), all[0].spi_in)] {
        wire.engine.handle_kernel_associations(wire.now, 0, [clash].into());
        let sent = wire.sent.len();
        wire.run_for(Duration::from_secs(20));
        assert_eq!([0, 1].map(|tunnel| wire.state(tunnel)), [State::Unknown, State::Healthy]);
        assert!(wire.reason(0).starts_with("spi-conflict: "), "{}", wire.reason(0));
        assert!(wire.sent[sent..].iter().all(|probe| header(probe).0 != all[0].spi_out), "nothing is sent on it");
        wire.engine.handle_kernel_associations(wire.now, 0, BTreeSet::new());
        wire.run_for(Duration::from_secs(5));
        assert_eq!(wire.state(0), State::Healthy);
    }
    wire.engine.handle_kernel_associations(wire.now, 0, [(ends.far(), 0x1009)].into());
    assert_eq!(wire.install(&gcm(9), 9), Err(Refusal::Conflict(0x1009)));
}

#[test]
fn a_down_tunnel_that_loses_its_keys_is_unknown_and_its_penalty_stays_until_the_next_verdict() {
    let material = gcm(1);
    let mut wire = Wire::single(&material);
    wire.run_for(Duration::from_secs(5));
    wire.cut = true;
    wire.run_for(Duration::from_secs(5));
    assert_eq!(wire.state(0), State::Down);
    wire.engine.handle_state_lost(wire.now, material.outbound_key(), "gone");
    wire.collect();
    assert_eq!(wire.state(0), State::Unknown);
    let view = wire.engine.tunnel(wire.now, 0).unwrap();
    assert_eq!((view.penalty, view.window.samples), (DOWN, 0), "traffic does not come back to a dead tunnel");
    let last = &wire.events.last().unwrap().kind;
    let Kind::Transition { from, to, rule, reason, penalty, .. } = last else { panic!("{last:?}") };
    assert_eq!((*from, *to, *rule, *penalty), (State::Down, State::Unknown, 0, DOWN));
    assert_eq!(reason, "sequence-state-lost: gone");
    let obstacles = wire.events.iter().filter(|event| matches!(event.kind, Kind::Obstacle { .. })).count();
    assert_eq!(obstacles, 1);

    wire.cut = false;
    assert!(wire.engine.begin(wire.now, 0, Numbers::new(1_000, ALL, material.last())));
    assert_eq!(wire.engine.tunnel(wire.now, 0).unwrap().penalty, DOWN);
    wire.run_for(Duration::from_secs(3));
    assert_eq!((wire.state(0), wire.engine.tunnel(wire.now, 0).unwrap().penalty), (State::Healthy, 0));
}

#[test]
fn explain_promises_no_verdict_to_a_tunnel_that_cannot_be_probed() {
    let mut wire = Wire::new(vec![esp_tunnel(0, Algorithm::Aes256Gcm, false)], BTreeMap::new(), Vec::new());
    wire.run_for(ms(2_000));
    let explained = wire.engine.explain(wire.now, 0).unwrap();
    assert!(explained.reason.starts_with("no-keys: ") && explained.next.is_empty(), "{explained:?}");
}

#[test]
fn a_tunnel_whose_numbers_cannot_be_written_down_is_unknown_with_that_reason_once_they_are_used_up() {
    let material = gcm(1);
    for ready in [0_u16, 10] {
        let mut wire = Wire::from(&material, Numbers::new(5_000, 5_000 + u64::from(ready), material.last()));
        wire.full = true;
        wire.run_for(Duration::from_secs(600));
        assert_eq!((wire.sent.len(), wire.state(0)), (ready.into(), State::Unknown));
        assert_eq!(wire.reason(0), "sequence-state-unwritten: no space left on device");
        wire.full = false;
        let reserve = wire.engine.poll_reserve().unwrap();
        wire.engine.handle_reserved(wire.now, reserve.key, reserve.mark);
        wire.run_for(Duration::from_secs(3));
        assert_eq!(wire.state(0), State::Healthy);
        assert_eq!(header(&wire.sent[usize::from(ready)]).1, 5_000 + u32::from(ready));
    }
}

#[test]
fn numbers_that_are_in_use_are_not_begun_once_more() {
    let material = gcm(1);
    let mut wire = Wire::single(&material);
    wire.run_for(Duration::from_secs(5));
    assert!(!wire.engine.begin(wire.now, 0, Numbers::new(1, ALL, material.last())));
    wire.run_for(Duration::from_secs(5));
    let used: BTreeSet<u32> = wire.sent.iter().map(|probe| header(probe).1).collect();
    assert_eq!(used.len(), wire.sent.len());
}

#[test]
fn an_old_association_is_let_go_of_in_time_however_seldom_its_tunnel_is_probed() {
    for enabled in [false, true] {
        let mut slow = esp_tunnel(0, Algorithm::Aes256Gcm, false);
        (slow.check.enabled, slow.check.interval) = (enabled, Duration::from_secs(60));
        let far = far_tunnel(&slow, &gcm(1), false);
        let mut wire = Wire::new(vec![slow], BTreeMap::from([(0, started(&gcm(1)))]), vec![far]);
        wire.run_for(Duration::from_secs(61));
        wire.engine.install(wire.now, 0, gcm(2).pair(&seed(3), numbers(&gcm(2))), ms(1_000)).unwrap();
        wire.run_for(ms(1_100));
        let retiring = wire.engine.associations(Some(0)).pop().unwrap().retiring;
        assert!(retiring.is_empty(), "with checks {enabled}: {retiring:x?}");
    }
}

#[test]
fn esp_in_udp_does_not_prove_a_tunnel_of_bare_esp_nor_the_other_way_round() {
    for udp in [false, true] {
        let tunnel = esp_tunnel(0, Algorithm::Aes256Gcm, udp);
        let mut wire = Wire::new(vec![tunnel.clone()], BTreeMap::from([(0, started(&gcm(1)))]), Vec::new());
        wire.run_for(ms(1));
        // The far end answers the other way.
        let Encapsulation::Esp(shape) = tunnel.onion.encapsulation else { panic!() };
        let mut pair = gcm(1).reversed().pair(&seed(203), numbers(&gcm(1)));
        let mut scratch = Vec::new();
        let probe = &wire.sent[0][20 + shape.esp_at()..];
        let inner = pair.inbound.open(probe, &mut scratch).unwrap().packet.to_vec();
        let answer = sim::far::answer_of(&inner);
        let answer = sealed(&mut pair, Shape::new(Algorithm::Aes256Gcm, !udp), &tunnel, &answer);
        wire.deliver(&answer);
        assert_eq!(wire.rejects(Reject::WrongPath), 1);
    }
}

/// An inner packet on its way from the far end of a tunnel.
fn sealed(pair: &mut Pair, shape: Shape, tunnel: &Tunnel, inner: &[u8]) -> Vec<u8> {
    let outer = tunnel.onion.outer.reversed();
    let mut packet = vec![0; 20 + shape.length(inner.len())];
    packet[20 + shape.inner_at()..][..inner.len()].copy_from_slice(inner);
    let number = pair.numbers.take().unwrap();
    pair.outbound.seal(shape, outer, number, Family::V4, inner.len(), &mut packet[20..]);
    let length = u16::try_from(packet.len()).unwrap().to_be_bytes();
    packet[..4].copy_from_slice(&[0x45, 0, length[0], length[1]]);
    packet[8..10].copy_from_slice(&[60, shape.protocol()]);
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (outer.local(), outer.far()) else { panic!() };
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&destination.octets());
    packet
}

#[test]
fn a_far_router_that_begins_its_numbers_anew_is_no_dead_tunnel_with_static_keys() {
    for source in [Source::Static, Source::Installed] {
        let material = material(Algorithm::Aes256CbcHmacSha256, 1, true);
        let mut tunnel = esp_tunnel(0, Algorithm::Aes256CbcHmacSha256, false);
        tunnel.terms = tunnel.terms.map(|terms| Terms { source, ..terms });
        let far = far_tunnel(&tunnel, &material, false);
        let mut wire = Wire::new(vec![tunnel.clone()], BTreeMap::from([(0, started(&material))]), vec![far]);
        wire.run_for(Duration::from_secs(300));
        let old = wire.answers.last().unwrap().clone();
        wire.far_has(&material);
        wire.run_for(Duration::from_secs(60));
        let told = wire.warnings().iter().filter(|text| text.starts_with("sequence-rollback: ")).count();
        match source {
            Source::Static => assert_eq!((wire.state(0), told), (State::Healthy, 1), "told once, not with each answer"),
            // Whoever has handed over keys can hand over fresh ones.
            Source::Installed => assert_eq!((wire.state(0), told), (State::Down, 0)),
        }
        // What is really old is a replay as before, and moves nothing.
        let (replays, counters) = (wire.rejects(Reject::EspReplay), wire.engine.tunnel(wire.now, 0).unwrap().counters);
        let latest = wire.answers.last().unwrap().clone();
        [latest, old].iter().for_each(|answer| wire.deliver(answer));
        assert!(wire.rejects(Reject::EspReplay) > replays);
        assert_eq!(wire.engine.tunnel(wire.now, 0).unwrap().counters.received, counters.received);
    }
}

#[test]
fn a_recording_in_which_keys_came_and_went_replays_to_the_recorded_transitions() {
    let material = gcm(1);
    let mut wire = Wire::single(&material);
    wire.run_for(ms(5_000));
    let far = wire.tunnels[0].onion.outer.far();
    wire.engine.handle_kernel_associations(wire.now, 0, [(far, material.spi_out)].into());
    wire.run_for(ms(2_000));
    wire.engine.handle_kernel_associations(wire.now, 0, BTreeSet::new());
    wire.run_for(ms(5_000));
    wire.cut = true;
    wire.run_for(ms(5_000));
    wire.engine.handle_kernel_associations(wire.now, 0, [(far, material.spi_out)].into());
    wire.collect();

    let mut file = tempfile::NamedTempFile::new().unwrap();
    for event in &wire.events {
        writeln!(file, "{}", serde_json::to_string(event).unwrap()).unwrap();
    }
    let output =
        Command::new(env!("CARGO_BIN_EXE_adit")).arg("replay").arg(file.path()).arg("--json").output().unwrap();
    let fields = |it: &Value| ["tunnel", "from", "to", "rule", "penalty"].map(|name| it[name].clone());
    let replayed = String::from_utf8(output.stdout).unwrap();
    let replayed: Vec<_> = replayed.lines().map(|line| fields(&serde_json::from_str(line).unwrap())).collect();
    let recorded = wire.events.iter().map(|event| serde_json::to_value(event).unwrap());
    let recorded: Vec<_> = recorded.filter(|event| event["kind"] == "transition").map(|it| fields(&it)).collect();
    assert_eq!(replayed, recorded);
    assert_eq!(recorded.len(), 6, "healthy, unknown, healthy, degraded, down, unknown: {recorded:?}");
}

#[test]
fn probes_that_a_device_would_drop_are_not_sent_until_it_would_not() {
    let mut tunnel = sim::tunnel(0);
    tunnel.onion.encapsulation = Encapsulation::Device;
    let mut wire = Wire::new(vec![tunnel], BTreeMap::new(), Vec::new());
    wire.engine.handle_withheld(wire.now, 0, Some("it drops them: put the address on lo"));
    wire.run_for(Duration::from_secs(30));
    assert_eq!((wire.state(0), wire.sent.len()), (State::Unknown, 0));
    assert_eq!(wire.reason(0), "withheld: it drops them: put the address on lo");
    wire.engine.handle_withheld(wire.now, 0, None);
    wire.run_for(Duration::from_secs(5));
    assert!(wire.sent.len() >= 3);
    assert_eq!(wire.state(0), State::Down, "nobody answers here");

    // A device that swallows probes is found out a little later than the tunnel is called down.
    wire.engine.handle_withheld(wire.now, 0, Some("no route leads over it"));
    assert_eq!(wire.engine.tunnel(wire.now, 0).unwrap().penalty, 0, "that verdict was not the tunnel's");
    wire.engine.handle_withheld(wire.now, 0, None);
    wire.run_for(Duration::from_secs(60));
    wire.engine.handle_withheld(wire.now, 0, Some("no route leads over it"));
    assert_eq!(wire.engine.tunnel(wire.now, 0).unwrap().penalty, DOWN, "and this one was");
}

#[test]
fn tunnels_that_can_be_probed_again_do_not_all_begin_at_once() {
    let count = 500;
    let tunnels: Vec<Tunnel> = (0..count).map(sim::tunnel).collect();
    let mut wire = Wire::new(tunnels, BTreeMap::new(), Vec::new());
    (0..count).for_each(|tunnel| wire.engine.handle_withheld(wire.now, tunnel, Some("for now")));
    wire.run_for(Duration::from_secs(5));
    (0..count).for_each(|tunnel| wire.engine.handle_withheld(wire.now, tunnel, None));
    wire.cut = true;
    let mut most = 0;
    for _ in 0..101 {
        let before = wire.sent.len();
        wire.run_for(ms(10));
        most = most.max(wire.sent.len() - before);
    }
    assert!(wire.sent.len() >= 1_500, "all of them, with the two that follow: {}", wire.sent.len());
    assert!(most <= 60, "{most} in 10 ms, of 1 500 in a second");
}

#[test]
fn an_answer_under_another_key_is_refused_and_counted_at_its_tunnel() {
    let material = gcm(1);
    let mut wire = Wire::single(&material);
    let mut wrong = gcm(1);
    wrong.key_in = Keys::new(Algorithm::Aes256Gcm, Zeroizing::new(vec![99; 36])).unwrap();
    wire.far_has(&wrong);
    wire.run_for(Duration::from_secs(5));
    assert_eq!(wire.state(0), State::Down);
    let view = wire.engine.tunnel(wire.now, 0).unwrap();
    assert_eq!(view.last_reject.unwrap().reason, "esp-icv");
    assert!(view.counters.forged >= 3 && view.counters.forged == wire.rejects(Reject::EspIcv));
}

#[test]
fn a_replayed_answer_only_counts() {
    let mut wire = Wire::single(&gcm(1));
    wire.run_for(Duration::from_secs(5));
    let before = wire.engine.tunnel(wire.now, 0).unwrap().counters;
    let answer = wire.answers.last().unwrap().clone();
    (0..3).for_each(|_| wire.deliver(&answer));
    assert_eq!(wire.rejects(Reject::EspReplay), 3);
    let after = wire.engine.tunnel(wire.now, 0).unwrap().counters;
    assert_eq!((after.received, after.duplicate), (before.received, before.duplicate));
    wire.run_for(Duration::from_secs(5));
    assert_eq!(wire.state(0), State::Healthy);
}

#[test]
fn an_answer_by_another_tunnel_is_refused_unless_any_way_back_will_do() {
    for (return_path, state) in [(ReturnPath::Strict, State::Down), (ReturnPath::Any, State::Healthy)] {
        let all = [gcm(1), gcm(2)];
        let mut tunnels: Vec<Tunnel> = (0..2).map(|_| esp_tunnel(0, Algorithm::Aes256Gcm, false)).collect();
        tunnels[1].name = "t1".to_owned();
        tunnels[1].check.enabled = false;
        tunnels[0].check.return_path = return_path;
        // What comes by the first is answered by the second: the far end has mixed them up.
        let mut far = far_tunnel(&tunnels[0], &all[0], false);
        let other = all[1].reversed().pair(&seed(202), numbers(&all[1]));
        if let Wrap::Esp { pair, .. } = &mut far.wrap {
            pair.outbound = other.outbound;
        }
        let near = (0..).zip(&all).map(|(index, material)| (index, started(material))).collect();
        let mut wire = Wire::new(tunnels, near, vec![far]);
        wire.run_for(Duration::from_secs(5));
        assert_eq!(wire.state(0), state, "{return_path:?}");
        assert_eq!(wire.rejects(Reject::WrongKey) > 0, return_path == ReturnPath::Strict);
    }
}

#[test]
fn an_answer_that_comes_bare_or_in_gre_does_not_count_for_an_esp_tunnel() {
    let mut wire = Wire::single(&gcm(1));
    let mut gre_tunnel = wire.tunnels[0].clone();
    gre_tunnel.onion.encapsulation = gre::Options::default().into();
    wire.cut = true;
    wire.run_for(ms(1));
    let probe = wire.sent[0].clone();
    // The far end opens it and answers outside the tunnel.
    let mut pair = gcm(1).reversed().pair(&seed(203), numbers(&gcm(1)));
    let mut scratch = Vec::new();
    let inner = pair.inbound.open(&probe[20..], &mut scratch).unwrap().packet.to_vec();
    let answer = sim::far::answer_of(&inner);
    wire.deliver(&answer);
    assert_eq!(wire.rejects(Reject::WrongPath), 1, "bare");
    wire.deliver(&sim::far::encapsulate(&answer, &gre_tunnel.onion));
    assert_eq!(wire.rejects(Reject::WrongPath), 2, "in GRE");
    assert_eq!(wire.engine.tunnel(wire.now, 0).unwrap().counters.received, 0);
}

#[test]
fn a_pair_with_an_spi_in_use_is_refused_and_changes_nothing() {
    let mut wire = Wire::single(&gcm(1));
    wire.run_for(Duration::from_secs(5));
    let same_out = Material { spi_out: gcm(1).spi_out, ..gcm(2) };
    let same_in = Material { spi_in: gcm(1).spi_in, ..gcm(2) };
    assert_eq!(wire.install(&same_out, 1), Err(Refusal::SpiTaken(gcm(1).spi_out)));
    assert_eq!(wire.install(&same_in, 1), Err(Refusal::SpiTaken(gcm(1).spi_in)));
    wire.run_for(Duration::from_secs(5));
    assert_eq!(wire.state(0), State::Healthy);
}

#[test]
fn the_spis_that_packets_may_bear_are_told_when_they_change_and_in_order() {
    let mut wire = Wire::single(&gcm(5));
    assert_eq!(wire.engine.poll_inlets(), Some(vec![(0, 0x2005)]));
    assert_eq!(wire.engine.poll_inlets(), None);
    wire.run_for(Duration::from_secs(2));
    wire.install(&gcm(3), 1).unwrap();
    assert_eq!(wire.engine.poll_inlets(), Some(vec![(0, 0x2003), (0, 0x2005)]), "the old one until the grace is over");
    wire.far_has(&gcm(3));
    wire.run_for(GRACE + ms(1_100));
    assert_eq!(wire.engine.poll_inlets(), Some(vec![(0, 0x2003)]));
}
