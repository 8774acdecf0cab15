//! When files are written, in virtual time and on a real disk.

use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::config::Config;
use crate::daemon::plan::Plan;
use crate::engine::event::CAPACITY;
use crate::engine::memory::{Preface, Verdict, decode};
use crate::engine::{Drain, Layout, Setup, WallTime};
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
        Self::of("")
    }

    fn of(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (memory, ..) = Memory::open(&folder.path().join("state")).unwrap();
        let secret = Secret { key: Key::new([7; 16]), epoch: 1 };
        let setup = Setup {
            tunnels: Plan::new(Config::parse("adit.toml", config).unwrap()).tunnels,
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

/// Somebody waits for each, and nothing else has to wait for them.
#[test]
fn drains_are_written_at_once_however_many_there_are() {
    let mut stage =
        Stage::of("[[tunnel]]\nname = \"t\"\nencapsulation = \"device\"\ninterface_address = \"10.0.0.0/31\"\n");
    stage.run(1);
    let kept = stage.memory.kept();
    let free = stage.memory.states.next[0];
    for round in 0..50 {
        let drain = (round % 2 == 0).then_some(Drain::Down);
        stage.engine.set_drain(stage.now, 0, drain);
        stage.settle();
        assert_eq!(*kept.borrow(), stage.engine.events().last(), "round {round}");
        assert_eq!(stage.preface(Kind::States).unwrap().next_event, stage.engine.events().last() + 1);
    }
    assert_eq!(stage.memory.states.next[0], free);
}

/// What it had begun counted on the tunnels being in their places.
#[test]
fn a_drain_that_a_reload_meets_on_its_way_is_still_written_at_once() {
    let tunnel = |number: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + 2 * number);
        let device = "encapsulation = \"device\"";
        format!("[[tunnel]]\nname = \"t{number}\"\n{device}\ninterface_address = \"{address}/31\"\n")
    };
    // So many that they are not written in one turn.
    let config = &(0..8_000).map(tunnel).collect::<String>();
    let mut stage = Stage::of(config);
    stage.run(1);
    let kept = stage.memory.kept();
    let of_drain = |stage: &mut Stage, drain| {
        stage.engine.set_drain(stage.now, 0, drain);
        stage.engine.last_drain()
    };
    // As after a failure: what nobody waits for would be long in coming.
    stage.memory.states.next = [stage.now + AGAIN; 2];
    let drained = of_drain(&mut stage, Some(Drain::Down));
    stage.memory.turn(&mut stage.engine, stage.now);
    assert!(stage.memory.states.scribe.is_some(), "else this shows nothing");
    let tunnels = Plan::new(Config::parse("adit.toml", config).unwrap()).tunnels;
    let (routes, places, associations) = (Vec::new(), Vec::new(), BTreeMap::new());
    let layout = Layout { tunnels, routes, places, steers: false, associations };
    stage.engine.handle_reload(stage.now, layout);
    stage.settle();
    assert!(*kept.borrow() >= drained);

    // And so is one that the ring of events no longer shows.
    stage.memory.states.next = [stage.now + AGAIN; 2];
    let drained = of_drain(&mut stage, None);
    stage.warn(2 * CAPACITY as u64);
    stage.settle();
    assert!(*kept.borrow() >= drained);
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
        let free = next(&mut paid, Kind::States, now, took, 5_000_000);
        waits.push(free.since(now));
        now = free;
    }
    let (first, rest) = waits.split_at(9);
    assert!(first.iter().all(|wait| *wait == took), "{first:?}");
    assert!(rest.iter().skip(2).all(|wait| *wait == LEAST), "{rest:?}");
    // A large file on a slow disk waits for both, but not for ever.
    let mut wait = |took, bytes| next(&mut paid, Kind::Windows, now, Duration::from_secs(took), bytes).since(now);
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
