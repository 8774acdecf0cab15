//! What `adit discover` proposes, from values: which devices, which inner addresses, which routes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::net::IpAddr;

use adit::config::propose::{Address, Found, Hop, Kind, Link, Odd, Proposal, Way, propose};
use adit::config::{Config, Netns};
use adit::wire::{Direction, Encapsulation, Kind as Echo};
use proptest::prelude::*;

const KINDS: [Kind; 10] = [
    Kind::Gre,
    Kind::Ip6gre,
    Kind::Ipip,
    Kind::Sit,
    Kind::Ip6tnl,
    Kind::Vti,
    Kind::Vti6,
    Kind::Xfrm,
    Kind::Wireguard,
    Kind::Tun,
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A device that is up, between 192.0.2.1 and 203.0.113.1 and so on.
fn link(index: u32, name: &str, kind: Kind) -> Link {
    let over_v6 = matches!(kind, Kind::Ip6gre | Kind::Ip6tnl | Kind::Vti6);
    let ends = if over_v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "203.0.113.1"] };
    let [local, remote] = ends.map(|end| Some(ip(end)).filter(|_| !matches!(kind, Kind::Xfrm | Kind::Wireguard)));
    let name = name.to_owned();
    Link { index, name, kind, up: true, point_to_point: true, local, remote, key: None, carries: None, external: false }
}

fn address(link: u32, own: &str) -> Address {
    Address { link, own: own.parse().unwrap(), peer: None }
}

fn way(prefix: &str, metric: u32, links: &[u32]) -> Way {
    let hops = links.iter().map(|&link| Hop { link, via: None, onlink: false, weight: 1 }).collect();
    Way { table: 254, prefix: prefix.parse().unwrap(), metric, protocol: 4, source: None, hops, odd: None }
}

/// One GRE device that is called gre1, with these addresses and routes.
fn gre1(addresses: &[&str], routes: Vec<Way>) -> Found {
    let addresses = addresses.iter().map(|own| address(1, own)).collect();
    Found { links: vec![link(1, "gre1", Kind::Gre)], addresses, routes }
}

/// Two of them, gre1 and gre2.
fn two(routes: Vec<Way>) -> Found {
    let links = vec![link(1, "gre1", Kind::Gre), link(2, "gre2", Kind::Gre)];
    Found { links, addresses: vec![address(1, "10.0.0.0/31"), address(2, "10.0.0.2/31")], routes }
}

/// The proposal, and the configuration that it is: as it is, and with what steers the kernel.
fn load(found: &Found) -> Result<(Proposal, Config), String> {
    let proposal = propose(found, None);
    let read = |text: &str| Config::parse("proposed.toml", text).map_err(|problems| format!("{problems}\n{text}"));
    let config = read(&proposal.text)?;
    let steering = proposal.text.replace("# [kernel]\n# apply", "[kernel]\napply");
    let kernel = read(&steering)?.kernel;
    let expected = (proposal.tunnels, steering != proposal.text);
    if (config.tunnels.len(), kernel.apply) != expected {
        return Err(format!("not {expected:?}\n{}", proposal.text));
    }
    Ok((proposal, config))
}

fn loaded(found: &Found) -> (Proposal, Config) {
    load(found).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Whether it says so, wherever its lines end.
fn says(found: &Found, wanted: &str) -> bool {
    let words = |text: &str| text.split_whitespace().filter(|word| *word != "#").collect::<Vec<_>>().join(" ");
    words(&propose(found, None).text).contains(&words(wanted))
}

/// The inner ends of the only tunnel.
fn inner(found: &Found) -> [IpAddr; 2] {
    let (proposal, config) = loaded(found);
    let [tunnel] = &config.tunnels[..] else { panic!("{}", proposal.text) };
    [tunnel.onion.inner.local(), tunnel.onion.inner.far()]
}

/// Tunnel, priority and weight of each route, and its prefix.
fn routes(found: &Found) -> Vec<(String, String, u32, u32)> {
    let (_, config) = loaded(found);
    let name = |tunnel: u32| config.tunnels[tunnel as usize].name.clone();
    config.routes.iter().map(|r| (r.prefix.to_string(), name(r.tunnel), r.priority, r.weight)).collect()
}

fn left_out(found: &Found, why: &str) {
    let (proposal, _) = loaded(found);
    assert_eq!((proposal.tunnels, proposal.left_out), (0, 1), "{}", proposal.text);
    assert!(says(found, why), "not said: {why}\n{}", proposal.text);
}

#[test]
fn a_device_of_every_kind_is_probed_by_requests_through_itself() {
    for kind in KINDS {
        let own = if kind == Kind::Sit { "fd00:9::/127" } else { "10.9.0.0/31" };
        let found = Found { links: vec![link(1, "tun9", kind)], addresses: vec![address(1, own)], routes: Vec::new() };
        let (proposal, config) = loaded(&found);
        let [tunnel] = &config.tunnels[..] else { panic!("{kind:?}: {}", proposal.text) };
        assert_eq!((tunnel.name.as_str(), tunnel.device.as_deref()), ("tun9", Some("tun9")));
        assert_eq!(tunnel.onion.encapsulation, Encapsulation::Device);
        let style = tunnel.onion.style;
        assert_eq!((style.kind, style.direction), (Echo::Request, Direction::Bidirectional));
        let far = if kind == Kind::Sit { "fd00:9::1" } else { "10.9.0.1" };
        assert_eq!(tunnel.onion.inner.far(), ip(far), "{kind:?}");
    }
}

#[test]
fn the_far_address_is_what_the_prefix_leaves() {
    for (own, near, far) in [
        ("10.0.0.0/31", "10.0.0.0", "10.0.0.1"),
        ("10.0.0.5/30", "10.0.0.5", "10.0.0.6"),
        ("fd00::1/127", "fd00::1", "fd00::"),
        ("fd00::2/126", "fd00::2", "fd00::1"),
    ] {
        assert_eq!(inner(&gre1(&[own], Vec::new())), [ip(near), ip(far)], "{own}");
    }
}

#[test]
fn the_far_address_is_the_peer_that_the_kernel_was_told() {
    for (own, peer, written) in [
        ("10.0.0.1/32", "10.0.0.2", "interface_address = \"10.0.0.1/30\""),
        ("10.0.0.0/32", "10.0.0.1", "interface_address = \"10.0.0.0/31\""),
        ("10.0.0.1/32", "10.77.0.2", "target = \"10.77.0.2\""),
        ("fd00::1/128", "fd00::9", "target = \"fd00::9\""),
        ("10.0.0.0/31", "10.0.0.1", "interface_address = \"10.0.0.0/31\""),
    ] {
        let mut found = gre1(&[own], Vec::new());
        found.addresses[0].peer = Some(ip(peer));
        let near = own.split('/').next().unwrap();
        assert_eq!(inner(&found), [ip(near), ip(peer)], "{own} {peer}");
        assert!(says(&found, written), "{own} {peer}");
    }
}

#[test]
fn a_larger_prefix_is_completed_by_the_only_gateway_and_called_a_guess() {
    let mut route = way("10.20.0.0/16", 10, &[1]);
    route.hops[0].via = Some(ip("10.1.0.9"));
    let found = gre1(&["10.1.0.1/24"], vec![route]);
    assert_eq!(inner(&found), [ip("10.1.0.1"), ip("10.1.0.9")]);
    assert!(says(&found, "# Guessed: 10.1.0.9 is the gateway of routes over it"));
}

#[test]
fn a_lone_address_is_completed_by_the_only_host_that_a_route_leads_to() {
    let found = gre1(&["10.1.0.1/32"], vec![way("10.7.0.1/32", 0, &[1]), way("10.20.0.0/16", 0, &[1])]);
    assert_eq!(inner(&found), [ip("10.1.0.1"), ip("10.7.0.1")]);
}

#[test]
fn several_candidates_are_named_and_none_is_taken() {
    let found = gre1(&["10.1.0.1/24"], vec![way("10.1.0.2/32", 0, &[1]), way("10.1.0.3/32", 0, &[1])]);
    left_out(&found, "by the routes it may be 10.1.0.2, 10.1.0.3; give it a /31 or /30");
    assert!(says(&found, "# So are the 2 routes over it."));
}

#[test]
fn a_device_whose_far_address_nobody_knows_is_left_out_with_the_remedy() {
    left_out(&gre1(&["10.1.0.1/24"], Vec::new()), "10.1.0.1/24 does not say which address the far end has; give it a");
    left_out(&gre1(&["10.1.0.1/24"], Vec::new()), "interface_address = \"10.1.0.1/31\"");
    left_out(&gre1(&[], Vec::new()), "it has no address, and a probe needs one inside the tunnel");
    // Which every device may have.
    left_out(&gre1(&["fe80::1/64"], Vec::new()), "it has no address");
    // The network's own address is nobody's.
    left_out(&gre1(&["10.1.0.4/30"], Vec::new()), "10.1.0.4/30 does not say");
}

#[test]
fn the_first_ipv4_address_is_taken_and_the_others_are_told() {
    let found = gre1(&["fd00::/127", "10.0.0.0/31", "10.0.0.4/31"], Vec::new());
    assert_eq!(inner(&found), [ip("10.0.0.0"), ip("10.0.0.1")]);
    for other in ["fd00::/127", "10.0.0.4/31"] {
        assert!(says(&found, &format!("another address that would do: interface_address = \"{other}\".")));
    }
}

#[test]
fn a_device_that_carries_one_family_is_probed_in_that_family() {
    for (kind, carries, far) in [
        (Kind::Ipip, Some(0), "10.0.0.1"),
        (Kind::Ipip, None, "10.0.0.1"),
        (Kind::Sit, Some(41), "fd00::1"),
        (Kind::Sit, None, "fd00::1"),
        (Kind::Sit, Some(0), "fd00::1"),
        (Kind::Sit, Some(4), "10.0.0.1"),
        (Kind::Ip6tnl, Some(41), "fd00::1"),
        (Kind::Ip6tnl, Some(4), "10.0.0.1"),
        (Kind::Ip6tnl, Some(0), "10.0.0.1"),
    ] {
        let link = Link { carries, ..link(1, "t", kind) };
        let addresses = vec![address(1, "10.0.0.0/31"), address(1, "fd00::/127")];
        let found = Found { links: vec![link], addresses, routes: Vec::new() };
        assert_eq!(inner(&found)[1], ip(far), "{kind:?} {carries:?}");
    }
}

#[test]
fn devices_that_cannot_be_probed_are_left_out_with_the_reason() {
    let reason = |link: Link, why: &str| {
        let addresses = vec![address(1, "10.0.0.0/31")];
        left_out(&Found { links: vec![link], addresses, routes: Vec::new() }, why);
    };
    reason(Link { up: false, ..link(1, "gre1", Kind::Gre) }, "gre from 192.0.2.1 to 203.0.113.1: it is down");
    reason(Link { remote: None, point_to_point: false, ..link(1, "gre1", Kind::Gre) }, "it has no one far end");
    reason(Link { remote: None, ..link(1, "tun9", Kind::Ipip) }, "it has no one far end");
    reason(Link { external: true, ..link(1, "gre1", Kind::Gre) }, "(external)");
    reason(link(1, "tap1", Kind::Ethernet), "it carries Ethernet");
    reason(link(1, "a\u{a0}b", Kind::Gre), "its name cannot be written here");
    for (name, kind) in [("gre0", Kind::Gre), ("tunl0", Kind::Ipip), ("sit0", Kind::Sit), ("ip_vti0", Kind::Vti)] {
        let fallback = Link { local: None, remote: None, point_to_point: false, up: false, ..link(1, name, kind) };
        reason(fallback, "# Left out: the kernel's own, for packets that no other device takes");
    }
}

#[test]
fn a_vti_finds_its_far_end_by_its_key() {
    let link = Link { remote: None, key: Some(42), ..link(1, "vti1", Kind::Vti) };
    let found = Found { links: vec![link], addresses: vec![address(1, "10.0.0.0/31")], routes: Vec::new() };
    assert_eq!(inner(&found)[1], ip("10.0.0.1"));
    assert!(says(&found, "# vti from 192.0.2.1 with key 42\n"));
}

#[test]
fn an_ipv6_destination_without_a_route_over_its_xfrm_device_is_told() {
    let found =
        |routes| Found { links: vec![link(1, "x1", Kind::Xfrm)], addresses: vec![address(1, "fd00::/127")], routes };
    let warned = |routes| says(&found(routes), "no IPv6 route leads over it: add one to fd00::1");
    assert!(warned(Vec::new()));
    let connected = Way { protocol: 2, ..way("fd00::/127", 256, &[1]) };
    assert!(!warned(vec![connected]));
}

#[test]
fn metrics_are_priorities_where_they_can_be() {
    let found = two(vec![way("10.20.0.0/16", 200, &[2]), way("10.20.0.0/16", 50, &[1]), way("fd01::/64", 1024, &[1])]);
    let prefix = "10.20.0.0/16".to_owned();
    assert_eq!(
        routes(&found),
        [
            (prefix.clone(), "gre1".to_owned(), 50, 1),
            (prefix, "gre2".to_owned(), 200, 1),
            ("fd01::/64".to_owned(), "gre1".to_owned(), 1_024, 1)
        ]
    );
}

#[test]
fn metrics_that_no_priority_can_be_keep_their_order() {
    for metrics in [[0, 50], [0, 4_000_000_000], [7, 500_000]] {
        // The order in which the kernel tells them does not matter.
        for order in [[1, 2], [2, 1]] {
            let found = two(order.map(|gre| way("0.0.0.0/0", metrics[gre as usize - 1], &[gre])).to_vec());
            let list: Vec<_> = routes(&found).into_iter().map(|(_, tunnel, priority, _)| (tunnel, priority)).collect();
            assert_eq!(list, [("gre1".to_owned(), 100), ("gre2".to_owned(), 200)], "{metrics:?}");
        }
    }
    let alone = gre1(&["10.0.0.0/31"], vec![way("10.20.0.0/16", 0, &[1])]);
    assert_eq!(routes(&alone)[0].2, 100);
    assert!(says(&alone, "# The kernel's metric is 0.\npriority = 100\n"));
}

#[test]
fn routes_of_adit_s_own_come_back_without_their_penalty() {
    for metric in [100, 500_100, 1_000_100, 1_500_100, 2_000_100] {
        let ours = Way { protocol: 212, ..way("10.20.0.0/16", metric, &[1]) };
        let other = Way { protocol: 212, ..way("10.20.0.0/16", 300, &[2]) };
        let list: Vec<_> =
            routes(&two(vec![other, ours])).into_iter().map(|(_, t, priority, _)| (t, priority)).collect();
        assert_eq!(list, [("gre1".to_owned(), 100), ("gre2".to_owned(), 300)], "{metric}");
    }
    // Another's are what they are.
    assert_eq!(routes(&two(vec![way("10.20.0.0/16", 500_100, &[1]), way("10.20.0.0/16", 300, &[2])]))[0].1, "gre2");
}

#[test]
fn of_two_routes_over_one_tunnel_the_one_of_adit_s_own_is_kept() {
    let ours = Way { protocol: 212, ..way("10.20.0.0/16", 500_300, &[1]) };
    let found = gre1(&["10.0.0.0/31"], vec![way("10.20.0.0/16", 0, &[1]), ours]);
    assert_eq!(routes(&found), [("10.20.0.0/16".to_owned(), "gre1".to_owned(), 300, 1)]);
    assert!(says(&found, "# - one over gre1, metric 0, protocol static: a tunnel has one route to a prefix"));
}

#[test]
fn the_hops_of_a_route_are_routes_of_equal_priority_with_their_weights() {
    let mut route = way("10.20.0.0/16", 20, &[1, 2]);
    (route.hops[0].weight, route.hops[1].via) = (256, Some(ip("10.0.0.3")));
    let found = two(vec![route]);
    let prefix = "10.20.0.0/16".to_owned();
    assert_eq!(routes(&found), [(prefix.clone(), "gre1".to_owned(), 20, 256), (prefix, "gre2".to_owned(), 20, 1)]);
    let (_, config) = loaded(&found);
    assert_eq!((config.routes[0].device.as_deref(), config.routes[1].via), (Some("gre1"), Some(ip("10.0.0.3"))));
}

#[test]
fn equal_ipv6_routes_without_gateways_get_an_order() {
    let equal = |prefix: &str| two(vec![way(prefix, 20, &[1]), way(prefix, 20, &[2])]);
    let priorities = |found| routes(&found).iter().map(|route| route.2).collect::<Vec<_>>();
    assert_eq!(priorities(equal("fd01::/64")), [100, 200], "Linux would not share it");
    assert_eq!(priorities(equal("10.20.0.0/16")), [20, 20]);
    let mut with = equal("fd01::/64");
    with.routes.iter_mut().for_each(|way| way.hops[0].via = Some(ip("fe80::1")));
    assert_eq!(priorities(with), [20, 20]);
}

#[test]
fn a_gateway_that_is_a_neighbour_by_decree_stays_one() {
    let mut route = way("10.20.0.0/16", 20, &[1]);
    (route.hops[0].via, route.hops[0].onlink) = (Some(ip("172.16.0.1")), true);
    let (_, config) = loaded(&gre1(&["10.0.0.0/31"], vec![route]));
    assert_eq!((config.routes[0].via, config.routes[0].onlink), (Some(ip("172.16.0.1")), true));
}

#[test]
fn what_the_kernel_makes_by_itself_is_no_route_of_a_proposal() {
    let connected = Way { protocol: 2, ..way("10.0.0.0/31", 0, &[1]) };
    let local = Way { protocol: 4, ..way("fe80::/64", 256, &[1]) };
    let many = way("224.0.0.0/4", 0, &[1]);
    assert_eq!(routes(&gre1(&["10.0.0.0/31"], vec![connected, local, many])), []);
}

#[test]
fn a_route_beside_the_tunnels_is_told_and_not_written() {
    let mut found = two(vec![way("0.0.0.0/0", 100, &[1]), Way { protocol: 16, ..way("0.0.0.0/0", 200, &[3]) }]);
    found.links.push(Link { kind: Kind::Other, ..link(3, "eth0", Kind::Other) });
    assert_eq!(routes(&found).len(), 1);
    assert!(says(&found, "# - one over eth0, metric 200, protocol dhcp: it goes through no tunnel above"));
    // Where no tunnel leads to a prefix, it is none of ours.
    found.routes.push(way("10.99.0.0/16", 0, &[3]));
    assert!(!says(&found, "10.99.0.0/16"));
}

#[test]
fn what_no_route_of_ours_can_have_is_told() {
    let odd = |odd| Way { odd: Some(odd), ..way("10.20.0.0/16", 5, &[1]) };
    for (why, reason) in [(Odd::Tos, "type of service"), (Odd::From, "from one prefix"), (Odd::Encap, "(encap)")] {
        let found = gre1(&["10.0.0.0/31"], vec![odd(why)]);
        assert_eq!(routes(&found), []);
        assert!(says(&found, reason));
    }
    let object = Way { hops: Vec::new(), ..odd(Odd::Object) };
    assert!(says(&gre1(&["10.0.0.0/31"], vec![object]), "# Not looked at: 1 routes over next-hop objects."));
    let mut route = Way { source: Some(ip("10.0.0.0")), ..way("10.20.0.0/16", 5, &[1]) };
    route.hops[0].via = Some(ip("fe80::1"));
    let found = gre1(&["10.0.0.0/31"], vec![route]);
    assert_eq!(loaded(&found).1.routes[0].via, None);
    assert!(says(&found, "has the gateway fe80::1, which cannot be written here"));
    assert!(says(&found, "proposes the source address 10.0.0.0; adit's would not"));
}

#[test]
fn the_routing_table_of_a_route_is_told() {
    let table = |table| Way { table, ..way("10.20.0.0/16", 5, &[1]) };
    let found = gre1(&["10.0.0.0/31"], vec![table(100), table(254), table(4_000_000_000), table(255)]);
    let (proposal, config) = loaded(&found);
    let tables: Vec<u32> = config.routes.iter().map(|route| config.places[route.place as usize].table).collect();
    assert_eq!(tables, [254, 100, 4_000_000_000], "{}", proposal.text);
    assert!(!proposal.text.contains("table = 254"), "{}", proposal.text);
    assert!(says(&found, "# - one over gre1, metric 5, protocol static: it is in the table of this host's own"));
}

#[test]
fn nothing_steers_the_kernel_unless_a_person_says_so() {
    let text = propose(&gre1(&["10.0.0.0/31"], vec![way("10.20.0.0/16", 5, &[1])]), None).text;
    assert!(text.contains("\n# [kernel]\n# apply = true\n") && text.contains("protocol 212"), "{text}");
    assert!(
        !propose(&gre1(&["10.0.0.0/31"], Vec::new()), None).text.contains("kernel]"),
        "without routes there is no need"
    );
}

#[test]
fn every_tunnel_is_in_the_network_namespace_that_was_looked_into() {
    let found = two(Vec::new());
    let netns = Netns::read("blue").unwrap();
    let proposal = propose(&found, Some(&netns));
    let config = Config::parse("proposed.toml", &proposal.text).unwrap();
    assert!(config.tunnels.iter().all(|tunnel| tunnel.netns.as_ref() == Some(&netns)));
    assert!(proposal.text.contains("in the network namespace blue.\n"));
}

#[test]
fn names_are_made_valid_and_unique() {
    let names = ["gre.1", "-gre", "größe", "gr-e", "gr\"e", "日本"];
    let links: Vec<Link> = (1..).zip(names).map(|(index, name)| link(index, name, Kind::Gre)).collect();
    let addresses = (1..=6).map(|index| address(index, &format!("10.0.{index}.0/31"))).collect();
    let (_, config) = loaded(&Found { links, addresses, routes: Vec::new() });
    let made: Vec<&str> = config.tunnels.iter().map(|tunnel| tunnel.name.as_str()).collect();
    assert_eq!(made, ["gre.1", "gre", "gr--e", "gr-e", "gr-e-2", "tunnel"]);
    let devices: Vec<&str> = config.tunnels.iter().filter_map(|tunnel| tunnel.device.as_deref()).collect();
    assert_eq!(devices, names);
}

#[test]
fn without_tunnels_there_is_no_text() {
    let eth0 = Link { kind: Kind::Other, ..link(1, "eth0", Kind::Other) };
    let found = Found { links: vec![eth0], addresses: vec![address(1, "10.0.0.0/31")], routes: Vec::new() };
    assert_eq!(propose(&found, None), Proposal { text: String::new(), tunnels: 0, left_out: 0 });
    assert_eq!(propose(&Found::default(), None).text, "");
}

/// Addresses of which many share a prefix, and some are nobody's.
fn some_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        (0_u8..8).prop_map(|last| IpAddr::from([10, 0, 0, last])),
        (0_u16..8).prop_map(|last| IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, last])),
        (0_u16..2).prop_map(|last| IpAddr::from([0xFE80, 0, 0, 0, 0, 0, 0, last])),
    ]
}

fn some_net() -> impl Strategy<Value = ipnet::IpNet> {
    (some_address(), 0_u8..=3, any::<u8>()).prop_map(|(address, less, any)| {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = if less == 3 { any % (longest + 1) } else { longest - less };
        ipnet::IpNet::new(address, length).unwrap()
    })
}

fn some_link() -> impl Strategy<Value = Link> {
    let kind =
        prop_oneof![8 => proptest::sample::select(&KINDS[..]), 1 => Just(Kind::Ethernet), 1 => Just(Kind::Other)];
    let end = || proptest::option::of(some_address());
    let name = prop_oneof!["[a-z]{1,3}", "\\PC{0,5}", ".{0,6}"];
    let mostly = || proptest::bool::weighted(0.9);
    (1_u32..5, name, kind, mostly(), mostly(), end(), end(), any::<Option<u32>>(), any::<Option<u8>>(), mostly())
        .prop_map(|(index, name, kind, up, point_to_point, local, remote, key, carries, fixed)| Link {
            index,
            name,
            kind,
            up,
            point_to_point,
            local,
            remote,
            key,
            carries,
            external: !fixed,
        })
}

fn some_way() -> impl Strategy<Value = Way> {
    let hop = (1_u32..6, proptest::option::of(some_address()), any::<bool>(), 1_u16..=256);
    let hops =
        proptest::collection::vec(hop.prop_map(|(link, via, onlink, weight)| Hop { link, via, onlink, weight }), 0..3);
    let metric = prop_oneof![0_u32..3, 499_998_u32..500_002, any::<u32>()];
    let odd = prop_oneof![6 => Just(None), 1 => Just(Some(Odd::Tos)), 1 => Just(Some(Odd::Object))];
    let table = prop_oneof![4 => Just(254_u32), 2 => 100_u32..102, 1 => Just(255_u32)];
    let protocol = prop_oneof![Just(4_u8), Just(212), any::<u8>()];
    (table, some_net(), metric, protocol, proptest::option::of(some_address()), hops, odd).prop_map(
        |(table, prefix, metric, protocol, source, hops, odd)| Way {
            table,
            prefix,
            metric,
            protocol,
            source,
            hops,
            odd,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        // The same cases at each run.
        rng_seed: proptest::test_runner::RngSeed::Fixed(0xAD17),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_the_kernel_has_the_proposal_loads(
        links in proptest::collection::vec(some_link(), 0..5),
        addresses in proptest::collection::vec((1_u32..5, some_net(), proptest::option::of(some_address())), 0..8),
        routes in proptest::collection::vec(some_way(), 0..10),
    ) {
        let addresses = addresses.into_iter().map(|(link, own, peer)| Address { link, own, peer }).collect();
        // No two devices have one index.
        let links = (1..).zip(links).map(|(index, link)| Link { index, ..link }).collect();
        let found = Found { links, addresses, routes };
        load(&found).map_err(TestCaseError::fail)?;
    }
}
