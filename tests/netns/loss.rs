//! What goes missing, comes late, twice, broken or out of order.

use std::fs::File;

use adit::engine::{State, Tunnel};
use adit::reflect::plan::Fault;
use adit::wire::Reject;

use crate::by_hand::{firewall, no_firewall};
use crate::kit::{ALL, REPLY, REQUEST, REQUEST_BARE, Scene, ms, patient, share, tunnel};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("loss::one_way_out", || goes_down_and_comes_back(&["far"])).with_nft(),
        case("loss::one_way_back", || goes_down_and_comes_back(&["near"])).with_nft(),
        case("loss::both_ways", || goes_down_and_comes_back(&["near", "far"])).with_nft(),
        case("loss::of_a_third_is_degraded_and_never_healthy", a_third_is_degraded_and_never_healthy).with_nft(),
        case("loss::a_dead_tunnel_beside_a_live_one", a_dead_tunnel_beside_a_live_one),
        case("loss::the_whole_cycle_in_order", the_whole_cycle_in_order),
        case("loss::flapping_makes_few_transitions", flapping_makes_few_transitions),
        case("loss::faster_flapping_makes_fewer", faster_flapping_makes_fewer),
        case("loss::late_answers_are_failures_and_counted", late_answers_are_failures_and_counted),
        case("loss::duplicates_count_once", duplicates_count_once),
        case("loss::reordering_within_the_deadline_is_no_loss", reordering_within_the_deadline_is_no_loss),
        case("loss::corrupted_answers_are_none", corrupted_answers_are_none),
    ]
}

/// Three tunnels: one whose answers come back bare.
fn three() -> [Tunnel; 3] {
    let mut tunnels = [tunnel("request", REQUEST), tunnel("reply", REPLY), tunnel("bare", REQUEST_BARE)];
    for (key, tunnel) in (1..).zip(&mut tunnels) {
        tunnel.onion.encapsulation = adit::wire::gre::Options::keyed(key).into();
    }
    tunnels
}

fn goes_down_and_comes_back(places: &[&str]) {
    let tunnels = three();
    let scene = Scene::healthy(&tunnels);
    let place = |name: &str| -> &File { if name == "far" { &scene.pair.far } else { &scene.pair.near } };
    // What an endpoint receives, before any raw socket is given it.
    let rules = "meta l4proto gre drop\nmeta l4proto icmp drop";
    places.iter().for_each(|name| firewall(place(name), "input", rules));
    tunnels.iter().for_each(|tunnel| scene.prober.await_state(&tunnel.name, State::Down));
    for tunnel in &tunnels {
        let view = scene.prober.view(&tunnel.name);
        assert_eq!(view.last_failure.unwrap().reason, "timeout");
    }
    places.iter().for_each(|name| no_firewall(place(name)));
    tunnels.iter().for_each(|tunnel| scene.prober.await_state(&tunnel.name, State::Healthy));
}

fn a_third_is_degraded_and_never_healthy() {
    let mut tunnel = tunnel("t", REQUEST);
    // As in the field: one clean second proves nothing.
    tunnel.check.rules.degraded_window = ms(60_000);
    tunnel.check.rules.recovery_samples = 30;
    tunnel.check.rules.down_window = ms(1_500);
    let scene = Scene::healthy(&[tunnel]);
    firewall(&scene.pair.far, "input", "meta l4proto gre numgen random mod 100 < 30 drop");
    scene.prober.await_state("t", State::Degraded);
    scene.prober.await_samples("t", 80);
    let entered = scene.prober.entered("t");
    assert_eq!(entered.iter().filter(|&&state| state == State::Healthy).count(), 1, "{entered:?}");
    let view = scene.prober.view("t");
    assert!(view.window.failures > 5 && view.window.loss_ratio < 0.7, "{view:#?}");
}

fn a_dead_tunnel_beside_a_live_one() {
    let [mut dead, mut live, _] = three();
    (dead.check, live.check) = (crate::kit::hasty(), patient());
    let scene = Scene::healthy(&[dead, live]);
    scene.far.suffer(vec![Fault::cut("request")]);
    scene.prober.await_state("request", State::Down);
    scene.prober.await_samples("reply", 10);
    assert_eq!(scene.prober.entered("reply"), [State::Healthy]);
}

fn the_whole_cycle_in_order() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST)]);
    scene.far.cut();
    scene.prober.await_state("t", State::Down);
    scene.far.heal();
    scene.prober.await_state("t", State::Healthy);
    let mut entered = scene.prober.entered("t");
    entered.dedup();
    let expected = [State::Healthy, State::Degraded, State::Down, State::Degraded, State::Healthy];
    assert!(is_within(&expected, &entered), "{entered:?}");
    assert!(!entered.windows(2).any(|two| two == [State::Down, State::Healthy]), "never at once: {entered:?}");
}

/// Whether one sequence is the other with some left out.
fn is_within(part: &[State], whole: &[State]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|state| whole.any(|other| other == state))
}

/// A square wave that is slow enough for each half to be noticed.
fn flapping_makes_few_transitions() {
    const CYCLES: usize = 4;
    let mut tunnel = tunnel("t", REQUEST);
    tunnel.check.rules.degraded_window = ms(60_000);
    let scene = Scene::healthy(&[tunnel]);
    for _ in 0..CYCLES {
        scene.far.cut();
        scene.prober.await_state("t", State::Down);
        scene.far.heal();
        scene.prober.await_state("t", State::Degraded);
    }
    let entered = scene.prober.entered("t");
    // Once healthy at the start, once degraded at the first failures, then two a cycle.
    assert_eq!(entered.len(), 2 + 2 * CYCLES, "{entered:?}");
}

/// A square wave that is faster than the short window: nothing but degraded.
fn faster_flapping_makes_fewer() {
    let mut tunnel = tunnel("t", REQUEST);
    tunnel.check.rules.degraded_window = ms(60_000);
    tunnel.check.rules.down_window = ms(6_000);
    let scene = Scene::healthy(&[tunnel]);
    let cut = |cycle: u64| Fault { after: ms(400 * cycle), lasts: Some(ms(200)), drop: share(ALL), ..Fault::default() };
    scene.far.suffer((0..100).map(cut).collect());
    scene.prober.await_samples("t", 60);
    assert_eq!(scene.prober.entered("t"), [State::Healthy, State::Degraded]);
}

fn late_answers_are_failures_and_counted() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST)]);
    scene.far.suffer(vec![Fault { delay: ms(700), ..Fault::default() }]);
    scene.prober.await_state("t", State::Down);
    let view = scene.prober.await_view("t", "late answers", |view| view.counters.late > 10);
    assert_eq!(scene.prober.rejects(Reject::Late), view.counters.late);
    assert_eq!(scene.prober.view("t").state, State::Down, "late answers are no way back");
    scene.far.heal();
    scene.prober.await_state("t", State::Degraded);
}

fn duplicates_count_once() {
    let mut tunnel = tunnel("t", REQUEST);
    tunnel.check = patient();
    let scene = Scene::healthy(&[tunnel]);
    scene.far.suffer(vec![Fault { duplicate: share(ALL), ..Fault::default() }]);
    let view = scene.prober.await_view("t", "duplicates", |view| view.counters.duplicate >= 30);
    let counted = view.counters;
    assert!(counted.received <= counted.sent && counted.duplicate <= counted.received, "{counted:?}");
    assert_eq!(counted.received, view.window.samples, "a duplicate is no sample");
    assert_eq!((counted.lost, counted.late, counted.forged), (0, 0, 0));
    assert_eq!(scene.prober.entered("t"), [State::Healthy]);
}

fn reordering_within_the_deadline_is_no_loss() {
    let mut tunnel = tunnel("t", REQUEST);
    tunnel.check = patient();
    tunnel.check.interval = ms(20);
    let scene = Scene::healthy(&[tunnel]);
    // Half of the answers are overtaken by several of the others.
    scene.far.suffer(vec![Fault { jitter: ms(300), delayed: share(ALL / 2), ..Fault::default() }]);
    scene.prober.await_samples("t", 200);
    let view = scene.prober.view("t");
    assert_eq!((view.counters.lost, view.counters.duplicate, view.counters.late), (0, 0, 0), "{view:#?}");
    assert!(view.rtt.unwrap().p99_us > 100_000, "the jitter was there");
    assert_eq!(scene.prober.entered("t"), [State::Healthy]);
}

fn corrupted_answers_are_none() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST)]);
    scene.far.suffer(vec![Fault { corrupt: share(ALL), ..Fault::default() }]);
    scene.prober.await_state("t", State::Down);
    let received = scene.prober.view("t").counters.received;
    scene.prober.await_view("t", "forged answers", |view| view.counters.forged > 30);
    let view = scene.prober.view("t");
    assert_eq!((view.state, view.counters.received), (State::Down, received), "each bit that is flipped is noticed");
    scene.far.heal();
    scene.prober.await_state("t", State::Degraded);
}
