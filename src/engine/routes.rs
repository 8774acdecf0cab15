//! The route table: longest prefix first, then the lowest effective priority, then weights. Tables and
//! namespaces are apart, as in the kernel: tenants may have the same prefix, each with ways of its own.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

use super::route::{Place, Route, Standing};

/// The routes of a prefix that carry its traffic changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where, by index of the places.
    pub place: u32,
    /// The prefix.
    pub prefix: IpNet,
    /// Tunnels that carried it.
    pub from: Vec<u32>,
    /// Tunnels that carry it now.
    pub to: Vec<u32>,
}

/// The prefixes whose traffic moved, for one penalty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moved {
    /// How many.
    pub count: usize,
    /// The first of them.
    pub first: Vec<Change>,
}

#[derive(Debug, Clone)]
struct Entry {
    place: u32,
    prefix: IpNet,
    /// Indices into `routes`, in the order of the configuration.
    routes: Vec<u32>,
    /// Those of them with the lowest effective priority. Never empty: a penalty reorders, it takes
    /// no route away (law 3).
    selected: Vec<u32>,
}

/// The prefixes of one place, each with its entry.
#[derive(Debug, Clone, Default)]
struct Prefixes {
    v4: PrefixMap<Ipv4Net, u32>,
    v6: PrefixMap<Ipv6Net, u32>,
}

impl Prefixes {
    /// The entry of the longest prefix that holds this address.
    fn longest(&self, destination: IpAddr) -> Option<u32> {
        match destination {
            IpAddr::V4(address) => self.v4.get_lpm(&Ipv4Net::from(address)).map(|(_, at)| *at),
            IpAddr::V6(address) => self.v6.get_lpm(&Ipv6Net::from(address)).map(|(_, at)| *at),
        }
    }
}

/// Routes over tunnels, with what each tunnel's state costs at the moment, and what the kernel makes of
/// them.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    /// By index: their order in the configuration.
    routes: Vec<Route>,
    /// By index of the route.
    standings: Vec<Standing>,
    places: Vec<Place>,
    entries: Vec<Entry>,
    /// By index of the place.
    prefixes: Vec<Prefixes>,
    /// Penalty by tunnel.
    penalties: Vec<u32>,
    /// Entries by tunnel, in order, each once.
    over: Vec<Vec<u32>>,
    /// How many routes, by tunnel.
    counts: Vec<u32>,
    /// How many routes cost more than their priority.
    penalised: u32,
}

impl RouteTable {
    /// A table of these routes over tunnels `0..tunnels`, none of them penalised. Routes over other
    /// tunnels keep their index, and are seen nowhere. The kernel knows of no route yet; if it is steered,
    /// it is to have each that leads somewhere.
    #[must_use]
    pub fn new(routes: Vec<Route>, places: Vec<Place>, tunnels: usize, steers: bool) -> Self {
        let standing = |route: &Route| if steers && route.leads() { Standing::Pending } else { Standing::NotManaged };
        let mut table = Self {
            standings: routes.iter().map(standing).collect(),
            places,
            penalties: vec![0; tunnels],
            over: vec![Vec::new(); tunnels],
            counts: vec![0; tunnels],
            ..Self::default()
        };
        routes.into_iter().for_each(|route| table.insert(route));
        for over in &mut table.over {
            over.sort_unstable();
            over.dedup();
        }
        let Self { routes, penalties, entries, .. } = &mut table;
        for entry in entries {
            entry.selected = best(routes, penalties, &entry.routes).collect();
        }
        table
    }

    /// Takes over how the kernel has those routes that stood in another table, too. `tunnel` says which of
    /// the tunnels here is one of the tunnels there.
    pub(super) fn succeed(&mut self, before: &Self, tunnel: impl Fn(u32) -> Option<u32>) {
        let is_same = |old: &Route, new: &Route| {
            let is_at = before.place(old.place) == place(&self.places, new.place);
            let is_it = (tunnel(old.tunnel), old.prefix) == (Some(new.tunnel), new.prefix) && is_at;
            let leads = (&old.device, old.via, old.onlink) == (&new.device, new.via, new.onlink);
            is_it && leads && (old.priority, old.weight) == (new.priority, new.weight)
        };
        // Nearly always they are in the same order. Where they are not, it is looked where they are.
        let (mut next, mut indices) = (0, None);
        for (new, standing) in self.routes.iter().zip(&mut self.standings) {
            if before.routes.get(next).is_none_or(|old| !is_same(old, new)) {
                let indices = indices.get_or_insert_with(|| before.indices(&tunnel));
                let found = indices.get(&(place(&self.places, new.place), new.prefix, new.tunnel));
                let Some(&found) = found.filter(|&&found| is_same(&before.routes[found], new)) else { continue };
                next = found;
            }
            // One that is not steered has no other standing, and one that was not has none yet.
            if *standing != Standing::NotManaged && before.standings[next] != Standing::NotManaged {
                standing.clone_from(&before.standings[next]);
            }
            next += 1;
        }
    }

    /// Where each route is, by its place, its prefix, and its tunnel's index elsewhere.
    fn indices(&self, tunnel: impl Fn(u32) -> Option<u32>) -> BTreeMap<(&Place, IpNet, u32), usize> {
        let known = self.routes.iter().enumerate();
        known
            .filter_map(|(at, route)| Some(((self.place(route.place), route.prefix, tunnel(route.tunnel)?), at)))
            .collect()
    }

    fn insert(&mut self, mut route: Route) {
        route.prefix = route.prefix.trunc();
        let (place, prefix, tunnel) = (route.place, route.prefix, route.tunnel);
        let index = number(self.routes.len());
        self.routes.push(route);
        let Some(over) = self.over.get_mut(tunnel as usize) else { return };
        self.counts[tunnel as usize] += 1;
        if self.prefixes.len() <= place as usize {
            self.prefixes.resize_with(place as usize + 1, Prefixes::default);
        }
        let (prefixes, next) = (&mut self.prefixes[place as usize], number(self.entries.len()));
        let at = match prefix {
            IpNet::V4(prefix) => *prefixes.v4.entry(prefix).or_insert(next),
            IpNet::V6(prefix) => *prefixes.v6.entry(prefix).or_insert(next),
        };
        if at == next {
            self.entries.push(Entry { place, prefix, routes: Vec::new(), selected: Vec::new() });
        }
        self.entries[at as usize].routes.push(index);
        over.push(at);
    }

    /// Sets what a tunnel's state costs, and returns the prefixes whose traffic moves for it: how many, and
    /// the first `told` of them.
    pub fn set_penalty(&mut self, tunnel: u32, penalty: u32, told: usize) -> Moved {
        let mut moved = Moved::default();
        let before = match self.penalties.get_mut(tunnel as usize) {
            Some(known) if *known != penalty => std::mem::replace(known, penalty),
            Some(_) | None => return moved,
        };
        let of = |penalty| if penalty > 0 { self.counts[tunnel as usize] } else { 0 };
        self.penalised = self.penalised + of(penalty) - of(before);
        let touched = std::mem::take(&mut self.over[tunnel as usize]);
        for &at in &touched {
            self.select(at as usize, told, &mut moved);
        }
        self.over[tunnel as usize] = touched;
        moved
    }

    /// Selects a prefix's routes anew. There may be many thousand prefixes, while probes wait: what is not
    /// told costs no allocation.
    fn select(&mut self, at: usize, told: usize, moved: &mut Moved) {
        let Self { routes, penalties, entries, .. } = self;
        let entry = &mut entries[at];
        if best(routes, penalties, &entry.routes).eq(entry.selected.iter().copied()) {
            return;
        }
        let tunnels = |selected: &[u32]| selected.iter().map(|&route| routes[route as usize].tunnel).collect();
        let from = (moved.count < told).then(|| tunnels(&entry.selected));
        entry.selected.clear();
        entry.selected.extend(best(routes, penalties, &entry.routes));
        let change = |from| Change { place: entry.place, prefix: entry.prefix, from, to: tunnels(&entry.selected) };
        moved.first.extend(from.map(change));
        moved.count += 1;
    }

    /// Base priority and penalty of a route's tunnel together.
    #[must_use]
    pub fn effective_priority(&self, route: &Route) -> u32 {
        effective_priority(&self.penalties, route)
    }

    /// What a tunnel's state costs at the moment.
    #[must_use]
    pub fn penalty(&self, tunnel: u32) -> u32 {
        penalty(&self.penalties, tunnel)
    }

    /// The route that a packet of this flow takes at a place: longest prefix, lowest effective priority,
    /// and among equals the flow's share by weight (its hash modulo the sum of the weights, so that a
    /// flow keeps its way while the equals stay the same).
    #[must_use]
    pub fn pick(&self, place: u32, destination: IpAddr, flow: u64) -> Option<(u32, &Route)> {
        let entry = self.entry(place, destination)?;
        let numbered = |&index: &u32| Some((index, self.routes.get(index as usize)?));
        if let [only] = &entry.selected[..] {
            return numbered(only);
        }
        let equals = || entry.selected.iter().filter_map(numbered);
        let total: u64 = equals().map(|(_, route)| u64::from(route.weight)).sum();
        let mut left = flow.checked_rem(total)?;
        equals().find(|(_, route)| {
            let weight = u64::from(route.weight);
            let mine = left < weight;
            left = left.saturating_sub(weight);
            mine
        })
    }

    fn entry(&self, place: u32, destination: IpAddr) -> Option<&Entry> {
        let at = self.prefixes.get(place as usize)?.longest(destination)?;
        self.entries.get(at as usize)
    }

    /// All routes to the longest prefix at a place that holds this address, each with its index and
    /// whether it is selected.
    pub fn candidates(&self, place: u32, destination: IpAddr) -> impl Iterator<Item = (u32, &Route, bool)> {
        self.entry(place, destination).into_iter().flat_map(|entry| self.of(entry))
    }

    /// All routes, prefix by prefix in the order of the configuration, each with its index and whether it
    /// is selected.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Route, bool)> {
        self.entries.iter().flat_map(|entry| self.of(entry))
    }

    /// The routes of so many prefixes, from one of them on; likewise.
    pub fn some(&self, from: usize, count: usize) -> impl Iterator<Item = (u32, &Route, bool)> {
        self.entries.iter().skip(from).take(count).flat_map(|entry| self.of(entry))
    }

    /// The routes over a tunnel to so many of its prefixes, from one of them on; likewise.
    pub fn over(&self, tunnel: u32, from: usize, count: usize) -> impl Iterator<Item = (u32, &Route, bool)> {
        let entries = self.over.get(tunnel as usize).into_iter().flatten().skip(from).take(count);
        let routes = entries.filter_map(|&at| self.entries.get(at as usize)).flat_map(|entry| self.of(entry));
        routes.filter(move |(_, route, _)| route.tunnel == tunnel)
    }

    fn of<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = (u32, &'a Route, bool)> {
        entry.routes.iter().map(|&index| (index, &self.routes[index as usize], entry.selected.contains(&index)))
    }

    /// How many routes cost more than their priority at the moment.
    #[must_use]
    pub const fn penalised(&self) -> u32 {
        self.penalised
    }

    /// How many prefixes the table has; the same one at two places counts twice.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.entries.len()
    }

    /// How many of them a tunnel has a route to; likewise.
    #[must_use]
    pub fn prefixes_over(&self, tunnel: u32) -> usize {
        self.over.get(tunnel as usize).map_or(0, Vec::len)
    }

    /// What the indices of places stand for. One that is not among them is the main table of the
    /// namespace where adit runs.
    #[must_use]
    pub fn place(&self, place: u32) -> &Place {
        self::place(&self.places, place)
    }

    /// The indices of all places that have a route.
    pub fn places(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.prefixes).map(|(place, _)| place)
    }

    /// Notes what the kernel makes of some routes, by index.
    pub fn set_standings(&mut self, standings: impl IntoIterator<Item = (u32, Standing)>) {
        for (route, standing) in standings {
            if let Some(known) = self.standings.get_mut(route as usize) {
                *known = standing;
            }
        }
    }

    /// What the kernel makes of a route.
    #[must_use]
    pub fn standing(&self, route: u32) -> &Standing {
        self.standings.get(route as usize).unwrap_or(&Standing::NotManaged)
    }
}

fn place(places: &[Place], index: u32) -> &Place {
    places.get(index as usize).unwrap_or(&Place::USUAL)
}

fn penalty(penalties: &[u32], tunnel: u32) -> u32 {
    penalties.get(tunnel as usize).copied().unwrap_or(0)
}

fn effective_priority(penalties: &[u32], route: &Route) -> u32 {
    route.priority.saturating_add(penalty(penalties, route.tunnel))
}

/// Those of some routes, given by index, that have the lowest effective priority.
fn best(routes: &[Route], penalties: &[u32], of: &[u32]) -> impl Iterator<Item = u32> {
    let effective = |route: u32| effective_priority(penalties, &routes[route as usize]);
    let lowest = of.iter().map(|&route| effective(route)).min();
    of.iter().copied().filter(move |&route| Some(effective(route)) == lowest)
}

/// Indices are 32 bits wide; a configuration cannot reach that many routes.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
