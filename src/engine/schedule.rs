//! How probes are spread over time.

use std::time::Duration;

use super::Time;

/// What wakes this process does so at multiples of this: a wake-up costs as much as ten probes, so probes are due
/// together, and what has come meanwhile is read together; when each packet arrived the kernel has noted.
pub const TICK: Duration = Duration::from_millis(10);
/// So many ticks make the shortest interval for which whole ticks are fine enough.
const FINE: u32 = 20;

/// When a tunnel's first probe leaves, after the start: evenly spread over the interval, the same
/// at each start. Multiples of the golden ratio fill an interval evenly for any number of tunnels.
#[must_use]
pub fn phase(tunnel: u32, interval: Duration) -> Duration {
    let fraction = u64::from(tunnel).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    part(interval, fraction)
}

/// The step of the times at which a probe of this interval is due: a whole tick, unless the interval is short.
#[must_use]
pub fn step(interval: Duration) -> Duration {
    (interval / FINE).clamp(Duration::from_millis(1), TICK)
}

/// The time to the next probe: the interval, give or take 5 %, so that probers do not fall into
/// step with each other; in whole steps.
#[must_use]
pub fn jittered(interval: Duration, noise: u64) -> Duration {
    let step = step(interval).as_nanos();
    let (least, most) =
        ((interval - interval / 20).as_nanos().div_ceil(step), (interval + interval / 20).as_nanos() / step);
    let steps = least + ((most.saturating_sub(least) + 1) * u128::from(noise) >> 64);
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
