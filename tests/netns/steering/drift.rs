//! What others do to ours is repaired and told, however it was heard of.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::in_both_modes;
use super::net::batch;
use super::stage::{SOON, Stage};
use crate::kills::now;
use crate::kit::holds_within;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let ours = in_both_modes("drift::what_is_taken_away_or_added_under_our_tag_is_repaired_and_told", repaired);
    let overrun = case("steering::drift::among_20_000_changes_that_overrun_us_a_drift_is_still_repaired", overrun);
    ours.into_iter().chain([overrun]).collect()
}

const RULES: &str = "[[rule]]\nsource = \"172.64.240.252/30\"\ntable = 100\npriority = 1000\n\
                     [[rule]]\nsource = \"2001:db8:f0::/64\"\ntable = 100\npriority = 1001\n";

/// What is done to ours, and words of the event that tells of it.
const COMMON: [(&str, &str); 8] = [
    ("-4 rule del from 172.64.240.252/30 priority 1000 table 100", "rule 1000 is gone"),
    ("-6 rule del from 2001:db8:f0::/64 priority 1001 table 100", "rule 1001 is gone"),
    ("-4 rule add from 198.18.0.0/15 priority 1002 table 100 protocol 212", "rule 1002 is new"),
    ("route del unreachable 10.20.0.0/16 metric 4294967295", "10.20.0.0/16 unreachable metric 4294967295 is gone"),
    ("route add 10.20.0.0/16 via 10.1.0.2 metric 7 proto 212", "metric 7 is new"),
    ("route add 2001:db8:20::/48 via fd00:1::2 metric 7 proto 212", "metric 7 is new"),
    ("route add 10.77.0.0/16 via 10.1.0.2 proto 212", "10.77.0.0/16"),
    ("route add 2001:db8:77::/48 via fd00:1::2 table 9 proto 212", "2001:db8:77::/48"),
];

const METRIC: [(&str, &str); 6] = [
    ("route del 10.20.0.0/16 metric 100", "10.20.0.0/16 via 10.100.0.1 dev t0 metric 100 is gone"),
    ("route del 10.20.0.0/16 metric 200", "10.20.0.0/16 via 10.100.1.1 dev t1 metric 200 is gone"),
    ("route del 2001:db8:20::/48 metric 100", "2001:db8:20::/48 via fd00:100::b dev t0 metric 100 is gone"),
    ("route change 10.20.0.0/16 via 10.1.0.2 metric 200 proto 212", "metric 200 is new"),
    ("-4 route flush table all proto 212", "is gone"),
    ("-6 route flush table all proto 212", "is gone"),
];

const NEXTHOP: [(&str, &str); 4] = [
    ("route del 10.20.0.0/16 metric 100", "metric 100 is gone"),
    ("route del 2001:db8:20::/48 metric 100", "metric 100 is gone"),
    ("nexthop add id 4711 via 10.1.0.2 dev n0 proto 212", "next-hop object 4711 is new"),
    ("nexthop flush proto 212", "next-hop object"),
];

/// More of these in a row would be taken for a feud, which is told of seldom.
const IN_A_ROW: usize = 4;

fn repaired(mode: &str) {
    let kernel = format!("mode = \"{mode}\"\nbackstop = true\n");
    let stage = Stage::new(&kernel);
    stage.configure(&kernel, &format!("{}{RULES}", stage.usual_routes()));
    stage.make_patient();
    let mut daemon = stage.healthy();
    let wanted = stage.ours();
    let own = if mode == "metric" { &METRIC[..] } else { &NEXTHOP };
    let owned = |(command, words): &(&str, &str)| ((*command).to_owned(), (*words).to_owned());
    let mut all: Vec<(String, String)> = COMMON.iter().chain(own).map(owned).collect();
    if mode == "nexthop" {
        all.extend(objects_drift(&stage));
    }
    let mut slowest = Duration::ZERO;
    for some in all.chunks(IN_A_ROW) {
        let drifts = some.iter().map(|(command, words)| drifts(&stage, command, words, &wanted));
        slowest = slowest.max(drifts.max().unwrap());
        let later = |event: &Value| event["from"] != "unknown";
        assert!(!stage.site.transitions().iter().any(later), "none but the first verdicts");
        daemon.send(Signal::SIGTERM);
        assert!(daemon.end().success());
        daemon = stage.healthy();
    }
    println!("{mode}, drift: {} times, repaired within {slowest:?}", all.len());
}

/// Each object is deleted, and each group is led elsewhere.
fn objects_drift(stage: &Stage) -> Vec<(String, String)> {
    let objects: Vec<Value> = serde_json::from_str(&stage.ip("-j -N nexthop show proto 212")).unwrap();
    let id = |object: &Value| object["id"].as_u64().unwrap();
    let is_six = |object: &Value| object["gateway"].to_string().contains(':');
    assert_eq!(objects.len(), 6, "two for each family, and a group of them: {objects:#?}");
    let mut all = Vec::new();
    for object in &objects {
        all.push((format!("nexthop del id {}", id(object)), format!("object {} is gone", id(object))));
        let Some(member) = object["group"][0]["id"].as_u64() else { continue };
        let leads = objects.iter().find(|one| id(one) == member).unwrap();
        let other =
            objects.iter().find(|one| one["group"].is_null() && id(one) != member && is_six(one) == is_six(leads));
        let command = format!("nexthop replace id {} group {} proto 212", id(object), id(other.unwrap()));
        all.push((command, format!("object {} is other than it was", id(object))));
    }
    all
}

/// Does this to ours, and waits until it is repaired and told. How long the repair took.
fn drifts(stage: &Stage, command: &str, words: &str, wanted: &[String]) -> Duration {
    let told = || {
        let events = stage.events("kernel_drift");
        events.iter().filter(|event| event["changes"].to_string().contains(words)).count()
    };
    let (before, begin) = (told(), now());
    stage.ip(command);
    stage.await_ours(wanted, command);
    let took = begin.elapsed();
    let heard = holds_within(SOON, &mut || told() > before);
    assert!(heard, "{command}: no event tells of {words:?}: {:#?}", stage.events("kernel_drift"));
    took
}

fn overrun() {
    let stage = Stage::new("mode = \"metric\"\nreceive_buffer = 4096\n");
    stage.make_patient();
    let daemon = stage.healthy();
    let wanted = stage.ours();
    let flood = |verb: &str| -> String {
        let route =
            |number: u32| format!("route {verb} 10.{}.{}.0/24 via 10.1.0.2\n", 128 + number / 256, number % 256);
        let (half, rest) = ((0..10_000).map(route), (10_000..20_000).map(route));
        let drift = "route del 10.20.0.0/16 metric 100\nroute add 10.20.0.0/16 via 10.1.0.2 metric 9 proto 212\n";
        half.chain([drift.to_owned()]).chain(rest).collect()
    };
    // While it sleeps nothing is read: what it is told of the drift is surely lost among the rest.
    daemon.send(Signal::SIGSTOP);
    batch(stage.near(), &flood("add"));
    daemon.send(Signal::SIGCONT);
    stage.await_ours(&wanted, "a flood while asleep");
    batch(stage.near(), &flood("del"));
    stage.await_ours(&wanted, "a flood while awake");
    stage.await_event("local_fault", &["kernel-overrun"]);
    stage.await_event("kernel_drift", &["metric 100 is gone"]);
    stage.await_all_installed();
    assert_eq!(stage.site.transitions().len(), 2, "none but the first verdicts");
}
