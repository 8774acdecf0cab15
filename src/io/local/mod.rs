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
//! | `patience` | clients that take nothing |
//! | `api` | what can be asked, and the answers |
//! | [`client`] | the other end, for a part of the daemon that follows the events |
//! | `drain` | of that, drains |
//! | `list` | answers that may be long |
//! | `diagnose` | of that, a diagnosis |
//! | `metrics` | of that, what is measured, as OpenMetrics text |
//! | `format` | and as the older text, for who asks for that |
//! | `shelf` | how many of these texts there are |
//! | `endpoints` | of that, endpoints |
//! | `sa` | of that, security associations |
//! | `openapi.json` | the description of that |
//! | `web` | what of all this is served over TCP, where that is asked for: what is measured, and a page |
//! | `guard` | what a browser must not be talked into |
//! | `page.html` | the page |

mod admins;
mod api;
mod bind;
pub mod client;
mod diagnose;
mod drain;
mod endpoints;
mod format;
mod guard;
mod list;
mod metrics;
mod patience;
mod sa;
mod serve;
mod shelf;
mod web;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

pub use admins::{Membership, is_member};
pub use bind::{Access, Bound, UnknownGroup, bind};
pub use serve::{Server, attend};
pub use web::{Door, Web, listen};

use crate::engine::event::{Event, Ring};
use crate::engine::{Engine, Reloaded, Time};
use crate::io::ledger::Recorder;

/// How long an answer waits for the disk.
const KEPT: Duration = Duration::from_secs(2);
/// Events handed to a follower at once.
const EVENTS: usize = 256;

/// The description of everything that is served here.
pub const OPENAPI: &str = include_str!("openapi.json");

/// A question to the engine: run by its loop, between two wake-ups.
pub type Question = Box<dyn FnOnce(&mut Engine, Time) + Send>;

/// A configuration that was read again and holds now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// What has become of the tunnels.
    #[serde(flatten)]
    pub tunnels: Reloaded,
    /// What a person should know: what is allowed and may yet not be meant, what holds only from the next
    /// start on.
    pub notes: Vec<String>,
}

/// Why a configuration was not taken: nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotReloaded {
    /// It is wrong: each problem in a line of its own, with file, line and column.
    Wrong(String),
    /// What it needs could not be had.
    Failed(String),
}

impl fmt::Display for NotReloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Wrong(why) | Self::Failed(why)) = self;
        f.write_str(why)
    }
}

/// Who waits for the outcome of a reload.
pub type Asker = oneshot::Sender<Result<Applied, NotReloaded>>;

/// The way to the engine's loop.
#[derive(Debug, Clone)]
pub struct Handle {
    questions: mpsc::Sender<Question>,
    last_event: watch::Receiver<u64>,
    /// Whoever follows the events listens to this.
    audience: watch::Sender<()>,
    /// Set as soon as the record of sequence numbers can be used.
    recorder: Arc<OnceLock<Recorder>>,
    reloads: Option<mpsc::Sender<Asker>>,
    /// Up to which event verdicts and drains are on the disk, where they are written at all.
    kept: Option<watch::Receiver<u64>>,
    /// Texts of all that is measured: the same for whoever asks, wherever.
    texts: shelf::Shelf,
}

impl Handle {
    /// A handle that asks over `questions` and hears of new events over `last_event`.
    #[must_use]
    pub fn new(questions: mpsc::Sender<Question>, last_event: watch::Receiver<u64>) -> Self {
        Self {
            questions,
            last_event,
            audience: watch::Sender::new(()),
            recorder: Arc::default(),
            reloads: None,
            kept: None,
            texts: shelf::Shelf::default(),
        }
    }

    /// The same, with a way to the record of sequence numbers, now or later.
    #[must_use]
    pub fn recording(self, recorder: Arc<OnceLock<Recorder>>) -> Self {
        Self { recorder, ..self }
    }

    /// The same, with a way to have the configuration read again.
    #[must_use]
    pub fn reloading(self, reloads: mpsc::Sender<Asker>) -> Self {
        Self { reloads: Some(reloads), ..self }
    }

    /// The same, told up to which event verdicts and drains are on the disk, if they are written.
    #[must_use]
    pub fn keeping(self, kept: Option<watch::Receiver<u64>>) -> Self {
        Self { kept, ..self }
    }

    /// What whoever follows the events listens to until they have heard of the last one: closed when there is nobody
    /// left to tell.
    #[must_use]
    pub fn audience(&self) -> watch::Sender<()> {
        self.audience.clone()
    }

    /// Waits until what this event has changed would survive a power cut; but not long for a disk that is slow to
    /// answer, of which a local fault tells.
    async fn kept(&self, event: u64) {
        let Some(mut kept) = self.kept.clone() else { return };
        // Either it is, or it has taken too long, or the loop has ended.
        let _ = tokio::time::timeout(KEPT, kept.wait_for(|&kept| kept >= event)).await;
    }

    /// The way to the record of sequence numbers, if it can be used.
    fn recorder(&self) -> Option<&Recorder> {
        self.recorder.get()
    }

    /// Has the configuration read again, and waits until it holds or is refused; `None` if the loop has ended.
    pub async fn reload(&self) -> Option<Result<Applied, NotReloaded>> {
        let Some(reloads) = &self.reloads else {
            let why = "this daemon has no files to read its configuration from";
            return Some(Err(NotReloaded::Failed(why.to_owned())));
        };
        let (answer, wait) = oneshot::channel();
        reloads.send(answer).await.ok()?;
        wait.await.ok()
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
            (gap, events.after(since).take(EVENTS).cloned().collect())
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
