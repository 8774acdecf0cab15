//! Another configuration, on its way from whoever has read it to the loop.

use std::collections::BTreeMap;

use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinHandle;

use super::Daemon;
use super::kernel::News;
use super::link::Request;
use super::plan::{Numbering, Plan};
use super::records::Records;
use super::space::Space;
use super::steer::Renewed;
use crate::config::{self, Config, Problem};
use crate::engine::{Layout, Material};
use crate::io::local::{Applied, Asker, NotReloaded};

pub(super) struct Renewal {
    /// How many there were before it; 0 is the one of the start.
    pub(super) generation: u32,
    pub(super) plan: Plan,
    /// What was written of the daemon itself, which a running one cannot take.
    pub(super) settings: config::Daemon,
    /// What is allowed, and may yet not be meant.
    pub(super) hints: Vec<Problem>,
    /// Who has asked for it.
    pub(super) questions: Vec<u32>,
    /// What was opened for it.
    pub(super) found: Vec<News>,
}

impl Renewal {
    /// For a configuration that follows one with these numbers.
    pub(super) fn new(
        generation: u32,
        numbering: Numbering,
        mut config: Config,
        dry_run: bool,
        questions: Vec<u32>,
    ) -> Self {
        let (settings, hints) = (config.daemon.clone(), std::mem::take(&mut config.hints));
        let plan = Plan::after(numbering, config).dry(dry_run);
        Self { generation, plan, settings, hints, questions, found: Vec::new() }
    }

    /// What is to be open in each namespace, for another process.
    pub(super) fn spaces(&self) -> Vec<Space> {
        let mut spaces = self.plan.spaces();
        spaces.iter_mut().for_each(|space| space.to_hand = true);
        spaces
    }
}

/// One that waits for the sequence numbers of its new pairs.
pub(super) type Waiting = (Box<Renewal>, JoinHandle<Records>);

/// Reloads that were asked for over the local socket.
pub(super) struct Reloads {
    asked: mpsc::Receiver<Asker>,
    /// The way to whoever reads the files.
    ask: Option<UnboundedSender<Request>>,
    /// By the numbers of their questions.
    waiting: BTreeMap<u32, Asker>,
    next: u32,
}

impl Reloads {
    pub(super) const fn new(asked: mpsc::Receiver<Asker>, ask: Option<UnboundedSender<Request>>) -> Self {
        Self { asked, ask, waiting: BTreeMap::new(), next: 0 }
    }

    /// Waits for one that is asked for.
    pub(super) async fn next(&mut self) -> Option<Asker> {
        self.asked.recv().await
    }

    /// Passes it on.
    pub(super) fn pass_on(&mut self, asker: Asker) {
        let Some(ask) = &self.ask else {
            let why = "this daemon has no files to read its configuration from".to_owned();
            return drop(asker.send(Err(NotReloaded::Failed(why))));
        };
        // Who does not wait any more misses nothing.
        self.waiting.retain(|_, asker| !asker.is_closed());
        self.next = self.next.wrapping_add(1);
        self.waiting.insert(self.next, asker);
        // The steward may have gone; that is seen elsewhere.
        let _ = ask.send(Request::Reload(self.next));
    }

    fn answer(&mut self, questions: &[u32], answer: &Result<Applied, NotReloaded>) {
        for question in questions {
            if let Some(asker) = self.waiting.remove(question) {
                let _ = asker.send(answer.clone());
            }
        }
    }
}

impl Daemon {
    /// Another configuration is there. The numbers of its new pairs come from the record, which takes time.
    pub(super) fn begin_renewal(&mut self, renewal: Box<Renewal>) {
        let plan = &renewal.plan;
        let known = self.engine.static_pairs();
        let name = |tunnel: u32| plan.tunnels[tunnel as usize].name.as_str();
        let is_new = |(tunnel, material): &(&u32, &Material)| known.get(name(**tunnel)) != Some(&material.name());
        let pairs: BTreeMap<u32, (String, Material)> = plan
            .material
            .iter()
            .filter(is_new)
            .map(|(&tunnel, material)| (tunnel, (name(tunnel).to_owned(), material.clone())))
            .collect();
        let is_esp = plan.tunnels.iter().any(|tunnel| tunnel.terms.is_some());
        let state_dir = self.state_dir.clone().filter(|_| !pairs.is_empty() || is_esp && self.recorder.get().is_none());
        let wall = self.clock.wall();
        match state_dir {
            Some(state_dir) => {
                let records = Records::join(self.recorder.get().cloned(), state_dir, self.machine, wall, pairs);
                self.renewing = Some((renewal, tokio::spawn(records)));
            }
            None => self.renewed = Some((renewal, Records { clerk: None, starts: BTreeMap::new() })),
        }
    }

    /// Has another configuration hold, if one is ready.
    pub(super) fn renew(&mut self) {
        let Some((renewal, records)) = self.renewed.take() else { return };
        let now = self.clock.now();
        let Renewal { generation, plan, settings, hints, questions, found } = *renewal;
        let spaces = plan.spaces();
        let names = plan.tunnels.iter().map(|tunnel| tunnel.name.as_str());
        let before = Renewed::by_names(self.engine.names(), names);
        let notes = self.notes(&plan, &settings, &hints);
        let steers = plan.steers();
        let Plan { tunnels, bearings, routes, places, endpoints, steering, fail_static, .. } = plan;
        let Records { clerk, starts: associations } = records;
        if let Some(clerk) = clerk {
            // There was none before.
            let _ = self.recorder.set(clerk.recorder());
            self.clerk = Some(clerk);
        }
        self.engine.set_fail_static(plan.fail_static);
        let tunnels = self.engine.handle_reload(now, Layout { tunnels, routes, places, steers, associations });
        self.engine.set_fail_static(fail_static);
        self.engine.set_endpoints(now, endpoints);
        self.engine.set_bearings(bearings);
        self.spaces.renew(&spaces);
        // What could not be used has been told, and is tried again.
        found.into_iter().for_each(|news| drop(self.learn(news)));
        if let Some(steersman) = &self.steersman {
            steersman.renew(Renewed { generation, steering, before });
        }
        self.generation = generation;
        self.reloads.answer(&questions, &Ok(Applied { tunnels, notes }));
    }

    /// What a person should know of another configuration.
    fn notes(&mut self, plan: &Plan, settings: &config::Daemon, hints: &[Problem]) -> Vec<String> {
        let mut later: Vec<String> = self
            .settings
            .iter()
            .flat_map(|known| known.differences(settings))
            .map(|key| format!("[daemon] {key}"))
            .collect();
        if let Some(steering) = &plan.steering {
            let protocol = steering.kernel.protocol;
            // What bears the tag of before would be nobody's.
            later.extend((*self.protocol.get_or_insert(protocol) != protocol).then(|| "[kernel] protocol".to_owned()));
        }
        let later = later.into_iter().map(|key| format!("{key} takes effect at the next start"));
        let notes: Vec<String> = later.chain(hints.iter().map(Problem::to_string)).collect();
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        notes
    }

    /// Another configuration is not taken.
    pub(super) fn refuse_renewal(&mut self, questions: &[u32], why: &NotReloaded) {
        let text = why.to_string();
        let (first, others) = (text.lines().next().unwrap_or_default(), text.lines().count().saturating_sub(1));
        let reason = if others > 0 { format!("{first} (and {others} more)") } else { first.to_owned() };
        self.engine.handle_reload_refused(self.clock.now(), &reason);
        self.reloads.answer(questions, &Err(why.clone()));
    }
}

/// When the numbers are there of a configuration that waits for them; never, if none does.
pub(super) async fn records(waiting: &mut Option<Waiting>) -> (Box<Renewal>, Records) {
    let records = match waiting {
        Some((_, records)) => records.await,
        None => std::future::pending().await,
    };
    match (waiting.take(), records) {
        (Some((renewal, _)), Ok(records)) => (renewal, records),
        // It has panicked, and said so.
        (_, Err(error)) => std::panic::resume_unwind(error.into_panic()),
        (None, Ok(_)) => std::future::pending().await,
    }
}
