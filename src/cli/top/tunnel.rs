//! A tunnel as the local socket shows it. Fields that are not known here are skipped, and those that are not
//! there have their zero: so it goes with a daemon that is older, or newer.

use std::time::SystemTime;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The verdict; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(from = "String")]
pub(super) enum State {
    Down,
    Degraded,
    #[default]
    Unknown,
    Healthy,
}

impl State {
    pub(super) const ALL: [Self; 4] = [Self::Down, Self::Degraded, Self::Unknown, Self::Healthy];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Degraded => "degraded",
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
        }
    }

    pub(super) fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|state| state.word() == word).unwrap_or_default()
    }
}

impl From<String> for State {
    fn from(word: String) -> Self {
        Self::of(&word)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tunnel {
    pub(super) name: String,
    pub(super) encapsulation: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) direction: String,
    pub(super) state: State,
    #[serde(deserialize_with = "moment")]
    pub(super) since: Option<SystemTime>,
    pub(super) drained: bool,
    /// Why it is drained, and until when, where an operator has said so.
    #[serde(deserialize_with = "if_it_fits")]
    pub(super) drain: Option<Drain>,
    pub(super) stale: bool,
    pub(super) penalty: u64,
    #[serde(deserialize_with = "so_unless_told")]
    pub(super) checked: Checked,
    pub(super) obstacle: Option<String>,
    pub(super) assurance: String,
    pub(super) window: Window,
    pub(super) last_30: Last,
    pub(super) rtt: Option<Rtt>,
    pub(super) samples: Samples,
    pub(super) last_failure: Option<Dated>,
    pub(super) reason: String,
}

/// Whether a tunnel is checked at all, which it is unless told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Checked(pub(super) bool);

impl Default for Checked {
    fn default() -> Self {
        Self(true)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Drain {
    pub(super) reason: Option<String>,
    #[serde(deserialize_with = "moment")]
    pub(super) until: Option<SystemTime>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Window {
    pub(super) seconds: f64,
    pub(super) samples: u64,
    pub(super) failures: u64,
    pub(super) loss_ratio: f64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Last {
    pub(super) samples: u64,
    pub(super) failures: u64,
}

/// In microseconds.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rtt {
    pub(super) last_us: u64,
    pub(super) min_us: u64,
    pub(super) mean_us: u64,
    pub(super) p99_us: u64,
    pub(super) jitter_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(super) struct Samples {
    pub(super) success: u64,
    pub(super) failure: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Dated {
    #[serde(deserialize_with = "moment")]
    pub(super) at: Option<SystemTime>,
    pub(super) reason: String,
}

/// The whole answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tunnels {
    pub(super) tunnels: Vec<Tunnel>,
}

/// An RFC 3339 time; none if it is something else.
pub(super) fn moment<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SystemTime>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.and_then(|text| humantime::parse_rfc3339(&text).ok()))
}

fn if_it_fits<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Drain>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).ok())
}

fn so_unless_told<'de, D: Deserializer<'de>>(from: D) -> Result<Checked, D::Error> {
    bool::deserialize(from).map(Checked)
}
