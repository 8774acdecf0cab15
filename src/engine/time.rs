//! Instants as values: the engine is told the time, it never asks.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds of a monotonic clock whose origin the caller chooses (the daemon takes its start).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);

    /// So many nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it was not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The next multiple of `step`, or this very time if it is one.
    #[must_use]
    pub fn ceil(self, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self(self.0.checked_next_multiple_of(step).unwrap_or(u64::MAX))
    }

    /// Whether `self` lies in the half-open window of this length that ends with `now`: a time
    /// exactly as old as the window is out.
    #[must_use]
    pub fn within(self, window: Duration, now: Self) -> bool {
        self + window > now
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// As seconds, exact to the nanosecond, without trailing zeros.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos == 0 {
            return write!(f, "{seconds}");
        }
        let digits = format!("{nanos:09}");
        write!(f, "{seconds}.{}", digits.trim_end_matches('0'))
    }
}

/// As a JSON number with all its digits: a floating-point number would lose some after four months.
impl serde::Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = serde_json::value::RawValue::from_string(self.to_string());
        number.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

/// Nanoseconds since the Unix epoch: for people to read, never to reckon with (but that an operator's drain ends by it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WallTime(pub u64);

/// As RFC 3339 in UTC with milliseconds.
impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = std::time::UNIX_EPOCH + Duration::from_nanos(self.0);
        humantime::format_rfc3339_millis(time).fmt(f)
    }
}

impl serde::Serialize for WallTime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
