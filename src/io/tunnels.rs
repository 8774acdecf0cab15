//! What the kernel has of tunnels: devices, addresses, routes; read for `adit discover`.
//!
//! The kernel tells this to everybody. What it tells is put into values, and nothing is judged here.

#![expect(clippy::wildcard_enum_match_arm, reason = "the kernel's lists of attributes are open")]

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_core::Nla;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoData, InfoGre, InfoGre6, InfoIpTunnel, InfoVti, InfoXfrm, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType,
    LinkMessage,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteType, RouteVia,
};
use rtnetlink::{Handle, RouteMessageBuilder};

use super::links;
use crate::config::propose::{Address, Found, Hop, Kind, Link, Odd, Way};

/// Everything in a network namespace, or in the one of the calling thread.
///
/// # Errors
/// `PermissionDenied` if entering the namespace needs `CAP_SYS_ADMIN`; the kernel's own.
pub fn look(namespace: Option<&File>) -> io::Result<Found> {
    links::run(namespace, async |handle| {
        let links: Vec<LinkMessage> = handle.link().get().execute().try_collect().await?;
        let addresses: Vec<AddressMessage> = handle.address().get().execute().try_collect().await?;
        let mut routes = ways(&handle, RouteMessageBuilder::<Ipv4Addr>::new().build()).await?;
        routes.extend(ways(&handle, RouteMessageBuilder::<Ipv6Addr>::new().build()).await?);
        Ok(Found {
            links: links.into_iter().map(link).collect(),
            addresses: addresses.into_iter().filter_map(address).collect(),
            routes,
        })
    })
}

/// All routes of the question's family.
async fn ways(handle: &Handle, question: RouteMessage) -> Result<Vec<Way>, rtnetlink::Error> {
    let mut found = Vec::new();
    let mut routes = std::pin::pin!(handle.route().get(question).execute());
    // One by one: a whole table of the internet's routes need not be here twice.
    while let Some(route) = routes.try_next().await? {
        found.extend(way(route));
    }
    Ok(found)
}

fn link(message: LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        kind: Kind::Other,
        up: flags.contains(LinkFlags::Up),
        point_to_point: flags.contains(LinkFlags::Pointopoint) && !flags.contains(LinkFlags::Broadcast),
        local: None,
        remote: None,
        key: None,
        carries: None,
        external: false,
    };
    let bare = message.header.link_layer_type == LinkLayerType::None;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::LinkInfo(infos) => infos.into_iter().for_each(|info| describe(&mut link, info, bare)),
            _ => {}
        }
    }
    link
}

/// Takes what a kind of device says of itself. A tun device is `bare` if it takes IP packets.
fn describe(link: &mut Link, info: LinkInfo, bare: bool) {
    match info {
        LinkInfo::Kind(kind) => link.kind = self::kind(&kind.to_string(), bare),
        LinkInfo::Data(InfoData::GreTun(data)) => data.into_iter().for_each(|info| gre(link, info)),
        LinkInfo::Data(InfoData::GreTun6(data)) => data.into_iter().for_each(|info| gre6(link, info)),
        LinkInfo::Data(InfoData::IpTunnel(data)) => data.into_iter().for_each(|info| ip_tunnel(link, info)),
        LinkInfo::Data(InfoData::Vti(data)) => data.into_iter().for_each(|info| vti(link, info)),
        LinkInfo::Data(InfoData::Xfrm(data)) => link.external = data.iter().any(is_collecting),
        _ => {}
    }
}

/// The kinds by the names that the kernel gives them.
fn kind(name: &str, bare: bool) -> Kind {
    match name {
        "gre" => Kind::Gre,
        "ip6gre" => Kind::Ip6gre,
        "ipip" => Kind::Ipip,
        "sit" => Kind::Sit,
        "ip6tnl" => Kind::Ip6tnl,
        "vti" => Kind::Vti,
        "vti6" => Kind::Vti6,
        "xfrm" => Kind::Xfrm,
        "wireguard" => Kind::Wireguard,
        "tun" if bare => Kind::Tun,
        "gretap" | "ip6gretap" | "erspan" | "ip6erspan" => Kind::Ethernet,
        _ => Kind::Other,
    }
}

fn gre(link: &mut Link, info: InfoGre) {
    match info {
        InfoGre::Local(local) => link.local = specified(local.into()),
        InfoGre::Remote(remote) => link.remote = specified(remote.into()),
        InfoGre::OKey(key) => link.key = Some(key).filter(|key| *key != 0),
        InfoGre::CollectMetadata => link.external = true,
        _ => {}
    }
}

fn gre6(link: &mut Link, info: InfoGre6) {
    match info {
        InfoGre6::Local(local) => link.local = specified(local.into()),
        InfoGre6::Remote(remote) => link.remote = specified(remote.into()),
        InfoGre6::OKey(key) => link.key = Some(key).filter(|key| *key != 0),
        InfoGre6::CollectMetadata => link.external = true,
        _ => {}
    }
}

fn ip_tunnel(link: &mut Link, info: InfoIpTunnel) {
    match info {
        InfoIpTunnel::Local(local) => link.local = specified(local),
        InfoIpTunnel::Remote(remote) => link.remote = specified(remote),
        InfoIpTunnel::Protocol(protocol) => link.carries = Some(protocol.into()),
        InfoIpTunnel::CollectMetadata => link.external = true,
        _ => {}
    }
}

fn vti(link: &mut Link, info: InfoVti) {
    match info {
        InfoVti::Local(local) => link.local = specified(local),
        InfoVti::Remote(remote) => link.remote = specified(remote),
        InfoVti::OKey(key) => link.key = Some(key).filter(|key| *key != 0),
        _ => {}
    }
}

/// Whether an xfrm device takes its interface number from each packet: `IFLA_XFRM_COLLECT_METADATA`
/// (linux/if_link.h), for which the library has no name.
fn is_collecting(info: &InfoXfrm) -> bool {
    const COLLECT_METADATA: u16 = 3;
    matches!(info, InfoXfrm::Other(other) if other.kind() == COLLECT_METADATA)
}

/// The kernel says the unspecified address for none.
fn specified(address: IpAddr) -> Option<IpAddr> {
    Some(address).filter(|address| !address.is_unspecified())
}

fn address(message: AddressMessage) -> Option<Address> {
    let (mut own, mut either) = (None, None);
    for attribute in message.attributes {
        match attribute {
            AddressAttribute::Local(local) => own = Some(local),
            AddressAttribute::Address(address) => either = Some(address),
            _ => {}
        }
    }
    // The one is the far end's if there is a local one beside it and they differ (linux/if_addr.h).
    let own = own.or(either)?;
    let peer = either.filter(|peer| *peer != own);
    let own = IpNet::new(own, message.header.prefix_len).ok()?;
    Some(Address { link: message.header.index, own, peer })
}

/// A unicast route; others lead nowhere, or to this host itself.
fn way(message: RouteMessage) -> Option<Way> {
    let header = &message.header;
    if header.kind != RouteType::Unicast {
        return None;
    }
    let any = if header.address_family == AddressFamily::Inet6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    };
    let mut way = Way {
        table: header.table.into(),
        prefix: IpNet::new(any, header.destination_prefix_length).ok()?,
        metric: 0,
        protocol: header.protocol.into(),
        source: None,
        hops: Vec::new(),
        odd: odd(&message),
    };
    let onlink = header.flags.contains(RouteFlags::Onlink);
    let (mut hop, mut object) = (Hop { link: 0, via: None, onlink, weight: 1 }, false);
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Destination(destination) => {
                way.prefix = IpNet::new(plain(&destination)?, way.prefix.prefix_len()).ok()?;
            }
            RouteAttribute::Table(table) => way.table = table,
            RouteAttribute::Priority(metric) => way.metric = metric,
            RouteAttribute::PrefSource(source) => way.source = plain(&source),
            RouteAttribute::MultiPath(hops) => way.hops = hops.iter().map(self::hop).collect(),
            RouteAttribute::NhId(_) => object = true,
            RouteAttribute::Oif(link) => hop.link = link,
            other => hop.via = hop.via.or_else(|| gateway(&other)),
        }
    }
    if way.hops.is_empty() && hop.link != 0 {
        way.hops.push(hop);
    }
    if object && way.hops.is_empty() {
        way.odd = Some(Odd::Object);
    }
    Some(way)
}

fn odd(message: &RouteMessage) -> Option<Odd> {
    let wraps = |attribute: &RouteAttribute| matches!(attribute, RouteAttribute::Encap(_));
    let hop_wraps = |attribute: &RouteAttribute| {
        let RouteAttribute::MultiPath(hops) = attribute else { return false };
        hops.iter().any(|hop| hop.attributes.iter().any(wraps))
    };
    if message.header.tos != 0 {
        Some(Odd::Tos)
    } else if message.header.source_prefix_length != 0 {
        Some(Odd::From)
    } else if message.attributes.iter().any(|attribute| wraps(attribute) || hop_wraps(attribute)) {
        Some(Odd::Encap)
    } else {
        None
    }
}

fn hop(hop: &RouteNextHop) -> Hop {
    let via = hop.attributes.iter().find_map(gateway);
    // `rtnh_hops` is the weight less one.
    let onlink = hop.flags.contains(RouteNextHopFlags::Onlink);
    Hop { link: hop.interface_index, via, onlink, weight: u16::from(hop.hops) + 1 }
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(gateway) => plain(gateway),
        RouteAttribute::Via(RouteVia::Inet(gateway)) => Some(IpAddr::V4(*gateway)),
        RouteAttribute::Via(RouteVia::Inet6(gateway)) => Some(IpAddr::V6(*gateway)),
        _ => None,
    }
}

fn plain(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}
