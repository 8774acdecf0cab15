//! The health rules once more, straight from the words of the specification: every sample is
//! kept, and every window is looked up anew for each judgement. Slow, and nothing shared with
//! the engine's running counts but the numbers of the rules.

#![allow(dead_code, reason = "each test uses its part of it")]

use adit::engine::health::{Rules, State};

/// One sample: when, in nanoseconds, and whether it failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at: u64,
    pub(crate) failed: bool,
}

/// A tunnel's whole history.
#[derive(Debug, Clone)]
pub(crate) struct Naive {
    pub(crate) rules: Rules,
    pub(crate) state: State,
    pub(crate) history: Vec<Sample>,
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// "At least this ratio", in millionths.
fn at_least(part: usize, whole: usize, millionths: u32) -> bool {
    part as u128 * 1_000_000 >= whole as u128 * u128::from(millionths)
}

impl Naive {
    pub(crate) fn starting_as(state: State, rules: Rules) -> Self {
        Self { rules, state, history: Vec::new() }
    }

    /// The samples in `(now - length, now]`.
    fn window(&self, length: std::time::Duration) -> Vec<Sample> {
        let now = self.history.last().map_or(0, |sample| sample.at);
        let is_in = |sample: &&Sample| now - sample.at < nanos(length) && sample.at <= now;
        self.history.iter().filter(is_in).copied().collect()
    }

    /// The last so many samples, however old; fewer if there are fewer.
    fn last(&self, count: u32) -> &[Sample] {
        &self.history[self.history.len().saturating_sub(count as usize)..]
    }

    /// Judges one more sample: the rule that fired and the state it led to.
    pub(crate) fn judge(&mut self, at: u64, failed: bool) -> Option<(u8, State)> {
        self.history.push(Sample { at, failed });
        let rules = self.rules;
        let count = |samples: &[Sample]| samples.iter().filter(|sample| sample.failed).count();

        let w1 = self.window(rules.down_window);
        let dead = w1.len() >= rules.down_min_samples as usize && count(&w1) == w1.len();

        let w5 = self.window(rules.degraded_window);
        let (n5, f5) = (w5.len(), count(&w5));
        let lossy = f5 >= rules.degraded_min_failures as usize && at_least(f5, n5, rules.degraded_ratio.0);

        let risen = self.last(rules.up_samples);
        let risen = risen.len() == rules.up_samples as usize && count(risen) == 0;

        let l30 = self.last(rules.recovery_samples);
        let full = l30.len() == rules.recovery_samples as usize;
        let clean = full && !l30.iter().any(|sample| sample.failed);

        let known = self.history.len() >= rules.down_min_samples as usize;
        let few = f5 < rules.degraded_min_failures as usize;

        let is = |states: &[State]| states.contains(&self.state);
        let table = [
            (1, is(&[State::Unknown, State::Healthy, State::Degraded]) && dead, State::Down),
            (2, is(&[State::Down]) && risen, State::Degraded),
            (3, is(&[State::Healthy]) && lossy, State::Degraded),
            (4, is(&[State::Degraded]) && clean && !lossy, State::Healthy),
            (5, is(&[State::Unknown]) && known, if few { State::Healthy } else { State::Degraded }),
        ];
        let (rule, _, to) = table.into_iter().find(|(_, fires, _)| *fires)?;
        self.state = to;
        Some((rule, to))
    }
}
