//! What is open in each namespace, on the side of the loop: where answers come, and by what probes leave.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::sync::mpsc::UnboundedSender;

use super::kernel::{Sockets, Wish};
use super::outlet::Outlet;
use super::plan::Exit;
use super::space::{Space, Way};
use crate::engine::{Egress, Engine, Interface, Namespace, Need, Time};
use crate::io::raw::Receiver;

pub(super) struct Spaces {
    /// What people call the namespaces.
    titles: Vec<String>,
    pub(super) receivers: Vec<(Namespace, Receiver)>,
    /// By index of the egress.
    pub(super) outlets: Vec<Outlet>,
    /// A device has come or gone, and the engine has not been told.
    is_news: bool,
    /// The way to whoever looks after them; `None` where nothing can change.
    wishes: Option<UnboundedSender<Wish>>,
}

impl Spaces {
    /// Nothing is open yet.
    pub(super) fn new(spaces: &[Space]) -> Self {
        Self {
            titles: spaces.iter().map(Space::title).collect(),
            receivers: Vec::new(),
            outlets: outlets(spaces),
            is_news: true,
            wishes: None,
        }
    }

    /// Another configuration wants this: what is open and not wanted any more is closed.
    pub(super) fn renew(&mut self, spaces: &[Space]) {
        let is_surplus = |(namespace, receiver): &mut (Namespace, Receiver)| {
            let space = spaces.get(*namespace as usize);
            space.is_none_or(|space| !space.receivers.contains(&receiver.kind()))
        };
        let receivers = self.receivers.extract_if(.., is_surplus).map(|(_, receiver)| receiver).collect();
        let before = std::mem::replace(&mut self.outlets, outlets(spaces));
        let mut surplus = Vec::new();
        for (egress, mut old) in before.into_iter().enumerate() {
            match self.outlets.get_mut(egress).filter(|outlet| outlet.is_wanted()) {
                Some(outlet) => drop(outlet.lead(old.lead(None))),
                None => surplus.extend(old.lead(None)),
            }
        }
        self.titles = spaces.iter().map(Space::title).collect();
        self.is_news = true;
        self.close(receivers, surplus);
    }

    /// Whom to ask from now on.
    pub(super) fn ask(&mut self, wishes: UnboundedSender<Wish>) {
        self.wishes = Some(wishes);
    }

    /// Waits until something may have arrived.
    pub(super) async fn readable(&self) {
        poll_fn(|context| {
            // Every one is asked, so that every one knows whom to wake.
            let ready = self.receivers.iter().filter(|(_, receiver)| receiver.poll_ready(context).is_ready()).count();
            if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// A namespace is there, with these sockets. To be called within a runtime.
    ///
    /// # Errors
    /// Registering them may fail for want of descriptors; then the namespace is missing.
    pub(super) fn add(
        &mut self,
        engine: &mut Engine,
        now: Time,
        namespace: Namespace,
        sockets: Sockets,
    ) -> io::Result<()> {
        let Sockets { receivers, ways } = sockets;
        let receivers = receivers.into_iter().map(|opened| Ok((namespace, opened.register(now)?)));
        let receivers = receivers.collect::<io::Result<Vec<_>>>();
        match receivers {
            Ok(receivers) => self.receivers.extend(receivers),
            Err(error) => {
                let why = format!("{} cannot be used: {error}", self.title(namespace));
                self.remove(engine, now, namespace, &why);
                self.wish(Wish::Again(namespace));
                return Err(error);
            }
        }
        engine.handle_found(now, Need::Namespace(namespace));
        // New sockets let no ESP pass.
        engine.list_inlets_again();
        ways.into_iter().for_each(|(egress, way)| self.lead(engine, now, egress, way));
        Ok(())
    }

    /// A namespace is missing: everything in it is closed.
    pub(super) fn remove(&mut self, engine: &mut Engine, now: Time, namespace: Namespace, why: &str) {
        engine.handle_missing(now, Need::Namespace(namespace), self.title(namespace), why);
        let here = |(of, _): &mut (Namespace, Receiver)| *of == namespace;
        let receivers: Vec<Receiver> = self.receivers.extract_if(.., here).map(|(_, receiver)| receiver).collect();
        let outlets = self.outlets.iter_mut().filter(|outlet| outlet.namespace() == namespace);
        let ways: Vec<Way> = outlets.filter_map(|outlet| outlet.lead(None)).collect();
        self.is_news = true;
        self.close(receivers, ways);
    }

    /// Probes leave another way, or none.
    pub(super) fn lead(&mut self, engine: &mut Engine, now: Time, egress: Egress, way: Result<Way, String>) {
        let Some(outlet) = self.outlets.get_mut(egress as usize) else { return };
        match &way {
            Ok(_) => engine.handle_found(now, Need::Egress(egress)),
            Err(why) => engine.handle_missing(now, Need::Egress(egress), outlet.title(), why),
        }
        let old = outlet.lead(way.ok());
        self.is_news = true;
        self.close(Vec::new(), Vec::from_iter(old));
    }

    /// The device of an exit turned out to be gone: another one is looked for.
    pub(super) fn lose(&mut self, egress: Egress) {
        let old = self.outlets.get_mut(egress as usize).and_then(|outlet| outlet.lead(None));
        self.is_news = true;
        self.close(Vec::new(), Vec::from_iter(old));
        self.wish(Wish::Search(egress));
    }

    /// Tells the engine by which devices answers must come, if that has changed.
    pub(super) fn note_interfaces(&mut self, engine: &mut Engine) {
        if !std::mem::replace(&mut self.is_news, false) {
            return;
        }
        let interface = |(egress, outlet): (Egress, &Outlet)| Some((egress, outlet.interface()?));
        let interfaces: BTreeMap<Egress, Interface> = (0..).zip(&self.outlets).filter_map(interface).collect();
        engine.handle_interfaces(&interfaces);
    }

    fn title(&self, namespace: Namespace) -> &str {
        self.titles.get(namespace as usize).map_or("", String::as_str)
    }

    /// Closes elsewhere: the kernel takes its time with a packet socket (`synchronize_net`).
    fn close(&self, receivers: Vec<Receiver>, ways: Vec<Way>) {
        if !receivers.is_empty() || !ways.is_empty() {
            self.wish(Wish::Close(receivers, ways));
        }
    }

    fn wish(&self, wish: Wish) {
        if let Some(wishes) = &self.wishes {
            // If nobody is there any more, what was to be closed is closed here.
            drop(wishes.send(wish));
        }
    }
}

/// What probes leave by, by index; nothing where an index is not used.
fn outlets(spaces: &[Space]) -> Vec<Outlet> {
    let outlets = (0..).zip(spaces).flat_map(|(namespace, space)| {
        let outlet = move |(egress, exit): &(Egress, Exit)| {
            (*egress, Outlet::new(space.title_of(exit), namespace, matches!(exit, Exit::Device(_))))
        };
        space.exits.iter().map(outlet)
    });
    // Each egress is in one namespace.
    let mut outlets: BTreeMap<Egress, Outlet> = outlets.collect();
    let end = outlets.last_key_value().map_or(0, |(egress, _)| egress + 1);
    (0..end).map(|egress| outlets.remove(&egress).unwrap_or_else(Outlet::unused)).collect()
}
