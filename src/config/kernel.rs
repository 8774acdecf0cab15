//! `[kernel]`: whether and how routes are written to the kernel.

use std::time::Duration;

use super::defaults;
use super::section::{Section, expected};
use super::tree::{At, Placed};
use crate::steer::Mode;

/// How the kernel is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Whether it is at all; otherwise routes live in adit's own table only.
    pub apply: bool,
    /// The table of a route that names none.
    pub table: u32,
    /// How penalties become routes.
    pub mode: Mode,
    /// Whether the kernel goes on announcing every route when a next-hop group changes.
    pub notify_routes: NotifyRoutes,
    /// Our tag: `rtm_protocol` of everything that we write.
    pub protocol: u8,
    /// Whether every prefix has an unreachable route of the highest metric.
    pub backstop: bool,
    /// What becomes of the routes when the daemon stops.
    pub on_exit: OnExit,
    /// How often what the kernel has is compared with what it should have, if nothing gives cause to.
    pub reconcile_interval: Duration,
    /// Bytes of the queue for what the kernel tells of its routes.
    pub receive_buffer: u32,
}

/// `net.ipv4.nexthop_compat_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyRoutes {
    /// It stays as it is.
    Keep,
    /// It is turned off: other listeners hear of the group only.
    Off,
}

/// What becomes of the routes when the daemon stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExit {
    /// They stay: traffic goes on as by the last verdicts.
    Keep,
    /// They are taken away.
    Remove,
}

/// What holds without `[kernel]`: nothing is written.
impl Default for Kernel {
    fn default() -> Self {
        Self {
            apply: false,
            table: defaults::TABLE,
            mode: Mode::Metric,
            notify_routes: NotifyRoutes::Keep,
            protocol: defaults::PROTOCOL,
            backstop: false,
            on_exit: OnExit::Keep,
            reconcile_interval: defaults::RECONCILE,
            receive_buffer: defaults::RECEIVE_BUFFER,
        }
    }
}

impl Kernel {
    /// Reads `[kernel]`. `apply` has no default: a file that speaks of the kernel's routes says whether
    /// they are to be written.
    pub(super) fn read(root: &mut Section<'_>) -> Self {
        let usual = Self::default();
        let Some(mut section) = root.section("kernel", "[kernel]") else { return usual };
        section.require("apply", "it says whether routes are written to the kernel", "true (or false)");
        let apply = section.boolean("apply", true);
        let table = table(&mut section);
        let mode = section.choice("mode", &[("metric", Mode::Metric), ("nexthop", Mode::Nexthop)]);
        let notify =
            section.choice("nexthop_notify_routes", &[("keep", NotifyRoutes::Keep), ("off", NotifyRoutes::Off)]);
        let protocol = protocol(&mut section);
        let backstop = section.boolean("backstop", false);
        let on_exit = section.choice("on_exit", &[("keep", OnExit::Keep), ("remove", OnExit::Remove)]);
        let interval = section.duration("reconcile_interval", defaults::RECONCILE_RANGE, defaults::RECONCILE);
        let why = " (bytes)";
        let buffer = section.integer("receive_buffer", defaults::RECEIVE_BUFFER_RANGE, why, defaults::RECEIVE_BUFFER);
        let kernel = Self {
            apply: value(apply, usual.apply),
            table: value(table, usual.table),
            mode: value(mode, usual.mode),
            notify_routes: value(notify, usual.notify_routes),
            protocol: value(protocol, usual.protocol),
            backstop: value(backstop, usual.backstop),
            on_exit: value(on_exit, usual.on_exit),
            reconcile_interval: value(interval, usual.reconcile_interval),
            receive_buffer: value(buffer, usual.receive_buffer),
        };
        kernel.refuse_idle_notify(&section, notify.map(|notify| notify.at));
        section.finish();
        kernel
    }

    /// There is no group whose changes could be announced.
    fn refuse_idle_notify(&self, section: &Section<'_>, at: Option<At>) {
        if let (NotifyRoutes::Off, Mode::Metric, Some(at)) = (self.notify_routes, self.mode, at) {
            let why = "cannot be \"off\" with mode = \"metric\", which has no next-hop groups";
            section.report().add(at, format!("`nexthop_notify_routes` {why}; write mode = \"nexthop\", or remove it"));
        }
    }
}

fn value<T>(written: Option<Placed<T>>, usual: T) -> T {
    written.map_or(usual, |written| written.value)
}

/// Reads `table`.
pub(super) fn table(section: &mut Section<'_>) -> Option<Placed<u32>> {
    let table = section.integer("table", 1..=u32::MAX, "", defaults::TABLE)?;
    if table.value == LOCAL {
        let why = "is 255, the kernel's own table of this host's addresses";
        section.report().add(table.at, format!("`table` {why}; write table = 254, which is the main one, or another"));
        return None;
    }
    Some(table)
}

/// `RT_TABLE_LOCAL` of rtnetlink(7).
const LOCAL: u32 = 255;

/// Who else writes routes: `rtm_protocol` in linux/rtnetlink.h, and what FRR adds in `zebra/rt_netlink.h`.
/// The first five have a meaning to the kernel, or are what everybody uses by default.
const DAEMONS: [(std::ops::RangeInclusive<u32>, &str); 19] = [
    (0..=0, "what a route has that says nothing (unspec)"),
    (1..=1, "the tag of ICMP redirects"),
    (2..=2, "the kernel's own tag"),
    (3..=3, "what `ip route` writes by itself (boot)"),
    (4..=4, "the tag of static routes"),
    (8..=8, "gated's"),
    (9..=9, "the tag of router advertisements"),
    (10..=10, "the tag of MRT"),
    (11..=11, "zebra's"),
    (12..=12, "BIRD's"),
    (13..=13, "the tag of DECnet"),
    (14..=14, "XORP's"),
    (15..=15, "Netsukuku's"),
    (16..=16, "the tag of DHCP clients"),
    (17..=17, "the tag of multicast routing"),
    (18..=18, "keepalived's"),
    (42..=42, "babeld's"),
    (99..=99, "Open/R's"),
    (186..=198, "FRR's"),
];

/// What bears our tag is ours to delete: it must be nobody else's.
fn protocol(section: &mut Section<'_>) -> Option<Placed<u8>> {
    let example = defaults::PROTOCOL.to_string();
    section.read("protocol", |value| {
        let number = value.as_integer().and_then(|number| u8::try_from(number).ok());
        let kind = "a whole number from 5 to 255 that no other program tags its routes with";
        let number = number.ok_or_else(|| expected(kind, value, "protocol", &example))?;
        match DAEMONS.iter().find(|(numbers, _)| numbers.contains(&number.into())) {
            Some((_, whose)) => {
                let why = "adit deletes what bears its tag, and must find nothing of others under it";
                Err(format!("is {number}, {whose}: {why}; write protocol = {example}"))
            }
            None => Ok(number),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_is_listed_once_and_the_default_is_free() {
        let listed = |number: u8| DAEMONS.iter().filter(|(numbers, _)| numbers.contains(&number.into())).count();
        assert!((0..=255).all(|number| listed(number) <= 1));
        assert_eq!(listed(defaults::PROTOCOL), 0);
        assert_eq!((0..=255).map(listed).sum::<usize>(), 31);
    }
}
