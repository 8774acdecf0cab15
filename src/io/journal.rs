//! Entries of systemd's journal, with fields, in the form that its socket takes (systemd.io,
//! "Native Journal Protocol"): a datagram an entry.
//!
//! A process that strangers can reach must have no socket that sends to paths, as this one does. It has a line
//! to one that has, which passes on what it says: [`relay`].

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::Context;

use super::letters;
use super::logbook::Logbook;

/// Where the journal listens.
const SOCKET: &str = "/run/systemd/journal/socket";
/// What the journal calls this program (`SYSLOG_IDENTIFIER`).
const IDENTIFIER: &str = "adit";
/// What our fields begin with.
const PREFIX: &str = "adit.";
/// The field that says what kind of message it is, for the journal's catalogue.
pub const KIND: &str = "message_id";
/// The number of an event, which is no news to people.
const NUMBER: &str = "adit.event_id";
/// The longest value. Of a longer one the rest is missing.
const LONGEST: usize = 4 << 10;
/// The longest entry that is passed on: the longest value in the message and in each of the fields.
const ENTRY: usize = 64 << 10;

/// Whether standard error leads to the journal (systemd.exec(5), `JOURNAL_STREAM`).
#[must_use]
pub fn is_standard_error() -> bool {
    let told = std::env::var("JOURNAL_STREAM").ok();
    let found = std::fs::metadata("/proc/self/fd/2").ok();
    told.zip(found).is_some_and(|(told, found)| told == format!("{}:{}", found.dev(), found.ino()))
}

/// A socket to send entries by.
///
/// # Errors
/// No descriptor left.
pub fn socket() -> io::Result<UnixDatagram> {
    UnixDatagram::unbound()
}

/// Sends an entry, and waits until the journal has room. By its path each time: so it may be restarted.
pub(super) fn send(socket: &UnixDatagram, entry: &[u8]) -> io::Result<()> {
    socket.send_to(entry, SOCKET).map(drop)
}

/// The end of a line for a process whose entries are passed on to the journal, for as long as it lives.
///
/// # Errors
/// No descriptor, no thread left.
pub fn relay() -> io::Result<OwnedFd> {
    let (ours, theirs) = letters::line()?;
    let socket = socket()?;
    thread::Builder::new().name("journal".to_owned()).spawn(move || pass_on(&ours, &socket))?;
    Ok(theirs)
}

/// What is said is not looked at: it is the journal's business, which trusts no sender.
fn pass_on(line: &OwnedFd, socket: &UnixDatagram) {
    let mut buffer = vec![0; ENTRY];
    while let Ok(Some(length)) = letters::read_note(line, &mut buffer) {
        // It has nobody who could be told.
        let _ = send(socket, &buffer[..length]);
    }
}

/// Puts what is logged into a book, as entries of the journal.
pub struct Layer {
    book: Arc<Logbook>,
    part: &'static str,
}

impl Layer {
    /// `part` says which of the daemon's processes this is (`ADIT_PART`).
    #[must_use]
    pub const fn new(book: Arc<Logbook>, part: &'static str) -> Self {
        Self { book, part }
    }
}

impl<S: Subscriber> tracing_subscriber::Layer<S> for Layer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut entry = Entry::default();
        event.record(&mut entry);
        self.book.put(entry.bytes(*event.metadata().level(), self.part));
    }
}

/// An entry that says how many are lost.
#[must_use]
pub fn lost(count: u64) -> Vec<u8> {
    let message = lost_in_words(count);
    Entry { message, ..Entry::default() }.bytes(Level::WARN, "log")
}

/// How many entries are lost, for people.
#[must_use]
pub fn lost_in_words(count: u64) -> String {
    format!("{count} lines of the log are lost: whoever takes them is too slow")
}

/// One entry as it comes together.
#[derive(Debug, Default)]
struct Entry {
    message: String,
    /// What follows the message, for whoever reads that only.
    words: String,
    fields: Vec<u8>,
    is_of_a_kind: bool,
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }
}

impl Entry {
    fn add(&mut self, name: &str, value: &str) {
        match name {
            "message" => value.clone_into(&mut self.message),
            KIND => {
                self.is_of_a_kind = true;
                put(&mut self.fields, "MESSAGE_ID", value);
            }
            _ => {
                let own = name.strip_prefix(PREFIX).unwrap_or(name);
                if name != NUMBER {
                    self.words.extend([" ", own, "=", value]);
                }
                put(&mut self.fields, &format!("ADIT_{}", own.to_ascii_uppercase()), value);
            }
        }
    }

    fn bytes(self, level: Level, part: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(512);
        put(&mut bytes, "PRIORITY", self.priority(level));
        put(&mut bytes, "SYSLOG_IDENTIFIER", IDENTIFIER);
        put(&mut bytes, "ADIT_PART", part);
        put(&mut bytes, "MESSAGE", &format!("{}{}", self.message, self.words));
        bytes.extend(self.fields);
        bytes
    }

    /// As in syslog(3). What happens to tunnels and routes is a notice, what else is said information.
    fn priority(&self, level: Level) -> &'static str {
        match level {
            Level::ERROR => "3",
            Level::WARN => "4",
            Level::INFO if self.is_of_a_kind => "5",
            Level::INFO => "6",
            _ => "7",
        }
    }
}

/// Appends a field. A value with a line feed has its length before it.
fn put(bytes: &mut Vec<u8>, name: &str, value: &str) {
    let value = &value[..value.floor_char_boundary(LONGEST)];
    bytes.extend(name.bytes());
    if value.contains('\n') {
        bytes.push(b'\n');
        bytes.extend((value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend(value.bytes());
    bytes.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fields: &[(&str, &str)], level: Level) -> String {
        let mut entry = Entry::default();
        fields.iter().for_each(|(name, value)| entry.add(name, value));
        String::from_utf8_lossy(&entry.bytes(level, "prober")).into_owned()
    }

    #[test]
    fn an_event_has_its_fields_and_its_words() {
        let fields = [("message_id", "03d3"), ("adit.event_id", "7"), ("adit.tunnel", "ams-1"), ("message", "rule 1")];
        assert_eq!(
            entry(&fields, Level::INFO),
            "PRIORITY=5\nSYSLOG_IDENTIFIER=adit\nADIT_PART=prober\nMESSAGE=rule 1 tunnel=ams-1\n\
             MESSAGE_ID=03d3\nADIT_EVENT_ID=7\nADIT_TUNNEL=ams-1\n"
        );
    }

    #[test]
    fn what_is_no_event_is_of_no_kind_and_its_fields_are_ours_all_the_same() {
        let said = entry(&[("message", "no prober"), ("error", "why")], Level::ERROR);
        assert_eq!(
            said,
            "PRIORITY=3\nSYSLOG_IDENTIFIER=adit\nADIT_PART=prober\nMESSAGE=no prober error=why\nADIT_ERROR=why\n"
        );
    }

    #[test]
    fn a_value_cannot_make_fields() {
        let said = entry(&[("adit.reason", "one\nPRIORITY=0")], Level::WARN);
        assert!(said.ends_with("ADIT_REASON\n\u{e}\0\0\0\0\0\0\0one\nPRIORITY=0\n"), "{said:?}");
        assert!(said.contains("\nMESSAGE\n"), "{said:?}");
    }

    #[test]
    fn an_entry_is_never_longer_than_what_is_passed_on() {
        let long = "ä".repeat(100_000);
        // No event has more fields; see daemon::tell.
        let fields: Vec<_> = std::iter::repeat_n(("adit.reason", long.as_str()), 12).collect();
        assert!(entry(&fields, Level::INFO).len() <= ENTRY);
    }
}
