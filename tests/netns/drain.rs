//! Drains with an end and a reason: shown, kept over a kill, and over by themselves.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::eventually;
use crate::site::{Running, Site};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("drain::an_end_and_a_reason_are_shown_and_outlive_a_kill", shown_and_kept),
        case("drain::it_ends_by_itself_and_traffic_comes_back", ends),
        case("drain::one_whose_end_comes_while_the_daemon_is_dead_ends_all_the_same", ends_meanwhile),
        case("drain::what_makes_no_sense_is_refused_and_changes_nothing", nonsense),
    ]
}

fn view(site: &Site, name: &str) -> Value {
    let (_, _, body) = site.http("GET", &format!("/v1/tunnels/{name}"));
    serde_json::from_str(&body).unwrap()
}

fn kill(daemon: Running) {
    daemon.send(Signal::SIGKILL);
    daemon.end();
}

/// Which tunnel carries the traffic.
fn carrier(site: &Site) -> String {
    let routes = site.json(&["routes", "get", "10.20.1.1", "--json"])["routes"].clone();
    let selected = routes.as_array().unwrap().iter().find(|route| route["selected"] == true).cloned();
    selected.map_or_else(String::new, |route| route["tunnel"].as_str().unwrap().to_owned())
}

fn shown_and_kept() {
    let site = Site::new();
    site.make_patient();
    let (daemon, _far) = site.healthy();
    let said = site.say(&["drain", "ams-1", "fra-1", "--for", "3h", "--reason", "replace the line card"]);
    let lines: Vec<&str> = said.lines().collect();
    for (line, name) in lines.iter().zip(["ams-1", "fra-1"]) {
        assert!(line.starts_with(&format!("{name}: drained until ")), "{said}");
        assert!(line.ends_with(" UTC; measured healthy; penalty 500 000"), "{said}");
    }
    assert_eq!(lines.len(), 2, "{said}");
    let before = view(&site, "fra-1")["drain"].clone();
    assert_eq!((&before["as"], &before["reason"]), (&"degraded".into(), &"replace the line card".into()), "{before}");
    assert_eq!(before["by"], nix::unistd::geteuid().as_raw(), "who has asked: {before}");
    let listed = site.say(&["status"]);
    assert!(listed.contains("healthy, drained"), "{listed}");
    let told = |text: &str| {
        text.lines().any(|line| line.contains("drained until ") && line.ends_with(": replace the line card"))
    };
    assert!(told(&listed), "{listed}");
    for command in [["status", "fra-1"], ["explain", "fra-1"]] {
        let said = site.say(&command);
        let line =
            said.lines().find(|line| line.trim_start().starts_with("drain ")).unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains(" UTC (in 2h 59m): replace the line card (as degraded, "), "{line}");
    }
    let events = site.say(&["events"]);
    let line = events.lines().find(|line| line.contains("fra-1: drained until ")).unwrap_or_else(|| panic!("{events}"));
    assert!(line.contains("Z: replace the line card (by "), "{line}");

    kill(daemon);
    let _daemon = site.daemon();
    assert_eq!(view(&site, "fra-1")["drain"], before);
    assert_eq!(site.say(&["undrain", "ams-1", "fra-1"]).matches("not drained").count(), 2);
    assert_eq!(view(&site, "fra-1")["drain"], Value::Null);
    let events = site.say(&["events"]);
    assert!(events.lines().any(|line| line.contains("fra-1: no longer drained (by ")), "{events}");
}

fn ends() {
    let site = Site::new();
    site.make_patient();
    let (_daemon, _far) = site.healthy();
    assert_eq!(carrier(&site), "ams-1");
    site.say(&["drain", "ams-1", "--for", "2s", "--reason", "a moment"]);
    let order = [
        "ams-1: drained until",
        "traffic moves from ams-1 to fra-1",
        "ams-1: no longer drained: its time is over",
        "traffic moves from fra-1 to ams-1",
    ];
    eventually("its end", || {
        let events = site.say(&["events"]);
        let places: Vec<_> = order.iter().filter_map(|part| events.find(part)).collect();
        places.len() == order.len() && places.is_sorted()
    });
    assert_eq!(carrier(&site), "ams-1");
    assert_eq!(view(&site, "ams-1")["drain"], Value::Null);
    assert_eq!(site.transitions().len(), 2, "no state has moved");
}

fn ends_meanwhile() {
    let site = Site::new();
    site.make_patient();
    let (daemon, _far) = site.healthy();
    site.say(&["drain", "ams-1", "--for", "3s"]);
    kill(daemon);
    std::thread::sleep(std::time::Duration::from_secs(3));
    let _daemon = site.daemon();
    eventually("its end", || site.say(&["events"]).contains("ams-1: no longer drained: its time is over"));
    assert_eq!((carrier(&site).as_str(), &view(&site, "ams-1")["drained"]), ("ams-1", &Value::Bool(false)));
    assert!(site.transitions().is_empty(), "no state has moved");
}

fn nonsense() {
    let site = Site::new();
    let (_daemon, _far) = site.healthy();
    for (arguments, why) in [
        (&["--reason", " "][..], "say why, or leave it out"),
        (&["--reason", "a\u{1b}[2J"], "one line of printable text"),
        (&["--until", "2001-01-01T00:00:00Z"], "is past"),
        (&["--until", "14:00"], "RFC 3339"),
        (&["--for", "400d"], "at most 366 days"),
        (&["--for", "soon"], "--for"),
        (&["--for", "1h", "--until", "2101-01-01T00:00:00Z"], "cannot be used with"),
    ] {
        let output = site.adit(&[&["drain", "ams-1"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(why) && !said.contains('\u{1b}'), "{arguments:?}: {said}");
    }
    assert!(!site.say(&["events"]).contains("drained"));
    // Of several the first that is wrong ends it, and says which it was.
    let output = site.adit(&["drain", "fra-1", "ams-2", "ams-1"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fra-1: drained; measured healthy; penalty 500 000\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no tunnel ams-2"));
    assert_eq!(view(&site, "ams-1")["drained"], false);
}
