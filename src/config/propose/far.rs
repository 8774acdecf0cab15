//! Where a device's probes travel: this side's inner address and the far side's.
//!
//! The kernel may know the far address (`peer`), or the prefix leaves but one. Else a route over the
//! device may tell, by its gateway or by leading to one host; that is a guess, and is called one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::found::{Address, Kind, Link, View};
use crate::config::ends;

/// The inner ends of a tunnel, as they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inner {
    /// `interface_address`.
    pub(super) interface: IpNet,
    /// `target`, where the prefix says another address, or none.
    pub(super) target: Option<IpAddr>,
    /// What a person should know of them.
    pub(super) notes: Vec<String>,
}

/// The inner ends of a device's probes.
///
/// # Errors
/// Why nobody knows them.
pub(super) fn inner(view: &View<'_>, link: &Link) -> Result<Inner, String> {
    let addresses = view.addresses(link);
    let carried: Vec<&Address> = addresses.iter().copied().filter(|address| suits(link, address)).collect();
    let certain: Vec<(IpNet, Option<IpAddr>)> = carried.iter().filter_map(|address| certain(address)).collect();
    let mut found = match certain.split_first() {
        Some((&(interface, target), others)) => Inner { interface, target, notes: others.iter().map(other).collect() },
        None if carried.is_empty() => return Err(without_address(link, &addresses)),
        None => guess(view, link, &carried)?,
    };
    found.notes.extend(unroutable(view, link, &found));
    found.notes.extend(allowed(link, &found));
    Ok(found)
}

/// Whether probes can have this source: the device carries its family, and it means something beyond
/// the device.
fn suits(link: &Link, address: &Address) -> bool {
    let own = address.own.addr();
    let link_local = matches!(own, IpAddr::V6(own) if own.is_unicast_link_local());
    carries(link, own) && !link_local && ends::unusable(own).is_none()
}

/// IP protocol numbers of an inner IPv4 and IPv6 packet (RFC 2003, RFC 4213).
const IPV4: u8 = 4;
const IPV6: u8 = 41;

fn carries(link: &Link, address: IpAddr) -> bool {
    // Of IPv4's own protocol a device can always be the whole; "any" is for MPLS besides.
    let only = match (link.kind, link.carries) {
        (Kind::Ipip, None | Some(0)) => Some(IPV4),
        (Kind::Sit, None) => Some(IPV6),
        (_, carries) => carries.filter(|carries| *carries != 0),
    };
    only.is_none_or(|only| only == if address.is_ipv4() { IPV4 } else { IPV6 })
}

/// The ends by what the kernel itself says.
fn certain(address: &Address) -> Option<(IpNet, Option<IpAddr>)> {
    let own = address.own;
    match address.peer {
        Some(peer) => {
            let usable = ends::unusable(peer).is_none() && peer != own.addr() && peer.is_ipv4() == own.addr().is_ipv4();
            usable.then(|| towards(own.addr(), peer))
        }
        None => joined(own).map(|_| (own, None)),
    }
}

/// The far end that a prefix leaves.
fn joined(own: IpNet) -> Option<IpAddr> {
    let longest = own.max_prefix_len();
    let far = [longest - 1, longest - 2].contains(&own.prefix_len()).then(|| ends::other_end(own).ok())??;
    ends::unusable(far).is_none().then_some(far)
}

/// The ends between two addresses: by the prefix alone, if one of those that can be written says it.
fn towards(own: IpAddr, far: IpAddr) -> (IpNet, Option<IpAddr>) {
    let longest = IpNet::from(own).max_prefix_len();
    let with = |length| IpNet::new(own, length).ok();
    let says = [longest - 1, longest - 2].into_iter().filter_map(with).find(|&net| joined(net) == Some(far));
    match says {
        Some(net) => (net, None),
        None => (with(longest - 1).unwrap_or_else(|| own.into()), Some(far)),
    }
}

fn other(&(interface, target): &(IpNet, Option<IpAddr>)) -> String {
    let target = target.map_or_else(String::new, |target| format!(" and target = \"{target}\" below"));
    format!("The device has another address that would do: interface_address = \"{interface}\"{target}.")
}

/// The ends by the routes over the device.
fn guess(view: &View<'_>, link: &Link, addresses: &[&Address]) -> Result<Inner, String> {
    let mut refusal = None;
    for address in addresses {
        match far_by_routes(view, link, address) {
            Ok((far, how)) => {
                let (interface, target) = towards(address.own.addr(), far);
                let notes = vec![format!("Guessed: {far} is {how}; the device's own address is {}.", address.own)];
                return Ok(Inner { interface, target, notes });
            }
            Err(why) => refusal = refusal.or(Some(why)),
        }
    }
    Err(refusal.unwrap_or_default())
}

fn far_by_routes(view: &View<'_>, link: &Link, address: &Address) -> Result<(IpAddr, &'static str), String> {
    let own = address.own;
    let alone = own.prefix_len() == own.max_prefix_len();
    let mine: BTreeSet<IpAddr> = view.addresses(link).iter().map(|address| address.own.addr()).collect();
    let fits = |far: &IpAddr| {
        let link_local = matches!(far, IpAddr::V6(far) if far.is_unicast_link_local());
        far.is_ipv4() == own.addr().is_ipv4() && !link_local && !mine.contains(far) && ends::unusable(*far).is_none()
    };
    let over = || view.over(link).iter().filter(|(way, _)| way.is_made());
    let gateways = over().filter_map(|(_, hop)| hop.via).filter(|far| alone || own.contains(far)).filter(fits);
    let whole = |net: IpNet| net.prefix_len() == net.max_prefix_len();
    let hosts = over().map(|(way, _)| way.prefix).filter(|net| whole(*net)).map(|net| net.addr()).filter(fits);
    let how = ["the gateway of routes over it", "the one host that a route over it leads to"];
    let candidates = [gateways.collect::<BTreeSet<_>>(), hosts.collect()];
    for (candidates, how) in candidates.iter().zip(how) {
        match candidates.iter().collect::<Vec<_>>()[..] {
            [] => {}
            [&one] => return Ok((one, how)),
            ref many => return Err(several(own, many)),
        }
    }
    Err(format!("{own} does not say which address the far end has; {}", remedy(own)))
}

/// More than this many addresses help nobody.
const NAMED: usize = 4;

fn several(own: IpNet, candidates: &[&IpAddr]) -> String {
    let named: Vec<String> = candidates.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if candidates.len() > NAMED { ", …" } else { "" };
    let named = named.join(", ");
    format!(
        "{own} does not say which address the far end has, and by the routes it may be {named}{more}; {}",
        remedy(own)
    )
}

/// What a person can do where the far address is not known.
fn remedy(own: IpNet) -> String {
    let (lengths, written) = match own.addr() {
        IpAddr::V4(address) => ("/31 or /30", format!("{address}/31")),
        IpAddr::V6(address) => ("/127 or /126", format!("{address}/127")),
    };
    format!(
        "give it a {lengths}, or write a [[tunnel]] with interface_address = \"{written}\" and the far end's inner \
         address as `target` in its [tunnel.health_check]"
    )
}

fn without_address(link: &Link, addresses: &[&Address]) -> String {
    let link_local = |own: &IpNet| matches!(own, IpNet::V6(own) if own.addr().is_unicast_link_local());
    let own = addresses.iter().map(|address| address.own).filter(|own| !link_local(own));
    let has: Vec<String> = own.map(|own| own.to_string()).collect();
    let has = if has.is_empty() { "it has no address".to_owned() } else { format!("it has only {}", has.join(", ")) };
    let wanted = match (
        carries(link, IpAddr::from([10, 0, 0, 1])),
        carries(link, IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, 1])),
    ) {
        (true, false) => "a /31 or /30",
        (false, true) => "a /127 or /126",
        (true, true) | (false, false) => "a /31 or /30 (IPv6: a /127 or /126)",
    };
    format!("{has}, and a probe needs one inside the tunnel; give it {wanted}")
}

/// What a vti or xfrm device drops ([`crate::io::device::withheld`] says why).
fn unroutable(view: &View<'_>, link: &Link, inner: &Inner) -> Option<String> {
    let far = inner.target.or_else(|| joined(inner.interface))?;
    let looks = matches!(link.kind, Kind::Vti | Kind::Vti6 | Kind::Xfrm) && far.is_ipv6();
    let leads = view.over(link).iter().any(|(way, _)| way.prefix.contains(&far));
    (looks && !leads).then(|| {
        format!("A {} device drops what goes to where no IPv6 route leads over it: add one to {far}.", link.kind.name())
    })
}

/// What rtnetlink does not tell of WireGuard.
fn allowed(link: &Link, inner: &Inner) -> Option<String> {
    let far = inner.target.or_else(|| joined(inner.interface))?;
    let why = "among its allowed addresses (`wg show`), and its endpoint must be known";
    (link.kind == Kind::Wireguard).then(|| format!("The peer must have {far} {why}."))
}
