//! Which next-hop objects others lead over: to delete these would take the others' routes away.

use adit::steer::{Change, Way};
use adit::wire::Family;

use crate::fib::{Net, group, route, single};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let cases: [(&str, fn()); 2] = [
        ("objects_that_routes_or_groups_of_others_lead_over_are_pictured_as_lent", lent),
        ("of_objects_that_only_ours_lead_over_none_is_lent", own),
    ];
    cases.into_iter().map(|(name, run)| case(format!("fib::{name}"), run).with_iproute()).collect()
}

const V4: Family = Family::V4;
const V6: Family = Family::V6;

/// Four objects of ours, and a group of the last one.
fn net() -> Net {
    let mut net = Net::new();
    let object = |id, family, device| single(id, family, net.via(family, device, 9, 1));
    let objects = [object(11, V4, 0), object(12, V6, 0), object(13, V4, 1), object(14, V6, 1), group(15, &[(14, 1)])];
    net.make(&objects.map(Change::AddNexthop));
    net
}

fn lent_in(net: &mut Net) -> Vec<u32> {
    // None of these routes is to a prefix that matters to us.
    let mut lent = net.reader.picture(|_, _| false, || true).unwrap().unwrap().lent;
    lent.sort_unstable();
    lent.dedup();
    lent
}

fn lent() {
    let mut net = net();
    // In any table, of any metric, and for some packets only: whatever leads over one.
    let uses: [(&str, &str, &[u32]); 6] = [
        ("route", "198.51.100.0/24 nhid 11 table 70000 proto static", &[11]),
        ("route", "198.51.100.0/24 tos 0x10 nhid 11 metric 9 proto static", &[11]),
        ("-6 route", "2001:db8:9::/48 nhid 12 proto static", &[12]),
        ("-6 route", "2001:db8:9::/48 nhid 15 metric 7 proto bird", &[15]),
        ("nexthop", "id 7 group 13 proto static", &[13]),
        ("nexthop", "id 7 group 11/13 proto zebra", &[11, 13]),
    ];
    for (what, use_, wanted) in uses {
        net.ip(&format!("{what} add {use_}"));
        assert_eq!(lent_in(&mut net), wanted, "{what} {use_}");
        let name = if what == "nexthop" { "id 7" } else { use_ };
        net.ip(&format!("{what} del {name}"));
        assert_eq!(lent_in(&mut net), [0; 0], "{what} {use_}");
    }
}

fn own() {
    let mut net = net();
    let ours = [("203.0.113.0/24", 11), ("2001:db8:7::/48", 15), ("2001:db8:8::/48", 12)];
    net.make(&ours.map(|(prefix, id)| Change::AddRoute(route(prefix, 5, Way::Object(id)))));
    net.ip("nexthop add id 8 via 10.0.0.8 dev d0 proto static");
    let lent = lent_in(&mut net);
    assert!(lent.iter().all(|id| *id == 8), "{lent:?}");
}
