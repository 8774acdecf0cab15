//! Why a tunnel has its state, and what must happen before it has another.

use std::collections::BTreeMap;

use serde::Serialize;

use super::drain::Drained;
use super::prober::{Prober, Stalls};
use super::rounds::TargetView;
use super::snapshot::{Dated, last_failure, last_hint, last_reject, reason, targets};
use super::time::WallTime;
use super::trouble::meaning;
use super::{Counters, Engine, HoldView, State, Time, Trouble, earliest};

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
    /// How, until when, why, and who it was; null if there is none.
    pub drain: Option<Drained>,
    /// What every route over it costs more.
    pub penalty: u32,
    /// How many of several targets must answer a round; null where there is one target.
    pub quorum: Option<usize>,
    /// Several targets, each; empty where there is one.
    pub targets: Vec<TargetView>,
    /// The latest samples, oldest first.
    pub samples: Vec<SampleView>,
    /// The latest probes that came to nothing by this host's own trouble, oldest first: no samples.
    pub inconclusive: Vec<Spoilt>,
    /// The changes that are possible from here.
    pub next: Vec<Next>,
    /// The last failure.
    pub last_failure: Option<Dated>,
    /// The last answer that was refused, which often says what is wrong.
    pub last_reject: Option<Dated>,
    /// The last ICMP error about a probe: a hint, no evidence.
    pub last_hint: Option<Dated>,
    /// What was counted: what is late, duplicate, forged or the prober's own fault is no part of the
    /// verdict.
    pub counters: Counters,
    /// What concerns all tunnels.
    pub host: HostView,
}

/// What the prober has met that concerns no tunnel alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostView {
    /// Its own troubles, by kind.
    pub local_faults: BTreeMap<&'static str, u64>,
    /// The last of each kind.
    pub troubles: Vec<Trouble>,
    /// Why the kernel's routes are held, if this host is suspected rather than its tunnels.
    pub fail_static: Option<HoldView>,
    /// ICMP errors about probes.
    pub hints: u64,
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

/// A probe that came to nothing by this host's own trouble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spoilt {
    /// When that was known.
    pub at: WallTime,
    /// By which kind of trouble.
    pub fault: &'static str,
    /// What that means.
    pub reason: &'static str,
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
    /// When at the earliest: never sooner, whatever the path and the kernel do. Before now, where the
    /// deadline that decides has passed already.
    pub earliest: WallTime,
}

/// Samples shown.
const SHOWN: usize = 30;

impl Engine {
    /// Explains a tunnel's state.
    pub fn explain(&mut self, now: Time, tunnel: u32) -> Option<Explanation> {
        let (offset, stalls) = (self.wall_offset, self.stalls);
        let wall = move |at: Time| WallTime(at.as_nanos().saturating_add(offset));
        let local_faults = self.faults.iter().map(|fault| (fault.name, fault.count)).collect();
        let host =
            HostView { local_faults, troubles: self.troubles(), fail_static: self.held().cloned(), hints: self.hints };
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
            drain: prober.drain.as_deref().cloned(),
            penalty: prober.penalty(),
            quorum: prober.rounds.as_ref().map(|rounds| rounds.quorum),
            targets: targets(prober),
            samples: samples.collect(),
            inconclusive: prober.spoilt.iter().map(|&(at, why)| spoilt(wall(at), why)).collect(),
            next: next(prober, now, stalls, wall),
            last_failure: last_failure(prober, &self.needs),
            last_reject: last_reject(prober),
            last_hint: last_hint(prober),
            counters: prober.counters,
            host,
        })
    }
}

fn spoilt(at: WallTime, why: &'static str) -> Spoilt {
    Spoilt { at, fault: why, reason: meaning(why) }
}

/// The changes that are possible, each with its promise (see [`earliest`]).
fn next(prober: &Prober, now: Time, stalls: Stalls, wall: impl Fn(Time) -> WallTime) -> Vec<Next> {
    if !prober.is_probed() {
        return Vec::new();
    }
    let next = |to, rule, needs, at: Option<Time>| at.map(|at| Next { to, rule, needs, earliest: wall(at) });
    let down = next(State::Down, 1, dead(prober), earliest::dead(prober, now, stalls));
    let all = match prober.health.state() {
        State::Unknown => {
            let missing =
                u64::from(prober.health.rules().down_min_samples).saturating_sub(prober.health.window().total());
            let [few, many] = first_verdict(prober, missing);
            let good = earliest::good_start(prober, now, stalls, missing);
            let bad = earliest::bad_start(prober, now, stalls, missing);
            vec![down, next(State::Healthy, 5, few, good), next(State::Degraded, 5, many, bad)]
        }
        State::Healthy => {
            vec![down, next(State::Degraded, 3, lossy(prober), earliest::lossy(prober, now, stalls))]
        }
        State::Degraded => {
            vec![down, next(State::Healthy, 4, clean(prober), earliest::clean(prober, now, stalls))]
        }
        State::Down => {
            let missing =
                u64::from(prober.health.rules().up_samples).saturating_sub(prober.health.window().successes_in_a_row());
            let needs = format!("{} in a row", counted(missing, "more success", "es"));
            vec![next(State::Degraded, 2, needs, Some(earliest::alive(prober, now, missing)))]
        }
    };
    all.into_iter().flatten().collect()
}

fn dead(prober: &Prober) -> String {
    let rules = prober.health.rules();
    let span = humantime::format_duration(rules.down_window);
    format!("{} within {span}, every one a failure", counted(rules.down_min_samples.into(), "sample", "s"))
}

fn first_verdict(prober: &Prober, missing: u64) -> [String; 2] {
    let least = prober.health.rules().degraded_min_failures;
    let samples = counted(missing, "more sample", "s");
    let so_far = match prober.health.window().failures() {
        0 => String::new(),
        failures => format!(", with the {failures} so far"),
    };
    ["fewer than", "at least"]
        .map(|bound| format!("{samples}, {bound} {} among them{so_far}", counted(least.into(), "failure", "s")))
}

fn lossy(prober: &Prober) -> String {
    let (rules, window) = (prober.health.rules(), prober.health.window());
    let (failures, samples) = (window.failures(), window.samples());
    let span = humantime::format_duration(rules.degraded_window);
    match rules.lossy_after(failures, samples) {
        Some(0) => format!("any sample while {failures} of {samples} failed in {span}"),
        Some(missing) => {
            let more = counted(missing, "more failure", "s");
            format!("{more} while {failures} of {samples} failed in {span}")
        }
        None => format!("no success left in the last {span} (now {failures} of {samples} failed)"),
    }
}

fn clean(prober: &Prober) -> String {
    let (rules, window) = (prober.health.rules(), prober.health.window());
    let missing = u64::from(rules.recovery_samples).saturating_sub(window.successes_in_a_row());
    let span = humantime::format_duration(rules.degraded_window);
    format!(
        "{} in a row, and the last {span} below the limit (now {} of {} failed)",
        counted(missing, "more clean sample", "s"),
        window.failures(),
        window.samples(),
    )
}

/// A number and what it counts.
fn counted(number: u64, what: &str, plural: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { plural })
}
