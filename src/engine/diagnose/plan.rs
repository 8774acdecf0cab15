//! Which legs a round has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::Bearings;
use super::leg::{GAP, Leg, Part};
use crate::engine::obstacle::Obstacle;
use crate::engine::prober::Prober;
use crate::engine::{Egress, Time};
use crate::wire::probe::header_len;
use crate::wire::{Direction, Encapsulation, Ends, Family, Kind, Onion, Style, icmp, payload};

/// Lengths that the outer packet, or without one the inner packet, has in the round of sizes: where links and
/// tunnels have their limits.
const SIZES: [usize; 15] = [576, 1024, 1280, 1320, 1360, 1400, 1420, 1440, 1460, 1476, 1492, 1500, 2000, 4000, 9000];
/// Lengths tried at once between two others.
const STEPS: usize = 8;
/// Rounds of them: enough for a gap of 700 bytes.
pub(super) const BETWEEN: u8 = 3;
/// Long probes leave so long one after the other: a policer is not what is looked for.
const PACE: Duration = Duration::from_millis(10);

/// Sources that are nobody's: the dummy address of RFC 7600, and one of the discard prefix (RFC 6666).
const NOBODY: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(192, 0, 0, 8), Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 8));

const KINDS: [Kind; 2] = [Kind::Request, Kind::Reply];
const DIRECTIONS: [Direction; 2] = [Direction::Bidirectional, Direction::Unidirectional];

/// The first round. Of the identifiers, the first is that of regular probes.
pub(super) fn styles(prober: &Prober, bearings: &Bearings, now: Time, [known, fresh]: [u16; 2]) -> Vec<Leg> {
    let own = &prober.settings.onion;
    let barred = |style: Style| match &prober.obstacle {
        // It would drop these and no others.
        Some(Obstacle::Withheld(_)) if style != own.style => None,
        obstacle => obstacle.as_ref().map(Obstacle::to_string),
    };
    let inside = |part, onion: &Onion, identifier, begin| {
        leg(part, onion, prober.settings.egress, identifier, begin).barred(barred(onion.style).as_deref())
    };
    let mut legs = Vec::new();
    let underlay = underlay(prober, bearings).map(|(onion, egress)| leg(Part::Underlay, &onion, egress, fresh, now));
    let has_underlay = underlay.is_some();
    legs.extend(underlay);
    legs.push(inside(Part::Regular, own, known, now));
    // Each with an identifier of its own: one that a firewall has seen in a request would let a reply pass.
    let identifier = |nth: u16| fresh.wrapping_add(nth);
    let mut nth = 0;
    for direction in DIRECTIONS {
        let Some(inner) = ends(own, bearings, direction) else { continue };
        for kind in KINDS {
            nth += 1;
            let onion = Onion { style: Style { kind, direction }, inner, ..own.clone() };
            legs.push(inside(Part::Fresh, &onion, identifier(nth), now));
            if onion.style != own.style {
                continue;
            }
            // A bare ping has gone between the same ends, and firewalls of both sides have seen it. Inside, the
            // request of this direction was the leg before.
            let follows_ping = has_underlay && inner == own.outer;
            let before = match kind {
                _ if direction == Direction::Unidirectional && follows_ping => Some(fresh),
                Kind::Reply => Some(identifier(nth - 1)),
                Kind::Request => None,
            };
            legs.extend(before.map(|before| inside(Part::Tracked, &onion, before, now + GAP)));
            let foreign = foreign(&onion).filter(|_| kind == Kind::Reply);
            legs.extend(foreign.map(|onion| inside(Part::Foreign, &onion, identifier(nth + 8), now)));
        }
    }
    let others = (16..).zip(others(prober, bearings));
    legs.extend(others.map(|(nth, (part, onion))| inside(part, &onion, identifier(nth), now)));
    legs
}

/// The tunnel's style to its further targets, and to the far router itself where that is no target: so that a target
/// that is dead is told from a tunnel that is.
fn others(prober: &Prober, bearings: &Bearings) -> impl Iterator<Item = (Part, Onion)> {
    let own = &prober.settings.onion;
    let further = prober.settings.targets.as_ref().map_or(&[][..], |targets| &targets.further);
    let router = match own.style.direction {
        Direction::Bidirectional => bearings.inside.map(Ends::far),
        Direction::Unidirectional => Some(own.outer.far()).filter(|_| knows_endpoints(own)),
    };
    let router = router.filter(|router| *router != own.inner.far() && !further.contains(router));
    let all = further.iter().map(|target| (Part::Target, *target)).chain(router.map(|router| (Part::Router, router)));
    all.filter_map(|(part, far)| Ends::new(own.inner.local(), far).map(|inner| (part, Onion { inner, ..own.clone() })))
}

/// The inner addresses of a direction, if they are known.
fn ends(own: &Onion, bearings: &Bearings, direction: Direction) -> Option<Ends> {
    match direction {
        _ if direction == own.style.direction => Some(own.inner),
        Direction::Bidirectional => bearings.inside,
        Direction::Unidirectional => Some(own.outer).filter(|_| knows_endpoints(own)),
    }
}

/// Whether the endpoints are known: where they are not, the inner ends stand for them.
fn knows_endpoints(own: &Onion) -> bool {
    own.encapsulation != Encapsulation::Device
        || own.outer != own.inner
        || own.style.direction == Direction::Unidirectional
}

fn underlay(prober: &Prober, bearings: &Bearings) -> Option<(Onion, Egress)> {
    let own = &prober.settings.onion;
    let egress = match own.encapsulation {
        Encapsulation::Device => bearings.underlay?,
        Encapsulation::Gre(_) | Encapsulation::Esp(_) => prober.settings.egress,
    };
    let style = Style { kind: Kind::Request, direction: Direction::Unidirectional };
    let onion = Onion { style, encapsulation: Encapsulation::Device, inner: own.outer, ..own.clone() };
    Some((onion, egress)).filter(|_| knows_endpoints(own))
}

/// The same from an address that is nobody's.
fn foreign(onion: &Onion) -> Option<Onion> {
    let nobody = match onion.inner.family() {
        Family::V4 => IpAddr::from(NOBODY.0),
        Family::V6 => IpAddr::from(NOBODY.1),
    };
    Some(Onion { inner: Ends::new(onion.inner.local(), nobody)?, ..onion.clone() })
}

fn leg(part: Part, onion: &Onion, egress: Egress, identifier: u16, begin: Time) -> Leg {
    Leg::new(part, onion, egress, identifier, length(onion), begin)
}

/// The length of the inner packet.
fn length(onion: &Onion) -> usize {
    header_len(onion.inner.family()) + icmp::HEADER + usize::from(onion.size).max(payload::LEN)
}

/// The round of sizes, if the tunnel's own style is answered.
pub(super) fn sizes(prober: &Prober, legs: &[Leg], now: Time) -> Vec<Leg> {
    let Some(carrier) = carrier(prober, legs) else { return Vec::new() };
    let own = &prober.settings.onion;
    let least = length(own);
    let lengths = SIZES.iter().filter_map(|&size| {
        (least..size).rev().find(|&inner| own.encapsulation.length(own.outer.family(), inner) <= size)
    });
    long(prober, carrier, lengths, now)
}

/// The sizes between the longest that was answered and the shortest longer one that was not.
pub(super) fn between(prober: &Prober, legs: &[Leg], now: Time) -> Vec<Leg> {
    let Some((carrier, (passes, Some(fails)))) = carrier(prober, legs).zip(limits(legs)) else { return Vec::new() };
    let gap = fails - passes;
    let steps = STEPS.min(gap.saturating_sub(1));
    long(prober, carrier, (1..=steps).map(|step| passes + step * gap / (steps + 1)), now)
}

/// The longest inner packet that was answered, and the shortest longer one that was not.
pub(super) fn limits(legs: &[Leg]) -> Option<(usize, Option<usize>)> {
    let sizes = || legs.iter().filter(|leg| leg.part == Part::Size);
    sizes().next()?;
    let shortest = legs.iter().filter(|leg| [Part::Regular, Part::Fresh, Part::Target].contains(&leg.part));
    let answered = sizes().chain(shortest).filter(|leg| leg.answers() > 0).map(|leg| leg.length).max()?;
    let not = sizes().filter(|leg| leg.answers() == 0 && leg.length > answered).map(|leg| leg.length).min();
    Some((answered, not))
}

/// The leg whose style and target long probes have: the tunnel's own, if it is answered.
fn carrier<'a>(prober: &Prober, legs: &'a [Leg]) -> Option<&'a Leg> {
    let own = legs.iter().filter(|leg| leg.style == prober.settings.onion.style);
    let mut own = own.filter(|leg| [Part::Regular, Part::Fresh, Part::Target].contains(&leg.part));
    own.find(|leg| leg.answers() > 0)
}

fn long(prober: &Prober, carrier: &Leg, lengths: impl Iterator<Item = usize>, now: Time) -> Vec<Leg> {
    let own = &prober.settings.onion;
    let shortest = header_len(carrier.inner.family()) + icmp::HEADER;
    let leg = |(nth, length): (u32, usize)| {
        let size = u16::try_from(length.saturating_sub(shortest)).unwrap_or(u16::MAX);
        let onion = Onion { style: carrier.style, inner: carrier.inner, size, ..own.clone() };
        Leg::new(Part::Size, &onion, prober.settings.egress, carrier.identifier, length, now + PACE * nth)
    };
    (0..).zip(lengths).map(leg).collect()
}
