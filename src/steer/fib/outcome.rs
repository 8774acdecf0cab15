//! Taking in what became of the changes.

use super::{Fib, Owner};
use crate::steer::entry::{EEXIST, is_not_there};
use crate::steer::{Change, Note, Refusal, number, text};

impl Fib {
    /// Takes what became of the batch: all was done but for what was refused.
    pub fn handle_outcome(&mut self, mut refusals: Vec<Refusal>) {
        refusals.sort_unstable_by_key(|refusal| std::cmp::Reverse(refusal.place));
        let batch = std::mem::take(&mut self.batch);
        let mut objects = false;
        for (place, (change, owner)) in batch.into_iter().zip(std::mem::take(&mut self.owners)).enumerate() {
            if refusals.last().is_some_and(|refusal| refusal.place == place)
                && let Some(refusal) = refusals.pop()
            {
                objects |= owner == Owner::Nexthop;
                self.refused(owner, change, refusal);
            } else {
                objects |= self.done(owner, change);
            }
        }
        // Routes over a new group can be made only now, and what has become of an object is to be told.
        if objects {
            (0..number(self.entries.len())).for_each(|at| self.touch(at));
        }
    }

    /// Whether there is a new object.
    fn done(&mut self, owner: Owner, change: Change) -> bool {
        if !self.untaken.is_empty() && matches!(owner, Owner::Nexthop | Owner::Rule) {
            self.untaken.remove(&text::change(&change, self.tag, &self.context));
        }
        self.note_sweep(owner, &change);
        match (owner, change) {
            (Owner::Entry(at), change) => self.doubt |= self.entries[at as usize].done(change),
            (Owner::Nexthop, change) => return self.groups.done(&change),
            (Owner::Rule, Change::AddRule(rule)) => drop(self.known_rules.insert(rule)),
            (Owner::Rule, Change::DeleteRule(rule)) => drop(self.known_rules.remove(&rule)),
            (
                Owner::Rule,
                Change::AddRoute(_)
                | Change::AppendRoute(_)
                | Change::DeleteRoute(_)
                | Change::AddNexthop(_)
                | Change::ReplaceNexthop(_)
                | Change::DeleteNexthop(_),
            ) => {}
        }
        false
    }

    /// Notes what goes though it is not another place of something that is asked for.
    fn note_sweep(&mut self, owner: Owner, change: &Change) {
        if self.context.ending {
            return;
        }
        match (owner, change) {
            (Owner::Entry(at), Change::DeleteRoute(route)) if self.entries[at as usize].legs.is_empty() => {
                self.swept.add(|| text::brief(route, &self.context));
            }
            (Owner::Rule, Change::DeleteRule(rule)) => self.swept.add(|| format!("rule {}", rule.priority)),
            _ => {}
        }
    }

    fn refused(&mut self, owner: Owner, change: Change, refusal: Refusal) {
        // What was to be deleted may be gone, or somebody else's; what was to be added may be in the way of
        // somebody else's: that can only be seen.
        self.doubt |= match &change {
            Change::AddRoute(_) | Change::AddNexthop(_) => refusal.errno == EEXIST,
            Change::DeleteRoute(_) | Change::DeleteNexthop(_) | Change::DeleteRule(_) => is_not_there(&refusal),
            Change::AppendRoute(_) | Change::ReplaceNexthop(_) | Change::AddRule(_) => false,
        };
        match owner {
            Owner::Entry(at) => {
                if let (Change::DeleteRoute(route), true) = (&change, is_not_there(&refusal))
                    && self.entries[at as usize].may_be_ours(&route.way, &self.context)
                {
                    self.vanished.push(route.clone());
                }
                self.entries[at as usize].refuse(change, refusal);
                // There may be another way.
                self.touch(at);
            }
            Owner::Nexthop => {
                self.tell_refusal(&change, &refusal);
                self.groups.refuse(&change, refusal);
            }
            Owner::Rule => {
                self.tell_refusal(&change, &refusal);
                if let Change::AddRule(rule) | Change::DeleteRule(rule) = change {
                    self.known_rules.remove(&rule);
                    self.refused_rules.insert(rule);
                }
            }
        }
    }

    /// Tells of an object or a rule that the kernel does not take, and not at every picture again.
    fn tell_refusal(&mut self, change: &Change, refusal: &Refusal) {
        let what = text::change(change, self.tag, &self.context);
        if self.untaken.insert(what.clone(), refusal.why.clone()).as_ref() != Some(&refusal.why) {
            self.notes.push(Note::Warning(format!("the kernel does not take `{what}`: {}", refusal.why)));
        }
    }
}
