//! GRE: the router's devices are the kernel's, this side's packets are adit's own.

use std::time::Duration;

use adit::config::Config;
use adit::daemon::plan::Plan;
use adit::engine::State;
use adit::engine::snapshot::TunnelView;
use adit::io::netns;
use adit::wire::{Direction, Family, Kind, Style};
use libtest_mimic::{Failed, Trial};

use crate::router::{Addresses, Lab, Net, STYLES, Setting, addresses, run, whole};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a_linux_router_answers_every_style_in_every_family_and_every_gre_variant", every_variant),
        Trial::test("a_wrong_or_missing_key_is_a_failure", wrong_keys),
        Trial::test("a_device_that_goes_down_is_found_and_so_is_its_return", device_down_and_up),
        Trial::test("loss_in_the_kernel_degrades_and_does_not_break", netem_loss),
        Trial::test("a_vrf_that_probes_leave_by_may_come_and_go", vrf_gone_and_made_again),
        Trial::test("router_settings_fail_the_styles_that_the_specification_says", router_settings),
    ]
}

/// The key at this side and at the router's.
#[derive(Debug, Clone, Copy)]
enum Key {
    None,
    Same(u32),
    Differs(u32, u32),
    OnlyHere(u32),
    OnlyThere(u32),
}

#[derive(Debug, Clone, Copy)]
struct Case {
    style: Style,
    outer: Family,
    inner: Family,
    key: Key,
    checksum: bool,
    sequence: bool,
}

const fn plain(style: Style) -> Case {
    Case { style, outer: Family::V4, inner: Family::V4, key: Key::None, checksum: false, sequence: false }
}

fn lab(cases: &[Case]) -> Result<Lab, Failed> {
    lab_by(cases, "")
}

/// Probes leave by what `way` says in each tunnel's configuration.
fn lab_by(cases: &[Case], way: &str) -> Result<Lab, Failed> {
    let tunnel = |(number, case)| tunnel(number, case).replacen("encapsulation", &format!("{way}encapsulation"), 1);
    let text: String = (1..).zip(cases).map(tunnel).collect();
    let config = Config::parse("lab.toml", &text).map_err(|problems| Failed::from(problems.to_string()))?;
    let mut plan = Plan::new(config);
    // What one trial knows is nothing to another.
    plan.state_dir = None;
    plan.access = None;
    let script: String = (1..).zip(cases).map(|(number, case)| device(number, case)).collect();
    Lab::start(Net::new(&script)?, cases.iter().map(|case| format!("{case:?}")).collect(), plan)
}

/// Four styles × inner × outer × {plain, key, checksum, sequence, all}. The answers of a
/// unidirectional probe are bare and in its inner family.
fn every_variant() -> Result<(), Failed> {
    let variants = [
        (Key::None, false, false),
        (Key::Same(4711), false, false),
        (Key::None, true, false),
        (Key::None, false, true),
        (Key::Same(4711), true, true),
    ];
    let mut cases = Vec::new();
    for style in STYLES {
        for outer in [Family::V4, Family::V6] {
            for inner in [Family::V4, Family::V6] {
                for (key, checksum, sequence) in variants {
                    cases.push(Case { style, outer, inner, key, checksum, sequence });
                }
            }
        }
    }
    let lab = lab(&cases)?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    lab.none_rejected()
}

fn wrong_keys() -> Result<(), Failed> {
    let with = |key| Case { key, ..plain(STYLES[0]) };
    let v6 = |key| Case { outer: Family::V6, ..with(key) };
    let cases = [Key::Differs(1, 2), Key::OnlyHere(1), Key::OnlyThere(2)];
    let cases: Vec<Case> = cases.into_iter().flat_map(|key| [with(key), v6(key)]).collect();
    let lab = lab(&cases)?;
    lab.all_become(State::Down, Duration::from_secs(30))?;
    // The router says why; Linux limits how often, so not of every tunnel at once.
    lab.some_hint("it has no such tunnel", Duration::from_secs(20))
}

fn device_down_and_up() -> Result<(), Failed> {
    let lab = lab(&STYLES.map(plain))?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    lab.router("for n in 1 2 3 4; do ip link set t$n down; done")?;
    lab.all_become(State::Down, Duration::from_secs(20))?;
    lab.router("for n in 1 2 3 4; do ip link set t$n up; done")?;
    lab.restore_after_link_up()?;
    lab.all_become(State::Degraded, Duration::from_secs(20))
}

/// The VRF of `wan` is missing at the start, there, missing, and another one under the same name.
fn vrf_gone_and_made_again() -> Result<(), Failed> {
    let case = plain(STYLES[0]);
    let lab = lab_by(&[case, Case { outer: Family::V6, ..case }], "underlay_device = \"red\"\n")?;
    let near = |script: &str| netns::within(Some(&lab.net.near), || run(script));
    let missing = |view: &TunnelView| {
        let reason = view.last_failure.as_ref().map(|failure| failure.reason.as_str());
        view.state == State::Down && reason == Some("not sent: underlay_device red is missing")
    };
    for _ in 0..2 {
        lab.until(Duration::from_secs(20), "down for want of the VRF", missing)?;
        // What a device gets another master with, it loses its IPv6 addresses and its routes by.
        near(
            "ip link add red type vrf table 10; ip link set red up; ip link set wan master red
              ip -6 addr replace 2001:db8::1/64 dev wan nodad
              ip route replace 198.51.100.0/24 dev wan table 10
              ip -6 route replace 2001:db8:1::/64 dev wan table 10",
        )?;
        lab.until(Duration::from_secs(20), "back", |view| view.state != State::Down)?;
        near("ip link del red")?;
    }
    lab.until(Duration::from_secs(20), "down for want of the VRF", missing)?;
    lab.none_rejected()
}

fn netem_loss() -> Result<(), Failed> {
    let lab = lab(&STYLES.map(plain))?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    lab.router("tc qdisc add dev wan root netem loss 20% limit 100000")?;
    lab.all_become(State::Degraded, Duration::from_secs(60))?;
    lab.router("tc qdisc replace dev wan root netem delay 30ms limit 100000")?;
    lab.rtt_reaches(Duration::from_millis(30), Duration::from_secs(20))
}

/// The table "What the far router must be set to" of the specification, one setting at a time.
fn router_settings() -> Result<(), Failed> {
    let [req_bi, rep_bi, req_uni, rep_uni] = [0, 1, 2, 3];
    let lab = lab(&STYLES.map(plain))?;
    lab.settings_fail(&[
        ("accept_local=0", Setting::device("t*", "accept_local", 0, 1), &[rep_bi, rep_uni]),
        ("ip_forward=0", Setting::global("ip_forward", 0, 1), &[rep_bi, rep_uni]),
        ("rp_filter=1", Setting::device("t*", "rp_filter", 1, 0), &[req_uni, rep_uni]),
        ("icmp_echo_ignore_all=1", Setting::global("icmp_echo_ignore_all", 1, 0), &[req_bi, req_uni]),
    ])
}

/// The router's side of one tunnel, as an operator would type it.
fn device(number: usize, case: &Case) -> String {
    let Addresses { outer: [p, o], inner: [_, t1], prefix } = of(number, case);
    let mut options = String::new();
    match case.key {
        Key::None | Key::OnlyHere(_) => {}
        Key::Same(key) | Key::Differs(_, key) | Key::OnlyThere(key) => options.push_str(&format!(" key {key}")),
    }
    if case.checksum {
        options.push_str(" csum");
    }
    if case.sequence {
        options.push_str(" seq");
    }
    let length = whole(case.outer);
    let (family, mode, v4_only) = match case.outer {
        Family::V4 => ("-4", "gre", " ttl 64"),
        Family::V6 => ("-6", "ip6gre", ""),
    };
    let t = format!("t{number}");
    format!(
        "ip addr replace {o}/{length} dev wan
ip {family} tunnel add {t} mode {mode} local {o} remote {p}{v4_only}{options}
ip link set {t} up
ip addr replace {t1}/{prefix} dev {dev}
echo 1 > /proc/sys/net/ipv4/conf/{t}/accept_local
echo 0 > /proc/sys/net/ipv4/conf/{t}/rp_filter
",
        dev = match case.style.direction {
            Direction::Bidirectional => t.as_str(),
            Direction::Unidirectional => "wan",
        },
    )
}

/// This side of it, in adit's configuration.
fn tunnel(number: usize, case: &Case) -> String {
    let Addresses { outer: [p, o], inner: [t0, _], prefix } = of(number, case);
    let mut text = format!(
        "[[tunnel]]\nname = \"t{number}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"{p}\"\nremote_endpoint = \"{o}\"\n"
    );
    let direction = match case.style.direction {
        Direction::Bidirectional => {
            text.push_str(&format!("interface_address = \"{t0}/{prefix}\"\n"));
            "bidirectional"
        }
        Direction::Unidirectional => "unidirectional",
    };
    let kind = match case.style.kind {
        Kind::Request => "request",
        Kind::Reply => "reply",
    };
    text.push_str(&format!(
        "[tunnel.health_check]\ntype = \"{kind}\"\ndirection = \"{direction}\"\ninterval = \"300ms\"\ntimeout = \"250ms\"\ndown_window = \"450ms\"\n",
    ));
    let key = match case.key {
        Key::None | Key::OnlyThere(_) => String::new(),
        Key::Same(key) | Key::Differs(key, _) | Key::OnlyHere(key) => format!("key = {key}\n"),
    };
    text.push_str(&format!("[tunnel.gre]\n{key}checksum = {}\nsequence = {}\n", case.checksum, case.sequence));
    text
}

fn of(number: usize, case: &Case) -> Addresses {
    addresses(number, case.outer, case.inner, case.style.direction)
}
