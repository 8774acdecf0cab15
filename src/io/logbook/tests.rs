use std::io::{PipeReader, Read};
use std::path::PathBuf;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::super::clock::Clock;
use super::*;

const ROOM: usize = 1 << 16;
const PATIENCE: Duration = Duration::from_secs(20);
/// Whoever waits for a sink that nobody empties waits for longer than this.
const SHORT: Duration = Duration::from_secs(5);

fn told(lost: u64) -> Vec<u8> {
    format!("{lost} lost\n").into_bytes()
}

fn book(sink: Sink) -> Arc<Logbook> {
    Logbook::new("test", sink, ROOM, told)
}

/// A file that is full, and what reads from it.
fn full() -> (PipeReader, Sink, usize) {
    let (reader, writer) = io::pipe().unwrap();
    let mut file = File::from(OwnedFd::from(writer));
    // The default of pipe(7).
    let room = 65_536;
    file.write_all(&vec![b'\n'; room]).unwrap();
    (reader, Sink::File(file), room)
}

fn next(line: &OwnedFd) -> String {
    let mut buffer = [0; 64];
    let length = letters::read_note(line, &mut buffer).unwrap().unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap().trim_end().to_owned()
}

fn put(book: &Logbook, numbers: std::ops::Range<u64>) -> u64 {
    numbers.map(|number| book.put_lines(format!("{number}\n").into_bytes(), 1)).last().unwrap()
}

/// That numbers come one after the other, and each that is missing is told of in its place; how many are there,
/// and how many gaps.
fn count(lines: impl Iterator<Item = String>, end: u64) -> (u64, usize) {
    let (mut expected, mut read, mut gaps) = (0, 0, 0);
    for line in lines {
        if let Some(lost) = line.strip_suffix(" lost") {
            expected += lost.parse::<u64>().unwrap();
            gaps += 1;
        } else {
            assert_eq!(line, expected.to_string());
            expected += 1;
            read += 1;
        }
        if expected == end {
            break;
        }
    }
    assert_eq!(expected, end);
    (read, gaps)
}

#[test]
fn entries_are_written_in_their_order_and_the_end_waits_for_them() {
    let (ours, theirs) = letters::line().unwrap();
    let book = book(Sink::Relay(ours));
    book.put(b"before anybody writes".to_vec());
    book.begin();
    book.put(b"after".to_vec());
    assert_eq!(book.finish(PATIENCE), 0);
    assert_eq!([next(&theirs), next(&theirs)], ["before anybody writes", "after"]);
}

#[test]
fn whoever_does_not_take_them_holds_nobody_up_and_is_told_where_how_many_are_lost() {
    let (ours, theirs) = letters::line().unwrap();
    let book = book(Sink::Relay(ours));
    book.begin();
    let (begin, many) = (Clock::start(), 5_000);
    assert!(put(&book, 0..many) > 0, "there is room for all of them");
    assert!(begin.age() < SHORT, "it waits for its reader");
    assert!(book.finish(Duration::from_millis(10)) > 0);
    assert!(begin.age() < SHORT, "even the end");
    let (read, gaps) = count(std::iter::repeat_with(|| next(&theirs)), many);
    assert!(read > 500 && gaps > 0, "{read} in {gaps} gaps");
}

#[test]
fn a_file_that_does_not_take_them_holds_nobody_up_and_says_where_how_many_are_lost() {
    let (mut reader, sink, room) = full();
    let book = book(sink);
    book.begin();
    let (begin, many) = (Clock::start(), 5_000);
    assert!(put(&book, 0..many) > 0, "there is room for all of them");
    assert!(book.finish(Duration::from_millis(10)) > 0);
    assert!(begin.age() < SHORT, "it waits for its reader");
    let reading = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    // What is lost is told of without another entry; and then all of them are taken again.
    assert_eq!(book.finish(PATIENCE), 0);
    assert_eq!(put(&book, many..many + 10), 0);
    assert_eq!(book.finish(PATIENCE), 0);
    drop(book);
    let text = reading.join().unwrap();
    let (read, gaps) = count(text[room..].lines().map(str::to_owned), many + 10);
    assert!(read > 500 && read < many && gaps > 0 && gaps < 10, "{read} in {gaps} gaps");
}

#[test]
fn what_was_lost_elsewhere_is_told_of_before_the_next_entry() {
    let (mut reader, writer) = io::pipe().unwrap();
    let book = book(Sink::File(File::from(OwnedFd::from(writer))));
    put(&book, 0..1);
    book.lose(7);
    assert_eq!(book.put_lines(b"8\n9\n".to_vec(), 2), 0);
    assert_eq!(book.finish(PATIENCE), 0);
    drop(book);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "0\n7 lost\n8\n9\n");
}

#[test]
fn a_sink_that_is_gone_is_no_end() {
    let (ours, theirs) = letters::line().unwrap();
    drop(theirs);
    let book = book(Sink::Relay(ours));
    book.put(b"to nobody".to_vec());
    assert_eq!(book.finish(PATIENCE), 1);
    book.put(b"to nobody".to_vec());
    assert_eq!(book.finish(PATIENCE), 2);
    assert!(book.failure().is_none());
}

#[test]
fn a_file_that_cannot_be_written_is_the_end() {
    let book = book(Sink::file(Path::new("/dev/full")).unwrap());
    put(&book, 0..3);
    let begin = Clock::start();
    assert!(book.finish(PATIENCE) > 0);
    assert_eq!(book.failure().unwrap().kind(), io::ErrorKind::StorageFull);
    assert!(book.failure().is_none(), "said once");
    assert!(put(&book, 3..4) > 0);
    assert!(book.finish(PATIENCE) > 0);
    assert!(begin.age() < PATIENCE, "nobody is waited for any more");
}

/// A path in a folder, and the folder.
fn path() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    (folder, path)
}

#[test]
fn a_file_is_appended_to() {
    let (_folder, path) = path();
    for lines in ["one\n", "two\n"] {
        let book = book(Sink::file(&path).unwrap());
        book.put(lines.into());
        assert_eq!(book.finish(PATIENCE), 0);
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
}

#[test]
fn a_fifo_that_nobody_reads_is_not_waited_for_and_one_with_a_reader_is_written_in_its_time() {
    let (_folder, path) = path();
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    let refused = Sink::file(&path).unwrap_err();
    assert!(refused.to_string().contains("nobody reads it"), "{refused}");
    let _reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let Sink::File(file) = Sink::file(&path).unwrap() else { panic!("no file") };
    let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL).unwrap());
    assert!(!flags.contains(OFlag::O_NONBLOCK) && flags.contains(OFlag::O_APPEND), "{flags:?}");
}

#[test]
fn a_line_that_was_cut_off_stays_a_line_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    let add = |entry: &[u8]| {
        let book = book(Sink::file(&path).unwrap());
        book.put(entry.to_vec());
        assert_eq!(book.finish(SHORT), 0);
    };
    add(b"whole\n");
    add(b"cut o");
    add(b"after it\n");
    add(b"and after that\n");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "whole\ncut o\nafter it\nand after that\n");
}
