//! The same state of the same tunnel, again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::batch::Item;
use crate::engine::{State, WallTime};

/// What was told of which tunnel, and what is held back because it was told a short time ago.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Guard {
    /// When each state of a tunnel was told last, in nanoseconds of the wall clock; 0 if never.
    told: BTreeMap<String, [u64; State::ALL.len()]>,
    held: BTreeMap<String, Held>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    /// The last transition that was held back.
    item: Item,
    state: State,
    /// How many there were.
    count: u64,
    /// When the state that it leads to was told.
    since: u64,
    standing: Standing,
}

/// Whether what was held back is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Standing {
    /// When its time has come.
    Holds,
    /// Not while the tunnel is drained.
    Drained,
    /// The tunnel has gone on into a state that is not told: only the count matters now.
    Over,
}

impl Guard {
    /// What to tell of a transition now: nothing, if the same was told a short time before.
    pub(super) fn offer(&mut self, at: WallTime, repeat: Duration, item: Item, state: State) -> Option<Item> {
        let tunnel = item.tunnel.clone().unwrap_or_default();
        let told = self.told.entry(tunnel.clone()).or_default();
        let last = &mut told[place(state)];
        let count = self.held.get(&tunnel).map_or(0, |held| held.count);
        if *last > 0 && apart(at.0, *last) < repeat {
            self.held.insert(tunnel, Held { item, state, count: count + 1, since: *last, standing: Standing::Holds });
            return None;
        }
        *last = at.0;
        // What is told now is newer than what was held back.
        self.held.remove(&tunnel);
        Some(if count > 0 { item.with("repeated", count) } else { item })
    }

    /// A tunnel has entered a state that is not told. That it has the one that was held back would be false now.
    pub(super) fn leave(&mut self, tunnel: &str) {
        if let Some(held) = self.held.get_mut(tunnel) {
            held.standing = Standing::Over;
        }
    }

    /// A tunnel is drained now, or not any more: until then nothing is told of it.
    pub(super) fn drain(&mut self, tunnel: &str, drained: bool) {
        let Some(held) = self.held.get_mut(tunnel) else { return };
        held.standing = match (held.standing, drained) {
            (Standing::Over, _) => Standing::Over,
            (Standing::Holds | Standing::Drained, true) => Standing::Drained,
            (Standing::Holds | Standing::Drained, false) => Standing::Holds,
        };
    }

    /// Forgets the tunnels that are not there any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.told.retain(|tunnel, _| is_there(tunnel));
        self.held.retain(|tunnel, _| is_there(tunnel));
    }

    /// What was held back long enough: of each tunnel the last, and how many there were beside it.
    pub(super) fn due(&mut self, now: WallTime, repeat: Duration) -> Vec<Item> {
        let is_due = |held: &Held| held.standing == Standing::Holds && apart(now.0, held.since) >= repeat;
        let tunnels: Vec<String> =
            self.held.iter().filter(|(_, held)| is_due(held)).map(|(name, _)| name.clone()).collect();
        let due = tunnels.into_iter().filter_map(|tunnel| {
            let Held { item, state, count, .. } = self.held.remove(&tunnel)?;
            self.told.entry(tunnel).or_default()[place(state)] = now.0;
            // The one that is told now is among them.
            let words = match count - 1 {
                0 => return Some(item),
                1 => format!("{} (1 repetition was held back)", item.words),
                more => format!("{} ({more} repetitions were held back)", item.words),
            };
            Some(Item { words, ..item.with("repeated", count - 1) })
        });
        due.collect()
    }

    /// How long until something is due.
    pub(super) fn wait(&self, now: WallTime, repeat: Duration) -> Option<Duration> {
        let held = self.held.values().filter(|held| held.standing == Standing::Holds);
        held.map(|held| repeat.saturating_sub(apart(now.0, held.since))).min()
    }

    /// Forgets what makes no difference any more.
    pub(super) fn forget(&mut self, now: WallTime, repeat: Duration) {
        self.told.retain(|_, told| told.iter().any(|at| *at > 0 && apart(now.0, *at) < repeat));
    }
}

/// A clock that was set back must not keep anybody waiting for a year: then it is as long the other way.
pub(super) fn apart(one: u64, other: u64) -> Duration {
    Duration::from_nanos(one.abs_diff(other))
}

fn place(state: State) -> usize {
    match state {
        State::Unknown => 0,
        State::Healthy => 1,
        State::Degraded => 2,
        State::Down => 3,
    }
}
