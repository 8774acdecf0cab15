//! What bears our tag and nothing asks for: it goes, that is told, and then it is forgotten.

use adit::steer::{Hop, KernelRoute, Mode, Setup, Way};

use super::kernel::{Kernel, TAG};
use super::rig::Rig;
use super::setup::{pair, rule};

const MODES: [Mode; 2] = [Mode::Metric, Mode::Nexthop];

fn prefix(number: usize) -> String {
    format!("10.{}.{}.0/24", 64 + number / 256, number % 256)
}

fn stray(kernel: &Kernel, number: usize) -> KernelRoute {
    let hop = Hop { device: kernel.index("gre0").unwrap(), via: None, onlink: false, weight: 1 };
    let prefix = prefix(number).parse().unwrap();
    KernelRoute { table: 254, prefix, metric: 9, way: Way::Hops(vec![hop]) }
}

/// A kernel with so many routes of ours that nothing asks for.
fn littered(count: usize) -> Kernel {
    let mut kernel = Kernel::with_devices(2);
    for number in 0..count {
        let route = stray(&kernel, number);
        kernel.add(TAG, &route, true).unwrap();
    }
    kernel
}

/// Whatever a sweep of so many things says, it says once.
fn assert_told(rig: &Rig, count: usize, examples: &[&str]) {
    let [warning] = &rig.warnings[..] else { panic!("{} of {count} things: {:?}", rig.warnings.len(), rig.warnings) };
    let said = |number: &str| warning.split(|c: char| !c.is_ascii_digit()).any(|word| word == number);
    assert!(said(&count.to_string()), "{count} are not said: {warning}");
    assert!(examples.iter().any(|example| warning.contains(example)), "none of {examples:?} in {warning}");
    assert!(warning.len() < 2_000, "some are enough: {warning}");
}

#[test]
fn a_sweep_of_routes_is_told_once_with_their_number() {
    for mode in MODES {
        // More than one batch.
        let count = 1_500;
        let mut rig = Rig::start(littered(count), pair(mode));
        rig.judge(&[0, 0]);
        rig.assert_settled();
        let examples: Vec<String> = (0..count).map(prefix).collect();
        assert_told(&rig, count, &examples.iter().map(String::as_str).collect::<Vec<_>>());
        rig.look();
        rig.run();
        assert_eq!(rig.warnings.len(), 1, "{:?}", rig.warnings);
    }
}

#[test]
fn a_sweep_of_rules_is_told_once_with_their_number() {
    let mut kernel = Kernel::with_devices(2);
    kernel.rules.extend((1_000..1_037).map(|priority| (TAG, rule(priority, 100))));
    let mut rig = Rig::start(kernel, Setup { rules: vec![rule(1_000, 100)], ..pair(Mode::Metric) });
    rig.judge(&[0, 0]);
    rig.assert_settled();
    assert_told(&rig, 36, &["1001", "1002", "1036"]);
}

#[test]
fn without_a_sweep_nothing_is_told_of_one() {
    for mode in MODES {
        let mut rig = Rig::start(Kernel::with_devices(2), pair(mode));
        rig.judge(&[0, 0]);
        let mut rig = rig.restart(pair(mode));
        rig.judge(&[super::setup::DOWN, 0]);
        rig.assert_settled();
        assert_eq!(rig.warnings, [""; 0]);
    }
}

#[test]
fn what_has_gone_for_good_is_forgotten() {
    let mut rig = Rig::start(littered(0), pair(Mode::Metric));
    rig.judge(&[0, 0]);
    rig.look();
    let size = format!("{:?}", rig.fib).len();
    for round in 0..4 {
        for number in 100 * round..100 * (round + 1) {
            let route = stray(&rig.kernel, number);
            rig.kernel.add(TAG, &route, true).unwrap();
        }
        rig.outside = true;
        rig.look();
        rig.run();
        rig.assert_settled();
        // Whatever the planner still holds of them shows in how it prints itself.
        let text = format!("{:?}", rig.fib);
        let held = (0..400).filter(|number| text.contains(&prefix(*number))).count();
        assert_eq!(held, 0, "of 100 prefixes that are gone, in round {round}");
        assert!(text.len() < size + 10_000, "it grows: {size}, then {}", text.len());
    }
}
