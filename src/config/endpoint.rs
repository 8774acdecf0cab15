//! `[[endpoint]]`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::names::{self, Netns};
use super::notation::written;
use super::section::{Section, expected};
use super::tree::{At, Placed, Value};
use super::{defaults, ends, tunnel};
use crate::wire::Family;

/// An endpoint: an address beyond the far routers, probed in no tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The name in every output.
    pub name: String,
    /// What is probed.
    pub address: IpAddr,
    /// The source of its probes; `None` leaves it to the kernel.
    pub source: Option<IpAddr>,
    /// The namespace whose routes its probes take; `None` is the one where adit runs.
    pub netns: Option<Netns>,
    /// The firewall mark of its probes; 0 is none.
    pub mark: u32,
    /// Time from one round to the next.
    pub interval: Duration,
    /// The same while it is not reachable.
    pub retry_interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Probes of a round.
    pub count: u32,
}

/// Reads every `[[endpoint]]`.
pub(super) fn read_all(root: &mut Section<'_>) -> Vec<Endpoint> {
    let sections = root.sections("endpoint");
    if let Some(surplus) = sections.get(defaults::ENDPOINTS_MAX) {
        let (count, most) = (sections.len(), defaults::ENDPOINTS_MAX);
        let why = format!("there are {count} endpoints, more than {most}: remove this one and those after it");
        surplus.report().add(surplus.at(), why);
    }
    let mut seen = BTreeMap::new();
    sections.into_iter().filter_map(|section| read(section, &mut seen)).collect()
}

fn read(mut section: Section<'_>, seen: &mut BTreeMap<String, At>) -> Option<Endpoint> {
    section.require("address", "it is what is probed", "\"10.20.0.5\"");
    let name = name(&mut section, seen);
    let address = address(&mut section);
    let source = source(&mut section, address);
    let netns = tunnel::netns(&mut section);
    let mark = section.integer("mark", 0..=u32::MAX, "", defaults::MARK);
    let range = defaults::ENDPOINT_INTERVAL_RANGE;
    let interval = section.duration("interval", range.clone(), defaults::ENDPOINT_INTERVAL);
    let interval = interval.map_or(defaults::ENDPOINT_INTERVAL, |interval| interval.value);
    let retry = section.duration("retry_interval", range, defaults::ENDPOINT_RETRY);
    let timeout = section.duration("timeout", defaults::TIMEOUT_RANGE, defaults::ENDPOINT_TIMEOUT);
    let count = section.integer("count", defaults::ENDPOINT_COUNT_RANGE, "", defaults::ENDPOINT_COUNT);
    if let Some(Placed { at, value }) = retry.filter(|retry| retry.value > interval) {
        let (value, most) = (written(value), written(interval));
        let why = format!("longer than `interval`, {most}; write retry_interval = {most:?} or less, or remove it");
        section.report().add(at, format!("`retry_interval` is {value}, {why}"));
    }
    section.finish();
    Some(Endpoint {
        name: name?,
        address: address?.value,
        source: source.map(|source| source.value),
        netns,
        mark: mark.map_or(defaults::MARK, |mark| mark.value),
        interval,
        retry_interval: retry.map_or(defaults::ENDPOINT_RETRY, |retry| retry.value).min(interval),
        timeout: timeout.map_or(defaults::ENDPOINT_TIMEOUT, |timeout| timeout.value),
        count: count.map_or(defaults::ENDPOINT_COUNT, |count| count.value),
    })
}

/// Reads the name, and makes sure that no other endpoint has it.
fn name(section: &mut Section<'_>, seen: &mut BTreeMap<String, At>) -> Option<String> {
    section.require("name", "every output calls the endpoint by it", "\"erp\"");
    let name = section.text("name", "a name", "erp", names::tunnel)?;
    let first = *seen.entry(name.value.clone()).or_insert(name.at);
    if first != name.at {
        let first = section.report().refer(name.at, first);
        let why = format!("`name` {:?} is taken by the endpoint in {first}; write another name", name.value);
        section.report().add(name.at, why);
    }
    Some(name.value)
}

fn address(section: &mut Section<'_>) -> Option<Placed<IpAddr>> {
    const KIND: &str = "an IPv4 or IPv6 address";
    let address = section.text("address", KIND, "10.20.0.5", |text| {
        text.parse::<IpAddr>().map_err(|_| {
            let value = Value::Text(text.to_owned());
            match text.split_once('/') {
                Some((address, _)) => expected(KIND, &value, "address", &format!("{address:?}")),
                // What a name leads to may be another host tomorrow.
                None => format!(
                    "must be {KIND}, not {}: names are not looked up; write the one that it has, as in \
                     address = \"10.20.0.5\"",
                    value.describe()
                ),
            }
        })
    })?;
    let why = ends::unusable(address.value).or_else(|| match address.value {
        it if it.is_loopback() => Some("this host itself; write an address beyond the far routers"),
        it if ends::is_link_local(it) => Some("a link-local address, to which no route leads; write a global one"),
        _ => None,
    });
    if let Some(why) = why {
        section.report().add(address.at, format!("`address` is {}, {why}", address.value));
        return None;
    }
    Some(address)
}

fn source(section: &mut Section<'_>, address: Option<Placed<IpAddr>>) -> Option<Placed<IpAddr>> {
    let source = section.address("source", "10.0.0.1")?;
    let (value, report) = (source.value, section.report());
    if let Some(why) = ends::unusable(value) {
        report.add(source.at, format!("`source` is {value}, {why}"));
    } else if let Some(address) = address.filter(|address| Family::of(address.value) != Family::of(value)) {
        let (have, need) = (ends::name(value), ends::name(address.value));
        let why = format!("but `address` is {need}: both are in one header; write an {need} address, or remove it");
        report.add(source.at, format!("`source` is {have}, {why}"));
    }
    Some(source)
}
