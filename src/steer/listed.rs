//! Many things of a kind, to be told.

/// What is told in full of many.
const EXAMPLES: usize = 10;

/// How many there are, and the first ones.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) count: usize,
    pub(super) first: Vec<String>,
}

impl Listed {
    pub(super) fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < EXAMPLES {
            self.first.push(what());
        }
    }

    /// The first ones, and whether there are more.
    pub(super) fn examples(&self) -> String {
        let more = if self.count > self.first.len() { ", \u{2026}" } else { "" };
        format!("{}{more}", self.first.join(", "))
    }
}
