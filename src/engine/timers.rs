//! When each tunnel wants attention next: one timer each, set anew two or three times a probe.
//!
//! A wheel of slots of a millisecond for the next seconds, a heap for what is later. Setting a timer adds an entry and
//! says in `armed` which one counts; those that it was set to before are thrown away when their slot comes round. So
//! nothing is searched for, and what is touched of a tunnel is eight bytes. A slot is a list through entries of a common
//! store: slots come to be full one after the other, and each with room of its own would take room for all. Slots come
//! out in the order of time, then of the tunnels' index: whoever has the same timers gets the same order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Time;

/// A slot's length in nanoseconds.
const SLOT: u64 = 1_000_000;
/// So many slots, a power of two: some four seconds, which is longer than most timers run.
const SLOTS: usize = 4_096;
const WORD: usize = 64;
/// No timer is set; no time is this late.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// The end of a list.
const END: u32 = u32::MAX;

type Entry = Reverse<(Time, u32)>;

/// An entry in a slot's list, or a place that is free.
#[derive(Debug, Clone, Copy)]
struct Link {
    at: Time,
    tunnel: u32,
    /// The next of the list.
    next: u32,
}

/// One timer a tunnel.
#[derive(Debug, Clone)]
pub(super) struct Timers {
    /// What each tunnel is set to, or [`NEVER`].
    armed: Vec<Time>,
    /// Entries of slots before `next`.
    ready: BinaryHeap<Entry>,
    /// The first entry of `next` and of the slots after it, each at its number modulo [`SLOTS`].
    slots: Vec<u32>,
    store: Vec<Link>,
    /// The first free place of the store.
    free: u32,
    /// A bit for each slot that is not empty.
    occupied: [u64; SLOTS / WORD],
    /// The number of the first slot that is not in `ready` yet.
    next: u64,
    /// Later ones.
    far: BinaryHeap<Entry>,
}

impl Default for Timers {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Timers {
    /// Timers of `tunnels` tunnels, none set.
    pub(super) fn new(tunnels: usize) -> Self {
        Self {
            armed: vec![NEVER; tunnels],
            ready: BinaryHeap::new(),
            slots: vec![END; SLOTS],
            store: Vec::new(),
            free: END,
            occupied: [0; SLOTS / WORD],
            next: 0,
            far: BinaryHeap::new(),
        }
    }

    /// Sets a tunnel's timer, or clears it.
    pub(super) fn set(&mut self, tunnel: u32, at: Option<Time>) {
        let at = at.unwrap_or(NEVER);
        if let Some(armed) = self.armed.get_mut(tunnel as usize)
            && std::mem::replace(armed, at) != at
            && at != NEVER
        {
            self.push(Reverse((at, tunnel)));
        }
    }

    /// A tunnel whose time has come; its timer is cleared.
    pub(super) fn pop(&mut self, now: Time) -> Option<u32> {
        let Reverse((at, tunnel)) = self.peek().filter(|Reverse((at, _))| *at <= now)?;
        debug_assert_eq!(self.armed[tunnel as usize], at);
        self.ready.pop();
        self.armed[tunnel as usize] = NEVER;
        Some(tunnel)
    }

    /// The earliest timer.
    pub(super) fn earliest(&mut self) -> Option<Time> {
        self.peek().map(|Reverse((at, _))| at)
    }

    /// The first entry that counts.
    fn peek(&mut self) -> Option<Entry> {
        loop {
            while let Some(&entry) = self.ready.peek() {
                if self.counts(entry) {
                    return Some(entry);
                }
                self.ready.pop();
            }
            self.advance()?;
        }
    }

    fn counts(&self, Reverse((at, tunnel)): Entry) -> bool {
        self.armed[tunnel as usize] == at
    }

    fn push(&mut self, entry: Entry) {
        let Reverse((at, tunnel)) = entry;
        let slot = at.as_nanos() / SLOT;
        match slot.checked_sub(self.next) {
            None => self.ready.push(entry),
            Some(ahead) if ahead < SLOTS as u64 => {
                let place = place(slot);
                let next = self.slots[place];
                self.slots[place] = self.put(Link { at, tunnel, next });
                self.occupied[place / WORD] |= 1 << (place % WORD);
            }
            Some(_) => self.far.push(entry),
        }
    }

    /// Makes the next slot that is not empty ready; `None` if there is nothing any more.
    fn advance(&mut self) -> Option<()> {
        let slot = loop {
            self.draw_near();
            match self.next_occupied() {
                Some(slot) => break slot,
                None => self.next = self.far.peek().map(|Reverse((at, _))| at.as_nanos() / SLOT)?,
            }
        };
        self.next = slot + 1;
        let place = place(slot);
        self.occupied[place / WORD] &= !(1 << (place % WORD));
        let (mut entries, mut next) = (std::mem::take(&mut self.ready).into_vec(), self.slots[place]);
        self.slots[place] = END;
        while let Some(&link) = self.store.get(next as usize) {
            let entry = Reverse((link.at, link.tunnel));
            entries.extend(self.counts(entry).then_some(entry));
            self.store[next as usize].next = std::mem::replace(&mut self.free, next);
            next = link.next;
        }
        self.ready = entries.into();
        Some(())
    }

    /// Puts an entry into the store, and says where.
    fn put(&mut self, link: Link) -> u32 {
        let at = self.free;
        if let Some(free) = self.store.get_mut(at as usize) {
            self.free = std::mem::replace(free, link).next;
            return at;
        }
        self.store.push(link);
        u32::try_from(self.store.len() - 1).unwrap_or(END)
    }

    /// Puts those that were far away where they belong by now.
    fn draw_near(&mut self) {
        while let Some(&entry) = self.far.peek()
            && entry.0.0.as_nanos() / SLOT - self.next < SLOTS as u64
        {
            self.far.pop();
            if self.counts(entry) {
                self.push(entry);
            }
        }
    }

    /// The number of the next slot that is not empty.
    fn next_occupied(&self) -> Option<u64> {
        let from = place(self.next);
        let word = |nth: usize| (from / WORD + nth) % self.occupied.len();
        // The first word is looked at twice: above where it begins, and, when all others have been, below.
        let bits = |nth: usize| match nth {
            0 => self.occupied[word(0)] & (u64::MAX << (from % WORD)),
            nth => self.occupied[word(nth)],
        };
        let nth = (0..=self.occupied.len()).find(|&nth| bits(nth) != 0)?;
        let found = word(nth) * WORD + bits(nth).trailing_zeros() as usize;
        Some(self.next + ((found + SLOTS - from) % SLOTS) as u64)
    }
}

/// Where a slot is.
fn place(slot: u64) -> usize {
    // The remainder is small.
    usize::try_from(slot % SLOTS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// What it is to be: all timers, looked through.
    struct Plain(Vec<Option<Time>>);

    impl Plain {
        fn earliest(&self) -> Option<(Time, u32)> {
            (0..).zip(&self.0).filter_map(|(tunnel, at)| Some(((*at)?, tunnel))).min()
        }

        fn pop(&mut self, now: Time) -> Option<u32> {
            let (_, tunnel) = self.earliest().filter(|(at, _)| *at <= now)?;
            self.0[tunnel as usize] = None;
            Some(tunnel)
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// So many nanoseconds from now.
        Set(u32, u64),
        Clear(u32),
        /// All that is due so much later.
        Go(u64),
    }

    const TUNNELS: u32 = 40;
    const SECOND: u64 = 1_000_000_000;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let near = 0..SECOND / 10;
        let ahead = prop_oneof![4 => near.clone(), 4 => 0..5 * SECOND, 1 => 0..200 * SECOND, 1 => Just(0)];
        let set = (0..TUNNELS, ahead.clone()).prop_map(|(tunnel, ahead)| Step::Set(tunnel, ahead));
        let clear = (0..TUNNELS).prop_map(Step::Clear);
        let go = prop_oneof![8 => near, 1 => ahead].prop_map(Step::Go);
        prop::collection::vec(prop_oneof![6 => set, 1 => clear, 3 => go], 1..300)
    }

    proptest! {
        #[test]
        fn they_come_out_as_if_all_were_looked_through(begin in prop_oneof![Just(0), 0..1_000_000 * SECOND], steps in steps()) {
            let mut timers = Timers::new(TUNNELS as usize);
            let mut plain = Plain(vec![None; TUNNELS as usize]);
            let mut now = Time::from_nanos(begin);
            for step in steps {
                match step {
                    Step::Set(tunnel, ahead) => {
                        let at = now + Duration::from_nanos(ahead);
                        timers.set(tunnel, Some(at));
                        plain.0[tunnel as usize] = Some(at);
                    }
                    Step::Clear(tunnel) => {
                        timers.set(tunnel, None);
                        plain.0[tunnel as usize] = None;
                    }
                    Step::Go(ahead) => {
                        now = now + Duration::from_nanos(ahead);
                        loop {
                            let wanted = plain.pop(now);
                            prop_assert_eq!(timers.pop(now), wanted);
                            if wanted.is_none() {
                                break;
                            }
                        }
                    }
                }
                prop_assert_eq!(timers.earliest(), plain.earliest().map(|(at, _)| at));
            }
        }
    }

    #[test]
    fn what_is_set_again_and_again_takes_no_more_room() {
        let mut timers = Timers::new(1_000);
        let mut now = Time::from_nanos(SECOND);
        for _ in 0..2_000 {
            now = now + Duration::from_millis(10);
            while let Some(tunnel) = timers.pop(now) {
                timers.set(tunnel, Some(now + Duration::from_secs(1)));
            }
            (0..1_000).for_each(|tunnel| timers.set(tunnel, Some(now + Duration::from_millis(500))));
            (0..1_000).for_each(|tunnel| timers.set(tunnel, Some(now + Duration::from_millis(1))));
        }
        let entries = timers.store.len() + timers.ready.len() + timers.far.len();
        // Those that were set in the last half second are still there.
        assert!(entries <= 52 * 1_000, "{entries}");
    }

    #[test]
    fn one_that_no_tunnel_has_is_not_set() {
        let mut timers = Timers::default();
        timers.set(3, Some(Time::ZERO));
        assert_eq!((timers.earliest(), timers.pop(NEVER)), (None, None));
    }
}
