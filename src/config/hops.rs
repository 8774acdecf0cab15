//! Refuses next hops that the kernel cannot keep apart, or cannot take. Only of routes that it is to have.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::source::Report;
use super::tree::{At, Placed};
use crate::engine::Route;
use crate::steer::Mode;

/// The next hops of the routes so far, and where they were written.
#[derive(Default)]
pub(super) struct Hops {
    known: BTreeMap<(u32, IpNet, Option<String>, Option<IpAddr>), At>,
    /// IPv6 routes by place, prefix and priority, and whether the first has `via`.
    equals: BTreeMap<(u32, IpNet, u32), Placed<bool>>,
    /// The first route without a next hop, and how many there are.
    without: Option<Placed<usize>>,
    routes: usize,
}

impl Hops {
    /// Looks at one more route, which begins at its place.
    pub(super) fn judge(&mut self, route: &Placed<&Route>, priority_at: At, mode: Mode, report: &Report) {
        let Placed { at, value: route } = *route;
        self.routes += 1;
        if !route.leads() {
            self.without.get_or_insert(Placed { at, value: 0 }).value += 1;
            return;
        }
        if mode == Mode::Nexthop && route.device.is_none() {
            let why = "`device` is missing in [[route]]: the kernel's next-hop objects have a device";
            report.add(at, format!("{why}; write device = \"gre1\", or mode = \"metric\" in [kernel]"));
        }
        self.refuse_same(at, route, report);
        if mode == Mode::Metric && matches!(route.prefix, IpNet::V6(_)) {
            self.refuse_bare_equals(priority_at, route, report);
        }
    }

    /// Two routes with one next hop are one way with two verdicts about it.
    fn refuse_same(&mut self, at: At, route: &Route, report: &Report) {
        let key = (route.place, route.prefix, route.device.clone(), route.via);
        let first = *self.known.entry(key).or_insert(at);
        if first != at {
            let first = report.refer(at, first);
            let why = format!("this route to {} has the same next hop as the one in {first}", route.prefix);
            let what = "which two tunnels cannot share; write another device or via, or another table";
            report.add(at, format!("{why}, {what}"));
        }
    }

    /// Routes of equal priority have equal metrics while their penalties are equal, and are then several
    /// hops of one route. Of hops without a gateway Linux makes no such IPv6 route
    /// (`rt6_qualify_for_ecmp`: it must have been given one).
    fn refuse_bare_equals(&mut self, at: At, route: &Route, report: &Report) {
        let has_via = route.via.is_some();
        let key = (route.place, route.prefix, route.priority);
        let first = *self.equals.entry(key).or_insert(Placed { at, value: has_via });
        if first.at != at && !(has_via && first.value) {
            let line = report.refer(at, first.at);
            let why = format!("`priority` is {} as in {line}, and Linux shares no IPv6 prefix", route.priority);
            let what = "write via in both, another priority in one, or mode = \"nexthop\" in [kernel]";
            report.add(at, format!("{why} among devices without via; {what}"));
        }
    }

    /// Says so where routes are missing a next hop: the kernel is steered, and yet these are not.
    pub(super) fn hint(&self, report: &Report) {
        if let Some(Placed { at, value: count }) = self.without {
            let those = format!("routes with neither `device` nor `via`: {count} of {}, this the first", self.routes);
            let what = "the kernel does not get them, and they stay in adit's own table";
            report.hint(at, format!("{those}; {what}"));
        }
    }
}
