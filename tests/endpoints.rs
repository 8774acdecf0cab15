//! Endpoints in virtual time: rounds, states, what is told, and what they never touch.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod sim;

use std::time::Duration;

use adit::engine::endpoints::{Endpoint, EndpointView, State as Reach};
use adit::engine::event::Kind;
use adit::engine::{Need, State, Time};
use adit::wire::Reject;
use sim::far::Sending;
use sim::hosts::{NEAR, NUMBERS, endpoint};
use sim::{Sim, at_ms, ms, route, tunnel};

const ERP: &str = "10.20.0.5";

/// No tunnel, and these endpoints.
fn alone(endpoints: Vec<Endpoint>) -> Sim {
    let mut sim = Sim::new(Vec::new(), Vec::new(), 5);
    sim.engine.set_endpoints(Time::ZERO, endpoints);
    sim
}

fn erp() -> Sim {
    alone(vec![endpoint("erp", ERP)])
}

fn view(sim: &Sim, name: &str) -> EndpointView {
    let number = sim.engine.find_endpoint(name).unwrap();
    sim.engine.endpoint(sim.now, number).unwrap()
}

/// What was told of endpoints: which, from what, to what, why.
fn told(sim: &Sim) -> Vec<(&str, Reach, Reach, &str)> {
    let events = sim.events.iter().filter_map(|event| {
        let Kind::Endpoint { endpoint, from, to, reason } = &event.kind else { return None };
        Some((endpoint.as_str(), *from, *to, reason.as_str()))
    });
    events.collect()
}

fn probed(sim: &mut Sim, address: &str) -> Vec<Time> {
    sim.host(address).probed.clone()
}

#[test]
fn it_is_unknown_until_the_first_answer_and_then_reachable() {
    for (address, near) in [(ERP, NEAR[0]), ("2001:db8:20::5", NEAR[1])] {
        let mut sim = alone(vec![endpoint("erp", address)]);
        let before = view(&sim, "erp");
        assert_eq!((before.state, before.rtt, before.source), (Reach::Unknown, None, None));
        sim.run_until(at_ms(5_000));
        let after = view(&sim, "erp");
        assert_eq!((after.state, after.reason.as_str()), (Reach::Reachable, "3 of 3 probes were answered"));
        assert_eq!((after.window.samples, after.window.failures, after.loss_ratio), (3, 0, 0.0));
        let rtt = after.rtt.unwrap();
        assert_eq!((rtt.last_us, rtt.min_us, rtt.mean_us), (12_000, 12_000, 12_000));
        assert_eq!(after.source.as_deref(), Some(near), "the kernel chose it");
        assert_eq!(told(&sim), [("erp", Reach::Unknown, Reach::Reachable, "answered after 12.00 ms")]);
    }
}

#[test]
fn a_round_has_so_many_probes_apart_from_each_other_and_comes_once_an_interval() {
    let mut sim = erp();
    sim.run_until(at_ms(6_500_000));
    let probed = probed(&mut sim, ERP);
    let rounds: Vec<&[Time]> = probed.chunks(3).collect();
    assert!((10..=12).contains(&rounds.len()), "{} rounds in 6500 s", rounds.len());
    for round in &rounds {
        assert_eq!((round[1].since(round[0]), round[2].since(round[1])), (ms(200), ms(200)));
    }
    let pauses: Vec<Duration> = rounds.windows(2).map(|pair| pair[1][0].since(pair[0][0])).collect();
    assert!(pauses.iter().all(|pause| pause.abs_diff(ms(600_000)) <= ms(30_000)), "{pauses:?}");
}

#[test]
fn one_lost_probe_is_loss_and_no_end_of_a_path() {
    let mut sim = erp();
    sim.host(ERP).lose_next = 2;
    sim.run_until(at_ms(10_000));
    let view = view(&sim, "erp");
    assert_eq!((view.state, view.window.failures), (Reach::Reachable, 2));
    assert!((view.loss_ratio - 0.6667).abs() < 1e-9);
    assert_eq!(view.last_failure.unwrap().reason, "timeout");
}

#[test]
fn a_round_without_an_answer_is_confirmed_before_anything_is_said() {
    let mut sim = erp();
    sim.run_until(at_ms(10_000));
    sim.host(ERP).lose_next = 4;
    sim.run_until(at_ms(660_000));
    assert_eq!(probed(&mut sim, ERP).len(), 3 + 3 + 2, "two more, and one of them was answered");
    assert_eq!((view(&sim, "erp").state, told(&sim).len()), (Reach::Reachable, 1));
}

#[test]
fn what_does_not_answer_is_unreachable_and_asked_sooner_until_it_does() {
    let mut sim = erp();
    sim.run_until(at_ms(10_000));
    sim.host(ERP).cut = true;
    sim.run_until(at_ms(900_000));
    let expected = ("erp", Reach::Reachable, Reach::Unreachable, "none of 5 probes was answered");
    assert_eq!(told(&sim).last(), Some(&expected));
    let cut = view(&sim, "erp");
    assert_eq!(cut.reason, "none of 3 probes was answered", "of the last round");
    let rounds = (cut.window.failures - 5) / 3;
    assert!((8..=11).contains(&rounds), "{rounds} rounds after the verdict, 30 s apart");
    assert!(cut.rtt.is_some(), "of those before");

    sim.host(ERP).cut = false;
    sim.run_for(ms(33_000));
    assert_eq!(view(&sim, "erp").state, Reach::Reachable);
    assert_eq!(told(&sim).len(), 3);
    let before = probed(&mut sim, ERP).len();
    sim.run_for(ms(500_000));
    assert!(probed(&mut sim, ERP).len() <= before + 2, "once an interval again");
}

#[test]
fn a_window_holds_the_last_hundred_samples() {
    let mut it = endpoint("erp", ERP);
    (it.timing.interval, it.timing.retry_interval) = (ms(2_000), ms(2_000));
    let mut sim = alone(vec![it]);
    sim.host(ERP).lose_next = 1;
    sim.run_until(at_ms(30_000));
    assert_eq!(view(&sim, "erp").window.failures, 1);
    sim.run_until(at_ms(200_000));
    let window = view(&sim, "erp").window;
    assert_eq!((window.samples, window.failures), (100, 0));
}

#[test]
fn law_1_a_probe_of_an_endpoint_settles_once() {
    let mut sim = erp();
    sim.host(ERP).copies = 2;
    sim.run_until(at_ms(2_000));
    let counters = view(&sim, "erp").counters;
    assert_eq!((counters.sent, counters.received, counters.duplicate), (3, 3, 3));
    assert_eq!(sim.rejected(Reject::Duplicate), 3);

    let mut sim = erp();
    sim.host(ERP).rtt = ms(1_300);
    sim.run_until(at_ms(10_000));
    let view = view(&sim, "erp");
    assert_eq!((view.state, view.counters.late, view.counters.received), (Reach::Unreachable, 5, 0));
    assert_eq!(view.window.samples, 5, "what comes late only counts");
}

#[test]
fn law_1_a_forged_answer_only_counts() {
    let mut sim = erp();
    sim.host(ERP).forges = true;
    sim.run_until(at_ms(10_000));
    let forged = view(&sim, "erp");
    assert_eq!((forged.state, forged.counters.forged, forged.counters.received), (Reach::Unreachable, 5, 0));
    assert_eq!((forged.last_reject.unwrap().reason, sim.rejected(Reject::Tag)), ("tag".to_owned(), 5));

    // Nor does the right payload from another address prove anything.
    let mut sim = erp();
    sim.host(ERP).answers_from = Some("10.20.0.6".parse().unwrap());
    sim.run_until(at_ms(10_000));
    let other = view(&sim, "erp");
    assert_eq!((other.state, other.counters.forged, other.source), (Reach::Unreachable, 5, None));
}

#[test]
fn an_answer_that_is_seen_on_its_way_out_of_a_tunnel_too_is_no_refused_one() {
    let mut sim = erp();
    sim.host(ERP).through = Some(["203.0.113.10", "198.51.100.1"]);
    sim.run_for(ms(2_000));
    let erp = view(&sim, "erp");
    assert_eq!((erp.state, erp.counters.received, erp.counters.duplicate), (Reach::Reachable, 3, 0));
    assert_eq!((erp.last_reject, sim.rejected(Reject::WrongPath)), (None, 0));

    // Where nobody unwraps it, that is what people are to see.
    sim.host(ERP).stays_wrapped = true;
    sim.run_for(ms(610_000));
    let erp = view(&sim, "erp");
    assert_eq!((erp.state, erp.last_reject.unwrap().reason), (Reach::Unreachable, "wrong-path".to_owned()));
}

#[test]
fn law_3_what_becomes_of_an_endpoint_moves_no_route_and_judges_no_tunnel() {
    let mut sim = Sim::new(vec![tunnel(0), tunnel(1)], vec![route(0), route(1)], 5);
    sim.engine.set_endpoints(Time::ZERO, vec![endpoint("erp", ERP)]);
    sim.run_until(at_ms(10_000));
    let costs = |sim: &Sim| [0, 1].map(|tunnel| sim.engine.routes().penalty(tunnel));
    let known = view(&sim, "erp");
    let way = known.route.unwrap();
    assert_eq!((way.prefix.as_str(), way.tunnel.as_str(), way.tunnels.len()), ("10.0.0.0/8", "t0", 1));
    while sim.engine.poll_steer().is_some() {}
    let (changes, transitions) = (sim.engine.own_metrics().route_changes, sim.transitions().len());

    for sending in [Sending::Fine, Sending::Refused("Network is unreachable")] {
        (sim.host(ERP).cut, sim.host(ERP).sending) = (true, sending);
        sim.run_for(ms(700_000));
        assert_ne!(view(&sim, "erp").state, Reach::Reachable);
        (sim.host(ERP).cut, sim.host(ERP).sending) = (false, Sending::Fine);
        sim.run_for(ms(60_000));
        assert_eq!(view(&sim, "erp").state, Reach::Reachable);
    }
    assert_eq!(costs(&sim), [0, 0]);
    assert_eq!([0, 1].map(|tunnel| sim.state(tunnel)), [State::Healthy; 2]);
    assert_eq!((sim.engine.own_metrics().route_changes, sim.transitions().len()), (changes, transitions));
    assert_eq!(sim.engine.poll_steer(), None, "the kernel's routes are asked for nothing");

    // It is the other way round: the endpoint shows over which way the routes go.
    sim.cut(0);
    sim.run_for(ms(5_000));
    assert_eq!(view(&sim, "erp").route.unwrap().tunnel, "t1");
}

#[test]
fn law_4_what_cannot_leave_this_host_is_no_verdict_and_says_why() {
    let cases = [
        (Sending::Refused("Network is unreachable"), "not sent: Network is unreachable"),
        (Sending::Refused("Operation not permitted"), "not sent: Operation not permitted"),
        (Sending::LocalFault("No buffer space available"), "not sent: No buffer space available"),
    ];
    for (sending, reason) in cases {
        let mut sim = erp();
        sim.run_until(at_ms(10_000));
        sim.host(ERP).sending = sending;
        sim.run_until(at_ms(900_000));
        let unsent = view(&sim, "erp");
        assert_eq!((unsent.state, unsent.reason.as_str()), (Reach::Unknown, reason));
        assert_eq!((unsent.window.samples, unsent.counters.lost), (3, 0), "no sample");
        assert!(unsent.counters.local_faults > 3 && unsent.counters.sent == 3);
        assert_eq!(unsent.last_failure.unwrap().reason, reason);
        let expected = ("erp", Reach::Reachable, Reach::Unknown, reason);
        assert_eq!((told(&sim).len(), told(&sim).last()), (2, Some(&expected)), "told once");
        sim.host(ERP).sending = Sending::Fine;
        sim.run_for(ms(33_000));
        assert_eq!(view(&sim, "erp").state, Reach::Reachable);
    }
}

#[test]
fn law_4_a_source_that_this_host_does_not_have_is_said() {
    let mut it = endpoint("erp", ERP);
    it.source = Some("10.9.9.9".parse().unwrap());
    let mut sim = alone(vec![it]);
    sim.host(ERP).sending = Sending::LocalFault("Invalid argument");
    sim.run_until(at_ms(5_000));
    let view = view(&sim, "erp");
    let reason = "not sent: Invalid argument (source 10.9.9.9: is it an address of this host?)";
    assert_eq!((view.state, view.reason.as_str()), (Reach::Unknown, reason));
    assert_eq!(told(&sim), [("erp", Reach::Unknown, Reach::Unknown, reason)]);
}

#[test]
fn law_4_a_missing_namespace_is_named_and_what_was_under_way_says_nothing() {
    let mut it = endpoint("erp", ERP);
    (it.namespace, it.netns) = (1, Some("blue".to_owned()));
    let mut sim = alone(vec![it]);
    sim.host(ERP).cut = true;
    let blue = Need::Namespace(1);
    let why = "network namespace blue is missing";
    // While the first probes are waited for.
    sim.run_until(at_ms(1_100));
    assert!(!probed(&mut sim, ERP).is_empty());
    sim.command(|engine, now| engine.handle_missing(now, blue, "network namespace blue", why));
    sim.host(ERP).sending = Sending::Missing;
    sim.run_until(at_ms(60_000));
    let missing = view(&sim, "erp");
    assert_eq!(
        (missing.state, missing.reason.as_str()),
        (Reach::Unknown, "not sent: network namespace blue is missing")
    );
    assert_eq!(missing.window.samples, 0);
    sim.command(|engine, now| engine.handle_found(now, blue));
    (sim.host(ERP).cut, sim.host(ERP).sending) = (false, Sending::Fine);
    sim.run_for(ms(33_000));
    // The answers come to another namespace than they must.
    assert_eq!((view(&sim, "erp").state, sim.rejected(Reject::WrongNamespace) >= 3), (Reach::Unreachable, true));
}

#[test]
fn law_4_an_engine_that_was_stopped_or_deaf_calls_nothing_unreachable() {
    let mut it = endpoint("erp", ERP);
    (it.timing.interval, it.timing.retry_interval) = (ms(5_000), ms(5_000));
    let mut sim = alone(vec![it.clone()]);
    sim.run_until(at_ms(3_000));
    sim.overflowing = true;
    sim.run_for(ms(20_000));
    let deaf = view(&sim, "erp");
    assert_eq!((deaf.state, deaf.counters.lost), (Reach::Reachable, 0));
    assert!(deaf.counters.local_faults > 0);

    // Stopped just after each sending, for longer than the time-out; answers lie in the queue.
    let mut sim = alone(vec![it]);
    sim.host(ERP).rtt = ms(400);
    for _ in 0..20 {
        let sent = probed(&mut sim, ERP).len();
        while probed(&mut sim, ERP).len() == sent {
            sim.step(at_ms(1_000_000));
        }
        sim.stall(ms(3_000));
    }
    assert_eq!((told(&sim).len(), view(&sim, "erp").counters.lost), (1, 0), "reachable, and nothing else");
}

#[test]
fn a_suspended_host_knows_nothing_of_what_was_under_way() {
    let mut sim = erp();
    sim.run_until(at_ms(10_000));
    sim.host(ERP).cut = true;
    let before = probed(&mut sim, ERP).len();
    while probed(&mut sim, ERP).len() == before {
        sim.step(at_ms(1_000_000));
    }
    sim.command(|engine, now| engine.handle_suspend(now, ms(3_600_000)));
    sim.host(ERP).cut = false;
    sim.run_for(ms(60_000));
    assert_eq!((view(&sim, "erp").state, view(&sim, "erp").counters.lost), (Reach::Reachable, 0));
}

#[test]
fn a_reload_lets_what_is_the_same_go_on_and_begins_what_is_new() {
    let both = || vec![endpoint("erp", ERP), endpoint("mail", "10.20.0.25")];
    let mut sim = alone(both());
    sim.run_until(at_ms(10_000));
    let before = view(&sim, "erp");

    // Another order, another interval, one more; and what is under way goes on.
    let mut erp = endpoint("erp", ERP);
    erp.timing.interval = ms(3_600_000);
    let more = vec![endpoint("new", "10.20.0.7"), endpoint("mail", "10.20.0.25"), erp.clone()];
    sim.command(|engine, now| engine.set_endpoints(now, more));
    let after = view(&sim, "erp");
    assert_eq!((after.since, after.window, after.counters), (before.since, before.window, before.counters));
    assert_eq!(view(&sim, "new").state, Reach::Unknown);
    assert_eq!(sim.engine.endpoint_names().collect::<Vec<_>>(), ["new", "mail", "erp"]);
    sim.run_for(ms(5_000));
    assert_eq!(view(&sim, "new").state, Reach::Reachable);
    assert_eq!(view(&sim, "mail").counters.sent, 3);

    // Another address under a name is another endpoint; one that is gone is gone.
    erp.address = "10.20.0.9".parse().unwrap();
    sim.command(|engine, now| engine.set_endpoints(now, vec![erp]));
    assert_eq!((view(&sim, "erp").state, view(&sim, "erp").window.samples), (Reach::Unknown, 0));
    assert_eq!((sim.engine.count_endpoints(), sim.engine.find_endpoint("mail")), (1, None));
    sim.run_for(ms(5_000));
    assert_eq!(view(&sim, "erp").state, Reach::Reachable);
}

#[test]
fn a_reload_while_probes_are_under_way_loses_none_and_a_shorter_interval_holds_at_once() {
    let mut sim = erp();
    sim.host(ERP).rtt = ms(300);
    while probed(&mut sim, ERP).len() < 2 {
        sim.step(at_ms(10_000));
    }
    let mut it = endpoint("erp", ERP);
    it.timing.interval = ms(60_000);
    sim.command(|engine, now| engine.set_endpoints(now, vec![it.clone()]));
    sim.run_for(ms(5_000));
    assert_eq!((view(&sim, "erp").counters.received, view(&sim, "erp").counters.lost), (3, 0));
    it.timing.interval = ms(20_000);
    let before = probed(&mut sim, ERP).len();
    sim.command(|engine, now| engine.set_endpoints(now, vec![it]));
    sim.run_for(ms(3_000));
    assert_eq!(probed(&mut sim, ERP).len(), before + 3);
}

#[test]
fn an_answer_to_an_endpoint_that_is_gone_is_for_nobody() {
    let mut sim = erp();
    sim.host(ERP).rtt = ms(300);
    while probed(&mut sim, ERP).is_empty() {
        sim.step(at_ms(10_000));
    }
    sim.command(|engine, now| engine.set_endpoints(now, Vec::new()));
    sim.run_for(ms(5_000));
    assert_eq!((sim.rejected(Reject::UnknownTunnel), probed(&mut sim, ERP).len()), (1, 1));
}

/// Probes of tunnels leave first, however many endpoints are due.
#[test]
fn endpoints_delay_no_probe_of_a_tunnel() {
    let address = |index: u32| format!("10.20.{}.{}", index / 250, index % 250 + 1);
    let mut sim = Sim::new(vec![tunnel(0)], vec![route(0)], 5);
    let endpoints = (0..4_000).map(|index| endpoint(&format!("e{index}"), &address(index))).collect();
    sim.engine.set_endpoints(Time::ZERO, endpoints);
    sim.run_until(at_ms(30_000));
    let turns: Vec<Time> = sim.sent.iter().filter(|sent| sent.tunnel == 0).map(|sent| sent.at).collect();
    assert!(turns.len() >= 30, "{} probes in 30 s", turns.len());
    assert!(turns.windows(2).all(|pair| pair[1].since(pair[0]) <= ms(1_071)), "{turns:?}");
    let (views, rest) = sim.engine.endpoints_from(sim.now, 0, 5_000);
    assert_eq!((views.len(), rest), (4_000, None));
    assert!(views.iter().all(|view| view.state == Reach::Reachable));
}

/// What a thousand of them cost: wake-ups only where a probe leaves or is waited for, and none meanwhile.
#[test]
fn a_thousand_endpoints_wake_nobody_between_their_rounds() {
    let address = |index: u32| format!("10.20.{}.{}", index / 250, index % 250 + 1);
    let mut sim = alone((0..1_000).map(|index| endpoint(&format!("e{index}"), &address(index))).collect());
    sim.run_until(at_ms(60_000));
    let wakeup = sim.engine.next_wakeup(sim.now).unwrap();
    assert!(wakeup > at_ms(500_000), "nothing is to be done until {wakeup}");
    let sent: usize = sim.hosts.values().map(|host| host.probed.len()).sum();
    assert_eq!(sent, 3_000);
}

#[test]
fn numbers_of_endpoints_are_nobody_elses() {
    let mut sim = Sim::new(vec![tunnel(0)], vec![route(0)], 5);
    sim.engine.set_endpoints(Time::ZERO, vec![endpoint("erp", ERP)]);
    let number = sim.engine.find_endpoint("erp").unwrap();
    assert!((NUMBERS..1 << 31).contains(&number));
    assert_eq!(sim.engine.endpoint(Time::ZERO, 0), None);
}
