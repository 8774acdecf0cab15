//! What is measured of all, as numbers that others make a text of.

use std::time::Duration;

use super::endpoints::EndpointMetrics;
use super::prober::Counters;
use super::snapshot::{Census, loss_ratio};
use super::{Engine, KINDS, State, Time};
use crate::wire::filter::Protocol;
use crate::wire::{Family, Reject};

/// Counts of durations, by how long they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram<const N: usize> {
    /// The upper end of each bucket, in microseconds; what is longer is in none.
    bounds: &'static [u32; N],
    counts: [u64; N],
    count: u64,
    sum: Duration,
    longest: Duration,
}

/// The ends of the buckets of round-trip times: 0.5 ms to 2.5 s.
pub(super) const RTT: [u32; 12] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000];
/// And of the loop's lateness: 0.1 ms to 10 s.
pub(super) const LAG: [u32; 12] =
    [100, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000];

/// And of how late a probe leaves: 50 µs to 1 s.
pub(super) const LATE: [u32; 12] = [50, 100, 200, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 50_000, 250_000, 1_000_000];

impl<const N: usize> Histogram<N> {
    /// Nothing is counted yet.
    pub(super) const fn new(bounds: &'static [u32; N]) -> Self {
        Self { bounds, counts: [0; N], count: 0, sum: Duration::ZERO, longest: Duration::ZERO }
    }

    pub(super) fn note(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let place = self.bounds.iter().position(|&bound| nanos <= u64::from(bound) * 1_000);
        if let Some(place) = place {
            self.counts[place] += 1;
        }
        self.count += 1;
        self.sum += duration;
        self.longest = self.longest.max(duration);
    }

    /// How many, and how long all together.
    #[must_use]
    pub const fn totals(&self) -> (u64, Duration) {
        (self.count, self.sum)
    }

    /// The upper end of each bucket with how many are in it, and in none before.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.bounds.iter().zip(&self.counts).map(|(&bound, &count)| (Duration::from_micros(bound.into()), count))
    }

    /// The longest of all.
    #[must_use]
    pub const fn longest(&self) -> Duration {
        self.longest
    }

    /// What so many thousandths of them are not longer than, to the end of a bucket.
    #[must_use]
    pub fn quantile(&self, thousandths: u32) -> Duration {
        let wanted = u128::from(self.count) * u128::from(thousandths);
        let mut seen = 0_u128;
        let bucket = self.buckets().find(|&(_, count)| {
            seen += u128::from(count);
            seen * 1_000 >= wanted
        });
        bucket.map_or(self.longest, |(bound, _)| bound.min(self.longest))
    }
}

/// Everything that is measured.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Each tunnel.
    pub tunnels: Vec<TunnelMetrics>,
    /// Each route.
    pub routes: Vec<RouteMetrics>,
    /// Each endpoint.
    pub endpoints: Vec<EndpointMetrics>,
    /// How often traffic has moved to another tunnel.
    pub route_changes: u64,
    /// The prober's own troubles, by kind.
    pub local_faults: Vec<(&'static str, u64)>,
    /// Packets lost for want of room, by the family and the protocol of the socket.
    pub dropped: Vec<([&'static str; 2], u64)>,
    /// Namespaces and devices that are missing.
    pub needs_missing: usize,
    /// Packets refused, by reason.
    pub rejected: Vec<(&'static str, u64)>,
    /// ICMP errors about probes.
    pub hints: u64,
    /// How late the loop was woken.
    pub lag: Histogram<12>,
    /// How much later than planned regular probes left.
    pub late: Histogram<12>,
    /// How often the configuration was read again, by what became of it.
    pub reloads: [(&'static str, u64); 2],
    /// The last one was refused.
    pub reload_refused: bool,
    /// Whether the kernel's routes are held.
    pub is_held: bool,
    /// How often the kernel's routes were not as they should be.
    pub drifts: u64,
    /// The number of the last event.
    pub last_event: u64,
    /// Tunnels by state.
    pub census: Census,
}

/// What is measured of a tunnel.
#[derive(Debug, Clone)]
pub struct TunnelMetrics {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// An operator has asked for traffic to leave it.
    pub drained: bool,
    /// Whether it is checked at all.
    pub checked: bool,
    /// Since this run began.
    pub counters: Counters,
    /// From where to where it went, and how often.
    pub transitions: Vec<(State, State, u64)>,
    /// Round-trip times.
    pub rtt: Histogram<12>,
    /// Share of failures in the long window.
    pub loss_ratio: f64,
    /// Sequence numbers that are left, of an ESP tunnel that has keys.
    pub numbers_left: Option<u64>,
}

/// A route as it is measured: prefix, table, namespace, tunnel, effective priority.
pub type RouteMetrics = (String, u32, Option<String>, String, u32);

impl Engine {
    /// What is measured, but for tunnels, routes and endpoints, of which there may be very many.
    #[must_use]
    pub fn own_metrics(&self) -> Metrics {
        Metrics {
            tunnels: Vec::new(),
            routes: Vec::new(),
            endpoints: Vec::new(),
            route_changes: self.route_changes,
            local_faults: KINDS.iter().map(|(kind, _)| (*kind, self.count_of(kind))).collect(),
            dropped: self.dropped(),
            needs_missing: self.needs.missing_now(),
            rejected: Reject::ALL.iter().map(|reject| (reject.label(), self.rejects[reject.index()])).collect(),
            hints: self.hints,
            lag: self.lag,
            late: self.late,
            reloads: [("applied", self.reloads.applied), ("refused", self.reloads.refused)],
            reload_refused: self.reloads.last_refused,
            is_held: self.held().is_some(),
            drifts: self.drifts,
            last_event: self.events.last(),
            census: self.census(),
        }
    }

    fn count_of(&self, kind: &str) -> u64 {
        self.faults.iter().find(|fault| fault.name == kind).map_or(0, |fault| fault.count)
    }

    /// By kinds of sockets, of which there are few, and not by namespaces.
    fn dropped(&self) -> Vec<([&'static str; 2], u64)> {
        let kinds = [Family::V4, Family::V6].into_iter().flat_map(|family| Protocol::ALL.map(|kind| (family, kind)));
        let lost = |(family, protocol): (Family, Protocol)| {
            let here = self.overflowed.iter().filter(|(ear, _)| (ear.family, ear.protocol) == (family, protocol));
            ([family.name(), protocol.name()], here.map(|(_, lost)| lost).sum())
        };
        kinds.map(lost).collect()
    }

    /// Some tunnels, as [`Self::tunnels_from`] gives them.
    pub fn tunnel_metrics_from(&mut self, now: Time, from: usize, count: usize) -> (Vec<TunnelMetrics>, Option<usize>) {
        let to = from.saturating_add(count).min(self.probers.len());
        let some = self.probers.get_mut(from..to).into_iter().flatten();
        let tunnels = some.map(|prober| {
            prober.health.forget(now);
            let window = prober.health.window();
            TunnelMetrics {
                name: prober.settings.name.clone(),
                state: prober.health.state(),
                drained: prober.drain.is_some(),
                checked: prober.settings.check.enabled,
                counters: prober.counters,
                transitions: prober.transitions.clone(),
                rtt: prober.rtts,
                loss_ratio: loss_ratio(window.failures(), window.samples()),
                numbers_left: prober.associations.as_ref().and_then(|own| Some(own.current()?.numbers.left())),
            }
        });
        (tunnels.collect(), Some(to).filter(|to| *to < self.probers.len()))
    }

    /// The routes of some prefixes, as [`Self::route_views_from`] gives them.
    #[must_use]
    pub fn route_metrics_from(&self, from: usize, count: usize) -> (Vec<RouteMetrics>, Option<usize>) {
        let (views, next) = self.route_views_from(from, count);
        let route = |view: super::route_view::RouteView| {
            (view.prefix, view.table, view.netns, view.tunnel, view.effective_priority)
        };
        (views.into_iter().map(route).collect(), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_never_less_than_it_is_and_never_more_than_the_longest() {
        let mut histogram = Histogram::new(&LAG);
        assert_eq!(histogram.quantile(990), Duration::ZERO);
        (0..99).for_each(|_| histogram.note(Duration::from_micros(300)));
        assert_eq!(histogram.quantile(500), Duration::from_micros(300), "the end of the bucket is 500 µs");
        histogram.note(Duration::from_secs(12));
        assert_eq!([500, 990].map(|part| histogram.quantile(part)), [Duration::from_micros(500); 2]);
        assert_eq!([991, 1_000].map(|part| histogram.quantile(part)), [Duration::from_secs(12); 2]);
        assert_eq!((histogram.longest(), histogram.totals().0), (Duration::from_secs(12), 100));
    }
}
