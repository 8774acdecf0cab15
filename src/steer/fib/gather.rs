//! Gathering the next changes.

use std::collections::BTreeSet;

use super::{Fib, Owner, Stage};
use crate::steer::context::Context;
use crate::steer::known::Known;
use crate::steer::{Change, Mode, Rule, Way};

/// Prefixes whose changes are gathered in one batch: between two batches a fresh verdict is heard.
pub(super) const CHUNK: usize = 512;
/// And in the first ones after a verdict, twice as many each time: some traffic need not wait for the rest.
pub(super) const FIRST_CHUNK: usize = 32;

impl Fib {
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
        let count = self.dirty.len().min(self.chunk_size);
        self.chunk_size = CHUNK.min(2 * self.chunk_size);
        self.chunk = self.dirty.drain(..count).collect();
        for at in &self.chunk {
            self.queued[*at as usize] = false;
            let entry = &self.entries[*at as usize];
            entry.adds(&entry.wanted(&self.context, &self.groups), &self.context, &mut self.batch);
            self.owners.resize(self.batch.len(), Owner::Entry(*at));
        }
        self.stage = Stage::Delete;
    }

    fn gather_deletes(&mut self) {
        for at in std::mem::take(&mut self.chunk) {
            let entry = &self.entries[at as usize];
            let wanted = entry.wanted(&self.context, &self.groups);
            let again = entry.deletes(&wanted, &self.context, &mut self.batch);
            self.owners.resize(self.batch.len(), Owner::Entry(at));
            if again {
                self.touch(at);
            }
            self.tell_standing(at, &wanted);
        }
        self.stage = Stage::Common;
    }

    /// What only goes when everything else is as it should be. Whether there was any.
    fn gather_last(&mut self) -> bool {
        let Context { settled, ending, .. } = self.context;
        if !settled && !ending {
            return false;
        }
        let wanted = |rule: &&Rule| !ending && self.rules.contains(rule);
        let surplus = self.known_rules.iter().filter(|rule| !wanted(rule)).cloned();
        self.batch.extend(surplus.map(Change::DeleteRule));
        self.owners.resize(self.batch.len(), Owner::Rule);
        if self.batch.is_empty() && (ending || self.groups.has_strays()) {
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

    fn tell_standing(&mut self, at: u32, wanted: &Known) {
        for place in 0..self.entries[at as usize].legs.len() {
            let entry = &self.entries[at as usize];
            let standing = entry.standing(&entry.legs[place], wanted, &self.context, &self.groups);
            let leg = &mut self.entries[at as usize].legs[place];
            if leg.told != standing {
                leg.told = standing.clone();
                self.standings.push((leg.route, standing));
            }
        }
    }
}
