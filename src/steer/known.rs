//! What the kernel has for one prefix, and what becomes of it by a change of ours.
//!
//! A deletion takes the first route of ours that matches what is asked for, and the kernel's idea of
//! matching is wider than one would wish. So what it will really take is computed here, by the rules of
//! `fib_table_delete` and `ip6_route_del`; they are the same in Linux 5.3 to 6.18.

use super::{Hop, Way};

/// Routes of ours by metric, in the kernel's order. IPv6 has all hops of a metric as one.
pub(super) type Known = Vec<(u32, Way)>;

/// Whether two hops lead the same way. One that names no device leaves it to the kernel.
pub(super) fn leads_alike(one: &Hop, other: &Hop) -> bool {
    one.via == other.via && same_device(one, other)
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
                let has = |one: &Hop| known.iter().any(|other| leads_alike(one, other) && one.weight == other.weight);
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

/// Adds a route behind those of its metric.
pub(super) fn add(known: &mut Known, v6: bool, metric: u32, way: Way) {
    let mut here = known.iter_mut().filter(|(of, _)| v6 && *of == metric);
    let siblings = here.find_map(|(_, way)| if let Way::Hops(hops) = way { Some(hops) } else { None });
    match (siblings, way) {
        (Some(siblings), Way::Hops(hops)) => siblings.extend(hops),
        (_, way) => known.push((metric, way)),
    }
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
