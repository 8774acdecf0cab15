//! A witness of each change of the near router's routes, in their order: whether a prefix was without a
//! route of ours for a moment, however short.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::process::{Command, Stdio};

use super::net::ip;
use super::stage::Stage;
use crate::kit::eventually;
use crate::site::Running;

/// The routes of ours to a prefix, by metric.
type Routes = BTreeMap<String, BTreeSet<String>>;

pub(crate) struct Witness<'a> {
    stage: &'a Stage,
    _monitor: Running,
    /// What there was at the beginning.
    before: Routes,
}

/// Shows that all that was changed before has been written down.
const END: &str = "198.18.255.255";

impl<'a> Witness<'a> {
    /// Watches from now on.
    pub(crate) fn watch(stage: &'a Stage) -> Self {
        let mut command = Command::new("ip");
        command.args(["-o", "-N", "monitor", "route"]).stdin(Stdio::null());
        let file = |name: &str| File::create(stage.site.path(name)).unwrap();
        command.stdout(file("changes")).stderr(file("complaints"));
        let monitor = Running::start(stage.near(), &mut command);
        let witness = Self { stage, _monitor: monitor, before: Routes::new() };
        witness.await_mark();
        let mut before = Routes::new();
        stage.ours().iter().for_each(|line| drop(note(&mut before, &line[3..])));
        Self { before, ..witness }
    }

    /// Makes a change of its own, and waits until it is seen.
    fn await_mark(&self) {
        let changes = || self.stage.site.read("changes").matches(END).count();
        let seen = changes();
        eventually("the monitor at work", || {
            ip(self.stage.near(), &format!("route add {END} via 10.1.0.2"));
            ip(self.stage.near(), &format!("route del {END} via 10.1.0.2"));
            changes() > seen
        });
    }

    /// That none of the prefixes that had a route was without one at any moment. How many changes there
    /// were; none if they came faster than the witness could see them.
    pub(crate) fn assert_never_without_a_route(self) -> Option<usize> {
        self.await_mark();
        let complaints = self.stage.site.read("complaints");
        if complaints.contains("No buffer space") {
            println!("the witness was overrun: {complaints}");
            return None;
        }
        let mut routes = self.before.clone();
        let mut changes = 0;
        for line in self.stage.site.read("changes").lines() {
            let Some(prefix) = note(&mut routes, line) else { continue };
            changes += 1;
            assert!(!routes[&prefix].is_empty(), "{prefix} is without a route after this: {line}");
        }
        Some(changes)
    }
}

/// Takes a change into account, or a route of a list; gives the prefix, if it is about one of ours.
fn note(routes: &mut Routes, line: &str) -> Option<String> {
    let (gone, route) = line.strip_prefix("Deleted ").map_or((false, line), |route| (true, route));
    let (prefix, rest) = route.split_once(' ')?;
    // In a list all are ours, and it is not said.
    let is_ours = !rest.contains(" proto ") || rest.contains(" proto 212 ");
    let metric = rest.split(" metric ").nth(1)?.split(' ').next()?;
    if !is_ours || !prefix.contains('/') {
        return None;
    }
    let there = routes.entry(prefix.to_owned()).or_default();
    if gone {
        there.remove(metric)
    } else {
        there.insert(metric.to_owned())
    };
    Some(prefix.to_owned())
}
