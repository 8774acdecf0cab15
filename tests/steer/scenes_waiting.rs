//! Tunnels without a verdict: their routes stay as they were found, whatever becomes of the others.

use std::collections::BTreeSet;

use adit::engine::Standing;
use adit::steer::{Mode, Setup};

use super::kernel::{Kernel, TAG};
use super::rig::Rig;
use super::setup::{BOTH, DEGRADED, DOWN, pair, shared};

const MODES: [Mode; 2] = [Mode::Metric, Mode::Nexthop];

/// The devices that packets leave by: those of the lowest metric.
fn devices(rig: &Rig) -> Vec<String> {
    let devices = BOTH.map(|prefix| {
        let (_, hops) = rig.has(254, prefix.parse().unwrap()).pop_first().unwrap();
        hops.into_iter().map(|hop| rig.kernel.devices[&hop.0].name.clone()).collect::<BTreeSet<_>>()
    });
    assert_eq!(devices[0], devices[1], "both families by the same devices");
    devices[0].iter().cloned().collect()
}

/// A rig that finds what these verdicts have led to, and has none itself.
fn found(setup: &Setup, costs: &[u32]) -> Rig {
    let mut rig = Rig::start(Kernel::with_devices(3), setup.clone());
    rig.judge(costs);
    let mut rig = rig.restart(setup.clone());
    assert_eq!(rig.run(), 0);
    rig
}

#[test]
fn who_never_gets_a_verdict_stays_out_of_the_group_that_was_found_without_it() {
    let mut rig = found(&pair(Mode::Nexthop), &[DOWN, 0]);
    rig.verdict(1, 0);
    rig.run();
    assert_eq!(devices(&rig), ["gre1"]);
    rig.fib.settle();
    rig.run();
    assert_eq!(devices(&rig), ["gre1"], "traffic went to a tunnel that was down and that nothing is known of");
    // One that may be down is not worse than one that surely is.
    rig.verdict(1, DOWN);
    rig.run();
    assert_eq!(devices(&rig), ["gre0"]);
    rig.verdict(1, 0);
    rig.verdict(0, 0);
    rig.run();
    rig.assert_settled();
}

#[test]
fn who_never_gets_a_verdict_stays_in_the_group_that_was_found_with_it() {
    let mut rig = found(&pair(Mode::Nexthop), &[0, 0]);
    rig.verdict(1, 0);
    rig.fib.settle();
    rig.run();
    assert_eq!(devices(&rig), ["gre0"]);
    rig.assert_settled();
}

#[test]
fn of_tunnels_that_share_a_prefix_each_is_taken_as_it_was_found() {
    for mode in MODES {
        let mut rig = found(&shared(mode), &[DOWN, 0, 0]);
        rig.verdict(2, 0);
        rig.fib.settle();
        rig.run();
        assert_eq!(devices(&rig), ["gre1", "gre2"], "{mode:?}");
        rig.verdict(1, DOWN);
        rig.run();
        assert_eq!(devices(&rig), ["gre2"], "{mode:?}");
        rig.verdict(0, 0);
        rig.run();
        rig.assert_settled();
    }
}

#[test]
fn a_standby_without_a_verdict_takes_over_from_a_tunnel_that_is_down() {
    for mode in MODES {
        for settled in [false, true] {
            for mut rig in [found(&pair(mode), &[0, 0]), Rig::start(Kernel::with_devices(2), pair(mode))] {
                rig.run();
                if settled {
                    rig.fib.settle();
                }
                rig.verdict(0, DOWN);
                rig.run();
                assert_eq!(devices(&rig), ["gre1"], "{mode:?}");
            }
        }
    }
}

#[test]
fn where_nothing_was_found_all_count_as_well() {
    for mode in MODES {
        let mut rig = Rig::start(Kernel::with_devices(2), pair(mode));
        rig.run();
        rig.verdict(1, 0);
        rig.fib.settle();
        rig.run();
        assert_eq!(devices(&rig), ["gre0"], "{mode:?}");
        rig.assert_settled();
    }
}

#[test]
fn a_drain_that_ends_before_any_verdict_leaves_no_trace() {
    for mode in MODES {
        // While verdicts are waited for, and when they are not any more.
        for other in [None, Some(0)] {
            let mut rig = Rig::start(Kernel::with_devices(2), pair(mode));
            rig.run();
            other.into_iter().for_each(|cost| rig.verdict(1, cost));
            for cost in [DEGRADED, DOWN] {
                rig.verdict(0, cost);
                rig.run();
                assert_eq!(devices(&rig), ["gre1"], "{mode:?}");
                rig.forget(0);
                rig.run();
                assert_eq!(devices(&rig), ["gre0"], "{mode:?}");
                rig.assert_settled();
                let metric = (mode == Mode::Nexthop).then_some(100);
                assert_eq!(rig.standings[&0], Standing::Installed(metric), "{mode:?}");
            }
        }
    }
}

#[test]
fn after_a_drain_without_a_verdict_routes_are_as_they_were_found() {
    for mode in MODES {
        for costs in [[0, 0], [DOWN, 0], [DEGRADED, DOWN]] {
            for other in [None, Some(costs[1])] {
                let mut rig = found(&pair(mode), &costs);
                let was = rig.kernel.part(TAG, true);
                other.into_iter().for_each(|cost| rig.verdict(1, cost));
                rig.verdict(0, DEGRADED + DOWN);
                rig.run();
                rig.forget(0);
                rig.run();
                rig.look();
                rig.run();
                assert_eq!(rig.kernel.part(TAG, true), was, "{mode:?}, found with {costs:?}, then {other:?}");
                // By metric it costs what it was found with, for which there is no verdict.
                let metric =
                    if mode == Mode::Nexthop { Some(100) } else { Some(100 + costs[0]).filter(|_| costs[0] > 0) };
                assert_eq!(rig.standings[&0], Standing::Installed(metric), "{mode:?}, found with {costs:?}");
                // And a verdict counts as always.
                rig.judge(&[0, 0]);
                rig.assert_settled();
            }
        }
    }
}
