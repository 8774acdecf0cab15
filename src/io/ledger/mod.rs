//! The durable record of ESP sequence numbers, on disk. What it says is [`crate::engine::ledger`]'s.
//!
//! | file | holds |
//! | --- | --- |
//! | `store` | the file: its lock, its replacement |
//! | `clerk` | the thread that writes, so that probing never waits for a disk |
//!
//! In the state folder:
//!
//! | name | is |
//! | --- | --- |
//! | `sequence-numbers` | the record |
//! | `sequence-numbers.lock` | held by the daemon that owns it; holds the generation that was written last |
//! | `sequence-numbers.new` | the next record on its way; left behind by a crash it means nothing |
//! | `sequence-numbers.damaged-1`, … | records that were damaged or another machine's, for people |
//!
//! Whoever removes the record on purpose removes its lock too, with adit stopped; the record alone
//! counts as lost.

mod clerk;
mod store;

use std::io;
use std::path::Path;

pub use clerk::{Clerk, Recorder, Report, spawn};

use super::clock::Clock;
use crate::engine::WallTime;
use crate::engine::ledger::{Begin, BeginError, Begun, Book, Entry, Fingerprint, Identity, Kind, Lost, NotReserved};
use store::{NotReplaced, Store};

/// The identity of the machine that this runs on, as far as this user may know it.
#[must_use]
pub fn this_machine() -> Identity {
    let read = |path| std::fs::read_to_string(path).ok();
    Identity::new(read("/etc/machine-id").as_deref(), read("/sys/class/dmi/id/product_uuid").as_deref())
}

/// The record and its file, of which there is one owner.
#[derive(Debug)]
pub struct Ledger {
    store: Store,
    here: Identity,
    clock: Clock,
    state: Result<Book, Lost>,
    /// The highest that was written or tried, here or before.
    generation: u64,
    /// The file is to be copied aside before it is replaced.
    set_aside: bool,
}

impl Ledger {
    /// Opens the record in a folder, which is made if it is missing, on the machine `here`
    /// ([`this_machine`]). That the record is lost is no error here: [`Ledger::mark`] says it of each
    /// association.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another process owns the record; a folder that cannot be made,
    /// or in which nothing can be written.
    pub fn open(state_dir: &Path, here: Identity) -> io::Result<Self> {
        let mut store = Store::open(state_dir)?;
        let written = store.written();
        let state = match store.load() {
            Ok(None) if written == 0 => Ok(Book::new(here)),
            Ok(None) => Err(Lost::Missing),
            Ok(Some(bytes)) => Book::parse(bytes, here).and_then(|book| match book.generation() {
                found if found < written => Err(Lost::Older { found, written }),
                _ => Ok(book),
            }),
            Err(error) => Err(Lost::Unreadable(error.to_string())),
        };
        let generation = state.as_ref().map_or(0, Book::generation).max(written);
        let set_aside = state.as_ref().map_or(true, Book::newly_damaged);
        Ok(Self { store, here, clock: Clock::start(), state, generation, set_aside })
    }

    /// Every number below has perhaps been used with these keys.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn mark(&self, fingerprint: Fingerprint) -> Result<u64, Lost> {
        self.state.as_ref().map_err(Clone::clone)?.mark(fingerprint)
    }

    /// Everything that is known.
    ///
    /// # Errors
    /// Why nothing is.
    pub fn entries(&self) -> Result<&[Entry], Lost> {
        self.state.as_ref().map(Book::entries).map_err(Clone::clone)
    }

    /// Begins an association ([`Book::begin`]), durably. A static one, which an operator vouches for,
    /// begins even where the record is lost; what is left of that is copied aside.
    ///
    /// # Errors
    /// [`BeginError`]; numbers must not be used then.
    pub fn begin(&mut self, begin: &Begin) -> Result<Begun, BeginError> {
        self.commit(begin.kind == Kind::Static, |book, wall| book.begin(begin, wall))?
    }

    /// Raises marks, durably and in one write, all or none.
    ///
    /// # Errors
    /// [`NotReserved`]; numbers up to the marks must not be used then.
    pub fn reserve(&mut self, marks: &[(Fingerprint, u64)]) -> Result<(), NotReserved> {
        let unknown = marks.iter().find_map(|&(fingerprint, _)| self.mark(fingerprint).err());
        unknown.map_or(Ok(()), |lost| Err(NotReserved::Lost(lost)))?;
        self.commit(false, |book, wall| {
            marks.iter().try_for_each(|&(fingerprint, mark)| book.raise(fingerprint, mark, wall))
        })?
        .map_err(NotReserved::Lost)
    }

    /// An operator says that no keys from before a loss will be installed again ([`Book::accept_gaps`]).
    ///
    /// # Errors
    /// As [`Ledger::reserve`].
    pub fn accept_gaps(&mut self) -> Result<(), NotReserved> {
        self.commit(true, |book, _| book.accept_gaps())
    }

    /// Changes the record, and returns when the change is durable. If it fails, nothing has changed;
    /// but numbers may then be recorded as used that were not.
    ///
    /// With `anew`, a record that is lost is replaced.
    fn commit<T>(&mut self, anew: bool, change: impl FnOnce(&mut Book, WallTime) -> T) -> Result<T, NotReserved> {
        let mut draft = match &self.state {
            Ok(book) => book.draft(),
            Err(lost) if anew && lost.may_be_replaced() => {
                // Somebody may have tidied up since: what is there now is what is set aside.
                self.store.load().map_err(|error| NotReserved::Unwritten(error.to_string()))?;
                Book::after_loss(self.here)
            }
            Err(lost) => return Err(NotReserved::Lost(lost.clone())),
        };
        let answer = change(&mut draft, self.clock.wall());
        if draft.changed() {
            self.write(draft)?;
        }
        Ok(answer)
    }

    fn write(&mut self, mut draft: Book) -> Result<(), NotReserved> {
        let unwritten = |error: io::Error| NotReserved::Unwritten(error.to_string());
        if self.set_aside {
            self.store.set_aside().map_err(unwritten)?;
            self.set_aside = false;
        }
        // Even if this fails, there must not be another record of this number.
        self.generation += 1;
        draft.finish(self.generation, self.here);
        match self.store.replace(draft.render(), self.generation) {
            Ok(()) => {
                self.state = Ok(draft);
                Ok(())
            }
            Err(NotReplaced::Failed(error)) => Err(unwritten(error)),
            Err(NotReplaced::Changed) => {
                self.state = Err(Lost::ChangedUnderUs);
                Err(NotReserved::Lost(Lost::ChangedUnderUs))
            }
        }
    }
}
