//! How probes are spread over time.

use std::time::Duration;

use super::Time;
use super::settings::Check;

/// What wakes this process does so at multiples of this, or half of it where there are many probes: a wake-up costs as
/// much as ten of them, so probes are due together, and what has come meanwhile is read together; when each packet
/// arrived the kernel has noted.
pub const TICK: Duration = Duration::from_millis(20);
/// So many probes a second are many: those of a longer tick would be late by the time that it takes to send them.
const MANY: f64 = 5_000.0;
/// So many ticks make the shortest interval for which whole ticks are fine enough.
const FINE: u32 = 20;
/// The shortest step.
const FINEST: Duration = Duration::from_micros(100);
/// A probe and the two that confirm it.
pub const BURST: u32 = 3;
/// Jitter makes an interval up to a twentieth longer, or shorter.
const JITTER_DIVISOR: u32 = 20;

/// When a tunnel's first probe leaves, after the start: evenly spread over the interval, the same
/// at each start. Multiples of the golden ratio fill an interval evenly for any number of tunnels.
#[must_use]
pub fn phase(tunnel: u32, interval: Duration) -> Duration {
    let fraction = u64::from(tunnel).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    part(interval, fraction)
}

/// As many tunnels as begin at the same time take this long to begin: with the two probes that follow each first one,
/// more in a second would be too much for a processor, and those under way would be late.
#[must_use]
pub fn beginning(tunnels: usize) -> Duration {
    /// In a second.
    const BEGINNERS: u32 = 30_000;
    Duration::from_secs(1) * u32::try_from(tunnels).unwrap_or(u32::MAX) / BEGINNERS
}

/// The longest tick with these checks.
pub fn tick<'a>(checks: impl Iterator<Item = &'a Check>) -> Duration {
    let rate: f64 = checks.filter(|check| check.enabled).map(|check| 1.0 / check.interval.as_secs_f64()).sum();
    if rate < MANY { TICK } else { TICK / 2 }
}

/// The step of the times at which a check's probes are due, and of the wake-ups that they need: a whole `tick`, unless
/// the interval is short, or a failure has little time to be confirmed in.
#[must_use]
pub fn step(check: &Check, tick: Duration) -> Duration {
    let slack = check.rules.down_window.saturating_sub(apart(check, check.rules.down_min_samples));
    (check.interval / FINE).min(slack / 4).clamp(FINEST, tick)
}

/// How far so many failures of a dead tunnel are apart at the most. A failure and the two probes that confirm it come
/// out within one time-out of each other, since the two leave at the first one's deadline at the latest, or a
/// fraction of what is left of the window later ([`step`]); the others wait for their regular turn. Or all of them do,
/// which is faster where the interval is much shorter than the time-out.
#[must_use]
pub fn apart(check: &Check, failures: u32) -> Duration {
    let turn = check.interval + check.interval / JITTER_DIVISOR;
    let burst = check.timeout.longest() + turn * failures.saturating_sub(BURST);
    burst.min(turn * failures.saturating_sub(1))
}

/// The time to the next probe: the interval, give or take 5 %, so that probers do not fall into
/// step with each other; in whole steps.
#[must_use]
pub fn jittered(interval: Duration, step: Duration, noise: u64) -> Duration {
    let step = step.as_nanos().max(1);
    let (least, most) = (
        (interval - interval / JITTER_DIVISOR).as_nanos().div_ceil(step),
        (interval + interval / JITTER_DIVISOR).as_nanos() / step,
    );
    let steps = least + (((most.saturating_sub(least) + 1) * u128::from(noise)) >> 64);
    Duration::from_nanos(u64::try_from(steps * step).unwrap_or(u64::MAX))
}

/// The next due time after `now`. What a stall has missed is not caught up with, but the beat is
/// kept: tunnels that were spread over the interval before it are spread after it, where a fresh
/// start for each would make all of them fire together from then on. The first gap is half an
/// interval to one and a half.
#[must_use]
pub fn resumed(next: Time, interval: Duration, now: Time) -> Time {
    if next > now {
        return next;
    }
    let (late, beat) = ((now + interval / 2).since(next).as_nanos(), interval.as_nanos().max(1));
    let missed = u32::try_from(late / beat + 1).unwrap_or(u32::MAX);
    next + interval.saturating_mul(missed)
}

/// The part of `span` that `noise` is of 2^64.
fn part(span: Duration, noise: u64) -> Duration {
    let nanos = (span.as_nanos() * u128::from(noise)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Evenly distributed bits from two numbers: the finaliser of SplitMix64 (Steele, Lea and Flood
/// 2014). For spreading, not for secrets.
#[must_use]
pub const fn mix(one: u64, other: u64) -> u64 {
    let mut z = one ^ other.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::engine::health::Rules;
    use crate::engine::settings::{ReturnPath, Timeout};

    fn check(interval: Duration, timeout: Duration) -> Check {
        let (rules, return_path) = (Rules::default(), ReturnPath::Strict);
        let timeout = Timeout::Fixed(timeout);
        Check { enabled: true, interval, timeout, early_retry: true, return_path, mark_key: None, rules }
    }

    #[test]
    fn ticks_are_fine_only_where_a_failure_has_little_time_to_be_confirmed_in() {
        let step_of = |interval, timeout, window| {
            let mut check = check(Duration::from_millis(interval), Duration::from_millis(timeout));
            check.rules.down_window = Duration::from_millis(window);
            step(&check, TICK).as_micros()
        };
        assert_eq!(step_of(1_000, 500, 1_000), 20_000);
        assert_eq!(step_of(100, 500, 1_000), 5_000);
        assert_eq!(step_of(1_000, 980, 1_000), 5_000);
        assert_eq!(step_of(1_000, 1_000, 1_000), 100);
        // Here regular probes alone fill the window, with 190 ms to spare.
        assert_eq!(step_of(100, 500, 400), 5_000);
    }

    #[test]
    fn of_any_interval_the_next_probe_is_five_percent_sooner_or_later_at_the_most_and_not_always_the_same() {
        for interval in [10, 11, 13, 19, 20, 99, 250, 1_000, 10_000, 60_000].map(Duration::from_millis) {
            let check = check(interval, Duration::from_millis(5));
            let pauses: BTreeSet<Duration> =
                (0..1_000).map(|number| jittered(interval, step(&check, TICK), mix(1, number))).collect();
            assert!(pauses.iter().all(|pause| pause.abs_diff(interval) <= interval / 20), "{interval:?}: {pauses:?}");
            assert!(pauses.len() >= 3, "{interval:?}: {pauses:?}");
        }
    }
}
