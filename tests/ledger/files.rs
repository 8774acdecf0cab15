//! The file: missing, restored, copied, not to be written; its lock.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{ExitCode, Output, Stdio};

use adit::engine::Time;
use adit::engine::ledger::{Begin, BeginError, Begun, Book, Identity, Lost, NotReserved};
use adit::io::clock::Clock;
use adit::io::ledger::{Ledger, this_machine};
use libtest_mimic::Trial;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};

use crate::kit::{Folder, fingerprint, fixed, folder_of_part, here, installed};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("files: the folder is made, for nobody else", folder_is_made),
        trial("files: what was begun and reserved is there after a restart", restart),
        trial("files: a record that is gone is lost, unless its lock is gone too", record_gone),
        trial("files: an empty record is lost, and begun anew by an operator's word", empty),
        trial("files: a damaged line harms its own association, and is kept for people", damaged_line),
        trial("files: the same damage is set aside once", same_damage),
        trial("files: another machine's record is not believed", other_machine),
        trial("files: a later version's record is left alone", later_version),
        trial("files: what cannot be read is said, and left alone", unreadable),
        trial("files: a record restored while running stops all, and is known for old after a restart", restored),
        trial("files: a record removed while running stops all", removed),
        trial("files: the same record written by a careful copy is the same", copied),
        trial("files: a record restored between two runs is known for old", restored_between),
        trial("files: the lock's number may be missing, wrong or behind", lock_number),
        trial("files: what a crash has left on its way does no harm", left_behind),
        trial("files: a crash between any two steps leaves the old record or the new one", between_steps),
        trial("files: a write that fails changes nothing, and can be tried again", failed_write),
        trial("files: one unknown association, and nothing is reserved for any", all_or_none),
        trial("files: a record has one owner", one_owner),
        trial("files: a folder that cannot be written", denied),
        trial("files: a full disk", full_disk),
        trial("files: a hundred thousand associations", hundred_thousand),
        trial("files: this machine is itself", itself),
    ]
}

/// A record of two static associations, at generation 2.
fn kept() -> Folder {
    let folder = Folder::new();
    let mut ledger = folder.open();
    ledger.begin(&fixed(1, 1, 10_001)).unwrap();
    ledger.begin(&fixed(2, 500, 10_500)).unwrap();
    folder
}

fn marks(ledger: &Ledger) -> [Result<u64, Lost>; 2] {
    [ledger.mark(fingerprint(1)), ledger.mark(fingerprint(2))]
}

const BOTH: [Result<u64, Lost>; 2] = [Ok(10_001), Ok(10_500)];

fn lost(lost: &Lost) -> [Result<u64, Lost>; 2] {
    [Err(lost.clone()), Err(lost.clone())]
}

/// No installed key is begun, for this reason; nor is anything reserved.
fn refuses(ledger: &mut Ledger, lost: &Lost) {
    assert_eq!(ledger.begin(&installed(9, "fra-2")), Err(BeginError::Lost(lost.clone())));
    assert!(matches!(ledger.reserve(&[(fingerprint(1), 20_001)]), Err(NotReserved::Lost(_))));
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn folder_is_made() {
    let parent = Folder::new();
    let inner = parent.path().join("a").join("b");
    let mut ledger = Ledger::open(&inner, here()).unwrap();
    assert_eq!((mode(&parent.path().join("a")), mode(&inner)), (0o700, 0o700));
    ledger.begin(&fixed(1, 1, 10)).unwrap();
    for name in ["sequence-numbers", "sequence-numbers.lock"] {
        assert_eq!(mode(&inner.join(name)), 0o600, "{name}");
    }
}

fn restart() {
    let folder = kept();
    let mut ledger = folder.open();
    assert_eq!(marks(&ledger), BOTH);
    ledger.reserve(&[(fingerprint(1), 20_001), (fingerprint(2), 20_500)]).unwrap();
    ledger.reserve(&[(fingerprint(1), 7), (fingerprint(2), 20_500)]).unwrap();
    assert_eq!(marks(&ledger), [Ok(20_001), Ok(20_500)]);
    ledger.begin(&installed(9, "fra-2")).unwrap();
    drop(ledger);
    let mut ledger = folder.open();
    assert_eq!(marks(&ledger), [Ok(20_001), Ok(20_500)]);
    assert!(matches!(ledger.begin(&installed(9, "fra-2")), Err(BeginError::UsedBefore { .. })));
    assert_eq!(ledger.entries().unwrap().len(), 3);
    assert_eq!(folder.names(), ["sequence-numbers", "sequence-numbers.lock"]);
}

fn record_gone() {
    let folder = kept();
    fs::remove_file(folder.record()).unwrap();
    let mut ledger = folder.open();
    assert_eq!(marks(&ledger), lost(&Lost::Missing));
    refuses(&mut ledger, &Lost::Missing);
    // An operator vouches for one; for installed keys nobody has yet.
    assert_eq!(ledger.begin(&fixed(1, 70_000, 80_000)), Ok(Begun { first: 70_000, mark: 80_000 }));
    assert_eq!(marks(&ledger), [Ok(80_000), Err(Lost::Missing)]);
    assert_eq!(ledger.begin(&installed(9, "fra-2")), Err(BeginError::Lost(Lost::Incomplete)));
    ledger.accept_gaps().unwrap();
    assert!(ledger.begin(&installed(9, "fra-2")).is_ok());
    drop(ledger);
    fs::remove_file(folder.record()).unwrap();
    fs::remove_file(folder.record().with_extension("lock")).unwrap();
    assert!(folder.open().begin(&installed(9, "fra-2")).is_ok());
}

fn empty() {
    let folder = kept();
    fs::write(folder.record(), "").unwrap();
    let mut ledger = folder.open();
    let reason = Lost::Damaged { line: 1 };
    assert_eq!(marks(&ledger), lost(&reason));
    refuses(&mut ledger, &reason);
    assert_eq!(folder.read(), "", "nothing was written");
    ledger.begin(&fixed(1, 70_000, 80_000)).unwrap();
    drop(ledger);
    assert_eq!(marks(&folder.open()), [Ok(80_000), Err(Lost::Missing)]);
    assert_eq!(fs::read(folder.path().join("sequence-numbers.damaged-1")).unwrap(), b"");
}

fn damage_line_4(folder: &Folder) -> String {
    let damaged = folder.read().replacen("10500", "10499", 1);
    fs::write(folder.record(), &damaged).unwrap();
    damaged
}

fn damaged_line() {
    let folder = kept();
    let damaged = damage_line_4(&folder);
    let mut ledger = folder.open();
    assert_eq!(marks(&ledger), [Ok(10_001), Err(Lost::Damaged { line: 4 })]);
    assert_eq!(folder.names().len(), 2, "nothing is set aside before something is written");
    let both = [(fingerprint(1), 20_001), (fingerprint(2), 20_500)];
    assert_eq!(ledger.reserve(&both), Err(NotReserved::Lost(Lost::Damaged { line: 4 })));
    ledger.reserve(&[(fingerprint(1), 15_001)]).unwrap();
    ledger.reserve(&both[..1]).unwrap();
    assert_eq!(folder.names(), ["sequence-numbers", "sequence-numbers.damaged-1", "sequence-numbers.lock"]);
    drop(ledger);
    let aside = folder.path().join("sequence-numbers.damaged-1");
    assert_eq!((fs::read_to_string(&aside).unwrap(), mode(&aside)), (damaged, 0o600));
    let mut ledger = folder.open();
    assert_eq!(marks(&ledger), [Ok(20_001), Err(Lost::Damaged { line: 4 })], "still known after a write");
    ledger.reserve(&[(fingerprint(1), 30_001)]).unwrap();
    assert!(ledger.begin(&installed(9, "fra-2")).is_ok(), "others go on");
    ledger.begin(&fixed(2, 90_000, 99_000)).unwrap();
    assert_eq!(marks(&ledger), [Ok(30_001), Ok(99_000)]);
    assert!(!folder.read().contains(" damaged "), "a thing of the past");
    assert_eq!(folder.names(), ["sequence-numbers", "sequence-numbers.damaged-1", "sequence-numbers.lock"]);
    drop(ledger);
    // Other damage is another file.
    fs::write(folder.record(), &folder.read()[10..]).unwrap();
    folder.open().begin(&fixed(2, 1, 2)).unwrap();
    assert!(folder.path().join("sequence-numbers.damaged-2").exists());
}

fn same_damage() {
    let folder = kept();
    let damaged = damage_line_4(&folder);
    for mark in [20_001, 30_001] {
        fs::write(folder.record(), &damaged).unwrap();
        // As if nothing had been written since: a crash loop that gets so far each time.
        fs::write(folder.record().with_extension("lock"), "2\n").unwrap();
        folder.open().reserve(&[(fingerprint(1), mark)]).unwrap();
    }
    assert_eq!(folder.names(), ["sequence-numbers", "sequence-numbers.damaged-1", "sequence-numbers.lock"]);
}

fn other_machine() {
    let folder = kept();
    let text = folder.read();
    let open = || Ledger::open(folder.path(), Identity::new(Some("another"), None)).unwrap();
    let mut ledger = open();
    assert_eq!(marks(&ledger), lost(&Lost::OtherMachine));
    refuses(&mut ledger, &Lost::OtherMachine);
    assert_eq!(folder.read(), text);
    drop(ledger);
    assert_eq!(marks(&folder.open()), BOTH, "nothing has happened to it");
    let mut ledger = open();
    ledger.begin(&fixed(2, 90_000, 99_000)).unwrap();
    assert_eq!(marks(&ledger), [Err(Lost::Missing), Ok(99_000)]);
    drop(ledger);
    assert_eq!(marks(&open()), [Err(Lost::Missing), Ok(99_000)]);
    assert_eq!(fs::read_to_string(folder.path().join("sequence-numbers.damaged-1")).unwrap(), text);
}

fn later_version() {
    let folder = kept();
    let text = folder.read().replacen("numbers 1", "numbers 2", 1);
    fs::write(folder.record(), &text).unwrap();
    let mut ledger = folder.open();
    let reason = Lost::LaterVersion(2);
    assert_eq!(marks(&ledger), lost(&reason));
    refuses(&mut ledger, &reason);
    assert_eq!(ledger.begin(&fixed(1, 1, 2)), Err(BeginError::Lost(reason.clone())));
    assert_eq!(ledger.accept_gaps(), Err(NotReserved::Lost(reason)));
    assert_eq!(folder.read(), text);
}

fn unreadable() {
    let folder = kept();
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(folder.record(), &elsewhere).unwrap();
    symlink(&elsewhere, folder.record()).unwrap();
    let mut ledger = folder.open();
    let Err(reason @ Lost::Unreadable(_)) = ledger.mark(fingerprint(1)) else { panic!("a link was followed") };
    assert!(reason.to_string().contains("sequence-numbers: "), "{reason}");
    refuses(&mut ledger, &reason);
    assert_eq!(ledger.begin(&fixed(1, 1, 2)), Err(BeginError::Lost(reason)));
    drop(ledger);
    fs::remove_file(folder.record()).unwrap();
    fs::create_dir(folder.record()).unwrap();
    assert!(matches!(folder.open().mark(fingerprint(1)), Err(Lost::Unreadable(_))));
}

fn restored() {
    let folder = kept();
    let backup = folder.read();
    let mut ledger = folder.open();
    ledger.reserve(&[(fingerprint(1), 20_001)]).unwrap();
    fs::write(folder.record(), &backup).unwrap();
    let reason = NotReserved::Lost(Lost::ChangedUnderUs);
    assert_eq!(ledger.reserve(&[(fingerprint(2), 20_500)]), Err(reason));
    assert_eq!(marks(&ledger), lost(&Lost::ChangedUnderUs));
    refuses(&mut ledger, &Lost::ChangedUnderUs);
    assert_eq!(ledger.begin(&fixed(1, 90_000, 99_000)), Err(BeginError::Lost(Lost::ChangedUnderUs)));
    assert_eq!(folder.read(), backup, "somebody else's file is left alone");
    drop(ledger);
    let mut ledger = folder.open();
    let reason = Lost::Older { found: 2, written: 3 };
    assert_eq!(marks(&ledger), lost(&reason));
    refuses(&mut ledger, &reason);
    ledger.begin(&fixed(1, 90_000, 99_000)).unwrap();
    drop(ledger);
    assert_eq!(marks(&folder.open()), [Ok(99_000), Err(Lost::Missing)]);
}

fn removed() {
    let folder = kept();
    let mut ledger = folder.open();
    fs::remove_file(folder.record()).unwrap();
    refuses(&mut ledger, &Lost::ChangedUnderUs);
    assert_eq!(folder.names(), ["sequence-numbers.lock"]);
    drop(ledger);
    assert_eq!(marks(&folder.open()), lost(&Lost::Missing));
    // The other way round: there was none, and somebody has put one there.
    let folder = Folder::new();
    let mut ledger = folder.open();
    fs::write(folder.record(), kept().read()).unwrap();
    assert_eq!(ledger.begin(&installed(9, "fra-2")), Err(BeginError::Lost(Lost::ChangedUnderUs)));
}

fn copied() {
    let folder = kept();
    let mut ledger = folder.open();
    let copy = folder.path().join("copy");
    fs::copy(folder.record(), &copy).unwrap();
    fs::rename(&copy, folder.record()).unwrap();
    ledger.reserve(&[(fingerprint(1), 20_001)]).unwrap();
}

fn restored_between() {
    let folder = kept();
    let backup = folder.read();
    folder.open().reserve(&[(fingerprint(1), 20_001)]).unwrap();
    fs::write(folder.record(), backup).unwrap();
    assert_eq!(marks(&folder.open()), lost(&Lost::Older { found: 2, written: 3 }));
}

fn lock_number() {
    for number in ["", "1\n", "2", "00000000000000000002\n", "rubbish", "\0\0\0\0", "99999999999999999999999"] {
        let folder = kept();
        fs::write(folder.record().with_extension("lock"), number).unwrap();
        let mut ledger = folder.open();
        assert_eq!(marks(&ledger), BOTH, "{number:?}");
        ledger.reserve(&[(fingerprint(1), 20_001)]).unwrap();
        drop(ledger);
        let lock = fs::read_to_string(folder.record().with_extension("lock")).unwrap();
        assert!(lock.starts_with("00000000000000000003\n"), "{lock:?}");
    }
}

fn left_behind() {
    let folder = kept();
    let aside = folder.record().with_extension("new");
    fs::write(&aside, &folder.read()[..50]).unwrap();
    let mut ledger = folder.open();
    assert_eq!(marks(&ledger), BOTH);
    ledger.reserve(&[(fingerprint(1), 20_001)]).unwrap();
    assert!(!aside.exists());
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    symlink(&elsewhere, &aside).unwrap();
    ledger.reserve(&[(fingerprint(1), 30_001)]).unwrap();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
    drop(ledger);
    assert_eq!(marks(&folder.open()), [Ok(30_001), Ok(10_500)]);
}

/// The folder as a crash may leave it, step by step: the bytes on their way, more and more of them;
/// the new name; the lock's number.
fn between_steps() {
    let folder = kept();
    let old = folder.read();
    folder.open().reserve(&[(fingerprint(1), 20_001)]).unwrap();
    let new = folder.read();
    let aside = folder.record().with_extension("new");
    let lock = folder.record().with_extension("lock");
    let reopen = |expected: u64| {
        let mut ledger = folder.open();
        assert_eq!(marks(&ledger), [Ok(expected), Ok(10_500)]);
        ledger.reserve(&[(fingerprint(2), 10_501)]).unwrap();
        drop(ledger);
        assert_eq!(marks(&folder.open()), [Ok(expected), Ok(10_501)]);
    };
    for length in [0, 1, new.len() / 2, new.len()] {
        fs::write(folder.record(), &old).unwrap();
        fs::write(&lock, "2").unwrap();
        fs::write(&aside, &new[..length]).unwrap();
        reopen(10_001);
    }
    for number in ["2", "3"] {
        fs::write(folder.record(), &new).unwrap();
        fs::write(&lock, number).unwrap();
        reopen(20_001);
    }
}

fn failed_write() {
    let folder = kept();
    let mut ledger = folder.open();
    let text = folder.read();
    // A folder in the way of the file that is to be written.
    let aside = folder.record().with_extension("new");
    fs::create_dir(&aside).unwrap();
    let failed = ledger.reserve(&[(fingerprint(1), 20_001)]).unwrap_err();
    assert!(matches!(&failed, NotReserved::Unwritten(reason) if reason.contains("sequence-numbers.new")), "{failed}");
    assert!(matches!(ledger.begin(&installed(9, "fra-2")), Err(BeginError::Unwritten(_))));
    assert_eq!((marks(&ledger), folder.read()), (BOTH, text));
    fs::remove_dir(&aside).unwrap();
    ledger.reserve(&[(fingerprint(1), 20_001)]).unwrap();
    ledger.begin(&installed(9, "fra-2")).unwrap();
}

fn all_or_none() {
    let folder = kept();
    let mut ledger = folder.open();
    let text = folder.read();
    let result = ledger.reserve(&[(fingerprint(1), 20_001), (fingerprint(3), 1)]);
    assert_eq!(result, Err(NotReserved::Lost(Lost::Missing)));
    assert_eq!((marks(&ledger), folder.read()), (BOTH, text));
}

/// The part of a process that owns the record until its input ends.
pub(crate) fn hold() -> ExitCode {
    let ledger = Ledger::open(&folder_of_part(), here()).unwrap();
    println!("held");
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(ledger);
    ExitCode::SUCCESS
}

fn one_owner() {
    let folder = kept();
    let refused = || {
        let error = Ledger::open(folder.path(), here()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
    };
    let mut owner = folder.part("hold").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    refused();
    owner.kill().unwrap();
    owner.wait().unwrap();
    let ledger = folder.open();
    refused();
    drop(ledger);
    folder.open();
}

/// The part of a user who is not root, to whom permissions mean something.
pub(crate) fn be_denied() -> ExitCode {
    if geteuid().is_root() {
        let nobody = 65_534;
        setgroups(&[]).unwrap();
        setgid(Gid::from_raw(nobody)).unwrap();
        setuid(Uid::from_raw(nobody)).unwrap();
    }
    let folder = folder_of_part().join("state");
    fs::create_dir(&folder).unwrap();
    let permit = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    permit(0o500);
    let error = Ledger::open(&folder, here()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("sequence-numbers.lock"), "{error}");
    permit(0o700);
    let mut ledger = Ledger::open(&folder, here()).unwrap();
    ledger.begin(&fixed(1, 1, 10_001)).unwrap();
    permit(0o500);
    let failed = ledger.reserve(&[(fingerprint(1), 20_001)]).unwrap_err();
    assert!(failed.to_string().contains("Permission denied"), "{failed}");
    assert_eq!(ledger.mark(fingerprint(1)), Ok(10_001));
    permit(0o700);
    ledger.reserve(&[(fingerprint(1), 20_001)]).unwrap();
    drop(ledger);
    fs::set_permissions(folder.join("sequence-numbers"), fs::Permissions::from_mode(0o000)).unwrap();
    let unreadable = Ledger::open(&folder, here()).unwrap().mark(fingerprint(1));
    assert!(matches!(unreadable, Err(Lost::Unreadable(reason)) if reason.contains("Permission denied")));
    let error = Ledger::open(&folder_of_part().join("closed").join("state"), here()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    ExitCode::SUCCESS
}

fn denied() {
    let folder = Folder::new();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let output = folder.part("denied").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What the part returns that could not be played.
const CANNOT: u8 = 77;

/// The part of a process whose state folder is a disk of 256 KiB.
pub(crate) fn meet_a_full_disk() -> ExitCode {
    in_a_small_disk(&folder_of_part(), |folder| {
        let mut ledger = Ledger::open(folder, here()).unwrap();
        ledger.begin(&fixed(0, 1, 10_001)).unwrap();
        let filler = folder.join("filler");
        let mut full = fs::File::create(&filler).unwrap();
        while full.write_all(&[0; 4_096]).is_ok() {}
        let failed = ledger.reserve(&[(fingerprint(0), 20_001)]).unwrap_err();
        assert!(failed.to_string().contains("No space left"), "{failed}");
        // Room for a few lines more, but not for many.
        full.set_len(full.metadata().unwrap().len() - 16_384).unwrap();
        let begun = (1..1_000).take_while(|&number| ledger.begin(&fixed(number, 1, 10_001)).is_ok()).count();
        assert!((10..900).contains(&begun), "{begun}");
        assert!(!folder.join("sequence-numbers.new").exists(), "what does not fit does not stay");
        drop(ledger);
        let mut ledger = Ledger::open(folder, here()).unwrap();
        assert_eq!(ledger.entries().unwrap().len(), begun + 1);
        assert!(ledger.entries().unwrap().iter().all(|entry| entry.mark == 10_001));
        drop(full);
        fs::remove_file(filler).unwrap();
        ledger.reserve(&[(fingerprint(0), 20_001)]).unwrap();
    })
}

/// Has a folder be a disk of 256 KiB, for this process alone.
pub(crate) fn in_a_small_disk(folder: &Path, then: impl FnOnce(&Path)) -> ExitCode {
    let root = || unshare(CloneFlags::CLONE_NEWNS).map_err(io::Error::from);
    let made = root().or_else(|_| adit::io::netns::become_root_of_new_user_namespace().and_then(|()| root()));
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let mounted = made.map_err(|error| error.to_string()).and_then(|()| {
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
            .and_then(|()| mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some("size=256k")))
            .map_err(|error| error.to_string())
    });
    if let Err(error) = mounted {
        eprintln!("cannot mount a small disk: {error}");
        return ExitCode::from(CANNOT);
    }
    then(folder);
    ExitCode::SUCCESS
}

fn full_disk() {
    skipped_or_good(&Folder::new().part("full").output().unwrap());
}

/// How a part has ended that could perhaps not be played.
pub(crate) fn skipped_or_good(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    let cannot = output.status.code() == Some(i32::from(CANNOT));
    if cannot && std::env::var_os("ADIT_REQUIRE_NETNS").is_none() {
        eprintln!("skipped: a full disk: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
}

fn hundred_thousand() {
    const COUNT: u32 = 100_000;
    let folder = Folder::new();
    let mut book = Book::new(here());
    for number in 0..COUNT {
        book.begin(&fixed(number, 1, 10_001), crate::kit::NOON).unwrap();
    }
    book.finish(1, here());
    let clock = Clock::start();
    let took =
        |what: &str, begin: Time| println!("{what} {COUNT} associations: {} ms", clock.now().since(begin).as_millis());
    let begin = clock.now();
    let text = book.render();
    took("text of", begin);
    fs::write(folder.record(), &text).unwrap();
    let begin = clock.now();
    let mut ledger = folder.open();
    took("open with", begin);
    let begin = clock.now();
    ledger.reserve(&[(fingerprint(7), 20_001)]).unwrap();
    took("one reservation among", begin);
    let all: Vec<_> = (0..COUNT).map(|number| (fingerprint(number), 30_001)).collect();
    let begin = clock.now();
    ledger.reserve(&all).unwrap();
    took("a reservation for each of", begin);
    println!("{} bytes each", text.len() / COUNT as usize);
    drop(ledger);
    let ledger = folder.open();
    assert!((0..COUNT).all(|number| ledger.mark(fingerprint(number)) == Ok(30_001)));
}

fn itself() {
    assert!(!this_machine().contradicts(this_machine()));
    let folder = Folder::new();
    let begin = Begin { tunnel: "ams-1".to_owned(), ..fixed(1, 1, 10) };
    Ledger::open(folder.path(), this_machine()).unwrap().begin(&begin).unwrap();
    assert_eq!(Ledger::open(folder.path(), this_machine()).unwrap().mark(fingerprint(1)), Ok(10));
}
