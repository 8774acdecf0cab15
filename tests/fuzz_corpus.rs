//! The inputs that fuzzing has kept, once more: every one of every target, through the function that the
//! fuzzer calls (`fuzz/entries`). A target without inputs, or inputs without a target, is a mistake.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

#[path = "../fuzz/entries/mod.rs"]
mod entries;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What one input may take of memory, in bytes: some engines, and answers to each of few packets.
const MOST: u64 = 16 << 20;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn names(folder: &str) -> BTreeSet<String> {
    let paths = fs::read_dir(fuzz().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = fuzz().join("corpus").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn replay_all(target: &str) {
    let (_, run) = entries::ALL.into_iter().find(|(name, _)| *name == target).unwrap();
    let files = corpus(target);
    assert!(files.len() >= 10, "{target} has {} inputs", files.len());
    let (all, mut deep) = (files.len(), 0);
    for file in files {
        let before = entries::depth();
        let bytes = fs::read(&file).unwrap();
        let mut outcome = Ok(());
        let taken = allocation_counter::measure(|| outcome = catch_unwind(AssertUnwindSafe(|| run(&bytes))));
        assert!(outcome.is_ok(), "{} panics", file.display());
        assert!(taken.bytes_max <= MOST, "{} takes {} bytes", file.display(), taken.bytes_max);
        deep += usize::from(entries::depth() > before);
    }
    println!("{deep} of {all} inputs pass every check");
    assert!(deep >= 3, "only {deep} of {all} inputs pass every check: make new ones (fuzz/README.md)");
}

macro_rules! targets {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            replay_all(stringify!($name));
        })+

        #[test]
        fn every_target_is_replayed_and_none_is_without_inputs() {
            let replayed: BTreeSet<String> = [$(stringify!($name).to_owned()),+].into();
            let called: BTreeSet<String> = entries::ALL.map(|(name, _)| name.to_owned()).into();
            assert_eq!(called, replayed);
            assert_eq!(names("fuzz_targets"), replayed);
            assert_eq!(names("corpus"), replayed);
        }
    };
}

targets! { config esp gre import ledger memory netlink onion reflect replay socket }

#[test]
fn what_is_kept_stays_small() {
    let files = entries::ALL.into_iter().flat_map(|(name, _)| corpus(name));
    let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes");
}
