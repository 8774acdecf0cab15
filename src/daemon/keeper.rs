//! Keeps open what the plan wants, in namespaces and by devices that come and go. It lives on the thread
//! of [`super::kernel`], so that nothing of this holds up a probe.
//!
//! It is level-triggered: each round compares what stands under a name with what is held, whatever has
//! happened in between. Everything that was opened in a namespace is closed when another one stands under
//! its name, or none: the kernel frees a namespace only when nobody holds anything of it any more.

use std::fs::File;
use std::io;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::kernel::{Inspected, News, Sockets, Wish};
use super::space::{Open, Space, Way, open_exit};
use crate::engine::{Egress, Namespace};
use crate::io::netns::watch::{Seen, Watch};
use crate::io::raw::Sender;
use crate::io::xfrm::follow::{Pending, follow};
use crate::io::{device, netns, xfrm};

/// All namespaces of the plan.
pub(super) struct Keeper {
    spaces: Vec<Kept>,
    names: Watch,
    /// Whose the names are, by their place.
    named: Vec<usize>,
}

/// One namespace.
struct Kept {
    namespace: Namespace,
    space: Space,
    /// `None` while it is missing.
    here: Option<Here>,
}

/// What is held of a namespace.
struct Here {
    /// `None` is the namespace where the daemon runs.
    file: Option<Arc<File>>,
    /// By the place of the exit.
    ways: Vec<Standing>,
    /// Its associations, not yet followed.
    watch: Option<xfrm::Opened>,
    following: Option<JoinHandle<()>>,
}

/// Whether a way out is open.
enum Standing {
    Missing,
    Open,
    /// Open as long as the sender stays bound to its device.
    Bound(Arc<Sender>),
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
            let mut kept = Kept { namespace, space, here: None };
            // The first time, something is told of each name.
            let seen = kept.space.name.as_ref().and_then(|_| seen.next());
            news.push(kept.start(seen.map(|(_, seen)| seen))?);
            Ok(kept)
        };
        let spaces = (0..).zip(spaces).map(start).collect::<io::Result<_>>()?;
        Ok((Self { spaces, names, named }, news))
    }

    /// Whether there is nothing to look after.
    pub(super) fn is_idle(&self) -> bool {
        let is_still = |kept: &Kept| {
            let Space { name, exits, inspected, .. } = &kept.space;
            let is_followed = kept.here.as_ref().is_some_and(|here| here.watch.is_some());
            name.is_none() && inspected.is_empty() && !is_followed && !exits.iter().any(|(_, exit)| exit.has_device())
        };
        self.spaces.iter().all(is_still)
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
                let place = self.named.iter().position(|&index| self.spaces[index].namespace == namespace);
                if let Some(place) = place {
                    self.spaces[self.named[place]].here = None;
                    self.names.again(place);
                }
            }
        }
    }

    /// The tunnels that are inspected, each by the place of its namespace and its own one there.
    pub(super) fn inspected(&self) -> Vec<(usize, usize)> {
        let of = |(index, kept): (usize, &Kept)| (0..kept.space.inspected.len()).map(move |at| (index, at));
        self.spaces.iter().enumerate().flat_map(of).collect()
    }

    /// Asks whether a tunnel's device would drop its probes, and tells if that has changed.
    pub(super) fn inspect(&mut self, (index, at): (usize, usize), tell: &UnboundedSender<News>) {
        let Kept { space, here: Some(here), .. } = &mut self.spaces[index] else { return };
        let Inspected { tunnel, device, source, destination, withheld } = &mut space.inspected[at];
        let file = here.file.as_deref();
        let asked = netns::within(file, || device::withheld(device, *source, *destination));
        // A device that is missing is refused where a probe is sent.
        let found = asked.unwrap_or(None);
        if std::mem::replace(withheld, found) != found {
            send(tell, News::Withheld(*tunnel, found));
        }
    }
}

/// Nobody may be listening any more; then the thread ends shortly.
fn send(tell: &UnboundedSender<News>, news: News) {
    drop(tell.send(news));
}

impl Kept {
    /// What is there at the daemon's start.
    fn start(&mut self, seen: Option<Seen>) -> io::Result<News> {
        let file = match seen {
            None => None,
            Some(Seen::There(file)) => Some(file),
            Some(Seen::Gone) => {
                self.space.rehearse()?;
                return Ok(News::Missing(self.namespace, format!("{} is missing", self.space.title())));
            }
            Some(Seen::Refused(error)) => return Err(self.space.explained(error)),
        };
        let open = self.space.open(file.as_deref()).map_err(|error| self.space.explained(error))?;
        let lacking =
            open.ways.iter().zip(&self.space.exits).filter_map(|(way, exit)| Some((way.as_ref().err()?, exit)));
        for (error, (_, exit)) in lacking {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(io::Error::new(error.kind(), self.space.lack(exit, error)));
            }
        }
        Ok(self.hold(file, open))
    }

    /// Takes note of what is open, and passes it on.
    fn hold(&mut self, file: Option<Arc<File>>, open: Open) -> News {
        let Open { receivers, ways, watch } = open;
        let standings = ways.iter().map(|way| way.as_ref().map_or(Standing::Missing, Standing::of)).collect();
        let told = |(way, (egress, exit)): (io::Result<Way>, &(Egress, _))| {
            (*egress, way.map_err(|error| self.space.lack(exit, &error)))
        };
        let ways = ways.into_iter().zip(&self.space.exits).map(told).collect();
        self.here = Some(Here { file, ways: standings, watch, following: None });
        News::There(self.namespace, Sockets { receivers, ways })
    }

    fn follow(&mut self, tell: &UnboundedSender<News>, pending: Option<Pending>) {
        let Some(here) = &mut self.here else { return };
        let Some(watch) = here.watch.take() else { return };
        let (tell, namespace) = (tell.clone(), self.namespace);
        let tell = move |seen| send(&tell, News::Associations(namespace, seen));
        here.following = Some(tokio::spawn(follow(watch, pending, tell)));
    }

    /// Draws the consequences of what has become of the name.
    ///
    /// # Errors
    /// It is there and cannot be used; that has been told.
    fn face(&mut self, seen: Seen, tell: &UnboundedSender<News>) -> Result<(), ()> {
        let title = self.space.title();
        match seen {
            Seen::There(file) => {
                if self.here.is_some() {
                    self.close(tell, format!("{title} was deleted, and there is another one of that name"));
                }
                self.open(file, tell)
            }
            Seen::Gone => {
                self.close(tell, format!("{title} is missing"));
                Ok(())
            }
            Seen::Refused(error) if self.here.is_some() => {
                tracing::warn!("whether {title} is still the same cannot be seen: {error}");
                Ok(())
            }
            Seen::Refused(error) => {
                send(tell, News::Missing(self.namespace, format!("{title} cannot be seen: {error}")));
                Ok(())
            }
        }
    }

    fn open(&mut self, file: Arc<File>, tell: &UnboundedSender<News>) -> Result<(), ()> {
        let open = self.space.open(Some(&file)).map_err(|error| {
            let why = format!("{} cannot be used: {error}", self.space.title());
            send(tell, News::Missing(self.namespace, why));
        })?;
        // What the kernel seals itself must be known before a probe is sealed.
        if let Some(watch) = &open.watch {
            let seen = watch.associations().map_err(|error| error.to_string());
            send(tell, News::Associations(self.namespace, seen));
        }
        let there = self.hold(Some(file), open);
        send(tell, there);
        self.follow(tell, None);
        Ok(())
    }

    /// Lets go of everything in the namespace, and has the loop do the same.
    fn close(&mut self, tell: &UnboundedSender<News>, why: String) {
        if self.here.take().is_some_and(|here| here.following.is_some()) {
            send(tell, News::Associations(self.namespace, Ok(std::collections::BTreeSet::new())));
        }
        send(tell, News::Missing(self.namespace, why));
        for Inspected { tunnel, withheld, .. } in &mut self.space.inspected {
            if withheld.take().is_some() {
                send(tell, News::Withheld(*tunnel, None));
            }
        }
    }

    /// The device of an exit is gone. Whether it is one of this namespace.
    fn lose(&mut self, egress: Egress) -> bool {
        let place = self.space.exits.iter().position(|(of, _)| *of == egress);
        let way = self.here.as_mut().zip(place).and_then(|(here, place)| here.ways.get_mut(place));
        way.map(|way| *way = Standing::Missing).is_some()
    }

    /// Sees to it that the ways out lead where they should.
    fn look_after(&mut self, tell: &UnboundedSender<News>) {
        let Self { space, here: Some(here), .. } = self else { return };
        for (way, (egress, exit)) in here.ways.iter_mut().zip(&space.exits) {
            if way.is_lost() {
                *way = Standing::Missing;
                send(tell, News::Way(*egress, Err(space.lack(exit, &io::ErrorKind::NotFound.into()))));
            }
        }
        let places = 0..here.ways.len();
        let missing: Vec<usize> = places.filter(|&place| matches!(here.ways[place], Standing::Missing)).collect();
        if missing.is_empty() {
            return;
        }
        let open = || Ok(missing.iter().map(|&place| open_exit(&space.exits[place].1)).collect::<Vec<_>>());
        // That the namespace could not be entered is a reason for each.
        let fail = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        let opened = netns::within(here.file.as_deref(), open);
        let opened = opened.unwrap_or_else(|error| missing.iter().map(|_| Err(fail(&error))).collect());
        for (place, way) in missing.into_iter().zip(opened) {
            let (egress, exit) = &space.exits[place];
            here.ways[place] = way.as_ref().map_or(Standing::Missing, Standing::of);
            send(tell, News::Way(*egress, way.map_err(|error| space.lack(exit, &error))));
        }
    }
}

impl Standing {
    fn of(way: &Way) -> Self {
        match way {
            Way::Raw(sender) if sender.has_device() => Self::Bound(Arc::clone(sender)),
            Way::Raw(_) | Way::Device(_) => Self::Open,
        }
    }

    fn is_lost(&self) -> bool {
        match self {
            Self::Bound(sender) => !sender.is_bound(),
            // That a tunnel device is gone shows where a probe is sent.
            Self::Open | Self::Missing => false,
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(following) = &self.following {
            following.abort();
        }
    }
}
