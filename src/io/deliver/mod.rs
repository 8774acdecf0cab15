//! The way to a sink: a program that is run, or a webhook that is asked. Each message takes no longer than it may,
//! whatever hangs at the other end.
//!
//! | file | holds |
//! | --- | --- |
//! | `exec` | a program, its time, its group of processes |
//! | `webhook` | a POST |

mod exec;
mod webhook;

use std::time::Duration;

use crate::notice::{Means, Message, Outcome};

/// What a message has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whether it was heard.
    pub outcome: Outcome,
    /// What is to be said of that, for people: anything may be in it that the other end said.
    pub words: String,
}

impl Report {
    fn told(words: impl Into<String>) -> Self {
        Self { outcome: Outcome::Told, words: words.into() }
    }

    fn failed(words: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed, words: words.into() }
    }

    fn again(words: impl Into<String>) -> Self {
        Self { outcome: Outcome::Again, words: words.into() }
    }
}

/// Bytes of what the other end says that are read.
const HEARD: usize = 2_048;

/// Carries a message to the sink of this name. Dropped on the way, it ends the program that it has begun.
pub async fn deliver(name: &str, means: &Means, message: Message, timeout: Duration) -> Report {
    match means {
        Means::Exec(command) => exec::run(name, command, &message, timeout).await,
        Means::Webhook(url, headers) => webhook::post(url.clone(), headers.clone(), message.body, timeout).await,
    }
}

/// What the other end said, as one line that moves no terminal's cursor.
fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(HEARD)]);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let plain =
        |letter: char| if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() };
    lines.join(" | ").chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn what_the_other_end_says_is_one_short_line() {
        assert_eq!(said(b"no route\n\n  to host \x1b[2J\n"), r"no route | to host \u{1b}[2J");
        assert!(said(&[b'x'; 10_000]).len() <= super::HEARD);
        assert_eq!(said(b""), "");
    }
}
