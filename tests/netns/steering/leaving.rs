//! What goes and what must stay: at the end, at whatever moment that comes, and in the sweep.

use nix::sys::signal::Signal;

use super::in_both_modes;
use super::net::{assert_others_unchanged, batch, others_in};
use super::stage::{PREFIXES, SOON, Stage, gateway, route, tunnel};
use crate::kit::{eventually, holds_within, ms};
use crate::site::Running;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let both = [
        in_both_modes("leaving::an_end_right_after_the_start_leaves_nothing_of_ours", early_ends),
        in_both_modes("leaving::a_sweep_is_told_once_with_what_it_took", sweep),
        in_both_modes("leaving::a_drain_that_ends_before_any_verdict_leaves_no_trace", undrained),
    ];
    let lent = [
        case("steering::leaving::at_the_end_objects_that_others_lead_over_stay", lent_at_the_end),
        case("steering::leaving::in_the_sweep_objects_that_others_lead_over_stay_and_are_named", lent_in_the_sweep),
    ];
    both.into_iter().flatten().chain(lent).collect()
}

/// So many routes of others that a first look takes longer than all else before it.
const OTHERS: usize = 20_000;

fn early_ends(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\non_exit = \"remove\"\n"));
    let other = |number| format!("route add 10.{}.{}.0/24 via 10.1.0.2\n", 128 + number / 256, number % 256);
    batch(stage.near(), &(0..OTHERS).map(other).collect::<String>());
    let (mut gone, mut untouched) = (0, 0);
    for moment in 0..10 {
        // As an earlier run may have left it.
        let left =
            |prefix: &str| format!("route add {prefix} via {} dev t0 metric 100 proto 212\n", gateway(prefix, 0));
        batch(stage.near(), &PREFIXES.map(left).concat());
        let before = stage.ours();
        let daemon = Running::start(stage.near(), &mut stage.site.command("run", "adit.conf"));
        std::thread::sleep(ms(30 * moment));
        daemon.send(Signal::SIGTERM);
        if daemon.end().success() {
            gone += 1;
            assert_eq!(stage.ours(), Vec::<String>::new(), "ended after {} ms", 30 * moment);
        } else {
            // It had not got so far as to hear the signal; so it must not have done anything either.
            untouched += 1;
            assert_eq!(stage.ours(), before, "ended after {} ms", 30 * moment);
            stage.ip("-4 route flush proto 212");
            stage.ip("-6 route flush proto 212");
        }
    }
    println!("{mode}: {gone} ended with nothing left, {untouched} before they began");
    assert!(gone > 0, "none got so far");
}

fn sweep(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\n"));
    stage.make_patient();
    let strays = (0..700)
        .map(|number| format!("route add 10.{}.{}.0/24 via 10.1.0.2 proto 212\n", 64 + number / 256, number % 256));
    batch(stage.near(), &strays.collect::<String>());
    let _daemon = stage.healthy();
    eventually("the sweep", || !stage.ours().iter().any(|line| line.contains("via 10.1.0.2")));
    stage.await_event("warning", &["700", "10.6"]);
    let warnings = stage.events("warning");
    let about = warnings.iter().filter(|event| event.to_string().contains("our tag")).count();
    assert_eq!(about, 1, "{warnings:#?}");
    assert!(stage.events("kernel_drift").is_empty(), "{:#?}", stage.events("kernel_drift"));
}

/// A tunnel that gets no verdict: it has no keys.
fn undrained(mode: &str) {
    let kernel = format!("mode = \"{mode}\"\n");
    let stage = Stage::new(&kernel);
    let esp =
        tunnel(0, "[tunnel.esp]\nkeys = \"installed\"\nalgorithm = \"aes256-gcm\"\n").replace("\"gre\"", "\"esp\"");
    let text = super::stage::configuration(&kernel, &format!("{esp}{}{}", tunnel(1, ""), stage.usual_routes()));
    stage.site.write("adit.conf", &text);
    stage.make_patient();
    let mut daemon = stage.site.daemon();
    stage.site.await_state("two", "healthy");
    stage.await_all_installed();
    assert_eq!(stage.site.state("one"), "unknown");
    let found = stage.ours();
    for meanwhile in ["nothing", "a reload", "a restart"] {
        stage.site.say(&["drain", "one", "--down"]);
        eventually("a move", || stage.ours() != found);
        assert!(holds_within(SOON, &mut || agrees(&stage, mode)), "{:#?}, {:#?}", stage.routes(), stage.ours());
        match meanwhile {
            "a reload" => drop(stage.site.say(&["reload"])),
            "a restart" => {
                daemon.send(Signal::SIGTERM);
                assert!(daemon.end().success());
                daemon = stage.site.daemon();
                stage.await_all_installed();
            }
            _ => {}
        }
        stage.site.say(&["undrain", "one"]);
        stage.await_ours(&found, &format!("a drain that has ended, after {meanwhile}"));
        assert!(holds_within(SOON, &mut || agrees(&stage, mode)), "{:#?}", stage.routes());
        assert_eq!(stage.site.state("one"), "unknown", "else this shows nothing");
    }
}

/// Whether what is said of each route's metric is what the kernel has, by metric or in one route for all.
fn agrees(stage: &Stage, mode: &str) -> bool {
    let ours = stage.ours();
    stage.routes().iter().all(|route| {
        let text = |name: &str| route[name].as_str().unwrap().to_owned();
        let metric = format!(" metric {} ", route["kernel_metric"]);
        let leads = |line: &String| mode == "nexthop" || line.contains(&format!("dev {} ", text("device")));
        let is = |line: &&String| line.contains(&text("prefix")) && format!("{line} ").contains(&metric);
        text("kernel") == "installed" && ours.iter().filter(is).any(leads)
    })
}

/// A daemon by groups, and others' routes and a group over what is its own; the numbers of these.
fn lend(stage: &Stage) -> [u64; 2] {
    let objects = serde_json::from_str::<Vec<serde_json::Value>>(&stage.ip("-j -N nexthop show proto 212")).unwrap();
    let id = |object: &serde_json::Value| object["id"].as_u64().unwrap();
    let is_four = |object: &&serde_json::Value| object["gateway"].as_str().is_some_and(|via| via.contains('.'));
    let single = objects.iter().find(is_four).map(id).unwrap();
    let holds = |group: &serde_json::Value| {
        group["group"].as_array().is_some_and(|members| {
            members.iter().any(|member| objects.iter().filter(is_four).any(|one| id(one) == id(member)))
        })
    };
    let group = objects.iter().find(|object| holds(object)).map(id).unwrap();
    let theirs = format!(
        "route add 10.99.0.0/16 nhid {group} proto static\nroute add 10.98.0.0/16 nhid {single} proto static\n\
         nexthop add id 7 group {single} proto static\nroute add 10.97.0.0/16 nhid 7 proto static\n"
    );
    batch(stage.near(), &theirs);
    [group, single]
}

fn lent_at_the_end() {
    let stage = Stage::new("mode = \"nexthop\"\non_exit = \"remove\"\n");
    let daemon = stage.healthy();
    let lent = lend(&stage);
    let others = others_in(stage.near());
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    assert_others_unchanged(stage.near(), &others, "at the end");
    assert_only_lent(&stage, &lent);
    let log = stage.site.read("adit.conf.log");
    assert!(lent.iter().all(|id| log.contains(&id.to_string())), "it is not said what stays: {log}");
}

fn lent_in_the_sweep() {
    let stage = Stage::new("mode = \"nexthop\"\n");
    let daemon = stage.healthy();
    let lent = lend(&stage);
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    let others = others_in(stage.near());
    stage.configure("mode = \"metric\"\n", &route("10.20.0.0/16", 0, 100, ""));
    stage.make_patient();
    let _daemon = stage.healthy();
    eventually("the sweep", || !stage.ours().iter().any(|line| line.contains("2001:db8:20::/48")));
    stage.await_event("warning", &lent.map(|id| id.to_string()).each_ref().map(String::as_str));
    let is_route = |line: &&String| line.contains("10.20.0.0/16");
    assert_eq!(stage.ours().iter().filter(is_route).count(), 1, "{:#?}", stage.ours());
    assert_others_unchanged(stage.near(), &others, "after the sweep");
    assert_only_lent(&stage, &lent);
    assert!(stage.events("kernel_drift").is_empty(), "{:#?}", stage.events("kernel_drift"));
}

/// Of our objects there is what was lent, and what that consists of.
fn assert_only_lent(stage: &Stage, lent: &[u64]) {
    let left: Vec<String> = stage.ours().into_iter().filter(|line| line.contains(" id ")).collect();
    let has = |id: &u64| left.iter().any(|line| line.contains(&format!(" id {id} ")));
    assert!(lent.iter().all(has), "{left:#?}");
    let groups = left.iter().filter(|line| line.contains(" group ")).count();
    assert!(groups == 1 && left.len() <= 3, "{left:#?}");
    assert!(!left.iter().any(|line| line.contains("fd00:")), "{left:#?}");
}
