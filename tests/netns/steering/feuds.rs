//! Others who change what is ours again and again: it is repaired again and again, without a flood of
//! events, and it is said what is wrong.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use adit::io::netns;
use serde_json::Value;

use super::stage::{SOON, Stage, configuration, route, tunnel};
use crate::kills::now;
use crate::kit::{eventually, holds_within, ms};
use crate::site::{Running, adit};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("steering::feuds::a_route_that_is_deleted_for_ever_comes_back_for_ever_and_events_stay_few", deletions),
        case("steering::feuds::two_daemons_of_one_tag_are_told_to_have_two", rivals),
    ]
}

/// How long somebody goes on. Between the first events and the next sum there are 10 s.
const FEUD: Duration = ms(3_000);
const PAUSE: Duration = ms(20);
/// Events there may be after so long: a few at once, and a sum every 10 s.
fn few(since: Instant) -> usize {
    6 + usize::try_from(since.elapsed().as_secs() / 10).unwrap()
}

/// What the warning is about: whose hands it takes to end this.
fn is_advice(event: &Value) -> bool {
    let text = event["reason"].as_str().unwrap_or_default();
    event["kind"] == "warning" && ["another program", "tag"].iter().all(|words| text.contains(words))
}

fn deletions() {
    let stage = Stage::new("mode = \"metric\"\n");
    stage.make_patient();
    let _daemon = stage.healthy();
    let wanted = stage.ours();
    let (begin, mut deleted) = (now(), 0);
    let delete = || {
        let command = || Command::new("ip").args("route del 10.20.0.0/16 metric 100 proto 212".split(' ')).output();
        netns::within(Some(stage.near()), command).unwrap().status.success()
    };
    while begin.elapsed() < FEUD {
        deleted += usize::from(delete());
        std::thread::sleep(PAUSE);
    }
    stage.await_ours(&wanted, "a loop of deletions");
    assert!(deleted >= 3, "it came back {deleted} times in {:?}", begin.elapsed());
    let (told, few) = (stage.events("kernel_drift").len(), few(begin));
    println!("deleted {deleted} times in {:?}: {told} events", begin.elapsed());
    assert!((1..=few).contains(&told), "{told} events of {deleted} deletions");
    eventually("advice", || stage.events("warning").iter().any(is_advice));
    let advices = stage.events("warning").iter().filter(|event| is_advice(event)).count();
    assert_eq!(advices, 1, "{:#?}", stage.events("warning"));
    // One that is not part of a feud any more is repaired all the same.
    assert!(delete());
    stage.await_ours(&wanted, "one deletion more");
}

/// Each takes away what the other has made.
fn rivals() {
    let stage = Stage::new("mode = \"metric\"\n");
    stage.make_patient();
    let tunnels = [0, 1].map(|path| tunnel(path, "")).concat();
    let routes = [0, 1].map(|path| route("10.30.0.0/16", path, 100 + u32::try_from(path).unwrap(), "")).concat();
    let text = configuration("mode = \"metric\"\n", &format!("{tunnels}{routes}"));
    stage.site.write("rival.conf", &text.replace("adit.sock", "rival.sock"));
    let _daemon = stage.healthy();
    let begin = now();
    let _rival = Running::start(stage.near(), &mut stage.site.command("run", "rival.conf"));
    let events = |socket: &str| -> Vec<Value> {
        let mut command = Command::new(adit());
        let arguments = ["events", "--json"];
        let Output { stdout, .. } =
            command.arg("--socket").arg(stage.site.path(socket)).args(arguments).output().unwrap();
        String::from_utf8(stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let drifts = |socket: &str| events(socket).iter().filter(|event| event["kind"] == "kernel_drift").count();
    let sockets = ["adit.sock", "rival.sock"];
    eventually("a feud", || sockets.iter().all(|socket| drifts(socket) > 0));
    std::thread::sleep(FEUD);
    let (told, few) = (sockets.map(drifts), few(begin));
    println!("events of two daemons after {FEUD:?}: {told:?}");
    assert!(told.iter().all(|told| (1..=few).contains(told)), "{told:?}");
    let advised = |socket: &&str| events(socket).iter().any(is_advice);
    assert!(holds_within(SOON, &mut || sockets.iter().any(advised)), "{:#?}", sockets.map(events));
}
