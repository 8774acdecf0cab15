//! Keeps open what the plan wants, in namespaces and by devices that come and go. It lives on the thread
//! of [`super::kernel`], so that nothing of this holds up a probe.
//!
//! It is level-triggered: each round compares what stands under a name with what is held, whatever has
//! happened in between. Everything that was opened in a namespace is closed when another one stands under
//! its name, or none: the kernel frees a namespace only when nobody holds anything of it any more.

use std::io;

use tokio::sync::mpsc::UnboundedSender;

use super::kept::Kept;
use super::kernel::{News, Wish};
use super::renewal::Renewal;
use super::space::{Open, Space};
use crate::engine::Namespace;
use crate::io::local::NotReloaded;
use crate::io::netns::watch::Watch;
use crate::io::xfrm::follow::Pending;

/// All namespaces of the plan.
pub(super) struct Keeper {
    spaces: Vec<Kept>,
    names: Watch,
    /// Whose the names are, by their place.
    named: Vec<usize>,
}

/// What a namespace will be.
enum Prepared {
    /// The one that is kept, with what is wanted now and what was opened for that.
    More(Option<Open>, Space),
    /// Another one, and what there is to tell of it.
    Fresh(Kept, Option<News>),
}

impl Keeper {
    /// Opens everything that is there. What is not is told as missing: a namespace, a device.
    ///
    /// # Errors
    /// Which namespace, and what the kernel refused.
    pub(super) fn start(spaces: Vec<Space>) -> io::Result<(Self, Vec<News>)> {
        let path = |space: &Space| space.name.as_ref().map(|name| name.path().to_owned());
        let named: Vec<usize> = (0..spaces.len()).filter(|&index| spaces[index].name.is_some()).collect();
        let mut names = Watch::new(spaces.iter().filter_map(path));
        let mut seen = names.changed().into_iter();
        let mut news = Vec::new();
        let start = |(namespace, space): (Namespace, Space)| {
            let mut kept = Kept::new(namespace, space);
            // The first time, something is told of each name.
            let seen = kept.space().name.as_ref().and_then(|_| seen.next());
            news.push(kept.start(seen.map(|(_, seen)| seen))?);
            Ok(kept)
        };
        let spaces = (0..).zip(spaces).map(start).collect::<io::Result<_>>()?;
        Ok((Self { spaces, names, named }, news))
    }

    /// Keeps what another configuration wants from now on, and tells of what that needs: all of it, or nothing
    /// changes.
    ///
    /// # Errors
    /// Which namespace, and what the kernel refused.
    pub(super) fn renew(&mut self, spaces: Vec<Space>, tell: &UnboundedSender<News>) -> io::Result<Vec<News>> {
        let is_new = |index: usize| self.spaces.get(index).is_none_or(|kept| !kept.space().is_wanted());
        let path = |space: &Space| space.name.as_ref().map(|name| name.path().to_owned());
        let wanted = |(index, space): &(usize, &Space)| space.is_wanted() && is_new(*index);
        let mut names = Watch::new(spaces.iter().enumerate().filter(wanted).filter_map(|(_, space)| path(space)));
        let mut seen = names.changed().into_iter();
        let prepare = |(index, space): (usize, Space)| {
            let namespace = Namespace::try_from(index).unwrap_or(Namespace::MAX);
            if !space.is_wanted() {
                return Ok(Prepared::Fresh(Kept::new(namespace, space), None));
            }
            if let Some(kept) = self.spaces.get(index).filter(|_| !is_new(index)) {
                return Ok(Prepared::More(kept.prepare(&space)?, space));
            }
            let mut kept = Kept::new(namespace, space);
            let seen = kept.space().name.as_ref().and_then(|_| seen.next());
            let news = kept.start(seen.map(|(_, seen)| seen))?;
            Ok(Prepared::Fresh(kept, Some(news)))
        };
        let prepared = spaces.into_iter().enumerate().map(prepare).collect::<io::Result<Vec<_>>>()?;
        let news = self.take(prepared, tell);
        self.named = (0..self.spaces.len()).filter(|&index| self.spaces[index].is_named()).collect();
        self.names.arrange(self.named.iter().filter_map(|&index| path(self.spaces[index].space())), names);
        Ok(news)
    }

    fn take(&mut self, prepared: Vec<Prepared>, tell: &UnboundedSender<News>) -> Vec<News> {
        let mut known = std::mem::take(&mut self.spaces).into_iter();
        let mut all = Vec::new();
        for prepared in prepared {
            let before = known.next();
            match (prepared, before) {
                (Prepared::More(open, space), Some(mut kept)) => {
                    all.extend(kept.renew(space, open, tell));
                    self.spaces.push(kept);
                }
                (Prepared::Fresh(mut kept, news), _) => {
                    all.extend(kept.associations());
                    all.extend(news);
                    kept.follow(tell, None);
                    self.spaces.push(kept);
                }
                // What is opened beside something is opened beside what is there.
                (Prepared::More(_, space), None) => self.spaces.push(Kept::new(Namespace::MAX, space)),
            }
        }
        all
    }

    /// Whether there is nothing to look after.
    pub(super) fn is_idle(&self) -> bool {
        self.spaces.iter().all(Kept::is_still)
    }

    /// Begins to follow the associations of the namespaces that are there.
    pub(super) fn follow(&mut self, tell: &UnboundedSender<News>, pending: &Pending) {
        self.spaces.iter_mut().for_each(|kept| kept.follow(tell, Some(pending.clone())));
    }

    /// Compares everything with what is held.
    pub(super) fn round(&mut self, tell: &UnboundedSender<News>) {
        for (place, seen) in self.names.changed() {
            let kept = &mut self.spaces[self.named[place]];
            if kept.face(seen, tell).is_err() {
                self.names.again(place);
            }
        }
        self.spaces.iter_mut().for_each(|kept| kept.look_after(tell));
    }

    pub(super) fn grant(&mut self, wish: Wish, tell: &UnboundedSender<News>) {
        match wish {
            Wish::Close(receivers, ways) => drop((receivers, ways)),
            Wish::Renew(renewal) => self.grant_renewal(*renewal, tell),
            Wish::Search(egress) => {
                for kept in &mut self.spaces {
                    if kept.lose(egress) {
                        kept.look_after(tell);
                    }
                }
            }
            Wish::Again(namespace) => {
                let place = self.named.iter().position(|&index| self.spaces[index].namespace() == namespace);
                if let Some(place) = place {
                    self.spaces[self.named[place]].forget();
                    self.names.again(place);
                }
            }
        }
    }

    fn grant_renewal(&mut self, mut renewal: Renewal, tell: &UnboundedSender<News>) {
        let news = match self.renew(renewal.spaces(), tell) {
            Ok(found) => {
                renewal.found = found;
                News::Renewed(Box::new(renewal))
            }
            Err(error) => News::NotRenewed(renewal.questions, NotReloaded::Failed(error.to_string())),
        };
        // Nobody may be listening any more; then the thread ends shortly.
        drop(tell.send(news));
    }

    /// The tunnels that are inspected, each by the place of its namespace and its own one there.
    pub(super) fn inspected(&self) -> Vec<(usize, usize)> {
        let of = |(index, kept): (usize, &Kept)| (0..kept.space().inspected.len()).map(move |at| (index, at));
        self.spaces.iter().enumerate().flat_map(of).collect()
    }

    /// Asks whether a tunnel's device would drop its probes, and tells if that has changed.
    pub(super) fn inspect(&mut self, (index, at): (usize, usize), tell: &UnboundedSender<News>) {
        // Between two of them another configuration may have come.
        if let Some(kept) = self.spaces.get_mut(index) {
            kept.inspect(at, tell);
        }
    }
}
