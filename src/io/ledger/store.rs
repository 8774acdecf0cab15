//! The file: its lock, and how it is replaced so that either the old one or the new one is there,
//! whole, whenever the power fails.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;

use crate::io::durable::{make, named, read, sync_folder, write};
use crate::io::lock;

/// The record's name in the folder.
pub(super) const NAME: &str = "sequence-numbers";

/// The record's file, ours for as long as this lives.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    /// Says that this process owns the file. In it stands the generation that was written last: a
    /// second place, so that an old copy of the file is known for one.
    lock: Flock<File>,
    /// What the file holds; `None` if there is none.
    held: Option<Vec<u8>>,
}

/// Why the file was not replaced, or perhaps not for good.
#[derive(Debug)]
pub(super) enum NotReplaced {
    /// It does not hold what it did.
    Changed,
    /// The system refused.
    Failed(io::Error),
}

impl From<io::Error> for NotReplaced {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Store {
    /// Makes the folder if it is missing, and takes the lock.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        make(folder).map_err(|error| named(error, "make the folder", folder))?;
        let taken = format!("another adit already keeps its sequence numbers in {}", folder.display());
        let lock = lock::await_end(&folder.join(NAME).with_extension("lock"), "the record's lock", &taken)?;
        Ok(Self { folder: folder.to_owned(), lock, held: None })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Reads the file; what it holds now is what it must hold when it is replaced.
    pub(super) fn load(&mut self) -> io::Result<Option<&[u8]>> {
        self.held = read(&self.path())?;
        Ok(self.held.as_deref())
    }

    /// The generation that was written last, by any run in this folder; 0 if that is not known.
    pub(super) fn written(&self) -> u64 {
        let mut text = String::new();
        // Only one more way to notice an old file: where there is none, there is none.
        let read = (&*self.lock).read_to_string(&mut text);
        read.ok().and_then(|_| text.trim_end().parse().ok()).unwrap_or(0)
    }

    /// Puts another text in the file's place. It is durable when this returns: the file's bytes, and
    /// its name in the folder.
    pub(super) fn replace(&mut self, text: String, generation: u64) -> Result<(), NotReplaced> {
        let path = self.path();
        if read(&path)? != self.held {
            return Err(NotReplaced::Changed);
        }
        let aside = path.with_extension("new");
        let swapped = write(&aside, text.as_bytes()).and_then(|()| fs::rename(&aside, &path));
        if let Err(error) = swapped {
            // What does not fit on the disk must not fill it.
            let _ = fs::remove_file(&aside);
            return Err(error.into());
        }
        self.held = Some(text.into_bytes());
        sync_folder(&self.folder)?;
        // Not made durable: it may only be too low, and then notices less.
        let _ = self.lock.write_all_at(format!("{generation:020}\n").as_bytes(), 0);
        Ok(())
    }

    /// Copies the file aside, for whoever wants to see what was in it; once.
    pub(super) fn set_aside(&self) -> io::Result<()> {
        let Some(held) = self.held.as_deref() else { return Ok(()) };
        let mut number = 1;
        loop {
            let copy = self.folder.join(format!("{NAME}.damaged-{number}"));
            match read(&copy)? {
                Some(there) if there == held => return Ok(()),
                Some(_) => number += 1,
                None => {
                    return write(&copy, held).inspect_err(|_| {
                        let _ = fs::remove_file(&copy);
                    });
                }
            }
        }
    }
}
