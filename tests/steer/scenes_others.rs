//! Others: their routes and objects, and what they do to ours.

use adit::engine::Standing;
use adit::steer::{Change, Hop, KernelRoute, Leads, Mode, Way};
use adit::wire::Family;

use super::kernel::{Kernel, STATIC, TAG};
use super::rig::Rig;
use super::setup::{BOTH, DEGRADED, DOWN, V4, V6, gateway, leg, pair, setup, shared};

const MODES: [Mode; 2] = [Mode::Metric, Mode::Nexthop];

fn theirs(prefix: &str, metric: u32) -> KernelRoute {
    KernelRoute { table: 254, prefix: prefix.parse().unwrap(), metric, way: Way::Unreachable }
}

#[test]
fn a_place_that_another_has_is_a_conflict_until_it_is_free() {
    for mode in MODES {
        let mut kernel = Kernel::with_devices(2);
        BOTH.iter().for_each(|prefix| kernel.add(STATIC, &theirs(prefix, 100), true).unwrap());
        let mut rig = Rig::start(kernel, pair(mode));
        rig.judge(&[0, 0]);
        let why = "a route of protocol static has this prefix and metric 100 already";
        assert_eq!(rig.standings[&0], Standing::Conflict(why.to_owned()));
        assert_eq!(rig.refused, [], "what is seen is not tried");
        BOTH.iter().for_each(|prefix| rig.kernel.delete(STATIC, &theirs(prefix, 100)).unwrap());
        rig.look();
        rig.run();
        rig.assert_settled();
        let metric = if mode == Mode::Nexthop { Some(100) } else { None };
        assert_eq!(rig.standings[&0], Standing::Installed(metric), "that of a group stays, whatever tunnels cost");
        assert_eq!(rig.warnings.len(), 1, "{:?}", rig.warnings);
    }
}

#[test]
fn a_place_that_another_takes_at_the_same_moment_is_a_conflict() {
    let mut rig = Rig::start(Kernel::with_devices(2), pair(Mode::Metric));
    rig.judge(&[0, 0]);
    BOTH.iter().for_each(|prefix| rig.kernel.add(STATIC, &theirs(prefix, 500_100), true).unwrap());
    rig.verdict(0, DEGRADED);
    rig.run();
    let why = "a route of protocol static has this prefix and metric 500100 already";
    assert_eq!(rig.standings[&0], Standing::Conflict(why.to_owned()));
    rig.verdict(0, DOWN);
    rig.run();
    rig.assert_settled();
}

#[test]
fn what_another_appends_to_ours_stays() {
    for mode in MODES {
        let mut rig = Rig::start(Kernel::with_devices(3), pair(mode));
        rig.judge(&[0, 0]);
        let index = rig.kernel.index("gre2").unwrap();
        for prefix in BOTH {
            let via = gateway(&prefix.parse().unwrap(), 2);
            let way = Way::Hops(vec![Hop { device: index, via: Some(via), onlink: false, weight: 1 }]);
            rig.kernel.add(STATIC, &KernelRoute { way, ..theirs(prefix, 200) }, false).unwrap();
        }
        let others = rig.kernel.part(TAG, false);
        // With IPv6, ours looks like another one now.
        rig.outside = true;
        for cost in [DOWN, 0] {
            rig.look();
            rig.verdict(1, cost);
            rig.run();
            rig.look();
            assert_eq!(rig.run(), 0, "{:?}", rig.changes);
        }
        assert_eq!(rig.kernel.part(TAG, false), others);
    }
}

/// Whatever somebody does to ours: it is told once, with its number, and mended.
fn drifts(mode: Mode, count: usize, act: impl Fn(&mut Kernel)) {
    let mut rig = Rig::start(Kernel::with_devices(3), shared(mode));
    rig.judge(&[0, 0, DOWN]);
    rig.look();
    assert_eq!(rig.drift, []);
    act(&mut rig.kernel);
    rig.outside = true;
    rig.look();
    assert_eq!(rig.drift.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [count], "{:?}", rig.drift);
    rig.run();
    rig.assert_settled();
}

fn only_route(kernel: &Kernel, prefix: &str) -> KernelRoute {
    let prefix = prefix.parse().unwrap();
    kernel.picture(TAG, |_, _| false).routes.into_iter().find(|route| route.prefix == prefix).unwrap()
}

#[test]
fn drift_is_told_once_and_mended() {
    for prefix in BOTH {
        for mode in MODES {
            drifts(mode, 1, |kernel| {
                let route = only_route(kernel, prefix);
                kernel.delete(TAG, &route).unwrap();
            });
            drifts(mode, 1, |kernel| {
                let route = KernelRoute { metric: 77, ..only_route(kernel, prefix) };
                kernel.add(TAG, &route, true).unwrap();
            });
            // Changed: one is gone, and another one new.
            drifts(mode, 2, |kernel| {
                let route = only_route(kernel, prefix);
                kernel.delete(TAG, &route).unwrap();
                let index = kernel.index("gre2").unwrap();
                let via = gateway(&route.prefix, 2);
                let way = Way::Hops(vec![Hop { device: index, via: Some(via), onlink: false, weight: 1 }]);
                kernel.add(TAG, &KernelRoute { way, ..route }, true).unwrap();
            });
        }
    }
}

#[test]
fn drift_of_objects_is_told_once_and_mended() {
    let ids = |kernel: &Kernel, group: bool| -> Vec<u32> {
        let is = |leads: &Leads| matches!(leads, Leads::Group(_)) == group;
        kernel.objects.iter().filter(|(_, (_, leads))| is(leads)).map(|(&id, _)| id).collect()
    };
    // A group, and the route over it.
    drifts(Mode::Nexthop, 2, |kernel| kernel.apply(TAG, &Change::DeleteNexthop(ids(kernel, true)[0])).unwrap());
    // A group with other members.
    drifts(Mode::Nexthop, 1, |kernel| {
        let group = ids(kernel, true)[0];
        let (_, Leads::Group(members)) = &mut kernel.objects.get_mut(&group).unwrap() else { panic!() };
        members.pop();
    });
    // One that nobody needs.
    drifts(Mode::Nexthop, 1, |kernel| {
        let hop = Hop { device: kernel.index("gre2").unwrap(), via: None, onlink: false, weight: 1 };
        let leads = Leads::Hop(Family::V4, hop);
        kernel.apply(TAG, &Change::AddNexthop(adit::steer::Nexthop { id: 99, leads })).unwrap();
    });
}

#[test]
fn numbers_that_others_have_are_left_alone() {
    let mut rig = Rig::start(Kernel::with_devices(3), shared(Mode::Nexthop));
    rig.judge(&[0, 0, 0]);
    let ours: Vec<u32> = rig.kernel.objects.keys().copied().collect();
    let mut kernel = Kernel::with_devices(3);
    let hop = Hop { device: kernel.index("gre2").unwrap(), via: None, onlink: false, weight: 1 };
    for id in &ours {
        kernel.objects.insert(*id, (STATIC, Leads::Hop(Family::V4, hop)));
    }
    let before = kernel.part(TAG, false);
    let mut rig = Rig::start(kernel, shared(Mode::Nexthop));
    rig.judge(&[0, 0, 0]);
    rig.assert_settled();
    assert_eq!(rig.refused, []);
    assert_eq!(rig.kernel.part(TAG, false), before);
}

#[test]
fn a_number_that_another_takes_later_is_given_up() {
    let mut rig = Rig::start(Kernel::with_devices(3), shared(Mode::Nexthop));
    let of_ours = rig.fib.poll_changes().iter().find_map(|change| match change {
        Change::AddNexthop(nexthop) => Some(nexthop.id),
        _ => None,
    });
    let hop = Hop { device: rig.kernel.index("gre2").unwrap(), via: None, onlink: false, weight: 1 };
    rig.kernel.objects.insert(of_ours.unwrap(), (STATIC, Leads::Hop(Family::V4, hop)));
    rig.look();
    rig.judge(&[0, 0, 0]);
    rig.assert_settled();
    // And so if it happens between a look and a change.
    let mut rig = Rig::start(Kernel::with_devices(3), shared(Mode::Nexthop));
    rig.kernel.objects.insert(of_ours.unwrap(), (STATIC, Leads::Hop(Family::V4, hop)));
    rig.judge(&[0, 0, 0]);
    rig.assert_settled();
}

#[test]
fn a_kernel_without_objects_is_steered_by_metric_and_it_is_said_once() {
    let mut kernel = Kernel::with_devices(3);
    kernel.lacks_objects = true;
    let mut rig = Rig::start(kernel, shared(Mode::Nexthop));
    rig.judge(&[0, DOWN, 0]);
    rig.assert_settled();
    assert_eq!(rig.warnings.len(), 1);
    assert!(rig.warnings[0].contains("falling back to mode = \"metric\""));
    // And the other way when it turns out to have them.
    rig.kernel.lacks_objects = false;
    rig.look();
    rig.run();
    rig.assert_settled();
}

#[test]
fn a_route_of_others_that_wins_is_warned_of_once() {
    let mut kernel = Kernel::with_devices(2);
    kernel.add(STATIC, &theirs(V4, 50), true).unwrap();
    kernel.add(STATIC, &theirs(V6, 5_000_000), true).unwrap();
    let mut rig = Rig::start(kernel, pair(Mode::Metric));
    rig.judge(&[0, 0]);
    rig.look();
    rig.assert_settled();
    assert_eq!(rig.warnings.len(), 1);
    assert!(rig.warnings[0].contains("10.20.0.0/16 metric 50 of protocol static wins always"), "{:?}", rig.warnings);
}

#[test]
fn a_route_of_others_that_wins_when_ours_are_down_and_drained_is_warned_of() {
    let mut kernel = Kernel::with_devices(2);
    kernel.add(STATIC, &theirs(V4, 100 + 1_500_000), true).unwrap();
    kernel.add(STATIC, &theirs(V6, 100 + 2_000_001), true).unwrap();
    let mut rig = Rig::start(kernel, pair(Mode::Metric));
    rig.judge(&[0, 0]);
    rig.assert_settled();
    let [warning] = &rig.warnings[..] else { panic!("{:?}", rig.warnings) };
    assert!(warning.contains("10.20.0.0/16 metric 1500100 of protocol static wins when ours are"), "{warning}");
    assert!(!warning.contains(V6), "{warning}");
}

#[test]
fn an_object_of_ours_that_nothing_wants_stays_while_a_group_has_it() {
    let mut rig = Rig::start(Kernel::with_devices(3), setup(Mode::Nexthop, [leg(V4, 0, 100)]));
    rig.judge(&[0]);
    // The next configuration has another gateway, and no room for it.
    let mut rig = rig.restart(setup(Mode::Nexthop, [leg(V4, 1, 100)]));
    rig.kernel.full = true;
    rig.judge(&[0, 0]);
    assert!(rig.kernel.carries(TAG, 254, V4.parse().unwrap()));
    rig.kernel.full = false;
    rig.look();
    rig.run();
    rig.assert_settled();
}

#[test]
fn a_hop_that_another_adds_to_ours_is_asked_for_once_and_left() {
    let mut rig = Rig::start(Kernel::with_devices(3), pair(Mode::Metric));
    rig.judge(&[0, 0]);
    let (prefix, index) = (V6.parse().unwrap(), rig.kernel.index("gre2").unwrap());
    let hop = Hop { device: index, via: Some(gateway(&prefix, 2)), onlink: false, weight: 1 };
    let route = KernelRoute { table: 254, prefix, metric: 200, way: Way::Hops(vec![hop]) };
    rig.kernel.add(STATIC, &route, false).unwrap();
    // The kernel tells of one route of ours with two hops.
    rig.outside = true;
    rig.look();
    rig.run();
    assert_eq!(rig.refused, [(Change::DeleteRoute(route.clone()), 3)]);
    for _ in 0..3 {
        rig.look();
        assert_eq!(rig.run(), 0);
    }
    rig.kernel.delete(STATIC, &route).unwrap();
    rig.outside = true;
    rig.look();
    rig.run();
    rig.assert_settled();
}

#[test]
fn what_was_gone_when_it_should_go_and_came_back_can_go_again() {
    let mut rig = Rig::start(Kernel::with_devices(2), pair(Mode::Metric));
    rig.judge(&[0, 0]);
    let lowest = |rig: &Rig, prefix: &str| {
        let prefix = prefix.parse().unwrap();
        rig.kernel.picture(TAG, |_, _| false).routes.into_iter().find(|route| route.prefix == prefix).unwrap()
    };
    rig.verdict(0, DEGRADED);
    assert!(rig.step());
    for prefix in BOTH {
        let route = lowest(&rig, prefix);
        rig.kernel.delete(TAG, &route).unwrap();
    }
    rig.outside = true;
    // Nobody looks while all this happens.
    for cost in [DEGRADED, 0, DEGRADED] {
        rig.verdict(0, cost);
        while rig.step() {}
    }
    assert_eq!(rig.refused.len(), 2);
    rig.look();
    assert_eq!(rig.drift.len(), 1, "that they were gone is told though they were to go: {:?}", rig.drift);
    assert_eq!(rig.drift[0].0, 2, "{:?}", rig.drift);
    rig.run();
    rig.assert_settled();
}
