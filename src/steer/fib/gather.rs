//! Gathering the next changes.

use std::collections::BTreeSet;

use super::{Fib, Owner, Stage};
use crate::steer::context::Context;
use crate::steer::known::Known;
use crate::steer::{Change, Mode, Note, Rule, Way};

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
                self.tell_swept();
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
        if self.batch.is_empty() && (ending || self.sighted && self.groups.has_strays()) {
            let used: BTreeSet<u32> = self.used_objects();
            let stay = self.groups.deletes(&self.context, |id| used.contains(&id), &self.lent, &mut self.batch);
            self.owners.resize(self.batch.len(), Owner::Nexthop);
            self.tell_left(stay);
        }
        !self.batch.is_empty()
    }

    /// Tells once of objects that would be deleted, if others did not lead over them.
    fn tell_left(&mut self, stay: Vec<u32>) {
        let fresh: Vec<String> = stay.into_iter().filter(|id| self.left.insert(*id)).map(|id| id.to_string()).collect();
        if !fresh.is_empty() {
            let what = format!("routes of others lead over next-hop objects of ours, which stay: {}", fresh.join(", "));
            self.notes.push(Note::Warning(what));
        }
    }

    /// Tells of what nothing asked for and went, when all of it has.
    fn tell_swept(&mut self) {
        let swept = std::mem::take(&mut self.swept);
        let expected = std::mem::take(&mut self.expected);
        if swept.count > 0 && !expected {
            let what = format!("{} with our tag that nothing asks for were removed: {}", swept.count, swept.examples());
            self.notes.push(Note::Warning(what));
        }
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
