//! One sink: what has come together for it, and its message under way.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::batch::{Batch, Item, Letterhead, Message};
use super::guard::Guard;
use super::heard::{Now, Seen};
use super::objective::Judge;
use super::sink::Sink;
use crate::engine::{State, Time, WallTime};

/// How often a message is tried.
pub const ATTEMPTS: u32 = 5;
/// How long after the first try the second is; it doubles with each.
const BACK_OFF: Duration = Duration::from_secs(1);

/// What happened before there was a sink is heard at its beginning.
const CATCHING_UP: Duration = Duration::from_secs(5);

/// What has become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The sink has it.
    Told,
    /// It does not, and it is no use to try again.
    Failed,
    /// It does not: try again.
    Again,
}

/// What of a sink outlives a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    guard: Guard,
    judge: Judge,
    pending: Batch,
    /// What the message under way tells.
    under_way: Option<Batch>,
    /// What could not be told.
    undelivered: u64,
}

#[derive(Debug)]
pub(super) struct Post {
    pub(super) sink: Sink,
    pub(super) kept: Kept,
    /// What happened before this does not concern it, if it is heard before that.
    since: (WallTime, Time),
    /// When what is pending is told.
    close: Option<Time>,
    /// Somebody carries the message.
    is_out: bool,
    attempts: u32,
    /// When it is tried again.
    again: Option<Time>,
}

impl Post {
    /// A sink that goes on from what was kept, or hears what happens from a time on.
    pub(super) fn new(sink: Sink, since: WallTime, now: Time, kept: Option<Kept>) -> Self {
        // A clock that is set back later must not make it deaf.
        let since = (since, if kept.is_some() { Time::ZERO } else { now + CATCHING_UP });
        let kept = kept.unwrap_or_default();
        Self { sink, kept, since, close: None, is_out: false, attempts: 0, again: None }
    }

    /// The same, configured otherwise.
    pub(super) fn with(self, sink: Sink) -> Self {
        Self { sink, ..self }
    }

    /// A transition that is news.
    pub(super) fn hear(&mut self, now: Now, at: WallTime, state: State, item: &Item) {
        let tunnel = item.tunnel.as_deref().unwrap_or_default();
        let is_before = at < self.since.0 && now.time < self.since.1;
        if is_before || !self.sink.hears_of(tunnel) {
            return;
        }
        if !self.sink.hears_on(state) {
            return self.kept.guard.leave(tunnel);
        }
        if let Some(item) = self.kept.guard.offer(at, self.sink.repeat, item.clone(), state) {
            self.add(now, item);
        }
    }

    /// A tunnel is drained now, or not any more.
    pub(super) fn drain(&mut self, tunnel: &str, drained: bool) {
        self.kept.guard.drain(tunnel, drained);
    }

    /// Forgets the tunnels that are not there any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.kept.guard.retain(is_there);
    }

    /// Something else that is to be told, if anything is beside it.
    pub(super) fn beside(&mut self, now: Now, item: Item) {
        self.add(now, item);
    }

    pub(super) fn is_pending(&self) -> bool {
        !self.kept.pending.is_empty()
    }

    /// The counters begin anew.
    pub(super) fn restart(&mut self) {
        self.kept.judge.restart();
    }

    /// Judges the objective, if there is one and it is time. Whether it was.
    pub(super) fn look(&mut self, now: Now, seen: &[Seen]) -> bool {
        let Some(objective) = self.sink.slo.clone() else { return false };
        let is_due = self.kept.judge.wait(now.wall, &objective).is_zero();
        for item in self.kept.judge.look(now.wall, &self.sink, &objective, seen) {
            self.add(now, item);
        }
        is_due
    }

    /// How long until tunnels are to be looked at.
    pub(super) fn look_wait(&self, now: WallTime) -> Option<Duration> {
        self.sink.slo.as_ref().map(|objective| self.kept.judge.wait(now, objective))
    }

    fn add(&mut self, now: Now, item: Item) {
        self.kept.pending.add(item);
        self.close.get_or_insert(now.time + self.sink.batch);
    }

    /// The message that is to be carried now, if there is one.
    pub(super) fn poll(&mut self, now: Now, host: &str) -> Option<Message> {
        for item in self.kept.guard.due(now.wall, self.sink.repeat) {
            self.add(now, item);
        }
        if self.is_out || self.again.is_some_and(|again| now.time < again) {
            return None;
        }
        if self.kept.under_way.is_none() {
            let is_due = self.close.is_none_or(|close| now.time >= close);
            if self.kept.pending.is_empty() || !is_due {
                return None;
            }
            self.close = None;
            self.attempts = 0;
            self.kept.under_way = Some(std::mem::take(&mut self.kept.pending));
        }
        let batch = self.kept.under_way.as_ref()?;
        (self.is_out, self.again) = (true, None);
        self.attempts += 1;
        let head = Letterhead { sink: &self.sink.name, host, at: now.wall };
        Some(Message::of(batch, head, self.kept.undelivered))
    }

    /// The message has been carried.
    pub(super) fn done(&mut self, now: Now, outcome: Outcome) {
        if !std::mem::replace(&mut self.is_out, false) {
            return;
        }
        match outcome {
            Outcome::Again if self.attempts < ATTEMPTS => {
                self.again = Some(now.time + BACK_OFF * (1 << self.attempts.saturating_sub(1)));
                return;
            }
            Outcome::Told => self.kept.undelivered = 0,
            Outcome::Failed | Outcome::Again => {
                let lost = self.kept.under_way.as_ref().map_or(0, Batch::count);
                self.kept.undelivered = self.kept.undelivered.saturating_add(lost);
            }
        }
        self.kept.under_way = None;
    }

    /// How long until there may be something to do.
    pub(super) fn wait(&self, now: Now) -> Option<Duration> {
        let held = self.kept.guard.wait(now.wall, self.sink.repeat);
        let until = |at: Option<Time>| at.map(|at| at.since(now.time));
        let message = if self.is_out {
            None
        } else if self.kept.under_way.is_some() {
            Some(until(self.again).unwrap_or_default())
        } else if self.kept.pending.is_empty() {
            None
        } else {
            Some(until(self.close).unwrap_or_default())
        };
        held.into_iter().chain(message).min()
    }

    /// What outlives a restart.
    pub(super) fn keep(&mut self, now: WallTime) -> Kept {
        self.kept.guard.forget(now, self.sink.repeat);
        self.kept.clone()
    }
}
