//! What the kernel says, or somebody in its place: news, lists of what there is, security associations.
//!
//! The first byte says what the bytes are taken for, and whether they are the payload of one message, which
//! then gets its header.

use std::collections::BTreeSet;

use adit::io::fib::{Asked, Heard, List, News, Newspaper};
use adit::io::xfrm;
use adit::steer::{Leads, Way};
use adit::wire::Family;
use ipnet::IpNet;

const TAG: u8 = 212;
const WRAPPED: u8 = 0x80;
/// Kinds of messages (linux/netlink.h, rtnetlink.h, xfrm.h).
const KINDS: [u16; 16] = [2, 3, 16, 17, 20, 21, 24, 25, 32, 33, 104, 105, 16, 24, 32, 104];
/// Of a netlink header.
const HEADER: usize = 16;

pub(crate) fn run(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let datagram = if choice & WRAPPED == 0 { rest.to_vec() } else { wrapped(choice >> 3 & 15, rest) };
    match choice & 3 {
        0 => news(&datagram),
        1 => list(&datagram, Family::V4),
        2 => list(&datagram, Family::V6),
        _ => associations(&datagram),
    }
}

fn wrapped(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + payload.len()).unwrap_or(u32::MAX);
    let kind = KINDS[usize::from(kind)];
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], payload].concat()
}

fn news(datagram: &[u8]) {
    let hear = || {
        let mut paper = Newspaper::default();
        paper.take(TAG, datagram, &|table, _| table == 254);
        paper.heard()
    };
    let heard = hear();
    assert_eq!(heard, hear());
    if let Heard::Changed(news) = heard {
        assert!(news.len() <= 16 && news.len() <= datagram.len() / HEADER + 1, "bounded");
        for one in news {
            if let News::Route { prefix, .. } = one {
                assert!(prefix.prefix_len() <= prefix.max_prefix_len());
            }
        }
    }
}

fn list(datagram: &[u8], family: Family) {
    let sequence = datagram.get(8..12).map_or(0, |number| u32::from_ne_bytes(*number.first_chunk().unwrap()));
    let concerns = |table: u32, _: &IpNet| table == 254;
    let asked = Asked { tag: TAG, family, sequence, concerns: &concerns };
    let mut list = List::default();
    // A refusal, or the end, or there is more.
    let _ = list.take(&asked, datagram);
    let messages = datagram.len() / HEADER + 1;
    let said = list.links.len() + list.rules.len() + list.routes.ours.len() + list.routes.foreign.len();
    assert!(said + list.objects.ours.len() + list.objects.taken.len() <= messages, "bounded");
    let of = |prefix: &IpNet| matches!((prefix, family), (IpNet::V4(_), Family::V4) | (IpNet::V6(_), Family::V6));
    assert!(list.routes.ours.iter().all(|route| of(&route.prefix)));
    assert!(list.routes.foreign.iter().all(|route| route.protocol != TAG && route.table == 254 && of(&route.prefix)));
    list.routes.ours.iter().for_each(|_| super::deep());
    assert!(list.rules.iter().all(|rule| rule.family == family));
    let hops = list.routes.ours.iter().map(|route| match &route.way {
        Way::Hops(hops) => {
            assert!(hops.iter().all(|hop| (1..=256).contains(&hop.weight)), "as the kernel counts");
            hops.len()
        }
        Way::Object(_) | Way::Unreachable | Way::Other => 1,
    });
    let members = list.objects.ours.iter().map(|object| match &object.leads {
        Leads::Group(members) => members.len(),
        Leads::Hop(..) | Leads::Other => 1,
    });
    assert!(hops.sum::<usize>() + members.sum::<usize>() <= datagram.len() / 8 + messages, "bounded");
    let known = list.routes.ours.len();
    let once = list.routes.once();
    assert!(once.ours.len() <= known);
}

fn associations(datagram: &[u8]) {
    let mut found = BTreeSet::new();
    let _ = xfrm::list::read(datagram, &mut found);
    assert!(found.len() <= datagram.len() / 240 + 1, "bounded: an entry is 240 bytes");
}
