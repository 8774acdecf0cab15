//! What the kernel should have, worked out anew, and what it has.

use std::collections::{BTreeMap, BTreeSet};

use adit::steer::{Hop, Leads, Leg, Mode};
use ipnet::IpNet;

use super::kernel::{Goes, TAG, family, network};
use super::rig::Rig;

/// What the kernel has of a prefix: by metric, device, gateway and weight of each hop.
pub(crate) type Shape = BTreeMap<u32, BTreeSet<(u32, String, u16)>>;

impl Rig {
    /// The kernel has just what it should have, and a further look changes nothing and tells nothing.
    pub(crate) fn assert_settled(&mut self) {
        self.assert_as_wanted();
        self.drift.clear();
        self.look();
        assert_eq!(self.run(), 0, "churn: {:#?}", self.changes.last());
        assert_eq!(self.drift, []);
        self.assert_as_wanted();
    }

    pub(crate) fn assert_as_wanted(&self) {
        let objects = self.setup.mode == Mode::Nexthop && !self.kernel.lacks_objects;
        let mut legs: BTreeMap<(u32, IpNet), Vec<&Leg>> = BTreeMap::new();
        self.setup.legs.iter().for_each(|leg| legs.entry((leg.table, leg.prefix)).or_default().push(leg));
        for (&(table, prefix), legs) in &legs {
            let rows = self.kernel.tables.get(&(table, prefix));
            assert_eq!(self.has(table, prefix), self.should_have(prefix, legs, objects), "{prefix}: {rows:#?}");
            let backstop = rows.into_iter().flatten().any(|row| row.protocol == TAG && row.goes == Goes::Unreachable);
            assert_eq!(backstop, self.setup.backstop, "{prefix}");
        }
        for (&(table, prefix), rows) in &self.kernel.tables {
            let stray = !legs.contains_key(&(table, prefix)) && rows.iter().any(|row| row.protocol == TAG);
            assert!(!stray, "{prefix} in table {table} is not wanted any more");
        }
        let rules = self.kernel.rules.iter().filter(|(owner, _)| *owner == TAG).map(|(_, rule)| rule);
        assert_eq!(rules.collect::<BTreeSet<_>>(), self.setup.rules.iter().collect());
        self.assert_objects(objects);
    }

    /// No object more than there are neighbours and groups of them.
    fn assert_objects(&self, objects: bool) {
        let ours = self.kernel.objects.values().filter(|(owner, _)| *owner == TAG);
        let (groups, hops): (Vec<_>, Vec<_>) = ours.partition(|(_, leads)| matches!(leads, Leads::Group(_)));
        if !objects {
            return assert_eq!((groups.len(), hops.len()), (0, 0));
        }
        let usable = self.setup.legs.iter().filter(|leg| self.hop(leg).is_some());
        let neighbours: BTreeSet<_> =
            usable.map(|leg| (family(&leg.prefix), &leg.device, leg.via, leg.onlink)).collect();
        assert_eq!(hops.len(), neighbours.len(), "{hops:#?}");
        let mut candidates: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for leg in self.setup.legs.iter() {
            let of = candidates.entry((leg.table, leg.prefix)).or_default();
            of.push((leg.priority, leg.weight, leg.device.clone(), leg.via, self.hop(leg).is_some()));
        }
        let mut usable: Vec<_> = candidates.into_iter().map(|((_, prefix), of)| (family(&prefix), of)).collect();
        usable.iter_mut().for_each(|(_, of)| of.sort());
        usable.retain(|(_, of)| of.iter().any(|of| of.4));
        let sets: BTreeSet<_> = usable.into_iter().collect();
        assert_eq!(groups.len(), sets.len(), "{groups:#?}");
    }

    /// Where a leg leads now, if the kernel can take it.
    fn hop(&self, leg: &Leg) -> Option<Hop> {
        let device = match (&leg.device, leg.via) {
            (Some(device), _) => device.clone(),
            (None, via) => network(via?),
        };
        let device = self.kernel.index(&device)?;
        self.kernel.resolve(Hop { device, via: leg.via, onlink: leg.onlink, weight: leg.weight }).ok()
    }

    /// What is configured and judged, worked out anew.
    fn should_have(&self, prefix: IpNet, legs: &[&Leg], objects: bool) -> Shape {
        let mut hops: BTreeMap<u32, Vec<Hop>> = BTreeMap::new();
        for leg in legs {
            let metric = leg.priority + self.penalties[leg.tunnel as usize].unwrap_or(0);
            hops.entry(metric).or_default().extend(self.hop(leg).filter(|_| leg.device.is_some() || !objects));
        }
        hops.retain(|_, hops| !hops.is_empty());
        if objects {
            let base = legs.iter().map(|leg| leg.priority).min().unwrap();
            hops = hops.into_iter().next().map(|(_, hops)| (base, hops)).into_iter().collect();
        } else if matches!(prefix, IpNet::V6(_)) {
            hops.values_mut().for_each(bare_alone);
        }
        hops.into_iter().map(|(metric, hops)| (metric, shape(&hops))).collect()
    }

    pub(crate) fn has(&self, table: u32, prefix: IpNet) -> Shape {
        let mut shapes: BTreeMap<u32, Vec<Hop>> = BTreeMap::new();
        for row in self.kernel.tables.get(&(table, prefix)).into_iter().flatten().filter(|row| row.protocol == TAG) {
            let hops = match &row.goes {
                Goes::Hops(hops) => hops.iter().map(|next| next.hop).collect(),
                Goes::Object(id) => self.members(*id),
                Goes::Unreachable | Goes::Blackhole => continue,
            };
            let there = shapes.entry(row.metric).or_default();
            assert!(there.is_empty() || matches!(prefix, IpNet::V6(_)), "{prefix} has two routes: {there:?}, {hops:?}");
            there.extend(hops);
        }
        shapes.into_iter().map(|(metric, hops)| (metric, shape(&hops))).collect()
    }

    /// Where a packet goes: the hops of the route that the kernel asks first.
    pub(crate) fn first(&self, table: u32, prefix: IpNet) -> BTreeSet<(u32, String, u16)> {
        match &self.kernel.tables[&(table, prefix)][0].goes {
            Goes::Hops(hops) => shape(&hops.iter().map(|next| next.hop).collect::<Vec<_>>()),
            Goes::Object(id) => shape(&self.members(*id)),
            Goes::Unreachable | Goes::Blackhole => BTreeSet::new(),
        }
    }

    fn members(&self, id: u32) -> Vec<Hop> {
        match &self.kernel.objects[&id].1 {
            Leads::Hop(_, hop) => vec![*hop],
            Leads::Group(members) => {
                let hop =
                    |&(id, weight): &(u32, u16)| self.members(id).into_iter().map(move |hop| Hop { weight, ..hop });
                members.iter().flat_map(hop).collect()
            }
            Leads::Other => Vec::new(),
        }
    }
}

/// IPv6 shares a prefix among gateways; of devices alone one is taken, the heaviest, or else the first.
fn bare_alone(hops: &mut Vec<Hop>) {
    if hops.iter().any(|hop| hop.via.is_some()) {
        hops.retain(|hop| hop.via.is_some());
    } else if let Some(best) = hops.iter().map(|hop| hop.weight).max() {
        let first = hops.iter().find(|hop| hop.weight == best).copied();
        *hops = first.into_iter().collect();
    }
}

fn shape(hops: &[Hop]) -> BTreeSet<(u32, String, u16)> {
    let weight = |hop: &Hop| if hops.len() == 1 { 1 } else { hop.weight };
    let via = |hop: &Hop| hop.via.map_or_else(String::new, |via| via.to_string());
    let shape: BTreeSet<_> = hops.iter().map(|hop| (hop.device, via(hop), weight(hop))).collect();
    assert_eq!(shape.len(), hops.len(), "a hop is there twice: {hops:?}");
    shape
}
