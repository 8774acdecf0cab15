//! Raw sockets, drained and filled in batches.
//!
//! A prober has a fixed number of them whatever the number of tunnels: for each namespace and
//! family one that receives GRE, ESP, ESP in UDP or ICMP, each behind a kernel filter, and for
//! each namespace, family, device and mark one that sends. A sending socket has the protocol
//! `IPPROTO_RAW`, to which the kernel delivers nothing, and for which it takes packets with their
//! IP header as we built it (raw(7), ipv6(7)). Only one that sends to endpoints has the protocol ICMP: there, the kernel
//! makes the header.

mod receive;
mod send;

use std::io;

use nix::sys::socket::setsockopt;
// The macro's own parts must be in scope beside it.
use nix::{libc, setsockopt_impl, sockopt_impl};
use socket2::{Domain, SockFilter, Socket, Type};

pub use receive::{Drained, Inbox, Opened, Receiver, open_receiver};
pub use send::{Leaving, Sender, open_plain_sender, open_sender};
pub(super) use send::{enlarge_send_buffer, send_all};

use crate::wire::Family;
use crate::wire::filter::Instruction;

/// Packets a system call takes or gives at most.
pub const BATCH: usize = 64;

sockopt_impl!(
    /// That the filter stays as it is, whoever has the socket (socket(7)).
    LockFilter,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_LOCK_FILTER,
    bool
);

sockopt_impl!(
    /// Which path MTU holds for what an IPv4 socket sends, and whether ICMP may change it (ip(7)).
    MtuDiscoverV4,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    libc::c_int
);
sockopt_impl!(
    /// The same for IPv6 (ipv6(7)).
    MtuDiscoverV6,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU_DISCOVER,
    libc::c_int
);

fn open(family: Family, protocol: i32) -> io::Result<Socket> {
    let domain = match family {
        Family::V4 => Domain::IPV4,
        Family::V6 => Domain::IPV6,
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol.into())).map_err(|error| {
        needs(error, "raw sockets need CAP_NET_RAW: run as root, or with AmbientCapabilities=CAP_NET_RAW")
    })?;
    // An ICMP error that says "too big" may come from anybody who knows two addresses. The kernel would
    // believe it because this socket is there, and refuse to send a longer probe. Whether one fits into the
    // path is shown by its answer; whether it fits into this host's own link, by that link.
    match family {
        Family::V4 => setsockopt(&socket, MtuDiscoverV4, &libc::IP_PMTUDISC_INTERFACE)?,
        Family::V6 => setsockopt(&socket, MtuDiscoverV6, &libc::IPV6_PMTUDISC_INTERFACE)?,
    }
    Ok(socket)
}

/// An error for want of a capability, with its name and the remedy.
pub(super) fn needs(error: io::Error, remedy: &str) -> io::Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return io::Error::new(error.kind(), format!("{remedy} ({error})"));
    }
    error
}

/// Filters what a socket is given, for as long as it lives: whoever is handed it, and is taken over, cannot
/// listen to more than it was opened for.
pub(super) fn filter_for_ever(socket: &Socket, filter: &[Instruction]) -> io::Result<()> {
    socket.attach_filter(&program(filter))?;
    Ok(setsockopt(socket, LockFilter, &true)?)
}

pub(super) fn program(instructions: &[Instruction]) -> Vec<SockFilter> {
    instructions.iter().map(|&Instruction { code, jt, jf, k }| SockFilter::new(code, jt, jf, k)).collect()
}
