//! Routes as they are shown: with what they cost, and with what the kernel makes of them.

use std::net::IpAddr;

use serde::Serialize;

use super::Engine;
use super::event::Kind;
use super::route::{Place, Route, Standing};
use super::routes::Change;

/// One route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouteView {
    /// Destination prefix.
    pub prefix: String,
    /// The routing table.
    pub table: u32,
    /// The network namespace; null is the one where adit runs.
    pub netns: Option<String>,
    /// The tunnel's name.
    pub tunnel: String,
    /// Base priority.
    pub priority: u32,
    /// What the tunnel's state costs.
    pub penalty: u32,
    /// Both together: the lowest carries the traffic.
    pub effective_priority: u32,
    /// Share among equals.
    pub weight: u32,
    /// The next hop's device; null leaves it to the kernel.
    pub device: Option<String>,
    /// The next hop's address.
    pub via: Option<String>,
    /// Whether it carries traffic.
    pub selected: bool,
    /// What the kernel makes of it, in a word ([`Standing::word`]).
    pub kernel: &'static str,
    /// The metric that the kernel has it with; null if it does not have it.
    pub kernel_metric: Option<u32>,
    /// Why the kernel does not have it, where there is more to say than the word.
    pub kernel_reason: Option<String>,
}

/// Which places are asked about; all of them unless it says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Only this routing table.
    pub table: Option<u32>,
    /// Only this network namespace, by name; the empty name is the one where adit runs.
    pub netns: Option<String>,
}

impl Whereabouts {
    fn is(&self, place: &Place) -> bool {
        let netns = place.netns.as_deref().unwrap_or_default();
        self.table.is_none_or(|table| table == place.table) && self.netns.as_deref().is_none_or(|name| name == netns)
    }
}

impl Engine {
    /// All routes, prefix by prefix.
    #[must_use]
    pub fn route_views(&self) -> Vec<RouteView> {
        self.routes.iter().map(|(index, route, selected)| self.route_view(index, route, selected)).collect()
    }

    /// The routes of some prefixes, from a place in that order on, and the place of the next prefix; `None`
    /// if there are no more.
    #[must_use]
    pub fn route_views_from(&self, from: usize, count: usize) -> (Vec<RouteView>, Option<usize>) {
        let some = self.routes.some(from, count);
        let views = some.map(|(index, route, selected)| self.route_view(index, route, selected)).collect();
        (views, Some(from.saturating_add(count)).filter(|next| *next < self.routes.prefixes()))
    }

    /// The routes over a tunnel to some of its prefixes, likewise.
    #[must_use]
    pub fn route_views_over(&self, tunnel: u32, from: usize, count: usize) -> (Vec<RouteView>, Option<usize>) {
        let some = self.routes.over(tunnel, from, count);
        let views = some.map(|(index, route, selected)| self.route_view(index, route, selected)).collect();
        (views, Some(from.saturating_add(count)).filter(|next| *next < self.routes.prefixes_over(tunnel)))
    }

    /// The routes that carry traffic to an address: at each of the places, those chosen from the longest
    /// prefix that holds it, or the one among them that a flow takes.
    #[must_use]
    pub fn lookup(&self, destination: IpAddr, flow: Option<u64>, whereabouts: &Whereabouts) -> Vec<RouteView> {
        let places = self.routes.places().filter(|&place| whereabouts.is(self.routes.place(place)));
        places.flat_map(|place| self.answer(place, destination, flow)).collect()
    }

    fn answer(&self, place: u32, destination: IpAddr, flow: Option<u64>) -> Vec<RouteView> {
        if let Some(flow) = flow {
            let picked = self.routes.pick(place, destination, flow);
            return picked.map(|(index, route)| self.route_view(index, route, true)).into_iter().collect();
        }
        let chosen = self.routes.candidates(place, destination).filter(|(.., selected)| *selected);
        chosen.map(|(index, route, selected)| self.route_view(index, route, selected)).collect()
    }

    fn route_view(&self, index: u32, route: &Route, selected: bool) -> RouteView {
        let (place, standing) = (self.routes.place(route.place), self.routes.standing(index));
        let effective_priority = self.routes.effective_priority(route);
        RouteView {
            prefix: route.prefix.to_string(),
            table: place.table,
            netns: place.netns.clone(),
            tunnel: self.name(route.tunnel).to_owned(),
            priority: route.priority,
            penalty: self.routes.penalty(route.tunnel),
            effective_priority,
            weight: route.weight,
            device: route.device.clone(),
            via: route.via.map(|via| via.to_string()),
            selected,
            kernel: standing.word(),
            kernel_metric: standing.metric(effective_priority),
            kernel_reason: standing.reason().map(str::to_owned),
        }
    }

    /// What the kernel makes of some routes, by their index: their order in the configuration.
    pub fn handle_standings(&mut self, standings: impl IntoIterator<Item = (u32, Standing)>) {
        self.routes.set_standings(standings);
    }

    /// A moved prefix, to be told; where it is, only if that is not the usual.
    pub(super) fn moved(&self, change: &Change) -> Kind {
        let place = self.routes.place(change.place);
        let names = |tunnels: &[u32]| tunnels.iter().map(|&tunnel| self.name(tunnel).to_owned()).collect();
        Kind::Route {
            prefix: change.prefix.to_string(),
            table: Some(place.table).filter(|&table| table != Place::USUAL.table),
            netns: place.netns.clone(),
            from: names(&change.from),
            to: names(&change.to),
        }
    }
}
