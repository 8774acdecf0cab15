//! The recording: every event as a line, samples among them, handed to a thread that writes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::event::Ring;
use crate::engine::{Engine, Time};
use crate::io::logbook::{Logbook, Sink};

/// Bytes that may wait for the disk: half a minute of two thousand samples a second.
const ROOM: usize = 8 << 20;
/// Lines are handed over in pieces of about so many bytes.
const PIECE: usize = 64 << 10;
/// How long an end waits for the disk.
pub(super) const FAREWELL: Duration = Duration::from_secs(4);

pub(super) struct Recording {
    book: Arc<Logbook>,
    /// How many events have been left out since the last one that was not.
    left_out: u64,
}

/// Opens what is recorded to. Probing is worth more than its recording: what cannot be opened is only told.
pub(super) fn open(path: &Path) -> Option<Sink> {
    match Sink::file(path) {
        Ok(sink) => Some(sink),
        Err(error) => {
            tracing::error!("cannot record to {}: {error}; nothing is recorded until a restart", path.display());
            None
        }
    }
}

impl Recording {
    pub(super) fn begin(sink: Sink) -> Self {
        Self::with(sink, ROOM)
    }

    fn with(sink: Sink, room: usize) -> Self {
        let book = Logbook::new("recording", sink, room, gap);
        book.begin();
        Self { book, left_out: 0 }
    }

    /// Hands over the events after `since`; what is left of the recording, if it has not failed.
    pub(super) fn tell(mut self, engine: &mut Engine, now: Time, since: u64) -> Option<Self> {
        let begins = match self.hand_over(engine.events(), since) {
            Ok(begins) => begins,
            Err(error) => {
                failed(&error);
                return None;
            }
        };
        if begins {
            engine.handle_unrecorded(now, "the recording's disk does not keep up: events are left out");
        }
        Some(self)
    }

    /// Whether events begin to be left out.
    fn hand_over(&mut self, events: &Ring, since: u64) -> io::Result<bool> {
        if let Some(error) = self.book.failure() {
            return Err(error);
        }
        self.book.lose(events.missed(since));
        let (mut lines, mut count, mut begins) = (Vec::new(), 0, false);
        for event in events.after(since) {
            serde_json::to_writer(&mut lines, event)?;
            lines.push(b'\n');
            count += 1;
            if lines.len() >= PIECE {
                begins |= self.put(std::mem::take(&mut lines), std::mem::take(&mut count));
            }
        }
        Ok(begins | self.put(lines, count))
    }

    fn put(&mut self, lines: Vec<u8>, count: u64) -> bool {
        if count == 0 {
            return false;
        }
        let before = std::mem::replace(&mut self.left_out, self.book.put_lines(lines, count));
        if before > 0 && self.left_out == 0 {
            tracing::warn!("the recording goes on: {before} events are left out of it");
        }
        before == 0 && self.left_out > 0
    }

    /// The end: nothing happens any more.
    pub(super) fn stop(self, patience: Duration) {
        let unwritten = self.book.finish(patience);
        match self.book.failure() {
            Some(error) => failed(&error),
            None if unwritten > 0 => {
                tracing::error!("the recording lacks the last {unwritten} events: its disk takes too long");
            }
            None if self.left_out > 0 => {
                tracing::warn!("{} of the last events are left out of the recording", self.left_out);
            }
            None => {}
        }
    }
}

/// A full disk, say.
fn failed(error: &io::Error) {
    tracing::error!(%error, "the recording has failed and ends here");
}

/// What stands in the place of events that are left out; `adit replay` warns of it.
fn gap(missed: u64) -> Vec<u8> {
    format!("{{\"kind\":\"gap\",\"missed\":{missed}}}\n").into_bytes()
}

#[cfg(test)]
mod tests;
