//! The thread that writes.

use std::fs;
use std::time::Duration;

use adit::engine::ledger::{BeginError, Begun, Lost, NotReserved};
use adit::io::ledger::{Clerk, Ledger, Report, spawn};
use libtest_mimic::Trial;

use crate::kit::{Folder, fingerprint, fixed, here, installed};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("clerk: what is reported as reserved is on the disk", reserved),
        trial("clerk: begins, answers, and says what it knows", answers),
        trial("clerk: a thousand reservations are a few writes", together),
        trial("clerk: one that was never begun fails, the others do not", one_fails),
        trial("clerk: a failed write is reported, and another try may do", failed),
        trial("clerk: a lost record is reported as such", lost),
        trial("clerk: an operator's word begins a lost record anew", anew),
        trial("clerk: does what was asked before it ends, and lets the record go", ends),
    ]
}

/// Runs a trial that waits, with patience.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), future).await.unwrap() })
}

fn with(count: u32) -> (Folder, Clerk) {
    let folder = Folder::new();
    let mut ledger = folder.open();
    for number in 0..count {
        ledger.begin(&fixed(number, 1, 10_001)).unwrap();
    }
    (folder, spawn(ledger).unwrap())
}

/// The mark in the file, read by somebody else.
fn on_disk(folder: &Folder, number: u32) -> Option<u64> {
    let book = adit::engine::ledger::Book::parse(folder.read().as_bytes(), here()).unwrap();
    book.mark(fingerprint(number)).ok()
}

fn generation(folder: &Folder) -> u64 {
    adit::engine::ledger::Book::parse(folder.read().as_bytes(), here()).unwrap().generation()
}

fn reserved() {
    let (folder, mut clerk) = with(1);
    for mark in [20_001, 30_001, 40_001] {
        clerk.reserve(fingerprint(0), mark);
        assert_eq!(wait(clerk.report()), Some(Report::Reserved { fingerprint: fingerprint(0), mark }));
        assert_eq!(on_disk(&folder, 0), Some(mark));
    }
}

fn answers() {
    let (folder, clerk) = with(1);
    assert_eq!(wait(clerk.recorder().mark(fingerprint(0))), Ok(Ok(10_001)));
    assert_eq!(wait(clerk.recorder().mark(fingerprint(5))), Ok(Err(Lost::Missing)));
    assert_eq!(wait(clerk.recorder().begin(fixed(5, 7, 20))), Ok(Ok(Begun { first: 7, mark: 20 })));
    assert_eq!(on_disk(&folder, 5), Some(20));
    assert!(wait(clerk.recorder().begin(installed(9, "fra-2"))).unwrap().is_ok());
    assert!(matches!(wait(clerk.recorder().begin(installed(9, "fra-2"))), Ok(Err(BeginError::UsedBefore { .. }))));
    assert_eq!(wait(clerk.recorder().entries()).unwrap().unwrap().len(), 3);
    assert_eq!(wait(clerk.recorder().accept_gaps()), Ok(Ok(())));
}

fn together() {
    let (folder, mut clerk) = with(3);
    let before = generation(&folder);
    let marks: Vec<_> = (0..1_000).map(|turn| (turn % 3, 10_002 + u64::from(turn))).collect();
    marks.iter().for_each(|&(number, mark)| clerk.reserve(fingerprint(number), mark));
    for (number, mark) in marks {
        assert_eq!(wait(clerk.report()), Some(Report::Reserved { fingerprint: fingerprint(number), mark }));
    }
    let writes = generation(&folder) - before;
    assert!((1..100).contains(&writes), "{writes} writes");
    assert_eq!([0, 1, 2].map(|number| on_disk(&folder, number)), [Some(11_001), Some(10_999), Some(11_000)]);
}

fn one_fails() {
    let (_folder, mut clerk) = with(1);
    clerk.reserve(fingerprint(7), 5);
    clerk.reserve(fingerprint(0), 20_001);
    let reason = NotReserved::Lost(Lost::Missing);
    assert_eq!(wait(clerk.report()), Some(Report::Failed { fingerprint: fingerprint(7), reason }));
    assert_eq!(wait(clerk.report()), Some(Report::Reserved { fingerprint: fingerprint(0), mark: 20_001 }));
}

fn failed() {
    let (folder, mut clerk) = with(1);
    let in_the_way = folder.record().with_extension("new");
    fs::create_dir(&in_the_way).unwrap();
    clerk.reserve(fingerprint(0), 20_001);
    let report = wait(clerk.report());
    assert!(matches!(report, Some(Report::Failed { reason: NotReserved::Unwritten(_), .. })), "{report:?}");
    assert_eq!(on_disk(&folder, 0), Some(10_001));
    fs::remove_dir(&in_the_way).unwrap();
    clerk.reserve(fingerprint(0), 20_001);
    assert_eq!(wait(clerk.report()), Some(Report::Reserved { fingerprint: fingerprint(0), mark: 20_001 }));
}

fn lost() {
    let (folder, mut clerk) = with(2);
    fs::remove_file(folder.record()).unwrap();
    for number in [0, 1] {
        clerk.reserve(fingerprint(number), 20_001);
        let reason = NotReserved::Lost(Lost::ChangedUnderUs);
        assert_eq!(wait(clerk.report()), Some(Report::Failed { fingerprint: fingerprint(number), reason }));
    }
    assert_eq!(wait(clerk.recorder().begin(fixed(0, 1, 2))), Ok(Err(BeginError::Lost(Lost::ChangedUnderUs))));
}

fn anew() {
    let (folder, clerk) = with(2);
    clerk.stop();
    fs::write(folder.record(), "rubbish").unwrap();
    let clerk = spawn(folder.open()).unwrap();
    let reason = Lost::Damaged { line: 1 };
    assert_eq!(wait(clerk.recorder().begin(installed(9, "fra-2"))), Ok(Err(BeginError::Lost(reason))));
    assert!(wait(clerk.recorder().begin(fixed(0, 50_000, 60_000))).unwrap().is_ok());
    assert_eq!(wait(clerk.recorder().mark(fingerprint(1))), Ok(Err(Lost::Missing)));
    assert_eq!(wait(clerk.recorder().begin(installed(9, "fra-2"))), Ok(Err(BeginError::Lost(Lost::Incomplete))));
    assert_eq!(wait(clerk.recorder().accept_gaps()), Ok(Ok(())));
    assert!(wait(clerk.recorder().begin(installed(9, "fra-2"))).unwrap().is_ok());
}

fn ends() {
    let (folder, clerk) = with(1);
    clerk.reserve(fingerprint(0), 20_001);
    clerk.reserve(fingerprint(0), 30_001);
    clerk.stop();
    assert_eq!(folder.open().mark(fingerprint(0)), Ok(30_001));
    // Dropped, it ends as well, in its own time.
    drop(spawn(folder.open()).unwrap());
    wait(async {
        while Ledger::open(folder.path(), here()).is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}
