//! One namespace's routes: a picture of the kernel and the verdicts come in, batches of changes go out, until
//! what the kernel has is what it should have.
//!
//! ```text
//! handle_picture   what the kernel has (at the start, after events, now and then)
//! set_penalty      a verdict
//! poll_changes …   a batch; then handle_outcome with what was refused, then the next one
//! poll_standing, poll_note      what became of the routes, what a person should know
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ipnet::IpNet;

use super::context::Context;
use super::entry::{EEXIST, Entry, Leg, alike};
use super::groups::Groups;
use super::{Change, Foreign, KernelRoute, Mode, Note, Picture, Refusal, Rule, Setup, Way, number, text};
use crate::engine::Standing;
use crate::engine::penalty::DOWN;
use crate::wire::Family;

/// Prefixes whose changes are gathered in one batch: between two batches a fresh verdict is heard.
const CHUNK: usize = 512;
/// What is told in full of many things of a kind.
const EXAMPLES: usize = 10;

/// To whom a change of the batch belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Entry(u32),
    Stray,
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
    by_prefix: BTreeMap<(u32, IpNet), u32>,
    /// Entries by tunnel.
    over: Vec<Vec<u32>>,
    rules: Vec<Rule>,
    known_rules: BTreeSet<Rule>,
    refused_rules: BTreeSet<Rule>,
    /// Tunnels that routes lead through and that have no verdict yet.
    unjudged: usize,
    /// Routes of ours to where nothing is configured.
    strays: Vec<KernelRoute>,
    /// Entries that may need a change.
    dirty: VecDeque<u32>,
    queued: Vec<bool>,
    chunk: Vec<u32>,
    stage: Stage,
    batch: Vec<Change>,
    owners: Vec<Owner>,
    /// Whether there is a picture to work on.
    seen: bool,
    /// The kernel has said something that the picture does not explain.
    doubt: bool,
    standings: Vec<(u32, Standing)>,
    notes: Vec<Note>,
    /// What was warned of already.
    warned: BTreeSet<Foreign>,
    fallen_back: bool,
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
            by_prefix: BTreeMap::new(),
            over: vec![Vec::new(); tunnels],
            rules,
            known_rules: BTreeSet::new(),
            refused_rules: BTreeSet::new(),
            unjudged: 0,
            strays: Vec::new(),
            dirty: VecDeque::new(),
            queued: Vec::new(),
            chunk: Vec::new(),
            stage: Stage::Common,
            batch: Vec::new(),
            owners: Vec::new(),
            seen: false,
            doubt: false,
            standings: Vec::new(),
            notes: Vec::new(),
            warned: BTreeSet::new(),
            fallen_back: false,
        };
        legs.iter().for_each(|leg| fib.insert(leg));
        fib.queued = vec![false; fib.entries.len()];
        fib.unjudged = fib.over.iter().filter(|over| !over.is_empty()).count();
        fib.context.settled = fib.unjudged == 0;
        if mode == Mode::Nexthop {
            for entry in &mut fib.entries {
                entry.group = fib.groups.group(family(&entry.prefix), &entry.legs);
            }
        }
        fib
    }

    fn insert(&mut self, leg: &super::Leg) {
        let next = number(self.entries.len());
        let at = *self.by_prefix.entry((leg.table, leg.prefix)).or_insert(next);
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
        self.by_prefix.contains_key(&(table, *prefix))
    }

    /// Whether a new picture should be taken soon.
    #[must_use]
    pub const fn doubts(&self) -> bool {
        self.doubt
    }

    /// Sets what a tunnel's state costs; `None` before its first verdict.
    pub fn set_penalty(&mut self, tunnel: u32, penalty: Option<u32>) {
        let Some(known) = self.context.penalties.get_mut(tunnel as usize) else { return };
        let before = std::mem::replace(known, penalty);
        if before == penalty {
            return;
        }
        if !self.over[tunnel as usize].is_empty() {
            self.unjudged = self.unjudged + usize::from(penalty.is_none()) - usize::from(before.is_none());
        }
        self.groups.touch();
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
            self.touch_all();
        }
    }

    /// All of ours is to go.
    pub fn dismantle(&mut self) {
        self.context.ending = true;
        self.touch_all();
    }

    fn touch(&mut self, at: u32) {
        if !std::mem::replace(&mut self.queued[at as usize], true) {
            self.dirty.push_back(at);
        }
    }

    fn touch_all(&mut self) {
        self.groups.touch();
        (0..number(self.entries.len())).for_each(|at| self.touch(at));
    }

    /// The namespace is not there: all that was in it is gone, and that is no drift.
    pub fn handle_lost(&mut self, why: &str) {
        self.seen = false;
        self.doubt = false;
        (self.stage, self.batch, self.owners) = (Stage::Common, Vec::new(), Vec::new());
        self.chunk.clear();
        self.strays.clear();
        self.known_rules.clear();
        for entry in &mut self.entries {
            entry.known.clear();
            entry.foreign.clear();
            for leg in &mut entry.legs {
                let standing = Standing::Waiting(why.to_owned());
                if leg.told != standing {
                    leg.told = standing.clone();
                    self.standings.push((leg.route, standing));
                }
            }
        }
    }

    /// Takes what the kernel has. What differs from what it should have will be mended; what differs from
    /// what it had is told as drift.
    pub fn handle_picture(&mut self, picture: Picture) {
        let first = !std::mem::replace(&mut self.seen, true);
        self.doubt = false;
        (self.stage, self.batch, self.owners) = (Stage::Common, Vec::new(), Vec::new());
        self.chunk.clear();
        let moved = self.context.see(&picture.links);
        let mut drift = Drift::default();
        self.choose_mode(&picture);
        if first && self.context.mode == Mode::Nexthop {
            self.groups.assign(&self.context, &picture.taken);
        }
        let mut gone = Vec::new();
        self.groups.see(picture.nexthops.as_deref().unwrap_or_default(), first, &mut gone);
        gone.into_iter().for_each(|what| drift.add(|| what));
        self.see_rules(picture.rules, first, &mut drift);
        let before = self.see_routes(picture.routes, picture.foreign);
        if first {
            self.entries.iter_mut().for_each(|entry| entry.adopt(&self.context));
        } else {
            self.compare(&before, &mut drift);
        }
        // Without a difference there is nothing to do, which is nearly always so.
        for at in 0..number(self.entries.len()) {
            let entry = &mut self.entries[at as usize];
            let news = entry.forgive() || entry.known != before[at as usize];
            if first || moved || news || !self.in_accord(at) {
                self.touch(at);
            }
        }
        self.warn();
        if drift.count > 0 {
            self.notes.push(Note::Drift { count: drift.count, examples: drift.examples });
        }
    }

    fn in_accord(&self, at: u32) -> bool {
        let entry = &self.entries[at as usize];
        let wanted = entry.wanted(&self.context, &self.groups);
        let mut changes = Vec::new();
        entry.adds(&wanted, &mut changes);
        entry.deletes(&wanted, &self.context, &mut changes);
        changes.is_empty()
    }

    fn choose_mode(&mut self, picture: &Picture) {
        let lacking = self.mode == Mode::Nexthop && picture.nexthops.is_none();
        self.context.mode = if lacking { Mode::Metric } else { self.mode };
        if lacking && !std::mem::replace(&mut self.fallen_back, true) {
            let what =
                "this kernel has no next-hop objects (Linux has them since 5.3): falling back to mode = \"metric\"";
            self.notes.push(Note::Warning(what.to_owned()));
        }
    }

    fn see_rules(&mut self, rules: Vec<Rule>, first: bool, drift: &mut Drift) {
        let now: BTreeSet<Rule> = rules.into_iter().collect();
        if !first {
            for rule in self.known_rules.difference(&now) {
                drift.add(|| format!("rule {} is gone", rule.priority));
            }
            for rule in now.difference(&self.known_rules) {
                drift.add(|| format!("rule {} is new", rule.priority));
            }
        }
        self.known_rules = now;
        self.refused_rules.clear();
    }

    /// Takes the routes, and gives back those of before, by entry.
    fn see_routes(&mut self, routes: Vec<KernelRoute>, foreign: Vec<Foreign>) -> Vec<Vec<(u32, Way)>> {
        let before = self.entries.iter_mut().map(|entry| std::mem::take(&mut entry.known)).collect();
        self.strays.clear();
        self.entries.iter_mut().for_each(|entry| entry.foreign.clear());
        for route in routes {
            match self.by_prefix.get(&(route.table, route.prefix)) {
                Some(&at) => self.entries[at as usize].known.push((route.metric, route.way)),
                None => self.strays.push(route),
            }
        }
        for Foreign { table, prefix, metric, protocol } in foreign {
            if let Some(&at) = self.by_prefix.get(&(table, prefix)) {
                self.entries[at as usize].foreign.push((metric, protocol));
            }
        }
        before
    }

    fn compare(&self, before: &[Vec<(u32, Way)>], drift: &mut Drift) {
        for (entry, before) in self.entries.iter().zip(before) {
            let lacks = |routes: &[(u32, Way)], (metric, way): &(u32, Way)| {
                !routes.iter().any(|(of, is)| of == metric && (alike(way, is) || way == is))
            };
            let tell = |(metric, way): &(u32, Way), what: &str| {
                let (table, prefix, metric, way) = (entry.table, entry.prefix, *metric, way.clone());
                format!("{} {what}", text::brief(&KernelRoute { table, prefix, metric, way }, &self.context))
            };
            for route in before.iter().filter(|route| lacks(&entry.known, route)) {
                drift.add(|| tell(route, "is gone"));
            }
            for route in entry.known.iter().filter(|route| lacks(before, route)) {
                drift.add(|| tell(route, "is new"));
            }
        }
    }

    /// Tells of routes of others that would carry a prefix's traffic instead of ours.
    fn warn(&mut self) {
        let mut outranked = Drift::default();
        for entry in &self.entries {
            let Some(base) = entry.legs.iter().map(|leg| leg.priority).min() else { continue };
            for &(metric, protocol) in entry.foreign.iter().filter(|(metric, _)| *metric < base.saturating_add(DOWN)) {
                let foreign = Foreign { table: entry.table, prefix: entry.prefix, metric, protocol };
                if self.warned.insert(foreign) {
                    let when = if metric < base { "always" } else { "when ours are penalised" };
                    outranked.add(|| {
                        let whose = text::protocol(protocol);
                        format!("{} metric {metric} of protocol {whose} wins {when}", entry.prefix)
                    });
                }
            }
        }
        if outranked.count > 0 {
            let Drift { count, examples } = outranked;
            let what = format!(
                "routes of others carry the traffic of {count} prefixes instead of ours: {}{}; remove them, or give them \
                 a metric above {}",
                examples.join(", "),
                if count > examples.len() { ", …" } else { "" },
                DOWN + crate::engine::penalty::BASE_MAX,
            );
            self.notes.push(Note::Warning(what));
        }
    }

    /// The next changes to be made, all in one go; empty once the kernel has all that it should have.
    /// [`Self::handle_outcome`] must follow.
    pub fn poll_changes(&mut self) -> &[Change] {
        (self.batch, self.owners) = (Vec::new(), Vec::new());
        while self.seen && self.batch.is_empty() {
            match self.stage {
                Stage::Common => self.gather_common(),
                Stage::Add => self.gather_adds(),
                Stage::Delete => self.gather_deletes(),
            }
            let idle = self.batch.is_empty() && self.stage == Stage::Common && self.dirty.is_empty();
            if idle && !self.gather_last() {
                break;
            }
        }
        &self.batch
    }

    /// Objects and rules, which routes and packets need.
    fn gather_common(&mut self) {
        if self.context.mode == Mode::Nexthop {
            self.groups.adds(&self.context, &mut self.batch);
            self.owners.resize(self.batch.len(), Owner::Nexthop);
        }
        if !self.context.ending {
            let missing = self.rules.iter().filter(|rule| !self.known_rules.contains(*rule));
            let missing = missing.filter(|rule| !self.refused_rules.contains(*rule));
            self.batch.extend(missing.map(|rule| Change::AddRule(rule.clone())));
            self.owners.resize(self.batch.len(), Owner::Rule);
        }
        if self.batch.is_empty() && !self.dirty.is_empty() {
            self.stage = Stage::Add;
        }
    }

    fn gather_adds(&mut self) {
        let count = self.dirty.len().min(CHUNK);
        self.chunk = self.dirty.drain(..count).collect();
        for at in &self.chunk {
            self.queued[*at as usize] = false;
            let entry = &self.entries[*at as usize];
            entry.adds(&entry.wanted(&self.context, &self.groups), &mut self.batch);
            self.owners.resize(self.batch.len(), Owner::Entry(*at));
        }
        self.stage = Stage::Delete;
    }

    fn gather_deletes(&mut self) {
        for at in std::mem::take(&mut self.chunk) {
            let (entry, before) = (&self.entries[at as usize], self.batch.len());
            entry.deletes(&entry.wanted(&self.context, &self.groups), &self.context, &mut self.batch);
            self.owners.resize(self.batch.len(), Owner::Entry(at));
            // An IPv6 hop whose weight was wrong comes back with the right one.
            if self.batch.len() > before && self.entries[at as usize].has_siblings() {
                self.touch(at);
            }
            self.tell_standing(at);
        }
        self.stage = Stage::Common;
    }

    /// What only goes when everything else is as it should be. Whether there was any.
    fn gather_last(&mut self) -> bool {
        let Context { settled, ending, .. } = self.context;
        if !settled && !ending {
            return false;
        }
        self.batch.extend(self.strays.iter().cloned().map(Change::DeleteRoute));
        self.owners.resize(self.batch.len(), Owner::Stray);
        let wanted = |rule: &&Rule| !ending && self.rules.contains(rule);
        let surplus = self.known_rules.iter().filter(|rule| !wanted(rule)).cloned();
        self.batch.extend(surplus.map(Change::DeleteRule));
        self.owners.resize(self.batch.len(), Owner::Rule);
        if self.batch.is_empty() {
            let used: BTreeSet<u32> = self.used_objects();
            self.groups.deletes(&self.context, |id| used.contains(&id), &mut self.batch);
            self.owners.resize(self.batch.len(), Owner::Nexthop);
        }
        !self.batch.is_empty()
    }

    fn used_objects(&self) -> BTreeSet<u32> {
        let of = |(_, way): &(u32, Way)| if let Way::Object(id) = way { Some(*id) } else { None };
        self.entries.iter().flat_map(|entry| entry.known.iter().filter_map(of)).collect()
    }

    /// The batch that was gathered last.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.batch
    }

    /// Takes what became of the batch: all was done but for what was refused.
    pub fn handle_outcome(&mut self, mut refusals: Vec<Refusal>) {
        refusals.sort_unstable_by_key(|refusal| std::cmp::Reverse(refusal.place));
        let batch = std::mem::take(&mut self.batch);
        for (place, (change, owner)) in batch.into_iter().zip(std::mem::take(&mut self.owners)).enumerate() {
            if refusals.last().is_some_and(|refusal| refusal.place == place)
                && let Some(refusal) = refusals.pop()
            {
                self.refused(owner, change, refusal);
            } else {
                self.done(owner, change);
            }
        }
    }

    fn done(&mut self, owner: Owner, change: Change) {
        match owner {
            Owner::Entry(at) => self.entries[at as usize].done(change),
            Owner::Stray => self.strays.clear(),
            Owner::Nexthop => {
                // Routes over a new group can be made only now.
                if self.groups.done(&change) {
                    (0..number(self.entries.len())).for_each(|at| self.touch(at));
                }
            }
            Owner::Rule => match change {
                Change::AddRule(rule) => drop(self.known_rules.insert(rule)),
                Change::DeleteRule(rule) => drop(self.known_rules.remove(&rule)),
                Change::AddRoute(_)
                | Change::AppendRoute(_)
                | Change::DeleteRoute(_)
                | Change::AddNexthop(_)
                | Change::ReplaceNexthop(_)
                | Change::DeleteNexthop(_) => {}
            },
        }
    }

    fn refused(&mut self, owner: Owner, change: Change, refusal: Refusal) {
        let unexplained = match &change {
            // Whose it is, only a picture can say.
            Change::AddRoute(_) => refusal.errno == EEXIST,
            Change::DeleteRoute(_) | Change::DeleteNexthop(_) | Change::DeleteRule(_) => true,
            Change::AppendRoute(_) | Change::AddNexthop(_) | Change::ReplaceNexthop(_) | Change::AddRule(_) => false,
        };
        self.doubt |= unexplained;
        match owner {
            Owner::Entry(at) => self.entries[at as usize].refuse(change, refusal),
            Owner::Stray => self.strays.clear(),
            Owner::Nexthop => {
                let what = text::change(&change, self.tag, &self.context);
                self.notes.push(Note::Warning(format!("the kernel does not take `{what}`: {}", refusal.why)));
                self.groups.refuse(&change, refusal);
                (0..number(self.entries.len())).for_each(|at| self.touch(at));
            }
            Owner::Rule => {
                let what = text::change(&change, self.tag, &self.context);
                match change {
                    Change::AddRule(rule) => {
                        self.notes.push(Note::Warning(format!("the kernel does not take `{what}`: {}", refusal.why)));
                        self.refused_rules.insert(rule);
                    }
                    Change::DeleteRule(rule) => drop(self.known_rules.remove(&rule)),
                    Change::AddRoute(_)
                    | Change::AppendRoute(_)
                    | Change::DeleteRoute(_)
                    | Change::AddNexthop(_)
                    | Change::ReplaceNexthop(_)
                    | Change::DeleteNexthop(_) => {}
                }
            }
        }
    }

    fn tell_standing(&mut self, at: u32) {
        let entry = &self.entries[at as usize];
        let now = |leg: &Leg| entry.standing(leg, &self.context, &self.groups);
        let standings: Vec<Standing> = entry.legs.iter().map(now).collect();
        for (leg, standing) in self.entries[at as usize].legs.iter_mut().zip(standings) {
            if leg.told != standing {
                leg.told = standing.clone();
                self.standings.push((leg.route, standing));
            }
        }
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

/// Many things of a kind: how many, and the first ones.
#[derive(Debug, Default)]
struct Drift {
    count: usize,
    examples: Vec<String>,
}

impl Drift {
    fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(what());
        }
    }
}
