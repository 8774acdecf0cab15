//! What the kernel has in one network namespace, as far as it matters to a proposal.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

/// Devices, addresses and routes of one network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Every device.
    pub links: Vec<Link>,
    /// Every address, in the kernel's order.
    pub addresses: Vec<Address>,
    /// Every unicast route, of whatever table.
    pub routes: Vec<Way>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Whether an administrator has it up (`IFF_UP`).
    pub up: bool,
    /// Whether there is one far end only (`IFF_POINTOPOINT` without `IFF_BROADCAST`).
    pub point_to_point: bool,
    /// Outer address of this side, where the device has one.
    pub local: Option<IpAddr>,
    /// Outer address of the far side, where the device has one.
    pub remote: Option<IpAddr>,
    /// Key of what it sends: of GRE (RFC 2890), or the mark of a vti.
    pub key: Option<u32>,
    /// Protocol number of the inner packets, where the device takes one kind only; 0 is any.
    pub carries: Option<u8>,
    /// Whether each packet says by itself where it goes (`external`, collect metadata).
    pub external: bool,
}

/// Kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// GRE over IPv4.
    Gre,
    /// GRE over IPv6.
    Ip6gre,
    /// IPv4 in IPv4.
    Ipip,
    /// IPv6 in IPv4.
    Sit,
    /// IPv4 or IPv6 in IPv6.
    Ip6tnl,
    /// IPsec over IPv4.
    Vti,
    /// IPsec over IPv6.
    Vti6,
    /// An XFRM interface.
    Xfrm,
    /// WireGuard.
    Wireguard,
    /// A tunnel that a program in user space carries.
    Tun,
    /// A tunnel that carries Ethernet: gretap and its like.
    Ethernet,
    /// No tunnel.
    Other,
}

/// An address of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Index of the device.
    pub link: u32,
    /// This side's address and the length of its prefix.
    pub own: IpNet,
    /// The far side's address, where the kernel was told it (`peer`).
    pub peer: Option<IpAddr>,
}

/// A unicast route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The routing table.
    pub table: u32,
    /// The destination.
    pub prefix: IpNet,
    /// Its priority in the kernel; lower wins.
    pub metric: u32,
    /// Who made it: `rtm_protocol` of rtnetlink(7).
    pub protocol: u8,
    /// The source address that it proposes (`src`).
    pub source: Option<IpAddr>,
    /// Where it leads.
    pub hops: Vec<Hop>,
    /// What it has that no route of adit's can have.
    pub odd: Option<Odd>,
}

/// A route's way to one neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Index of the device.
    pub link: u32,
    /// The gateway.
    pub via: Option<IpAddr>,
    /// The gateway is taken for a neighbour, whatever the addresses of the device say.
    pub onlink: bool,
    /// Share among the hops of a route, 1 to 256.
    pub weight: u16,
}

/// What makes a route one that adit cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Odd {
    /// It is for packets of one type of service.
    Tos,
    /// It is for packets from one prefix.
    From,
    /// It wraps its packets (`encap`).
    Encap,
    /// It leads over a next-hop object, and the kernel does not say where that leads
    /// (`net.ipv4.nexthop_compat_mode = 0`).
    Object,
}

impl Kind {
    /// The name as `ip link` has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gre => "gre",
            Self::Ip6gre => "ip6gre",
            Self::Ipip => "ipip",
            Self::Sit => "sit",
            Self::Ip6tnl => "ip6tnl",
            Self::Vti => "vti",
            Self::Vti6 => "vti6",
            Self::Xfrm => "xfrm",
            Self::Wireguard => "wireguard",
            Self::Tun => "tun",
            Self::Ethernet => "Ethernet tunnel",
            Self::Other => "no tunnel",
        }
    }
}

/// What was found, by device.
pub(super) struct View<'a> {
    pub(super) found: &'a Found,
    links: BTreeMap<u32, &'a Link>,
    addresses: BTreeMap<u32, Vec<&'a Address>>,
    over: BTreeMap<u32, Vec<(&'a Way, &'a Hop)>>,
}

impl<'a> View<'a> {
    pub(super) fn new(found: &'a Found) -> Self {
        let links = found.links.iter().map(|link| (link.index, link)).collect();
        let (mut addresses, mut over) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        for address in &found.addresses {
            addresses.entry(address.link).or_default().push(address);
        }
        for way in &found.routes {
            way.hops.iter().for_each(|hop| over.entry(hop.link).or_default().push((way, hop)));
        }
        Self { found, links, addresses, over }
    }

    /// The name of the device of this index, for a comment.
    pub(super) fn name(&self, index: u32) -> String {
        self.links.get(&index).map_or_else(|| format!("device {index}"), |link| super::plain(&link.name))
    }

    /// A device's addresses, in the kernel's order, IPv4 first; but of a sit device, which is made for
    /// IPv6, IPv6 first.
    pub(super) fn addresses(&self, link: &Link) -> Vec<&'a Address> {
        let mut addresses = self.addresses.get(&link.index).cloned().unwrap_or_default();
        addresses.sort_by_key(|address| address.own.addr().is_ipv6() != (link.kind == Kind::Sit));
        addresses
    }

    /// The routes over a device.
    pub(super) fn over(&self, link: &Link) -> &[(&'a Way, &'a Hop)] {
        self.over.get(&link.index).map_or(&[], Vec::as_slice)
    }
}

/// `RTPROT_REDIRECT`, `RTPROT_KERNEL` (rtnetlink(7)): what the kernel makes by itself, and takes away.
const BY_ITSELF: [u8; 2] = [1, 2];

impl Way {
    /// Whether somebody made it, and not the kernel by itself.
    pub(super) fn is_made(&self) -> bool {
        !BY_ITSELF.contains(&self.protocol)
    }
}
