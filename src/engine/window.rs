//! The samples that a verdict looks at: the last minutes, the last second, the last thirty.

use std::collections::VecDeque;
use std::time::Duration;

use super::Time;

/// What the window remembers of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A valid answer by the deadline, with its round-trip time.
    Success(Duration),
    /// None.
    Failure,
}

/// How many of the last samples are kept one by one, however old (the L30 of the rules, at its
/// largest setting).
pub const RECENT_MAX: u32 = 64;

/// A failure among the round-trip times.
const FAILED: u32 = u32::MAX;

/// W5, W1 and L30 of one tunnel, kept by running counts, so that judging looks at no sample twice.
#[derive(Debug, Clone)]
pub struct Window {
    length: Duration,
    /// Times of the samples within `length`, oldest first.
    times: VecDeque<Time>,
    /// Their round-trip times in microseconds, or [`FAILED`].
    rtts: VecDeque<u32>,
    failures: u32,
    /// The last samples as bits, the latest lowest; 1 is a failure.
    recent: u64,
    total: u64,
    successes_in_a_row: u64,
    last_success: Option<Time>,
}

impl Window {
    /// An empty window over this length of time.
    #[must_use]
    pub const fn new(length: Duration) -> Self {
        Self {
            length,
            times: VecDeque::new(),
            rtts: VecDeque::new(),
            failures: 0,
            recent: 0,
            total: 0,
            successes_in_a_row: 0,
            last_success: None,
        }
    }

    /// Adds the sample of time `now` and lets go of what has become too old.
    pub fn push(&mut self, now: Time, outcome: Outcome) {
        self.forget(now);
        self.times.push_back(now);
        self.total += 1;
        self.recent <<= 1;
        match outcome {
            Outcome::Success(rtt) => {
                self.rtts.push_back(micros(rtt));
                self.successes_in_a_row += 1;
                self.last_success = Some(now);
            }
            Outcome::Failure => {
                self.rtts.push_back(FAILED);
                self.failures += 1;
                self.recent |= 1;
                self.successes_in_a_row = 0;
            }
        }
    }

    /// Lets go of samples that are out of the window at `now`.
    pub fn forget(&mut self, now: Time) {
        while self.times.front().is_some_and(|&time| !time.within(self.length, now)) {
            self.times.pop_front();
            if self.rtts.pop_front() == Some(FAILED) {
                self.failures -= 1;
            }
        }
    }

    /// Gives it another length. What it has let go of does not come back: a longer one fills as time
    /// goes on.
    pub(super) fn set_length(&mut self, length: Duration) {
        self.length = length;
    }

    /// The window's length.
    #[must_use]
    pub const fn length(&self) -> Duration {
        self.length
    }

    /// Samples within the window (n5), as of the last [`Self::push`] or [`Self::forget`].
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.times.len() as u64
    }

    /// Failures among them (f5).
    #[must_use]
    pub const fn failures(&self) -> u64 {
        self.failures as u64
    }

    /// Samples ever.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Successes since the last failure.
    #[must_use]
    pub const fn successes_in_a_row(&self) -> u64 {
        self.successes_in_a_row
    }

    /// How many of the last `count` samples there are, and how many of those failed.
    #[must_use]
    pub fn last(&self, count: u32) -> (u32, u32) {
        let count = count.min(RECENT_MAX).min(u32::try_from(self.total).unwrap_or(u32::MAX));
        let mask = if count == 0 { 0 } else { u64::MAX >> (RECENT_MAX - count) };
        (count, (self.recent & mask).count_ones())
    }

    /// Whether the last `span` of time holds at least `least` samples, every one a failure (W1).
    #[must_use]
    pub fn all_failed(&self, least: u32, span: Duration, now: Time) -> bool {
        let nth_last = self.times.len().checked_sub(least as usize).and_then(|at| self.times.get(at));
        nth_last.is_some_and(|time| time.within(span, now))
            && self.last_success.is_none_or(|time| !time.within(span, now))
    }

    /// When each sample leaves the window, oldest first, and whether it is a failure.
    pub fn leaving(&self) -> impl Iterator<Item = (Time, bool)> + '_ {
        self.times.iter().zip(&self.rtts).map(|(&time, &rtt)| (time + self.length, rtt == FAILED))
    }

    /// When the last success was.
    #[must_use]
    pub const fn last_success(&self) -> Option<Time> {
        self.last_success
    }

    /// The latest samples, oldest first: time and round-trip time, `None` for a failure.
    pub fn latest(&self, count: usize) -> impl Iterator<Item = (Time, Option<Duration>)> + '_ {
        let skip = self.times.len().saturating_sub(count);
        self.times
            .iter()
            .zip(&self.rtts)
            .skip(skip)
            .map(|(&time, &rtt)| (time, (rtt != FAILED).then(|| Duration::from_micros(u64::from(rtt)))))
    }

    /// Each sample with its round-trip time in microseconds, or [`u32::MAX`] for a failure; newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (Time, u32)> + '_ {
        self.times.iter().copied().zip(self.rtts.iter().copied()).rev()
    }

    /// What is known of the last samples, in the window or not.
    pub(super) const fn counts(&self) -> Counts {
        let Self { recent, total, successes_in_a_row, last_success, .. } = *self;
        Counts { recent, total, successes_in_a_row, last_success }
    }

    /// A window of what was written down: samples as [`Self::newest_first`] gives them, but oldest first.
    pub(super) fn recalled(length: Duration, samples: &[(Time, u32)], counts: Counts) -> Self {
        let failures = samples.iter().filter(|(_, rtt)| *rtt == FAILED).count();
        let Counts { recent, total, successes_in_a_row, last_success } = counts;
        Self {
            length,
            times: samples.iter().map(|(at, _)| *at).collect(),
            rtts: samples.iter().map(|(_, rtt)| *rtt).collect(),
            failures: u32::try_from(failures).unwrap_or(u32::MAX),
            recent,
            // However many a file tells of, they must go on to be counted.
            total: total.min(u64::MAX / 2).max(samples.len() as u64),
            successes_in_a_row: successes_in_a_row.min(total).min(u64::MAX / 2),
            last_success,
        }
    }

    /// The round-trip times within the window, in microseconds.
    #[must_use]
    pub fn rtt(&self) -> Option<RttSummary> {
        let mut sorted: Vec<u32> = self.rtts.iter().copied().filter(|&rtt| rtt != FAILED).collect();
        sorted.sort_unstable();
        let (min, count) = (*sorted.first()?, sorted.len());
        let sum: u64 = sorted.iter().map(|&rtt| u64::from(rtt)).sum();
        // Nearest rank: the smallest value that at least 99 % do not exceed.
        let rank = (count * 99).div_ceil(100) - 1;
        Some(RttSummary {
            min_us: min,
            mean_us: u32::try_from(sum / count as u64).unwrap_or(FAILED),
            p99_us: sorted[rank],
        })
    }
}

/// The last samples, in the window or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// As bits, the latest lowest; 1 is a failure.
    pub(super) recent: u64,
    pub(super) total: u64,
    pub(super) successes_in_a_row: u64,
    pub(super) last_success: Option<Time>,
}

/// Round-trip times of the successes in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RttSummary {
    /// The least.
    pub min_us: u32,
    /// The mean.
    pub mean_us: u32,
    /// The 99th percentile by nearest rank.
    pub p99_us: u32,
}

/// In whole microseconds, below [`FAILED`].
fn micros(rtt: Duration) -> u32 {
    u32::try_from(rtt.as_micros()).unwrap_or(FAILED).min(FAILED - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file may tell of as many samples as can be counted.
    #[test]
    fn a_window_that_was_recalled_goes_on_to_count() {
        let counts = Counts { recent: 0, total: u64::MAX, successes_in_a_row: u64::MAX, last_success: None };
        let mut window = Window::recalled(Duration::from_secs(300), &[(Time::ZERO, FAILED)], counts);
        window.push(Time::ZERO, Outcome::Success(Duration::from_millis(1)));
        assert_eq!(window.total(), u64::MAX / 2 + 1);
        assert_eq!(window.successes_in_a_row(), u64::MAX / 2 + 1);
        assert_eq!((window.samples(), window.failures(), window.last(2)), (2, 1, (2, 0)));
    }
}
