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

/// Room is made beforehand for so many samples at most.
const ROOM: usize = 1_024;

/// A failure among the round-trip times.
const FAILED: u32 = u32::MAX;

/// W5, W1 and L30 of one tunnel, kept by running counts, so that judging looks at no sample twice.
///
/// There are hundreds of samples for each of very many tunnels, so each is kept in six bytes: how long after the one
/// before it came, exactly, and its round-trip time to the microsecond or, above 16 ms, to a part in a thousand. (After
/// more than 4.3 s it takes twelve.)
#[derive(Debug, Clone)]
pub struct Window {
    length: Duration,
    /// Those within `length`, oldest first.
    slots: VecDeque<Slot>,
    /// When the first and the last of them were.
    ends: [Time; 2],
    samples: u32,
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
            slots: VecDeque::new(),
            ends: [Time::ZERO; 2],
            samples: 0,
            failures: 0,
            recent: 0,
            total: 0,
            successes_in_a_row: 0,
            last_success: None,
        }
    }

    /// Makes room for as many samples as there will be at one in each `interval`: a window that grows little by little,
    /// beside very many others, leaves memory behind that nobody can use.
    pub(super) fn make_room(&mut self, interval: Duration) {
        let each = if interval.as_nanos() * 21 / 20 > u128::from(u32::MAX) { 2 } else { 1 };
        let samples = each * (self.length.as_nanos() / interval.as_nanos().max(1) * 17 / 16 + 4);
        let samples = usize::try_from(samples).unwrap_or(ROOM).min(ROOM);
        self.slots.reserve_exact(samples.saturating_sub(self.slots.len()));
    }

    /// Adds the sample of time `now` and lets go of what has become too old.
    pub fn push(&mut self, now: Time, outcome: Outcome) {
        self.forget(now);
        self.total += 1;
        self.recent <<= 1;
        match outcome {
            Outcome::Success(rtt) => {
                self.keep(now, packed(micros(rtt)));
                self.successes_in_a_row += 1;
                self.last_success = Some(now);
            }
            Outcome::Failure => {
                self.keep(now, FAILURE);
                self.recent |= 1;
                self.successes_in_a_row = 0;
            }
        }
    }

    fn keep(&mut self, at: Time, rtt: u16) {
        if self.slots.is_empty() {
            self.ends = [at; 2];
        }
        let after = at.as_nanos().saturating_sub(self.ends[1].as_nanos());
        let (long, rest) = (after >> u32::BITS, after & u64::from(u32::MAX));
        if long > 0 {
            self.add(Slot::new(long, PAUSE));
        }
        self.add(Slot::new(rest, rtt));
        self.ends[1] = at.max(self.ends[1]);
        self.samples += 1;
        self.failures += u32::from(rtt == FAILURE);
    }

    fn add(&mut self, slot: Slot) {
        if self.slots.len() == self.slots.capacity() {
            // Twice as many, as is usual, would be for nothing: a window is as long as it is.
            self.slots.reserve_exact((self.slots.len() / 8).max(8));
        }
        self.slots.push_back(slot);
    }

    /// Lets go of samples that are out of the window at `now`.
    pub fn forget(&mut self, now: Time) {
        while !self.ends[0].within(self.length, now)
            && let Some(slot) = self.slots.front()
        {
            self.samples -= u32::from(slot.rtt() != PAUSE);
            self.failures -= u32::from(slot.rtt() == FAILURE);
            self.slots.pop_front();
            self.ends[0] = self.ends[0] + self.slots.front().map_or(Duration::ZERO, Slot::after);
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
    pub const fn samples(&self) -> u64 {
        self.samples as u64
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
        // What is nearly always so is asked first.
        if self.last_success.is_some_and(|time| time.within(span, now)) {
            return false;
        }
        let nth_last = least.checked_sub(1).and_then(|before| self.newest_first().nth(before as usize));
        nth_last.is_some_and(|(at, _)| at.within(span, now))
    }

    /// When each sample leaves the window, oldest first, and whether it is a failure.
    pub fn leaving(&self) -> impl Iterator<Item = (Time, bool)> + '_ {
        let mut at = self.ends[0];
        let steps = self.slots.iter().zip(0_u32..).filter_map(move |(slot, place)| {
            at = at + if place == 0 { Duration::ZERO } else { slot.after() };
            (slot.rtt() != PAUSE).then_some((at, slot.rtt() == FAILURE))
        });
        steps.map(|(at, is_failure)| (at + self.length, is_failure))
    }

    /// When the last success was.
    #[must_use]
    pub const fn last_success(&self) -> Option<Time> {
        self.last_success
    }

    /// The latest samples, oldest first: time and round-trip time, `None` for a failure.
    pub fn latest(&self, count: usize) -> impl Iterator<Item = (Time, Option<Duration>)> + '_ {
        let mut latest: Vec<_> = self.newest_first().take(count).collect();
        latest.reverse();
        latest.into_iter().map(|(at, rtt)| (at, (rtt != FAILED).then(|| Duration::from_micros(rtt.into()))))
    }

    /// Each sample with its round-trip time in microseconds, or [`u32::MAX`] for a failure; newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (Time, u32)> + '_ {
        let mut next = self.ends[1];
        self.slots.iter().rev().filter_map(move |slot| {
            let at = next;
            next = next - slot.after();
            (slot.rtt() != PAUSE).then_some((at, unpacked(slot.rtt())))
        })
    }

    /// What is known of the last samples, in the window or not.
    pub(super) const fn counts(&self) -> Counts {
        let Self { recent, total, successes_in_a_row, last_success, .. } = *self;
        Counts { recent, total, successes_in_a_row, last_success }
    }

    /// A window of what was written down: samples as [`Self::newest_first`] gives them, but oldest first.
    pub(super) fn recalled(length: Duration, samples: &[(Time, u32)], counts: Counts) -> Self {
        let Counts { recent, total, successes_in_a_row, last_success } = counts;
        let mut window = Self {
            recent,
            // However many a file tells of, they must go on to be counted.
            total: total.min(u64::MAX / 2).max(samples.len() as u64),
            successes_in_a_row: successes_in_a_row.min(total).min(u64::MAX / 2),
            last_success,
            ..Self::new(length)
        };
        for &(at, rtt) in samples {
            window.keep(at, if rtt == FAILED { FAILURE } else { packed(rtt) });
        }
        window
    }

    /// The round-trip times within the window, in microseconds.
    #[must_use]
    pub fn rtt(&self) -> Option<RttSummary> {
        let mut sorted: Vec<u32> = self.newest_first().map(|(_, rtt)| rtt).filter(|&rtt| rtt != FAILED).collect();
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

/// One sample of a window. As bytes, or it would take eight of them.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// How long after the one before, in nanoseconds; of a pause, in times of 2^32 of them.
    after: [u8; 4],
    /// Its round-trip time as [`packed`], or what it is instead.
    rtt: [u8; 2],
}

impl Slot {
    fn new(after: u64, rtt: u16) -> Self {
        Self { after: u32::try_from(after).unwrap_or(u32::MAX).to_ne_bytes(), rtt: rtt.to_ne_bytes() }
    }

    fn rtt(self) -> u16 {
        u16::from_ne_bytes(self.rtt)
    }

    fn after(&self) -> Duration {
        let after = u64::from(u32::from_ne_bytes(self.after));
        Duration::from_nanos(if self.rtt() == PAUSE { after << u32::BITS } else { after })
    }
}

/// A failure.
const FAILURE: u16 = u16::MAX;
/// No sample, but the part of a long time without any that a slot cannot say.
const PAUSE: u16 = u16::MAX - 1;
/// The bits of a packed time that are a number; those above say by which power of 16 it is multiplied.
const NUMBER: u32 = 14;

/// A time in microseconds in 16 bits, rounded down: exact below 16 ms, longer than a minute at the most.
fn packed(micros: u32) -> u16 {
    let scale = (0..3).find(|scale| micros >> (4 * scale) < 1 << NUMBER).unwrap_or(3);
    let packed = scale << NUMBER | (micros >> (4 * scale)).min((1 << NUMBER) - 1);
    u16::try_from(packed).unwrap_or(PAUSE).min(PAUSE - 1)
}

/// What was packed; [`FAILED`] for a failure.
fn unpacked(packed: u16) -> u32 {
    let (scale, number) = (u32::from(packed) >> NUMBER, u32::from(packed) & ((1 << NUMBER) - 1));
    if packed == FAILURE { FAILED } else { number << (4 * scale) }
}

/// In whole microseconds, below [`FAILED`].
fn micros(rtt: Duration) -> u32 {
    u32::try_from(rtt.as_micros()).unwrap_or(FAILED).min(FAILED - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_time_is_the_time_but_for_a_part_in_a_thousand() {
        for micros in (0..16_384).chain((14..26).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 12_345])) {
            let back = unpacked(packed(micros));
            assert!(back <= micros && micros - back <= micros / 1_000, "{micros}: {back}");
            assert!(back == micros || micros >= 16_384, "{micros}: {back}");
        }
        for long in [68_000_000, u32::MAX - 1] {
            assert!((67_000_000..68_000_000).contains(&unpacked(packed(long))), "{long}");
        }
        assert_eq!(unpacked(FAILURE), FAILED);
    }

    #[test]
    fn samples_far_apart_are_where_they_were() {
        let mut window = Window::new(Duration::from_secs(1_000));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        for seconds in [1, 2, 200, 500, 501] {
            window.push(at(seconds), if seconds == 200 { Outcome::Failure } else { Outcome::Success(Duration::ZERO) });
        }
        let leaving = |window: &Window| window.leaving().collect::<Vec<_>>();
        let expected = [(1_001, false), (1_002, false), (1_200, true), (1_500, false), (1_501, false)];
        assert_eq!(leaving(&window), expected.map(|(seconds, failed)| (at(seconds), failed)));
        let times: Vec<_> = window.newest_first().map(|(at, _)| at).collect();
        assert_eq!(times, [501, 500, 200, 2, 1].map(at));
        window.forget(at(1_100));
        assert_eq!((window.samples(), window.failures()), (3, 1));
        assert_eq!(
            leaving(&window),
            expected[2..].iter().map(|&(seconds, failed)| (at(seconds), failed)).collect::<Vec<_>>()
        );
        window.forget(at(5_000));
        assert_eq!((window.samples(), window.failures()), (0, 0));
    }

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
