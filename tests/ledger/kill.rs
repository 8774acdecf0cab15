//! A process that is killed while it reserves and uses numbers. What it uses it prints; so what it has
//! used is what has come through the pipe, to the last line.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use adit::engine::WallTime;
use adit::engine::ledger::{Fingerprint, Lost};
use adit::engine::numbers::Numbers;
use adit::io::ledger::{Ledger, Report, spawn};
use futures_util::FutureExt;
use libtest_mimic::Trial;

use crate::kit::{Folder, fingerprint, fixed, folder_of_part, here};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("kill: over 200 kills no number is used twice", no_number_twice)]
}

const KILLS: u32 = 200;
const ASSOCIATIONS: u32 = 3;
/// A kill comes after at most so many milliseconds: some before the first number, some after several
/// reservations.
const LONGEST: u64 = 70;

/// Uses numbers of three associations, for ever.
pub(crate) fn use_numbers() -> ExitCode {
    let mut ledger = Ledger::open(&folder_of_part(), here()).unwrap();
    let mut all: BTreeMap<Fingerprint, (u32, Numbers)> = BTreeMap::new();
    for number in 0..ASSOCIATIONS {
        let mark = match ledger.mark(fingerprint(number)) {
            Ok(mark) => mark,
            Err(Lost::Missing) => ledger.begin(&fixed(number, 1, 1)).unwrap().mark,
            Err(other) => panic!("{other}"),
        };
        // The clock is of no help: what holds is the mark alone.
        let numbers = Numbers::resume(mark, WallTime(0), u64::from(u32::MAX));
        all.insert(fingerprint(number), (number, numbers));
    }
    let mut clerk = spawn(ledger).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    loop {
        let mut used = false;
        for (&fingerprint, (association, numbers)) in &mut all {
            numbers.wants().into_iter().for_each(|mark| clerk.reserve(fingerprint, mark));
            if let Some(number) = numbers.take() {
                used = true;
                // A line is one write, and arrives whole or not at all.
                let Ok(()) = writeln!(io::stdout(), "{association} {number}") else { return ExitCode::FAILURE };
            }
        }
        let report = if used { clerk.report().now_or_never() } else { Some(runtime.block_on(clerk.report())) };
        match report {
            None => {}
            Some(Some(Report::Reserved { fingerprint, mark })) => all.get_mut(&fingerprint).unwrap().1.grant(mark),
            Some(other) => panic!("{other:?}"),
        }
    }
}

fn no_number_twice() {
    let folder = Folder::new();
    let mut highest = [0_u64; ASSOCIATIONS as usize];
    let (mut runs, mut used) = (0, 0_u64);
    for kill in 0..KILLS {
        let mut process = folder.part("use").stdout(Stdio::piped()).spawn().unwrap();
        let output = process.stdout.take().unwrap();
        let reader = std::thread::spawn(move || -> Vec<String> {
            BufReader::new(output).lines().map_while(Result::ok).collect()
        });
        std::thread::sleep(Duration::from_millis(RandomState::new().hash_one(kill) % LONGEST));
        process.kill().unwrap();
        process.wait().unwrap();
        let lines = reader.join().unwrap();
        runs += u32::from(!lines.is_empty());
        for line in lines {
            let (association, number) = line.split_once(' ').unwrap();
            let highest = &mut highest[association.parse::<usize>().unwrap()];
            let number = number.parse().unwrap();
            assert!(number > *highest, "kill {kill}: {number} after {highest}");
            *highest = number;
            used += 1;
        }
    }
    println!("{used} numbers in {runs} of {KILLS} runs");
    assert!(runs > KILLS / 4, "{runs} runs came to use a number");
    let ledger = folder.open();
    for (number, highest) in (0..).zip(highest) {
        let mark = ledger.mark(fingerprint(number)).unwrap();
        assert!(highest < mark && highest > 10_000, "{highest} of association {number}, mark {mark}");
    }
}
