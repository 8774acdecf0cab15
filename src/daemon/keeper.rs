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
use super::space::Space;
use crate::engine::Namespace;
use crate::io::netns::watch::Watch;
use crate::io::xfrm::follow::Pending;

/// All namespaces of the plan.
pub(super) struct Keeper {
    spaces: Vec<Kept>,
    names: Watch,
    /// Whose the names are, by their place.
    named: Vec<usize>,
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

    /// The tunnels that are inspected, each by the place of its namespace and its own one there.
    pub(super) fn inspected(&self) -> Vec<(usize, usize)> {
        let of = |(index, kept): (usize, &Kept)| (0..kept.space().inspected.len()).map(move |at| (index, at));
        self.spaces.iter().enumerate().flat_map(of).collect()
    }

    /// Asks whether a tunnel's device would drop its probes, and tells if that has changed.
    pub(super) fn inspect(&mut self, (index, at): (usize, usize), tell: &UnboundedSender<News>) {
        self.spaces[index].inspect(at, tell);
    }
}
