//! The replay window (RFC 4303 section 3.4.3), and the upper half of an extended sequence number
//! (RFC 4303 appendix A2, RFC 4304).

/// The narrowest window, which every receiver must have (RFC 4303 section 3.4.3).
pub const NARROWEST: u32 = 32;
/// The widest window: what Linux takes.
pub const WIDEST: u32 = 4096;

/// Which sequence numbers were there: the highest, and a bit for each of the last `width`.
///
/// The bits lie in a ring of words, one word more than the width needs, so that going ahead clears
/// whole words and shifts nothing (RFC 6479).
#[derive(Debug, Clone)]
pub struct Window {
    width: u64,
    top: u64,
    words: Box<[u64]>,
}

/// Bits of a word.
const WORD: u64 = u64::BITS as u64;

impl Window {
    /// A window this wide, in sequence numbers; 0 takes every number at any time, and what is
    /// narrower or wider than can be is as narrow or wide as can be.
    #[must_use]
    pub fn new(width: u32) -> Self {
        let width = if width == 0 { 0 } else { width.clamp(NARROWEST, WIDEST) };
        let words = if width == 0 { 0 } else { width.div_ceil(u64::BITS) as usize + 1 };
        Self { width: width.into(), top: 0, words: vec![0; words].into() }
    }

    /// How wide it is; 0 where it takes every number.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "made of 32 bits")]
    pub const fn width(&self) -> u32 {
        self.width as u32
    }

    /// The highest number taken; 0 before the first, for an association begins with 1 (RFC 4303
    /// section 3.3.3).
    #[must_use]
    pub const fn top(&self) -> u64 {
        self.top
    }

    /// The whole of an extended number whose lower half arrived: RFC 4303 appendix A2.2.
    ///
    /// The number is either inside the window (without one: the highest) or less than 2³² ahead of
    /// its end. Before the first wrap there is no smaller upper half to belong to, so that a far end
    /// may begin with any number.
    #[must_use]
    pub const fn extend(&self, low: u32) -> u64 {
        let reach = self.width.saturating_sub(1);
        let (high, top_low) = super::halves(self.top);
        let (_, bottom) = super::halves(self.top.wrapping_sub(reach));
        let spans_two_rounds = (top_low as u64) < reach;
        let high = match (spans_two_rounds, low >= bottom) {
            (false, true) | (true, false) => high,
            (false, false) => high.wrapping_add(1),
            (true, true) => high.saturating_sub(1),
        };
        (high as u64) << 32 | low as u64
    }

    /// Whether this number may still be taken.
    #[must_use]
    pub fn is_new(&self, sequence: u64) -> bool {
        if self.width == 0 || sequence > self.top {
            return true;
        }
        // 0 was never sent: whoever sends it has wrapped.
        sequence != 0 && self.top - sequence < self.width && self.words[self.word(sequence)] & bit(sequence) == 0
    }

    /// Takes a number, and says whether it still could be. Only for a packet that has proven itself:
    /// what moves the window shuts others out.
    #[must_use]
    pub fn take(&mut self, sequence: u64) -> bool {
        let new = self.is_new(sequence);
        if new && self.width > 0 {
            self.clear_up_to(sequence);
            let at = self.word(sequence);
            self.words[at] |= bit(sequence);
        }
        self.top = self.top.max(sequence);
        new
    }

    /// Empties the words that the window comes to with this number: all of them, if it goes further
    /// than they reach.
    fn clear_up_to(&mut self, sequence: u64) {
        let (from, to) = (self.top / WORD, sequence / WORD);
        let passed = to.saturating_sub(from).min(self.words.len() as u64);
        for back in 0..passed {
            let at = self.word((to - back) * WORD);
            self.words[at] = 0;
        }
    }

    fn word(&self, sequence: u64) -> usize {
        (sequence / WORD % self.words.len() as u64) as usize
    }
}

const fn bit(sequence: u64) -> u64 {
    1 << (sequence % WORD)
}
