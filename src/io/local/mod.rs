//! The local socket: HTTP/1.1 with JSON, so that `curl --unix-socket` and every language can use it.
//!
//! A request becomes a question to the engine's loop ([`Handle::ask`]); the answer is turned into
//! JSON here, on another thread. A slow or stuck client costs the engine nothing: clients are
//! limited in number and time, and a follower of events is given them piece by piece.
//!
//! | file | holds |
//! | --- | --- |
//! | `bind` | the socket's path: whose it is, who may use it |
//! | `serve` | clients: on which thread, how many, for how long |
//! | `admins` | who may change things |
//! | `api` | what can be asked, and the answers |
//! | `metrics` | of that, what is measured, as OpenMetrics text |
//! | `sa` | of that, security associations |
//! | `openapi.json` | the description of that |

mod admins;
mod api;
mod bind;
mod metrics;
mod sa;
mod serve;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

pub use admins::{Membership, is_member};
pub use bind::{Access, Bound, UnknownGroup, bind};
pub use serve::{Server, attend};

use crate::engine::event::{Event, Ring};
use crate::engine::{Engine, Time};
use crate::io::ledger::Recorder;

/// Events handed to a follower at once.
const PIECE: usize = 256;

/// The description of everything that is served here.
pub const OPENAPI: &str = include_str!("openapi.json");

/// A question to the engine: run by its loop, between two wake-ups.
pub type Question = Box<dyn FnOnce(&mut Engine, Time) + Send>;

/// The way to the engine's loop.
#[derive(Debug, Clone)]
pub struct Handle {
    questions: mpsc::Sender<Question>,
    last_event: watch::Receiver<u64>,
    recorder: Option<Recorder>,
}

impl Handle {
    /// A handle that asks over `questions` and hears of new events over `last_event`.
    #[must_use]
    pub const fn new(questions: mpsc::Sender<Question>, last_event: watch::Receiver<u64>) -> Self {
        Self { questions, last_event, recorder: None }
    }

    /// The same, with a way to the record of sequence numbers.
    #[must_use]
    pub fn recording(self, recorder: Option<Recorder>) -> Self {
        Self { recorder, ..self }
    }

    /// The way to the record of sequence numbers, if it can be used.
    const fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Asks the engine; `None` if its loop has ended.
    pub async fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Engine, Time) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, wait) = oneshot::channel();
        let question: Question = Box::new(move |engine, now| {
            // The asker may have gone; then nobody misses the answer.
            let _ = answer.send(question(engine, now));
        });
        self.questions.send(question).await.ok()?;
        wait.await.ok()
    }

    /// Waits until the engine's loop has ended.
    async fn ended(&self) {
        let mut last_event = self.last_event.clone();
        while last_event.changed().await.is_ok() {}
    }

    /// The next events after `since`, waiting for one if `wait`; and what was missed before them.
    pub async fn events(&mut self, since: u64, wait: bool) -> Option<(Option<Gap>, Vec<Event>)> {
        if wait {
            self.wait_for(since).await?;
        }
        self.ask(move |engine, _| {
            let events = engine.events();
            let gap = Gap::of(events, since);
            let since = if matches!(gap, Some(Gap::Restart { .. })) { 0 } else { since };
            (gap, events.after(since).take(PIECE).cloned().collect())
        })
        .await
    }

    /// Waits for an event after `since`; not for one that no event can come after, because there has
    /// been none of that number.
    async fn wait_for(&mut self, since: u64) -> Option<()> {
        // What is told here is a little behind: only the engine knows its last event.
        let told = *self.last_event.borrow();
        if since > told && self.ask(move |engine, _| since > engine.events().last()).await? {
            return Some(());
        }
        self.last_event.wait_for(|&last| last > since).await.ok().map(drop)
    }
}

/// What whoever asks for the events after a number cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind")]
pub enum Gap {
    /// So many events are no longer there.
    #[serde(rename = "gap")]
    Missed {
        /// How many.
        missed: u64,
    },
    /// The number is from before a restart, and counting has begun anew: all there is follows.
    #[serde(rename = "gap")]
    Restart {
        /// Nobody knows how many.
        missed: (),
        /// The number that was asked for.
        since: u64,
        /// The number of the last event.
        last: u64,
    },
}

impl Gap {
    fn of(events: &Ring, since: u64) -> Option<Self> {
        let last = events.last();
        if since > last {
            return Some(Self::Restart { missed: (), since, last });
        }
        Some(events.missed(since)).filter(|&missed| missed > 0).map(|missed| Self::Missed { missed })
    }
}
