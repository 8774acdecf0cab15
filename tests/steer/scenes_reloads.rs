//! Another configuration while it runs.

use adit::steer::{Leg, Mode, Setup};

use super::kernel::{Kernel, TAG};
use super::rig::Rig;
use super::scenes_restarts::configurations;
use super::setup::{DEGRADED, DOWN, V4, V6, leg, pair, rule, setup};

/// The same tunnels under other numbers: the first becomes the last.
fn turned(setup: &Setup) -> Setup {
    let last = u32::try_from(setup.tunnels).unwrap() - 1;
    let legs = setup.legs.iter().map(|leg| Leg { tunnel: last - leg.tunnel, ..leg.clone() });
    Setup { legs: legs.collect(), ..setup.clone() }
}

#[test]
fn the_same_configuration_again_changes_nothing_whatever_it_is() {
    for before in configurations() {
        for costs in [[0, 0, 0], [DOWN, 0, DEGRADED], [DOWN, DOWN, DOWN]] {
            let mut rig = Rig::start(Kernel::with_devices(3), before.clone());
            rig.judge(&costs);
            let told = rig.standings.clone();
            let known: Vec<_> = costs.iter().copied().map(Some).collect();
            let mut rig = rig.reload(before.clone(), &known);
            assert_eq!((rig.run(), &rig.standings), (0, &told), "{before:#?}");
            // Under other numbers it is the same, too.
            let known: Vec<_> = known.into_iter().rev().collect();
            let mut rig = rig.reload(turned(&before), &known);
            assert_eq!(rig.run(), 0, "{before:#?}");
            rig.assert_settled();
            assert_eq!((rig.warnings, rig.drift), (Vec::new(), Vec::new()));
        }
    }
}

#[test]
fn any_other_configuration_is_reached_without_a_gap_and_without_a_word() {
    let all = configurations();
    for before in &all {
        for after in &all {
            let costs = [Some(DOWN), Some(0), Some(DEGRADED)];
            let mut rig = Rig::start(Kernel::with_devices(3), before.clone());
            rig.judge(&costs.map(Option::unwrap));
            let mut rig = rig.reload(after.clone(), &costs);
            rig.run();
            rig.assert_settled();
            assert_eq!((rig.refused, rig.warnings, rig.drift), (Vec::new(), Vec::new(), Vec::new()));
        }
    }
}

#[test]
fn what_is_not_wanted_any_more_waits_for_no_verdict() {
    for mode in [Mode::Metric, Mode::Nexthop] {
        let mut rig = Rig::start(Kernel::with_devices(3), pair(mode));
        rig.judge(&[DOWN, 0]);
        // The first prefix goes over a new tunnel from now on, the second one over none.
        let after = Setup { tunnels: 3, ..setup(mode, [leg(V4, 2, 100)]) };
        let mut rig = rig.reload(after, &[Some(DOWN), Some(0), None]);
        rig.run();
        assert!(rig.kernel.carries(TAG, 254, V4.parse().unwrap()));
        assert!(!rig.kernel.carries(TAG, 254, V6.parse().unwrap()));
        // The verdict, when it comes, moves what there is.
        rig.judge(&[DOWN, 0, DOWN]);
        rig.assert_settled();
    }
}

#[test]
fn a_tunnel_of_another_name_by_the_same_way_keeps_its_routes_as_they_were_found() {
    let mut rig = Rig::start(Kernel::with_devices(2), pair(Mode::Metric));
    rig.judge(&[DOWN, 0]);
    let mut rig = rig.reload(pair(Mode::Metric), &[None, Some(0)]);
    assert_eq!(rig.run(), 0);
    rig.judge(&[0, 0]);
    rig.assert_settled();
}

#[test]
fn where_nothing_is_wanted_any_more_all_of_ours_goes_and_nothing_else() {
    for before in configurations() {
        let before = Setup { rules: vec![rule(1_000, 100)], ..before };
        let mut rig = Rig::start(Kernel::with_devices(3), before.clone());
        rig.judge(&[0, DOWN, 0]);
        let others = rig.kernel.part(TAG, false);
        let mut rig = rig.reload(Setup::nothing(before.tunnels), &[Some(0), Some(DOWN), Some(0)]);
        rig.run();
        assert_eq!(rig.kernel.part(TAG, true), Vec::<String>::new());
        assert_eq!(rig.kernel.part(TAG, false), others);
        // And all of it comes back.
        let mut rig = rig.reload(before, &[Some(0), Some(DOWN), Some(0)]);
        rig.run();
        rig.assert_settled();
    }
}
