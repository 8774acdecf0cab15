//! What this host must have for a probe to leave: a network namespace, a device. Either may be missing,
//! and come later.
//!
//! What cannot leave for want of one is a failure: traffic could not leave either (spec, "What is no
//! sample"). It is not what happens to the probes that were in flight when a namespace went away: its
//! sockets are closed then, and nobody knows whether answers would have come.

use std::collections::BTreeMap;

use super::event::Kind;
use super::{Egress, Engine, Namespace, Time};

/// Something that may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// The namespace where probes leave and answers come.
    Namespace(Namespace),
    /// The device that probes leave by.
    Egress(Egress),
}

/// The gates that have ever been missing.
#[derive(Debug, Default)]
pub(super) struct Gates(BTreeMap<Gate, Known>);

#[derive(Debug)]
struct Known {
    name: String,
    is_missing: bool,
    /// Why it is missing, or was.
    why: String,
}

impl Gates {
    /// Why a probe by this egress of this namespace cannot leave; the namespace comes first.
    pub(super) fn missing(&self, namespace: Namespace, egress: Egress) -> Gate {
        let namespace = Gate::Namespace(namespace);
        if self.is_missing(namespace) { namespace } else { Gate::Egress(egress) }
    }

    fn is_missing(&self, gate: Gate) -> bool {
        self.0.get(&gate).is_some_and(|known| known.is_missing)
    }

    /// Why a gate is missing, or was.
    pub(super) fn why(&self, gate: Gate) -> &str {
        self.0.get(&gate).map_or("what it leaves by is missing", |known| &known.why)
    }
}

impl Engine {
    /// A gate is missing, or still is for another reason. `name` and `why` are for people.
    pub fn handle_missing(&mut self, now: Time, gate: Gate, name: &str, why: &str) {
        let known = self.gates.0.get(&gate);
        if known.is_some_and(|known| known.is_missing && known.why == why) {
            return;
        }
        let (name, why) = (name.to_owned(), why.to_owned());
        self.tell(now, Kind::Place { place: name.clone(), reason: Some(why.clone()) });
        self.gates.0.insert(gate, Known { name, is_missing: true, why });
        if let Gate::Namespace(namespace) = gate {
            // Nobody listens any more for the answers to what is in flight there.
            let here = |tunnel: &u32| self.probers[*tunnel as usize].settings.namespace == namespace;
            let tunnels: Vec<u32> = (0..self.count()).filter(here).collect();
            tunnels.into_iter().for_each(|tunnel| self.let_go(now, tunnel));
        }
    }

    /// A gate is there. It is told only where it was missing.
    pub fn handle_found(&mut self, now: Time, gate: Gate) {
        let Some(known) = self.gates.0.get_mut(&gate) else { return };
        if std::mem::replace(&mut known.is_missing, false) {
            let name = known.name.clone();
            self.tell(now, Kind::Place { place: name, reason: None });
        }
    }
}
