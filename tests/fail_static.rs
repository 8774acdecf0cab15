//! Fail-static, under virtual time: when it is this host that is suspected.

mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use adit::engine::event::Kind;
use adit::engine::health::{Ratio, State};
use adit::engine::{Drain, FailStatic, Layout, Steer, WallTime};
use sim::far::Sending;
use sim::{Sim, ms, route, tunnel};

const HALF: FailStatic = FailStatic { share: Ratio(500_000), while_clean: false };

/// Four healthy tunnels, whose costs are known where routes are kept.
fn healthy(settings: Option<FailStatic>) -> Sim {
    let mut sim = Sim::new((0..4).map(tunnel).collect(), (0..4).map(route).collect(), 1);
    sim.engine.set_fail_static(settings);
    sim.run_for(Duration::from_secs(10));
    assert!((0..4).all(|tunnel| sim.engine.state(tunnel) == Some(State::Healthy)));
    orders(&mut sim);
    sim
}

/// What is told to whoever keeps the kernel's routes.
fn orders(sim: &mut Sim) -> Vec<Steer> {
    std::iter::from_fn(|| sim.engine.poll_steer()).collect()
}

fn down(sim: &Sim) -> usize {
    (0..4).filter(|&tunnel| sim.engine.state(tunnel) == Some(State::Down)).count()
}

fn alarms(sim: &Sim) -> Vec<String> {
    let alarm = |kind: &Kind| {
        let Kind::LocalFault { fault: "fail-static", reason, .. } = kind else { return None };
        Some(reason.clone())
    };
    sim.events.iter().filter_map(|event| alarm(&event.kind)).collect()
}

/// This host loses something, which is a sign, though of no probe.
fn trouble(sim: &mut Sim) {
    sim.engine.handle_kernel_overrun(sim.now);
}

/// The tunnels that were told to cost so much.
fn told_to_cost(told: &[Steer], penalty: u32) -> Vec<u32> {
    let tunnels: BTreeSet<u32> =
        told.iter().filter(|steer| steer.penalty == Some(penalty)).map(|steer| steer.tunnel).collect();
    tunnels.into_iter().collect()
}

fn run_and_collect(sim: &mut Sim, duration: Duration) -> Vec<Steer> {
    let (mut all, end) = (Vec::new(), sim.now + duration);
    while sim.now < end {
        sim.step(end);
        all.extend(orders(sim));
    }
    all
}

#[test]
fn law_4_when_all_go_down_while_this_host_is_in_trouble_routes_are_held() {
    let mut sim = healthy(Some(HALF));
    (0..4).for_each(|tunnel| sim.cut(tunnel));
    let mut told = Vec::new();
    for _ in 0..10 {
        trouble(&mut sim);
        told.extend(run_and_collect(&mut sim, ms(300)));
    }
    assert_eq!(down(&sim), 4, "states go on");
    assert_eq!(told_to_cost(&told, 1_000_000), [0_u32; 0], "but no route hears of a death: {told:?}");
    assert_eq!(alarms(&sim).len(), 1, "{:?}", alarms(&sim));
    assert!(alarms(&sim)[0].contains("kernel-overrun"), "{:?}", alarms(&sim));
    assert!(sim.engine.held().unwrap().reason.contains("tunnels went down"));
    let explained = sim.engine.explain(sim.now, 0).unwrap();
    assert!(explained.host.fail_static.is_some());
}

#[test]
fn when_this_host_has_been_well_for_a_whole_window_the_verdicts_hold() {
    let mut sim = healthy(Some(HALF));
    (0..4).for_each(|tunnel| sim.cut(tunnel));
    sim.run_for(ms(1));
    trouble(&mut sim);
    let told = run_and_collect(&mut sim, Duration::from_secs(30));
    assert_eq!(sim.engine.held(), None);
    assert_eq!(told_to_cost(&told, 1_000_000), [0, 1, 2, 3], "all is passed on in the end: {told:?}");
    assert_eq!(alarms(&sim).len(), 2, "begin and end: {:?}", alarms(&sim));
}

#[test]
fn when_tunnels_come_back_routes_follow_again() {
    let mut sim = healthy(Some(FailStatic { while_clean: true, ..HALF }));
    (0..4).for_each(|tunnel| sim.cut(tunnel));
    run_and_collect(&mut sim, Duration::from_secs(30));
    assert!(sim.engine.held().is_some(), "without a sign, too, if that is wanted, and for as long as it lasts");
    (0..4).for_each(|tunnel| sim.heal(tunnel));
    let told = run_and_collect(&mut sim, Duration::from_secs(10));
    assert_eq!(sim.engine.held(), None);
    let last = |tunnel| told.iter().rfind(|steer| steer.tunnel == tunnel).and_then(|steer| steer.penalty);
    assert_eq!([0, 1, 2, 3].map(last), [Some(500_000); 4], "{told:?}");
}

#[test]
fn without_a_sign_nothing_is_held_or_late() {
    let mut sim = healthy(Some(HALF));
    (0..4).for_each(|tunnel| sim.cut(tunnel));
    let end = sim.now + Duration::from_secs(5);
    while sim.now < end {
        let before = down(&sim);
        sim.step(end);
        let told = orders(&mut sim);
        assert_eq!(told_to_cost(&told, 1_000_000).len(), down(&sim) - before, "in the same turn");
    }
    assert_eq!((down(&sim), alarms(&sim).len()), (4, 0));
}

#[test]
fn one_tunnel_of_many_is_held_by_nothing() {
    let mut sim = healthy(Some(HALF));
    trouble(&mut sim);
    sim.run_for(Duration::from_secs(2));
    sim.cut(2);
    let told = run_and_collect(&mut sim, Duration::from_secs(5));
    assert!(told.contains(&Steer { tunnel: 2, penalty: Some(1_000_000) }));
    assert_eq!(alarms(&sim).len(), 0);
}

#[test]
fn while_a_sign_is_fresh_a_worse_cost_waits_a_second_and_a_better_one_does_not() {
    let mut sim = healthy(Some(HALF));
    sim.cut(2);
    while down(&sim) == 0 {
        sim.step(sim.now + ms(5));
        trouble(&mut sim);
        sim.overflowing = false;
        if sim.now.as_nanos() > 30_000_000_000 {
            break;
        }
        sim.run_for(ms(600));
    }
    let told = run_and_collect(&mut sim, Duration::from_secs(3));
    assert!(told.contains(&Steer { tunnel: 2, penalty: Some(1_000_000) }), "{told:?}");
    trouble(&mut sim);
    sim.heal(2);
    let mut better = None;
    while better.is_none() {
        sim.step(sim.now + ms(5));
        trouble(&mut sim);
        better = orders(&mut sim).into_iter().find(|steer| steer.tunnel == 2);
        assert!(sim.now.as_nanos() < 120_000_000_000);
        if sim.engine.state(2) == Some(State::Degraded) {
            assert_eq!(better, Some(Steer { tunnel: 2, penalty: Some(500_000) }), "at once");
        }
    }
}

#[test]
fn two_ways_out_of_which_one_dies_fail_over_at_once() {
    let mut sim = healthy(Some(HALF));
    for tunnel in 0..2 {
        sim.far[tunnel].sending = Sending::Refused("ENETUNREACH");
    }
    let told = run_and_collect(&mut sim, Duration::from_secs(2));
    let dead = told_to_cost(&told, 1_000_000).len();
    assert_eq!((down(&sim), dead, alarms(&sim).len()), (2, 2, 0));
}

#[test]
fn when_nothing_leaves_this_host_routes_are_held_until_something_does() {
    let mut sim = healthy(Some(HALF));
    for far in &mut sim.far {
        far.sending = Sending::Refused("ENETUNREACH");
    }
    sim.haste_allowed = true;
    run_and_collect(&mut sim, Duration::from_secs(20));
    assert_eq!(down(&sim), 4);
    assert!(sim.engine.held().unwrap().reason.contains("nothing leaves"), "{:?}", sim.engine.held());
    for far in &mut sim.far {
        far.sending = Sending::Fine;
    }
    run_and_collect(&mut sim, Duration::from_secs(20));
    assert_eq!(sim.engine.held(), None);
}

#[test]
fn it_can_be_turned_off() {
    let mut sim = healthy(None);
    (0..4).for_each(|tunnel| sim.cut(tunnel));
    trouble(&mut sim);
    let told = run_and_collect(&mut sim, Duration::from_secs(5));
    assert_eq!(told_to_cost(&told, 1_000_000).len(), 4);
}

#[test]
fn what_an_operator_asks_for_while_routes_are_held_follows() {
    let mut sim = healthy(Some(FailStatic { while_clean: true, ..HALF }));
    (0..4).for_each(|tunnel| sim.cut(tunnel));
    run_and_collect(&mut sim, Duration::from_secs(5));
    sim.engine.set_drain(sim.now, 0, Some(Drain::Down));
    assert!(orders(&mut sim).is_empty());
    (0..4).for_each(|tunnel| sim.heal(tunnel));
    let told = run_and_collect(&mut sim, Duration::from_secs(10));
    assert!(told.iter().any(|steer| steer.tunnel == 0 && steer.penalty == Some(1_500_000)), "{told:?}");
}

#[test]
fn turned_off_while_routes_are_held_they_follow_at_once() {
    let mut sim = healthy(Some(FailStatic { while_clean: true, ..HALF }));
    (0..4).for_each(|tunnel| sim.cut(tunnel));
    let mut told = run_and_collect(&mut sim, Duration::from_secs(5));
    assert!(sim.engine.held().is_some());
    assert_eq!(told_to_cost(&told, 1_000_000).len(), 1, "without a sign the first one is not waited for: {told:?}");
    sim.engine.set_fail_static(None);
    told.extend(run_and_collect(&mut sim, Duration::from_secs(2)));
    assert_eq!((sim.engine.held(), told_to_cost(&told, 1_000_000)), (None, vec![0, 1, 2, 3]));
    assert_eq!(alarms(&sim).len(), 2, "the end is told, too: {:?}", alarms(&sim));
}

/// Two of four cannot leave and are down, and then they cannot be probed at all.
fn two_out_of_the_reckoning() -> Sim {
    let mut sim = healthy(Some(HALF));
    for far in &mut sim.far[..2] {
        far.sending = Sending::Refused("ENETUNREACH");
    }
    run_and_collect(&mut sim, Duration::from_secs(2));
    assert_eq!(down(&sim), 2);
    let gone = Some("its device is gone");
    (0..2).for_each(|tunnel| sim.command(|engine, now| engine.handle_withheld(now, tunnel, gone)));
    orders(&mut sim);
    sim
}

#[test]
fn a_tunnel_that_cannot_be_probed_is_no_part_of_the_reckoning() {
    let mut sim = two_out_of_the_reckoning();
    sim.far[2].sending = Sending::Refused("ENETUNREACH");
    // Where its last success was less than a second ago it takes another probe.
    let told = run_and_collect(&mut sim, ms(2_300));
    assert_eq!(sim.state(2), State::Down);
    assert_eq!((sim.engine.held(), told_to_cost(&told, 1_000_000)), (None, vec![2]), "the fourth carries on");
    assert_eq!(alarms(&sim).len(), 0, "one of two went down, and something leaves: {:?}", alarms(&sim));
}

#[test]
fn nor_is_one_that_is_gone() {
    let mut sim = healthy(Some(HALF));
    (0..2).for_each(|tunnel| sim.cut(tunnel));
    run_and_collect(&mut sim, ms(2_000));
    assert_eq!(down(&sim), 2);
    let layout = Layout {
        tunnels: (2..6).map(tunnel).collect(),
        routes: Vec::new(),
        places: Vec::new(),
        steers: true,
        associations: BTreeMap::new(),
    };
    sim.reload(layout);
    trouble(&mut sim);
    sim.cut(0);
    run_and_collect(&mut sim, ms(2_000));
    assert_eq!((sim.state(0), alarms(&sim).len()), (State::Down, 0), "the first of those that there are");
}

#[test]
fn what_is_not_held_any_more_is_reckoned_anew() {
    let mut sim = healthy(Some(FailStatic { while_clean: true, ..HALF }));
    for round in 1..=3 {
        (0..4).for_each(|tunnel| sim.cut(tunnel));
        run_and_collect(&mut sim, Duration::from_secs(5));
        assert!(sim.engine.held().is_some(), "round {round}");
        (0..4).for_each(|tunnel| sim.heal(tunnel));
        run_and_collect(&mut sim, Duration::from_secs(10));
        assert!(sim.engine.held().is_none(), "round {round}");
    }
    assert_eq!(alarms(&sim).len(), 6);
}

#[test]
fn the_wall_clock_s_jump_is_a_sign_and_the_engine_s_own_stop_too() {
    for sign in ["clock-step", "stall"] {
        let mut sim = healthy(Some(HALF));
        if sign == "stall" {
            sim.stall(Duration::from_secs(2));
        } else {
            let later = WallTime(sim.now.as_nanos() + 5_000_000_000);
            sim.command(|engine, now| engine.handle_clock(now, later, Duration::ZERO));
        }
        (0..4).for_each(|tunnel| sim.cut(tunnel));
        run_and_collect(&mut sim, ms(2_400));
        assert!(sim.engine.held().is_some_and(|held| held.reason.contains(sign)), "{sign}: {:?}", sim.engine.held());
    }
}

/// Another configuration with the tunnels in another order.
fn turned() -> Layout {
    Layout {
        tunnels: (0..4).rev().map(tunnel).collect(),
        routes: (0..4).map(route).collect(),
        places: Vec::new(),
        steers: false,
        associations: BTreeMap::new(),
    }
}

#[test]
fn a_reload_lets_no_order_go_that_is_held_or_waits() {
    let mut sim = healthy(Some(HALF));
    sim.cut(0);
    // One alone goes down while there is a sign: its order waits.
    let mut told = Vec::new();
    while down(&sim) == 0 {
        trouble(&mut sim);
        told.extend(run_and_collect(&mut sim, ms(20)));
    }
    sim.reload(turned());
    told.extend(orders(&mut sim));
    assert_eq!(told_to_cost(&told, 1_000_000), [0_u32; 0], "{told:?}");
    // The others follow, under their new numbers: now it is this host that is suspected.
    (0..3).for_each(|tunnel| sim.cut(tunnel));
    for _ in 0..10 {
        trouble(&mut sim);
        told.extend(run_and_collect(&mut sim, ms(300)));
    }
    assert!(sim.engine.held().is_some());
    sim.reload(turned());
    told.extend(run_and_collect(&mut sim, ms(10)));
    assert_eq!(told_to_cost(&told, 1_000_000), [0_u32; 0], "{told:?}");
    // Nobody wants that any more: it ends, and all is passed on.
    sim.engine.set_fail_static(None);
    let told = run_and_collect(&mut sim, Duration::from_secs(2));
    assert_eq!((sim.engine.held(), down(&sim)), (None, 4));
    assert_eq!(told_to_cost(&told, 1_000_000), [0, 1, 2, 3], "{told:?}");
    assert_eq!(alarms(&sim).len(), 2, "begin and end: {:?}", alarms(&sim));
}
