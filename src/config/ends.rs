//! The two pairs of addresses of a tunnel: outside, its endpoints; inside, where its probes travel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::section::{Section, expected};
use super::tree::{Placed, Value};
use crate::wire::{Direction, Ends, Family};

/// What the two endpoints are.
pub(super) const OUTER: [&str; 2] = ["it is this side's outer address", "it is the far router's outer address"];

/// Reads `local_endpoint` and `remote_endpoint`. `needed` says why they must be there, if they must;
/// `has_device` whether it is known which link they are on.
pub(super) fn outer(section: &mut Section<'_>, needed: Option<[&str; 2]>, has_device: bool) -> Option<Ends> {
    // One alone is half of something.
    let either = section.has("local_endpoint") || section.has("remote_endpoint");
    if let Some([local, remote]) = needed.or(either.then_some(OUTER)) {
        section.require("local_endpoint", local, "\"198.51.100.1\"");
        section.require("remote_endpoint", remote, "\"203.0.113.10\"");
    }
    let local = section.address("local_endpoint", "198.51.100.1");
    let remote = section.address("remote_endpoint", "203.0.113.10");
    let report = section.report();
    for (key, address) in [("local_endpoint", local), ("remote_endpoint", remote)] {
        let Some(Placed { at, value }) = address else { continue };
        if let Some(why) = unusable(value) {
            report.add(at, format!("`{key}` is {value}, {why}"));
        } else if is_link_local(value) && !has_device {
            let why = "a link-local address, which means nothing without its device";
            report.add(at, format!("`{key}` is {value}, {why}; write underlay_device = \"eth0\" beside it"));
        }
    }
    let (local, remote) = (local?, remote?);
    if local.value == remote.value {
        let why = "the same as `local_endpoint`: a tunnel leads from one host to another; write the far router's";
        report.add(remote.at, format!("`remote_endpoint` is {}, {why} address", remote.value));
    }
    let ends = Ends::new(local.value, remote.value);
    if ends.is_none() {
        let (far, near) = (name(remote.value), name(local.value));
        let why = "one outer header holds addresses of one family";
        let wanted = format!("write an {near} address, or change `local_endpoint`");
        report.add(remote.at, format!("`remote_endpoint` is {far}, but `local_endpoint` is {near}: {why}; {wanted}"));
    }
    ends
}

/// This side's and the far side's address within an interface's prefix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interface {
    pub(super) written: IpNet,
    pub(super) ends: Ends,
}

/// Reads `interface_address`.
pub(super) fn interface(section: &mut Section<'_>) -> Option<Placed<Interface>> {
    const KIND: &str = "this side's address and its prefix, a /31 or /30 (IPv6: /127 or /126)";
    const KEY: &str = "interface_address";
    section.text(KEY, KIND, "10.100.0.8/31", |text| {
        let value = Value::Text(text.to_owned());
        let Ok(written) = text.parse::<IpNet>() else {
            let address = text.split('/').next().and_then(|address| address.parse::<IpAddr>().ok());
            let proposed = address.map_or_else(|| "10.100.0.8/31".to_owned(), point_to_point);
            return Err(expected(KIND, &value, KEY, &format!("{proposed:?}")));
        };
        let longest = written.max_prefix_len();
        if ![longest - 1, longest - 2].contains(&written.prefix_len()) {
            let proposed = point_to_point(written.addr());
            return Err(expected(KIND, &value, KEY, &format!("{proposed:?}")));
        }
        if let Some(why) = unusable(written.addr()) {
            return Err(format!("is {written}, {why}"));
        }
        let far = other_end(written)?;
        Ends::new(written.addr(), far).map(|ends| Interface { written, ends }).ok_or_else(String::new)
    })
}

fn point_to_point(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}/31"),
        IpAddr::V6(address) => format!("{address}/127"),
    }
}

/// The other address of a /31 or /127 (RFC 3021, RFC 6164), the other usable one of a /30 or /126.
pub(super) fn other_end(written: IpNet) -> Result<IpAddr, String> {
    let beside = |mask: u8| match written.addr() {
        IpAddr::V4(address) => IpAddr::from(Ipv4Addr::from_bits(address.to_bits() ^ u32::from(mask))),
        IpAddr::V6(address) => IpAddr::from(Ipv6Addr::from_bits(address.to_bits() ^ u128::from(mask))),
    };
    if written.prefix_len() + 1 == written.max_prefix_len() {
        return Ok(beside(1));
    }
    let last_byte = match written.addr() {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let (what, one, two) = match (last_byte & 3, written) {
        (0, IpNet::V4(_)) => ("the network address", beside(1), beside(2)),
        (0, IpNet::V6(_)) => ("the routers' anycast address (RFC 4291 section 2.6.1)", beside(1), beside(2)),
        (3, IpNet::V4(_)) => ("the broadcast address", beside(2), beside(1)),
        (3, IpNet::V6(_)) => ("the last address", beside(2), beside(1)),
        _ => return Ok(beside(3)),
    };
    let bits = written.prefix_len();
    Err(format!("is {what} of {}; write \"{one}/{bits}\" or \"{two}/{bits}\"", written.trunc()))
}

/// The inner addresses: those of the interface, or the endpoints for a probe whose answer comes
/// back bare; the target in place of the far one.
pub(super) fn inner(
    section: &Section<'_>,
    direction: Direction,
    outer: Option<Ends>,
    interface: Option<Placed<Interface>>,
    target: Option<Placed<IpAddr>>,
) -> Option<Ends> {
    let ends = between(section, direction, outer, interface)?;
    let Some(target) = target else { return Some(ends) };
    if let Some(why) = wrong_target(target.value, ends, direction) {
        section.report().add(target.at, format!("`target` is {}, {why}", target.value));
        return None;
    }
    Ends::new(ends.local(), target.value)
}

/// The same, without a target.
pub(super) fn between(
    section: &Section<'_>,
    direction: Direction,
    outer: Option<Ends>,
    interface: Option<Placed<Interface>>,
) -> Option<Ends> {
    match direction {
        Direction::Bidirectional => {
            let why = "the inner addresses of a bidirectional probe come from it";
            section.require("interface_address", why, "\"10.100.0.8/31\"");
            interface.map(|interface| interface.value.ends)
        }
        Direction::Unidirectional => outer,
    }
}

pub(super) fn wrong_target(target: IpAddr, ends: Ends, direction: Direction) -> Option<String> {
    if let Some(why) = unusable(target) {
        return Some(why.to_owned());
    }
    let source = match direction {
        Direction::Bidirectional => "`interface_address`",
        Direction::Unidirectional => "`local_endpoint` (the other end of a unidirectional probe)",
    };
    let (local, family) = (ends.local(), name(ends.local()));
    if Family::of(target) != ends.family() {
        return Some(format!("but {source} is {family}: both are in one header; write an {family} address"));
    }
    (target == local).then(|| format!("this side's own address, {source}; write an address behind the tunnel"))
}

/// Why no tunnel can end at an address.
pub(super) fn unusable(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("an IPv4 address in IPv6's clothes; write it as IPv4"),
        _ if address.is_unspecified() => Some("the unspecified address; write a host's own address"),
        _ if address.is_multicast() => Some("a multicast address; write a host's own address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address; write a host's own address"),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The family's name, for a message.
pub(super) const fn name(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}
