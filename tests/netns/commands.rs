//! The built program, end to end: a daemon in the near namespace, far ends in the other, and the
//! commands that a person types.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use adit::io::netns;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{eventually, ms};
use crate::site::{Running, Site, TUNNELS, adit};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("commands::a_day_of_a_daemon", a_day_of_a_daemon),
        case("commands::watching_prints_the_table_again", watching_prints_the_table_again),
        case("commands::a_follower_hears_of_a_cut_and_of_the_end", a_follower_hears_of_a_cut_and_of_the_end),
        case("commands::drains_move_traffic_and_no_state", drains_move_traffic_and_no_state),
        case("commands::a_second_daemon_refuses_to_start", a_second_daemon_refuses_to_start),
        case(
            "commands::a_file_in_the_place_of_the_socket_is_left_alone",
            a_file_in_the_place_of_the_socket_is_left_alone,
        ),
        case("commands::signals_end_it_and_remove_the_socket", signals_end_it_and_remove_the_socket),
        case("commands::a_stale_socket_is_replaced", a_stale_socket_is_replaced),
        case("commands::a_stopped_daemon_judges_nobody", a_stopped_daemon_judges_nobody),
        case("commands::a_recording_replays_as_it_happened", a_recording_replays_as_it_happened),
        case("commands::http_over_the_socket", http_over_the_socket),
        case("commands::status_has_every_field_of_the_interface", status_has_every_field_of_the_interface),
        case("commands::five_hundred_tunnels_take_no_more_sockets", five_hundred_tunnels_take_no_more_sockets),
        case("commands::a_number_from_before_a_restart_is_a_gap", a_number_from_before_a_restart_is_a_gap),
        case("commands::a_log_that_nobody_reads_ends_nothing", a_log_that_nobody_reads_ends_nothing),
        case("commands::another_user_may_look_but_not_touch", another_user_may_look_but_not_touch).with_two_users(),
        case(
            "commands::nobody_may_use_the_socket_unless_a_group_is_there",
            nobody_may_use_the_socket_unless_a_group_is_there,
        )
        .with_two_users(),
        case("commands::the_group_that_is_named_may_use_the_socket", the_group_that_is_named_may_use_the_socket),
        case("commands::an_unknown_group_starts_nothing", an_unknown_group_starts_nothing),
        case("commands::nobody_else_can_hold_the_lock", nobody_else_can_hold_the_lock),
        case("commands::followers_lock_nobody_out", followers_lock_nobody_out),
        case("commands::strangers_leave_places_to_root", strangers_leave_places_to_root).with_two_users(),
        case("commands::members_of_the_admin_group_may_change", members_of_the_admin_group_may_change).with_two_users(),
        case("commands::the_socket_has_a_thread_of_its_own", the_socket_has_a_thread_of_its_own),
    ]
}

fn a_day_of_a_daemon() {
    let site = Site::new();
    let (_daemon, [ams, _fra]) = site.healthy();

    let table = site.say(&["status"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    for name in TUNNELS {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.contains("healthy") && line.contains(" ms"), "{line}");
        assert_eq!(site.adit(&["status", name]).status.code(), Some(0));
    }
    let explained = site.say(&["explain", "ams-1"]);
    assert!(explained.starts_with("ams-1 is healthy since "), "{explained}");
    for word in ["because", "samples", "penalty", "becomes  degraded (rule 3)", "becomes  down (rule 1)"] {
        assert!(explained.contains(word), "{word}: {explained}");
    }
    assert!(site.json(&["explain", "ams-1", "--json"])["samples"].is_array());
    let routes = site.say(&["routes"]);
    assert_eq!(routes.lines().filter(|line| line.contains("10.20.0.0/16")).count(), 2, "{routes}");
    assert!(line_of(&routes, "ams-1").ends_with("<- here"), "{routes}");
    assert!(site.say(&["routes", "get", "10.20.30.40"]).contains("ams-1"));
    let nowhere = site.adit(&["routes", "get", "192.0.2.200"]);
    assert_eq!((nowhere.status.code(), &*nowhere.stdout), (Some(1), &b"no route holds 192.0.2.200\n"[..]));
    let events = site.say(&["events"]);
    assert!(events.contains("started with 2 tunnels") && events.contains("ams-1: unknown -> healthy"), "{events}");

    drop(ams);
    site.await_state("ams-1", "down");
    let sick = site.adit(&["status", "ams-1"]);
    let text = String::from_utf8(sick.stdout).unwrap();
    assert_eq!(sick.status.code(), Some(1), "bad news");
    assert!(text.contains("down since") && text.contains("1 000 000") && text.contains("timeout"), "{text}");
    assert_eq!(site.adit(&["status"]).status.code(), Some(0), "a table is no verdict");
    assert!(line_of(&site.say(&["routes"]), "fra-1").ends_with("<- here"));
    let routes = site.json(&["routes", "get", "10.20.30.40", "--json"]);
    let chosen: Vec<_> =
        routes["routes"].as_array().unwrap().iter().filter(|route| route["selected"] == true).collect();
    assert_eq!((chosen.len(), &chosen[0]["tunnel"]), (1, &"fra-1".into()));
    assert_eq!(chosen[0]["effective_priority"], 200);
    assert!(site.say(&["events"]).contains("10.20.0.0/16: traffic moves from ams-1 to fra-1"));

    let _ams = site.far("ams-1");
    site.await_state("ams-1", "healthy");
    assert!(line_of(&site.say(&["routes"]), "ams-1").ends_with("<- here"));
    let to: Vec<_> =
        site.transitions().iter().filter(|event| event["tunnel"] == "ams-1").map(|event| event["to"].clone()).collect();
    assert_eq!(to[0], "healthy");
    assert_eq!(*to.last().unwrap(), "healthy");
    assert!(to.contains(&"down".into()) && to.contains(&"degraded".into()), "{to:?}");

    for arguments in [&["status", "ams-2"][..], &["explain", "ams-2"], &["drain", "ams-2"], &["undrain", "ams-2"]] {
        let unknown = site.adit(arguments);
        let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
        assert_eq!(unknown.status.code(), Some(2), "{said}");
        assert!(said.contains("ams-2") && said.contains("did you mean ams-1?"), "{said}");
    }
    let all = [&["status"][..], &["status", "ams-1"], &["explain", "ams-1"], &["routes"], &["events"]];
    for arguments in all {
        let plain = site.adit(arguments).stdout;
        assert!(!plain.contains(&0x1B), "no colours but on a terminal: adit {}", arguments.join(" "));
    }
}

fn watching_prints_the_table_again() {
    let site = Site::new();
    let _daemon = site.daemon();
    let mut command = Command::new(adit());
    command.arg("--socket").arg(site.path("adit.sock")).args(["status", "--watch"]);
    let mut watch = Running::start(&site.pair.near, command.stdout(Stdio::piped()));
    let mut out = BufReader::new(watch.child.stdout.take().unwrap());
    let mut seen = String::new();
    while seen.matches("TUNNEL").count() < 2 {
        assert!(out.read_line(&mut seen).unwrap() > 0, "it ended: {seen}");
    }
    assert!(!seen.contains('\x1b') && !seen.contains('\r'), "this is no terminal: {seen:?}");
}

fn line_of<'a>(table: &'a str, word: &str) -> &'a str {
    table.lines().find(|line| line.split_whitespace().any(|part| part == word)).unwrap_or("")
}

fn a_follower_hears_of_a_cut_and_of_the_end() {
    let site = Site::new();
    let (daemon, [ams, _fra]) = site.healthy();
    let last = site.transitions().last().unwrap()["id"].to_string();
    let mut command = Command::new(adit());
    command.arg("--socket").arg(site.path("adit.sock")).args(["events", "--follow", "--json", "--since", &last]);
    let mut follower = Running::start(&site.pair.near, command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut lines = BufReader::new(follower.child.stdout.take().unwrap()).lines();
    let mut next = |kind: &str| loop {
        // Read on a pipe that ends with the follower, which ends with the trial.
        let line = lines.next().unwrap_or_else(|| panic!("the follower ended before a {kind}")).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["kind"] == kind {
            return event;
        }
    };

    drop(ams);
    let mut event = next("transition");
    while event["to"] != "down" {
        event = next("transition");
    }
    assert_eq!((&event["tunnel"], &event["penalty"]), (&"ams-1".into(), &1_000_000.into()));
    daemon.send(Signal::SIGTERM);
    next("stop");
    assert!(daemon.end().success());
    assert_eq!(follower.end().code(), Some(0), "it has followed to the end");
}

fn drains_move_traffic_and_no_state() {
    let site = Site::new();
    site.make_patient();
    let (_daemon, _far) = site.healthy();
    let carrier = || site.json(&["routes", "get", "10.20.1.1", "--json"])["routes"].clone();
    let carries = |name: &str| {
        carrier().as_array().unwrap().iter().any(|route| route["tunnel"] == name && route["selected"] == true)
    };
    assert!(carries("ams-1"));
    assert_eq!(site.say(&["drain", "ams-1"]), "ams-1: drained; measured healthy; penalty 500 000\n");
    assert!(carries("fra-1"));
    assert!(line_of(&site.say(&["status"]), "ams-1").contains("healthy, drained"));
    assert_eq!(site.adit(&["status", "ams-1"]).status.code(), Some(0), "drained is not sick");
    assert_eq!(site.say(&["drain", "ams-1", "--down"]), "ams-1: drained; measured healthy; penalty 1 000 000\n");
    assert_eq!(site.say(&["drain", "fra-1", "--down"]), "fra-1: drained; measured healthy; penalty 1 000 000\n");
    assert!(carries("ams-1"), "drains reorder, they take nothing away");
    for name in TUNNELS {
        assert_eq!(site.say(&["undrain", name]), format!("{name}: not drained; measured healthy; penalty 0\n"));
    }
    assert!(carries("ams-1"));
    let states: Vec<_> = site.transitions().into_iter().map(|event| event["to"].clone()).collect();
    assert_eq!(states, ["healthy", "healthy"]);
    let told = site.say(&["events"]);
    assert!(told.contains("ams-1: drained") && told.contains("ams-1: no longer drained"), "{told}");
}

fn a_second_daemon_refuses_to_start() {
    let site = Site::new();
    let _first = site.daemon();
    let second = netns::within(Some(&site.pair.near), || {
        Command::new(adit()).arg("run").arg("--config").arg(site.path("adit.conf")).output()
    });
    let Output { status, stderr, .. } = second.unwrap();
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success());
    assert!(said.contains("another adit already serves") && said.contains("adit.sock"), "{said}");
    assert!(site.adit(&["status"]).status.success(), "the first goes on");
}

fn a_file_in_the_place_of_the_socket_is_left_alone() {
    let site = Site::new();
    site.write("adit.sock", "not to be lost");
    let daemon = Running::start(&site.pair.near, &mut site.command("run", "adit.conf"));
    assert_eq!(daemon.end().code(), Some(74));
    let said = site.read("adit.conf.log");
    assert!(said.contains("adit.sock") && said.contains("left alone"), "{said}");
    assert_eq!(site.read("adit.sock"), "not to be lost");
}

fn signals_end_it_and_remove_the_socket() {
    let site = Site::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let daemon = site.daemon();
        daemon.send(Signal::SIGHUP);
        eventually("a word about SIGHUP", || site.read("adit.conf.log").contains("reloaded"));
        assert!(site.adit(&["status"]).status.success(), "SIGHUP does not end it");
        daemon.send(signal);
        assert_eq!(daemon.end().code(), Some(0), "{signal}: {}", site.read("adit.conf.log"));
        assert!(!site.path("adit.sock").exists(), "{signal}");
        let gone = site.adit(&["status"]);
        assert_eq!(gone.status.code(), Some(69));
        assert!(String::from_utf8_lossy(&gone.stderr).contains("start one with adit run"));
    }
    let told = site.read("record.jsonl");
    for kind in ["start", "stop"] {
        let count = told.lines().filter(|line| line.contains(&format!("\"kind\":\"{kind}\""))).count();
        assert_eq!(count, 2, "{kind}");
    }
}

fn a_stale_socket_is_replaced() {
    let site = Site::new();
    let first = site.daemon();
    first.send(Signal::SIGKILL);
    first.end();
    assert!(site.path("adit.sock").exists(), "nobody was there to remove it");
    assert_eq!(site.adit(&["status"]).status.code(), Some(69));
    let _second = site.daemon();
}

fn a_stopped_daemon_judges_nobody() {
    let site = Site::new();
    let (daemon, _far) = site.healthy();
    let before = site.json(&["status", "ams-1", "--json"])["counters"].clone();
    daemon.send_prober(Signal::SIGSTOP);
    // Longer than the time-out and the short window together.
    std::thread::sleep(ms(2_000));
    daemon.send_prober(Signal::SIGCONT);
    let sent = before["sent"].as_u64().unwrap();
    eventually("more probes", || {
        site.json(&["status", "ams-1", "--json"])["counters"]["sent"].as_u64() > Some(sent + 20)
    });
    let after = site.json(&["status", "ams-1", "--json"])["counters"].clone();
    assert_eq!((&after["lost"], &after["late"]), (&before["lost"], &before["late"]), "{after}");
    assert!(site.say(&["events"]).contains("local fault (stall)"));
    assert_eq!(site.transitions().len(), 2);
}

fn a_recording_replays_as_it_happened() {
    let site = Site::new();
    let (daemon, [ams, fra]) = site.healthy();
    drop(ams);
    site.await_state("ams-1", "down");
    let _ams = site.far("ams-1");
    drop(fra);
    site.await_state("fra-1", "down");
    site.await_state("ams-1", "healthy");
    // Whatever may happen from here on is in neither.
    daemon.send_prober(Signal::SIGSTOP);
    let recorded = site.read("record.jsonl");
    daemon.send_prober(Signal::SIGCONT);
    let whole = recorded.rfind('\n').map_or("", |end| &recorded[..=end]);
    site.write("until-now.jsonl", whole);

    let facts = |event: &Value| ["tunnel", "from", "to", "rule", "penalty"].map(|field| event[field].clone());
    let last: Value = serde_json::from_str(whole.lines().last().unwrap()).unwrap();
    let told: Vec<_> = site
        .transitions()
        .into_iter()
        .filter(|event| event["id"].as_u64() <= last["id"].as_u64())
        .map(|event| facts(&event))
        .collect();
    assert!(told.len() >= 7, "{told:#?}");
    let file = site.path("until-now.jsonl");
    let config = site.path("adit.conf");
    let replay = |file: &str| {
        let lines = site.say(&["replay", "--json", "--config", config.to_str().unwrap(), file]);
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let replayed = replay(file.to_str().unwrap());
    assert_eq!(replayed.iter().map(facts).collect::<Vec<_>>(), told);
    let times: Vec<_> = replayed.iter().map(|line| line["t"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");

    // What `adit events --json` prints can be replayed as it is, too.
    let printed = site.say(&["events", "--json"]);
    site.write("printed.jsonl", &printed);
    let printed = replay(site.path("printed.jsonl").to_str().unwrap());
    assert_eq!(printed[..replayed.len()], replayed);
}

fn http_over_the_socket() {
    let site = Site::new();
    let (_daemon, _far) = site.healthy();
    let json = |path: &str| {
        let (status, head, body) = site.http("GET", path);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(head.contains("content-type: application/json"), "{path}: {head}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    assert_eq!(json("/v1/tunnels")["tunnels"].as_array().unwrap().len(), 2);
    assert_eq!(json("/v1/tunnels/fra-1")["name"], "fra-1");
    assert_eq!(json("/v1/tunnels/fra-1/explain")["name"], "fra-1");
    assert_eq!(json("/v1/routes")["routes"].as_array().unwrap().len(), 2);
    let over = json("/v1/routes?tunnel=fra-1")["routes"].clone();
    assert_eq!((over.as_array().unwrap().len(), &over[0]["tunnel"]), (1, &"fra-1".into()), "{over}");
    assert_eq!(json("/v1/routes/lookup?dst=10.20.255.255")["routes"][0]["prefix"], "10.20.0.0/16");
    let chosen = |query: &str| json(&format!("/v1/routes/lookup?dst=10.20.1.1{query}"))["routes"].clone();
    assert_eq!(chosen("").as_array().unwrap().len(), 1, "the chosen ones only");
    assert_eq!(chosen("&flow=7"), chosen(""), "one alone takes every flow");
    let health = json("/v1/healthz");
    assert_eq!((&health["status"], &health["tunnels"]["healthy"]), (&"ok".into(), &2.into()), "{health}");

    let (status, head, body) = site.http("GET", "/v1/events?since=0");
    assert!(status == 200 && head.contains("application/jsonl"), "{head}");
    let first = body.lines().find(|line| line.starts_with('{')).unwrap();
    assert_eq!(serde_json::from_str::<Value>(first).unwrap()["id"], 1);

    let problems = [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/tunnels/nothing", 404),
        ("GET", "/v1/tunnels/ams-3/explain", 404),
        ("POST", "/v1/tunnels/nothing/drain", 404),
        ("GET", "/v1/routes?tunnel=nothing", 404),
        ("GET", "/v1/routes?tunnels=ams-1", 400),
        ("GET", "/v1/routes/lookup?dst=nothing", 400),
        ("GET", "/v1/routes/lookup", 400),
        ("GET", "/v1/events?since=-1", 400),
        ("POST", "/v1/tunnels/ams-1/drain?up=true", 400),
        ("POST", "/v1/tunnels", 405),
        ("GET", "/v1/tunnels/ams-1/drain", 405),
    ];
    for (method, path, expected) in problems {
        let (status, head, body) = site.http(method, path);
        assert_eq!(status, expected, "{method} {path}: {body}");
        assert!(head.contains("content-type: application/problem+json"), "{method} {path}: {head}\n{body}");
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(problem["status"], expected, "{problem}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    }
    let (_, _, body) = site.http("GET", "/v1/tunnels/ams-2");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["nearest"], "ams-1");

    // One who says nothing, and one who asks nonsense, are no trouble.
    let _silent: Vec<_> = (0..70).map(|_| UnixStream::connect(site.path("adit.sock")).unwrap()).collect();
    let mut garbage = UnixStream::connect(site.path("adit.sock")).unwrap();
    let _ = garbage.write_all(&[0xFF; 4_096]);
    eventually("an answer behind seventy silent clients", || site.adit(&["status"]).status.success());
    assert_eq!(site.transitions().len(), 2);
}

fn status_has_every_field_of_the_interface() {
    let site = Site::new();
    let (_daemon, [ams, _fra]) = site.healthy();
    drop(ams);
    site.await_state("ams-1", "down");
    let view: Value = serde_json::from_slice(&site.adit(&["status", "ams-1", "--json"]).stdout).unwrap();
    let all = site.json(&["status", "--json"]);
    assert_eq!(all["tunnels"].as_array().unwrap().len(), 2);
    for view in [&view, &all["tunnels"][0]] {
        let is = |pointer: &str, good: fn(&Value) -> bool| {
            let value = view.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is missing: {view:#}"));
            assert!(good(value), "{pointer} is {value}");
        };
        let texts =
            ["/name", "/encapsulation", "/state", "/since", "/last_failure/at", "/last_failure/reason", "/reason"];
        texts.iter().for_each(|pointer| is(pointer, Value::is_string));
        ["/drained", "/checked"].iter().for_each(|pointer| is(pointer, Value::is_boolean));
        ["/health", "/window/loss_ratio", "/window/seconds"].iter().for_each(|pointer| is(pointer, Value::is_number));
        let counts = [
            "/penalty",
            "/window/samples",
            "/window/failures",
            "/last_30/samples",
            "/last_30/failures",
            "/rtt/last_us",
            "/rtt/min_us",
            "/rtt/mean_us",
            "/rtt/p99_us",
            "/rtt/jitter_us",
            "/counters/sent",
            "/counters/received",
            "/counters/lost",
            "/counters/late",
            "/counters/duplicate",
            "/counters/forged",
            "/counters/local_faults",
        ];
        counts.iter().for_each(|pointer| is(pointer, Value::is_u64));
    }
    assert_eq!(
        (&view["health"], &view["penalty"], &view["encapsulation"]),
        (&0.into(), &1_000_000.into(), &"gre".into())
    );
    let route = &site.json(&["routes", "--json"])["routes"][0];
    for field in ["prefix", "tunnel", "priority", "penalty", "effective_priority", "weight", "selected", "kernel"] {
        assert!(!route[field].is_null(), "{field}: {route}");
    }
    let event = &site.transitions()[0];
    for field in ["id", "at", "kind", "tunnel", "from", "to", "rule", "reason", "penalty"] {
        assert!(!event[field].is_null(), "{field}: {event}");
    }
}

fn five_hundred_tunnels_take_no_more_sockets() {
    let few = Site::new();
    let of_few = few.daemon();
    // Clients that have just gone may still be among them.
    let mut descriptors = of_few.descriptors();
    (0..20).for_each(|_| descriptors = descriptors.min(of_few.descriptors()));

    let site = Site::new();
    let both = |local: &str, remote: &str, inner: u32| -> String {
        let one = |at: u32| {
            format!(
                "[[tunnel]]\nname = \"t{at}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"{local}\"\n\
                 remote_endpoint = \"{remote}\"\ninterface_address = \"10.{}.{}.{inner}/31\"\n\
                 [tunnel.gre]\nkey = {at}\n",
                at / 256,
                at % 256
            )
        };
        (0..500).map(one).collect()
    };
    let head = "[daemon]\nsocket = \"adit.sock\"\nstate_dir = \"state\"\nrecord = \"record.jsonl\"\n\
                [defaults.health_check]\ninterval = \"1s\"\ntimeout = \"5s\"\ndown_window = \"12s\"\n";
    site.write("adit.conf", &format!("{head}{}", both("192.0.2.1", "192.0.2.11", 8)));
    site.write("ams-1.far", &both("192.0.2.11", "192.0.2.1", 9));
    let _far = site.far("ams-1");
    let daemon = site.daemon();
    let healthy =
        || serde_json::from_str::<Value>(&site.http("GET", "/v1/healthz").2).unwrap()["tunnels"]["healthy"].as_u64();
    eventually("500 healthy tunnels", || healthy() == Some(500));
    eventually("as many descriptors as for two", || daemon.descriptors() <= descriptors);

    // So many samples are recorded that the first events are no longer kept; that is said.
    let gap = || site.say(&["events", "--json"]).lines().next().unwrap_or("").to_owned();
    eventually("a gap in the events", || gap().contains("\"kind\":\"gap\""));
    assert!(site.say(&["events"]).lines().next().unwrap().ends_with("events are no longer there"));
    assert_eq!(healthy(), Some(500), "{}", site.read("adit.conf.log"));
}

fn another_user_may_look_but_not_touch() {
    let site = Site::new();
    site.set("socket_group = \"nogroup\"");
    let (_daemon, _far) = site.healthy();
    site.open_to_all();
    let as_nobody = |arguments: &[&str]| site.as_nobody(arguments).output().unwrap();
    assert_eq!(as_nobody(&["status", "ams-1"]).status.code(), Some(0));
    for arguments in [["drain", "ams-1"], ["undrain", "ams-1"], ["diagnose", "ams-1"]] {
        let refused = as_nobody(&arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(77), "{said}");
        assert!(said.contains("admin_group"), "{said}");
    }
    assert!(!site.say(&["events"]).contains("drained"));
    assert_eq!(site.http("POST", "/v1/tunnels/ams-1/drain").0, 200, "root may");
}

fn a_number_from_before_a_restart_is_a_gap() {
    let site = Site::new();
    site.make_patient();
    let (_daemon, _far) = site.healthy();
    let first = |path: &str| {
        let mut stream = UnixStream::connect(site.path("adit.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: adit\r\n\r\n").unwrap();
        let lines = BufReader::new(stream).lines().map(Result::unwrap);
        let mut objects = lines.filter(|line| line.starts_with('{'));
        [objects.next().unwrap(), objects.next().unwrap()].map(|line| serde_json::from_str::<Value>(&line).unwrap())
    };
    for since in [1_000_000, u64::MAX] {
        for follow in ["true", "false"] {
            // A follower would wait for ever, was it not told at once.
            let [gap, event] = first(&format!("/v1/events?since={since}&follow={follow}"));
            assert_eq!((&gap["kind"], &gap["since"]), (&"gap".into(), &since.into()), "{gap}");
            assert!(gap["missed"].is_null() && gap["last"].as_u64().unwrap() >= 3, "{gap}");
            assert_eq!((&event["id"], &event["kind"]), (&1.into(), &"start".into()), "all there is");
        }
    }
    let told = site.say(&["events", "--since", "1000000"]);
    assert!(told.lines().next().unwrap().contains("restarted") && told.contains("started with 2 tunnels"), "{told}");
    // The one that comes next is no gap.
    let last = serde_json::from_str::<Value>(&site.http("GET", "/v1/healthz").2).unwrap()["last_event"].clone();
    assert!(!site.http("GET", &format!("/v1/events?since={last}")).2.contains("gap"));
}

/// As in `adit run 2>&1 | head -1`.
fn a_log_that_nobody_reads_ends_nothing() {
    let site = Site::new();
    site.make_patient();
    let mut command = site.command("run", "adit.conf");
    let mut daemon = Running::start(&site.pair.near, command.stderr(Stdio::piped()));
    let mut log = BufReader::new(daemon.child.stderr.take().unwrap());
    log.read_line(&mut String::new()).unwrap();
    drop(log);
    eventually("an answer", || site.adit(&["status"]).status.success());
    for _ in 0..3 {
        site.say(&["drain", "ams-1"]);
        site.say(&["undrain", "ams-1"]);
    }
    daemon.send(Signal::SIGHUP);
    assert_eq!(site.say(&["events"]).matches("no longer drained").count(), 3);
    daemon.send(Signal::SIGTERM);
    assert_eq!(daemon.end().code(), Some(0));
}

fn nobody_may_use_the_socket_unless_a_group_is_there() {
    let site = Site::new();
    site.open_to_all();
    let _daemon = site.daemon();
    let default = nix::unistd::Group::from_name("adit").unwrap();
    assert_eq!(site.mode("adit.sock").0, if default.is_some() { 0o660 } else { 0o600 });
    let Output { status, stderr, .. } = site.as_nobody(&["status"]).output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(77), "{said}");
    assert!(said.contains("socket_group"), "{said}");
}

fn the_group_that_is_named_may_use_the_socket() {
    let site = Site::new();
    // The one group that is there even in a user namespace.
    for key in ["socket_group", "admin_group"] {
        site.set(&format!("{key} = \"root\""));
        let daemon = site.daemon();
        assert_eq!(site.mode("adit.sock"), (0o660, 0), "{key}");
        daemon.send(Signal::SIGTERM);
        assert!(daemon.end().success());
    }
}

fn an_unknown_group_starts_nothing() {
    let site = Site::new();
    for key in ["socket_group", "admin_group"] {
        site.set(&format!("{key} = \"no-such-group\""));
        let (code, said) = site.refused();
        assert_eq!(code, Some(78), "{said}");
        for word in [key, "no-such-group", "groupadd"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert!(!site.path("adit.sock").exists(), "nothing is left behind");
    }
}

fn nobody_else_can_hold_the_lock() {
    let site = Site::new();
    // As an earlier version left it.
    site.write("adit.lock", "");
    fs::set_permissions(site.path("adit.lock"), fs::Permissions::from_mode(0o644)).unwrap();
    for _ in 0..2 {
        let daemon = site.daemon();
        assert_eq!(site.mode("adit.lock").0, 0o600);
        daemon.send(Signal::SIGTERM);
        assert!(daemon.end().success());
        fs::remove_file(site.path("adit.lock")).unwrap();
    }
    // What is no lock of ours is neither followed nor changed.
    site.write("precious", "");
    fs::set_permissions(site.path("precious"), fs::Permissions::from_mode(0o640)).unwrap();
    for link in [symlink::<PathBuf, PathBuf>, fs::hard_link::<PathBuf, PathBuf>] {
        link(site.path("precious"), site.path("adit.lock")).unwrap();
        let (code, said) = site.refused();
        assert_eq!(code, Some(74), "{said}");
        assert!(said.contains("adit.lock") && !said.contains("another adit"), "{said}");
        assert_eq!(site.mode("precious").0, 0o640);
        assert!(!site.path("adit.sock").exists());
        fs::remove_file(site.path("adit.lock")).unwrap();
    }
}

fn followers_lock_nobody_out() {
    let site = Site::new();
    let daemon = site.daemon();
    let follow = || {
        let mut stream = UnixStream::connect(site.path("adit.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET /v1/events?follow=true HTTP/1.1\r\nhost: adit\r\n\r\n").unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        (line.split(' ').nth(1).unwrap().parse::<u16>().unwrap(), stream)
    };
    let all: Vec<_> = (0..70).map(|_| follow()).collect();
    let (following, refused): (Vec<_>, Vec<_>) = all.into_iter().partition(|(status, _)| *status == 200);
    assert_eq!((following.len(), refused.len()), (48, 22));
    for (status, mut stream) in refused {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(status == 503 && answer.contains("application/problem+json"), "{status}: {answer}");
    }
    assert!(site.say(&["events"]).contains("started with 2 tunnels"), "without following");
    let late = site.adit(&["events", "--follow"]);
    let said = String::from_utf8_lossy(&late.stderr);
    assert!(late.status.code() == Some(69) && said.contains("follow"), "{said}");

    daemon.send(Signal::SIGTERM);
    for (_, mut stream) in following {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("\"kind\":\"stop\""), "every follower hears of the end: {rest}");
    }
    assert!(daemon.end().success());
}

fn strangers_leave_places_to_root() {
    let site = Site::new();
    site.set("socket_group = \"nogroup\"");
    site.open_to_all();
    let _daemon = site.daemon();
    let follower = |mut command: Command| {
        let mut child = Running::start(&site.pair.near, command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let mut out = BufReader::new(child.child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        // It ends when nobody reads what it has to say.
        (!line.is_empty()).then_some((child, out))
    };
    let strangers: Vec<_> = (0..50).filter_map(|_| follower(site.as_nobody(&["events", "--follow"]))).collect();
    assert_eq!(strangers.len(), 44);
    let mut command = Command::new(adit());
    command.arg("--socket").arg(site.path("adit.sock")).args(["events", "--follow"]);
    assert!(follower(command).is_some(), "root may still follow");
}

fn members_of_the_admin_group_may_change() {
    // As Debian has them since ever: the group "daemon".
    const DAEMON: u32 = 1;
    let site = Site::new();
    site.set("socket_group = \"daemon\"\nadmin_group = \"nogroup\"");
    site.open_to_all();
    let _daemon = site.daemon();
    // Not by the group that is asked with, but by what the user database says of the user.
    let member = site.as_nobody(&["drain", "ams-1"]).gid(DAEMON).output().unwrap();
    assert!(member.status.success(), "{}", String::from_utf8_lossy(&member.stderr));
    let other = site.as_nobody(&["drain", "ams-1"]).uid(DAEMON).gid(DAEMON).output().unwrap();
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(other.status.code() == Some(77) && said.contains("admin_group"), "{said}");
}

fn the_socket_has_a_thread_of_its_own() {
    let site = Site::new();
    site.set("socket_group = \"root\"");
    let daemon = site.daemon();
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.prober())).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    assert!(names.into_iter().any(|name| name.trim() == "adit-socket"));
    let log = site.read("adit.conf.log");
    let line = log.lines().find(|line| line.contains("serving")).unwrap_or_else(|| panic!("{log}"));
    for word in ["adit.sock", "group=\"root\"", "tunnels=2", "namespaces=1"] {
        assert!(line.contains(word), "{word}: {line}");
    }
}
