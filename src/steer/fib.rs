//! One namespace's routes: a picture of the kernel and the verdicts come in, batches of changes go out, until
//! what the kernel has is what it should have.
//!
//! ```text
//! handle_picture   what the kernel has (at the start, after events, now and then)
//! set_penalty      a verdict
//! poll_changes …   a batch; then handle_outcome with what was refused, then the next one
//! poll_standings, poll_notes     what became of the routes, what a person should know
//! ```

mod gather;
mod outcome;
mod picture;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ipnet::IpNet;

use super::context::Context;
use super::entry::{Entry, Leg};
use super::groups::Groups;
use super::index::Index;
use super::listed::Listed;
use super::{Change, Foreign, KernelRoute, Mode, Note, Rule, Setup, number, text};
use crate::engine::Standing;
use crate::wire::Family;

/// To whom a change of the batch belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Entry(u32),
    Nexthop,
    Rule,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Common,
    Add,
    Delete,
}

/// What should be in the kernel of one namespace, and what is.
#[derive(Debug)]
pub struct Fib {
    tag: u8,
    mode: Mode,
    context: Context,
    groups: Groups,
    entries: Vec<Entry>,
    index: Index,
    /// Entries by tunnel.
    over: Vec<Vec<u32>>,
    rules: Vec<Rule>,
    known_rules: BTreeSet<Rule>,
    refused_rules: BTreeSet<Rule>,
    /// Tunnels that routes lead through and that have no verdict yet.
    unjudged: usize,
    /// Entries for which nothing is configured: there are, or were, routes of ours that nothing wants.
    strays: BTreeMap<(u32, IpNet), u32>,
    /// Objects that routes or groups of others lead over, and those of ours among them that were told of.
    lent: BTreeSet<u32>,
    left: BTreeSet<u32>,
    /// Our routes and rules that nothing asked for and that went, until they are told of.
    swept: Listed,
    /// Routes that were already gone when they were to go.
    vanished: Vec<KernelRoute>,
    /// Entries that may need a change.
    dirty: VecDeque<u32>,
    queued: Vec<bool>,
    /// Entries that a picture has shown in order, in metric mode: so long as nothing they depend on
    /// changes, they still are.
    in_order: Vec<bool>,
    chunk: Vec<u32>,
    /// How many are in the next one at most.
    chunk_size: usize,
    stage: Stage,
    batch: Vec<Change>,
    owners: Vec<Owner>,
    /// Whether there is a picture to work on.
    seen: bool,
    /// Whether the last picture is of the time since all verdicts are in.
    sighted: bool,
    /// Whether what is known may be wrong.
    unsure: bool,
    /// The kernel has said something that the picture does not explain.
    doubt: bool,
    standings: Vec<(u32, Standing)>,
    notes: Vec<Note>,
    /// What was warned of already.
    warned: BTreeSet<Foreign>,
    /// Objects and rules that the kernel did not take, as they were told, and why.
    untaken: BTreeMap<String, String>,
    fallen_back: bool,
    /// What nothing asks for was asked for until now: that it goes need not be told.
    expected: bool,
}

impl Fib {
    /// Nothing is known of the kernel yet. `tag` is the protocol that all of ours bear.
    #[must_use]
    pub fn new(tag: u8, setup: Setup) -> Self {
        let Setup { mode, backstop, legs, rules, tunnels } = setup;
        let mut fib = Self {
            tag,
            mode,
            context: Context::new(mode, backstop, tunnels),
            groups: Groups::default(),
            entries: Vec::new(),
            index: Index::new(legs.iter().map(|leg| (leg.table, leg.prefix))),
            over: vec![Vec::new(); tunnels],
            rules,
            known_rules: BTreeSet::new(),
            refused_rules: BTreeSet::new(),
            unjudged: 0,
            strays: BTreeMap::new(),
            lent: BTreeSet::new(),
            left: BTreeSet::new(),
            swept: Listed::default(),
            vanished: Vec::new(),
            dirty: VecDeque::new(),
            queued: Vec::new(),
            in_order: Vec::new(),
            chunk: Vec::new(),
            chunk_size: gather::CHUNK,
            stage: Stage::Common,
            batch: Vec::new(),
            owners: Vec::new(),
            seen: false,
            sighted: false,
            unsure: false,
            doubt: false,
            standings: Vec::new(),
            notes: Vec::new(),
            warned: BTreeSet::new(),
            untaken: BTreeMap::new(),
            fallen_back: false,
            expected: false,
        };
        legs.iter().for_each(|leg| fib.insert(leg));
        // There are few to a prefix, and none is ever added.
        fib.entries.iter_mut().for_each(|entry| entry.legs.shrink_to_fit());
        fib.queued = vec![false; fib.entries.len()];
        fib.in_order = fib.queued.clone();
        fib.unjudged = fib.over.iter().filter(|over| !over.is_empty()).count();
        fib.context.settled = fib.unjudged == 0;
        if mode == Mode::Nexthop {
            for entry in &mut fib.entries {
                entry.group = fib.groups.group(family(&entry.prefix), &entry.legs);
            }
        }
        fib
    }

    /// What follows another one, be it of another configuration: nothing is waited for. What the kernel has and
    /// nothing asks for any more goes as soon as something else leads there, and is not worth a word.
    #[must_use]
    pub fn succeeding(tag: u8, setup: Setup, penalties: &[Option<u32>]) -> Self {
        let mut fib = Self::new(tag, setup);
        (0..).zip(penalties).for_each(|(tunnel, penalty)| fib.set_penalty(tunnel, *penalty));
        fib.settle();
        fib.expected = true;
        fib
    }

    /// What each tunnel costs, so far as that is known.
    #[must_use]
    pub fn penalties(&self) -> &[Option<u32>] {
        &self.context.penalties
    }

    fn insert(&mut self, leg: &super::Leg) {
        let next = number(self.entries.len());
        let at = self.index.enter(leg.table, leg.prefix, next);
        if at == next {
            self.entries.push(Entry::new(leg.table, leg.prefix));
        }
        let device = leg.device.as_ref().map(|name| self.context.device(name));
        self.entries[at as usize].legs.push(Leg::new(leg, device));
        if let Some(over) = self.over.get_mut(leg.tunnel as usize)
            && over.last() != Some(&at)
        {
            over.push(at);
        }
    }

    /// Whether routes to this prefix matter here, whoever made them.
    #[must_use]
    pub fn concerns(&self, table: u32, prefix: &IpNet) -> bool {
        self.index.contains(table, *prefix)
    }

    /// Whether a new picture should be taken soon.
    #[must_use]
    pub const fn doubts(&self) -> bool {
        self.doubt
    }

    /// There will be no new picture: the last one must do.
    pub const fn look_no_further(&mut self) {
        (self.doubt, self.sighted) = (false, self.context.settled);
    }

    /// It is not known which of the last changes were made: what the next picture shows is no drift.
    pub const fn lose_sight(&mut self) {
        self.unsure = true;
    }

    /// Sets what a tunnel's state costs; `None` before its first verdict, while its routes stay as they were
    /// found.
    pub fn set_penalty(&mut self, tunnel: u32, penalty: Option<u32>) {
        let Some(known) = self.context.penalties.get_mut(tunnel as usize) else { return };
        if *known == penalty {
            return;
        }
        let before = std::mem::replace(known, penalty);
        self.context.placed[tunnel as usize] = true;
        if !self.over[tunnel as usize].is_empty() {
            self.unjudged = self.unjudged + usize::from(penalty.is_none()) - usize::from(before.is_none());
        }
        self.groups.touch();
        self.chunk_size = gather::FIRST_CHUNK;
        if !self.context.settled && self.unjudged == 0 {
            return self.settle();
        }
        if self.context.mode == Mode::Metric || !self.context.settled {
            let over = std::mem::take(&mut self.over[tunnel as usize]);
            over.iter().for_each(|&at| self.touch(at));
            self.over[tunnel as usize] = over;
        }
    }

    /// No more verdicts are waited for: what was found and is wanted by nothing may go.
    pub fn settle(&mut self) {
        if !std::mem::replace(&mut self.context.settled, true) {
            // What others lead over by now, only a look tells.
            self.doubt = true;
            self.touch_all();
        }
    }

    /// All of ours is to go.
    pub fn dismantle(&mut self) {
        self.context.ending = true;
        self.touch_all();
    }

    fn touch(&mut self, at: u32) {
        self.in_order[at as usize] = false;
        if !std::mem::replace(&mut self.queued[at as usize], true) {
            self.dirty.push_back(at);
        }
    }

    fn touch_all(&mut self) {
        self.groups.touch();
        (0..number(self.entries.len())).for_each(|at| self.touch(at));
    }

    /// The batch that was gathered last.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.batch
    }

    /// How routes stand whose standing has changed, by their index in the configuration.
    pub fn poll_standings(&mut self) -> Vec<(u32, Standing)> {
        std::mem::take(&mut self.standings)
    }

    /// What a person should know.
    pub fn poll_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// A change as a person would type it.
    #[must_use]
    pub fn text(&self, change: &Change) -> String {
        text::change(change, self.tag, &self.context)
    }
}

const fn family(prefix: &IpNet) -> Family {
    match prefix {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    }
}
