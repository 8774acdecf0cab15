//! A planner at the model kernel, watched at every single change.

use std::collections::{BTreeMap, BTreeSet};

use adit::engine::Standing;
use adit::steer::{Change, Fib, Note, Refusal, Setup};
use ipnet::IpNet;

use super::kernel::{Kernel, TAG};

/// More batches than any of these tests needs.
const PATIENCE: usize = 200;

pub(crate) struct Rig {
    pub(crate) kernel: Kernel,
    pub(crate) setup: Setup,
    prefixes: BTreeSet<(u32, IpNet)>,
    pub(crate) fib: Fib,
    pub(crate) penalties: Vec<Option<u32>>,
    pub(crate) standings: BTreeMap<u32, Standing>,
    pub(crate) drift: Vec<(usize, Vec<String>)>,
    pub(crate) warnings: Vec<String>,
    /// All changes that the kernel was asked for, and what it refused.
    pub(crate) changes: Vec<Change>,
    pub(crate) refused: Vec<(Change, i32)>,
    /// Something has happened in the kernel that no picture has shown yet.
    pub(crate) stale: bool,
    /// Somebody else has laid hands on what is ours.
    pub(crate) outside: bool,
    ending: bool,
    /// The process is killed after so many changes.
    pub(crate) life: Option<usize>,
}

impl Rig {
    /// A daemon starts, and looks.
    pub(crate) fn start(kernel: Kernel, setup: Setup) -> Self {
        let mut rig = Self {
            kernel,
            fib: Fib::new(TAG, setup.clone()),
            penalties: vec![None; setup.tunnels],
            prefixes: setup.legs.iter().map(|leg| (leg.table, leg.prefix)).collect(),
            setup,
            standings: BTreeMap::new(),
            drift: Vec::new(),
            warnings: Vec::new(),
            changes: Vec::new(),
            refused: Vec::new(),
            stale: false,
            outside: false,
            ending: false,
            life: None,
        };
        rig.look();
        rig
    }

    /// It is killed, and starts again with this.
    pub(crate) fn restart(self, setup: Setup) -> Self {
        Self::start(self.kernel, setup)
    }

    /// Another configuration, of whose tunnels this is known.
    pub(crate) fn reload(self, setup: Setup, penalties: &[Option<u32>]) -> Self {
        let tunnels = setup.tunnels;
        let mut rig = Self {
            fib: Fib::succeeding(TAG, setup.clone(), &penalties[..tunnels]),
            prefixes: setup.legs.iter().map(|leg| (leg.table, leg.prefix)).collect(),
            penalties: penalties[..tunnels].to_vec(),
            standings: BTreeMap::new(),
            setup,
            ..self
        };
        rig.look();
        rig
    }

    pub(crate) fn look(&mut self) {
        let picture = self.kernel.picture(TAG, |table, prefix| self.fib.concerns(table, prefix));
        let told = self.drift.len();
        self.fib.handle_picture(picture);
        self.hear();
        let ours = !std::mem::take(&mut self.outside) && !self.kernel.hid;
        assert!(!ours || self.drift.len() == told, "what we did ourselves is told as drift: {:?}", self.drift.last());
        self.stale = false;
    }

    fn hear(&mut self) {
        self.standings.extend(self.fib.poll_standings());
        for note in self.fib.poll_notes() {
            match note {
                Note::Drift { count, examples } => self.drift.push((count, examples)),
                Note::Warning(what) => self.warnings.push(what),
            }
        }
    }

    pub(crate) fn verdict(&mut self, tunnel: u32, penalty: u32) {
        self.penalties[tunnel as usize] = Some(penalty);
        self.fib.set_penalty(tunnel, Some(penalty));
    }

    /// A drain ends that came before any verdict.
    pub(crate) fn forget(&mut self, tunnel: u32) {
        self.penalties[tunnel as usize] = None;
        self.fib.set_penalty(tunnel, None);
    }

    /// Verdicts for all tunnels, and all that follows from them.
    pub(crate) fn judge(&mut self, penalties: &[u32]) {
        for (tunnel, &penalty) in (0..).zip(penalties) {
            self.verdict(tunnel, penalty);
        }
        self.run();
    }

    pub(crate) fn dismantle(&mut self) {
        self.ending = true;
        self.fib.dismantle();
        self.run();
    }

    /// One batch. Whether there was any.
    pub(crate) fn step(&mut self) -> bool {
        let batch = self.fib.poll_changes().to_vec();
        assert_eq!(batch, self.fib.changes());
        // A deletion of what is gone already may hit something else.
        self.outside |= self.stale && !batch.is_empty();
        let foreign = self.kernel.part(TAG, false);
        let mut refusals = Vec::new();
        for (place, change) in batch.iter().enumerate() {
            if self.life.is_some_and(|left| left == 0) {
                return false;
            }
            self.life = self.life.map(|left| left - 1);
            if let Err((errno, why)) = self.change(change) {
                refusals.push(Refusal { place, errno, why: why.to_owned() });
                self.refused.push((change.clone(), errno));
            }
        }
        assert_eq!(self.kernel.part(TAG, false), foreign, "what is somebody else's was changed by {batch:#?}");
        if !batch.is_empty() {
            self.fib.handle_outcome(refusals);
        }
        self.hear();
        !batch.is_empty()
    }

    /// One change: law 6.
    fn change(&mut self, change: &Change) -> Result<(), (i32, &'static str)> {
        let of = match change {
            Change::AddRoute(route) | Change::AppendRoute(route) | Change::DeleteRoute(route) => {
                Some((route.table, route.prefix))
            }
            Change::AddNexthop(_) | Change::ReplaceNexthop(_) | Change::DeleteNexthop(_) => None,
            Change::AddRule(_) | Change::DeleteRule(_) => return self.apply(change),
        };
        let watched = self.carried(of);
        let outcome = self.apply(change);
        if !self.ending && !self.stale {
            for (table, prefix) in watched {
                let rows = || self.kernel.tables.get(&(table, prefix));
                assert!(
                    self.kernel.carries(TAG, table, prefix),
                    "{prefix} in table {table} has no route after {change:#?}; it has {:#?}",
                    rows()
                );
            }
        }
        outcome
    }

    fn apply(&mut self, change: &Change) -> Result<(), (i32, &'static str)> {
        self.changes.push(change.clone());
        self.kernel.apply(TAG, change)
    }

    /// Configured prefixes that have a route now; all of them, or this one.
    fn carried(&self, of: Option<(u32, IpNet)>) -> Vec<(u32, IpNet)> {
        let carries = |&(table, prefix): &(u32, IpNet)| self.kernel.carries(TAG, table, prefix);
        match of {
            Some(of) => self.prefixes.get(&of).copied().into_iter().filter(carries).collect(),
            None => self.prefixes.iter().copied().filter(carries).collect(),
        }
    }

    /// Batches until there is nothing to do, and looks where that is asked for. How many changes there were.
    pub(crate) fn run(&mut self) -> usize {
        let before = self.changes.len();
        for _ in 0..PATIENCE {
            let busy = self.step();
            if self.life == Some(0) {
                break;
            }
            if self.fib.doubts() {
                self.look();
            } else if !busy {
                return self.changes.len() - before;
            }
        }
        assert_eq!(self.life, Some(0), "it finds no end: {:#?}", &self.changes[self.changes.len().saturating_sub(8)..]);
        self.changes.len() - before
    }
}
