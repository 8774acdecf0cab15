//! Events and tunnels, as whoever follows the daemon hears of them.

use crate::engine::{State, Time, WallTime};

/// Now, on both clocks: what is under way is timed by the one, what outlives a restart by the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock of this run.
    pub time: Time,
    /// The wall clock.
    pub wall: WallTime,
}

/// An event of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub id: u64,
    /// When it happened.
    pub at: WallTime,
    /// What it is.
    pub what: What,
}

/// What an event is, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A tunnel changed its state.
    Transition {
        /// The tunnel's name.
        tunnel: String,
        /// The state before.
        from: State,
        /// The state after.
        to: State,
        /// Why, in words.
        reason: String,
        /// The whole event as JSON, an object.
        json: String,
    },
    /// An operator drained a tunnel, or let its traffic come back.
    Drain {
        /// The tunnel's name.
        tunnel: String,
        /// Whether it is drained now.
        drained: bool,
    },
    /// Tunnels are gone, by a reload.
    Removed,
    /// The daemon's counters begin anew.
    Start,
    /// Something else.
    Other,
}

/// A tunnel as it is at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub tunnel: String,
    /// Its state.
    pub state: State,
    /// Since when.
    pub since: WallTime,
    /// Why, in words.
    pub reason: String,
    /// Whether its health is anybody's business: it is checked, and not drained.
    pub counts: bool,
    /// Whether an operator has drained it.
    pub drained: bool,
    /// Samples that were a success since the daemon began.
    pub successes: u64,
    /// Those that were a failure.
    pub failures: u64,
}
