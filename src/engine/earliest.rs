//! When at the earliest enough samples can exist: the promises of [`super::explain`].
//!
//! Every time is a lower bound, whatever the path and the kernel do from now on, and as late as that
//! allows. What is counted on:
//!
//! - a waiting probe can be answered at any moment, and fails at its deadline at the earliest;
//! - a probe that is queued or due can leave then and, since the kernel may refuse it, fail at once;
//! - two probes confirm what a regular one shows: its failure at once, its late answer (early retry)
//!   no sooner than [`EARLY_FLOOR`] after its sending;
//! - from one turn of the regular probe to the next the jitter takes off a twentieth at the most, and
//!   what is queued late, after a stall, moves none of the later turns forward;
//! - samples leave the windows as time goes by.
//!
//! Not counted on: an answer that lies unread in a socket has arrived a moment before now.

use std::iter;
use std::time::Duration;

use super::inflight::{Probe, Purpose};
use super::prober::{Prober, Stalls};
use super::rtt::EARLY_FLOOR;
use super::window::Window;
use super::{State, Time};

/// Probes that confirm what a regular one showed.
const CONFIRMING: u64 = 2;

/// The outcomes of one kind that can exist from now on.
struct Supply {
    /// When each of those can that need no further turn of the regular probe, in order.
    soon: Vec<Time>,
    now: Time,
    /// The next turn, and the least time between two.
    due: Time,
    shortest: Duration,
    /// How many outcomes one turn brings, its confirming probes included.
    each: u64,
    /// How many more the first of all turns brings, with which two probes leave anyway.
    more: u64,
}

impl Supply {
    /// `own` is when a waiting probe's outcome can be known, `confirming` when two more because of it.
    fn new(
        prober: &Prober,
        now: Time,
        each: u64,
        own: impl Fn(&Probe) -> Time,
        confirming: impl Fn(&Probe) -> Option<Time>,
    ) -> Self {
        let waiting = || prober.in_flight.waiting().map(|(_, probe)| probe);
        let in_flight = waiting().filter(|probe| probe.purpose == Purpose::Burst).count();
        let pointless = prober.burst.confirms_failure && prober.burst.answered;
        let queued = if pointless { 0 } else { usize::from(prober.burst.left).saturating_sub(in_flight) };
        let queued = queued + if prober.queued { usize::try_from(each).unwrap_or(0) } else { 0 };
        let more = waiting().filter(|probe| probe.purpose == Purpose::Regular).filter_map(confirming);
        let more = more.flat_map(|at| [at, at]);
        let mut soon: Vec<Time> = waiting().map(own).chain(more).chain(iter::repeat_n(now, queued)).collect();
        soon.sort_unstable();
        let interval = prober.settings.check.interval;
        Self {
            soon,
            now,
            due: prober.next_due.max(now),
            shortest: interval - interval / 20,
            each,
            more: if prober.started { 0 } else { CONFIRMING },
        }
    }

    /// Failures.
    fn failures(prober: &Prober, now: Time, stalls: Stalls) -> Self {
        let deadline = |probe: &Probe| Prober::deadline(probe, stalls);
        Self::new(prober, now, 1 + CONFIRMING, deadline, |probe| confirmed(prober, probe, now, stalls))
    }

    /// Samples of any kind.
    fn samples(prober: &Prober, now: Time, stalls: Stalls) -> Self {
        Self::new(prober, now, 1 + CONFIRMING, |_| now, |probe| confirmed(prober, probe, now, stalls))
    }

    /// Successes of a tunnel that is not down, without a failure: only an early retry brings more than
    /// one a turn.
    fn clean(prober: &Prober, now: Time) -> Self {
        let each = if prober.settings.check.early_retry { 1 + CONFIRMING } else { 1 };
        Self::new(prober, now, each, |_| now, |probe| early(prober, probe, now))
    }

    /// Successes of a tunnel that is down, each of which asks for two more.
    fn back(prober: &Prober, now: Time) -> Self {
        Self::new(prober, now, 1 + CONFIRMING, |_| now, |_| Some(now))
    }

    /// When there can be so many.
    fn earliest(&self, count: u64) -> Time {
        let soon =
            |taken: usize| taken.checked_sub(1).and_then(|last| self.soon.get(last)).copied().unwrap_or(self.now);
        let turns = |taken: usize| match count.saturating_sub(taken as u64) {
            0 => 0,
            missing => missing.saturating_sub(self.more).div_ceil(self.each).max(1),
        };
        let turn =
            |taken: usize| turns(taken).checked_sub(1).map_or(self.now, |waits| self.due + many(self.shortest, waits));
        // The more are taken of those that come soon, the fewer turns it takes: the best is where the
        // two meet.
        let (mut few, mut many) = (0, self.soon.len().min(usize::try_from(count).unwrap_or(usize::MAX)));
        while few < many {
            let taken = usize::midpoint(few, many);
            if soon(taken) < turn(taken) { few = taken + 1 } else { many = taken }
        }
        let with = |taken: usize| soon(taken).max(turn(taken));
        with(few).min(with(few.saturating_sub(1)))
    }
}

/// When the two probes that confirm a regular one's outcome can leave: at its failure, or early.
fn confirmed(prober: &Prober, probe: &Probe, now: Time, stalls: Stalls) -> Option<Time> {
    let deadline = Prober::deadline(probe, stalls);
    (!probe.retried).then(|| early(prober, probe, now).map_or(deadline, |early| early.min(deadline)))
}

/// When they can leave because the regular one's answer is late. How late is too late changes with
/// every answer, down to the floor.
fn early(prober: &Prober, probe: &Probe, now: Time) -> Option<Time> {
    (prober.settings.check.early_retry && !probe.retried).then(|| (probe.sent + EARLY_FLOOR).max(now))
}

fn many(span: Duration, times: u64) -> Duration {
    let nanos = span.as_nanos().saturating_mul(u128::from(times));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// When something can be that depends on what is still in the window: `with` says when, given the
/// window's failures and samples, if ever.
fn as_samples_leave(window: &Window, with: impl Fn(u64, u64) -> Option<Time>) -> Option<Time> {
    let (mut failures, mut samples) = (window.failures(), window.samples());
    let mut best = with(failures, samples);
    for (gone, failed) in window.leaving() {
        if best.is_some_and(|best| best <= gone) {
            break;
        }
        samples -= 1;
        failures -= u64::from(failed);
        let then = with(failures, samples).map(|at| at.max(gone));
        best = [best, then].into_iter().flatten().min();
    }
    best
}

/// Rule 1: enough failures close together, and the last success out of the short window. Never from
/// unknown once a sample is a success, or too old: rule 5 fires first.
pub(super) fn dead(prober: &Prober, now: Time, stalls: Stalls) -> Option<Time> {
    let (rules, window) = (prober.health.rules(), prober.health.window());
    let failures = Supply::failures(prober, now, stalls);
    let alive_until = window.last_success().map_or(now, |at| at + rules.down_window);
    let mut latest: Vec<_> = window.latest(rules.down_min_samples.saturating_sub(1) as usize).collect();
    latest.reverse();
    let failed: Vec<Time> = latest.iter().map_while(|&(at, rtt)| rtt.is_none().then_some(at)).collect();
    let with = |used: usize| {
        let missing = u64::from(rules.down_min_samples).saturating_sub(used as u64);
        let at = failures.earliest(missing.max(1)).max(alive_until);
        let oldest = used.checked_sub(1).and_then(|last| failed.get(last));
        oldest.is_none_or(|oldest| oldest.within(rules.down_window, at)).then_some(at)
    };
    if prober.health.state() == State::Unknown {
        return (failed.len() as u64 == window.total()).then(|| with(failed.len())).flatten();
    }
    (0..=failed.len()).rev().find_map(with)
}

/// Rule 2: enough successes in a row.
pub(super) fn alive(prober: &Prober, now: Time, missing: u64) -> Time {
    Supply::back(prober, now).earliest(missing.max(1))
}

/// Rule 3: enough failures, in number and share. When successes leave the window, any sample may be
/// the one that decides.
pub(super) fn lossy(prober: &Prober, now: Time, stalls: Stalls) -> Option<Time> {
    let (rules, window) = (prober.health.rules(), prober.health.window());
    let (failures, any) = (Supply::failures(prober, now, stalls), Supply::samples(prober, now, stalls));
    as_samples_leave(window, |failed, samples| match rules.lossy_after(failed, samples)? {
        0 => Some(any.earliest(1)),
        missing => Some(failures.earliest(missing)),
    })
}

/// Rule 4: enough successes in a row, and the failures gone from the window, or diluted.
pub(super) fn clean(prober: &Prober, now: Time, stalls: Stalls) -> Option<Time> {
    let (rules, window) = (prober.health.rules(), prober.health.window());
    let clean = Supply::clean(prober, now);
    let wanted = u64::from(rules.recovery_samples);
    let straight = wanted.saturating_sub(window.successes_in_a_row()).max(1);
    // One more failure begins the row anew, but brings two probes beyond the regular turns.
    let detour = 1 + wanted.saturating_sub(CONFIRMING);
    let in_a_row = clean.earliest(straight.min(detour));
    // Above one half, even a failure dilutes, if the two probes that confirm it succeed.
    let dilutes = if rules.degraded_ratio.is_most() { Supply::samples(prober, now, stalls) } else { clean };
    as_samples_leave(window, |failed, samples| {
        let diluted = match rules.clean_after(failed, samples) {
            0 => now,
            missing => dilutes.earliest(missing),
        };
        Some(in_a_row.max(diluted))
    })
}

/// Rule 5, to healthy: enough samples, few failures among them.
pub(super) fn good_start(prober: &Prober, now: Time, stalls: Stalls, missing: u64) -> Option<Time> {
    let least = u64::from(prober.health.rules().degraded_min_failures);
    let at = Supply::samples(prober, now, stalls).earliest(missing);
    as_samples_leave(prober.health.window(), |failed, _| (failed < least).then_some(at))
}

/// Rule 5, to degraded: enough samples, and enough failures among them.
pub(super) fn bad_start(prober: &Prober, now: Time, stalls: Stalls, missing: u64) -> Option<Time> {
    let least = u64::from(prober.health.rules().degraded_min_failures);
    let failed = least.saturating_sub(prober.health.window().failures());
    let at = Supply::samples(prober, now, stalls).earliest(missing);
    (failed <= missing).then(|| at.max(Supply::failures(prober, now, stalls).earliest(failed)))
}
