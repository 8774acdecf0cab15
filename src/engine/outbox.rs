//! Probes that want to leave now. Regular ones are spread already; bursts are paced here.

use std::collections::VecDeque;
use std::time::Duration;

use super::Time;
use super::inflight::Purpose;

/// A probe to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// The tunnel.
    pub(super) tunnel: u32,
    /// Why.
    pub(super) purpose: Purpose,
    /// A burst's probe leaves by this time whatever the pace, or its outcome would fall out of the
    /// short window.
    pub(super) not_after: Time,
}

/// Burst probes a millisecond: an uplink that fails under 100 000 tunnels asks for 200 000 at once,
/// which would overflow the socket's send queue and look like loss.
const PACE: u64 = 100;
/// The most that may leave at once after a quiet time.
const CREDIT: u64 = 1_000;
/// How long a probe waits that the kernel had no buffers for.
const RETRY: Duration = Duration::from_millis(10);

/// The queues.
#[derive(Debug, Clone, Default)]
pub(super) struct Outbox {
    regular: VecDeque<Item>,
    burst: VecDeque<Item>,
    delayed: VecDeque<(Time, Item)>,
    credit: u64,
    refilled: Time,
}

impl Outbox {
    /// Adds a probe.
    pub(super) fn push(&mut self, item: Item) {
        match item.purpose {
            Purpose::Regular => self.regular.push_back(item),
            Purpose::Burst => self.burst.push_back(item),
        }
    }

    /// Adds a probe that the kernel could not take.
    pub(super) fn delay(&mut self, now: Time, item: Item) {
        self.delayed.push_back((now + RETRY, item));
    }

    /// The next probe that may leave.
    pub(super) fn pop(&mut self, now: Time) -> Option<Item> {
        while let Some(&(at, item)) = self.delayed.front()
            && at <= now
        {
            self.delayed.pop_front();
            self.push(item);
        }
        if let Some(item) = self.regular.pop_front() {
            return Some(item);
        }
        self.refill(now);
        if self.credit == 0 && self.burst.front()?.not_after > now {
            return None;
        }
        self.credit = self.credit.saturating_sub(1);
        self.burst.pop_front()
    }

    /// When the next probe may leave; `None` if none is waiting.
    #[must_use]
    pub(super) fn earliest(&self, now: Time) -> Option<Time> {
        if !self.regular.is_empty() {
            return Some(now);
        }
        let burst = (!self.burst.is_empty())
            .then(|| if self.credit > 0 { now } else { self.refilled + Duration::from_millis(1) });
        let delayed = self.delayed.front().map(|&(at, _)| at);
        [burst, delayed].into_iter().flatten().min()
    }

    fn refill(&mut self, now: Time) {
        let millis = u64::try_from(now.since(self.refilled).as_millis()).unwrap_or(u64::MAX);
        if millis > 0 {
            self.credit = self.credit.saturating_add(millis.saturating_mul(PACE)).min(CREDIT);
            self.refilled = now;
        }
    }
}
