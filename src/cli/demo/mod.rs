//! `adit demo`: the whole of it on one machine, on real packets, without configuration.
//!
//! | file | holds |
//! | --- | --- |
//! | `stage` | namespaces, cable, far end, tunnels |
//! | `screen` | what a person, or a script, sees of it |
//! | here | the play: break, fail over, heal, fail back, and what must be seen |

mod screen;
mod stage;

use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::args;
use super::{Exit, Failure, Outcome};
use crate::daemon::Daemon;
use crate::engine::event::{Event, Kind};
use crate::engine::{State, WallTime};
use crate::io::clock::Clock;
use crate::io::links;
use crate::io::local::Handle;
use crate::reflect::plan::Fault;
use screen::Screen;
use stage::{BACKUP, DESTINATION, FIRST, FarEnd, GATEWAYS, Stage};

/// How long anything that must happen may take, beyond what the thresholds ask for: a busy machine
/// is no reason to fail.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn run(args: args::Demo) -> Outcome {
    let pace = Pace::of(args.seconds);
    // First of all, while this process has one thread only.
    let stage = Stage::build(pace.window).map_err(not_built)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut screen = Screen::new(&args);
        screen.opening(pace.window)?;
        let FarEnd { faults, thread: far_end } = stage.start_far_end()?;
        let (daemon, handle, _) = Daemon::start(stage.plan())?;
        let (stop, stopped) = oneshot::channel::<()>();
        let prober = tokio::spawn(daemon.run(async {
            // An error means that the sender has gone, which is as good as its word.
            let _ = stopped.await;
        }));
        let mut play = Play { handle, faults, screen, clock: Clock::start(), since: 0, seen: Vec::new(), phase: 0 };
        let result = play.perform(pace).await;
        drop(stop);
        prober.await.map_err(std::io::Error::other)?;
        drop(play.faults);
        far_end.join().map_err(|_| Failure::new(Exit::System, "the far end panicked"))??;
        play.screen.closing(&result?)
    })
}

/// How the time is divided.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Between one phase and the next, so that a person can follow.
    pause: Duration,
    /// The window of rule 3, compressed from five minutes.
    window: Duration,
}

impl Pace {
    /// A pace at which the whole takes about `seconds`, but never so fast that the rules have no
    /// room.
    fn of(seconds: u64) -> Self {
        let whole = Duration::from_secs(seconds.clamp(8, 3_600));
        Self { pause: whole * 2 / 15, window: whole * 6 / 15 }
    }
}

/// What was seen, and how long it took.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// What should have been seen and was not.
    missing: Vec<&'static str>,
    /// From the cut to the verdict "down".
    detection: Option<Duration>,
    /// From the cut to the moved route.
    failover: Option<Duration>,
    /// From the cut to the moved route of the kernel, as far as could be seen: it is asked now and then.
    kernel: Option<Duration>,
    /// From the healing to "degraded": it carries traffic again.
    alive: Option<Duration>,
    /// From the healing to the route being back.
    failback: Option<Duration>,
}

struct Play {
    handle: Handle,
    faults: mpsc::Sender<Vec<Fault>>,
    screen: Screen,
    clock: Clock,
    since: u64,
    seen: Vec<Event>,
    /// Where the events of the present phase begin in `seen`.
    phase: usize,
}

impl Play {
    async fn perform(&mut self, pace: Pace) -> Result<Report, Failure> {
        let mut report = Report::default();
        self.screen.phase("start", "four tunnels, nothing known about them yet")?;
        for name in stage::NAMES {
            self.expect(&mut report, "every tunnel healthy", PATIENCE, |event| enters(event, name, State::Healthy))
                .await?;
        }
        self.watch(pace.pause).await?;

        self.screen.phase("break", "the far end of amsterdam swallows every packet from now on")?;
        let cut = self.plan(vec![Fault::cut(FIRST)]).await;
        let down =
            self.expect(&mut report, "amsterdam down", PATIENCE, |event| enters(event, FIRST, State::Down)).await?;
        let moved = self
            .expect(&mut report, "the route moved to frankfurt", PATIENCE, |event| moves(event, FIRST, BACKUP))
            .await?;
        let kernel = self.expect_gateway(&mut report, "the kernel's route moved to frankfurt", GATEWAYS[1]).await?;
        (report.detection, report.failover) = (after(cut, down), after(cut, moved));
        report.kernel = after(cut, kernel);
        self.watch(pace.pause).await?;

        self.screen.phase("heal", "amsterdam carries packets again; adit trusts it slowly")?;
        let healed = self.plan(Vec::new()).await;
        let alive = self
            .expect(&mut report, "amsterdam degraded", PATIENCE, |event| enters(event, FIRST, State::Degraded))
            .await?;
        let limit = pace.window + PATIENCE;
        self.expect(&mut report, "amsterdam healthy again", limit, |event| enters(event, FIRST, State::Healthy))
            .await?;
        let back = self
            .expect(&mut report, "the route back on amsterdam", PATIENCE, |event| moves(event, BACKUP, FIRST))
            .await?;
        self.expect_gateway(&mut report, "the kernel's route back on amsterdam", GATEWAYS[0]).await?;
        (report.alive, report.failback) = (after(healed, alive), after(healed, back));
        self.watch(pace.pause / 2).await?;

        let strayed = |event: &Event| matches!(&event.kind, Kind::Transition { tunnel, from, .. } if tunnel != FIRST && *from != State::Unknown);
        if self.seen.iter().any(strayed) {
            report.missing.push("the other tunnels left alone");
        }
        Ok(report)
    }

    /// Gives the far end a new plan and says when.
    async fn plan(&mut self, faults: Vec<Fault>) -> WallTime {
        // A far end that has gone shows in what is not seen afterwards.
        let _ = self.faults.send(faults).await;
        self.phase = self.seen.len();
        self.clock.wall()
    }

    /// Waits until an event is seen, or notes that it was not.
    async fn expect(
        &mut self,
        report: &mut Report,
        what: &'static str,
        limit: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<WallTime>, Failure> {
        let until = self.clock.now() + limit;
        loop {
            let found = self.seen[self.phase..].iter().find(|event| wanted(event)).map(|event| event.at);
            if found.is_some() {
                return Ok(found);
            }
            if self.clock.now() >= until {
                report.missing.push(what);
                return Ok(None);
            }
            self.step(Duration::from_millis(100)).await?;
        }
    }

    /// Waits until the kernel sends what is steered to this gateway, or notes that it does not.
    async fn expect_gateway(
        &mut self,
        report: &mut Report,
        what: &'static str,
        gateway: IpAddr,
    ) -> Result<Option<WallTime>, Failure> {
        let until = self.clock.now() + PATIENCE;
        while self.clock.now() < until {
            if links::gateway(DESTINATION)? == Some(gateway) {
                return Ok(Some(self.clock.wall()));
            }
            self.step(Duration::from_millis(2)).await?;
        }
        report.missing.push(what);
        Ok(None)
    }

    /// Lets things happen for a while.
    async fn watch(&mut self, pause: Duration) -> Result<(), Failure> {
        let until = self.clock.now() + pause;
        while self.clock.now() < until {
            self.step(Duration::from_millis(100)).await?;
        }
        Ok(())
    }

    /// Waits for events for a moment, and shows what there is.
    async fn step(&mut self, moment: Duration) -> Result<(), Failure> {
        let gone = || Failure::new(Exit::System, "the prober has stopped");
        if let Ok(news) = tokio::time::timeout(moment, self.handle.events(self.since, true)).await {
            let (_, events) = news.ok_or_else(gone)?;
            for event in events {
                self.since = event.id;
                let first = self.seen.first().map_or(event.at, |first| first.at);
                self.screen.event(&event, Duration::from_nanos(event.at.0.saturating_sub(first.0)))?;
                self.seen.push(event);
            }
        }
        self.screen.refresh(&self.handle).await
    }
}

fn enters(event: &Event, name: &str, state: State) -> bool {
    matches!(&event.kind, Kind::Transition { tunnel, to, .. } if tunnel == name && *to == state)
}

fn moves(event: &Event, away: &str, onto: &str) -> bool {
    matches!(&event.kind, Kind::Route { from, to, .. } if *from == [away] && *to == [onto])
}

fn after(begin: WallTime, end: Option<WallTime>) -> Option<Duration> {
    end.map(|end| Duration::from_nanos(end.0.saturating_sub(begin.0)))
}

fn not_built(error: std::io::Error) -> Failure {
    Failure::new(
        Exit::NotPermitted,
        format!(
            "cannot make a network namespace ({error}): needs root, or user namespaces for ordinary users \
             (sysctl user.max_user_namespaces above 0; where they exist, kernel.unprivileged_userns_clone=1 and \
             kernel.apparmor_restrict_unprivileged_userns=0)"
        ),
    )
}
