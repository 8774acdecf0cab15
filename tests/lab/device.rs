//! Tunnels that the kernel encapsulates: probes leave through its own tunnel device, or through its
//! IPsec policy, and the kernel seals them.

use std::collections::BTreeMap;
use std::time::Duration;

use adit::config::Config;
use adit::daemon::plan::{Exit, Plan};
use adit::engine::{State, Tunnel};
use adit::io::netns;
use adit::wire::{Direction, Encapsulation, Family, Kind as Echo, Onion, Style, payload};
use libtest_mimic::{Failed, Trial};

use crate::counters;
use crate::ipsec::{self, Pace, Turn, check, states};
use crate::kernel_io::trial;
use crate::kinds::{KINDS, Kind, kind};
use crate::router::{Addresses, Lab, Net, STYLES, batch, run, whole};
use crate::two::Two;

pub(crate) fn trials() -> Vec<Trial> {
    let each = KINDS.into_iter().filter(|kind| kind.name != "gretap").map(|kind| {
        let name = format!("every_style_is_answered_through_the_kernel's_own_{}_device", kind.name);
        trial(kind, name, move || every_style(kind))
    });
    let again = REMADE.into_iter().map(|(name, link)| {
        let sentence = format!("a_{name}_device_that_is_gone_is_down_until_one_of_its_name_is_there");
        trial(kind(name), sentence, move || gone_and_made_again(kind(name), link))
    });
    let others = [
        Trial::test("an_answer_that_comes_beside_the_device_is_none", beside_the_device),
        Trial::test("another_device_that_takes_the_name_is_taken", renamed_and_replaced),
        Trial::test("requests_without_a_device_are_sealed_by_the_kernel's_policy", by_policy),
    ];
    each.chain(again).chain(others).collect()
}

const SOON: Duration = Duration::from_secs(30);

/// How devices are made that can be made again while their keys stay.
const REMADE: [(&str, &str); 3] = [
    ("gre", "type gre local 192.0.2.1 remote 192.0.2.2 ttl 64"),
    ("vti", "type vti local 192.0.2.1 remote 192.0.2.2 key 42"),
    ("xfrm", "type xfrm dev wire if_id 42"),
];

/// The device at both ends, and a prober at one.
fn lab(kind: Kind, styles: &[(Style, Family)]) -> Result<Lab, Failed> {
    let two = Two::new()?;
    kind.join(&two)?;
    // What the router must be set to, on the device that the inner packets arrive by.
    two.far(
        "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
         for c in all tun9; do echo 0 > /proc/sys/net/ipv4/conf/$c/send_redirects; done
         echo 1 > /proc/sys/net/ipv4/conf/tun9/accept_local; echo 0 > /proc/sys/net/ipv4/conf/tun9/rp_filter
         ip addr add 2001:db8::22/64 dev wire nodad",
    )?;
    match kind.name {
        // A peer may send only from, and is sent only to, what it is allowed.
        "wireguard" => {
            let all = "wg set tun9 peer $(wg show tun9 peers) allowed-ips 0.0.0.0/0,::/0";
            two.near(all)?;
            two.far(all)?;
        }
        // These drop what goes to an IPv4 address of their own.
        "vti" | "vti6" => two.near(
            "ip addr del 10.9.0.0/31 dev tun9; ip addr add 10.9.0.0/32 dev lo; ip route add 10.9.0.1/32 dev tun9",
        )?,
        _ => {}
    }
    let labels = styles.iter().map(|(style, inner)| format!("{style:?} {inner:?} through {}", kind.name)).collect();
    Lab::start(Net { near: two.near, far: two.far }, labels, through_device(kind, styles))
}

fn through_device(kind: Kind, styles: &[(Style, Family)]) -> Plan {
    let outer = if kind.name.contains('6') { Family::V6 } else { Family::V4 };
    let public = |family| match family {
        Family::V4 => ["192.0.2.1", "192.0.2.2"],
        Family::V6 => ["2001:db8::1", "2001:db8::2"],
    };
    let target = |family| match (family, outer) {
        // A device over IPv6 drops what comes from its own far endpoint (`ip6_tnl_addr_conflict`), as
        // such a reply-style probe would, so its target is another address of the router's.
        (Family::V6, Family::V6) => ["2001:db8::1", "2001:db8::22"],
        (Family::V4, _) | (Family::V6, Family::V4) => public(family),
    };
    let inside = |family| match family {
        Family::V4 => ["10.9.0.0", "10.9.0.1"],
        Family::V6 => ["fd00:9::", "fd00:9::1"],
    };
    let tunnel = |(number, &(style, family)): (usize, &(Style, Family))| {
        let inner = match style.direction {
            Direction::Bidirectional => inside(family),
            Direction::Unidirectional => target(family),
        };
        tunnel(number, style, [public(outer), inner].map(|ends| ends.map(str::to_owned)), 0)
    };
    plan((1..).zip(styles).map(tunnel).collect(), vec![Exit::Device("tun9".to_owned())])
}

fn plan(tunnels: Vec<Tunnel>, exits: Vec<Exit>) -> Plan {
    Plan {
        bearings: BTreeMap::new(),
        fail_static: None,
        endpoints: Vec::new(),
        steering: None,
        tunnels,
        routes: Vec::new(),
        places: Vec::new(),
        namespaces: vec![None],
        egresses: exits.into_iter().map(|exit| (0, exit)).collect(),
        material: BTreeMap::new(),
        state_dir: None,
        access: None,
        record: None,
        epoch: 0,
    }
}

fn tunnel(number: usize, style: Style, [outer, inner]: [[String; 2]; 2], egress: u32) -> Tunnel {
    Tunnel {
        name: format!("t{number}"),
        onion: Onion {
            style,
            outer: ipsec::ends(&outer),
            encapsulation: Encapsulation::Device,
            inner: ipsec::ends(&inner),
            ttl: 64,
            dscp: 48,
            size: u16::try_from(payload::LEN).unwrap_or(0),
        },
        check: check(Pace::Brisk),
        namespace: 0,
        egress,
        terms: None,
        exit: 0,
        interface: None,
        targets: None,
    }
}

/// Every probe comes out of the router's device, and nothing is refused at either end.
fn every_style(kind: Kind) -> Result<(), Failed> {
    let families = kind.inner.iter().map(|&v6| if v6 { Family::V6 } else { Family::V4 });
    let styles: Vec<_> = families.flat_map(|family| STYLES.map(|style| (style, family))).collect();
    let lab = lab(kind, &styles)?;
    // What one end's device said before the other one was there could not be opened.
    let before = counters::refused(&lab.net)?;
    lab.all_become(State::Healthy, SOON)?;
    lab.until(SOON, "answered often", |view| view.counters.received >= 6)?;
    lab.none_rejected()?;
    let sent: u64 = lab.views().iter().map(|view| view.counters.sent).sum();
    let came = lab.router("awk '$1 == \"tun9:\" { print $3 }' /proc/net/dev")?;
    let refused = counters::refused(&lab.net)?;
    if came.trim().parse().is_ok_and(|came: u64| came >= sent) && refused == before {
        return Ok(());
    }
    Err(format!("of {sent} probes {came} came out of the device; refused before {before:?}, after {refused:?}").into())
}

fn gone_and_made_again(kind: Kind, link: &str) -> Result<(), Failed> {
    let lab = lab(kind, &STYLES.map(|style| (style, Family::V6)))?;
    lab.all_become(State::Healthy, SOON)?;
    let near = |script: &str| netns::within(Some(&lab.net.near), || run(script));
    near("ip link set tun9 down")?;
    lab.all_become(State::Down, SOON)?;
    let up = "ip link set tun9 up; ip addr replace fd00:9::/127 dev tun9 nodad";
    near(up)?;
    lab.until(SOON, "back", |view| view.state != State::Down)?;
    near("ip link del tun9")?;
    lab.until(SOON, "down for want of the device", |view| {
        let reason = view.last_failure.as_ref().map(|failure| failure.reason.as_str());
        view.state == State::Down && reason == Some("not sent: device tun9 is missing")
    })?;
    near(&format!("ip link add tun9 {link}; {up}"))?;
    lab.until(SOON, "back", |view| view.state != State::Down)?;
    lab.none_rejected()
}

/// Renamed, it is there as before; but it is another one that bears the name.
fn renamed_and_replaced() -> Result<(), Failed> {
    let lab = lab(kind("gre"), &STYLES.map(|style| (style, Family::V6)))?;
    lab.all_become(State::Healthy, SOON)?;
    let near = |script: &str| netns::within(Some(&lab.net.near), || run(script));
    // One that leads nowhere.
    near(
        "ip link set tun9 down; ip link set tun9 name old9; ip link set old9 up
          ip link add tun9 type gre local 192.0.2.1 remote 192.0.2.9 ttl 64; ip link set tun9 up",
    )?;
    lab.all_become(State::Down, SOON)?;
    lab.until(SOON, "without an answer", |view| {
        view.last_failure.as_ref().is_some_and(|failure| failure.reason == "timeout")
    })?;
    near(
        "ip link del tun9; ip link set old9 down; ip link set old9 name tun9; ip link set tun9 up
          ip addr replace fd00:9::/127 dev tun9 nodad",
    )?;
    lab.until(SOON, "back", |view| view.state != State::Down)?;
    lab.none_rejected()
}

/// The router answers, but sends what should go into the tunnel past it.
fn beside_the_device() -> Result<(), Failed> {
    let lab = lab(kind("gre"), &STYLES.map(|style| (style, Family::V4)))?;
    lab.all_become(State::Healthy, SOON)?;
    lab.router("ip route replace 10.9.0.0/32 via 192.0.2.1 dev wire")?;
    for (place, style) in STYLES.into_iter().enumerate() {
        match style.direction {
            Direction::Bidirectional => lab.becomes(place, State::Down)?,
            Direction::Unidirectional => lab.stays_up(place)?,
        }
    }
    for view in lab.views().iter().filter(|view| view.state == State::Down) {
        let reject = view.last_reject.as_ref().map(|reject| reject.reason.as_str());
        if reject != Some("wrong-path") {
            return Err(format!("{}: {reject:?}", view.name).into());
        }
    }
    lab.router("ip route del 10.9.0.0/32 dev wire; ip route replace 10.9.0.0/31 dev tun9")?;
    lab.until(SOON, "back", |view| view.state != State::Down)
}

/// The prober's kernel has the same associations as the router's, and policies for the inner addresses.
/// A reply-style probe goes to an address of this host, and so would not leave it.
fn by_policy() -> Result<(), Failed> {
    let mut cases = Vec::new();
    for style in STYLES.into_iter().filter(|style| style.kind == Echo::Request) {
        for outer in [Family::V4, Family::V6] {
            let both = [Family::V4, Family::V6].map(|inner| ipsec::Case { outer, inner, ..ipsec::plain(style) });
            // Without a target a unidirectional probe goes to the far endpoint.
            let possible = |case: &ipsec::Case| style.direction == Direction::Bidirectional || case.inner == outer;
            cases.extend(both.into_iter().filter(possible));
        }
    }
    let net = ipsec::router(&cases)?;
    let near: String = (1..).zip(&cases).map(|(number, case)| near(number, case)).collect();
    netns::within(Some(&net.near), || batch(&near))?;
    let text: String = (1..).zip(&cases).map(|(number, case)| configuration(number, case)).collect();
    let config = Config::parse("lab.toml", &text).map_err(|problems| Failed::from(problems.to_string()))?;
    let mut plan = Plan::new(config);
    // What one trial knows is nothing to another.
    plan.state_dir = None;
    plan.access = None;
    let lab = Lab::start(net, cases.iter().map(ipsec::Case::to_string).collect(), plan)?;
    lab.all_become(State::Healthy, SOON)?;
    lab.until(SOON, "answered often", |view| view.counters.received >= 6)?;
    lab.none_rejected()?;
    // Between public addresses the policy seals neighbour discovery, too.
    counters::each_probe_was_opened(&lab, &cases, 10).map(drop)
}

/// A tunnel that names no device, in adit's configuration.
fn configuration(number: usize, case: &ipsec::Case) -> String {
    let Addresses { outer: [p, o], inner: [t0, _], prefix } = ipsec::of(number, case);
    let (direction, address) = match case.style.direction {
        Direction::Bidirectional => ("bidirectional", format!("interface_address = \"{t0}/{prefix}\"\n")),
        Direction::Unidirectional => ("unidirectional", String::new()),
    };
    format!(
        "[[tunnel]]\nname = \"t{number}\"\nencapsulation = \"device\"\nlocal_endpoint = \"{p}\"\n\
         remote_endpoint = \"{o}\"\n{address}[tunnel.health_check]\ndirection = \"{direction}\"\n\
         interval = \"300ms\"\ntimeout = \"250ms\"\ndown_window = \"450ms\"\n"
    )
}

/// The prober's side of one tunnel, for `ip -batch`. Bare answers need no policy.
fn near(number: usize, case: &ipsec::Case) -> String {
    let Addresses { outer: [p, o], inner: [t0, t1], .. } = ipsec::of(number, case);
    let length = whole(case.inner);
    let policy = |from: &str, to: &str, direction: &str, outer_from: &str, outer_to: &str| {
        format!(
            "xfrm policy add src {from}/{length} dst {to}/{length} dir {direction} \
             tmpl src {outer_from} dst {outer_to} proto esp reqid {number} mode tunnel\n"
        )
    };
    let out = states(number, case, Turn::First) + &policy(&t0, &t1, "out", &p, &o);
    match case.style.direction {
        Direction::Unidirectional => out,
        Direction::Bidirectional => {
            let via = match case.inner {
                Family::V4 => "198.51.100.1",
                Family::V6 => "2001:db8:1::1",
            };
            let route = format!("addr add {t0}/{length} dev lo nodad\nroute add {t1}/{length} via {via} dev wan\n");
            route + &out + &policy(&t1, &t0, "in", &o, &p)
        }
    }
}
