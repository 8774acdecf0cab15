//! How a route stands in the kernel.

use super::context::Context;
use super::entry::{EEXIST, Entry, Leg};
use super::groups::Groups;
use super::known::{Known, leads_alike};
use super::{Mode, Refusal, Way, text};
use crate::engine::Standing;

impl Entry {
    /// How a leg stands in the kernel, which is to have what is wanted.
    pub(super) fn standing(&self, leg: &Leg, wanted: &Known, context: &Context, groups: &Groups) -> Standing {
        let hop = match leg.hop(context) {
            Ok(hop) => hop,
            Err(why) => return Standing::Waiting(why),
        };
        let metric = match context.mode {
            Mode::Metric => leg.metric(context),
            Mode::Nexthop => self.base(),
        };
        let leads = |way: &Way| match (way, context.mode) {
            (Way::Hops(hops), Mode::Metric) => hops.iter().any(|other| leads_alike(&hop, other)),
            (Way::Object(id), Mode::Nexthop) => groups.installed(self.group) == Some(*id),
            (Way::Hops(_) | Way::Object(_) | Way::Unreachable | Way::Other, _) => false,
        };
        if context.mode == Mode::Nexthop
            && let Some(why) = groups.trouble(self.group, leg, self.is_v6())
        {
            return Standing::Refused(why);
        }
        let has = |routes: &Known| routes.iter().any(|(of, way)| *of == metric && leads(way));
        if has(&self.known) && has(wanted) {
            let effective = leg.priority.saturating_add(context.penalty(leg.tunnel).unwrap_or(0));
            // The metric of a route over a group stays, whatever its tunnels cost.
            let other = context.mode == Mode::Nexthop || metric != effective;
            return Standing::Installed(other.then_some(metric));
        }
        self.absence(metric, leg, context)
    }

    /// Why the kernel has no route over a leg.
    fn absence(&self, metric: u32, leg: &Leg, context: &Context) -> Standing {
        match (self.taken(metric), self.trouble(metric)) {
            (Some(protocol), _) => Standing::Conflict(format!(
                "a route of protocol {} has this prefix and metric {metric} already",
                text::protocol(protocol)
            )),
            (None, Some(Refusal { errno: EEXIST, .. })) => {
                Standing::Conflict(format!("somebody else has a route of this prefix and metric {metric}"))
            }
            (None, Some(refusal)) => Standing::Refused(refusal.why.clone()),
            (None, None) if self.is_bare_equal(metric, leg, context) => Standing::Waiting(format!(
                "Linux shares no IPv6 prefix among devices without a gateway, and another route has metric {metric}"
            )),
            (None, None) => Standing::Pending,
        }
    }

    /// Whether a leg cannot share a metric with the others that have it.
    fn is_bare_equal(&self, metric: u32, leg: &Leg, context: &Context) -> bool {
        let other = |other: &&Leg| other.route != leg.route && other.metric(context) == metric;
        let equals = self.legs.iter().filter(other).any(|other| other.hop(context).is_ok());
        context.mode == Mode::Metric && self.is_v6() && leg.via.is_none() && equals
    }
}
