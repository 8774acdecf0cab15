//! From what the kernel has for a prefix to what it should have.
//!
//! The order of the changes is the whole point: first what is missing is added, and only when the
//! kernel has acknowledged that, what is surplus is deleted. So no prefix is without a route for a moment
//! because of us.

use super::context::Context;
use super::entry::{Entry, Leg};
use super::known::{self, Known, alike, leads_alike, weigh_alike};
use super::{Change, Hop, Way};

impl Entry {
    /// What is missing.
    pub(super) fn adds(&self, wanted: &Known, context: &Context, changes: &mut Vec<Change>) {
        for (metric, way) in wanted {
            if self.known.iter().any(|(of, is)| of == metric && alike(way, is)) {
                continue;
            }
            if self.known.iter().any(|(of, _)| of == metric) {
                self.append(*metric, way, wanted, context, changes);
            } else if self.taken(*metric).is_none() && self.refusal(*metric, way).is_none() {
                changes.push(Change::AddRoute(self.route(*metric, way.clone())));
            }
        }
    }

    /// What is missing of a way where others of ours have the metric, which makes way for it then.
    fn append(&self, metric: u32, way: &Way, wanted: &Known, context: &Context, changes: &mut Vec<Change>) {
        let append = |way| Change::AppendRoute(self.route(metric, way));
        if !self.is_v6() {
            changes.extend(self.refusal(metric, way).is_none().then(|| append(way.clone())));
            return;
        }
        if self.taken(metric).is_some() {
            // A hop of ours would share one route with those of others.
            return;
        }
        match way {
            // What it would hide goes first, if that may be.
            Way::Hops(_) if known::would_hide(&self.known, metric) && self.may_go(wanted, &self.known, context) => {}
            // One hop more, each by itself. One that is there with another weight is deleted first.
            Way::Hops(hops) => {
                let there = |hop: &&Hop| known::hops_at(&self.known, metric).any(|is| leads_alike(hop, is));
                changes.extend(hops.iter().filter(|hop| !there(hop)).map(|hop| append(Way::Hops(vec![*hop]))));
            }
            Way::Object(_) | Way::Unreachable | Way::Other => {
                changes.extend(self.refusal(metric, way).is_none().then(|| append(way.clone())));
            }
        }
    }

    /// What is surplus, so far as it may go by now. Whether there is more to be done after that.
    pub(super) fn deletes(&self, wanted: &Known, context: &Context, changes: &mut Vec<Change>) -> bool {
        let surplus = self.surplus(wanted, context);
        if surplus.is_empty() || !self.may_go(wanted, &self.known, context) {
            return false;
        }
        let (mut left, mut again, before) = (self.known.clone(), false, changes.len());
        for (metric, way) in surplus {
            let mut after = left.clone();
            known::delete(&mut after, self.is_v6(), metric, &way);
            // A route before it may be hit in its place. That one is wanted, and comes back behind it.
            let instead = self.misses(wanted, &left) < self.misses(wanted, &after);
            let may_go = self.may_go(wanted, &after, context) || instead && carries(&after, context);
            again |= instead || !may_go;
            if may_go {
                changes.push(Change::DeleteRoute(self.route(metric, way)));
                left = after;
            }
            if instead && may_go {
                break;
            }
        }
        // A hop whose weight was wrong comes back with the right one.
        changes.len() > before && (again || self.is_v6() && self.misses(wanted, &left) > 0)
    }

    /// Something must be left that carries the traffic, and is to stay.
    fn may_go(&self, wanted: &Known, left: &Known, context: &Context) -> bool {
        let up = |hop: &Hop| context.is_up(hop.device);
        let serves = |(metric, way): &(u32, Way)| match way {
            Way::Hops(hops) if self.is_v6() => {
                hops.iter().any(|hop| known::hops_at(left, *metric).any(|is| leads_alike(hop, is) && up(is)))
            }
            Way::Hops(_) | Way::Object(_) => left.iter().any(|(of, is)| {
                of == metric && alike(way, is) && if let Way::Hops(hops) = is { hops.iter().any(up) } else { true }
            }),
            Way::Unreachable | Way::Other => false,
        };
        context.ending || self.legs.is_empty() || wanted.iter().any(serves)
    }

    /// How much of what is wanted is not there.
    fn misses(&self, wanted: &Known, there: &Known) -> usize {
        let misses = |(metric, way): &(u32, Way)| match way {
            Way::Hops(hops) if self.is_v6() => {
                let has = |hop: &&Hop| known::hops_at(there, *metric).any(|is| leads_alike(hop, is));
                hops.len() - hops.iter().filter(has).count()
            }
            Way::Hops(_) | Way::Object(_) | Way::Unreachable | Way::Other => {
                usize::from(!there.iter().any(|(of, is)| of == metric && alike(way, is)))
            }
        };
        wanted.iter().map(misses).sum()
    }

    /// What is there and not wanted, so far as it may go; of IPv6, each hop by itself.
    fn surplus(&self, wanted: &Known, context: &Context) -> Known {
        let mut surplus = Vec::new();
        for (at, (metric, way)) in self.known.iter().enumerate() {
            let kept = wanted.iter().find(|(of, _)| of == metric).map(|(_, kept)| kept);
            if let (Way::Hops(there), true) = (way, self.is_v6()) {
                let goes = there.iter().filter(|hop| !stays(hop, kept));
                surplus.extend(goes.map(|hop| (*metric, Way::Hops(vec![*hop]))));
            } else {
                let earlier = |kept| self.known[..at].iter().any(|(of, is)| of == metric && alike(kept, is));
                if !kept.is_some_and(|kept| alike(kept, way) && !earlier(kept)) {
                    surplus.push((*metric, way.clone()));
                }
            }
        }
        surplus.retain(|(metric, way)| {
            let stuck = self.stuck.iter().any(|stuck| stuck.metric == *metric && stuck.way == *way);
            !stuck && self.confirmed(*metric, way, wanted, context) && !self.stands_in(*metric, way, context)
        });
        surplus
    }

    /// Whether a surplus route is surely none that a verdict still to come would want: the tunnels that
    /// it leads through have or had theirs, or a route that is wanted leads there just the same, or all are in.
    fn confirmed(&self, metric: u32, way: &Way, wanted: &Known, context: &Context) -> bool {
        if context.settled || context.ending {
            return true;
        }
        let Way::Hops(hops) = way else { return false };
        let there = |(of, way): &&(u32, Way)| {
            *of == metric && self.known.iter().any(|(of, is)| *of == metric && alike(way, is))
        };
        let same: &[Hop] = match wanted.iter().find(there) {
            Some((_, Way::Hops(hops))) => hops,
            Some(_) | None => &[],
        };
        let judged = |hop: &Hop| self.leg(hop, context).is_some_and(|leg| context.is_placed(leg.tunnel));
        hops.iter().all(|hop| same.iter().any(|one| leads_alike(one, hop)) || judged(hop))
    }

    /// Whether it leads where routes of ours do. IPv6 shows hops of others as if they were ours.
    pub(super) fn may_be_ours(&self, way: &Way, context: &Context) -> bool {
        match way {
            Way::Hops(hops) => hops.iter().all(|hop| self.leg(hop, context).is_some()),
            Way::Object(_) | Way::Unreachable => true,
            Way::Other => false,
        }
    }

    fn leg(&self, hop: &Hop, context: &Context) -> Option<&Leg> {
        self.legs.iter().find(|leg| leg.hop(context).is_ok_and(|is| leads_alike(&is, hop)))
    }

    /// Whether a surplus route is all that there is of a tunnel, whose place the kernel does not give, and
    /// costs more than it should: better than nothing if it comes to that.
    fn stands_in(&self, metric: u32, way: &Way, context: &Context) -> bool {
        let Way::Hops(hops) = way else { return false };
        let lacks = |hop: &Hop| {
            self.leg(hop, context).is_some_and(|leg| {
                let place = leg.metric(context);
                let there = known::hops_at(&self.known, place).any(|is| leads_alike(is, hop));
                place < metric && !there && (self.taken(place).is_some() || self.trouble(place).is_some())
            })
        };
        !context.ending && hops.iter().any(lacks)
    }
}

/// Whether an IPv6 hop is one of what is wanted. Alone it has no weight.
fn stays(hop: &Hop, kept: Option<&Way>) -> bool {
    let Some(Way::Hops(kept)) = kept else { return false };
    kept.iter().any(|one| if kept.len() == 1 { leads_alike(one, hop) } else { weigh_alike(one, hop) })
}

/// Whether anything is left that leads out of a device that is up.
fn carries(known: &Known, context: &Context) -> bool {
    known.iter().any(|(_, way)| match way {
        Way::Hops(hops) => hops.iter().any(|hop| context.is_up(hop.device)),
        Way::Object(_) => true,
        Way::Unreachable | Way::Other => false,
    })
}
