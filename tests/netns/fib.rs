//! The kernel's routes, next-hop objects and rules: what we ask for is seen by `ip`, a witness of its own,
//! and what `ip` makes is seen by us.

use std::fs::File;
use std::net::IpAddr;
use std::process::{Command, Output};

use adit::io::fib::{self, Listener, Opened, Reader, Writer};
use adit::io::netns;
use adit::steer::{Change, Hop, KernelRoute, Leads, Nexthop, Picture, Refusal, Rule, Way};
use adit::wire::Family;
use serde_json::Value;

use crate::{Case, case};

/// Ours.
pub(crate) const TAG: u8 = 212;
/// As `ip -N` shows it.
const SHOWN: &str = "212";

pub(crate) fn cases() -> Vec<Case> {
    let cases: [(&str, fn()); 9] = [
        ("routes_of_both_families_are_seen_by_ip_and_pictured_as_they_were_asked_for", each_way_of_routes),
        ("a_route_that_was_deleted_is_gone_and_no_other", deletions),
        ("a_weighted_ipv6_hop_keeps_its_share_when_others_are_appended", weights_that_wait),
        ("objects_and_groups_are_seen_by_ip_and_pictured", objects),
        ("a_group_that_is_replaced_moves_all_routes_over_it", moving_a_group),
        ("rules_are_seen_by_ip_and_pictured", rules),
        ("what_ip_makes_is_pictured", made_by_ip),
        ("strange_routes_with_our_tag_are_pictured_as_such_and_can_be_deleted", strange_routes),
        ("devices_are_pictured_with_their_state", devices),
    ];
    cases.into_iter().map(|(name, run)| case(format!("fib::{name}"), run).with_iproute()).collect()
}

/// A namespace with two devices, each with an address of each family, and our shell over its routes.
pub(crate) struct Net {
    pub(crate) namespace: File,
    pub(crate) writer: Writer,
    pub(crate) reader: Reader,
    /// The devices' indices.
    pub(crate) devices: [u32; 2],
}

impl Net {
    pub(crate) fn new() -> Self {
        Self::listening(1 << 20).0
    }

    /// The same, and what hears of changes, with so much room for them.
    pub(crate) fn listening(buffer: usize) -> (Self, Listener) {
        let namespace = netns::make().unwrap();
        let opened = netns::within(Some(&namespace), || fib::open(TAG, buffer)).unwrap();
        let Opened { writer, reader, listener } = opened;
        let mut net = Self { namespace, writer, reader, devices: [0; 2] };
        net.ip("link set lo up");
        for (device, number) in [("d0", 0), ("d1", 1)] {
            net.ip(&format!("link add {device} type veth peer name peer{number}"));
            net.ip(&format!("link set peer{number} up"));
            net.ip(&format!("link set {device} up"));
            net.ip(&format!("address add 10.{number}.0.1/24 dev {device}"));
            net.ip(&format!("address add fd00:{number}::1/64 dev {device} nodad"));
        }
        let links = net.picture().links;
        net.devices = ["d0", "d1"].map(|name| links.iter().find(|link| link.name == name).unwrap().index);
        (net, listener)
    }

    /// Runs `ip` in there.
    pub(crate) fn try_ip(&self, arguments: &str) -> Output {
        netns::within(Some(&self.namespace), || Command::new("ip").args(arguments.split(' ')).output()).unwrap()
    }

    /// The same, and it must do as it is told.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        let output = self.try_ip(arguments);
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What `ip` shows.
    pub(crate) fn shown(&self, arguments: &str) -> Vec<Value> {
        let text = self.ip(&format!("-j -N -details {arguments}"));
        if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() }
    }

    /// Routes to a prefix, of our tag, as `ip` shows them.
    pub(crate) fn shown_to(&self, prefix: &str) -> Vec<Value> {
        ours(self.shown(&format!("{} route show table all exact {prefix}", family_option(prefix))))
    }

    pub(crate) fn carry_out(&mut self, changes: &[Change]) -> Vec<Refusal> {
        self.writer.carry_out(changes).unwrap()
    }

    /// Makes changes, none of which is refused.
    pub(crate) fn make(&mut self, changes: &[Change]) {
        assert_eq!(self.carry_out(changes), []);
    }

    /// The picture, with every foreign route.
    pub(crate) fn picture(&mut self) -> Picture {
        self.reader.picture(|_, _| true, || true).unwrap().unwrap()
    }

    /// A hop by the gateway with this last number on a device.
    pub(crate) fn via(&self, family: Family, device: usize, last: u8, weight: u16) -> Hop {
        let via = match family {
            Family::V4 => format!("10.{device}.0.{last}"),
            Family::V6 => format!("fd00:{device}::{last:x}"),
        };
        Hop { device: self.devices[device], via: Some(address(&via)), onlink: false, weight }
    }

    /// A hop by a device alone.
    pub(crate) fn on(&self, device: usize) -> Hop {
        Hop { device: self.devices[device], via: None, onlink: false, weight: 1 }
    }
}

/// What bears our tag, of what `ip` shows.
fn ours(shown: Vec<Value>) -> Vec<Value> {
    shown.into_iter().filter(|one| one["protocol"] == SHOWN).collect()
}

pub(crate) fn family_option(prefix: &str) -> &'static str {
    if prefix.contains(':') { "-6" } else { "-4" }
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn route(prefix: &str, metric: u32, way: Way) -> KernelRoute {
    KernelRoute { table: 254, prefix: prefix.parse().unwrap(), metric, way }
}

pub(crate) fn hops(hops: impl Into<Vec<Hop>>) -> Way {
    Way::Hops(hops.into())
}

pub(crate) fn single(id: u32, family: Family, hop: Hop) -> Nexthop {
    Nexthop { id, leads: Leads::Hop(family, hop) }
}

pub(crate) fn group(id: u32, members: &[(u32, u16)]) -> Nexthop {
    Nexthop { id, leads: Leads::Group(members.to_vec()) }
}

/// Prefixes of either family under which trials have their routes.
pub(crate) const PREFIXES: [(Family, &str); 2] = [(Family::V4, "203.0.113.0/24"), (Family::V6, "2001:db8:7::/48")];

fn each_way_of_routes() {
    let mut net = Net::new();
    for (family, prefix) in PREFIXES {
        let onlink = Hop { onlink: true, via: Some(stranger(family)), ..net.on(0) };
        let ways = [
            hops([net.via(family, 0, 9, 1)]),
            hops([net.on(1)]),
            hops([onlink]),
            hops([Hop { via: Some(address("fd00:1::9")), ..net.on(1) }]),
            hops([net.via(family, 0, 9, 3), net.via(family, 1, 9, 256)]),
            hops([net.via(family, 0, 8, 1), net.via(family, 0, 9, 1), Hop { weight: 2, ..onlink }]),
            Way::Unreachable,
        ];
        for (number, way) in (0..).zip(ways) {
            // The main table, one that fits into a byte, and one that does not.
            for table in [254, 100, 70_000] {
                let metric = 100 + number;
                let wanted = KernelRoute { table, ..route(prefix, metric, sorted(way.clone())) };
                net.make(&[Change::AddRoute(wanted.clone())]);
                assert_eq!(net.picture().routes, std::slice::from_ref(&wanted));
                let shown = ours(net.shown(&format!("{} route show table {table}", family_option(prefix))));
                assert_eq!(shown.len(), 1, "{shown:?}");
                agrees(&net, &shown[0], &wanted);
                net.make(&[Change::DeleteRoute(wanted)]);
                assert_eq!(net.picture().routes, []);
            }
        }
    }
}

/// An address on no link.
fn stranger(family: Family) -> IpAddr {
    match family {
        Family::V4 => address("198.18.0.1"),
        Family::V6 => address("2001:db8:ffff::1"),
    }
}

fn sorted(way: Way) -> Way {
    let Way::Hops(mut hops) = way else { return way };
    hops.sort_unstable();
    Way::Hops(hops)
}

/// That `ip` shows a route as it was asked for.
fn agrees(net: &Net, shown: &Value, wanted: &KernelRoute) {
    assert_eq!(shown["dst"], wanted.prefix.to_string());
    assert_eq!(shown["metric"], wanted.metric);
    assert_eq!(shown["protocol"], SHOWN);
    match &wanted.way {
        Way::Unreachable => assert_eq!(shown["type"], "7"),
        Way::Hops(hops) => {
            assert_eq!(shown["type"], "1");
            let several = shown["nexthops"].as_array();
            let shown: Vec<&Value> = several.map_or(vec![shown], |several| several.iter().collect());
            let mut found: Vec<Hop> = shown.into_iter().map(|hop| shown_hop(net, hop)).collect();
            found.sort_unstable();
            assert_eq!(&found, hops);
        }
        Way::Object(_) | Way::Other => panic!("{wanted:?}"),
    }
}

fn shown_hop(net: &Net, shown: &Value) -> Hop {
    let device = ["d0", "d1"].iter().position(|name| shown["dev"] == *name).unwrap();
    let onlink = shown["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "onlink"));
    let weight = shown["weight"].as_u64().map_or(1, |weight| u16::try_from(weight).unwrap());
    Hop { device: net.devices[device], via: shown_gateway(shown), onlink, weight }
}

/// A gateway of the other family stands elsewhere.
fn shown_gateway(shown: &Value) -> Option<IpAddr> {
    shown["gateway"].as_str().or_else(|| shown["via"]["host"].as_str()).map(address)
}

fn deletions() {
    let mut net = Net::new();
    for (family, prefix) in PREFIXES {
        let routes: Vec<KernelRoute> = [
            (50, hops([net.via(family, 0, 9, 1)])),
            (60, hops([net.via(family, 0, 9, 1)])),
            (70, hops([net.via(family, 1, 9, 1)])),
            (80, Way::Unreachable),
        ]
        .into_iter()
        .map(|(metric, way)| route(prefix, metric, way))
        .collect();
        let elsewhere = KernelRoute { table: 1_000, ..routes[1].clone() };
        let add: Vec<Change> = routes.iter().chain([&elsewhere]).cloned().map(Change::AddRoute).collect();
        net.make(&add);
        net.make(&[Change::DeleteRoute(routes[1].clone()), Change::DeleteRoute(routes[3].clone())]);
        let mut found = net.picture().routes;
        found.sort_unstable();
        assert_eq!(found, [routes[0].clone(), routes[2].clone(), elsewhere.clone()], "{family:?}");
        net.make(&[elsewhere, routes[0].clone(), routes[2].clone()].map(Change::DeleteRoute));
        assert_eq!(net.picture().routes, []);
    }
}

fn weights_that_wait() {
    let mut net = Net::new();
    let prefix = PREFIXES[1].1;
    let (one, other) = (net.via(Family::V6, 0, 9, 5), net.via(Family::V6, 1, 9, 7));
    net.make(&[
        Change::AddRoute(route(prefix, 10, hops([one]))),
        Change::AppendRoute(route(prefix, 10, hops([other]))),
    ]);
    let both = route(prefix, 10, hops([one, other]));
    assert_eq!(net.picture().routes, std::slice::from_ref(&both));
    agrees(&net, &net.shown_to(prefix)[0], &both);
}

fn objects() {
    let mut net = Net::new();
    let onlink = Hop { onlink: true, via: Some(stranger(Family::V4)), ..net.on(1) };
    let nexthops = [
        single(1_001, Family::V4, net.via(Family::V4, 0, 9, 1)),
        single(1_002, Family::V4, net.on(1)),
        single(1_003, Family::V4, onlink),
        single(1_004, Family::V6, net.via(Family::V6, 0, 9, 1)),
        group(1_010, &[(1_001, 1), (1_002, 255), (1_003, 7)]),
        group(1_011, &[(1_004, 1)]),
    ];
    net.make(&nexthops.clone().map(Change::AddNexthop));
    net.ip("nexthop add id 7 via 10.0.0.8 dev d0");
    let picture = net.picture();
    assert_eq!(picture.nexthops, Some(nexthops.to_vec()));
    assert_eq!(picture.taken, [7]);

    let shown = net.shown("nexthop show");
    assert_eq!(
        shown.iter().map(|one| one["id"].as_u64().unwrap()).collect::<Vec<_>>(),
        [7, 1_001, 1_002, 1_003, 1_004, 1_010, 1_011]
    );
    assert_eq!(shown[1]["gateway"], "10.0.0.9");
    assert_eq!(shown[2]["dev"], "d1");
    assert_eq!(shown[3]["flags"][0], "onlink");
    assert_eq!(shown[4]["gateway"], "fd00::9");
    assert_eq!(shown[5]["group"].to_string(), r#"[{"id":1001},{"id":1002,"weight":255},{"id":1003,"weight":7}]"#);
    assert!(shown[1..].iter().all(|one| one["protocol"] == SHOWN), "{shown:?}");

    net.make(&[1_010, 1_011, 1_001, 1_002, 1_003, 1_004].map(Change::DeleteNexthop));
    assert_eq!(net.picture().nexthops, Some(Vec::new()));
    assert_eq!(net.shown("nexthop show").len(), 1);
}

fn moving_a_group() {
    let mut net = Net::new();
    for (number, (family, prefix)) in (0..).map(|number| 10 * number).zip(PREFIXES) {
        let wanted = route(prefix, 20, Way::Object(number + 3));
        net.make(&[
            Change::AddNexthop(single(number + 1, family, net.via(family, 0, 9, 1))),
            Change::AddNexthop(single(number + 2, family, net.via(family, 1, 9, 1))),
            Change::AddNexthop(group(number + 3, &[(number + 1, 1)])),
            Change::AddRoute(wanted.clone()),
        ]);
        let inside = prefix.split("0/24").next().unwrap().split("/48").next().unwrap();
        let destination = format!("{inside}1");
        let device = |net: &Net| net.shown(&format!("route get {destination}"))[0]["dev"].clone();
        assert_eq!(device(&net), "d0");
        net.make(&[Change::ReplaceNexthop(group(number + 3, &[(number + 2, 1)]))]);
        assert_eq!(device(&net), "d1");
        assert_eq!(net.shown_to(prefix)[0]["nhid"], number + 3);
        assert!(net.picture().routes.contains(&wanted));
        net.make(&[Change::DeleteRoute(wanted)]);
        assert_eq!(net.shown_to(prefix), Vec::<Value>::new());
    }
}

fn rule(family: Family, priority: u32) -> Rule {
    Rule { family, priority, table: 100, source: None, destination: None, fwmark: None, protocol: None, ports: None }
}

fn rules() {
    let mut net = Net::new();
    let prefix = |text: &str| Some(text.parse().unwrap());
    let rules = [
        Rule { source: prefix("192.0.2.0/24"), ..rule(Family::V4, 100) },
        Rule { destination: prefix("198.51.100.7/32"), table: 70_000, ..rule(Family::V4, 101) },
        Rule { fwmark: Some((0x10, 0xFF)), ..rule(Family::V4, 102) },
        Rule { protocol: Some(17), ports: Some((4_000, 4_010)), ..rule(Family::V4, 103) },
        Rule { source: prefix("2001:db8:1::/48"), destination: prefix("2001:db8:2::/48"), ..rule(Family::V6, 100) },
        Rule { fwmark: Some((7, u32::MAX)), protocol: Some(6), ports: Some((443, 443)), ..rule(Family::V6, 101) },
    ];
    net.make(&rules.clone().map(Change::AddRule));
    assert_eq!(net.picture().rules, rules);
    let shown = ours(net.shown("-4 rule show"));
    assert_eq!(shown.len(), 4, "{shown:?}");
    assert_eq!((&shown[0]["src"], &shown[0]["srclen"]), (&"192.0.2.0".into(), &24.into()));
    assert_eq!((&shown[1]["dst"], &shown[1]["table"]), (&"198.51.100.7".into(), &"70000".into()));
    assert_eq!((&shown[2]["fwmark"], &shown[2]["fwmask"]), (&"0x10".into(), &"0xff".into()));
    assert_eq!((&shown[3]["dport_start"], &shown[3]["dport_end"]), (&4_000.into(), &4_010.into()));
    assert_eq!(shown[3]["ipproto"], "ipproto-17");
    assert_eq!(ours(net.shown("-6 rule show")).len(), 2);

    net.make(&rules[1..].iter().cloned().map(Change::DeleteRule).collect::<Vec<_>>());
    assert_eq!(net.picture().rules, rules[..1]);
    assert_eq!(ours(net.shown("-4 rule show")).len(), 1);
}

fn made_by_ip() {
    let mut net = Net::new();
    net.ip("route add 203.0.113.0/24 via 10.0.0.9 metric 7 proto 212 table 300");
    net.ip("route append 203.0.113.0/24 via 10.1.0.9 metric 7 proto 212 table 300");
    net.ip("-6 route add 2001:db8:9::/48 metric 8 proto 212 nexthop via fd00:0::9 weight 2 nexthop via fd00:1::9");
    net.ip("route add 203.0.113.0/24 via 10.0.0.7 metric 9 proto 4");
    net.ip("rule add from 10.9.0.0/16 table 300 priority 50 protocol 212");
    let picture = net.picture();
    let table = |way| KernelRoute { table: 300, ..route("203.0.113.0/24", 7, way) };
    let wanted = [
        table(hops([net.via(Family::V4, 0, 9, 1)])),
        table(hops([net.via(Family::V4, 1, 9, 1)])),
        route("2001:db8:9::/48", 8, hops([net.via(Family::V6, 0, 9, 2), net.via(Family::V6, 1, 9, 1)])),
    ];
    assert_eq!(picture.routes, wanted);
    let foreign: Vec<_> = picture.foreign.iter().filter(|foreign| foreign.protocol == 4).collect();
    assert_eq!(foreign.len(), 1, "{picture:?}");
    assert_eq!(
        (foreign[0].table, foreign[0].metric, foreign[0].prefix.to_string()),
        (254, 9, "203.0.113.0/24".to_owned())
    );
    assert!(
        picture.foreign.iter().all(|foreign| foreign.table != 255 || foreign.prefix.prefix_len() < 32),
        "{picture:?}"
    );
    assert_eq!(
        picture.rules,
        [Rule { table: 300, source: Some("10.9.0.0/16".parse().unwrap()), ..rule(Family::V4, 50) }]
    );

    let chosen = net.reader.picture(|table, prefix| table == 254 && prefix.prefix_len() == 24, || true);
    let chosen = chosen.unwrap().unwrap().foreign;
    assert_eq!(chosen.len(), 3, "the two of the devices and the one above: {chosen:?}");
}

fn strange_routes() {
    let mut net = Net::new();
    let strange = [
        "-4 route add blackhole 203.0.113.0/24 metric 1 proto 212",
        "-4 route add 203.0.113.0/24 via 10.0.0.9 metric 2 proto 212 src 10.0.0.1",
        "-4 route add 203.0.113.0/24 via 10.0.0.9 metric 3 proto 212 mtu 1300",
        "-6 route add blackhole 2001:db8:9::/48 metric 1 proto 212",
        "-6 route add 2001:db8:9::/48 via fd00:0::9 metric 2 proto 212 src fd00:0::1",
        "-6 route add 2001:db8:9::/48 via fd00:0::9 metric 3 proto 212 mtu 1300",
        "-6 route add 2001:db8:9::/48 via fd00:0::9 metric 4 proto 212 pref high",
    ];
    for arguments in strange {
        net.ip(arguments);
    }
    // For some packets only: nothing of ours could delete it.
    net.ip("-4 route add 203.0.113.0/24 tos 0x10 via 10.0.0.9 metric 9 proto 212");
    let routes = net.picture().routes;
    assert_eq!(routes.len(), strange.len(), "{routes:?}");
    assert!(routes.iter().all(|route| route.way == Way::Other), "{routes:?}");
    net.make(&routes.into_iter().map(Change::DeleteRoute).collect::<Vec<_>>());
    assert_eq!(net.picture().routes, []);
    assert_eq!(net.shown_to("203.0.113.0/24").len(), 1);
}

fn devices() {
    let mut net = Net::new();
    net.ip("link set d1 down");
    let links = net.picture().links;
    let up = |name: &str| links.iter().find(|link| link.name == name).map(|link| link.up);
    assert_eq!([up("lo"), up("d0"), up("d1"), up("d2")], [Some(true), Some(true), Some(false), None]);
}
