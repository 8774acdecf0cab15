//! What may be begun, resumed, reserved.

use adit::engine::WallTime;
use adit::engine::ledger::{BeginError, Begun, Book, Fingerprint, KEPT, Kind, Lost, NotReserved};
use libtest_mimic::Trial;

use crate::kit::{NOON, fingerprint, fixed, here, installed};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("rules: what was never begun has no mark", never_begun),
        trial("rules: a static association begins where it is told, never at 0", begins_where_told),
        trial("rules: a static association that begins again keeps the higher mark", begins_again),
        trial("rules: a mark goes up and never down", only_up),
        trial("rules: installed keys begin once", once),
        trial(
            "rules: keys that were installed are no static keys afterwards, nor the other way round",
            no_change_of_kind,
        ),
        trial("rules: of a tunnel's installed associations the newest are kept, of static ones all", newest_kept),
        trial("rules: after a loss installed keys wait for an operator's word", after_loss),
        trial("rules: a tunnel's name cannot break a line", odd_names),
        trial("rules: every reason names itself, and has a remedy", reasons),
        trial("rules: a fingerprint is read as it is written", fingerprints),
    ]
}

fn book() -> Book {
    Book::new(here())
}

fn never_begun() {
    assert_eq!(book().mark(fingerprint(1)), Err(Lost::Missing));
    assert_eq!(book().raise(fingerprint(1), 10, NOON), Err(Lost::Missing));
}

fn begins_where_told() {
    let mut book = book();
    assert_eq!(book.begin(&fixed(1, 700, 10_700), NOON), Ok(Begun { first: 700, mark: 10_700 }));
    assert_eq!(book.mark(fingerprint(1)), Ok(10_700));
    assert_eq!(book.begin(&fixed(2, 0, 10_001), NOON), Ok(Begun { first: 1, mark: 10_001 }));
    assert_eq!(book.begin(&fixed(3, 50, 7), NOON), Ok(Begun { first: 50, mark: 50 }), "nothing reserved");
}

fn begins_again() {
    let mut book = book();
    book.begin(&fixed(1, 1, 10_001), NOON).unwrap();
    // The operator's number is too low: the record knows better, and reserves as much.
    assert_eq!(book.begin(&fixed(1, 500, 600), NOON), Ok(Begun { first: 10_001, mark: 10_101 }));
    assert_eq!(book.begin(&fixed(1, 90_000, 100_000), NOON), Ok(Begun { first: 90_000, mark: 100_000 }));
    assert_eq!(book.begin(&fixed(1, u64::MAX, u64::MAX), NOON), Ok(Begun { first: u64::MAX, mark: u64::MAX }));
    assert_eq!(book.begin(&fixed(1, 1, u64::MAX), NOON), Ok(Begun { first: u64::MAX, mark: u64::MAX }));
    assert_eq!(book.entries().len(), 1);
}

fn only_up() {
    let mut book = book();
    book.begin(&fixed(1, 1, 100), NOON).unwrap();
    let mut book = book.draft();
    book.raise(fingerprint(1), 99, NOON).unwrap();
    assert_eq!((book.mark(fingerprint(1)), book.changed()), (Ok(100), false));
    book.raise(fingerprint(1), 101, WallTime(NOON.0 + 5_000_000)).unwrap();
    assert_eq!((book.mark(fingerprint(1)), book.changed()), (Ok(101), true));
    assert_eq!(book.entries()[0].written, WallTime(NOON.0 + 5_000_000));
}

fn once() {
    let mut book = book();
    assert_eq!(book.begin(&installed(1, "ams-1"), NOON), Ok(Begun { first: 1, mark: 1 << 32 }));
    let again = book.begin(&installed(1, "fra-2"), NOON).unwrap_err();
    assert_eq!(again, BeginError::UsedBefore { tunnel: "ams-1".to_owned(), written: NOON });
    let text = again.to_string();
    // Whoever tries again what seemed to have failed must learn why it fails again, and what helps.
    for words in ["RFC 4106 section 2", "ams-1 at 2026-03-01T12:00:00.000Z", "cut short", "install fresh ones"] {
        assert!(text.contains(words), "{text}");
    }
}

fn no_change_of_kind() {
    let mut book = book();
    book.begin(&installed(1, "ams-1"), NOON).unwrap();
    book.begin(&fixed(2, 1, 10), NOON).unwrap();
    assert!(matches!(book.begin(&fixed(1, 1, 10), NOON), Err(BeginError::UsedBefore { .. })));
    assert!(matches!(book.begin(&installed(2, "ams-2"), NOON), Err(BeginError::UsedBefore { .. })));
}

fn newest_kept() {
    let mut book = book();
    let count = u32::try_from(KEPT).unwrap() + 3;
    for number in 0..count {
        book.begin(&fixed(1_000 + number, 1, 10), NOON).unwrap();
        book.begin(&installed(number, "ams-1"), NOON).unwrap();
        book.begin(&installed(100 + number, "fra-2"), NOON).unwrap();
        // The wall clock may go wrong; what counts is the order.
        book.finish(u64::from(number) + 1, here());
    }
    for number in 0..count {
        let kept = number >= 3;
        assert_eq!(book.mark(fingerprint(number)).is_ok(), kept, "{number}");
        assert_eq!(book.mark(fingerprint(100 + number)).is_ok(), kept, "{number}");
        assert_eq!(book.mark(fingerprint(1_000 + number)), Ok(10), "{number}");
    }
    let read = Book::parse(book.render().as_bytes(), here()).unwrap();
    assert_eq!(read.entries(), book.entries());
}

fn after_loss() {
    let mut book = Book::after_loss(here());
    assert_eq!(book.begin(&installed(1, "ams-1"), NOON), Err(BeginError::Lost(Lost::Incomplete)));
    assert_eq!(book.begin(&fixed(2, 1, 10), NOON), Ok(Begun { first: 1, mark: 10 }), "vouched for");
    let mut book = Book::parse(book.render().as_bytes(), here()).unwrap();
    assert_eq!(book.begin(&installed(1, "ams-1"), NOON), Err(BeginError::Lost(Lost::Incomplete)), "after a restart");
    book.accept_gaps();
    let mut book = Book::parse(book.render().as_bytes(), here()).unwrap();
    assert!(book.begin(&installed(1, "ams-1"), NOON).is_ok());
}

fn odd_names() {
    for tunnel in ["", "two words", "a\nb", "grün", "x".repeat(500).as_str()] {
        let mut book = book();
        book.begin(&installed(1, tunnel), NOON).unwrap();
        let read = Book::parse(book.render().as_bytes(), here()).unwrap();
        assert_eq!((read.mark(fingerprint(1)), read.newly_damaged()), (Ok(1 << 32), false), "{tunnel:?}");
    }
}

fn reasons() {
    let reasons = [
        Lost::Missing,
        Lost::Damaged { line: 7 },
        Lost::Incomplete,
        Lost::OtherMachine,
        Lost::Older { found: 790, written: 812 },
        Lost::ChangedUnderUs,
        Lost::Unreadable("Permission denied".to_owned()),
        Lost::LaterVersion(2),
    ];
    for lost in reasons {
        let text = NotReserved::Lost(lost.clone()).to_string();
        assert!(text.starts_with("sequence-state-lost: "), "{text}");
        assert_eq!(text, BeginError::Lost(lost.clone()).to_string());
        let unreadable = matches!(lost, Lost::Unreadable(_));
        for (kind, command) in
            [(Kind::Static, "`adit sa begin ams-1 --at N`"), (Kind::Installed, "`adit sa begin ams-1`")]
        {
            let remedy = lost.remedy("ams-1", kind);
            assert!(remedy.contains(command) || (unreadable && remedy.contains("restart adit")), "{remedy}");
        }
    }
    assert!(Lost::Older { found: 790, written: 812 }.to_string().contains("generation 790, though 812"));
}

fn fingerprints() {
    let text = "000102030405060708090a0b0c0d0e0f";
    assert_eq!(Fingerprint::parse(text).unwrap().to_string(), text);
    for wrong in ["", "00", &text[1..], &format!("{text}0"), &text.replace('0', "g"), &text.replacen("00", "+0", 1)] {
        assert_eq!(Fingerprint::parse(wrong), None, "{wrong}");
    }
}
