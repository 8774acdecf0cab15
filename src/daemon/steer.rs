//! The steersman of the kernel's routes: a thread of its own, because writing a hundred thousand routes takes
//! longer than a probe may wait.
//!
//! It is told what each tunnel costs, and nothing else: which routes, tables and namespaces there are it
//! knows from the configuration. So whoever gets hold of the rest of the daemon can reorder routes, and
//! neither make one nor touch another's.
//!
//! ```text
//! what tunnels cost ──▶ ┌ one batch of changes a namespace, until all is as it should be ┐ ──▶ standings,
//! events, the clock ──▶ │ a picture, when one is due; given up as soon as a cost changes │     drift, warnings
//! namespaces ─────────▶ └ sleep ─────────────────────────────────────────────────────────┘
//! ```

mod fight;
mod hands;
mod plan;
mod realm;

pub use plan::Steering;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::config::{Kernel, Netns, OnExit};
use crate::engine::{Standing, Steer, Time};
use crate::io::clock::Clock;
use crate::io::netns::watch::{Seen, Watch};
use crate::steer::Setup;
use realm::Realm;

/// How long a start waits for first verdicts: what was found in the kernel and is wanted by nothing by
/// then goes.
const GRACE: Duration = Duration::from_secs(60);
/// How often it is asked which namespaces are there.
const LOOK: Duration = Duration::from_secs(1);
/// How long the end may take: for changes that are under way, and for taking all away.
const FINISH: Duration = Duration::from_secs(5);
const DISMANTLE: Duration = Duration::from_secs(30);

/// What the steersman tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum News {
    /// Everything in the kernel has been compared with what it should be, and changed, for the first time.
    Reconciled,
    /// How routes stand, by their index in the configuration of this generation.
    Standings(u32, Vec<(u32, Standing)>),
    /// Something of ours was not as we left it.
    Drift { netns: Option<String>, count: usize, changes: Vec<String> },
    /// The kernel told more than its queue holds; all was looked at anew.
    Overrun,
    /// Something wants attention.
    Warning(String),
}

/// What the steersman is told.
pub(super) enum Order {
    /// What a tunnel costs.
    Cost(Steer),
    /// Another configuration.
    Renew(Box<Renewed>),
    /// Finish what is under way, or take all away; and say so.
    Stop(oneshot::Sender<()>),
}

/// What another configuration wants of the steersman.
pub(super) struct Renewed {
    /// How many there were before it.
    pub(super) generation: u32,
    /// `None` if nothing is to be kept: what was is to go.
    pub(super) steering: Option<Steering>,
    /// Which tunnel of before each tunnel is, by index: what is known of that one holds.
    pub(super) before: Vec<Option<u32>>,
}

impl Renewed {
    /// Which of the names of before each name of now is.
    pub(super) fn by_names<'a>(
        before: impl IntoIterator<Item = &'a str>,
        now: impl IntoIterator<Item = &'a str>,
    ) -> Vec<Option<u32>> {
        let before: BTreeMap<&str, u32> = before.into_iter().zip(0..).collect();
        now.into_iter().map(|name| before.get(name).copied()).collect()
    }
}

/// The steersman, seen from the loop.
pub(super) struct Steersman {
    orders: UnboundedSender<Order>,
    /// `None` if it is known that there will be none.
    news: Option<UnboundedReceiver<News>>,
}

impl Steersman {
    /// Starts the thread, for the configuration of a generation.
    ///
    /// # Errors
    /// No room for it or its runtime.
    pub(super) fn start(steering: Steering, generation: u32) -> io::Result<Self> {
        let (orders, taken) = unbounded_channel();
        let (tell, news) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || runtime.block_on(Keeping::new(steering, generation, tell).keep(taken));
        thread::Builder::new().name("routes".to_owned()).spawn(work)?;
        Ok(Self { orders, news: Some(news) })
    }

    /// One whose thread is in another process.
    pub(super) const fn over(orders: UnboundedSender<Order>, news: UnboundedReceiver<News>) -> Self {
        Self { orders, news: Some(news) }
    }

    /// Says what another configuration wants; what tunnels cost is said by its indices from here on.
    pub(super) fn renew(&self, renewed: Renewed) {
        let _ = self.orders.send(Order::Renew(Box::new(renewed)));
    }

    /// Says what a tunnel costs.
    pub(super) fn order(&self, steer: Steer) {
        // Without a thread there is nobody to write routes, which has been said.
        let _ = self.orders.send(Order::Cost(steer));
    }

    /// The next news; once `None`, if the thread has ended, and nothing ever after that.
    pub(super) async fn news(&mut self) -> Option<News> {
        let Some(news) = &mut self.news else { return std::future::pending().await };
        let next = news.recv().await;
        if next.is_none() {
            self.news = None;
        }
        next
    }

    /// Has it finish what is under way, or take all away, and waits for that.
    pub(super) async fn stop(self) {
        let (done, ended) = oneshot::channel();
        if self.orders.send(Order::Stop(done)).is_ok() {
            let _ = ended.await;
        }
    }
}

/// The next news of the kernel's routes; `None` if nobody keeps them any more, and never anything where
/// nobody was to.
pub(super) async fn news(steersman: &mut Option<Steersman>) -> Option<News> {
    match steersman {
        Some(steersman) => steersman.news().await,
        None => std::future::pending().await,
    }
}

struct Keeping {
    realms: Vec<Realm>,
    /// Named namespaces, and the realms that they are, by place.
    watch: Watch,
    watched: Vec<usize>,
    clock: Clock,
    kernel: Kernel,
    dry_run: bool,
    tell: UnboundedSender<News>,
    generation: u32,
    /// What each tunnel costs, as far as that was said.
    penalties: Vec<Option<u32>>,
    /// When it was last looked which namespaces there are.
    looked: Option<Time>,
    /// Whether no first verdicts are waited for any more.
    settled: bool,
}

/// Why the steersman ends.
enum End {
    /// It was asked to.
    Asked(oneshot::Sender<()>),
    /// Nobody is there any more.
    Alone,
}

impl Keeping {
    fn new(Steering { kernel, realms, dry_run }: Steering, generation: u32, tell: UnboundedSender<News>) -> Self {
        let realm = |(name, setup)| Realm::new(name, setup, kernel, dry_run);
        let mut keeping = Self {
            realms: realms.into_iter().map(realm).collect(),
            watch: Watch::new([]),
            watched: Vec::new(),
            clock: Clock::start(),
            kernel,
            dry_run,
            tell,
            generation,
            penalties: Vec::new(),
            looked: None,
            settled: false,
        };
        keeping.arrange();
        keeping
    }

    /// Watches the names of the namespaces that there are now.
    fn arrange(&mut self) {
        let named = |(at, realm): (usize, &Realm)| Some((at, realm.netns()?.path().to_owned()));
        let (watched, paths): (Vec<usize>, Vec<_>) = self.realms.iter().enumerate().filter_map(named).unzip();
        self.watch.arrange(paths, Watch::new([]));
        self.watched = watched;
        // One that is not open has to be told of anew.
        let closed = self.watched.iter().enumerate().filter(|(_, at)| self.realms[**at].id().is_none());
        closed.for_each(|(place, _)| self.watch.again(place));
        self.looked = None;
    }

    /// Takes another configuration. What stays as it is causes no change; where nothing is wanted any more,
    /// all of ours goes.
    fn renew(&mut self, Renewed { generation, steering, before }: Renewed) {
        let cost = |before: &Option<u32>| *self.penalties.get(before.as_ref().copied()? as usize)?;
        let penalties: Vec<Option<u32>> = before.iter().map(cost).collect();
        let nothing = || Steering::nothing(self.kernel, self.dry_run);
        let Steering { kernel, realms, .. } = steering.unwrap_or_else(nothing);
        // What bears the tag of before would be nobody's.
        let kernel = Kernel { protocol: self.kernel.protocol, ..kernel };
        let mut wanted: BTreeMap<Option<Netns>, Setup> = realms.into_iter().collect();
        for realm in &mut self.realms {
            match wanted.remove(&realm.netns().cloned()) {
                Some(setup) => realm.renew(setup, kernel, &penalties, false),
                None => realm.renew(Setup::nothing(penalties.len()), kernel, &penalties, true),
            }
        }
        for (name, setup) in wanted {
            let mut realm = Realm::new(name, setup, kernel, self.dry_run);
            realm.begin_with(&penalties);
            self.realms.push(realm);
        }
        (self.generation, self.penalties, self.kernel, self.settled) = (generation, penalties, kernel, true);
        self.arrange();
    }

    async fn keep(mut self, mut orders: UnboundedReceiver<Order>) {
        let begin = self.clock.now();
        let mut reconciled = false;
        let end = loop {
            if let Some(end) = self.take_orders(&mut orders) {
                break end;
            }
            let now = self.clock.now();
            if self.looked.is_none_or(|looked| now.since(looked) >= LOOK) {
                self.looked = Some(now);
                self.look();
            }
            if !self.settled && now.since(begin) >= GRACE {
                self.settled = true;
                self.realms.iter_mut().for_each(|realm| realm.fib.settle());
            }
            let busy = self.step();
            self.report();
            if busy || self.take_picture(&orders) {
                continue;
            }
            if !reconciled && self.realms.iter().all(Realm::is_reconciled) {
                reconciled = true;
                // The loop may have gone; then this ends shortly.
                let _ = self.tell.send(News::Reconciled);
            }
            if self.realms.iter().any(Realm::has_left) {
                self.realms.retain(|realm| !realm.has_left());
                self.arrange();
            }
            let pause = self.pause();
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => if let Some(end) = self.obey(order) { break end },
                    None => break End::Alone,
                },
                () = heard(&self.realms) => self.hear(),
                () = tokio::time::sleep(pause) => {}
            }
        };
        if let End::Asked(done) = end {
            self.finish();
            // Whoever asked may have gone.
            let _ = done.send(());
        }
    }

    fn take_orders(&mut self, orders: &mut UnboundedReceiver<Order>) -> Option<End> {
        while let Ok(order) = orders.try_recv() {
            if let Some(end) = self.obey(order) {
                return Some(end);
            }
        }
        None
    }

    fn obey(&mut self, order: Order) -> Option<End> {
        match order {
            Order::Cost(Steer { tunnel, penalty }) => {
                self.realms.iter_mut().for_each(|realm| realm.fib.set_penalty(tunnel, penalty));
                let known = self.penalties.len().max(tunnel as usize + 1);
                self.penalties.resize(known, None);
                self.penalties[tunnel as usize] = penalty;
                None
            }
            Order::Renew(renewed) => {
                self.renew(*renewed);
                None
            }
            Order::Stop(done) => Some(End::Asked(done)),
        }
    }

    /// Looks which namespaces are there.
    fn look(&mut self) {
        let now = self.clock.now();
        // The one where we are always is; it may only be that it could not be opened.
        for realm in self.realms.iter_mut().filter(|realm| realm.is_own() && realm.id().is_none()) {
            realm.open(None, &[], now);
        }
        for (place, seen) in self.watch.changed() {
            let others: Vec<_> = self.realms.iter().filter_map(Realm::id).collect();
            let realm = &mut self.realms[self.watched[place]];
            let opened = match seen {
                Seen::There(file) => realm.open(Some(file), &others, now),
                Seen::Gone => {
                    realm.close("it does not exist");
                    true
                }
                // One that stood there before is still held, and would not be told of again.
                Seen::Refused(_) if realm.id().is_some() => true,
                Seen::Refused(error) => {
                    realm.close(&error.to_string());
                    true
                }
            };
            if !opened {
                self.watch.again(place);
            }
        }
    }

    /// Has each namespace make its next changes. Whether there were any.
    fn step(&mut self) -> bool {
        let mut busy = false;
        for realm in &mut self.realms {
            busy |= realm.step(self.clock.now());
        }
        busy
    }

    /// Takes the picture that is due first, if any is.
    fn take_picture(&mut self, orders: &UnboundedReceiver<Order>) -> bool {
        let now = self.clock.now();
        let Some(realm) = self.realms.iter_mut().filter(|realm| realm.is_due(now)).min_by_key(|realm| realm.due())
        else {
            return false;
        };
        // A verdict does not wait for the end of a long list.
        realm.take_picture(&self.clock, || orders.is_empty());
        true
    }

    fn hear(&mut self) {
        let now = self.clock.now();
        for realm in &mut self.realms {
            if realm.hear(now) {
                // The loop may have gone; then this ends shortly.
                let _ = self.tell.send(News::Overrun);
            }
        }
    }

    fn pause(&self) -> Duration {
        let now = self.clock.now();
        let due = self.realms.iter().filter_map(Realm::due).min();
        let pause = due.map_or(GRACE, |due: Time| due.since(now)).min(GRACE);
        let steady = self.watched.is_empty() && self.realms.iter().all(|realm| realm.id().is_some());
        if steady { pause } else { pause.min(LOOK) }
    }

    /// Tells what there is to tell.
    fn report(&mut self) {
        let now = self.clock.now();
        let generation = self.generation;
        let news = self.realms.iter_mut().flat_map(|realm| realm.news(now, generation));
        // The loop may have gone; then this ends shortly.
        news.for_each(|news| drop(self.tell.send(news)));
    }

    /// The end, as configured.
    fn finish(&mut self) {
        let begin = self.clock.now();
        let dismantle = self.kernel.on_exit == OnExit::Remove && !self.dry_run;
        if dismantle {
            self.look();
            self.realms.iter_mut().for_each(|realm| realm.dismantle(&self.clock));
        }
        let patience = if dismantle { DISMANTLE } else { FINISH };
        while self.step() {
            if self.clock.now().since(begin) >= patience {
                tracing::warn!("the kernel's routes are not all as they should be at the end of the daemon");
                break;
            }
        }
        // The loop hears of nothing any more.
        let now = self.clock.now();
        for news in self.realms.iter_mut().flat_map(|realm| realm.news(now, self.generation)) {
            if let News::Warning(what) = news {
                tracing::warn!("{what}");
            }
        }
    }
}

/// Until the kernel has something to tell in one of the namespaces.
async fn heard(realms: &[Realm]) {
    poll_fn(|context| {
        // Every one is asked, so that every one knows whom to wake.
        let ready = realms.iter().filter(|realm| realm.poll_ready(context)).count();
        if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
