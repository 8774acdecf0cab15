//! How soon a dead tunnel is found, measured in virtual time, and how bursts of very many tunnels
//! are paced.

mod sim;

use std::collections::BTreeMap;
use std::time::Duration;

use adit::engine::Time;
use adit::engine::health::State;
use adit::engine::schedule::TICK;
use adit::engine::settings::Timeout;
use sim::{Sim, at_ms, ms, tunnel};

/// Cuts so many times, at random moments; from each cut to the transition to down.
fn detection_times(cuts: u32, timeout: Timeout, seed: u64) -> Vec<Duration> {
    let mut settings = tunnel(0);
    settings.check.timeout = timeout;
    let mut sim = Sim::new(vec![settings], Vec::new(), seed);
    sim.by_ticks = true;
    sim.run_until(at_ms(40_000));
    let mut times = Vec::new();
    for _ in 0..cuts {
        let pause = sim.part_of(ms(10_000));
        sim.run_for(ms(5_000) + pause);
        assert_ne!(sim.state(0), State::Down);
        sim.cut(0);
        let cut = sim.now;
        times.push(sim.run_to(0, State::Down, ms(5_000)).since(cut));
        let pause = sim.part_of(ms(3_000));
        sim.run_for(pause);
        sim.heal(0);
        let _ = sim.run_to(0, State::Degraded, ms(5_000));
    }
    times
}

fn mean_and_worst(times: &[Duration]) -> (Duration, Duration) {
    let count = u32::try_from(times.len()).unwrap_or(u32::MAX);
    (times.iter().sum::<Duration>() / count, times.iter().copied().max().unwrap_or_default())
}

#[test]
fn a_dead_tunnel_is_found_within_1_6_s_and_1_1_s_on_average() {
    let (mean, worst) = mean_and_worst(&detection_times(2_000, Timeout::Fixed(ms(500)), 42));
    println!("rate high, time-out 500 ms, path 10 ms, 2000 cuts: mean {mean:?}, worst {worst:?}");
    assert!(mean <= ms(1_100), "mean {mean:?}");
    assert!(worst <= ms(1_600), "worst {worst:?}");
    assert!(mean > ms(900), "too good to be true: a mean of {mean:?}");
}

#[test]
fn with_an_automatic_time_out_within_1_3_s_and_0_8_s_on_average() {
    let (mean, worst) = mean_and_worst(&detection_times(2_000, Timeout::Auto, 43));
    println!("rate high, time-out auto, path 10 ms, 2000 cuts: mean {mean:?}, worst {worst:?}");
    assert!(mean <= ms(800), "mean {mean:?}");
    assert!(worst <= ms(1_300), "worst {worst:?}");
    assert!(mean > ms(600), "too good to be true: a mean of {mean:?}");
}

/// Where a window leaves little time beside the time-out, ticks are as fine as that takes: a tunnel that answers nothing
/// is down by its first burst nearly always.
#[test]
fn a_tight_window_is_met_though_wake_ups_come_by_ticks() {
    for (interval, timeout, window) in [(1_000, 45, 50), (1_000, 990, 1_000), (13, 12, 16), (100, 90, 200)] {
        let mut settings = tunnel(0);
        let check = &mut settings.check;
        (check.interval, check.timeout, check.early_retry) = (ms(interval), Timeout::Fixed(ms(timeout)), false);
        check.rules.down_window = ms(window);
        let mut sim = Sim::new(vec![settings], Vec::new(), interval ^ window);
        (sim.by_ticks, sim.far[0].rtt) = (true, ms(1));
        sim.run_for(ms(60 * interval));
        for cut in 0..100 {
            let pause = sim.part_of(ms(5 * interval));
            sim.run_for(ms(5 * interval) + pause);
            let begun = sim.now;
            sim.cut(0);
            let down = sim.run_to(0, State::Down, ms(10 * interval + 10 * timeout)).since(begun);
            let most = ms(interval) * 21 / 20 + ms(2 * timeout + 10) + ms(interval.min(window));
            assert!(down <= most, "cut {cut} of {interval}, {timeout}, {window}: down after {down:?}, not {most:?}");
            sim.heal(0);
            let _ = sim.run_to(0, State::Degraded, ms(60_000));
        }
    }
}

/// Every tunnel is down by the first burst after the cut: its three outcomes fall into the short
/// window. Returns the most probes that left within any one millisecond once bursts had begun.
fn all_cut(count: u32, cut: impl FnOnce(&mut Sim)) -> usize {
    let mut sim = Sim::new((0..count).map(tunnel).collect(), Vec::new(), 7);
    sim.run_until(at_ms(1_500));
    for index in 0..count {
        assert_eq!(sim.state(index), State::Healthy, "before the cut");
    }
    let sent_before = sim.sent.len();
    sim.gaps_allowed = true;
    cut(&mut sim);
    let burst_from = sim.now;
    sim.run_for(ms(2_500));
    let mut probes: BTreeMap<u32, Vec<Time>> = BTreeMap::new();
    for sent in &sim.sent[sent_before..] {
        probes.entry(sent.tunnel).or_default().push(sent.at);
    }
    // The regular probe and its two: the third probe after the cut leaves early enough.
    for (index, times) in probes {
        let span = times[2].since(times[0]);
        assert!(span < ms(1_000), "tunnel {index}: its burst is stretched over {span:?}");
        let view = sim.view(index);
        assert_eq!(view.state, State::Down, "tunnel {index}");
        let (down, latest) = (Time::from_nanos(view.since.0), times[0] + ms(500) + ms(1_000));
        assert!(down < latest, "tunnel {index} is down at {down}, after its first burst");
    }
    let mut by_millisecond: BTreeMap<u64, usize> = BTreeMap::new();
    for sent in sim.sent[sent_before..].iter().filter(|sent| sent.at > burst_from) {
        *by_millisecond.entry(sent.at.as_nanos() / 1_000_000).or_default() += 1;
    }
    by_millisecond.into_values().max().unwrap_or_default()
}

fn cut_all(sim: &mut Sim) {
    (0..sim.tunnels.len()).for_each(|index| sim.far[index].cut = true);
}

#[test]
fn bursts_of_ten_thousand_tunnels_stay_inside_the_short_window() {
    let most = all_cut(10_000, cut_all);
    println!("10000 tunnels cut at once: at most {most} probes in a millisecond");
    assert!(most <= 2_200, "{most} probes in one millisecond: more than the credit of a quiet time");
}

/// A stall makes all regular probes due at one moment, so that all bursts are wanted at one, too.
#[test]
fn bursts_that_are_all_wanted_at_one_moment_are_paced() {
    let most = all_cut(10_000, |sim| {
        cut_all(sim);
        sim.stall(ms(2_000));
    });
    println!("10000 tunnels cut in a stall: at most {most} probes in a millisecond");
    assert!(most <= 2_200, "{most} probes in one millisecond: more than the credit of a quiet time");
}

/// How unevenly probes leave: the most in any tick, over the mean.
fn crowding(sim: &Sim, from: Time, interval: Duration) -> f64 {
    let mut ticks = BTreeMap::<Time, u32>::new();
    for sent in sim.sent.iter().filter(|sent| sent.at >= from && sent.at < from + interval) {
        *ticks.entry(sent.at.ceil(TICK)).or_default() += 1;
    }
    let (total, count) = (ticks.values().sum::<u32>(), interval.as_millis() / TICK.as_millis());
    f64::from(ticks.into_values().max().unwrap_or(0)) * count as f64 / f64::from(total.max(1))
}

/// By chance alone, one tick in some thousands has more than this.
const CROWDED: f64 = 1.65;

#[test]
fn first_probes_are_spread_evenly() {
    let mut sim = Sim::new((0..4_000).map(tunnel).collect(), Vec::new(), 1);
    sim.run_until(at_ms(2_100));
    let crowding = crowding(&sim, at_ms(1_050), ms(950));
    assert!(crowding < CROWDED, "{crowding} times the mean in one tick");
}

#[test]
fn after_a_stall_probes_are_spread_again() {
    let mut sim = Sim::new((0..4_000).map(tunnel).collect(), Vec::new(), 1);
    sim.run_until(at_ms(5_000));
    sim.stall(ms(10_000));
    let woken = sim.now;
    sim.run_for(ms(5_000));
    for second in 1..4 {
        let crowding = crowding(&sim, woken + ms(1_000 * second + 100), ms(1_000));
        assert!(crowding < CROWDED, "second {second}: {crowding} times the mean in one tick");
    }
}

#[test]
fn what_a_stall_missed_is_not_caught_up_with() {
    let mut sim = Sim::new((0..100).map(tunnel).collect(), Vec::new(), 1);
    sim.run_until(at_ms(5_000));
    let before = sim.sent.len();
    sim.stall(ms(600_000));
    assert!(sim.sent.len() - before <= 100, "one probe a tunnel, not six hundred");
    sim.run_for(ms(5_000));
    assert!(sim.sent.len() - before <= 800, "{} probes in five seconds", sim.sent.len() - before);
}

/// An uplink comes back: every tunnel's next success asks for two more, all within a second.
#[test]
fn thousands_of_tunnels_come_back_together() {
    let mut sim = Sim::new((0..4_000).map(tunnel).collect(), Vec::new(), 7);
    sim.run_until(at_ms(3_000));
    cut_all(&mut sim);
    sim.run_for(ms(5_000));
    (0..4_000).for_each(|index| sim.heal(index));
    sim.run_for(ms(1_200));
    let up = (0..4_000).filter(|index| sim.state(*index) == State::Degraded).count();
    assert_eq!(up, 4_000);
}
