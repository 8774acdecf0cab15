//! What the kernel has for one prefix, and what becomes of it by a change of ours.
//!
//! A deletion takes the first route of ours that matches what is asked for, and the kernel's idea of
//! matching is wider than one would wish. So what it will really take is computed here, by the rules of
//! `fib_table_delete` and `ip6_route_del`; they are the same in Linux 5.3 to 6.18.

use super::{Hop, Way};

/// Routes of ours by metric, in the kernel's order. IPv6 has all hops of a metric as one.
pub(super) type Known = Vec<(u32, Way)>;

/// The weight of an IPv6 gateway that is alone: the kernel does not show it, but keeps it for when there are
/// more.
pub(super) const UNSEEN: u16 = 0;

/// Whether two hops lead the same way. One that names no device leaves it to the kernel.
pub(super) fn leads_alike(one: &Hop, other: &Hop) -> bool {
    one.via == other.via && same_device(one, other)
}

/// Whether two hops lead the same way with the same share.
pub(super) fn weigh_alike(one: &Hop, other: &Hop) -> bool {
    leads_alike(one, other) && (one.weight == other.weight || one.weight == UNSEEN || other.weight == UNSEEN)
}

const fn same_device(one: &Hop, other: &Hop) -> bool {
    one.device == other.device || one.device == 0 || other.device == 0
}

/// Whether a way that the kernel has is what is wanted, in whichever order its hops are.
pub(super) fn alike(wanted: &Way, known: &Way) -> bool {
    match (wanted, known) {
        (Way::Hops(wanted), Way::Hops(known)) => match (&wanted[..], &known[..]) {
            // A hop alone has no weight.
            ([one], [other]) => leads_alike(one, other),
            _ => {
                let has = |one: &Hop| known.iter().any(|other| weigh_alike(one, other));
                wanted.len() == known.len() && wanted.iter().all(has)
            }
        },
        (Way::Object(wanted), Way::Object(known)) => wanted == known,
        (Way::Unreachable, Way::Unreachable) => true,
        (Way::Hops(_) | Way::Object(_) | Way::Unreachable | Way::Other, _) => false,
    }
}

/// The hops at a metric that lead somewhere by themselves.
pub(super) fn hops_at(known: &Known, metric: u32) -> impl Iterator<Item = &Hop> {
    let here = known.iter().filter(move |(of, _)| *of == metric);
    here.flat_map(|(_, way)| if let Way::Hops(hops) = way { &hops[..] } else { &[] })
}

/// Adds a route behind those of its metric. Whether the kernel shows something now that it did not before.
pub(super) fn add(known: &mut Known, v6: bool, metric: u32, mut way: Way) -> bool {
    if let (Way::Hops(hops), true) = (&mut way, v6) {
        hops.iter_mut().filter(|hop| hop.via.is_none()).for_each(|hop| hop.weight = 1);
    }
    let gateway = matches!(&way, Way::Hops(hops) if hops.iter().any(|hop| hop.via.is_some()));
    let here = |(of, _): &(u32, Way)| v6 && *of == metric;
    let siblings = known.iter().position(|route| here(route) && gateway && has_gateway(&route.1));
    let siblings = siblings.or_else(|| known.iter().rposition(here));
    match (siblings.map(|at| &mut known[at].1), way) {
        (Some(Way::Hops(siblings)), Way::Hops(hops)) => {
            siblings.extend(hops);
            siblings.iter().any(|hop| hop.weight == UNSEEN)
        }
        (_, way) => {
            known.push((metric, way));
            false
        }
    }
}

fn has_gateway(way: &Way) -> bool {
    matches!(way, Way::Hops(hops) if hops.iter().any(|hop| hop.via.is_some()))
}

/// Whether an IPv6 gateway more would hide something: the kernel tells of all gateways of a metric at the place
/// of the first, and of nothing that stands before the last.
pub(super) fn would_hide(known: &Known, metric: u32) -> bool {
    let here = known.iter().filter(|(of, _)| *of == metric);
    let mut behind = here.map(|(_, way)| way).skip_while(|way| !has_gateway(way));
    let first = behind.next();
    let bare_behind = |way: &Way| match way {
        Way::Hops(hops) => hops.iter().skip_while(|hop| hop.via.is_none()).any(|hop| hop.via.is_none()),
        Way::Object(_) | Way::Unreachable | Way::Other => false,
    };
    first.is_some_and(bare_behind) || behind.next().is_some()
}

/// Deletes what the kernel takes if it is asked to delete this.
pub(super) fn delete(known: &mut Known, v6: bool, metric: u32, asked: &Way) {
    let hits = |hits: &dyn Fn(&Way) -> bool, known: &Known| known.iter().position(|(of, is)| *of == metric && hits(is));
    let at = match asked {
        Way::Hops(hops) if v6 => return hops.iter().for_each(|hop| delete_hop(known, metric, hop)),
        Way::Hops(asked) => hits(&|is| matches!(is, Way::Hops(is) if begins(asked, is)), known),
        // All of these lead to the loopback device, and that of an object is not looked at.
        Way::Unreachable if v6 => hits(&|is| matches!(is, Way::Unreachable | Way::Object(_)), known),
        Way::Unreachable | Way::Object(_) => hits(&|is| is == asked, known),
        // Nothing is said of where it leads.
        Way::Other => hits(&|_| true, known),
    };
    if let Some(at) = at {
        known.remove(at);
    }
}

/// Of IPv6: an object matches any hop, and so does a gateway that is asked for by its device alone.
fn delete_hop(known: &mut Known, metric: u32, asked: &Hop) {
    let at = known.iter_mut().position(|(of, is)| match is {
        Way::Hops(hops) if *of == metric => {
            let at = hops.iter().position(|is| same_device(asked, is) && (asked.via.is_none() || asked.via == is.via));
            at.map(|at| hops.remove(at)).is_some()
        }
        Way::Object(_) => *of == metric,
        Way::Hops(_) | Way::Unreachable | Way::Other => false,
    });
    if let Some(at) = at
        && !matches!(&known[at].1, Way::Hops(hops) if !hops.is_empty())
    {
        known.remove(at);
    }
}

/// Of IPv4: whether a route's hops are the first of those that are asked for, weights aside.
fn begins(asked: &[Hop], is: &[Hop]) -> bool {
    let matches = |(asked, is): (&Hop, &Hop)| same_device(asked, is) && (asked.via.is_none() || asked.via == is.via);
    is.len() <= asked.len() && asked.iter().zip(is).all(matches)
}
