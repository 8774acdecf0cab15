//! Verdicts: law 6, and what they cost.

use adit::steer::{Change, Fib, Leg, Link, Mode, Picture};

use super::kernel::Kernel;
use super::rig::Rig;
use super::setup::{BOTH, DEGRADED, DOWN, bare, heavy, leg, pair, rule, setup, shared};

const COSTS: [u32; 3] = [0, DEGRADED, DOWN];
const MODES: [Mode; 2] = [Mode::Metric, Mode::Nexthop];

/// Every state of every tunnel after every other, one verdict at a time.
fn walk(setup: &adit::steer::Setup) {
    let tunnels = u32::try_from(setup.tunnels).unwrap();
    let mut rig = Rig::start(Kernel::with_devices(tunnels), setup.clone());
    rig.judge(&vec![0; setup.tunnels]);
    rig.assert_settled();
    for tunnel in (0..tunnels).cycle().take(12) {
        for cost in COSTS {
            for other in COSTS {
                rig.verdict((tunnel + 1) % tunnels, other);
                rig.verdict(tunnel, cost);
                rig.run();
                rig.assert_as_wanted();
            }
        }
        rig.assert_settled();
    }
    assert_eq!(rig.refused, []);
    assert_eq!(rig.warnings, [""; 0]);
}

#[test]
fn law_6_no_verdict_leaves_a_prefix_without_a_route_for_a_single_change() {
    MODES.into_iter().for_each(|mode| walk(&pair(mode)));
}

#[test]
fn law_6_holds_where_tunnels_share_a_prefix_by_weight() {
    MODES.into_iter().for_each(|mode| walk(&shared(mode)));
}

#[test]
fn law_6_holds_over_devices_alone() {
    for mode in MODES {
        let legs = BOTH.into_iter().flat_map(|prefix| [bare(leg(prefix, 0, 100)), bare(leg(prefix, 1, 200))]);
        walk(&setup(mode, legs));
    }
}

#[test]
fn law_6_holds_over_gateways_whose_device_the_kernel_finds() {
    let legs = BOTH.into_iter().flat_map(|prefix| [leg(prefix, 0, 100), heavy(leg(prefix, 1, 100), 7)]);
    let mut setup = setup(Mode::Metric, legs);
    setup.legs.iter_mut().for_each(|leg| leg.device = None);
    walk(&setup);
}

#[test]
fn law_6_holds_when_verdicts_come_between_the_changes_for_others() {
    for mode in MODES {
        for seed in 0..400_u32 {
            let mut rig = Rig::start(Kernel::with_devices(3), shared(mode));
            rig.judge(&[0, 0, 0]);
            let mut random = seed.wrapping_mul(2_654_435_761);
            for _ in 0..12 {
                random = random.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                rig.verdict((random >> 16) % 3, COSTS[((random >> 20) % 3) as usize]);
                rig.step();
            }
            rig.run();
            rig.assert_settled();
        }
    }
}

#[test]
fn equal_devices_without_a_gateway_are_not_shared_by_ipv6_and_it_is_said() {
    let legs = BOTH.into_iter().flat_map(|prefix| [bare(leg(prefix, 0, 100)), bare(leg(prefix, 1, 100))]);
    let setup = setup(Mode::Metric, legs);
    walk(&setup);
    let mut rig = Rig::start(Kernel::with_devices(2), setup);
    rig.judge(&[0, 0]);
    let why = "Linux shares no IPv6 prefix among devices without a gateway, and another route has metric 100";
    assert_eq!(rig.standings[&3], adit::engine::Standing::Waiting(why.to_owned()));
    assert_eq!(rig.standings[&2], adit::engine::Standing::Installed(None));
}

#[test]
fn a_verdict_is_two_changes_a_route_by_metric() {
    let prefixes = (0..10_000_u32).map(|number| format!("10.{}.{}.0/24", number / 256, number % 256));
    let legs = prefixes.flat_map(|prefix| [leg(&prefix, 0, 100), leg(&prefix, 1, 200)]);
    let mut rig = Rig::start(Kernel::with_devices(2), setup(Mode::Metric, legs.collect::<Vec<_>>()));
    rig.judge(&[0, 0]);
    assert_eq!(rig.changes.len(), 20_000);
    for cost in [DOWN, DEGRADED, 0] {
        rig.verdict(0, cost);
        assert_eq!(rig.run(), 20_000);
    }
    rig.assert_settled();
}

#[test]
fn a_verdict_is_one_change_by_groups_however_many_prefixes() {
    let prefixes = (0..2_000_u32).map(|number| format!("10.{}.{}.0/24", number / 256, number % 256));
    let legs = prefixes.flat_map(|prefix| [leg(&prefix, 0, 100), leg(&prefix, 1, 200)]);
    let mut rig = Rig::start(Kernel::with_devices(2), setup(Mode::Nexthop, legs.collect::<Vec<_>>()));
    rig.judge(&[0, 0]);
    // Two neighbours, a group of them, and the routes.
    assert_eq!(rig.changes.len(), 2_003);
    for cost in [DOWN, 0] {
        rig.verdict(0, cost);
        assert_eq!(rig.run(), 1);
        assert!(matches!(rig.changes.last(), Some(Change::ReplaceNexthop(_))));
    }
    rig.assert_settled();
}

#[test]
fn what_is_as_it_was_is_not_written_again() {
    for mode in MODES {
        let mut rig = Rig::start(Kernel::with_devices(3), shared(mode));
        rig.judge(&[0, DOWN, 0]);
        rig.verdict(1, DOWN);
        assert_eq!(rig.run(), 0);
        let mut rig = rig.restart(shared(mode));
        assert_eq!(rig.run(), 0, "before the verdicts");
        rig.judge(&[0, DOWN, 0]);
        let written = rig.changes.len();
        assert_eq!(written, 0, "{:?}", rig.changes);
        rig.assert_settled();
    }
}

#[test]
fn rules_are_made_before_anything_and_go_after_everything() {
    let mut with = pair(Mode::Metric);
    with.rules = vec![rule(1_000, 100), rule(1_001, 101)];
    let mut rig = Rig::start(Kernel::with_devices(2), with.clone());
    rig.judge(&[0, 0]);
    assert!(matches!(rig.changes[..2], [Change::AddRule(_), Change::AddRule(_)]));
    rig.assert_settled();
    with.rules.remove(0);
    let mut rig = rig.restart(with);
    assert_eq!(rig.run(), 0);
    rig.judge(&[DOWN, 0]);
    assert_eq!(rig.changes.last(), Some(&Change::DeleteRule(rule(1_000, 100))));
    rig.assert_settled();
}

#[test]
fn there_are_numbers_for_more_objects_than_anybody_has_tunnels() {
    let legs = (0..40_000_u32).map(|tunnel| {
        let prefix = format!("10.{}.{}.0/24", tunnel / 256, tunnel % 256);
        Leg { tunnel, device: Some(format!("gre{tunnel}")), ..bare(leg(&prefix, 0, 100)) }
    });
    let setup = setup(Mode::Nexthop, legs.collect::<Vec<_>>());
    let link = |number: u32| Link { index: number + 2, name: format!("gre{number}"), up: true };
    let links = (0..40_000).map(link).collect();
    let mut fib = Fib::new(super::kernel::TAG, setup);
    fib.handle_picture(Picture { links, nexthops: Some(Vec::new()), ..Picture::default() });
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let changes = fib.poll_changes();
        ids.extend(
            changes.iter().filter_map(|change| if let Change::AddNexthop(new) = change { Some(new.id) } else { None }),
        );
        fib.handle_outcome(Vec::new());
    }
    assert_eq!(ids.len(), 80_000);
}

#[test]
fn the_first_of_many_prefixes_do_not_wait_for_the_others() {
    let prefixes = (0..2_000_u32).map(|number| format!("10.{}.{}.0/24", number / 256, number % 256));
    // The kernel lists them in another order.
    let prefixes: Vec<String> = prefixes.collect::<Vec<_>>().into_iter().rev().collect();
    let legs = prefixes.iter().flat_map(|prefix| [leg(prefix, 0, 100), leg(prefix, 1, 200)]);
    let mut rig = Rig::start(Kernel::with_devices(2), setup(Mode::Metric, legs));
    rig.judge(&[0, 0]);
    rig.verdict(0, DOWN);
    let mut batches = Vec::new();
    let mut before = rig.changes.len();
    while rig.step() {
        batches.push(rig.changes.len() - before);
        before = rig.changes.len();
    }
    assert_eq!(batches[..6], [32, 32, 64, 64, 128, 128], "new before old, and more each time");
    assert_eq!(batches.iter().max(), Some(&512));
    assert_eq!(batches.iter().sum::<usize>(), 2 * 2_000);
    rig.assert_settled();
    rig.assert_as_wanted();
}
