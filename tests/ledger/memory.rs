//! What is remembered of the tunnels, under a process that is killed while it writes, and on a full disk.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use adit::engine::memory::{Kind, Scribe, Verdict, decode};
use adit::engine::{Engine, Setup, Time, WallTime};
use adit::io::memory::{Opened, Report, Step, Writer, open};
use adit::wire::payload::{Key, Secret};
use libtest_mimic::Trial;

use crate::files::{in_a_small_disk, skipped_or_good};
use crate::kit::{Folder, folder_of_part};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("memory: over 100 kills the old file is there or the new one", old_or_new),
        trial("memory: a full disk", full_disk),
        trial("memory: two daemons in one folder", two),
    ]
}

const KILLS: u32 = 100;
/// A kill comes after at most so many milliseconds.
const LONGEST: u64 = 50;

fn engine() -> Engine {
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
    Engine::new(Time::ZERO, WallTime(0), setup)
}

/// Writes a file of states, and waits for what becomes of it.
fn write(writer: &mut Writer, engine: &Engine) -> Report {
    let mut scribe = Scribe::begin(Kind::States, engine, Time::ZERO, false);
    for mut step in [Step::Begin, Step::Piece(scribe.go_on(engine, Time::ZERO))] {
        while let Some(refused) = writer.offer(step) {
            step = refused;
        }
    }
    loop {
        match writer.report() {
            Some(report) => return report,
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// Writes files one after the other, each with the number of one more event, for ever; prints each number
/// whose file is on the disk.
pub(crate) fn remember() -> ExitCode {
    let Opened { memory, complaints, mut states, .. } = open(&folder_of_part()).unwrap();
    assert_eq!(complaints, [""; 0]);
    let mut engine = engine();
    engine.remember(Time::ZERO, WallTime(0), memory);
    loop {
        engine.handle_kernel_warning(Time::ZERO, "one more".to_owned());
        let number = engine.events().last();
        write(&mut states, &engine).outcome.unwrap();
        let Ok(()) = writeln!(io::stdout(), "{number}") else { return ExitCode::FAILURE };
    }
}

fn old_or_new() {
    let folder = Folder::new();
    let (mut last, mut runs, mut amid) = (0, 0, 0);
    for kill in 0..KILLS {
        let mut process = folder.part("remember").stdout(Stdio::piped()).spawn().unwrap();
        let output = process.stdout.take().unwrap();
        let reader = std::thread::spawn(move || -> Vec<u64> {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.map(|line| line.parse().unwrap()).collect()
        });
        std::thread::sleep(Duration::from_millis(RandomState::new().hash_one(kill) % LONGEST));
        process.kill().unwrap();
        process.wait().unwrap();
        let numbers = reader.join().unwrap();
        runs += u32::from(!numbers.is_empty());
        if let Some((first, newest)) = numbers.first().zip(numbers.last()) {
            assert!(*first > last, "kill {kill}: event {first} after {last}");
            last = *newest;
        }
        amid += u32::from(folder.path().join("states.new").exists());
        if last > 0 {
            let bytes = fs::read(folder.path().join("states")).unwrap();
            let (preface, _) = decode::<Verdict>(Kind::States, &bytes).unwrap();
            assert!(preface.next_event > last, "kill {kill}: {preface:?}, and {last} was on the disk");
        }
    }
    println!("{runs} of {KILLS} runs wrote a file; {amid} were killed while one was on its way");
    assert!(runs > KILLS / 4 && amid > 0, "{runs}, {amid}");
    assert!(!folder.names().iter().any(|name| name.contains("damaged")), "{:?}", folder.names());
}

/// In a disk of its own, if there may be one.
pub(crate) fn meet_a_full_disk() -> ExitCode {
    in_a_small_disk(&folder_of_part(), |folder| {
        let filler = folder.join("filler");
        let mut full = fs::File::create(&filler).unwrap();
        let mut states = opened(folder, 0);
        let engine = engine();
        write(&mut states, &engine).outcome.unwrap();
        let good = fs::read(folder.join("states")).unwrap();
        while full.write_all(&[0; 4_096]).is_ok() {}
        let why = write(&mut states, &engine).outcome.unwrap_err();
        assert!(why.contains("No space left"), "{why}");
        assert_eq!(fs::read(folder.join("states")).unwrap(), good, "the old one stays");
        assert!(!folder.join("states.new").exists(), "what does not fit does not stay");
        // A daemon that starts on a full disk knows what there was, and writes when there is room.
        drop(states);
        let Opened { memory, mut states, .. } = open(folder).unwrap();
        assert!(memory.states.is_some());
        fs::remove_file(&filler).unwrap();
        full.set_len(0).unwrap();
        write(&mut states, &engine).outcome.unwrap();
    })
}

/// The way to write states, after so many complaints.
fn opened(folder: &Path, complaints: usize) -> Writer {
    let opened = open(folder).unwrap();
    assert_eq!(opened.complaints.len(), complaints, "{:?}", opened.complaints);
    opened.states
}

fn full_disk() {
    skipped_or_good(&Folder::new().part("full of memories").output().unwrap());
}

fn two() {
    let folder = Folder::new();
    let mut first = opened(folder.path(), 0);
    write(&mut first, &engine()).outcome.unwrap();
    let Opened { memory, complaints, states: mut second, .. } = open(folder.path()).unwrap();
    assert!(memory.states.is_none(), "what the other one knows is its own");
    assert!(complaints[0].contains("another adit already remembers"), "{complaints:?}");
    let why = write(&mut second, &engine()).outcome.unwrap_err();
    assert!(why.contains("another adit already remembers"), "{why}");
    write(&mut first, &engine()).outcome.unwrap();
    // When that one is gone, this one follows.
    drop(first);
    let written = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        write(&mut second, &engine()).outcome.is_ok()
    });
    assert!(written);
}
