//! Reading the configuration again, one time after the other.
//!
//! ```text
//! asked for ▶ read, on a thread ▶ open what is new ▶ hand over to the prober ▶ it holds, for routes as well
//!                  │                    │
//!                  └─ it is wrong       └─ that cannot be had: nothing has changed
//! ```

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::config::{self, Config, Texts};
use crate::daemon::link::Packed;
use crate::daemon::plan::Plan;
use crate::io::local::NotReloaded;
use crate::notice::Notify;

/// Questions that may wait: more than a prober has clients.
const QUESTIONS: usize = 1_024;

/// Gathers the texts of the configuration.
pub type Load = Arc<dyn Fn() -> Texts + Send + Sync>;

/// What was read.
pub(super) type Read = Result<(Packed, Config), NotReloaded>;

pub(super) struct Reload {
    load: Load,
    /// It is wanted once more, by these questions among others.
    wanted: bool,
    asked: Vec<u32>,
    pub(super) stage: Stage,
    /// Whose questions the one under way answers.
    pub(super) questions: Vec<u32>,
    /// Who is to be told, once it holds.
    pub(super) notify: Vec<Notify>,
}

/// How far a reload is.
pub(super) enum Stage {
    /// There is none.
    Idle,
    Reading(JoinHandle<Read>),
    Opening(Packed),
    /// The prober has it, and has not said so.
    Taking(Box<Taking>),
}

/// What the prober was handed.
pub(super) struct Taking {
    pub(super) texts: Packed,
    pub(super) plan: Plan,
    pub(super) settings: config::Daemon,
    pub(super) generation: u32,
}

impl Reload {
    pub(super) const fn new(load: Load) -> Self {
        Self { load, wanted: false, asked: Vec::new(), stage: Stage::Idle, questions: Vec::new(), notify: Vec::new() }
    }

    /// Has the files read as they are from now on.
    pub(super) fn ask(&mut self, question: Option<u32>) {
        self.wanted = true;
        self.asked.extend(question.filter(|_| self.asked.len() < QUESTIONS));
        self.begin();
    }

    /// Begins with the next one, if none is under way.
    pub(super) fn begin(&mut self) {
        if self.wanted && matches!(self.stage, Stage::Idle) {
            self.wanted = false;
            self.questions = std::mem::take(&mut self.asked);
            let load = Arc::clone(&self.load);
            self.stage = Stage::Reading(tokio::task::spawn_blocking(move || read(&*load)));
        }
    }

    /// Waits for what is being read; for ever, if nothing is.
    pub(super) async fn read(&mut self) -> Read {
        let Stage::Reading(reading) = &mut self.stage else { return std::future::pending().await };
        let read = reading.await;
        self.stage = Stage::Idle;
        read.unwrap_or_else(|error| Err(NotReloaded::Failed(format!("the configuration could not be read: {error}"))))
    }

    /// The prober has ended, and nobody waits for answers any more. What it was to take, if it had it already.
    pub(super) fn orphan(&mut self) -> Option<Taking> {
        self.asked.clear();
        self.questions.clear();
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Taking(taking) => return Some(*taking),
            // What was opened has gone with the prober.
            Stage::Opening(_) => self.wanted = true,
            stage @ (Stage::Idle | Stage::Reading(_)) => self.stage = stage,
        }
        None
    }
}

fn read(load: &(dyn Fn() -> Texts + Send + Sync)) -> Read {
    let texts = load();
    let config = Config::of_texts(&texts).map_err(|problems| NotReloaded::Wrong(problems.to_string()))?;
    let packed = Packed::pack(&texts).map_err(|error| NotReloaded::Failed(error.to_string()))?;
    Ok((packed, config))
}
