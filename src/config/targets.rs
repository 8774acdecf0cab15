//! `targets` and `quorum`: several far inner addresses, some of which must answer.

use std::net::IpAddr;

use super::ends::wrong_target;
use super::section::{Section, expected};
use super::source::Report;
use super::tree::{Placed, Value};
use crate::engine::Targets;
use crate::wire::{Direction, Ends};

/// Addresses, each with its place.
pub(super) type Addresses = Vec<Placed<IpAddr>>;

const EXAMPLE: &str = "[\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\"]";

/// Reads `targets`.
pub(super) fn read(section: &mut Section<'_>) -> Option<Placed<Addresses>> {
    let read = section.read("targets", addresses)?;
    let repeated = |(index, own): (usize, &Placed<IpAddr>)| {
        read.value[..index].iter().any(|earlier| earlier.value == own.value).then_some(*own)
    };
    if let Some(own) = read.value.iter().enumerate().find_map(repeated) {
        section.report().add(own.at, format!("`targets` has {} twice; write another address, or remove it", own.value));
        return None;
    }
    Some(read)
}

fn addresses(value: &Value) -> Result<Addresses, String> {
    let kind = "a list of IPv4 or IPv6 addresses";
    let items = value.as_list().ok_or_else(|| expected(kind, value, "targets", EXAMPLE))?;
    let address = |item: &Placed<Value>| {
        let parsed = item.value.as_text().and_then(|text| text.parse().ok());
        parsed.map(|value| Placed { at: item.at, value }).ok_or_else(|| {
            let found = item.value.describe();
            format!("must be {kind}, and {found} is none; write targets = {EXAMPLE}")
        })
    };
    let all: Addresses = items.iter().map(address).collect::<Result<_, _>>()?;
    match all.len() {
        0 => Err(format!("is empty; write targets = {EXAMPLE}, or remove it")),
        1 => Err(format!("has one address; write target = \"{}\"", all[0].value)),
        count if count > Targets::MAX => {
            Err(format!("has {count} addresses, more than {}; write the most telling ones", Targets::MAX))
        }
        _ => Ok(all),
    }
}

/// Reads `quorum`.
pub(super) fn quorum(section: &mut Section<'_>) -> Option<Placed<u32>> {
    let most = u32::try_from(Targets::MAX).unwrap_or(u32::MAX);
    section.integer("quorum", 1..=most, " (how many of `targets` must answer)", 2)
}

/// How many must answer if nobody says so: more than half.
pub(super) const fn majority(count: usize) -> usize {
    count / 2 + 1
}

/// The inner addresses of the probes to the first of several targets, and the others.
pub(super) fn resolve(
    report: &Report,
    direction: Direction,
    ends: Ends,
    targets: &Addresses,
    quorum: Option<Placed<u32>>,
) -> Option<(Ends, Targets)> {
    let mut is_wrong = false;
    for Placed { at, value } in targets {
        if let Some(why) = wrong_target(*value, ends, direction) {
            report.add(*at, format!("one of `targets` is {value}, {why}"));
            is_wrong = true;
        }
    }
    let count = targets.len();
    let wanted = quorum.map_or_else(|| majority(count), |quorum| usize::try_from(quorum.value).unwrap_or(usize::MAX));
    if let Some(quorum) = quorum.filter(|_| wanted > count) {
        let why = format!("`quorum` is {}, and there are {count} `targets`", quorum.value);
        report.add(quorum.at, format!("{why}; write quorum = {count} or less"));
        is_wrong = true;
    }
    let mut far = targets.iter().filter(|_| !is_wrong).map(|target| target.value);
    let inner = Ends::new(ends.local(), far.next()?)?;
    Some((inner, Targets { further: far.collect(), quorum: wanted }))
}
