//! Routes of others: never touched, said where they are in the way, and not there for long where they
//! are gone.

use super::in_both_modes;
use super::net::{assert_others_unchanged, batch, others_in};
use super::stage::{PREFIXES, SOON, Stage, gateway};
use crate::kit::holds_within;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let conflict =
        in_both_modes("others::a_route_in_our_place_is_told_and_left_alone_and_ours_comes_when_it_goes", conflict);
    let life = in_both_modes("others::a_whole_life_changes_nothing_of_others", whole_life);
    let more = [
        case("steering::others::a_route_that_comes_into_our_place_is_told_and_left_alone", conflict_later),
        case("steering::others::a_route_that_would_win_is_warned_of_at_load", winners),
    ];
    [conflict, life].into_iter().flatten().chain(more).collect()
}

/// Routes of another program that are just where ours would be.
fn in_the_way(stage: &Stage, verb: &str) {
    let route =
        |prefix: &str| format!("route {verb} {prefix} via {} dev t1 proto static metric 100\n", gateway(prefix, 1));
    batch(stage.near(), &PREFIXES.map(route).concat());
}

fn conflict(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\n"));
    in_the_way(&stage, "add");
    let before = others_in(stage.near());
    let _daemon = stage.site.daemon();
    let words = "a route of protocol static has this prefix and metric 100 already";
    for prefix in PREFIXES {
        stage.await_standing(prefix, 0, "conflict", words);
        // In mode nexthop it is the one route of both.
        match mode {
            "metric" => stage.await_standing(prefix, 1, "installed", ""),
            _ => stage.await_standing(prefix, 1, "conflict", words),
        }
    }
    stage.site.await_state("one", "healthy");
    assert_others_unchanged(stage.near(), &before, "beside ours");
    in_the_way(&stage, "del");
    for prefix in PREFIXES {
        [0, 1].iter().for_each(|path| stage.await_standing(prefix, *path, "installed", ""));
    }
    assert_eq!(stage.ours().iter().filter(|line| line.contains("metric 100")).count(), 2, "{:#?}", stage.ours());
}

/// The place that a penalised route would take is taken while it is elsewhere.
fn conflict_later() {
    let stage = Stage::new("mode = \"metric\"\n");
    let _daemon = stage.healthy();
    stage.site.say(&["drain", "one"]);
    let drained = |line: &&String| line.contains("metric 500100");
    assert!(holds_within(SOON, &mut || stage.ours().iter().filter(drained).count() == 2));
    in_the_way(&stage, "add");
    let before = others_in(stage.near());
    stage.site.say(&["undrain", "one"]);
    for prefix in PREFIXES {
        stage.await_standing(prefix, 0, "conflict", "a route of protocol static");
    }
    // It stays where it is: better than nothing when the other's goes.
    assert_eq!(stage.ours().iter().filter(drained).count(), 2, "{:#?}", stage.ours());
    assert_others_unchanged(stage.near(), &before, "beside ours");
    in_the_way(&stage, "del");
    for prefix in PREFIXES {
        stage.await_standing(prefix, 0, "installed", "");
    }
    assert!(holds_within(SOON, &mut || stage.ours().iter().filter(drained).count() == 0), "{:#?}", stage.ours());
}

fn winners() {
    let stage = Stage::new("mode = \"metric\"\n");
    let [four, six] = PREFIXES;
    batch(
        stage.near(),
        &format!(
            "route add {four} via 10.1.0.2 proto bird metric 20\nroute add {six} via fd00:1::2 proto static metric 5000\n"
        ),
    );
    let before = others_in(stage.near());
    let _daemon = stage.healthy();
    stage.await_event("warning", &[four, "metric 20 of protocol bird wins always"]);
    stage.await_event("warning", &[six, "metric 5000 of protocol static wins when ours are penalised"]);
    assert_others_unchanged(stage.near(), &before, "beside ours");
}

/// Routes, rules and objects of other programs, of many kinds and in many places.
const OTHERS: &str = "\
route add 10.20.0.0/16 via 10.1.0.2 proto static metric 700
route add 10.20.0.0/16 via 10.1.0.2 proto bgp metric 50
route add 10.20.0.0/16 via 10.1.0.2 table 100 metric 100
route add 10.20.5.0/24 via 10.100.1.1 dev t1
route add 10.99.0.0/16 proto zebra nexthop via 10.100.0.1 weight 3 nexthop via 10.100.1.1
route add default via 10.1.0.2 proto dhcp metric 1024
route add blackhole 10.98.0.0/16 proto static
route add 2001:db8:20::/48 via fd00:1::2 proto static metric 700
route add 2001:db8:20::/48 via fd00:1::2 proto bgp metric 50
route add 2001:db8:20:5::/64 via fd00:100:1::b dev t1
route add 2001:db8:99::/48 proto zebra nexthop via fd00:100:0::b nexthop via fd00:100:1::b
route add default via fd00:1::2 metric 1024
nexthop add id 5 via 10.1.0.2 dev n0
nexthop add id 6 via 10.100.1.1 dev t1 proto zebra
nexthop add id 7 group 5/6 proto zebra
route add 10.97.0.0/16 nhid 7 proto zebra
rule add from 172.64.240.252/30 lookup 100 priority 1000
rule add fwmark 9 lookup 77 priority 500 protocol static
";

fn whole_life(mode: &str) {
    let stage = Stage::new(&format!("mode = \"{mode}\"\nbackstop = true\non_exit = \"remove\"\n"));
    let rules = "[[rule]]\nsource = \"172.64.240.252/30\"\ntable = 100\npriority = 1000\n\
                 [[rule]]\nsource = \"2001:db8:f0::/64\"\ntable = 77\npriority = 1001\n";
    let kernel = format!("mode = \"{mode}\"\nbackstop = true\non_exit = \"remove\"\n");
    stage.configure(&kernel, &format!("{}{rules}", stage.usual_routes()));
    batch(stage.near(), OTHERS);
    stage.ip("-6 rule add from 2001:db8:f0::/64 lookup 77 priority 1001");
    let before = others_in(stage.near());
    let daemon = stage.healthy();
    let unchanged = |when: &str| assert_others_unchanged(stage.near(), &before, when);
    unchanged("at the start");
    assert!(stage.ours().len() >= 6, "{:#?}", stage.ours());
    stage.site.say(&["drain", "one"]);
    stage.site.say(&["drain", "two", "--down"]);
    stage.site.say(&["undrain", "one"]);
    stage.lose_all(0);
    stage.site.await_state("one", "down");
    unchanged("when drained and down");
    PREFIXES.iter().for_each(|prefix| drop(stage.ip(&format!("route del unreachable {prefix} metric 4294967295"))));
    stage.await_event("kernel_drift", &["10.20.0.0/16", "is gone"]);
    stage.await_event("kernel_drift", &["2001:db8:20::/48", "is gone"]);
    unchanged("after drift");
    daemon.send(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.end().success());
    assert_eq!(stage.ours(), Vec::<String>::new());
    unchanged("at the end");
}
