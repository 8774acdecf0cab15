//! Numbers of objects, and what the kernel has of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Groups, Member, Neighbour, Place};
use crate::steer::context::Context;
use crate::steer::{Leads, Nexthop};

/// Numbers of ours begin here, far from those that other daemons count up from 1.
const FIRST: u32 = 0x0AD1_0000;
/// And there are so many.
const COUNT: u32 = 1 << 24;

impl Groups {
    /// Gives every object its number: the same at every start, so long as what it stands for stays, so
    /// that an earlier run's are found again. Numbers that others have are left alone, and so are those of
    /// ours that the kernel cannot turn into what is wanted.
    pub(in crate::steer) fn assign(&mut self, context: &Context, nexthops: &[Nexthop], taken: &[u32]) {
        let clash = |id: &u32| self.by_id.get(id).is_some_and(|place| self.known(*place).is_none());
        if self.assigned && !taken.iter().any(clash) {
            return;
        }
        self.assigned = true;
        let there: BTreeMap<u32, &Leads> = nexthops.iter().map(|nexthop| (nexthop.id, &nexthop.leads)).collect();
        let mut used: BTreeSet<u32> = taken.iter().copied().collect();
        let mut free = |what: &str, group: bool| {
            let unfit = |id: u32| match there.get(&id) {
                None => false,
                Some(Leads::Group(_)) => !group,
                Some(Leads::Hop(..)) => group,
                Some(Leads::Other) => true,
            };
            free(what, |id| !unfit(id) && used.insert(id))
        };
        let name = |neighbour: &Neighbour| {
            let Neighbour { family, device, via, onlink } = neighbour;
            format!("{family:?} {} {via:?} {onlink}", context.devices[*device as usize].name)
        };
        for (neighbour, object) in &mut self.neighbours {
            object.id = free(&name(neighbour), false);
        }
        for (members, object) in &mut self.groups {
            let of = |Member { priority, weight, neighbour, .. }: &Member| {
                format!("{priority} {weight} {}", name(&self.neighbours[*neighbour as usize].0))
            };
            let mut of: Vec<String> = members.iter().map(of).collect();
            of.sort_unstable();
            object.id = free(&format!("group {of:?}"), true);
        }
        let neighbours = self.neighbours.iter().enumerate().map(|(at, (_, one))| (one.id, Place::Neighbour(at)));
        let groups = self.groups.iter().enumerate().map(|(at, (_, one))| (one.id, Place::Group(at)));
        self.by_id = neighbours.chain(groups).collect();
    }

    const fn known(&self, place: Place) -> Option<&Leads> {
        match place {
            Place::Neighbour(at) => self.neighbours.as_slice()[at].1.known.as_ref(),
            Place::Group(at) => self.groups.as_slice()[at].1.known.as_ref(),
        }
    }

    /// Takes what the kernel has, tells what has changed without us, and gives the objects that are gone
    /// with their device.
    pub(in crate::steer) fn see(
        &mut self,
        nexthops: &[Nexthop],
        first: bool,
        is_up: impl Fn(u32) -> bool,
        drift: &mut Vec<String>,
    ) -> BTreeSet<u32> {
        let mut there: BTreeMap<u32, Leads> =
            nexthops.iter().map(|nexthop| (nexthop.id, nexthop.leads.clone())).collect();
        let mut lost = BTreeSet::new();
        let objects = self.neighbours.iter_mut().map(|(_, object)| object);
        for object in objects.chain(self.groups.iter_mut().map(|(_, object)| object)) {
            let now = there.remove(&object.id);
            let before = object.known.take().and_then(|known| without(known, &is_up, &lost));
            if before.is_none() && now.is_none() {
                lost.insert(object.id);
            }
            if !first && now != before {
                let what = match (&before, &now) {
                    (_, None) => "is gone",
                    (None, _) => "is new",
                    (Some(_), Some(_)) => "is other than it was",
                };
                drift.push(format!("next-hop object {} {what}", object.id));
            }
            if first {
                object.found = match &now {
                    Some(Leads::Group(members)) => members.iter().map(|&(id, _)| id).collect(),
                    Some(Leads::Hop(..) | Leads::Other) | None => Vec::new(),
                };
            }
            object.known = now;
            object.refused = None;
        }
        let strays = std::mem::replace(&mut self.strays, there);
        if !first {
            let fresh = self.strays.keys().filter(|id| !strays.contains_key(id));
            drift.extend(fresh.map(|id| format!("next-hop object {id} is new")));
        }
        lose(strays, is_up, &mut lost);
        self.dirty = true;
        lost
    }
}

/// Adds those of the objects that nothing wants.
fn lose(strays: BTreeMap<u32, Leads>, is_up: impl Fn(u32) -> bool, lost: &mut BTreeSet<u32>) {
    // Groups after what they consist of.
    let is_group = |leads: &Leads| matches!(leads, Leads::Group(_));
    let (groups, others): (Vec<_>, Vec<_>) = strays.into_iter().partition(|(_, leads)| is_group(leads));
    for (id, leads) in others.into_iter().chain(groups) {
        if without(leads, &is_up, lost).is_none() {
            lost.insert(id);
        }
    }
}

/// What is left of an object when the kernel has taken from it what was lost with a device.
fn without(leads: Leads, is_up: impl Fn(u32) -> bool, lost: &BTreeSet<u32>) -> Option<Leads> {
    match leads {
        Leads::Hop(_, hop) if !is_up(hop.device) => None,
        Leads::Group(mut members) => {
            members.retain(|(id, _)| !lost.contains(id));
            (!members.is_empty()).then_some(Leads::Group(members))
        }
        Leads::Hop(..) | Leads::Other => Some(leads),
    }
}

/// A number that is free, by what it is for: FNV-1a (RFC 9923), and the next ones where that is taken.
fn free(what: &str, mut takes: impl FnMut(u32) -> bool) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = what.bytes().fold(0x811C_9DC5, step);
    let mut id = FIRST + hash % COUNT;
    while !takes(id) {
        id = FIRST + (id - FIRST + 1) % COUNT;
    }
    id
}
