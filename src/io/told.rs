//! What people have been told, on the disk: the file `told` in the state folder, which one messenger writes.
//!
//! It begins with a mark and a sum of what follows. One that is damaged is set aside, and told of: then what happens
//! from now on is told, and nothing of before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use sha2::{Digest, Sha256};

use super::durable::{self, Aside};
use super::lock;
use crate::notice::Note;

/// What it begins with, and the version of what follows.
const MARK: &[u8; 8] = b"adittld2";
/// Bytes of the sum.
const SUM: usize = 32;
/// More is none of ours: a hundred thousand tunnels make some ten MB.
const LONGEST: u64 = 1 << 28;

/// The file, ours for as long as this lives.
#[derive(Debug)]
pub struct Told {
    path: PathBuf,
    _lock: Flock<fs::File>,
}

impl Told {
    /// Takes the file of a folder, which is made if it is missing; waits a little for a messenger that ends.
    ///
    /// # Errors
    /// Another messenger has it; the folder cannot be written in.
    pub fn open(folder: &Path) -> io::Result<Self> {
        durable::make(folder).map_err(|error| durable::named(error, "make the folder", folder))?;
        let taken = format!("another adit tells people by what is in {}", folder.display());
        let lock = lock::await_end(&folder.join("told.lock"), "the lock of what was told", &taken)?;
        Ok(Self { path: folder.join("told"), _lock: lock })
    }

    /// What it says; and why not, if it cannot be read.
    #[must_use]
    pub fn read(&self) -> (Option<Note>, Option<String>) {
        match self.read_whole() {
            Ok(note) => (note, None),
            Err(why) => {
                let aside = self.path.with_extension("damaged");
                let path = self.path.display();
                let kept = match fs::rename(&self.path, &aside) {
                    Ok(()) => format!("it is kept as {}", aside.display()),
                    Err(error) => format!("it could not be set aside: {error}"),
                };
                (None, Some(format!("{path} cannot be read: {why}; {kept}, and what was told before is forgotten")))
            }
        }
    }

    fn read_whole(&self) -> Result<Option<Note>, String> {
        let named = |error: io::Error| error.to_string();
        let Some((_, length)) = durable::open(&self.path).map_err(named)? else { return Ok(None) };
        if length > LONGEST {
            return Err("it is longer than any".to_owned());
        }
        let bytes = durable::read(&self.path).map_err(named)?.unwrap_or_default();
        let body = bytes.strip_prefix(MARK).ok_or("it is of another version, or none of ours")?;
        let (sum, body) = body.split_at_checked(SUM).ok_or("it is cut off")?;
        if Sha256::digest(body)[..] != *sum {
            return Err("it is damaged".to_owned());
        }
        postcard::from_bytes(body).map(Some).map_err(|error| error.to_string())
    }

    /// Writes it anew: it says the old or the new, whenever the power fails.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, note: &Note) -> io::Result<()> {
        let body = postcard::to_stdvec(note).map_err(io::Error::other)?;
        let mut aside = Aside::begin(self.path.clone())?;
        aside.add(&[0; MARK.len() + SUM])?;
        aside.add(&body)?;
        aside.put_in_place(&[&MARK[..], &Sha256::digest(&body)[..]].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Time, WallTime};
    use crate::notice::{Desk, Now};

    fn note() -> Note {
        let now = Now { time: Time::ZERO, wall: WallTime(1) };
        Desk::new("host".to_owned(), Vec::new(), WallTime(0), None, now).note(now)
    }

    #[test]
    fn what_was_written_is_read_and_what_is_damaged_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let told = Told::open(folder.path()).unwrap();
        assert_eq!(told.read(), (None, None));
        told.write(&note()).unwrap();
        assert_eq!(told.read(), (Some(note()), None));
        let path = folder.path().join("told");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 1;
            fs::write(&path, &broken).unwrap();
            let (note, why) = told.read();
            assert_eq!(note, None, "byte {at}");
            assert!(why.unwrap().contains("is kept as"));
            assert!(!path.exists());
        }
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(told.read().0.is_none());
        }
    }

    #[test]
    fn two_messengers_never_write_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = Told::open(folder.path()).unwrap();
        let second = Told::open(folder.path()).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        Told::open(folder.path()).unwrap();
    }
}
