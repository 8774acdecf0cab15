//! Refusals that the engine gives: the tag is good, and still it is no answer. One test each.

#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on must fail")]

mod packets;
mod sim;

use std::collections::BTreeSet;

use adit::engine::health::State;
use adit::engine::settings::ReturnPath;
use adit::engine::{Engine, Setup, Time, WallTime};
use adit::wire::payload::{self, Fields, Key};
use adit::wire::{Direction, Ends, Kind, Onion, Reject, Stamp, Style, Template, gre};
use sim::far::{decapsulate, encapsulate};
use sim::{Sim, arrived, at_ms, ms, tunnel};

/// Two tunnels that have just sent their first probes, and nothing has come back yet.
fn waiting(change: impl FnOnce(&mut Vec<adit::engine::Tunnel>)) -> Sim {
    let mut tunnels = vec![tunnel(0), tunnel(1)];
    change(&mut tunnels);
    let mut sim = Sim::new(tunnels, Vec::new(), 1);
    sim.keep_bytes = true;
    sim.far.iter_mut().for_each(|far| far.rtt = ms(400));
    sim.run_until(at_ms(3));
    assert_eq!(sim.sent.len(), 3, "three probes of the first tunnel");
    sim
}

/// Hands the engine one packet; it must be refused for this reason, and nothing else must happen.
fn refuse(sim: &mut Sim, namespace: u32, packet: &[u8], reject: Reject) {
    let (before, counted) = (sim.view(0).counters, *sim.engine.rejects());
    sim.engine.handle_datagram(sim.now, sim.now, namespace, 0, arrived(packet));
    let found: BTreeSet<Reject> =
        Reject::ALL.iter().copied().filter(|of| sim.engine.rejects()[of.index()] > counted[of.index()]).collect();
    assert_eq!(found, BTreeSet::from([reject]));
    assert_eq!(sim.rejected(reject), counted[reject.index()] + 1);
    let after = sim.view(0).counters;
    assert_eq!((after.received, after.lost), (before.received, before.lost), "evidence of nothing");
}

/// The answer to the first probe, as the far end would give it.
fn answer(sim: &Sim) -> Vec<u8> {
    let onion = &sim.tunnels[0].onion;
    sim.far[0].answer(&sim.sent[0].bytes, onion.style.direction, onion)
}

/// An answer made with the run's own key: for this tunnel and sequence, by the way of this onion.
fn made(onion: &Onion, tunnel: u32, sequence: u64) -> Vec<u8> {
    let reply = Onion { style: Style { kind: Kind::Reply, ..onion.style }, ..onion.clone() };
    let stamp = Stamp { fields: Fields { tunnel, sequence, sent: 0 }, identifier: 1, ip_id: 1 };
    let mut buffer = vec![0; 2048];
    let length = Template::new(&reply).emit(&stamp, &sim::secret(), None, &mut buffer).unwrap();
    encapsulate(decapsulate(&buffer[..length]), onion)
}

#[test]
fn the_right_answer_is_taken() {
    let mut sim = waiting(|_| {});
    let packet = answer(&sim);
    sim.engine.handle_datagram(sim.now, sim.now, 0, 0, arrived(&packet));
    assert_eq!(sim.view(0).counters.received, 1, "or the refusals below would prove nothing");
    let packet = made(&tunnel(0).onion, 0, 1);
    sim.engine.handle_datagram(sim.now, sim.now, 0, 0, arrived(&packet));
    assert_eq!(sim.view(0).counters.received, 2, "nor those of made ones");
}

#[test]
fn unknown_tunnel() {
    let mut sim = waiting(|_| {});
    let packet = made(&tunnel(0).onion, 2, 0);
    refuse(&mut sim, 0, &packet, Reject::UnknownTunnel);
    let packet = made(&tunnel(0).onion, u32::MAX, 0);
    refuse(&mut sim, 0, &packet, Reject::UnknownTunnel);
}

#[test]
fn never_sent() {
    let mut sim = waiting(|_| {});
    for sequence in [3, 4, u64::MAX] {
        let packet = made(&tunnel(0).onion, 0, sequence);
        refuse(&mut sim, 0, &packet, Reject::NeverSent);
    }
}

#[test]
fn wrong_path() {
    let mut sim = waiting(|_| {});
    let packet = answer(&sim);
    refuse(&mut sim, 0, decapsulate(&packet), Reject::WrongPath);

    let mut sim = waiting(|tunnels| tunnels[0].onion = unidirectional(Kind::Request));
    let onion = sim.tunnels[0].onion.clone();
    let packet = encapsulate(&answer(&sim), &onion);
    refuse(&mut sim, 0, &packet, Reject::WrongPath);
}

fn unidirectional(kind: Kind) -> Onion {
    let onion = tunnel(0).onion;
    Onion { style: Style { kind, direction: Direction::Unidirectional }, inner: onion.outer, ..onion }
}

#[test]
fn wrong_outer() {
    let mut sim = waiting(|_| {});
    let inner = decapsulate(&answer(&sim)).to_vec();
    let onion = tunnel(0).onion;
    let other_far = Ends::new(onion.outer.local(), "203.0.113.99".parse().unwrap()).unwrap();
    let other_near = Ends::new("203.0.113.99".parse().unwrap(), onion.outer.far()).unwrap();
    let other_family = Ends::new("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()).unwrap();
    for outer in [other_far, other_near, other_family, onion.outer.reversed(), tunnel(1).onion.outer] {
        let packet = encapsulate(&inner, &Onion { outer, ..onion.clone() });
        refuse(&mut sim, 0, &packet, Reject::WrongOuter);
    }
}

#[test]
fn wrong_key() {
    for (ours, theirs) in [(None, Some(1)), (Some(1), None), (Some(1), Some(2)), (Some(0), None), (None, Some(0))] {
        let with = |key| gre::Options { key, ..gre::Options::default() };
        let mut sim = waiting(|tunnels| tunnels[0].onion.encapsulation = with(ours).into());
        let inner = decapsulate(&answer(&sim)).to_vec();
        let packet = encapsulate(&inner, &Onion { encapsulation: with(theirs).into(), ..tunnel(0).onion });
        refuse(&mut sim, 0, &packet, Reject::WrongKey);
    }
}

#[test]
fn wrong_inner() {
    let mut sim = waiting(|_| {});
    // The tag covers the inner addresses, so only a probe of our own making can get here: a
    // tunnel whose addresses were changed while it was in flight, say.
    for inner in [tunnel(1).onion.inner, tunnel(0).onion.inner.reversed()] {
        let packet = made(&Onion { inner, ..tunnel(0).onion }, 0, 0);
        refuse(&mut sim, 0, &packet, Reject::WrongInner);
    }
}

#[test]
fn wrong_namespace() {
    let mut sim = waiting(|tunnels| tunnels[1].namespace = 1);
    let packet = answer(&sim);
    refuse(&mut sim, 1, &packet, Reject::WrongNamespace);
    refuse(&mut sim, 9, &packet, Reject::WrongNamespace);
}

#[test]
fn mark() {
    let key = Key::new([7; 16]);
    let mut sim = waiting(|tunnels| tunnels[0].check.mark_key = Some(key.clone()));
    let packet = answer(&sim);
    refuse(&mut sim, 0, &packet, Reject::Mark);
    sim.far[0].mark = Some(Key::new([8; 16]));
    let packet = answer(&sim);
    refuse(&mut sim, 0, &packet, Reject::Mark);
    sim.far[0].mark = Some(key);
    let packet = answer(&sim);
    sim.engine.handle_datagram(sim.now, sim.now, 0, 0, arrived(&packet));
    let view = sim.view(0);
    assert_eq!((view.counters.received, view.assurance), (1, "authenticated"));
}

#[test]
fn duplicate() {
    let mut sim = waiting(|_| {});
    let packet = answer(&sim);
    sim.engine.handle_datagram(sim.now, sim.now, 0, 0, arrived(&packet));
    for count in 1..=5 {
        refuse(&mut sim, 0, &packet, Reject::Duplicate);
        assert_eq!(sim.view(0).counters.duplicate, count);
    }
}

#[test]
fn late() {
    let mut sim = waiting(|_| {});
    sim.far.iter_mut().for_each(|far| far.cut = true);
    sim.cut(0);
    let packet = answer(&sim);
    sim.run_until(at_ms(900));
    assert_eq!(sim.view(0).counters.lost, 3);
    refuse(&mut sim, 0, &packet, Reject::Late);
    // Once more it is still late, not a duplicate: it never was an answer.
    refuse(&mut sim, 0, &packet, Reject::Late);
    assert_eq!(sim.view(0).counters.late, 2);
}

#[test]
fn a_reply_style_probe_seen_leaving_proves_nothing() {
    let reply = |direction| {
        move |tunnels: &mut Vec<adit::engine::Tunnel>| {
            tunnels[0].onion = match direction {
                Direction::Bidirectional => Onion { style: Style { kind: Kind::Reply, direction }, ..tunnel(0).onion },
                Direction::Unidirectional => unidirectional(Kind::Reply),
            };
        }
    };
    // A copy on a shared segment, the very bytes that were sent.
    let mut sim = waiting(reply(Direction::Bidirectional));
    let own = sim.sent[0].bytes.clone();
    refuse(&mut sim, 0, &own, Reject::WrongOuter);
    // A hairpin before the tunnel: its inner packet alone.
    refuse(&mut sim, 0, decapsulate(&own), Reject::WrongPath);
    let mut sim = waiting(reply(Direction::Unidirectional));
    let own = sim.sent[0].bytes.clone();
    refuse(&mut sim, 0, &own, Reject::WrongPath);
}

#[test]
fn return_path_any_takes_any_tunnel_of_ours_and_no_other() {
    let any = |tunnels: &mut Vec<adit::engine::Tunnel>| {
        tunnels.iter_mut().for_each(|tunnel| tunnel.check.return_path = ReturnPath::Any);
    };
    let mut sim = waiting(any);
    let inner = decapsulate(&answer(&sim)).to_vec();
    let stranger = Ends::new(tunnel(0).onion.outer.local(), "203.0.113.99".parse().unwrap()).unwrap();
    let packet = encapsulate(&inner, &Onion { outer: stranger, ..tunnel(0).onion });
    refuse(&mut sim, 0, &packet, Reject::WrongOuter);
    refuse(&mut sim, 0, &inner, Reject::WrongPath);
    let packet = encapsulate(&inner, &tunnel(1).onion);
    sim.engine.handle_datagram(sim.now, sim.now, 0, 0, arrived(&packet));
    assert_eq!(sim.view(0).counters.received, 1);
}

#[test]
fn a_refused_answer_is_shown_at_the_tunnel_it_names() {
    let mut sim = waiting(|_| {});
    let packet = answer(&sim);
    refuse(&mut sim, 0, decapsulate(&packet), Reject::WrongPath);
    assert_eq!(sim.view(0).last_reject.unwrap().reason, "wrong-path");
    assert_eq!(sim.view(1).last_reject, None);
}

/// Every accepted golden packet passes all checks of its way; only that this engine never sent its
/// sequence keeps it from counting.
#[test]
fn every_golden_answer_came_the_way_it_must() {
    for fixture in packets::named("accept-") {
        let onion = fixture.onion();
        let settings = |_| adit::engine::Tunnel { onion: onion.clone(), ..tunnel(0) };
        let setup = Setup {
            tunnels: (0..8).map(settings).collect(),
            routes: Vec::new(),
            places: Vec::new(),
            steers: false,
            secret: packets::secret(),
            record: false,
            associations: std::collections::BTreeMap::new(),
        };
        let mut engine = Engine::new(Time::ZERO, WallTime(0), setup);
        engine.handle_datagram(Time::ZERO, Time::ZERO, 0, 0, arrived(&fixture.bytes()));
        let found: Vec<&str> =
            Reject::ALL.iter().filter(|of| engine.rejects()[of.index()] > 0).map(|of| of.label()).collect();
        assert_eq!(found, ["never-sent"], "{}", fixture.name);
    }
}

/// Every style, family and option there is, from the first probe to healthy.
#[test]
fn every_style_family_and_option_works_end_to_end() {
    let v6 = |ends: &str| {
        let (local, far) = ends.split_once(' ').unwrap();
        packets::ends(local, far)
    };
    for bits in 0..128_u32 {
        let bit = |at: u32| bits >> at & 1 == 1;
        let mut settings = tunnel(0);
        let onion = &mut settings.onion;
        onion.style.kind = if bit(0) { Kind::Reply } else { Kind::Request };
        if bit(1) {
            onion.outer = v6("2001:db8::1 2001:db8:1::2");
        }
        if bit(2) {
            onion.inner = v6("fd00:100::8 fd00:100::9");
        }
        if bit(3) {
            onion.style.direction = Direction::Unidirectional;
            onion.inner =
                if bit(2) { v6("2001:db8::1 2001:db8:1::2") } else { packets::ends("192.0.2.1", "203.0.113.2") };
        }
        onion.encapsulation = adit::wire::Encapsulation::Gre(gre::Options {
            key: bit(4).then_some(bits),
            checksum: bit(5),
            sequence: bit(6),
        });
        let described = format!("{onion:?}");
        let mut sim = Sim::new(vec![settings], Vec::new(), 1);
        sim.run_until(at_ms(3_000));
        assert_eq!(sim.state(0), State::Healthy, "{described}");
        assert_eq!(sim.engine.rejects().iter().sum::<u64>(), 0, "{described}");
    }
}

#[test]
fn the_payload_is_at_least_what_it_must_be() {
    let short = Onion { size: 0, ..tunnel(0).onion };
    assert_eq!(Template::new(&short).len(), 20 + 4 + 20 + 8 + payload::LEN);
}
