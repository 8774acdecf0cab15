//! `[[tunnel]]`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::check::{Cadence, HealthCheck};
use super::ends::{self, Interface};
use super::names::{self, Netns};
use super::section::{Section, expected};
use super::tree::{At, Placed};
use super::{defaults, near, notation};
use crate::engine::Material;
use crate::engine::health::Rules;
use crate::engine::settings::{Check, Terms};
use crate::wire::{Direction, Encapsulation, Ends, Family, Onion, gre, icmp, ip};

/// A tunnel: whatever a file can say of one, checked.
#[derive(Clone)]
pub struct Tunnel {
    /// Its name: unique.
    pub name: String,
    /// Its probes.
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
    pub(super) interface_address: Option<IpNet>,
    pub(super) target: Option<IpAddr>,
    pub(super) cadence: Cadence,
    pub(super) servers: u32,
    pub(super) mark_key_file: Option<PathBuf>,
}

impl Written {
    fn new(check: &HealthCheck, interface_address: Option<IpNet>, servers: u32) -> Self {
        let target = check.target().map(|target| target.value);
        let mark_key_file = check.mark_key_file().map(|file| file.path.clone());
        Self { interface_address, target, cadence: check.cadence(), servers, mark_key_file }
    }
}

/// All tunnels of a file, and their names, also of those that something is wrong with.
pub(super) struct Tunnels {
    pub(super) list: Vec<Tunnel>,
    /// The rules of a tunnel that says nothing of its own.
    pub(super) rules: Rules,
    names: BTreeMap<String, (u32, At)>,
}

impl Tunnels {
    /// Reads every `[[tunnel]]`.
    pub(super) fn read(root: &mut Section<'_>) -> Self {
        let defaults = defaults(root);
        let mut tunnels = Self { list: Vec::new(), rules: defaults.rules(), names: BTreeMap::new() };
        let mut paths = BTreeMap::new();
        for (index, mut section) in (0..).zip(root.sections("tunnel")) {
            let name = tunnels.name(&mut section, index);
            let tunnel = read(section, name, &defaults, &mut paths);
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

/// Reads `[defaults]`.
fn defaults(root: &mut Section<'_>) -> HealthCheck {
    let Some(mut section) = root.section("defaults", "[defaults]") else { return HealthCheck::default() };
    let check = HealthCheck::read(&mut section, "[defaults.health_check]");
    section.finish();
    check
}

/// What tells two tunnels apart when an answer comes.
type Path = (Option<Netns>, Ends, Option<u32>);

fn read(
    mut section: Section<'_>,
    name: Option<String>,
    defaults: &HealthCheck,
    paths: &mut BTreeMap<Path, At>,
) -> Option<Tunnel> {
    encapsulation(&mut section);
    let netns = section.text("netns", "a namespace's name or path", "blue", Netns::read);
    let underlay_device =
        section.text("underlay_device", "a device's name", "eth0", |text| names::device("underlay_device", text));
    let outer = ends::outer(&mut section, underlay_device.is_some());
    let interface = ends::interface(&mut section);
    let servers = section.integer("servers", 1..=defaults::SERVERS_MAX, "", defaults::SERVERS);
    let servers = servers.map_or(defaults::SERVERS, |servers| servers.value);
    let mark = section.integer("mark", 0..=u32::MAX, "", defaults::MARK).map_or(defaults::MARK, |mark| mark.value);
    let own = HealthCheck::read(&mut section, "[tunnel.health_check]");
    let health_check = own.over(defaults);
    own.refuse_return_path(health_check.style().direction, section.report());
    let onion = onion(&mut section, &health_check, outer, interface);
    let check = health_check.resolve(servers, section.report());
    let netns = netns.map(|netns| netns.value);
    if let Some(onion) = &onion {
        refuse_same_path(
            &section,
            (netns.clone(), onion.outer, onion.encapsulation.gre().and_then(|options| options.key)),
            paths,
        );
    }
    section.finish();
    Some(Tunnel {
        name: name?,
        onion: onion?,
        check,
        netns,
        underlay_device: underlay_device.map(|device| device.value),
        mark,
        device: None,
        esp: None,
        written: Written::new(&health_check, interface.map(|interface| interface.value.written), servers),
    })
}

fn encapsulation(section: &mut Section<'_>) {
    section.read("encapsulation", |value| match value.as_text() {
        Some("gre") => Ok(()),
        Some(later @ ("esp" | "device")) => {
            Err(format!("{later:?} is not supported by this version; write encapsulation = \"gre\""))
        }
        Some(_) | None => Err(expected("\"gre\"", value, "encapsulation", "\"gre\"")),
    });
    section.refuse("esp", "is not supported by this version; remove it, and write encapsulation = \"gre\"");
    section.refuse("device", "is not supported by this version; remove it, and write encapsulation = \"gre\"");
}

fn onion(
    section: &mut Section<'_>,
    health_check: &HealthCheck,
    outer: Option<Ends>,
    interface: Option<Placed<Interface>>,
) -> Option<Onion> {
    let style = health_check.style();
    let ttl = section.integer("ttl", 1..=255, "", defaults::TTL.into()).map_or(defaults::TTL.into(), |ttl| ttl.value);
    let dscp = section.read("dscp", notation::dscp).map_or(defaults::DSCP, |dscp| dscp.value);
    let encapsulation = Encapsulation::Gre(gre(section));
    let inner = ends::inner(section, style.direction, outer, interface, health_check.target());
    let (size, size_at) = health_check.size();
    let onion = Onion { style, outer: outer?, encapsulation, inner: inner?, ttl: u8::try_from(ttl).ok()?, dscp, size };
    refuse_long_packet(section, &onion, size_at);
    Some(onion)
}

fn gre(section: &mut Section<'_>) -> gre::Options {
    let Some(mut section) = section.section("gre", "[tunnel.gre]") else { return gre::Options::default() };
    let options = gre::Options {
        key: section.integer("key", 0..=u32::MAX, "", 4711).map(|key| key.value),
        sequence: section.boolean("sequence", false).is_some_and(|sequence| sequence.value),
        checksum: section.boolean("checksum", false).is_some_and(|checksum| checksum.value),
    };
    section.finish();
    options
}

fn refuse_long_packet(section: &Section<'_>, onion: &Onion, size_at: Option<At>) {
    let inner = match onion.inner.family() {
        Family::V4 => ip::V4_HEADER,
        Family::V6 => ip::V6_HEADER,
    };
    let headers = onion.encapsulation.length(onion.outer.family(), inner + icmp::HEADER);
    let (length, most) = (headers + usize::from(onion.size), defaults::PACKET_MAX);
    if let (true, Some(at)) = (length > most, size_at) {
        let room = most - headers;
        let why = format!(
            "`size` is {}, which makes an outer packet of {length} bytes, more than {most}; write size = {room} or less",
            onion.size
        );
        section.report().add(at, why);
    }
}

fn refuse_same_path(section: &Section<'_>, path: Path, paths: &mut BTreeMap<Path, At>) {
    let at = section.at();
    let first = *paths.entry(path).or_insert(at);
    if first != at {
        let first = section.report().refer(at, first);
        let why = "their answers could not be told apart; give each its own [tunnel.gre] key, or remove one";
        let same = "the same namespace, endpoints and GRE key as the one in";
        section.report().add(at, format!("this tunnel has {same} {first}: {why}"));
    }
}

impl Tunnel {
    /// Whether its answers come back inside it.
    pub(super) fn is_bidirectional(&self) -> bool {
        self.onion.style.direction == Direction::Bidirectional
    }
}
