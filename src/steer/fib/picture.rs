//! Taking in what the kernel has.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::{Fib, Stage};
use crate::engine::Standing;
use crate::engine::penalty::{BASE_MAX, DOWN};
use crate::steer::entry::Entry;
use crate::steer::known::{self, Known, UNSEEN, alike, hops_at, leads_alike};
use crate::steer::listed::Listed;
use crate::steer::{Foreign, Hop, KernelRoute, Mode, Note, Picture, Rule, Way, number, text};

/// What a tunnel that is down and drained costs.
const WORST: u32 = DOWN + DOWN;
impl Fib {
    /// The namespace is not there: all that was in it is gone, and that is no drift.
    pub fn handle_lost(&mut self, why: &str) {
        self.seen = false;
        self.doubt = false;
        (self.stage, self.batch, self.owners) = (Stage::Common, Vec::new(), Vec::new());
        self.chunk.clear();
        self.known_rules.clear();
        self.vanished.clear();
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
        self.sighted = self.context.settled;
        (self.stage, self.batch, self.owners) = (Stage::Common, Vec::new(), Vec::new());
        std::mem::take(&mut self.chunk).into_iter().for_each(|at| self.touch(at));
        let mut drift = Listed::default();
        let moved = self.choose_mode(&picture) | self.context.see(&picture.links);
        let links: BTreeMap<u32, bool> = picture.links.iter().map(|link| (link.index, link.up)).collect();
        self.lent = picture.lent.iter().copied().collect();
        let lost = self.see_objects(&picture, first, &links, &mut drift);
        self.see_rules(picture.rules, first, &mut drift);
        let before = self.see_routes(picture.routes, picture.foreign);
        if first {
            self.entries.iter_mut().for_each(|entry| entry.adopt(&mut self.context));
        } else {
            self.compare(&before, &links, &lost, &mut drift);
        }
        // If their device is still there, somebody has taken them.
        for route in std::mem::take(&mut self.vanished) {
            if left(&route.way, matches!(route.prefix, IpNet::V6(_)), &links, &lost).is_some() {
                drift.add(|| format!("{} is gone", text::brief(&route, &self.context)));
            }
        }
        // Without a difference there is nothing to do, which is nearly always so.
        for at in 0..number(self.entries.len()) {
            let entry = &mut self.entries[at as usize];
            let news = entry.forgive() || entry.known != before[at as usize];
            let alone = entry.foreign.is_empty();
            if first || moved || news {
                self.touch(at);
            } else if alone && self.in_order[at as usize] {
                // Nothing has touched it since that was seen.
            } else if self.in_accord(at) {
                self.in_order[at as usize] = alone && self.context.mode == Mode::Metric;
            } else {
                self.touch(at);
            }
        }
        self.forget_strays();
        self.warn();
        let unsure = std::mem::take(&mut self.unsure);
        if drift.count > 0 && !unsure {
            self.notes.push(Note::Drift { count: drift.count, examples: drift.first });
        }
    }

    /// Lets go of prefixes to which nothing leads any more, when that is so of all of them.
    fn forget_strays(&mut self) {
        let configured = self.entries.len() - self.strays.len();
        let gone = |entry: &Entry| entry.known.is_empty() && entry.stuck.is_empty();
        if self.strays.is_empty() || !self.entries[configured..].iter().all(gone) {
            return;
        }
        self.strays.clear();
        self.entries.truncate(configured);
        self.queued.truncate(configured);
        self.in_order.truncate(configured);
        self.dirty.retain(|at| (*at as usize) < configured);
    }

    fn in_accord(&self, at: u32) -> bool {
        let entry = &self.entries[at as usize];
        let wanted = entry.wanted(&self.context, &self.groups);
        let mut changes = Vec::new();
        entry.adds(&wanted, &self.context, &mut changes);
        entry.deletes(&wanted, &self.context, &mut changes);
        changes.is_empty()
    }

    /// Chooses the mode that this kernel can do. Whether it is another than before.
    fn choose_mode(&mut self, picture: &Picture) -> bool {
        let before = self.context.mode;
        let lacking = self.mode == Mode::Nexthop && picture.nexthops.is_none();
        self.context.mode = if lacking { Mode::Metric } else { self.mode };
        if lacking && !std::mem::replace(&mut self.fallen_back, true) {
            let what =
                "this kernel has no next-hop objects (Linux has them since 5.3): falling back to mode = \"metric\"";
            self.notes.push(Note::Warning(what.to_owned()));
        }
        before != self.context.mode
    }

    /// Takes the objects, and gives those that are gone with their device.
    fn see_objects(
        &mut self,
        picture: &Picture,
        first: bool,
        links: &BTreeMap<u32, bool>,
        drift: &mut Listed,
    ) -> BTreeSet<u32> {
        let nexthops = picture.nexthops.as_deref().unwrap_or_default();
        if self.context.mode == Mode::Nexthop {
            self.groups.assign(&self.context, nexthops, &picture.taken);
        }
        let is_up = |index| links.get(&index).copied().unwrap_or(false);
        let mut changed = Vec::new();
        let lost = self.groups.see(nexthops, first, is_up, &mut changed);
        changed.into_iter().for_each(|what| drift.add(|| what));
        lost
    }

    fn see_rules(&mut self, rules: Vec<Rule>, first: bool, drift: &mut Listed) {
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
    fn see_routes(&mut self, routes: Vec<KernelRoute>, foreign: Vec<Foreign>) -> Vec<Known> {
        let Self { entries, index, strays, queued, in_order, .. } = self;
        let mut before: Vec<Known> = entries.iter_mut().map(|entry| std::mem::take(&mut entry.known)).collect();
        entries.iter_mut().for_each(|entry| entry.foreign.clear());
        let mut finder = index.finder();
        for KernelRoute { table, prefix, metric, way } in routes {
            let next = number(entries.len());
            let at = finder.find(table, prefix).unwrap_or_else(|| *strays.entry((table, prefix)).or_insert(next));
            if at == next {
                entries.push(Entry::new(table, prefix));
                queued.push(false);
                in_order.push(false);
                before.push(Vec::new());
            }
            entries[at as usize].known.push((metric, way));
        }
        for Foreign { table, prefix, metric, protocol } in foreign {
            if let Some(at) = finder.find(table, prefix) {
                entries[at as usize].foreign.push((metric, protocol));
            }
        }
        entries.iter_mut().zip(&before).for_each(|(entry, before)| remember_weights(entry, before));
        before
    }

    fn compare(&self, before: &[Known], links: &BTreeMap<u32, bool>, lost: &BTreeSet<u32>, drift: &mut Listed) {
        for (entry, before) in self.entries.iter().zip(before) {
            if entry.known == *before {
                continue;
            }
            let lacks = |routes: &[(u32, Way)], (metric, way): &(u32, Way)| {
                !routes.iter().any(|(of, is)| of == metric && (alike(way, is) || way == is))
            };
            let tell = |(metric, way): &(u32, Way), what: &str| {
                format!("{} {what}", text::brief(&entry.route(*metric, way.clone()), &self.context))
            };
            let left = |known: &Known| -> Known {
                let left = |(metric, way): &(u32, Way)| Some((*metric, left(way, entry.is_v6(), links, lost)?));
                joined(known.iter().filter_map(left), entry.is_v6())
            };
            let (before, now) = (left(&with_stuck(entry, before)), left(&entry.known));
            // Where the kernel has put a gateway without a device, only this picture says.
            let unseen = |metric: &u32| before.iter().any(|(of, way)| of == metric && is_unseen(way));
            for route in before.iter().filter(|route| lacks(&now, route) && !unseen(&route.0)) {
                drift.add(|| tell(route, "is gone"));
            }
            for route in now.iter().filter(|route| lacks(&before, route) && !unseen(&route.0)) {
                drift.add(|| tell(route, "is new"));
            }
        }
    }

    /// Tells of routes of others that would carry a prefix's traffic instead of ours.
    fn warn(&mut self) {
        let mut outranked = Listed::default();
        for entry in &self.entries {
            let Some(base) = entry.legs.iter().map(|leg| leg.priority).min() else { continue };
            for &(metric, protocol) in entry.foreign.iter().filter(|(metric, _)| *metric < base.saturating_add(WORST)) {
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
            let what = format!(
                "routes of others would carry the traffic of {} prefixes instead of ours: {}; remove them, or \
                 give them a metric above {}",
                outranked.count,
                outranked.examples(),
                WORST + BASE_MAX,
            );
            self.notes.push(Note::Warning(what));
        }
    }
}

/// Of an IPv6 gateway that is alone, the weight is what we gave it, if we did.
fn remember_weights(entry: &mut Entry, before: &Known) {
    if !entry.is_v6() {
        return;
    }
    for (metric, way) in &mut entry.known {
        let Way::Hops(hops) = way else { continue };
        let mut gateways = hops.iter_mut().filter(|hop| hop.via.is_some());
        if let (Some(alone), None) = (gateways.next(), gateways.next()) {
            let known = hops_at(before, *metric).find(|known| leads_alike(known, alone));
            alone.weight = known.map_or(UNSEEN, |known| known.weight);
        }
    }
}

/// What there was, and what could not be deleted and is still there.
fn with_stuck(entry: &Entry, before: &Known) -> Known {
    let mut before = before.clone();
    for stuck in entry.stuck.iter().filter(|stuck| entry.shows(stuck)) {
        known::add(&mut before, entry.is_v6(), stuck.metric, stuck.way.clone());
    }
    before
}

/// With all IPv6 hops of a metric in one, whatever stands between them.
fn joined(routes: impl Iterator<Item = (u32, Way)>, v6: bool) -> Known {
    routes.fold(Vec::new(), |mut joined, (metric, way)| {
        let hops = |(of, is): &mut (u32, Way)| match is {
            Way::Hops(hops) if v6 && *of == metric => Some(std::mem::take(hops)),
            Way::Hops(_) | Way::Object(_) | Way::Unreachable | Way::Other => None,
        };
        match way {
            Way::Hops(more) => {
                let mut all = joined.iter_mut().find_map(hops).unwrap_or_default();
                joined.retain(|(_, way)| !matches!(way, Way::Hops(hops) if hops.is_empty()));
                all.extend(more);
                joined.push((metric, Way::Hops(all)));
            }
            Way::Object(_) | Way::Unreachable | Way::Other => joined.push((metric, way)),
        }
        joined
    })
}

/// Whether no picture has shown yet which device a hop leads to.
fn is_unseen(way: &Way) -> bool {
    matches!(way, Way::Hops(hops) if hops.iter().any(|hop| hop.device == 0))
}

/// What the kernel lets be of a route when devices go: that is no drift.
fn left(way: &Way, v6: bool, links: &BTreeMap<u32, bool>, lost: &BTreeSet<u32>) -> Option<Way> {
    match way {
        Way::Object(id) if lost.contains(id) => None,
        // With one device of several that is removed, all of an IPv4 route goes.
        Way::Hops(hops) if !v6 && hops.iter().any(|hop| hop.device != 0 && !links.contains_key(&hop.device)) => None,
        Way::Hops(hops) => {
            let up = |hop: &&Hop| hop.device == 0 || links.get(&hop.device) == Some(&true);
            let left: Vec<Hop> = hops.iter().filter(up).copied().collect();
            (!left.is_empty()).then_some(Way::Hops(left))
        }
        Way::Object(_) | Way::Unreachable | Way::Other => Some(way.clone()),
    }
}
