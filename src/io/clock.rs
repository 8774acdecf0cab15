//! The one place where now is read.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::engine::{Time, WallTime};

/// Three clocks are read within this time, unless the process is stopped just then.
const BREATH: Duration = Duration::from_millis(20);

/// What a clock shows at its start: so late that what is remembered from before it has a time, too.
const BEGIN: Time = Time::from_nanos(100_000 * 1_000_000_000);

/// The clocks of this process, the monotonic one counted from its start, which is at 100 000 s.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Duration,
    /// How far the boot-time clock, which goes on while the host sleeps, is ahead.
    asleep: Duration,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        let mut clock = Self { origin: read(ClockId::CLOCK_MONOTONIC), asleep: Duration::ZERO };
        clock.slept();
        clock
    }

    /// Now, on the monotonic clock.
    #[must_use]
    pub fn now(&self) -> Time {
        BEGIN + read(ClockId::CLOCK_MONOTONIC).saturating_sub(self.origin)
    }

    /// A time of this clock, as the system's monotonic clock shows it.
    #[must_use]
    pub fn monotonic(&self, at: Time) -> Duration {
        self.origin + at.since(BEGIN)
    }

    /// How long it has run.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.now().since(BEGIN)
    }

    /// Now, on the wall clock.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        WallTime(nanos(read(ClockId::CLOCK_REALTIME)))
    }

    /// How long the host has slept since this was last asked: the monotonic clock stands still
    /// then, the boot-time clock does not.
    pub fn slept(&mut self) -> Duration {
        let before = read(ClockId::CLOCK_MONOTONIC);
        let boot = read(ClockId::CLOCK_BOOTTIME);
        let after = read(ClockId::CLOCK_MONOTONIC);
        if after.saturating_sub(before) > BREATH {
            // Stopped between two clocks, so that they cannot be compared; the next time will do.
            return Duration::ZERO;
        }
        let ahead = boot.saturating_sub(before);
        ahead.saturating_sub(std::mem::replace(&mut self.asleep, ahead))
    }
}

/// When a packet arrived that the kernel stamped then, if it is read now from a queue that was last known to
/// be empty at `empty`. The stamp is on the wall clock, which may be set at any time: so it only says how long
/// the packet has waited, and it did not wait since before the queue was empty.
#[must_use]
pub fn stamped(now: Time, wall: WallTime, stamp: WallTime, empty: Time) -> Time {
    let waited = Duration::from_nanos(wall.0.saturating_sub(stamp.0));
    now - waited.min(now.since(empty))
}

fn read(clock: ClockId) -> Duration {
    // Cannot fail: these clocks exist on every kernel that runs this program.
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
