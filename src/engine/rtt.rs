//! The round-trip time estimator of RFC 6298, and the time-outs that follow from it.

use std::time::Duration;

/// Smoothed round-trip time and its variation (RFC 6298 section 2), with a jitter estimate in the
/// manner of RFC 3550 section 6.4.1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Estimator {
    smoothed: Option<Duration>,
    variation: Duration,
    last: Duration,
    jitter: Duration,
}

/// No retry earlier than this, however steady the path: below it a busy far router looks dead.
pub const EARLY_FLOOR: Duration = Duration::from_millis(20);

impl Estimator {
    /// Smoothed, variation, last, jitter; once there was a round-trip time.
    pub(super) fn parts(&self) -> Option<[Duration; 4]> {
        self.smoothed.map(|smoothed| [smoothed, self.variation, self.last, self.jitter])
    }

    /// An estimator of what [`Self::parts`] gave.
    pub(super) const fn recalled([smoothed, variation, last, jitter]: [Duration; 4]) -> Self {
        Self { smoothed: Some(smoothed), variation, last, jitter }
    }

    /// Takes a measured round-trip time.
    pub fn update(&mut self, rtt: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                let off = smoothed.abs_diff(rtt);
                self.variation = (self.variation * 3 + off) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
                let step = self.last.abs_diff(rtt);
                self.jitter = (self.jitter * 15 + step) / 16;
            }
        }
        self.last = rtt;
    }

    /// The smoothed round-trip time, once one is known.
    #[must_use]
    pub const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// How much one round-trip time differs from the next, smoothed.
    #[must_use]
    pub const fn jitter(&self) -> Duration {
        self.jitter
    }

    /// The last round-trip time.
    #[must_use]
    pub fn last(&self) -> Option<Duration> {
        self.smoothed.map(|_| self.last)
    }

    /// How long after a sending an answer is suspiciously late, if round-trip times are known.
    #[must_use]
    pub fn early_retry(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| (smoothed + self.variation * 4).max(EARLY_FLOOR))
    }
}
