//! What a list of routes has for us.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::decode::Head;
use crate::steer::{Foreign, KernelRoute, Way};
use crate::wire::Family;

/// Routes of one family.
#[derive(Debug, Default)]
pub struct Routes {
    /// Those that bear our tag.
    pub ours: Vec<KernelRoute>,
    /// Those of others that matter.
    pub foreign: Vec<Foreign>,
    /// Next-hop objects that routes of others lead over.
    pub lent: BTreeSet<u32>,
}

impl Routes {
    pub(super) fn take(&mut self, tag: u8, family: Family, payload: &[u8], concerns: &dyn Fn(u32, &IpNet) -> bool) {
        // A kernel without IPv6 gives the routes of all other families instead.
        let Some(head) = Head::read(payload).filter(|head| head.is_route() && head.family == family) else { return };
        if head.protocol != tag {
            self.lent.extend(head.object());
        }
        // What is for some packets only stands beside a route for all, even with its metric.
        if head.choosy {
            return;
        }
        if head.protocol == tag {
            self.ours.push(head.route());
        } else {
            self.foreign.extend(concerns(head.table, &head.prefix).then(|| head.foreign()));
        }
    }

    /// Each route once. IPv6 has each hop as a route of its own, and shows those together only that it takes
    /// for one route. And it shows some twice if others are added meanwhile; there are none that are the same.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.foreign.sort_unstable();
        self.foreign.dedup();
        // Those with one key stay in their order.
        self.ours.sort_by_key(key);
        let mut ours = Vec::with_capacity(self.ours.len());
        for route in self.ours {
            if let Some(route) = joined(&mut ours, route) {
                ours.push(route);
            }
        }
        Self { ours, ..self }
    }
}

/// Joins a route to one with its key that has hops, too, or is the same; gives it back if there is none.
fn joined(routes: &mut [KernelRoute], route: KernelRoute) -> Option<KernelRoute> {
    for other in routes.iter_mut().rev().take_while(|other| key(other) == key(&route)) {
        if let (Way::Hops(hops), Way::Hops(more)) = (&mut other.way, &route.way) {
            hops.extend(more);
            hops.sort_unstable();
            hops.dedup();
            return None;
        }
        if other.way == route.way && other.way != Way::Other {
            return None;
        }
    }
    Some(route)
}

const fn key(route: &KernelRoute) -> (u32, IpNet, u32) {
    (route.table, route.prefix, route.metric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steer::Hop;

    #[test]
    fn what_an_ipv6_list_shows_twice_or_in_parts_is_one_route() {
        let hop = |device| Hop { device, via: None, onlink: false, weight: 1 };
        let route =
            |prefix: &str, metric, way| KernelRoute { table: 254, prefix: prefix.parse().unwrap(), metric, way };
        let (one, other) = ("2001:db8:1::/48", "2001:db8:2::/48");
        let hops = |devices: &[u32]| Way::Hops(devices.iter().copied().map(hop).collect());
        let ours = vec![
            route(other, 1, hops(&[3])),
            route(one, 1, Way::Object(7)),
            route(one, 1, hops(&[2])),
            route(one, 2, Way::Other),
            route(other, 1, hops(&[3])),
            route(one, 1, hops(&[1])),
            route(one, 1, Way::Object(7)),
            route(one, 2, Way::Other),
        ];
        let foreign = Foreign { table: 254, prefix: one.parse().unwrap(), metric: 9, protocol: 4 };
        let found = Routes { ours, foreign: vec![foreign, foreign], ..Routes::default() }.once();
        let wanted = [
            route(one, 1, Way::Object(7)),
            route(one, 1, hops(&[1, 2])),
            // Two that are not known may differ.
            route(one, 2, Way::Other),
            route(one, 2, Way::Other),
            route(other, 1, hops(&[3])),
        ];
        assert_eq!(found.ours, wanted);
        assert_eq!(found.foreign, [foreign]);
    }
}
