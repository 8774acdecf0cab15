//! What the kernel has, as values: links, routes, next-hop objects, policy rules; and the changes that
//! can be asked of it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::wire::Family;

/// A route's way to one neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// Index of the device; 0 leaves it to the kernel, which finds it by `via`.
    pub device: u32,
    /// The gateway.
    pub via: Option<IpAddr>,
    /// The gateway is taken for a neighbour, whatever the addresses of the device say.
    pub onlink: bool,
    /// Share among the hops of a route, 1 to 256.
    pub weight: u16,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// To neighbours, by weight if there are several; in the kernel's order, by which it looks for what it is
    /// to delete.
    Hops(Vec<Hop>),
    /// By a next-hop object.
    Object(u32),
    /// Nowhere: the sender is told that the destination is unreachable.
    Unreachable,
    /// Somewhere that no route of ours ever leads.
    Other,
}

/// A route that bears our tag.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRoute {
    /// The routing table.
    pub table: u32,
    /// The destination.
    pub prefix: IpNet,
    /// Its priority; lower wins. IPv6 knows none below 1.
    pub metric: u32,
    /// Where it leads.
    pub way: Way,
}

/// A route of somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Foreign {
    /// The routing table.
    pub table: u32,
    /// The destination.
    pub prefix: IpNet,
    /// Its priority.
    pub metric: u32,
    /// Who made it: `rtm_protocol` of rtnetlink(7).
    pub protocol: u8,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether an administrator has it up (`IFF_UP`): the kernel takes no route over one that is not.
    pub up: bool,
}

/// A next-hop object (`ip nexthop`), single or a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nexthop {
    /// Its number, unique in a namespace.
    pub id: u32,
    /// Where it leads.
    pub leads: Leads,
}

/// Where a next-hop object leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leads {
    /// To a neighbour. The weight of a hop does not matter here.
    Hop(Family, Hop),
    /// To one of several other objects, each with its weight, 1 to 256; sorted.
    Group(Vec<(u32, u16)>),
    /// Somewhere that none of ours ever leads.
    Other,
}

/// A policy rule (`ip rule`): packets that match look into a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Of which family.
    pub family: Family,
    /// Its place among the rules; lower is asked first.
    pub priority: u32,
    /// The table.
    pub table: u32,
    /// Packets from here.
    pub source: Option<IpNet>,
    /// Packets to there.
    pub destination: Option<IpNet>,
    /// Packets with this mark, under a mask.
    pub fwmark: Option<(u32, u32)>,
    /// Packets of this IP protocol.
    pub protocol: Option<u8>,
    /// Packets to these ports, both included.
    pub ports: Option<(u16, u16)>,
}

/// All that matters here of one network namespace, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    /// Every device.
    pub links: Vec<Link>,
    /// Every route that bears our tag, in any table, in the order in which the kernel has them.
    pub routes: Vec<KernelRoute>,
    /// Routes of others that were asked for.
    pub foreign: Vec<Foreign>,
    /// Every next-hop object that bears our tag; `None` if this kernel has no such objects.
    pub nexthops: Option<Vec<Nexthop>>,
    /// Numbers of next-hop objects that are not ours.
    pub taken: Vec<u32>,
    /// Numbers of next-hop objects, whosever they are, that routes or groups of others lead over.
    pub lent: Vec<u32>,
    /// Every rule that bears our tag.
    pub rules: Vec<Rule>,
}

/// Something that is asked of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Adds a route; refused with `EEXIST` if table, prefix and metric are taken, by whomever.
    AddRoute(KernelRoute),
    /// Adds a route behind those of the same table, prefix and metric. IPv6 makes one route with
    /// several hops of them.
    AppendRoute(KernelRoute),
    /// Deletes the route that is just so; of an IPv6 route, the hops that are named.
    DeleteRoute(KernelRoute),
    /// Adds an object; refused with `EEXIST` if the number is taken.
    AddNexthop(Nexthop),
    /// Changes an object of ours in place, for all routes over it at once.
    ReplaceNexthop(Nexthop),
    /// Deletes an object of ours, and with it every route that still leads over it.
    DeleteNexthop(u32),
    /// Adds a rule; refused with `EEXIST` if there is one that is just so.
    AddRule(Rule),
    /// Deletes the rule that is just so.
    DeleteRule(Rule),
}

/// A change that the kernel did not make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its place in the batch.
    pub place: usize,
    /// Why, as a number (errno).
    pub errno: i32,
    /// Why, in the kernel's words (extended acknowledgement), or else the number's.
    pub why: String,
}
