//! What is measured, as OpenMetrics text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::engine::endpoints::{self, EndpointMetrics};
pub(super) use crate::engine::metrics::Metrics;
use crate::engine::metrics::{Histogram, TunnelMetrics};
use crate::engine::{Counters, State};

/// What the lines of a tunnel take, about, with a name of usual length.
const PER_TUNNEL: usize = 2_560;
/// Likewise of a route, or an endpoint.
const PER_LINES: usize = 384;
/// All that there is once.
const OWN: usize = 16 << 10;

/// The text.
///
/// # Errors
/// None that the numbers could cause.
pub(super) fn text(metrics: Metrics) -> Result<String, fmt::Error> {
    // A text that grows on its way is copied, and there are two of it for a moment.
    let room = OWN + PER_TUNNEL * metrics.tunnels.len() + PER_LINES * (metrics.routes.len() + metrics.endpoints.len());
    let mut registry = Registry::with_prefix("adit");
    registry.register_collector(Box::new(Snapshot(metrics)));
    let mut text = String::with_capacity(room);
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Snapshot(Metrics);

type Done = Result<(), fmt::Error>;

/// A family of metrics under way.
struct Family<'a>(MetricEncoder<'a>);

impl Family<'_> {
    fn gauge(&mut self, labels: &impl EncodeLabelSet, value: f64) -> Done {
        self.0.encode_family(labels)?.encode_gauge(&value)
    }

    fn counter(&mut self, labels: &impl EncodeLabelSet, value: u64) -> Done {
        self.0.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn histogram<const N: usize>(&mut self, labels: &impl EncodeLabelSet, histogram: &Histogram<N>) -> Done {
        let (count, sum) = histogram.totals();
        let (mut seen, mut buckets) = (0, Vec::with_capacity(N + 1));
        for (bound, count) in histogram.buckets() {
            seen += count;
            buckets.push((bound.as_secs_f64(), count));
        }
        buckets.push((f64::INFINITY, count.saturating_sub(seen)));
        self.0.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum.as_secs_f64(), count, &buckets, None)
    }
}

/// One tunnel's label.
fn tunnel(metrics: &TunnelMetrics) -> [(&'static str, &str); 1] {
    [("tunnel", &metrics.name)]
}

/// One endpoint's label.
fn endpoint(metrics: &EndpointMetrics) -> [(&'static str, &str); 1] {
    [("endpoint", &metrics.name)]
}

/// What has become of probes.
const fn results(counters: &Counters) -> [(&'static str, u64); 6] {
    [
        ("success", counters.received),
        ("lost", counters.lost),
        ("late", counters.late),
        ("duplicate", counters.duplicate),
        ("forged", counters.forged),
        ("inconclusive", counters.local_faults),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a floating-point number; ours are far below 2^53")]
const fn number(value: u64) -> f64 {
    value as f64
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Done {
        self.states(&mut encoder)?;
        self.probes(&mut encoder)?;
        self.routes(&mut encoder)?;
        self.endpoints(&mut encoder)?;
        self.host(&mut encoder)
    }
}

impl Snapshot {
    fn states(&self, encoder: &mut DescriptorEncoder<'_>) -> Done {
        let tunnels = &self.0.tunnels;
        let what = "1 healthy, 0.5 degraded, 0 down; absent while unknown";
        let mut family = open(encoder, "tunnel_health", what, None, MetricType::Gauge)?;
        for (metrics, code) in tunnels.iter().filter_map(|metrics| Some((metrics, metrics.state.code()?))) {
            family.gauge(&tunnel(metrics), code)?;
        }
        let mut family = open(encoder, "tunnel_state", "1 for the tunnel's state", None, MetricType::Gauge)?;
        for metrics in tunnels {
            for state in State::ALL {
                let labels = [("tunnel", metrics.name.as_str()), ("state", state.name())];
                family.gauge(&labels, f64::from(u8::from(metrics.state == state)))?;
            }
        }
        let what = "1 while an operator has drained the tunnel";
        let mut family = open(encoder, "tunnel_drained", what, None, MetricType::Gauge)?;
        for metrics in tunnels {
            family.gauge(&tunnel(metrics), f64::from(u8::from(metrics.drained)))?;
        }
        let what = "1 if the tunnel is checked; 0 if its configuration says that it is not";
        let mut family = open(encoder, "tunnel_checked", what, None, MetricType::Gauge)?;
        for metrics in tunnels {
            family.gauge(&tunnel(metrics), f64::from(u8::from(metrics.checked)))?;
        }
        let what = "Changes of a tunnel's state";
        let mut family = open(encoder, "tunnel_transitions", what, None, MetricType::Counter)?;
        for metrics in tunnels {
            for &(from, to, count) in &metrics.transitions {
                let labels = [("tunnel", metrics.name.as_str()), ("from", from.name()), ("to", to.name())];
                family.counter(&labels, count)?;
            }
        }
        let what = "Share of probes that failed in the long window";
        let mut family = open(encoder, "tunnel_loss_ratio", what, None, MetricType::Gauge)?;
        tunnels.iter().try_for_each(|metrics| family.gauge(&tunnel(metrics), metrics.loss_ratio))
    }

    fn probes(&self, encoder: &mut DescriptorEncoder<'_>) -> Done {
        let tunnels = &self.0.tunnels;
        let mut family = open(encoder, "probes_sent", "Probes that left", None, MetricType::Counter)?;
        for metrics in tunnels {
            family.counter(&tunnel(metrics), metrics.counters.sent)?;
        }
        let what = "Probes by what became of them";
        let mut family = open(encoder, "probes", what, None, MetricType::Counter)?;
        for TunnelMetrics { name, counters, .. } in tunnels {
            for (result, count) in results(counters) {
                family.counter(&[("tunnel", name.as_str()), ("result", result)], count)?;
            }
        }
        let what = "Sequence numbers that an ESP tunnel's association has left";
        let mut family = open(encoder, "esp_sequence_remaining", what, None, MetricType::Gauge)?;
        for (metrics, left) in tunnels.iter().filter_map(|metrics| Some((metrics, metrics.numbers_left?))) {
            family.gauge(&tunnel(metrics), number(left))?;
        }
        let what = "Round-trip times of the probes that were answered in time";
        let mut family = open(encoder, "probe_rtt", what, Some(&Unit::Seconds), MetricType::Histogram)?;
        tunnels.iter().try_for_each(|metrics| family.histogram(&tunnel(metrics), &metrics.rtt))
    }

    fn routes(&self, encoder: &mut DescriptorEncoder<'_>) -> Done {
        let what = "A route's priority and its tunnel's penalty together: the lowest carries the traffic";
        let mut family = open(encoder, "route_effective_priority", what, None, MetricType::Gauge)?;
        for (prefix, table, netns, tunnel, priority) in &self.0.routes {
            let (table, netns) = (table.to_string(), netns.as_deref().unwrap_or_default());
            let labels = [("prefix", prefix.as_str()), ("table", &table), ("netns", netns), ("tunnel", tunnel)];
            family.gauge(&labels, f64::from(*priority))?;
        }
        let what = "Prefixes whose traffic moved to other tunnels";
        open(encoder, "route_changes", what, None, MetricType::Counter)?.counter(&NONE, self.0.route_changes)?;
        let what = "Times that the kernel's routes were not as adit had left them";
        open(encoder, "kernel_drifts", what, None, MetricType::Counter)?.counter(&NONE, self.0.drifts)
    }

    fn endpoints(&self, encoder: &mut DescriptorEncoder<'_>) -> Done {
        let endpoints = &self.0.endpoints;
        let what = "1 if the endpoint answers, 0 if it does not; absent while unknown";
        let mut family = open(encoder, "endpoint_reachable", what, None, MetricType::Gauge)?;
        for metrics in endpoints.iter().filter(|metrics| metrics.state != endpoints::State::Unknown) {
            family.gauge(&endpoint(metrics), f64::from(u8::from(metrics.state == endpoints::State::Reachable)))?;
        }
        let what = "Share of the last 100 probes of an endpoint that failed; absent before the first";
        let mut family = open(encoder, "endpoint_loss_ratio", what, None, MetricType::Gauge)?;
        for (metrics, loss) in endpoints.iter().filter_map(|metrics| Some((metrics, metrics.loss_ratio?))) {
            family.gauge(&endpoint(metrics), loss)?;
        }
        let what = "The last round-trip time to an endpoint";
        let mut family = open(encoder, "endpoint_rtt", what, Some(&Unit::Seconds), MetricType::Gauge)?;
        for (metrics, rtt) in endpoints.iter().filter_map(|metrics| Some((metrics, metrics.rtt?))) {
            family.gauge(&endpoint(metrics), rtt.as_secs_f64())?;
        }
        let what = "Probes of endpoints by what became of them";
        let mut family = open(encoder, "endpoint_probes", what, None, MetricType::Counter)?;
        for EndpointMetrics { name, counters, .. } in endpoints {
            for (result, count) in results(counters) {
                family.counter(&[("endpoint", name.as_str()), ("result", result)], count)?;
            }
        }
        Ok(())
    }

    fn host(&self, encoder: &mut DescriptorEncoder<'_>) -> Done {
        let it = &self.0;
        let what = "The prober's own troubles: no verdict about any tunnel";
        let mut family = open(encoder, "local_faults", what, None, MetricType::Counter)?;
        for &(kind, count) in &it.local_faults {
            family.counter(&[("kind", kind)], count)?;
        }
        let what = "Packets lost because a socket's receive queue was full: what was in flight is inconclusive";
        let mut family = open(encoder, "socket_receive_dropped", what, None, MetricType::Counter)?;
        for &([kind, protocol], count) in &it.dropped {
            family.counter(&[("family", kind), ("protocol", protocol)], count)?;
        }
        let what = "Network namespaces and devices that probes need and that are missing";
        let missing = number(it.needs_missing as u64);
        open(encoder, "needs_missing", what, None, MetricType::Gauge)?.gauge(&NONE, missing)?;
        let what = "Packets that counted for nothing, by the reason";
        let mut family = open(encoder, "rejected_packets", what, None, MetricType::Counter)?;
        for &(reason, count) in &it.rejected {
            family.counter(&[("reason", reason)], count)?;
        }
        let what = "ICMP errors about probes: a hint, no evidence";
        open(encoder, "icmp_hints", what, None, MetricType::Counter)?.counter(&NONE, it.hints)?;
        let what = "How much later than it had asked for the loop was woken";
        open(encoder, "loop_lag", what, Some(&Unit::Seconds), MetricType::Histogram)?.histogram(&NONE, &it.lag)?;
        let what = "How much later than planned regular probes left";
        open(encoder, "send_lateness", what, Some(&Unit::Seconds), MetricType::Histogram)?
            .histogram(&NONE, &it.late)?;
        let what = "Times that the configuration was read again, by what became of it";
        let mut family = open(encoder, "reloads", what, None, MetricType::Counter)?;
        for (result, count) in it.reloads {
            family.counter(&[("result", result)], count)?;
        }
        let what = "1 while the configuration's files are not what holds: the last reload was refused";
        let refused = f64::from(u8::from(it.reload_refused));
        open(encoder, "reload_refused", what, None, MetricType::Gauge)?.gauge(&NONE, refused)?;
        let what = "1 while the kernel's routes are held because this host is suspected";
        let held = f64::from(u8::from(it.is_held));
        open(encoder, "fail_static", what, None, MetricType::Gauge)?.gauge(&NONE, held)?;
        let mut family = open(encoder, "tunnels", "Tunnels by state", None, MetricType::Gauge)?;
        for (state, count) in State::ALL.iter().zip(it.census.tunnels) {
            family.gauge(&[("state", state.name())], f64::from(count))?;
        }
        let what = "The number of the last event";
        open(encoder, "event_last_id", what, None, MetricType::Gauge)?.gauge(&NONE, number(it.last_event))?;
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        open(encoder, "build", "The program", None, MetricType::Info)?.0.encode_info(&build)
    }
}

const NONE: [(&str, &str); 0] = [];

fn open<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
    unit: Option<&'a Unit>,
    kind: MetricType,
) -> Result<Family<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, unit, kind).map(Family)
}
