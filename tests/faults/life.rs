//! Disks, starts, ends, reloads, and a loop that hangs: what happens to the program itself.

use std::fs;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::by_hand::{firewall, no_firewall};
use crate::crowd::health;
use crate::kit::{PATIENCE, eventually, holds_within, ms};
use crate::process::{Stopped, status, text_of};
use crate::site::{Site, TUNNELS};
use crate::steering::stage::Stage;
use crate::steering::witness::Witness;
use crate::table::{Row, elsewhere, lent, row};
use crate::world::Case;

pub(crate) fn rows(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    let mut rows = disks(netns);
    rows.extend(local_cause(netns));
    rows.extend(reloads(netns));
    rows
}

fn disks(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    vec![
        lent(
            "fault_14_a_state_file_that_is_damaged_is_set_aside_and_told",
            "a bit that has flipped is noticed, the file is kept for people, and the start goes on without it",
            netns("memory::a_broken_file_is_set_aside_and_told"),
        ),
        lent(
            "fault_14_a_state_folder_that_cannot_be_used_keeps_nobody_from_probing",
            "told as a local fault",
            netns("memory::a_folder_that_cannot_be_used_keeps_nobody_from_probing"),
        ),
        row(
            "fault_14_a_full_disk_moves_nothing",
            "no room for states: told as a local fault, zero transitions, and there again once there is room; \
             a recording ends, and the log says so",
            full_disk,
        )
        .needing(Case::with_two_users),
        lent(
            "fault_14_a_recording_that_nobody_takes_stops_nothing",
            "a disk that says nothing is waited for by a thread of its own; nothing is missing in the recording once it goes on",
            netns("recording::one_that_nobody_takes_stops_nothing"),
        ),
    ]
}

fn local_cause(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    vec![
        row(
            "fault_21_when_all_go_down_while_this_host_is_in_trouble_routes_are_held",
            "fail-static: states go on, the kernel's routes stay as they are, an alarm is raised",
            held,
        )
        .needing(Case::with_routers),
        lent(
            "fault_35_a_prober_that_does_not_go_on_is_replaced",
            "given up after 20 s, and its successor goes on where it was",
            netns("parts::a_prober_that_does_not_go_on_is_replaced"),
        ),
        lent(
            "fault_35_the_watchdog_is_fed_only_while_the_prober_goes_on",
            "the service manager hears that all goes on from a loop that has made a turn, and from nobody else",
            netns("manager::the_watchdog_is_fed_only_while_the_prober_goes_on"),
        ),
        row("fault_35_routes_stay_while_a_prober_hangs_and_is_replaced", "not one write to the kernel's routes", hung)
            .needing(Case::with_routers),
        row(
            "fault_40_the_part_that_strangers_reach_has_no_power",
            "no capability, a filter of system calls, no right to gain any, and no descriptor that leads to routes",
            walls,
        ),
        elsewhere(
            40,
            "who has taken the prober over can open no socket: whoever tries is ended",
            "sandbox",
            "ends_whoever_wants::a_raw_socket",
        ),
        elsewhere(40, "and read and write no file but its own", "sandbox", "refuses::a_file_of_the_system_to_be_read"),
        elsewhere(
            43,
            "there is no bus: who wants events follows the local socket (39), or is told by `[[notify]]`. A program that \
             hangs is killed with all that it began, and holds up neither probes nor whoever else is told",
            "netns",
            "notify::a_program_that_hangs_is_killed_with_all_that_it_began_and_holds_nobody_up",
        ),
        elsewhere(
            43,
            "a webhook that fails is tried again; no secret of it is logged",
            "netns",
            "notify::a_webhook_that_fails_is_tried_again_and_no_secret_is_logged",
        ),
        elsewhere(
            43,
            "what could not be told before a crash is told afterwards as what has come of it, and nothing twice",
            "netns",
            "notify::after_a_kill_of_everything_nothing_is_told_twice_and_what_has_come_of_it_is_told",
        ),
    ]
}

fn reloads(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    vec![
        row(
            "fault_36_a_reload_of_a_file_with_mistakes_changes_nothing_and_says_where",
            "refused with file, line and column, by signal and by request; what was there goes on",
            bad_reload,
        ),
        row(
            "fault_37_a_reload_disturbs_no_tunnel_that_is_as_it_was",
            "sockets, counters, windows and probes under way stay; no transition, and not one write to the kernel's routes",
            reload,
        )
        .needing(Case::with_routers),
        lent(
            "fault_38_over_restarts_no_packet_is_lost_and_nothing_changes",
            "forwarded traffic loses nothing",
            netns("steering::lives::over_restarts_no_packet_is_lost_and_nothing_changes, in_mode_metric"),
        ),
        lent(
            "fault_38_a_restart_forgets_nothing_and_tells_no_transition",
            "states, drains and samples go on where they were",
            netns("memory::a_restart_forgets_nothing_and_tells_no_transition"),
        ),
        lent(
            "fault_38_a_kill_forgets_nothing_and_tells_no_transition",
            "nor after a kill -9",
            netns("memory::a_kill_forgets_nothing_and_tells_no_transition"),
        ),
        lent(
            "fault_38_a_drain_that_was_answered_outlives_a_kill_a_moment_later",
            "what an operator was told holds: it is on the disk before the answer",
            netns("memory::a_drain_that_was_answered_outlives_a_kill_a_moment_later"),
        ),
        row(
            "fault_38_a_restart_writes_no_route",
            "not one write to the kernel's routes where nothing has changed, over a stop and over a kill -9",
            restarts,
        )
        .needing(Case::with_routers),
    ]
}

/// A file system of its own, until this is dropped.
struct Disk<'a>(&'a Site);

impl<'a> Disk<'a> {
    fn new(site: &'a Site) -> Self {
        fs::create_dir(site.path("state")).unwrap();
        let (tmpfs, size) = (Some("tmpfs"), Some("size=256k"));
        mount(tmpfs, &site.path("state"), tmpfs, MsFlags::empty(), size).unwrap();
        Self(site)
    }

    /// Leaves no byte.
    fn fill(&self) {
        let _ = fs::write(self.0.path("state/other"), vec![0; 1 << 20]);
    }

    fn make_room(&self) {
        fs::remove_file(self.0.path("state/other")).unwrap();
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = umount2(&self.0.path("state"), MntFlags::MNT_DETACH);
    }
}

fn full_disk() {
    let site = Site::new();
    site.make_patient();
    site.write("adit.conf", &site.read("adit.conf").replace("record.jsonl", "/dev/full"));
    let disk = Disk::new(&site);
    let (daemon, _far) = site.healthy();
    eventually("states on the disk", || site.path("state/states").exists());
    disk.fill();
    site.say(&["drain", "ams-1"]);
    eventually("a word about it", || health(&site)["local_faults"]["memory"].as_u64() > Some(0));
    assert!(site.read("adit.conf.log").contains("the recording has failed"), "{}", site.read("adit.conf.log"));
    let received = |site: &Site| -> u64 {
        let view: Value = serde_json::from_str(&site.http("GET", "/v1/tunnels/ams-1").2).unwrap();
        view["counters"]["received"].as_u64().unwrap()
    };
    let so_far = received(&site);
    eventually("more answers", || received(&site) > so_far + 20);
    assert_eq!(site.transitions().len(), 2, "{:#?}", site.transitions());
    disk.make_room();
    // It tries again after a while; a kill then shows what there is.
    let written = || fs::metadata(site.path("state/states")).and_then(|file| file.modified()).ok();
    let before = written();
    assert!(holds_within(PATIENCE, &mut || written() != before), "not written once there is room");
    daemon.send(Signal::SIGKILL);
    daemon.end();
    let daemon = site.daemon();
    let view: Value = serde_json::from_str(&site.http("GET", "/v1/tunnels/ams-1").2).unwrap();
    assert_eq!((&view["drained"], &view["state"]), (&true.into(), &"healthy".into()));
    drop(daemon);
}

fn held() {
    let stage = Stage::new("mode = \"metric\"\n");
    let daemon = stage.healthy();
    let (before, witness) = (stage.ours(), Witness::watch(&stage));
    // Nothing leaves this host any more, which a busy one finds out late.
    let stopped = Stopped::new(&[daemon.prober()]);
    firewall(stage.near(), "output", "meta l4proto gre drop");
    std::thread::sleep(ms(500));
    drop(stopped);
    ["one", "two"].iter().for_each(|name| stage.site.await_state(name, "down"));
    stage.await_event("local_fault", &["fail-static", "the kernel's routes stay as they are"]);
    std::thread::sleep(ms(1_500));
    assert_eq!(stage.ours(), before);
    assert!(!health(&stage.site)["fail_static"].is_null());
    no_firewall(stage.near());
    stage.await_health();
    stage.await_event("local_fault", &["fail-static", "follow the verdicts again"]);
    assert!(health(&stage.site)["fail_static"].is_null());
    stage.await_ours(&before, "the end of it");
    let writes = witness.assert_never_without_a_route();
    // On the way back they were degraded, which is no fall.
    println!("{writes:?} writes in all");
}

fn hung() {
    let stage = Stage::new("mode = \"metric\"\n");
    stage.make_patient();
    let daemon = stage.healthy();
    let (before, witness, prober) = (stage.ours(), Witness::watch(&stage), daemon.prober());
    let stopped = Stopped::new(&[prober]);
    assert!(holds_within(PATIENCE, &mut || daemon.prober() != prober), "it is not replaced");
    drop(stopped);
    stage.await_health();
    assert_eq!(stage.ours(), before);
    assert_eq!(witness.assert_never_without_a_route().unwrap_or(0), 0, "writes");
    let moves = stage.site.transitions();
    assert!(!moves.iter().any(|event| event["from"] != "unknown"), "{moves:#?}");
}

fn walls() {
    let site = Site::new();
    let (daemon, _far) = site.healthy();
    let prober = daemon.prober();
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(text_of(prober, set), "0000000000000000", "{set}");
    }
    // 2: a filter.
    assert_eq!((status(prober, "Seccomp:"), status(prober, "NoNewPrivs:")), (2, 1));
    let netlink = fs::read_to_string(format!("/proc/{prober}/net/netlink")).unwrap();
    let inodes: Vec<&str> = netlink.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let open = fs::read_dir(format!("/proc/{prober}/fd")).unwrap().flatten();
    let targets: Vec<_> = open.filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
    assert!(targets.len() > 5, "{targets:?}");
    for target in targets {
        let target = target.display().to_string();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        assert!(inode.is_none_or(|inode| !inodes.contains(&inode)), "{target} is a netlink socket");
        assert!(!target.contains("net:["), "{target} is a namespace");
    }
    // And it goes on all the same.
    TUNNELS.iter().for_each(|name| site.await_state(name, "healthy"));
}

fn bad_reload() {
    let site = Site::new();
    site.make_patient();
    let (daemon, _far) = site.healthy();
    let good = site.read("adit.conf");
    let line = good.lines().position(|line| line.starts_with("remote_endpoint")).unwrap() + 1;
    for (mistake, words) in [
        (good.replacen("remote_endpoint = \"", "remote_endpoint = \"x", 1), format!("adit.conf:{line}:")),
        (good.replacen("[[tunnel]]", "[[tunnel]", 1), "adit.conf:".to_owned()),
        (good.replacen("interval", "intervall", 1), "intervall".to_owned()),
    ] {
        site.write("adit.conf", &mistake);
        let (code, _, body) = site.http("POST", "/v1/reload");
        assert_eq!(code, 422, "{body}");
        assert!(body.contains(&words), "{words}: {body}");
        let said = || site.read("adit.conf.log").matches("adit.conf:").count();
        let before = said();
        daemon.send(Signal::SIGHUP);
        eventually("a word in the log", || said() > before);
        TUNNELS.iter().for_each(|name| assert_eq!(site.state(name), "healthy"));
    }
    assert!(!site.transitions().iter().any(|event| event["from"] != "unknown"), "{:#?}", site.transitions());
}

fn counters(stage: &Stage, name: &str) -> [u64; 2] {
    let view: Value = serde_json::from_str(&stage.site.http("GET", &format!("/v1/tunnels/{name}")).2).unwrap();
    ["sent", "lost"].map(|counter| view["counters"][counter].as_u64().unwrap())
}

fn reload() {
    const TIMES: usize = 10;
    let stage = Stage::new("mode = \"metric\"\n");
    stage.make_patient();
    let daemon = stage.healthy();
    let (before, witness) = (stage.ours(), Witness::watch(&stage));
    let (prober, good) = (daemon.prober(), stage.site.read("adit.conf"));
    // Answers take a moment, so that probes are under way.
    [0, 1].iter().for_each(|path| stage.delay(*path, ms(50)));
    let mut last = counters(&stage, "one");
    for turn in 0..TIMES {
        // The other tunnel has another number now and then, and is probed on as well.
        let text = if turn % 2 == 0 { good.clone() } else { good.replacen("\"5s\"", "\"6s\"", 1) };
        stage.site.write("adit.conf", &text);
        let (code, _, body) = stage.site.http("POST", "/v1/reload");
        assert_eq!(code, 200, "{body}");
        std::thread::sleep(ms(150));
        let now = counters(&stage, "one");
        assert!(now[0] > last[0] && now[1] == 0, "{last:?}, then {now:?}: it has begun anew");
        last = now;
    }
    assert_eq!(daemon.prober(), prober, "the same process");
    assert_eq!(stage.ours(), before);
    let moves = stage.site.transitions();
    assert!(moves.len() == 2 && counters(&stage, "two")[1] == 0, "{moves:#?}");
    assert_eq!(witness.assert_never_without_a_route().unwrap_or(0), 0, "writes");
}

fn restarts() {
    let stage = Stage::new("mode = \"metric\"\n");
    stage.make_patient();
    let mut daemon = stage.healthy();
    // One that is down, so that its routes cost something.
    stage.site.say(&["drain", "two"]);
    eventually("its routes", || stage.ours().iter().filter(|line| line.contains("metric 500200")).count() == 2);
    eventually("states on the disk", || stage.site.path("state/states").exists());
    std::thread::sleep(Duration::from_secs(2));
    let (before, witness) = (stage.ours(), Witness::watch(&stage));
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        daemon.send(signal);
        daemon.end();
        daemon = stage.site.daemon();
        ["one", "two"].iter().for_each(|name| stage.site.await_state(name, "healthy"));
        stage.await_all_installed();
        assert_eq!(stage.ours(), before, "{signal}");
        assert!(stage.site.transitions().is_empty(), "{:#?}", stage.site.transitions());
    }
    assert_eq!(witness.assert_never_without_a_route().unwrap_or(0), 0, "writes");
}
