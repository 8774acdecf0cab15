//! Verdicts and drains move the stream: without loss where the path still carries, and where it does
//! not, as soon as that can be known.

use std::time::Duration;

use super::in_both_modes;
use super::stage::{PREFIXES, SOON, Stage, TUNNELS, route};
use super::stream::Stream;
use super::witness::Witness;
use crate::Case;
use crate::kills::now;
use crate::kit::{holds_within, ms, share};

pub(crate) fn cases() -> Vec<Case> {
    let moves = in_both_modes("moves::a_drain_and_its_end_lose_nothing", drains);
    let sick = in_both_modes("moves::a_path_that_looks_sick_and_heals_loses_nothing", looks_sick);
    let dead = in_both_modes("moves::a_dead_path_is_left_as_soon_as_that_can_be_known", dies);
    let only = in_both_modes("moves::the_only_way_stays_whatever_is_thought_of_it", only_way);
    [moves, sick, dead, only].into_iter().flatten().collect()
}

fn mode(mode: &str) -> String {
    format!("mode = \"{mode}\"\n")
}

fn drains(of: &str) {
    let stage = Stage::new(&mode(of));
    let _daemon = stage.healthy();
    let stream = Stream::start(&stage);
    stream.await_path(0);
    for how in [&["drain", "one"][..], &["drain", "one", "--down"]] {
        stage.site.say(how);
        stream.await_path(1);
        stage.site.say(&["undrain", "one"]);
        stream.await_path(0);
    }
    // Where both are drained, the preferred one carries it all.
    stage.site.say(&["drain", "one"]);
    stream.await_path(1);
    stage.site.say(&["drain", "two"]);
    stream.await_path(0);
    let report = stream.end();
    println!("{of}, drains: {report}");
    report.assert_whole(None, None);
    assert_eq!(report.duplicated(), 0, "{report}");
}

/// With one way there is no other that hides it if a route is missing for a moment.
fn only_way(of: &str) {
    let stage = Stage::new(&mode(of));
    stage.configure(&mode(of), &PREFIXES.map(|prefix| route(prefix, 0, 100, "")).concat());
    let _daemon = stage.healthy();
    let (stream, witness) = (Stream::start(&stage), Witness::watch(&stage));
    for turn in 0..8 {
        stage.site.say(&[["drain", "undrain"][turn % 2], "one"]);
        let metric = [500_100, 100][turn % 2];
        let moved = |line: &&String| line.contains("dev t0") && line.contains(&format!("metric {metric}"));
        let has_moved = || of == "nexthop" || stage.ours().iter().filter(moved).count() == 2;
        assert!(holds_within(SOON, &mut || has_moved()), "{:#?}", stage.ours());
    }
    stage.lose_all(0);
    stage.site.await_state("one", "down");
    stage.await_all_installed();
    stage.heal(0);
    stage.await_health();
    let report = stream.end();
    println!("{of}, the only way: {report}");
    report.assert_whole(None, None);
    let seen = witness.assert_never_without_a_route();
    // A verdict moves two routes, each by one more and one less; in mode nexthop it moves none.
    assert!(of == "nexthop" || seen.is_some_and(|seen| seen >= 8 * 2 * 2), "{seen:?}");
}

fn looks_sick(of: &str) {
    let stage = Stage::new(&mode(of));
    let _daemon = stage.healthy();
    let stream = Stream::start(&stage);
    stream.await_path(0);
    stage.lose(0, share(350_000));
    assert!(
        holds_within(crate::kit::PATIENCE, &mut || ["degraded", "down"].contains(&stage.site.state("one").as_str()))
    );
    stream.await_path(1);
    stage.lose_all(0);
    stage.site.await_state("one", "down");
    stream.await_path(1);
    stage.heal(0);
    stage.site.await_state("one", "healthy");
    stream.await_path(0);
    let report = stream.end();
    println!("{of}, looks sick: {report}");
    report.assert_whole(None, None);
    assert_eq!(report.duplicated(), 0, "{report}");
    assert!(stage.events("kernel_drift").is_empty(), "{:#?}", stage.events("kernel_drift"));
}

/// What the configuration promises: a probe goes out within the interval, is given up after its
/// time-out, and then the whole window has seen failures only. The rest is for a busy machine.
pub(crate) const DETECTION: Duration = ms(100 + 400 + 900);
pub(crate) const SLACK: Duration = ms(1_500);

fn dies(of: &str) {
    let stage = Stage::new(&mode(of));
    let _daemon = stage.healthy();
    let stream = Stream::start(&stage);
    let healthy = stream.await_path(0);
    let (before, broken) = (stream.mark(), now());
    stage.kill_path(0);
    let left = stream.await_path(1);
    stage.site.await_state("one", "down");
    stage.revive_path(0);
    stage.site.await_state("one", "healthy");
    let back = stream.await_path(0);
    let report = stream.end();

    report.assert_whole(Some(healthy), Some(before));
    report.assert_whole(Some(left), None);
    let lost = report.lost();
    let last = lost.iter().max().map(|last| last.saturating_duration_since(broken)).unwrap_or_default();
    let first_verdict = &stage.site.transitions().into_iter().find(|event| event["from"] == "healthy").unwrap();
    println!("{of}, dies: {report}; the last one was lost {last:?} after; first verdict {first_verdict}");
    assert!(!lost.is_empty(), "a dead path that loses nothing: {report}");
    assert!(last <= DETECTION + SLACK, "the last one was lost {last:?} after the path died; {report}");
    assert_eq!(report.duplicated(), 0, "{report}");
    assert_eq!(report.by_path(back)[1], 0, "{report}");
    for prefix in PREFIXES {
        [0, 1].iter().for_each(|path| assert_eq!(stage.standing(prefix, *path).0, "installed", "{}", TUNNELS[*path]));
    }
}
