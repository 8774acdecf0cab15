//! Devices that come and go, and gateways that cannot be reached.

use adit::engine::Standing;
use adit::steer::Mode;

use super::kernel::Kernel;
use super::rig::Rig;
use super::setup::{BOTH, DOWN, V4, V6, gateway, leg, pair, setup, shared};

const MODES: [Mode; 2] = [Mode::Metric, Mode::Nexthop];

#[test]
fn a_device_that_is_missing_is_waited_for() {
    for mode in MODES {
        let mut rig = Rig::start(Kernel::with_devices(1), pair(mode));
        rig.judge(&[0, 0]);
        rig.assert_settled();
        let missing = Standing::Waiting("there is no device gre1".to_owned());
        assert_eq!([&rig.standings[&1], &rig.standings[&3]], [&missing, &missing]);
        rig.kernel.create("gre1");
        rig.look();
        rig.run();
        rig.assert_settled();
        assert!(
            rig.standings.values().all(|standing| matches!(standing, Standing::Installed(_))),
            "{:?}",
            rig.standings
        );
    }
}

#[test]
fn a_device_that_goes_and_comes_back_is_used_again() {
    type Act = fn(&mut Kernel, &str);
    let acts: [(Act, Act, &str); 2] = [
        (Kernel::down, Kernel::up, "device gre0 is down"),
        (Kernel::remove, Kernel::create, "there is no device gre0"),
    ];
    for mode in MODES {
        for of in [pair, shared] {
            for (go, come, why) in acts {
                let mut rig = Rig::start(Kernel::with_devices(3), of(mode));
                rig.judge(&vec![0; of(mode).tunnels]);
                let before = rig.kernel.index("gre0");
                go(&mut rig.kernel, "gre0");
                rig.look();
                rig.run();
                assert_eq!(rig.drift, [], "what goes with a device is no drift");
                rig.assert_settled();
                assert_eq!(rig.standings[&0], Standing::Waiting(why.to_owned()));
                come(&mut rig.kernel, "gre0");
                rig.look();
                rig.run();
                assert_eq!(rig.drift, []);
                rig.assert_settled();
                assert!(matches!(rig.standings[&0], Standing::Installed(_)));
                assert!(why.contains("down") || rig.kernel.index("gre0") != before);
            }
        }
    }
}

#[test]
fn a_device_that_went_and_came_unseen_is_noticed() {
    for mode in MODES {
        let mut rig = Rig::start(Kernel::with_devices(3), pair(mode));
        rig.judge(&[0, 0]);
        for _ in 0..2 {
            rig.kernel.remove("gre0");
            rig.kernel.create("gre0");
            rig.look();
            rig.run();
            rig.assert_settled();
        }
        rig.kernel.down("gre0");
        rig.kernel.up("gre0");
        rig.outside = true;
        rig.look();
        rig.run();
        rig.assert_settled();
    }
}

#[test]
fn all_devices_may_go_at_once() {
    for mode in MODES {
        let mut rig = Rig::start(Kernel::with_devices(3), shared(mode));
        rig.judge(&[0, DOWN, 0]);
        (0..3).for_each(|number| rig.kernel.down(&format!("gre{number}")));
        rig.look();
        assert_eq!(rig.run(), 0);
        (0..3).for_each(|number| rig.kernel.up(&format!("gre{number}")));
        rig.look();
        rig.run();
        rig.assert_settled();
    }
}

#[test]
fn a_namespace_that_was_lost_is_filled_again() {
    for mode in MODES {
        let mut rig = Rig::start(Kernel::with_devices(2), pair(mode));
        rig.judge(&[0, 0]);
        rig.fib.handle_lost("network namespace blue: there is none");
        rig.kernel = Kernel::with_devices(2);
        rig.standings.extend(rig.fib.poll_standings());
        let lost = Standing::Waiting("network namespace blue: there is none".to_owned());
        assert!(rig.standings.values().all(|standing| *standing == lost));
        rig.verdict(0, DOWN);
        assert!(rig.fib.poll_changes().is_empty());
        rig.look();
        rig.run();
        assert_eq!(rig.drift, []);
        rig.assert_settled();
        assert!(rig.standings.values().all(|standing| matches!(standing, Standing::Installed(_))));
    }
}

#[test]
fn a_refused_route_is_told_in_the_kernels_words_and_harms_no_other() {
    for mode in MODES {
        let mut kernel = Kernel::with_devices(3);
        kernel.unreachable = BOTH.iter().map(|prefix| gateway(&prefix.parse().unwrap(), 0)).collect();
        let mut rig = Rig::start(kernel, shared(mode));
        rig.judge(&[0, 0, 0]);
        assert_eq!(rig.standings[&0], Standing::Refused("Nexthop has invalid gateway".to_owned()));
        assert_eq!(rig.standings[&3], Standing::Refused("No route to host".to_owned()));
        for installed in [1, 2, 4, 5] {
            assert!(matches!(rig.standings[&installed], Standing::Installed(_)), "{installed}");
        }
        rig.assert_as_wanted();
        let refused = rig.refused.len();
        rig.verdict(1, DOWN);
        rig.run();
        rig.verdict(1, 0);
        rig.run();
        assert_eq!(rig.refused.len(), refused, "it was tried again before there was anything new to see");
        rig.kernel.unreachable.clear();
        rig.look();
        rig.run();
        rig.assert_settled();
        assert!(matches!(rig.standings[&0], Standing::Installed(_)));
    }
}

#[test]
fn a_refused_change_leaves_the_old_route_where_nothing_else_carries_the_traffic() {
    let single = |mode| setup(mode, BOTH.map(|prefix| leg(prefix, 0, 100)));
    let mut rig = Rig::start(Kernel::with_devices(2), single(Mode::Metric));
    rig.judge(&[0]);
    rig.kernel.full = true;
    rig.verdict(0, DOWN);
    rig.run();
    for prefix in [V4, V6] {
        assert_eq!(rig.has(254, prefix.parse().unwrap()).into_keys().collect::<Vec<_>>(), [100]);
    }
    assert_eq!(rig.standings[&0], Standing::Refused("Cannot allocate memory".to_owned()));
    rig.kernel.full = false;
    rig.look();
    rig.run();
    rig.assert_settled();
}

#[test]
fn a_tunnel_whose_better_place_is_refused_keeps_the_worse_one() {
    let mut rig = Rig::start(Kernel::with_devices(2), pair(Mode::Metric));
    rig.judge(&[DOWN, DOWN]);
    rig.kernel.full = true;
    rig.verdict(0, 0);
    rig.run();
    for prefix in BOTH {
        let places: Vec<u32> = rig.has(254, prefix.parse().unwrap()).into_keys().collect();
        assert_eq!(places, [1_000_100, 1_000_200]);
    }
    // But no longer a better one than it deserves, if there is another tunnel.
    rig.kernel.full = false;
    rig.look();
    rig.run();
    rig.assert_settled();
    rig.kernel.full = true;
    rig.verdict(0, DOWN);
    rig.run();
    for prefix in BOTH {
        assert_eq!(rig.has(254, prefix.parse().unwrap()).into_keys().collect::<Vec<_>>(), [1_000_200]);
    }
}
