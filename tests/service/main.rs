//! The unit of systemd, run by a real systemd: each trial boots one as the first process of namespaces of its
//! own (`boot.sh`), installs the unit there as it is, and does what an operator does.
//!
//! Where that cannot be done the trials are counted as ignored, or fail if `ADIT_REQUIRE_SERVICE` is set, as
//! `.ci/run` does.

#![expect(clippy::unwrap_used, reason = "a trial that cannot go on must fail")]

mod machine;
mod plan;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

use machine::{Machine, eventually, lacking};
use plan::{CONFIGURATION, tunnel, tunnel_with, usual};

type Run = fn();

const TRIALS: &[(&str, Run)] = &[
    ("it_is_active_when_it_steers_and_its_parts_have_what_they_need_and_no_more", start),
    ("the_journal_has_fields_and_explanations", journal),
    ("a_reload_waits_for_its_outcome_and_fails_with_it", reload),
    ("a_daemon_that_is_killed_comes_back_and_remembers", killed),
    ("a_daemon_that_is_stuck_is_restarted_by_its_watchdog", stuck),
    ("keys_come_as_credentials", credentials),
    ("namespaces_take_a_drop_in", namespaces),
    ("people_are_told_within_the_units_walls", notify),
    ("it_stops_at_once_and_leaves_the_routes", stop),
    ("a_wrong_configuration_is_not_tried_again", wrong),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A debug build has two processors' worth of work in each.
    arguments.test_threads.get_or_insert(2);
    let lacking = lacking();
    let required = std::env::var_os("ADIT_REQUIRE_SERVICE").is_some();
    if let Some(why) = &lacking {
        println!("service: {}: {why}", if required { "FAILS" } else { "SKIPPED" });
    }
    let trials = TRIALS.iter().map(|&(name, run)| {
        let lacking = lacking.clone();
        let ignored = lacking.is_some() && !required;
        let trial = Trial::test(name, move || match lacking {
            Some(why) => Err(Failed::from(why)),
            None => {
                run();
                Ok(())
            }
        });
        trial.with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// A machine on which the unit is active and both tunnels are healthy.
fn healthy() -> Machine {
    let machine = Machine::boot(&[("etc/adit/adit.toml", &usual())]);
    machine.say(&["systemctl", "start", "adit"]);
    machine.await_property("StatusText", "2 healthy, 0 degraded, 0 down; 0 routes penalised");
    machine
}

fn routes(machine: &Machine) -> String {
    machine.say(&["ip", "route", "show", "proto", "212"])
}

/// A line of a process's status, in the machine.
fn status_of(machine: &Machine, process: &str, name: &str) -> String {
    let status = machine.say(&["cat", &format!("/proc/{process}/status")]);
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

fn prober(machine: &Machine) -> String {
    let steward = machine.property("MainPID");
    let list = machine.say(&["sh", "-c", &format!("cat /proc/{steward}/task/*/children")]);
    list.split_whitespace().next().unwrap().to_owned()
}

fn start() {
    let machine = Machine::boot(&[("etc/adit/adit.toml", &usual())]);
    machine.say(&["systemctl", "start", "adit"]);
    // Not a moment later: that is what "active" says.
    assert_eq!(routes(&machine).lines().count(), 2, "{}", machine.journal());
    machine.await_property("StatusText", "2 healthy, 0 degraded, 0 down; 0 routes penalised");
    let steward = machine.property("MainPID");
    // CAP_NET_ADMIN is bit 12, CAP_NET_RAW bit 13.
    assert_eq!(status_of(&machine, &steward, "CapEff:"), "0000000000003000");
    assert_ne!(status_of(&machine, &steward, "Uid:").split_whitespace().next(), Some("0"));
    let prober = prober(&machine);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(status_of(&machine, &prober, set), "0000000000000000", "{set}");
    }
    let filters = |process| status_of(&machine, process, "Seccomp_filters:").parse::<u32>().unwrap();
    assert_eq!(filters(&prober) - filters(&steward), 3, "its own walls besides the unit's");
    let journal = machine.journal();
    assert!(!journal.contains("less confined") && !journal.contains("WARN"), "{journal}");
    assert_eq!(machine.property("NRestarts"), "0", "{journal}");
}

fn journal() {
    let machine = healthy();
    let entries = machine.say(&["journalctl", "-o", "json", "MESSAGE_ID=03d365a118e5438e9f0591e153c3bebf"]);
    let entries: Vec<Value> = entries.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entry = entries.iter().find(|entry| entry["ADIT_TUNNEL"] == "path0").unwrap();
    for (field, value) in [
        ("ADIT_FROM", "unknown"),
        ("ADIT_TO", "healthy"),
        ("ADIT_PART", "prober"),
        ("PRIORITY", "5"),
        ("SYSLOG_IDENTIFIER", "adit"),
        ("_SYSTEMD_UNIT", "adit.service"),
        ("_TRANSPORT", "journal"),
    ] {
        assert_eq!(entry[field], value, "{field} of {entry}");
    }
    let explained = machine.say(&["journalctl", "--no-pager", "-x", "-u", "adit"]);
    assert!(explained.contains("Subject: Tunnel path0 went from unknown to healthy"), "{explained}");
}

fn reload() {
    let machine = healthy();
    machine.write("etc/adit/adit.toml", &format!("{CONFIGURATION}{}", tunnel(0)));
    machine.say(&["systemctl", "reload", "adit"]);
    // When it returns, that is what holds.
    let status: Value = serde_json::from_str(&machine.say(&["adit", "status", "--json"])).unwrap();
    assert_eq!(status["tunnels"].as_array().unwrap().len(), 1, "{status}");
    machine.write("etc/adit/adit.toml", "[[tunnel]]\nname = 7\n");
    let steward = machine.property("MainPID");
    let refused = machine.run(&["systemctl", "reload", "adit"]);
    assert!(!refused.status.success(), "a reload that failed");
    assert_eq!([machine.property("ActiveState"), machine.property("MainPID")], ["active".to_owned(), steward]);
    assert!(machine.journal().contains("adit.toml:2:"), "where it is wrong: {}", machine.journal());
    machine.await_property("StatusText", "1 healthy, 0 degraded, 0 down; 0 routes penalised");
}

fn killed() {
    let machine = healthy();
    let before = routes(&machine);
    machine.say(&["adit", "drain", "path1"]);
    // What is to be remembered is on the disk within a second or so.
    std::thread::sleep(std::time::Duration::from_secs(3));
    machine.say(&["systemctl", "kill", "--kill-whom=main", "--signal=KILL", "adit"]);
    machine.await_property("NRestarts", "1");
    machine.await_property("ActiveState", "active");
    let events = machine.say(&["adit", "events", "--json"]);
    let transitions = events.lines().filter(|line| line.contains("\"transition\"") && line.contains("\"unknown\""));
    assert_eq!(transitions.count(), 0, "it knew them: {events}");
    let status: Value = serde_json::from_str(&machine.say(&["adit", "status", "path1", "--json"])).unwrap();
    assert_eq!([&status["state"], &status["drained"]], [&Value::from("healthy"), &Value::from(true)]);
    machine.say(&["adit", "undrain", "path1"]);
    eventually("the same routes", || (routes(&machine) == before).then_some(()));
}

fn stuck() {
    let drop_in = ("etc/systemd/system/adit.service.d/soon.conf", "[Service]\nWatchdogSec=4s\n");
    let machine = Machine::boot(&[("etc/adit/adit.toml", &usual()), drop_in]);
    machine.say(&["systemctl", "start", "adit"]);
    // It is fed longer than it would wait.
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!(machine.property("NRestarts"), "0", "{}", machine.journal());
    machine.say(&["systemctl", "kill", "--kill-whom=main", "--signal=STOP", "adit"]);
    machine.await_property("NRestarts", "1");
    machine.await_property("StatusText", "2 healthy, 0 degraded, 0 down; 0 routes penalised");
    assert!(machine.journal().contains("Watchdog timeout"), "{}", machine.journal());
}

fn credentials() {
    let key = |digit: char| digit.to_string().repeat(128);
    let tunnel = "[[tunnel]]\nname = \"par-1\"\nencapsulation = \"esp\"\nlocal_endpoint = \"10.100.0.8\"\n\
        remote_endpoint = \"10.100.0.9\"\ninterface_address = \"10.100.0.14/31\"\n\
        [tunnel.esp]\nkeys = \"static\"\nalgorithm = \"aes256-cbc-hmac-sha256\"\nspi_out = 0x1001\nspi_in = 0x2001\n\
        key_out_file = \"/run/credentials/adit.service/par-1.out\"\n\
        key_in_file = \"/run/credentials/adit.service/par-1.in\"\n";
    let drop_in = "[Service]\nLoadCredential=par-1.out:/etc/adit/keys/par-1.out\n\
        LoadCredential=par-1.in:/etc/adit/keys/par-1.in\n";
    let machine = Machine::boot(&[
        ("etc/adit/adit.toml", &format!("{}{tunnel}", usual())),
        ("etc/adit/keys/par-1.out", &key('5')),
        ("etc/adit/keys/par-1.in", &key('6')),
        ("etc/systemd/system/adit.service.d/keys.conf", drop_in),
    ]);
    machine.say(&["chmod", "-R", "go=", "/etc/adit/keys"]);
    machine.say(&["systemctl", "start", "adit"]);
    machine.say(&["adit", "sa", "begin", "par-1"]);
    let shown = machine.say(&["adit", "sa", "show", "par-1"]);
    assert!(shown.contains("0x1001") || shown.contains("1001"), "{shown}");
    machine.say(&["systemctl", "reload", "adit"]);
    let all = machine.say(&["journalctl", "--no-pager", "-o", "verbose"]);
    assert!(!all.contains("55555555") && !all.contains("66666666") && !shown.contains("55555555"), "a key is told");
}

fn namespaces() {
    let red = tunnel_with(2, "netns = \"red\"\n");
    let drop_in = "[Service]\nAmbientCapabilities=CAP_SYS_ADMIN\nCapabilityBoundingSet=CAP_SYS_ADMIN\n\
        RestrictNamespaces=net\n";
    let machine = Machine::boot(&[
        ("etc/adit/adit.toml", &format!("{}{red}", usual())),
        ("etc/systemd/system/adit.service.d/netns.conf", drop_in),
    ]);
    machine.say(&["systemctl", "start", "adit"]);
    machine.await_property("StatusText", "3 healthy, 0 degraded, 0 down; 0 routes penalised");
    assert_eq!(status_of(&machine, &prober(&machine), "CapEff:"), "0000000000000000");
}

fn notify() {
    let sink = "[[notify]]\non = [\"healthy\"]\nexec = [\"/etc/adit/notify.sh\"]\n";
    let script = "#!/bin/sh\nset -e\ncat >\"$STATE/heard\"\ngrep ^Cap /proc/self/status >\"$STATE/caps\"\n";
    let machine = Machine::boot(&[
        ("etc/adit/adit.toml", &format!("{}{sink}", usual())),
        ("etc/adit/notify.sh", &script.replace("$STATE", "/var/lib/adit")),
    ]);
    machine.say(&["chmod", "755", "/etc/adit/notify.sh"]);
    machine.say(&["systemctl", "start", "adit"]);
    eventually("what it was told", || {
        machine.run(&["test", "-s", "/var/lib/adit/caps"]).status.success().then_some(())
    });
    let told: Value = serde_json::from_str(&machine.say(&["cat", "/var/lib/adit/heard"])).unwrap();
    assert_eq!([&told["kind"], &told["sink"]], ["notification", "notify.sh"], "{told}");
    let caps = machine.say(&["cat", "/var/lib/adit/caps"]);
    // What bounds them says nothing: no_new_privs lets nobody have more than they have.
    let mut held = caps.lines().filter(|line| !line.starts_with("CapBnd:"));
    assert!(held.all(|line| line.ends_with("0000000000000000")), "{caps}");
    let journal = machine.say(&["journalctl", "--no-pager", "ADIT_PART=messenger"]);
    assert!(journal.contains("telling people"), "{journal}");
    assert!(!machine.journal().contains("not told"), "{}", machine.journal());
    machine.say(&["systemctl", "stop", "adit"]);
    assert_eq!(machine.property("Result"), "success");
}

fn stop() {
    let machine = healthy();
    let before = routes(&machine);
    let clock = adit::io::clock::Clock::start();
    machine.say(&["systemctl", "stop", "adit"]);
    assert!(clock.age() < std::time::Duration::from_secs(5), "{:?}", clock.age());
    assert_eq!([machine.property("ActiveState"), machine.property("Result")], ["inactive", "success"]);
    assert_eq!(routes(&machine), before);
    assert!(!machine.run(&["test", "-e", "/run/adit/adit.sock"]).status.success());
}

fn wrong() {
    let machine = Machine::boot(&[("etc/adit/adit.toml", "[[tunnel]]\nname = 7\n")]);
    assert!(!machine.run(&["systemctl", "start", "adit"]).status.success());
    assert!(machine.journal().contains("adit.toml:2:"), "{}", machine.journal());
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!([machine.property("ActiveState"), machine.property("NRestarts")], ["failed", "0"]);
}
