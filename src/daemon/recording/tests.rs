use std::collections::BTreeMap;
use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use serde_json::Value;

use super::*;
use crate::engine::event::{CAPACITY, Kind};
use crate::engine::{Setup, WallTime};
use crate::io::clock::Clock;
use crate::wire::payload::{Key, Secret};

const PATIENCE: Duration = Duration::from_secs(20);
/// Whoever waits for a disk that says nothing waits for longer than this.
const SHORT: Duration = Duration::from_secs(3);
/// A little room, for some hundred events.
const LITTLE: usize = 1 << 16;

/// A disk that has taken so many bytes and takes no more, and what reads from it.
fn silent() -> (PipeReader, Sink, usize) {
    let (reader, writer) = io::pipe().unwrap();
    let mut file = File::from(OwnedFd::from(writer));
    // The default of pipe(7).
    let room = 65_536;
    file.write_all(&vec![b'\n'; room]).unwrap();
    (reader, Sink::File(file), room)
}

fn disk() -> (PipeReader, Sink) {
    let (reader, writer) = io::pipe().unwrap();
    (reader, Sink::File(File::from(OwnedFd::from(writer))))
}

fn read(mut reader: PipeReader) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    })
}

fn happen(ring: &mut Ring, count: usize) {
    for _ in 0..count {
        ring.push(WallTime(0), Kind::Warning { tunnel: None, reason: "it happens".to_owned() });
    }
}

/// That events come in their order up to this one, and each that is missing is told of in its place; how many
/// there are, and how many gaps.
fn count(text: &str, last: u64) -> (u64, u64) {
    let (mut next, mut there, mut gaps) = (1, 0, 0);
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        if value["kind"] == "gap" {
            // As the replay knows it.
            let missed = value["missed"].as_u64().unwrap();
            assert_eq!(line, format!(r#"{{"kind":"gap","missed":{missed}}}"#));
            next += missed;
            gaps += 1;
        } else {
            assert_eq!(value["id"], next, "{line}");
            next += 1;
            there += 1;
        }
    }
    assert_eq!(next - 1, last);
    (there, gaps)
}

fn engine() -> Engine {
    let setup = Setup {
        tunnels: Vec::new(),
        routes: Vec::new(),
        places: Vec::new(),
        steers: false,
        secret: Secret { key: Key::new([7; 16]), epoch: 1 },
        record: true,
        associations: BTreeMap::new(),
    };
    Engine::new(Time::ZERO, WallTime(0), setup)
}

#[test]
fn events_are_recorded_in_their_order_and_the_end_waits_for_them() {
    let (reader, sink) = disk();
    let reading = read(reader);
    let (mut recording, mut ring) = (Recording::begin(sink), Ring::default());
    let mut told = 0;
    for many in [1, 2, 500, CAPACITY, 3] {
        happen(&mut ring, many);
        assert!(!recording.hand_over(&ring, told).unwrap());
        told = ring.last();
    }
    recording.stop(PATIENCE);
    assert_eq!(count(&reading.join().unwrap(), told), (told, 0));
}

#[test]
fn events_that_the_ring_no_longer_holds_are_a_gap() {
    let (reader, sink) = disk();
    let reading = read(reader);
    let (mut recording, mut ring) = (Recording::begin(sink), Ring::default());
    happen(&mut ring, CAPACITY + 900);
    recording.hand_over(&ring, 0).unwrap();
    recording.stop(PATIENCE);
    assert_eq!(count(&reading.join().unwrap(), ring.last()), (CAPACITY as u64, 1));
}

#[test]
fn a_silent_disk_holds_nobody_up_and_what_is_left_out_is_told_in_its_place() {
    let (reader, sink, room) = silent();
    let (mut recording, mut ring) = (Recording::with(sink, LITTLE), Ring::default());
    let begin = Clock::start();
    let mut begins = 0;
    for told in 0..2_000 {
        happen(&mut ring, 1);
        begins += u32::from(recording.hand_over(&ring, told).unwrap());
    }
    assert!(begin.age() < SHORT, "it waits for the disk");
    assert_eq!(begins, 1, "that is told once");
    let left_out = recording.left_out;
    assert!(left_out > 1_000, "{left_out}");
    // Somebody has mended the disk.
    let reading = read(reader);
    assert_eq!(recording.book.finish(PATIENCE), 0);
    happen(&mut ring, 10);
    assert!(!recording.hand_over(&ring, 2_000).unwrap());
    assert_eq!(recording.left_out, 0);
    recording.stop(PATIENCE);
    let text = reading.join().unwrap();
    let (there, gaps) = count(&text[room..], 2_010);
    assert_eq!((there, gaps), (2_010 - left_out, 1));
}

#[test]
fn an_end_does_not_wait_long_for_a_silent_disk() {
    let (_reader, sink, _) = silent();
    let (mut recording, mut ring) = (Recording::begin(sink), Ring::default());
    happen(&mut ring, 10);
    recording.hand_over(&ring, 0).unwrap();
    let begin = Clock::start();
    recording.stop(Duration::from_millis(50));
    assert!(begin.age() < SHORT);
}

#[test]
fn that_events_are_left_out_is_a_trouble_of_this_host() {
    let (_reader, sink) = disk();
    let mut engine = engine();
    let mut recording = Recording::with(sink, 0);
    for _ in 0..3 {
        recording = recording.tell(&mut engine, Time::ZERO, 0).unwrap();
    }
    let troubles = engine.troubles();
    let [trouble] = &troubles[..] else { panic!("{troubles:?}") };
    assert_eq!((trouble.fault, trouble.count), ("recording", 1));
}

#[test]
fn a_disk_that_is_full_ends_it() {
    let mut engine = engine();
    let mut recording = Some(Recording::begin(Sink::file(Path::new("/dev/full")).unwrap()));
    let begin = Clock::start();
    while let Some(going_on) = recording.take() {
        assert!(begin.age() < PATIENCE, "it goes on");
        thread::sleep(Duration::from_millis(1));
        recording = going_on.tell(&mut engine, Time::ZERO, 0);
    }
    assert!(engine.troubles().is_empty(), "the log says why");
}

#[test]
fn what_cannot_be_opened_is_not_recorded_to() {
    assert!(open(Path::new("/dev/null/record.jsonl")).is_none());
}
