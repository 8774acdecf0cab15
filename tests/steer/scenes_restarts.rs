//! What is found at the start, and left at the end.

use adit::steer::{Mode, Setup, Way};

use super::kernel::{Kernel, STATIC, TAG};
use super::rig::Rig;
use super::setup::{BOTH, DEGRADED, DOWN, V4, V6, bare, heavy, leg, pair, setup, shared};

/// Everything that a configuration can become: other modes, weights, priorities, ways, tables, backstop,
/// fewer and more prefixes and tunnels.
pub(crate) fn configurations() -> Vec<Setup> {
    let mut all = Vec::new();
    for mode in [Mode::Metric, Mode::Nexthop] {
        let of = |legs: Vec<_>| Setup { tunnels: 3, ..setup(mode, legs) };
        let each = |change: &dyn Fn(adit::steer::Leg) -> adit::steer::Leg| {
            of(shared(mode).legs.into_iter().map(change).collect())
        };
        all.push(of(pair(mode).legs));
        all.push(shared(mode));
        all.push(Setup { backstop: true, ..shared(mode) });
        all.push(each(&|leg| heavy(leg.clone(), 4 - leg.weight)));
        all.push(each(&|leg| adit::steer::Leg { priority: 100 + leg.tunnel, ..bare(leg) }));
        all.push(each(&|leg| adit::steer::Leg { table: 100, ..leg }));
        all.push(of(vec![leg(V4, 2, 50)]));
        all.push(of(vec![leg(V6, 1, 100), leg(V6, 2, 100)]));
    }
    all
}

#[test]
fn a_new_configuration_is_reached_from_any_other_without_a_gap() {
    let all = configurations();
    for before in &all {
        for after in &all {
            for costs in [[0, 0, 0], [DOWN, 0, DEGRADED]] {
                let mut rig = Rig::start(Kernel::with_devices(3), before.clone());
                rig.judge(&costs);
                rig.assert_settled();
                let mut rig = rig.restart(after.clone());
                rig.run();
                rig.judge(&costs);
                rig.assert_settled();
                let kept = |leg: &adit::steer::Leg| {
                    before.legs.iter().any(|was| (was.table, was.prefix) == (leg.table, leg.prefix))
                };
                assert!(
                    after.legs.iter().filter(|leg| kept(leg)).all(|leg| rig.kernel.carries(TAG, leg.table, leg.prefix))
                );
                assert_eq!(rig.refused, []);
            }
        }
    }
}

#[test]
fn a_kill_at_any_change_leaves_at_worst_what_the_next_start_sweeps() {
    for (before, after) in configurations().iter().zip(configurations().iter().cycle().skip(9)) {
        for life in 0.. {
            let mut rig = Rig::start(Kernel::with_devices(3), before.clone());
            rig.judge(&[0, 0, 0]);
            rig.life = Some(life);
            rig.judge(&[DOWN, 0, 0]);
            let whole = rig.life != Some(0);
            let mut rig = rig.restart(after.clone());
            rig.life = Some(life);
            rig.judge(&[0, DOWN, 0]);
            let mut rig = rig.restart(before.clone());
            rig.run();
            rig.judge(&[DOWN, DOWN, 0]);
            rig.assert_settled();
            if whole {
                break;
            }
        }
    }
}

#[test]
fn before_the_verdicts_the_routes_stay_as_they_were_found() {
    for mode in [Mode::Metric, Mode::Nexthop] {
        let mut rig = Rig::start(Kernel::with_devices(3), pair(mode));
        rig.judge(&[DOWN, 0]);
        let found = rig.kernel.part(TAG, true);
        let mut rig = rig.restart(pair(mode));
        assert_eq!(rig.run(), 0);
        assert_eq!(rig.kernel.part(TAG, true), found);
        // One verdict is none about the other tunnel.
        rig.verdict(1, 0);
        assert_eq!(rig.run(), 0);
        rig.verdict(0, DOWN);
        assert_eq!(rig.run(), 0);
        rig.assert_settled();
    }
}

#[test]
fn a_mode_that_changes_moves_no_traffic_before_the_verdicts() {
    for (before, after) in [(Mode::Metric, Mode::Nexthop), (Mode::Nexthop, Mode::Metric)] {
        let mut rig = Rig::start(Kernel::with_devices(3), pair(before));
        rig.judge(&[DOWN, 0]);
        let first = |rig: &Rig| BOTH.map(|prefix| rig.first(254, prefix.parse().unwrap()));
        let was = first(&rig);
        let mut rig = rig.restart(pair(after));
        while rig.step() {
            assert_eq!(first(&rig), was);
        }
        rig.judge(&[DOWN, 0]);
        rig.assert_settled();
    }
}

#[test]
fn what_is_surplus_goes_when_no_more_verdicts_are_waited_for() {
    let mut rig = Rig::start(Kernel::with_devices(3), pair(Mode::Metric));
    rig.judge(&[0, 0]);
    let mut rig = rig.restart(setup(Mode::Metric, [leg(V4, 0, 100)]));
    assert_eq!(rig.run(), 0);
    rig.fib.settle();
    assert_eq!(rig.run(), 3);
    rig.assert_settled();
}

#[test]
fn at_the_end_all_of_ours_goes_and_nothing_else() {
    for mode in [Mode::Metric, Mode::Nexthop] {
        let mut kernel = Kernel::with_devices(3);
        for prefix in BOTH {
            let theirs = adit::steer::KernelRoute {
                table: 254,
                prefix: prefix.parse().unwrap(),
                metric: 150,
                way: Way::Unreachable,
            };
            kernel.add(STATIC, &theirs, true).unwrap();
        }
        let index = kernel.index("gre0").unwrap();
        let hop = adit::steer::Hop { device: index, via: None, onlink: false, weight: 1 };
        kernel.objects.insert(7, (STATIC, adit::steer::Leads::Hop(adit::wire::Family::V4, hop)));
        kernel.rules.push((STATIC, super::setup::rule(1_000, 100)));
        let theirs = kernel.part(TAG, false);
        assert_eq!(theirs.len(), 4);
        let mut all = Setup { backstop: true, ..shared(mode) };
        all.rules = vec![super::setup::rule(1_000, 100)];
        let mut rig = Rig::start(kernel, all);
        rig.judge(&[0, DOWN, 0]);
        rig.assert_settled();
        rig.dismantle();
        assert_eq!(rig.kernel.part(TAG, true), [""; 0]);
        assert_eq!(rig.kernel.part(TAG, false), theirs);
        assert_eq!(rig.refused, []);
    }
}

#[test]
fn a_group_of_an_earlier_run_is_found_again() {
    let mut rig = Rig::start(Kernel::with_devices(3), shared(Mode::Nexthop));
    rig.judge(&[0, 0, 0]);
    let ids: Vec<u32> = rig.kernel.objects.keys().copied().collect();
    let mut turned = shared(Mode::Nexthop);
    turned.legs.reverse();
    let mut rig = rig.restart(turned);
    rig.judge(&[0, 0, 0]);
    assert_eq!(rig.changes, []);
    assert_eq!(rig.kernel.objects.keys().copied().collect::<Vec<_>>(), ids);
}

#[test]
fn a_weight_that_the_kernel_does_not_show_is_put_right_when_it_matters() {
    let legs = |weight| [heavy(leg(V6, 0, 100), 1), heavy(leg(V6, 1, 100), weight)];
    let mut rig = Rig::start(Kernel::with_devices(2), setup(Mode::Metric, legs(7)));
    rig.judge(&[DOWN, 0]);
    let mut rig = rig.restart(setup(Mode::Metric, legs(3)));
    rig.judge(&[DOWN, 0]);
    rig.assert_settled();
    rig.verdict(0, 0);
    rig.run();
    rig.assert_settled();
}

#[test]
fn an_object_that_stands_before_what_is_surplus_comes_back_behind_it() {
    // Killed when the object had been added, and then again when the hops had been.
    for life in 0..12 {
        for again in 0..12 {
            let mut rig = Rig::start(Kernel::with_devices(3), pair(Mode::Nexthop));
            rig.judge(&[0, 0]);
            let mut rig = rig.restart(pair(Mode::Metric));
            rig.life = Some(life);
            rig.judge(&[0, 0]);
            let mut rig = rig.restart(pair(Mode::Nexthop));
            rig.life = Some(again);
            rig.judge(&[0, 0]);
            let mut rig = rig.restart(pair(Mode::Nexthop));
            rig.run();
            rig.judge(&[DEGRADED, 0]);
            rig.assert_settled();
        }
    }
}

#[test]
fn a_gateway_more_waits_while_it_would_hide_an_object_from_every_picture() {
    let mut rig = Rig::start(Kernel::with_devices(2), setup(Mode::Metric, [leg(V6, 0, 100)]));
    rig.judge(&[0]);
    let mut rig = rig.restart(setup(Mode::Nexthop, [leg(V6, 0, 100)]));
    // A neighbour, a group of it, a route over that; then it is killed.
    rig.life = Some(3);
    rig.judge(&[0]);
    assert_eq!(rig.kernel.tables.values().map(Vec::len).sum::<usize>(), 2);
    let mut rig = rig.restart(setup(Mode::Metric, [leg(V6, 0, 100), leg(V6, 1, 100)]));
    rig.run();
    rig.judge(&[0, 0]);
    assert!(!rig.kernel.hid);
    rig.assert_settled();
}
