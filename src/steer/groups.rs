//! Next-hop objects: one for each neighbour, and a group of them for each set of legs that prefixes have in
//! common. A verdict changes the groups, however many prefixes lead over them.

mod see;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::context::Context;
use super::entry::Leg;
use super::{Change, Hop, Leads, Nexthop, Refusal};
use crate::engine::penalty::DOWN;
use crate::wire::Family;

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
    /// Of a group: what it consisted of when it was first seen.
    found: Vec<u32>,
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
    strays: BTreeMap<u32, Leads>,
    /// Whether objects have their numbers.
    assigned: bool,
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
        self.groups.push((members, Object { id: 0, known: None, refused: None, found: Vec::new() }));
        at
    }

    /// A leg without a device has no object: the kernel takes none.
    fn member(&mut self, family: Family, leg: &Leg) -> Option<Member> {
        let &Leg { tunnel, priority, weight, via, onlink, .. } = leg;
        let neighbour = Neighbour { family, device: leg.device?, via, onlink };
        let next = super::number(self.neighbours.len());
        let at = *self.by_neighbour.entry(neighbour.clone()).or_insert(next);
        if at == next {
            self.neighbours.push((neighbour, Object { id: 0, known: None, refused: None, found: Vec::new() }));
        }
        Some(Member { tunnel, priority, weight, neighbour: at })
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

    /// Why a leg, or the group that it is part of, is not as it should be.
    pub(super) fn trouble(&self, group: u32, leg: &Leg, v6: bool) -> Option<String> {
        let family = if v6 { Family::V6 } else { Family::V4 };
        let Some(device) = leg.device else { return Some("a next-hop object needs a device".to_owned()) };
        let neighbour = Neighbour { family, device, via: leg.via, onlink: leg.onlink };
        let at = self.by_neighbour.get(&neighbour);
        let neighbour = at.and_then(|&at| self.neighbours[at as usize].1.refused.as_ref());
        let group = self.groups.get(group as usize).and_then(|(_, object)| object.refused.as_ref());
        neighbour.or(group).map(|refusal| refusal.why.clone())
    }

    /// What is missing or other than it should be: neighbours, and when the kernel has answered that, the groups
    /// of them.
    pub(super) fn adds(&mut self, context: &Context, changes: &mut Vec<Change>) {
        if !std::mem::take(&mut self.dirty) || context.ending {
            return;
        }
        for (neighbour, object) in &self.neighbours {
            if let Some(wanted) = neighbour.leads(context) {
                object.bring(wanted, changes);
            }
        }
        if !changes.is_empty() {
            self.dirty = true;
            return;
        }
        let is_ready = |(neighbour, object): &(Neighbour, Object)| {
            neighbour.leads(context).is_some_and(|wanted| object.known.as_ref() == Some(&wanted))
        };
        let ready: Vec<bool> = self.neighbours.iter().map(is_ready).collect();
        for (members, object) in &self.groups {
            let wanted = self.selected(members, &ready, context, object);
            if !wanted.is_empty() {
                object.bring(Leads::Group(wanted), changes);
            }
        }
    }

    /// The members that carry traffic: those of the lowest effective priority among those that could.
    fn selected(&self, members: &[Member], ready: &[bool], context: &Context, object: &Object) -> Vec<(u32, u16)> {
        let ready = members.iter().filter(|member| ready[member.neighbour as usize]);
        let id = |member: &Member| self.neighbours[member.neighbour as usize].1.id;
        // Without a verdict a member stays as it was found: where traffic went, and where it would not have
        // gone anyway, it may go; what would have had it if it had been well may not.
        let used = members.iter().filter(|member| object.found.contains(&id(member))).map(|member| member.priority);
        let best = used.min();
        let shunned =
            |member: &Member| best.is_some_and(|best| member.priority <= best) && !object.found.contains(&id(member));
        let cost = |member: &Member| match context.penalty(member.tunnel) {
            Some(penalty) => penalty,
            None if shunned(member) => DOWN.max(context.cost(member.tunnel)),
            None => context.cost(member.tunnel),
        };
        let metric = |member: &Member| member.priority.saturating_add(cost(member));
        let lowest = ready.clone().map(metric).min();
        let best = ready.filter(|member| Some(metric(member)) == lowest);
        let mut best: Vec<_> = best.map(|member| (id(member), member.weight)).collect();
        // One alone has no share.
        if let [(_, weight)] = &mut best[..] {
            *weight = 1;
        }
        best.sort_unstable();
        best
    }

    /// Whether there are objects of ours that nothing wants.
    pub(super) fn has_strays(&self) -> bool {
        !self.strays.is_empty()
    }

    /// Objects that nothing wants and neither a route nor a group leads over: groups, then neighbours.
    /// Those of them that only others lead over are given back: they stay.
    pub(super) fn deletes(
        &self,
        context: &Context,
        used: impl Fn(u32) -> bool,
        lent: &BTreeSet<u32>,
        changes: &mut Vec<Change>,
    ) -> Vec<u32> {
        let all = context.ending;
        if !all && !context.settled {
            return Vec::new();
        }
        let ours = |object: &Object| Some((object.id, object.known.clone().filter(|_| all)?));
        let neighbours = self.neighbours.iter().filter_map(|(_, object)| ours(object));
        let objects = neighbours.chain(self.groups.iter().filter_map(|(_, object)| ours(object)));
        let strays = self.strays.iter().map(|(&id, leads)| (id, leads.clone()));
        let (groups, others): (Vec<_>, Vec<_>) =
            objects.chain(strays).partition(|(_, leads)| matches!(leads, Leads::Group(_)));
        let members = |object: &Object| match &object.known {
            Some(Leads::Group(members)) => members.iter().map(|&(id, _)| id).collect(),
            Some(Leads::Hop(..) | Leads::Other) | None => Vec::new(),
        };
        let wanted = self.groups.iter().filter(|_| !all).flat_map(|(_, object)| members(object));
        let (mut members, mut theirs): (BTreeSet<u32>, BTreeSet<u32>) = (wanted.collect(), lent.clone());
        for (id, leads) in &groups {
            let of = if let Leads::Group(of) = leads { &of[..] } else { &[] };
            members.extend(of.iter().filter(|_| !all && used(*id)).map(|&(id, _)| id));
            theirs.extend(of.iter().filter(|_| lent.contains(id)).map(|&(id, _)| id));
        }
        let gone = groups.iter().chain(&others).map(|&(id, _)| id);
        let gone = gone.filter(|id| all || !used(*id) && !members.contains(id));
        let (stay, go): (Vec<u32>, Vec<u32>) = gone.partition(|id| theirs.contains(id));
        changes.extend(go.into_iter().map(Change::DeleteNexthop));
        stay
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
                self.dirty = true;
            }
            // It is not tried again before the next picture, which may show it once more.
            Change::DeleteNexthop(id) => {
                self.strays.remove(id);
                if let Some(object) = self.object(*id) {
                    object.known = None;
                }
            }
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
