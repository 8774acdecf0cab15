//! The file's text, cut, flipped, mixed with an older one. The laws:
//!
//! - An association keeps its right mark, or it is lost; no mark is ever too low.
//! - Keys that were installed once are never taken for new ones.
//! - Damage to one line harms only its own association.

use std::ops::Range;

use adit::engine::ledger::{Begin, BeginError, Book, Identity, Lost};
use libtest_mimic::Trial;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::kit::{NOON, fingerprint, fixed, here, installed};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("damage: the text is what operators and other versions know", golden),
        trial("damage: a record is read as it is written", round_trip),
        trial("damage: cut anywhere, no mark is too low and no key is new", cut),
        trial("damage: any flipped bit harms one association at most, or all", flipped),
        trial("damage: a flipped bit in a line is known for whose it is", flipped_in_a_line),
        trial("damage: a line that is gone is known for whose it was", gone),
        trial("damage: two lines that are gone are not", two_gone),
        trial("damage: a line from an older record does not count", older_line),
        trial("damage: a line in another's place does not hide whose that was", doubled_line),
        trial("damage: at random, no mark is too low and no key is new", at_random),
        trial("damage: any bytes at all are read without a panic", any_bytes),
        trial("damage: of another machine, nothing counts", other_machine),
        trial("damage: of a later version, nothing counts", later_version),
    ]
}

const STATIC: Range<u32> = 0..4;
const INSTALLED: Range<u32> = 4..7;
const FRESH: u32 = 99;

fn everything() -> Vec<Begin> {
    let statics = STATIC.map(|number| fixed(number, 1, 30_001 + u64::from(number)));
    statics.chain(INSTALLED.map(|number| installed(number, "fra-2"))).collect()
}

fn record() -> Book {
    let mut book = Book::new(here());
    for begin in everything() {
        book.begin(&begin, NOON).unwrap();
    }
    book.finish(812, here());
    book
}

/// The same before the last reservations.
fn older() -> Book {
    let mut book = Book::new(here());
    for begin in everything() {
        book.begin(&Begin { mark: begin.mark - 10_000, ..begin }, NOON).unwrap();
    }
    book.finish(811, here());
    book
}

/// Holds the laws for what is read of these bytes, and after the next write. Returns which marks are
/// still there, and whether fresh keys may be installed.
fn law(bytes: &[u8]) -> (Vec<u32>, bool) {
    let Ok(mut book) = Book::parse(bytes, here()) else { return (Vec::new(), false) };
    if book.generation() < record().generation() {
        // An older header with its own lines: the ledger refuses it, see the trials of the files.
        return (Vec::new(), false);
    }
    let found = hold(&mut book.clone());
    book.begin(&fixed(1_000, 1, 10), NOON).unwrap();
    book.finish(book.generation() + 1, here());
    let mut again = Book::parse(book.render().as_bytes(), here()).unwrap();
    assert!(!again.newly_damaged(), "damage is new once only");
    assert_eq!(hold(&mut again), found, "after a write");
    found
}

fn hold(book: &mut Book) -> (Vec<u32>, bool) {
    let right = record();
    let mut kept = Vec::new();
    for begin in everything() {
        match book.mark(begin.fingerprint) {
            Ok(mark) => {
                assert_eq!(Ok(mark), right.mark(begin.fingerprint), "of {}", begin.tunnel);
                kept.push(begin.spi - 0x1000);
            }
            Err(Lost::Missing | Lost::Damaged { .. }) => {}
            Err(other) => panic!("{other} in a record that was read"),
        }
    }
    for number in INSTALLED {
        let begun = book.begin(&installed(number, "fra-2"), NOON);
        assert!(matches!(begun, Err(BeginError::UsedBefore { .. } | BeginError::Lost(_))), "{number}: {begun:?}");
    }
    (kept, book.begin(&installed(FRESH, "fra-2"), NOON).is_ok())
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn golden() {
    let mut book = Book::new(here());
    book.begin(&fixed(1, 1, 30_001), NOON).unwrap();
    book.begin(&installed(2, "fra-2"), NOON).unwrap();
    book.finish(812, here());
    let mut text = book.render();
    text.pop();
    text.push('!');
    let mut book = Book::parse(text.as_bytes(), here()).unwrap();
    book.finish(813, here());
    let golden = include_str!("golden.txt");
    // Computed by another program, from the format's description.
    assert_eq!(book.render(), golden);
    assert_eq!(Book::parse(golden.as_bytes(), here()).unwrap().mark(fingerprint(2)), Err(Lost::Damaged { line: 4 }));
}

fn round_trip() {
    for book in [record(), Book::new(here()), Book::new(Identity::default()), Book::after_loss(here())] {
        let read = Book::parse(book.render().as_bytes(), here()).unwrap();
        assert_eq!((read.entries(), read.generation()), (book.entries(), book.generation()));
        assert_eq!(read.render(), book.render());
        assert!(!read.newly_damaged());
    }
    assert_eq!(law(record().render().as_bytes()), ((0..7).collect(), true));
}

fn cut() {
    let text = record().render();
    for length in 0..text.len() {
        let (kept, fresh) = law(&text.as_bytes()[..length]);
        let whole_lines = text[..=length].matches('\n').count().saturating_sub(2);
        assert!(kept.iter().copied().eq(0..u32::try_from(whole_lines).unwrap()), "cut at {length}: {kept:?}");
        // With one line lost it is known whose; with more it is not.
        assert_eq!(fresh, whole_lines >= 6, "cut at {length}");
    }
    assert!(matches!(Book::parse(b"", here()), Err(Lost::Damaged { line: 1 })));
}

fn flip(text: &str, at: usize, bit: u32) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes[at] ^= 1 << bit;
    bytes
}

fn flipped() {
    let text = record().render();
    let header = text.find('\n').unwrap();
    for at in 0..text.len() {
        for bit in 0..8 {
            let (kept, _) = law(&flip(&text, at, bit));
            // The end of a line is a part of two.
            let least = if at <= header {
                0
            } else if text.as_bytes()[at] == b'\n' {
                5
            } else {
                6
            };
            assert!(kept.len() >= least, "bit {bit} of byte {at}: only {kept:?} left");
            assert!(at > header || kept.is_empty(), "bit {bit} of byte {at} of the header");
        }
    }
}

fn flipped_in_a_line() {
    let text = record().render();
    let mut begin = 0;
    for (index, line) in lines(&text).into_iter().enumerate() {
        let inside = begin..begin + line.len() - 1;
        begin += line.len();
        if index < 2 {
            continue;
        }
        let number = u32::try_from(index - 2).unwrap();
        for (at, bit) in inside.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let bytes = flip(&text, at, bit);
            // One that ends the line there makes two of it, and then nobody can know.
            let two = bytes[at] == b'\n';
            let (kept, fresh) = law(&bytes);
            assert_eq!(kept, (0..7).filter(|&other| other != number).collect::<Vec<_>>(), "bit {bit} of byte {at}");
            assert_eq!(fresh, !two, "bit {bit} of byte {at}");
            let lost = Book::parse(&bytes, here()).unwrap().mark(fingerprint(number)).unwrap_err();
            assert!(two || lost == Lost::Damaged { line: index + 1 }, "bit {bit} of byte {at}: {lost}");
        }
    }
}

fn gone() {
    let text = record().render();
    for number in 0..7 {
        let mut left = lines(&text);
        left.remove(2 + number as usize);
        let (kept, fresh) = law(left.concat().as_bytes());
        assert_eq!(kept, (0..7).filter(|&other| other != number).collect::<Vec<_>>());
        assert!(fresh);
    }
}

fn two_gone() {
    let text = record().render();
    let left = lines(&text);
    let (kept, fresh) = law(left[..7].concat().as_bytes());
    assert_eq!((kept.len(), fresh), (5, false));
}

fn older_line() {
    let (text, old) = (record().render(), older().render());
    for at in 2..9 {
        let mut mixed = lines(&text);
        mixed[at] = lines(&old)[at];
        let (kept, fresh) = law(mixed.concat().as_bytes());
        assert_eq!((kept.len(), fresh), (6, true), "line {at}");
    }
    // All of them below a new header, as if the disk had written only the first block.
    let mixed = [&lines(&text)[..2], &lines(&old)[2..]].concat().concat();
    assert_eq!(law(mixed.as_bytes()).0, Vec::<u32>::new());
}

fn doubled_line() {
    let text = record().render();
    let mut mixed = lines(&text);
    mixed[8] = mixed[7];
    let (kept, fresh) = law(mixed.concat().as_bytes());
    assert_eq!((kept.len(), fresh), (6, false));
    // Nor together with a damaged one, of which the parity alone would tell whose it was.
    let damaged = mixed[3].replacen("static", "sta?ic", 1);
    mixed[3] = &damaged;
    let (kept, fresh) = law(mixed.concat().as_bytes());
    assert_eq!((kept.len(), fresh), (5, false));
}

/// What a disk may do to a range of bytes.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Zero,
    Older,
    Remove,
    Double,
    Elsewhere(usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        Just(Harm::Zero),
        Just(Harm::Older),
        Just(Harm::Remove),
        Just(Harm::Double),
        any::<usize>().prop_map(Harm::Elsewhere),
    ]
}

fn apply(bytes: &mut Vec<u8>, old: &[u8], harm: Harm, at: usize, length: usize) {
    let begin = at % bytes.len().max(1);
    let range = begin..(begin + length).min(bytes.len());
    let length = range.len();
    let part: Vec<u8> = match harm {
        Harm::Zero => vec![0; length],
        Harm::Older => old.iter().skip(begin).take(length).copied().collect(),
        Harm::Remove => Vec::new(),
        Harm::Double => [&bytes[range.clone()], &bytes[range.clone()]].concat(),
        Harm::Elsewhere(from) => bytes.iter().skip(from % bytes.len().max(1)).take(length).copied().collect(),
    };
    bytes.splice(range, part);
}

fn at_random() {
    let (text, old) = (record().render(), older().render());
    let harms = prop::collection::vec((harm(), any::<usize>(), 1_usize..400), 1..4);
    let mut runner = TestRunner::new(ProptestConfig { cases: 4_000, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&harms, |harms| {
        let mut bytes = text.clone().into_bytes();
        for (harm, at, length) in harms {
            apply(&mut bytes, old.as_bytes(), harm, at, length);
        }
        law(&bytes);
        Ok(())
    });
    outcome.unwrap();
}

fn any_bytes() {
    let text = record().render();
    let header = &text[..=text.find('\n').unwrap()];
    let mut runner = TestRunner::new(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&prop::collection::vec(any::<u8>(), 0..600), |bytes| {
        let _ = Book::parse(&bytes, here());
        law(&[header.as_bytes(), &bytes].concat());
        Ok(())
    });
    outcome.unwrap();
}

fn other_machine() {
    let text = record().render();
    let there = Identity::new(Some("another"), None);
    assert_eq!(Book::parse(text.as_bytes(), there).unwrap_err(), Lost::OtherMachine);
    let clone = Identity::new(Some("3d1219c7c4c5404aaa1f6d2a48adfda4"), Some("12345678-0000-0000-0000-000000000002"));
    assert_eq!(Book::parse(text.as_bytes(), clone).unwrap_err(), Lost::OtherMachine);
    // Another user of this machine cannot read the hardware's name, and must not make us forget it.
    let user = Identity::new(Some("3d1219c7c4c5404aaa1f6d2a48adfda4"), None);
    let mut book = Book::parse(text.as_bytes(), user).unwrap();
    book.finish(813, user);
    assert_eq!(Book::parse(book.render().as_bytes(), clone).unwrap_err(), Lost::OtherMachine);
}

fn later_version() {
    let text = record().render().replacen("numbers 1", "numbers 2", 1);
    assert_eq!(Book::parse(text.as_bytes(), here()).unwrap_err(), Lost::LaterVersion(2));
    assert_eq!(Book::parse(b"adit-sequence-numbers 17", here()).unwrap_err(), Lost::LaterVersion(17));
    for damaged in ["adit-sequence-numbers 0 ", "adit-sequence-numbers", "adit-sequence-numbers -1 ", "x 2 "] {
        assert_eq!(Book::parse(damaged.as_bytes(), here()).unwrap_err(), Lost::Damaged { line: 1 });
    }
}
