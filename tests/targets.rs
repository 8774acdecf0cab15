//! Several targets of one tunnel: a round of probes is one sample, by a quorum of answers. Under virtual time.

mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use adit::engine::event::Kind as Told;
use adit::engine::health::{Health, Rules, State};
use adit::engine::memory::{Kind, Memory, decode};
use adit::engine::settings::Timeout;
use adit::engine::window::Outcome;
use adit::engine::{Layout, Reloaded, TargetView, Targets, Time, Tunnel, WallTime};
use adit::wire::{Reject, gre};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use sim::far::{Sending, answer_of, decapsulate, encapsulate};
use sim::{Sim, ms, route, tunnel};

fn address(last: u8) -> IpAddr {
    match last {
        1 => tunnel(0).onion.inner.far(),
        last => IpAddr::from([192, 0, 2, last]),
    }
}

/// A tunnel with three targets.
fn three(quorum: usize) -> Tunnel {
    let targets = Some(Targets { further: vec![address(2), address(3)], quorum });
    Tunnel { targets, ..tunnel(0) }
}

fn sim(tunnel: Tunnel) -> Sim {
    let mut sim = Sim::recording(vec![tunnel], vec![route(0)], 7, true);
    sim.gaps_allowed = true;
    sim
}

fn silence(sim: &mut Sim, targets: &[u8]) {
    sim.far[0].silent = targets.iter().map(|&last| address(last)).collect();
}

fn targets(sim: &mut Sim) -> Vec<TargetView> {
    sim.view(0).targets
}

fn layout(tunnel: Tunnel) -> Layout {
    Layout {
        tunnels: vec![tunnel],
        routes: vec![route(0)],
        places: Vec::new(),
        steers: false,
        associations: BTreeMap::new(),
    }
}

/// Samples that were recorded: when, and success, failure or neither.
fn samples(sim: &Sim) -> Vec<(Time, Option<bool>, Option<u64>)> {
    let all = sim.events.iter().filter_map(|event| {
        let Told::Sample { t, ok, rtt_us, .. } = event.kind else { return None };
        Some((t, ok, rtt_us))
    });
    all.collect()
}

/// The rounds that were sent.
fn rounds(sim: &Sim) -> BTreeSet<u64> {
    sim.sent.iter().map(|sent| sent.sequence / 3).collect()
}

#[test]
fn a_round_is_a_probe_to_each_target_and_one_sample() {
    let mut sim = sim(three(2));
    sim.run_for(Duration::from_secs(60));
    // The last round may be under way.
    let (rounds, samples) = (rounds(&sim).len(), samples(&sim).len());
    assert!(samples > 55 && (samples..=samples + 1).contains(&rounds), "{rounds} rounds, {samples} samples");
    assert_eq!(sim.sent.len(), 3 * rounds, "to each target");
    assert_eq!((sim.state(0), sim.view(0).quorum), (State::Healthy, Some(2)));
    let at_once = sim.sent.chunks(3).all(|round| round.iter().all(|sent| sent.at == round[0].at));
    assert!(at_once, "all of a round leave together");
    let seen = targets(&mut sim);
    assert_eq!(seen.iter().map(|view| view.target).collect::<Vec<_>>(), [1, 2, 3].map(address));
    let samples = samples as u64;
    assert!(
        seen.iter().all(|view| view.lost == 0 && view.answered == samples && view.rtt_us == Some(10_000)),
        "{seen:?}"
    );
    let counters = sim.view(0).counters;
    assert_eq!((counters.received, counters.lost, counters.duplicate), (3 * samples, 0, 0));
    assert!(sim.engine.explain(sim.now, 0).unwrap().targets.len() == 3);
}

#[test]
fn one_target_that_is_dead_for_ever_is_no_failure_where_two_of_three_suffice() {
    let mut sim = sim(three(2));
    silence(&mut sim, &[3]);
    sim.run_for(Duration::from_secs(600));
    assert_eq!(sim.state(0), State::Healthy);
    assert!(samples(&sim).iter().all(|(_, ok, _)| *ok == Some(true)));
    let (seen, counters) = (targets(&mut sim), sim.view(0).counters);
    assert!(seen[2].answered == 0 && seen[2].lost > 590 && seen[2].lost_in_a_row == seen[2].lost, "{seen:?}");
    assert!(seen[0].lost == 0 && seen[0].answered > 590, "{seen:?}");
    assert_eq!((counters.lost, sim.view(0).last_failure), (seen[2].lost, None));
    let judged = sim.view(0).samples;
    assert_eq!((judged.success, judged.failure), (samples(&sim).len() as u64, 0), "no loss for whoever counts samples");
    // It is silent no more.
    silence(&mut sim, &[]);
    sim.run_for(Duration::from_secs(3));
    assert_eq!(targets(&mut sim)[2].lost_in_a_row, 0);
}

#[test]
fn two_that_are_dead_take_the_tunnel_down_and_are_named() {
    let mut sim = sim(three(2));
    sim.run_for(Duration::from_secs(60));
    silence(&mut sim, &[2, 3]);
    let begun = sim.now;
    let down = sim.run_to(0, State::Down, Duration::from_secs(5));
    assert!(down.since(begun) < ms(2_100), "confirming rounds leave at once: {:?}", down.since(begun));
    let view = sim.view(0);
    assert_eq!(view.last_failure.unwrap().reason, "2 of 3 targets silent: 192.0.2.2, 192.0.2.3");
    assert_eq!(view.window.failures, 3, "as many as rounds");
    assert_eq!(view.samples.failure, 3, "likewise");
    silence(&mut sim, &[3]);
    sim.run_to(0, State::Degraded, Duration::from_secs(5));
    sim.run_to(0, State::Healthy, Duration::from_secs(400));
}

#[test]
fn the_quorum_says_how_many() {
    for (quorum, silent, state) in [
        (1, &[1, 2][..], State::Healthy),
        (1, &[1, 2, 3], State::Down),
        (2, &[1], State::Healthy),
        (2, &[1, 3], State::Down),
        (3, &[], State::Healthy),
        (3, &[2], State::Down),
    ] {
        let mut sim = sim(three(quorum));
        silence(&mut sim, silent);
        sim.run_for(Duration::from_secs(20));
        assert_eq!(sim.state(0), state, "{quorum} of 3, silent {silent:?}");
    }
}

#[test]
fn the_round_trip_time_is_that_of_the_answer_that_makes_the_quorum() {
    for (quorum, rtt) in [(1, 10_000), (2, 40_000), (3, 70_000)] {
        let mut sim = sim(three(quorum));
        sim.far[0].slower = vec![(address(1), ms(60)), (address(3), ms(30))];
        sim.run_for(Duration::from_secs(5));
        assert!(samples(&sim).iter().all(|(_, ok, us)| (*ok, *us) == (Some(true), Some(rtt))), "{:?}", samples(&sim));
        assert_eq!(
            targets(&mut sim).iter().map(|view| view.rtt_us).collect::<Vec<_>>(),
            [70_000, 10_000, 40_000].map(Some)
        );
    }
}

#[test]
fn a_target_that_answers_too_late_is_lost_and_makes_no_time_out_longer() {
    let mut slow = three(2);
    slow.check.timeout = Timeout::Auto;
    let mut sim = sim(slow);
    sim.run_for(Duration::from_secs(60));
    sim.far[0].slower = vec![(address(3), ms(400))];
    sim.run_for(Duration::from_secs(60));
    let (seen, counters) = (targets(&mut sim), sim.view(0).counters);
    assert!(seen[2].lost > 55 && counters.late > 55, "{seen:?} {counters:?}");
    assert_eq!(sim.state(0), State::Healthy);
    // The time-out is 200 ms as before, by which a dead tunnel is found.
    let from = sim.now;
    sim.cut(0);
    let down = sim.run_to(0, State::Down, Duration::from_secs(5));
    let first = sim.sent.iter().find(|sent| sent.at >= from).unwrap().at;
    assert!(down.since(first) <= ms(401), "{:?}", down.since(first));
}

#[test]
fn law_4_what_this_host_has_lost_is_no_failure_of_a_round() {
    let mut sim = sim(three(2));
    sim.run_for(Duration::from_secs(20));
    sim.overflowing = true;
    sim.run_for(Duration::from_secs(5));
    sim.overflowing = false;
    sim.stall(Duration::from_secs(3));
    sim.run_for(Duration::from_secs(5));
    let seen = samples(&sim);
    assert!(seen.iter().any(|(_, ok, _)| ok.is_none()), "some are inconclusive");
    assert!(seen.iter().all(|(_, ok, _)| *ok != Some(false)), "{seen:?}");
    assert_eq!((sim.state(0), sim.view(0).counters.lost), (State::Healthy, 0));
}

/// Stopped just after a round has left, this host waits for it once more; what comes then is too late to be a success, and
/// its own trouble, so no failure.
#[test]
fn law_4_answers_that_are_late_while_a_stall_is_made_good_are_no_failure() {
    let mut sim = sim(three(2));
    sim.run_for(Duration::from_secs(20));
    let (sent, before) = (sim.sent.len(), samples(&sim).len());
    sim.far[0].rtt = ms(700);
    while sim.sent.len() == sent {
        sim.run_for(ms(1));
    }
    sim.far[0].rtt = ms(10);
    sim.stall(ms(300));
    sim.run_for(Duration::from_secs(3));
    let seen: Vec<_> = samples(&sim).split_off(before).into_iter().map(|(_, ok, _)| ok).collect();
    assert_eq!(seen.iter().filter(|ok| ok.is_none()).count(), 1, "{seen:?}");
    assert!(!seen.contains(&Some(false)), "{seen:?}");
    assert_eq!((sim.view(0).counters.lost, sim.state(0)), (0, State::Healthy));
}

#[test]
fn law_4_a_round_that_this_host_could_not_send_is_sent_again() {
    let mut sim = sim(three(2));
    sim.run_for(Duration::from_secs(20));
    sim.far[0].sending = Sending::LocalFault("ENOBUFS");
    sim.run_for(ms(1_500));
    sim.far[0].sending = Sending::Fine;
    sim.run_for(Duration::from_secs(5));
    assert!(samples(&sim).iter().all(|(_, ok, _)| *ok == Some(true)), "{:?}", samples(&sim));
    let view = sim.view(0);
    assert_eq!((view.counters.lost, view.state), (0, State::Healthy));
    assert!(view.counters.local_faults > 0);
    assert_eq!(view.counters.sent, view.counters.received, "what has not left is not counted");
}

#[test]
fn a_round_that_is_refused_fails_at_once() {
    let mut sim = sim(three(2));
    sim.haste_allowed = true;
    sim.run_for(Duration::from_secs(20));
    sim.far[0].sending = Sending::Refused("EPERM");
    sim.run_to(0, State::Down, Duration::from_secs(3));
    assert_eq!(sim.view(0).last_failure.unwrap().reason, "not sent: EPERM");
    sim.far[0].sending = Sending::Fine;
    sim.run_to(0, State::Degraded, Duration::from_secs(3));
}

#[test]
fn an_answer_by_another_target_than_was_asked_is_none() {
    let mut sim = sim(three(2));
    (sim.keep_bytes, sim.far[0].cut) = (true, true);
    sim.run_for(ms(1_200));
    let probes = std::mem::take(&mut sim.sent);
    let round: Vec<_> = probes[..3].iter().map(|sent| answer_of(decapsulate(&sent.bytes))).collect();
    // What was asked of the second comes from the first; what was asked of the third as it should.
    let mut turned = round[1].clone();
    turned[12..16].copy_from_slice(&round[0][12..16]);
    turned[10..12].fill(0);
    let sum = pnet::packet::util::checksum(&turned[..20], 5);
    turned[10..12].copy_from_slice(&sum.to_be_bytes());
    let onion = tunnel(0).onion;
    let now = sim.now;
    sim.inject(now, 0, 0, encapsulate(&turned, &onion));
    sim.run_for(ms(1));
    assert_eq!(sim.rejected(Reject::Tag), 1);
    assert_eq!(targets(&mut sim).iter().map(|view| view.answered).sum::<u64>(), 0);
}

#[test]
fn numbers_of_gre_go_up_from_each_probe_to_the_next() {
    let mut numbered = three(2);
    numbered.onion.encapsulation = gre::Options { sequence: true, ..gre::Options::default() }.into();
    let mut sim = sim(numbered);
    sim.keep_bytes = true;
    sim.run_for(Duration::from_secs(10));
    let number = |bytes: &Vec<u8>| u32::from_be_bytes(*bytes[24..].first_chunk().unwrap());
    let numbers: Vec<u32> = sim.sent.iter().map(|sent| number(&sent.bytes)).collect();
    assert!(numbers.len() > 30 && numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

#[test]
fn another_quorum_goes_on_and_other_targets_are_another_tunnel() {
    let mut sim = sim(three(2));
    silence(&mut sim, &[3]);
    sim.run_for(Duration::from_secs(30));
    let changed = Reloaded { changed: 1, ..Reloaded::default() };
    assert_eq!(sim.reload(layout(three(2))), Reloaded { kept: 1, ..Reloaded::default() });
    assert_eq!(sim.reload(layout(three(3))), changed);
    assert_eq!(sim.state(0), State::Healthy, "what is known of it stays");
    sim.run_to(0, State::Down, Duration::from_secs(5));
    // While a round is under way that has answers enough for it.
    sim.far[0].slower = vec![(address(3), ms(200))];
    silence(&mut sim, &[]);
    let sent = sim.sent.len();
    while sim.sent.len() == sent {
        sim.run_for(ms(1));
    }
    sim.run_for(ms(50));
    assert_eq!(sim.reload(layout(three(2))), changed);
    sim.run_to(0, State::Degraded, Duration::from_secs(5));
    let mut other = three(2);
    other.targets.as_mut().unwrap().further.swap(0, 1);
    assert_eq!(sim.reload(layout(other)), changed);
    assert_eq!(sim.state(0), State::Unknown);
    sim.run_to(0, State::Healthy, Duration::from_secs(5));
    assert_eq!(sim.reload(layout(tunnel(0))), changed, "one target alone");
    assert_eq!(sim.state(0), State::Unknown);
    sim.run_to(0, State::Healthy, Duration::from_secs(5));
}

#[test]
fn law_7_several_targets_are_remembered_and_others_are_not_taken_for_them() {
    let start = Time::from_nanos(1_000_000_000_000);
    let mut before = Sim::starting(start, vec![three(2)], vec![route(0)], 7, false);
    before.run_for(Duration::from_secs(20));
    let known = |sim: &Sim| {
        let [states, windows] = [Kind::States, Kind::Windows].map(|kind| sim.engine.written(kind, sim.now, true));
        let states = decode(Kind::States, &states.bytes).unwrap();
        Memory { states: Some(states), windows: Some(decode(Kind::Windows, &windows.bytes).unwrap()) }
    };
    for (tunnels, state) in [(three(3), State::Healthy), (tunnel(0), State::Unknown)] {
        let mut after = Sim::starting(before.now, vec![tunnels], vec![route(0)], 7, false);
        after.gaps_allowed = true;
        after.engine.remember(before.now, WallTime(before.now.as_nanos()), known(&before));
        assert_eq!(after.state(0), state);
        after.run_for(Duration::from_secs(5));
        assert_eq!(after.state(0), State::Healthy);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Silence(Vec<u8>),
    Slow(u8, u64),
    Loss(u32),
    Copies(u32),
    Sending(u8),
    Stall(u64),
    Overflow(bool),
    Quorum(usize),
    Run(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => prop::collection::vec(1..4_u8, 0..4).prop_map(Step::Silence),
        2 => (1..4_u8, 0..900_u64).prop_map(|(target, by)| Step::Slow(target, by)),
        1 => (0..600_000_u32).prop_map(Step::Loss),
        1 => (1..3_u32).prop_map(Step::Copies),
        1 => (0..4_u8).prop_map(Step::Sending),
        1 => (20..1_500_u64).prop_map(Step::Stall),
        1 => any::<bool>().prop_map(Step::Overflow),
        1 => (1..4_usize).prop_map(Step::Quorum),
        6 => (1..4_000_u64).prop_map(Step::Run),
    ];
    prop::collection::vec(step, 1..30)
}

fn take(sim: &mut Sim, step: Step) {
    match step {
        Step::Silence(targets) => silence(sim, &targets),
        Step::Slow(target, by) => sim.far[0].slower = vec![(address(target), ms(by))],
        Step::Loss(ppm) => sim.far[0].loss_ppm = ppm,
        Step::Copies(copies) => sim.far[0].copies = copies,
        Step::Sending(which) => {
            let all = [Sending::Fine, Sending::LocalFault("ENOBUFS"), Sending::Refused("EPERM"), Sending::Missing];
            sim.far[0].sending = all[usize::from(which)];
        }
        Step::Stall(span) => sim.stall(ms(span)),
        Step::Overflow(overflows) => sim.overflowing = overflows,
        Step::Quorum(quorum) => drop(sim.reload(layout(three(quorum)))),
        Step::Run(span) => sim.run_for(ms(span)),
    }
}

proptest! {
    #![proptest_config(Config { rng_seed: RngSeed::Fixed(0x3_0F3), cases: 150, failure_persistence: None, ..Config::default() })]

    #[test]
    fn law_1_a_round_is_one_sample_and_each_probe_settles_once(steps in steps()) {
        let mut sim = sim(three(2));
        sim.haste_allowed = true;
        steps.into_iter().for_each(|step| take(&mut sim, step));
        // Let everything settle, with nothing in the way.
        for step in [Step::Sending(0), Step::Overflow(false), Step::Copies(1), Step::Loss(0), Step::Run(700)] {
            take(&mut sim, step);
        }
        silence(&mut sim, &[]);
        sim.far[0].slower = Vec::new();
        sim.run_for(ms(2_700));
        // Each round that left is a sample, or came to nothing; only the last may be under way. (One that this host was
        // short of buffers for is no sample at all, but sent again.)
        let retried: BTreeSet<u64> = sim.sent.iter()
            .filter(|sent| matches!(sent.sending, Sending::LocalFault(_)))
            .map(|sent| sent.sequence / 3)
            .collect();
        let all = rounds(&sim).difference(&retried).count();
        let recorded = samples(&sim).len();
        prop_assert!((all.saturating_sub(1)..=all + retried.len()).contains(&recorded), "{all} rounds, {} sent again, {recorded} samples", retried.len());
        // Their order and their outcomes are all that health knows.
        let mut health = Health::new(Rules::default());
        let judged: Vec<_> = samples(&sim).into_iter().filter_map(|(t, ok, us)| {
            let outcome = if ok? { Outcome::Success(Duration::from_micros(us.unwrap_or(0))) } else { Outcome::Failure };
            health.judge(t, outcome).map(|transition| (transition.from, transition.to))
        }).collect();
        let told: Vec<_> = sim.events.iter().filter_map(|event| {
            let Told::Transition { from, to, .. } = event.kind else { return None };
            Some((from, to))
        }).collect();
        prop_assert_eq!(judged, told);
        // A probe is answered, lost, or this host's own trouble, and never two of these.
        let (counters, seen) = (sim.view(0).counters, targets(&mut sim));
        let sum = |of: fn(&TargetView) -> u64| seen.iter().map(of).sum::<u64>();
        prop_assert_eq!(counters.received, sum(|view| view.answered));
        prop_assert_eq!(counters.lost, sum(|view| view.lost));
        prop_assert_eq!(counters.sent, sum(|view| view.sent));
        prop_assert!(sum(|view| view.answered) <= counters.sent, "{:?}", seen);
    }
}
