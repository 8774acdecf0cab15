//! Law 7: what is worth keeping survives, under virtual time; and what the bytes of it may be.

#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on must fail")]

mod sim;

use std::time::Duration;

use adit::engine::drain::Reason;
use adit::engine::event::{CAPACITY, Kind as Told};
use adit::engine::health::{Ratio, State};
use adit::engine::memory::{Damage, File, HEADER, Kind, Memory, Samples, Scribe, Seal, Verdict, decode, examine};
use adit::engine::schedule::TICK;
use adit::engine::settings::Timeout;
use adit::engine::snapshot::TunnelView;
use adit::engine::{Drain, Drained, FailStatic, Order, Steer, Time, Tunnel, WallTime};
use adit::io::clock::Clock;
use adit::io::memory::{Report, Step, open};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use sim::{Sim, at_ms, ms, route, tunnel};

const START: Time = Time::from_nanos(1_000_000_000_000);

fn sim_at(now: Time, tunnels: Vec<Tunnel>) -> Sim {
    let routes = (0..u32::try_from(tunnels.len()).unwrap()).map(route).collect();
    Sim::starting(now, tunnels, routes, 7, false)
}

/// Four tunnels, one in each state but the last, which is drained besides.
fn troubled() -> Sim {
    let mut sim = sim_at(START, (0..4).map(tunnel).collect());
    sim.run_for(Duration::from_secs(60));
    sim.cut(1);
    sim.far[2].loss_ppm = 300_000;
    sim.run_for(Duration::from_secs(20));
    sim.far[2].loss_ppm = 0;
    sim.engine.drain(sim.now, 3, order());
    sim.run_for(Duration::from_secs(5));
    let states = (0..4).map(|tunnel| sim.engine.state(tunnel).unwrap()).collect::<Vec<_>>();
    assert_eq!(states, [State::Healthy, State::Down, State::Degraded, State::Healthy]);
    sim
}

/// What an operator asks for.
fn order() -> Order {
    let until = Some(WallTime((START + Duration::from_secs(100_000)).as_nanos()));
    Order { level: Drain::Down, until, reason: Reason::new("replace the line card").ok(), by: Some(1_000) }
}

fn memory(sim: &Sim, clean: bool) -> Memory {
    let [states, windows] = [Kind::States, Kind::Windows].map(|kind| sim.engine.written(kind, sim.now, clean));
    Memory {
        states: Some(decode(Kind::States, &states.bytes).unwrap()),
        windows: Some(decode(Kind::Windows, &windows.bytes).unwrap()),
    }
}

/// Another run that begins so much later.
fn restarted(sim: &Sim, later: Duration, tunnels: Vec<Tunnel>, clean: bool) -> Sim {
    restarted_with(sim.now + later, tunnels, memory(sim, clean))
}

fn restarted_with(now: Time, tunnels: Vec<Tunnel>, memory: Memory) -> Sim {
    let mut next = sim_at(now, tunnels);
    // Numbers of events do not begin at 1.
    next.gaps_allowed = true;
    next.engine.remember(now, WallTime(now.as_nanos()), memory);
    next
}

#[test]
fn what_an_earlier_run_knew_is_probed_at_its_pace_though_to_take_it_up_took_long() {
    let tunnels: Vec<Tunnel> = (0..1_000).map(tunnel).collect();
    let mut sim = sim_at(START, tunnels.clone());
    sim.gaps_allowed = true;
    sim.run_for(Duration::from_secs(10));
    let mut next = restarted(&sim, ms(100), tunnels, true);
    next.now = next.now + ms(3_000);
    let begun = next.now;
    next.run_for(ms(1_000));
    let times: Vec<Duration> = next.sent.iter().map(|sent| sent.at.since(begun)).collect();
    let slots = (0_u128..10).map(|slot| times.iter().filter(|at| at.as_millis() / 100 == slot).count());
    let slots: Vec<usize> = slots.collect();
    assert!(slots.iter().all(|count| (50..=150).contains(count)), "{slots:?}");
}

fn views(sim: &mut Sim) -> Vec<TunnelView> {
    let now = sim.now;
    sim.engine.tunnels(now)
}

fn costs(sim: &mut Sim) -> Vec<Steer> {
    let mut all: Vec<_> = std::iter::from_fn(|| sim.engine.poll_steer()).collect();
    all.sort_by_key(|steer| steer.tunnel);
    all
}

fn transitions(sim: &Sim) -> usize {
    sim.engine.events().after(0).filter(|event| matches!(event.kind, Told::Transition { .. })).count()
}

#[test]
fn law_7_a_restart_forgets_nothing() {
    let mut before = troubled();
    let mut after = restarted(&before, Duration::ZERO, before.tunnels.clone(), true);
    // The estimators and windows too; only what this run has counted begins anew.
    let rounded = |mut view: TunnelView| {
        (view.counters, view.samples) = Default::default();
        (view.last_failure, view.last_reject) = (None, None);
        view
    };
    let (known, remembered) = (views(&mut before), views(&mut after));
    assert_eq!(
        remembered.into_iter().map(rounded).collect::<Vec<_>>(),
        known.into_iter().map(rounded).collect::<Vec<_>>()
    );
    assert_eq!(transitions(&after), 0, "it is how it was");
    assert_eq!(after.engine.route_views(), before.engine.route_views());
}

#[test]
fn law_7_routes_cost_after_a_restart_what_they_did() {
    let before = troubled();
    let mut after = restarted(&before, Duration::from_secs(3), before.tunnels.clone(), true);
    let penalties = [0, 1_000_000, 500_000, 1_000_000].map(Some);
    let wanted: Vec<_> = (0..).zip(penalties).map(|(tunnel, penalty)| Steer { tunnel, penalty }).collect();
    assert_eq!(costs(&mut after), wanted);
}

#[test]
fn law_7_after_a_restart_the_rules_go_on_where_they_were() {
    let before = troubled();
    let mut after = restarted(&before, Duration::from_secs(3), before.tunnels.clone(), true);
    after.cut(1);
    // The window of the degraded one empties as if nothing had happened: five minutes after its last loss.
    after.run_for(Duration::from_secs(200));
    assert_eq!(after.engine.state(2), Some(State::Degraded));
    assert_eq!(transitions(&after), 0, "nothing has happened");
    after.run_for(Duration::from_secs(120));
    assert_eq!(after.engine.state(2), Some(State::Healthy));
    assert_eq!(after.engine.state(1), Some(State::Down));
}

#[test]
fn law_7_one_failure_before_and_one_after_a_restart_are_two() {
    let mut before = sim_at(START, vec![tunnel(0)]);
    before.run_for(Duration::from_secs(20));
    before.far[0].loss_ppm = 1_000_000;
    while views(&mut before)[0].window.failures == 0 {
        before.run_for(ms(1));
        // One only: the confirming probes are answered.
        before.far[0].loss_ppm =
            if before.sent.last().is_some_and(|sent| before.now.since(sent.at) < ms(400)) { 0 } else { 1_000_000 };
    }
    before.far[0].loss_ppm = 0;
    before.run_for(Duration::from_secs(3));
    assert_eq!((before.engine.state(0), views(&mut before)[0].window.failures), (Some(State::Healthy), 1));
    let mut after = restarted(&before, ms(100), before.tunnels.clone(), false);
    assert_eq!(views(&mut after)[0].window.failures, 1);
}

#[test]
fn what_is_older_than_five_minutes_is_stale_until_confirmed() {
    let before = troubled();
    let mut after = restarted(&before, Duration::from_secs(301), before.tunnels.clone(), true);
    after.cut(1);
    let seen = views(&mut after);
    assert_eq!(
        seen.iter().map(|view| view.state).collect::<Vec<_>>(),
        [State::Healthy, State::Down, State::Degraded, State::Healthy]
    );
    assert!(seen.iter().all(|view| view.stale && view.window.samples == 0 && view.rtt.is_none()));
    assert!(seen[0].reason.contains("remembered from long ago"), "{}", seen[0].reason);
    assert!(seen[3].drained);
    after.run_for(Duration::from_secs(4));
    let seen = views(&mut after);
    assert!(seen.iter().all(|view| !view.stale), "three samples each");
    assert_eq!(transitions(&after), 0, "{:#?}", after.events);
}

#[test]
fn at_the_age_of_five_minutes_everything_is_taken_up() {
    let before = troubled();
    let mut after = restarted(&before, Duration::from_secs(300), before.tunnels.clone(), true);
    assert!(views(&mut after).iter().all(|view| !view.stale));
    assert!(views(&mut after)[0].rtt.is_some() || views(&mut after)[0].window.samples == 0);
}

#[test]
fn a_tunnel_that_goes_another_way_is_another_tunnel_but_stays_drained() {
    let before = troubled();
    let mut tunnels = before.tunnels.clone();
    for (place, other) in tunnels.iter_mut().zip(10..) {
        place.onion = tunnel(other).onion;
    }
    let mut after = restarted(&before, ms(10), tunnels, true);
    let seen = views(&mut after);
    assert!(seen.iter().all(|view| view.state == State::Unknown && view.window.samples == 0));
    assert_eq!(seen.iter().map(|view| view.drained).collect::<Vec<_>>(), [false, false, false, true]);
    let unknown = |tunnel| Steer { tunnel, penalty: None };
    assert_eq!(costs(&mut after)[..3], [unknown(0), unknown(1), unknown(2)]);
}

#[test]
fn tunnels_are_found_by_their_names_not_by_their_order() {
    let before = troubled();
    let tunnels: Vec<_> = before.tunnels.iter().rev().cloned().collect();
    let mut after = restarted(&before, ms(10), tunnels, true);
    let seen: Vec<_> = views(&mut after).into_iter().map(|view| (view.name, view.state)).collect();
    assert_eq!(seen[2], ("t1".to_owned(), State::Down));
    assert_eq!(seen[1], ("t2".to_owned(), State::Degraded));
}

#[test]
fn a_tunnel_that_is_not_checked_any_more_is_unknown() {
    let before = troubled();
    let mut tunnels = before.tunnels.clone();
    tunnels.iter_mut().for_each(|tunnel| tunnel.check.enabled = false);
    let mut after = restarted(&before, ms(10), tunnels, true);
    assert!(views(&mut after).iter().all(|view| view.state == State::Unknown));
    assert!(views(&mut after)[3].drained);
}

#[test]
fn numbers_of_events_go_on_and_none_comes_twice() {
    let before = troubled();
    let last = before.engine.events().last();
    let clean = restarted(&before, ms(10), before.tunnels.clone(), true);
    assert_eq!(clean.engine.events().first(), last + 1, "the start is the next event");
    let crashed = restarted(&before, ms(10), before.tunnels.clone(), false);
    let ahead = before.engine.events_ahead();
    assert!(ahead >= CAPACITY as u64 + 4 * 8);
    assert_eq!(crashed.engine.events().first(), last + 1 + ahead);
    assert_eq!(crashed.engine.events().missed(last), ahead, "who follows is told that there may be a hole");
    // Where one of the files is lost, the other one knows.
    for lost in [Kind::States, Kind::Windows] {
        let mut memory = memory(&before, false);
        match lost {
            Kind::States => memory.states = None,
            Kind::Windows => memory.windows = None,
        }
        let next = restarted_with(before.now + ms(10), before.tunnels.clone(), memory);
        assert_eq!(next.engine.events().first(), last + 1 + ahead);
    }
}

#[test]
fn a_file_is_written_a_few_tunnels_a_turn() {
    let mut sim = sim_at(START, (0..3_000).map(tunnel).collect());
    sim.gaps_allowed = true;
    sim.run_for(Duration::from_secs(30));
    for kind in [Kind::States, Kind::Windows] {
        let mut scribe = Scribe::begin(kind, &sim.engine, sim.now, false);
        let mut sizes = Vec::new();
        loop {
            let piece = scribe.go_on(&sim.engine, sim.now);
            sizes.push(piece.bytes.len());
            if piece.is_last {
                break;
            }
        }
        assert_eq!(sizes.iter().sum::<usize>() + HEADER, sim.engine.written(kind, sim.now, false).bytes.len());
        assert!(sizes.len() > 2 && sizes.iter().all(|size| *size < 64 << 10), "{sizes:?}");
    }
}

/// What is written down while time goes on and samples come has each sample at its time.
#[test]
fn a_file_that_took_long_to_write_has_the_right_times() {
    let mut sim = sim_at(START, (0..4).map(tunnel).collect());
    sim.run_for(Duration::from_secs(20));
    let mut scribe = Scribe::begin(Kind::Windows, &sim.engine, sim.now, false);
    sim.run_for(Duration::from_secs(7));
    let (mut seal, piece) = (Seal::default(), scribe.go_on(&sim.engine, sim.now));
    assert!(piece.is_last);
    seal.add(&piece.bytes);
    let bytes = [&seal.header(Kind::Windows)[..], &piece.bytes].concat();
    let mut memory = memory(&sim, false);
    memory.windows = Some(decode(Kind::Windows, &bytes).unwrap());
    let mut after = restarted_with(sim.now, sim.tunnels.clone(), memory);
    let now = sim.now;
    for tunnel in 0..4 {
        let [samples, again] = [&mut sim, &mut after].map(|sim| sim.engine.explain(now, tunnel).unwrap().samples);
        assert!(samples.len() > 25);
        for (one, other) in samples.iter().zip(&again) {
            assert!(one.at.0.abs_diff(other.at.0) < 1_000_000 && one.ok == other.ok, "{one:?}, {other:?}");
        }
        assert_eq!(samples.len(), again.len());
    }
}

/// A healthy tunnel's samples are on the disk; then it goes down, which is on the disk at once, and the daemon
/// is killed. By the old samples the first success would make it rise.
#[test]
fn law_7_a_verdict_does_not_rest_on_samples_from_before_it() {
    let mut before = sim_at(START, vec![tunnel(0)]);
    before.run_for(Duration::from_secs(60));
    let windows = memory(&before, false).windows;
    before.cut(0);
    before.run_for(Duration::from_secs(5));
    assert_eq!(before.engine.state(0), Some(State::Down));
    let states = memory(&before, false).states;
    let mut after = restarted_with(before.now + ms(300), before.tunnels.clone(), Memory { states, windows });
    let now = after.now;
    let next = after.engine.explain(now, 0).unwrap().next;
    assert_eq!(next[0].needs, "3 more successes in a row");
    let (view, [failures, last]) =
        (views(&mut after).remove(0), [before.view(0), after.view(0)].map(|view| view.last_30));
    assert_eq!(failures, last, "the last samples are those that led to the verdict");
    assert!(view.window.samples > 50, "the long window has what was written down");
    // And from degraded to healthy it takes thirty of its own.
    let successes = after.run_to(0, State::Degraded, Duration::from_secs(10));
    let healthy = after.run_to(0, State::Healthy, Duration::from_secs(400));
    assert!(healthy.since(successes) >= Duration::from_secs(24), "{:?}", healthy.since(successes));
}

#[test]
fn what_is_stale_is_stale_after_another_restart_however_soon() {
    let before = troubled();
    let next = restarted(&before, Duration::from_secs(400), before.tunnels.clone(), false);
    let mut after = restarted(&next, ms(200), before.tunnels, false);
    assert!(views(&mut after).iter().all(|view| view.stale));
    after.cut(1);
    after.run_for(Duration::from_secs(4));
    assert!(views(&mut after).iter().all(|view| !view.stale));
    assert_eq!(transitions(&after), 0);
}

#[test]
fn law_7_what_a_tunnel_that_cannot_be_probed_costs_is_remembered_and_no_more() {
    let mut before = troubled();
    // So long that it was not the device that had swallowed the probes.
    before.run_for(Duration::from_secs(40));
    before.command(|engine, now| engine.handle_withheld(now, 1, Some("why")));
    let mut after = restarted(&before, ms(10), before.tunnels.clone(), false);
    let seen = views(&mut after).remove(1);
    assert_eq!((seen.state, seen.penalty, seen.stale), (State::Unknown, 1_000_000, false));
    assert!(seen.reason.contains("when it was last down"), "{}", seen.reason);
    assert!(costs(&mut after).contains(&Steer { tunnel: 1, penalty: Some(1_000_000) }));
    // It begins anew, and what it is then is told.
    after.run_to(1, State::Healthy, Duration::from_secs(3));
    assert_eq!((transitions(&after), after.view(1).penalty), (1, 0));
}

#[test]
fn the_same_addresses_by_another_exit_are_another_tunnel() {
    let before = troubled();
    let mut tunnels = before.tunnels.clone();
    tunnels.iter_mut().for_each(|tunnel| tunnel.exit = 7);
    let mut after = restarted(&before, ms(10), tunnels, true);
    assert!(views(&mut after).iter().all(|view| view.state == State::Unknown));
    assert!(views(&mut after)[3].drained);
}

/// It is three times what the path takes, 200 ms at least, 500 ms at most; with a late answer of 250 ms it is
/// 500 ms.
#[test]
fn a_time_out_that_follows_the_path_is_the_same_after_a_restart() {
    for (slowest, timeout) in [(20, 200), (250, 500)] {
        let mut auto = tunnel(0);
        (auto.check.timeout, auto.check.early_retry) = (Timeout::Auto, false);
        let mut before = sim_at(START, vec![auto]);
        before.far[0].rtt = ms(20);
        before.run_for(Duration::from_secs(41));
        before.far[0].rtt = ms(slowest);
        before.run_for(Duration::from_secs(1));
        before.far[0].rtt = ms(20);
        before.run_for(Duration::from_secs(10));
        // The last success must be a second old when the third failure comes, or that does not count yet.
        while before.now.since(before.sent.last().unwrap().at) < ms(900) {
            before.run_for(ms(10));
        }
        assert_eq!(before.view(0).counters.late > 0, slowest > 200, "{:?}", before.view(0));
        let mut after = restarted(&before, Duration::ZERO, before.tunnels.clone(), true);
        for sim in [&mut before, &mut after] {
            sim.cut(0);
            let from = sim.now;
            let down = sim.run_to(0, State::Down, Duration::from_secs(10));
            let first = sim.sent.iter().find(|sent| sent.at >= from).unwrap().at;
            // The first one's time-out, and then that of the two that confirm it.
            assert_eq!(down.since(first), ms(2 * timeout), "{slowest}");
        }
    }
}

/// This host is in trouble, and the prober with it: it is started again while routes are held.
#[test]
fn law_7_routes_that_were_held_stay_held_over_a_restart() {
    let settings = Some(FailStatic { share: Ratio(500_000), while_clean: false });
    let mut before = sim_at(START, (0..4).map(tunnel).collect());
    before.engine.set_fail_static(settings);
    before.run_for(Duration::from_secs(10));
    (0..4).for_each(|tunnel| before.cut(tunnel));
    for _ in 0..10 {
        before.command(|engine, now| engine.handle_kernel_overrun(now));
        before.run_for(ms(300));
    }
    let held = before.engine.held().unwrap().since;
    let mut after = sim_at(before.now + ms(200), before.tunnels.clone());
    (after.gaps_allowed, after.haste_allowed) = (true, true);
    after.engine.set_fail_static(settings);
    (0..4).for_each(|tunnel| after.cut(tunnel));
    after.engine.remember(after.now, WallTime(after.now.as_nanos()), memory(&before, false));
    assert_eq!(after.engine.held().unwrap().since, held);
    after.run_for(ms(500));
    assert_eq!(costs(&mut after), [], "no route hears of a death");
    // This host is well now: then it is the tunnels.
    after.run_for(Duration::from_secs(10));
    assert!(after.engine.held().is_none());
    let all: Vec<_> = (0..4).map(|tunnel| Steer { tunnel, penalty: Some(1_000_000) }).collect();
    assert_eq!(costs(&mut after), all);
    // What was held long ago is not.
    let mut later = sim_at(before.now + Duration::from_secs(400), before.tunnels.clone());
    later.engine.set_fail_static(settings);
    later.engine.remember(later.now, WallTime(later.now.as_nanos()), memory(&before, false));
    assert!(later.engine.held().is_none());
}

/// Files of four tunnels as each version of the format was written: what follows can read them.
#[test]
fn files_of_every_version_so_far_are_read() {
    // Once, when the format of a file has another version.
    if std::env::var_os("ADIT_WRITE_GOLDEN").is_some() {
        let File { kind, bytes } = &files()[0];
        std::fs::write(golden(kind.name(), 2), bytes).unwrap();
    }
    for version in [1, 2] {
        let drained = goes_on_from(version, 1);
        let known = Drained { order: order(), since: WallTime(1_080_000_000_000) };
        // The first one knew no more than that it was drained when the file was written.
        let plain = Drained { order: Drain::Down.into(), since: WallTime(1_085_000_000_000) };
        assert_eq!(drained, if version == 1 { plain } else { known });
    }
}

/// The four tunnels go on where these files were written; how the last one is drained.
fn goes_on_from(states: u8, windows: u8) -> Drained {
    let [states, windows] =
        [("states", states), ("windows", windows)].map(|(name, version)| std::fs::read(golden(name, version)).unwrap());
    let memory = Memory {
        states: Some(decode(Kind::States, &states).unwrap()),
        windows: Some(decode(Kind::Windows, &windows).unwrap()),
    };
    let saved = memory.states.as_ref().unwrap().0.saved;
    assert_eq!(saved, 1_085_000_000_000);
    let mut after = restarted_with(Time::from_nanos(saved) + ms(1_000), (0..4).map(tunnel).collect(), memory);
    let seen = views(&mut after);
    let states = seen.iter().map(|view| view.state).collect::<Vec<_>>();
    assert_eq!(states, [State::Healthy, State::Down, State::Degraded, State::Healthy]);
    assert_eq!(seen.iter().map(|view| view.penalty).collect::<Vec<_>>(), [0, 1_000_000, 500_000, 1_000_000]);
    assert!(seen.iter().all(|view| !view.stale && view.window.samples > 80), "{seen:?}");
    assert_eq!(seen[1].reason, "rule 1: all of the last 3 samples failed within 1s");
    assert_eq!(seen[0].rtt.unwrap().min_us, 10_000);
    seen[3].drain.clone().unwrap()
}

fn golden(name: &str, version: u8) -> String {
    format!("{}/fixtures/memory/{name}.v{version}", env!("CARGO_MANIFEST_DIR"))
}

fn damage(kind: Kind, bytes: &[u8]) -> Result<(), Damage> {
    // What is refused before it is read is no more than what is refused then.
    let length = bytes.len() as u64;
    let first = examine(kind, &bytes[..bytes.len().min(HEADER)], length);
    let refused = match kind {
        Kind::States => decode::<Verdict>(kind, bytes).map(drop),
        Kind::Windows => decode::<Samples>(kind, bytes).map(drop),
    };
    assert!(first.is_ok() || first == refused, "{first:?}, {refused:?}");
    refused
}

fn files() -> [File; 2] {
    let sim = troubled();
    [Kind::States, Kind::Windows].map(|kind| sim.engine.written(kind, sim.now, true))
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    for File { kind, bytes } in files() {
        assert_eq!(damage(kind, &bytes), Ok(()));
        for length in 0..bytes.len() {
            assert!(damage(kind, &bytes[..length]).is_err(), "{kind:?}, {length}");
        }
        assert_eq!(damage(kind, &[&bytes[..], b"x"].concat()), Err(Damage::Length));
    }
}

#[test]
fn a_file_with_any_bit_flipped_is_refused() {
    for File { kind, mut bytes } in files() {
        for bit in 0..bytes.len().min(4_000) * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(damage(kind, &bytes).is_err(), "{kind:?}, bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn each_way_to_be_wrong_has_its_name() {
    let [states, windows] = files();
    assert_eq!(damage(Kind::States, b""), Err(Damage::Foreign));
    assert_eq!(damage(Kind::States, &windows.bytes), Err(Damage::Foreign));
    let mut newer = states.bytes.clone();
    newer[9] = 3;
    assert_eq!(damage(Kind::States, &newer), Err(Damage::Newer { version: 3, known: 2 }));
    let mut newer = windows.bytes;
    newer[9] = 2;
    assert_eq!(damage(Kind::Windows, &newer), Err(Damage::Newer { version: 2, known: 1 }));
    let mut other = states.bytes;
    *other.last_mut().unwrap() ^= 1;
    assert_eq!(damage(Kind::States, &other), Err(Damage::Checksum));
}

/// Bytes under a true header: the notation itself must bear anything.
fn under_a_header(kind: Kind, version: u8, content: &[u8]) -> Vec<u8> {
    use sha2::Digest;
    let code = if kind == Kind::States { 1 } else { 2 };
    let length = (content.len() as u64).to_le_bytes();
    let parts: [&[u8]; 5] = [b"\x89adit\r\n\x1a", &[code, version], &length, &sha2::Sha256::digest(content), content];
    parts.concat()
}

proptest! {
    #![proptest_config(Config { rng_seed: RngSeed::Fixed(0x0007), cases: 1_000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(content in prop::collection::vec(any::<u8>(), 0..400), windows: bool) {
        let kind = if windows { Kind::Windows } else { Kind::States };
        let _ = damage(kind, &content);
        for version in [1, 2] {
            let _ = damage(kind, &under_a_header(kind, version, &content));
        }
    }

    #[test]
    fn whatever_is_read_can_be_taken_up(seed in any::<u64>(), flips in prop::collection::vec((0..4_000_usize, 0..8_u8), 1..6)) {
        // As a later version, or a hand, may have written it: valid, but not what we would write.
        let sim = troubled_once();
        let mut memory = Memory::default();
        for kind in [Kind::States, Kind::Windows] {
            let mut content = sim.engine.written(kind, sim.now, seed % 2 == 0).bytes.split_off(50);
            for &(at, bit) in &flips {
                let at = at % content.len();
                content[at] ^= 1 << bit;
            }
            let bytes = under_a_header(kind, if kind == Kind::States { 2 } else { 1 }, &content);
            match kind {
                Kind::States => memory.states = decode(kind, &bytes).ok(),
                Kind::Windows => memory.windows = decode(kind, &bytes).ok(),
            }
        }
        let mut next = sim_at(sim.now + ms(seed % 400_000), sim.tunnels.clone());
        let now = next.now;
        next.engine.remember(now, WallTime(now.as_nanos()), memory);
        (next.haste_allowed, next.gaps_allowed) = (true, true);
        next.run_for(Duration::from_secs(3));
        let now = next.now;
        for tunnel in 0..4 {
            next.engine.explain(now, tunnel);
        }
        views(&mut next);
    }
}

/// The same, made once.
fn troubled_once() -> &'static Sim {
    use std::sync::OnceLock;
    static ONCE: OnceLock<Sim> = OnceLock::new();
    ONCE.get_or_init(troubled)
}

#[test]
fn time_before_the_clock_began_does_no_harm() {
    let before = troubled();
    let mut after = sim_at(at_ms(0), before.tunnels.clone());
    let wall = WallTime(before.now.as_nanos());
    after.engine.remember(Time::ZERO, wall, memory(&before, true));
    assert_eq!(views(&mut after)[1].state, State::Down);
}

/// How many tunnels are remembered: `ADIT_TUNNELS`, or a few.
fn many_tunnels() -> u32 {
    std::env::var("ADIT_TUNNELS").map_or(2_000, |count| count.parse().unwrap())
}

/// How long a turn of the loop is held up, and what a restart takes, is printed; that all of them are taken up
/// again, from many small pieces, is proven. `ADIT_TUNNELS=100000 cargo test --release --test memory --
/// --nocapture remembered_in_pieces`.
#[test]
fn many_tunnels_are_remembered_in_pieces_and_all_taken_up() {
    let clock = Clock::start();
    for seconds in [10, 1] {
        let samples = 300 / seconds;
        let engine = many(seconds);
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path()).unwrap();
        for (kind, mut writer) in [(Kind::States, opened.states), (Kind::Windows, opened.windows)] {
            let mut scribe = Scribe::begin(kind, &engine, START, false);
            let (begin, mut turns) = (clock.now(), Vec::new());
            let mut step = Some(Step::Begin);
            let mut ended = false;
            while !ended {
                let turn = clock.now();
                // As many as the daemon writes in a turn, and a turn in each tick.
                for _ in 0..4 {
                    let next = step.take().unwrap_or_else(|| Step::Piece(scribe.go_on(&engine, START)));
                    let is_last = next.is_last();
                    step = writer.offer(next);
                    ended = is_last && step.is_none();
                    if ended || step.is_some() {
                        break;
                    }
                }
                turns.push(clock.now().since(turn));
                std::thread::sleep(TICK);
            }
            let (disk, bytes) = loop {
                match writer.report() {
                    Some(report) => break report.outcome.unwrap(),
                    None => std::thread::sleep(ms(1)),
                }
            };
            let all = clock.now().since(begin);
            turns.sort();
            let (longest, sum) = (turns.last().unwrap(), turns.iter().sum::<Duration>());
            let usual = turns[turns.len() * 99 / 100];
            assert!(bytes < turns.len() as u64 * (512 << 10), "{bytes} bytes in {} turns", turns.len());
            println!(
                "{samples} samples each, {}: {} turns, 99 % below {usual:?}, the longest {longest:?}, together {sum:?}; {bytes} bytes, on the \
                 disk after {all:?}, of which the disk {disk:?}",
                kind.name(),
                turns.len()
            );
            let begin = clock.now();
            let Report { outcome } = writer.finish(&clock, begin + Duration::from_secs(60), {
                let mut scribe = Scribe::begin(kind, &engine, START, true);
                let engine = &engine;
                move || scribe.go_on(engine, START)
            });
            outcome.unwrap();
            println!("  all at once, at an end: {:?}", clock.now().since(begin));
        }
        let begin = clock.now();
        let opened = open(folder.path()).unwrap();
        let read = clock.now();
        let mut next = sim_at(START + ms(10), (0..many_tunnels()).map(tunnel).collect());
        let made = clock.now();
        next.engine.remember(START + ms(10), WallTime((START + ms(10)).as_nanos()), opened.memory);
        let end = clock.now();
        println!("{samples} samples each: read in {:?}, taken up in {:?}", read.since(begin), end.since(made));
        // The interval is an interval give or take.
        let seen = views(&mut next);
        assert_eq!(seen.len(), usize::try_from(many_tunnels()).unwrap());
        assert!(seen.iter().all(|view| view.window.samples.abs_diff(samples) < 10));
    }
}

/// An engine of many tunnels whose windows are full, as one tunnel's is that is probed so often.
fn many(seconds: u64) -> adit::engine::Engine {
    let mut one = tunnel(0);
    one.check.interval = Duration::from_secs(seconds);
    let mut one = sim_at(START - Duration::from_secs(400), vec![one]);
    (one.far[0].rtt, one.far[0].jitter) = (ms(20), ms(3));
    one.run_until(START);
    let of_one = memory(&one, true);
    let mut sim = sim_at(START, (0..many_tunnels()).map(tunnel).collect());
    let mut all = memory(&sim, true);
    let (verdict, samples) = (of_one.states.unwrap().1.remove(0), of_one.windows.unwrap().1.remove(0));
    for known in &mut all.states.as_mut().unwrap().1 {
        let own = std::mem::replace(known, verdict.clone());
        (known.name, known.way) = (own.name, own.way);
    }
    for known in &mut all.windows.as_mut().unwrap().1 {
        let own = std::mem::replace(known, samples.clone());
        (known.name, known.way) = (own.name, own.way);
    }
    sim.engine.remember(START, WallTime(START.as_nanos()), all);
    sim.engine
}
