//! Answers that are none, or none any more: forged, sent back, played once more, late, twice, overtaken.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::by_hand::{Packet, Puppet, Tap};
use crate::crowd::{Crowd, health};
use crate::kit::{FAR, NEAR, eventually, ms};
use crate::site::{Running, Site};
use crate::stranger::{Stranger, icmp, ipv4};
use crate::table::{Row, lent, row};

pub(crate) fn rows(netns: &mut dyn FnMut(&str) -> crate::Case) -> Vec<Row> {
    vec![
        row(
            "fault_01_a_million_forged_answers_keep_no_dead_tunnel_alive",
            "10⁶ forged answers, of the right tunnel and sequence, while the tunnel is dead: it is down on time, and stays so",
            a_million,
        )
        .alone(),
        lent(
            "fault_02_a_probe_that_is_sent_back_as_it_is_proves_nothing",
            "a probe seen on its way is no answer, though it bears all that an answer must: it did not come by the tunnel",
            netns("forgery::a_probe_seen_on_a_hairpin"),
        ),
        lent(
            "fault_02_where_a_mark_is_asked_for_an_echo_without_it_is_no_answer",
            "with `mark_key` nobody can answer who lacks the key; without it, whoever is on the path can, as with every ping",
            netns("paths::without_the_mark_it_is_none"),
        ),
        lent(
            "fault_03_answers_played_once_more_count_for_nothing",
            "an answer counts once, however often it comes, while the tunnel is up or down",
            netns("forgery::answers_once_more"),
        ),
        lent(
            "fault_03_answers_of_an_earlier_run_count_for_nothing",
            "nor do those of a run before a restart",
            netns("forgery::answers_of_an_earlier_run"),
        ),
        lent(
            "fault_04_answers_that_come_twice_count_once",
            "counted as duplicates; no sample",
            netns("loss::duplicates_count_once"),
        ),
        lent(
            "fault_05_an_answer_after_the_deadline_is_a_failure_and_counted_as_late",
            "a failure; and late answers do not bring the tunnel back",
            netns("loss::late_answers_are_failures_and_counted"),
        ),
        lent(
            "fault_06_answers_that_overtake_each_other_are_no_loss",
            "no loss as long as each comes by its deadline",
            netns("loss::reordering_within_the_deadline_is_no_loss"),
        ),
        row(
            "fault_08_forged_icmp_errors_about_our_probes_move_nothing",
            "shown as hints, believed by nobody: no failure, no transition, no probe that cannot leave",
            icmp_errors,
        ),
        row(
            "fault_09_two_probers_and_a_ping_of_the_same_identifier_do_not_mind_each_other",
            "no cross-talk: nobody's answer counts for another, and all stay healthy",
            same_identifier,
        )
        .alone(),
    ]
}

/// The answer that somebody makes who has seen the probe but not the key.
fn forged(probe: &Packet) -> Vec<u8> {
    let mut answer = Packet::answer(probe);
    answer.change(|payload| payload[40..56].reverse());
    answer.outward().1
}

/// What the configuration promises: the interval, the time-out, and the whole short window; the rest is for a
/// busy machine.
const ON_TIME: Duration = ms(100 + 400 + 900 + 2_500);

#[expect(clippy::disallowed_methods, reason = "events are dated by the wall clock")]
fn a_million() {
    const ALL: u64 = 1_000_000;
    const AT_ONCE: u64 = 2_000;
    let site = Site::new();
    let stranger = Stranger::beside(&site.pair);
    let (daemon, [ams, _fra]) = site.healthy();
    // It hears every probe, and forges an answer to the newest one of the tunnel that dies: it would be taken.
    let newest = Arc::new(Mutex::new(None));
    let heard = Arc::clone(&newest);
    let _ear = Puppet::start(&site.pair.far, move |probe| {
        if probe.outward().0.to_string() == FAR[0] {
            *heard.lock().unwrap() = Some(forged(probe));
        }
        Vec::new()
    });
    eventually("a probe", || newest.lock().unwrap().is_some());
    let (mut dead, mut died) = (Some(ams), None);
    for sent in (0..ALL).step_by(AT_ONCE.try_into().unwrap()) {
        if sent == ALL / 20 {
            dead.take();
            died = Some(SystemTime::now());
        }
        let forged = newest.lock().unwrap().clone().unwrap();
        stranger.flood(&forged, AT_ONCE.try_into().unwrap());
        // No more at once than its queue holds: how it stands a flood is another row.
        eventually("forged answers counted", || counter(&site, "forged") + 2 * AT_ONCE >= sent + AT_ONCE);
    }
    eventually("every forged answer counted", || counter(&site, "forged") == ALL);
    assert_eq!(site.state("ams-1"), "down", "and stays so");
    let downs: Vec<Value> =
        site.transitions().into_iter().filter(|event| event["tunnel"] == "ams-1" && event["to"] == "down").collect();
    assert_eq!(downs.len(), 1, "{downs:#?}");
    let at = humantime::parse_rfc3339(downs[0]["at"].as_str().unwrap()).unwrap();
    let took = at.duration_since(died.unwrap()).unwrap_or_default();
    println!("down {took:?} after its death, among forged answers");
    assert!(took < ON_TIME, "down only {took:?} after its death");
    assert!(health(&site)["local_faults"]["receive-overflow"].is_null(), "else this shows something else");
    drop(daemon);
}

fn counter(site: &Site, name: &str) -> u64 {
    let view: Value = serde_json::from_str(&site.http("GET", "/v1/tunnels/ams-1").2).unwrap();
    view["counters"][name].as_u64().unwrap()
}

/// Every error that a router may send, from a router that there is not, about probes that are under way.
fn icmp_errors() {
    let site = Site::new();
    site.make_patient();
    // Longer than the least that a path must carry: were a forged "too big" believed, it could not leave.
    let text = site.read("adit.conf").replace("[defaults.health_check]", "[defaults.health_check]\nsize = 1200");
    site.write("adit.conf", &text);
    let stranger = Stranger::beside(&site.pair);
    let (_daemon, _far) = site.healthy();
    let tap = Tap::open(&site.pair.far);
    let unreachable = (0..16).map(|code| [3, code]);
    let errors: Vec<_> = unreachable.chain([[4, 0], [5, 0], [5, 1], [11, 0], [11, 1], [12, 0], [12, 1]]).collect();
    for probe in tap.take(10) {
        let quoted = probe.outward().1;
        let error = |code: &[u8; 2]| {
            // A next hop's MTU, a gateway, or a place in the header.
            let rest = if code[0] == 5 { [198, 51, 100, 66] } else { [0, 0, 2, 40] };
            ipv4(["203.0.113.77", NEAR[0]], 1, &icmp(*code, rest, &quoted))
        };
        let all: Vec<_> = errors.iter().map(error).collect();
        (0..20).for_each(|_| stranger.send(&all));
    }
    let received = counter(&site, "received");
    eventually("more answers", || counter(&site, "received") > received + 20);
    let seen = health(&site);
    assert!(seen["hints"].as_u64().unwrap() > 100, "they did not get as far as the parser: {seen:#}");
    assert_eq!(counter(&site, "lost"), 0);
    let learnt = crate::crowd::shell(&site.pair.near, "ip route show cache");
    assert!(!learnt.contains("mtu"), "the kernel has believed it because of us: {learnt}");
    assert_eq!(site.transitions().len(), 2, "{:#?}", site.transitions());
}

fn same_identifier() {
    const TUNNELS: usize = 1_000;
    let crowd = Crowd::healthy(TUNNELS, "");
    let second = crowd.site.read("adit.conf").replace("adit.sock", "second.sock").replace("\"state\"", "\"second\"");
    crowd.site.write("second.conf", &second);
    let _second = Running::start(&crowd.site.pair.near, &mut crowd.site.command("run", "second.conf"));
    let log = || crowd.site.read("second.conf.log");
    eventually("a second prober", || log().matches("to=healthy").count() == TUNNELS);
    // The identifiers of the same tunnel of both, seen on the way, are ping's from now on.
    let identifiers = crate::crowd::identifiers(&crowd.site.pair, "10.50.0.1", 2);
    for identifier in &identifiers {
        let ping = format!("ping -e {identifier} -c 20 -i 0.05 -W 5 10.50.0.1");
        let said = crate::crowd::shell(&crowd.site.pair.near, &ping);
        // A ping hears all answers with its identifier, also those to us.
        assert!(said.matches("64 bytes from").count() >= 19, "{said}");
    }
    crowd.await_rounds(3);
    crowd.assert_calm(TUNNELS);
    assert!(!log().contains("from=healthy"), "{}", log());
    let health = crowd.health();
    assert!(health["rejected"]["other-run"].is_null(), "the other one's answers were let in: {health:#}");
    for counter in ["duplicate", "late", "forged", "lost"] {
        assert_eq!(crowd.sum(counter), 0, "{counter}");
    }
    crowd.end();
}
