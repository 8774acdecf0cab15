//! Namespaces and devices that are missing, come and go: what that means for the probes that need them.

mod sim;

use adit::engine::event::Kind;
use adit::engine::{Need, State, Unsent};
use sim::far::Sending;
use sim::{Sim, at_ms, ms, tunnel};

const BLUE: Need = Need::Namespace(1);

/// One tunnel in the namespace 0 by the egress 0, one in the namespace 1 by the egress 1.
fn apart() -> Sim {
    let mut other = tunnel(1);
    (other.namespace, other.egress) = (1, 1);
    Sim::recording(vec![tunnel(0), other], Vec::new(), 7, true)
}

fn lose(sim: &mut Sim, need: Need, why: &str) {
    let name = why.split(" is ").next().unwrap_or_default().to_owned();
    sim.command(|engine, now| engine.handle_missing(now, need, &name, why));
}

fn find(sim: &mut Sim, need: Need) {
    sim.command(|engine, now| engine.handle_found(now, need));
}

/// What was told of them, in order.
fn told(sim: &Sim) -> Vec<(&str, Option<&str>)> {
    let needs = sim.events.iter().filter_map(|event| {
        let Kind::Need { need, reason } = &event.kind else { return None };
        Some((need.as_str(), reason.as_deref()))
    });
    needs.collect()
}

#[test]
fn a_tunnel_whose_namespace_is_missing_is_down_by_rule_1_and_says_why() {
    let mut sim = apart();
    lose(&mut sim, BLUE, "network namespace blue is missing");
    sim.far[1].sending = Sending::Missing;
    sim.run_until(at_ms(5_000));
    let view = sim.view(1);
    assert_eq!((view.state, view.counters.received, view.counters.sent), (State::Down, 0, 0));
    assert!(view.reason.starts_with("rule 1"), "{}", view.reason);
    assert_eq!(view.last_failure.unwrap().reason, "not sent: network namespace blue is missing");
    assert_eq!(sim.state(0), State::Healthy, "the other one is elsewhere");

    find(&mut sim, BLUE);
    sim.far[1].sending = Sending::Fine;
    sim.run_to(1, State::Degraded, ms(5_000));
    let last = sim.view(1).last_failure.unwrap().reason;
    assert_eq!(last, "not sent: network namespace blue is missing", "what was is still known");
    let expected =
        [("network namespace blue", Some("network namespace blue is missing")), ("network namespace blue", None)];
    assert_eq!(told(&sim), expected);
}

#[test]
fn the_namespace_is_named_before_the_device_in_it() {
    let mut sim = apart();
    sim.far[1].sending = Sending::Missing;
    lose(&mut sim, Need::Egress(1), "device tun9 is missing");
    lose(&mut sim, Need::Egress(0), "device tun0 is missing");
    sim.run_until(at_ms(2_000));
    let reason = |sim: &mut Sim| sim.view(1).last_failure.unwrap().reason;
    assert_eq!(reason(&mut sim), "not sent: device tun9 is missing");
    lose(&mut sim, BLUE, "network namespace blue is missing");
    sim.run_for(ms(2_000));
    assert_eq!(reason(&mut sim), "not sent: network namespace blue is missing");
    find(&mut sim, BLUE);
    sim.run_for(ms(2_000));
    assert_eq!(reason(&mut sim), "not sent: device tun9 is missing");
}

#[test]
fn each_change_is_told_once() {
    let mut sim = apart();
    find(&mut sim, BLUE);
    assert_eq!(told(&sim), [], "it was never missing");
    for why in ["blue is missing", "blue is missing", "blue is not ours", "blue is not ours"] {
        lose(&mut sim, BLUE, why);
    }
    find(&mut sim, BLUE);
    find(&mut sim, BLUE);
    lose(&mut sim, BLUE, "blue is not ours");
    let reasons: Vec<_> = told(&sim).into_iter().map(|(_, reason)| reason).collect();
    let expected = [Some("blue is missing"), Some("blue is not ours"), None, Some("blue is not ours")];
    assert_eq!(reasons, expected);
}

/// Their sockets are closed: whether answers would have come, nobody knows.
#[test]
fn law_4_what_was_in_flight_when_a_namespace_went_is_no_sample() {
    let mut sim = apart();
    sim.far.iter_mut().for_each(|far| far.rtt = ms(450));
    sim.run_to(0, State::Healthy, ms(5_000));
    sim.run_to(1, State::Healthy, ms(5_000));
    // Until a probe of each is in flight.
    let in_flight = |sim: &mut Sim| {
        (0..2).all(|tunnel| {
            let counters = sim.view(tunnel).counters;
            counters.sent > counters.received
        })
    };
    while !in_flight(&mut sim) {
        assert!(sim.now < at_ms(20_000), "they are never in flight together");
        sim.step(at_ms(20_000));
    }
    let before = [0, 1].map(|tunnel| sim.view(tunnel).counters);
    lose(&mut sim, BLUE, "network namespace blue was deleted, and there is another one of that name");
    find(&mut sim, BLUE);
    let after = [0, 1].map(|tunnel| sim.view(tunnel).counters);
    assert_eq!(after[0], before[0], "the other namespace is as it was");
    assert_eq!(after[1].local_faults, before[1].local_faults + before[1].sent - before[1].received);
    assert_eq!(after[1].lost, 0);
    let inconclusive = sim.events.iter().filter(|event| matches!(event.kind, Kind::Sample { inconclusive: true, .. }));
    assert_eq!(inconclusive.count() as u64, after[1].local_faults);
    // An answer that comes all the same is late, and moves nothing.
    sim.run_for(ms(20_000));
    for tunnel in 0..2 {
        assert_eq!(sim.view(tunnel).counters.lost, 0);
        assert_eq!(sim.state(tunnel), State::Healthy);
    }
    assert!(sim.view(1).counters.late > 0);
}

#[test]
fn a_burst_that_a_namespace_took_with_it_does_not_stop_the_next_one() {
    let mut sim = apart();
    sim.run_to(1, State::Healthy, ms(5_000));
    sim.cut(1);
    // A failure, and its two confirming probes are in flight.
    while sim.view(1).counters.sent < sim.view(1).counters.received + sim.view(1).counters.lost + 3 {
        assert!(sim.now < at_ms(20_000), "no failure asks for a burst");
        sim.step(at_ms(20_000));
    }
    lose(&mut sim, BLUE, "blue is missing");
    find(&mut sim, BLUE);
    sim.run_to(1, State::Down, ms(5_000));
    sim.heal(1);
    sim.run_to(1, State::Degraded, ms(5_000));
}

#[test]
fn what_nobody_has_named_is_a_failure_all_the_same() {
    let mut sim = apart();
    sim.far[1].sending = Sending::Missing;
    sim.run_to(1, State::Down, ms(5_000));
    assert_eq!(sim.view(1).last_failure.unwrap().reason, "not sent: what it leaves by is missing");
    sim.command(|engine, now| engine.handle_unsent(now, 99, 0, Unsent::Missing));
}
