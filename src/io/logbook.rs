//! The log's way out: whoever has something to say never waits for whoever takes it.
//!
//! A journal that hangs on a bad disk, or a terminal whose output was stopped, would otherwise stop the loop,
//! and that looks as if tunnels were sick. So entries wait in a queue, a thread writes them, and what does not
//! fit is counted and told of.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{journal, letters};

/// Entries that may wait: as many as there are events in the engine's ring.
const WAITING: usize = 4096;
/// How long the end may wait for them to be written.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where entries go.
#[derive(Debug)]
pub enum Sink {
    /// Lines on standard error.
    StandardError,
    /// The journal.
    Journal(UnixDatagram),
    /// The journal, by way of another process: see [`journal::relay`].
    Relay(OwnedFd),
}

impl Sink {
    fn write(&self, entry: &[u8]) -> io::Result<()> {
        match self {
            Self::StandardError => io::stderr().write_all(entry),
            Self::Journal(socket) => journal::send(socket, entry),
            Self::Relay(line) => letters::note(line, entry),
        }
    }
}

/// The entries that are on their way.
#[derive(Debug)]
pub struct Logbook {
    entries: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
    /// Whoever will write, until it does.
    desk: Mutex<Option<Desk>>,
}

#[derive(Debug)]
enum Entry {
    Text(Vec<u8>),
    /// To be answered when all before it has been written.
    Mark(Sender<()>),
}

impl Logbook {
    /// A book that nobody writes yet: a process that will be confined must have no thread before. `tell` makes
    /// an entry of how many are lost.
    #[must_use]
    pub fn new(sink: Sink, tell: fn(u64) -> Vec<u8>) -> Arc<Self> {
        let (entries, inbox) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let desk = Desk { inbox, lost: Arc::clone(&lost), sink, tell };
        Arc::new(Self { entries, lost, desk: Mutex::new(Some(desk)) })
    }

    /// Puts an entry down, or counts it as lost.
    pub fn put(&self, entry: Vec<u8>) {
        if self.entries.try_send(Entry::Text(entry)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Starts the thread that writes, if it has not been started.
    pub fn begin(&self) {
        let desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Without room for a thread there is no log, and nobody who could be told.
        let _ = desk.map(|desk| thread::Builder::new().name("log".to_owned()).spawn(move || desk.serve()));
    }

    /// Waits until everything has been written, but not for long.
    pub fn finish(&self) {
        self.begin();
        let (written, wait) = channel();
        if self.entries.try_send(Entry::Mark(written)).is_ok() {
            // Too late, or nobody writes: either way this was the end.
            let _ = wait.recv_timeout(FAREWELL);
        }
    }
}

#[derive(Debug)]
struct Desk {
    inbox: Receiver<Entry>,
    lost: Arc<AtomicU64>,
    sink: Sink,
    tell: fn(u64) -> Vec<u8>,
}

impl Desk {
    fn serve(self) {
        for entry in &self.inbox {
            match entry {
                Entry::Text(entry) => self.write(&entry),
                // It may not have waited.
                Entry::Mark(written) => drop(written.send(())),
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 && self.sink.write(&(self.tell)(lost)).is_err() {
                self.lost.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }

    fn write(&self, entry: &[u8]) {
        if self.sink.write(entry).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::Clock;
    use super::*;

    fn told(lost: u64) -> Vec<u8> {
        format!("{lost} lost").into_bytes()
    }

    fn next(line: &OwnedFd) -> String {
        let mut buffer = [0; 64];
        let length = letters::read_note(line, &mut buffer).unwrap().unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn entries_are_written_in_their_order_and_the_end_waits_for_them() {
        let (ours, theirs) = letters::line().unwrap();
        let book = Logbook::new(Sink::Relay(ours), told);
        book.put(b"before anybody writes".to_vec());
        book.begin();
        book.put(b"after".to_vec());
        book.finish();
        assert_eq!([next(&theirs), next(&theirs)], ["before anybody writes", "after"]);
    }

    #[test]
    fn whoever_does_not_take_them_holds_nobody_up_and_is_told_how_many_are_lost() {
        let (ours, theirs) = letters::line().unwrap();
        let book = Logbook::new(Sink::Relay(ours), told);
        book.begin();
        let begin = Clock::start();
        let many = 3 * u64::try_from(WAITING).unwrap();
        (0..many).for_each(|number| book.put(number.to_string().into_bytes()));
        assert!(begin.age() < Duration::from_secs(5), "it waits for its reader");
        let begin = Clock::start();
        book.finish();
        assert!(begin.age() < 2 * FAREWELL, "even the end");
        let (mut read, mut lost) = (0, 0);
        while read + lost < many {
            match next(&theirs).strip_suffix(" lost") {
                Some(number) => lost += number.parse::<u64>().unwrap(),
                None => read += 1,
            }
        }
        assert!(lost > 0 && read >= u64::try_from(WAITING).unwrap(), "{read} read, {lost} lost");
    }

    #[test]
    fn a_sink_that_is_gone_is_no_end() {
        let (ours, theirs) = letters::line().unwrap();
        drop(theirs);
        let book = Logbook::new(Sink::Relay(ours), told);
        book.put(b"to nobody".to_vec());
        book.finish();
        book.put(b"to nobody".to_vec());
        book.finish();
        assert_eq!(book.lost.load(Ordering::Relaxed), 2);
    }
}
