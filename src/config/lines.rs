//! TOML text, line by line.

use std::fmt::Display;
use std::path::Path;

/// Columns of a comment.
const WIDTH: usize = 100;

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

    /// What is for people, in as many lines as it takes; no line break may be in it.
    pub(super) fn comment(&mut self, words: impl Display) {
        let words = words.to_string();
        let mut line = String::from("#");
        for word in words.split(' ') {
            if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.0 += &line;
                self.0.push('\n');
                line.truncate(1);
            }
            line.push(' ');
            line += word;
        }
        self.0 += line.trim_end();
        self.0.push('\n');
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Words for a comment: names and descriptions from elsewhere may hold anything, and a comment ends with its line.
pub(super) fn plain(text: impl Display) -> String {
    text.to_string().escape_debug().to_string()
}
