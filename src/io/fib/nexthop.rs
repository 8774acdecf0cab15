//! Messages about next-hop objects (linux/nexthop.h, since Linux 5.3).

use std::net::IpAddr;

use rtnetlink::packet_core::{DefaultNla, Emitable};

use crate::steer::{Hop, Leads, Nexthop};
use crate::wire::Family;

use super::decode;
use crate::io::netlink::{attributes, word};

pub(super) const RTM_NEWNEXTHOP: u16 = 104;
pub(super) const RTM_DELNEXTHOP: u16 = 105;
pub(super) const RTM_GETNEXTHOP: u16 = 106;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_FDB: u16 = 11;

/// `struct nhmsg`: family, scope, protocol, reserved, flags.
const FIXED: usize = 8;
/// `struct nexthop_grp`: object, weight less 1, high byte of that, reserved.
const MEMBER: usize = 8;

/// A message about an object.
#[derive(Debug, Default)]
pub(super) struct Message {
    family: u8,
    protocol: u8,
    flags: u32,
    attributes: Vec<DefaultNla>,
}

impl Message {
    /// One object by its number, to be shown or deleted.
    pub(super) fn about(id: u32) -> Self {
        Self { attributes: vec![number(NHA_ID, id)], ..Self::default() }
    }

    /// An object as it shall be; `None` if none of ours is ever so.
    pub(super) fn of(tag: u8, nexthop: &Nexthop) -> Option<Self> {
        let mut message = Self { protocol: tag, ..Self::about(nexthop.id) };
        match &nexthop.leads {
            Leads::Hop(family, hop) => message.lead(*family, hop),
            Leads::Group(members) => {
                let members = members.iter().flat_map(|&(id, weight)| member(id, weight)).collect();
                message.attributes.push(DefaultNla::new(NHA_GROUP, members));
            }
            Leads::Other => return None,
        }
        Some(message)
    }

    fn lead(&mut self, family: Family, hop: &Hop) {
        self.family = decode::family_number(family);
        self.flags = if hop.onlink { decode::ONLINK } else { 0 };
        if hop.device != 0 {
            self.attributes.push(number(NHA_OIF, hop.device));
        }
        if let Some(via) = hop.via {
            let octets = match via {
                IpAddr::V4(via) => via.octets().to_vec(),
                IpAddr::V6(via) => via.octets().to_vec(),
            };
            self.attributes.push(DefaultNla::new(NHA_GATEWAY, octets));
        }
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        FIXED + self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        let (fixed, rest) = buffer.split_at_mut(FIXED);
        fixed[..4].copy_from_slice(&[self.family, 0, self.protocol, 0]);
        fixed[4..].copy_from_slice(&self.flags.to_ne_bytes());
        self.attributes.as_slice().emit(rest);
    }
}

fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// Weights above 255 need Linux 6.12; an older kernel refuses them.
fn member(id: u32, weight: u16) -> [u8; MEMBER] {
    let [a, b, c, d] = id.to_ne_bytes();
    let [low, high] = weight.saturating_sub(1).to_le_bytes();
    [a, b, c, d, low, high, 0, 0]
}

/// The object of a message, and the protocol that it bears.
pub(super) fn read(payload: &[u8]) -> Option<(u8, Nexthop)> {
    let (&[family, _, protocol, _], rest) = payload.split_first_chunk()?;
    let (flags, rest) = rest.split_first_chunk()?;
    let mut hop = Hop { device: 0, via: None, onlink: u32::from_ne_bytes(*flags) & decode::ONLINK != 0, weight: 1 };
    let (mut id, mut members, mut other) = (None, None, false);
    for (kind, value) in attributes(rest) {
        match kind {
            NHA_ID => id = word(value),
            NHA_GROUP => members = Some(group(value)),
            // Of the kinds of groups only the plain one (0) is ever ours.
            NHA_GROUP_TYPE => other |= value.iter().any(|&byte| byte != 0),
            NHA_OIF => hop.device = word(value)?,
            NHA_GATEWAY => hop.via = decode::address(value),
            NHA_BLACKHOLE | NHA_ENCAP_TYPE | NHA_FDB => other = true,
            _ => {}
        }
    }
    let leads = match (decode::family(family), members) {
        _ if other => Leads::Other,
        (_, Some(members)) => Leads::Group(members),
        (Some(family), None) => Leads::Hop(family, hop),
        (None, None) => Leads::Other,
    };
    Some((protocol, Nexthop { id: id?, leads }))
}

/// The objects that a group in a message, of whichever type, consists of.
pub(super) fn members(payload: &[u8]) -> impl Iterator<Item = u32> {
    let rest = payload.get(8..).unwrap_or_default();
    let groups = attributes(rest).filter(|(kind, _)| *kind == NHA_GROUP);
    groups.flat_map(|(_, value)| group(value)).map(|(id, _)| id)
}

fn group(value: &[u8]) -> Vec<(u32, u16)> {
    let (members, _) = value.as_chunks::<MEMBER>();
    let member = |&[a, b, c, d, low, high, ..]: &[u8; MEMBER]| {
        let weight = u16::from_le_bytes([low, high]).saturating_add(1);
        (u32::from_ne_bytes([a, b, c, d]), weight)
    };
    let mut members: Vec<_> = members.iter().map(member).collect();
    members.sort_unstable();
    members
}
