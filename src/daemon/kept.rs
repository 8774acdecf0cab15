//! One namespace as it is kept: what is wanted there, and what is held of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::kernel::{Inspected, News, Sockets};
use super::plan::Exit;
use super::space::{Open, Space, Way, open_exit};
use crate::engine::{Egress, Interface, Namespace};
use crate::io::netns::watch::Seen;
use crate::io::raw::Sender;
use crate::io::xfrm::follow::{Pending, follow};
use crate::io::{device, netns, xfrm};

/// One namespace.
pub(super) struct Kept {
    namespace: Namespace,
    space: Space,
    /// `None` while it is missing.
    here: Option<Here>,
    /// Why it is missing, as was told last.
    lack: Option<String>,
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
    /// For this reason, as was told last.
    Missing(String),
    Open,
    /// Open by the device of this index.
    Device(Interface),
    /// Open as long as the sender stays bound to its device.
    Bound(Arc<Sender>),
}

/// Nobody may be listening any more; then the thread ends shortly.
fn send(tell: &UnboundedSender<News>, news: News) {
    drop(tell.send(news));
}

impl Kept {
    /// Nothing is held yet.
    pub(super) const fn new(namespace: Namespace, space: Space) -> Self {
        Self { namespace, space, here: None, lack: None }
    }

    pub(super) const fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// Whether it is looked for by a name.
    pub(super) fn is_named(&self) -> bool {
        self.space.is_wanted() && self.space.name.is_some()
    }

    pub(super) const fn space(&self) -> &Space {
        &self.space
    }

    /// Whether nothing can change here.
    pub(super) fn is_still(&self) -> bool {
        let Space { name, exits, inspected, .. } = &self.space;
        if !self.space.is_wanted() {
            return true;
        }
        let is_followed = self.here.as_ref().is_some_and(|here| here.watch.is_some());
        name.is_none() && inspected.is_empty() && !is_followed && !exits.iter().any(|(_, exit)| exit.has_device())
    }

    /// Lets go of everything, without a word.
    pub(super) fn forget(&mut self) {
        self.here = None;
    }

    /// What is there at the daemon's start.
    pub(super) fn start(&mut self, seen: Option<Seen>) -> io::Result<News> {
        let file = match seen {
            None => None,
            Some(Seen::There(file)) => Some(file),
            Some(Seen::Gone) => {
                self.space.rehearse()?;
                let why = format!("{} is missing", self.space.title());
                self.lack = Some(why.clone());
                return Ok(News::Missing(self.namespace, why));
            }
            Some(Seen::Refused(error)) => return Err(self.space.explained(error)),
        };
        let open = opened(&self.space, None, file.as_deref())?;
        Ok(self.hold(file, open))
    }

    /// Opens what another configuration wants here beside what is open.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(super) fn prepare(&self, space: &Space) -> io::Result<Option<Open>> {
        let here = self.here.as_ref();
        here.map(|here| opened(space, Some(&self.space), here.file.as_deref())).transpose()
    }

    /// Keeps what another configuration wants from now on, with what was opened for it. What there is to tell
    /// of that.
    pub(super) fn renew(&mut self, space: Space, open: Option<Open>, tell: &UnboundedSender<News>) -> Vec<News> {
        let before = std::mem::replace(&mut self.space, space);
        for inspected in &mut self.space.inspected {
            inspected.withheld =
                before.inspected.iter().find(|known| known.is_same(inspected)).and_then(|known| known.withheld);
        }
        let withheld = self.space.inspected.iter().filter(|inspected| inspected.withheld.is_some());
        let mut news: Vec<News> = withheld.map(|known| News::Withheld(known.tunnel, known.withheld)).collect();
        let (Some(here), Some(Open { receivers, ways, watch })) = (&mut self.here, open) else { return news };
        let mut known: BTreeMap<Egress, Standing> =
            before.exits.iter().map(|(egress, _)| *egress).zip(std::mem::take(&mut here.ways)).collect();
        let (mut fresh, mut ways) = (Vec::new(), ways.into_iter());
        for (egress, exit) in &self.space.exits {
            let standing = known.remove(egress).or_else(|| {
                let way = ways.next()?.map_err(|error| self.space.lack(exit, &error));
                let standing = Standing::of(&way);
                fresh.push((*egress, way));
                Some(standing)
            });
            here.ways.extend(standing);
        }
        if !self.space.has_esp
            && here.following.take().is_some_and(|following| {
                following.abort();
                true
            })
        {
            news.push(News::Associations(self.namespace, Ok(BTreeSet::new())));
        }
        if let Some(watch) = &watch {
            news.push(News::Associations(self.namespace, watch.associations().map_err(|error| error.to_string())));
        }
        here.watch = watch;
        news.push(News::There(self.namespace, Sockets { receivers, ways: fresh }));
        self.follow(tell, None);
        news
    }

    /// Of a namespace that has just been opened: what the kernel seals itself.
    pub(super) fn associations(&self) -> Option<News> {
        let watch = self.here.as_ref()?.watch.as_ref()?;
        Some(News::Associations(self.namespace, watch.associations().map_err(|error| error.to_string())))
    }

    /// Takes note of what is open, and passes it on.
    fn hold(&mut self, file: Option<Arc<File>>, open: Open) -> News {
        let Open { receivers, ways, watch } = open;
        let told = |(way, (egress, exit)): (io::Result<Way>, &(Egress, _))| {
            (*egress, way.map_err(|error| self.space.lack(exit, &error)))
        };
        let ways: Vec<_> = ways.into_iter().zip(&self.space.exits).map(told).collect();
        let standings = ways.iter().map(|(_, way)| Standing::of(way)).collect();
        self.here = Some(Here { file, ways: standings, watch, following: None });
        self.lack = None;
        News::There(self.namespace, Sockets { receivers, ways })
    }

    pub(super) fn follow(&mut self, tell: &UnboundedSender<News>, pending: Option<Pending>) {
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
    pub(super) fn face(&mut self, seen: Seen, tell: &UnboundedSender<News>) -> Result<(), ()> {
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
                self.miss(tell, format!("{title} cannot be seen: {error}"));
                Ok(())
            }
        }
    }

    fn miss(&mut self, tell: &UnboundedSender<News>, why: String) {
        if self.lack.as_ref() != Some(&why) {
            send(tell, News::Missing(self.namespace, why.clone()));
            self.lack = Some(why);
        }
    }

    fn open(&mut self, file: Arc<File>, tell: &UnboundedSender<News>) -> Result<(), ()> {
        let open = self.space.open(None, Some(&file)).map_err(|error| {
            self.miss(tell, format!("{} cannot be used: {error}", self.space.title()));
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
            send(tell, News::Associations(self.namespace, Ok(BTreeSet::new())));
        }
        self.miss(tell, why);
        for Inspected { tunnel, withheld, .. } in &mut self.space.inspected {
            if withheld.take().is_some() {
                send(tell, News::Withheld(*tunnel, None));
            }
        }
    }

    /// The device of an exit is gone. Whether it is one of this namespace.
    pub(super) fn lose(&mut self, egress: Egress) -> bool {
        let Self { space, here: Some(here), .. } = self else { return false };
        let mut ways = here.ways.iter_mut().zip(&space.exits);
        let Some((way, (_, exit))) = ways.find(|(_, (of, _))| *of == egress) else { return false };
        *way = Standing::Missing(space.lack(exit, &io::ErrorKind::NotFound.into()));
        true
    }

    /// Sees to it that the ways out lead where they should.
    pub(super) fn look_after(&mut self, tell: &UnboundedSender<News>) {
        let Self { space, here: Some(here), .. } = self else { return };
        for (way, (egress, exit)) in here.ways.iter_mut().zip(&space.exits) {
            if way.is_lost() {
                let why = space.lack(exit, &io::ErrorKind::NotFound.into());
                *way = Standing::Missing(why.clone());
                send(tell, News::Way(*egress, Err(why)));
            }
        }
        let places = 0..here.ways.len();
        let missing: Vec<usize> = places.filter(|&place| here.ways[place].is_missing()).collect();
        if missing.is_empty() {
            return;
        }
        let open =
            || Ok(missing.iter().map(|&place| open_exit(&space.exits[place].1, space.to_hand)).collect::<Vec<_>>());
        // That the namespace could not be entered is a reason for each.
        let fail = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        let opened = netns::within(here.file.as_deref(), open);
        let opened = opened.unwrap_or_else(|error| missing.iter().map(|_| Err(fail(&error))).collect());
        for (place, way) in missing.into_iter().zip(opened) {
            let (egress, exit) = &space.exits[place];
            let way = way.map_err(|error| space.lack(exit, &error));
            let standing = Standing::of(&way);
            if !standing.is_known(&here.ways[place]) {
                here.ways[place] = standing;
                send(tell, News::Way(*egress, way));
            }
        }
    }

    /// Asks whether a tunnel's device would drop its probes, and tells if that has changed.
    pub(super) fn inspect(&mut self, at: usize, tell: &UnboundedSender<News>) {
        let Self { space, here: Some(here), .. } = self else { return };
        let Some(Inspected { tunnel, device, source, destination, withheld }) = space.inspected.get_mut(at) else {
            return;
        };
        let ask = || Ok((device::index(device)?, device::withheld(device, *source, *destination)?));
        // A device that is missing is refused where a probe is sent.
        let asked = netns::within(here.file.as_deref(), ask).ok();
        let found = asked.and_then(|(_, why)| why);
        if std::mem::replace(withheld, found) != found {
            send(tell, News::Withheld(*tunnel, found));
        }
        // One that was renamed is still there; but it is no longer the one that is meant.
        let is_it = |exit: &Exit| matches!(exit, Exit::Device(name) if name == device);
        let way = here.ways.iter_mut().zip(&space.exits).find(|(_, (_, exit))| is_it(exit));
        if let (Some((index, _)), Some((way @ Standing::Device(_), _))) = (asked, way)
            && !matches!(way, Standing::Device(known) if *known == index)
        {
            *way = Standing::Missing(String::new());
            self.look_after(tell);
        }
    }
}

/// Opens everything that was not wanted `before`, with the reason where that fails: a device that is missing
/// is none.
fn opened(space: &Space, before: Option<&Space>, file: Option<&File>) -> io::Result<Open> {
    let open = space.open(before, file).map_err(|error| space.explained(error))?;
    let is_new = |egress| before.is_none_or(|before| before.exits.iter().all(|(known, _)| *known != egress));
    let exits = space.exits.iter().filter(|(egress, _)| is_new(*egress));
    for ((_, exit), way) in exits.zip(&open.ways) {
        if let Err(error) = way
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(io::Error::new(error.kind(), space.lack(exit, error)));
        }
    }
    Ok(open)
}

impl Standing {
    fn of(way: &Result<Way, String>) -> Self {
        match way {
            Ok(Way::Raw(sender)) if sender.has_device() => Self::Bound(Arc::clone(sender)),
            Ok(Way::Raw(_)) => Self::Open,
            Ok(Way::Device(sender)) => Self::Device(sender.index()),
            Err(why) => Self::Missing(why.clone()),
        }
    }

    const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }

    /// Whether it is missing for the same reason as before.
    fn is_known(&self, before: &Self) -> bool {
        matches!((self, before), (Self::Missing(why), Self::Missing(told)) if why == told)
    }

    fn is_lost(&self) -> bool {
        match self {
            Self::Bound(sender) => !sender.is_bound(),
            // That a tunnel device is gone shows where a probe is sent.
            Self::Open | Self::Device(_) | Self::Missing(_) => false,
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
