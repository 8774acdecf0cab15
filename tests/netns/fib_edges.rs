//! The kernel's routes: what must be refused, what must not be hit, what must not be lost.

use std::io::ErrorKind;

use adit::io::{fib, netns};
use adit::steer::{Change, Hop, KernelRoute, Nexthop, Refusal, Rule, Way};
use adit::wire::Family;
use nix::errno::Errno;
use serde_json::Value;

use crate::fib::{Net, PREFIXES, TAG, group, hops, route, single};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let cases: [(&str, fn()); 16] = [
        ("a_foreign_route_with_the_same_key_is_a_refusal_and_stays_as_it_is", taken_keys),
        ("a_foreign_route_for_some_packets_only_is_in_nobodys_way", choosy_others),
        ("what_others_made_is_never_deleted_or_changed", never_anothers),
        ("of_an_ipv6_route_only_the_hops_that_are_named_are_deleted", siblings),
        ("an_ipv6_device_is_deleted_without_its_neighbours_in_the_list", devices_alone),
        ("of_ipv4_routes_with_one_key_the_one_that_is_named_is_deleted", aliases),
        ("an_unreachable_route_is_deleted_and_no_other_with_its_metric", unreachable_beside_hops),
        ("the_kernels_own_words_come_with_a_refusal", words),
        ("refusals_are_named_by_their_place_however_many_there_are", many_refusals),
        ("a_batch_goes_on_behind_what_was_refused", a_batch_goes_on),
        ("an_object_that_goes_takes_its_routes_along", objects_that_go),
        ("nothing_that_leads_nowhere_is_asked_for", nowhere),
        ("a_list_that_changes_while_it_is_read_is_read_again", changing_lists),
        ("an_ipv6_route_is_pictured_once_while_others_come_and_go", pictured_once),
        ("a_rule_is_pictured_once_while_others_come_and_go", rules_pictured_once),
        ("a_picture_that_was_given_up_does_not_spoil_the_next", given_up),
    ];
    cases.into_iter().map(|(name, run)| case(format!("fib::{name}"), run).with_iproute()).collect()
}

/// Numbers and places of refusals.
fn refused(refusals: &[Refusal]) -> Vec<(usize, Errno)> {
    refusals.iter().map(|refusal| (refusal.place, Errno::from_raw(refusal.errno))).collect()
}

fn taken_keys() {
    let mut net = Net::new();
    net.ip("-4 route add 203.0.113.0/24 via 10.0.0.7 metric 5 proto static");
    net.ip("-6 route add 2001:db8:7::/48 via fd00:0::7 metric 5 proto static");
    let before = PREFIXES.map(|(_, prefix)| net.shown(&format!("route show exact {prefix}")));
    for (family, prefix) in PREFIXES {
        let same = Change::AddRoute(route(prefix, 5, hops([net.via(family, 1, 9, 1)])));
        let beside = Change::AddRoute(route(prefix, 6, hops([net.via(family, 1, 9, 1)])));
        let refusals = net.carry_out(&[same, beside]);
        assert_eq!(refused(&refusals), [(0, Errno::EEXIST)]);
        assert_eq!(refusals[0].why, "File exists");
        net.make(&[Change::DeleteRoute(route(prefix, 6, Way::Other))]);
    }
    assert_eq!(PREFIXES.map(|(_, prefix)| net.shown(&format!("route show exact {prefix}"))), before);
}

fn choosy_others() {
    let mut net = Net::new();
    net.ip("-4 route add 203.0.113.0/24 tos 0x10 via 10.0.0.7 metric 5 proto static");
    net.ip("-6 route add 2001:db8:7::/48 from 2001:db8:9::/48 via fd00:0::7 metric 5 proto static");
    let concerned = PREFIXES.map(|(_, prefix)| prefix.parse().unwrap());
    let foreign = net.picture().foreign;
    assert!(!foreign.iter().any(|route| concerned.contains(&route.prefix)), "{foreign:?}");
    let ours = PREFIXES.map(|(family, prefix)| Change::AddRoute(route(prefix, 5, hops([net.via(family, 1, 9, 1)]))));
    net.make(&ours);
    let before = net.picture().routes;
    assert_eq!(before.len(), 2, "{before:?}");
    net.make(&before.into_iter().map(Change::DeleteRoute).collect::<Vec<_>>());
    assert_eq!(net.picture().routes, []);
    for (option, (_, prefix)) in ["-4", "-6"].into_iter().zip(PREFIXES) {
        let theirs = net.shown(&format!("{option} route show exact {prefix} proto static"));
        assert_eq!(theirs.len(), 1, "{theirs:?}");
    }
}

fn never_anothers() {
    let mut net = Net::new();
    net.ip("-4 route add 203.0.113.0/24 via 10.0.0.9 metric 5 proto static");
    net.ip("-6 route add 2001:db8:7::/48 via fd00:0::9 metric 5 proto static");
    net.ip("nexthop add id 5 via 10.0.0.9 dev d0 proto static");
    net.ip("nexthop add id 6 group 5 proto static");
    net.ip("rule add from 10.9.0.0/16 table 300 priority 50 protocol static");
    let everything = |net: &Net| {
        ["-4 route show table all", "-6 route show table all", "nexthop show", "-4 rule show"]
            .map(|what| net.shown(what))
    };
    let before = everything(&net);
    let mut changes = Vec::new();
    for (family, prefix) in PREFIXES {
        let ways = [hops([net.via(family, 0, 9, 1)]), hops([net.on(0)]), Way::Unreachable, Way::Other];
        changes.extend(ways.into_iter().map(|way| Change::DeleteRoute(route(prefix, 5, way))));
    }
    let source = Some("10.9.0.0/16".parse().unwrap());
    changes.push(Change::DeleteRule(Rule { table: 300, source, ..rule(50) }));
    changes.push(Change::AddNexthop(single(5, Family::V4, net.via(Family::V4, 1, 9, 1))));
    changes.push(Change::ReplaceNexthop(single(5, Family::V4, net.via(Family::V4, 1, 9, 1))));
    changes.push(Change::ReplaceNexthop(group(6, &[(5, 7)])));
    changes.push(Change::DeleteNexthop(5));
    changes.push(Change::DeleteNexthop(77));
    let refusals = net.carry_out(&changes);
    let numbers: Vec<Errno> = refused(&refusals).into_iter().map(|(_, number)| number).collect();
    let mut wanted = vec![Errno::ESRCH; 8];
    wanted.extend([Errno::ENOENT, Errno::EEXIST, Errno::ESRCH, Errno::ESRCH, Errno::ESRCH, Errno::ENOENT]);
    assert_eq!(numbers, wanted, "{refusals:#?}");
    assert_eq!(refusals[10].why, "next-hop object 5 is of protocol 4, not ours");
    assert_eq!(everything(&net), before);
}

fn siblings() {
    let mut net = Net::new();
    let prefix = PREFIXES[1].1;
    let [one, two, three, none] = [8, 9, 10, 11].map(|last| net.via(Family::V6, usize::from(last > 9), last, 2));
    net.make(&[Change::AddRoute(route(prefix, 10, hops([one, two, three])))]);
    net.make(&[Change::DeleteRoute(route(prefix, 10, hops([two])))]);
    assert_eq!(net.picture().routes, [route(prefix, 10, hops([one, three]))]);
    // Each hop stands for itself.
    let refusals = net.carry_out(&[Change::DeleteRoute(route(prefix, 10, hops([one, none])))]);
    assert_eq!(refused(&refusals), [(0, Errno::ESRCH)]);
    // The kernel tells no weight of a hop that is alone.
    assert_eq!(net.picture().routes, [route(prefix, 10, hops([Hop { weight: 1, ..three }]))]);
}

fn devices_alone() {
    let mut net = Net::new();
    let prefix = PREFIXES[1].1;
    let add = [
        Change::AddRoute(route(prefix, 10, hops([net.on(0)]))),
        Change::AppendRoute(route(prefix, 10, hops([net.on(1)]))),
    ];
    net.make(&add);
    assert_eq!(net.picture().routes, [route(prefix, 10, hops([net.on(0), net.on(1)]))]);
    net.make(&[Change::DeleteRoute(route(prefix, 10, hops([net.on(0)])))]);
    assert_eq!(net.picture().routes, [route(prefix, 10, hops([net.on(1)]))]);
}

fn aliases() {
    let mut net = Net::new();
    let prefix = PREFIXES[0].1;
    let (one, two) = (net.via(Family::V4, 0, 9, 1), net.via(Family::V4, 1, 9, 1));
    let [both, alone, other] = [hops([one, two]), hops([one]), hops([two])].map(|way| route(prefix, 10, way));
    let append = [&alone, &other].map(|route| Change::AppendRoute(route.clone()));
    net.make(&[&[Change::AddRoute(both.clone())], &append[..]].concat());
    assert_eq!(net.picture().routes, [both.clone(), alone.clone(), other.clone()]);
    net.make(&[Change::DeleteRoute(alone)]);
    assert_eq!(net.picture().routes, [both.clone(), other.clone()]);
    net.make(&[Change::DeleteRoute(both)]);
    assert_eq!(net.picture().routes, [other]);
}

fn unreachable_beside_hops() {
    let mut net = Net::new();
    for (family, prefix) in PREFIXES {
        let hop = route(prefix, 10, hops([net.via(family, 0, 9, 1)]));
        let unreachable = route(prefix, 10, Way::Unreachable);
        net.make(&[Change::AddRoute(hop.clone()), Change::AppendRoute(unreachable.clone())]);
        assert_eq!(net.picture().routes, [hop.clone(), unreachable.clone()]);
        net.make(&[Change::DeleteRoute(unreachable)]);
        assert_eq!(net.picture().routes, std::slice::from_ref(&hop));
        net.make(&[Change::DeleteRoute(hop)]);
    }
}

fn words() {
    let mut net = Net::new();
    let [v4, v6] = PREFIXES.map(|(_, prefix)| prefix);
    let astray = |device: usize, via: &str| Hop { via: Some(via.parse().unwrap()), ..net.on(device) };
    let nobody = Hop { device: 4_711, ..net.on(0) };
    let changes = [
        Change::AddRoute(route(v4, 1, hops([astray(0, "198.18.0.1")]))),
        Change::AddRoute(route(v6, 1, hops([astray(0, "fd00:0::1")]))),
        Change::AddRoute(route(v4, 1, Way::Object(4_711))),
        Change::AddNexthop(single(1, Family::V4, nobody)),
        Change::AddNexthop(single(1, Family::V4, astray(0, "198.18.0.1"))),
    ];
    let refusals = net.carry_out(&changes);
    let said: Vec<&str> = refusals.iter().map(|refusal| refusal.why.as_str()).collect();
    let wanted = [
        "Nexthop has invalid gateway",
        "Gateway can not be a local address",
        "Nexthop id does not exist",
        "Invalid device index",
        "Nexthop has invalid gateway",
    ];
    assert_eq!(said, wanted, "{refusals:#?}");
}

/// So many routes, one for each of as many destinations.
pub(crate) fn many(count: u32, way: &Way) -> Vec<KernelRoute> {
    let address = |number: u32| std::net::Ipv4Addr::from((20 << 24) + number);
    (0..count).map(|number| route(&format!("{}/32", address(number)), 10, way.clone())).collect()
}

fn many_refusals() {
    let mut net = Net::new();
    let routes = many(20_000, &hops([net.via(Family::V4, 0, 9, 1)]));
    let add: Vec<Change> = routes.iter().cloned().map(Change::AddRoute).collect();
    net.make(&add);
    let refusals = net.carry_out(&add);
    assert_eq!(refused(&refusals), (0..20_000).map(|place| (place, Errno::EEXIST)).collect::<Vec<_>>());
    assert_eq!(net.picture().routes, routes);
    net.make(&routes.into_iter().map(Change::DeleteRoute).collect::<Vec<_>>());
    assert_eq!(net.picture().routes, []);
}

fn a_batch_goes_on() {
    let mut net = Net::new();
    let routes = many(9, &hops([net.via(Family::V4, 0, 9, 1)]));
    let add =
        |places: &[usize]| places.iter().map(|place| Change::AddRoute(routes[*place].clone())).collect::<Vec<_>>();
    net.make(&add(&[1, 4, 8]));
    // In the middle, and last.
    let refusals = net.carry_out(&add(&[0, 1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(refused(&refusals), [1, 4, 8].map(|place| (place, Errno::EEXIST)));
    assert_eq!(net.picture().routes, routes);
    assert_eq!(net.carry_out(&[]), []);
}

fn objects_that_go() {
    let mut net = Net::new();
    let over = route(PREFIXES[0].1, 10, Way::Object(2));
    net.make(&[
        Change::AddNexthop(single(1, Family::V4, net.via(Family::V4, 0, 9, 1))),
        Change::AddNexthop(group(2, &[(1, 1)])),
        Change::AddRoute(over.clone()),
    ]);
    assert_eq!(net.picture().routes, [over]);
    net.make(&[Change::DeleteNexthop(2)]);
    let picture = net.picture();
    assert_eq!(picture.routes, []);
    assert_eq!(picture.nexthops.unwrap().len(), 1);
    let refusals = net.carry_out(&[Change::ReplaceNexthop(group(2, &[(1, 1)]))]);
    assert_eq!(refused(&refusals), [(0, Errno::ENOENT)]);
}

fn nowhere() {
    let mut net = Net::new();
    let [v4, v6] = PREFIXES.map(|(_, prefix)| prefix);
    let refusals = net.carry_out(&[
        Change::AddRoute(route(v4, 10, Way::Other)),
        Change::AddRoute(route(v4, 11, hops([net.on(0)]))),
        Change::AppendRoute(route(v6, 10, Way::Other)),
        Change::AddRoute(route(v6, 10, hops(vec![net.via(Family::V6, 0, 9, 1); 4_000]))),
        Change::AddNexthop(group(1, &[(2, 1); 10_000])),
    ]);
    assert_eq!(refused(&refusals), [0, 2, 3, 4].map(|place| (place, Errno::EINVAL)));
    assert_eq!(net.shown_to(v4).len(), 1);
    assert_eq!(net.shown_to(v6), Vec::<Value>::new());
}

/// The kernel says so when a list of objects or devices has changed since its first part.
fn changing_lists() {
    let mut net = Net::new();
    let object = |id| single(id, Family::V6, net.on(0));
    let objects: Vec<Nexthop> = (1_000..3_000).map(object).collect();
    let another = object(1);
    net.make(&objects.iter().cloned().map(Change::AddNexthop).collect::<Vec<_>>());
    let mut writer = netns::within(Some(&net.namespace), || fib::open(TAG, 1 << 20)).unwrap().writer;
    // Before so many parts of the picture, an object comes or goes; then there is peace.
    for times in [1, 6, 13, usize::MAX] {
        let mut parts = 0;
        let found = net.reader.picture(
            |_, _| true,
            || {
                parts += 1;
                if parts <= times {
                    let change =
                        if parts % 2 == 1 { Change::AddNexthop(another.clone()) } else { Change::DeleteNexthop(1) };
                    assert_eq!(writer.carry_out(&[change]).unwrap(), []);
                }
                true
            },
        );
        if let Ok(picture) = found {
            let found = picture.unwrap().nexthops.unwrap();
            assert!(times < usize::MAX, "a list that changed in between was taken for whole");
            assert!(found.ends_with(&objects), "{} of 2 000, after {times} changes", found.len());
        } else {
            assert_eq!((times, found.unwrap_err().kind()), (usize::MAX, ErrorKind::ResourceBusy));
        }
        let _ = writer.carry_out(&[Change::DeleteNexthop(1)]);
    }
}

/// The kernel goes on in its list of IPv6 routes by counting: it shows some twice if others come before them
/// meanwhile, and passes some over if others go.
fn pictured_once() {
    let mut net = Net::new();
    let way = hops([net.on(0)]);
    let some = |under: &str, count: u32| -> Vec<KernelRoute> {
        (0..count).map(|number| route(&format!("2001:db8:{under}::{number:x}/128"), 10, way.clone())).collect()
    };
    let (stable, passing) = (some("7", 20_000), some("6", 500));
    net.make(&stable.iter().cloned().map(Change::AddRoute).collect::<Vec<_>>());
    let mut somebody = netns::within(Some(&net.namespace), || fib::open(TAG + 1, 1 << 20)).unwrap().writer;
    let mut there = false;
    for times in [121, 121, 10, 61, 90] {
        let mut parts = 0;
        let found = net.reader.picture(
            |_, _| false,
            || {
                parts += 1;
                if parts <= times {
                    there = !there;
                    let change = if there { Change::AddRoute } else { Change::DeleteRoute };
                    assert_eq!(
                        somebody.carry_out(&passing.iter().cloned().map(change).collect::<Vec<_>>()).unwrap(),
                        []
                    );
                }
                true
            },
        );
        let found = found.unwrap().unwrap().routes;
        assert!(found == stable, "{} instead of 20 000, {times}", found.len());
    }
}

/// The same holds of rules, but there are never that many.
fn rules_pictured_once() {
    let mut net = Net::new();
    let rules: Vec<Rule> = (1_000..3_000).map(rule).collect();
    net.make(&rules.iter().cloned().map(Change::AddRule).collect::<Vec<_>>());
    let mut somebody = netns::within(Some(&net.namespace), || fib::open(TAG + 1, 1 << 20)).unwrap().writer;
    let mut there = false;
    for times in [4, 7, 10, 13] {
        let mut parts = 0;
        let found = net.reader.picture(
            |_, _| false,
            || {
                parts += 1;
                if parts <= times {
                    there = !there;
                    let change = if there { Change::AddRule } else { Change::DeleteRule };
                    assert_eq!(somebody.carry_out(&(1..100).map(rule).map(change).collect::<Vec<_>>()).unwrap(), []);
                }
                true
            },
        );
        let found = found.unwrap().unwrap().rules;
        assert!(found == rules, "{} instead of 2 000, {times}", found.len());
    }
}

fn rule(priority: u32) -> Rule {
    Rule {
        family: Family::V4,
        priority,
        table: 100,
        source: None,
        destination: None,
        fwmark: None,
        protocol: None,
        ports: None,
    }
}

fn given_up() {
    let mut net = Net::new();
    let routes = many(5_000, &hops([net.on(0)]));
    net.make(&routes.iter().cloned().map(Change::AddRoute).collect::<Vec<_>>());
    for patience in 0..8 {
        let mut left = patience;
        let given_up = net.reader.picture(
            |_, _| true,
            || {
                left -= 1;
                left >= 0
            },
        );
        assert_eq!(given_up.unwrap(), None, "after {patience} parts");
    }
    assert_eq!(net.picture().routes, routes);
}
