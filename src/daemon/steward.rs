//! The steward: the process that has the capabilities. It parses no packet and hears no client; what it
//! knows is the configuration, what the kernel says, and requests of fixed size.
//!
//! ```text
//!                 files ─▶ ┌────────── steward ──────────┐ ◀─ signals, service manager
//!   namespaces, devices ─▶ │ opens sockets, keeps routes │
//!                          └──┬──────────────────────▲───┘
//!     descriptors, news       ▼                      │  what a tunnel costs, "I am alive"
//!                          ┌─────────── prober ──────────┐
//!               packets ─▶ │ engine, local socket, disk  │ ◀─ clients
//!                          └─────────────────────────────┘
//! ```
//!
//! Where people are to be told, a messenger is begun beside the prober; what becomes of it concerns nobody else.
//!
//! A prober that ends, or does not show for long that it goes on, gets a successor, which goes on where it
//! was; routes stay meanwhile. A prober does not outlive its steward.

mod courier;
mod front;
pub(crate) mod life;
mod reload;
mod vigil;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use nix::unistd::{Gid, Uid};
use tokio::time::MissedTickBehavior;

use super::kernel::{News, Wish};
use super::link::{Begin, Packed, Parcel, Request, Word};
use super::plan::Plan;
use super::random;
use super::renewal::Renewal;
use super::steer::{self, Renewed, Steersman};
use crate::config::{Config, Texts};
use crate::engine::snapshot::Census;
use crate::engine::{Need, Standing, Steer};
use crate::io::clock::Clock;
use crate::io::local::{self, Bound};
use crate::io::{heap, journal, notify};
use courier::Courier;
use front::Front;
use life::{KILLED, LINGERS, Life};
pub use reload::Load;
use reload::{Read, Reload, Stage, Taking};
use vigil::LOOK;

/// How soon after the end of a prober there is another one; it doubles with each that ends early.
const SOON: Duration = Duration::from_millis(100);
/// But not longer than this.
const LATE: Duration = Duration::from_secs(5);
/// One that has lived so long did not end early.
const LONG: Duration = Duration::from_secs(60);
/// How long a prober may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// What happens outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The end is wanted.
    Stop,
    /// The configuration is to be read again.
    Reload,
}

/// The steward.
pub struct Steward {
    texts: Packed,
    /// How many configurations there were before this one.
    generation: u32,
    reload: Reload,
    dry_run: bool,
    plan: Plan,
    steersman: Option<Steersman>,
    /// How routes stand: what a new prober must be told.
    standings: BTreeMap<u32, Standing>,
    bound: Option<Bound>,
    /// The listener of the metrics.
    front: Front,
    clock: Clock,
    /// The kernel's routes have been compared with what they should be.
    reconciled: bool,
    /// The service manager has been told that all is ready.
    ready: bool,
    /// What there was to show last.
    census: Option<Census>,
    courier: Courier,
}

/// How a life has ended.
enum End {
    /// As was wanted.
    Wanted,
    /// Too early.
    Early,
    /// A thread of the steward's own has ended, without which there is no point in going on.
    Broken(&'static str),
}

impl Steward {
    /// Takes the local socket's path, and begins to keep the kernel's routes. `load` gathers the texts anew, when
    /// the configuration is to be read again.
    ///
    /// # Errors
    /// Another daemon has the socket; no room for a thread.
    pub fn start(texts: Texts, config: Config, dry_run: bool, load: Load) -> io::Result<Self> {
        let clock = Clock::start();
        let front = Front::new(&config.daemon, clock.now());
        let (daemon, sinks) = (config.daemon.clone(), config.notify.clone());
        let courier = Courier::new(sinks, daemon.socket, daemon.state_dir, &clock);
        let mut plan = Plan::new(config).dry(dry_run);
        let bound = plan.access.take().map(|access| local::bind(&access)).transpose()?;
        bound.iter().for_each(|bound| {
            let (socket, readers) = (bound.path().display(), bound.readers());
            let (tunnels, namespaces) = (plan.tunnels.len(), plan.namespaces.len());
            tracing::info!(%socket, group = readers.unwrap_or("none"), tunnels, namespaces, "serving the local socket");
        });
        let steersman = plan.steering.take().map(|steering| Steersman::start(steering, 0)).transpose()?;
        let packed = Packed::pack(&texts)?;
        drop(texts);
        heap::trim();
        Ok(Self {
            texts: packed,
            generation: 0,
            reload: Reload::new(load),
            dry_run,
            plan,
            steersman,
            standings: BTreeMap::new(),
            bound,
            front,
            clock,
            reconciled: false,
            ready: false,
            census: None,
            courier,
        })
    }

    /// Has tunnels probed until a signal says that it is enough.
    ///
    /// # Errors
    /// The first prober could not be given what it needs: a capability is missing, say. Or nobody keeps the
    /// kernel's routes or opens sockets any more: routes stay, and whoever has started this does so again.
    pub async fn keep(mut self, mut signal: impl AsyncFnMut() -> Signal) -> io::Result<()> {
        let mut wait = SOON;
        let mut life = Some(self.begin()?);
        loop {
            let begin = self.clock.now();
            if let Some(mut life) = life.take() {
                match self.attend(&mut life, &mut signal).await {
                    End::Wanted => {
                        notify::stopping();
                        tokio::join!(life.stop(FAREWELL), self.courier.stop(FAREWELL));
                        break;
                    }
                    End::Broken(what) => {
                        life.stop(FAREWELL).await;
                        return Err(io::Error::other(format!("{what} has ended by a fault of adit's own")));
                    }
                    End::Early => {
                        let Some(how) = self.bury(life, &mut signal).await else { break };
                        tracing::error!("the prober has ended ({how}); another one goes on");
                        if let Some(taking) = self.reload.orphan() {
                            self.take(taking);
                        }
                    }
                }
            }
            wait = if self.clock.now().since(begin) > LONG { SOON } else { (wait * 2).min(LATE) };
            tokio::select! {
                signal = signal() => match signal {
                    Signal::Stop => break,
                    Signal::Reload => self.reload.ask(None),
                },
                () = tokio::time::sleep(wait) => {}
            }
            match self.begin() {
                Ok(begun) => life = Some(begun),
                Err(error) => tracing::error!(%error, "no prober can be started; it is tried again"),
            }
        }
        self.courier.stop(FAREWELL).await;
        if let Some(steersman) = self.steersman.take() {
            steersman.stop().await;
        }
        Ok(())
    }

    /// Ends a prober, and waits until it has: one that lingers has what it knows locked, and may still write it down,
    /// so that a successor could neither read that nor keep it. How it has ended; `None` if a signal says meanwhile that
    /// it is enough.
    async fn bury(&mut self, mut life: Life, signal: &mut impl AsyncFnMut() -> Signal) -> Option<String> {
        life.kill();
        let mut told = false;
        loop {
            tokio::select! {
                how = life.ended() => return Some(how),
                signal = signal() => match signal {
                    Signal::Stop => return None,
                    Signal::Reload => self.reload.ask(None),
                },
                () = tokio::time::sleep(KILLED) => {
                    // To start all of adit anew would not help.
                    notify::alive();
                    if !std::mem::replace(&mut told, true) {
                        tracing::error!("{LINGERS}; nothing is probed until it has ended, and routes stay");
                        notify::status("nothing is probed: the prober was killed, and waits for a disk");
                        self.census = None;
                    }
                }
            }
        }
    }

    /// Gives a prober everything that it needs.
    fn begin(&mut self) -> io::Result<Life> {
        self.plan.renumber();
        self.plan.epoch = random().map(u64::from_ne_bytes)?;
        let relay = journal::is_standard_error().then(journal::relay).transpose()?;
        let begin = Begin {
            texts: self.texts.clone(),
            generation: self.generation,
            epoch: self.plan.epoch,
            steward: std::process::id(),
            dry_run: self.dry_run,
            admins: self.bound.as_ref().and_then(Bound::admins).map(Gid::as_raw),
            relays: relay.is_some(),
        };
        let listener = self.bound.as_ref().map(Bound::socket).transpose()?;
        let first = Parcel::with(Word::Begin(begin), relay.into_iter().chain(listener).collect());
        let life = Life::begin(first, self.plan.spaces(), self.plan.tunnels.len(), self.clock.now())?;
        self.front.tell(&life);
        if !self.standings.is_empty() {
            let standings = self.standings.iter().map(|(route, standing)| (*route, standing.clone())).collect();
            life.outward.say(steer::News::Standings(self.generation, standings));
        }
        Ok(life)
    }

    /// Serves a prober until it ends.
    async fn attend(&mut self, life: &mut Life, signal: &mut impl AsyncFnMut() -> Signal) -> End {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What its predecessor was not given.
        self.reload.begin();
        loop {
            tokio::select! {
                signal = signal() => match signal {
                    Signal::Stop => return End::Wanted,
                    Signal::Reload => self.reload.ask(None),
                },
                request = life.outward.request() => match request {
                    Some(request) => self.grant(life, request),
                    None => return End::Early,
                },
                news = life.line.news.recv() => match news {
                    Some(news) => self.hear(life, news),
                    None => return End::Broken("the thread that opens sockets"),
                },
                read = self.reload.read() => self.open(life, read),
                news = steer::news(&mut self.steersman) => match news {
                    Some(news) => self.pass_on(life, news),
                    None => return End::Broken("the thread that keeps the kernel's routes"),
                },
                _ = look.tick() => {
                    if self.front.look(self.clock.now()) {
                        self.front.tell(life);
                    }
                    self.courier.look(&self.clock);
                    if let Some(silent) = life.vigil.look(self.clock.now()) {
                        tracing::error!("the prober has not gone on for {} s: it is ended", silent.as_secs());
                        return End::Early;
                    }
                }
            }
        }
    }

    /// Has opened what another configuration needs.
    fn open(&mut self, life: &mut Life, read: Read) {
        let questions = std::mem::take(&mut self.reload.questions);
        match read {
            Ok((texts, config)) => {
                self.reload.notify = config.notify.clone();
                let (generation, numbering) = (self.generation + 1, self.plan.numbering());
                let renewal = Renewal::new(generation, numbering, config, self.dry_run, questions);
                life.wish(Wish::Renew(Box::new(renewal)));
                self.reload.stage = Stage::Opening(texts);
            }
            Err(why) => self.hear(life, News::NotRenewed(questions, why)),
        }
    }

    /// Passes on what the thread of sockets tells.
    fn hear(&mut self, life: &mut Life, news: News) {
        match (news, std::mem::replace(&mut self.reload.stage, Stage::Idle)) {
            (News::Renewed(renewal), Stage::Opening(texts)) => {
                let Renewal { generation, plan, settings, questions, found, .. } = *renewal;
                life.outward.say(Word::Renew(generation, questions, texts.clone()));
                found.into_iter().for_each(|news| life.tell(news));
                life.outward.say(Word::Go);
                self.reload.stage = Stage::Taking(Box::new(Taking { texts, plan, settings, generation }));
            }
            (news @ News::NotRenewed(..), _) => {
                life.tell(news);
                self.reload.begin();
            }
            (news, stage) => {
                self.reload.stage = stage;
                life.tell(news);
            }
        }
    }

    /// Has a configuration hold that the prober has taken: from here on it speaks of tunnels by the places that
    /// they have there.
    fn take(&mut self, taking: Taking) {
        let Taking { texts, mut plan, settings, generation } = taking;
        self.front.renew(&settings, self.clock.now());
        let steering = plan.steering.take();
        let names = |plan: &Plan| plan.tunnels.iter().map(|tunnel| tunnel.name.clone()).collect::<Vec<_>>();
        let (old, new) = (names(&self.plan), names(&plan));
        let before = Renewed::by_names(old.iter().map(String::as_str), new.iter().map(String::as_str));
        match (&self.steersman, steering) {
            (Some(steersman), steering) => steersman.renew(Renewed { generation, steering, before }),
            (None, Some(steering)) => match Steersman::start(steering, generation) {
                Ok(steersman) => self.steersman = Some(steersman),
                Err(error) => tracing::error!(%error, "nobody keeps the kernel's routes"),
            },
            (None, None) => {}
        }
        (self.texts, self.plan, self.generation) = (texts, plan, generation);
        self.courier.renew(std::mem::take(&mut self.reload.notify), &self.clock);
        heap::trim();
        self.standings.clear();
    }

    fn grant(&mut self, life: &mut Life, request: Request) {
        match request {
            Request::Steer(steer) => self.steer(life, steer),
            Request::Search(egress) => life.lack(Need::Egress(egress), Wish::Search(egress)),
            Request::Again(namespace) => life.lack(Need::Namespace(namespace), Wish::Again(namespace)),
            Request::Alive(census) => {
                life.vigil.shows(self.clock.now());
                self.show(census);
            }
            Request::Member { question, uid } => {
                let Some(admins) = self.bound.as_ref().and_then(Bound::admins) else { return };
                life.look_up(question, Uid::from_raw(uid), admins);
            }
            Request::Reload(question) => self.reload.ask(Some(question)),
            Request::Renewed => {
                let stage = std::mem::replace(&mut self.reload.stage, Stage::Idle);
                if let Stage::Taking(taking) = stage {
                    self.take(*taking);
                    self.front.tell(life);
                    life.told = vec![false; self.plan.tunnels.len()];
                    self.reload.begin();
                } else {
                    // Nobody has handed anything over.
                    self.reload.stage = stage;
                }
            }
        }
    }

    /// Tells the service manager that all goes on: because the loop has said so, and this one has heard it.
    fn show(&mut self, census: Census) {
        notify::alive();
        if self.census.replace(census) != Some(census) {
            notify::status(&line(&census));
        }
        if !self.ready && (self.reconciled || self.steersman.is_none()) {
            self.ready = true;
            notify::ready();
        }
    }

    fn steer(&self, life: &mut Life, steer: Steer) {
        let Some(knows) = life.told.get_mut(steer.tunnel as usize) else { return };
        // A prober that knows nothing yet does not undo what its predecessor knew.
        let is_ignorant = !std::mem::replace(knows, true) && steer.penalty.is_none();
        if let Some(steersman) = self.steersman.as_ref().filter(|_| !is_ignorant) {
            steersman.order(steer);
        }
    }

    fn pass_on(&mut self, life: &Life, news: steer::News) {
        match &news {
            steer::News::Standings(generation, standings) if *generation == self.generation => {
                self.standings.extend(standings.iter().cloned());
            }
            steer::News::Standings(..) => {}
            steer::News::Reconciled => self.reconciled = true,
            steer::News::Drift { .. } | steer::News::Overrun | steer::News::Warning(_) => {}
        }
        life.outward.say(news);
    }
}

/// How it goes, in one line.
fn line(census: &Census) -> String {
    let Census { tunnels: [unknown, healthy, degraded, down], penalised } = census;
    let unknown = if *unknown > 0 { format!(", {unknown} unknown") } else { String::new() };
    let routes = if *penalised == 1 { "route" } else { "routes" };
    format!("{healthy} healthy, {degraded} degraded, {down} down{unknown}; {penalised} {routes} penalised")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_one_line() {
        let census = Census { tunnels: [0, 12, 1, 0], penalised: 3 };
        assert_eq!(line(&census), "12 healthy, 1 degraded, 0 down; 3 routes penalised");
        let census = Census { tunnels: [2, 0, 0, 0], penalised: 1 };
        assert_eq!(line(&census), "0 healthy, 0 degraded, 0 down, 2 unknown; 1 route penalised");
    }
}
