//! Drains that end by themselves, under virtual time and a wall clock that is set back and forth.

#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on must fail")]

mod sim;

use std::collections::BTreeMap;
use std::time::Duration;

use adit::engine::drain::Reason;
use adit::engine::event::{Event, Kind as Told};
use adit::engine::health::State;
use adit::engine::memory::{Kind, Memory, decode};
use adit::engine::{Drain, Layout, Order, Steer, Time, Tunnel, WallTime};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use sim::{Sim, ms, route, tunnel};

const START: Time = Time::from_nanos(1_000_000_000_000);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// What the wall clock shows so long after [`START`], unless it is set.
fn at(count: u64) -> WallTime {
    WallTime((1_800_000_000 + count) * 1_000_000_000)
}

fn until(end: u64) -> Order {
    Order { level: Drain::Down, until: Some(at(end)), reason: Reason::new("line card").ok(), by: Some(1_000) }
}

fn sim_at(now: Time, tunnels: Vec<Tunnel>) -> Sim {
    let routes = (0..u32::try_from(tunnels.len()).unwrap()).map(route).collect();
    Sim::starting(now, tunnels, routes, 7, false)
}

/// Two healthy tunnels, ten seconds after [`START`].
fn two() -> Sim {
    let mut sim = sim_at(START, (0..2).map(tunnel).collect());
    sim.engine.set_wall(START, at(0));
    sim.run_until(START + seconds(10));
    assert_eq!([0, 1].map(|tunnel| sim.state(tunnel)), [State::Healthy; 2]);
    sim
}

fn memory(sim: &Sim) -> Memory {
    let states = sim.engine.written(Kind::States, sim.now, false);
    Memory { states: Some(decode(Kind::States, &states.bytes).unwrap()), windows: None }
}

/// Another run that begins then.
fn restarted(sim: &Sim, now: Time, wall: WallTime, tunnels: Vec<Tunnel>) -> Sim {
    let mut next = sim_at(now, tunnels);
    next.gaps_allowed = true;
    next.engine.set_wall(now, wall);
    next.engine.remember(now, wall, memory(sim));
    next
}

fn drains(sim: &Sim) -> Vec<&Event> {
    sim.events.iter().filter(|event| matches!(event.kind, Told::Drain { .. })).collect()
}

fn set_clock(sim: &mut Sim, wall: WallTime) {
    sim.command(|engine, now| engine.set_wall(now, wall));
}

#[test]
fn law_5_a_drain_ends_by_itself_and_traffic_comes_back() {
    let mut sim = two();
    sim.command(|engine, now| engine.drain(now, 0, until(70)));
    let view = sim.view(0);
    assert_eq!((view.drained, view.penalty, view.state), (true, 1_000_000, State::Healthy));
    assert_eq!(
        serde_json::to_value(view.drain).unwrap(),
        serde_json::json!({
            "as": "down", "since": at(10), "until": at(70), "reason": "line card", "by": 1_000
        })
    );
    assert_eq!(sim.engine.explain(sim.now, 0).unwrap().drain.unwrap().order, until(70));
    sim.run_until(START + seconds(70));
    assert!(sim.view(0).drained, "not a moment too soon");
    sim.run_until(START + seconds(71));
    let view = sim.view(0);
    assert_eq!((view.drained, view.drain, view.penalty), (false, None, 0));
    let told = drains(&sim);
    assert_eq!(told.iter().map(|event| event.at).collect::<Vec<_>>(), [at(10), at(70)]);
    assert_eq!(
        serde_json::to_value(told[1]).unwrap(),
        serde_json::json!({
            "id": told[1].id, "at": at(70), "kind": "drain", "tunnel": "t0", "drained": false, "penalty": 0,
            "reason": "its time is over"
        })
    );
    let moves = sim.events.iter().filter_map(|event| {
        let Told::Route { to, .. } = &event.kind else { return None };
        Some(to.join(","))
    });
    assert_eq!(moves.collect::<Vec<_>>(), ["t1", "t0"]);
    let states = sim.events.iter().filter(|event| matches!(event.kind, Told::Transition { .. }));
    assert!(states.clone().count() == 2 && states.clone().all(|event| event.at < at(10)), "no state moves");
}

#[test]
fn a_new_drain_takes_the_place_of_the_old_one() {
    let mut sim = two();
    sim.command(|engine, now| engine.drain(now, 0, until(30)));
    // The same, by somebody else, is nothing new.
    sim.command(|engine, now| engine.drain(now, 0, Order { by: Some(0), ..until(30) }));
    assert_eq!(drains(&sim).len(), 1);
    sim.command(|engine, now| engine.drain(now, 0, Order { reason: None, ..until(60) }));
    sim.run_until(START + seconds(40));
    assert_eq!(sim.view(0).drain.unwrap().order, Order { reason: None, ..until(60) });
    // One without an end.
    sim.command(|engine, now| engine.set_drain(now, 0, Some(Drain::Degraded)));
    sim.run_until(START + seconds(100));
    assert_eq!(sim.view(0).penalty, 500_000);
    sim.command(|engine, now| engine.drain(now, 0, until(200)));
    sim.command(|engine, now| engine.undrain(now, 0, Some(7)));
    let Told::Drain { drained: false, by: Some(7), reason: None, .. } = drains(&sim).last().unwrap().kind else {
        panic!("{:?}", drains(&sim));
    };
    let told = drains(&sim).len();
    sim.run_until(START + seconds(300));
    assert_eq!(drains(&sim).len(), told, "what has been ended does not end once more");
}

#[test]
fn law_7_a_drain_ends_at_its_time_though_the_daemon_was_started_again_meanwhile() {
    let mut before = two();
    before.command(|engine, now| engine.drain(now, 0, until(70)));
    // This run's own clock begins somewhere else.
    let begin = Time::from_nanos(5_000_000_000);
    let mut after = restarted(&before, begin, at(40), before.tunnels.clone());
    let drain = after.view(0).drain.unwrap();
    assert_eq!((drain.order, drain.since), (until(70), at(10)));
    after.run_until(begin + seconds(30));
    assert!(after.view(0).drained);
    after.run_until(begin + seconds(31));
    assert!(!after.view(0).drained);
    assert_eq!(drains(&after)[0].at, at(70));
}

#[test]
fn law_7_a_drain_whose_time_is_over_when_the_daemon_starts_ends_then() {
    let mut before = two();
    before.command(|engine, now| engine.drain(now, 0, until(70)));
    let now = START + seconds(500);
    // It goes another way now, so nothing is known of it but the drain: its routes are to come back all the same.
    let mut tunnels = before.tunnels.clone();
    tunnels[0].onion = tunnel(9).onion;
    let mut after = restarted(&before, now, at(500), tunnels);
    after.run_until(now + ms(1));
    assert_eq!((after.view(0).drained, after.state(0)), (false, State::Unknown));
    assert_eq!(drains(&after).len(), 1);
    let costs: Vec<_> = std::iter::from_fn(|| after.engine.poll_steer()).collect();
    assert!(costs.contains(&Steer { tunnel: 0, penalty: Some(0) }), "{costs:?}");
}

#[test]
fn a_clock_that_is_set_ahead_past_the_end_ends_it_and_no_clock_begins_it_again() {
    let mut sim = two();
    sim.command(|engine, now| engine.drain(now, 0, until(3_600)));
    set_clock(&mut sim, at(3_599));
    sim.run_for(ms(500));
    assert!(sim.view(0).drained);
    sim.run_for(ms(600));
    assert!(!sim.view(0).drained);
    set_clock(&mut sim, at(0));
    sim.run_for(seconds(10_000));
    assert!(!sim.view(0).drained);
    assert_eq!(drains(&sim).len(), 2);
}

#[test]
fn a_clock_that_is_set_back_makes_it_longer() {
    let mut sim = two();
    sim.command(|engine, now| engine.drain(now, 0, until(70)));
    sim.run_until(START + seconds(69));
    set_clock(&mut sim, at(9));
    sim.run_for(seconds(60));
    assert!(sim.view(0).drained);
    sim.run_for(seconds(2));
    assert!(!sim.view(0).drained);
    assert_eq!(drains(&sim).last().unwrap().at, at(70));
}

#[test]
fn a_reload_takes_the_end_along_with_the_name() {
    let mut sim = sim_at(START, (0..3).map(tunnel).collect());
    sim.engine.set_wall(START, at(0));
    sim.run_until(START + seconds(10));
    for index in 0..2 {
        sim.command(|engine, now| engine.drain(now, index, until(70)));
    }
    // The first one is gone, and the second one in another place.
    let layout = Layout {
        tunnels: vec![tunnel(2), tunnel(1)],
        routes: vec![route(0), route(1)],
        places: Vec::new(),
        steers: false,
        associations: BTreeMap::new(),
    };
    sim.reload(layout);
    sim.run_until(START + seconds(80));
    let told = drains(&sim).split_off(2);
    let Told::Drain { tunnel, drained: false, .. } = &told[0].kind else { panic!("{told:?}") };
    assert_eq!((tunnel.as_str(), told.len()), ("t1", 1));
}

/// A tunnel that is probed once in ten seconds, so that time passes quickly.
fn calm(index: u32) -> Tunnel {
    let mut calm = tunnel(index);
    calm.check.interval = seconds(10);
    calm
}

/// What happens to three tunnels.
#[derive(Debug, Clone)]
enum Step {
    Drain {
        tunnel: u32,
        down: bool,
        ahead: Option<u64>,
    },
    Undrain(u32),
    Pass(u64),
    /// The wall clock is set to so many seconds after the start.
    Set(u64),
    /// It shows so much then, and the tunnels come in another order.
    Restart(u64, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let drain = (0..3_u32, any::<bool>(), prop::option::of(0..200_u64));
    let drain = drain.prop_map(|(tunnel, down, ahead)| Step::Drain { tunnel, down, ahead });
    let step = prop_oneof![
        4 => drain,
        1 => (0..3_u32).prop_map(Step::Undrain),
        4 => (1..100_u64).prop_map(Step::Pass),
        1 => (0..2_000_u64).prop_map(Step::Set),
        1 => (0..2_000_u64, any::<bool>()).prop_map(|(wall, turned)| Step::Restart(wall, turned)),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(Config { rng_seed: RngSeed::Fixed(0x0D2A), cases: 100, failure_persistence: None, ..Config::default() })]

    /// Of a plain model: a tunnel is drained until the wall clock shows the end of what was asked for last.
    #[test]
    fn law_5_a_tunnel_is_drained_as_was_asked_for_last_until_the_clock_shows_its_end(steps in steps()) {
        let mut sim = two();
        let mut model: BTreeMap<String, (Drain, Option<WallTime>)> = BTreeMap::new();
        sim = restarted(&sim, sim.now, at(10), (0..3).map(calm).collect());
        let mut offset = i128::from(at(10).0) - i128::from(sim.now.as_nanos());
        let mut shown = at(10);
        for step in steps {
            let name = |sim: &Sim, index: u32| sim.tunnels[index as usize].name.clone();
            match step {
                Step::Drain { tunnel, down, ahead } => {
                    let level = if down { Drain::Down } else { Drain::Degraded };
                    let until = ahead.map(|ahead| WallTime(shown.0 + 1_000_000_000 * ahead));
                    sim.command(|engine, now| engine.drain(now, tunnel, Order { until, ..level.into() }));
                    model.insert(name(&sim, tunnel), (level, until));
                }
                Step::Undrain(tunnel) => {
                    sim.command(|engine, now| engine.undrain(now, tunnel, None));
                    model.remove(&name(&sim, tunnel));
                }
                Step::Pass(span) => sim.run_for(seconds(span)),
                Step::Set(wall) => {
                    set_clock(&mut sim, at(wall));
                    offset = i128::from(at(wall).0) - i128::from(sim.now.as_nanos());
                }
                Step::Restart(wall, turned) => {
                    let mut tunnels = sim.tunnels.clone();
                    if turned {
                        tunnels.rotate_left(1);
                    }
                    let now = sim.now + ms(1);
                    sim = restarted(&sim, now, at(wall), tunnels);
                    offset = i128::from(at(wall).0) - i128::from(now.as_nanos());
                }
            }
            // A turn, so that what is over ends.
            sim.run_for(ms(1));
            shown = WallTime(u64::try_from(i128::from(sim.now.as_nanos()) + offset).unwrap());
            model.retain(|_, (_, until)| until.is_none_or(|until| until.0 > shown.0 - 1_000_000));
            for index in 0..3 {
                let view = sim.view(index);
                let drained = view.drain.map(|drain| (drain.order.level, drain.order.until));
                // At the edge of a turn it may be either.
                let edge = drained.and_then(|(_, until)| until).is_some_and(|until| until.0 <= shown.0);
                prop_assert!(edge || drained == model.get(&view.name).copied(), "{}: {drained:?}", view.name);
            }
        }
    }
}
