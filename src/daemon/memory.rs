//! When what is known of the tunnels is written down.
//!
//! Verdicts and drains whenever one has changed, at once if the disk has had its rest, so at most once a
//! second; samples now and then. Each turn of the loop writes down a few tunnels ([`Scribe`]), and a thread
//! brings the whole file to the disk.

use std::path::Path;
use std::time::Duration;

use crate::engine::event::Kind as Told;
use crate::engine::memory::{Kind, Memory as Remembered, Scribe};
use crate::engine::{Engine, Time};
use crate::io::memory::{self, Report, Writer};

/// Between two files of verdicts, at least.
const STATES: Duration = Duration::from_secs(1);
/// Between two files of samples, at least.
const WINDOWS: Duration = Duration::from_secs(10);
/// And a rest of so many times what the last file took, so that the disk is busy a tenth of the time.
const REST: u32 = 9;
/// And as long as it takes to stay below so many bytes a second: a disk wears.
const BYTES: u32 = 1_000_000;
/// After a failure.
const AGAIN: Duration = Duration::from_secs(10);
/// While a file is on its way there is a turn so soon.
const SOON: Duration = Duration::from_millis(1);

pub(super) struct Memory {
    writer: Writer,
    /// The file on its way, and since when.
    scribe: Option<(Scribe, Time)>,
    /// Whether the thread has one that it has not reported of.
    writing: bool,
    /// The last event that was looked at, and whether one of those not yet written down matters.
    seen: u64,
    changed: bool,
    /// When the next file may be begun, of verdicts and of samples.
    next: [Time; 2],
}

impl Memory {
    /// Takes up what was remembered. Without a folder that can be used nothing is: that is told.
    pub(super) fn open(folder: &Path) -> Result<(Self, Remembered, Vec<String>), String> {
        let opened = memory::open(folder);
        let (remembered, complaints, writer) =
            opened.map_err(|error| format!("nothing is remembered over a restart: {}: {error}", folder.display()))?;
        let memory = Self { writer, scribe: None, writing: false, seen: 0, changed: false, next: [Time::ZERO; 2] };
        Ok((memory, remembered, complaints))
    }

    /// A little of it, at each turn.
    pub(super) fn turn(&mut self, engine: &mut Engine, now: Time) {
        while let Some(report) = self.writer.report() {
            self.hear(engine, now, report);
        }
        self.look(engine);
        if self.scribe.is_none() && !self.writing {
            self.begin(engine, now);
        }
        if let Some((scribe, begun)) = &mut self.scribe
            && let Some(file) = scribe.go_on(engine, *begun)
        {
            self.writer.write(file);
            (self.scribe, self.writing) = (None, true);
        }
    }

    /// When there must be another turn.
    pub(super) fn next(&self, now: Time) -> Option<Time> {
        if self.scribe.is_some() {
            return Some(now + SOON);
        }
        // While the thread writes there is nothing to do; it is looked after at the next turn.
        let of_states = self.changed.then_some(self.next[0]);
        if self.writing { Some(now + WINDOWS) } else { of_states.into_iter().chain([self.next[1]]).min() }
    }

    /// Whether something has happened that must not be forgotten.
    fn look(&mut self, engine: &Engine) {
        let last = engine.events().last();
        if last == self.seen {
            return;
        }
        let matters = |event: &crate::engine::event::Event| match event.kind {
            Told::Transition { .. }
            | Told::Drain { .. }
            | Told::Obstacle { .. }
            | Told::Reload { .. }
            | Told::Start { .. } => true,
            Told::Route { .. }
            | Told::Routes { .. }
            | Told::KernelDrift { .. }
            | Told::LocalFault { .. }
            | Told::Need { .. }
            | Told::Association { .. }
            | Told::Warning { .. }
            | Told::Sample { .. }
            | Told::Stop {} => false,
        };
        let is_reload = |event: &crate::engine::event::Event| matches!(event.kind, Told::Reload { .. });
        let missed = engine.events().missed(self.seen) > 0;
        if missed || engine.events().after(self.seen).any(is_reload) {
            // It counts on the tunnels being in their places.
            self.scribe = None;
        }
        self.changed |= missed || engine.events().after(self.seen).any(matters);
        self.seen = last;
    }

    fn begin(&mut self, engine: &Engine, now: Time) {
        let kind = match self.next {
            [states, _] if self.changed && states <= now => Kind::States,
            [_, windows] if windows <= now => Kind::Windows,
            _ => return,
        };
        if kind == Kind::States {
            self.changed = false;
        }
        self.scribe = Some((Scribe::begin(kind, engine, now, false), now));
    }

    fn hear(&mut self, engine: &mut Engine, now: Time, Report { kind, outcome }: Report) {
        self.writing = false;
        let (place, least) = match kind {
            Kind::States => (0, STATES),
            Kind::Windows => (1, WINDOWS),
        };
        match outcome {
            Ok((took, bytes)) => {
                let worn = Duration::from_secs(bytes as u64) / BYTES;
                self.next[place] = now + least.max(took * REST).max(worn);
            }
            Err(why) => {
                self.changed |= kind == Kind::States;
                self.next[place] = now + AGAIN;
                engine.handle_forgetful(now, &why);
            }
        }
    }

    /// The end: everything is written, and nothing happens any more.
    pub(super) fn stop(self, engine: &Engine, now: Time) {
        let Self { writer, .. } = self;
        writer.write(engine.written(Kind::Windows, now, true));
        writer.write(engine.written(Kind::States, now, true));
        for report in writer.stop() {
            if let Err(why) = report.outcome {
                tracing::error!("what is known of the tunnels is not written down: {why}");
            }
        }
    }
}
