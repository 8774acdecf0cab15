//! What Linux 6.18 has said of routes, rules, objects and devices that iproute2 6.1 had made (the netlink
//! header cut off), on a host of little-endian byte order.

use crate::steer::{Hop, KernelRoute, Leads, Link, Nexthop, Rule, Way};
use crate::wire::Family;

use super::decode::{Head, address_device, link, rule, rule_is_ours};
use super::nexthop;

const TAG: u8 = 212;

fn decode(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn route(table: u32, prefix: &str, metric: u32, way: Way) -> KernelRoute {
    KernelRoute { table, prefix: prefix.parse().unwrap(), metric, way }
}

fn hop(device: u32, via: &str, onlink: bool, weight: u16) -> Hop {
    Hop { device, via: Some(via.parse().unwrap()), onlink, weight }
}

/// `ip route add …`, the message, and what it says.
fn routes() -> Vec<(&'static str, &'static str, KernelRoute)> {
    let several = vec![hop(3, "10.0.0.9", false, 4), hop(5, "198.18.0.1", true, 1)];
    vec![
        (
            "203.0.113.0/24 metric 10 nexthop via 10.0.0.9 dev d0 weight 4 nexthop via 198.18.0.1 dev d1 onlink",
            "02180000fed400010000000008000f00fe00000008000100cb007100080006000a000000240009001000000303000000080005000a00\
             0009100004000500000008000500c6120001",
            route(254, "203.0.113.0/24", 10, Way::Hops(several)),
        ),
        (
            "203.0.114.0/24 metric 10 via inet6 fd00:1::9 dev d1",
            "02180000fed400010000000008000f00fe00000008000100cb007200080006000a000000160012000a00fd0000010000000000000000\
             0000000900000800040005000000",
            route(254, "203.0.114.0/24", 10, Way::Hops(vec![hop(5, "fd00:1::9", false, 1)])),
        ),
        (
            "unreachable 203.0.115.0/24 metric 4294967295 table 70000",
            "02180000fcd400070000000008000f007011010008000100cb00730008000600ffffffff",
            route(70_000, "203.0.115.0/24", u32::MAX, Way::Unreachable),
        ),
        (
            "203.0.116.0/24 via 10.0.0.9 mtu 1300",
            "02180000fed400010000000008000f00fe00000008000100cb0074000c0008000800020014050000080005000a000009080004000300\
             0000",
            route(254, "203.0.116.0/24", 0, Way::Other),
        ),
        (
            "203.0.117.0/24 nhid 3",
            "02180000fed400010000000008000f00fe00000008000100cb00750008001e0003000000240009001000000203000000080005000a00\
             0009100004000500000008000500c6120001",
            route(254, "203.0.117.0/24", 0, Way::Object(3)),
        ),
        (
            "2001:db8:7::/48 metric 10 nexthop via fd00:0::9 weight 2 nexthop via fd00:1::9",
            "0a300000fed400010000000008000f00fe0000001400010020010db8000700000000000000000000080006000a0000003c0009001c00\
             00010300000014000500fd0000000000000000000000000000091c0000000500000014000500fd000001000000000000000000000009\
             24000c0000000000000000000000000000000000000000000000000000000000000000000500140000000000",
            route(
                254,
                "2001:db8:7::/48",
                10,
                Way::Hops(vec![hop(3, "fd00::9", false, 2), hop(5, "fd00:1::9", false, 1)]),
            ),
        ),
        (
            "unreachable 2001:db8:8::/48 metric 10",
            "0a300000fed400070000000008000f00fe0000001400010020010db8000800000000000000000000080006000a000000080004000100\
             000024000c0000000000000000000000000000000000000000000000000000000000000000000500140000000000",
            route(254, "2001:db8:8::/48", 10, Way::Unreachable),
        ),
    ]
}

/// `ip nexthop add …`, the message, and what it says.
fn nexthops() -> Vec<(&'static str, &'static str, Nexthop)> {
    let single = |id, hop| Nexthop { id, leads: Leads::Hop(Family::V4, hop) };
    vec![
        (
            "id 1 via 10.0.0.9 dev d0",
            "02fdd4000000000008000100010000000800050003000000080006000a000009",
            single(1, hop(3, "10.0.0.9", false, 1)),
        ),
        (
            "id 2 via 198.18.0.1 dev d1 onlink",
            "0200d400040000000800010002000000080005000500000008000600c6120001",
            single(2, hop(5, "198.18.0.1", true, 1)),
        ),
        (
            "id 3 group 1,3/2",
            "0000d4000000000008000100030000000600030000000000140002000100000002000000020000000000000008000e0000000080",
            Nexthop { id: 3, leads: Leads::Group(vec![(1, 3), (2, 1)]) },
        ),
        ("id 4 blackhole", "0200d40000000000080001000400000004000400", Nexthop { id: 4, leads: Leads::Other }),
    ]
}

/// `ip rule add from 10.9.0.0/16 to 10.8.0.0/16 fwmark 0x10/0xff ipproto udp dport 4000-4010 table 70000
/// priority 50`.
const RULE: &str = "02101000fc0000010000000008000f007011010008000e00ffffffff05001500d4000000080006003200000008000a00100000\
                    0008001000ff00000008001800a00faa0f0500160011000000080001000a080000080002000a090000";
/// `ip -6 rule add iif d0 table 100 priority 51`.
const STRANGE_RULE: &str =
    "0a000000640000010000000008000f006400000008000e00ffffffff05001500d400000007000300643000000800060033000000";
/// `ip link add d0 type veth`, its first attributes.
const LINK: &str = "00000100030000004310010000000000070003006430000008000d00e80300000500100006000000";

#[test]
fn recorded_routes_are_read_as_they_were_made() {
    for (made, hex, wanted) in routes() {
        let bytes = decode(hex);
        let head = Head::read(&bytes).unwrap();
        assert!(head.is_route() && !head.choosy && head.protocol == TAG, "{made}");
        assert_eq!(head.route(), wanted, "{made}");
    }
}

#[test]
fn recorded_objects_are_read_as_they_were_made() {
    for (made, hex, wanted) in nexthops() {
        assert_eq!(nexthop::read(&decode(hex)), Some((TAG, wanted)), "{made}");
    }
}

#[test]
fn recorded_rules_are_read_as_they_were_made_if_they_could_be_ours() {
    let wanted = Rule {
        family: Family::V4,
        priority: 50,
        table: 70_000,
        source: Some("10.9.0.0/16".parse().unwrap()),
        destination: Some("10.8.0.0/16".parse().unwrap()),
        fwmark: Some((0x10, 0xFF)),
        protocol: Some(17),
        ports: Some((4_000, 4_010)),
    };
    assert_eq!(rule(TAG, &decode(RULE)), Some(wanted));
    assert_eq!(rule(TAG + 1, &decode(RULE)), None);
    assert_eq!(rule(TAG, &decode(STRANGE_RULE)), None);
    assert!([RULE, STRANGE_RULE].into_iter().all(|hex| rule_is_ours(TAG, &decode(hex))));
    assert!(!rule_is_ours(TAG + 1, &decode(RULE)));
}

/// Found by fuzzing: the destination was of whatever family its length has, and the default route's if it has
/// neither.
#[test]
fn a_route_or_rule_whose_address_is_not_of_its_family_is_none() {
    let v4 = "02180000fed4000100000000";
    let v6 = "0a180000fed4000100000000";
    let to =
        [("08000100cb007100", "v4"), ("1400010020010db8000700000000000000000000", "v6"), ("07000100cb007100", "?")];
    for (head, family, (destination, of)) in
        [(v4, "v4"), (v6, "v6")].into_iter().flat_map(|(head, family)| to.map(|to| (head, family, to)))
    {
        let bytes = decode(&format!("{head}{destination}"));
        assert_eq!(Head::read(&bytes).is_some(), family == of, "{family} with {destination}");
    }
    let whole = decode(RULE);
    let source = whole.len() - 8;
    assert_eq!(whole[source..source + 4], [8, 0, 2, 0], "FRA_SRC is the last one");
    let with = |attribute: &str| [&whole[..source], &decode(attribute)].concat();
    assert!(rule(TAG, &with("080002000a090000")).is_some());
    assert_eq!(rule(TAG, &with("1400020020010db8000700000000000000000000")), None);
    assert_eq!(rule(TAG, &with("070002000a090000")), None);
    let default = decode(v4);
    assert_eq!(
        Head::read(&[&default[..1], &[0], &default[2..]].concat()).map(|head| head.prefix.to_string()).as_deref(),
        Some("0.0.0.0/0")
    );
}

#[test]
fn a_recorded_device_is_read_as_it_was_made_but_not_as_a_port_of_a_bridge() {
    let mut bytes = decode(LINK);
    assert_eq!(link(&bytes), Some(Link { index: 3, name: "d0".to_owned(), up: true }));
    bytes[0] = 7;
    assert_eq!(link(&bytes), None);
}

#[test]
fn what_the_kernel_keeps_for_its_own_addresses_is_no_route() {
    let [local, cloned] = [
        // `ip route show table local`: local 10.0.0.1 dev d0 proto kernel scope host src 10.0.0.1.
        "02200000ff02fe020000000008000f00ff000000080001000a000001080007000a0000010800040003000000",
        // The first one above with RTM_F_CLONED.
        "02180000fed400010002000008000f00fe00000008000100cb007100080006000a000000",
    ]
    .map(decode);
    assert!([local, cloned].iter().all(|bytes| !Head::read(bytes).unwrap().is_route()));
}

#[test]
fn broken_messages_are_read_as_something_or_nothing_without_a_panic() {
    let routes = routes().into_iter().map(|(_, hex, _)| hex);
    let nexthops = nexthops().into_iter().map(|(_, hex, _)| hex);
    for whole in routes.chain(nexthops).chain([RULE, STRANGE_RULE, LINK]).map(decode) {
        let mut broken: Vec<Vec<u8>> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            broken.push(flipped);
        }
        for bytes in broken {
            let _ = Head::read(&bytes).map(|head| (head.is_route(), head.foreign(), head.route()));
            let _ = (nexthop::read(&bytes), rule(TAG, &bytes), rule_is_ours(TAG, &bytes));
            let _ = (link(&bytes), address_device(&bytes));
        }
    }
}
