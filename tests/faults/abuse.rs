//! The local socket under abuse, while very many tunnels are probed.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde_json::Value;

use crate::attacker::{Attack, Attacker};
use crate::crowd::{Crowd, MANY};
use crate::kit::holds_within;
use crate::process::{Canary, most_memory};
use crate::site::Site;
use crate::table::{Row, elsewhere, lent, row};
use crate::world::Case;

pub(crate) fn rows(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    let attack =
        |name, promise, attack| row(name, promise, move || endures(attack)).needing(Case::with_two_users).alone();
    vec![
        lent(
            "fault_39_another_user_may_look_but_not_touch",
            "changes are for root, the daemon's user and `admin_group`, known by the kernel's word for who is at the other end",
            netns("commands::another_user_may_look_but_not_touch"),
        ),
        row(
            "fault_39_a_follower_that_takes_nothing_loses_its_place",
            "who follows the events and takes none for 15 s is hung up on; the others follow on",
            dead_follower,
        ),
        attack(
            "fault_39_ten_thousand_connections",
            "10 000 connections at once, again and again: root is answered, memory is bounded, probing does not notice",
            Attack::Crowd,
        ),
        attack(
            "fault_39_half_requests",
            "clients that say nothing, or half of what they want byte by byte: hung up on after 5 s; likewise",
            Attack::Half,
        ),
        attack(
            "fault_39_readers_that_never_read",
            "of what they asked for at most a piece is kept for them, and nothing for long; likewise",
            Attack::Deaf,
        ),
        attack(
            "fault_39_huge_requests",
            "headers, paths and bodies without end, pipelines, nonsense: 64 KiB of them are read; likewise",
            Attack::Huge,
        ),
        attack(
            "fault_39_a_client_that_never_rests",
            "the longest answers, wrong names and refused changes, without a pause on 32 threads; likewise",
            Attack::Busy,
        ),
        elsewhere(
            39,
            "over TCP, where what is measured and the page are served, nothing can be changed",
            "netns",
            "web::nothing_can_be_changed",
        ),
        elsewhere(
            39,
            "and whoever fills all of its places takes none of the local socket's",
            "netns",
            "web::whoever_fills_it_locks_nobody_out_of_the_socket",
        ),
    ]
}

/// Events are told all the time, and one follower takes none.
fn dead_follower() {
    let site = Site::new();
    let _daemon = site.daemon();
    let follower = || {
        let mut stream = UnixStream::connect(site.path("adit.sock")).unwrap();
        write!(stream, "GET /v1/events?follow=true HTTP/1.1\r\nhost: adit\r\n\r\n").unwrap();
        stream
    };
    let (dead, live) = (follower(), follower());
    let mut live = BufReader::new(live).lines();
    let is_gone = |stream: &UnixStream| {
        let mut poll = [PollFd::new(stream.as_fd(), PollFlags::empty())];
        nix::poll::poll(&mut poll, PollTimeout::ZERO).unwrap();
        poll[0].revents().unwrap().contains(PollFlags::POLLHUP)
    };
    let begin = crate::kills::now();
    let mut drained = false;
    // Some 200 bytes each; the kernel keeps some hundred thousand for whoever does not read.
    let mut some = || {
        for _ in 0..50 {
            drained = !drained;
            let path = if drained { "/v1/tunnels/ams-1/drain" } else { "/v1/tunnels/ams-1/undrain" };
            assert_eq!(site.http("POST", path).0, 200);
        }
        let mut told = 0;
        while told < 50 {
            told += usize::from(live.next().expect("the other one follows on").unwrap().contains("\"drain\""));
        }
    };
    while !is_gone(&dead) {
        assert!(begin.elapsed() < crate::kit::PATIENCE, "it is still there");
        some();
    }
    assert!(begin.elapsed() > Duration::from_secs(15), "patience");
    // Longer than anybody may take who does not follow.
    std::thread::sleep(Duration::from_secs(2));
    some();
}

const LASTS: Duration = Duration::from_secs(5);
/// What all clients together may cost.
const MEMORY: u64 = 16 << 20;

/// So many stalls may come of one delay of the machine's: one each on waking, reading and sending.
const AT_ONCE: u64 = 3;

/// That probing has had no trouble of its own, but for stalls while others, too, were `late`.
fn assert_unnoticed(before: &Value, after: &Value, late: u64) {
    let more = |name: &str| after[name].as_u64().unwrap_or(0) - before[name].as_u64().unwrap_or(0);
    println!("probing has noticed {} stalls; others were late {late} times", more("stall"));
    let others = after.as_object().unwrap().keys().filter(|name| *name != "stall").any(|name| more(name) > 0);
    assert!(!others && more("stall") <= AT_ONCE * late, "probing has noticed: {before:#} before, {after:#} after");
}

fn endures(attack: Attack) {
    let crowd = Crowd::healthy(MANY, "socket_group = \"nogroup\"\nadmin_group = \"daemon\"");
    crowd.site.open_to_all();
    crowd.await_rounds(1);
    let (prober, memory) = (crowd.daemon.prober(), most_memory(crowd.daemon.prober()));
    let (canary, before) = (Canary::start(), crowd.health()["local_faults"].clone());
    let attacker = Attacker::start(&crowd.site, attack);
    let (mut asked, mut slowest) = (0, Duration::ZERO);
    let begin = crate::kills::now();
    while begin.elapsed() < LASTS {
        let asking = crate::kills::now();
        let (status, _, body) = crowd.site.http("GET", "/v1/healthz");
        assert_eq!(status, 200, "root is sent away: {body}");
        asked += 1;
        slowest = slowest.max(asking.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    let did = attacker.end();
    let grown = most_memory(prober) - memory;
    println!("{attack:?}: {did}; root was answered {asked} times, {slowest:?} at most; {} KiB more", grown >> 10);
    let free = || crowd.site.http("GET", "/v1/tunnels/t1").0 == 200;
    assert!(holds_within(Duration::from_secs(1), &mut || free()), "places are free again");
    crowd.await_rounds(1);
    assert_unnoticed(&before, &crowd.health()["local_faults"], canary.end());
    assert_eq!(crowd.daemon.prober(), prober, "the same one goes on");
    assert!(grown < MEMORY, "{grown} bytes more");
    assert!(crowd.site.transitions().iter().all(|event| event["to"] == "healthy"));
    assert!(!crowd.site.say(&["events"]).contains("drained"));
    crowd.assert_calm(MANY);
    crowd.end();
}
