//! When what is known of the tunnels is written down.
//!
//! Verdicts and drains whenever one has changed: at once, and if changes go on, once a second; and else once a
//! minute, which shows how young they are. A drain never waits, because somebody waits for it. Samples now and
//! then, and soon after a change. Each turn of the loop writes down a few tunnels ([`Scribe`]), and threads bring
//! the files to the disk.

use std::path::Path;
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::event::{Event, Kind as Told};
use crate::engine::memory::{Kind, Memory as Remembered, Scribe};
use crate::engine::{Engine, Time};
use crate::io::clock::Clock;
use crate::io::memory::{self, Opened, Report, Step, Writer};

/// Between two files, on the average.
const LEAST: Duration = Duration::from_secs(1);
/// So much of that may be saved up, so that a few changes in a row are on the disk at once: a tunnel that dies is
/// degraded, and down a moment later, and then somebody drains it.
const SAVED_UP: Duration = Duration::from_secs(10);
/// A rest after samples, of so many times what they took, so that the disk is busy with them a tenth of the time;
/// after verdicts, which are worth more and are small, it is as long as that.
const REST: u32 = 9;
/// And for samples as long as it takes to stay below so many bytes a second: a disk wears.
const BYTES: u64 = 1_000_000;
/// But no longer: what is older than [`FRESH`](crate::engine::memory::FRESH) is of little use.
const LONGEST: Duration = Duration::from_secs(120);
/// Without a change, between two files of verdicts.
const STATES: Duration = Duration::from_secs(60);
/// Without a change, between two files of samples.
const WINDOWS: Duration = Duration::from_secs(10);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(10);
/// A disk that has not answered for so long is told of.
const SILENT: Duration = Duration::from_secs(30);
/// While a file is on its way the next turn does its part.
const SOON: Duration = Duration::from_millis(1);
/// So many pieces of a file in a turn, if the thread takes them: a turn comes once in a tick.
const PIECES: u32 = 4;
/// How long an end waits for the disk.
const FAREWELL: Duration = Duration::from_secs(4);

pub(super) struct Memory {
    states: Page,
    windows: Page,
    /// The last event that was looked at.
    seen: u64,
    /// When an event has this number, verdicts are written because of the numbers alone.
    enough: u64,
    /// The last event all of whose consequences are on the disk.
    kept: watch::Sender<u64>,
}

/// One of the files.
struct Page {
    kind: Kind,
    writer: Writer,
    /// The file on its way, and what the thread would not take yet.
    scribe: Option<(Scribe, Option<Step>)>,
    /// Since when the thread has one that it has not reported of.
    writing: Option<Time>,
    /// Its silence was told of then.
    told: Time,
    /// Whether something has happened that must not be forgotten.
    changed: bool,
    /// Somebody waits for it.
    is_urgent: bool,
    /// The file on its way is one of those that are paid for.
    counts: bool,
    /// The last event before the file on its way, and before the last one that is on the disk.
    before: [u64; 2],
    /// Files are paid for until then.
    paid: Time,
    /// When the next one may be begun, if something has changed; and if nothing has.
    next: [Time; 2],
}

impl Memory {
    /// Takes up what was remembered. What cannot be read or written is told.
    pub(super) fn open(folder: &Path) -> Result<(Self, Remembered, Vec<String>), String> {
        let opened = memory::open(folder).map_err(|error| format!("nothing is remembered over a restart: {error}"))?;
        let Opened { memory, complaints, states, windows } = opened;
        let [states, windows] = [(Kind::States, states), (Kind::Windows, windows)].map(|(kind, writer)| Page {
            kind,
            writer,
            scribe: None,
            writing: None,
            told: Time::ZERO,
            changed: false,
            is_urgent: false,
            counts: true,
            before: [0; 2],
            paid: Time::ZERO,
            next: [Time::ZERO; 2],
        });
        let kept = watch::channel(0).0;
        Ok((Self { states, windows, seen: 0, enough: 0, kept }, memory, complaints))
    }

    /// Up to which event verdicts and drains are on the disk.
    pub(super) fn kept(&self) -> watch::Receiver<u64> {
        self.kept.subscribe()
    }

    /// A little of it, at each turn.
    pub(super) fn turn(&mut self, engine: &mut Engine, now: Time) {
        self.look(engine);
        let last = engine.events().last();
        if self.states.turn(engine, now) {
            self.enough = last + engine.events_ahead() / 4;
        }
        self.windows.turn(engine, now);
        let [_, on_disk] = self.states.before;
        self.kept.send_if_modified(|kept| std::mem::replace(kept, on_disk) != on_disk);
    }

    /// When there must be another turn.
    pub(super) fn next(&self, now: Time) -> Option<Time> {
        [&self.states, &self.windows].map(|page| page.wakes(now)).into_iter().min()
    }

    /// Whether something has happened that must not be forgotten.
    fn look(&mut self, engine: &Engine) {
        let events = engine.events();
        if events.last() == self.seen {
            return;
        }
        let missed = events.missed(self.seen) > 0;
        self.states.is_urgent |= engine.last_drain() > self.seen;
        let pages = [&mut self.states, &mut self.windows];
        if missed || events.after(self.seen).any(|event| matches!(event.kind, Told::Reload { .. })) {
            for page in pages {
                // It counts on the tunnels being in their places. Whoever waits for it goes on to wait.
                page.is_urgent |= page.scribe.take().is_some() && !page.counts;
                page.changed = true;
            }
        } else if events.after(self.seen).any(matters) {
            pages.into_iter().for_each(|page| page.changed = true);
        }
        self.states.changed |= events.last() >= self.enough;
        self.seen = events.last();
    }

    /// The end: everything is written, and nothing happens any more.
    pub(super) fn stop(self, engine: &Engine, clock: &Clock) {
        let end = clock.now() + FAREWELL;
        for Page { kind, writer, .. } in [self.states, self.windows] {
            let mut scribe = Scribe::begin(kind, engine, clock.now(), true);
            let report = writer.finish(clock, end, || scribe.go_on(engine, clock.now()));
            if let Err(why) = report.outcome {
                tracing::error!("what is known of the tunnels ({}) is not written down: {why}", kind.name());
            }
        }
    }
}

fn matters(event: &Event) -> bool {
    match event.kind {
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
        | Told::Endpoint { .. }
        | Told::Association { .. }
        | Told::Warning { .. }
        | Told::Sample { .. }
        | Told::Stop {} => false,
    }
}

/// When there may be another file after one of so many bytes that took the disk so long. Files are paid for
/// until `paid`.
fn next(paid: &mut Time, kind: Kind, now: Time, took: Duration, bytes: u64) -> Time {
    *paid = (*paid).max(now) + LEAST;
    let rest = match kind {
        Kind::States => took,
        Kind::Windows => {
            let worn = Duration::from_millis(bytes.saturating_mul(1_000) / BYTES);
            took.saturating_mul(REST).max(worn)
        }
    };
    (*paid - SAVED_UP).max(now + rest.min(LONGEST))
}

impl Page {
    /// Whether a file was begun.
    fn turn(&mut self, engine: &mut Engine, now: Time) -> bool {
        while let Some(report) = self.writer.report() {
            self.hear(engine, now, report);
        }
        self.mind_silence(engine, now);
        let begins = self.scribe.is_none() && self.writing.is_none() && now >= self.due();
        if begins {
            self.counts = !std::mem::take(&mut self.is_urgent);
            self.changed = false;
            self.before[0] = engine.events().last();
            self.scribe = Some((Scribe::begin(self.kind, engine, now, false), Some(Step::Begin)));
        }
        self.go_on(engine, now);
        begins
    }

    /// When the next one is to begin.
    fn due(&self) -> Time {
        if self.is_urgent { Time::ZERO } else { self.next[usize::from(!self.changed)] }
    }

    /// Some pieces, if the thread takes them.
    fn go_on(&mut self, engine: &Engine, now: Time) {
        for _ in 0..PIECES {
            let Some((scribe, waiting)) = &mut self.scribe else { return };
            let step = waiting.take().unwrap_or_else(|| Step::Piece(scribe.go_on(engine, now)));
            let is_last = step.is_last();
            *waiting = self.writer.offer(step);
            if waiting.is_some() {
                return;
            }
            if is_last {
                (self.scribe, self.writing) = (None, Some(now));
            }
        }
    }

    fn hear(&mut self, engine: &mut Engine, now: Time, Report { outcome }: Report) {
        self.writing = None;
        let usual = match self.kind {
            Kind::States => STATES,
            Kind::Windows => WINDOWS,
        };
        let next = match outcome {
            Ok((took, bytes)) => {
                self.before[1] = self.before[0];
                if !self.counts {
                    // Those that are paid for are so few that none of them has to wait for this one.
                    self.next[1] = now + usual;
                    return;
                }
                next(&mut self.paid, self.kind, now, took, bytes)
            }
            Err(why) => {
                self.changed = true;
                engine.handle_forgetful(now, &why);
                now + AGAIN
            }
        };
        self.next = [next, next.max(now + usual)];
    }

    /// A disk that says nothing at all.
    fn mind_silence(&mut self, engine: &mut Engine, now: Time) {
        let Some(since) = self.writing else { return };
        if now.since(since.max(self.told)) >= SILENT {
            self.told = now;
            engine.handle_forgetful(now, &format!("the disk has not answered for {} s", now.since(since).as_secs()));
        }
    }

    /// When it wants a turn.
    fn wakes(&self, now: Time) -> Time {
        match (&self.scribe, self.writing) {
            (Some(_), _) => now + SOON,
            // Nobody wakes the loop for a report: soon, and with patience where it is long in coming.
            (None, Some(since)) => now + (now.since(since) / 4).clamp(SOON, LEAST),
            (None, None) => self.due().max(now + SOON),
        }
    }
}

#[cfg(test)]
mod tests;
