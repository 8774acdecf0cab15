//! The route table: longest prefix, priorities, penalties, weights.

#![expect(clippy::unwrap_used, reason = "a test's own constants")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use adit::engine::routes::Moved;
use adit::engine::{Route, RouteTable};

/// Every prefix that moves is told.
const ALL: usize = usize::MAX;

fn route(prefix: &str, tunnel: u32, priority: u32, weight: u32) -> Route {
    Route {
        prefix: prefix.parse().unwrap(),
        tunnel,
        priority,
        weight,
        device: None,
        via: None,
        place: 0,
        onlink: false,
    }
}

fn taken(table: &RouteTable, destination: &str, flow: u64) -> Option<u32> {
    table.pick(0, destination.parse::<IpAddr>().unwrap(), flow).map(|(_, route)| route.tunnel)
}

#[test]
fn the_longest_prefix_wins_whatever_its_priority_in_both_families() {
    let routes = vec![
        route("0.0.0.0/0", 0, 1, 1),
        route("10.0.0.0/8", 1, 100, 1),
        route("10.20.0.0/16", 2, 400_000, 1),
        route("::/0", 3, 1, 1),
        route("2001:db8::/32", 4, 499_999, 1),
    ];
    let table = RouteTable::new(routes, Vec::new(), 5, false);
    let ways = [
        ("192.0.2.1", 0),
        ("10.1.2.3", 1),
        ("10.20.0.0", 2),
        ("10.20.255.255", 2),
        ("10.21.0.0", 1),
        ("::1", 3),
        ("2001:db8:ffff::1", 4),
    ];
    for (destination, tunnel) in ways {
        assert_eq!(taken(&table, destination, 0), Some(tunnel), "{destination}");
    }
    assert_eq!(taken(&RouteTable::new(vec![route("10.0.0.0/8", 0, 1, 1)], Vec::new(), 1, false), "11.0.0.1", 0), None);
}

#[test]
fn a_penalty_reorders_and_is_computed_anew() {
    let mut table =
        RouteTable::new(vec![route("10.0.0.0/8", 0, 100, 1), route("10.0.0.0/8", 1, 200, 1)], Vec::new(), 2, false);
    assert_eq!(table.set_penalty(0, 500_000, ALL).count, 1);
    assert_eq!(taken(&table, "10.0.0.1", 0), Some(1));
    assert_eq!(table.set_penalty(0, 500_000, ALL), Moved::default());
    assert_eq!(table.set_penalty(1, 1_000_000, ALL).count, 1);
    assert_eq!(taken(&table, "10.0.0.1", 0), Some(0));
    // Both down: the order of the bases again, and still a way.
    assert_eq!(table.set_penalty(0, 1_000_000, ALL), Moved::default());
    assert_eq!(taken(&table, "10.0.0.1", 0), Some(0));
    let effective: Vec<u32> = table.iter().map(|(_, route, _)| table.effective_priority(route)).collect();
    assert_eq!(effective, [1_000_100, 1_000_200]);
    assert_eq!(table.set_penalty(0, 0, ALL), Moved::default());
}

#[test]
fn equals_share_flows_by_weight_and_a_flow_keeps_its_way() {
    let routes = vec![route("10.0.0.0/8", 0, 100, 1), route("10.0.0.0/8", 1, 100, 3), route("10.0.0.0/8", 2, 200, 256)];
    let mut table = RouteTable::new(routes, Vec::new(), 3, false);
    let shares = |table: &RouteTable| {
        let mut shares = BTreeMap::new();
        (0..4_000).for_each(|flow| *shares.entry(taken(table, "10.0.0.1", flow).unwrap()).or_insert(0) += 1);
        shares
    };
    assert_eq!(shares(&table), BTreeMap::from([(0, 1_000), (1, 3_000)]));
    table.set_penalty(1, 500_000, ALL);
    assert_eq!(shares(&table), BTreeMap::from([(0, 4_000)]));
    table.set_penalty(0, 500_000, ALL);
    assert_eq!(shares(&table), BTreeMap::from([(2, 4_000)]));
}

#[test]
fn only_prefixes_over_the_tunnel_change_and_each_says_from_where_to_where() {
    let routes = (0..100_u32).flat_map(|n| {
        let prefix = format!("10.{n}.0.0/16");
        [route(&prefix, n % 2, 100, 1), route(&prefix, 2, 200, 1)]
    });
    let mut table = RouteTable::new(routes.collect(), Vec::new(), 3, false);
    let changes = table.set_penalty(0, 1_000_000, ALL).first;
    assert_eq!(changes.len(), 50);
    assert!(changes.iter().all(|change| change.from == [0] && change.to == [2]));
}

#[test]
fn the_routes_over_a_tunnel_are_each_there_once() {
    let routes = vec![
        route("10.0.0.0/8", 0, 100, 1),
        route("10.0.0.0/8", 1, 200, 1),
        route("10.1.0.0/16", 0, 100, 1),
        // The first prefix once more, over the same tunnel.
        route("10.0.0.0/8", 0, 300, 1),
        route("10.2.0.0/16", 1, 100, 1),
        route("10.3.0.0/16", 0, 100, 1),
    ];
    let table = RouteTable::new(routes, Vec::new(), 2, false);
    let over = |tunnel, from, count| {
        let routes = table.over(tunnel, from, count).map(|(index, _, selected)| (index, selected));
        routes.collect::<Vec<_>>()
    };
    assert_eq!(over(0, 0, ALL), [(0, true), (3, false), (2, true), (5, true)]);
    assert_eq!(over(1, 0, ALL), [(1, false), (4, true)]);
    assert_eq!((table.prefixes_over(0), table.prefixes_over(1)), (3, 2));
    assert_eq!([over(0, 0, 2), over(0, 2, 2)].concat(), over(0, 0, ALL), "piece by piece");
    assert_eq!((over(0, 3, 1), over(7, 0, ALL), table.prefixes_over(7)), (vec![], vec![], 0), "there are no more");
}
