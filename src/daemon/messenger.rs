//! The messenger: the process that tells people. It has no capability, and is the only one that runs programs of
//! others and talks to services of the network.
//!
//! ```text
//!          ┌────── steward ─────┐
//!          │ orders, the end    │
//!          ▼                    ▼
//!    ┌─ messenger ─┐ events ┌─ prober ─┐
//!    │ desk, told  │◀───────│          │
//!    └──┬───────┬──┘        └──────────┘
//!       ▼       ▼
//!    program  webhook
//! ```
//!
//! It follows the events over the local socket, as any client does: whatever it waits for, the prober never waits for
//! it. What it has been told and has told is in the file `told` ([`crate::io::told`]), written before a message goes
//! out and again when it has been heard.
//!
//! | file | holds |
//! | --- | --- |
//! | `orders` | what the steward says |
//! | `hear` | events and tunnels, from the local socket |

mod hear;
mod orders;

pub(crate) use orders::Orders;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, Receiver, UnboundedReceiver, unbounded_channel};
use tokio::task::{Id, JoinError, JoinHandle, JoinSet};

use crate::engine::Time;
use crate::io::clock::Clock;
use crate::io::deliver::{self, Report};
use crate::io::told::Told;
use crate::io::{letters, sandbox};
use crate::notice::{Delivery, Desk, Notify, Now, Outcome, Seen};
use hear::Heard;

/// How long messages that are on their way may take when the end is wanted.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long a message waits for the disk that is to know of it.
const DISK: Duration = Duration::from_secs(2);
/// What has happened is noted this often, while it goes on. The daemon still has it until then.
const NEWS: Duration = Duration::from_secs(1);
/// The number of the last event is noted this often, if nothing else is: the daemon keeps only so many events.
const NOTED: Duration = Duration::from_secs(30);
/// How soon tunnels are looked at again when that has failed.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// The longest sleep.
const IDLE: Duration = Duration::from_secs(60);
/// Events that may wait here.
const WAITING: usize = 1_024;

/// What is said where the disk refuses.
const FORGETFUL: &str = "what has been told cannot be written down: after a restart it may be told again";

/// Tells people for the steward at the other end of the line, until that is closed. `log` begins the log.
///
/// # Errors
/// What is missing.
pub fn serve<L>(line: OwnedFd, log: impl FnOnce() -> L) -> io::Result<()> {
    let gone = || io::Error::new(io::ErrorKind::NotConnected, "the steward is gone");
    let first = letters::receive(&line)?.ok_or_else(gone)?;
    let orders = Orders::unpack(&first.bytes)?;
    let gaps = sandbox::renounce();
    if !gaps.is_empty() {
        let what = "the part of adit that tells people would have capabilities, so it does not begin";
        return Err(io::Error::other(format!("{what}: {}", gaps.join("; "))));
    }
    let _log = log();
    let told = match Told::open(&orders.state_dir()) {
        // Two would tell everything twice.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
        told => told.map_err(|error| tracing::error!(%error, "{FORGETFUL}")).ok(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move { Messenger::begin(told, orders, listen(line)?).run().await })?;
    // A webhook that does not answer is not waited for.
    runtime.shutdown_background();
    Ok(())
}

/// What the steward says, from a thread that may wait for it.
fn listen(line: OwnedFd) -> io::Result<UnboundedReceiver<Orders>> {
    let (hand_on, orders) = unbounded_channel();
    let read = move || {
        while let Ok(Some(letter)) = letters::receive(&line) {
            let Ok(orders) = Orders::unpack(&letter.bytes) else { return };
            if hand_on.send(orders).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("from-steward".to_owned()).spawn(read)?;
    Ok(orders)
}

/// By what a sink is told, and how long it may take.
type Ways = BTreeMap<String, Arc<Notify>>;

struct Messenger {
    clock: Clock,
    desk: Desk,
    ways: Ways,
    /// Unless the disk refuses.
    told: Option<Arc<Told>>,
    orders: UnboundedReceiver<Orders>,
    socket: PathBuf,
    heard: Receiver<Heard>,
    /// Messages on their way, and to whom.
    out: JoinSet<Report>,
    addressees: BTreeMap<Id, String>,
    /// Somebody looks at the tunnels.
    look: Option<JoinHandle<io::Result<Vec<Seen>>>>,
    /// But not before.
    look_from: Time,
    /// A note on its way to the disk.
    writing: Option<JoinHandle<io::Result<()>>>,
    /// When the last note was made, and up to which event.
    noted: (Time, u64),
    /// A message has been heard, and that is not noted yet.
    is_urgent: bool,
    /// That the disk refuses has been said.
    complained: bool,
}

impl Messenger {
    fn begin(told: Option<Told>, orders: Orders, inbox: UnboundedReceiver<Orders>) -> Self {
        let clock = Clock::start();
        let now = Now { time: clock.now(), wall: clock.wall() };
        let (note, complaint) = told.as_ref().map_or((None, None), Told::read);
        complaint.iter().for_each(|complaint| tracing::error!("{complaint}"));
        let (socket, since) = (orders.socket(), orders.since());
        let (sinks, ways) = split(orders.notify);
        let names: Vec<_> = sinks.iter().map(|sink| sink.name.as_str()).collect();
        tracing::info!(sinks = names.join(", "), "telling people");
        let desk = Desk::new(host(), sinks, since, note, now);
        let (hand_on, heard) = mpsc::channel(WAITING);
        tokio::spawn(hear::follow(socket.clone(), desk.cursor(), hand_on));
        Self {
            clock,
            desk,
            ways,
            told: told.map(Arc::new),
            orders: inbox,
            socket,
            heard,
            out: JoinSet::new(),
            addressees: BTreeMap::new(),
            look: None,
            look_from: now.time,
            writing: None,
            noted: (now.time, 0),
            is_urgent: false,
            complained: false,
        }
    }

    fn now(&self) -> Now {
        Now { time: self.clock.now(), wall: self.clock.wall() }
    }

    async fn run(mut self) -> io::Result<()> {
        loop {
            self.send().await;
            let wait = self.wait();
            tokio::select! {
                orders = self.orders.recv() => match orders {
                    Some(orders) => self.renew(orders),
                    None => break,
                },
                Some(heard) = self.heard.recv() => self.hear(heard),
                Some(done) = self.out.join_next_with_id() => self.done(done),
                seen = looked(&mut self.look) => self.see(seen),
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.bid_farewell().await;
        Ok(())
    }

    /// Sends what is to be sent, once the disk knows of it.
    async fn send(&mut self) {
        // Whatever is here already belongs together.
        while let Ok(heard) = self.heard.try_recv() {
            self.hear(heard);
        }
        let now = self.now();
        let ready: Vec<Delivery> = std::iter::from_fn(|| self.desk.poll(now)).collect();
        if !ready.is_empty() || self.note_wait(now) == Some(Duration::ZERO) {
            self.note(now).await;
        }
        for Delivery { sink, message } in ready {
            let Some(way) = self.ways.get(&sink).cloned() else { continue };
            let name = sink.clone();
            let task = async move { deliver::deliver(&name, &way.means, message, way.timeout).await };
            let handle = self.out.spawn(task);
            self.addressees.insert(handle.id(), sink);
        }
        if self.look.is_none() && now.time >= self.look_from && self.desk.look_wait(now) == Some(Duration::ZERO) {
            self.desk.look_begins();
            self.look = Some(tokio::spawn(hear::look(self.socket.clone())));
        }
    }

    /// How long nothing is to be done.
    fn wait(&self) -> Duration {
        let now = self.now();
        let look = self.desk.look_wait(now).filter(|_| self.look.is_none());
        let look = look.map(|wait| wait.max(self.look_from.since(now.time)));
        let next = [self.desk.wait(now), look, self.note_wait(now)].into_iter().flatten().min().unwrap_or(IDLE);
        // The timers of the runtime round up; and what is due at once and cannot be done must not spin.
        next.clamp(Duration::from_millis(1), IDLE)
    }

    /// How long until a note is to be made, beside those that messages want; `None` if it would say nothing new.
    fn note_wait(&self, now: Now) -> Option<Duration> {
        let every = if self.is_urgent {
            Duration::ZERO
        } else if self.desk.has_news() {
            NEWS
        } else if self.desk.cursor() != self.noted.1 {
            NOTED
        } else {
            return None;
        };
        Some(every.saturating_sub(now.time.since(self.noted.0)))
    }

    fn hear(&mut self, heard: Heard) {
        let now = self.now();
        match heard {
            Heard::Event(event) => self.desk.handle_event(now, event),
            Heard::Gap { missed, anew } => {
                tracing::warn!(
                    missed,
                    "events were missed; what has come of them is told, unless nothing was known before"
                );
                self.desk.handle_gap(now, missed, anew);
            }
        }
    }

    fn see(&mut self, seen: io::Result<Vec<Seen>>) {
        let now = self.now();
        match seen {
            Ok(seen) => self.desk.handle_tunnels(now, &seen),
            Err(error) => {
                tracing::debug!(%error, "the tunnels cannot be looked at");
                self.desk.look_fails();
                self.look_from = now.time + LOOK_AGAIN;
            }
        }
    }

    fn done(&mut self, done: Result<(Id, Report), JoinError>) {
        let fault = || Report { outcome: Outcome::Failed, words: "a fault of adit's own".to_owned() };
        let (id, Report { outcome, words }) = done.unwrap_or_else(|error| (error.id(), fault()));
        let Some(sink) = self.addressees.remove(&id) else { return };
        let by = self.ways.get(&sink).map(|way| way.means.to_string()).unwrap_or_default();
        match outcome {
            Outcome::Told => tracing::debug!(sink, by, "told: {words}"),
            Outcome::Again => tracing::warn!(sink, by, "not told: {words}; it is tried again a few times"),
            Outcome::Failed => tracing::error!(sink, by, "not told: {words}"),
        }
        self.desk.handle_done(self.now(), &sink, outcome);
        self.is_urgent = true;
    }

    fn renew(&mut self, orders: Orders) {
        let since = orders.since();
        let (sinks, ways) = split(orders.notify);
        tracing::info!(sinks = sinks.len(), "other sinks from now on");
        self.ways = ways;
        self.desk.renew(self.now(), sinks, since);
    }

    /// Writes down what has been told. A disk that does not answer keeps nobody from being told.
    async fn note(&mut self, now: Now) {
        if self.writing.is_none() {
            let note = self.desk.note(now);
            (self.noted, self.is_urgent) = ((now.time, self.desk.cursor()), false);
            let Some(told) = self.told.clone() else { return };
            self.writing = Some(tokio::task::spawn_blocking(move || told.write(&note)));
        }
        let Some(writing) = &mut self.writing else { return };
        let written = match tokio::time::timeout(DISK, writing).await {
            Ok(written) => written.unwrap_or_else(|error| Err(io::Error::other(error))),
            Err(_) => return self.complain(&"the disk does not answer"),
        };
        self.writing = None;
        match written {
            Ok(()) => self.complained = false,
            Err(error) => self.complain(&error),
        }
    }

    fn complain(&mut self, error: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.complained, true) {
            tracing::error!(%error, "{FORGETFUL}");
        }
    }

    /// Lets messages arrive that are on their way, for a moment. The others are told at the next start.
    async fn bid_farewell(&mut self) {
        let arriving = async {
            while let Some(done) = self.out.join_next_with_id().await {
                self.done(done);
            }
        };
        // To run out of time is one way to end.
        let _ = tokio::time::timeout(FAREWELL, arriving).await;
        self.out.shutdown().await;
        self.note(self.now()).await;
        if self.desk.has_news() {
            self.note(self.now()).await;
        }
    }
}

async fn looked(look: &mut Option<JoinHandle<io::Result<Vec<Seen>>>>) -> io::Result<Vec<Seen>> {
    let Some(looking) = look else { return std::future::pending().await };
    let seen = looking.await;
    *look = None;
    seen.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn split(notify: Vec<Notify>) -> (Vec<crate::notice::Sink>, Ways) {
    let sinks = notify.iter().map(|notify| notify.sink.clone()).collect();
    (sinks, notify.into_iter().map(|notify| (notify.sink.name.clone(), Arc::new(notify))).collect())
}

/// What this host is called.
#[must_use]
pub fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
}
