//! `adit reload`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use super::client::{block_on, post_slow};
use super::{Exit, Outcome, complain};

pub(super) fn run(socket: &Path) -> Outcome {
    let applied: Value = block_on(post_slow(socket, "/v1/reload"))?;
    for note in applied["notes"].as_array().into_iter().flatten() {
        complain(&note.as_str().unwrap_or_default());
    }
    let count = |key: &str| applied[key].as_u64().unwrap_or(0);
    let [kept, changed, added, removed] = ["kept", "changed", "added", "removed"].map(count);
    writeln!(io::stdout().lock(), "reloaded: {kept} kept, {changed} changed, {added} added, {removed} removed")?;
    Ok(Exit::Done)
}
