//! From a configuration to what is to be kept in the kernel of which namespace.

use std::collections::BTreeMap;

use crate::config::{Config, Kernel, Netns, Place};
use crate::engine::Route;
use crate::steer::{Leg, Rule, Setup};

/// What is to be kept in the kernel.
#[derive(Debug, Clone)]
pub struct Steering {
    /// How.
    pub kernel: Kernel,
    /// What, by namespace; `None` is the one where the daemon runs.
    pub realms: Vec<(Option<Netns>, Setup)>,
    /// Whether changes are printed instead of made.
    pub dry_run: bool,
}

impl Steering {
    /// What a configuration asks for, if it asks for any.
    #[must_use]
    pub fn of(config: &Config) -> Option<Self> {
        Self::new(config.kernel, &config.routes, &config.places, &config.policy, config.tunnels.len())
    }

    /// It for these routes, each in one of the places, and policy rules; `None` if the kernel is to be left
    /// alone.
    #[must_use]
    pub fn new(
        kernel: Kernel,
        routes: &[Route],
        places: &[Place],
        policy: &[(Option<Netns>, Rule)],
        tunnels: usize,
    ) -> Option<Self> {
        let (mode, backstop) = (kernel.mode, kernel.backstop);
        let setup = || Setup { mode, backstop, legs: Vec::new(), rules: Vec::new(), tunnels };
        // Where we are is always looked at: an earlier configuration may have left something there.
        let mut realms = BTreeMap::from([(None, setup())]);
        for (index, route) in (0..).zip(routes) {
            let place = &places[route.place as usize];
            let realm = realms.entry(place.netns.clone()).or_insert_with(setup);
            realm.legs.extend(route.leads().then(|| leg(index, route, place.table)));
        }
        for (netns, rule) in policy {
            realms.entry(netns.clone()).or_insert_with(setup).rules.push(rule.clone());
        }
        kernel.apply.then(|| Self { kernel, realms: realms.into_iter().collect(), dry_run: false })
    }

    /// Nothing, in the way of another one: what that has written is to go.
    #[must_use]
    pub(super) fn nothing(kernel: Kernel, dry_run: bool) -> Self {
        Self { kernel, realms: Vec::new(), dry_run }
    }

    /// The same, but printed instead of done.
    #[must_use]
    pub fn dry(self) -> Self {
        Self { dry_run: true, ..self }
    }
}

fn leg(index: u32, route: &Route, table: u32) -> Leg {
    let &Route { prefix, tunnel, priority, weight, via, onlink, .. } = route;
    let (device, weight) = (route.device.clone(), u16::try_from(weight).unwrap_or(u16::MAX));
    Leg { route: index, tunnel, table, prefix, priority, weight, device, via, onlink }
}
