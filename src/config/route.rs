//! `[[route]]`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::defaults;
use super::ends;
use super::names;
use super::section::{Section, expected};
use super::tree::{At, Placed, Value};
use super::tunnel::Tunnels;
use crate::engine::Route;

/// Reads every `[[route]]`.
pub(super) fn read_all(root: &mut Section<'_>, tunnels: &Tunnels) -> Vec<Route> {
    let mut seen = BTreeMap::new();
    root.sections("route").into_iter().filter_map(|section| read(section, tunnels, &mut seen)).collect()
}

fn read(mut section: Section<'_>, tunnels: &Tunnels, seen: &mut BTreeMap<(IpNet, u32), At>) -> Option<Route> {
    section.require("prefix", "it is what the route leads to", "\"10.20.0.0/16\"");
    section.require("tunnel", "it is the way that the route takes", "\"ams-1\"");
    section.require("priority", "of two routes to a prefix, the lower one wins", "100");
    let prefix = section.text("prefix", "a prefix", "10.20.0.0/16", prefix);
    let tunnel = tunnels.reference(&mut section);
    let why = ", so that a penalty of 500000 outranks any of them";
    let priority = section.integer("priority", defaults::PRIORITY, why, 100);
    let weight = section.integer("weight", defaults::WEIGHT_RANGE, "", defaults::WEIGHT);
    let device = section.text("device", "a device's name", "gre1", |text| names::device("device", text));
    let via = via(&mut section, prefix);
    if let (Some(prefix), Some(tunnel)) = (prefix, &tunnel) {
        refuse_same(&section, prefix, tunnel, seen);
    }
    section.finish();
    Some(Route {
        prefix: prefix?.value,
        tunnel: tunnel?.value.0,
        priority: priority?.value,
        weight: weight.map_or(defaults::WEIGHT, |weight| weight.value),
        device: device.map(|device| device.value),
        via: via.map(|via| via.value),
    })
}

fn prefix(text: &str) -> Result<IpNet, String> {
    let wrong = |proposed: String| {
        let value = Value::Text(text.to_owned());
        expected("a prefix such as \"10.20.0.0/16\"", &value, "prefix", &format!("{proposed:?}"))
    };
    match text.parse::<IpNet>() {
        Ok(prefix) if prefix == prefix.trunc() => Ok(prefix),
        Ok(prefix) => {
            let (length, network) = (prefix.prefix_len(), prefix.trunc());
            Err(format!("is {prefix}, which has bits set beyond the first {length}; write prefix = \"{network}\""))
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
    if let Some(prefix) = prefix.filter(|prefix| prefix.value.addr().is_ipv4() != via.value.is_ipv4()) {
        let (have, need) = (ends::name(via.value), ends::name(prefix.value.addr()));
        report
            .add(via.at, format!("`via` is {have}, but `prefix` is {need}; write an {need} address, or device alone"));
    }
    Some(via)
}

fn refuse_same(
    section: &Section<'_>,
    prefix: Placed<IpNet>,
    tunnel: &Placed<(u32, String)>,
    seen: &mut BTreeMap<(IpNet, u32), At>,
) {
    let (index, name) = &tunnel.value;
    let first = *seen.entry((prefix.value, *index)).or_insert(prefix.at);
    if first != prefix.at {
        let first = section.report().refer(prefix.at, first);
        let why = format!("`prefix` {} over {name:?} stands in {first} already; remove one of the two", prefix.value);
        section.report().add(prefix.at, why);
    }
}
