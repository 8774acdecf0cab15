//! A new engine takes up what was remembered.

use std::collections::BTreeMap;
use std::time::Duration;

use super::verdict::Last;
use super::{LATEST, Memory, Preface, Samples, Verdict, state};
use crate::engine::health::{Health, Reason, Transition};
use crate::engine::prober::Prober;
use crate::engine::rtt::Estimator;
use crate::engine::time::WallTime;
use crate::engine::window::{Counts, Window};
use crate::engine::{Engine, State, Time};

/// Samples that are taken up.
struct Recalled {
    /// When their file was begun.
    begun: Time,
    /// Whether that was after the verdicts' file was.
    is_newer: bool,
    of: BTreeMap<String, Samples>,
}

impl Engine {
    /// Takes up what was remembered, before anything else has happened. No transition is told of it, and
    /// no route moves: that is how it was.
    pub fn remember(&mut self, now: Time, wall: WallTime, memory: Memory) {
        let Memory { states, windows } = memory;
        let prefaces = [states.as_ref().map(|(preface, _)| *preface), windows.as_ref().map(|(preface, _)| *preface)];
        self.events.begin_at(next_event(prefaces.into_iter().flatten(), wall));
        let Some((preface, verdicts)) = states else { return };
        let is_fresh = preface.is_fresh(wall);
        let begun = |preface: &Preface| now - Duration::from_nanos(wall.0.saturating_sub(preface.saved));
        let windows = windows.filter(|(of_windows, _)| is_fresh && of_windows.is_fresh(wall));
        let mut windows = windows.map(|(of_windows, windows)| Recalled {
            begun: begun(&of_windows),
            is_newer: of_windows.saved >= preface.saved,
            of: windows.into_iter().map(|samples| (samples.name.clone(), samples)).collect(),
        });
        let mut verdicts: BTreeMap<_, _> =
            verdicts.into_iter().map(|verdict| (verdict.name.clone(), verdict)).collect();
        for tunnel in 0..self.count() {
            let prober = &mut self.probers[tunnel as usize];
            let Some(verdict) = verdicts.remove(&prober.settings.name) else { continue };
            let is_known = prober.recall(&verdict, is_fresh, preface.saved);
            if is_known && is_fresh {
                prober.recall_samples(now, &verdict, begun(&preface), windows.as_mut());
            }
            let penalty = prober.penalty();
            self.routes.set_penalty(tunnel, penalty, 0);
            self.rearm(tunnel);
        }
        self.count_states();
        self.list_ends();
        if let Some(since) = preface.held.filter(|_| is_fresh) {
            self.hold_on(now, WallTime(since));
        }
    }
}

/// The number to begin with, such that none is told twice: after a crash there may have been events that no
/// file knows of.
fn next_event(prefaces: impl Iterator<Item = Preface> + Clone, now: WallTime) -> u64 {
    let last = prefaces.clone().max_by_key(|preface| preface.saved);
    if let Some(last) = last.filter(|preface| preface.clean) {
        return last.next_event.clamp(1, u64::MAX >> 1);
    }
    let first = prefaces.map(|preface| {
        // An old one may be of a disk that failed long before the crash: a thousand a second since then.
        let age = preface.age(now).filter(|age| *age > LATEST).unwrap_or_default();
        let since = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        preface.next_event.saturating_add(preface.ahead).saturating_add(since)
    });
    first.max().unwrap_or(1).clamp(1, u64::MAX >> 1)
}

impl Prober {
    /// Takes up a verdict; says whether it holds.
    fn recall(&mut self, verdict: &Verdict, is_fresh: bool, begun: u64) -> bool {
        self.drain = verdict.drain(begun).map(Box::new);
        let Verdict { judged, .. } = verdict;
        if !self.settings.check.enabled || verdict.way != self.way {
            return false;
        }
        let (known, held) = (state(judged.state), state(judged.held));
        if known == State::Unknown || self.obstacle.is_some() {
            // There is no verdict before it can be probed; what the last one costs, stays.
            let last = if known == State::Unknown { held } else { known };
            self.held = Some(last).filter(|last| *last != State::Unknown);
            return false;
        }
        self.since = WallTime(judged.since);
        self.health = Health::recalled(known, *self.health.rules(), judged.last.map(|last| last.transition(known)));
        let is_confirmed = is_fresh && !judged.is_stale;
        self.unconfirmed = if is_confirmed { 0 } else { self.settings.check.rules.down_min_samples };
        // Its first probes need not come three at a time: what is fresh is known well enough.
        self.started = is_confirmed;
        true
    }

    /// Takes up the samples, as far as they are known: where the verdict's file, begun at `begun`, is newer,
    /// the last ones as that has them. By those of an older one a tunnel that has just gone down would rise by
    /// one success.
    fn recall_samples(&mut self, now: Time, verdict: &Verdict, begun: Time, windows: Option<&mut Recalled>) {
        let known = windows.and_then(|windows| {
            let samples = windows.of.remove(&self.settings.name).filter(|samples| samples.way == self.way)?;
            Some((samples, windows.begun, windows.is_newer))
        });
        let mut counts = verdict.judged.tail.counts(begun);
        let mut samples = Vec::new();
        if let Some((recalled, begun, is_newer)) = known {
            if is_newer {
                counts = recalled.tail.counts(begun);
            }
            samples = recalled.oldest_first(begun, now);
            let sound = |micros| Duration::from_micros(micros).min(LONGEST);
            self.rtt = recalled.rtt.map(|parts| Estimator::recalled(parts.map(sound))).unwrap_or_default();
            let written = recalled.tail.written(begun);
            self.latest_late = recalled.late.map(|[before, rtt]| (written - sound(before), sound(rtt)));
        }
        self.last_sample = samples.last().map_or(Time::ZERO, |(at, _)| *at);
        let counts = Counts { last_success: counts.last_success.map(|at| at.min(now)), ..counts };
        self.health.recall_window(Window::recalled(self.health.rules().degraded_window, &samples, counts));
        self.health.make_room(self.settings.check.interval);
        self.recall_path(now);
    }
}

impl Samples {
    /// Those that this clock has a time for.
    fn oldest_first(&self, begun: Time, now: Time) -> Vec<(Time, u32)> {
        let mut at = self.tail.written(begun).min(now);
        let newest_first = self.samples.iter().map(|&(before, rtt)| {
            at = at - Duration::from_micros(before);
            (at, rtt)
        });
        let mut samples: Vec<_> = newest_first.take_while(|(at, _)| *at > Time::ZERO).collect();
        samples.reverse();
        samples
    }
}

impl Last {
    fn transition(self, to: State) -> Transition {
        let Self { from, rule, alike, samples, failures, span } = self;
        // Rules 1 to 5 lead to a verdict.
        let reason = Reason { rule: rule.clamp(1, 5), alike, samples, failures, span: span.min(LONGEST) };
        Transition { at: Time::ZERO, from: state(from), to, reason }
    }
}

/// No window is as long.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::memory::nanos;

    const PREFACE: Preface = Preface { saved: 1_000_000_000_000, clean: true, next_event: 5, ahead: 7, held: None };

    const fn at(seconds: u64) -> WallTime {
        WallTime(seconds * 1_000_000_000)
    }

    #[test]
    fn a_file_of_the_future_is_old() {
        assert_eq!(PREFACE.saved, nanos(Duration::from_secs(1000)));
        assert!(PREFACE.is_fresh(at(1000)) && PREFACE.is_fresh(at(1300)) && PREFACE.is_fresh(at(998)));
        assert!(!PREFACE.is_fresh(at(1301)) && !PREFACE.is_fresh(at(997)) && !PREFACE.is_fresh(at(0)));
        assert!(!Preface { saved: u64::MAX, ..PREFACE }.is_fresh(at(1000)));
        assert!(!PREFACE.is_fresh(WallTime(u64::MAX)));
    }

    #[test]
    fn no_number_of_an_event_comes_twice() {
        let next = |prefaces: &[Preface], now| next_event(prefaces.iter().copied(), at(now));
        let crashed = Preface { clean: false, ..PREFACE };
        assert_eq!(next(&[], 1000), 1);
        assert_eq!(next(&[PREFACE], 9000), 5, "a clean stop, however long ago");
        assert_eq!(next(&[crashed], 1000), 12);
        // Which file is there does not matter, nor that one of them is from a clean stop before.
        let later = Preface { saved: crashed.saved + 1, next_event: 9, ..crashed };
        for both in [[PREFACE, later], [later, PREFACE]] {
            assert_eq!(next(&both, 1000), 16);
        }
        // The file of samples could not be written at a clean stop.
        assert_eq!(next(&[PREFACE, Preface { saved: 5, next_event: 3, ..crashed }], 1000), 5);
        // Nothing was written for ten minutes before the crash.
        assert_eq!(next(&[crashed], 1600), 12 + 600_000);
        assert!(next(&[Preface { next_event: u64::MAX, ..crashed }], 1000) < u64::MAX);
    }
}
