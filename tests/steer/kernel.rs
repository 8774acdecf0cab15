//! A model of what Linux does with routes, next-hop objects and rules: written from its behaviour, looked
//! at with `ip` on Linux 6.18, and knowing nothing of the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use adit::steer::{Change, Foreign, Hop, KernelRoute, Leads, Link, Nexthop, Picture, Rule, Way};
use adit::wire::Family;
use ipnet::IpNet;

use super::{objects, v4, v6};

pub(crate) const TAG: u8 = 212;
pub(crate) const STATIC: u8 = 4;

/// Why something was not done: errno, and the kernel's words.
pub(crate) type Refused = (i32, &'static str);

pub(crate) const ENOENT: Refused = (2, "No such file or directory");
pub(crate) const ESRCH: Refused = (3, "No such process");
pub(crate) const ENOMEM: Refused = (12, "Cannot allocate memory");
pub(crate) const EEXIST: Refused = (17, "File exists");
pub(crate) const ENODEV: Refused = (19, "No such device");
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENETDOWN: Refused = (100, "Device for nexthop is not up");
pub(crate) const ENETUNREACH: Refused = (101, "Nexthop has invalid gateway");
pub(crate) const EHOSTUNREACH: Refused = (113, "No route to host");

/// A next hop. It is dead while its device is down, if it is one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextHop {
    pub(crate) hop: Hop,
    pub(crate) dead: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Goes {
    Hops(Vec<NextHop>),
    Object(u32),
    Unreachable,
    Blackhole,
}

/// A route (`struct fib_alias`, `struct fib6_info`). Of IPv6, each hop is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) metric: u32,
    pub(crate) protocol: u8,
    pub(crate) goes: Goes,
}

pub(crate) type Rows = Vec<Row>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) up: bool,
}

/// One network namespace. Device `greN` has the networks 10.100.N.0/24 and fd00:N::/64.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kernel {
    pub(crate) devices: BTreeMap<u32, Device>,
    /// All routes, by table and destination, in the order in which the kernel asks them.
    pub(crate) tables: BTreeMap<(u32, IpNet), Rows>,
    /// Next-hop objects, and whose they are.
    pub(crate) objects: BTreeMap<u32, (u8, Leads)>,
    pub(crate) lacks_objects: bool,
    pub(crate) rules: Vec<(u8, Rule)>,
    /// Gateways that cannot be resolved.
    pub(crate) unreachable: BTreeSet<IpAddr>,
    /// There is no memory for more.
    pub(crate) full: bool,
    /// It had once what it does not tell of.
    pub(crate) hid: bool,
    last_index: u32,
}

impl Kernel {
    pub(crate) fn with_devices(count: u32) -> Self {
        let mut kernel = Self { last_index: 1, ..Self::default() };
        (0..count).for_each(|number| kernel.create(&format!("gre{number}")));
        kernel
    }

    /// Makes a device, up, with an index that none had before.
    pub(crate) fn create(&mut self, name: &str) {
        if self.index(name).is_none() {
            self.last_index += 1;
            self.devices.insert(self.last_index, Device { name: name.to_owned(), up: true });
        }
    }

    pub(crate) fn index(&self, name: &str) -> Option<u32> {
        self.devices.iter().find(|(_, device)| device.name == name).map(|(&index, _)| index)
    }

    /// `ip link set … up`: what is dead of a route comes back, and nothing else does.
    pub(crate) fn up(&mut self, name: &str) {
        let Some(index) = self.index(name) else { return };
        self.devices.get_mut(&index).unwrap().up = true;
        for row in self.tables.values_mut().flatten() {
            if let Goes::Hops(hops) = &mut row.goes {
                hops.iter_mut().filter(|next| next.hop.device == index).for_each(|next| next.dead = false);
            }
        }
    }

    /// `ip link set … down`. Of IPv4, nobody is told.
    pub(crate) fn down(&mut self, name: &str) {
        let Some(index) = self.index(name) else { return };
        self.devices.get_mut(&index).unwrap().up = false;
        for ((_, prefix), rows) in &mut self.tables {
            match prefix {
                IpNet::V4(_) => v4::down(rows, index),
                IpNet::V6(_) => v6::down(rows, index),
            }
        }
        self.flush_objects(index);
    }

    /// `ip link del …`.
    pub(crate) fn remove(&mut self, name: &str) {
        let Some(index) = self.index(name) else { return };
        self.devices.remove(&index);
        for row in self.tables.values_mut() {
            // With one hop of several, all of an IPv4 route goes; of IPv6, that hop.
            row.retain(
                |row| !matches!(&row.goes, Goes::Hops(hops) if hops.iter().any(|next| next.hop.device == index)),
            );
        }
        self.flush_objects(index);
    }

    fn flush_objects(&mut self, index: u32) {
        let over = |(id, (_, leads)): (&u32, &(u8, Leads))| {
            matches!(leads, Leads::Hop(_, hop) if hop.device == index).then_some(*id)
        };
        let over: Vec<u32> = self.objects.iter().filter_map(over).collect();
        over.into_iter().for_each(|id| objects::remove(self, id));
    }

    /// Fills in the device of a hop, if the kernel takes it.
    pub(crate) fn resolve(&self, mut hop: Hop) -> Result<Hop, Refused> {
        let refusal = |via: IpAddr| if via.is_ipv4() { ENETUNREACH } else { EHOSTUNREACH };
        if let Some(via) = hop.via.filter(|_| hop.device == 0) {
            let index = self.index(&network(via)).filter(|index| self.devices[index].up);
            hop.device = index.ok_or_else(|| refusal(via))?;
        }
        let device = self.devices.get(&hop.device).ok_or(ENODEV)?;
        if !device.up {
            return Err(ENETDOWN);
        }
        match hop.via {
            Some(via) if self.unreachable.contains(&via) || network(via) != device.name => Err(refusal(via)),
            _ => Ok(hop),
        }
    }

    /// One message to the kernel, from a daemon whose tag is this.
    pub(crate) fn apply(&mut self, tag: u8, change: &Change) -> Result<(), Refused> {
        let adds = matches!(
            change,
            Change::AddRoute(_) | Change::AppendRoute(_) | Change::AddNexthop(_) | Change::ReplaceNexthop(_)
        );
        if adds && self.full {
            return Err(ENOMEM);
        }
        match change {
            Change::AddRoute(route) => self.add(tag, route, true),
            Change::AppendRoute(route) => self.add(tag, route, false),
            Change::DeleteRoute(route) => self.delete(tag, route),
            Change::AddNexthop(nexthop) => objects::add(self, tag, nexthop),
            Change::ReplaceNexthop(nexthop) => objects::replace(self, tag, nexthop),
            Change::DeleteNexthop(id) => match self.objects.get(id) {
                None => Err(ENOENT),
                // The writer looks at this, not the kernel.
                Some((owner, _)) if *owner != tag => Err(ESRCH),
                Some(_) => {
                    objects::remove(self, *id);
                    Ok(())
                }
            },
            Change::AddRule(rule) if self.rules.contains(&(tag, rule.clone())) => Err(EEXIST),
            Change::AddRule(rule) => {
                self.rules.push((tag, rule.clone()));
                Ok(())
            }
            Change::DeleteRule(rule) => {
                let at = self.rules.iter().position(|(protocol, is)| *protocol == tag && is == rule);
                self.rules.remove(at.ok_or(ENOENT)?);
                Ok(())
            }
        }
    }

    pub(crate) fn add(&mut self, tag: u8, route: &KernelRoute, exclusive: bool) -> Result<(), Refused> {
        let goes = match &route.way {
            Way::Hops(hops) => {
                let hops = hops.iter().map(|&hop| Ok(NextHop { hop: self.resolve(hop)?, dead: false }));
                Goes::Hops(hops.collect::<Result<_, _>>()?)
            }
            Way::Object(id) => {
                objects::may_carry(self, *id, &route.prefix)?;
                Goes::Object(*id)
            }
            Way::Unreachable => Goes::Unreachable,
            Way::Other => Goes::Blackhole,
        };
        let row = Row { metric: route.metric, protocol: tag, goes };
        let rows = self.tables.entry((route.table, route.prefix)).or_default();
        match route.prefix {
            IpNet::V4(_) => v4::add(rows, row, exclusive),
            IpNet::V6(_) => {
                v6::add(rows, row, exclusive)?;
                self.hid |= v6::hides(rows);
                Ok(())
            }
        }
    }

    pub(crate) fn delete(&mut self, tag: u8, route: &KernelRoute) -> Result<(), Refused> {
        let rows = self.tables.get_mut(&(route.table, route.prefix)).ok_or(ESRCH)?;
        match route.prefix {
            IpNet::V4(_) => v4::delete(rows, tag, route.metric, &route.way),
            IpNet::V6(_) => v6::delete(rows, tag, route.metric, &route.way),
        }
    }

    /// What a look at all of it gives.
    pub(crate) fn picture(&self, tag: u8, concerns: impl Fn(u32, &IpNet) -> bool) -> Picture {
        let link = |(&index, device): (&u32, &Device)| Link { index, name: device.name.clone(), up: device.up };
        let mut picture = Picture { links: self.devices.iter().map(link).collect(), ..Picture::default() };
        for (&(table, prefix), rows) in &self.tables {
            let told = match prefix {
                IpNet::V4(_) => v4::told(rows),
                IpNet::V6(_) => v6::told(rows),
            };
            for (protocol, metric, way) in told {
                if protocol == tag {
                    take(&mut picture.routes, KernelRoute { table, prefix, metric, way });
                } else if concerns(table, &prefix) {
                    picture.foreign.push(Foreign { table, prefix, metric, protocol });
                }
            }
        }
        let ours = self.objects.iter().filter(|(_, (owner, _))| *owner == tag);
        let ours = ours.map(|(&id, (_, leads))| Nexthop { id, leads: leads.clone() });
        (picture.nexthops, picture.lent) = ((!self.lacks_objects).then(|| ours.collect()), self.lent(tag));
        picture.taken = self.objects.iter().filter(|(_, (owner, _))| *owner != tag).map(|(&id, _)| id).collect();
        picture.rules = self.rules.iter().filter(|(owner, _)| *owner == tag).map(|(_, rule)| rule.clone()).collect();
        picture
    }

    /// Everything that a daemon with this tag has, or that all the others have.
    pub(crate) fn part(&self, tag: u8, ours: bool) -> Vec<String> {
        let mine = |owner: u8| (owner == tag) == ours;
        let rows = self.tables.iter().flat_map(|(key, rows)| rows.iter().map(move |row| (key, row)));
        let routes = rows.filter(|(_, row)| mine(row.protocol)).map(|(key, row)| format!("{key:?} {row:?}"));
        let objects = self.objects.iter().filter(|(_, (owner, _))| mine(*owner)).map(|object| format!("{object:?}"));
        let rules = self.rules.iter().filter(|(owner, _)| mine(*owner)).map(|rule| format!("{rule:?}"));
        routes.chain(objects).chain(rules).collect()
    }

    /// Whether a packet to this prefix finds a route of ours that leads out of a device.
    pub(crate) fn carries(&self, tag: u8, table: u32, prefix: IpNet) -> bool {
        let rows = self.tables.get(&(table, prefix)).map_or(&[][..], |rows| rows);
        rows.iter().filter(|row| row.protocol == tag).any(|row| match &row.goes {
            Goes::Hops(hops) => hops.iter().any(|next| !next.dead),
            Goes::Object(id) => self.objects.contains_key(id),
            Goes::Unreachable | Goes::Blackhole => false,
        })
    }
}

/// As the reader puts together what the kernel tells: of IPv6, all that has one key.
fn take(routes: &mut Vec<KernelRoute>, mut route: KernelRoute) {
    let key = |route: &KernelRoute| (route.table, route.prefix, route.metric);
    let last = routes.last_mut().filter(|last| matches!(last.prefix, IpNet::V6(_)) && key(last) == key(&route));
    if let (Some(Way::Hops(hops)), Way::Hops(more)) = (last.map(|last| &mut last.way), &mut route.way) {
        hops.append(more);
    } else {
        routes.push(route);
    }
}

/// The device that leads to a gateway.
pub(crate) fn network(via: IpAddr) -> String {
    match via {
        IpAddr::V4(via) => format!("gre{}", via.octets()[2]),
        IpAddr::V6(via) => format!("gre{}", via.segments()[1]),
    }
}

pub(crate) const fn family(prefix: &IpNet) -> Family {
    match prefix {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    }
}
