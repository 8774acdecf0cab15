//! Routes are held when it is this host that is suspected (law 4), and what is told of it.

use super::stage::{Stage, TUNNELS};
use crate::by_hand::{firewall, no_firewall};
use crate::kit::{eventually, holds_within, ms};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let held =
        case("steering::held::when_nothing_leaves_this_host_its_routes_stay_and_an_alarm_is_raised", nothing_leaves);
    let off = case("steering::held::with_fail_static_off_they_follow", turned_off);
    let one = case("steering::held::one_way_out_of_two_that_dies_is_left_at_once", one_dies);
    vec![held.with_nft(), off.with_nft(), one.with_nft()]
}

/// The one thing that all probes leave by: nothing passes it, and the sender is told.
const DROPS: &str = "meta l4proto gre drop";

/// The routes of the IPv4 prefix that have the metric of a tunnel that is down.
fn penalised(stage: &Stage) -> usize {
    stage.ours().iter().filter(|line| line.contains("10.20.0.0/16") && line.contains(" metric 1000")).count()
}

fn await_all(stage: &Stage, state: &str) {
    TUNNELS.iter().for_each(|name| stage.site.await_state(name, state));
}

/// What the alarms say, in their order.
fn alarms(stage: &Stage) -> Vec<String> {
    let faults = stage.events("local_fault");
    let alarm = faults.iter().filter(|event| event["fault"] == "fail-static");
    alarm.map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}

fn metric(stage: &Stage, name: &str) -> String {
    let (_, _, text) = stage.site.http("GET", "/metrics");
    text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap_or("none").to_owned()
}

fn nothing_leaves() {
    let stage = Stage::new("mode = \"metric\"\n");
    let _daemon = stage.healthy();
    assert_eq!(metric(&stage, "adit_fail_static"), "0.0");
    firewall(stage.near(), "output", DROPS);
    await_all(&stage, "down");
    eventually("an alarm", || alarms(&stage).len() == 1);
    // Whoever went down first was told before anybody could know that it is all of them.
    let held = |stage: &Stage| penalised(stage) < TUNNELS.len();
    assert!(!holds_within(ms(4_000), &mut || !held(&stage)), "no longer held: {:#?}", stage.ours());
    assert!(alarms(&stage)[0].contains("nothing leaves this host"), "{:?}", alarms(&stage));
    assert_eq!((alarms(&stage).len(), metric(&stage, "adit_fail_static")), (1, "1.0".to_owned()));
    assert!(stage.site.json(&["explain", "one", "--json"])["host"]["fail_static"]["reason"].is_string());
    for command in ["status", "routes"] {
        let text = stage.site.say(&[command]);
        assert!(text.starts_with("HELD: ") && text.contains("nothing leaves this host"), "adit {command}: {text}");
    }
    assert!(stage.site.read("adit.conf.log").contains("the kernel's routes stay as they are"));
    no_firewall(stage.near());
    eventually("the end of the alarm", || alarms(&stage).len() == 2);
    stage.await_health();
    assert_eq!(metric(&stage, "adit_fail_static"), "0.0");
    assert!(!stage.site.say(&["status"]).contains("HELD"));
}

fn turned_off() {
    let stage = Stage::new("mode = \"metric\"\n");
    let text = stage.site.read("adit.conf");
    stage.site.write("adit.conf", &format!("{text}[fail_static]\nenabled = false\n"));
    let _daemon = stage.healthy();
    firewall(stage.near(), "output", DROPS);
    await_all(&stage, "down");
    eventually("all penalised", || penalised(&stage) == TUNNELS.len());
    assert_eq!(alarms(&stage), Vec::<String>::new());
}

fn one_dies() {
    let stage = Stage::new("mode = \"metric\"\n");
    let _daemon = stage.healthy();
    firewall(stage.near(), "output", "oifname t0 meta l4proto gre drop");
    eventually("the first penalised", || penalised(&stage) == 1);
    assert_eq!((stage.site.state("one"), alarms(&stage)), ("down".to_owned(), Vec::new()));
}
