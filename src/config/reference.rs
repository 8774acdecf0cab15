//! Every key that a configuration can have: what it takes, what holds without it, and what it means. The manual
//! page adit.toml(5) and `docs/configuration.md` are made of it.
//!
//! `tests/reference.rs` has the parser say which keys it knows, and compares; and what is written here of a
//! default with [`super::Config::effective`].

mod daemon;
mod endpoint;
mod people;
mod reflect;
mod steering;
mod tunnel;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::notation;

/// A table of the file.
pub struct Table {
    /// As it stands in the file: `[daemon]`, `[[tunnel]]`. A table with the same keys may stand in several places.
    pub titles: &'static [&'static str],
    /// What it is for. As in all texts here, `code` is between back quotes.
    pub about: &'static str,
    /// Its keys, but for those that are tables themselves.
    pub keys: Vec<Key>,
}

/// A key of a table.
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes, in words.
    pub takes: String,
    /// What holds if it is not written.
    pub usual: Usual,
    /// What it means.
    pub means: &'static str,
}

/// What holds if a key is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usual {
    /// The same as if this value were written, in the notation of the file.
    Value(String),
    /// What these words say.
    Else(&'static str),
    /// It has to be written.
    Needed,
}

/// The tables of the daemon's configuration.
#[must_use]
pub fn tables() -> Vec<Table> {
    let mut tables = vec![daemon::table()];
    tables.extend(tunnel::tables());
    tables.extend(steering::tables());
    tables.extend([endpoint::table(), people::table()]);
    tables
}

/// The tables that only the configuration of `adit reflect` has; of the daemon's it has those of tunnels.
#[must_use]
pub fn reflect_tables() -> Vec<Table> {
    reflect::tables()
}

const fn key(name: &'static str, takes: String, usual: Usual, means: &'static str) -> Key {
    Key { name, takes, usual, means }
}

/// A number, `true` or `false`.
fn plain(value: impl Display) -> Usual {
    Usual::Value(value.to_string())
}

fn quoted(value: impl Display) -> Usual {
    Usual::Value(format!("\"{value}\""))
}

fn time(value: Duration) -> Usual {
    quoted(notation::written(value))
}

fn number(range: &RangeInclusive<impl Display>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}

fn times(range: &RangeInclusive<Duration>) -> String {
    format!("a time from {} to {}", notation::written(*range.start()), notation::written(*range.end()))
}

fn words(words: &[&str]) -> String {
    words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

fn flag() -> String {
    "`true`, `false`".to_owned()
}

fn said(text: &str) -> String {
    text.to_owned()
}
