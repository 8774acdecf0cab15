//! The log: to the journal with fields, where standard error leads there; else to standard error, coloured
//! only on a terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::io::journal::{self, KIND, Layer};
use crate::io::logbook::{Logbook, Sink};

/// Bytes of entries that may wait: for as many as there are events in the engine's ring.
const ROOM: usize = 4 << 20;
/// How long the end may wait for them to be written.
const FAREWELL: Duration = Duration::from_secs(1);
/// Fields that bear this in the journal (as `ADIT_`) go without it on a terminal.
const PREFIX: &str = "adit.";

/// A log that has begun; its end waits a little until all of it has been written.
pub(super) struct Log(Arc<Logbook>);

impl Log {
    /// Begins to write down what is said. Until then it waits.
    pub(super) fn begin(&self) {
        self.0.begin();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.finish(FAREWELL);
    }
}

/// Begins to log for a process that may have threads.
pub(super) fn start(part: &'static str) -> Log {
    let log = match journal::is_standard_error().then(journal::socket) {
        Some(Ok(socket)) => to_journal(Sink::Journal(socket), part),
        Some(Err(_)) | None => to_standard_error(),
    };
    log.begin();
    log
}

/// Logs for a process that must have no threads yet, and none of its sockets: by a line to whoever has one to
/// the journal, if there is a journal.
pub(super) fn prepare(relay: Option<OwnedFd>, part: &'static str) -> Log {
    relay.map_or_else(to_standard_error, |relay| to_journal(Sink::Relay(relay), part))
}

fn filter() -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"))
}

fn to_journal(sink: Sink, part: &'static str) -> Log {
    let book = Logbook::new("log", sink, ROOM, journal::lost);
    tracing_subscriber::registry().with(filter()).with(Layer::new(Arc::clone(&book), part)).init();
    Log(book)
}

fn to_standard_error() -> Log {
    let tell = |count| format!("{}\n", journal::lost_in_words(count)).into_bytes();
    let book = Logbook::new("log", Sink::StandardError, ROOM, tell);
    let lines = Arc::clone(&book);
    let plain = debug_fn(write).delimited(" ");
    let layer = tracing_subscriber::fmt::layer().with_writer(move || Line(Arc::clone(&lines)));
    let layer = layer.with_target(false).fmt_fields(plain).with_ansi(super::text::coloured(&io::stderr()));
    tracing_subscriber::registry().with(filter()).with(layer).init();
    Log(book)
}

/// Takes lines for a book, each at once.
struct Line(Arc<Logbook>);

impl io::Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A field for people.
fn write(writer: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug) -> std::fmt::Result {
    match field.name() {
        "message" => write!(writer, "{value:?}"),
        // The words say it.
        KIND => Ok(()),
        name => write!(writer, "{}={value:?}", name.strip_prefix(PREFIX).unwrap_or(name)),
    }
}
