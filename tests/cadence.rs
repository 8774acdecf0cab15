//! When probes leave: the interval, the bursts, and what a stall does to deadlines.

mod sim;

use std::time::Duration;

use adit::engine::health::State;
use adit::engine::settings::Timeout;
use adit::engine::{Engine, Setup, Time, Tunnel, WallTime};
use sim::far::{Far, Sending};
use sim::{Sim, arrived, at_ms, ms, secret, tunnel};

fn alone(change: impl FnOnce(&mut Tunnel)) -> Sim {
    let mut settings = tunnel(0);
    change(&mut settings);
    Sim::new(vec![settings], Vec::new(), 1)
}

/// Runs until another probe has been given out; its time.
fn next_probe(sim: &mut Sim) -> Time {
    let sent = sim.sent.len();
    while sim.sent.len() == sent {
        sim.run_for(ms(1));
    }
    sim.sent[sent].at
}

/// Gaps between the probes that left from `from` on.
fn gaps(sim: &Sim, from: Time) -> Vec<Duration> {
    let times: Vec<Time> = sim.sent.iter().map(|sent| sent.at).filter(|at| *at >= from).collect();
    times.windows(2).map(|pair| pair[1].since(pair[0])).collect()
}

#[test]
fn a_healthy_tunnel_is_probed_once_an_interval_give_or_take_five_percent() {
    let mut sim = alone(|_| {});
    sim.run_until(at_ms(300_000));
    let gaps = gaps(&sim, at_ms(500));
    assert!(gaps.iter().all(|gap| (ms(950)..=ms(1_050)).contains(gap)), "{gaps:?}");
    let spread = gaps.iter().max().unwrap().saturating_sub(*gaps.iter().min().unwrap());
    assert!(spread >= ms(80), "jitter of {spread:?} keeps probers in step");
    let mean = gaps.iter().sum::<Duration>() / u32::try_from(gaps.len()).unwrap();
    assert!((ms(990)..ms(1_010)).contains(&mean), "{mean:?}");
}

#[test]
fn an_unknown_tunnel_starts_with_three_probes_at_once() {
    let mut sim = alone(|_| {});
    sim.run_until(at_ms(900));
    assert_eq!(sim.sent.len(), 3);
    assert!(sim.sent[2].at.since(sim.sent[0].at) <= ms(1));
}

#[test]
fn a_failure_asks_for_two_more_at_once_and_only_once() {
    for early_retry in [true, false] {
        let mut sim = alone(|tunnel| tunnel.check.early_retry = early_retry);
        sim.run_until(at_ms(30_000));
        sim.far[0].lose_next = 1;
        let lost = next_probe(&mut sim);
        let before = sim.sent.len();
        sim.run_until(lost + ms(900));
        let extra: Vec<Duration> = sim.sent[before..].iter().map(|sent| sent.at.since(lost)).collect();
        assert_eq!(extra.len(), 2, "early retry {early_retry}: {extra:?}");
        let asked = if early_retry { ms(20) } else { ms(500) };
        assert!(extra.iter().all(|after| (asked..asked + ms(5)).contains(after)), "{extra:?}");
        assert_eq!(sim.state(0), State::Healthy);
        assert_eq!(sim.view(0).counters.lost, 1);
    }
}

#[test]
fn a_burst_is_not_started_again_by_its_own_probes() {
    for early_retry in [true, false] {
        let mut sim = alone(|tunnel| tunnel.check.early_retry = early_retry);
        sim.run_until(at_ms(30_000));
        sim.far[0].lose_next = 2;
        let lost = next_probe(&mut sim);
        let before = sim.sent.len();
        sim.run_until(lost + ms(940));
        assert_eq!(sim.sent.len() - before, 2, "one burst for two losses, early retry {early_retry}");
    }
}

#[test]
fn a_success_while_down_asks_for_two_more_at_once() {
    let mut sim = alone(|_| {});
    sim.run_until(at_ms(10_000));
    sim.cut(0);
    let _ = sim.run_to(0, State::Down, ms(3_000));
    sim.run_for(ms(10_000));
    let dead = gaps(&sim, at_ms(13_000));
    assert!(dead.iter().all(|gap| *gap >= ms(950)), "a failure while down asks for nothing: {dead:?}");
    sim.heal(0);
    let first = next_probe(&mut sim);
    let up = sim.run_to(0, State::Degraded, ms(3_000));
    assert!(up.since(first) <= ms(25), "two round trips after the first success: {:?}", up.since(first));
}

#[test]
fn the_confirming_probes_are_dropped_if_the_answer_comes_before_they_leave() {
    let mut sim = alone(|_| {});
    sim.run_until(at_ms(30_000));
    sim.far[0].rtt = ms(100);
    let asked = next_probe(&mut sim);
    // Early retry wants two more 20 ms later, but there are no buffers for them in time.
    sim.far[0].sending = Sending::LocalFault("ENOBUFS");
    sim.run_until(asked + ms(150));
    let tried = sim.sent.iter().filter(|sent| sent.sending != Sending::Fine).count();
    assert!(tried >= 2, "they were wanted");
    sim.far[0].sending = Sending::Fine;
    let before = sim.sent.len();
    sim.run_until(asked + ms(940));
    assert_eq!(sim.sent.len(), before, "nothing is left to confirm");
    // And the next failure asks again.
    sim.cut(0);
    let _ = sim.run_to(0, State::Down, ms(3_000));
}

#[test]
fn short_of_buffers_a_probe_leaves_a_little_later() {
    let mut sim = alone(|_| {});
    sim.run_until(at_ms(30_000));
    sim.far[0].sending = Sending::LocalFault("ENOBUFS");
    let refused = next_probe(&mut sim);
    sim.far[0].sending = Sending::Fine;
    let left = next_probe(&mut sim);
    assert!(left.since(refused) <= ms(15), "{:?}", left.since(refused));
    sim.run_for(ms(500));
    assert_eq!(sim.view(0).counters.lost, 0);
}

#[test]
fn what_is_missing_after_a_stall_is_waited_for_in_full_once_more() {
    let mut sim = alone(|_| {});
    sim.run_until(at_ms(30_000));
    // The answer comes 100 ms after the stall, which began with the probe in flight.
    sim.far[0].rtt = ms(2_100);
    let _ = next_probe(&mut sim);
    sim.far[0].rtt = ms(10);
    sim.stall(ms(2_000));
    sim.run_for(ms(90));
    assert_eq!(sim.view(0).counters.lost, 0, "its deadline has passed while nobody listened");
    sim.run_for(ms(10_000));
    let counters = sim.view(0).counters;
    assert_eq!((counters.lost, counters.local_faults, counters.late), (0, 1, 1), "late, and no verdict");
}

#[test]
fn an_answer_that_was_late_by_the_kernel_s_stamp_is_no_success() {
    let mut sim = alone(|_| {});
    sim.run_until(at_ms(30_000));
    let received = sim.view(0).counters.received;
    sim.far[0].rtt = ms(800);
    let _ = next_probe(&mut sim);
    sim.far[0].cut = true;
    sim.stall(ms(850));
    let counters = sim.view(0).counters;
    assert_eq!((counters.received, counters.late), (received, 1), "it came in the stall, 300 ms too late");
    assert_eq!(counters.lost, 0, "and is no failure either: nobody could have seen it in time");
}

#[test]
fn in_a_stall_answers_are_judged_by_the_kernel_s_stamps() {
    let mut sim = alone(|_| {});
    sim.run_until(at_ms(30_000));
    sim.far[0].rtt = ms(450);
    let _ = next_probe(&mut sim);
    sim.stall(ms(60_000));
    let view = sim.view(0);
    assert_eq!(view.counters.lost, 0);
    assert_eq!(view.rtt.unwrap().last_us, 450_000, "not the minute that it waited in the queue");
}

#[test]
fn a_late_answer_feeds_the_estimator_once_however_often_it_comes() {
    let mut sim = alone(|_| {});
    sim.keep_bytes = true;
    sim.run_until(at_ms(30_000));
    sim.far[0].lose_next = 1;
    let sent = next_probe(&mut sim);
    let onion = sim.tunnels[0].onion.clone();
    let probe = sim.sent.iter().find(|probe| probe.at == sent).unwrap().bytes.clone();
    let answer = sim.far[0].answer(&probe, onion.style.direction, &onion);
    let last_rtt = |sim: &mut Sim| sim.view(0).rtt.unwrap().last_us;
    sim.inject(sent + ms(700), 0, 0, answer.clone());
    sim.run_until(sent + ms(701));
    assert_eq!(last_rtt(&mut sim), 700_000, "that the path has become slow is worth knowing");
    sim.run_until(sent + ms(2_500));
    assert_eq!(last_rtt(&mut sim), 10_000);
    sim.inject(sent + ms(2_600), 0, 0, answer);
    sim.run_until(sent + ms(2_601));
    assert_eq!(last_rtt(&mut sim), 10_000, "the same answer once more says nothing new");
    assert_eq!(sim.view(0).counters.late, 2);
}

/// So many tunnels ask for a burst at once that the pace alone would take longer than the short
/// window: what pacing cannot do in time leaves at its last moment.
#[test]
fn pacing_never_stretches_a_burst_past_the_short_window() {
    const TUNNELS: u32 = 60_000;
    let settings = |index| {
        let mut settings = tunnel(index);
        settings.check.interval = Duration::from_secs(60);
        settings.check.timeout = Timeout::Fixed(ms(200));
        settings.check.early_retry = false;
        settings
    };
    let tunnels: Vec<Tunnel> = (0..TUNNELS).map(settings).collect();
    let setup = Setup {
        tunnels: tunnels.clone(),
        routes: Vec::new(),
        places: Vec::new(),
        steers: false,
        secret: secret(),
        record: false,
        associations: std::collections::BTreeMap::new(),
    };
    let mut engine = Engine::new(Time::ZERO, WallTime(0), setup);
    // The first wake-up comes late: every tunnel is due, each with the two probes that follow. All are answered.
    let (mut now, mut buffer) = (at_ms(200_000), [0; 2048]);
    let begin = |engine: &mut Engine, now: Time| {
        engine.handle_wakeup(now);
        engine.handle_timeout(now);
    };
    begin(&mut engine, now);
    let mut healthy = 0;
    while healthy < TUNNELS {
        while let Some(transmit) = engine.poll_transmit(now, &mut buffer) {
            engine.handle_sent(now, now, [transmit].iter());
            let onion = &tunnels[transmit.tunnel as usize].onion;
            let answer = Far::default().answer(&buffer[..transmit.length], onion.style.direction, onion);
            engine.handle_datagram(now, now, 0, 0, arrived(&answer));
            healthy += u32::from(transmit.sequence == 2);
        }
        now = engine.next_wakeup(now).unwrap();
        engine.handle_wakeup(now);
    }
    // And again it comes late, but now nothing is answered: when time is out, all failures ask to be confirmed.
    let begun = at_ms(400_000);
    begin(&mut engine, begun);
    let mut regular = 0;
    while let Some(transmit) = engine.poll_transmit(begun, &mut buffer) {
        engine.handle_sent(begun, begun, [transmit].iter());
        regular += 1;
    }
    assert_eq!(regular, TUNNELS);
    now = begun + ms(200);
    engine.handle_timeout(now);
    let (mut confirming, mut paced) = (0, 0);
    while confirming < 2 * TUNNELS {
        let mut burst = 0;
        while engine.poll_transmit(now, &mut buffer).is_some() {
            burst += 1;
        }
        confirming += burst;
        paced += u32::from(burst > 0 && burst <= 2_100);
        let last = now.since(begun);
        assert!(last < ms(1_000), "confirming probes left {last:?} after their first");
        now = engine.next_wakeup(now).unwrap().ceil(engine.tick());
        engine.handle_wakeup(now);
    }
    assert!(paced > 20, "many of them were paced, not forced out at the end: {paced}");
}

#[test]
fn a_probe_of_a_large_batch_is_waited_for_and_timed_from_when_it_left_itself() {
    let mut sim = Sim::new((0..64).map(tunnel).collect(), Vec::new(), 5);
    (sim.by_ticks, sim.batch_takes) = (true, ms(4));
    sim.far.iter_mut().for_each(|far| far.rtt = ms(10));
    sim.run_until(at_ms(10_000));
    for index in 0..64 {
        let view = sim.view(index);
        let rtt = view.rtt.unwrap();
        // When it left is rounded up to a microsecond.
        assert!(rtt.min_us >= 9_999 && rtt.p99_us == 10_000, "tunnel {index}: {rtt:?}");
        assert_eq!(view.counters.lost, 0);
    }
    // Its answer comes just in time, though that is long after the time-out of its stamp.
    let mut sim = alone(|tunnel| (tunnel.check.timeout, tunnel.check.early_retry) = (Timeout::Fixed(ms(100)), false));
    (sim.sending_takes, sim.far[0].rtt) = (ms(4), ms(99));
    sim.run_until(at_ms(10_000));
    let view = sim.view(0);
    // Above 16 ms in steps of 16 µs.
    assert!((98_980..=99_000).contains(&view.rtt.unwrap().p99_us), "{:?}", view.rtt);
    assert_eq!(view.counters.lost, 0);
}

/// The most probes that leave within 100 ms of the first two seconds, of tunnels that answer.
fn most_at_once(sim: &Sim, begun: Time) -> usize {
    let slot = |at: Time| at.since(begun).as_millis() / 100;
    let of = |number| sim.sent.iter().filter(|sent| sent.at >= begun && slot(sent.at) == number).count();
    (0..20).map(of).max().unwrap_or_default()
}

#[test]
fn what_was_to_begin_while_the_daemon_was_being_made_does_not_begin_all_at_once() {
    let mut sim = Sim::new((0..1_000).map(tunnel).collect(), Vec::new(), 5);
    sim.now = at_ms(5_000);
    sim.run_until(at_ms(7_000));
    // Three at a time, and each again after a second.
    let most = most_at_once(&sim, at_ms(5_000));
    assert!((300..=420).contains(&most), "{most}");
}
