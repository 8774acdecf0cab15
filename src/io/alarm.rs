//! An alarm that rings on time: the runtime's own timers are kept by the millisecond, and round up.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// An alarm on the monotonic clock (timerfd_create(2)). To the runtime it is what a pipe is: something to read from.
#[derive(Debug)]
pub struct Alarm(Receiver);

impl Alarm {
    /// One that is not set. To be called within a runtime.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self(Receiver::from_owned_fd_unchecked(timer)?))
    }

    /// Has it ring at this time of the monotonic clock; at once if that is over.
    pub fn set(&self, at: Duration) {
        // Zero would be "never".
        let at = at.max(Duration::from_nanos(1));
        let at = Timespec { tv_sec: at.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: at.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        // It is a timer, and that is a time: nothing can be wrong with them (timerfd_settime(2)).
        let _ = timerfd_settime(self.0.as_fd(), TimerfdTimerFlags::ABSTIME, &once);
    }

    /// Waits until it rings.
    pub async fn ring(&self) {
        loop {
            // An error would be that the runtime ends.
            let Ok(()) = self.0.readable().await else { return std::future::pending().await };
            // Nothing to read: it was set anew meanwhile.
            if self.0.try_read(&mut [0; 8]).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::clock::Clock;

    #[test]
    fn it_rings_when_it_is_set_for_and_not_before() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (alarm, clock) = (Alarm::new().unwrap(), Clock::start());
            let now = || clock.monotonic(clock.now());
            let at = now() + Duration::from_millis(7);
            alarm.set(at);
            alarm.ring().await;
            assert!(now() >= at);
            alarm.set(Duration::ZERO);
            alarm.ring().await;
            // It was to ring long ago, and now much later: what it was set for last holds.
            alarm.set(Duration::ZERO);
            let at = now() + Duration::from_millis(30);
            alarm.set(at);
            alarm.ring().await;
            assert!(now() >= at);
        });
    }
}
