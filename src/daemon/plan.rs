//! From a configuration to what must be opened: which sockets, in which namespaces, for whom.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::kernel::Inspected;
use super::space::Space;
use super::steer::Steering;
use crate::config::{self, Config, Netns, Tunnel as Configured};
use crate::engine::diagnose::Bearings;
use crate::engine::endpoints::{Endpoint, Timing};
use crate::engine::memory;
use crate::engine::{Egress, FailStatic, Material, Namespace, Place, Route, Tunnel};
use crate::io::local::Access;
use crate::io::raw::Leaving;
use crate::wire::filter::Protocol;
use crate::wire::{Direction, Encapsulation, Family};

/// What a daemon is to do.
pub struct Plan {
    /// Tunnels, each with its namespace and its sending socket.
    pub tunnels: Vec<Tunnel>,
    /// What diagnoses must know of them, by index.
    pub bearings: BTreeMap<u32, Bearings>,
    /// Routes over them.
    pub routes: Vec<Route>,
    /// What is probed in no tunnel.
    pub endpoints: Vec<Endpoint>,
    /// Where routes are; routes name them by index.
    pub places: Vec<Place>,
    /// When this host is suspected rather than its tunnels; `None` if never.
    pub fail_static: Option<FailStatic>,
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
    /// Tells the probes of one run from those of another: whoever begins the run draws it anew.
    pub epoch: u64,
}

/// The numbers that namespaces and ways out have been given so far, and what marks the run. A number keeps its meaning from one plan
/// to the next, so that whatever is under way with it is not mistaken.
#[derive(Clone, Default)]
pub(super) struct Numbering {
    namespaces: Vec<Option<Netns>>,
    egresses: Vec<(Namespace, Exit)>,
    epoch: u64,
}

/// By what probes leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// A raw socket, by routing.
    Raw(Leaving),
    /// A tunnel device of the kernel's, whatever the routes say.
    Device(String),
    /// A socket of ICMP, by routing: the kernel makes the IP header.
    Plain(Leaving),
}

impl Exit {
    /// A number for it in this namespace that another run also finds.
    fn number(&self, netns: Option<&Netns>) -> u64 {
        let netns = netns.map(|netns| netns.path().display().to_string());
        match self {
            Self::Raw(Leaving { family, device, mark, source })
            | Self::Plain(Leaving { family, device, mark, source }) => {
                let source = source.map(|source| source.to_string());
                memory::exit(netns.as_deref(), device.as_deref(), Some(*family), *mark, source.as_deref())
            }
            Self::Device(device) => memory::exit(netns.as_deref(), Some(device), None, 0, None),
        }
    }
}

impl Plan {
    /// The plan for a configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::after(Numbering::default(), config)
    }

    /// The plan for a configuration that follows another one.
    pub(super) fn after(Numbering { namespaces, egresses, epoch }: Numbering, config: Config) -> Self {
        let steering = Steering::of(&config);
        let daemon = config.daemon;
        let access = Access { path: daemon.socket, readers: daemon.socket_group, admins: daemon.admin_group };
        let mut plan = Self {
            tunnels: Vec::new(),
            bearings: BTreeMap::new(),
            routes: config.routes,
            endpoints: Vec::new(),
            fail_static: config.fail_static,
            steering,
            places: config.places.iter().map(config::Place::named).collect(),
            namespaces,
            egresses,
            material: BTreeMap::new(),
            state_dir: Some(daemon.state_dir),
            access: Some(access),
            record: daemon.record,
            epoch,
        };
        config.tunnels.into_iter().for_each(|tunnel| plan.add(tunnel));
        config.endpoints.into_iter().for_each(|endpoint| plan.add_endpoint(endpoint));
        plan
    }

    fn add(&mut self, configured: Configured) {
        let inside = configured.inside();
        let Configured { name, onion, check, netns, underlay_device, mark, device, targets, esp, .. } = configured;
        let namespace = index_of(&mut self.namespaces, netns.clone());
        let exit = match (onion.encapsulation, device.clone()) {
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
        let number = exit.number(netns.as_ref());
        let egress: Egress = index_of(&mut self.egresses, (namespace, exit));
        // A bare ping of the far endpoint leaves by none of the kernel's tunnel devices.
        let knows_endpoints = onion.outer != onion.inner || onion.style.direction == Direction::Unidirectional;
        let underlay = (onion.encapsulation == Encapsulation::Device && knows_endpoints)
            .then(|| Exit::Raw(Leaving { family: onion.outer.family(), device: None, mark: 0, source: None }));
        let underlay = underlay.map(|exit| index_of(&mut self.egresses, (namespace, exit)));
        self.bearings
            .insert(u32::try_from(self.tunnels.len()).unwrap_or(u32::MAX), Bearings { underlay, inside, device });
        let terms = esp.as_ref().map(|esp| esp.terms);
        if let Some(material) = esp.and_then(|esp| esp.material) {
            self.material.insert(u32::try_from(self.tunnels.len()).unwrap_or(u32::MAX), material);
        }
        let (exit, interface) = (number, None);
        self.tunnels.push(Tunnel { name, onion, check, namespace, egress, exit, terms, interface, targets });
    }

    fn add_endpoint(&mut self, configured: config::Endpoint) {
        let config::Endpoint { name, address, source, netns, mark, interval, retry_interval, timeout, count } =
            configured;
        let namespace = index_of(&mut self.namespaces, netns.clone());
        let exit = Exit::Plain(Leaving { family: Family::of(address), device: None, mark, source });
        let egress = index_of(&mut self.egresses, (namespace, exit));
        let netns = netns.map(|netns| netns.to_string());
        let timing = Timing { interval, retry_interval, timeout, count };
        self.endpoints.push(Endpoint { name, address, source, netns, namespace, egress, timing });
    }

    /// The numbers that are given.
    pub(super) fn numbering(&self) -> Numbering {
        let Self { namespaces, egresses, epoch, .. } = self;
        Numbering { namespaces: namespaces.clone(), egresses: egresses.clone(), epoch: *epoch }
    }

    /// Gives the numbers that [`Self::new`] would give: for somebody who knows of no plan before.
    pub(super) fn renumber(&mut self) {
        let namespaces = std::mem::take(&mut self.namespaces);
        let egresses = std::mem::take(&mut self.egresses);
        for (index, tunnel) in (0..).zip(&mut self.tunnels) {
            tunnel.namespace = index_of(&mut self.namespaces, namespaces[tunnel.namespace as usize].clone());
            let exit = egresses[tunnel.egress as usize].1.clone();
            tunnel.egress = index_of(&mut self.egresses, (tunnel.namespace, exit));
            if let Some(underlay) = self.bearings.get_mut(&index).and_then(|bearings| bearings.underlay.as_mut()) {
                let exit = egresses[*underlay as usize].1.clone();
                *underlay = index_of(&mut self.egresses, (tunnel.namespace, exit));
            }
        }
        for endpoint in &mut self.endpoints {
            endpoint.namespace = index_of(&mut self.namespaces, namespaces[endpoint.namespace as usize].clone());
            let exit = egresses[endpoint.egress as usize].1.clone();
            endpoint.egress = index_of(&mut self.egresses, (endpoint.namespace, exit));
        }
    }

    /// The same, but changes of the kernel's routes are printed instead of made.
    #[must_use]
    pub(super) fn dry(mut self, dry_run: bool) -> Self {
        if dry_run {
            self.steering = self.steering.map(Steering::dry);
        }
        self
    }

    /// Whether the kernel's routes are to follow ours.
    pub(super) fn steers(&self) -> bool {
        self.steering.as_ref().is_some_and(|steering| !steering.dry_run)
    }

    /// What is wanted in each namespace; nothing in those that no tunnel and no endpoint is in any more.
    pub(super) fn spaces(&self) -> Vec<Space> {
        let underlays = self.bearings.values().filter_map(|bearings| bearings.underlay);
        let others = self.endpoints.iter().map(|endpoint| endpoint.egress).chain(underlays);
        let used: BTreeSet<Egress> = self.tunnels.iter().map(|tunnel| tunnel.egress).chain(others).collect();
        let space = |(namespace, name): (Namespace, &Option<Netns>)| {
            let exits = (0..).zip(&self.egresses).filter(|(egress, (of, _))| *of == namespace && used.contains(egress));
            let is_esp = |tunnel: &Tunnel| tunnel.namespace == namespace && tunnel.terms.is_some();
            Space {
                name: name.clone(),
                receivers: self.receivers_in(namespace),
                exits: exits.map(|(egress, (_, exit))| (egress, exit.clone())).collect(),
                has_esp: self.tunnels.iter().any(is_esp),
                inspected: self.inspected_in(namespace),
                to_hand: false,
                epoch: self.epoch,
            }
        };
        (0..).zip(&self.namespaces).map(space).collect()
    }

    /// Tunnels of a namespace whose probes leave by a device.
    fn inspected_in(&self, namespace: Namespace) -> Vec<Inspected> {
        let here = (0..).zip(&self.tunnels).filter(|(_, tunnel)| tunnel.namespace == namespace);
        let inspected = here.filter_map(|(index, tunnel)| match &self.egresses[tunnel.egress as usize].1 {
            Exit::Device(device) => {
                let (source, destination) = tunnel.onion.way();
                Some(Inspected { tunnel: index, device: device.clone(), source, destination, withheld: None })
            }
            Exit::Raw(_) | Exit::Plain(_) => None,
        });
        inspected.collect()
    }

    /// GRE or ESP for every outer family, and bare ICMP for every family in which answers come bare, or may
    /// leak, or errors come about our outer packets, and for endpoints. The GRE socket is open even where all answers are bare:
    /// without a listener the kernel would answer GRE packets with "protocol unreachable".
    fn receivers_in(&self, namespace: Namespace) -> Vec<(Family, Protocol)> {
        let mut wanted: Vec<_> = self
            .tunnels
            .iter()
            .filter(|tunnel| tunnel.namespace == namespace)
            .flat_map(|tunnel| {
                let (outer, inner) = (tunnel.onion.outer.family(), tunnel.onion.inner.family());
                let wrapped = match tunnel.onion.encapsulation {
                    Encapsulation::Gre(_) => Some((outer, Protocol::Gre)),
                    Encapsulation::Esp(shape) if shape.udp() => Some((outer, Protocol::EspInUdp)),
                    Encapsulation::Esp(_) => Some((outer, Protocol::Esp)),
                    Encapsulation::Device => None,
                };
                [wrapped, Some((inner, Protocol::Icmp)), Some((outer, Protocol::Icmp))]
            })
            .flatten()
            .collect();
        let endpoints = self.endpoints.iter().filter(|endpoint| endpoint.namespace == namespace);
        wanted.extend(endpoints.map(|endpoint| (Family::of(endpoint.address), Protocol::Icmp)));
        wanted.sort_unstable();
        wanted.dedup();
        wanted
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
