//! `[[tunnel]]`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::apart::Taken;
use super::check::{Cadence, HealthCheck};
use super::encapsulation::{self, Leaving, Wrapping};
use super::ends::{self, Interface};
use super::esp::Side;
use super::names::{self, Netns};
use super::section::Section;
use super::tree::{At, Placed};
use super::{defaults, near, targets};
use crate::engine::health::Rules;
use crate::engine::settings::{Check, Terms};
use crate::engine::{Material, Targets};
use crate::wire::{Direction, Ends, Family, Onion, icmp, ip};

/// A tunnel: whatever a file can say of one, checked.
#[derive(Clone)]
pub struct Tunnel {
    /// Its name: unique.
    pub name: String,
    /// Its probes. Where the kernel encapsulates and the file names no endpoints, the inner ends stand
    /// for them.
    pub onion: Onion,
    /// How it is checked; several servers' shares are in the interval already.
    pub check: Check,
    /// The network namespace of its outer packets; `None` is the one that adit runs in.
    pub netns: Option<Netns>,
    /// The device, or VRF, that its outer packets are bound to.
    pub underlay_device: Option<String>,
    /// The firewall mark of its outer packets; 0 is none.
    pub mark: u32,
    /// The kernel's tunnel device that its probes leave by, where the kernel encapsulates; `None` is
    /// ordinary routing.
    pub device: Option<String>,
    /// Of several targets, those beside the far end of the probes' inner addresses.
    pub targets: Option<Targets>,
    /// What its security associations are made with, where it is ESP of adit's own.
    pub esp: Option<Esp>,
    /// What [`super::Config::effective`] repeats in the words of the file.
    pub(super) written: Written,
}

/// What the security associations of an ESP tunnel are made with. Without `Debug`: it holds keys.
#[derive(Clone)]
pub struct Esp {
    /// What holds for every pair.
    pub terms: Terms,
    /// The pair itself, where its keys come from files.
    pub material: Option<Material>,
}

#[derive(Debug, Clone)]
pub(super) struct Written {
    /// Whether the endpoints were named.
    pub(super) endpoints: bool,
    pub(super) interface_address: Option<IpNet>,
    pub(super) target: Option<IpAddr>,
    pub(super) cadence: Cadence,
    pub(super) servers: u32,
    pub(super) mark_key_file: Option<PathBuf>,
    /// `key_out_file` and `key_in_file`.
    pub(super) esp_key_files: Option<[PathBuf; 2]>,
}

impl Written {
    fn new(
        check: &HealthCheck,
        wrapping: &Wrapping,
        endpoints: bool,
        interface_address: Option<IpNet>,
        servers: u32,
    ) -> Self {
        let target = check.target().map(|target| target.value);
        let mark_key_file = check.mark_key_file().map(|file| file.path.clone());
        let cadence = check.cadence();
        let esp_key_files =
            wrapping.pair().map(|pair| [&pair.key_out, &pair.key_in].map(|file| file.value.path.clone()));
        Self { endpoints, interface_address, target, cadence, servers, mark_key_file, esp_key_files }
    }
}

/// All tunnels of a file, and their names, also of those that something is wrong with.
pub(super) struct Tunnels {
    pub(super) list: Vec<Tunnel>,
    /// The rules of a tunnel that says nothing of its own.
    pub(super) rules: Rules,
    names: BTreeMap<String, (u32, At)>,
    /// Their namespaces, by index.
    spaces: Vec<Option<Netns>>,
}

impl Tunnels {
    /// Reads every `[[tunnel]]`.
    pub(super) fn read(root: &mut Section<'_>, side: Side) -> Self {
        let defaults = defaults(root);
        let (rules, names) = (defaults.rules(), BTreeMap::new());
        let mut tunnels = Self { list: Vec::new(), rules, names, spaces: Vec::new() };
        let mut taken = Taken::default();
        for (index, mut section) in (0..).zip(root.sections("tunnel")) {
            let name = tunnels.name(&mut section, index);
            let netns = netns(&mut section);
            tunnels.spaces.push(netns.clone());
            let tunnel = read(section, name, netns, side, &defaults, &mut taken);
            tunnels.list.extend(tunnel);
        }
        tunnels
    }

    /// Reads the name of the tunnel at `index`, and makes sure that no other has it.
    fn name(&mut self, section: &mut Section<'_>, index: u32) -> Option<String> {
        section.require("name", "every output calls the tunnel by it", "\"ams-1\"");
        let name = section.text("name", "a name", "ams-1", names::tunnel)?;
        if let Some((_, first)) = self.names.get(&name.value) {
            let first = section.report().refer(name.at, *first);
            let why = format!("`name` {:?} is taken by the tunnel in {first}; write another name", name.value);
            section.report().add(name.at, why);
        } else {
            self.names.insert(name.value.clone(), (index, name.at));
        }
        Some(name.value)
    }

    /// The namespace of the tunnel of this index.
    pub(super) fn netns(&self, index: u32) -> Option<&Netns> {
        self.spaces.get(index as usize)?.as_ref()
    }

    /// The index of the tunnel that a section names.
    pub(super) fn reference(&self, section: &mut Section<'_>) -> Option<Placed<(u32, String)>> {
        section.text("tunnel", "the name of a tunnel", "ams-1", |text| {
            let known = || self.names.keys().map(String::as_str);
            let found = self.names.get(text).map(|(index, _)| (*index, text.to_owned()));
            found.ok_or_else(|| match near::nearest(text, known()) {
                Some(near) => format!("{text:?} is no tunnel here; did you mean {near:?}?"),
                None => format!("{text:?} is no tunnel here; write the name of a [[tunnel]]"),
            })
        })
    }
}

/// Reads `netns`.
pub(super) fn netns(section: &mut Section<'_>) -> Option<Netns> {
    section.text("netns", "a namespace's name or path", "blue", Netns::read).map(|netns| netns.value)
}

/// Reads `[defaults]`.
fn defaults(root: &mut Section<'_>) -> HealthCheck {
    let Some(mut section) = root.section("defaults", "[defaults]") else { return HealthCheck::default() };
    let check = HealthCheck::read(&mut section, "[defaults.health_check]");
    section.finish();
    check
}

fn read(
    mut section: Section<'_>,
    name: Option<String>,
    netns: Option<Netns>,
    side: Side,
    defaults: &HealthCheck,
    taken: &mut Taken,
) -> Option<Tunnel> {
    let wrapping = encapsulation::read(&mut section, side);
    let own = HealthCheck::read(&mut section, "[tunnel.health_check]");
    let health_check = own.over(defaults);
    own.refuse_return_path(health_check.style().direction, section.report());
    let leaving = encapsulation::leaving(&mut section, &wrapping, health_check.style().kind);
    let outer = outer(&mut section, &wrapping, &leaving, health_check.style().direction);
    let interface = ends::interface(&mut section);
    let servers = section.integer("servers", 1..=defaults::SERVERS_MAX, "", defaults::SERVERS);
    let servers = servers.map_or(defaults::SERVERS, |servers| servers.value);
    let inner = inner(&section, side, &health_check, outer, interface);
    let targets = inner.as_ref().and_then(|(_, targets)| targets.clone());
    let onion = onion(&section, &health_check, &wrapping, &leaving, outer, inner.map(|(ends, _)| ends));
    let check = health_check.resolve(servers, section.report());
    if onion.is_some() {
        refuse_shared(&section, netns.as_ref(), outer, &wrapping, taken);
    }
    section.finish();
    let interface = interface.map(|interface| interface.value.written);
    let written = Written::new(&health_check, &wrapping, outer.is_some(), interface, servers);
    let (device, esp) = match wrapping {
        Wrapping::Device(device) => (device, None),
        Wrapping::Esp(sealing) => (None, sealing.map(|sealing| sealing.esp)),
        Wrapping::Gre(_) | Wrapping::Unclear => (None, None),
    };
    let Leaving { underlay_device, mark, .. } = leaving;
    Some(Tunnel { name: name?, onion: onion?, check, netns, underlay_device, mark, device, targets, esp, written })
}

/// The endpoints. Those of the kernel's own tunnels only the kernel needs to know, unless probes travel
/// between them.
fn outer(section: &mut Section<'_>, wrapping: &Wrapping, leaving: &Leaving, direction: Direction) -> Option<Ends> {
    let needed = match direction {
        _ if !wrapping.is_device() => Some(ends::OUTER),
        Direction::Unidirectional => Some(["a unidirectional probe travels between the endpoints"; 2]),
        Direction::Bidirectional => None,
    };
    ends::outer(section, needed, wrapping.is_device() || leaving.underlay_device.is_some())
}

/// The inner addresses, and of several targets those beside the first. A reflector's targets are its own addresses beside
/// that of its interface.
fn inner(
    section: &Section<'_>,
    side: Side,
    health_check: &HealthCheck,
    outer: Option<Ends>,
    interface: Option<Placed<Interface>>,
) -> Option<(Ends, Option<Targets>)> {
    let (direction, quorum) = (health_check.style().direction, health_check.quorum());
    let Some(several) = health_check.targets() else {
        if let Some(quorum) = health_check.own_quorum() {
            let why = "`quorum` says how many of several `targets` must answer, and there are none";
            section
                .report()
                .add(quorum.at, format!("{why}; write targets = [\"192.0.2.1\", …] beside it, or remove it"));
        }
        return Some((ends::inner(section, direction, outer, interface, health_check.target())?, None));
    };
    let ends = ends::between(section, direction, outer, interface)?;
    match side {
        Side::Prober => {
            let (ends, targets) = targets::resolve(section.report(), direction, ends, &several.value, quorum)?;
            Some((ends, Some(targets)))
        }
        Side::Reflector => {
            let further = several.value.iter().map(|target| target.value).collect();
            Some((ends, Some(Targets { further, quorum: 1 })))
        }
    }
}

fn onion(
    section: &Section<'_>,
    health_check: &HealthCheck,
    wrapping: &Wrapping,
    leaving: &Leaving,
    outer: Option<Ends>,
    inner: Option<Ends>,
) -> Option<Onion> {
    let (style, inner) = (health_check.style(), inner?);
    let outer = if wrapping.is_device() { outer.unwrap_or(inner) } else { outer? };
    let (size, size_at) = health_check.size();
    if let Some(at) = size_at {
        refuse_long_packet(section, wrapping, [outer, inner].map(Ends::family), Placed { at, value: size });
    }
    let encapsulation = wrapping.encapsulation()?;
    Some(Onion { style, outer, encapsulation, inner, ttl: leaving.ttl, dscp: leaving.dscp, size })
}

fn refuse_long_packet(section: &Section<'_>, wrapping: &Wrapping, [outer, inner]: [Family; 2], size: Placed<u16>) {
    let header = match inner {
        Family::V4 => ip::V4_HEADER,
        Family::V6 => ip::V6_HEADER,
    };
    let length = |size: u16| wrapping.longest(outer, header + icmp::HEADER + usize::from(size));
    let most = defaults::PACKET_MAX;
    if length(size.value) <= most {
        return;
    }
    // Padding makes lengths go up in steps: what fits has to be looked for.
    let fits = (0..size.value).rev().find(|&size| length(size) <= most).unwrap_or(0);
    let (what, length) = (if wrapping.is_device() { "a" } else { "an outer" }, length(size.value));
    let why = format!("makes {what} packet of {length} bytes, more than {most}; write size = {fits} or less");
    section.report().add(size.at, format!("`size` is {}, which {why}", size.value));
}

/// What the kernel wraps is told apart by the probes themselves, and what is installed later is looked
/// at then.
fn refuse_shared(
    section: &Section<'_>,
    netns: Option<&Netns>,
    outer: Option<Ends>,
    wrapping: &Wrapping,
    taken: &mut Taken,
) {
    match (wrapping, outer) {
        (Wrapping::Gre(options), Some(outer)) => taken.gre(section, netns, outer, options.key),
        (Wrapping::Esp(_), Some(outer)) => {
            wrapping.pair().iter().for_each(|pair| taken.esp(section.report(), netns, outer, pair));
        }
        (Wrapping::Gre(_) | Wrapping::Esp(_) | Wrapping::Device(_) | Wrapping::Unclear, _) => {}
    }
}

impl Tunnel {
    /// The interface's addresses, if they are written.
    pub(crate) fn inside(&self) -> Option<Ends> {
        let written = self.written.interface_address?;
        Ends::new(written.addr(), ends::other_end(written).ok()?)
    }

    /// Whether its answers come back inside it.
    pub(super) fn is_bidirectional(&self) -> bool {
        self.onion.style.direction == Direction::Bidirectional
    }
}
