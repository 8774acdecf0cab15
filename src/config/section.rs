//! A typed reader of one table: every getter checks, notes what is wrong, and remembers its key,
//! so that in the end whatever was not asked for is unknown.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::near::nearest;
use super::notation;
use super::source::Report;
use super::tree::{At, Item, Placed, Table, Value};

pub(super) struct Section<'a> {
    /// As it stands in the file: `[[tunnel]]`.
    title: String,
    at: At,
    table: &'a Table,
    known: Vec<&'static str>,
    /// Known, too, but not to be proposed.
    refused: Vec<&'static str>,
    report: &'a Report,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(super) fn root(table: &'a Table, report: &'a Report) -> Self {
        let title = "the top of the file".to_owned();
        Self { title, at: At { file: 0, offset: 0 }, table, known: Vec::new(), refused: Vec::new(), report }
    }

    /// Where the table begins: the place of what is missing in it.
    pub(super) const fn at(&self) -> At {
        self.at
    }

    /// Where problems go.
    pub(super) const fn report(&self) -> &'a Report {
        self.report
    }

    /// Reads the value of a key. What `read` returns as an error completes the sentence that
    /// begins with the key.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&'a Value) -> Result<T, String>,
    ) -> Option<Placed<T>> {
        let (_, item) = self.entry(key)?;
        match read(&item.value) {
            Ok(value) => Some(Placed { at: item.at, value }),
            Err(why) => {
                self.report.add(item.at, format!("`{key}` {why}"));
                None
            }
        }
    }

    /// Whether a key was written, right or wrong.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Says that a key must be there, unless it is.
    pub(super) fn require(&self, key: &'static str, why: &str, example: &str) {
        if !self.has(key) {
            let title = &self.title;
            self.report.add(self.at, format!("`{key}` is missing in {title}: {why}; write {key} = {example}"));
        }
    }

    /// A text that `read` understands.
    pub(super) fn text<T>(
        &mut self,
        key: &'static str,
        kind: &str,
        example: &str,
        read: impl FnOnce(&'a str) -> Result<T, String>,
    ) -> Option<Placed<T>> {
        self.read(key, |value| match value.as_text() {
            Some(text) if !text.is_empty() => read(text),
            Some(_) | None => Err(expected(kind, value, key, &format!("{example:?}"))),
        })
    }

    pub(super) fn boolean(&mut self, key: &'static str, example: bool) -> Option<Placed<bool>> {
        self.read(key, |value| {
            value.as_boolean().ok_or_else(|| expected("true or false", value, key, &example.to_string()))
        })
    }

    /// A whole number; `why` the range, if that says more than the range itself.
    pub(super) fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
        why: &str,
        example: u32,
    ) -> Option<Placed<u32>> {
        self.read(key, |value| {
            let fits = |number: &u32| range.contains(number);
            let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
            number.filter(fits).ok_or_else(|| {
                // A number in quotes is meant; only the quotes are not.
                let example = value.as_text().and_then(|text| text.parse().ok()).filter(fits).unwrap_or(example);
                let kind = format!("a whole number from {} to {}{why}", range.start(), range.end());
                expected(&kind, value, key, &example.to_string())
            })
        })
    }

    pub(super) fn duration(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
        example: Duration,
    ) -> Option<Placed<Duration>> {
        self.read(key, |value| notation::duration(value, &range, key, example))
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Option<Placed<T>> {
        self.read(key, |value| {
            let text = value.as_text().unwrap_or_default();
            let chosen = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
            chosen.ok_or_else(|| wrong_choice(key, value, text, choices))
        })
    }

    pub(super) fn address(&mut self, key: &'static str, example: &str) -> Option<Placed<IpAddr>> {
        let kind = "an IPv4 or IPv6 address";
        self.text(key, kind, example, |text| {
            let hint = text.split_once('/').map_or(example, |(address, _)| address);
            text.parse().map_err(|_| expected(kind, &Value::Text(text.to_owned()), key, &format!("{hint:?}")))
        })
    }

    /// A path; relative ones start at the folder of the file that they are written in.
    pub(super) fn path(&mut self, key: &'static str, example: &str) -> Option<Placed<PathBuf>> {
        let report = self.report;
        let written = self.text(key, "a path", example, Ok)?;
        Some(Placed { at: written.at, value: report.resolve(written.at, written.value) })
    }

    /// A table within this one.
    pub(super) fn section(&mut self, key: &'static str, title: &str) -> Option<Self> {
        let (key_at, item) = self.entry(key)?;
        let Some(table) = item.value.as_table() else {
            self.report.add(*key_at, format!("`{key}` must be a table; write {title} once, and its keys below"));
            return None;
        };
        let (title, report) = (title.to_owned(), self.report);
        Some(Self { title, at: item.at, table, known: Vec::new(), refused: Vec::new(), report })
    }

    /// The tables of a list.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Self> {
        let title = format!("[[{key}]]");
        let Some((key_at, item)) = self.entry(key) else { return Vec::new() };
        let report = self.report;
        let section = |item: &'a Item| {
            let table = item.value.as_table()?;
            Some(Self { title: title.clone(), at: item.at, table, known: Vec::new(), refused: Vec::new(), report })
        };
        let sections: Option<Vec<_>> = item.value.as_list().and_then(|items| items.iter().map(section).collect());
        sections.unwrap_or_else(|| {
            report.add(*key_at, format!("`{key}` must be a list of tables; write {title} above the keys of each"));
            Vec::new()
        })
    }

    /// A key that means something, but not here.
    pub(super) fn refuse(&mut self, key: &'static str, why: &str) {
        self.refused.push(key);
        if let Some((key_at, _)) = self.table.get(key) {
            self.report.add(*key_at, format!("`{key}` {why}"));
        }
    }

    /// Reports every key that nobody asked for.
    pub(super) fn finish(self) {
        let heard = |key: &str| self.known.contains(&key) || self.refused.contains(&key);
        for (key, (key_at, _)) in self.table.iter().filter(|(key, _)| !heard(key)) {
            let remedy = match nearest(key, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", self.known.join(", ")),
            };
            // As anything may stand in a quoted key, and the message goes to a terminal.
            let key = key.escape_debug();
            self.report.add(*key_at, format!("`{key}` is no key of {}; {remedy}", self.title));
        }
    }

    fn entry(&mut self, key: &'static str) -> Option<&'a (At, Item)> {
        self.known.push(key);
        self.table.get(key)
    }
}

/// "must be …, not …; write …".
pub(super) fn expected(kind: &str, found: &Value, key: &str, example: &str) -> String {
    format!("must be {kind}, not {}; write {key} = {example}", found.describe())
}

fn wrong_choice<T>(key: &str, found: &Value, text: &str, choices: &[(&'static str, T)]) -> String {
    let names = || choices.iter().map(|(name, _)| *name);
    let list = names().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ");
    let proposed = nearest(text, names()).or_else(|| names().next()).unwrap_or_default();
    expected(&list, found, key, &format!("{proposed:?}"))
}
