//! The routes over the chosen devices, each with a priority.
//!
//! Whatever the kernel's metrics are, the order among the routes of a prefix stays. A route that adit
//! made (protocol 212) comes back with the priority that it had before any penalty.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::found::{Hop, Odd, View, Way};
use super::tunnel::Choice;
use crate::config::lines::Lines;
use crate::config::{defaults, ends};
use crate::engine::penalty::{BASE_MAX, DEGRADED, DOWN};

/// The kernel's own table of ordinary routes (`RT_TABLE_MAIN`).
const MAIN: u32 = 254;
/// The tag of adit's routes.
const OURS: u8 = 212;
/// The steps between priorities that are not the kernel's metrics.
const STEP: u32 = 100;

/// One way of a prefix through a tunnel.
struct Leg<'a> {
    way: &'a Way,
    hop: &'a Hop,
    choice: &'a Choice<'a>,
}

/// All ways to one prefix in one table.
#[derive(Default)]
struct Group<'a> {
    legs: Vec<Leg<'a>>,
    /// Those that no tunnel carries.
    beside: Vec<(&'a Way, &'a Hop)>,
}

/// Tables and prefixes in the order in which they are written: the main table first.
type Groups<'a> = BTreeMap<(bool, u32, IpNet), Group<'a>>;

/// Writes every route over a chosen device, and says how many they are.
pub(super) fn write_all(view: &View<'_>, fit: &[Choice<'_>], lines: &mut Lines) -> usize {
    let choices: BTreeMap<u32, &Choice<'_>> = fit.iter().map(|choice| (choice.link.index, choice)).collect();
    let (mut written, mut seen) = (0, BTreeSet::new());
    for ((_, table, prefix), group) in gather(view, &choices) {
        written += group.write(view, table, prefix, &mut seen, lines);
    }
    unresolved(view, lines);
    written
}

fn gather<'a>(view: &View<'a>, choices: &BTreeMap<u32, &'a Choice<'a>>) -> Groups<'a> {
    let mut groups = Groups::new();
    for way in view.found.routes.iter().filter(|way| way.is_made() && !is_link_local(way.prefix)) {
        let group = groups.entry((way.table != MAIN, way.table, way.prefix.trunc())).or_default();
        for hop in &way.hops {
            match choices.get(&hop.link) {
                Some(&choice) => group.legs.push(Leg { way, hop, choice }),
                None => group.beside.push((way, hop)),
            }
        }
    }
    groups.retain(|_, group| !group.legs.is_empty());
    groups
}

/// What has a meaning on one link only, and is nothing that traffic is steered to.
fn is_link_local(prefix: IpNet) -> bool {
    let address = prefix.addr();
    address.is_multicast() || matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Prefixes over tunnels that are written already, each with the device's index.
type Seen = BTreeSet<(Option<u32>, IpNet, u32)>;

impl Group<'_> {
    fn write(self, view: &View<'_>, table: u32, prefix: IpNet, seen: &mut Seen, lines: &mut Lines) -> usize {
        let (mut legs, odd): (Vec<_>, Vec<_>) = self.legs.into_iter().partition(|leg| leg.way.odd.is_none());
        // Of two over one tunnel the one that was adit's already counts, or the one that wins.
        legs.sort_by_key(|leg| (leg.way.protocol != OURS, leg.base()));
        let (mut kept, mut left) = (Vec::<Leg<'_>>::new(), Vec::new());
        for leg in legs {
            let key = (TABLE_KEY.then_some(table), prefix, leg.hop.link);
            if seen.insert(key) { kept.push(leg) } else { left.push(leg) }
        }
        kept.sort_by_key(Leg::base);
        let remarks = odd.iter().map(Leg::why_odd).chain(left.iter().map(Leg::why_twice));
        let remarks: Vec<String> = remarks.chain(self.beside.iter().map(|beside| passing_by(view, beside))).collect();
        if !remarks.is_empty() {
            lines.gap();
            lines.comment(format_args!("Left out, of the kernel's routes to {prefix}{}:", in_table(table)));
            remarks.iter().for_each(|remark| lines.comment(format_args!("- {remark}")));
        }
        let bases: Vec<u32> = kept.iter().map(Leg::base).collect();
        for (leg, priority) in kept.iter().zip(priorities(&bases)) {
            leg.write(table, prefix, priority, lines);
        }
        kept.len()
    }
}

impl Leg<'_> {
    /// Its metric without the penalties (of a state and of a drain) that adit may have put on it.
    fn base(&self) -> u32 {
        let Way { protocol, metric, .. } = *self.way;
        let most = BASE_MAX + DOWN + DOWN;
        if protocol == OURS && metric <= most { metric % DEGRADED } else { metric }
    }

    fn write(&self, table: u32, prefix: IpNet, priority: u32, lines: &mut Lines) {
        lines.header("[[route]]");
        lines.text("prefix", prefix.to_string());
        lines.text("tunnel", &self.choice.name);
        if priority != self.base() {
            lines.comment(format_args!("The kernel's metric is {}.", self.base()));
        }
        lines.line("priority", priority);
        if self.hop.weight != 1 {
            lines.line("weight", self.hop.weight);
        }
        self::table(table, lines);
        lines.text("device", &self.choice.link.name);
        if let Some(via) = self.hop.via {
            let usable = via.is_ipv4() == prefix.addr().is_ipv4() && ends::unusable(via).is_none();
            if usable {
                lines.text("via", via.to_string());
            } else {
                lines.comment(format_args!("The kernel's has the gateway {via}, which cannot be written here."));
            }
        }
        self.way.source.iter().for_each(|source| {
            lines.comment(format_args!("The kernel's proposes the source address {source}; adit's would not."));
        });
    }

    fn why_odd(&self) -> String {
        let why = match self.way.odd {
            Some(Odd::Tos) => "is for packets of one type of service only",
            Some(Odd::From) => "is for packets from one prefix only",
            Some(Odd::Encap) => "wraps its packets (encap)",
            Some(Odd::Object) | None => "leads nobody knows where",
        };
        format!("{}: it {why}", self.described())
    }

    fn why_twice(&self) -> String {
        format!("{}: a tunnel has one route to a prefix", self.described())
    }

    fn described(&self) -> String {
        let Way { table, metric, protocol, .. } = *self.way;
        let device = super::plain(&self.choice.link.name);
        format!("one over {device}{}, metric {metric}, protocol {}", in_table(table), maker(protocol))
    }
}

/// What competes with a tunnel's route, and knows nothing of penalties.
fn passing_by(view: &View<'_>, (way, hop): &(&Way, &Hop)) -> String {
    let (device, maker) = (view.name(hop.link), maker(way.protocol));
    format!("one over {device}, metric {}, protocol {maker}: it goes through no tunnel above", way.metric)
}

/// Whether `[[route]]` has a `table`, and a prefix so one route a tunnel and table.
const TABLE_KEY: bool = false;

/// The routing table of a route, if it is not the main one.
fn table(table: u32, lines: &mut Lines) {
    match (table, TABLE_KEY) {
        (MAIN, _) => {}
        (_, true) => lines.line("table", table),
        (_, false) => lines.comment(format_args!("table = {table}")),
    }
}

fn in_table(table: u32) -> String {
    if table == MAIN { String::new() } else { format!(" in table {table}") }
}

/// Priorities in the order of the metrics, which is rising: the metrics themselves if all of them can
/// be priorities, else one step after the other.
fn priorities(metrics: &[u32]) -> Vec<u32> {
    if metrics.iter().all(|metric| defaults::PRIORITY.contains(metric)) {
        return metrics.to_vec();
    }
    let ranks: BTreeSet<u32> = metrics.iter().copied().collect();
    let rank = |metric: &u32| (1..).zip(&ranks).find(|(_, known)| *known == metric).map_or(1, |(rank, _)| rank);
    metrics.iter().map(|metric| STEP.saturating_mul(rank(metric)).min(BASE_MAX)).collect()
}

/// Routes of which the kernel says no device.
fn unresolved(view: &View<'_>, lines: &mut Lines) {
    let objects = view.found.routes.iter().filter(|way| way.odd == Some(Odd::Object) && way.hops.is_empty());
    let count = objects.count();
    if count > 0 {
        lines.gap();
        lines.comment(format_args!(
            "Not looked at: {count} routes over next-hop objects. The kernel does not say where they"
        ));
        lines.comment("lead while net.ipv4.nexthop_compat_mode is 0.");
    }
}

/// Who makes routes, from linux/rtnetlink.h and iproute2's list; a number where it has no name.
fn maker(protocol: u8) -> String {
    let name = match protocol {
        3 => "boot",
        4 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        18 => "keepalived",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        OURS => "adit",
        other => return other.to_string(),
    };
    name.to_owned()
}
