//! Next-hop objects: one for each neighbour, and a group of them for each set of legs that prefixes have in
//! common. A verdict changes the groups, however many prefixes lead over them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::context::Context;
use super::entry::Leg;
use super::{Change, Hop, Leads, Nexthop, Refusal};
use crate::wire::Family;

/// Numbers of ours begin here, far from those that other daemons count up from 1.
const FIRST: u32 = 0x0AD1_0000;
/// And there are so many.
const COUNT: u32 = 1 << 16;

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Neighbour {
    family: Family,
    /// Index into the context's devices.
    device: u32,
    via: Option<IpAddr>,
    onlink: bool,
}

/// One of a group's ways.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    tunnel: u32,
    priority: u32,
    weight: u16,
    neighbour: u32,
}

/// Which object it is.
#[derive(Debug, Clone, Copy)]
enum Place {
    Neighbour(usize),
    Group(usize),
}

/// A next-hop object of ours.
#[derive(Debug, Clone)]
struct Object {
    id: u32,
    /// What the kernel has of this number.
    known: Option<Leads>,
    /// Why it does not have what it should; until the next picture.
    refused: Option<Refusal>,
}

/// All next-hop objects of a namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    neighbours: Vec<(Neighbour, Object)>,
    groups: Vec<(Vec<Member>, Object)>,
    by_members: BTreeMap<Vec<Member>, u32>,
    by_neighbour: BTreeMap<Neighbour, u32>,
    /// Where an object is found by its number.
    by_id: BTreeMap<u32, Place>,
    /// Objects of ours that nothing wants any more.
    strays: BTreeSet<u32>,
    dirty: bool,
}

impl Groups {
    /// The group that stands for these legs.
    pub(super) fn group(&mut self, family: Family, legs: &[Leg]) -> u32 {
        let mut members: Vec<Member> = legs.iter().filter_map(|leg| self.member(family, leg)).collect();
        members.sort_unstable();
        if let Some(&at) = self.by_members.get(&members) {
            return at;
        }
        let at = super::number(self.groups.len());
        self.by_members.insert(members.clone(), at);
        self.groups.push((members, Object { id: 0, known: None, refused: None }));
        at
    }

    /// A leg without a device has no object: the kernel takes none.
    fn member(&mut self, family: Family, leg: &Leg) -> Option<Member> {
        let &Leg { tunnel, priority, weight, via, onlink, .. } = leg;
        let neighbour = Neighbour { family, device: leg.device?, via, onlink };
        let next = super::number(self.neighbours.len());
        let at = *self.by_neighbour.entry(neighbour.clone()).or_insert(next);
        if at == next {
            self.neighbours.push((neighbour, Object { id: 0, known: None, refused: None }));
        }
        Some(Member { tunnel, priority, weight, neighbour: at })
    }

    /// Gives every object its number: the same at every start, so long as what it stands for stays, so
    /// that an earlier run's are found again. Numbers that others have are left alone.
    pub(super) fn assign(&mut self, context: &Context, taken: &[u32]) {
        let mut used: BTreeSet<u32> = taken.iter().copied().collect();
        let name = |neighbour: &Neighbour| {
            let Neighbour { family, device, via, onlink } = neighbour;
            format!("{family:?} {} {via:?} {onlink}", context.devices[*device as usize].name)
        };
        for (neighbour, object) in &mut self.neighbours {
            object.id = free(&name(neighbour), &mut used);
        }
        for (members, object) in &mut self.groups {
            let of = |Member { priority, weight, neighbour, .. }: &Member| {
                format!("{priority} {weight} {}", name(&self.neighbours[*neighbour as usize].0))
            };
            let mut of: Vec<String> = members.iter().map(of).collect();
            of.sort_unstable();
            object.id = free(&format!("group {of:?}"), &mut used);
        }
        let neighbours = self.neighbours.iter().enumerate().map(|(at, (_, one))| (one.id, Place::Neighbour(at)));
        let groups = self.groups.iter().enumerate().map(|(at, (_, one))| (one.id, Place::Group(at)));
        self.by_id = neighbours.chain(groups).collect();
    }

    /// Takes what the kernel has, and tells what has changed without us.
    pub(super) fn see(&mut self, nexthops: &[Nexthop], first: bool, drift: &mut Vec<String>) {
        let mut there: BTreeMap<u32, &Leads> = nexthops.iter().map(|nexthop| (nexthop.id, &nexthop.leads)).collect();
        let objects = self.neighbours.iter_mut().map(|(_, object)| object);
        for object in objects.chain(self.groups.iter_mut().map(|(_, object)| object)) {
            let now = there.remove(&object.id).cloned();
            if !first && now != object.known {
                let what = if now.is_none() { "is gone" } else { "is other than it was" };
                drift.push(format!("next-hop object {} {what}", object.id));
            }
            object.known = now;
            object.refused = None;
        }
        let strays: BTreeSet<u32> = there.into_keys().collect();
        if !first && strays != self.strays {
            let fresh = strays.difference(&self.strays).map(|id| format!("next-hop object {id} is new"));
            drift.extend(fresh);
        }
        self.strays = strays;
        self.dirty = true;
    }

    /// Something that groups depend on has changed.
    pub(super) const fn touch(&mut self) {
        self.dirty = true;
    }

    /// The number of a group, if the kernel has it.
    pub(super) fn installed(&self, group: u32) -> Option<u32> {
        let (_, object) = self.groups.get(group as usize)?;
        object.known.as_ref().map(|_| object.id)
    }

    /// Why a group is not as it should be.
    pub(super) fn trouble(&self, group: u32) -> Option<String> {
        let (members, object) = self.groups.get(group as usize)?;
        let own = object.refused.iter();
        let of = members.iter().filter_map(|member| self.neighbours[member.neighbour as usize].1.refused.as_ref());
        own.chain(of).next().map(|refusal| refusal.why.clone())
    }

    /// What is missing or other than it should be: neighbours, then groups.
    pub(super) fn adds(&mut self, context: &Context, changes: &mut Vec<Change>) {
        if !std::mem::take(&mut self.dirty) || context.ending {
            return;
        }
        let mut ready = Vec::new();
        for (neighbour, object) in &self.neighbours {
            let wanted = neighbour.leads(context);
            if let Some(wanted) = wanted.clone() {
                object.bring(wanted, changes);
            }
            // A neighbour that is refused here is refused to the group, too, and said so there.
            ready.push(wanted.is_some() && object.refused.is_none());
        }
        for (members, object) in &self.groups {
            match self.selected(members, &ready, context, object) {
                Some(wanted) if !wanted.is_empty() => object.bring(Leads::Group(wanted), changes),
                Some(_) | None => {}
            }
        }
    }

    /// The members that carry traffic: those of the lowest effective priority among those that could.
    /// `None` where it stays as it was found, because a verdict is still to come.
    fn selected(
        &self,
        members: &[Member],
        ready: &[bool],
        context: &Context,
        object: &Object,
    ) -> Option<Vec<(u32, u16)>> {
        let ready = members.iter().filter(|member| ready[member.neighbour as usize]);
        let id = |member: &Member| self.neighbours[member.neighbour as usize].1.id;
        let waits = |member: &Member| context.penalty(member.tunnel).is_none();
        if let Some(Leads::Group(found)) = &object.known
            && !context.settled
            && members.iter().any(waits)
            && !found.is_empty()
            && found.iter().all(|(of, _)| ready.clone().any(|member| id(member) == *of))
        {
            return None;
        }
        let metric = |member: &Member| member.priority.saturating_add(context.penalty(member.tunnel).unwrap_or(0));
        let lowest = ready.clone().map(metric).min();
        let best = ready.filter(|member| Some(metric(member)) == lowest);
        let mut best: Vec<_> = best.map(|member| (id(member), member.weight)).collect();
        // One alone has no share.
        if let [(_, weight)] = &mut best[..] {
            *weight = 1;
        }
        best.sort_unstable();
        Some(best)
    }

    /// Objects that nothing wants and no route of ours leads over: groups, then neighbours.
    pub(super) fn deletes(&self, context: &Context, used: impl Fn(u32) -> bool, changes: &mut Vec<Change>) {
        let all = context.ending;
        if !all && !context.settled {
            return;
        }
        let here = |object: &Object| object.known.is_some().then_some(object.id);
        let groups = self.groups.iter().filter(|_| all).filter_map(|(_, object)| here(object));
        let neighbours = self.neighbours.iter().filter(|_| all).filter_map(|(_, object)| here(object));
        let gone = groups.chain(self.strays.iter().copied()).chain(neighbours).filter(|&id| all || !used(id));
        changes.extend(gone.map(Change::DeleteNexthop));
    }

    /// The kernel has done it. Whether the group is new, so that routes can lead over it.
    pub(super) fn done(&mut self, change: &Change) -> bool {
        match change {
            Change::AddNexthop(Nexthop { id, leads }) | Change::ReplaceNexthop(Nexthop { id, leads }) => {
                let object = self.object(*id);
                object.is_some_and(|object| object.known.replace(leads.clone()).is_none())
            }
            Change::DeleteNexthop(id) => {
                self.strays.remove(id);
                if let Some(object) = self.object(*id) {
                    object.known = None;
                }
                false
            }
            Change::AddRoute(_)
            | Change::AppendRoute(_)
            | Change::DeleteRoute(_)
            | Change::AddRule(_)
            | Change::DeleteRule(_) => false,
        }
    }

    /// The kernel did not do it.
    pub(super) fn refuse(&mut self, change: &Change, refusal: Refusal) {
        match change {
            Change::AddNexthop(Nexthop { id, .. }) | Change::ReplaceNexthop(Nexthop { id, .. }) => {
                if let Some(object) = self.object(*id) {
                    object.refused = Some(refusal);
                }
            }
            Change::DeleteNexthop(id) => drop(self.strays.remove(id)),
            Change::AddRoute(_)
            | Change::AppendRoute(_)
            | Change::DeleteRoute(_)
            | Change::AddRule(_)
            | Change::DeleteRule(_) => {}
        }
    }

    fn object(&mut self, id: u32) -> Option<&mut Object> {
        Some(match *self.by_id.get(&id)? {
            Place::Neighbour(at) => &mut self.neighbours[at].1,
            Place::Group(at) => &mut self.groups[at].1,
        })
    }
}

impl Neighbour {
    /// The object that stands for it, if its device is there and up.
    fn leads(&self, context: &Context) -> Option<Leads> {
        let device = &context.devices[self.device as usize];
        let hop = Hop { device: device.index, via: self.via, onlink: self.onlink, weight: 1 };
        (device.index != 0 && device.up).then_some(Leads::Hop(self.family, hop))
    }
}

impl Object {
    /// The change that makes it lead there, if it does not.
    fn bring(&self, leads: Leads, changes: &mut Vec<Change>) {
        if self.refused.is_some() || self.known.as_ref() == Some(&leads) {
            return;
        }
        let nexthop = Nexthop { id: self.id, leads };
        changes.push(match self.known {
            Some(_) => Change::ReplaceNexthop(nexthop),
            None => Change::AddNexthop(nexthop),
        });
    }
}

/// A number that nobody has, by what it is for: FNV-1a (RFC 9923), and the next ones where that is taken.
fn free(what: &str, used: &mut BTreeSet<u32>) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = what.bytes().fold(0x811C_9DC5, step);
    let mut id = FIRST + hash % COUNT;
    while !used.insert(id) {
        id = FIRST + (id - FIRST + 1) % COUNT;
    }
    id
}
