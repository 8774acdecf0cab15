//! `[kernel]`, `[[rule]]`, and where routes are.

use std::path::Path;
use std::time::Duration;

use adit::config::{Config, Kernel, NotifyRoutes, OnExit};
use adit::engine::{Place, Route};
use adit::steer::{Mode, Rule};
use adit::wire::Family;

use crate::{Fixtures, good, parse};

const TUNNELS: &str = "[[tunnel]]\nname = \"a\"\nencapsulation = \"device\"\ndevice = \"gre1\"\n\
                       interface_address = \"10.100.0.8/31\"\n\
                       [[tunnel]]\nname = \"b\"\nencapsulation = \"device\"\ndevice = \"gre2\"\nnetns = \"blue\"\n\
                       interface_address = \"10.100.0.10/31\"\n";
const APPLY: &str = "[kernel]\napply = true\n";

/// Two tunnels, the second in a namespace, and this.
fn with_tunnels(text: &str) -> Config {
    parse(&format!("{TUNNELS}{text}"))
}

fn route(keys: &str) -> String {
    format!("[[route]]\npriority = 100\n{keys}\n")
}

#[test]
fn without_kernel_nothing_is_written_and_the_rest_is_as_specified() {
    let usual = Kernel {
        apply: false,
        table: 254,
        mode: Mode::Metric,
        notify_routes: NotifyRoutes::Keep,
        protocol: 212,
        backstop: false,
        on_exit: OnExit::Keep,
        reconcile_interval: Duration::from_secs(30),
        receive_buffer: 4 << 20,
    };
    assert_eq!(parse("").kernel, usual);
    assert_eq!(parse("[kernel]\napply = false\n").kernel, usual);
    assert_eq!(parse(APPLY).kernel, Kernel { apply: true, ..usual });
}

#[test]
fn every_key_of_kernel_is_heard() {
    let config = Fixtures::new().load("kernel.toml");
    let wanted = Kernel {
        apply: true,
        table: 1_000,
        mode: Mode::Nexthop,
        notify_routes: NotifyRoutes::Off,
        protocol: 77,
        backstop: true,
        on_exit: OnExit::Remove,
        reconcile_interval: Duration::from_secs(90),
        receive_buffer: 65_536,
    };
    assert_eq!(config.kernel, wanted);
}

fn places(config: &Config) -> Vec<(&str, Place)> {
    let place = |route: &Route| config.places[route.place as usize].named();
    config.routes.iter().map(|route| (route.device.as_deref().unwrap_or("-"), place(route))).collect()
}

#[test]
fn a_route_is_in_the_table_of_kernel_and_the_namespace_of_its_tunnel_unless_it_says_otherwise() {
    let text = [
        "[kernel]\napply = true\ntable = 300\n".to_owned(),
        route("prefix = \"10.0.0.0/8\"\ntunnel = \"a\"\ndevice = \"d1\""),
        route("prefix = \"10.0.0.0/8\"\ntunnel = \"b\"\ndevice = \"d2\""),
        route("prefix = \"10.0.0.0/8\"\ntunnel = \"a\"\ndevice = \"d3\"\ntable = 100"),
        route("prefix = \"10.0.0.0/8\"\ntunnel = \"b\"\ndevice = \"d4\"\ntable = 100\nnetns = \"red\""),
        route("prefix = \"10.1.0.0/16\"\ntunnel = \"b\"\ndevice = \"d5\"\nnetns = \"/run/netns/blue\""),
    ];
    let config = with_tunnels(&text.concat());
    let place = |netns: Option<&str>, table| Place { netns: netns.map(str::to_owned), table };
    let wanted = [
        ("d1", place(None, 300)),
        ("d2", place(Some("blue"), 300)),
        ("d3", place(None, 100)),
        ("d4", place(Some("red"), 100)),
        ("d5", place(Some("blue"), 300)),
    ];
    assert_eq!(places(&config), wanted);
    assert_eq!(config.places.len(), 4, "the last is where the second is");
    assert_eq!(config.places[1].netns.as_ref().unwrap().path(), Path::new("/run/netns/blue"));
}

#[test]
fn two_tunnels_may_share_a_next_hop_where_the_kernel_is_not_told() {
    let same = |tunnel: &str| {
        route(&format!("prefix = \"10.0.0.0/8\"\ntunnel = \"{tunnel}\"\nvia = \"10.1.1.1\"\nnetns = \"x\""))
    };
    let text = same("a") + &same("b");
    assert_eq!(with_tunnels(&text).routes.len(), 2);
    assert!(Config::parse("adit.toml", &format!("{TUNNELS}{text}{APPLY}")).is_err());
}

#[test]
fn routes_of_one_priority_share_a_prefix_as_far_as_the_kernel_can() {
    let pair = |prefix: &str, hops: [&str; 2]| {
        let [one, other] = hops.map(|hop| format!("prefix = \"{prefix}\"\nnetns = \"x\"\n{hop}\ntunnel = "));
        [route(&format!("{one}\"a\"")), route(&format!("{other}\"b\""))].concat()
    };
    let bare = ["device = \"d1\"", "device = \"d2\""];
    let via = ["device = \"d1\"\nvia = \"fd00::1\"", "device = \"d2\"\nvia = \"fd00::2\""];
    let nexthop = "[kernel]\napply = true\nmode = \"nexthop\"\n";
    for (text, fine) in [
        (pair("10.0.0.0/8", bare) + APPLY, true),
        (pair("fd00::/16", bare) + APPLY, false),
        (pair("fd00::/16", [bare[0], via[1]]) + APPLY, false),
        (pair("fd00::/16", [via[0], bare[1]]) + APPLY, false),
        (pair("fd00::/16", via) + APPLY, true),
        (pair("fd00::/16", bare) + nexthop, true),
        (pair("fd00::/16", bare), true),
        ((pair("fd00::/16", bare) + APPLY).replacen("priority = 100", "priority = 101", 1), true),
    ] {
        assert_eq!(Config::parse("adit.toml", &format!("{TUNNELS}{text}")).is_ok(), fine, "{text}");
    }
}

fn rule(family: Family) -> Rule {
    let (source, destination, fwmark, protocol, ports) = (None, None, None, None, None);
    Rule { family, priority: 1_000, table: 100, source, destination, fwmark, protocol, ports }
}

/// The rules of this one table, without their namespaces.
fn rules(keys: &str) -> Vec<Rule> {
    let config = parse(&format!("{APPLY}[[rule]]\ntable = 100\npriority = 1000\n{keys}\n"));
    config.policy.into_iter().map(|(_, rule)| rule).collect()
}

#[test]
fn a_rule_is_of_the_family_that_it_speaks_of_or_of_both() {
    let (v4, v6) = (rule(Family::V4), rule(Family::V6));
    let prefix = |text: &str| Some(text.parse().unwrap());
    let source = Rule { source: prefix("172.64.240.252/30"), ..rule(Family::V4) };
    assert_eq!(rules("source = \"172.64.240.252/30\""), [source]);
    let both = Rule { source: prefix("2001:db8::/32"), destination: prefix("fd00::1/128"), ..rule(Family::V6) };
    assert_eq!(rules("source = \"2001:db8::/32\"\ndestination = \"fd00::1\""), [both]);
    let marked = |rule: &Rule| Rule { fwmark: Some((1, u32::MAX)), ..rule.clone() };
    assert_eq!(rules("fwmark = 1"), [marked(&v4), marked(&v6)]);
    assert_eq!(rules("fwmark = 1\nfamily = \"ipv6\""), [marked(&v6)]);
    let of = |rule: &Rule, protocol| Rule { protocol: Some(protocol), ..rule.clone() };
    assert_eq!(rules("protocol = \"icmp\""), [of(&v4, 1)]);
    assert_eq!(rules("protocol = \"icmpv6\""), [of(&v6, 58)]);
    assert_eq!(rules("protocol = \"gre\""), [of(&v4, 47), of(&v6, 47)]);
}

#[test]
fn marks_protocols_and_ports_are_read_in_every_notation() {
    let mark = |keys: &str| rules(&format!("{keys}\nfamily = \"ipv4\""))[0].fwmark;
    assert_eq!(mark("fwmark = \"0x1/0xff\""), Some((1, 0xFF)));
    assert_eq!(mark("fwmark = 0x10"), Some((16, u32::MAX)));
    assert_eq!(mark("fwmark = \"16\""), Some((16, u32::MAX)));
    assert_eq!(mark("fwmark = \"0/1\""), Some((0, 1)));
    let ports = |protocol: &str, ports: &str| {
        let rules = rules(&format!("protocol = {protocol}\ndestination_port = {ports}\nfamily = \"ipv4\""));
        (rules[0].protocol, rules[0].ports)
    };
    assert_eq!(ports("\"tcp\"", "179"), (Some(6), Some((179, 179))));
    assert_eq!(ports("17", "\"1000-2000\""), (Some(17), Some((1_000, 2_000))));
    assert_eq!(ports("\"sctp\"", "\"65534\""), (Some(132), Some((65_534, 65_534))));
    assert_eq!(rules("protocol = 255\nfamily = \"ipv4\"")[0].protocol, Some(255));
}

#[test]
fn a_rule_is_where_it_says_or_where_adit_runs() {
    let config = Fixtures::new().load("kernel.toml");
    let netns = config.policy.iter().map(|(netns, _)| netns.as_ref().map(ToString::to_string));
    assert_eq!(netns.collect::<Vec<_>>(), [None, Some("blue".to_owned()), None, None]);
}

#[test]
fn routes_that_the_kernel_cannot_get_are_hinted_at_once() {
    let fixtures = Fixtures::new();
    let file = fixtures.path("kernel.toml");
    let [hint] = &good(Config::load(&file)).hints[..] else { panic!("one hint") };
    let text = hint.to_string();
    assert!(text.starts_with(&format!("{}:55:1: ", file.display())), "{text}");
    assert!(text.contains("routes with neither `device` nor `via`: 2 of 6,"), "{text}");
    assert!(with_tunnels(&route("prefix = \"10.0.0.0/8\"\ntunnel = \"a\"")).hints.is_empty(), "none is to be written");
}
