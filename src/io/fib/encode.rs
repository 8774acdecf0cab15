//! A change as a message of rtnetlink(7).

use std::net::IpAddr;

use ipnet::IpNet;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteScope,
    RouteType, RouteVia,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use rtnetlink::packet_route::{AddressFamily, IpProtocol};

use super::decode::{RTM_DELROUTE, RTM_DELRULE, RTM_NEWROUTE, RTM_NEWRULE};
use super::nexthop::{self, RTM_DELNEXTHOP, RTM_NEWNEXTHOP};
use crate::io::netlink::push;
use crate::steer::{Change, Hop, KernelRoute, Leads, Nexthop, Rule, Way};
use crate::wire::Family;

/// Never `NLM_F_REPLACE` for a route: it takes over whatever has the same table, prefix and metric,
/// whoever made it.
const ADD: u16 = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
const APPEND: u16 = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_APPEND;
/// What is not there is not made.
const REPLACE: u16 = NLM_F_REQUEST | NLM_F_REPLACE;

/// An answer is wanted whether the change was made or not; without this flag, only if not.
pub(super) const ANSWER: u16 = NLM_F_ACK;

const NOWHERE: &str = "nothing of ours leads there";

/// The loopback device: it has this index in every namespace (`LOOPBACK_IFINDEX` of the kernel).
const LOOPBACK: u32 = 1;

/// Ways in one message at most: what holds them has a length of 16 bits, and each takes 28 bytes or less.
const MOST: usize = 2_048;

/// Puts a change behind what is in the buffer already, or says why it cannot be asked for.
pub(super) fn change(tag: u8, change: &Change, sequence: u32, to: &mut Vec<u8>) -> Result<(), &'static str> {
    if ways(change) > MOST {
        return Err("more ways than one message has room for");
    }
    match change {
        Change::AddRoute(route) | Change::AppendRoute(route) => {
            if route.way == Way::Other {
                return Err(NOWHERE);
            }
            let flags = if matches!(change, Change::AddRoute(_)) { ADD } else { APPEND };
            push(to, RTM_NEWROUTE, flags, sequence, &added(tag, route));
        }
        Change::DeleteRoute(route) => push(to, RTM_DELROUTE, NLM_F_REQUEST, sequence, &deleted(tag, route)),
        Change::AddNexthop(nexthop) | Change::ReplaceNexthop(nexthop) => {
            let message = nexthop::Message::of(tag, nexthop).ok_or(NOWHERE)?;
            let flags = if matches!(change, Change::AddNexthop(_)) { ADD } else { REPLACE };
            push(to, RTM_NEWNEXTHOP, flags, sequence, &message);
        }
        Change::DeleteNexthop(id) => {
            push(to, RTM_DELNEXTHOP, NLM_F_REQUEST, sequence, &nexthop::Message::about(*id));
        }
        Change::AddRule(rule) => push(to, RTM_NEWRULE, ADD, sequence, &selecting(tag, rule)),
        Change::DeleteRule(rule) => push(to, RTM_DELRULE, NLM_F_REQUEST, sequence, &selecting(tag, rule)),
    }
    Ok(())
}

/// How many ways a change names.
fn ways(change: &Change) -> usize {
    match change {
        Change::AddRoute(KernelRoute { way: Way::Hops(hops), .. })
        | Change::AppendRoute(KernelRoute { way: Way::Hops(hops), .. })
        | Change::DeleteRoute(KernelRoute { way: Way::Hops(hops), .. }) => hops.len(),
        Change::AddNexthop(Nexthop { leads: Leads::Group(members), .. })
        | Change::ReplaceNexthop(Nexthop { leads: Leads::Group(members), .. }) => members.len(),
        Change::AddRoute(_)
        | Change::AppendRoute(_)
        | Change::DeleteRoute(_)
        | Change::AddNexthop(_)
        | Change::ReplaceNexthop(_)
        | Change::DeleteNexthop(_)
        | Change::AddRule(_)
        | Change::DeleteRule(_) => 1,
    }
}

/// A route that is to be.
fn added(tag: u8, route: &KernelRoute) -> RouteMessage {
    let mut message = keyed(tag, route);
    let v4 = matches!(route.prefix, IpNet::V4(_));
    if let Way::Hops(hops) = &route.way {
        if v4 && hops.iter().all(|hop| hop.via.is_none()) {
            message.header.scope = RouteScope::Link;
        }
        match hops.as_slice() {
            // IPv6 keeps a weight that comes like this, for the case that more hops are appended; but it
            // takes a device alone only in the other way.
            [hop] if v4 || hop.weight == 1 || hop.via.is_none() => only(&mut message, hop, v4),
            hops => several(&mut message, hops, v4),
        }
    }
    message
}

/// A route that is to be no more. What is not named here matches any.
fn deleted(tag: u8, route: &KernelRoute) -> RouteMessage {
    let mut message = keyed(tag, route);
    let v4 = matches!(route.prefix, IpNet::V4(_));
    if v4 {
        message.header.scope = RouteScope::NoWhere;
    }
    match &route.way {
        // One hop, too: IPv4 compares only the first hop of a route with one that is named otherwise, and
        // IPv6 takes a device alone for all hops.
        Way::Hops(hops) => several(&mut message, hops, v4),
        // IPv6 does not compare the kind of a route, but these all lead to this device.
        Way::Unreachable if !v4 => message.attributes.push(RouteAttribute::Oif(LOOPBACK)),
        Way::Unreachable | Way::Object(_) | Way::Other => {}
    }
    message
}

/// What tells a route from all others: tag, table, prefix, metric and kind.
fn keyed(tag: u8, route: &KernelRoute) -> RouteMessage {
    let kind = match route.way {
        Way::Hops(_) | Way::Object(_) => RouteType::Unicast,
        Way::Unreachable => RouteType::Unreachable,
        Way::Other => RouteType::Unspec,
    };
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(Family::of(route.prefix.addr())),
        destination_prefix_length: route.prefix.prefix_len(),
        protocol: tag.into(),
        kind,
        ..RouteHeader::default()
    };
    message.attributes = vec![
        RouteAttribute::Destination(route.prefix.network().into()),
        // The header has room for tables below 256 only; this one counts.
        RouteAttribute::Table(route.table),
        RouteAttribute::Priority(route.metric),
    ];
    if let Way::Object(id) = route.way {
        message.attributes.push(RouteAttribute::NhId(id));
    }
    message
}

fn only(message: &mut RouteMessage, hop: &Hop, v4: bool) {
    if hop.onlink {
        message.header.flags |= RouteFlags::Onlink;
    }
    message.attributes.extend(hop.via.map(|via| gateway(via, v4)));
    if hop.device != 0 {
        message.attributes.push(RouteAttribute::Oif(hop.device));
    }
}

fn several(message: &mut RouteMessage, hops: &[Hop], v4: bool) {
    if hops.is_empty() {
        return;
    }
    let hop = |hop: &Hop| {
        let mut next = RouteNextHop::default();
        next.interface_index = hop.device;
        // Weight less 1.
        next.hops = u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
        next.flags = if hop.onlink { RouteNextHopFlags::Onlink } else { RouteNextHopFlags::empty() };
        next.attributes.extend(hop.via.map(|via| gateway(via, v4)));
        next
    };
    message.attributes.push(RouteAttribute::MultiPath(hops.iter().map(hop).collect()));
}

fn gateway(via: IpAddr, v4: bool) -> RouteAttribute {
    // A gateway of the other family has an attribute of its own, which names the family.
    if via.is_ipv4() == v4 {
        RouteAttribute::Gateway(RouteAddress::from(via))
    } else {
        RouteAttribute::Via(RouteVia::from(via))
    }
}

fn selecting(tag: u8, rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(rule.family);
    message.header.action = RuleAction::ToTable;
    let mut attributes = vec![
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(tag.into()),
    ];
    if let Some(source) = rule.source {
        message.header.src_len = source.prefix_len();
        attributes.push(RuleAttribute::Source(source.network()));
    }
    if let Some(destination) = rule.destination {
        message.header.dst_len = destination.prefix_len();
        attributes.push(RuleAttribute::Destination(destination.network()));
    }
    if let Some((mark, mask)) = rule.fwmark {
        attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mask)]);
    }
    attributes.extend(rule.protocol.map(|protocol| RuleAttribute::IpProtocol(IpProtocol::from(protocol))));
    let range = |(start, end)| RuleAttribute::DestinationPortRange(RulePortRange { start, end });
    attributes.extend(rule.ports.map(range));
    message.attributes = attributes;
    message
}

pub(super) const fn family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}
