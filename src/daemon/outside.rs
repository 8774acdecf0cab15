//! What a loop has from outside itself: opened sockets, news of the kernel, whoever keeps its routes, the
//! local socket. All from threads of this process, or from the steward.

use std::io;

use tokio::sync::mpsc::UnboundedSender;

use super::keeper::Keeper;
use super::kernel::{self, Line, News};
use super::link::{Request, Supplies};
use super::plan::Plan;
use super::recording;
use super::steer::Steersman;
use crate::config;
use crate::engine::ledger::Identity;
use crate::io::ledger::this_machine;
use crate::io::local::{self, Bound};
use crate::io::logbook::Sink;

/// What is read or opened of the host's files before anything else; later a prober cannot any more.
pub(super) struct Host {
    pub(super) machine: Identity,
    pub(super) record: Option<Sink>,
    /// What was written of the daemon itself.
    pub(super) settings: Option<config::Daemon>,
}

impl Host {
    /// Opens the recording, if there is to be one, and asks which machine this is.
    pub(super) fn open(plan: &mut Plan) -> Self {
        let record = plan.record.take().and_then(|path| recording::open(&path));
        Self { machine: this_machine(), record, settings: None }
    }
}

pub(super) struct Outside {
    /// What was there at the start.
    pub(super) found: Vec<News>,
    /// What comes later; `None` where nothing can change.
    pub(super) line: Option<Line>,
    pub(super) steersman: Option<Steersman>,
    /// Whether the kernel's routes are to follow ours.
    pub(super) steers: bool,
    pub(super) bound: Option<Bound>,
    /// The way to show that the loop goes on.
    pub(super) pulse: Option<UnboundedSender<Request>>,
    /// How many configurations there were before this one.
    pub(super) generation: u32,
}

impl Outside {
    /// Opens everything here.
    ///
    /// # Errors
    /// What could not be opened, and why.
    pub(super) fn here(plan: &mut Plan) -> io::Result<Self> {
        let (keeper, found) = Keeper::start(plan.spaces())?;
        let bound = plan.access.take().map(|access| local::bind(&access)).transpose()?;
        let line = Some(kernel::watch(keeper)?);
        let steers = plan.steers();
        let steersman = plan.steering.take().map(|steering| Steersman::start(steering, 0)).transpose()?;
        Ok(Self { found, line, steersman, steers, bound, pulse: None, generation: 0 })
    }

    /// Has it from the steward.
    pub(super) fn handed(plan: &Plan, supplies: Supplies, bound: Option<Bound>) -> Self {
        let Supplies { found, line, steersman, pulse, generation, .. } = supplies;
        // It may be that nothing is to be kept so far.
        let (line, steersman) = (Some(line), Some(steersman));
        Self { found, line, steersman, steers: plan.steers(), bound, pulse: Some(pulse), generation }
    }
}
