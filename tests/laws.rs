//! The laws of adit, each by its name, under virtual time. (Law 7, about what survives a kill, is
//! held where state is written; the kernel's side of law 6 where the kernel is.)

#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on must fail")]

mod sim;

use std::collections::BTreeMap;
use std::time::Duration;

use adit::engine::event::{Event, Kind};
use adit::engine::health::{Health, Ratio, Rules, State};
use adit::engine::penalty::{DEGRADED, DOWN, penalty};
use adit::engine::window::Outcome;
use adit::engine::{Drain, Route, RouteTable, Time, Tunnel, schedule};
use adit::wire::Reject;
use sim::far::Sending;
use sim::{Sim, at_ms, ms, tunnel};

fn route(prefix: &str, tunnel: u32, priority: u32) -> Route {
    Route {
        prefix: prefix.parse().unwrap(),
        tunnel,
        priority,
        weight: 1,
        device: None,
        via: None,
        place: 0,
        onlink: false,
    }
}

/// Four tunnels, two prefixes over each pair and one over all.
fn routes() -> Vec<Route> {
    let all = (0..4).map(|index| route("10.0.0.0/8", index, 100 + 50 * index));
    let first = (0..2).map(|index| route("192.0.2.0/24", index, 100));
    let second = (2..4).map(|index| route("2001:db8:ff::/48", index, 300 - index));
    all.chain(first).chain(second).collect()
}

/// Some minutes in which everything goes wrong that can, and a quiet end.
fn chaos(seed: u64) -> Sim {
    let tunnels: Vec<Tunnel> = (0..4).map(tunnel).collect();
    let mut sim = Sim::recording(tunnels, routes(), seed, true);
    for _ in 0..150 {
        let pause = sim.part_of(ms(4_000));
        sim.run_for(pause);
        let index = u32::try_from(sim.random() % 4).unwrap();
        let what = sim.random() % 16;
        let far = &mut sim.far[index as usize];
        match what {
            0 | 1 => sim.cut(index),
            2..=4 => *far = sim::far::Far::default(),
            5 => far.loss_ppm = 200_000,
            6 => far.rtt = ms(499),
            7 => far.rtt = ms(700),
            8 => far.jitter = ms(1_500),
            9 => far.copies = 3,
            10 => far.sending = Sending::LocalFault("ENOBUFS"),
            11 => far.sending = Sending::Refused("EPERM"),
            12 => {
                sim.overflowing = true;
                sim.run_for(ms(700));
                sim.overflowing = false;
            }
            13 => {
                let asleep = sim.part_of(ms(5_000));
                sim.stall(asleep);
            }
            14 => sim.command(|engine, now| engine.handle_suspend(now, Duration::from_secs(60))),
            _ => {
                let drain =
                    [None, Some(Drain::Degraded), Some(Drain::Down)][usize::try_from(pause.as_nanos() % 3).unwrap()];
                sim.command(|engine, now| engine.set_drain(now, index, drain));
            }
        }
    }
    sim.far.iter_mut().for_each(|far| *far = sim::far::Far::default());
    sim.run_for(ms(10_000));
    // A moment at which nothing is in flight.
    while sim.sent.last().is_some_and(|last| sim.now.since(last.at) < ms(20)) {
        sim.run_for(ms(1));
    }
    sim
}

/// Samples told of, by tunnel: when, and success, failure or neither.
fn samples(events: &[Event]) -> BTreeMap<String, Vec<(Time, Option<bool>)>> {
    let mut samples: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for event in events {
        if let Kind::Sample { tunnel, t, ok, inconclusive, .. } = &event.kind {
            assert_eq!(ok.is_none(), *inconclusive);
            samples.entry(tunnel.clone()).or_default().push((*t, *ok));
        }
    }
    samples
}

#[test]
fn law_1_a_probe_settles_once() {
    for seed in 0..12 {
        let mut sim = chaos(seed);
        let samples = samples(&sim.events);
        for index in 0..4 {
            let of_tunnel = sim.sent.iter().filter(|sent| sent.tunnel == index);
            let settled = of_tunnel.filter(|sent| !matches!(sent.sending, Sending::LocalFault(_))).count();
            let told = &samples[&format!("t{index}")];
            assert_eq!(told.len(), settled, "seed {seed}, tunnel {index}: one outcome for each probe");
            let counters = sim.view(index).counters;
            let count = |outcome| told.iter().filter(|(_, ok)| *ok == outcome).count() as u64;
            assert_eq!((counters.received, counters.lost), (count(Some(true)), count(Some(false))), "seed {seed}");
            assert!(told.is_sorted_by_key(|(at, _)| *at), "seed {seed}: samples in order of their times");
        }
    }
}

#[test]
fn law_1_every_probe_has_a_sequence_of_its_own() {
    let sim = chaos(3);
    let mut seen: Vec<(u32, u64)> = sim.sent.iter().map(|sent| (sent.tunnel, sent.sequence)).collect();
    let sent = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), sent);
}

#[test]
fn law_1_what_comes_twice_only_counts() {
    let mut once = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    let mut often = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    often.far[0].copies = 100;
    for sim in [&mut once, &mut often] {
        sim.run_until(at_ms(60_500));
    }
    let (mut one, other) = (once.view(0), often.view(0));
    assert_eq!(other.counters.duplicate, 99 * other.counters.received);
    assert_eq!(often.rejected(Reject::Duplicate), other.counters.duplicate);
    one.counters.duplicate = other.counters.duplicate;
    assert_eq!(one, other, "nothing else differs");
}

#[test]
fn law_1_what_comes_late_only_counts() {
    let mut sim = Sim::recording(vec![tunnel(0)], Vec::new(), 1, true);
    sim.far[0].rtt = ms(500) + Duration::from_nanos(1);
    sim.run_until(at_ms(20_000));
    assert_eq!(sim.state(0), State::Down, "a nanosecond late is late");
    let view = sim.view(0);
    assert_eq!(view.counters.received, 0);
    assert!(view.counters.late >= 15, "{view:?}");
    assert_eq!(sim.rejected(Reject::Late), view.counters.late);

    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    sim.far[0].rtt = ms(500);
    sim.run_until(at_ms(20_000));
    assert_eq!(sim.state(0), State::Healthy, "at the deadline is by the deadline");
    assert_eq!((sim.view(0).counters.lost, sim.view(0).counters.late), (0, 0));
}

#[test]
fn law_1_what_is_forged_only_counts() {
    let mut sim = Sim::new(vec![tunnel(0), tunnel(1)], Vec::new(), 1);
    sim.far[0].forges = true;
    sim.run_until(at_ms(10_000));
    assert_eq!(sim.state(0), State::Down, "a forged answer is no answer");
    let view = sim.view(0);
    assert!(view.counters.forged > 5);
    assert_eq!(view.counters.received, 0);
    assert_eq!(sim.rejected(Reject::Tag), view.counters.forged);
    assert_eq!(sim.state(1), State::Healthy, "nor is it any other tunnel's trouble");
}

#[test]
fn law_1_reordered_answers_settle_each_their_own_probe() {
    let mut settings = tunnel(0);
    settings.check.interval = ms(20);
    let mut sim = Sim::recording(vec![settings], Vec::new(), 5, true);
    sim.far[0].jitter = ms(400);
    sim.run_until(at_ms(20_000));
    sim.far[0].jitter = Duration::ZERO;
    sim.run_for(ms(500));
    let view = sim.view(0);
    assert_eq!(view.counters.lost, 0);
    assert!(view.counters.sent > 900);
    assert!(view.counters.sent - view.counters.received <= 1, "{:?}", view.counters);
}

#[test]
fn law_2_health_changes_only_by_samples() {
    for seed in 0..12 {
        let sim = chaos(seed);
        // The recorded samples alone, judged again, give the recorded transitions: no other input
        // has moved a state, and none was needed.
        let mut health: BTreeMap<String, Health> = BTreeMap::new();
        let mut expected = None;
        let mut transitions = 0;
        for event in &sim.events {
            if let Kind::Sample { tunnel, t, ok: Some(ok), rtt_us, .. } = &event.kind {
                assert_eq!(expected, None, "seed {seed}: a transition was not told");
                let health = health.entry(tunnel.clone()).or_insert_with(|| Health::new(Rules::default()));
                let rtt = Duration::from_micros(rtt_us.unwrap_or(0));
                let outcome = if *ok { Outcome::Success(rtt) } else { Outcome::Failure };
                let transition = health.judge(*t, outcome);
                expected = transition.map(|transition| (tunnel.clone(), transition.from, transition.to));
            } else if let Kind::Transition { tunnel, from, to, .. } = &event.kind {
                assert_eq!(expected.take(), Some((tunnel.clone(), *from, *to)), "seed {seed}: no sample says so");
                transitions += 1;
            }
        }
        assert_eq!(expected, None);
        assert!(transitions >= 10, "seed {seed}: {transitions} transitions prove little");
    }
}

#[test]
fn law_2_there_is_one_function_and_its_match_has_no_catch_all() {
    let source = std::fs::read_to_string("src/engine/health.rs").unwrap();
    assert_eq!(source.matches("self.state = ").count(), 1, "a state is assigned in one place");
    let judge = source.split("pub fn judge").nth(1).unwrap();
    let body = judge.split("\n    }\n").next().unwrap();
    assert!(body.contains("match self.state"));
    assert!(body.contains("self.state = "), "and that place is judge()");
    for arm in body.lines().map(str::trim).filter(|line| line.contains("=>")) {
        assert!(arm.starts_with("State::"), "a catch-all arm: {arm}");
    }
}

#[test]
fn law_2_time_alone_moves_nothing() {
    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    sim.run_until(at_ms(10_000));
    let before = (sim.state(0), sim.events.len());
    // An hour later, without a single sample in between.
    let later = sim.now + Duration::from_secs(3_600);
    let _ = sim.engine.tunnel(later, 0).unwrap();
    let _ = sim.engine.explain(later, 0).unwrap();
    assert_eq!((sim.state(0), sim.engine.events().after(0).count()), before);
}

#[test]
fn law_3_a_penalty_is_a_function_of_the_state_and_never_accumulates() {
    let measured = |state| penalty(state, None);
    assert_eq!(State::ALL.map(measured), [0, 0, 500_000, 1_000_000]);
    let mut sim = Sim::new((0..4).map(tunnel).collect(), routes(), 1);
    sim.run_until(at_ms(5_000));
    for _ in 0..30 {
        sim.cut(0);
        let _ = sim.run_to(0, State::Down, ms(5_000));
        assert_eq!(sim.view(0).penalty, DOWN);
        sim.heal(0);
        let _ = sim.run_to(0, State::Degraded, ms(5_000));
        assert_eq!(sim.view(0).penalty, DEGRADED);
    }
    let table = sim.engine.routes();
    let candidates = table.candidates(0, "10.1.2.3".parse().unwrap());
    let effective: Vec<u32> = candidates.map(|(_, route, _)| table.effective_priority(route)).collect();
    assert_eq!(effective, [500_100, 150, 200, 250]);
}

#[test]
fn law_3_a_penalty_never_takes_the_last_route_away() {
    let mut sim = Sim::new((0..4).map(tunnel).collect(), routes(), 1);
    sim.run_until(at_ms(5_000));
    let carrying = |sim: &Sim, address: &str| -> Vec<String> {
        let routes = sim.engine.lookup(address.parse().unwrap(), None, &Default::default());
        routes.into_iter().map(|route| route.tunnel).collect()
    };
    assert_eq!(carrying(&sim, "10.1.2.3"), ["t0"]);
    assert_eq!(carrying(&sim, "192.0.2.9"), ["t0", "t1"], "equals share");
    (0..4).for_each(|index| sim.cut(index));
    sim.run_for(ms(5_000));
    assert_eq!([0, 1, 2, 3].map(|index| sim.state(index)), [State::Down; 4]);
    assert_eq!(carrying(&sim, "10.1.2.3"), ["t0"], "all down: the order is as if all were up");
    assert_eq!(carrying(&sim, "192.0.2.9"), ["t0", "t1"]);
    assert_eq!(carrying(&sim, "2001:db8:ff::1"), ["t3"]);
    for index in 0..4 {
        sim.command(|engine, now| engine.set_drain(now, index, Some(Drain::Down)));
    }
    assert_eq!(carrying(&sim, "10.1.2.3"), ["t0"], "all down and drained: still");
}

/// The simulation audits every route after every event that moves one; here the table alone, under
/// penalties that no engine would give.
#[test]
fn law_3_and_law_6_no_prefix_is_ever_without_a_selected_route() {
    let mut routes = Vec::new();
    for number in 0..300_u64 {
        let noise = schedule::mix(99, number);
        let [a, b, c, d, e, ..] = noise.to_be_bytes();
        let prefix = format!("10.{}.0.0/{}", a % 8, 12 + b % 8);
        routes.push(Route { weight: u32::from(c % 4 + 1), ..route(&prefix, u32::from(d % 20), u32::from(e % 5)) });
    }
    let mut table = RouteTable::new(routes, Vec::new(), 20, false);
    for step in 0..20_000_u64 {
        let noise = schedule::mix(7, step);
        let tunnel = u32::try_from(noise % 20).unwrap();
        let penalty = [0, DEGRADED, DOWN, DOWN + DEGRADED, u32::MAX][usize::try_from(noise >> 32).unwrap() % 5];
        for change in table.set_penalty(tunnel, penalty, usize::MAX).first {
            assert!(!change.to.is_empty(), "{} would be without a route", change.prefix);
            assert_ne!(change.from, change.to);
        }
        if step % 100 == 0 {
            let mut best: BTreeMap<String, (u32, u32)> = BTreeMap::new();
            for (_, route, selected) in table.iter() {
                let effective = table.effective_priority(route);
                let best = best.entry(route.prefix.to_string()).or_insert((u32::MAX, u32::MAX));
                best.0 = best.0.min(effective);
                if selected {
                    best.1 = best.1.min(effective);
                }
            }
            assert!(best.values().all(|(lowest, carrying)| lowest == carrying), "step {step}");
            assert_eq!(best.len(), table.prefixes());
        }
    }
}

#[test]
fn law_6_every_change_of_route_names_what_carries_the_prefix_now() {
    for seed in 0..5 {
        let sim = chaos(seed);
        let mut carrying: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in &sim.events {
            if let Kind::Route { prefix, from, to, .. } = &event.kind {
                assert!(!to.is_empty(), "seed {seed}: {prefix} without a route");
                if let Some(known) = carrying.insert(prefix.clone(), to.clone()) {
                    assert_eq!(&known, from, "seed {seed}: changes of {prefix} follow on each other");
                }
            }
        }
        assert!(carrying.len() >= 2, "seed {seed}: too little moved");
        for (prefix, tunnels) in carrying {
            let views = sim.engine.route_views().into_iter();
            let now: Vec<String> =
                views.filter(|view| view.prefix == prefix && view.selected).map(|view| view.tunnel).collect();
            assert_eq!(now, tunnels, "seed {seed}: {prefix}");
        }
    }
}

/// A second of one kind of trouble, on healthy paths: what comes of it.
fn trouble(mut cause: impl FnMut(&mut Sim), mut end: impl FnMut(&mut Sim)) -> Sim {
    let mut sim = Sim::recording((0..4).map(tunnel).collect(), routes(), 1, true);
    sim.run_until(at_ms(40_000));
    let before = sim.transitions();
    cause(&mut sim);
    sim.run_for(ms(3_500));
    end(&mut sim);
    sim.run_for(ms(10_000));
    assert_eq!(sim.transitions(), before, "the prober's own trouble moved a state");
    for index in 0..4 {
        assert_eq!(sim.state(index), State::Healthy);
        assert_eq!(sim.view(index).counters.lost, 0, "the prober's own trouble is no failure");
    }
    sim
}

fn told_of(sim: &Sim, name: &str) -> bool {
    sim.events.iter().any(|event| matches!(&event.kind, Kind::LocalFault { fault, .. } if *fault == name))
}

#[test]
fn law_4_a_stall_is_no_verdict() {
    // Stopped in the worst moment: while probes are in flight. The engine wants to be woken when an
    // answer is suspiciously late, 20 ms after the sending; 50 ms later than that is a stall.
    for (millis, told) in [(60, false), (400, true), (600, true), (1_000, true), (2_500, true), (60_000, true)] {
        let sim = trouble(
            |sim| {
                let sent = sim.sent.len();
                while sim.sent.len() == sent {
                    sim.run_for(ms(1));
                }
                sim.stall(ms(millis));
            },
            |_| {},
        );
        assert_eq!(told_of(&sim, "stall"), told, "{millis} ms");
    }
}

#[test]
fn law_4_lost_in_our_own_queue_is_no_verdict() {
    let sim = trouble(|sim| sim.overflowing = true, |sim| sim.overflowing = false);
    assert!(told_of(&sim, "receive-overflow"));
    let inconclusive = samples(&sim.events).into_values().flatten().filter(|(_, ok)| ok.is_none()).count();
    assert!(inconclusive >= 8, "{inconclusive} inconclusive");
}

#[test]
fn law_4_short_of_buffers_is_no_verdict() {
    let sim = trouble(
        |sim| sim.far.iter_mut().for_each(|far| far.sending = Sending::LocalFault("ENOBUFS")),
        |sim| sim.far.iter_mut().for_each(|far| far.sending = Sending::Fine),
    );
    assert!(told_of(&sim, "send"));
    let tried = sim.sent.iter().filter(|sent| matches!(sent.sending, Sending::LocalFault(_))).count();
    assert!((40..1_000).contains(&tried), "tried again shortly, but not in a storm: {tried}");
}

/// A host that starves the prober a little, again and again, puts the verdict off, but not for ever.
#[test]
fn law_4_stalls_without_end_do_not_hide_a_dead_tunnel() {
    let mut hasty = tunnel(0);
    hasty.check.interval = ms(20);
    let mut sim = Sim::new(vec![hasty], Vec::new(), 5);
    sim.run_until(at_ms(5_000));
    sim.cut(0);
    let cut = sim.now;
    while sim.state(0) != State::Down && sim.now < cut + Duration::from_secs(20) {
        sim.run_for(ms(300));
        sim.stall(ms(80));
    }
    assert!(told_of(&sim, "stall"));
    assert_eq!(sim.state(0), State::Down, "{:?}", sim.view(0));
}

/// A burst that is refused makes room for the early retry of a probe that has waited meanwhile: its
/// time has passed, but nobody has slept.
#[test]
fn law_4_a_retry_that_had_to_wait_is_no_stall() {
    let mut hasty = tunnel(0);
    hasty.check.interval = ms(100);
    let mut sim = Sim::new(vec![hasty], Vec::new(), 9);
    sim.haste_allowed = true;
    sim.run_until(at_ms(5_000));
    for _ in 0..10 {
        sim.far[0].loss_ppm = 1_000_000;
        sim.run_for(ms(450));
        sim.far[0].sending = Sending::Refused("EPERM");
        sim.run_for(ms(600));
        sim.far[0].loss_ppm = 0;
        sim.far[0].sending = Sending::Fine;
        sim.run_for(ms(3_000));
    }
    assert!(!told_of(&sim, "stall"));
}

#[test]
fn law_4_a_suspended_host_is_no_verdict() {
    let sim = trouble(
        |sim| {
            let sent = sim.sent.len();
            while sim.sent.len() == sent {
                sim.run_for(ms(1));
            }
            // What was in flight was answered while nobody listened.
            (0..4).for_each(|index| sim.cut(index));
            sim.command(|engine, now| engine.handle_suspend(now, Duration::from_secs(3_600)));
            (0..4).for_each(|index| sim.heal(index));
        },
        |_| {},
    );
    assert!(told_of(&sim, "suspend"));
}

#[test]
fn law_4_but_a_path_that_is_dead_after_a_stall_is_found_so() {
    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    sim.run_until(at_ms(20_000));
    sim.cut(0);
    sim.stall(ms(5_000));
    let woken = sim.now;
    let down = sim.run_to(0, State::Down, ms(5_000));
    let after = down.since(woken);
    assert!((ms(500)..ms(2_000)).contains(&after), "a full time-out of running time, then the usual: {after:?}");
}

#[test]
fn law_5_disabled_is_not_down() {
    let mut settings = tunnel(0);
    settings.check.enabled = false;
    let mut sim = Sim::new(vec![settings, tunnel(1)], vec![route("10.0.0.0/8", 0, 1)], 1);
    sim.far[0].cut = true;
    sim.run_until(at_ms(60_000));
    let view = sim.view(0);
    assert_eq!((view.state, view.penalty, view.checked, view.health), (State::Unknown, 0, false, None));
    assert_eq!(view.counters.sent, 0, "what is not checked is not probed");
    assert!(sim.transitions().iter().all(|(_, name, _)| name == "t1"));
}

#[test]
fn law_5_drained_is_not_down() {
    let mut sim = Sim::new((0..2).map(tunnel).collect(), vec![route("10.0.0.0/8", 0, 1), route("10.0.0.0/8", 1, 2)], 1);
    sim.run_until(at_ms(5_000));
    let before = sim.transitions();
    sim.command(|engine, now| engine.set_drain(now, 0, Some(Drain::Down)));
    sim.run_for(ms(20_000));
    let view = sim.view(0);
    assert_eq!((view.state, view.health, view.drained, view.penalty), (State::Healthy, Some(1.0), true, DOWN));
    assert_eq!(sim.transitions(), before, "a drain is no transition");
    assert_eq!(sim.engine.routes().pick(0, "10.1.1.1".parse().unwrap(), 0).unwrap().1.tunnel, 1, "traffic has left");
    sim.command(|engine, now| engine.set_drain(now, 0, None));
    assert_eq!(sim.engine.routes().pick(0, "10.1.1.1".parse().unwrap(), 0).unwrap().1.tunnel, 0, "and come back");
}

#[test]
fn law_5_unknown_is_not_healthy() {
    let mut settings = tunnel(0);
    settings.check.early_retry = false;
    let mut sim = Sim::new(vec![settings], Vec::new(), 1);
    let view = sim.view(0);
    assert_eq!((view.state.name(), view.health, view.penalty), ("unknown", None, 0));
    let counted = sim.engine.self_view().tunnels;
    assert_eq!(counted, [("unknown", 1), ("healthy", 0), ("degraded", 0), ("down", 0)]);
    // Two successes are no verdict yet.
    sim.far[0].lose_next = 1;
    sim.run_until(at_ms(400));
    assert_eq!(sim.view(0).counters.received, 2);
    assert_eq!(sim.state(0), State::Unknown);
}

#[test]
fn the_ratio_of_the_rules_is_exact() {
    assert!(Ratio(1_000).reached(1, 1_000));
    assert!(!Ratio(1_000).reached(1, 1_001));
    assert!(Ratio(1_000).reached(u64::MAX, u64::MAX));
}
