//! ESP in UDP at the router: the kernel takes it out only where a socket says so.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use adit::io::netns;
use adit::wire::Family;
use adit::wire::esp::udp;
use nix::libc;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use socket2::{Domain, Socket, Type};

use crate::router::Net;

sockopt_impl!(
    /// What a UDP socket is told to take out of its datagrams, in the kernel (`UDP_ENCAP`).
    UdpEncapsulation,
    SetOnly,
    libc::IPPROTO_UDP,
    UDP_ENCAP,
    i32
);

// From linux/udp.h; libc has neither.
const UDP_ENCAP: i32 = 100;
const UDP_ENCAP_ESPINUDP: i32 = 2;

/// Has the router's kernel take ESP out of UDP, as an IKE daemon does, for as long as the sockets are open.
pub(crate) fn take_out_of_udp(net: &Net) -> io::Result<Vec<OwnedFd>> {
    netns::within(Some(&net.far), || [Family::V4, Family::V6].map(decapsulate).into_iter().collect())
}

/// The same for one family, in the namespace of the calling thread.
fn decapsulate(family: Family) -> io::Result<OwnedFd> {
    let (domain, any) = match family {
        Family::V4 => (Domain::IPV4, Ipv4Addr::UNSPECIFIED.into()),
        Family::V6 => (Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let socket = Socket::new(domain, Type::DGRAM, None)?;
    match family {
        Family::V4 => {}
        Family::V6 => socket.set_only_v6(true)?,
    }
    setsockopt(&socket.as_fd(), UdpEncapsulation, &UDP_ENCAP_ESPINUDP)?;
    socket.bind(&SocketAddr::new(any, udp::PORT).into())?;
    Ok(socket.into())
}
