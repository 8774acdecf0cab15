//! From a configuration to what must be opened: which sockets, in which namespaces, for whom.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::kernel::Inspected;
use super::outlet::{Device, Outlet};
use super::steer::Steering;
use crate::config::{self, Config, Netns, Tunnel as Configured};
use crate::engine::{Egress, Material, Namespace, Place, Route, Tunnel};
use crate::io::device::{self, DeviceSender};
use crate::io::local::Access;
use crate::io::netns;
use crate::io::raw::{self, Leaving, Opened, Sender};
use crate::io::xfrm;
use crate::wire::filter::{Pass, Protocol};
use crate::wire::{Direction, Encapsulation, Family};

/// What a daemon is to do.
pub struct Plan {
    /// Tunnels, each with its namespace and its sending socket.
    pub tunnels: Vec<Tunnel>,
    /// Routes over them.
    pub routes: Vec<Route>,
    /// Where routes are; routes name them by index.
    pub places: Vec<Place>,
    /// What is to be kept in the kernel, if anything.
    pub steering: Option<Steering>,
    /// Namespaces by index: `None` is the one where the daemon runs.
    pub namespaces: Vec<Option<Netns>>,
    /// Sending sockets by index.
    pub egresses: Vec<(Namespace, Exit)>,
    /// What the pairs of ESP tunnels are made of, by index, where their keys are known.
    pub material: BTreeMap<u32, Material>,
    /// Where used sequence numbers are recorded. Without it nothing is, and every start begins at 1: for
    /// keys that do not outlive the process.
    pub state_dir: Option<PathBuf>,
    /// The local socket; a daemon without one can only be asked from within its process.
    pub access: Option<Access>,
    /// File to which all events, samples among them, are appended.
    pub record: Option<PathBuf>,
}

/// By what probes leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// A raw socket, by routing.
    Raw(Leaving),
    /// A tunnel device of the kernel's, whatever the routes say.
    Device(String),
}

/// Everything that a plan asks for, open.
pub(super) struct Sockets {
    pub(super) receivers: Vec<(Namespace, Opened)>,
    /// By index of the egress.
    pub(super) outlets: Vec<Outlet>,
    /// The kernel's associations, where there are ESP tunnels and it can be asked for them.
    pub(super) watches: Vec<(Namespace, xfrm::Opened)>,
    /// Tunnels whose probes a device might withhold.
    pub(super) inspected: Vec<Inspected>,
}

impl Plan {
    /// The plan for a configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let steering = Steering::of(&config);
        let daemon = config.daemon;
        let access = Access { path: daemon.socket, readers: daemon.socket_group, admins: daemon.admin_group };
        let mut plan = Self {
            tunnels: Vec::new(),
            routes: config.routes,
            steering,
            places: config.places.iter().map(config::Place::named).collect(),
            namespaces: Vec::new(),
            egresses: Vec::new(),
            material: BTreeMap::new(),
            state_dir: Some(daemon.state_dir),
            access: Some(access),
            record: daemon.record,
        };
        config.tunnels.into_iter().for_each(|tunnel| plan.add(tunnel));
        plan
    }

    fn add(&mut self, configured: Configured) {
        let Configured { name, onion, check, netns, underlay_device, mark, device, esp, .. } = configured;
        let namespace = index_of(&mut self.namespaces, netns);
        let exit = match (onion.encapsulation, device) {
            (Encapsulation::Device, Some(device)) => Exit::Device(device),
            // An IPsec policy is found by both addresses.
            (Encapsulation::Device, None) => {
                let (family, source) = (onion.inner.family(), Some(onion.inner.local()));
                Exit::Raw(Leaving { family, device: underlay_device, mark, source })
            }
            (Encapsulation::Gre(_) | Encapsulation::Esp(_), _) => {
                Exit::Raw(Leaving { family: onion.outer.family(), device: underlay_device, mark, source: None })
            }
        };
        let egress: Egress = index_of(&mut self.egresses, (namespace, exit));
        let terms = esp.as_ref().map(|esp| esp.terms);
        if let Some(material) = esp.and_then(|esp| esp.material) {
            self.material.insert(u32::try_from(self.tunnels.len()).unwrap_or(u32::MAX), material);
        }
        self.tunnels.push(Tunnel { name, onion, check, namespace, egress, terms, interface: None });
    }

    /// Opens every socket of the plan.
    ///
    /// # Errors
    /// Which namespace, and what the kernel refused.
    pub(super) fn open(&self) -> io::Result<Sockets> {
        let (receivers, outlets, watches) = (Vec::new(), Vec::new(), Vec::new());
        let mut sockets = Sockets { receivers, outlets, watches, inspected: Vec::new() };
        let mut outlets: Vec<Option<Outlet>> = self.egresses.iter().map(|_| None).collect();
        for (namespace, name) in (0..).zip(&self.namespaces) {
            let file = name.as_ref().map(open_namespace).transpose()?;
            let opened = netns::within(file.as_ref(), || self.open_in(namespace));
            let opened = opened.map_err(|error| in_namespace(name.as_ref(), error))?;
            sockets.receivers.extend(opened.receivers.into_iter().map(|opened| (namespace, opened)));
            sockets.watches.extend(opened.watch.map(|watch| (namespace, watch)));
            sockets.inspected.extend(self.inspected_in(namespace, file.as_ref())?);
            for (at, open) in opened.exits {
                outlets[at] = Some(match (open, &self.egresses[at].1) {
                    (Open::Raw(sender), _) => Outlet::Raw(sender),
                    (Open::Device(sender), Exit::Device(device)) => Outlet::Device(Box::new(Device::new(
                        device,
                        file.as_ref().map(File::try_clone).transpose()?,
                        sender,
                    ))),
                    (Open::Device(_), Exit::Raw(_)) => continue,
                });
            }
        }
        sockets.outlets = outlets.into_iter().flatten().collect();
        Ok(sockets)
    }

    /// Opens what the plan asks for in the namespace of the calling thread.
    fn open_in(&self, namespace: Namespace) -> io::Result<OpenedIn> {
        let wanted = self.receivers_in(namespace);
        let receivers = wanted.iter().map(|&(family, protocol)| raw::open_receiver(family, protocol, Pass::Answers));
        let receivers = receivers.collect::<io::Result<_>>()?;
        let leaving = self.egresses.iter().enumerate().filter(|(_, (of, _))| *of == namespace);
        let exits = leaving.map(|(at, (_, exit))| Ok((at, open_exit(exit)?))).collect::<io::Result<_>>()?;
        let is_esp = |tunnel: &&Tunnel| tunnel.namespace == namespace && tunnel.terms.is_some();
        let watch = self.tunnels.iter().find(is_esp).and_then(|_| xfrm::follow::open_or_warn());
        Ok(OpenedIn { receivers, exits, watch })
    }

    /// Tunnels of a namespace whose probes leave by a device.
    fn inspected_in(&self, namespace: Namespace, file: Option<&File>) -> io::Result<Vec<Inspected>> {
        let file = file.map(File::try_clone).transpose()?.map(Arc::new);
        let inspected = (0..).zip(&self.tunnels).filter(|(_, tunnel)| tunnel.namespace == namespace);
        let inspected = inspected.filter_map(|(index, tunnel)| match &self.egresses[tunnel.egress as usize].1 {
            Exit::Device(device) => Some((index, device.clone(), tunnel.onion.way())),
            Exit::Raw(_) => None,
        });
        let of = |(tunnel, device, (source, destination))| Inspected {
            tunnel,
            device,
            namespace: file.clone(),
            source,
            destination,
        };
        Ok(inspected.map(of).collect())
    }

    /// GRE or ESP for every outer family, and bare ICMP for every family in which answers come bare, or
    /// errors about our outer packets. The GRE socket is open even where all answers are bare:
    /// without a listener the kernel would answer GRE packets with "protocol unreachable".
    fn receivers_in(&self, namespace: Namespace) -> Vec<(Family, Protocol)> {
        let mut wanted: Vec<_> = self
            .tunnels
            .iter()
            .filter(|tunnel| tunnel.namespace == namespace)
            .flat_map(|tunnel| {
                let (outer, inner) = (tunnel.onion.outer.family(), tunnel.onion.inner.family());
                let bare = tunnel.onion.style.direction == Direction::Unidirectional;
                match tunnel.onion.encapsulation {
                    Encapsulation::Gre(_) => [Some((outer, Protocol::Gre)), bare.then_some((inner, Protocol::Icmp))],
                    Encapsulation::Esp(shape) if shape.udp() => {
                        [Some((outer, Protocol::EspInUdp)), bare.then_some((inner, Protocol::Icmp))]
                    }
                    Encapsulation::Esp(_) => [Some((outer, Protocol::Esp)), bare.then_some((inner, Protocol::Icmp))],
                    Encapsulation::Device => [None, Some((inner, Protocol::Icmp))],
                }
                .into_iter()
                .chain([Some((outer, Protocol::Icmp))])
            })
            .flatten()
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }
}

/// What is open in one namespace.
struct OpenedIn {
    receivers: Vec<Opened>,
    exits: Vec<(usize, Open)>,
    watch: Option<xfrm::Opened>,
}

/// A sending socket; a device may be missing, and may come later.
enum Open {
    Raw(Sender),
    Device(Option<Box<DeviceSender>>),
}

fn open_exit(exit: &Exit) -> io::Result<Open> {
    match exit {
        Exit::Raw(leaving) => Ok(Open::Raw(open_sender(leaving)?)),
        Exit::Device(name) => match device::open(name) {
            Ok(sender) => Ok(Open::Device(Some(Box::new(sender)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(device = name, "there is no such device yet: its tunnels fail until there is");
                Ok(Open::Device(None))
            }
            Err(error) => Err(error),
        },
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
