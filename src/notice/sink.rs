//! A sink as it is configured.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::engine::State;
use crate::engine::health::Ratio;

/// A `[[notify]]`. Without `Debug`: it may hold a secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct Notify {
    /// What it is told.
    pub sink: Sink,
    /// By what it is told.
    pub means: Means,
    /// How long it may take to hear a message.
    pub timeout: Duration,
}

/// What a sink is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    /// By this it is known, also to the next run.
    pub name: String,
    /// It is told of transitions into these states.
    pub on: Vec<State>,
    /// And when this is missed, and reached again.
    pub slo: Option<Objective>,
    /// Of tunnels whose names match one of these; of all, if there are none.
    pub tunnels: Vec<String>,
    /// The same state of the same tunnel is told again only so long after.
    pub repeat: Duration,
    /// For so long a message waits for what happens beside it.
    pub batch: Duration,
}

/// A share of probes that is to succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// The share.
    pub target: Ratio,
    /// It is judged as often as this, over this time and over twelve times as long.
    pub window: Duration,
    /// That it is still missed, or is again, is told only so long after.
    pub repeat: Duration,
}

/// By what a sink is told. Without `Debug`: the path of a webhook is often its secret.
#[derive(Clone, Serialize, Deserialize)]
pub enum Means {
    /// A program, and its arguments.
    Exec(Vec<String>),
    /// A POST to this URL, with these headers beside the usual ones.
    Webhook(String, Option<Headers>),
}

/// Headers that hold a secret. Without `Debug`.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Headers {
    /// The file that they are from.
    #[serde(skip)]
    pub path: PathBuf,
    /// `Name: value`, a line each.
    text: Zeroizing<String>,
}

impl Headers {
    /// The headers that a text has, a line each; empty lines and those that begin with `#` mean nothing.
    ///
    /// # Errors
    /// What is wrong with which line, without repeating it.
    pub fn read(path: PathBuf, text: &str) -> Result<Self, String> {
        let headers = Self { path, text: Zeroizing::new(text.to_owned()) };
        let lines = headers.lines().map(|(at, line)| header(line).map(drop).ok_or(at));
        match lines.collect::<Result<Vec<()>, usize>>() {
            Ok(found) if found.is_empty() => Err("holds no header".to_owned()),
            Ok(_) => Ok(headers),
            Err(at) => Err(format!("holds something else than `Name: value` in line {at}")),
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.lines().filter_map(|(_, line)| header(line))
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    }
}

/// A header as RFC 9110 section 5 has it: a token, and a value in printable ASCII.
fn header(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let value = value.trim();
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let plain = |byte: u8| byte == b' ' || byte == b'\t' || byte.is_ascii_graphic();
    let is_good = !name.is_empty() && name.bytes().all(token) && !value.is_empty() && value.bytes().all(plain);
    is_good.then_some((name, value))
}

/// The program, or the webhook without what may be secret of it.
impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(command) => f.write_str(command.first().map_or("", String::as_str)),
            Self::Webhook(url, _) => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
                let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
                write!(f, "{scheme}://{host}")
            }
        }
    }
}

impl Sink {
    /// Whether it is told of a tunnel.
    #[must_use]
    pub fn hears_of(&self, tunnel: &str) -> bool {
        self.tunnels.is_empty() || self.tunnels.iter().any(|pattern| matches(pattern, tunnel))
    }

    /// Whether it is told of transitions into a state.
    #[must_use]
    pub fn hears_on(&self, state: State) -> bool {
        self.on.contains(&state)
    }
}

/// Whether a name matches a pattern, in which `*` stands for any letters and `?` for one.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut read) = (0, 0);
    // Where the last star was, and how far it reached: it can only reach further.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(&letter) if letter == b'?' || letter == name[read] => (at, read) = (at + 1, read + 1),
            Some(_) | None => {
                let Some((begin, reach)) = star else { return false };
                star = Some((begin, reach + 1));
                (at, read) = (begin + 1, reach + 1);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_as_in_a_shell() {
        for (pattern, name, is_it) in [
            ("ams-*", "ams-1", true),
            ("ams-*", "fra-1", false),
            ("*", "", true),
            ("*-1", "ams-1-1", true),
            ("a?s-1", "ams-1", true),
            ("a?s-1", "as-1", false),
            ("ams-1", "ams-12", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), is_it, "{pattern} {name}");
        }
        // Each star reaches further once: no name makes this long.
        assert!(!matches(&"*a".repeat(64), &"a".repeat(63)));
    }

    #[test]
    fn headers_are_lines_and_what_is_wrong_is_said_by_its_number_only() {
        let read = |text: &str| Headers::read(PathBuf::new(), text);
        let good = read("# token\nAuthorization: Bearer secret:with:colons\n\nX-Tag:1\n").unwrap_or_default();
        assert_eq!(good.iter().collect::<Vec<_>>(), [("Authorization", "Bearer secret:with:colons"), ("X-Tag", "1")]);
        for (text, why) in [
            ("", "holds no header"),
            ("secret", "holds something else than `Name: value` in line 1"),
            ("A: b\nsecret here: x", "holds something else than `Name: value` in line 2"),
            ("A: b\u{1}", "holds something else than `Name: value` in line 1"),
            ("A:", "holds something else than `Name: value` in line 1"),
        ] {
            assert_eq!(read(text).err().as_deref(), Some(why), "{text:?}");
        }
    }

    #[test]
    fn a_webhook_is_shown_without_its_path() {
        let shown = |url: &str| Means::Webhook(url.to_owned(), None).to_string();
        assert_eq!(shown("https://hooks.example.com/T0/B0/secret"), "https://hooks.example.com");
        assert_eq!(shown("http://127.0.0.1:8080?token=secret"), "http://127.0.0.1:8080");
    }
}
