//! What this host does to its own probes, under virtual time: none of it is a tunnel's failure (law 4).

mod sim;

use std::time::Duration;

use adit::engine::event::Kind;
use adit::engine::{State, WallTime};
use sim::far::Sending;
use sim::{Sim, ms, tunnel};

/// One healthy tunnel with round trips of this length.
fn healthy(rtt: Duration) -> Sim {
    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    sim.far[0].rtt = rtt;
    sim.run_for(Duration::from_secs(10));
    assert_eq!(sim.state(0), State::Healthy);
    sim
}

fn lost(sim: &mut Sim) -> u64 {
    sim.view(0).counters.lost
}

fn faults(sim: &mut Sim) -> u64 {
    sim.view(0).counters.local_faults
}

/// The reasons of the local faults of this kind that were told.
fn faults_told(sim: &Sim, kind: &str) -> Vec<String> {
    let told = sim.events.iter().filter_map(|event| {
        let Kind::LocalFault { fault, reason, .. } = &event.kind else { return None };
        (*fault == kind).then(|| reason.clone())
    });
    told.collect()
}

#[test]
fn law_4_a_stop_between_a_probe_s_stamp_and_its_sending_is_no_loss() {
    // Shorter than a time-out, so that no timer is late: only the sending knows of it.
    for stop in [100, 300, 420, 480, 499, 501, 540, 700, 5_000] {
        let mut sim = healthy(ms(100));
        sim.sending_takes = ms(stop);
        sim.run_for(Duration::from_secs(3));
        sim.sending_takes = Duration::ZERO;
        sim.run_for(Duration::from_secs(3));
        assert_eq!((lost(&mut sim), sim.state(0)), (0, State::Healthy), "stopped for {stop} ms");
    }
}

#[test]
fn law_4_many_stops_that_are_each_too_short_to_be_told_are_no_loss() {
    let mut sim = healthy(ms(460));
    let before = sim.transitions().len();
    sim.sending_takes = ms(45);
    let end = sim.now + Duration::from_secs(60);
    while sim.now < end {
        sim.step(end);
        sim.stall(ms(45));
    }
    assert_eq!((lost(&mut sim), sim.transitions().len()), (0, before));
}

#[test]
fn law_4_a_stop_that_ends_just_after_a_deadline_is_noticed() {
    // A virtual machine that was paused: what it was sent meanwhile comes when it goes on, a little after
    // the deadline's timer has.
    let mut settings = tunnel(0);
    settings.check.early_retry = false;
    let mut sim = Sim::new(vec![settings], Vec::new(), 1);
    sim.far[0].rtt = ms(100);
    sim.run_for(Duration::from_secs(10));
    let probes = sim.sent.len();
    while sim.sent.len() == probes {
        sim.step(sim.now + ms(5));
    }
    let sent = sim.now;
    sim.delay_what_is_under_way(sent + ms(512));
    sim.run_until(sent + ms(10));
    sim.stall(ms(500));
    sim.run_for(Duration::from_secs(2));
    assert_eq!((lost(&mut sim), sim.state(0)), (0, State::Healthy));
    assert_eq!(faults(&mut sim), 1, "and no success: it was too late");
}

#[test]
fn law_4_a_stop_between_the_beginning_of_a_turn_and_its_reading_is_no_loss() {
    let mut sim = healthy(ms(20));
    let probes = sim.sent.len();
    while sim.sent.len() == probes {
        sim.step(sim.now + ms(5));
    }
    // The answer is late, because this whole host stood still; and it is read by a turn that began before the
    // deadline.
    sim.delay_what_is_under_way(sim.now + ms(900));
    sim.reading_takes = ms(1_000);
    sim.stall(ms(40));
    sim.reading_takes = Duration::ZERO;
    sim.run_for(ms(1));
    assert_eq!(lost(&mut sim), 0, "it has not been waited for while this process ran");
}

#[test]
fn what_this_host_held_up_says_nothing_about_the_path() {
    let mut sim = healthy(ms(20));
    let before = sim.engine.explain(sim.now, 0).unwrap();
    sim.sending_takes = Duration::from_secs(3);
    sim.run_for(ms(1_500));
    sim.sending_takes = Duration::ZERO;
    sim.run_for(Duration::from_secs(10));
    let view = sim.view(0);
    assert!(view.rtt.unwrap().p99_us < 40_000, "{:?}", view.rtt);
    assert!(!sim.events.iter().any(|event| matches!(event.kind, Kind::Warning { .. })));
    assert!(before.counters.local_faults < view.counters.local_faults);
}

#[test]
fn a_path_that_is_as_slow_as_the_time_out_is_late_whatever_this_host_does() {
    let mut sim = healthy(ms(20));
    sim.far[0].rtt = ms(620);
    let end = sim.now + Duration::from_secs(10);
    while sim.now < end {
        sim.step(end);
        sim.stall(ms(20));
    }
    assert_eq!(sim.state(0), State::Down, "small stops do not hide it");
}

#[test]
fn a_dead_tunnel_is_found_though_every_sending_is_held_up() {
    let mut sim = healthy(ms(20));
    sim.sending_takes = ms(300);
    sim.cut(0);
    sim.run_to(0, State::Down, Duration::from_secs(10));
}

#[test]
fn a_wall_clock_that_is_set_is_told_and_one_that_is_kept_right_or_slept_is_not() {
    let mut sim = healthy(ms(20));
    let mut wall = u64::MAX / 2;
    sim.engine.set_wall(sim.now, WallTime(wall));
    let mut told = Vec::new();
    // Milliseconds that pass on the monotonic clock, on the wall clock, and while the host sleeps.
    for (passed, seen, asleep) in [
        (10_000, 10_000, 0),
        (10_000, 10_900, 0),
        (10_000, 9_100, 0),
        (10_000, 3_610_000, 0),
        (10_000, 10_000 - 3_600_000, 0),
        (10_000, 7_210_000, 7_200_000),
        (10_000, 8_000, 0),
    ] {
        sim.run_for(ms(passed));
        let before = faults_told(&sim, "clock-step").len();
        wall = wall.checked_add_signed(seen * 1_000_000).unwrap();
        sim.command(|engine, now| engine.handle_clock(now, WallTime(wall), ms(asleep)));
        told.push(faults_told(&sim, "clock-step").len() - before);
    }
    assert_eq!(told, [0, 0, 0, 1, 1, 0, 1]);
    assert!(faults_told(&sim, "clock-step")[0].contains("ahead by 3600 s"), "{:?}", faults_told(&sim, "clock-step"));
    assert_eq!((lost(&mut sim), sim.state(0), sim.transitions().len()), (0, State::Healthy, 1));
}

#[test]
fn a_stop_is_told_by_where_it_was_and_counted_once() {
    let mut sim = healthy(ms(20));
    sim.sending_takes = ms(700);
    let end = sim.now + Duration::from_secs(2);
    while sim.engine.troubles().is_empty() {
        sim.step(end);
    }
    sim.sending_takes = Duration::ZERO;
    sim.run_for(ms(900));
    let [stall] = &sim.engine.troubles()[..] else { panic!("{:?}", sim.engine.troubles()) };
    assert_eq!((stall.fault, stall.count), ("stall", 1));
    assert!(stall.reason.contains("700 ms while sending"), "{}", stall.reason);
}

#[test]
fn how_late_the_loop_was_woken_is_measured() {
    let mut sim = healthy(ms(20));
    let before = sim.engine.own_metrics().lag.totals();
    sim.stall(ms(1_500));
    let after = sim.engine.own_metrics().lag.totals();
    assert_eq!(after.0, before.0 + 1);
    let late = after.1.saturating_sub(before.1);
    assert!(late > ms(450) && late <= ms(1_500), "{late:?}");
}

#[test]
fn every_kind_of_trouble_has_a_row_in_the_readme() {
    let readme = include_str!("../README.md");
    for (kind, _) in adit::engine::KINDS {
        assert!(readme.contains(&format!("\n| `{kind}` | ")), "{kind}");
    }
}

#[test]
fn a_tunnel_is_told_which_of_its_probes_this_host_has_spoilt_and_how() {
    let mut sim = healthy(ms(20));
    assert!(sim.engine.explain(sim.now, 0).unwrap().inconclusive.is_empty());
    sim.far[0].sending = Sending::LocalFault("ENOBUFS");
    sim.run_for(ms(1_100));
    sim.far[0].sending = Sending::Fine;
    sim.far[0].rtt = ms(100);
    sim.run_for(ms(2_000));
    let probes = sim.sent.len();
    while sim.sent.len() == probes {
        sim.step(sim.now + ms(5));
    }
    let slept = sim.now;
    sim.command(|engine, now| engine.handle_suspend(now, Duration::from_secs(60)));
    let explanation = sim.engine.explain(sim.now, 0).unwrap();
    let last = explanation.inconclusive.last().unwrap();
    assert_eq!((last.fault, last.reason), ("suspend", "the host slept"));
    assert_eq!(last.at, WallTime(slept.as_nanos()));
    assert_eq!(explanation.inconclusive[0].fault, "send");
    assert!(explanation.inconclusive.len() <= 4, "few are remembered: {:?}", explanation.inconclusive);
    assert!(explanation.counters.local_faults > 4, "and all are counted");
    assert_eq!(explanation.counters.lost, 0);
    let fault = |trouble: &adit::engine::Trouble| (trouble.fault, trouble.reason.clone());
    let troubles: Vec<_> = explanation.host.troubles.iter().map(fault).collect();
    let expected = [("send", "ENOBUFS"), ("suspend", "the host slept for 60 s")];
    assert_eq!(troubles, expected.map(|(fault, reason)| (fault, reason.to_owned())));
}
