//! Writing all of it down, a little at each turn.

use serde::Serialize;

use super::file::Seal;
use super::{Kind, Preface, Samples, Verdict};
use crate::engine::{Engine, Time};

/// Bytes that are written at one turn, or a few more: some hundred microseconds' worth, with many small
/// records or one that is large.
const PIECE: usize = 48 << 10;

/// A file on its way.
#[derive(Debug)]
pub struct Scribe {
    kind: Kind,
    begun: Time,
    /// What stands before the records, until it has been given.
    preface: Option<Preface>,
    /// The next tunnel.
    next: usize,
}

/// The next bytes of a file, after its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// They.
    pub bytes: Vec<u8>,
    /// Whether there are no more.
    pub is_last: bool,
}

/// A whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// What it holds.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Scribe {
    /// Begins a file.
    #[must_use]
    pub fn begin(kind: Kind, engine: &Engine, now: Time, clean: bool) -> Self {
        Self { kind, begun: now, preface: Some(Preface::now(engine, now, clean)), next: 0 }
    }

    /// Writes the next records.
    pub fn go_on(&mut self, engine: &Engine, now: Time) -> Piece {
        let mut bytes = Vec::with_capacity(PIECE + PIECE / 4);
        if let Some(preface) = self.preface.take() {
            bytes = written(&preface, bytes);
        }
        let rest = engine.probers.get(self.next..).unwrap_or_default();
        for prober in rest {
            if bytes.len() >= PIECE {
                return Piece { bytes, is_last: false };
            }
            bytes = match self.kind {
                Kind::States => written(&Verdict::of(prober, self.begun, now), bytes),
                Kind::Windows => written(&Samples::of(prober, self.begun, now), bytes),
            };
            self.next += 1;
        }
        Piece { bytes, is_last: true }
    }
}

/// These bytes and a record.
fn written(record: &impl Serialize, bytes: Vec<u8>) -> Vec<u8> {
    // It cannot fail: there is always room, and every one of our records has a length.
    postcard::to_extend(record, bytes).unwrap_or_default()
}

impl Engine {
    /// What is known cannot be written down.
    pub fn handle_forgetful(&mut self, now: Time, why: &str) {
        self.fault(now, None, "memory", &format!("what is known of the tunnels is not written down: {why}"));
    }

    /// A file of what was known cannot be read, and what it held is forgotten.
    pub fn handle_forgotten(&mut self, now: Time, why: &str) {
        self.fault(now, None, "memory-lost", why);
    }

    /// A whole file at once: for a test.
    #[must_use]
    pub fn written(&self, kind: Kind, now: Time, clean: bool) -> File {
        let mut scribe = Scribe::begin(kind, self, now, clean);
        let (mut seal, mut content) = (Seal::default(), Vec::new());
        loop {
            let Piece { bytes, is_last } = scribe.go_on(self, now);
            seal.add(&bytes);
            content.extend(bytes);
            if is_last {
                return File { kind, bytes: [&seal.header(kind)[..], &content].concat() };
            }
        }
    }
}
