//! One prefix of one table: what the kernel should have, what it has, and the changes between.
//!
//! The order of the changes is the whole point: first what is missing is added, and only when the
//! kernel has acknowledged that, what is surplus is deleted. So no prefix is without a route for a moment
//! because of us.

use std::net::IpAddr;

use ipnet::IpNet;

use super::context::Context;
use super::groups::Groups;
use super::{Change, Hop, KernelRoute, Mode, Refusal, Way};
use crate::engine::Standing;
use crate::engine::penalty::{DEGRADED, DOWN};

/// What a found route may cost more than its base: a state, a drain, or one on top of the other.
const FOUND: [u32; 5] = [0, DEGRADED, DOWN, DEGRADED + DOWN, DOWN + DOWN];
/// The metric of the backstop: the highest.
pub(super) const BACKSTOP: u32 = u32::MAX;
/// "File exists": the same number on every architecture of Linux.
pub(super) const EEXIST: i32 = 17;

/// One way to the prefix.
#[derive(Debug, Clone)]
pub(super) struct Leg {
    pub(super) route: u32,
    pub(super) tunnel: u32,
    pub(super) priority: u32,
    pub(super) weight: u16,
    /// Index into the context's devices.
    pub(super) device: Option<u32>,
    pub(super) via: Option<IpAddr>,
    pub(super) onlink: bool,
    /// What it cost more in the kernel before there was a verdict.
    found: u32,
    /// What was last told of it.
    pub(super) told: Standing,
}

/// A prefix.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) table: u32,
    pub(super) prefix: IpNet,
    pub(super) legs: Vec<Leg>,
    /// The group of next-hop objects that stands for the legs.
    pub(super) group: u32,
    /// Routes of ours that the kernel has, by metric and in its order.
    pub(super) known: Vec<(u32, Way)>,
    /// Metrics that routes of others have, and whose they are.
    pub(super) foreign: Vec<(u32, u8)>,
    /// What the kernel did not take, and why; until the next picture.
    refused: Vec<(u32, Refusal)>,
}

impl Leg {
    pub(super) fn new(configured: &super::Leg, device: Option<u32>) -> Self {
        let &super::Leg { route, tunnel, priority, weight, via, onlink, .. } = configured;
        Self { route, tunnel, priority, weight, device, via, onlink, found: 0, told: Standing::NotManaged }
    }

    /// The hop, or what it waits for.
    pub(super) fn hop(&self, context: &Context) -> Result<Hop, String> {
        let Self { via, onlink, weight, .. } = *self;
        let hop = |device| Hop { device, via, onlink, weight };
        let Some(device) = self.device else { return Ok(hop(0)) };
        let device = &context.devices[device as usize];
        match (device.index, device.up) {
            (0, _) => Err(format!("there is no device {}", device.name)),
            (_, false) => Err(format!("device {} is down", device.name)),
            (index, true) => Ok(hop(index)),
        }
    }

    /// Base priority and penalty together; before there is a verdict, as it was found.
    pub(super) fn metric(&self, context: &Context) -> u32 {
        self.priority.saturating_add(context.penalty(self.tunnel).unwrap_or(self.found))
    }
}

/// Whether two hops lead the same way. One that names no device leaves it to the kernel.
fn leads_alike(one: &Hop, other: &Hop) -> bool {
    one.via == other.via && (one.device == other.device || one.device == 0 || other.device == 0)
}

/// Whether a way that the kernel has is what is wanted.
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

impl Entry {
    pub(super) fn new(table: u32, prefix: IpNet) -> Self {
        let (legs, known, foreign, refused) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { table, prefix, legs, group: 0, known, foreign, refused }
    }

    const fn is_v6(&self) -> bool {
        matches!(self.prefix, IpNet::V6(_))
    }

    /// What the kernel should have, by metric.
    pub(super) fn wanted(&self, context: &Context, groups: &Groups) -> Vec<(u32, Way)> {
        if context.ending {
            return Vec::new();
        }
        let mut wanted = match context.mode {
            Mode::Metric => self.by_metric(context),
            Mode::Nexthop => {
                let base = self.legs.iter().map(|leg| leg.priority).min();
                base.zip(groups.installed(self.group)).map(|(base, id)| (base, Way::Object(id))).into_iter().collect()
            }
        };
        if context.backstop {
            wanted.push((BACKSTOP, Way::Unreachable));
        }
        wanted
    }

    fn by_metric(&self, context: &Context) -> Vec<(u32, Way)> {
        let hops = self.legs.iter().filter_map(|leg| Some((leg.metric(context), leg.hop(context).ok()?)));
        let mut hops: Vec<(u32, Hop)> = hops.collect();
        hops.sort_unstable();
        let together = hops.chunk_by(|one, other| one.0 == other.0);
        together.map(|hops| (hops[0].0, Way::Hops(hops.iter().map(|&(_, hop)| hop).collect()))).collect()
    }

    fn has(&self, metric: u32, way: &Way) -> bool {
        self.known.iter().any(|(known, is)| *known == metric && alike(way, is))
    }

    fn route(&self, metric: u32, way: Way) -> KernelRoute {
        KernelRoute { table: self.table, prefix: self.prefix, metric, way }
    }

    fn refusal(&self, metric: u32) -> Option<&Refusal> {
        self.refused.iter().find(|(of, _)| *of == metric).map(|(_, refusal)| refusal)
    }

    /// Whose route has this place in the table.
    pub(super) fn taken(&self, metric: u32) -> Option<u8> {
        self.foreign.iter().find(|(of, _)| *of == metric).map(|(_, protocol)| *protocol)
    }

    /// What is missing.
    pub(super) fn adds(&self, wanted: &[(u32, Way)], changes: &mut Vec<Change>) {
        for (metric, way) in wanted {
            if self.has(*metric, way) || self.refusal(*metric).is_some() {
                continue;
            }
            let mut here = self.known.iter().filter(|(known, _)| known == metric).map(|(_, way)| way).peekable();
            if here.peek().is_none() {
                if self.taken(*metric).is_none() {
                    changes.push(Change::AddRoute(self.route(*metric, way.clone())));
                }
                continue;
            }
            let siblings = here.find_map(|way| if let Way::Hops(hops) = way { Some(hops) } else { None });
            match (way, siblings.filter(|_| self.is_v6())) {
                // One hop more, each by itself. One that is there with another weight is deleted first.
                (Way::Hops(hops), Some(there)) => {
                    let missing = hops.iter().filter(|hop| !there.iter().any(|known| leads_alike(hop, known)));
                    let append = |hop: &Hop| Change::AppendRoute(self.route(*metric, Way::Hops(vec![*hop])));
                    changes.extend(missing.map(append));
                }
                _ => changes.push(Change::AppendRoute(self.route(*metric, way.clone()))),
            }
        }
    }

    /// What is surplus, so far as it may go by now.
    pub(super) fn deletes(&self, wanted: &[(u32, Way)], context: &Context, changes: &mut Vec<Change>) {
        let serves = |(metric, way): &&(u32, Way)| *way != Way::Unreachable && self.has(*metric, way);
        // Something must be left to carry the traffic.
        if !context.ending && !wanted.iter().any(|route| serves(&route)) && !self.shrinks(wanted) {
            return;
        }
        for (metric, way) in &self.known {
            let kept = wanted.iter().filter(|(of, _)| of == metric).map(|(_, way)| way);
            let mut kept = kept.peekable();
            if kept.peek().is_some_and(|kept| alike(kept, way)) || !self.confirmed(way, context) {
                continue;
            }
            let surplus = match (kept.peek(), way) {
                (Some(Way::Hops(kept)), Way::Hops(there)) if self.is_v6() => {
                    let stays = |hop: &Hop| kept.iter().any(|one| leads_alike(one, hop) && one.weight == hop.weight);
                    Way::Hops(there.iter().filter(|hop| !stays(hop)).copied().collect())
                }
                _ => way.clone(),
            };
            changes.push(Change::DeleteRoute(self.route(*metric, surplus)));
        }
    }

    /// Whether an IPv6 route has a hop that stays, and others that do not.
    fn shrinks(&self, wanted: &[(u32, Way)]) -> bool {
        let stays = |one: &Hop, other: &Hop| leads_alike(one, other) && one.weight == other.weight;
        self.is_v6()
            && wanted.iter().any(|(metric, way)| {
                let there = self.known.iter().filter(|(known, _)| known == metric);
                there.into_iter().any(|(_, known)| match (way, known) {
                    (Way::Hops(wanted), Way::Hops(known)) => {
                        wanted.iter().any(|one| known.iter().any(|other| stays(one, other)))
                    }
                    _ => false,
                })
            })
    }

    /// Whether a surplus route is surely none that a verdict still to come would want: the tunnels that
    /// it leads through have theirs, or all are in.
    fn confirmed(&self, way: &Way, context: &Context) -> bool {
        if context.settled || context.ending {
            return true;
        }
        let Way::Hops(hops) = way else { return false };
        hops.iter().all(|hop| {
            let leg = self.legs.iter().find(|leg| leg.hop(context).is_ok_and(|known| leads_alike(&known, hop)));
            leg.is_some_and(|leg| context.penalty(leg.tunnel).is_some())
        })
    }

    /// Takes what the kernel has, the first time that it is seen: what is known of a tunnel without
    /// a verdict is how its routes were found.
    pub(super) fn adopt(&mut self, context: &Context) {
        let Self { known, legs, .. } = self;
        for leg in legs {
            let Ok(hop) = leg.hop(context) else { continue };
            let leads = |way: &Way| matches!(way, Way::Hops(hops) if hops.iter().any(|known| leads_alike(&hop, known)));
            let costs = known.iter().filter(|(_, way)| leads(way));
            let costs = costs.filter_map(|(metric, _)| metric.checked_sub(leg.priority));
            leg.found = costs.filter(|cost| FOUND.contains(cost)).min().unwrap_or(0);
        }
    }

    /// Forgets what the kernel did not take: the picture has changed.
    /// Whether there was anything.
    pub(super) fn forgive(&mut self) -> bool {
        !std::mem::take(&mut self.refused).is_empty()
    }

    /// Whether hops may share one IPv6 route.
    pub(super) fn has_siblings(&self) -> bool {
        let shares =
            |one: &Leg| self.legs.iter().any(|other| one.route != other.route && one.priority == other.priority);
        self.is_v6() && self.legs.iter().any(shares)
    }

    /// The kernel has done it.
    pub(super) fn done(&mut self, change: Change) {
        match change {
            Change::AddRoute(route) | Change::AppendRoute(route) => self.added(route),
            Change::DeleteRoute(route) => self.deleted(&route),
            Change::AddNexthop(_)
            | Change::ReplaceNexthop(_)
            | Change::DeleteNexthop(_)
            | Change::AddRule(_)
            | Change::DeleteRule(_) => {}
        }
    }

    fn added(&mut self, KernelRoute { metric, way, .. }: KernelRoute) {
        let is_v6 = self.is_v6();
        let mut here = self.known.iter_mut().filter(|(known, _)| is_v6 && *known == metric);
        let siblings = here.find_map(|(_, way)| if let Way::Hops(hops) = way { Some(hops) } else { None });
        match (siblings, way) {
            (Some(siblings), Way::Hops(hops)) => siblings.extend(hops),
            (_, way) => self.known.push((metric, way)),
        }
    }

    fn deleted(&mut self, KernelRoute { metric, way, .. }: &KernelRoute) {
        let is_v6 = self.is_v6();
        let at = self.known.iter_mut().position(|(known, is)| match (is, way) {
            (Way::Hops(there), Way::Hops(gone)) if is_v6 && known == metric => {
                let before = there.len();
                there.retain(|hop| !gone.iter().any(|gone| leads_alike(gone, hop)));
                there.len() < before
            }
            (is, way) => known == metric && is == way,
        });
        let empty = |way: &Way| matches!(way, Way::Hops(hops) if hops.is_empty());
        if let Some(at) = at
            && (!is_v6 || !matches!(way, Way::Hops(_)) || empty(&self.known[at].1))
        {
            self.known.remove(at);
        }
    }

    /// The kernel did not do it.
    pub(super) fn refuse(&mut self, change: Change, refusal: Refusal) {
        match change {
            Change::AddRoute(route) | Change::AppendRoute(route) => self.refused.push((route.metric, refusal)),
            // It is gone already.
            Change::DeleteRoute(route) => self.deleted(&route),
            Change::AddNexthop(_)
            | Change::ReplaceNexthop(_)
            | Change::DeleteNexthop(_)
            | Change::AddRule(_)
            | Change::DeleteRule(_) => {}
        }
    }

    /// How a leg stands in the kernel.
    pub(super) fn standing(&self, leg: &Leg, context: &Context, groups: &Groups) -> Standing {
        let hop = match leg.hop(context) {
            Ok(hop) => hop,
            Err(why) => return Standing::Waiting(why),
        };
        let (metric, way) = match context.mode {
            Mode::Metric => (leg.metric(context), None),
            Mode::Nexthop => {
                let base = self.legs.iter().map(|leg| leg.priority).min().unwrap_or(leg.priority);
                match groups.installed(self.group) {
                    Some(id) => (base, Some(Way::Object(id))),
                    None => return groups.trouble(self.group).map_or(Standing::Pending, Standing::Refused),
                }
            }
        };
        let leads = |known: &Way| match (&way, known) {
            (Some(way), known) => way == known,
            (None, Way::Hops(hops)) => hops.iter().any(|other| leads_alike(&hop, other)),
            (None, Way::Object(_) | Way::Unreachable | Way::Other) => false,
        };
        if self.known.iter().any(|(known, is)| *known == metric && leads(is)) {
            let effective = leg.priority.saturating_add(context.penalty(leg.tunnel).unwrap_or(0));
            return Standing::Installed(Some(metric).filter(|&metric| metric != effective));
        }
        match (self.taken(metric), self.refusal(metric)) {
            (Some(protocol), _) => Standing::Conflict(format!(
                "a route of protocol {} has this prefix and metric {metric} already",
                super::text::protocol(protocol)
            )),
            (None, Some(Refusal { errno: EEXIST, .. })) => {
                Standing::Conflict(format!("somebody else has a route of this prefix and metric {metric}"))
            }
            (None, Some(refusal)) => Standing::Refused(refusal.why.clone()),
            (None, None) => Standing::Pending,
        }
    }
}
