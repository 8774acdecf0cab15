//! A planner at the model kernel, watched at every single change.

use std::collections::{BTreeMap, BTreeSet};

use adit::engine::Standing;
use adit::steer::{Change, Fib, Hop, Leads, Leg, Mode, Note, Refusal, Setup};
use ipnet::IpNet;

use super::kernel::{Goes, Kernel, TAG, family, network};

/// More batches than any of these tests needs.
const PATIENCE: usize = 200;

/// What the kernel has of a prefix: by metric, device, gateway and weight of each hop.
pub(crate) type Shape = BTreeMap<u32, BTreeSet<(u32, String, u16)>>;

pub(crate) struct Rig {
    pub(crate) kernel: Kernel,
    pub(crate) setup: Setup,
    prefixes: BTreeSet<(u32, IpNet)>,
    pub(crate) fib: Fib,
    pub(crate) penalties: Vec<Option<u32>>,
    pub(crate) standings: BTreeMap<u32, Standing>,
    pub(crate) drift: Vec<(usize, Vec<String>)>,
    pub(crate) warnings: Vec<String>,
    /// All changes that the kernel was asked for, and what it refused.
    pub(crate) changes: Vec<Change>,
    pub(crate) refused: Vec<(Change, i32)>,
    /// Something has happened in the kernel that no picture has shown yet.
    pub(crate) stale: bool,
    /// Somebody else has laid hands on what is ours.
    pub(crate) outside: bool,
    ending: bool,
    /// The process is killed after so many changes.
    pub(crate) life: Option<usize>,
}

impl Rig {
    /// A daemon starts, and looks.
    pub(crate) fn start(kernel: Kernel, setup: Setup) -> Self {
        let mut rig = Self {
            kernel,
            fib: Fib::new(TAG, setup.clone()),
            penalties: vec![None; setup.tunnels],
            prefixes: setup.legs.iter().map(|leg| (leg.table, leg.prefix)).collect(),
            setup,
            standings: BTreeMap::new(),
            drift: Vec::new(),
            warnings: Vec::new(),
            changes: Vec::new(),
            refused: Vec::new(),
            stale: false,
            outside: false,
            ending: false,
            life: None,
        };
        rig.look();
        rig
    }

    /// It is killed, and starts again with this.
    pub(crate) fn restart(self, setup: Setup) -> Self {
        Self::start(self.kernel, setup)
    }

    pub(crate) fn look(&mut self) {
        let picture = self.kernel.picture(TAG, |table, prefix| self.fib.concerns(table, prefix));
        let told = self.drift.len();
        self.fib.handle_picture(picture);
        self.hear();
        let ours = !std::mem::take(&mut self.outside) && !self.kernel.hid;
        assert!(!ours || self.drift.len() == told, "what we did ourselves is told as drift: {:?}", self.drift.last());
        self.stale = false;
    }

    fn hear(&mut self) {
        self.standings.extend(self.fib.poll_standings());
        for note in self.fib.poll_notes() {
            match note {
                Note::Drift { count, examples } => self.drift.push((count, examples)),
                Note::Warning(what) => self.warnings.push(what),
            }
        }
    }

    pub(crate) fn verdict(&mut self, tunnel: u32, penalty: u32) {
        self.penalties[tunnel as usize] = Some(penalty);
        self.fib.set_penalty(tunnel, Some(penalty));
    }

    /// Verdicts for all tunnels, and all that follows from them.
    pub(crate) fn judge(&mut self, penalties: &[u32]) {
        for (tunnel, &penalty) in (0..).zip(penalties) {
            self.verdict(tunnel, penalty);
        }
        self.run();
    }

    pub(crate) fn dismantle(&mut self) {
        self.ending = true;
        self.fib.dismantle();
        self.run();
    }

    /// One batch. Whether there was any.
    pub(crate) fn step(&mut self) -> bool {
        let batch = self.fib.poll_changes().to_vec();
        assert_eq!(batch, self.fib.changes());
        // A deletion of what is gone already may hit something else.
        self.outside |= self.stale && !batch.is_empty();
        let foreign = self.kernel.part(TAG, false);
        let mut refusals = Vec::new();
        for (place, change) in batch.iter().enumerate() {
            if self.life.is_some_and(|left| left == 0) {
                return false;
            }
            self.life = self.life.map(|left| left - 1);
            if let Err((errno, why)) = self.change(change) {
                refusals.push(Refusal { place, errno, why: why.to_owned() });
                self.refused.push((change.clone(), errno));
            }
        }
        assert_eq!(self.kernel.part(TAG, false), foreign, "what is somebody else's was changed by {batch:#?}");
        if !batch.is_empty() {
            self.fib.handle_outcome(refusals);
        }
        self.hear();
        !batch.is_empty()
    }

    /// One change: law 6.
    fn change(&mut self, change: &Change) -> Result<(), (i32, &'static str)> {
        let of = match change {
            Change::AddRoute(route) | Change::AppendRoute(route) | Change::DeleteRoute(route) => {
                Some((route.table, route.prefix))
            }
            Change::AddNexthop(_) | Change::ReplaceNexthop(_) | Change::DeleteNexthop(_) => None,
            Change::AddRule(_) | Change::DeleteRule(_) => return self.apply(change),
        };
        let watched = self.carried(of);
        let outcome = self.apply(change);
        if !self.ending && !self.stale {
            for (table, prefix) in watched {
                let rows = || self.kernel.tables.get(&(table, prefix));
                assert!(
                    self.kernel.carries(TAG, table, prefix),
                    "{prefix} in table {table} has no route after {change:#?}; it has {:#?}",
                    rows()
                );
            }
        }
        outcome
    }

    fn apply(&mut self, change: &Change) -> Result<(), (i32, &'static str)> {
        self.changes.push(change.clone());
        self.kernel.apply(TAG, change)
    }

    /// Configured prefixes that have a route now; all of them, or this one.
    fn carried(&self, of: Option<(u32, IpNet)>) -> Vec<(u32, IpNet)> {
        let carries = |&(table, prefix): &(u32, IpNet)| self.kernel.carries(TAG, table, prefix);
        match of {
            Some(of) => self.prefixes.get(&of).copied().into_iter().filter(carries).collect(),
            None => self.prefixes.iter().copied().filter(carries).collect(),
        }
    }

    /// Batches until there is nothing to do, and looks where that is asked for. How many changes there were.
    pub(crate) fn run(&mut self) -> usize {
        let before = self.changes.len();
        for _ in 0..PATIENCE {
            let busy = self.step();
            if self.life == Some(0) {
                break;
            }
            if self.fib.doubts() {
                self.look();
            } else if !busy {
                return self.changes.len() - before;
            }
        }
        assert_eq!(self.life, Some(0), "it finds no end: {:#?}", &self.changes[self.changes.len().saturating_sub(8)..]);
        self.changes.len() - before
    }

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
