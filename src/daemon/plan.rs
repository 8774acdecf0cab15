//! From a configuration to what must be opened: which sockets, in which namespaces, for whom.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use crate::config::{Config, Netns, Tunnel as Configured};
use crate::engine::{Egress, Namespace, Route, Tunnel};
use crate::io::local::Access;
use crate::io::netns;
use crate::io::raw::{self, Leaving, Opened, Sender};
use crate::wire::filter::{Pass, Protocol};
use crate::wire::{Direction, Family};

/// What a daemon is to do.
pub struct Plan {
    /// Tunnels, each with its namespace and its sending socket.
    pub tunnels: Vec<Tunnel>,
    /// Routes over them.
    pub routes: Vec<Route>,
    /// Namespaces by index: `None` is the one where the daemon runs.
    pub namespaces: Vec<Option<Netns>>,
    /// Sending sockets by index.
    pub egresses: Vec<(Namespace, Leaving)>,
    /// The local socket; a daemon without one can only be asked from within its process.
    pub access: Option<Access>,
    /// File to which all events, samples among them, are appended.
    pub record: Option<PathBuf>,
}

/// Everything that a plan asks for, open.
pub(super) struct Sockets {
    pub(super) receivers: Vec<(Namespace, Opened)>,
    /// By index of the egress.
    pub(super) senders: Vec<Sender>,
}

impl Plan {
    /// The plan for a configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let daemon = config.daemon;
        let access = Access { path: daemon.socket, readers: daemon.socket_group, admins: daemon.admin_group };
        let mut plan = Self {
            tunnels: Vec::new(),
            routes: config.routes,
            namespaces: Vec::new(),
            egresses: Vec::new(),
            access: Some(access),
            record: daemon.record,
        };
        config.tunnels.into_iter().for_each(|tunnel| plan.add(tunnel));
        plan
    }

    fn add(&mut self, configured: Configured) {
        let Configured { name, onion, check, netns, underlay_device, mark, .. } = configured;
        let namespace = index_of(&mut self.namespaces, netns);
        let leaving = Leaving { family: onion.outer.family(), device: underlay_device, mark };
        let egress: Egress = index_of(&mut self.egresses, (namespace, leaving));
        self.tunnels.push(Tunnel { name, onion, check, namespace, egress });
    }

    /// Opens every socket of the plan.
    ///
    /// # Errors
    /// Which namespace, and what the kernel refused.
    pub(super) fn open(&self) -> io::Result<Sockets> {
        let mut receivers = Vec::new();
        let mut senders: Vec<Option<Sender>> = self.egresses.iter().map(|_| None).collect();
        for (namespace, name) in (0..).zip(&self.namespaces) {
            let file = name.as_ref().map(open_namespace).transpose()?;
            let wanted = self.receivers_in(namespace);
            let leaving: Vec<_> = self.egresses.iter().enumerate().filter(|(_, (of, _))| *of == namespace).collect();
            let opened = netns::within(file.as_ref(), || {
                let receivers =
                    wanted.iter().map(|&(family, protocol)| raw::open_receiver(family, protocol, Pass::Answers));
                let senders = leaving.iter().map(|(at, (_, leaving))| Ok((*at, open_sender(leaving)?)));
                Ok((receivers.collect::<io::Result<Vec<_>>>()?, senders.collect::<io::Result<Vec<_>>>()?))
            });
            let (opened, sending) = opened.map_err(|error| in_namespace(name.as_ref(), error))?;
            receivers.extend(opened.into_iter().map(|opened| (namespace, opened)));
            sending.into_iter().for_each(|(at, sender)| senders[at] = Some(sender));
        }
        Ok(Sockets { receivers, senders: senders.into_iter().flatten().collect() })
    }

    /// GRE for every outer family, and bare ICMP for every family in which answers come bare, or
    /// errors about our outer packets. The GRE socket is open even where all answers are bare:
    /// without a listener the kernel would answer GRE packets with "protocol unreachable".
    fn receivers_in(&self, namespace: Namespace) -> Vec<(Family, Protocol)> {
        let mut wanted: Vec<_> = self
            .tunnels
            .iter()
            .filter(|tunnel| tunnel.namespace == namespace)
            .flat_map(|tunnel| {
                let onion = &tunnel.onion;
                let bare = onion.style.direction == Direction::Unidirectional;
                [
                    Some((onion.outer.family(), Protocol::Gre)),
                    Some((onion.outer.family(), Protocol::Icmp)),
                    bare.then_some((onion.inner.family(), Protocol::Icmp)),
                ]
            })
            .flatten()
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }
}

fn open_namespace(name: &Netns) -> io::Result<File> {
    let path = name.path();
    File::open(path).map_err(|error| {
        io::Error::new(error.kind(), format!("network namespace {name}: cannot open {}: {error}", path.display()))
    })
}

fn open_sender(leaving: &Leaving) -> io::Result<Sender> {
    raw::open_sender(leaving).map_err(|error| match &leaving.device {
        Some(device) => io::Error::new(error.kind(), format!("underlay_device {device}: {error}")),
        None => error,
    })
}

fn in_namespace(name: Option<&Netns>, error: io::Error) -> io::Error {
    match name {
        Some(name) => io::Error::new(error.kind(), format!("network namespace {name}: {error}")),
        None => error,
    }
}

/// The index of an item, added if it is new.
fn index_of<T: PartialEq>(items: &mut Vec<T>, item: T) -> u32 {
    let at = items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    });
    u32::try_from(at).unwrap_or(u32::MAX)
}
