//! What `adit explain` says is true: what is still missing, and that nothing comes sooner than it says.

#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on must fail")]

mod sim;

use std::collections::BTreeMap;
use std::time::Duration;

use adit::engine::event::Kind;
use adit::engine::explain::{Explanation, Next};
use adit::engine::health::{Ratio, Rules};
use adit::engine::settings::Timeout;
use adit::engine::{State, Time, Tunnel};
use sim::far::{Far, Sending};
use sim::{Sim, at_ms, ms, tunnel};

fn explain(sim: &mut Sim, tunnel: u32) -> Explanation {
    let now = sim.now;
    sim.engine.explain(now, tunnel).unwrap()
}

fn to(explanation: &Explanation, state: State) -> &Next {
    explanation.next.iter().find(|next| next.to == state).unwrap_or_else(|| panic!("not to {state}: {explanation:?}"))
}

#[test]
fn every_ratio_that_can_be_configured_is_explained_at_once() {
    for (ratio, needs) in [
        (1_000, "2 more failures while 0 of 32 failed in 5m"),
        (500_000, "32 more failures while 0 of 32 failed in 5m"),
        (999_999, "31999968 more failures while 0 of 32 failed in 5m"),
        (1_000_000, "no success left in the last 5m (now 0 of 32 failed)"),
    ] {
        let mut settings = tunnel(0);
        settings.check.rules.degraded_ratio = Ratio(ratio);
        let mut sim = Sim::new(vec![settings], Vec::new(), 1);
        while sim.view(0).window.samples < 32 {
            sim.run_for(ms(100));
        }
        assert_eq!(to(&explain(&mut sim, 0), State::Degraded).needs, needs);
    }
}

/// What was promised since a tunnel entered its state.
#[derive(Default)]
struct Promises {
    asked: u32,
    /// How often each change was named, and the latest time that was given for it.
    named: BTreeMap<(State, u8), (u32, Time)>,
}

/// A simulation whose every tunnel is asked again and again, and held to what it has said.
struct Questioned {
    sim: Sim,
    promises: Vec<Promises>,
    read: usize,
    kept: BTreeMap<(State, State), u32>,
}

impl Questioned {
    fn new(sim: Sim) -> Self {
        let promises = sim.tunnels.iter().map(|_| Promises::default()).collect();
        Self { sim, promises, read: 0, kept: BTreeMap::new() }
    }

    /// Goes on for so long, asking after each wake-up and some times between them.
    fn run_for(&mut self, duration: Duration, between: Duration) {
        let until = self.sim.now + duration;
        while self.sim.now < until {
            self.ask();
            let pause = self.sim.part_of(between);
            let next = until.min(self.sim.now + pause.max(Duration::from_nanos(1)));
            self.sim.step(next);
            self.hold();
        }
    }

    fn ask(&mut self) {
        for index in 0..self.promises.len() {
            let explanation = explain(&mut self.sim, u32::try_from(index).unwrap());
            let promises = &mut self.promises[index];
            promises.asked += 1;
            for Next { to, rule, earliest, .. } in explanation.next {
                let (times, latest) = promises.named.entry((to, rule)).or_default();
                *times += 1;
                *latest = Time::from_nanos(earliest.0).max(*latest);
            }
        }
    }

    /// Each transition was named by every explanation of the state before it, and none promised a later time.
    fn hold(&mut self) {
        for event in &self.sim.events[self.read..] {
            let Kind::Transition { tunnel, from, to, rule, .. } = &event.kind else { continue };
            let index = self.sim.tunnels.iter().position(|settings| settings.name == *tunnel).unwrap();
            let Promises { asked, named } = std::mem::take(&mut self.promises[index]);
            let at = Time::from_nanos(event.at.0);
            let what = format!("{tunnel}, {from} to {to} by rule {rule} at {at}");
            if asked == 0 {
                continue;
            }
            let (times, latest) = named.get(&(*to, *rule)).copied().unwrap_or_default();
            assert_eq!(times, asked, "{what}: not always named");
            assert!(latest <= at, "{what}: promised not before {latest}");
            *self.kept.entry((*from, *to)).or_default() += 1;
        }
        self.read = self.sim.events.len();
    }
}

/// A number of `choices` at random.
fn one_of<T: Copy>(sim: &mut Sim, choices: &[T]) -> T {
    choices[usize::try_from(sim.random() % choices.len() as u64).unwrap()]
}

/// Settings as odd as a configuration may have them.
fn any_tunnel(index: u32, seed: u64) -> Tunnel {
    let mut dice = Sim::new(vec![tunnel(0)], Vec::new(), seed * 31 + u64::from(index));
    let mut settings = tunnel(index);
    let check = &mut settings.check;
    check.interval = ms(one_of(&mut dice, &[20, 100, 250, 1_000, 3_000]));
    check.timeout = one_of(&mut dice, &[10, 100, 500, 900].map(|millis| Timeout::Fixed(ms(millis))));
    if dice.random().is_multiple_of(4) {
        check.timeout = Timeout::Auto;
    }
    check.early_retry = one_of(&mut dice, &[true, true, false]);
    check.rules = Rules {
        degraded_ratio: Ratio(one_of(&mut dice, &[1_000, 1_000, 100_000, 333_333, 600_000, 1_000_000])),
        degraded_min_failures: one_of(&mut dice, &[1, 2, 2, 4]),
        degraded_window: ms(one_of(&mut dice, &[2_000, 6_000, 30_000])),
        down_min_samples: one_of(&mut dice, &[1, 2, 3, 3, 5]),
        down_window: ms(one_of(&mut dice, &[400, 1_000, 2_000])),
        up_samples: one_of(&mut dice, &[1, 3, 3, 6]),
        recovery_samples: one_of(&mut dice, &[1, 3, 10, 30]),
    };
    settings
}

/// One of the things that can go wrong, or right, on one of the tunnels or on this host.
fn something(run: &mut Questioned) {
    let index = u32::try_from(run.sim.random() % 3).unwrap();
    let what = run.sim.random() % 16;
    let far = &mut run.sim.far[index as usize];
    match what {
        0..=2 => run.sim.cut(index),
        3..=6 => *far = Far::default(),
        7 => far.loss_ppm = 100_000,
        8 => far.loss_ppm = 500_000,
        9 => far.rtt = ms(90),
        10 => far.jitter = ms(800),
        11 => far.sending = Sending::LocalFault("ENOBUFS"),
        12 => far.sending = Sending::Refused("EPERM"),
        13 => run.sim.overflowing = !run.sim.overflowing,
        14 => {
            let asleep = run.sim.part_of(ms(3_000));
            run.sim.stall(asleep);
            run.hold();
        }
        _ => run.sim.command(|engine, now| engine.handle_suspend(now, Duration::from_secs(60))),
    }
}

/// Loss, delay, cuts and the host's own troubles, each for a while, on tunnels of all settings; some
/// long lives, and many beginnings.
#[test]
fn nothing_comes_sooner_than_it_was_promised_nor_unannounced() {
    let mut kept: BTreeMap<(State, State), u32> = BTreeMap::new();
    for seed in 0..100 {
        let sim = Sim::new((0..3).map(|index| any_tunnel(index, seed)).collect(), Vec::new(), seed);
        let mut run = Questioned::new(sim);
        run.sim.haste_allowed = true;
        for index in 0..3 {
            run.sim.far[index].loss_ppm = one_of(&mut run.sim, &[0, 0, 500_000, 700_000, 1_000_000]);
        }
        for _ in 0..if seed < 12 { 30 } else { 2 } {
            let pause = run.sim.part_of(ms(2_000));
            run.run_for(pause, ms(10));
            something(&mut run);
        }
        if seed < 12 {
            run.sim.far.iter_mut().for_each(|far| *far = Far::default());
            run.sim.overflowing = false;
            run.run_for(ms(6_000), ms(50));
        }
        run.kept.into_iter().for_each(|(change, times)| *kept.entry(change).or_default() += times);
    }
    println!("{kept:?}");
    for change in [
        (State::Unknown, State::Healthy),
        (State::Unknown, State::Degraded),
        (State::Unknown, State::Down),
        (State::Healthy, State::Degraded),
        (State::Healthy, State::Down),
        (State::Degraded, State::Healthy),
        (State::Degraded, State::Down),
        (State::Down, State::Degraded),
    ] {
        assert!(kept.get(&change).is_some_and(|times| *times >= 3), "{change:?}: hardly ever seen, {kept:?}");
    }
}

/// A promise that is always "now" would be kept, too: they are as late as they can be.
#[test]
fn what_is_under_way_is_promised_to_the_nanosecond() {
    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    sim.run_until(at_ms(10_100));
    sim.cut(0);
    let cut = sim.now;
    let mut promised = BTreeMap::new();
    while sim.state(0) != State::Down {
        let until = sim.now + ms(5);
        let earliest = to(&explain(&mut sim, 0), State::Down).earliest;
        promised.insert(sim.now, Time::from_nanos(earliest.0));
        sim.step(until);
    }
    let down = sim.transitions().last().unwrap().0;
    let in_flight = sim.sent.iter().rev().take(3).map(|sent| sent.at).collect::<Vec<_>>();
    assert!(in_flight.iter().all(|sent| *sent > cut), "the regular probe and its two: {in_flight:?}");
    for (asked, earliest) in promised {
        if asked < in_flight[2] {
            assert_eq!(earliest, in_flight[2], "asked at {asked}: the next turn, which could be refused");
        } else if asked >= in_flight[0] {
            assert_eq!(earliest, down, "asked at {asked}: the last deadline of the three");
        }
    }
}

#[test]
fn the_way_back_is_promised_by_the_failure_that_must_leave_and_by_the_cadence() {
    for (interval, early_retry, wait) in [
        // Two failures are in the window: the first must leave it.
        (ms(1_000), true, None),
        // Thirty samples are what takes long: at 57 s each, and three a turn where early retry may help.
        (ms(60_000), false, Some(ms(57_000))),
        (ms(60_000), true, Some(ms(57_000 / 3))),
    ] {
        let mut settings = tunnel(0);
        settings.check.interval = interval;
        settings.check.early_retry = early_retry;
        let mut sim = Sim::new(vec![settings], Vec::new(), 1);
        sim.run_until(Time::ZERO + interval * 4);
        sim.far[0].lose_next = 2;
        let _ = sim.run_to(0, State::Degraded, interval * 3);
        let failed = sim.now;
        sim.run_for(ms(100));
        let explanation = explain(&mut sim, 0);
        let earliest = Time::from_nanos(to(&explanation, State::Healthy).earliest.0);
        let first = explanation.samples.iter().find(|sample| !sample.ok).unwrap().at;
        match wait {
            None => assert_eq!(earliest, Time::from_nanos(first.0) + Duration::from_secs(300)),
            Some(each) => {
                let waits = earliest.since(failed);
                assert!((each * 27..each * 31).contains(&waits), "{interval:?}, early {early_retry}: {waits:?}");
            }
        }
        let healthy = sim.run_to(0, State::Healthy, interval * 400);
        assert!(earliest <= healthy && healthy.since(earliest) <= interval * 21, "{earliest} and {healthy}");
    }
}

#[test]
fn from_unknown_every_first_verdict_that_can_still_come_is_named() {
    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    let named = |sim: &mut Sim| explain(sim, 0).next.iter().map(|next| next.to).collect::<Vec<_>>();
    assert_eq!(named(&mut sim), [State::Down, State::Healthy, State::Degraded]);
    let needs = |sim: &mut Sim, state| to(&explain(sim, 0), state).needs.clone();
    assert_eq!(needs(&mut sim, State::Degraded), "3 more samples, at least 2 failures among them");
    sim.far[0].lose_next = 2;
    sim.run_until(at_ms(100));
    assert_eq!(sim.view(0).window.samples, 1);
    assert_eq!(named(&mut sim), [State::Healthy, State::Degraded], "with one success it is not dead");
    sim.run_until(at_ms(600));
    assert_eq!(sim.state(0), State::Degraded);
}

#[test]
fn what_is_no_sample_is_counted_and_shown() {
    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    sim.far[0].copies = 2;
    sim.run_until(at_ms(3_000));
    sim.far[0].forges = true;
    sim.run_for(ms(2_000));
    (sim.far[0].forges, sim.far[0].rtt) = (false, ms(600));
    sim.run_for(ms(2_000));
    sim.far[0].sending = Sending::LocalFault("ENOBUFS");
    sim.run_for(ms(2_000));
    sim.stall(ms(3_000));
    let counters = sim.view(0).counters;
    let told = [counters.late, counters.duplicate, counters.forged, counters.local_faults];
    assert!(told.iter().all(|count| *count > 0), "{counters:?}");
    let explanation = explain(&mut sim, 0);
    assert_eq!(explanation.counters, counters);
    assert_eq!(explanation.host.local_faults.keys().copied().collect::<Vec<_>>(), ["send", "stall"]);
    assert_eq!(explanation.host.hints, 0);
}
