//! One prefix of one table: what the kernel should have, and what it has.

use std::net::IpAddr;

use ipnet::IpNet;

use super::context::Context;
use super::groups::Groups;
use super::known::{self, Known, leads_alike};
use super::{Change, Hop, KernelRoute, Mode, Refusal, Way};
use crate::engine::Standing;
use crate::engine::penalty;

/// The metric of the backstop: the highest.
const BACKSTOP: u32 = u32::MAX;
/// "File exists": the same number on every architecture of Linux.
pub(super) const EEXIST: i32 = 17;
/// "No such file or directory", "No such process", "No such device": there is nothing to delete.
const NOT_THERE: [i32; 3] = [2, 3, 19];

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

/// A deletion that the kernel refused.
#[derive(Debug, Clone)]
pub(super) struct Stuck {
    pub(super) metric: u32,
    pub(super) way: Way,
    /// It says that there is no such route of ours, so that what a picture shows is somebody else's.
    pub(super) theirs: bool,
}

/// A prefix. Without legs, it is one that nothing leads to any more.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) table: u32,
    pub(super) prefix: IpNet,
    pub(super) legs: Vec<Leg>,
    /// The group of next-hop objects that stands for the legs.
    pub(super) group: u32,
    /// Routes of ours that the kernel has.
    pub(super) known: Known,
    /// Metrics that routes of others have, and whose they are.
    pub(super) foreign: Vec<(u32, u8)>,
    /// What the kernel did not take, and why; until the next picture.
    refused: Vec<(u32, Way, Refusal)>,
    /// What it did not delete.
    pub(super) stuck: Vec<Stuck>,
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

impl Entry {
    pub(super) fn new(table: u32, prefix: IpNet) -> Self {
        let (legs, known, foreign, refused, stuck) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { table, prefix, legs, group: 0, known, foreign, refused, stuck }
    }

    pub(super) const fn is_v6(&self) -> bool {
        matches!(self.prefix, IpNet::V6(_))
    }

    /// What the kernel should have, by metric; one way for each.
    pub(super) fn wanted(&self, context: &Context, groups: &Groups) -> Known {
        if context.ending || self.legs.is_empty() {
            return Vec::new();
        }
        let mut wanted = match context.mode {
            Mode::Metric => self.by_metric(context),
            Mode::Nexthop => {
                let id = groups.installed(self.group);
                id.map(|id| (self.base(), Way::Object(id))).into_iter().collect()
            }
        };
        if context.backstop {
            wanted.push((BACKSTOP, Way::Unreachable));
        }
        wanted
    }

    /// The metric of the one route over a group.
    pub(super) fn base(&self) -> u32 {
        self.legs.iter().map(|leg| leg.priority).min().unwrap_or(0)
    }

    fn by_metric(&self, context: &Context) -> Known {
        let hops = self.legs.iter().filter_map(|leg| Some((leg.metric(context), leg.hop(context).ok()?)));
        let mut hops: Vec<(u32, Hop)> = hops.filter(|(metric, hop)| !self.refuses(*metric, *hop)).collect();
        hops.sort_by_key(|&(metric, _)| metric);
        let together = hops.chunk_by(|one, other| one.0 == other.0);
        together.map(|hops| (hops[0].0, Way::Hops(self.together(hops)))).collect()
    }

    /// The hops of one metric, so far as they can be had together.
    fn together(&self, hops: &[(u32, Hop)]) -> Vec<Hop> {
        let mut together: Vec<Hop> = hops.iter().map(|&(_, hop)| hop).collect();
        if together.len() > 1 && self.is_v6() && together.iter().any(|hop| hop.via.is_none()) {
            // IPv6 shares traffic among gateways only (`rt6_qualify_for_ecmp`).
            if together.iter().any(|hop| hop.via.is_some()) {
                together.retain(|hop| hop.via.is_some());
            } else {
                let best = together.iter().map(|hop| hop.weight).max();
                together.retain(|hop| Some(hop.weight) == best);
                together.truncate(1);
            }
        }
        together.sort_unstable();
        // Which of them the kernel does not take it does not say. One alone is better than none.
        if together.len() > 1 && self.refusal(hops[0].0, &Way::Hops(together.clone())).is_some() {
            together.truncate(1);
        }
        together
    }

    /// Whether the kernel does not take a hop, be it alone.
    pub(super) fn refuses(&self, metric: u32, hop: Hop) -> bool {
        let alone = |way: &Way| matches!(way, Way::Hops(hops) if hops[..] == [hop]);
        self.refused.iter().any(|(of, way, _)| *of == metric && alone(way))
    }

    /// Why the kernel does not take a way.
    pub(super) fn refusal(&self, metric: u32, way: &Way) -> Option<&Refusal> {
        let is = |(of, refused, refusal): &&(u32, Way, Refusal)| {
            // A place that is taken is taken for any way.
            *of == metric && (refused == way || refusal.errno == EEXIST && *refused == Way::Other)
        };
        self.refused.iter().find(is).map(|(_, _, refusal)| refusal)
    }

    /// Why the kernel did not take something of this metric.
    pub(super) fn trouble(&self, metric: u32) -> Option<&Refusal> {
        self.refused.iter().rev().find(|(of, ..)| *of == metric).map(|(_, _, refusal)| refusal)
    }

    /// Whose route has this place in the table.
    pub(super) fn taken(&self, metric: u32) -> Option<u8> {
        self.foreign.iter().find(|(of, _)| *of == metric).map(|(_, protocol)| *protocol)
    }

    pub(super) fn route(&self, metric: u32, way: Way) -> KernelRoute {
        KernelRoute { table: self.table, prefix: self.prefix, metric, way }
    }

    /// Takes what the kernel has, the first time that it is seen: what is known of a tunnel without
    /// a verdict is how its routes were found.
    pub(super) fn adopt(&mut self, context: &mut Context) {
        let Self { known, legs, .. } = self;
        for leg in legs {
            let Ok(hop) = leg.hop(context) else { continue };
            let leads = |way: &Way| matches!(way, Way::Hops(hops) if hops.iter().any(|known| leads_alike(&hop, known)));
            let costs = known.iter().filter(|(_, way)| leads(way));
            let costs = costs.filter_map(|(metric, _)| metric.checked_sub(leg.priority));
            leg.found = costs.filter(|cost| penalty::ALL.contains(cost)).min().unwrap_or(0);
            context.find(leg.tunnel, leg.found);
        }
    }

    /// Whether a picture shows what could not be deleted.
    pub(super) fn shows(&self, Stuck { metric, way, theirs }: &Stuck) -> bool {
        let shows = match way {
            Way::Hops(hops) => hops.iter().any(|hop| known::hops_at(&self.known, *metric).any(|is| is == hop)),
            Way::Object(_) | Way::Unreachable | Way::Other => {
                self.known.iter().any(|(of, is)| of == metric && is == way)
            }
        };
        *theirs && shows
    }

    /// Forgets what the kernel did not take: the picture has changed. Whether there was anything.
    pub(super) fn forgive(&mut self) -> bool {
        let mut stuck = std::mem::take(&mut self.stuck);
        let before = stuck.len();
        stuck.retain(|stuck| self.shows(stuck));
        let forgiven = before > stuck.len();
        self.stuck = stuck;
        !std::mem::take(&mut self.refused).is_empty() || forgiven
    }

    /// The kernel has done it. Whether it is worth looking what has come of it.
    pub(super) fn done(&mut self, change: Change) -> bool {
        let v6 = self.is_v6();
        match change {
            Change::AddRoute(KernelRoute { metric, way, .. })
            | Change::AppendRoute(KernelRoute { metric, way, .. }) => {
                self.release(metric, &way);
                known::add(&mut self.known, v6, metric, way)
            }
            Change::DeleteRoute(KernelRoute { metric, way, .. }) => {
                known::delete(&mut self.known, v6, metric, &way);
                // If it was gone already, then an object has been hit in its place.
                let object = |(of, is): &(u32, Way)| *of == metric && matches!(is, Way::Object(_));
                v6 && matches!(way, Way::Hops(_)) && self.known.iter().any(object)
            }
            Change::AddNexthop(_)
            | Change::ReplaceNexthop(_)
            | Change::DeleteNexthop(_)
            | Change::AddRule(_)
            | Change::DeleteRule(_) => false,
        }
    }

    /// What is ours again can be deleted again.
    fn release(&mut self, metric: u32, added: &Way) {
        let same = |stuck: &Way| match (stuck, added) {
            (Way::Hops(stuck), Way::Hops(added)) => {
                stuck.iter().any(|hop| added.iter().any(|one| leads_alike(one, hop)))
            }
            (stuck, added) => stuck == added,
        };
        self.stuck.retain(|stuck| stuck.metric != metric || !same(&stuck.way));
    }

    /// The kernel did not do it.
    pub(super) fn refuse(&mut self, change: Change, refusal: Refusal) {
        let v6 = self.is_v6();
        match change {
            Change::AddRoute(KernelRoute { metric, way, .. }) => {
                // Which way it was does not matter then.
                let way = if refusal.errno == EEXIST { Way::Other } else { way };
                self.refused.push((metric, way, refusal));
            }
            Change::AppendRoute(KernelRoute { metric, way, .. }) => self.refused.push((metric, way, refusal)),
            Change::DeleteRoute(KernelRoute { metric, way, .. }) => {
                let theirs = is_not_there(&refusal);
                if theirs {
                    known::delete(&mut self.known, v6, metric, &way);
                }
                self.stuck.push(Stuck { metric, way, theirs });
            }
            Change::AddNexthop(_)
            | Change::ReplaceNexthop(_)
            | Change::DeleteNexthop(_)
            | Change::AddRule(_)
            | Change::DeleteRule(_) => {}
        }
    }
}

/// Whether there is nothing of ours to delete.
pub(super) fn is_not_there(refusal: &Refusal) -> bool {
    NOT_THERE.contains(&refusal.errno)
}
