//! What has come together for a sink, and the message that it makes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::engine::WallTime;

/// Items that a message lists. What comes beside them is counted.
pub const LISTED: usize = 50;
/// Items whose words stand in a message's text.
const SPOKEN: usize = 5;
/// The longest text of one item, in bytes.
const WORDS: usize = 400;

/// One thing to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Item {
    /// As JSON, an object.
    pub(super) json: String,
    /// In words.
    pub(super) words: String,
    /// What it is counted as: a state, or what became of an objective.
    pub(super) count_as: String,
    /// The tunnel.
    pub(super) tunnel: Option<String>,
}

impl Item {
    /// The same, with a field more.
    pub(super) fn with(mut self, key: &str, value: u64) -> Self {
        if self.json.ends_with('}') {
            self.json.truncate(self.json.len() - 1);
            self.json += &format!(",\"{key}\":{value}}}");
        }
        self
    }

    /// The fields that stand beside the event, where it is the only one.
    fn beside(&self) -> Map<String, Value> {
        let mut fields: Map<String, Value> = serde_json::from_str(&self.json).unwrap_or_default();
        fields.retain(|key, _| BESIDE.contains(&key.as_str()));
        fields
    }
}

/// What has come together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Batch {
    /// The first of it.
    items: Vec<Item>,
    /// How many there are of each kind.
    counts: BTreeMap<String, u64>,
}

impl Batch {
    pub(super) fn add(&mut self, item: Item) {
        *self.counts.entry(item.count_as.clone()).or_default() += 1;
        if self.items.len() < LISTED {
            self.items.push(item);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// In words, for people who read nothing else.
    fn text(&self) -> String {
        let more = self.count() - self.items.len() as u64;
        if self.items.len() <= SPOKEN && more == 0 {
            return self.items.iter().map(|item| shortened(&item.words)).collect::<Vec<_>>().join("\n");
        }
        let counts: Vec<_> = self.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let first: Vec<_> = self.items.iter().take(SPOKEN).map(|item| shortened(&item.words)).collect();
        format!("{} changes: {}; the first of them:\n{}", self.count(), counts.join(", "), first.join("\n"))
    }
}

fn shortened(words: &str) -> String {
    if words.len() <= WORDS { words.to_owned() } else { format!("{}…", &words[..words.floor_char_boundary(WORDS)]) }
}

/// What a sink is told at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// All of it: a JSON object.
    pub body: String,
    /// In words.
    pub text: String,
    /// How many things it tells.
    pub count: u64,
    /// The tunnel, if it tells one thing, of a tunnel.
    pub tunnel: Option<String>,
    /// And what of it: a state, or what became of an objective.
    pub state: Option<String>,
}

#[derive(Serialize)]
struct Body<'a> {
    kind: &'static str,
    sink: &'a str,
    host: &'a str,
    at: WallTime,
    text: &'a str,
    count: u64,
    counts: &'a BTreeMap<String, u64>,
    events: Vec<Box<RawValue>>,
    more: u64,
    undelivered: u64,
    #[serde(flatten)]
    single: Map<String, Value>,
}

/// What of the event of a message that tells one thing stands beside it, too: so a program need not look for it.
const BESIDE: [&str; 6] = ["id", "tunnel", "from", "to", "reason", "penalty"];

/// Who tells.
#[derive(Clone, Copy)]
pub(super) struct Letterhead<'a> {
    pub(super) sink: &'a str,
    pub(super) host: &'a str,
    pub(super) at: WallTime,
}

impl Message {
    /// Of a batch. So many things before it could not be told.
    pub(super) fn of(batch: &Batch, head: Letterhead<'_>, undelivered: u64) -> Self {
        let mut text = batch.text();
        if undelivered > 0 {
            text += &format!("\n({undelivered} earlier changes could not be told here)");
        }
        let events: Vec<_> =
            batch.items.iter().filter_map(|item| RawValue::from_string(item.json.clone()).ok()).collect();
        let more = batch.count() - batch.items.len() as u64;
        let single = batch.items.first().filter(|_| batch.count() == 1);
        let (tunnel, state) = (single.and_then(|item| item.tunnel.clone()), single.map(|item| item.count_as.clone()));
        let Letterhead { sink, host, at } = head;
        let (count, counts, text) = (batch.count(), &batch.counts, text.as_str());
        let single = single.map_or_else(Map::new, Item::beside);
        let kind = "notification";
        let body = Body { kind, sink, host, at, text, count, counts, events, more, undelivered, single };
        // None of its parts can fail to be JSON.
        let body = serde_json::to_string(&body).unwrap_or_default();
        Self { body, text: text.to_owned(), count, tunnel, state }
    }

    /// One that tells nothing, to see whether a sink hears.
    #[must_use]
    pub fn test(sink: &str, host: &str, at: WallTime) -> Self {
        let words = format!("a test message of adit on {host}: nothing has happened");
        let json = serde_json::json!({"at": at, "kind": "test", "reason": words}).to_string();
        let mut batch = Batch::default();
        batch.add(Item { json, words, count_as: "test".to_owned(), tunnel: None });
        Self::of(&batch, Letterhead { sink, host, at }, 0)
    }
}
