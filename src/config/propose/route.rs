//! The routes over the chosen devices, each with a priority.
//!
//! Whatever the kernel's metrics are, the order among the routes of a prefix stays. A route that adit
//! made (protocol 212) comes back with the priority that it had before any penalty.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::found::{Hop, Odd, View, Way};
use super::tunnel::Choice;
use crate::config::lines::{self, Lines};
use crate::config::{defaults, ends};
use crate::engine::penalty::{BASE_MAX, DEGRADED, DOWN};
use crate::steer;

/// The kernel's own table of ordinary routes (`RT_TABLE_MAIN`).
const MAIN: u32 = 254;
/// Its table of this host's own addresses (`RT_TABLE_LOCAL`).
const LOCAL: u32 = 255;
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
    let groups = gather(view, &choices).into_iter();
    let written = groups.map(|((_, table, prefix), group)| group.write(view, table, prefix, lines)).sum();
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

impl Group<'_> {
    fn write(self, view: &View<'_>, table: u32, prefix: IpNet, lines: &mut Lines) -> usize {
        let (mut legs, odd): (Vec<_>, Vec<_>) = self.legs.into_iter().partition(|leg| leg.why_odd().is_none());
        // Of two over one tunnel the one that was adit's already counts, or the one that wins.
        legs.sort_by_key(|leg| (leg.way.protocol != OURS, leg.base()));
        let mut seen = BTreeSet::new();
        let (mut kept, twice): (Vec<_>, Vec<_>) = legs.into_iter().partition(|leg| seen.insert(leg.hop.link));
        kept.sort_by_key(Leg::base);
        let remarks = odd.iter().chain(&twice).map(Leg::why_left_out);
        let remarks: Vec<String> = remarks.chain(self.beside.iter().map(|beside| passing_by(view, beside))).collect();
        if !remarks.is_empty() {
            lines.gap();
            lines.comment(format_args!("Left out, of the kernel's routes to {prefix}{}:", in_table(table)));
            remarks.iter().for_each(|remark| lines.comment(format_args!("- {remark}")));
        }
        for (leg, priority) in kept.iter().zip(priorities(&kept)) {
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
        if table != MAIN {
            lines.line("table", table);
        }
        lines.text("device", &self.choice.link.name);
        self.write_via(lines);
        self.way.source.iter().for_each(|source| {
            lines.comment(format_args!("The kernel's proposes the source address {source}; adit's would not."));
        });
    }

    fn write_via(&self, lines: &mut Lines) {
        match (self.hop.via, self.via()) {
            (_, Some(via)) => lines.text("via", via.to_string()),
            (Some(via), None) => {
                lines.comment(format_args!("The kernel's has the gateway {via}, which cannot be written here."));
            }
            (None, None) => {}
        }
        if self.hop.onlink && self.via().is_some() {
            lines.line("onlink", true);
        }
    }

    /// The gateway, if it can be written.
    fn via(&self) -> Option<IpAddr> {
        let same_family = |via: &IpAddr| via.is_ipv4() == self.way.prefix.addr().is_ipv4();
        self.hop.via.filter(same_family).filter(|via| ends::unusable(*via).is_none())
    }

    /// Why adit can have no such route.
    fn why_odd(&self) -> Option<&'static str> {
        match self.way.odd {
            _ if self.way.table == LOCAL => Some("it is in the table of this host's own addresses"),
            Some(Odd::Tos) => Some("it is for packets of one type of service only"),
            Some(Odd::From) => Some("it is for packets from one prefix only"),
            Some(Odd::Encap) => Some("it wraps its packets (encap)"),
            Some(Odd::Object) => Some("the kernel does not say where it leads"),
            None => None,
        }
    }

    fn why_left_out(&self) -> String {
        let Way { metric, protocol, .. } = *self.way;
        let device = lines::plain(&self.choice.link.name);
        let why = self.why_odd().unwrap_or("a tunnel has one route to a prefix");
        format!("one over {device}, metric {metric}, protocol {}: {why}", maker(protocol))
    }
}

/// What competes with a tunnel's route, and knows nothing of penalties.
fn passing_by(view: &View<'_>, (way, hop): &(&Way, &Hop)) -> String {
    let (device, maker) = (view.name(hop.link), maker(way.protocol));
    format!("one over {device}, metric {}, protocol {maker}: it goes through no tunnel above", way.metric)
}

fn in_table(table: u32) -> String {
    if table == MAIN { String::new() } else { format!(" in table {table}") }
}

/// Priorities in the order of the metrics, which is rising: the metrics themselves if all of them can
/// be priorities, else one step after the other.
fn priorities(legs: &[Leg<'_>]) -> Vec<u32> {
    let metrics: Vec<u32> = legs.iter().map(Leg::base).collect();
    let apart = share_nothing(legs);
    if !apart && metrics.iter().all(|metric| defaults::PRIORITY.contains(metric)) {
        return metrics;
    }
    let (mut rank, mut last) = (0_u32, None);
    let priority = |metric| {
        rank += u32::from(apart || last.replace(metric) != Some(metric));
        rank.saturating_mul(STEP).min(BASE_MAX)
    };
    metrics.into_iter().map(priority).collect()
}

/// Whether some of these have one metric and yet are no hops of one route: Linux makes none of IPv6 hops
/// without a gateway (`rt6_qualify_for_ecmp`), and takes the first.
fn share_nothing(legs: &[Leg<'_>]) -> bool {
    let bare = |leg: &Leg<'_>| leg.way.prefix.addr().is_ipv6() && leg.via().is_none();
    legs.windows(2).any(|two| two[0].base() == two[1].base()) && legs.iter().any(bare)
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

/// Who makes routes.
fn maker(protocol: u8) -> String {
    if protocol == OURS { "adit".to_owned() } else { steer::protocol(protocol) }
}
