//! From one configuration to another. What has not changed goes on as if nothing had happened: its health,
//! its samples, its probes in flight.
//!
//! | a tunnel | then |
//! | --- | --- |
//! | of the same name, whose probes go the same way | goes on, by other numbers of its check if they are others |
//! | of the same name, whose probes go another way | is as if it were new, but for an operator's drain |
//! | of a new name | is new |
//! | of a name that is gone | is gone, and so is what it waited for |
//!
//! An engine's first configuration is taken the same way; then all tunnels are new.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::associations::{Associations, PairName, Start};
use super::event::Kind;
use super::obstacle::SPREAD;
use super::prober::Prober;
use super::route::{Place, Route};
use super::schedule::{beginning, phase, step, tick};
use super::settings::{Check, Source, Tunnel};
use super::timers::Timers;
use super::{Engine, Pair, RouteTable, State, Time};
use crate::wire::probe::Encapsulation;

/// What tunnels and routes there are to be.
pub struct Layout {
    /// Tunnels; their place here is their index.
    pub tunnels: Vec<Tunnel>,
    /// Routes over them; their order here is their index.
    pub routes: Vec<Route>,
    /// Where routes are; those of an index that is not here are in the main table, where adit runs.
    pub places: Vec<Place>,
    /// Whether the kernel's routes are to follow ours.
    pub steers: bool,
    /// What the ESP tunnels start with whose pair is another than before, by their index. One that is not
    /// here goes on with the pair that it has.
    pub associations: BTreeMap<u32, Start>,
}

/// What has become of the tunnels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Untouched.
    pub kept: usize,
    /// Of the same name, but not the same.
    pub changed: usize,
    /// New.
    pub added: usize,
    /// Gone.
    pub removed: usize,
}

/// What becomes of a tunnel that there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It goes on under this index.
    GoesOn(u32),
    /// Under this index there is another one of its name.
    Replaced(u32),
    Gone,
}

impl Fate {
    /// The index under which its name is found.
    const fn index(self) -> Option<u32> {
        match self {
            Self::GoesOn(index) | Self::Replaced(index) => Some(index),
            Self::Gone => None,
        }
    }
}

/// How often the configuration was read again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reloads {
    pub(super) applied: u64,
    pub(super) refused: u64,
    /// What became of the last one.
    pub(super) last_refused: bool,
}

/// Consequences that are drawn when all tunnels are in their places.
#[derive(Default)]
struct Consequences {
    starts: Vec<(u32, Start)>,
    checks: Vec<(u32, Check)>,
    /// Tunnels of which nothing is known any more, and their state before.
    replaced: Vec<(u32, State)>,
}

impl Engine {
    /// The pairs of associations that can be used and whose keys are static, by the names of the tunnels that
    /// have them.
    #[must_use]
    pub fn static_pairs(&self) -> BTreeMap<&str, PairName> {
        let pair = |prober: &Prober| {
            prober.settings.terms.filter(|terms| terms.source == Source::Static)?;
            let associations = prober.associations.as_ref()?;
            associations.current().filter(|_| !associations.is_lost()).map(Pair::name)
        };
        self.probers.iter().filter_map(|prober| Some((prober.settings.name.as_str(), pair(prober)?))).collect()
    }

    /// Takes another configuration. What the tunnels cost is to be asked for again ([`Self::poll_steer`]).
    pub fn handle_reload(&mut self, now: Time, layout: Layout) -> Reloaded {
        let reloaded = self.lay_out(now, layout, |interval| interval.min(SPREAD));
        let Reloaded { kept, changed, added, removed } = reloaded;
        self.reloads.applied += 1;
        self.reloads.last_refused = false;
        self.tell(now, Kind::Reload { kept, changed, added, removed, reason: None });
        reloaded
    }

    /// Another configuration was refused: nothing has changed.
    pub fn handle_reload_refused(&mut self, now: Time, reason: &str) {
        let kept = self.probers.len();
        self.reloads.refused += 1;
        self.reloads.last_refused = true;
        self.tell(now, Kind::Reload { kept, changed: 0, added: 0, removed: 0, reason: Some(reason.to_owned()) });
    }

    /// Has these tunnels and routes from now on. New tunnels of an interval begin within the time that
    /// `spread` says, or, of very many, somewhat longer.
    pub(super) fn lay_out(&mut self, now: Time, layout: Layout, spread: impl Fn(Duration) -> Duration) -> Reloaded {
        let Layout { tunnels, routes, places, steers, mut associations } = layout;
        self.longest_tick = tick(tunnels.iter().map(|tunnel| &tunnel.check));
        let fates = self.fates(&tunnels, &associations);
        let go_on = fates.iter().filter(|fate| matches!(fate, Fate::GoesOn(_))).count();
        let beginning = beginning(tunnels.len().saturating_sub(go_on));
        let spread = |interval| spread(interval).max(beginning);
        let mut old = self.part(now, &fates);
        let mut reloaded =
            Reloaded { removed: fates.iter().filter(|fate| **fate == Fate::Gone).count(), ..Reloaded::default() };
        let mut consequences = Consequences::default();
        for (index, tunnel) in (0..).zip(tunnels) {
            let before = old.remove(&index);
            let Some((Fate::GoesOn(_), prober)) = before else {
                let before = before.map(|(_, prober)| prober);
                *(if before.is_some() { &mut reloaded.changed } else { &mut reloaded.added }) += 1;
                let start = associations.remove(&index);
                self.add(now, tunnel, before, start, spread, &mut consequences);
                continue;
            };
            let is_same = prober.settings.check.is_same(&tunnel.check);
            let is_kept = is_same && prober.settings.targets == tunnel.targets;
            *(if is_kept { &mut reloaded.kept } else { &mut reloaded.changed }) += 1;
            consequences.checks.extend((!is_same).then_some((index, tunnel.check)));
            self.probers.push(prober);
            let prober = &mut self.probers[index as usize];
            prober.settings.terms = tunnel.terms;
            prober.set_quorum(tunnel.targets);
        }
        self.renumber(&fates);
        self.lay_routes(&fates, RouteTable::new(routes, places, self.probers.len(), steers));
        self.settle_down(now, consequences);
        self.events.make_room(self.probers.len());
        self.count_states();
        let steps = self.probers.iter().map(|prober| &prober.settings.check).filter(|check| check.enabled);
        let steps = steps.map(|check| step(check, self.longest_tick));
        self.tick = steps.min().unwrap_or(self.longest_tick);
        self.set_fail_static(self.hold.settings);
        reloaded
    }

    /// What becomes of each tunnel.
    fn fates(&self, tunnels: &[Tunnel], associations: &BTreeMap<u32, Start>) -> Vec<Fate> {
        if self.probers.is_empty() {
            return Vec::new();
        }
        let named: BTreeMap<&str, u32> = (0..).zip(tunnels).map(|(index, tunnel)| (&*tunnel.name, index)).collect();
        let fate = |prober: &Prober| match named.get(prober.settings.name.as_str()) {
            None => Fate::Gone,
            Some(&index) if associations.contains_key(&index) => Fate::Replaced(index),
            Some(&index) if prober.settings.goes_the_way_of(&tunnels[index as usize]) => Fate::GoesOn(index),
            Some(&index) => Fate::Replaced(index),
        };
        self.probers.iter().map(fate).collect()
    }

    /// Takes all tunnels from their places. Those of which something will be used again are returned by the
    /// index where that is.
    fn part(&mut self, now: Time, fates: &[Fate]) -> BTreeMap<u32, (Fate, Prober)> {
        for (tunnel, fate) in (0..).zip(fates) {
            if !matches!(fate, Fate::GoesOn(_)) {
                // Nobody will know what the answers are for.
                self.let_go(now, tunnel, "reload");
            }
        }
        let mut old = BTreeMap::new();
        for (fate, prober) in fates.iter().zip(std::mem::take(&mut self.probers)) {
            match fate.index() {
                Some(index) => drop(old.insert(index, (*fate, prober))),
                None => self.leave(prober.associations.as_deref()),
            }
        }
        old
    }

    /// Adds a new tunnel, which may have had a predecessor of its name.
    fn add(
        &mut self,
        now: Time,
        tunnel: Tunnel,
        before: Option<Prober>,
        start: Option<Start>,
        spread: impl Fn(Duration) -> Duration,
        consequences: &mut Consequences,
    ) {
        let (index, number) = (self.count(), self.next_number);
        self.next_number = self.next_number.saturating_add(1);
        let interval = tunnel.check.interval;
        let first = (now + phase(number, spread(interval))).ceil(step(&tunnel.check, self.longest_tick));
        let mut prober = Prober::new(number, tunnel, first, self.wall(now));
        if let Some(mut before) = before {
            consequences.replaced.push((index, before.health.state()));
            (prober.drain, prober.undrained) = (before.drain.take(), before.undrained);
            let associations = before.associations.take();
            if start.is_none() && prober.settings.may_take_pairs_of(&before.settings) {
                prober.associations = associations;
                prober.follow_pair();
            } else {
                self.leave(associations.as_deref());
            }
        }
        let is_esp = matches!(prober.settings.onion.encapsulation, Encapsulation::Esp(_));
        if is_esp && prober.associations.is_none() {
            consequences.starts.push((index, start.unwrap_or(Start { pair: None, lost: None })));
        }
        self.probers.push(prober);
    }

    /// Remembers how far numbers have been used with keys that are in use no more: they may come back.
    fn leave(&mut self, associations: Option<&Associations>) {
        if let Some(pair) = associations.and_then(Associations::current) {
            self.spent.insert(pair.outbound_key, pair.numbers);
        }
    }

    /// Finds everything anew that is found by the tunnels' places.
    fn renumber(&mut self, fates: &[Fate]) {
        let goes_on = |tunnel: u32| match fates.get(tunnel as usize) {
            Some(Fate::GoesOn(index)) => Some(*index),
            Some(Fate::Replaced(_) | Fate::Gone) | None => None,
        };
        self.outbox.renumber(goes_on);
        self.going = self.going.take().and_then(|going| Some(going.renumbered(goes_on(going.tunnel)?)));
        self.hold.renumber(goes_on);
        let waiting = self.hold.waiting();
        self.by_number = self.probers.iter().map(|prober| prober.number).zip(0..).collect();
        self.by_number.sort_unstable();
        self.ways = self.probers.iter().filter_map(|prober| prober.settings.way()).collect();
        self.timers = Timers::new(self.probers.len());
        self.steered = (0..self.count()).filter(|tunnel| !waiting.contains(tunnel)).collect();
        self.note_devices();
        self.list_ends();
        self.list_associations();
    }

    fn lay_routes(&mut self, fates: &[Fate], routes: RouteTable) {
        let before = std::mem::replace(&mut self.routes, routes);
        self.routes.succeed(&before, |tunnel| fates.get(tunnel as usize)?.index());
        for tunnel in 0..self.count() {
            self.routes.set_penalty(tunnel, self.probers[tunnel as usize].penalty(), 0);
        }
    }

    fn settle_down(&mut self, now: Time, consequences: Consequences) {
        let Consequences { starts, checks, replaced } = consequences;
        for (tunnel, from) in replaced {
            if from != State::Unknown {
                self.enter(now, tunnel, [from, State::Unknown], 0, "the tunnel is another one now".to_owned());
            }
        }
        starts.into_iter().for_each(|(tunnel, start)| self.set_out(now, tunnel, start));
        checks.into_iter().for_each(|(tunnel, check)| self.set_check(now, tunnel, check));
        for tunnel in 0..self.count() {
            self.review(now, tunnel);
            self.rearm(tunnel);
        }
    }

    /// Checks a tunnel otherwise from now on; what is known of it stays.
    fn set_check(&mut self, now: Time, tunnel: u32, check: Check) {
        let prober = &mut self.probers[tunnel as usize];
        let (was, is) = (prober.settings.check.enabled, check.enabled);
        if check.interval < prober.settings.check.interval {
            prober.next_due =
                prober.next_due.min((now + phase(prober.number, check.interval)).ceil(step(&check, self.longest_tick)));
        }
        prober.health.set_rules(check.rules);
        prober.settings.check = check;
        match (was, is) {
            (true, false) => {
                // Not checked, a tunnel costs nothing, whatever it was.
                prober.held = None;
                let from = self.forget(tunnel);
                self.steer(now, tunnel);
                if from != State::Unknown {
                    let reason = super::snapshot::reason(&self.probers[tunnel as usize]);
                    self.enter(now, tunnel, [from, State::Unknown], 0, reason);
                }
            }
            (false, true) => self.resume(now, tunnel),
            (true, true) | (false, false) => {}
        }
    }
}
