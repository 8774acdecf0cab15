//! The sequence numbers of one outbound association: which one is next, up to where they are
//! reserved, where they end.
//!
//! A number that has been sent must never be sent again with the same keys: the far end would drop it
//! as a replay (RFC 4303 section 3.4.3), and a counter-mode cipher would lose its secrecy (RFC 4106
//! section 2). So numbers are used only below a *mark* that has been made durable before
//! ([`super::ledger`]); a run that follows begins at the mark, whatever became of this one.

use super::WallTime;

/// Numbers that are reserved at once (RFC 9333 section 5: a state that is written rarely must run
/// ahead of its use). At the shortest interval, 10 ms, half of them last 50 s.
pub const BLOCK: u64 = 10_000;

/// Numbers that the clock gives away in a second.
const CLOCK_RATE: u64 = 4;
/// Where it begins: 2026-01-01T00:00:00Z, in seconds since the Unix epoch.
const CLOCK_ORIGIN: u64 = 1_767_225_600;
/// How far beyond the mark the clock may lead. With extended numbers the receiver infers the high
/// half, which works as long as it is not left behind by 2^32 (RFC 4303 appendix A2.1); 2^24 are
/// set aside for the window and for what was lost on the way.
const CLOCK_REACH: u64 = (1 << 32) - (1 << 24);

/// Alarm at this many thousandths of the space.
const SCARCE: u64 = 900;

/// The number that the clock gives: 4 a second since 2026-01-01T00:00:00Z.
///
/// RFC 9333 section 5 allows numbers that come from a clock. So a record that is older than what was
/// sent (restored, copied) does not lead to a number that was used before, as long as no more than 4
/// numbers a second were used since the association began, and the clock is right. At this rate 32
/// bits last until 2060.
#[must_use]
const fn by_clock(wall: WallTime) -> u64 {
    let since = wall.0.saturating_sub(CLOCK_ORIGIN * 1_000_000_000);
    let number = since / (1_000_000_000 / CLOCK_RATE);
    // The first packet bears 1, never 0 (RFC 4303 section 3.3.3).
    if number == 0 { 1 } else { number }
}

/// The first number to use, where every one from `mark` on is free: that one, or where the clock is if
/// that is further.
///
/// The clock is not heeded where it leads by more than a quarter of the space, or so far that the
/// receiver could not follow (4 080 218 112 numbers): it is wrong, or it is the year 2034 and 32 bits
/// are too few for it. What a wrong clock takes away once is never given back.
#[must_use]
pub const fn beyond(mark: u64, wall: WallTime, last: u64) -> u64 {
    let (clock, quarter) = (by_clock(wall), last / 4);
    let reach = if quarter < CLOCK_REACH { quarter } else { CLOCK_REACH };
    if clock > mark && clock - mark <= reach { clock } else { mark }
}

/// The sequence numbers of one outbound association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    next: u64,
    /// Exclusive: numbers from `next` up to it may be used.
    reserved: u64,
    /// The last one that there is.
    last: u64,
    /// A reservation is under way.
    asked: bool,
    /// Scarcity has been told.
    alarmed: bool,
}

impl Numbers {
    /// Numbers from `first` on, of which those below `reserved` may be used already, up to `last`
    /// inclusive: `u32::MAX`, or `u64::MAX` with extended numbers.
    ///
    /// 0 is never used. Nor is `u64::MAX`, above which no mark could be written; nobody will miss it.
    #[must_use]
    pub const fn new(first: u64, reserved: u64, last: u64) -> Self {
        let next = if first == 0 { 1 } else { first };
        let last = if last == u64::MAX { u64::MAX - 1 } else { last };
        let reserved = if reserved > last { last + 1 } else { reserved };
        Self { next, reserved, last, asked: false, alarmed: false }
    }

    /// The numbers of a run that follows another: from the mark or the clock on ([`beyond`]). None is
    /// reserved yet.
    #[must_use]
    pub const fn resume(mark: u64, wall: WallTime, last: u64) -> Self {
        let first = beyond(mark, wall, last);
        Self::new(first, first, last)
    }

    /// Goes on where another run of the same keys' numbers is now.
    #[must_use]
    pub const fn after(self, used: Self) -> Self {
        Self::new(used.next, used.reserved, self.last)
    }

    /// Takes the next number; `None` if the reservation is used up, or the space is.
    pub const fn take(&mut self) -> Option<u64> {
        // `reserved` is never above last + 1.
        if self.next >= self.reserved {
            return None;
        }
        let taken = self.next;
        self.next += 1;
        Some(taken)
    }

    /// The number that would be taken next, reserved or not.
    #[must_use]
    pub const fn peek(&self) -> u64 {
        self.next
    }

    /// How many numbers may be taken now.
    #[must_use]
    pub const fn ready(&self) -> u64 {
        self.reserved.saturating_sub(self.next)
    }

    /// The mark that should be made durable now: when less than half a block is left and no
    /// reservation is under way. From then on one is, until [`Numbers::grant`] or [`Numbers::retry`].
    pub fn wants(&mut self) -> Option<u64> {
        let end = self.last + 1;
        if self.asked || self.exhausted() || self.reserved >= end || self.ready() >= BLOCK / 2 {
            return None;
        }
        self.asked = true;
        Some(self.reserved.max(self.next).saturating_add(BLOCK).min(end))
    }

    /// The mark is durable: every number below it may be used.
    pub fn grant(&mut self, mark: u64) {
        self.asked = false;
        self.reserved = self.reserved.max(mark.min(self.last + 1));
    }

    /// The reservation has failed: [`Numbers::wants`] asks again.
    pub const fn retry(&mut self) {
        self.asked = false;
    }

    /// Whether the last number has been used: only new keys help.
    #[must_use]
    pub const fn exhausted(&self) -> bool {
        self.next > self.last
    }

    /// How many numbers are left.
    #[must_use]
    pub const fn left(&self) -> u64 {
        if self.exhausted() { 0 } else { (self.last - self.next).saturating_add(1) }
    }

    /// How much of the space is used, in thousandths.
    #[must_use]
    pub fn share_used(&self) -> u32 {
        let used = u128::from(self.next - 1) * 1_000;
        let share = used.checked_div(u128::from(self.last)).map_or(1_000, |share| share.min(1_000));
        u32::try_from(share).unwrap_or(1_000)
    }

    /// Whether nine tenths of the space are used, said once a run: time for new keys.
    pub fn became_scarce(&mut self) -> bool {
        let scarce = u64::from(self.share_used()) >= SCARCE;
        scarce && !std::mem::replace(&mut self.alarmed, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const U32: u64 = u32::MAX as u64;

    fn wall(seconds: u64) -> WallTime {
        WallTime(seconds * 1_000_000_000)
    }

    #[test]
    fn the_clock_gives_four_numbers_a_second_since_2026() {
        assert_eq!(WallTime(CLOCK_ORIGIN * 1_000_000_000).to_string(), "2026-01-01T00:00:00.000Z");
        assert_eq!(by_clock(WallTime(0)), 1);
        assert_eq!(by_clock(wall(CLOCK_ORIGIN)), 1);
        assert_eq!(by_clock(wall(CLOCK_ORIGIN + 1)), 4);
        assert_eq!(by_clock(WallTime((CLOCK_ORIGIN + 1) * 1_000_000_000 + 750_000_000)), 7);
        let end = wall(CLOCK_ORIGIN + (1 << 30));
        assert_eq!((by_clock(end), end.to_string().as_str()), (1 << 32, "2060-01-10T13:37:04.000Z"));
    }

    #[test]
    fn a_run_begins_at_the_mark_or_where_the_clock_is() {
        let second = wall(CLOCK_ORIGIN + 1_000);
        assert_eq!(Numbers::resume(1, second, U32).peek(), 4_000);
        assert_eq!(Numbers::resume(4_001, second, U32).peek(), 4_001);
        assert_eq!(Numbers::resume(4_001, second, U32).ready(), 0);
    }

    #[test]
    fn a_clock_that_leads_too_far_is_not_heeded() {
        let in_2061 = wall(CLOCK_ORIGIN + 35 * 31_557_600);
        assert!(by_clock(in_2061) > U32);
        assert_eq!(Numbers::resume(7, in_2061, U32).peek(), 7);
        assert_eq!(Numbers::resume(7, in_2061, u64::MAX).peek(), 7);
        let near = by_clock(in_2061) - CLOCK_REACH;
        assert_eq!(Numbers::resume(near, in_2061, u64::MAX).peek(), by_clock(in_2061));
        assert_eq!(Numbers::resume(near - 1, in_2061, u64::MAX).peek(), near - 1);
    }

    #[test]
    fn one_wrong_clock_takes_a_quarter_of_the_space_at_most() {
        let mut mark = 1;
        for year in [2034, 2040, 2042, 2058] {
            let then = wall(CLOCK_ORIGIN + (year - 2026) * 31_557_600);
            let next = Numbers::resume(mark, then, U32).peek();
            assert!(next - mark <= U32 / 4, "{year}: from {mark} to {next}");
            mark = next;
        }
        let in_2040 = wall(CLOCK_ORIGIN + 14 * 31_557_600);
        assert_eq!(beyond(1, in_2040, U32), 1, "32 bits are too few for the clock by then");
    }

    #[test]
    fn nothing_is_taken_before_it_is_granted() {
        let mut numbers = Numbers::new(5, 5, U32);
        assert_eq!(numbers.take(), None);
        assert_eq!(numbers.wants(), Some(5 + BLOCK));
        assert_eq!(numbers.wants(), None, "one is under way");
        numbers.retry();
        assert_eq!(numbers.wants(), Some(5 + BLOCK));
        numbers.grant(7);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [Some(5), Some(6), None]);
    }

    #[test]
    fn more_is_wanted_when_half_a_block_is_left() {
        let mut numbers = Numbers::new(1, 1 + BLOCK, U32);
        for _ in 0..=BLOCK / 2 {
            assert_eq!(numbers.wants(), None);
            numbers.take().unwrap();
        }
        assert_eq!(numbers.wants(), Some(1 + 2 * BLOCK));
    }

    #[test]
    fn the_last_number_is_used_and_nothing_after_it() {
        for last in [1, 2, BLOCK, U32, U32 + 1] {
            let mut numbers = Numbers::new(last, last, last);
            assert_eq!(numbers.wants(), Some(last + 1));
            numbers.grant(u64::MAX);
            assert!(!numbers.exhausted() && numbers.left() == 1);
            assert_eq!([numbers.take(), numbers.take()], [Some(last), None]);
            assert!(numbers.exhausted() && numbers.left() == 0);
            assert_eq!(numbers.wants(), None);
        }
    }

    #[test]
    fn the_very_last_of_64_bits_is_left_alone() {
        let mut numbers = Numbers::new(u64::MAX - 1, 0, u64::MAX);
        assert_eq!(numbers.wants(), Some(u64::MAX));
        numbers.grant(u64::MAX);
        assert_eq!([numbers.take(), numbers.take()], [Some(u64::MAX - 1), None]);
        assert!(numbers.exhausted());
        let mut beyond = Numbers::new(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!((beyond.exhausted(), beyond.take(), beyond.wants()), (true, None, None));
    }

    #[test]
    fn a_space_that_ends_before_it_begins_gives_nothing() {
        for (first, last) in [(0, 0), (1, 0), (U32 + 1, U32)] {
            let mut numbers = Numbers::new(first, u64::MAX, last);
            assert_eq!((numbers.exhausted(), numbers.take(), numbers.wants()), (true, None, None));
            assert_eq!(numbers.share_used(), 1_000);
        }
    }

    #[test]
    fn scarcity_is_told_once_at_nine_tenths() {
        for last in [1_000, U32, u64::MAX] {
            let mut numbers = Numbers::new(last - last / 10 - 1, 0, last);
            assert!(numbers.share_used() < 900 && !numbers.became_scarce(), "of {last}");
            let mut numbers = Numbers::new(last - last / 10 + 1, 0, last);
            assert_eq!(numbers.share_used(), 900, "of {last}");
            assert!(numbers.became_scarce());
            assert!(!numbers.became_scarce());
        }
    }

    /// What may happen to an association and its record, in any order.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Take(u16),
        Want,
        /// The oldest mark under way becomes durable, and is granted.
        Grant,
        /// It becomes durable, but nobody hears of it.
        DurableUnheard,
        /// It fails.
        Fail,
        /// Killed, and started again from what is durable, or at a later clock.
        Restart(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1_u16..7_000).prop_map(Step::Take),
            4 => Just(Step::Want),
            4 => Just(Step::Grant),
            1 => Just(Step::DurableUnheard),
            1 => Just(Step::Fail),
            2 => any::<u32>().prop_map(Step::Restart),
        ]
    }

    proptest! {
        #[test]
        fn no_number_is_taken_twice_or_above_what_is_durable(
            first in prop_oneof![0_u64..3, (U32 - 30_000)..U32, (u64::MAX - 30_000)..u64::MAX],
            last in prop_oneof![Just(U32), Just(u64::MAX)],
            steps in prop::collection::vec(step(), 1..80),
        ) {
            let mut durable = first;
            let mut numbers = Numbers::resume(durable, WallTime(0), last);
            let mut under_way = Vec::new();
            let mut highest = 0;
            for step in steps {
                match step {
                    Step::Take(count) => for _ in 0..count {
                        let Some(number) = numbers.take() else { break };
                        prop_assert!(number > highest, "{number} after {highest}");
                        prop_assert!(number < durable && number <= last);
                        highest = number;
                    },
                    Step::Want => under_way.extend(numbers.wants()),
                    Step::Grant | Step::DurableUnheard | Step::Fail if under_way.is_empty() => {}
                    Step::Fail => {
                        under_way.remove(0);
                        numbers.retry();
                    }
                    Step::Grant | Step::DurableUnheard => {
                        let mark = under_way.remove(0);
                        durable = durable.max(mark);
                        if matches!(step, Step::Grant) {
                            numbers.grant(mark);
                        }
                    }
                    Step::Restart(seconds) => {
                        under_way.clear();
                        numbers = Numbers::resume(durable, wall(u64::from(seconds)), last);
                    }
                }
                prop_assert!(under_way.len() <= 1, "two reservations at once");
            }
        }
    }
}
