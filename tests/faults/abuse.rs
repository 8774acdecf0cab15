//! The local socket under abuse, while very many tunnels are probed.

use std::time::Duration;

use crate::attacker::{Attack, Attacker};
use crate::crowd::{Crowd, MANY};
use crate::kit::holds_within;
use crate::process::most_memory;
use crate::table::{Row, lent, row};
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
    ]
}

const LASTS: Duration = Duration::from_secs(6);
/// What all clients together may cost.
const MEMORY: u64 = 16 << 20;

fn endures(attack: Attack) {
    let crowd = Crowd::healthy(MANY, "socket_group = \"nogroup\"\nadmin_group = \"daemon\"");
    crowd.site.open_to_all();
    crowd.await_rounds(1);
    let (prober, memory) = (crowd.daemon.prober(), most_memory(crowd.daemon.prober()));
    let faults = crowd.health()["local_faults"].clone();
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
    assert_eq!(crowd.health()["local_faults"], faults, "probing has noticed");
    assert_eq!(crowd.daemon.prober(), prober, "the same one goes on");
    assert!(grown < MEMORY, "{grown} bytes more");
    assert!(crowd.site.transitions().iter().all(|event| event["to"] == "healthy"));
    assert!(!crowd.site.say(&["events"]).contains("drained"));
    crowd.assert_calm(MANY);
    crowd.end();
}
