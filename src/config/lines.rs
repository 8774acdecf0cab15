//! TOML text, line by line.

use std::fmt::Display;
use std::path::Path;

/// The text so far.
#[derive(Default)]
pub(super) struct Lines(String);

impl Lines {
    /// A table's first line, after an empty one.
    pub(super) fn header(&mut self, header: &str) {
        self.gap();
        self.0 += header;
        self.0.push('\n');
    }

    /// An empty line, unless nothing is above it.
    pub(super) fn gap(&mut self) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
    }

    pub(super) fn line(&mut self, key: &str, value: impl Display) {
        self.0 += &format!("{key} = {value}\n");
    }

    pub(super) fn text(&mut self, key: &str, value: impl Into<String>) {
        self.line(key, toml::Value::String(value.into()));
    }

    /// A path that is not UTF-8 cannot have come from a file that is.
    pub(super) fn path(&mut self, key: &str, path: &Path) {
        self.text(key, path.to_string_lossy());
    }

    /// What is for people; no line break may be in it.
    pub(super) fn comment(&mut self, words: impl Display) {
        self.0 += &format!("# {words}\n");
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}
