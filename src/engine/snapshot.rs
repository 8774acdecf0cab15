//! What status shows: plain values, taken at one moment, that borrow nothing.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::drain::Drained;
use super::hold::HoldView;
use super::metrics::Histogram;
use super::needs::Needs;
use super::obstacle::Obstacle;
use super::penalty;
use super::prober::Prober;
use super::rounds::TargetView;
use super::time::WallTime;
use super::{Counters, Engine, Samples, State, Time};
use crate::wire::quote::Quote;
use crate::wire::{Direction, Reject, probe::Kind};

/// One tunnel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunnelView {
    /// Its name.
    pub name: String,
    /// How probes are wrapped.
    pub encapsulation: &'static str,
    /// `request` or `reply`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `bidirectional` or `unidirectional`.
    pub direction: &'static str,
    /// The verdict.
    pub state: State,
    /// 1, 0.5, 0 or null.
    #[serde(serialize_with = "whole_or_null")]
    pub health: Option<f64>,
    /// Since when it has this state.
    pub since: WallTime,
    /// An operator has asked for traffic to leave it.
    pub drained: bool,
    /// How, until when, why, and who it was; null if it is not.
    pub drain: Option<Drained>,
    /// The state is from before a restart, long ago: too few samples have confirmed it so far.
    pub stale: bool,
    /// What every route over it costs more.
    pub penalty: u32,
    /// Whether it is checked at all.
    pub checked: bool,
    /// What keeps it from being probed, in a word; null if nothing does.
    pub obstacle: Option<&'static str>,
    /// `authenticated` if answers bear the reflector's mark, else `reflected`.
    pub assurance: &'static str,
    /// How many of several targets must answer a round; null where there is one target.
    pub quorum: Option<usize>,
    /// Several targets, each; empty where there is one.
    pub targets: Vec<TargetView>,
    /// The long window.
    pub window: WindowView,
    /// The last thirty samples.
    pub last_30: LastView,
    /// Round-trip times; null before the first.
    pub rtt: Option<RttView>,
    /// What was counted of probes.
    pub counters: Counters,
    /// Samples since this run began: where there are several targets, what was counted of probes says nothing of them.
    pub samples: Samples,
    /// The last failure.
    pub last_failure: Option<Dated>,
    /// The last answer that was refused.
    pub last_reject: Option<Dated>,
    /// The last ICMP error about a probe: a hint, no evidence.
    pub last_hint: Option<Dated>,
    /// Why it has this state.
    pub reason: String,
}

/// Samples of the long window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WindowView {
    /// Its length.
    #[serde(serialize_with = "whole")]
    pub seconds: f64,
    /// Samples in it.
    pub samples: u64,
    /// Failures among them.
    pub failures: u64,
    /// Their share, to four places.
    #[serde(serialize_with = "whole")]
    pub loss_ratio: f64,
}

/// The last samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LastView {
    /// How many there are, at most the rules' `recovery_samples`.
    pub samples: u32,
    /// Failures among them.
    pub failures: u32,
}

/// Round-trip times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RttView {
    /// The last.
    pub last_us: u64,
    /// The least in the window.
    pub min_us: u32,
    /// Their mean.
    pub mean_us: u32,
    /// Their 99th percentile.
    pub p99_us: u32,
    /// How much one differs from the next, smoothed.
    pub jitter_us: u64,
}

/// A reason with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dated {
    /// When.
    pub at: WallTime,
    /// What.
    pub reason: String,
}

/// How late the loop was woken, since this run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LagView {
    /// How often it was woken.
    pub wakeups: u64,
    /// Half of the times it was not later than this.
    pub p50_us: u64,
    /// Of a hundred times 99.
    pub p99_us: u64,
    /// The worst.
    pub max_us: u64,
}

impl LagView {
    fn of<const N: usize>(lag: &Histogram<N>) -> Self {
        let [p50_us, p99_us, max_us] = percentiles(lag);
        Self { wakeups: lag.totals().0, p50_us, p99_us, max_us }
    }
}

/// How much later than planned regular probes left, since this run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LatenessView {
    /// How many have left.
    pub probes: u64,
    /// Half of them were not later than this.
    pub p50_us: u64,
    /// Of a hundred of them 99.
    pub p99_us: u64,
    /// The worst.
    pub max_us: u64,
}

impl LatenessView {
    fn of<const N: usize>(late: &Histogram<N>) -> Self {
        let [p50_us, p99_us, max_us] = percentiles(late);
        Self { probes: late.totals().0, p50_us, p99_us, max_us }
    }
}

/// The median, the 99th percentile and the worst.
fn percentiles<const N: usize>(histogram: &Histogram<N>) -> [u64; 3] {
    let durations = [histogram.quantile(500), histogram.quantile(990), histogram.longest()];
    durations.map(|duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// The engine's own state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SelfView {
    /// Tunnels by state, all four.
    pub tunnels: Vec<(&'static str, usize)>,
    /// Packets refused, by reason; those that were met.
    pub rejected: Vec<(&'static str, u64)>,
    /// ICMP errors about probes.
    pub hints: u64,
    /// The prober's own troubles, by kind.
    pub local_faults: Vec<(&'static str, u64)>,
    /// How late the loop was woken.
    pub loop_lag: LagView,
    /// How late regular probes left.
    pub lateness: LatenessView,
    /// Why the kernel's routes are held, if this host is suspected rather than its tunnels.
    pub fail_static: Option<HoldView>,
    /// How often something of ours in the kernel's routing was not as we left it.
    pub kernel_drifts: u64,
    /// Number of the last event.
    pub last_event: u64,
}

/// Tunnels and routes, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Tunnels: unknown, healthy, degraded, down.
    pub tunnels: [u32; 4],
    /// Routes that cost more than their priority.
    pub penalised: u32,
}

/// A number without a fraction as an integer: a strict decoder takes 300.0 for none.
pub(super) fn whole<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    #[expect(clippy::cast_possible_truncation, reason = "compared with what it was, below")]
    let integer = *number as i64;
    #[expect(clippy::cast_precision_loss, reason = "a number that loses some is written with its fraction")]
    if integer as f64 == *number { serializer.serialize_i64(integer) } else { serializer.serialize_f64(*number) }
}

#[expect(clippy::ref_option, reason = "serde asks for it so")]
fn whole_or_null<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => whole(number, serializer),
        None => serializer.serialize_none(),
    }
}

impl Engine {
    /// All tunnels, in the order of the configuration.
    pub fn tunnels(&mut self, now: Time) -> Vec<TunnelView> {
        self.probers.iter_mut().map(|prober| view(prober, &self.needs, now)).collect()
    }

    /// Some tunnels, from a place in that order on, and the place of the next; `None` if there are no more.
    pub fn tunnels_from(&mut self, now: Time, from: usize, count: usize) -> (Vec<TunnelView>, Option<usize>) {
        let to = from.saturating_add(count).min(self.probers.len());
        let some = self.probers.get_mut(from..to).into_iter().flatten();
        let views = some.map(|prober| view(prober, &self.needs, now)).collect();
        (views, Some(to).filter(|to| *to < self.probers.len()))
    }

    /// One tunnel.
    pub fn tunnel(&mut self, now: Time, tunnel: u32) -> Option<TunnelView> {
        self.probers.get_mut(tunnel as usize).map(|prober| view(prober, &self.needs, now))
    }

    /// The engine itself.
    #[must_use]
    pub fn self_view(&self) -> SelfView {
        let rejected = Reject::ALL.iter().map(|reject| (reject.label(), self.rejects[reject.index()]));
        SelfView {
            tunnels: State::ALL.iter().map(|state| state.name()).zip(self.states).collect(),
            rejected: rejected.filter(|&(_, count)| count > 0).collect(),
            hints: self.hints,
            local_faults: self.faults.iter().map(|fault| (fault.name, fault.count)).collect(),
            loop_lag: LagView::of(&self.lag),
            lateness: LatenessView::of(&self.late),
            fail_static: self.held().cloned(),
            kernel_drifts: self.drifts,
            last_event: self.events.last(),
        }
    }
}

impl Engine {
    /// Counts tunnels and routes.
    #[must_use]
    pub fn census(&self) -> Census {
        let tunnels = self.states.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        Census { tunnels, penalised: self.routes.penalised() }
    }
}

fn view(prober: &mut Prober, needs: &Needs, now: Time) -> TunnelView {
    prober.health.forget(now);
    let (health, style) = (&prober.health, prober.settings.onion.style);
    let state = health.state();
    TunnelView {
        name: prober.settings.name.clone(),
        encapsulation: prober.settings.onion.encapsulation.name(),
        kind: match style.kind {
            Kind::Request => "request",
            Kind::Reply => "reply",
        },
        direction: match style.direction {
            Direction::Bidirectional => "bidirectional",
            Direction::Unidirectional => "unidirectional",
        },
        state,
        health: state.code(),
        since: prober.since,
        drained: prober.drain.is_some(),
        drain: prober.drain.as_deref().cloned(),
        stale: prober.unconfirmed > 0,
        penalty: prober.penalty(),
        checked: prober.settings.check.enabled,
        obstacle: prober.obstacle.as_ref().map(Obstacle::name),
        assurance: if prober.authenticated { "authenticated" } else { "reflected" },
        quorum: prober.rounds.as_ref().map(|rounds| rounds.quorum),
        targets: targets(prober),
        window: window_view(prober),
        last_30: {
            let (samples, failures) = health.window().last(health.rules().recovery_samples);
            LastView { samples, failures }
        },
        rtt: rtt_view(prober),
        counters: prober.counters,
        samples: prober.samples,
        last_failure: last_failure(prober, needs),
        last_reject: last_reject(prober),
        last_hint: last_hint(prober),
        reason: reason(prober),
    }
}

/// Several targets.
pub(super) fn targets(prober: &Prober) -> Vec<TargetView> {
    prober.rounds.as_ref().map(|rounds| rounds.views()).unwrap_or_default()
}

fn window_view(prober: &Prober) -> WindowView {
    let window = prober.health.window();
    let (samples, failures) = (window.samples(), window.failures());
    WindowView { seconds: window.length().as_secs_f64(), samples, failures, loss_ratio: loss_ratio(failures, samples) }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people to read, rounded to four places")]
pub(super) fn loss_ratio(failures: u64, samples: u64) -> f64 {
    (failures as f64 / samples.max(1) as f64 * 10_000.0).round() / 10_000.0
}

fn rtt_view(prober: &Prober) -> Option<RttView> {
    let summary = prober.health.window().rtt()?;
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    Some(RttView {
        last_us: micros(prober.rtt.last()?),
        min_us: summary.min_us,
        mean_us: summary.mean_us,
        p99_us: summary.p99_us,
        jitter_us: micros(prober.rtt.jitter()),
    })
}

pub(super) fn last_failure(prober: &Prober, needs: &Needs) -> Option<Dated> {
    prober.last_failure.map(|(at, failure)| Dated { at, reason: failure.reason(needs, prober.rounds.as_deref()) })
}

pub(super) fn last_reject(prober: &Prober) -> Option<Dated> {
    prober.last_reject.map(|(at, reject)| Dated { at, reason: reject.label().to_owned() })
}

pub(super) fn last_hint(prober: &Prober) -> Option<Dated> {
    prober.last_hint.map(|(at, quote)| hint(at, quote))
}

/// What an ICMP error says.
pub(super) fn hint(at: WallTime, quote: Quote) -> Dated {
    Dated { at, reason: format!("{} says {}", quote.from, quote.says) }
}

/// Why a tunnel has its state, in one line.
pub(super) fn reason(prober: &Prober) -> String {
    if !prober.settings.check.enabled {
        return "not checked: health_check.enabled is false".to_owned();
    }
    if let Some(obstacle) = &prober.obstacle {
        return obstacle.to_string();
    }
    match prober.health.last_transition() {
        Some(transition) if prober.unconfirmed > 0 => {
            let missing = prober.unconfirmed;
            format!("{}; remembered from long ago, and not confirmed by {missing} more samples yet", transition.reason)
        }
        Some(transition) => transition.reason.to_string(),
        None => {
            let held = prober.held.filter(|held| penalty::penalty(*held, None) > 0);
            let held = held.map(|held| format!("; its routes cost what they did when it was last {held}"));
            format!("no verdict yet: {} samples{}", prober.health.window().total(), held.unwrap_or_default())
        }
    }
}
