//! `[[route]]`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::hops::Hops;
use super::names::{self, Place};
use super::section::{Section, expected};
use super::tree::{At, Placed, Value};
use super::tunnel::{self, Tunnels};
use super::{Kernel, defaults, ends, kernel};
use crate::engine::Route;

/// Reads every `[[route]]`, and returns with them the places that they are at.
pub(super) fn read_all(root: &mut Section<'_>, tunnels: &Tunnels, kernel: &Kernel) -> (Vec<Route>, Vec<Place>) {
    let mut reader =
        Reader { tunnels, kernel, places: Places::default(), seen: BTreeMap::new(), hops: Hops::default() };
    let sections = root.sections("route");
    let routes = sections.into_iter().filter_map(|section| reader.read(section)).collect();
    reader.hops.hint(root.report());
    (routes, reader.places.list)
}

/// What one route has to do with the others.
struct Reader<'a> {
    tunnels: &'a Tunnels,
    kernel: &'a Kernel,
    places: Places,
    /// Place, prefix and tunnel of the routes so far.
    seen: BTreeMap<(u32, IpNet, u32), At>,
    hops: Hops,
}

/// Places, each with its index.
#[derive(Default)]
struct Places {
    list: Vec<Place>,
    known: BTreeMap<Place, u32>,
}

impl Places {
    fn index(&mut self, place: Place) -> u32 {
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let index = *self.known.entry(place.clone()).or_insert(next);
        if index == next {
            self.list.push(place);
        }
        index
    }
}

impl Reader<'_> {
    fn read(&mut self, mut section: Section<'_>) -> Option<Route> {
        section.require("prefix", "it is what the route leads to", "\"10.20.0.0/16\"");
        section.require("tunnel", "it is the way that the route takes", "\"ams-1\"");
        section.require("priority", "of two routes to a prefix, the lower one wins", "100");
        let prefix = section.text("prefix", "a prefix", "10.20.0.0/16", prefix);
        let tunnel = self.tunnels.reference(&mut section);
        let why = ", so that a penalty of 500000 outranks any of them";
        let priority = section.integer("priority", defaults::PRIORITY, why, 100);
        let weight = section.integer("weight", defaults::WEIGHT_RANGE, "", defaults::WEIGHT);
        let table = kernel::table(&mut section).map_or(self.kernel.table, |table| table.value);
        let netns = tunnel::netns(&mut section);
        let device = section.text("device", "a device's name", "gre1", |text| names::device("device", text));
        let via = via(&mut section, prefix);
        let onlink = onlink(&mut section);
        let report = section.report();
        let at = section.at();
        section.finish();
        let (prefix, tunnel, priority) = (prefix?, tunnel?, priority?);
        let netns = netns.or_else(|| self.tunnels.netns(tunnel.value.0).cloned());
        let route = Route {
            prefix: prefix.value,
            place: self.places.index(Place { netns, table }),
            tunnel: tunnel.value.0,
            priority: priority.value,
            weight: weight.map_or(defaults::WEIGHT, |weight| weight.value),
            device: device.map(|device| device.value),
            via: via.map(|via| via.value),
            onlink,
        };
        let first = *self.seen.entry((route.place, route.prefix, route.tunnel)).or_insert(prefix.at);
        if first != prefix.at {
            let (first, name) = (report.refer(prefix.at, first), &tunnel.value.1);
            let why = format!("`prefix` {} over {name:?} stands in {first} already", prefix.value);
            report.add(prefix.at, format!("{why}; remove one of the two, or write another table in one"));
        } else if self.kernel.apply {
            self.hops.judge(&Placed { at, value: &route }, priority.at, self.kernel.mode, report);
        }
        Some(route)
    }
}

fn prefix(text: &str) -> Result<IpNet, String> {
    read_prefix("prefix", text)
}

/// Reads a prefix that nothing is set in beyond its length.
pub(super) fn read_prefix(key: &str, text: &str) -> Result<IpNet, String> {
    let wrong = |proposed: String| {
        let value = Value::Text(text.to_owned());
        expected("a prefix such as \"10.20.0.0/16\"", &value, key, &format!("{proposed:?}"))
    };
    match text.parse::<IpNet>() {
        Ok(prefix) if prefix == prefix.trunc() => Ok(prefix),
        Ok(prefix) => {
            let (length, network) = (prefix.prefix_len(), prefix.trunc());
            Err(format!("is {prefix}, which has bits set beyond the first {length}; write {key} = \"{network}\""))
        }
        Err(_) => Err(match text.parse::<IpAddr>() {
            Ok(host) => wrong(IpNet::from(host).to_string()),
            Err(_) => wrong("10.20.0.0/16".to_owned()),
        }),
    }
}

fn via(section: &mut Section<'_>, prefix: Option<Placed<IpNet>>) -> Option<Placed<IpAddr>> {
    let via = section.address("via", "10.100.0.9")?;
    let report = section.report();
    if let Some(why) = ends::unusable(via.value) {
        report.add(via.at, format!("`via` is {}, {why}", via.value));
        return None;
    }
    if ends::is_link_local(via.value) && !section.has("device") {
        let why = "a link-local address, which means nothing without its device";
        report.add(via.at, format!("`via` is {}, {why}; write device = \"gre1\" beside it", via.value));
    }
    if let Some(prefix) = prefix.filter(|prefix| prefix.value.addr().is_ipv4() != via.value.is_ipv4()) {
        let (have, need) = (ends::name(via.value), ends::name(prefix.value.addr()));
        report
            .add(via.at, format!("`via` is {have}, but `prefix` is {need}; write an {need} address, or device alone"));
    }
    Some(via)
}

/// Reads `onlink`. Only a gateway can be taken for a neighbour, and only on a device.
fn onlink(section: &mut Section<'_>) -> bool {
    let Some(Placed { at, value: true }) = section.boolean("onlink", true) else { return false };
    if !section.has("via") || !section.has("device") {
        let why = "takes `via` for a neighbour on `device`, and needs both";
        section.report().add(at, format!("`onlink` {why}; write both beside it, or remove it"));
    }
    true
}
