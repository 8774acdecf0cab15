//! A new engine takes up what was remembered.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Last, Memory, Preface, Samples, Verdict, state, way};
use crate::engine::event::CAPACITY;
use crate::engine::health::{Health, Reason, Transition};
use crate::engine::prober::Prober;
use crate::engine::rtt::Estimator;
use crate::engine::time::WallTime;
use crate::engine::window::Window;
use crate::engine::{Engine, State, Time};

impl Engine {
    /// Takes up what was remembered, before anything else has happened. No transition is told of it, and
    /// no route moves: that is how it was.
    pub fn remember(&mut self, now: Time, wall: WallTime, memory: Memory) {
        let Some((preface, verdicts)) = memory.states else { return };
        let is_fresh = preface.is_fresh(wall);
        let mut windows = match memory.windows {
            Some((of_windows, windows)) if is_fresh && of_windows.is_fresh(wall) => {
                let passed = Duration::from_nanos(wall.0.saturating_sub(of_windows.saved));
                let named = windows.into_iter().map(|samples| (samples.name.clone(), samples));
                Some((now - passed, named.collect::<BTreeMap<_, _>>()))
            }
            _ => None,
        };
        let mut verdicts: BTreeMap<_, _> =
            verdicts.into_iter().map(|verdict| (verdict.name.clone(), verdict)).collect();
        for tunnel in 0..self.count() {
            let prober = &mut self.probers[tunnel as usize];
            let Some(verdict) = verdicts.remove(&prober.settings.name) else { continue };
            prober.recall(&verdict, is_fresh);
            if let Some((saved, windows)) = &mut windows
                && let Some(samples) = windows.remove(&prober.settings.name)
            {
                prober.recall_samples(&samples, *saved);
            }
            let penalty = prober.penalty();
            self.routes.set_penalty(tunnel, penalty, 0);
            self.rearm(tunnel);
        }
        self.count_states();
        self.events.begin_at(next_event(&preface));
    }
}

/// After a crash there may have been events of which the file does not know. No number is told twice.
fn next_event(preface: &Preface) -> u64 {
    let margin = if preface.clean { 0 } else { CAPACITY as u64 };
    preface.next_event.saturating_add(margin).clamp(1, u64::MAX / 2)
}

impl Prober {
    fn recall(&mut self, verdict: &Verdict, is_fresh: bool) {
        self.drain = verdict.drain();
        if !self.settings.check.enabled || verdict.way != way(self) {
            return;
        }
        let known = verdict.verdict();
        if known == State::Unknown {
            return;
        }
        if self.obstacle.is_some() {
            // There is no verdict before it can be probed; what the last one costs, stays.
            self.held = Some(known);
            return;
        }
        self.since = WallTime(verdict.since);
        let last = verdict.last.filter(|_| state(verdict.state) == known).map(|last| last.transition(known));
        self.health = Health::recalled(known, *self.health.rules(), last);
        self.unconfirmed = if is_fresh { 0 } else { self.settings.check.rules.down_min_samples };
        // Its first probes need not come three at a time: what is fresh is known well enough.
        self.started = is_fresh;
    }

    /// Of samples that were written down at `saved`.
    fn recall_samples(&mut self, samples: &Samples, saved: Time) {
        if samples.way != way(self) || self.health.state() == State::Unknown {
            return;
        }
        let mut at = saved;
        let newest_first = samples.samples.iter().map(|&(before, rtt)| {
            at = at - Duration::from_micros(before);
            (at, rtt)
        });
        let mut oldest_first: Vec<_> = newest_first.filter(|(at, _)| *at > Time::ZERO).collect();
        oldest_first.reverse();
        let last_success = samples.last_success.map(|before| saved - Duration::from_micros(before));
        let counts = [samples.recent, samples.total, samples.successes_in_a_row];
        let window = Window::recalled(self.health.rules().degraded_window, &oldest_first, counts, last_success);
        self.last_sample = oldest_first.last().map_or(Time::ZERO, |(at, _)| *at);
        self.health.recall_window(window);
        if let Some(parts) = samples.rtt {
            self.rtt = Estimator::recalled(parts.map(Duration::from_micros));
        }
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
    use super::super::nanos;
    use super::*;

    #[test]
    fn a_file_of_the_future_is_old() {
        let preface = Preface { saved: nanos(Duration::from_secs(1000)), clean: true, next_event: 5 };
        let at = |seconds| WallTime(nanos(Duration::from_secs(seconds)));
        assert!(preface.is_fresh(at(1000)) && preface.is_fresh(at(1300)) && preface.is_fresh(at(998)));
        assert!(!preface.is_fresh(at(1301)) && !preface.is_fresh(at(997)) && !preface.is_fresh(at(0)));
    }

    #[test]
    fn no_number_of_an_event_comes_twice() {
        let preface = Preface { saved: 0, clean: true, next_event: 5 };
        assert_eq!(next_event(&preface), 5);
        assert_eq!(next_event(&Preface { clean: false, ..preface }), 5 + CAPACITY as u64);
        assert!(next_event(&Preface { next_event: u64::MAX, clean: false, ..preface }) < u64::MAX);
    }
}
