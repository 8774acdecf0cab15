//! Endpoints as they are shown, and what is measured of them.

use serde::Serialize;

use super::State;
use super::watched::Watched;
use crate::engine::route_view::{RouteView, Whereabouts};
use crate::engine::snapshot::{Dated, hint, loss_ratio, whole};
use crate::engine::{Counters, Engine, MAIN, Time, WallTime};

/// One endpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EndpointView {
    /// Its name.
    pub name: String,
    /// What is probed.
    pub address: String,
    /// The namespace whose routes its probes take; null is the one where adit runs.
    pub netns: Option<String>,
    /// The source of its probes: the one that was asked for, or that the kernel chose for the last one that was answered.
    pub source: Option<String>,
    /// What is known of it.
    pub state: State,
    /// Since when it has this state.
    pub since: WallTime,
    /// Why it has this state.
    pub reason: String,
    /// The share of failures among the last samples, to four places.
    #[serde(serialize_with = "whole")]
    pub loss_ratio: f64,
    /// The last samples.
    pub window: WindowOfEndpoint,
    /// Their round-trip times; null before the first.
    pub rtt: Option<RttOfEndpoint>,
    /// What was counted.
    pub counters: Counters,
    /// The last probe that failed, or could not leave.
    pub last_failure: Option<Dated>,
    /// The last answer that was refused.
    pub last_reject: Option<Dated>,
    /// The last ICMP error about a probe: a hint, no evidence.
    pub last_hint: Option<Dated>,
    /// The route of adit's own that holds its address; null if none does, and what routes others have is not known here.
    pub route: Option<RouteOfEndpoint>,
    /// When a probe is sent next.
    pub next_probe: WallTime,
}

/// The last samples, at most 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WindowOfEndpoint {
    /// How many there are.
    pub samples: usize,
    /// Failures among them.
    pub failures: usize,
}

/// Round-trip times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RttOfEndpoint {
    /// The last.
    pub last_us: u32,
    /// The least.
    pub min_us: u32,
    /// Their mean.
    pub mean_us: u32,
}

/// The routes that carry traffic to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouteOfEndpoint {
    /// The longest prefix that holds its address.
    pub prefix: String,
    /// The routing table.
    pub table: u32,
    /// The tunnel of the first of them.
    pub tunnel: String,
    /// The tunnels of all of them: more than one where they share the traffic.
    pub tunnels: Vec<String>,
    /// What the kernel makes of the first.
    pub kernel: &'static str,
}

/// What is measured of an endpoint.
#[derive(Debug, Clone)]
pub struct EndpointMetrics {
    /// Its name.
    pub name: String,
    /// What is known of it.
    pub state: State,
    /// Since this run began.
    pub counters: Counters,
    /// Share of failures among the last samples, once there are any.
    pub loss_ratio: Option<f64>,
    /// The last round-trip time.
    pub rtt: Option<std::time::Duration>,
}

impl Engine {
    /// Some endpoints, from a place in the order of the configuration on, and the place of the next; `None` if there are
    /// no more.
    #[must_use]
    pub fn endpoints_from(&self, now: Time, from: usize, count: usize) -> (Vec<EndpointView>, Option<usize>) {
        let (some, next) = self.some_endpoints(from, count);
        (some.map(|watched| self.endpoint_view(now, watched)).collect(), next)
    }

    /// One endpoint, by its number.
    #[must_use]
    pub fn endpoint(&self, now: Time, number: u32) -> Option<EndpointView> {
        self.endpoints.all.get(&number).map(|watched| self.endpoint_view(now, watched))
    }

    /// What is measured of some endpoints, as [`Self::endpoints_from`] gives them.
    #[must_use]
    pub fn endpoint_metrics_from(&self, from: usize, count: usize) -> (Vec<EndpointMetrics>, Option<usize>) {
        let (some, next) = self.some_endpoints(from, count);
        let metrics = some.map(|watched| {
            let summary = watched.summary();
            EndpointMetrics {
                name: watched.settings.name.clone(),
                state: watched.state,
                counters: watched.counters,
                loss_ratio: (summary.samples > 0).then(|| loss_ratio(summary.failures as u64, summary.samples as u64)),
                rtt: summary.rtt.map(|[last, ..]| std::time::Duration::from_micros(last.into())),
            }
        });
        (metrics.collect(), next)
    }

    fn some_endpoints(&self, from: usize, count: usize) -> (impl Iterator<Item = &Watched>, Option<usize>) {
        let (order, to) = (&self.endpoints.order, from.saturating_add(count).min(self.endpoints.order.len()));
        let some = order.get(from..to).into_iter().flatten().filter_map(|number| self.endpoints.all.get(number));
        (some, Some(to).filter(|to| *to < order.len()))
    }

    fn endpoint_view(&self, now: Time, watched: &Watched) -> EndpointView {
        let (settings, summary) = (&watched.settings, watched.summary());
        let next = watched.attention(self.stalls).map_or(now, |next| watched.next_probe().unwrap_or(next)).max(now);
        EndpointView {
            name: settings.name.clone(),
            address: settings.address.to_string(),
            netns: settings.netns.clone(),
            source: settings.source.or(watched.near).map(|source| source.to_string()),
            state: watched.state,
            since: watched.since,
            reason: watched.reason.clone(),
            loss_ratio: loss_ratio(summary.failures as u64, summary.samples as u64),
            window: WindowOfEndpoint { samples: summary.samples, failures: summary.failures },
            rtt: summary.rtt.map(|[last_us, min_us, mean_us]| RttOfEndpoint { last_us, min_us, mean_us }),
            counters: watched.counters,
            last_failure: watched.last_failure.clone(),
            last_reject: watched.last_reject.map(|(at, reject)| Dated { at, reason: reject.label().to_owned() }),
            last_hint: watched.last_hint.map(|(at, quote)| hint(at, quote)),
            route: self.route_of(watched),
            next_probe: self.wall(next),
        }
    }

    /// The engine's own answer: in the main table, or, where that has none, in the first one that has. Which table a
    /// packet looks into is for the kernel's policy rules to say.
    fn route_of(&self, watched: &Watched) -> Option<RouteOfEndpoint> {
        let netns = Some(watched.settings.netns.clone().unwrap_or_default());
        let views = self.lookup(watched.settings.address, None, &Whereabouts { table: None, netns });
        let table = views.iter().map(|view| view.table).min_by_key(|&table| table != MAIN)?;
        let chosen: Vec<RouteView> = views.into_iter().filter(|view| view.table == table).collect();
        let first = chosen.first()?;
        Some(RouteOfEndpoint {
            prefix: first.prefix.clone(),
            table,
            tunnel: first.tunnel.clone(),
            tunnels: chosen.iter().map(|view| view.tunnel.clone()).collect(),
            kernel: first.kernel,
        })
    }
}
