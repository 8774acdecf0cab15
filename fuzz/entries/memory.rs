//! What was remembered: of whatever bytes, an engine that takes it up goes on, and can write it down again.
//!
//! The first byte says whether the bytes are a file, or what is in one, and in which version; then its length and
//! checksum are made. The next two are the length of the first of two files.

use std::time::Duration;

use adit::engine::memory::{Kind, Memory, Preface, Samples, Verdict, decode};
use adit::engine::{State, WallTime};
use adit::reflect::plan::Fault;
use sha2::{Digest, Sha256};

use super::bench;

pub(crate) fn run(bytes: &[u8]) {
    let Some((&[choice, high, low], rest)) = bytes.split_first_chunk() else { return };
    let states = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
    let (states, windows) = rest.split_at(states);
    let file = |kind, content: &[u8]| if choice & 1 == 0 { content.to_vec() } else { sealed(kind, content) };
    let version = 1 + (choice >> 7);
    let states = decode::<Verdict>(Kind::States, &file([1, version], states)).ok();
    let windows = decode::<Samples>(Kind::Windows, &file([2, 1], windows)).ok();
    if choice & 1 == 0 {
        let alone = [decode::<Verdict>(Kind::States, rest).is_ok(), decode::<Samples>(Kind::Windows, rest).is_ok()];
        assert!(alone != [true; 2], "a file of two kinds at once");
    }
    if let Some((preface, _)) = states {
        taken_up(Memory { states, windows }, preface, choice);
    }
}

/// The wall clock as the file would have it, or our own.
fn taken_up(memory: Memory, preface: Preface, choice: u8) {
    let wall = if choice & 2 == 0 { bench::WALL } else { WallTime(preface.saved.min(u64::MAX / 2)) };
    let names = memory.states.as_ref().map_or(0, |(_, verdicts)| verdicts.len());
    let mut engine = bench::engine();
    engine.set_wall(bench::START, wall);
    engine.remember(bench::START, wall, memory);
    let begin = engine.tunnels(bench::START);
    assert_eq!(begin.len(), 3, "a file makes no tunnels, though it names {names}");
    let faults = vec![Fault { delay: Duration::from_millis(u64::from(choice >> 2)), ..Fault::default() }];
    super::deep();
    let now = bench::turns(&mut engine, faults, 40);
    for tunnel in 0..3 {
        assert!(engine.state(tunnel).is_some_and(|state| State::ALL.contains(&state)));
        assert!(engine.explain(now, tunnel).is_some());
    }
    for kind in [Kind::States, Kind::Windows] {
        let file = engine.written(kind, now, true);
        let whole = match kind {
            Kind::States => decode::<Verdict>(kind, &file.bytes).map(|(_, records)| records.len()),
            Kind::Windows => decode::<Samples>(kind, &file.bytes).map(|(_, records)| records.len()),
        };
        assert_eq!(whole, Ok(3), "what is written is read again");
    }
}

/// A file with this content (`src/engine/memory/file.rs` has its layout).
fn sealed(head: [u8; 2], content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    [b"\x89adit\r\n\x1a", &head[..], &length, &Sha256::digest(content), content].concat()
}
