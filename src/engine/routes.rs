//! The route table: longest prefix first, then the lowest effective priority, then weights.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

/// One configured way to a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination prefix.
    pub prefix: IpNet,
    /// The tunnel, by index.
    pub tunnel: u32,
    /// Base priority: lower wins.
    pub priority: u32,
    /// Share among equal effective priorities, at least 1.
    pub weight: u32,
    /// Next hop for the kernel: device.
    pub device: Option<String>,
    /// Next hop for the kernel: gateway.
    pub via: Option<IpAddr>,
}

/// What the kernel makes of a route.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Standing {
    /// It lives in adit's own table only.
    #[default]
    NotManaged,
    /// It has not been asked for yet.
    Pending,
    /// The kernel has it, with this metric.
    Installed(u32),
    /// It waits for something: a device, say.
    Waiting(String),
    /// Somebody else has a route of the same table, prefix and metric.
    Conflict(String),
    /// The kernel does not take it.
    Refused(String),
}

/// The routes of a prefix that carry its traffic changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The prefix.
    pub prefix: IpNet,
    /// Tunnels that carried it.
    pub from: Vec<u32>,
    /// Tunnels that carry it now.
    pub to: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Entry {
    prefix: IpNet,
    /// Indices into `routes`, in the order of the configuration.
    routes: Vec<u32>,
    /// Those of them with the lowest effective priority. Never empty: a penalty reorders, it takes
    /// no route away (law 3).
    selected: Vec<u32>,
}

/// Routes over tunnels, with what each tunnel's state costs at the moment.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    routes: Vec<Route>,
    entries: Vec<Entry>,
    v4: PrefixMap<Ipv4Net, u32>,
    v6: PrefixMap<Ipv6Net, u32>,
    /// Penalty by tunnel.
    penalties: Vec<u32>,
    /// Entries by tunnel.
    over: Vec<Vec<u32>>,
}

impl RouteTable {
    /// A table of these routes over tunnels `0..tunnels`, none of them penalised. Routes over other
    /// tunnels are left out.
    #[must_use]
    pub fn new(routes: Vec<Route>, tunnels: usize) -> Self {
        let mut table = Self { penalties: vec![0; tunnels], over: vec![Vec::new(); tunnels], ..Self::default() };
        for route in routes.into_iter().filter(|route| (route.tunnel as usize) < tunnels) {
            table.insert(route);
        }
        for at in 0..table.entries.len() {
            table.entries[at].selected = table.best(&table.entries[at]);
        }
        table
    }

    fn insert(&mut self, mut route: Route) {
        route.prefix = route.prefix.trunc();
        let index = number(self.routes.len());
        let next = number(self.entries.len());
        let at = match route.prefix {
            IpNet::V4(prefix) => *self.v4.entry(prefix).or_insert(next),
            IpNet::V6(prefix) => *self.v6.entry(prefix).or_insert(next),
        };
        if at == next {
            self.entries.push(Entry { prefix: route.prefix, routes: Vec::new(), selected: Vec::new() });
        }
        self.entries[at as usize].routes.push(index);
        let over = &mut self.over[route.tunnel as usize];
        if over.last() != Some(&at) {
            over.push(at);
        }
        self.routes.push(route);
    }

    /// Sets what a tunnel's state costs, and returns the prefixes whose traffic moves for it.
    pub fn set_penalty(&mut self, tunnel: u32, penalty: u32) -> Vec<Change> {
        match self.penalties.get_mut(tunnel as usize) {
            Some(known) if *known != penalty => *known = penalty,
            Some(_) | None => return Vec::new(),
        }
        let touched = std::mem::take(&mut self.over[tunnel as usize]);
        let changes = touched.iter().filter_map(|&at| self.select(at as usize)).collect();
        self.over[tunnel as usize] = touched;
        changes
    }

    fn select(&mut self, at: usize) -> Option<Change> {
        let selected = self.best(&self.entries[at]);
        let entry = &mut self.entries[at];
        if selected == entry.selected {
            return None;
        }
        let before = std::mem::replace(&mut entry.selected, selected);
        let tunnels = |routes: &[u32]| routes.iter().map(|&route| self.routes[route as usize].tunnel).collect();
        let entry = &self.entries[at];
        Some(Change { prefix: entry.prefix, from: tunnels(&before), to: tunnels(&entry.selected) })
    }

    fn best(&self, entry: &Entry) -> Vec<u32> {
        let effective = |route: &u32| self.effective_priority(&self.routes[*route as usize]);
        let lowest = entry.routes.iter().map(effective).min();
        entry.routes.iter().copied().filter(|route| Some(effective(route)) == lowest).collect()
    }

    /// Base priority and penalty of a route's tunnel together.
    #[must_use]
    pub fn effective_priority(&self, route: &Route) -> u32 {
        route.priority.saturating_add(self.penalty(route.tunnel))
    }

    /// What a tunnel's state costs at the moment.
    #[must_use]
    pub fn penalty(&self, tunnel: u32) -> u32 {
        self.penalties.get(tunnel as usize).copied().unwrap_or(0)
    }

    /// The route that a packet of this flow takes: longest prefix, lowest effective priority, and
    /// among equals the flow's share by weight (its hash modulo the sum of the weights, so that a
    /// flow keeps its way while the equals stay the same).
    #[must_use]
    pub fn pick(&self, destination: IpAddr, flow: u64) -> Option<&Route> {
        let entry = self.entry(destination)?;
        if let [only] = entry.selected[..] {
            return self.routes.get(only as usize);
        }
        let equals = || entry.selected.iter().filter_map(|&route| self.routes.get(route as usize));
        let total: u64 = equals().map(|route| u64::from(route.weight)).sum();
        let mut left = flow.checked_rem(total)?;
        equals().find(|route| {
            let weight = u64::from(route.weight);
            let mine = left < weight;
            left = left.saturating_sub(weight);
            mine
        })
    }

    fn entry(&self, destination: IpAddr) -> Option<&Entry> {
        let at = match destination {
            IpAddr::V4(address) => self.v4.get_lpm(&Ipv4Net::from(address)).map(|(_, at)| *at),
            IpAddr::V6(address) => self.v6.get_lpm(&Ipv6Net::from(address)).map(|(_, at)| *at),
        };
        self.entries.get(at? as usize)
    }

    /// All routes to the longest prefix that holds this address, with whether each is selected.
    pub fn candidates(&self, destination: IpAddr) -> impl Iterator<Item = (&Route, bool)> {
        self.entry(destination).into_iter().flat_map(|entry| self.of(entry))
    }

    /// All routes, prefix by prefix in the order of the configuration, with whether each is selected.
    pub fn iter(&self) -> impl Iterator<Item = (&Route, bool)> {
        self.entries.iter().flat_map(|entry| self.of(entry))
    }

    fn of<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = (&'a Route, bool)> {
        entry.routes.iter().map(|route| (&self.routes[*route as usize], entry.selected.contains(route)))
    }

    /// How many prefixes the table has.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.entries.len()
    }
}

/// Indices are 32 bits wide; a configuration cannot reach that many routes.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
