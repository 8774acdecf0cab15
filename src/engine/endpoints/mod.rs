//! Endpoints: addresses beyond the far routers that are probed in no tunnel, over whatever route they take. Measured
//! and told; no tunnel is judged by them, and no route costs more for one (law 3).
//!
//! An endpoint is probed in **rounds**, a few probes each. One answer makes it reachable; a round without an answer,
//! which two more probes have confirmed, unreachable. If probes cannot leave, it is unknown, and why is told (law 4).
//! While it is not reachable, rounds follow each other sooner.
//!
//! | file | holds |
//! | --- | --- |
//! | here | what is configured, and what the engine does for all of them |
//! | `round` | what the probes of a round say together |
//! | `watched` | one endpoint's run-time state |
//! | `probing` | its probes, from being due to being settled |
//! | `view` | what is shown and measured |

mod probing;
mod round;
mod view;
mod watched;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use super::settings::{Ear, Egress, Namespace};
use super::{Engine, Time, schedule};
use crate::wire::Family;
use crate::wire::filter::Protocol;
pub use view::{EndpointMetrics, EndpointView, RouteOfEndpoint, RttOfEndpoint, WindowOfEndpoint};
use watched::Watched;

/// The numbers of endpoints begin here: whatever has a number below is a tunnel.
const FIRST: u32 = 1 << 30;
/// And end before this.
const END: u32 = 1 << 31;
/// New endpoints begin within this time.
const SPREAD: Duration = Duration::from_secs(1);

/// Whether probes that bear this number are an endpoint's.
pub(super) const fn is_number(number: u32) -> bool {
    FIRST <= number && number < END
}

/// One endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The name in every output.
    pub name: String,
    /// What is probed.
    pub address: IpAddr,
    /// The source that was asked for; otherwise the kernel chooses it.
    pub source: Option<IpAddr>,
    /// The namespace whose routes its probes take, as people call it; `None` is the one where adit runs.
    pub netns: Option<String>,
    /// The same.
    pub namespace: Namespace,
    /// The socket its probes leave by.
    pub egress: Egress,
    /// How often, and how long.
    pub timing: Timing,
}

/// How an endpoint's probes are spread over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time from one round to the next.
    pub interval: Duration,
    /// The same while it is not reachable.
    pub retry_interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Probes of a round.
    pub count: u32,
}

impl Endpoint {
    /// Whether what is known of the other one holds for this one.
    fn is_probed_like(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.address, it.source, it.namespace, it.egress);
        of(self) == of(other)
    }

    /// The socket that its answers come to.
    const fn ear(&self) -> Ear {
        Ear { namespace: self.namespace, family: Family::of(self.address), protocol: Protocol::Icmp }
    }
}

/// What is known of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No verdict: nothing is known yet, or its probes cannot leave.
    Unknown,
    /// It answers.
    Reachable,
    /// It does not.
    Unreachable,
}

impl State {
    /// The name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Reachable => "reachable",
            Self::Unreachable => "unreachable",
        }
    }
}

/// All endpoints.
#[derive(Default)]
pub(super) struct Endpoints {
    /// By their numbers.
    all: BTreeMap<u32, Watched>,
    /// Their numbers, in the order of the configuration.
    order: Vec<u32>,
    /// How many numbers have been given.
    given: u32,
    /// When each wants attention.
    due: BTreeSet<(Time, u32)>,
    /// Those that have a probe to send.
    queue: VecDeque<u32>,
}

impl Endpoints {
    fn get(&mut self, number: u32) -> Option<&mut Watched> {
        self.all.get_mut(&number)
    }

    /// When the first of them wants something.
    pub(super) fn earliest(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether a probe waits to be sent.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    fn number(&mut self) -> u32 {
        let number = FIRST.saturating_add(self.given).min(END - 1);
        self.given = self.given.saturating_add(1);
        number
    }
}

impl Engine {
    /// Probes these endpoints from now on. One that there was, and that is probed as before, goes on as if nothing had
    /// happened.
    pub fn set_endpoints(&mut self, now: Time, endpoints: Vec<Endpoint>) {
        let wall = self.wall(now);
        let Endpoints { all, given, queue, .. } = std::mem::take(&mut self.endpoints);
        self.endpoints.given = given;
        let name = |watched: Watched| (watched.settings.name.clone(), watched);
        let mut before: BTreeMap<String, Watched> = all.into_values().map(name).collect();
        for endpoint in endpoints {
            let known = before.remove(&endpoint.name).filter(|known| known.settings.is_probed_like(&endpoint));
            let number = known.as_ref().map_or_else(|| self.endpoints.number(), |known| known.number);
            let phase = schedule::phase(number, endpoint.timing.interval.min(SPREAD));
            let first = (now + phase).ceil(schedule::TICK);
            let watched = match known {
                Some(mut known) => {
                    known.armed = None;
                    known.resettle(first, endpoint);
                    known
                }
                None => Watched::new(number, endpoint, first, wall),
            };
            self.endpoints.order.push(number);
            self.endpoints.all.insert(number, watched);
            self.rearm_endpoint(number);
        }
        self.endpoints.queue = queue.into_iter().filter(|number| self.endpoints.all.contains_key(number)).collect();
    }

    fn rearm_endpoint(&mut self, number: u32) {
        let Endpoints { all, due, .. } = &mut self.endpoints;
        let Some(watched) = all.get_mut(&number) else { return };
        let next = watched.attention(self.stalls);
        if let Some(before) = std::mem::replace(&mut watched.armed, next) {
            due.remove(&(before, number));
        }
        due.extend(next.map(|next| (next, number)));
    }

    /// Deadlines have moved.
    pub(super) fn rearm_endpoints(&mut self) {
        for place in 0..self.endpoints.order.len() {
            self.rearm_endpoint(self.endpoints.order[place]);
        }
    }

    /// How many endpoints there are.
    #[must_use]
    pub fn count_endpoints(&self) -> usize {
        self.endpoints.order.len()
    }

    /// The number of an endpoint, by its name.
    #[must_use]
    pub fn find_endpoint(&self, name: &str) -> Option<u32> {
        self.endpoints.all.iter().find(|(_, watched)| watched.settings.name == name).map(|(number, _)| *number)
    }

    /// The names of all endpoints, in the order of the configuration.
    pub fn endpoint_names(&self) -> impl Iterator<Item = &str> {
        let watched = self.endpoints.order.iter().filter_map(|number| self.endpoints.all.get(number));
        watched.map(|watched| watched.settings.name.as_str())
    }
}
