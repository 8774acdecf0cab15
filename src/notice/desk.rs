//! All sinks, what they have in common, and what outlives a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::batch::{Item, Message};
use super::heard::{Event, Now, Seen, What};
use super::post::{Kept, Outcome, Post};
use super::sink::Sink;
use crate::engine::{State, Time, WallTime};

/// What is older is not told as it happened: only what has come of it.
const OLD: Duration = Duration::from_secs(3_600);
/// After a gap, what was not missed is heard first.
const SETTLE: Duration = Duration::from_millis(500);

/// A message for a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The sink's name.
    pub sink: String,
    /// The message.
    pub message: Message,
}

/// What outlives a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    cursor: u64,
    states: BTreeMap<String, State>,
    sinks: BTreeMap<String, Kept>,
}

/// All sinks.
#[derive(Debug)]
pub struct Desk {
    host: String,
    /// The last event that was heard.
    cursor: u64,
    /// The states that tunnels are known to have.
    states: BTreeMap<String, State>,
    posts: Vec<Post>,
    gap: Option<Gap>,
    /// The tunnels of which something was heard since they were last begun to be looked at.
    changed: BTreeSet<String>,
    /// What a note would say is not what the last one said.
    has_news: bool,
}

/// Events that were not heard.
#[derive(Debug)]
struct Gap {
    /// How many, as far as is known.
    missed: Option<u64>,
    /// When tunnels are looked at.
    settles: Time,
}

impl Desk {
    /// Sinks that go on from a note. Those that are not in it hear what happens from `since` on.
    #[must_use]
    pub fn new(host: String, sinks: Vec<Sink>, since: WallTime, note: Option<Note>, now: Now) -> Self {
        let Note { cursor, states, sinks: mut kept } = note.unwrap_or_default();
        let posts = sinks.into_iter().map(|sink| {
            let kept = kept.remove(&sink.name);
            Post::new(sink, since, now.time, kept)
        });
        let posts = posts.collect();
        Self { host, cursor, states, posts, gap: None, changed: BTreeSet::new(), has_news: true }
    }

    /// Other sinks from now on; those of the same names go on.
    pub fn renew(&mut self, now: Now, sinks: Vec<Sink>, since: WallTime) {
        let mut before = std::mem::take(&mut self.posts);
        let mut post = |sink: Sink| match before.iter().position(|post| post.sink.name == sink.name) {
            Some(place) => before.swap_remove(place).with(sink),
            None => Post::new(sink, since, now.time, None),
        };
        self.posts = sinks.into_iter().map(&mut post).collect();
        self.has_news = true;
    }

    /// The last event that was heard.
    #[must_use]
    pub const fn cursor(&self) -> u64 {
        self.cursor
    }

    /// An event happened.
    pub fn handle_event(&mut self, now: Now, event: Event) {
        let Event { id, at, what } = event;
        if id <= self.cursor {
            return;
        }
        self.cursor = id;
        match what {
            What::Transition { tunnel, from, to, reason, json } => {
                if super::guard::apart(now.wall.0, at.0) > OLD {
                    return self.miss(now, 1);
                }
                let words = format!("{tunnel} is {to} (was {from}): {reason}");
                let item = Item { json, words, count_as: to.name().to_owned(), tunnel: Some(tunnel) };
                self.enter(now, at, to, item);
            }
            What::Start => self.posts.iter_mut().for_each(Post::restart),
            What::Other => {}
        }
    }

    /// A tunnel has entered a state. That it has one that it was known to have is no news.
    fn enter(&mut self, now: Now, at: WallTime, to: State, item: Item) {
        let tunnel = item.tunnel.clone().unwrap_or_default();
        if self.gap.is_some() {
            self.changed.insert(tunnel.clone());
        }
        if self.states.insert(tunnel, to) == Some(to) {
            return;
        }
        self.posts.iter_mut().for_each(|post| post.hear(now, at, to, &item));
        self.has_news = true;
    }

    /// Events were missed: so many, if that is known. If counting has begun anew, `anew` is true.
    pub fn handle_gap(&mut self, now: Now, missed: Option<u64>, anew: bool) {
        if anew {
            self.cursor = 0;
        }
        let missed =
            self.gap.as_ref().map_or(Some(0), |gap| gap.missed).zip(missed).map(|(before, more)| before + more);
        self.gap = Some(Gap { missed, settles: now.time + SETTLE });
    }

    fn miss(&mut self, now: Now, count: u64) {
        self.handle_gap(now, Some(count), false);
    }

    /// Somebody begins to look at the tunnels. What is heard from here on is newer than what they will see.
    pub fn look_begins(&mut self) {
        self.changed.clear();
    }

    /// All tunnels, as they are: asked for when [`Desk::look_wait`] is over. What was heard since
    /// [`Desk::look_begins`] is newer.
    pub fn handle_tunnels(&mut self, now: Now, seen: &[Seen]) {
        if let Some(gap) = self.gap.take_if(|gap| now.time >= gap.settles) {
            self.settle(now, &gap, seen);
        }
        for post in &mut self.posts {
            self.has_news |= post.look(now, seen);
        }
    }

    /// Tells what has come of the events that were missed. Where nothing is known of a tunnel, because nobody was here
    /// before, it is learned.
    fn settle(&mut self, now: Now, gap: &Gap, seen: &[Seen]) {
        let before: Vec<bool> = self.posts.iter().map(Post::is_pending).collect();
        let mut states = std::mem::take(&mut self.states);
        // Those that are not there any more are forgotten.
        self.states = seen.iter().filter_map(|seen| states.remove_entry(&seen.tunnel)).collect();
        for seen in seen.iter().filter(|seen| !self.changed.contains(&seen.tunnel)).collect::<Vec<_>>() {
            let known = self.states.get(&seen.tunnel).copied();
            // Of a tunnel that nothing is known of, that it is well is no news.
            let is_news = known.map_or(seen.state > State::Healthy, |known| known != seen.state);
            if !is_news {
                self.states.entry(seen.tunnel.clone()).or_insert(seen.state);
                continue;
            }
            self.enter(now, now.wall, seen.state, caught_up(seen, known));
        }
        for (post, was_pending) in self.posts.iter_mut().zip(before) {
            if !was_pending && post.is_pending() {
                post.beside(now, gap.item(now.wall));
            }
        }
        self.has_news = true;
    }

    /// How long until tunnels are to be looked at; `None` if nobody wants to know.
    #[must_use]
    pub fn look_wait(&self, now: Now) -> Option<Duration> {
        let objectives = self.posts.iter().filter_map(|post| post.look_wait(now.wall));
        objectives.chain(self.gap.as_ref().map(|gap| gap.settles.since(now.time))).min()
    }

    /// A message has been carried.
    pub fn handle_done(&mut self, now: Now, sink: &str, outcome: Outcome) {
        if let Some(post) = self.posts.iter_mut().find(|post| post.sink.name == sink) {
            post.done(now, outcome);
            self.has_news = true;
        }
    }

    /// A message that is to be carried now. Before it is, what [`Desk::note`] says should be written down.
    pub fn poll(&mut self, now: Now) -> Option<Delivery> {
        let host = &self.host;
        let delivery = self.posts.iter_mut().find_map(|post| {
            let message = post.poll(now, host)?;
            Some(Delivery { sink: post.sink.name.clone(), message })
        });
        self.has_news |= delivery.is_some();
        delivery
    }

    /// How long until there may be something to do; `None` if nothing is.
    #[must_use]
    pub fn wait(&self, now: Now) -> Option<Duration> {
        self.posts.iter().filter_map(|post| post.wait(now)).min()
    }

    /// Whether a note would say something that matters and the last one did not.
    #[must_use]
    pub const fn has_news(&self) -> bool {
        self.has_news
    }

    /// What outlives a restart.
    pub fn note(&mut self, now: Now) -> Note {
        self.has_news = false;
        let sinks = self.posts.iter_mut().map(|post| (post.sink.name.clone(), post.keep(now.wall)));
        Note { cursor: self.cursor, states: self.states.clone(), sinks: sinks.collect() }
    }
}

impl Gap {
    fn item(&self, now: WallTime) -> Item {
        let count = self.missed.map_or_else(|| "events".to_owned(), |missed| format!("up to {missed} events"));
        let words = format!("{count} before these were missed: this is what has come of them");
        let json = json!({"at": now, "kind": "gap", "missed": self.missed, "reason": words}).to_string();
        Item { json, words, count_as: "gap".to_owned(), tunnel: None }
    }
}

/// What stands for the transitions that were missed.
fn caught_up(seen: &Seen, known: Option<State>) -> Item {
    let Seen { tunnel, state, since, reason, .. } = seen;
    let json = json!({
        "at": since, "kind": "transition", "tunnel": tunnel, "from": known, "to": state, "reason": reason, "missed": true,
    });
    let was = known.map(|known| format!(" (was {known})")).unwrap_or_default();
    let words = format!("{tunnel} is {state}{was}, since {since}: {reason}");
    Item { json: json.to_string(), words, count_as: state.name().to_owned(), tunnel: Some(tunnel.clone()) }
}
