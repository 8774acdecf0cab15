//! Opens, loops, stops. One task owns the engine, and here is the one place where now is read.
//!
//! ```text
//!              ┌──────────────────────── Daemon::run ────────────────────────┐
//!  time ──────▶│ handle_wakeup, drain ▸ handle_datagram …, handle_timeout     │
//!  raw sockets▶│ poll_transmit … ▸ one batch out ▸ handle_unsent              │
//!  kernel ────▶│ namespaces and devices come and go, associations             │
//!  questions ─▶│ a closure from the local socket, run between two wake-ups    │
//!              │ new events ▸ log, recording, followers                       │
//!              └──────────────── sleep until next_wakeup, or a tick later ────┘
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | [`plan`] | from a configuration to what must be open |
//! | `space` | what must be open in one namespace, and opening it |
//! | `spaces`, `outlet` | what is open, on the side of the loop |
//! | `kernel`, `keeper`, `kept` | a thread beside it: the kernel's associations; namespaces and devices that come and go |
//! | [`mod@records`] | the pairs that ESP tunnels start with |
//! | `hear` | what the loop hears of all these |
//! | `transmit` | probes on their way out |
//! | `renewal` | another configuration on its way, and taking it |
//! | [`steer`] | whoever keeps the kernel's routes |
//! | `tell`, `recording` | events on their way out: to the log, to a file |

mod hear;
mod keeper;
mod kept;
mod kernel;
mod link;
mod memory;
pub mod messenger;
mod outlet;
mod outside;
pub mod plan;
pub mod prober;
mod pulse;
mod recording;
pub mod records;
mod renewal;
mod space;
mod spaces;
pub mod steer;
pub mod steward;
mod tell;
mod transmit;

pub use tell::message_id;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{mpsc, watch};

use crate::config;
use crate::engine::esp::Reserve;
use crate::engine::ledger::{Identity, Kind, NotReserved};
use crate::engine::{Engine, Setup, Transmit};
use crate::io::alarm::Alarm;
use crate::io::clock::Clock;
use crate::io::ledger::{Clerk, Recorder, Report};
use crate::io::local::{Bound, Handle, Question};
use crate::io::raw::{Drained, Inbox};
use crate::wire::payload::{Key, Secret};
use kernel::{Line, News};
use memory::Memory;
use outside::{Host, Outside};
use plan::Plan;
use pulse::Pulse;
use recording::Recording;
use records::Records;
use renewal::{Reloads, Renewal, Waiting};
use spaces::Spaces;
use steer::Steersman;

/// How long questions are still answered after the end of probing: so long at least, and for followers of the events
/// who have not heard of it yet.
const FAREWELL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The longest sleep.
const IDLE: Duration = Duration::from_secs(60);
/// Questions that may wait.
const QUESTIONS: usize = 64;
/// Slept less than this is clock noise.
const SLEPT: Duration = Duration::from_millis(200);

/// A running prober.
pub struct Daemon {
    engine: Engine,
    clock: Clock,
    alarm: Alarm,
    /// Whoever keeps the record of ESP sequence numbers.
    clerk: Option<Clerk>,
    /// What the kernel does beside us.
    kernel: Option<UnboundedReceiver<News>>,
    /// The first of it, heard while asleep.
    heard: Option<News>,
    spaces: Spaces,
    /// Whoever keeps the kernel's routes.
    steersman: Option<Steersman>,
    /// How the steward knows that this goes on.
    pulse: Option<Pulse>,
    inbox: Inbox,
    buffer: Box<[u8]>,
    outgoing: Vec<(Transmit, usize)>,
    questions: mpsc::Receiver<Question>,
    last_event: watch::Sender<u64>,
    /// Whoever follows the events.
    audience: watch::Sender<()>,
    record: Option<Recording>,
    state_dir: Option<PathBuf>,
    machine: Identity,
    /// The way to the record of sequence numbers, for questions.
    recorder: Arc<OnceLock<Recorder>>,
    /// What was written of the daemon itself at its start.
    settings: Option<config::Daemon>,
    /// The tag of the kernel's routes, since there is one.
    protocol: Option<u8>,
    /// How many configurations there were before this one.
    generation: u32,
    reloads: Reloads,
    /// Another configuration, while it waits, and when it is ready.
    renewing: Option<Waiting>,
    renewed: Option<(Box<Renewal>, Records)>,
    /// What outlives this process.
    memory: Option<Memory>,
    told: u64,
}

impl Daemon {
    /// Opens everything that the plan asks for. Must be called within a runtime. A namespace or a device
    /// that is missing is no error: it is told of, and waited for.
    ///
    /// # Errors
    /// What could not be opened, and why; [`io::ErrorKind::PermissionDenied`] for want of a
    /// capability, [`io::ErrorKind::AddrInUse`] if another daemon has the socket.
    pub fn start(mut plan: Plan) -> io::Result<(Self, Handle, Option<Bound>)> {
        plan.epoch = random().map(u64::from_ne_bytes)?;
        let outside = Outside::here(&mut plan)?;
        let host = Host::open(&mut plan);
        Self::begin(plan, host, outside)
    }

    fn begin(plan: Plan, host: Host, outside: Outside) -> io::Result<(Self, Handle, Option<Bound>)> {
        let Host { machine, record, settings } = host;
        let Outside { found, line, steersman, steers, bound, pulse, generation } = outside;
        let mut spaces = Spaces::new(&plan.spaces());
        let record = record.map(Recording::begin);
        let clock = Clock::start();
        let Records { clerk, starts } = records::of_plan(&plan, machine, clock.wall())?;
        let kernel = line.map(|Line { news, wishes }| {
            spaces.ask(wishes);
            news
        });
        let now = clock.now();
        let setup = Setup {
            tunnels: plan.tunnels,
            routes: plan.routes,
            places: plan.places,
            steers,
            secret: Secret { key: Key::new(random()?), epoch: plan.epoch },
            record: record.is_some(),
            associations: starts,
        };
        let (ask, questions) = mpsc::channel(QUESTIONS);
        let (last_event, heard) = watch::channel(0);
        let (reload, reloads) = mpsc::channel(QUESTIONS);
        let handle = Handle::new(ask, heard).reloading(reload);
        let recorder = clerk.as_ref().map_or_else(OnceLock::new, |clerk| OnceLock::from(clerk.recorder()));
        let reloads = Reloads::new(reloads, pulse.clone());
        let mut daemon = Self {
            engine: Engine::new(now, clock.wall(), setup),
            clerk,
            kernel,
            heard: None,
            steersman,
            pulse: pulse.map(Pulse::new),
            clock,
            alarm: Alarm::new()?,
            spaces,
            inbox: Inbox::default(),
            buffer: vec![0; transmit::ROOM].into_boxed_slice(),
            outgoing: Vec::new(),
            questions,
            last_event,
            audience: handle.audience(),
            record,
            protocol: plan.steering.as_ref().map(|steering| steering.kernel.protocol),
            state_dir: plan.state_dir,
            machine,
            recorder: Arc::new(recorder),
            settings,
            generation,
            reloads,
            renewing: None,
            renewed: None,
            memory: None,
            told: 0,
        };
        daemon.engine.set_fail_static(plan.fail_static);
        daemon.engine.set_endpoints(now, plan.endpoints);
        daemon.engine.set_bearings(plan.bearings);
        daemon.remember();
        found.into_iter().try_for_each(|news| daemon.learn(news))?;
        daemon.hear_of_kernel();
        let kept = daemon.memory.as_ref().map(Memory::kept);
        let handle = handle.recording(Arc::clone(&daemon.recorder)).keeping(kept);
        Ok((daemon, handle, bound))
    }

    /// Takes up what an earlier run knew.
    fn remember(&mut self) {
        let Some(state_dir) = &self.state_dir else { return };
        let now = self.clock.now();
        match Memory::open(state_dir) {
            Ok((memory, remembered, complaints)) => {
                self.engine.remember(now, self.clock.wall(), remembered);
                if !complaints.is_empty() {
                    self.engine.handle_forgotten(now, &complaints.join("; "));
                }
                self.memory = Some(memory);
            }
            Err(why) => self.engine.handle_forgotten(now, &why),
        }
        // Numbers of events go on from those of the last run.
        self.told = self.engine.events().first().saturating_sub(1);
    }

    /// Probes until `stop` completes. Nothing else ends it: what fails on the way is told.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        self.engine.handle_begin(self.clock.now());
        loop {
            let is_done = self.turn();
            let now = self.clock.now();
            let wanted = [self.engine.next_wakeup(now), self.memory.as_ref().and_then(|memory| memory.next(now))];
            let wanted = wanted.into_iter().flatten().min().unwrap_or(now + IDLE);
            let beat = self.pulse.as_mut().map_or(IDLE, |pulse| pulse.beat(now, &self.engine));
            let wanted = wanted.min(now + beat);
            // What arrives meanwhile waits, if that is no longer than a tick: the kernel has noted when it came.
            let tick = self.engine.tick();
            let due = wanted.ceil(tick);
            let is_long = due.since(now) > tick;
            // If that tick is over, at once.
            let next = if is_done { due } else { now };
            if next <= now {
                // What else runs here must not wait until there is time.
                tokio::task::yield_now().await;
            }
            self.alarm.set(self.clock.monotonic(next));
            tokio::select! {
                biased;
                () = &mut stop => break,
                // Clients that ask without a pause must keep nobody of ours from being heard.
                Some(report) = report(&mut self.clerk) => self.reserved(report),
                // What comes after another configuration is told by its numbers.
                news = hear::news(&mut self.kernel), if self.renewing.is_none() => self.heard = Some(news),
                renewed = renewal::records(&mut self.renewing) => self.renewed = Some(renewed),
                Some(asker) = self.reloads.next() => self.reloads.pass_on(asker),
                news = steer::news(&mut self.steersman) => self.hear_of_routes(news),
                Some(question) = self.questions.recv() => question(&mut self.engine, self.clock.now()),
                () = self.spaces.readable(), if is_long => {}
                () = self.alarm.ring() => {}
            }
        }
        if let Some(steersman) = self.steersman.take() {
            steersman.stop().await;
        }
        self.engine.handle_stop(self.clock.now());
        self.tell();
        let end = self.clock.now() + recording::FAREWELL;
        self.bid_farewell().await;
        // After the last question: it may have drained a tunnel.
        if let Some(memory) = self.memory.take() {
            memory.stop(&self.engine, &self.clock);
        }
        // Beside all that, it has been written so far.
        if let Some(record) = self.record.take() {
            record.stop(end.since(self.clock.now()));
        }
    }

    /// Answers for a moment longer: whoever follows the events has been woken by the last one, and
    /// is about to ask for it.
    async fn bid_farewell(&mut self) {
        let (least, most) = FAREWELL;
        let heard = async { tokio::join!(tokio::time::sleep(least), self.audience.closed()) };
        let heard = tokio::time::timeout(most, heard);
        tokio::pin!(heard);
        loop {
            tokio::select! {
                // Some take nothing of what they are told: that is their loss.
                _ = &mut heard => break,
                Some(question) = self.questions.recv() => question(&mut self.engine, self.clock.now()),
            }
        }
    }

    /// One wake-up, in the order that the engine asks for. Whether nothing is left to do.
    fn turn(&mut self) -> bool {
        // Read before the sockets are drained: whatever arrived by this time is handed in before
        // deadlines up to this time are judged, even if this process is stopped in between.
        let now = self.clock.now();
        let slept = self.clock.slept();
        self.engine.handle_clock(now, self.clock.wall(), slept);
        self.engine.handle_wakeup(now);
        self.receive();
        if slept > SLEPT {
            self.engine.handle_suspend(now, slept);
        }
        self.engine.handle_timeout(now);
        // After all that has arrived by now has been taken: sockets may be closed here.
        self.hear_of_kernel();
        self.steer();
        self.listen();
        let is_done = self.transmit();
        // That a probe could not leave is a sample, too: the next turn may be long in coming.
        self.steer();
        self.reserve();
        self.tell();
        if let Some(memory) = &mut self.memory {
            memory.turn(&mut self.engine, now);
        }
        is_done
    }

    fn receive(&mut self) {
        for (namespace, receiver) in &mut self.spaces.receivers {
            let drained = receiver.drain(&self.clock, *namespace, &mut self.inbox);
            let (now, ear) = (self.clock.now(), receiver.ear(*namespace));
            match drained {
                Ok(Drained { overflowed: 0, whole: true }) => {}
                Ok(Drained { overflowed: 0, whole: false }) => {
                    self.engine.handle_deaf(now, ear, "packets come faster than they can be read");
                }
                Ok(Drained { overflowed, .. }) => self.engine.handle_overflow(now, ear, overflowed),
                Err(error) => self.engine.handle_deaf(now, ear, &error.to_string()),
            }
        }
        let now = self.clock.now();
        self.engine.handle_drained(now);
        self.inbox.deliver(|at, namespace, interface, arrived| {
            self.engine.handle_datagram(now, at, namespace, interface, arrived);
        });
    }

    /// Passes on what tunnels cost; the kernel's routes follow.
    fn steer(&mut self) {
        while let Some(steer) = self.engine.poll_steer() {
            if let Some(steersman) = &self.steersman {
                steersman.order(steer);
            }
        }
    }

    /// Passes on what the engine wants to be written down.
    fn reserve(&mut self) {
        while let Some(Reserve { key, mark }) = self.engine.poll_reserve() {
            if let Some(clerk) = &self.clerk {
                clerk.reserve(key, mark);
            }
        }
    }

    fn reserved(&mut self, report: Report) {
        let now = self.clock.now();
        match report {
            Report::Reserved { fingerprint, mark } => self.engine.handle_reserved(now, fingerprint, mark),
            Report::Failed { fingerprint, reason: NotReserved::Unwritten(why) } => {
                self.engine.handle_unreserved(now, fingerprint, &why);
            }
            Report::Failed { fingerprint, reason: NotReserved::Lost(lost) } => {
                let name = self.engine.whose(fingerprint).unwrap_or_default();
                let why = format!("{lost}; {}", lost.remedy(name, Kind::Static));
                self.engine.handle_state_lost(now, fingerprint, &why);
            }
        }
    }

    /// Has the kernel pass the ESP packets that are ours, where that has changed.
    fn listen(&mut self) {
        let Some(inlets) = self.engine.poll_inlets() else { return };
        for (namespace, receiver) in &self.spaces.receivers {
            let ear = receiver.ear(*namespace);
            if !ear.protocol.is_esp() {
                continue;
            }
            let here = inlets.iter().filter(|(of, _)| of == namespace);
            let spis: Vec<u32> = here.map(|(_, spi)| *spi).collect();
            if let Err(error) = receiver.listen(&spis) {
                self.engine.handle_deaf(self.clock.now(), ear, &format!("its filter cannot be set: {error}"));
                self.engine.list_inlets_again();
            }
        }
    }

    /// Passes new events on: to the log, the recording, the followers.
    fn tell(&mut self) {
        let last = self.engine.events().last();
        if last == self.told {
            return;
        }
        let missed = self.engine.events().missed(self.told);
        if missed > 0 {
            tracing::warn!(missed, "more happened at once than the ring of events holds");
        }
        self.engine.events().after(self.told).for_each(tell::log);
        let now = self.clock.now();
        self.record = self.record.take().and_then(|record| record.tell(&mut self.engine, now, self.told));
        self.told = last;
        self.last_event.send_replace(last);
    }
}

fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// The next report of the clerk; none ever, where there is no clerk or it has ended.
async fn report(clerk: &mut Option<Clerk>) -> Option<Report> {
    match clerk {
        Some(clerk) => clerk.report().await,
        None => None,
    }
}
