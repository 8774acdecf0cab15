//! What a daemon knows outlives its process, and a disk that is no good keeps nobody from probing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use adit::engine::memory::{Kind, Seal, Verdict, decode};
use adit::io::clock::Clock;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{eventually, ms};
use crate::site::{Running, Site};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("memory::a_restart_forgets_nothing_and_tells_no_transition", || over(restart)),
        case("memory::a_kill_forgets_nothing_and_tells_no_transition", || over(kill)),
        case("memory::a_prober_that_is_killed_forgets_nothing", || over(kill_prober)),
        case("memory::a_drain_that_was_answered_outlives_a_kill_a_moment_later", drained),
        case("memory::a_drain_that_is_asked_for_twice_is_waited_for_twice", twice),
        case("memory::a_broken_file_is_set_aside_and_told", broken),
        case("memory::files_that_are_cut_off_are_told_of_together", cut_off),
        case("memory::what_is_older_than_five_minutes_is_stale_until_it_is_confirmed", stale),
        case("memory::a_folder_that_cannot_be_used_keeps_nobody_from_probing", unusable),
    ]
}

fn restart(site: &Site, daemon: Running) -> Running {
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    site.daemon()
}

fn kill(site: &Site, daemon: Running) -> Running {
    daemon.send(Signal::SIGKILL);
    daemon.end();
    site.daemon()
}

fn kill_prober(site: &Site, daemon: Running) -> Running {
    let before = daemon.prober();
    daemon.send_prober(Signal::SIGKILL);
    eventually("another prober", || daemon.prober() != before && site.adit(&["status"]).status.code() == Some(0));
    daemon
}

fn view(site: &Site, name: &str) -> Value {
    let (_, _, body) = site.http("GET", &format!("/v1/tunnels/{name}"));
    serde_json::from_str(&body).unwrap()
}

fn over(end: impl Fn(&Site, Running) -> Running) {
    let site = Site::new();
    site.write("adit.conf", &site.configuration().replace("degraded_window = \"4s\"\n", ""));
    let (mut daemon, [ams, _fra]) = site.healthy();
    site.say(&["drain", "fra-1", "--down"]);
    drop(ams);
    site.await_state("ams-1", "down");
    let _ams = site.far("ams-1");
    site.await_state("ams-1", "degraded");
    // Samples are written down every ten seconds, and at a clean end.
    let windows = site.path("state/windows");
    let written = || fs::metadata(&windows).ok().and_then(|file| file.modified().ok());
    let first = written();
    eventually("the samples on the disk", || written() != first);
    for _ in 0..3 {
        // A change is on the disk within some milliseconds.
        std::thread::sleep(ms(300));
        let (before, told) = (view(&site, "ams-1"), site.transitions());
        let last = told.iter().filter_map(|event| event["id"].as_u64()).max().unwrap_or(0);
        daemon = end(&site, daemon);
        let after = view(&site, "ams-1");
        for key in ["state", "since", "reason", "penalty"] {
            assert_eq!(after[key], before[key], "{key}");
        }
        assert_eq!(after["stale"], false);
        assert_eq!(view(&site, "fra-1")["drained"], true);
        let failures = after["window"]["failures"].as_u64().unwrap();
        assert!(failures >= 3, "{failures} of those that were before");
        assert!(site.transitions().is_empty(), "{:?}", site.transitions());
        let events: Vec<Value> =
            site.say(&["events", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let first = events.iter().filter_map(|event| event["id"].as_u64()).min().unwrap();
        assert!(first > last, "number {first} after {last}");
        // It goes on to probe.
        let sent = || view(&site, "ams-1")["counters"]["received"].as_u64().unwrap();
        eventually("more answers", || sent() >= 3);
        assert_eq!(view(&site, "ams-1")["state"], "degraded");
    }
    drop(daemon);
}

fn drained() {
    let site = Site::new();
    let (mut daemon, _far) = site.healthy();
    // More in a row than may be on the disk at once.
    for round in 0..16 {
        let (what, expected) = if round % 2 == 0 { ("drain", true) } else { ("undrain", false) };
        site.say(&[what, "fra-1"]);
        daemon = if round % 4 < 2 { kill(&site, daemon) } else { kill_prober(&site, daemon) };
        assert_eq!(view(&site, "fra-1")["drained"], expected, "round {round}");
    }
    drop(daemon);
}

/// Nobody is told sooner that it is kept because somebody else has asked before.
fn twice() {
    let site = Site::new();
    let (_daemon, _far) = site.healthy();
    let [state, away] = ["state", "away"].map(|name| site.path(name));
    let takes = |what: &str| {
        let clock = Clock::start();
        site.say(&[what, "fra-1"]);
        clock.age()
    };
    fs::rename(&state, &away).unwrap();
    fs::write(&state, "a file").unwrap();
    let [first, second] = [takes("drain"), takes("drain")];
    assert!(first >= ms(2_000) && second >= ms(2_000), "{first:?} {second:?}");
    fs::remove_file(&state).unwrap();
    fs::rename(&away, &state).unwrap();
    // It is tried again, and then there is nothing to wait for.
    eventually("an answer at once", || takes("drain") < ms(1_000));
}

fn broken() {
    let site = Site::new();
    let (daemon, _far) = site.healthy();
    eventually("a file", || site.path("state/states").exists());
    daemon.send(Signal::SIGTERM);
    daemon.end();
    let states = site.path("state/states");
    let mut bytes = fs::read(&states).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&states, &bytes).unwrap();
    let _daemon = site.daemon();
    let told = site.say(&["events"]);
    assert!(told.contains("memory-lost") && told.contains("checksum"), "{told}");
    assert_eq!(fs::read(site.path("state/states.damaged-1")).unwrap(), bytes, "for people");
    site.await_state("ams-1", "healthy");
    eventually("verdicts anew", || site.transitions().len() == 2);
}

fn cut_off() {
    let site = Site::new();
    let (daemon, _far) = site.healthy();
    daemon.send(Signal::SIGTERM);
    daemon.end();
    for (name, length) in [("states", 60), ("windows", 0)] {
        let file = fs::OpenOptions::new().write(true).open(site.path(&format!("state/{name}"))).unwrap();
        file.set_len(length).unwrap();
    }
    let _daemon = site.daemon();
    let told = site.say(&["events"]);
    let line = told.lines().find(|line| line.contains("memory-lost")).unwrap();
    assert!(line.contains("states.damaged-1") && line.contains("windows.damaged-1"), "{line}");
    site.await_state("ams-1", "healthy");
}

/// As if it had been written so much earlier.
fn make_older(path: &Path, kind: Kind, by: Duration) {
    let bytes = fs::read(path).unwrap();
    let (mut preface, verdicts) = decode::<Verdict>(kind, &bytes).unwrap();
    preface.saved -= u64::try_from(by.as_nanos()).unwrap();
    let mut content = postcard::to_stdvec(&preface).unwrap();
    verdicts.iter().for_each(|verdict| content.extend(postcard::to_stdvec(verdict).unwrap()));
    let mut seal = Seal::default();
    seal.add(&content);
    fs::write(path, [&seal.header(kind)[..], &content].concat()).unwrap();
}

fn stale() {
    let site = Site::new();
    let (daemon, [ams, _fra]) = site.healthy();
    drop(ams);
    site.await_state("ams-1", "down");
    let before = view(&site, "ams-1");
    daemon.send(Signal::SIGTERM);
    daemon.end();
    make_older(&site.path("state/states"), Kind::States, Duration::from_secs(301));
    // Its first samples are long in coming.
    site.make_patient();
    let _daemon = site.daemon();
    let after = view(&site, "ams-1");
    assert_eq!((&after["stale"], &after["window"]["samples"]), (&Value::Bool(true), &Value::from(0)));
    for key in ["state", "since", "penalty"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    let said = site.say(&["status"]);
    assert!(said.contains("down, stale"), "{said}");
    let why = site.say(&["explain", "ams-1"]);
    assert!(why.contains("remembered from long ago"), "{why}");
    let _ams = site.far("ams-1");
    eventually("a confirmation", || view(&site, "ams-1")["stale"] == false);
    site.await_state("ams-1", "degraded");
}

fn unusable() {
    let site = Site::new();
    site.write("state", "a file");
    let (daemon, _far) = site.healthy();
    let told = site.say(&["events"]);
    assert!(told.contains("memory-lost") && told.contains("state"), "{told}");
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    assert_eq!(site.read("state"), "a file");
    // One that becomes so while it runs.
    fs::remove_file(site.path("state")).unwrap();
    let daemon = site.daemon();
    eventually("a file", || site.path("state/states").exists());
    std::thread::sleep(ms(100));
    fs::rename(site.path("state"), site.path("moved")).unwrap();
    site.write("state", "a file");
    site.say(&["drain", "ams-1"]);
    eventually("a word about it", || site.say(&["events"]).contains("(memory)"));
    site.await_state("ams-1", "healthy");
    drop(daemon);
}
