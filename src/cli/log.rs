//! The log: to the journal with fields, where standard error leads there; else to standard error, coloured
//! only on a terminal.

use std::io;
use std::os::unix::fs::MetadataExt;

use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What the journal calls this program (`SYSLOG_IDENTIFIER`).
const IDENTIFIER: &str = "adit";
/// Fields that bear this in the journal (as `ADIT_`) go without it on a terminal.
const PREFIX: &str = "adit.";
/// The field that says what kind of message it is, for the journal's catalogue.
const KIND: &str = "message_id";

/// Begins to log.
pub(super) fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let filtered = tracing_subscriber::registry().with(filter);
    if let Some(journal) = is_journal().then(tracing_journald::layer).and_then(Result::ok) {
        let journal = journal.with_field_prefix(None).with_syslog_identifier(IDENTIFIER.to_owned());
        return filtered.with(journal).init();
    }
    let plain = debug_fn(write).delimited(" ");
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false).fmt_fields(plain);
    // Whoever read the log may have gone. To say so on the same standard error would be a panic.
    filtered.with(lines.log_internal_errors(false).with_ansi(super::text::coloured(&io::stderr()))).init();
}

/// Whether standard error is the journal's (systemd.exec(5), `JOURNAL_STREAM`).
fn is_journal() -> bool {
    let told = std::env::var("JOURNAL_STREAM").ok();
    let found = std::fs::metadata("/proc/self/fd/2").ok();
    told.zip(found).is_some_and(|(told, found)| told == format!("{}:{}", found.dev(), found.ino()))
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
