//! Starts and ends: what is found is taken over, what is left is as it was said, and no packet is lost to
//! either.

use std::fs::File;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::in_both_modes;
use super::net::batch;
use super::stage::{PREFIXES, Stage, gateway, route};
use super::stream::Stream;
use super::witness::Witness;
use crate::Case;
use crate::kit::{eventually, ms};
use crate::site::Running;

pub(crate) fn cases() -> Vec<Case> {
    let cases = [
        in_both_modes("lives::over_restarts_no_packet_is_lost_and_nothing_changes", restarts),
        in_both_modes("lives::a_daemon_that_remembers_writes_no_route_anew", remembered),
        in_both_modes("lives::without_a_verdict_routes_stay_as_they_were_found", unknown),
        in_both_modes("lives::after_many_kills_nothing_is_missing_or_surplus", kills),
        in_both_modes("lives::a_dry_run_says_what_a_run_does_and_does_nothing", dry_run),
    ];
    cases.into_iter().flatten().collect()
}

fn stop(daemon: Running) {
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

fn restarts(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\n"));
    stage.make_patient();
    let mut daemon = stage.healthy();
    let (wanted, stream) = (stage.ours(), Stream::start(&stage));
    for _ in 0..3 {
        stop(daemon);
        assert_eq!(stage.ours(), wanted, "they stay");
        daemon = stage.healthy();
        assert_eq!(stage.ours(), wanted, "and are taken over");
    }
    assert!(stage.events("kernel_drift").is_empty());
    let report = stream.end();
    println!("{mode}, restarts: {report}");
    report.assert_whole(None, None);
    assert_eq!(report.duplicated(), 0, "{report}");
}

/// One path is dead, the other drained. Killed and started again, the daemon knows that: the kernel's routes are as
/// they should be, and nothing is written.
fn remembered(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\n"));
    let mut daemon = stage.healthy();
    stage.lose_all(0);
    stage.site.await_state("one", "down");
    stage.site.say(&["drain", "two"]);
    let steered: &[(&str, usize)] = match mode {
        "nexthop" => &[("via 10.100.1.1 dev t1 metric 100", 1), ("via fd00:100:1::b dev t1 weight 1", 1)],
        _ => &[("dev t0 metric 1000100", 2), ("dev t1 metric 500200", 2)],
    };
    let count = |sign: &str| stage.ours().iter().filter(|line| line.contains(sign)).count();
    eventually("all is steered", || steered.iter().all(|(sign, times)| count(sign) == *times));
    stage.await_all_installed();
    let (wanted, witness) = (stage.ours(), Witness::watch(&stage));
    // What has changed is on a busy disk within a moment.
    std::thread::sleep(ms(1_000));
    for end in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL] {
        daemon.send(end);
        daemon.end();
        daemon = stage.site.daemon();
        assert_eq!(stage.site.state("one"), "down", "after {end}");
        stage.await_all_installed();
        std::thread::sleep(ms(500));
        assert_eq!(stage.ours(), wanted);
        assert!(stage.site.transitions().is_empty(), "{:?}", stage.site.transitions());
    }
    assert_eq!(witness.assert_never_without_a_route(), Some(0), "no change at all");
    stop(daemon);
}

fn unknown(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\n"));
    let daemon = stage.healthy();
    let stream = Stream::start(&stage);
    stage.lose_all(0);
    stage.site.await_state("one", "down");
    let moved = stream.await_path(1);
    // It may have been degraded before it was down.
    let is_down = |line: &&String| line.contains("metric 1000100");
    eventually("the metric of down", || mode == "nexthop" || stage.ours().iter().filter(is_down).count() == 2);
    let found = stage.ours();
    stop(daemon);
    // Nothing is remembered: the disk was lost, say.
    std::fs::remove_dir_all(stage.site.path("state")).unwrap();
    stage.make_patient();
    let daemon = stage.site.daemon();
    // Long before a verdict about the first can be there, that about the second is.
    stage.site.await_state("two", "healthy");
    assert_eq!(stage.site.state("one"), "unknown");
    assert_eq!(stage.ours(), found);
    stage.await_all_installed();
    stop(daemon);
    let report = stream.end();
    println!("{mode}, unknown: {report}");
    report.assert_whole(None, None);
    assert_eq!(report.by_path(moved)[0], 0, "{report}");
}

const KILLS: u64 = 15;
/// More prefixes, so that a kill meets changes that are under way.
const MORE: usize = 300;

fn kills(mode: &str) {
    let kernel = format!("mode = \"{mode}\"\n");
    let stage = Stage::new(&kernel);
    let prefix = |number: usize| format!("10.{}.{}.0/24", 64 + number / 256, number % 256);
    let more = (0..MORE).flat_map(|number| {
        [0, 1].map(|path| route(&prefix(number), path, 100 + 100 * u32::try_from(path).unwrap(), ""))
    });
    stage.configure(&kernel, &format!("{}{}", stage.usual_routes(), more.collect::<String>()));
    stage.make_patient();
    let mut daemon = stage.healthy();
    let (wanted, stream, witness) = (stage.ours(), Stream::start(&stage), Witness::watch(&stage));
    let mut met = 0;
    for kill in 0..KILLS {
        // Now and then only, so that a kill also meets a start.
        if kill % 3 == 0 {
            // The drain may have been remembered, or not: it was killed amid it.
            stage.site.say(&["undrain", "one"]);
            stage.await_health();
        }
        stage.site.say(&["drain", "one"]);
        if kill % 3 == 0 && mode == "metric" {
            let moved = |line: &String| line.ends_with("metric 500100");
            eventually("a move that has begun", || stage.ours().iter().any(moved));
        }
        std::thread::sleep(ms(kill % 5));
        daemon.send(Signal::SIGKILL);
        daemon.end();
        met += usize::from(is_amid(&stage.ours()));
        daemon = stage.site.daemon();
    }
    stage.site.say(&["undrain", "one"]);
    stage.await_health();
    stage.await_ours(&wanted, "many kills");
    let report = stream.end();
    println!("{mode}, kills: {report}; {met} met changes that were under way");
    report.assert_whole(None, None);
    assert_eq!(report.duplicated(), 0, "{report}");
    let seen = witness.assert_never_without_a_route();
    println!("{mode}, kills: {seen:?} changes witnessed");
    assert!(mode == "nexthop" || seen.is_none_or(|seen| seen > MORE), "{seen:?}");
}

/// Whether a part of the routes of the first path has moved, and another has not.
fn is_amid(ours: &[String]) -> bool {
    let count = |metric: &str| ours.iter().filter(|line| line.contains("dev t0") && line.ends_with(metric)).count();
    count("metric 100") > 0 && count("metric 500100") > 0
}

fn dry_run(mode: &str) {
    let kernel = format!("mode = \"{mode}\"\nbackstop = true\n");
    let stage = Stage::new(&kernel);
    let rules = "[[rule]]\nsource = \"172.64.240.252/30\"\ntable = 100\npriority = 1000\n\
                 [[rule]]\nfwmark = 7\ntable = 100\npriority = 1002\n";
    let several =
        PREFIXES.map(|prefix| [0, 1].map(|path| route(prefix, path, 300, "table = 100\nweight = 3")).concat()).concat();
    stage.configure(&kernel, &format!("{}{several}{rules}", stage.usual_routes()));
    // One that is to go, and one in the way of nothing.
    batch(
        stage.near(),
        &format!("route add 10.77.0.0/16 via {} proto 212\nroute add 10.78.0.0/16 via 10.1.0.2\n", gateway("10", 1)),
    );
    let before = stage.ours();
    let said = {
        let mut command = stage.site.command("run", "adit.conf");
        command.arg("--dry-run").stdout(File::create(stage.site.path("said")).unwrap());
        let daemon = Running::start(stage.near(), &mut command);
        eventually("an answer", || stage.site.adit(&["status"]).status.success());
        ["one", "two"].iter().for_each(|name| stage.site.await_state(name, "healthy"));
        eventually("all that is to be said", || stage.site.read("said").contains("10.77.0.0/16"));
        assert_eq!(stage.routes()[0]["kernel"], "not managed");
        // Time enough for another look, which would find that nothing was done, and say it all again.
        std::thread::sleep(Duration::from_millis(300));
        stop(daemon);
        stage.site.read("said")
    };
    assert_eq!(stage.ours(), before, "nothing is changed");
    let commands: String = said.lines().map(|line| format!("{}\n", line.strip_prefix("ip ").unwrap())).collect();
    run_all(&stage, &commands);
    let by_hand = stage.ours();
    println!("{mode}: {said}");

    // The real one has nothing left to do, and makes the same where there is nothing.
    let daemon = stage.healthy();
    assert_eq!(stage.ours(), by_hand, "{said}");
    assert!(stage.events("kernel_drift").is_empty());
    for prefix in PREFIXES {
        stage.ip(&format!("route del unreachable {prefix} metric 4294967295"));
        stage.ip(&format!("route del {prefix} metric 100"));
    }
    stage.await_ours(&by_hand, &said);
    stop(daemon);
}

/// Each by itself: `ip -batch` would forget the family between two lines.
fn run_all(stage: &Stage, commands: &str) {
    commands.lines().for_each(|command| drop(stage.ip(command)));
}
