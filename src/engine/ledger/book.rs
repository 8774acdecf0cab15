//! The entries, and what may be begun, resumed, reserved.

use std::collections::BTreeMap;

use super::{Begin, BeginError, Begun, Entry, Fingerprint, Identity, KEPT, Kind, Lost, WallTime};

/// The record of one machine. A value: what follows from a write that failed is to keep the old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Book {
    pub(super) identity: Identity,
    /// Counts the writes; tells an old copy from the latest.
    pub(super) generation: u64,
    /// In the order in which they were begun.
    pub(super) entries: Vec<Entry>,
    /// Keys whose line was damaged, and its number in the file in which it was found. They stay in the
    /// record, or they would be taken for new ones after the next write.
    pub(super) damaged: BTreeMap<Fingerprint, usize>,
    /// Whether it is known of all lines ever lost which keys they were about.
    pub(super) whole: bool,
    /// Whether damage was found that no earlier reading had found.
    pub(super) newly_damaged: bool,
    index: BTreeMap<Fingerprint, usize>,
    changed: bool,
}

impl Book {
    /// The record of a machine on which nothing was ever begun.
    #[must_use]
    pub const fn new(identity: Identity) -> Self {
        Self {
            identity,
            generation: 0,
            entries: Vec::new(),
            damaged: BTreeMap::new(),
            whole: true,
            newly_damaged: false,
            index: BTreeMap::new(),
            changed: false,
        }
    }

    /// The record that follows one that is lost: nobody knows what was begun before.
    #[must_use]
    pub fn after_loss(identity: Identity) -> Self {
        Self { whole: false, ..Self::new(identity) }
    }

    /// The number of the write that this came from.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether damage was found in the text that this was read from, other than what an earlier
    /// reading had found.
    #[must_use]
    pub const fn newly_damaged(&self) -> bool {
        self.newly_damaged
    }

    /// Whether there is something to be written since [`Book::draft`].
    #[must_use]
    pub const fn changed(&self) -> bool {
        self.changed
    }

    /// Everything that is known, in the order in which it was begun.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A copy to be changed and written.
    #[must_use]
    pub fn draft(&self) -> Self {
        Self { changed: false, newly_damaged: false, ..self.clone() }
    }

    /// Every number below has perhaps been used with these keys.
    ///
    /// # Errors
    /// [`Lost::Missing`] or [`Lost::Damaged`].
    pub fn mark(&self, fingerprint: Fingerprint) -> Result<u64, Lost> {
        match self.find(fingerprint) {
            Some(entry) => Ok(entry.mark),
            None => Err(self.damage(fingerprint).unwrap_or(Lost::Missing)),
        }
    }

    fn find(&self, fingerprint: Fingerprint) -> Option<&Entry> {
        self.index.get(&fingerprint).and_then(|&at| self.entries.get(at))
    }

    fn damage(&self, fingerprint: Fingerprint) -> Option<Lost> {
        self.damaged.get(&fingerprint).map(|&line| Lost::Damaged { line })
    }

    /// Begins an association. A static one because an operator says so: whatever was lost, and anew
    /// if there is an entry, whose mark is kept if it is the higher one. An installed one by itself:
    /// once, and not if its keys may be among what was lost.
    ///
    /// # Errors
    /// [`BeginError::UsedBefore`], [`BeginError::Lost`].
    pub fn begin(&mut self, begin: &Begin, wall: WallTime) -> Result<Begun, BeginError> {
        let known = match (begin.kind, self.find(begin.fingerprint)) {
            (Kind::Static, Some(entry)) if entry.kind == Kind::Static => entry.mark,
            (_, Some(Entry { tunnel, written, .. })) => {
                return Err(BeginError::UsedBefore { tunnel: tunnel.clone(), written: *written });
            }
            (Kind::Static, None) => 0,
            (Kind::Installed, None) => self.unheard_of(begin.fingerprint).map_err(BeginError::Lost)?,
        };
        let wanted = begin.first.max(1);
        let first = wanted.max(known);
        let mark = first.saturating_add(begin.mark.saturating_sub(wanted));
        let Begin { fingerprint, spi, kind, ref tunnel, .. } = *begin;
        self.damaged.remove(&fingerprint);
        self.put(Entry { fingerprint, spi, kind, mark, written: wall, tunnel: word(tunnel) });
        self.changed = true;
        Ok(Begun { first, mark })
    }

    /// That nothing was ever used with these keys: the mark 0.
    fn unheard_of(&self, fingerprint: Fingerprint) -> Result<u64, Lost> {
        let incomplete = (!self.whole).then_some(Lost::Incomplete);
        self.damage(fingerprint).or(incomplete).map_or(Ok(0), Err)
    }

    /// Takes an entry in, and says whether it is the first of these keys; of two the higher mark stays.
    pub(super) fn put(&mut self, mut entry: Entry) -> bool {
        let present = self.index.get(&entry.fingerprint).and_then(|&at| self.entries.get_mut(at));
        let Some(present) = present else {
            self.index.insert(entry.fingerprint, self.entries.len());
            self.entries.push(entry);
            return true;
        };
        entry.mark = entry.mark.max(present.mark);
        *present = entry;
        false
    }

    /// Raises the mark of an association; it never goes down.
    ///
    /// # Errors
    /// As [`Book::mark`], if it was never begun.
    pub fn raise(&mut self, fingerprint: Fingerprint, mark: u64, wall: WallTime) -> Result<(), Lost> {
        let found = self.index.get(&fingerprint).and_then(|&at| self.entries.get_mut(at));
        let Some(entry) = found else { return self.mark(fingerprint).map(drop) };
        if entry.mark < mark {
            (entry.mark, entry.written) = (mark, wall);
            self.changed = true;
        }
        Ok(())
    }

    /// An operator says that no keys from before a loss will be installed again: installed
    /// associations begin by themselves again.
    pub fn accept_gaps(&mut self) {
        self.changed |= !self.whole || !self.damaged.is_empty();
        self.damaged.clear();
        self.whole = true;
    }

    /// Makes this the record of the given generation, on a machine of which perhaps more is known
    /// now, and drops what is too old to be kept.
    pub fn finish(&mut self, generation: u64, here: Identity) {
        self.generation = generation;
        self.identity = here.and(self.identity);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut keep: Vec<bool> = Vec::with_capacity(self.entries.len());
        for entry in self.entries.iter().rev() {
            keep.push(match entry.kind {
                Kind::Static => true,
                Kind::Installed => {
                    let count = counts.entry(&entry.tunnel).or_default();
                    *count += 1;
                    *count <= KEPT
                }
            });
        }
        if keep.contains(&false) {
            self.entries.retain(|_| keep.pop().unwrap_or(true));
            self.index = (0..).zip(&self.entries).map(|(at, entry)| (entry.fingerprint, at)).collect();
        }
    }
}

/// A tunnel's name as one word of a line: names have such letters only, this makes sure.
fn word(tunnel: &str) -> String {
    let letter = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    let word: String = tunnel.chars().map(letter).take(64).collect();
    if word.is_empty() { "?".to_owned() } else { word }
}
