//! What adit tells of: a bounded ring of events, numbered, with gaps that show.

use std::collections::VecDeque;

use serde::Serialize;

use super::endpoints;
use super::health::State;
use super::time::{Time, WallTime};

/// Something worth telling.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Numbered without holes, from 1, or on from the last run; after a crash, a hole says that more may have
    /// happened.
    pub id: u64,
    /// When.
    pub at: WallTime,
    /// What.
    #[serde(flatten)]
    pub kind: Kind,
}

/// The kinds of event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// A tunnel changed its state.
    Transition {
        /// The tunnel's name.
        tunnel: String,
        /// State before.
        from: State,
        /// State after.
        to: State,
        /// The rule that fired; 0 where none did: a tunnel that cannot be probed any more is unknown.
        rule: u8,
        /// The rule in words, with its numbers.
        reason: String,
        /// What every route over the tunnel costs more now.
        penalty: u32,
    },
    /// The tunnels that carry a prefix's traffic changed.
    Route {
        /// The prefix.
        prefix: String,
        /// The routing table; absent if it is the main one.
        #[serde(skip_serializing_if = "Option::is_none")]
        table: Option<u32>,
        /// The network namespace; absent if it is the one where adit runs.
        #[serde(skip_serializing_if = "Option::is_none")]
        netns: Option<String>,
        /// Tunnels before.
        from: Vec<String>,
        /// Tunnels after.
        to: Vec<String>,
    },
    /// More prefixes moved by the same transition than are told one by one.
    Routes {
        /// The tunnel whose penalty changed.
        tunnel: String,
        /// How many prefixes moved in all.
        moved: usize,
    },
    /// Something of ours in the kernel's routing was not as we left it; it is being mended.
    KernelDrift {
        /// The namespace, unless it is the daemon's own.
        #[serde(skip_serializing_if = "Option::is_none")]
        netns: Option<String>,
        /// How many things.
        count: usize,
        /// The first of them, in words.
        changes: Vec<String>,
    },
    /// The prober's own trouble: no verdict about any tunnel.
    LocalFault {
        /// The tunnel, where it concerns one.
        #[serde(skip_serializing_if = "Option::is_none")]
        tunnel: Option<String>,
        /// What happened.
        fault: &'static str,
        /// In words.
        reason: String,
    },
    /// An operator asked for traffic to leave a tunnel, or to come back.
    Drain {
        /// The tunnel's name.
        tunnel: String,
        /// Whether it is drained now.
        drained: bool,
        /// What every route over the tunnel costs more now.
        penalty: u32,
        /// What it costs as; absent if it is not drained any more.
        #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
        level: Option<super::Drain>,
        /// When that ends by itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<WallTime>,
        /// Why, in an operator's words; or why it has ended, if nobody has asked for that.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The user who asked for it, by number.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<u32>,
    },
    /// A tunnel cannot be probed, or can be again; either way what was known of it is forgotten.
    Obstacle {
        /// The tunnel's name.
        tunnel: String,
        /// Why; null if there is no obstacle any more.
        reason: Option<String>,
    },
    /// What this host must have for probes to leave is missing, or is there again: a network namespace, a
    /// device.
    Need {
        /// What it is, with its name.
        need: String,
        /// Why it is missing; null if it is there.
        reason: Option<String>,
    },
    /// An endpoint is in another state, or cannot be probed for another reason: then both states are unknown.
    Endpoint {
        /// The endpoint's name.
        endpoint: String,
        /// State before.
        from: endpoints::State,
        /// State after.
        to: endpoints::State,
        /// Why.
        reason: String,
    },
    /// A tunnel has a fresh pair of security associations.
    Association {
        /// The tunnel's name.
        tunnel: String,
        /// The SPI of its probes.
        spi_out: u32,
        /// The SPI of its answers.
        spi_in: u32,
    },
    /// Something wants an operator's attention before it becomes a fault.
    Warning {
        /// The tunnel's name, where it concerns one.
        #[serde(skip_serializing_if = "Option::is_none")]
        tunnel: Option<String>,
        /// What, and what to do.
        reason: String,
    },
    /// One probe's outcome; told only while a recording is on.
    Sample {
        /// The tunnel's name.
        tunnel: String,
        /// Seconds on the clock of this run, exact to the nanosecond; where it begins means nothing.
        t: Time,
        /// Success or failure; absent if inconclusive.
        #[serde(skip_serializing_if = "Option::is_none")]
        ok: Option<bool>,
        /// True if it is no sample at all.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        inconclusive: bool,
        /// Round-trip time of a success.
        #[serde(skip_serializing_if = "Option::is_none")]
        rtt_us: Option<u64>,
    },
    /// The configuration was read again: how many tunnels went on as they were, how many of them are
    /// others now, how many came and went.
    Reload {
        /// Untouched.
        kept: usize,
        /// Of the same name, but not the same.
        changed: usize,
        /// New.
        added: usize,
        /// Gone.
        removed: usize,
        /// Why it was refused, so that nothing has changed; null if it was not.
        reason: Option<String>,
    },
    /// The engine started: nothing is known yet.
    Start {
        /// How many tunnels there are.
        tunnels: usize,
        /// The program's version.
        version: &'static str,
    },
    /// The engine stops.
    Stop {},
}

/// How many events are kept at least.
pub const CAPACITY: usize = 4096;
/// And so many more for each tunnel: all may fail at once, be degraded and down within seconds, and whoever follows
/// the events is to miss no transition (unless there are more moved routes than that beside them).
const EACH: usize = 2;

/// The last events.
#[derive(Debug, Clone)]
pub struct Ring {
    events: VecDeque<Event>,
    next: u64,
    /// How many are kept.
    room: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Self { events: VecDeque::new(), next: 1, room: CAPACITY }
    }
}

impl Ring {
    /// Adds an event, letting go of the oldest if need be.
    pub fn push(&mut self, at: WallTime, kind: Kind) {
        while self.events.len() >= self.room {
            self.events.pop_front();
        }
        self.events.push_back(Event { id: self.next, at, kind });
        self.next += 1;
    }

    /// Keeps as many as so many tunnels need.
    pub(super) fn make_room(&mut self, tunnels: usize) {
        self.room = CAPACITY + EACH * tunnels;
    }

    /// Numbers go on from here, those of what is here already, too: of the start of a daemon that
    /// remembers its last run.
    pub(super) fn begin_at(&mut self, first: u64) {
        let offset = first.saturating_sub(self.first());
        self.events.iter_mut().for_each(|event| event.id += offset);
        self.next += offset;
    }

    /// The events after the one numbered `since`.
    pub fn after(&self, since: u64) -> impl Iterator<Item = &Event> {
        let skip = usize::try_from(since.saturating_add(1).saturating_sub(self.first())).unwrap_or(usize::MAX);
        self.events.iter().skip(skip)
    }

    /// How many events after `since` are no longer there.
    #[must_use]
    pub fn missed(&self, since: u64) -> u64 {
        self.first().saturating_sub(since.saturating_add(1))
    }

    /// The number of the last event; 0 before the first.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.next - 1
    }

    /// The number of the first event that is still there, or of the next one.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.events.front().map_or(self.next, |event| event.id)
    }
}
