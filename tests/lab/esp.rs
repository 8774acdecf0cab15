//! ESP: what adit seals is opened by the kernel's IPsec, and the other way round.

use std::time::Duration;

use adit::engine::State;
use adit::wire::Family;
use adit::wire::esp::Algorithm;
use libtest_mimic::{Failed, Trial};

use crate::counters;
use crate::ipsec::{Case, Ipsec, Pace, Wrong, plain, policy};
use crate::router::{STYLES, Setting};

pub(crate) fn trials() -> Vec<Trial> {
    let each = Algorithm::ALL.into_iter().map(|algorithm| {
        let name = algorithm.name().replace('-', "_");
        let name = format!("linux_and_adit_open_what_the_other_seals_in_every_variant_of_{name}");
        Trial::test(name, move || every_variant(algorithm))
    });
    let others = [
        Trial::test("keys_or_spis_that_the_router_does_not_have_are_a_failure", wrong_associations),
        Trial::test("policies_and_settings_fail_the_styles_that_the_specification_says", router_settings),
    ];
    each.chain(others).collect()
}

/// Answers that each tunnel must have before the counters are looked at.
const ANSWERS: u64 = 6;

/// Four styles × outer × inner × ESN × UDP.
fn every_variant(algorithm: Algorithm) -> Result<(), Failed> {
    let mut cases = Vec::new();
    for style in STYLES {
        for outer in [Family::V4, Family::V6] {
            for inner in [Family::V4, Family::V6] {
                for esn in [true, false] {
                    cases.extend([true, false].map(|udp| Case { algorithm, outer, inner, esn, udp, ..plain(style) }));
                }
            }
        }
    }
    let ipsec = Ipsec::new(&cases, Pace::Patient)?;
    let lab = &ipsec.lab;
    lab.all_become(State::Healthy, Duration::from_secs(60))?;
    lab.until(Duration::from_secs(60), "answered often", |view| view.counters.received >= ANSWERS)?;
    lab.none_rejected()?;
    let [opened, sealed] = counters::each_probe_was_opened(lab, &cases, 0)?;
    println!(
        "lab: {}: {} variants healthy (4 styles, outer IPv4 and IPv6, inner IPv4 and IPv6, ESN on and off, bare and in \
         UDP); the router opened {opened} packets, sealed {sealed}, refused none",
        algorithm.name(),
        cases.len()
    );
    Ok(())
}

/// A router that cannot open a probe, or find its association, says nothing to it, but counts. An answer
/// that adit cannot open it refuses by name; one with an SPI that it does not know it never sees.
fn wrong_associations() -> Result<(), Failed> {
    let of = |wrong| Algorithm::ALL.map(|algorithm| Case { algorithm, wrong, ..plain(STYLES[0]) });
    let wrongs = [Wrong::KeyOut, Wrong::KeyIn, Wrong::SpiOut, Wrong::SpiIn];
    let ipsec = Ipsec::new(&wrongs.map(of).concat(), Pace::Brisk)?;
    ipsec.lab.all_become(State::Down, Duration::from_secs(30))?;
    for (view, case) in ipsec.lab.views().iter().zip(&ipsec.cases) {
        let reject = view.last_reject.as_ref().map(|reject| reject.reason.as_str());
        let expected = (case.wrong == Wrong::KeyIn).then_some("esp-icv");
        if reject != expected || (view.counters.forged > 0) != expected.is_some() || view.counters.received > 0 {
            return Err(format!("{case}: {reject:?}, {:?}", view.counters).into());
        }
    }
    let refused: Vec<String> = counters::refused(&ipsec.lab.net)?.into_keys().collect();
    let expected = ["XfrmInNoStates", "XfrmInStateProtoError"];
    if refused == expected { Ok(()) } else { Err(format!("the router refused by {refused:?}").into()) }
}

/// The table "What the far router must be set to" of the specification, and that the answers of
/// bidirectional styles need an `out` policy. What was sealed passes the reverse path filter.
fn router_settings() -> Result<(), Failed> {
    let [req_bi, rep_bi, req_uni, rep_uni] = [0, 1, 2, 3];
    let ipsec = Ipsec::new(&STYLES.map(plain), Pace::Brisk)?;
    let policies = |verb: &str, direction| {
        let one = |(number, case)| policy(verb, direction, number, case).map(|line| format!("ip {line}"));
        (1..).zip(&ipsec.cases).filter_map(one).collect::<String>()
    };
    let without = |direction| Setting { wrong: policies("delete", direction), right: policies("add", direction) };
    ipsec.lab.settings_fail(&[
        ("no policy in", without("in"), &[req_bi, req_uni]),
        ("no policy fwd", without("fwd"), &[rep_bi, rep_uni]),
        ("no policy out", without("out"), &[req_bi, rep_bi]),
        ("accept_local=0", Setting::device("wan", "accept_local", 0, 1), &[rep_bi, rep_uni]),
        ("ip_forward=0", Setting::global("ip_forward", 0, 1), &[rep_bi, rep_uni]),
        ("rp_filter=1", Setting::device("wan", "rp_filter", 1, 0), &[]),
        ("icmp_echo_ignore_all=1", Setting::global("icmp_echo_ignore_all", 1, 0), &[req_bi, req_uni]),
    ])
}
