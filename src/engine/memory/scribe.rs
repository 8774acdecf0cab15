//! Writing all of it down, a little at each turn.

use serde::Serialize;

use super::file::{HEADER, seal};
use super::{Kind, Preface, Samples, Verdict};
use crate::engine::{Engine, Time};

/// Records that are written at one turn: some hundred microseconds' worth.
const SLICE: [usize; 2] = [512, 128];

/// A file on its way.
#[derive(Debug)]
pub struct Scribe {
    kind: Kind,
    /// The next tunnel.
    next: usize,
    bytes: Vec<u8>,
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
        let preface = Preface { saved: engine.wall(now).0, clean, next_event: engine.events().last() + 1 };
        let mut scribe = Self { kind, next: 0, bytes: vec![0; HEADER] };
        scribe.write(&preface);
        scribe
    }

    /// Writes the next records. The file, once it is whole.
    ///
    /// The ages of samples are counted from the beginning of the file, at `begun`.
    pub fn go_on(&mut self, engine: &Engine, begun: Time) -> Option<File> {
        let slice = SLICE[usize::from(self.kind == Kind::Windows)];
        let rest = engine.probers.get(self.next..).unwrap_or_default();
        for prober in rest.iter().take(slice) {
            match self.kind {
                Kind::States => self.write(&Verdict::of(prober)),
                Kind::Windows => self.write(&Samples::of(prober, begun)),
            }
        }
        self.next += slice;
        (rest.len() <= slice).then(|| File { kind: self.kind, bytes: seal(self.kind, std::mem::take(&mut self.bytes)) })
    }

    fn write(&mut self, record: &impl Serialize) {
        let bytes = std::mem::take(&mut self.bytes);
        // It cannot fail: there is always room, and every one of our records has a length.
        self.bytes = postcard::to_extend(record, bytes).unwrap_or_default();
    }
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

    /// A whole file at once: for an end, or a test.
    #[must_use]
    pub fn written(&self, kind: Kind, now: Time, clean: bool) -> File {
        let mut scribe = Scribe::begin(kind, self, now, clean);
        loop {
            if let Some(file) = scribe.go_on(self, now) {
                return file;
            }
        }
    }
}
