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
    drained: BTreeMap<String, Shelf>,
    sinks: BTreeMap<String, Kept>,
}

/// What is kept of a drained tunnel until it is not drained any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Shelf {
    /// The state that it had before, if that is known.
    was: Option<State>,
    /// The last state that it has entered since, and what there is to tell of that.
    last: Option<(State, Item)>,
}

/// All sinks.
#[derive(Debug)]
pub struct Desk {
    host: String,
    /// The last event that was heard.
    cursor: u64,
    /// The states that tunnels are known to have.
    states: BTreeMap<String, State>,
    /// The tunnels that are drained: nobody is told of them.
    drained: BTreeMap<String, Shelf>,
    posts: Vec<Post>,
    gap: Option<Gap>,
    /// Nothing was known at the beginning, and nothing has happened since then. What was before that is nobody's news.
    begins: Option<WallTime>,
    /// Somebody looks at the tunnels.
    is_looking: bool,
    /// The tunnels are to be looked at, whatever else wants that.
    wants_look: bool,
    /// The tunnels whose state was heard of since they were begun to be looked at.
    changed: BTreeSet<String>,
    /// And those whose drain was.
    turned: BTreeSet<String>,
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
    /// They were before anything was known: what has come of them is learned, and told to nobody.
    is_before: bool,
}

impl Desk {
    /// Sinks that go on from a note. Those that are not in it hear what happens from `since` on.
    #[must_use]
    pub fn new(host: String, sinks: Vec<Sink>, since: WallTime, note: Option<Note>, now: Now) -> Self {
        // Where nothing is known of the tunnels, nothing is of their drains.
        let (begins, wants_look) = (note.is_none().then_some(since), note.is_none());
        let Note { cursor, states, drained, sinks: mut kept } = note.unwrap_or_default();
        let posts = sinks.into_iter().map(|sink| {
            let kept = kept.remove(&sink.name);
            Post::new(sink, since, now.time, kept)
        });
        let posts = posts.collect();
        let (changed, turned) = (BTreeSet::new(), BTreeSet::new());
        Self {
            host,
            cursor,
            states,
            drained,
            posts,
            gap: None,
            begins,
            is_looking: false,
            wants_look,
            changed,
            turned,
            has_news: true,
        }
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
        self.begins.take_if(|begins| at >= *begins);
        match what {
            What::Transition { tunnel, from, to, reason, json } => {
                if super::guard::apart(now.wall.0, at.0) > OLD {
                    return self.miss(now, 1);
                }
                let words = format!("{tunnel} is {to} (was {from}): {reason}");
                let item = Item { json, words, count_as: to.name().to_owned(), tunnel: Some(tunnel) };
                self.enter(now, at, to, item);
            }
            What::Drain { tunnel, drained } => self.hear_drain(now, at, tunnel, drained),
            What::Removed => self.wants_look = true,
            What::Start => self.posts.iter_mut().for_each(Post::restart),
            What::Other => {}
        }
    }

    /// A tunnel has entered a state. That it has one that it was known to have is no news.
    fn enter(&mut self, now: Now, at: WallTime, to: State, item: Item) {
        let tunnel = item.tunnel.clone().unwrap_or_default();
        if self.is_looking {
            self.changed.insert(tunnel.clone());
        }
        let shelf = self.drained.get_mut(&tunnel);
        if self.states.insert(tunnel, to) == Some(to) {
            return;
        }
        match shelf {
            Some(shelf) => shelf.last = Some((to, item)),
            None => self.posts.iter_mut().for_each(|post| post.hear(now, at, to, &item)),
        }
        self.has_news = true;
    }

    fn hear_drain(&mut self, now: Now, at: WallTime, tunnel: String, drained: bool) {
        if drained {
            self.shelve(&tunnel, None);
        } else {
            self.unshelve(now, at, &tunnel);
        }
        if self.is_looking {
            self.turned.insert(tunnel);
        }
    }

    /// A tunnel is drained: it has this state, if nothing else is known of it.
    fn shelve(&mut self, tunnel: &str, seen: Option<State>) {
        if self.drained.contains_key(tunnel) {
            return;
        }
        let was = self.states.get(tunnel).copied().or(seen);
        self.drained.insert(tunnel.to_owned(), Shelf { was, last: None });
        self.posts.iter_mut().for_each(|post| post.drain(tunnel, true));
        self.has_news = true;
    }

    /// A tunnel is not drained any more. What has come of it meanwhile is told, if it is news.
    fn unshelve(&mut self, now: Now, at: WallTime, tunnel: &str) {
        let Some(Shelf { was, last }) = self.drained.remove(tunnel) else { return };
        self.posts.iter_mut().for_each(|post| post.drain(tunnel, false));
        if let Some((state, item)) = last.filter(|(state, _)| is_news(was, *state)) {
            self.posts.iter_mut().for_each(|post| post.hear(now, at, state, &item));
        }
        self.has_news = true;
    }

    /// Events were missed: so many, if that is known. If counting has begun anew, `anew` is true.
    pub fn handle_gap(&mut self, now: Now, missed: Option<u64>, anew: bool) {
        if anew {
            self.cursor = 0;
        }
        let missed =
            self.gap.as_ref().map_or(Some(0), |gap| gap.missed).zip(missed).map(|(before, more)| before + more);
        let is_before = self.gap.as_ref().map_or(self.begins.is_some(), |gap| gap.is_before);
        self.gap = Some(Gap { missed, settles: now.time + SETTLE, is_before });
    }

    fn miss(&mut self, now: Now, count: u64) {
        self.handle_gap(now, Some(count), false);
    }

    /// Somebody begins to look at the tunnels. What is heard from here on is newer than what they will see.
    pub fn look_begins(&mut self) {
        (self.is_looking, self.wants_look) = (true, false);
        self.changed.clear();
        self.turned.clear();
    }

    /// They could not be seen.
    pub const fn look_fails(&mut self) {
        (self.is_looking, self.wants_look) = (false, true);
    }

    /// All tunnels, as they are: asked for when [`Desk::look_wait`] is over. What was heard since
    /// [`Desk::look_begins`] is newer.
    pub fn handle_tunnels(&mut self, now: Now, seen: &[Seen]) {
        self.is_looking = false;
        self.forget_all_but(seen);
        let is_told = |seen: &&Seen| !self.turned.contains(&seen.tunnel);
        let (drained, others): (Vec<&Seen>, Vec<&Seen>) = seen.iter().filter(is_told).partition(|seen| seen.drained);
        // Of a gap it is told what has come of it: that was before it was seen.
        let learns = self.gap.as_ref().is_none_or(|gap| gap.is_before);
        drained.iter().for_each(|seen| self.shelve(&seen.tunnel, learns.then_some(seen.state)));
        if let Some(gap) = self.gap.take_if(|gap| now.time >= gap.settles) {
            self.settle(now, &gap, seen);
        }
        others.iter().for_each(|seen| self.unshelve(now, now.wall, &seen.tunnel));
        for post in &mut self.posts {
            self.has_news |= post.look(now, seen);
        }
    }

    /// Forgets the tunnels that are not there any more: one that is made anew under the same name is another one.
    fn forget_all_but(&mut self, seen: &[Seen]) {
        let names: BTreeSet<&str> = seen.iter().map(|seen| seen.tunnel.as_str()).collect();
        let (changed, turned) = (&self.changed, &self.turned);
        let is_there = |tunnel: &str| names.contains(tunnel) || changed.contains(tunnel) || turned.contains(tunnel);
        let before = self.states.len() + self.drained.len();
        self.states.retain(|tunnel, _| is_there(tunnel));
        self.drained.retain(|tunnel, _| is_there(tunnel));
        self.posts.iter_mut().for_each(|post| post.retain(is_there));
        self.has_news |= before != self.states.len() + self.drained.len();
    }

    /// Tells what has come of the events that were missed. Where nothing is known of a tunnel, because nobody was here
    /// before, it is learned.
    fn settle(&mut self, now: Now, gap: &Gap, seen: &[Seen]) {
        let before: Vec<bool> = self.posts.iter().map(Post::is_pending).collect();
        for seen in seen.iter().filter(|seen| !self.changed.contains(&seen.tunnel)).collect::<Vec<_>>() {
            let known = self.states.get(&seen.tunnel).copied();
            if gap.is_before || !is_news(known, seen.state) {
                self.states.insert(seen.tunnel.clone(), seen.state);
                continue;
            }
            self.enter(now, now.wall, seen.state, caught_up(seen, known));
        }
        for (post, was_pending) in self.posts.iter_mut().zip(before) {
            if !was_pending && post.is_pending() {
                post.beside(now, gap.item(now.wall));
            }
        }
        self.begins = None;
        self.has_news = true;
    }

    /// How long until tunnels are to be looked at; `None` if nobody wants to know.
    #[must_use]
    pub fn look_wait(&self, now: Now) -> Option<Duration> {
        let objectives = self.posts.iter().filter_map(|post| post.look_wait(now.wall));
        let gap = self.gap.as_ref().map(|gap| gap.settles.since(now.time));
        objectives.chain(gap).chain(self.wants_look.then_some(Duration::ZERO)).min()
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
        let (states, drained) = (self.states.clone(), self.drained.clone());
        Note { cursor: self.cursor, states, drained, sinks: sinks.collect() }
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

/// Whether people want to know of a state: of a tunnel that nothing is known of, that it is well is no news.
fn is_news(known: Option<State>, state: State) -> bool {
    known.map_or(state > State::Healthy, |known| known != state)
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
