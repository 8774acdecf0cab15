//! When what is known of the tunnels is written down.
//!
//! Verdicts and drains whenever one has changed: at once, and if changes go on, once a second; and else once a
//! minute, which shows how young they are; samples now and then, and soon after a
//! change. Each turn of the loop writes down a few tunnels ([`Scribe`]), and threads bring the files to the
//! disk.

use std::path::Path;
use std::time::Duration;

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
/// And a rest of so many times what the last file took, so that the disk is busy a tenth of the time.
const REST: u32 = 9;
/// And as long as it takes to stay below so many bytes a second: a disk wears.
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
/// While a file is on its way there is a turn so soon.
const SOON: Duration = Duration::from_millis(1);
/// How long an end waits for the disk.
const FAREWELL: Duration = Duration::from_secs(3);

pub(super) struct Memory {
    states: Page,
    windows: Page,
    /// The last event that was looked at.
    seen: u64,
    /// When an event has this number, verdicts are written because of the numbers alone.
    enough: u64,
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
            paid: Time::ZERO,
            next: [Time::ZERO; 2],
        });
        Ok((Self { states, windows, seen: 0, enough: 0 }, memory, complaints))
    }

    /// A little of it, at each turn.
    pub(super) fn turn(&mut self, engine: &mut Engine, now: Time) {
        self.look(engine);
        let last = engine.events().last();
        if self.states.turn(engine, now) {
            self.enough = last + engine.events_ahead() / 4;
        }
        self.windows.turn(engine, now);
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
        let pages = [&mut self.states, &mut self.windows];
        if missed || events.after(self.seen).any(|event| matches!(event.kind, Told::Reload { .. })) {
            for page in pages {
                // It counts on the tunnels being in their places.
                page.scribe = None;
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
        | Told::Association { .. }
        | Told::Warning { .. }
        | Told::Sample { .. }
        | Told::Stop {} => false,
    }
}

/// When there may be another file after one of so many bytes that took the disk so long. Files are paid for
/// until `paid`.
fn next(paid: &mut Time, now: Time, took: Duration, bytes: u64) -> Time {
    let worn = Duration::from_millis(bytes.saturating_mul(1_000) / BYTES);
    *paid = (*paid).max(now) + LEAST;
    (*paid - SAVED_UP).max(now + took.saturating_mul(REST).max(worn).min(LONGEST))
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
            self.changed = false;
            self.scribe = Some((Scribe::begin(self.kind, engine, now, false), Some(Step::Begin)));
        }
        self.go_on(engine, now);
        begins
    }

    /// When the next one is to begin.
    fn due(&self) -> Time {
        self.next[usize::from(!self.changed)]
    }

    /// A piece, if the thread takes it.
    fn go_on(&mut self, engine: &Engine, now: Time) {
        let Some((scribe, waiting)) = &mut self.scribe else { return };
        let step = waiting.take().unwrap_or_else(|| Step::Piece(scribe.go_on(engine, now)));
        let is_last = step.is_last();
        *waiting = self.writer.offer(step);
        if is_last && waiting.is_none() {
            (self.scribe, self.writing) = (None, Some(now));
        }
    }

    fn hear(&mut self, engine: &mut Engine, now: Time, Report { outcome }: Report) {
        self.writing = None;
        let usual = match self.kind {
            Kind::States => STATES,
            Kind::Windows => WINDOWS,
        };
        let next = match outcome {
            Ok((took, bytes)) => next(&mut self.paid, now, took, bytes),
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
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;
    use crate::engine::memory::{Preface, Verdict, decode};
    use crate::engine::{Setup, WallTime};
    use crate::wire::payload::{Key, Secret};

    const START: Time = Time::from_nanos(1_000_000_000_000);

    struct Stage {
        folder: tempfile::TempDir,
        memory: Memory,
        engine: Engine,
        now: Time,
    }

    impl Stage {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let (memory, ..) = Memory::open(&folder.path().join("state")).unwrap();
            let secret = Secret { key: Key::new([7; 16]), epoch: 1 };
            let setup = Setup {
                tunnels: Vec::new(),
                routes: Vec::new(),
                places: Vec::new(),
                steers: false,
                secret,
                record: false,
                associations: BTreeMap::new(),
            };
            let engine = Engine::new(START, WallTime(START.as_nanos()), setup);
            Self { folder, memory, engine, now: START }
        }

        /// Has turns at these times for so many seconds; the disk takes no time.
        fn run(&mut self, seconds: u64) {
            for _ in 0..seconds * 10 {
                self.now = self.now + Duration::from_millis(100);
                self.settle();
            }
        }

        /// A turn, and as many more as it takes until the disk has nothing to do.
        fn settle(&mut self) {
            self.memory.turn(&mut self.engine, self.now);
            while self.memory.states.is_busy() || self.memory.windows.is_busy() {
                std::thread::sleep(Duration::from_micros(100));
                self.memory.turn(&mut self.engine, self.now);
            }
        }

        fn preface(&self, kind: Kind) -> Option<Preface> {
            let bytes = fs::read(self.folder.path().join("state").join(kind.name())).ok()?;
            Some(decode::<Verdict>(kind, &bytes).unwrap().0)
        }

        fn age(&self, kind: Kind) -> Duration {
            self.now.since(Time::from_nanos(self.preface(kind).unwrap().saved))
        }

        fn warn(&mut self, count: u64) {
            (0..count).for_each(|_| self.engine.handle_kernel_warning(self.now, "something".to_owned()));
        }

        fn told(&self) -> usize {
            let is_memory = |event: &&Event| matches!(event.kind, Told::LocalFault { fault: "memory", .. });
            self.engine.events().after(0).filter(is_memory).count()
        }
    }

    impl Page {
        fn is_busy(&self) -> bool {
            self.scribe.is_some() || self.writing.is_some()
        }
    }

    #[test]
    fn after_a_calm_hour_a_kill_finds_young_files() {
        let mut stage = Stage::new();
        stage.run(1);
        let mut oldest = [Duration::ZERO; 2];
        for _ in 0..300 {
            stage.run(1);
            for (oldest, kind) in oldest.iter_mut().zip([Kind::States, Kind::Windows]) {
                *oldest = stage.age(kind).max(*oldest);
            }
        }
        assert!(oldest[0] > WINDOWS && oldest[0] <= STATES + LEAST, "{oldest:?}");
        assert!(oldest[1] > LEAST && oldest[1] <= WINDOWS + LEAST, "{oldest:?}");
    }

    #[test]
    fn the_numbers_of_many_events_are_written_down_before_they_run_out() {
        let mut stage = Stage::new();
        let ahead = stage.engine.events_ahead();
        for _ in 0..50 {
            stage.run(1);
            stage.warn(ahead / 8);
            // Killed at any time: no number that was told comes again.
            let preface = stage.preface(Kind::States).unwrap();
            assert!(stage.engine.events().last() < preface.next_event + preface.ahead);
        }
    }

    #[test]
    fn a_disk_in_trouble_is_told_of_now_and_then_and_tried_again() {
        let mut stage = Stage::new();
        stage.run(1);
        let [state, away] = ["state", "away"].map(|name| stage.folder.path().join(name));
        fs::rename(&state, &away).unwrap();
        fs::write(&state, "a file").unwrap();
        stage.run(120);
        let told = stage.told();
        assert!((2..=13).contains(&told), "{told}");
        fs::remove_file(&state).unwrap();
        fs::rename(&away, &state).unwrap();
        stage.run(12);
        let told = stage.told();
        assert!(stage.age(Kind::States) < Duration::from_secs(13));
        stage.run(100);
        assert_eq!(stage.told(), told, "all is well");
    }

    #[test]
    fn the_first_changes_are_written_at_once_and_then_one_a_second() {
        let (mut paid, mut now) = (Time::ZERO, START);
        let took = Duration::from_millis(2);
        let mut waits = Vec::new();
        for _ in 0..100 {
            let free = super::next(&mut paid, now, took, 1_000);
            waits.push(free.since(now));
            now = free;
        }
        let (first, rest) = waits.split_at(9);
        assert!(first.iter().all(|wait| *wait == took * 9), "{first:?}");
        assert!(rest.iter().skip(2).all(|wait| *wait == LEAST), "{rest:?}");
        // A large file on a slow disk waits for both, but not for ever.
        let mut wait = |took, bytes| super::next(&mut paid, now, Duration::from_secs(took), bytes).since(now);
        assert_eq!(wait(1, 20_000_000), Duration::from_secs(20));
        assert_eq!(wait(5, 20_000_000), Duration::from_secs(45));
        assert_eq!(wait(50, 500_000_000), LONGEST);
    }

    #[test]
    fn an_end_is_clean_and_knows_the_last_number() {
        let mut stage = Stage::new();
        stage.run(1);
        stage.warn(3);
        let last = stage.engine.events().last();
        let Stage { folder, memory, engine, .. } = stage;
        memory.stop(&engine, &Clock::start());
        for kind in [Kind::States, Kind::Windows] {
            let bytes = fs::read(folder.path().join("state").join(kind.name())).unwrap();
            let preface = decode::<Verdict>(kind, &bytes).unwrap().0;
            assert!(preface.clean);
            assert_eq!(preface.next_event, last + 1);
        }
    }
}
