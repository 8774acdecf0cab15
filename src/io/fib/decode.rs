//! Messages of rtnetlink(7) as values. Only what matters here is looked at, so that a route of somebody
//! else's costs little and may be as strange as it likes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::io::netlink::{attributes, word};
use crate::steer::{Foreign, Hop, KernelRoute, Link, Rule, Way};
use crate::wire::Family;

// Kinds of messages (linux/rtnetlink.h).
pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
pub(super) const RTM_GETLINK: u16 = 18;
pub(super) const RTM_NEWADDR: u16 = 20;
pub(super) const RTM_DELADDR: u16 = 21;
pub(super) const RTM_NEWROUTE: u16 = 24;
pub(super) const RTM_DELROUTE: u16 = 25;
pub(super) const RTM_GETROUTE: u16 = 26;
pub(super) const RTM_NEWRULE: u16 = 32;
pub(super) const RTM_DELRULE: u16 = 33;
pub(super) const RTM_GETRULE: u16 = 34;

/// `RTNH_F_ONLINK`.
pub(super) const ONLINK: u32 = 4;
/// `RTM_F_CLONED`: what the kernel has found for one destination, not a route.
const CLONED: u32 = 0x200;
/// `RT_TABLE_LOCAL`: the kernel's own, for the addresses of this host.
const LOCAL_TABLE: u32 = 255;

// Kinds of routes (`rtm_type`).
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
const MULTICAST: u8 = 5;
const UNREACHABLE: u8 = 7;

// Attributes of a route.
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_FLOW: u16 = 11;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_PREF: u16 = 20;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_EXPIRES: u16 = 23;
const RTA_NH_ID: u16 = 30;

// Attributes of a rule (linux/fib_rules.h).
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_FLOW: u16 = 11;
const FRA_TUN_ID: u16 = 12;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_L3MDEV: u16 = 19;
const FRA_UID_RANGE: u16 = 20;
const FRA_PROTOCOL: u16 = 21;
const FRA_IP_PROTO: u16 = 22;
const FRA_SPORT_RANGE: u16 = 23;
const FRA_DPORT_RANGE: u16 = 24;
/// `FR_ACT_TO_TBL`.
const TO_TABLE: u8 = 1;
/// `FIB_RULE_INVERT`.
const INVERTED: u32 = 2;

/// `IFF_UP`.
const UP: u32 = 1;
const IFLA_IFNAME: u16 = 3;

/// A route but for where it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub(super) family: Family,
    pub(super) protocol: u8,
    pub(super) table: u32,
    pub(super) prefix: IpNet,
    metric: u32,
    kind: u8,
    flags: u32,
    /// It is for some packets only, by more than their destination (type of service, source).
    pub(super) choosy: bool,
    attributes: &'a [u8],
}

impl<'a> Head<'a> {
    /// Reads a message's fixed part (`struct rtmsg`) and key.
    pub(super) fn read(payload: &'a [u8]) -> Option<Self> {
        let (&[number, length, source, tos, table, protocol, _, kind], rest) = payload.split_first_chunk()?;
        let (flags, attributes) = rest.split_first_chunk()?;
        let family = family(number)?;
        let (mut destination, mut long_table, mut metric) = (None, None, 0);
        for (kind, value) in crate::io::netlink::attributes(attributes) {
            match kind {
                RTA_DST => destination = Some(address(value)?),
                RTA_TABLE => long_table = word(value),
                RTA_PRIORITY => metric = word(value)?,
                _ => {}
            }
        }
        Some(Self {
            family,
            protocol,
            table: long_table.unwrap_or_else(|| table.into()),
            prefix: prefix(family, destination, length)?,
            metric,
            kind,
            flags: u32::from_ne_bytes(*flags),
            choosy: tos != 0 || source != 0,
            attributes,
        })
    }

    /// Whether it is what an administrator or a routing daemon would call a route.
    pub(super) fn is_route(&self) -> bool {
        self.flags & CLONED == 0 && !(self.table == LOCAL_TABLE && (LOCAL..=MULTICAST).contains(&self.kind))
    }

    /// The next-hop object that it leads over.
    pub(super) fn object(&self) -> Option<u32> {
        let mut attributes = attributes(self.attributes);
        attributes.find_map(|(kind, value)| if kind == RTA_NH_ID { word(value) } else { None })
    }

    pub(super) const fn foreign(&self) -> Foreign {
        Foreign { table: self.table, prefix: self.prefix, metric: self.metric, protocol: self.protocol }
    }

    pub(super) fn route(&self) -> KernelRoute {
        KernelRoute { table: self.table, prefix: self.prefix, metric: self.metric, way: self.way() }
    }

    fn way(&self) -> Way {
        let mut alone = Hop { device: 0, via: None, onlink: self.flags & ONLINK != 0, weight: 1 };
        let (mut hops, mut object, mut other) = (None, None, false);
        for (kind, value) in attributes(self.attributes) {
            match kind {
                RTA_OIF => alone.device = word(value).unwrap_or(0),
                RTA_GATEWAY | RTA_VIA => alone.via = gateway(kind, value),
                RTA_MULTIPATH => hops = several(value),
                RTA_NH_ID => object = word(value),
                // The kernel says so of every IPv6 route: 0 is medium.
                RTA_PREF => other |= value.iter().any(|&byte| byte != 0),
                _ => other |= strange(kind),
            }
        }
        match (object, self.kind) {
            (Some(object), _) => Way::Object(object),
            _ if other => Way::Other,
            (None, UNREACHABLE) => Way::Unreachable,
            (None, UNICAST) => hops.unwrap_or_else(|| Some(vec![alone])).map_or(Way::Other, Way::Hops),
            _ => Way::Other,
        }
    }
}

/// Attributes that no route of ours has. What this list does not know is passed over: a newer kernel may
/// tell more of the same route.
const fn strange(kind: u16) -> bool {
    matches!(kind, RTA_SRC | RTA_IIF | RTA_PREFSRC | RTA_METRICS | RTA_FLOW | RTA_ENCAP_TYPE | RTA_EXPIRES)
}

/// The hops of a route with several, in the kernel's order; `Some(None)` if there is one that is never ours.
#[expect(clippy::option_option, reason = "the outer one is whether there are several")]
fn several(mut bytes: &[u8]) -> Option<Option<Vec<Hop>>> {
    let mut hops = Vec::new();
    // `struct rtnexthop`: length, flags, weight less 1, device.
    while let Some((&[a, b, flags, weight, c, d, e, f], _)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let Some(inner) = bytes.get(8..length) else { break };
        let mut hop = Hop {
            device: u32::from_ne_bytes([c, d, e, f]),
            via: None,
            onlink: u32::from(flags) & ONLINK != 0,
            weight: u16::from(weight) + 1,
        };
        for (kind, value) in attributes(inner) {
            match kind {
                RTA_GATEWAY | RTA_VIA => hop.via = gateway(kind, value),
                _ if strange(kind) => return Some(None),
                _ => {}
            }
        }
        hops.push(hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Some(hops))
}

/// A gateway; one of the other family has its family before it (`struct rtvia`).
fn gateway(kind: u16, value: &[u8]) -> Option<IpAddr> {
    address(if kind == RTA_VIA { value.get(2..)? } else { value })
}

/// A rule of ours, if this is one, and one that could be.
pub(super) fn rule(tag: u8, payload: &[u8]) -> Option<Rule> {
    // `struct fib_rule_hdr`.
    let (&[number, to, from, tos, table, _, _, action], rest) = payload.split_first_chunk()?;
    let (flags, rest) = rest.split_first_chunk()?;
    let family = family(number)?;
    let mut rule = Rule {
        family,
        priority: 0,
        table: table.into(),
        source: None,
        destination: None,
        fwmark: None,
        protocol: None,
        ports: None,
    };
    let mut ours = false;
    let mut other = tos != 0 || action != TO_TABLE || u32::from_ne_bytes(*flags) & INVERTED != 0;
    for (kind, value) in attributes(rest) {
        match kind {
            FRA_PROTOCOL => ours = value == [tag],
            FRA_PRIORITY => rule.priority = word(value)?,
            FRA_TABLE => rule.table = word(value)?,
            FRA_SRC => rule.source = Some(prefix(family, Some(address(value)?), from)?),
            FRA_DST => rule.destination = Some(prefix(family, Some(address(value)?), to)?),
            FRA_FWMARK => rule.fwmark = Some((word(value)?, rule.fwmark.map_or(u32::MAX, |(_, mask)| mask))),
            FRA_FWMASK => rule.fwmark = Some((rule.fwmark.map_or(0, |(mark, _)| mark), word(value)?)),
            FRA_IP_PROTO => rule.protocol = value.first().copied(),
            FRA_DPORT_RANGE => rule.ports = ports(value),
            // The kernel says of every rule that it does not.
            FRA_SUPPRESS_PREFIXLEN | FRA_SUPPRESS_IFGROUP => other |= word(value) != Some(u32::MAX),
            FRA_IIFNAME | FRA_OIFNAME | FRA_GOTO | FRA_FLOW | FRA_TUN_ID | FRA_UID_RANGE | FRA_SPORT_RANGE => {
                other = true;
            }
            FRA_L3MDEV => other |= value != [0],
            _ => {}
        }
    }
    (ours && !other).then_some(rule)
}

/// Whether a rule bears our tag, be it as strange as it likes.
pub(super) fn rule_is_ours(tag: u8, payload: &[u8]) -> bool {
    let rest = payload.get(12..).unwrap_or_default();
    attributes(rest).any(|(kind, value)| kind == FRA_PROTOCOL && value == [tag])
}

fn ports(value: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *value.first_chunk()?;
    Some((u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])))
}

/// A device, if this is about one: a bridge also tells of its ports, in the same words.
pub(super) fn link(payload: &[u8]) -> Option<Link> {
    // `struct ifinfomsg`: family, padding, kind of device, index, flags, which of them changed.
    let (&[0, _, _, _, a, b, c, d], rest) = payload.split_first_chunk()? else { return None };
    let (flags, rest) = rest.split_first_chunk()?;
    let name = attributes(rest.get(4..)?).find(|(kind, _)| *kind == IFLA_IFNAME).map(|(_, value)| value)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    Some(Link {
        index: u32::from_ne_bytes([a, b, c, d]),
        name: String::from_utf8_lossy(name).into_owned(),
        up: u32::from_ne_bytes(*flags) & UP != 0,
    })
}

/// The device whose address came or went (`struct ifaddrmsg`: family, length, flags, scope, device).
pub(super) fn address_device(payload: &[u8]) -> Option<u32> {
    word(payload.get(4..)?)
}

/// A prefix of this family, which all of a message is of; without an address it is the default route's.
fn prefix(family: Family, address: Option<IpAddr>, length: u8) -> Option<IpNet> {
    let any = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let address = address.unwrap_or(any);
    (Family::of(address) == family).then(|| IpNet::new(address, length).ok()).flatten()
}

pub(super) fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(value).ok().map(|octets| Ipv4Addr::from(octets).into());
    v4().or_else(|| <[u8; 16]>::try_from(value).ok().map(|octets| Ipv6Addr::from(octets).into()))
}

pub(super) fn family(number: u8) -> Option<Family> {
    [Family::V4, Family::V6].into_iter().find(|family| family_number(*family) == number)
}

/// `AF_INET` and `AF_INET6`.
pub(super) const fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}
