//! The way out of the log, and of the recording: whoever has something to say never waits for whoever takes it.
//!
//! A journal that hangs on a bad disk, a terminal whose output was stopped, or a recording on a disk that does
//! not answer would otherwise stop the loop, and that looks as if tunnels were sick. So entries wait in a
//! queue, a thread writes them, and what does not fit is counted, and told of in its place.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

use super::{journal, letters};

/// What an entry takes beside its bytes.
const BESIDE: usize = 64;

/// Where entries go.
#[derive(Debug)]
pub enum Sink {
    /// Lines on standard error.
    StandardError,
    /// The journal.
    Journal(UnixDatagram),
    /// The journal, by way of another process: see [`journal::relay`].
    Relay(OwnedFd),
    /// Lines in a file. A failure is its end: after a line that was cut off, another one cannot be told from it.
    File(File),
}

impl Sink {
    /// A file that lines are appended to. Opening it waits for nobody: a FIFO must have its reader (fifo(7)).
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn file(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).custom_flags(libc::O_NONBLOCK).open(path);
        let mut file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO) => io::Error::new(error.kind(), "nobody reads it, or there is no such device"),
            _ => error,
        })?;
        // From here on it is the business of a thread that may wait.
        let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
        fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
        if ends_within_a_line(path, &file)? {
            file.write_all(b"\n")?;
        }
        Ok(Self::File(file))
    }

    fn write(&mut self, entry: &[u8]) -> io::Result<()> {
        match self {
            Self::StandardError => io::stderr().write_all(entry),
            Self::Journal(socket) => journal::send(socket, entry),
            Self::Relay(line) => letters::note(line, entry),
            Self::File(file) => file.write_all(entry),
        }
    }
}

/// Whether the last line of a file was cut off, by a full disk, say: what comes next would be part of it.
fn ends_within_a_line(path: &Path, file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, about.len() - 1)?;
    Ok(last != *b"\n")
}

/// The entries that are on their way.
#[derive(Debug)]
pub struct Logbook {
    shared: Arc<Shared>,
    /// Whoever will write, until it does.
    desk: Mutex<Option<Desk>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
    /// Bytes that may wait.
    room: usize,
}

#[derive(Debug, Default)]
struct Queue {
    entries: Vec<Entry>,
    /// What these take, and those that are being written.
    taken: usize,
    /// Lines in them that are not written yet.
    unwritten: u64,
    /// Lines that are lost since the last entry, which is to be told before the next one.
    lost: u64,
    /// Nothing is written any more, or will be after these.
    is_over: bool,
    failure: Option<io::Error>,
}

#[derive(Debug)]
enum Entry {
    /// So many lines.
    Text(Vec<u8>, u64),
    /// Here so many are lost.
    Lost(u64),
    /// To be answered when all before it has been written.
    Mark(Sender<()>),
}

impl Entry {
    const fn takes(&self) -> usize {
        match self {
            Self::Text(bytes, _) => bytes.capacity() + BESIDE,
            Self::Lost(_) | Self::Mark(_) => 0,
        }
    }
}

impl Queue {
    fn tell_of_lost(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.unwritten += lost;
            self.entries.push(Entry::Lost(lost));
        }
    }

    fn end(&mut self, failure: io::Error) {
        self.is_over = true;
        self.failure = Some(failure);
        // Whoever waits for a mark is told by this.
        self.entries.clear();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Logbook {
    /// A book that nobody writes yet: a process that will be confined must have no thread before. The thread
    /// has this name. Entries of so many bytes may wait, those that are being written among them; `tell` makes
    /// an entry of how many lines are lost.
    #[must_use]
    pub fn new(name: &'static str, sink: Sink, room: usize, tell: fn(u64) -> Vec<u8>) -> Arc<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), news: Condvar::new(), room });
        let desk = Desk { name, shared: Arc::clone(&shared), sink, tell, is_failing: false };
        Arc::new(Self { shared, desk: Mutex::new(Some(desk)) })
    }

    /// Puts an entry of one line down, or counts it as lost.
    pub fn put(&self, entry: Vec<u8>) {
        self.put_lines(entry, 1);
    }

    /// Puts an entry of so many lines down, or counts them as lost. How many are lost since the last one that
    /// was put down: 0 if this one was.
    pub fn put_lines(&self, entry: Vec<u8>, lines: u64) -> u64 {
        let mut queue = self.shared.queue();
        let entry = Entry::Text(entry, lines);
        if queue.is_over || entry.takes() > self.shared.room.saturating_sub(queue.taken) {
            queue.lost += lines;
            return queue.lost;
        }
        queue.tell_of_lost();
        queue.taken += entry.takes();
        queue.unwritten += lines;
        queue.entries.push(entry);
        drop(queue);
        self.shared.news.notify_one();
        0
    }

    /// Counts lines as lost that are no longer to be had: told of before the next one.
    pub fn lose(&self, lines: u64) {
        self.shared.queue().lost += lines;
    }

    /// Why nothing is written any more, said once.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        self.shared.queue().failure.take()
    }

    /// Starts the thread that writes, if it has not been started.
    pub fn begin(&self) {
        let desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = desk.map(|desk| thread::Builder::new().name(desk.name.to_owned()).spawn(move || desk.serve()));
        if let Some(Err(error)) = thread {
            self.shared.queue().end(error);
        }
    }

    /// Waits until everything has been written, but not for long; how many lines are not.
    pub fn finish(&self, patience: Duration) -> u64 {
        self.begin();
        let (written, wait) = channel();
        let mut queue = self.shared.queue();
        queue.tell_of_lost();
        // Where all is over it is dropped, and nobody waits.
        let mark = Some(Entry::Mark(written)).filter(|_| !queue.is_over);
        queue.entries.extend(mark);
        drop(queue);
        self.shared.news.notify_one();
        // Too late, or nobody writes: either way this was the end.
        let _ = wait.recv_timeout(patience);
        let queue = self.shared.queue();
        queue.unwritten + queue.lost
    }
}

impl Drop for Logbook {
    fn drop(&mut self) {
        self.shared.queue().is_over = true;
        self.shared.news.notify_one();
    }
}

#[derive(Debug)]
struct Desk {
    name: &'static str,
    shared: Arc<Shared>,
    sink: Sink,
    tell: fn(u64) -> Vec<u8>,
    /// Whether the last entry could not be written.
    is_failing: bool,
}

impl Desk {
    fn serve(mut self) {
        while let Some(entries) = self.take() {
            let taken: usize = entries.iter().map(Entry::takes).sum();
            let mut marks = Vec::new();
            for entry in entries {
                let outcome = match entry {
                    Entry::Text(bytes, lines) => self.write(&bytes, lines),
                    Entry::Lost(lines) => self.write(&(self.tell)(lines), lines),
                    Entry::Mark(written) => {
                        marks.push(written);
                        Ok(())
                    }
                };
                if let Err(error) = outcome {
                    return self.shared.queue().end(error);
                }
            }
            // All at once: where room is short, that makes few gaps, and long ones.
            self.shared.queue().taken -= taken;
            for written in marks {
                // Whoever waited finds the room that this made. It may not have waited.
                let _ = written.send(());
            }
        }
    }

    /// Waits for entries.
    fn take(&self) -> Option<Vec<Entry>> {
        let mut queue = self.shared.queue();
        loop {
            // Where nothing can be written, the next entry shows whether that goes on.
            if queue.entries.is_empty() && !self.is_failing {
                queue.tell_of_lost();
            }
            if !queue.entries.is_empty() {
                return Some(std::mem::take(&mut queue.entries));
            }
            if queue.is_over {
                return None;
            }
            queue = self.shared.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// # Errors
    /// That was the end.
    fn write(&mut self, bytes: &[u8], lines: u64) -> io::Result<()> {
        let outcome = self.sink.write(bytes);
        self.is_failing = outcome.is_err();
        match (outcome, &self.sink) {
            (Err(error), Sink::File(_)) => return Err(error),
            (Err(_), Sink::StandardError | Sink::Journal(_) | Sink::Relay(_)) => self.shared.queue().lost += lines,
            (Ok(()), _) => {}
        }
        self.shared.queue().unwritten -= lines;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
