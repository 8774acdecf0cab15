//! Several targets of one tunnel: the kernel's own addresses behind a device, and a reflector's through GRE.

use serde_json::Value;

use crate::kit::eventually;
use crate::site::Site;
use crate::steering::net::ip;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("targets::one_of_three_may_go_and_two_may_not", one_may_go),
        case("targets::a_reflector_answers_for_all_of_its_own", reflected),
    ]
}

fn view(site: &Site) -> Value {
    let (_, _, body) = site.http("GET", "/v1/tunnels/ams-1");
    serde_json::from_str(&body).unwrap()
}

/// Of each target: answered, lost in a row.
fn targets(site: &Site) -> Vec<(u64, u64)> {
    let view = view(site);
    let number = |target: &Value, name: &str| target[name].as_u64().unwrap();
    let all = view["targets"].as_array().unwrap().iter();
    all.map(|target| (number(target, "answered"), number(target, "lost_in_a_row"))).collect()
}

const PACE: &str = "interval = \"100ms\"\ntimeout = \"2s\"\ndown_window = \"6s\"\n";

/// The far side's addresses are the kernel's, and probes leave by the cable as it is.
fn one_may_go() {
    let site = Site::new();
    let address = |verb: &str, last: u8| ip(&site.pair.far, &format!("address {verb} 192.0.2.{last}/24 dev far0"));
    address("add", 13);
    site.write(
        "adit.conf",
        &format!(
            "[daemon]\nsocket = \"adit.sock\"\nstate_dir = \"state\"\n\
             [[tunnel]]\nname = \"ams-1\"\nencapsulation = \"device\"\n\
             interface_address = \"192.0.2.1/30\"\n\
             [tunnel.health_check]\n{PACE}targets = [\"192.0.2.11\", \"192.0.2.12\", \"192.0.2.13\"]\n\
             [tunnel.health_check.rules]\ndegraded_window = \"8s\"\nrecovery_samples = 10\n"
        ),
    );
    let _daemon = site.daemon();
    site.await_state("ams-1", "healthy");
    eventually("answers of all three", || targets(&site).iter().all(|(answered, _)| *answered > 5));
    assert_eq!(view(&site)["quorum"], 2, "more than half");

    address("del", 13);
    eventually("that one is silent", || targets(&site)[2].1 > 20);
    let said = site.say(&["explain", "ams-1"]);
    assert!(said.contains("any 2 of 3 must answer") && said.contains("192.0.2.13: "), "{said}");
    assert!(said.lines().any(|line| line.contains("192.0.2.13: ") && line.contains("silent for ")), "{said}");
    let transitions = site.transitions();
    assert!(transitions.iter().all(|event| event["to"] != "down"), "{transitions:?}");

    address("del", 12);
    site.await_state("ams-1", "down");
    eventually("the silent ones by name", || {
        view(&site)["last_failure"]["reason"] == "2 of 3 targets silent: 192.0.2.12, 192.0.2.13"
    });
    let sick = site.adit(&["diagnose", "ams-1"]);
    let said = String::from_utf8(sick.stdout).unwrap();
    assert_eq!(sick.status.code(), Some(1), "{said}");
    let words = "- ams-1 carries packets, but 2 of 3 targets are silent: 192.0.2.12, 192.0.2.13; quorum 2";
    assert!(said.lines().any(|line| line == words) && said.contains("target 192.0.2.13"), "{said}");
    address("add", 12);
    site.await_state("ams-1", "healthy");
    let well = site.say(&["diagnose", "ams-1"]);
    assert!(well.contains("+ ams-1 is well") && well.contains("note: 1 of 3 targets is silent: 192.0.2.13"), "{well}");
}

fn reflected() {
    let site = Site::new();
    let check = "[tunnel.health_check]\ntargets = [\"10.9.0.1\", \"10.9.0.2\", \"10.9.0.3\"]\n";
    let interface = "interface_address = \"10.100.0.8/31\"\n";
    let text = site.configuration();
    assert!(text.contains(interface));
    site.write("adit.conf", &text.replace(interface, &format!("{interface}{check}quorum = 3\n")));
    let far = site.read("ams-1.far");
    site.write("ams-1.far", &format!("{far}{check}"));
    let (_daemon, [ams, _fra]) = site.healthy();
    eventually("answers of all three", || targets(&site).iter().all(|(answered, _)| *answered > 5));
    drop(ams);
    site.await_state("ams-1", "down");
    // It has one address less: to the others it answers.
    site.write("ams-1.far", &format!("{far}{}", check.replace("\"10.9.0.2\", ", "")));
    let _ams = site.far("ams-1");
    let before = targets(&site)[0].0;
    eventually("answers again", || targets(&site)[0].0 > before + 5);
    assert_eq!(site.state("ams-1"), "down", "three must answer");
    eventually("the silent one by name", || view(&site)["last_failure"]["reason"] == "1 of 3 targets silent: 10.9.0.2");
}
