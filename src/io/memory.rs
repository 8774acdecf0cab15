//! What is remembered of the tunnels, on the disk. What it says is [`crate::engine::memory`]'s.
//!
//! In the state folder:
//!
//! | name | is |
//! | --- | --- |
//! | `states`, `windows` | what was known when they were written |
//! | `memory.lock` | held by the daemon that writes them |
//! | `states.new`, `windows.new` | the next ones on their way; left behind by a crash they mean nothing |
//! | `states.damaged-1`, … | files that could not be read, for people; no more than a few |
//!
//! A thread writes, so that probing never waits for a disk.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::fcntl::Flock;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::clock::Clock;
use super::durable::{make, read, replace};
use super::lock;
use crate::engine::memory::{self, Kind, Memory, Preface};

/// Files that could not be read are kept, but no more than so many of a kind.
const SET_ASIDE: u32 = 4;

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which.
    pub kind: Kind,
    /// How long it took, and how many bytes; or why it is not written.
    pub outcome: Result<(Duration, usize), String>,
}

/// The way to the thread that writes.
#[derive(Debug)]
pub struct Writer {
    files: Sender<memory::File>,
    reports: UnboundedReceiver<Report>,
    thread: JoinHandle<()>,
}

/// Makes the folder if it is missing.
///
/// # Errors
/// It cannot be made.
pub fn prepare(folder: &Path) -> io::Result<()> {
    make(folder)
}

/// Reads what is remembered in a folder, which is made if it is missing, and starts the thread that writes
/// there. What could not be read is set aside, and told: it keeps nobody from starting.
///
/// # Errors
/// The folder cannot be used, or another daemon uses it.
pub fn open(folder: &Path) -> io::Result<(Memory, Vec<String>, Writer)> {
    make(folder)?;
    let taken = format!("another adit already remembers its tunnels in {}", folder.display());
    let lock = lock::await_end(&folder.join("memory.lock"), "the memory's lock", &taken)?;
    let mut complaints = Vec::new();
    let states = load(folder, Kind::States, &mut complaints);
    let windows = load(folder, Kind::Windows, &mut complaints);
    let (files, inbox) = mpsc::channel();
    let (tell, reports) = unbounded_channel();
    let desk = Desk { folder: folder.to_owned(), _lock: lock };
    let thread = thread::Builder::new().name("memory".to_owned()).spawn(move || desk.serve(&inbox, &tell))?;
    Ok((Memory { states, windows }, complaints, Writer { files, reports, thread }))
}

fn load<T: DeserializeOwned>(folder: &Path, kind: Kind, complaints: &mut Vec<String>) -> Option<(Preface, Vec<T>)> {
    let path = folder.join(kind.name());
    let why = match read(&path) {
        Ok(None) => return None,
        Ok(Some(bytes)) => match memory::decode(kind, &bytes) {
            Ok(read) => return Some(read),
            Err(damage) => damage.to_string(),
        },
        Err(error) => error.to_string(),
    };
    let aside = match set_aside(&path) {
        Ok(copy) => format!("it is kept as {}", copy.display()),
        Err(error) => format!("it could not be set aside: {error}"),
    };
    complaints.push(format!("{} cannot be read: {why}; {aside}, and what it held is forgotten", path.display()));
    None
}

/// Another name for a file, until somebody has looked at it.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let name = |number| path.with_extension(format!("damaged-{number}"));
    let free = (1..SET_ASIDE).map(name).find(|copy| fs::symlink_metadata(copy).is_err());
    let copy = free.unwrap_or_else(|| name(SET_ASIDE));
    fs::rename(path, &copy)?;
    Ok(copy)
}

impl Writer {
    /// Asks for a file to be written; a [`Report`] follows.
    pub fn write(&self, file: memory::File) {
        // Without the thread there are no reports any more, which says it.
        let _ = self.files.send(file);
    }

    /// A report that is there.
    pub fn report(&mut self) -> Option<Report> {
        self.reports.try_recv().ok()
    }

    /// Waits until everything has been written. What could not be is said.
    #[must_use]
    pub fn stop(self) -> Vec<Report> {
        let Self { files, mut reports, thread } = self;
        drop(files);
        // It has nothing to say, even if it has panicked.
        let _ = thread.join();
        std::iter::from_fn(|| reports.try_recv().ok()).collect()
    }
}

struct Desk {
    folder: PathBuf,
    _lock: Flock<File>,
}

impl Desk {
    fn serve(&self, files: &Receiver<memory::File>, tell: &UnboundedSender<Report>) {
        let clock = Clock::start();
        for memory::File { kind, bytes } in files {
            let begin = clock.now();
            let written = replace(&self.folder, &self.folder.join(kind.name()), &bytes);
            let outcome = written.map(|()| (clock.now().since(begin), bytes.len())).map_err(|error| error.to_string());
            // The loop may have ended.
            let _ = tell.send(Report { kind, outcome });
        }
    }
}
