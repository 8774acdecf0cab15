//! `[[rule]]`: policy rules, by which packets look into another table.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::names::Netns;
use super::near::nearest;
use super::notation;
use super::route::read_prefix;
use super::section::{Section, expected};
use super::source::Report;
use super::tree::{At, Placed, Value};
use super::{Kernel, defaults, ends, kernel, tunnel};
use crate::steer::Rule;
use crate::wire::Family;

/// A rule, and the namespace that it is in.
type Located = (Option<Netns>, Rule);

/// Reads every `[[rule]]`. One that holds for both families becomes two.
pub(super) fn read_all(root: &mut Section<'_>, kernel: &Kernel) -> Vec<Located> {
    let mut seen = BTreeMap::new();
    root.sections("rule").into_iter().flat_map(|section| read(section, kernel, &mut seen)).collect()
}

fn read(mut section: Section<'_>, kernel: &Kernel, seen: &mut BTreeMap<Located, At>) -> Vec<Located> {
    section.require("table", "packets that match look into it", "100");
    section.require("priority", "of the rules that match, the lowest one is asked first", "1000");
    let selector = Selector::read(&mut section);
    let table = kernel::table(&mut section);
    let why = ", which is after the kernel's own addresses and before the main table";
    let priority = section.integer("priority", defaults::RULE_PRIORITY, why, 1_000);
    let family = section.choice("family", &[("ipv4", Family::V4), ("ipv6", Family::V6)]);
    let netns = tunnel::netns(&mut section);
    let (report, at) = (section.report(), section.at());
    if !kernel.apply {
        let why = "this [[rule]] would be made by nobody";
        report.add(at, format!("{why}; write apply = true in [kernel], or remove the rule"));
    }
    let whole = selector.is_whole(&section);
    selector.refuse_everything(&section);
    section.finish();
    let families = selector.families(family, report);
    // Of half a rule it cannot be said whether it is another one's double.
    let (Some(table), Some(priority), true) = (table, priority, whole) else { return Vec::new() };
    let rule = |family| (netns.clone(), selector.rule(family, table.value, priority.value));
    let rules: Vec<Located> = families.into_iter().map(rule).collect();
    for rule in &rules {
        let first = *seen.entry(rule.clone()).or_insert(at);
        if first != at {
            let first = report.refer(at, first);
            report.add(at, format!("this [[rule]] is the same as the one in {first}; remove one of the two"));
            break;
        }
    }
    rules
}

/// Which packets a rule is for.
struct Selector {
    source: Option<Placed<IpNet>>,
    destination: Option<Placed<IpNet>>,
    fwmark: Option<Placed<(u32, u32)>>,
    protocol: Option<Placed<u8>>,
    ports: Option<Placed<(u16, u16)>>,
}

impl Selector {
    fn read(section: &mut Section<'_>) -> Self {
        let source = prefix(section, "source");
        let destination = prefix(section, "destination");
        let fwmark = section.read("fwmark", notation::fwmark);
        let protocol = section.read("protocol", protocol);
        let ports = section.read("destination_port", notation::ports);
        let selector = Self { source, destination, fwmark, protocol, ports };
        selector.refuse_ports(section);
        selector
    }

    /// Whether everything that was written could be read, and something was.
    fn is_whole(&self, section: &Section<'_>) -> bool {
        let read = [
            ("source", self.source.is_some()),
            ("destination", self.destination.is_some()),
            ("fwmark", self.fwmark.is_some()),
            ("protocol", self.protocol.is_some()),
            ("destination_port", self.ports.is_some()),
        ];
        read.iter().all(|&(key, read)| read == section.has(key)) && read.iter().any(|&(_, read)| read)
    }

    /// A port is of a protocol that has ports.
    fn refuse_ports(&self, section: &Section<'_>) {
        let Some(ports) = self.ports else { return };
        if self.protocol.is_some_and(|protocol| WITH_PORTS.contains(&protocol.value)) {
            return;
        }
        if self.protocol.is_some() || !section.has("protocol") {
            let why =
                "is a port of \"tcp\", \"udp\", \"udplite\", \"sctp\" or \"dccp\", and `protocol` is none of them";
            section.report().add(ports.at, format!("`destination_port` {why}; write protocol = \"udp\" beside it"));
        }
    }

    /// Such a rule would take every packet of this host away from its main table.
    fn refuse_everything(&self, section: &Section<'_>) {
        if !["source", "destination", "fwmark", "protocol"].into_iter().any(|key| section.has(key)) {
            let why = "this [[rule]] matches every packet";
            let what = "write source, destination, fwmark or protocol in it";
            section.report().add(section.at(), format!("{why}; {what}"));
        }
    }

    /// The families that it can be of: that of its prefixes and protocol, or else the one that is
    /// written, or both. None if they contradict each other.
    fn families(&self, written: Option<Placed<Family>>, report: &Report) -> Vec<Family> {
        let prefix = |key, prefix: Option<Placed<IpNet>>| Some((key, prefix?.at, family(prefix?.value)));
        let protocol = self.protocol.and_then(|Placed { at, value }| Some(("protocol", at, family_of(value)?)));
        let told = [prefix("source", self.source), prefix("destination", self.destination), protocol];
        let mut told = told.into_iter().flatten();
        let Some((first, _, family)) = told.next() else {
            return written.map_or_else(|| vec![Family::V4, Family::V6], |written| vec![written.value]);
        };
        let mut families = vec![family];
        for (key, at, _) in told.filter(|(.., other)| *other != family) {
            families.clear();
            let why = format!("of another family than `{first}`, and no packet is of both");
            let name = name(family);
            report.add(at, format!("`{key}` is {why}; write an {name} one, or two rules, or remove it"));
        }
        if let Some(written) = written {
            families.clear();
            report.add(written.at, format!("`family` is said by `{first}` already; remove it"));
        }
        families
    }

    fn rule(&self, family: Family, table: u32, priority: u32) -> Rule {
        Rule {
            family,
            priority,
            table,
            source: self.source.map(|source| source.value),
            destination: self.destination.map(|destination| destination.value),
            fwmark: self.fwmark.map(|fwmark| fwmark.value),
            protocol: self.protocol.map(|protocol| protocol.value),
            ports: self.ports.map(|ports| ports.value),
        }
    }
}

fn family(prefix: IpNet) -> Family {
    match prefix {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    }
}

fn name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

fn prefix(section: &mut Section<'_>, key: &'static str) -> Option<Placed<IpNet>> {
    let prefix = section.text(key, "a prefix", "10.20.0.0/16", |text| {
        // One host is as good a source as any.
        text.parse::<IpAddr>().map(IpNet::from).or_else(|_| read_prefix(key, text))
    })?;
    if prefix.value.prefix_len() == 0 {
        let (family, name) = (name(family(prefix.value)).to_lowercase(), ends::name(prefix.value.addr()));
        let why = format!("`{key}` is {}, which every {name} packet matches", prefix.value);
        section.report().add(prefix.at, format!("{why}; remove it, and write family = {family:?} for {name} only"));
        return None;
    }
    Some(prefix)
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// Names of the IP protocols (IANA's registry of protocol numbers) that traffic consists of.
const PROTOCOLS: [(&str, u8); 12] = [
    ("tcp", 6),
    ("udp", 17),
    ("icmp", ICMP),
    ("icmpv6", ICMPV6),
    ("igmp", 2),
    ("ipip", 4),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("dccp", 33),
    ("sctp", 132),
    ("udplite", 136),
];

/// An IP protocol, by name or number.
fn protocol(value: &Value) -> Result<u8, String> {
    let name = value.as_text().unwrap_or_default();
    let named = PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    // To the kernel 0 is every protocol.
    let number = value.as_integer().and_then(|number| u8::try_from(number).ok()).filter(|number| *number > 0);
    named.or(number).ok_or_else(|| {
        let kind = "the name of an IP protocol, such as \"tcp\", \"gre\" or \"esp\", or its number from 1 to 255";
        let near = nearest(name, PROTOCOLS.iter().map(|(name, _)| *name)).unwrap_or("tcp");
        expected(kind, value, "protocol", &format!("{near:?}"))
    })
}

/// The family of a protocol that only one has.
const fn family_of(protocol: u8) -> Option<Family> {
    match protocol {
        ICMP => Some(Family::V4),
        ICMPV6 => Some(Family::V6),
        _ => None,
    }
}

/// Whether a rule's prefixes or protocol say its family.
pub(super) fn tells_family(rule: &Rule) -> bool {
    rule.source.or(rule.destination).is_some() || rule.protocol.and_then(family_of).is_some()
}

/// A protocol as [`protocol`] reads it: by name, if it has one.
pub(super) fn protocol_written(number: u8) -> String {
    let name = PROTOCOLS.iter().find(|(_, value)| *value == number);
    name.map_or_else(|| number.to_string(), |(name, _)| format!("{name:?}"))
}
