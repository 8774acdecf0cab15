//! Paths that come and go, and the kernel's routes: what others do to them, and what is left of them.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::kit::{eventually, ms};
use crate::site::{Running, adit};
use crate::steering::net::{assert_others_unchanged, batch, others_in};
use crate::steering::stage::{PREFIXES, Stage};
use crate::steering::witness::Witness;
use crate::table::{Row, lent, row};
use crate::world::Case;

pub(crate) fn rows(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    let mut rows = paths(netns);
    rows.extend(kernel(netns));
    rows.extend(namespaces(netns));
    rows
}

fn paths(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    vec![
        lent(
            "fault_18_requests_that_are_lost_make_a_tunnel_down",
            "down, though answers could come",
            netns("loss::one_way_out"),
        ),
        lent(
            "fault_18_answers_that_are_lost_make_a_tunnel_down",
            "down, though requests arrive: what the far end has counted says which of the two it is",
            netns("loss::one_way_back"),
        ),
        lent(
            "fault_19_a_loss_of_30_percent_is_degraded_and_never_healthy_in_between",
            "degraded, not flapping across the boundary",
            netns("loss::of_a_third_is_degraded_and_never_healthy"),
        ),
        row(
            "fault_20_in_a_storm_of_flaps_transitions_and_route_writes_are_few",
            "at most two transitions for each cut, healthy not once in between, and at most two writes for each route and \
             transition; no prefix is ever without a route",
            storm,
        )
        .needing(Case::with_routers),
        row(
            "fault_22_when_all_far_ends_are_dead_every_tunnel_is_down_and_routes_keep_their_order",
            "penalties reorder and take nothing away: traffic goes on by the way that was preferred",
            all_dead,
        )
        .needing(Case::with_routers),
    ]
}

fn kernel(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    vec![
        lent(
            "fault_23_a_link_that_flaps_has_its_routes_back",
            "IPv4 routes, too, whose end the kernel does not announce",
            netns("steering::ways::a_link_that_flaps_20_times_has_its_routes_back, in_mode_metric"),
        ),
        lent(
            "fault_24_what_is_taken_from_ours_or_added_to_it_is_repaired_and_told",
            "repaired within a second, told as drift",
            netns("steering::drift::what_is_taken_away_or_added_under_our_tag_is_repaired_and_told, in_mode_metric"),
        ),
        lent(
            "fault_24_a_route_that_is_deleted_for_ever_comes_back_for_ever",
            "without a flood of events, and with advice",
            netns("steering::feuds::a_route_that_is_deleted_for_ever_comes_back_for_ever_and_events_stay_few"),
        ),
        lent(
            "fault_25_a_route_of_others_in_our_place_is_told_and_left_alone",
            "a conflict, shown at the route; ours comes when the other goes",
            netns(
                "steering::others::a_route_in_our_place_is_told_and_left_alone_and_ours_comes_when_it_goes, in_mode_metric",
            ),
        ),
        lent(
            "fault_25_a_whole_life_changes_nothing_of_others",
            "routes, rules and next-hop objects of others are the same, byte for byte, from the start to the end",
            netns("steering::others::a_whole_life_changes_nothing_of_others, in_mode_metric"),
        ),
        lent(
            "fault_26_among_20000_changes_that_overrun_us_a_drift_is_repaired",
            "news that are lost mean that all is looked at again, and that is told",
            netns("steering::drift::among_20_000_changes_that_overrun_us_a_drift_is_still_repaired"),
        ),
        row(
            "fault_27_without_the_right_to_write_routes_the_daemon_lives_and_says_so",
            "EPERM: each route is shown as refused with the reason; probing and verdicts go on",
            no_right,
        )
        .needing(Case::with_routers),
        lent(
            "fault_27_a_route_that_is_refused_for_now_is_tried_again",
            "EINVAL, EHOSTUNREACH: refused with the kernel's words, and there once the kernel takes it",
            netns("steering::ways::an_address_may_go_and_come_back"),
        ),
        lent(
            "fault_28_after_many_kills_in_the_middle_of_changes_nothing_is_missing_or_surplus",
            "new before old at every change: no prefix without a route meanwhile, and the next start sweeps what is surplus",
            netns("steering::lives::after_many_kills_nothing_is_missing_or_surplus, in_mode_metric"),
        ),
        row(
            "fault_29_at_a_clean_stop_routes_stay_or_go_as_was_asked_for",
            "`on_exit` keep or remove; socket and processes are gone, what is others' is untouched",
            clean_stop,
        )
        .needing(Case::with_routers),
    ]
}

fn namespaces(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    vec![
        lent(
            "fault_30_a_namespace_that_is_deleted_is_let_go_of",
            "its tunnels fail with the reason until it is there again; the others notice nothing",
            netns("spaces::a_namespace_that_is_deleted_is_let_go_of"),
        ),
        lent(
            "fault_30_another_namespace_under_the_same_name_is_taken",
            "known by its inode: sockets are opened anew there",
            netns("spaces::another_one_under_the_same_name_is_taken"),
        ),
        lent(
            "fault_31_a_namespace_may_come_later",
            "the daemon starts; its tunnels are down, because traffic could not go either, until it is there",
            netns("spaces::a_namespace_may_come_later"),
        ),
        lent(
            "fault_31_a_device_may_come_and_go",
            "the same for a device, in both families",
            netns("spaces::an_underlay_device_may_come_and_go"),
        ),
    ]
}

/// A square wave, slow enough for each half to be noticed.
fn storm() {
    const CYCLES: usize = 6;
    let stage = Stage::new("mode = \"metric\"\n");
    // A window that remembers the whole storm.
    let text = stage.site.read("adit.conf").replace("degraded_window = \"4s\"", "degraded_window = \"5m\"");
    stage.site.write("adit.conf", &text);
    let _daemon = stage.healthy();
    let (before, witness) = (stage.ours(), Witness::watch(&stage));
    for _ in 0..CYCLES {
        stage.lose_all(0);
        stage.site.await_state("one", "down");
        stage.heal(0);
        stage.site.await_state("one", "degraded");
    }
    // What is fast enough to be down and up within one window is not even told.
    for _ in 0..2 * CYCLES {
        stage.lose_all(0);
        std::thread::sleep(ms(150));
        stage.heal(0);
        std::thread::sleep(ms(150));
    }
    let moves: Vec<_> =
        stage.site.transitions().into_iter().filter(|event| event["tunnel"] == "one" && event["rule"] != 5).collect();
    assert!(moves.len() <= 1 + 2 * (CYCLES + 2), "{} transitions: {moves:#?}", moves.len());
    assert!(!moves.iter().any(|event| event["to"] == "healthy"), "{moves:#?}");
    let wanted = format!("metric {}", if stage.site.state("one") == "down" { "1000100" } else { "500100" });
    eventually("the last move", || stage.ours().iter().filter(|line| line.contains(&wanted)).count() == PREFIXES.len());
    let writes = witness.assert_never_without_a_route();
    println!("{CYCLES} flaps, {} transitions, {writes:?} writes", moves.len());
    let most = 2 * PREFIXES.len() * moves.len();
    assert!(writes.is_none_or(|writes| (1..=most).contains(&writes)), "{writes:?} writes, at most {most}");
    assert_eq!(stage.ours().len(), before.len(), "{:#?}", stage.ours());
}

fn all_dead() {
    let stage = Stage::new("mode = \"metric\"\n");
    let _daemon = stage.healthy();
    let before = stage.ours();
    [0, 1].iter().for_each(|path| stage.kill_path(*path));
    ["one", "two"].iter().for_each(|name| stage.site.await_state(name, "down"));
    let down: Vec<String> = before
        .iter()
        .map(|line| line.replace("metric 100", "metric 1000100").replace("metric 200", "metric 1000200"))
        .collect();
    let mut down = down;
    down.sort();
    stage.await_ours(&down, "the end of all far ends");
    for route in stage.routes() {
        assert_eq!(route["selected"], route["tunnel"] == "one", "{route:#}");
    }
    [0, 1].iter().for_each(|path| stage.revive_path(*path));
    stage.await_health();
    stage.await_ours(&before, "their coming back");
}

/// The capability is missing from the beginning: as if somebody had taken it from the unit.
fn no_right() {
    let stage = Stage::new("mode = \"metric\"\n");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]).arg(adit()).arg("run").arg("--config");
    command.arg(stage.site.path("adit.conf")).stderr(File::create(stage.site.path("adit.conf.log")).unwrap());
    let daemon = Running::start(stage.near(), &mut command);
    eventually("an answer", || stage.site.adit(&["status"]).status.success());
    ["one", "two"].iter().for_each(|name| stage.site.await_state(name, "healthy"));
    for prefix in PREFIXES {
        [0, 1].iter().for_each(|path| stage.await_standing(prefix, *path, "refused", "not permitted"));
    }
    assert_eq!(stage.ours(), Vec::<String>::new());
    stage.lose_all(0);
    stage.site.await_state("one", "down");
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

fn clean_stop() {
    for (on_exit, stays) in [("keep", true), ("remove", false)] {
        let stage = Stage::new(&format!("mode = \"metric\"\non_exit = \"{on_exit}\"\n"));
        batch(stage.near(), "route add 10.20.0.0/16 via 10.1.0.2 proto static metric 700\n");
        let others = others_in(stage.near());
        let daemon = stage.healthy();
        let (ours, prober) = (stage.ours(), daemon.prober());
        daemon.send(Signal::SIGTERM);
        assert!(daemon.end().success());
        assert_eq!(stage.ours(), if stays { ours } else { Vec::new() }, "{on_exit}");
        assert_others_unchanged(stage.near(), &others, on_exit);
        assert!(!stage.site.path("adit.sock").exists());
        assert!(!Path::new(&format!("/proc/{prober}")).exists(), "a prober that outlives its steward");
        let left: Vec<_> =
            fs::read_dir(stage.site.folder.path()).unwrap().flatten().map(|file| file.file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".new")), "{left:?}");
    }
}
