//! Why a tunnel has its state, and what must happen before it has another.

use std::time::Duration;

use serde::Serialize;

use super::prober::Prober;
use super::snapshot::{Dated, last_failure, last_hint, last_reject, reason};
use super::time::WallTime;
use super::{Engine, State, Time};

/// The data behind `adit explain`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The tunnel's name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// Since when.
    pub since: WallTime,
    /// The rule that brought it there; null before the first verdict.
    pub rule: Option<u8>,
    /// That rule in words, with the numbers it saw.
    pub reason: String,
    /// An operator's drain is part of the penalty.
    pub drained: bool,
    /// What every route over it costs more.
    pub penalty: u32,
    /// The latest samples, oldest first.
    pub samples: Vec<SampleView>,
    /// The changes that are possible from here.
    pub next: Vec<Next>,
    /// The last failure.
    pub last_failure: Option<Dated>,
    /// The last answer that was refused, which often says what is wrong.
    pub last_reject: Option<Dated>,
    /// The last ICMP error about a probe: a hint, no evidence.
    pub last_hint: Option<Dated>,
    /// Probes that came to nothing by the prober's own trouble: no part of the verdict.
    pub local_faults: u64,
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SampleView {
    /// When its outcome was known.
    pub at: WallTime,
    /// Success or failure.
    pub ok: bool,
    /// Round-trip time of a success.
    pub rtt_us: Option<u64>,
}

/// A change that is possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    /// The state it leads to.
    pub to: State,
    /// The rule that would fire.
    pub rule: u8,
    /// What must happen.
    pub needs: String,
    /// When at the earliest.
    pub earliest: WallTime,
}

/// Samples shown.
const SHOWN: usize = 30;

impl Engine {
    /// Explains a tunnel's state.
    pub fn explain(&mut self, now: Time, tunnel: u32) -> Option<Explanation> {
        let offset = self.wall_offset;
        let wall = move |at: Time| WallTime(at.as_nanos().saturating_add(offset));
        let prober = self.probers.get_mut(tunnel as usize)?;
        prober.health.forget(now);
        let samples = prober.health.window().latest(SHOWN).map(|(at, rtt)| SampleView {
            at: wall(at),
            ok: rtt.is_some(),
            rtt_us: rtt.map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
        });
        Some(Explanation {
            name: prober.settings.name.clone(),
            state: prober.health.state(),
            since: prober.since,
            rule: prober.health.last_transition().map(|transition| transition.reason.rule),
            reason: reason(prober),
            drained: prober.drain.is_some(),
            penalty: prober.penalty(),
            samples: samples.collect(),
            next: next(prober, now, wall),
            last_failure: last_failure(prober),
            last_reject: last_reject(prober),
            last_hint: last_hint(prober),
            local_faults: prober.counters.local_faults,
        })
    }
}

fn next(prober: &Prober, now: Time, wall: impl Fn(Time) -> WallTime) -> Vec<Next> {
    if !prober.settings.check.enabled {
        return Vec::new();
    }
    let due = prober.next_due.max(now);
    let down = || Next { to: State::Down, rule: 1, needs: dead_needs(prober), earliest: wall(now + prober.timeout()) };
    match prober.health.state() {
        State::Unknown => vec![down(), first_verdict(prober, wall(due))],
        State::Healthy => vec![down(), lossy(prober, wall(now + prober.timeout()))],
        State::Degraded => vec![down(), recovery(prober, now, due, wall)],
        State::Down => vec![alive(prober, wall(due))],
    }
}

fn dead_needs(prober: &Prober) -> String {
    let rules = prober.health.rules();
    let span = humantime::format_duration(rules.down_window);
    format!("{} samples within {span}, every one a failure", rules.down_min_samples)
}

fn first_verdict(prober: &Prober, earliest: WallTime) -> Next {
    let missing = u64::from(prober.health.rules().down_min_samples).saturating_sub(prober.health.window().total());
    let needs = format!(
        "{missing} more samples, fewer than {} failures among them",
        prober.health.rules().degraded_min_failures
    );
    Next { to: State::Healthy, rule: 5, needs, earliest }
}

fn lossy(prober: &Prober, earliest: WallTime) -> Next {
    let (rules, window) = (prober.health.rules(), prober.health.window());
    let (failures, samples) = (window.failures(), window.samples());
    let by_count = u64::from(rules.degraded_min_failures).saturating_sub(failures);
    let span = humantime::format_duration(rules.degraded_window);
    let needs = match rules.degraded_ratio.missing(failures, samples).map(|by_ratio| by_ratio.max(by_count)) {
        Some(0) => format!("any sample while the last {span} hold {failures} failures of {samples}"),
        Some(missing) => format!("{missing} more failed samples while the last {span} hold {failures} of {samples}"),
        None => format!("no success left in the last {span}, which hold {failures} failures of {samples}"),
    };
    Next { to: State::Degraded, rule: 3, needs, earliest }
}

fn alive(prober: &Prober, earliest: WallTime) -> Next {
    let missing =
        u64::from(prober.health.rules().up_samples).saturating_sub(prober.health.window().successes_in_a_row());
    Next { to: State::Degraded, rule: 2, needs: format!("{missing} more successes in a row"), earliest }
}

/// Rule 4 asks for two things; the later of the two decides.
fn recovery(prober: &Prober, now: Time, due: Time, wall: impl Fn(Time) -> WallTime) -> Next {
    let (rules, window) = (prober.health.rules(), prober.health.window());
    let clean = u64::from(rules.recovery_samples).saturating_sub(window.successes_in_a_row());
    let interval = prober.settings.check.interval;
    // The shortest that the jitter allows, because "at the earliest" is a promise.
    let shortest = interval - interval / 20;
    let more = u32::try_from(clean.saturating_sub(1)).unwrap_or(u32::MAX);
    let by_samples = if clean == 0 { due } else { due + shortest.saturating_mul(more) };
    let kept = usize::try_from(rules.degraded_min_failures).unwrap_or(usize::MAX).saturating_sub(1);
    let by_window =
        if prober.health.lossy() && !can_be_diluted(prober) { window.leaves(kept).unwrap_or(now) } else { now };
    let span = humantime::format_duration(rules.degraded_window);
    let needs = format!(
        "{clean} more clean samples in a row, and the last {span} below the limit (now {} of {} failed)",
        window.failures(),
        window.samples(),
    );
    Next { to: State::Healthy, rule: 4, needs, earliest: wall(by_samples.max(by_window)) }
}

/// Whether the window can hold so many samples that its failures fall below the ratio before they
/// leave it.
fn can_be_diluted(prober: &Prober) -> bool {
    let rules = prober.health.rules();
    let interval = prober.settings.check.interval.max(Duration::from_millis(1));
    let most = rules.degraded_window.as_nanos() / (interval - interval / 20).as_nanos();
    !rules.degraded_ratio.reached(prober.health.window().failures(), u64::try_from(most).unwrap_or(u64::MAX))
}
