//! The static routes: each belongs to the tunnel in whose inner subnet its next hop is.
//!
//! Whatever the API's priorities are, the order among the routes to a prefix stays.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::Side;
use super::export::Route;
use super::json::brief;
use super::tunnel::Choice;
use crate::config::defaults;
use crate::config::lines::Lines;
use crate::engine::penalty::BASE_MAX;

/// The steps between priorities that are not the API's.
const STEP: u32 = 100;
/// What a weight can be here.
const WEIGHT_MAX: i64 = 256;
const _: () = assert!(*defaults::WEIGHT_RANGE.end() == 256);

/// Tunnels by the inner subnets that they have in the export.
type Subnets<'a> = BTreeMap<IpNet, Vec<&'a Choice<'a>>>;

/// One way to a prefix.
struct Leg<'a> {
    route: &'a Route,
    tunnel: Result<&'a str, String>,
}

/// Writes every route, and says how many are more than a comment.
pub(super) fn write_all(routes: &[Route], tunnels: &[Choice<'_>], side: Side, lines: &mut Lines) -> usize {
    let mut subnets = Subnets::new();
    for choice in tunnels {
        let nets: BTreeSet<IpNet> = choice.tunnel.interfaces.iter().map(IpNet::trunc).collect();
        nets.into_iter().for_each(|net| subnets.entry(net).or_default().push(choice));
    }
    let mut prefixes: BTreeMap<IpNet, Vec<Leg<'_>>> = BTreeMap::new();
    for route in routes {
        let leg = Leg { route, tunnel: tunnel(&subnets, route.nexthop) };
        prefixes.entry(route.prefix.trunc()).or_default().push(leg);
    }
    if prefixes.values().flatten().any(|leg| leg.tunnel.is_ok()) {
        meant(side, lines);
    }
    prefixes.into_iter().map(|(prefix, legs)| write(prefix, legs, lines)).sum()
}

/// What the routes are to this host.
fn meant(side: Side, lines: &mut Lines) {
    lines.gap();
    match side {
        Side::Customer => lines.comment(
            "The routes are Cloudflare's: through the tunnels, to what lies behind this host. Here they stand in adit's own \
             table only, and show over which tunnel that traffic should come. Do not give them a device: in this host's \
             kernel they would send it back.",
        ),
        Side::Cloudflare => {
            lines.comment(
                "The routes live in adit's own table. To have them in the kernel, give each its device (or via), and write:",
            );
            lines.comment("[kernel]");
            lines.comment("apply = true");
        }
    }
}

/// The tunnel in whose subnet a next hop is, or why there is none.
fn tunnel<'a>(subnets: &Subnets<'a>, nexthop: IpAddr) -> Result<&'a str, String> {
    let longest = IpNet::from(nexthop).max_prefix_len();
    let around = (0..=longest).rev().filter_map(|length| IpNet::new(nexthop, length).ok());
    // Subnets of tunnels that can be probed are among the longest.
    let found = around.take(usize::from(longest.min(9))).find_map(|net| subnets.get(&net.trunc()));
    let Some(found) = found else {
        return Err(format!("no tunnel of the export has the next hop {nexthop} in its inner subnet"));
    };
    let mut fit = found.iter().filter(|choice| choice.fit.is_ok());
    match (fit.next(), fit.next()) {
        (Some(one), None) => Ok(&one.name),
        (Some(one), Some(two)) => {
            Err(format!("the next hop {nexthop} is in the inner subnet of {} and of {}", one.name, two.name))
        }
        (None, _) => {
            let name = found.first().map_or("", |choice| &choice.tunnel.name);
            Err(format!("its tunnel {} is left out", brief(name, 60)))
        }
    }
}

/// Writes the routes to one prefix.
fn write(prefix: IpNet, legs: Vec<Leg<'_>>, lines: &mut Lines) -> usize {
    let priorities = priorities(&legs);
    let most = legs.iter().filter_map(|leg| leg.route.weight).max().unwrap_or(0).max(WEIGHT_MAX);
    let mut order: Vec<(Leg<'_>, u32)> = legs.into_iter().zip(priorities).collect();
    order.sort_by_key(|(leg, _)| leg.route.priority);
    let (mut seen, mut written) = (BTreeSet::new(), 0);
    for (mut leg, priority) in order {
        if let Ok(name) = leg.tunnel
            && !seen.insert(name)
        {
            leg.tunnel = Err(format!("{name} has a route to {prefix} already"));
        }
        written += usize::from(leg.tunnel.is_ok());
        leg.write(prefix, priority, most, lines);
    }
    written
}

/// A weight where the largest is `most`.
fn scaled(weight: i64, most: i64) -> i64 {
    let scaled = i128::from(weight) * i128::from(WEIGHT_MAX) / i128::from(most.max(1));
    i64::try_from(scaled).unwrap_or(WEIGHT_MAX).clamp(1, WEIGHT_MAX)
}

/// Priorities that can be written: the API's if all to the prefix can, else one step after the other.
fn priorities(legs: &[Leg<'_>]) -> Vec<u32> {
    let given = |leg: &Leg<'_>| u32::try_from(leg.route.priority).ok().filter(|own| defaults::PRIORITY.contains(own));
    if let Some(given) = legs.iter().map(given).collect() {
        return given;
    }
    let ranks: BTreeSet<i64> = legs.iter().map(|leg| leg.route.priority).collect();
    let ranks: BTreeMap<i64, u32> = ranks.into_iter().zip(1..).collect();
    let rank = |leg: &Leg<'_>| ranks.get(&leg.route.priority).copied().unwrap_or(1);
    legs.iter().map(|leg| rank(leg).saturating_mul(STEP).min(BASE_MAX)).collect()
}

impl Leg<'_> {
    /// Its `[[route]]`, or the same as comments, with the reason. `most` is the largest weight to the prefix.
    fn write(&self, prefix: IpNet, priority: u32, most: i64, lines: &mut Lines) {
        let weight = self.route.weight.filter(|weight| *weight > 0).map(|weight| scaled(weight, most));
        let name = match &self.tunnel {
            Ok(name) => *name,
            Err(why) => {
                lines.gap();
                let nexthop = self.route.nexthop;
                lines.comment(format_args!(
                    "Left out: {why}. With the name of a tunnel, and without the marks, it is a route:"
                ));
                self.remark(prefix, priority, weight, lines);
                lines.comment("[[route]]");
                lines.comment(format_args!("prefix = \"{prefix}\""));
                lines.comment(format_args!("tunnel = \"\" # by the next hop {nexthop}"));
                lines.comment(format_args!("priority = {priority}"));
                weight.iter().for_each(|weight| lines.comment(format_args!("weight = {weight}")));
                return;
            }
        };
        lines.header("[[route]]");
        self.remark(prefix, priority, weight, lines);
        lines.text("prefix", prefix.to_string());
        lines.text("tunnel", name);
        lines.line("priority", priority);
        weight.iter().for_each(|weight| lines.line("weight", weight));
    }

    /// What the API's route is beyond the words of a `[[route]]`.
    fn remark(&self, prefix: IpNet, priority: u32, weight: Option<i64>, lines: &mut Lines) {
        let Route { description, scope, .. } = self.route;
        description.iter().for_each(|text| lines.comment(text));
        if let Some(scope) = scope {
            lines.comment(format_args!("Cloudflare has it only in {scope}; adit knows no such scope."));
        }
        if self.route.prefix != prefix {
            lines.comment(format_args!("Cloudflare writes it {}.", self.route.prefix));
        }
        if self.route.priority != i64::from(priority) {
            let range = defaults::PRIORITY;
            let range = format!("{} to {}", range.start(), range.end());
            let (given, why) = (self.route.priority, "here all to a prefix are from");
            lines.comment(format_args!("Cloudflare's priority is {given}; {why} {range}, and the order stays."));
        }
        if let Some(given) = self.route.weight.filter(|given| weight.is_some_and(|weight| weight != *given)) {
            lines.comment(format_args!("Cloudflare's weight is {given}; the largest here is {WEIGHT_MAX}."));
        }
        if self.route.weight.is_some_and(i64::is_negative) {
            lines.comment("Cloudflare's weight is below 0, and means nothing here.");
        }
    }
}
