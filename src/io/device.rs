//! Sending through one of the kernel's own tunnel devices, whatever the routing tables say.
//!
//! An ordinary socket will not do: what it sends is routed first, and a reply-style probe, whose
//! destination is an address of this host, would never leave it; nor would a probe to where no route
//! leads over the device. A packet socket hands its packets to the device itself (packet(7)). Its type
//! is `SOCK_DGRAM`, so a packet begins with its IP header and the device adds what it adds to any
//! packet. It has no protocol of its own, so the kernel delivers nothing to it.
//!
//! Each packet says by its address which device takes it, and whether it is IPv4 or IPv6: not every
//! tunnel device reads that off the packet (GRE does not). No safe function writes such an address
//! (`sockaddr_ll`), so pnet binds a socket to the device, for a moment, and the kernel is asked what
//! that socket's address is. [`nix::ifaddrs`] would not do: it knows none for a device without a
//! hardware address, which WireGuard and tun are.
//!
//! Some devices do look at routes themselves: [`withheld`] tells where that is a packet's end.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use futures_util::TryStreamExt;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{SockaddrStorage, getsockname};
use pnet::datalink::{ChannelType, NetworkInterface, linux};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkInfo};
use rtnetlink::packet_route::route::RouteType;
use rtnetlink::{Handle, RouteMessageBuilder};
use socket2::{Domain, Socket, Type};

use super::{links, raw};
use crate::wire::filter;

// What a device is to the link layer, from linux/if_arp.h; libc lacks the last one.
const LAYER_3: [u16; 6] =
    [libc::ARPHRD_NONE, libc::ARPHRD_TUNNEL, libc::ARPHRD_TUNNEL6, libc::ARPHRD_SIT, libc::ARPHRD_IPGRE, IP6GRE];
const IP6GRE: u16 = 823;

/// EtherTypes of the two families (RFC 894, RFC 2464 section 3).
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;

/// Every reason that [`withheld`] gives.
pub const WITHHELD: [&str; 2] = [
    "a vti device drops what goes to an IPv4 address of its own: put this side's interface address on another device, \
     such as lo, and a route to the far one on this device",
    "a vti or xfrm device drops what goes to where no IPv6 route leads over it: add one",
];

/// A socket that sends inner packets through one device.
#[derive(Debug)]
pub struct DeviceSender {
    socket: Socket,
    index: u32,
    v4: SockaddrStorage,
    v6: SockaddrStorage,
    /// What the addresses were taken from; kept only until another process has taken them, too.
    bound: Option<[Socket; 2]>,
}

/// Opens a sender through the device of that name in the namespace of the calling thread. The device
/// may be down. With `to_hand` it can be handed to another process ([`DeviceSender::parts`]).
///
/// # Errors
/// `NotFound` if there is no such device, `InvalidInput` with the remedy if it does not take bare IP
/// packets, `PermissionDenied` without `CAP_NET_RAW`.
pub fn open(name: &str, to_hand: bool) -> io::Result<DeviceSender> {
    let index = index(name)?;
    let bound_v4 = bound(index, IPV4)?;
    let v4 = getsockname(bound_v4.as_raw_fd())?;
    suits(name, &v4)?;
    let bound_v6 = bound(index, IPV6)?;
    let v6 = getsockname(bound_v6.as_raw_fd())?;
    let socket = packet_socket()?;
    raw::filter_for_ever(&socket, &filter::nothing())?;
    socket.set_nonblocking(true)?;
    raw::enlarge_send_buffer(&socket)?;
    Ok(DeviceSender { socket, index, v4, v6, bound: to_hand.then_some([bound_v4, bound_v6]) })
}

/// The index of the device of that name in the namespace of the calling thread.
///
/// # Errors
/// `NotFound` if there is none.
pub fn index(name: &str) -> io::Result<u32> {
    let missing = |error| io::Error::new(io::ErrorKind::NotFound, format!("there is no device {name} here ({error})"));
    if_nametoindex(name).map_err(missing)
}

impl DeviceSender {
    /// The index of the device in its namespace, as packets that come by it have it.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The descriptors of which [`DeviceSender::handed`] makes the same sender in another process; none if
    /// it was not opened to be handed over.
    #[must_use]
    pub fn parts(&self) -> Option<[BorrowedFd<'_>; 3]> {
        let [v4, v6] = self.bound.as_ref()?;
        Some([self.socket.as_fd(), v4.as_fd(), v6.as_fd()])
    }

    /// A sender of the descriptors that another process has opened.
    ///
    /// # Errors
    /// They are not what [`DeviceSender::parts`] has given.
    pub fn handed([socket, v4, v6]: [OwnedFd; 3], index: u32) -> io::Result<Self> {
        let (v4, v6) = (getsockname(v4.as_raw_fd())?, getsockname(v6.as_raw_fd())?);
        Ok(Self { socket: socket.into(), index, v4, v6, bound: None })
    }

    /// Sends packets, each with its inner destination, and reports those that the kernel did not take
    /// by their place and its reason.
    ///
    /// `ENETDOWN`: the device is down; once it is up again, this sender works again. `ENXIO`: it is no
    /// longer here; one that is made anew, even of the same name, has another index, so open another
    /// sender. `EMSGSIZE`: longer than the device's MTU. `ENOBUFS` and `EAGAIN`: its queue, or this
    /// socket's, is full. WireGuard tells besides (since Linux 5.17): `ENOKEY`, no peer is allowed this
    /// destination, and `EDESTADDRREQ`, the peer's endpoint is not known. What other devices drop, for
    /// want of a route to the far end or of a security association, they only count in their
    /// statistics; see also [`withheld`].
    pub fn send(&self, packets: &[(IpAddr, &[u8])], refused: impl FnMut(usize, Errno)) {
        let address = |destination| match destination {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        };
        raw::send_all(&self.socket, packets, address, refused);
    }
}

/// Why the device of that name, which must be up, would drop an inner packet of these addresses and
/// tell nobody; `None` if it would not. In the namespace of the calling thread; routes and addresses
/// may change at any time.
///
/// Before a vti or xfrm device seals a packet, it looks for a route over itself in the routing tables.
/// So there are two packets that it does not let out: vti none to an IPv4 address of the device itself,
/// as a reply-style probe often is, because what stays on this host is not sealed; and both none to an
/// IPv6 destination to which no route leads over the device (an IPv4 one is taken for a neighbour).
///
/// # Errors
/// The device must exist.
pub fn withheld(name: &str, source: IpAddr, destination: IpAddr) -> io::Result<Option<&'static str>> {
    let index = if_nametoindex(name)?;
    let (kind, way) = links::run(None, async move |handle| way(&handle, index, source, destination).await)?;
    Ok(match (destination, kind, way) {
        (IpAddr::V4(_), Some(InfoKind::Vti | InfoKind::Vti6), Some(RouteType::Local)) => Some(WITHHELD[0]),
        (IpAddr::V6(_), Some(InfoKind::Vti | InfoKind::Vti6 | InfoKind::Xfrm), None) => Some(WITHHELD[1]),
        _ => None,
    })
}

/// What kind of device it is, and the type of the route to a destination over it, if there is one.
async fn way(
    handle: &Handle,
    index: u32,
    source: IpAddr,
    destination: IpAddr,
) -> Result<(Option<InfoKind>, Option<RouteType>), rtnetlink::Error> {
    let link = handle.link().get().match_index(index).execute().try_next().await?;
    let attributes = link.into_iter().flat_map(|link| link.attributes);
    let info = |attribute| if let LinkAttribute::LinkInfo(infos) = attribute { Some(infos) } else { None };
    let kind = |info| if let LinkInfo::Kind(kind) = info { Some(kind) } else { None };
    let kind = attributes.filter_map(info).flatten().find_map(kind);
    let question = RouteMessageBuilder::<IpAddr>::new().output_interface(index);
    let question = match destination {
        // The kernel would have none but its own addresses for the source.
        IpAddr::V4(_) => question.destination_prefix(destination, 32),
        // Without a source the kernel would look at this device's routes only.
        IpAddr::V6(_) => {
            question.destination_prefix(destination, 128).and_then(|question| question.source_prefix(source, 128))
        }
    };
    let question = question.map_err(|error| rtnetlink::Error::InvalidNla(error.to_string()))?;
    // Without a route the answer is an error.
    let route = handle.route().get(question.build()).execute().try_next().await;
    Ok((kind, route.ok().flatten().map(|route| route.header.kind)))
}

/// A socket with the address that packets of an EtherType have when they are to leave by a device.
fn bound(index: u32, ether_type: u16) -> io::Result<Socket> {
    let socket = packet_socket()?;
    // Bound with a protocol it would get a copy of what arrives by the device.
    raw::filter_for_ever(&socket, &filter::nothing())?;
    let device = NetworkInterface {
        index,
        name: String::new(),
        description: String::new(),
        mac: None,
        ips: Vec::new(),
        flags: 0,
    };
    let config = linux::Config {
        channel_type: ChannelType::Layer3(ether_type),
        promiscuous: false,
        // A second descriptor of the same socket; pnet closes it, whatever happens.
        socket_fd: Some(socket.try_clone()?.into_raw_fd()),
        ..linux::Config::default()
    };
    linux::channel(&device, config)?;
    Ok(socket)
}

fn packet_socket() -> io::Result<Socket> {
    Socket::new(Domain::PACKET, Type::DGRAM, None).map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => io::Error::new(
            error.kind(),
            format!("sending by device needs packet sockets: RestrictAddressFamilies= must list AF_PACKET ({error})"),
        ),
        _ => raw::needs(error, "packet sockets need CAP_NET_RAW: run as root, or with AmbientCapabilities=CAP_NET_RAW"),
    })
}

/// Whether a device takes bare IP packets and itself knows where they go.
fn suits(name: &str, address: &SockaddrStorage) -> io::Result<()> {
    let kind = address.as_link_addr().map_or(libc::ARPHRD_VOID, |link| link.hatype());
    let unsuited = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if !LAYER_3.contains(&kind) {
        let what = if kind == libc::ARPHRD_ETHER { "an Ethernet-like" } else { "no layer-3 tunnel" };
        return unsuited(format!(
            "{name} is {what} device (hardware type {kind}), which takes no bare IP packets: name a layer-3 tunnel \
             device (gre, ip6gre, ipip, sit, vti, xfrm, wireguard, tun), or leave `device` away to send by ordinary \
             routing"
        ));
    }
    // A GRE device for many far ends would have the outer destination from us.
    if matches!(kind, libc::ARPHRD_IPGRE | IP6GRE) && !is_point_to_point(name)? {
        return unsuited(format!(
            "{name} is a GRE device without fixed endpoints: give it its local and remote address"
        ));
    }
    Ok(())
}

fn is_point_to_point(name: &str) -> io::Result<bool> {
    let device = getifaddrs()?.find(|known| known.interface_name == name);
    let (one, many) = (InterfaceFlags::IFF_POINTOPOINT, InterfaceFlags::IFF_BROADCAST);
    Ok(device.is_some_and(|device| device.flags.contains(one) && !device.flags.contains(many)))
}
