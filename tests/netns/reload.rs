//! The built program takes another configuration while it runs: what has not changed does not notice.

use std::collections::BTreeSet;
use std::fs;
use std::process::Output;

use adit::io::netns;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{eventually, holds_within, ms};
use crate::site::{Running, Site, TUNNELS};
use crate::spaces::{Blue, Name};
use crate::steering::stage::{MODES, PREFIXES, SOON, Stage, route, tunnel};
use crate::steering::stream::Stream;
use crate::steering::witness::Witness;
use crate::{Case, case, sealed};

pub(crate) fn cases() -> Vec<Case> {
    let routers = MODES.map(|mode| {
        [
            case(format!("reload::untouched_tunnels_do_not_notice, in_mode_{mode}"), move || untouched(mode)),
            case(format!("reload::routes_come_and_go_new_before_old, in_mode_{mode}"), move || routes(mode)),
            case(format!("reload::the_kernel_is_let_be_and_taken_again, in_mode_{mode}"), move || apply(mode)),
        ]
    });
    let mut cases: Vec<Case> = routers.into_iter().flatten().map(Case::with_routers).collect();
    cases.extend([
        case("reload::tunnels_come_change_and_go", come_and_go),
        case("reload::a_bad_file_changes_nothing_and_says_where_it_is_wrong", bad_file),
        case("reload::a_namespace_that_is_not_wanted_any_more_is_freed", namespaces),
        case("reload::a_device_that_is_wanted_later_is_waited_for", devices),
        case("reload::static_keys_may_come_later_and_go_on", static_keys),
        case("reload::what_holds_only_from_the_next_start_is_named", later),
        case("reload::a_prober_that_is_killed_has_a_successor_with_the_last_configuration", successor),
        case("reload::nobody_without_the_right_may_reload", no_right).with_two_users(),
        case("reload::many_at_once_are_all_answered", many),
    ]);
    cases
}

/// The sockets by which probes leave and answers come.
fn raw_sockets(daemon: &Running) -> BTreeSet<String> {
    let prober = daemon.prober();
    let mut raw = BTreeSet::new();
    for table in ["raw", "raw6"] {
        let listed = fs::read_to_string(format!("/proc/{prober}/net/{table}")).unwrap();
        raw.extend(listed.lines().skip(1).map(|line| line.split_whitespace().nth(9).unwrap().to_owned()));
    }
    let descriptors = fs::read_dir(format!("/proc/{prober}/fd")).unwrap();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let inode = |link: &str| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    links.filter_map(|link| inode(link.to_str()?)).filter(|inode| raw.contains(inode)).collect()
}

fn view(site: &Site, name: &str) -> Value {
    serde_json::from_slice(&site.adit(&["status", name, "--json"]).stdout).unwrap_or_default()
}

fn events(site: &Site, kind: &str) -> Vec<Value> {
    let lines = site.say(&["events", "--json"]);
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["kind"] == kind).collect()
}

/// Kept, changed, added, removed, as the last reload told.
fn told(site: &Site) -> [u64; 4] {
    let last = events(site, "reload").pop().unwrap();
    assert!(last["reason"].is_null(), "{last}");
    ["kept", "changed", "added", "removed"].map(|name| last[name].as_u64().unwrap())
}

fn reload(site: &Site, counts: [u64; 4]) {
    let [kept, changed, added, removed] = counts;
    let said = site.say(&["reload"]);
    assert_eq!(said, format!("reloaded: {kept} kept, {changed} changed, {added} added, {removed} removed\n"));
    assert_eq!(told(site), counts);
}

/// A tunnel that nobody answers.
fn third() -> String {
    let of_path = tunnel(1, "");
    of_path.replace("\"two\"", "\"three\"").replace("10.100.1.1", "10.100.1.9").replace("10.200.1", "10.200.9")
}

fn untouched(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\n"));
    stage.make_patient();
    let (site, daemon) = (&stage.site, stage.healthy());
    let text = site.read("adit.conf");
    let (head, rest) = text.split_at(text.find("[[tunnel]]").unwrap());
    let (first, others) = rest.split_at(rest[1..].find("[[tunnel]]").unwrap() + 1);
    let (second, routes) = others.split_at(others.find("[[route]]").unwrap());
    let (sockets, wanted) = (raw_sockets(&daemon), stage.ours());
    assert!(sockets.len() >= 3, "{sockets:?}");
    let before = ["one", "two"].map(|name| view(site, name));
    let (stream, witness) = (Stream::start(&stage), Witness::watch(&stage));
    let other = third();
    let texts = [
        (text.clone(), [2, 0, 0, 0]),
        (format!("{text}{other}"), [2, 0, 1, 0]),
        (format!("{head}{other}{second}{first}{routes}"), [3, 0, 0, 0]),
        (format!("{head}{second}{}{first}{routes}", other.replace("10.100.1.9", "10.100.1.8")), [2, 1, 0, 0]),
        (format!("{head}{second}{first}{routes}"), [2, 0, 0, 1]),
    ];
    for (text, counts) in texts {
        site.write("adit.conf", &text);
        reload(site, counts);
        assert!(sockets.is_subset(&raw_sockets(&daemon)), "{counts:?}");
        // Probes of ten a second, so that each reload meets some under way.
        std::thread::sleep(ms(300));
    }
    let report = stream.end();
    println!("{mode}, five reloads: {report}");
    report.assert_whole(None, None);
    assert_eq!(witness.assert_never_without_a_route().unwrap_or(0), 0, "changes of routes");
    assert_eq!((stage.ours(), raw_sockets(&daemon)), (wanted, sockets));
    for (name, before) in ["one", "two"].into_iter().zip(before) {
        let after = view(site, name);
        assert_eq!([&after["state"], &after["since"]], [&before["state"], &before["since"]], "{name}");
        let number = |view: &Value, path: [&str; 2]| view[path[0]][path[1]].as_u64().unwrap();
        for path in [["window", "samples"], ["counters", "received"], ["counters", "sent"]] {
            assert!(number(&after, path) >= number(&before, path) + 10, "{name}: {path:?} of {after}, {before}");
        }
        for path in [["counters", "lost"], ["counters", "duplicate"], ["counters", "forged"]] {
            assert_eq!(number(&after, path), number(&before, path), "{name}: {path:?}");
        }
    }
    let entered: Vec<_> = site.transitions().into_iter().filter(|event| event["tunnel"] != "three").collect();
    assert_eq!(entered.len(), 2, "{entered:?}");
    assert_eq!(events(site, "kernel_drift"), Vec::<Value>::new());
    let installed = stage.routes().iter().filter(|route| route["kernel"] == "installed").count();
    assert_eq!(installed, 4);
}

/// Routes of both families over one path.
fn over(path: usize, priority: u32) -> String {
    PREFIXES.map(|prefix| route(prefix, path, priority, "")).concat()
}

fn routes(mode: &str) {
    let kernel = format!("mode = \"{mode}\"\n");
    let stage = Stage::new(&kernel);
    stage.configure(&kernel, &over(0, 100));
    stage.make_patient();
    let (site, _daemon) = (&stage.site, stage.healthy());
    let (stream, witness) = (Stream::start(&stage), Witness::watch(&stage));
    let by = |path: usize| stage.ours().iter().filter(|line| line.contains(&format!("dev t{path}"))).count();
    let turns =
        [(over(1, 150), 1), (over(0, 300), 0), (format!("{}{}", over(0, 250), over(1, 200)), 1), (over(0, 100), 0)];
    for (routes, path) in turns {
        stage.configure(&kernel, &routes);
        stage.make_patient();
        reload(site, [2, 0, 0, 0]);
        stream.await_path(path);
        stage.await_all_installed();
        let left = routes.contains(&format!("device = \"t{}\"", 1 - path));
        assert!(holds_within(SOON, &mut || (by(1 - path) > 0) == left), "{:#?}", stage.ours());
    }
    let report = stream.end();
    println!("{mode}, routes: {report}");
    report.assert_whole(None, None);
    assert!(witness.assert_never_without_a_route().is_none_or(|changes| changes > 0));
    // Nobody is told that what was asked for until now is gone.
    assert_eq!((events(site, "kernel_drift"), events(site, "warning")), (Vec::new(), Vec::new()));
}

fn apply(mode: &str) {
    let kernel = format!("mode = \"{mode}\"\n");
    let stage = Stage::new(&kernel);
    stage.make_patient();
    let (site, _daemon) = (&stage.site, stage.healthy());
    let (text, wanted) = (site.read("adit.conf"), stage.ours());
    assert!(!wanted.is_empty());
    for _ in 0..2 {
        site.write("adit.conf", &text.replace("apply = true", "apply = false"));
        reload(site, [2, 0, 0, 0]);
        stage.await_ours(&[], "apply = false");
        assert!(stage.routes().iter().all(|route| route["kernel"] == "not managed"));
        site.write("adit.conf", &text);
        reload(site, [2, 0, 0, 0]);
        stage.await_all_installed();
        stage.await_ours(&wanted, "apply = true");
    }
    assert_eq!(site.transitions().len(), 2);
}

fn come_and_go() {
    let site = Site::new();
    site.make_patient();
    let text = site.read("adit.conf");
    let (before, rest) = text.split_at(text.find("[[tunnel]]\nname = \"fra-1\"").unwrap());
    site.write("adit.conf", before);
    let (_ams, _fra) = (site.far("ams-1"), site.far("fra-1"));
    let _daemon = site.daemon();
    site.await_state("ams-1", "healthy");
    let since = view(&site, "ams-1")["since"].clone();
    site.write("adit.conf", &text);
    reload(&site, [1, 0, 1, 0]);
    site.await_state("fra-1", "healthy");
    assert_eq!(site.json(&["routes", "--json"])["routes"].as_array().unwrap().len(), 2);

    // One whose probes are other ones begins anew; its drain is of its name.
    site.say(&["drain", "fra-1"]);
    let other = rest.replace("encapsulation", "ttl = 9\nencapsulation");
    site.write("adit.conf", &format!("{before}{other}"));
    reload(&site, [1, 1, 0, 0]);
    site.await_state("fra-1", "healthy");
    assert_eq!(view(&site, "fra-1")["drained"], true);
    let of_fra: Vec<_> = site.transitions().into_iter().filter(|event| event["tunnel"] == "fra-1").collect();
    assert_eq!(of_fra.iter().map(|event| event["to"].clone()).collect::<Vec<_>>(), ["healthy", "unknown", "healthy"]);

    site.write("adit.conf", &text.replace("\"100ms\"", "\"50ms\""));
    reload(&site, [0, 2, 0, 0]);
    site.write("adit.conf", before);
    reload(&site, [0, 1, 0, 1]);
    assert_eq!(site.adit(&["status", "fra-1"]).status.code(), Some(2), "there is none");
    assert_eq!(view(&site, "ams-1")["since"], since);
    assert_eq!(view(&site, "ams-1")["counters"]["lost"], 0);
    let log = site.read("adit.conf.log");
    assert!(log.contains("reloaded"), "{log}");
    assert!(
        site.say(&["events"])
            .contains("the configuration was read again: 0 tunnels kept, 1 changed, 0 added, 1 removed")
    );
}

fn bad_file() {
    let site = Site::new();
    site.make_patient();
    let (daemon, _far) = site.healthy();
    let (text, sockets) = (site.read("adit.conf"), raw_sockets(&daemon));
    let before = TUNNELS.map(|name| view(&site, name)["since"].clone());
    let line = 1 + text.lines().position(|line| line.starts_with("remote_endpoint")).unwrap();
    site.write(
        "adit.conf",
        &text.replacen("remote_endpoint = \"", "remote_endpoint = \"x", 1).replace("priority = 200", "priority = 0"),
    );
    let Output { status, stdout, stderr } = site.adit(&["reload"]);
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout), (Some(78), Vec::new()), "{said}");
    let place = format!("{}:{line}:19: `remote_endpoint` must be", site.path("adit.conf").display());
    assert!(said.starts_with(&place) && said.lines().count() == 2, "{said:?}, not {place:?}");
    let (status, head, body) = site.http("POST", "/v1/reload");
    assert_eq!(status, 422, "{body}");
    assert!(head.contains("application/problem+json") && body.contains(&format!("adit.conf:{line}:19")), "{body}");

    // A signal cannot be answered; it is told.
    daemon.send(Signal::SIGHUP);
    eventually("a third refusal", || events(&site, "reload").len() == 3);
    for event in events(&site, "reload") {
        assert_eq!((&event["kept"], &event["added"]), (&2.into(), &0.into()), "{event}");
        assert!(event["reason"].as_str().unwrap().contains(&format!("adit.conf:{line}:19: ")), "{event}");
        assert!(event["reason"].as_str().unwrap().ends_with("(and 1 more)"), "{event}");
    }
    let log = site.read("adit.conf.log");
    assert_eq!(log.matches("not reloaded, nothing has changed: ").count(), 3, "{log}");
    fs::remove_file(site.path("adit.conf")).unwrap();
    let refused = site.adit(&["reload"]);
    assert_eq!(refused.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot be read: No such file"), "{refused:?}");

    assert_eq!((TUNNELS.map(|name| view(&site, name)["since"].clone()), raw_sockets(&daemon)), (before, sockets));
    site.write("adit.conf", &text);
    daemon.send(Signal::SIGHUP);
    eventually("a reload by signal", || events(&site, "reload").pop().unwrap()["reason"].is_null());
    assert_eq!(told(&site), [2, 0, 0, 0]);
    assert_eq!(site.transitions().len(), 2);
}

fn namespaces() {
    let site = Site::new();
    site.make_patient();
    let text = site.read("adit.conf");
    let name = Name::new(&site);
    let inside = text.replace("name = \"ams-1\"", &format!("name = \"ams-1\"\nnetns = \"{}\"", name.path.display()));
    let _far = (site.far("ams-1"), site.far("fra-1"));
    let daemon = site.daemon();
    TUNNELS.iter().for_each(|name| site.await_state(name, "healthy"));
    let least = |daemon: &Running| (0..20).map(|_| daemon.descriptors()).min().unwrap();
    let mut descriptors = None;
    for _ in 0..3 {
        let blue = Blue::under(&name, &site);
        site.write("adit.conf", &inside);
        reload(&site, [1, 1, 0, 0]);
        site.await_state("ams-1", "healthy");
        // Its answers come in the other namespace, whose far end is this one.
        assert!(blue.reflector.is_some());
        site.write("adit.conf", &text);
        reload(&site, [1, 1, 0, 0]);
        site.await_state("ams-1", "healthy");
        // The name goes, and nobody holds what it stood for.
        name.delete();
        blue.await_end_of_near();
        let open = least(&daemon);
        let before = *descriptors.get_or_insert(open);
        eventually("as few descriptors as before", || least(&daemon) <= before);
    }
    let entered: Vec<_> = site.transitions().into_iter().filter(|event| event["tunnel"] == "fra-1").collect();
    assert_eq!(entered.len(), 1, "{entered:?}");
    // One that is missing is waited for, as at a start.
    site.write("adit.conf", &inside);
    reload(&site, [1, 1, 0, 0]);
    site.await_state("ams-1", "down");
    let _blue = Blue::under(&name, &site);
    site.await_state("ams-1", "degraded");
}

fn devices() {
    let site = Site::new();
    site.make_patient();
    let text = site.read("adit.conf");
    let (daemon, _far) = site.healthy();
    let sockets = raw_sockets(&daemon);
    let bound = text.replacen("[[route]]", "underlay_device = \"up0\"\n[[route]]", 1);
    site.write("adit.conf", &bound);
    reload(&site, [1, 1, 0, 0]);
    site.await_state("ams-1", "down");
    let reason = view(&site, "ams-1")["last_failure"]["reason"].clone();
    assert_eq!(reason, "not sent: underlay_device up0 is missing");
    let far = netns::make().unwrap();
    netns::within(Some(&site.pair.near), || adit::io::links::connect("up0", "dn0", &far)).unwrap();
    eventually("a device", || events(&site, "need").iter().any(|event| event["reason"].is_null()));
    site.write("adit.conf", &text);
    reload(&site, [1, 1, 0, 0]);
    site.await_state("ams-1", "healthy");
    eventually("the sockets of before", || raw_sockets(&daemon) == sockets);
    assert_eq!(view(&site, "fra-1")["counters"]["lost"], 0);
}

fn static_keys() {
    let site = sealed::site("static");
    let (esp, gre) = (site.read("adit.conf"), site.configuration());
    let alone = gre.split_at(gre.find("[[tunnel]]\nname = \"fra-1\"").unwrap());
    // Only the one without keys: nobody keeps a record so far.
    let defaults = alone.0.split_at(alone.0.find("[[tunnel]]").unwrap()).0;
    site.write("adit.conf", &format!("{defaults}{}", alone.1));
    let _far = (sealed::reflector(&site, true), site.far("fra-1"));
    let daemon = site.daemon();
    site.await_state("fra-1", "healthy");
    site.write("adit.conf", &esp);
    reload(&site, [1, 0, 1, 0]);
    assert_eq!(view(&site, "ams-1")["obstacle"], "sequence-state-lost");
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "healthy");
    let next = || site.json(&["sa", "show", "ams-1", "--json"])["pair"]["next_sequence"].as_u64().unwrap();
    let mut last = next();
    reload(&site, [2, 0, 0, 0]);
    assert_eq!(site.entered(), ["healthy"]);
    // Gone and back, and another one of the same keys: no number is used twice, or the far end would drop it.
    for text in [
        format!("{defaults}{}", alone.1),
        esp.clone(),
        esp.replace("name = \"ams-1\"\n", "name = \"ams-1\"\nttl = 9\n"),
    ] {
        site.write("adit.conf", &text);
        site.say(&["reload"]);
        if text.contains("ams-1\"\n") && text.contains("[tunnel.esp]") {
            site.await_state("ams-1", "healthy");
            site.await_answers();
            assert!(next() > last, "{} after {last}", next());
            last = next();
        }
    }
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    let log = site.read("adit.conf.log");
    assert!(!log.contains("not reserved yet"), "{log}");
}

fn later() {
    let site = Site::new();
    site.make_patient();
    let (_daemon, _far) = site.healthy();
    let text = site.read("adit.conf").replace("\"state\"", "\"elsewhere\"");
    site.write("adit.conf", &text.replace("record = \"record.jsonl\"\n", "socket_group = \"nogroup\"\n"));
    let Output { status, stdout, stderr } = site.adit(&["reload"]);
    assert_eq!(status.code(), Some(0));
    assert_eq!(String::from_utf8(stdout).unwrap(), "reloaded: 2 kept, 0 changed, 0 added, 0 removed\n");
    let said = String::from_utf8(stderr).unwrap();
    for key in ["socket_group", "state_dir", "record"] {
        assert!(said.contains(&format!("[daemon] {key} takes effect at the next start\n")), "{said}");
    }
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(!site.path("elsewhere").exists());
    let (status, _, body) = site.http("POST", "/v1/reload");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer["kept"], answer["notes"].as_array().unwrap().len()), (200, &2.into(), 3), "{body}");
}

fn successor() {
    let stage = Stage::new("mode = \"metric\"\n");
    stage.make_patient();
    let (site, daemon) = (&stage.site, stage.healthy());
    // Numbers that another life would not give: a namespace before the others that is gone again.
    let text = site.read("adit.conf");
    let name = Name::new(site);
    let there = netns::make().unwrap();
    name.set(&there);
    let extra = third().replacen("name", &format!("netns = \"{}\"\nname", name.path.display()), 1);
    for text in [format!("{text}{extra}"), text.clone()] {
        site.write("adit.conf", &text);
        site.say(&["reload"]);
    }
    stage.configure("mode = \"metric\"\n", &over(1, 100));
    stage.make_patient();
    reload(site, [2, 0, 0, 0]);
    stage.await_all_installed();
    let wanted = stage.ours();
    assert!(wanted.iter().all(|line| !line.contains("dev t0")), "{wanted:#?}");
    let before = daemon.prober();
    daemon.send_prober(Signal::SIGKILL);
    assert!(site.adit(&["status"]).status.code() != Some(69), "nobody listens any more");
    assert_ne!(daemon.prober(), before);
    stage.await_all_installed();
    assert_eq!((stage.ours(), stage.routes().len()), (wanted, 2));
    site.write("adit.conf", &text);
    reload(site, [2, 0, 0, 0]);
    stage.await_health();
}

fn no_right() {
    let site = Site::new();
    site.write("adit.conf", &site.configuration().replace("[daemon]\n", "[daemon]\nsocket_group = \"nogroup\"\n"));
    let (_daemon, _far) = site.healthy();
    site.open_to_all();
    let refused = site.as_nobody(&["reload"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(77), "{said}");
    assert!(said.contains("admin_group"), "{said}");
    assert_eq!(events(&site, "reload"), Vec::<Value>::new());
    assert_eq!(site.http("POST", "/v1/reload").0, 200, "root may");
    assert_eq!(site.http("GET", "/v1/reload").0, 405);
    let socket = site.path("none.sock");
    let nobody = std::process::Command::new(crate::site::adit()).arg("--socket").arg(socket).arg("reload").output();
    assert_eq!(nobody.unwrap().status.code(), Some(69));
}

fn many() {
    let site = Site::new();
    site.make_patient();
    let (daemon, _far) = site.healthy();
    let text = site.read("adit.conf");
    std::thread::scope(|scope| {
        for at in 0..8 {
            let site = &site;
            scope.spawn(move || {
                for _ in 0..4 {
                    if at % 4 == 0 {
                        site.say(&["status"]);
                    }
                    assert!(site.say(&["reload"]).starts_with("reloaded: "));
                }
            });
        }
        for turn in 0..20 {
            let interval = ["\"100ms\"", "\"110ms\""][turn % 2];
            // As an editor saves: what is read is one file or the other.
            site.write("adit.new", &text.replace("\"100ms\"", interval));
            fs::rename(site.path("adit.new"), site.path("adit.conf")).unwrap();
            daemon.send(Signal::SIGHUP);
            std::thread::sleep(ms(20));
        }
    });
    site.write("adit.conf", &text);
    site.say(&["reload"]);
    assert!(events(&site, "reload").iter().all(|event| event["reason"].is_null()));
    for name in TUNNELS {
        let view = view(&site, name);
        assert_eq!((&view["state"], &view["counters"]["lost"]), (&"healthy".into(), &0.into()), "{view}");
    }
}
