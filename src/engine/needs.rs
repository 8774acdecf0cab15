//! What this host must have for a probe to leave: a network namespace, a device. Either may be missing,
//! and come later.
//!
//! What cannot leave for want of one is a failure: traffic could not leave either (spec, "What is no
//! sample"). It is not what happens to the probes that were in flight when a namespace went away: its
//! sockets are closed then, and nobody knows whether answers would have come.

use std::collections::BTreeMap;

use super::event::Kind;
use super::{Egress, Engine, Namespace, Time};

/// What probes need, and what may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The namespace where probes leave and answers come.
    Namespace(Namespace),
    /// The device that probes leave by.
    Egress(Egress),
}

/// The needs that have ever been missing.
#[derive(Debug, Default)]
pub(super) struct Needs(BTreeMap<Need, Known>);

#[derive(Debug)]
struct Known {
    name: String,
    is_missing: bool,
    /// Why it is missing, or was.
    why: String,
}

impl Needs {
    /// Why a probe by this egress of this namespace cannot leave; the namespace comes first.
    pub(super) fn missing(&self, namespace: Namespace, egress: Egress) -> Need {
        let namespace = Need::Namespace(namespace);
        if self.is_missing(namespace) { namespace } else { Need::Egress(egress) }
    }

    fn is_missing(&self, need: Need) -> bool {
        self.0.get(&need).is_some_and(|known| known.is_missing)
    }

    /// How many are missing.
    pub(super) fn missing_now(&self) -> usize {
        self.0.values().filter(|known| known.is_missing).count()
    }

    /// Why it is missing, or was.
    pub(super) fn why(&self, need: Need) -> &str {
        self.0.get(&need).map_or("what it leaves by is missing", |known| &known.why)
    }
}

impl Engine {
    /// What probes need is missing, or still is for another reason. `name` and `why` are for people.
    pub fn handle_missing(&mut self, now: Time, need: Need, name: &str, why: &str) {
        let known = self.needs.0.get(&need);
        if known.is_some_and(|known| known.is_missing && known.why == why) {
            return;
        }
        let (name, why) = (name.to_owned(), why.to_owned());
        self.tell(now, Kind::Need { need: name.clone(), reason: Some(why.clone()) });
        self.needs.0.insert(need, Known { name, is_missing: true, why });
        if let Need::Namespace(namespace) = need {
            // Nobody listens any more for the answers to what is in flight there.
            let here = |tunnel: &u32| self.probers[*tunnel as usize].settings.namespace == namespace;
            let tunnels: Vec<u32> = (0..self.count()).filter(here).collect();
            tunnels.into_iter().for_each(|tunnel| self.let_go(now, tunnel, "namespace"));
            self.let_endpoints_go(now, Some(namespace));
        }
    }

    /// It is there. That is told only where it was missing.
    pub fn handle_found(&mut self, now: Time, need: Need) {
        let Some(known) = self.needs.0.get_mut(&need) else { return };
        if std::mem::replace(&mut known.is_missing, false) {
            let name = known.name.clone();
            self.tell(now, Kind::Need { need: name, reason: None });
        }
    }
}
