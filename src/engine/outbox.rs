//! Probes that want to leave now. Regular ones are spread already; bursts are paced here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::Time;
use super::inflight::Purpose;

/// A probe to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    /// The tunnel.
    pub(super) tunnel: u32,
    /// Why.
    pub(super) purpose: Purpose,
    /// A burst's probe leaves by this time whatever the pace, or its outcome would fall out of the
    /// short window. A regular one was due then, or tried before.
    pub(super) not_after: Time,
}

/// Burst probes a millisecond: an uplink that fails under 100 000 tunnels asks for 200 000 at once,
/// which would overflow the socket's send queue and look like loss.
const PACE: u64 = 100;
/// The most that may leave at once after a quiet time: those of the longest tick.
const CREDIT: u64 = 2_000;

/// The queues.
#[derive(Debug, Clone, Default)]
pub(super) struct Outbox {
    regular: VecDeque<Item>,
    /// By the time at which each must leave, then in the order of their coming: a tunnel that waited
    /// for a deadline has less time left than one that asked early.
    burst: BinaryHeap<Reverse<(Time, u64, u32)>>,
    pushed: u64,
    /// By the time at which each is tried again.
    delayed: BinaryHeap<Reverse<(Time, Item)>>,
    credit: u64,
    refilled: Time,
}

impl Outbox {
    /// Adds a probe.
    pub(super) fn push(&mut self, item: Item) {
        match item.purpose {
            Purpose::Regular => self.regular.push_back(item),
            Purpose::Burst => {
                self.pushed += 1;
                self.burst.push(Reverse((item.not_after, self.pushed, item.tunnel)));
            }
        }
    }

    /// Adds a probe that the kernel could not take, to be tried again at `at`.
    pub(super) fn delay(&mut self, at: Time, item: Item) {
        self.delayed.push(Reverse((at, item)));
    }

    /// The next probe that may leave.
    pub(super) fn pop(&mut self, now: Time) -> Option<Item> {
        while let Some(&Reverse((at, item))) = self.delayed.peek()
            && at <= now
        {
            self.delayed.pop();
            self.push(item);
        }
        // A regular probe that leaves late costs nothing; one of a burst would be in vain.
        let pressing = self.burst.peek().is_some_and(|&Reverse((not_after, ..))| not_after <= now);
        if !pressing && let Some(item) = self.regular.pop_front() {
            return Some(item);
        }
        self.refill(now);
        if self.credit == 0 && !pressing {
            return None;
        }
        let Reverse((not_after, _, tunnel)) = self.burst.pop()?;
        self.credit = self.credit.saturating_sub(1);
        Some(Item { tunnel, purpose: Purpose::Burst, not_after })
    }

    /// Calls tunnels by other indices from now on; what waits for those that have none is dropped.
    pub(super) fn renumber(&mut self, index: impl Fn(u32) -> Option<u32>) {
        let renamed = |item: Item| Some(Item { tunnel: index(item.tunnel)?, ..item });
        self.regular = self.regular.drain(..).filter_map(renamed).collect();
        let burst =
            self.burst.drain().filter_map(|Reverse((by, nth, tunnel))| Some(Reverse((by, nth, index(tunnel)?))));
        self.burst = burst.collect();
        let delayed = self.delayed.drain().filter_map(|Reverse((at, item))| Some(Reverse((at, renamed(item)?))));
        self.delayed = delayed.collect();
    }

    /// This process is behind by so much: that time allows no burst.
    pub(super) fn hold_back(&mut self, now: Time, late: Duration) {
        self.refilled = (self.refilled + late).min(now);
    }

    /// When the next probe may leave; `None` if none is waiting.
    #[must_use]
    pub(super) fn earliest(&self, now: Time) -> Option<Time> {
        if !self.regular.is_empty() {
            return Some(now);
        }
        let burst = (!self.burst.is_empty())
            .then(|| if self.credit > 0 { now } else { self.refilled + Duration::from_millis(1) });
        let delayed = self.delayed.peek().map(|&Reverse((at, _))| at);
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

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_nanos(1_000_000_000_000);

    const fn burst(tunnel: u32, not_after: Time) -> Item {
        Item { tunnel, purpose: Purpose::Burst, not_after }
    }

    #[test]
    fn a_confirming_probe_whose_time_has_come_goes_before_all_regular_ones_and_the_others_after_them() {
        let mut outbox = Outbox::default();
        let regular = |tunnel| Item { tunnel, purpose: Purpose::Regular, not_after: START };
        let later = burst(1, START + Duration::from_millis(1));
        [regular(0), later, burst(2, START), regular(3)].into_iter().for_each(|item| outbox.push(item));
        let order: Vec<Item> = std::iter::from_fn(|| outbox.pop(START)).collect();
        assert_eq!(order, [burst(2, START), regular(0), regular(3), later]);
    }

    #[test]
    fn time_by_which_this_process_is_behind_allows_no_burst() {
        let left = |late| {
            let mut outbox = Outbox::default();
            outbox.hold_back(START, Duration::ZERO);
            (0..2 * u32::try_from(CREDIT).unwrap())
                .for_each(|tunnel| outbox.push(burst(tunnel, START + Duration::from_secs(1))));
            while outbox.pop(START).is_some() {}
            let now = START + Duration::from_millis(5);
            outbox.hold_back(now, late);
            std::iter::from_fn(|| outbox.pop(now)).count()
        };
        assert_eq!([0, 3, 5, 9].map(|late| left(Duration::from_millis(late))), [500, 200, 0, 0]);
    }

    #[test]
    fn what_must_leave_first_leaves_first_and_in_time() {
        let start = START;
        let late = start + Duration::from_millis(960);
        let soon = start + Duration::from_millis(480);
        let mut outbox = Outbox::default();
        (0..200_000).for_each(|tunnel| outbox.push(burst(tunnel, late)));
        (0..100_000).for_each(|tunnel| outbox.push(burst(tunnel, soon)));
        let mut left = [0_u32; 2];
        let mut now = start;
        while let Some(next) = outbox.earliest(now) {
            now = next.max(now);
            while let Some(item) = outbox.pop(now) {
                assert!(now <= item.not_after, "one that must leave by {} leaves at {now}", item.not_after);
                left[usize::from(item.not_after == late)] += 1;
            }
        }
        assert_eq!(left, [100_000, 200_000]);
    }
}
