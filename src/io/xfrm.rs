//! Watching the kernel's own security associations, so that none of ours is one of them.
//!
//! What the kernel tells unasked only means "look again": the answer is always a whole list. So
//! nothing is lost when news come faster than they are read, and none of it must be understood.
//!
//! An association's description carries its keys, and they are none of our business. Of the news not
//! one byte is taken from the kernel. The list comes into a buffer that is wiped before it is given
//! back; only the fixed part of each entry is parsed, and the keys lie behind it. (A socket filter
//! could cut them off in the kernel, but it would cut the copies of other listeners, too.)
//!
//! Everything here needs `CAP_NET_ADMIN` in the user namespace that owns the network namespace, and
//! not only at opening: the kernel looks at each request, and who asks must still have it.

pub mod follow;
pub mod list;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Context, Poll};

use netlink_packet_xfrm::{XFRMNLGRP_EXPIRE, XFRMNLGRP_SA};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, connect, send};
use socket2::{Domain, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use zeroize::Zeroizing;

use super::netlink::receive;
use super::raw;

/// Room for one datagram of the list: the kernel fills what room it is given, up to 32 KiB.
const DATAGRAM: usize = 32 << 10;
/// News taken at once at most, so that a flood of them does not hold us up.
const NEWS: usize = 4_096;
/// Associations made, changed and deleted, one by one or all at once; and expired.
const GROUPS: u32 = 1 << (XFRMNLGRP_SA - 1) | 1 << (XFRMNLGRP_EXPIRE - 1);

/// An association as ESP finds it: by the destination of its packets and its SPI.
pub type Association = (IpAddr, u32);

/// Sockets that are open, but not yet in a runtime's hands.
#[derive(Debug)]
pub struct Opened {
    news: Socket,
    asking: Socket,
}

/// Looks at the ESP associations of one namespace.
#[derive(Debug)]
pub struct Watch {
    news: UdpSocket,
    /// A socket of its own, so that news and lists do not mix.
    asking: Socket,
}

/// Opens a watch over the namespace of the calling thread.
///
/// # Errors
/// `Unsupported` where the kernel has no XFRM: then it has no associations. `PermissionDenied` without
/// `CAP_NET_ADMIN`.
pub fn open() -> io::Result<Opened> {
    let news = socket()?;
    bind(news.as_raw_fd(), &NetlinkAddr::new(0, GROUPS)).map_err(|error| needs_admin(error.into()))?;
    let asking = socket()?;
    // From now on it hears nobody but the kernel.
    connect(asking.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    Ok(Opened { news, asking })
}

fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(libc::NETLINK_XFRM.into()));
    let socket = socket.map_err(|error| match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT) => io::Error::new(io::ErrorKind::Unsupported, "this kernel has no XFRM"),
        _ => error,
    })?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn needs_admin(error: io::Error) -> io::Error {
    raw::needs(error, "seeing the kernel's security associations needs CAP_NET_ADMIN")
}

impl Opened {
    /// All ESP associations that the kernel has now, as [`Watch::associations`] has them.
    ///
    /// # Errors
    /// As there.
    pub fn associations(&self) -> io::Result<BTreeSet<Association>> {
        ask(&self.asking)
    }

    /// Hands the sockets to the runtime that is running.
    ///
    /// # Errors
    /// The runtime's own.
    pub fn register(self) -> io::Result<Watch> {
        // tokio's UDP socket is but a descriptor with readiness; nothing of UDP is used here.
        Ok(Watch { news: UdpSocket::from_std(self.news.into())?, asking: self.asking })
    }
}

impl Watch {
    /// Whether there may be news; wakes the task when there are.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.news.poll_recv_ready(context).map(|_| ())
    }

    /// Whether associations may have come, gone or changed since the last time. Does not wait.
    ///
    /// # Errors
    /// None that an association could cause.
    pub fn changed(&mut self) -> io::Result<bool> {
        for taken in 0..NEWS {
            if !take(&self.news)? {
                // Nothing is left, so that the next one shall wake us again.
                let _ = self.news.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                return Ok(taken > 0);
            }
        }
        Ok(true)
    }

    /// All ESP associations that the kernel has now, whether it has learnt their keys or has only set
    /// their SPI aside. The kernel answers at once.
    ///
    /// # Errors
    /// `PermissionDenied` if `CAP_NET_ADMIN` is no longer there.
    pub fn associations(&mut self) -> io::Result<BTreeSet<Association>> {
        ask(&self.asking)
    }
}

fn ask(asking: &Socket) -> io::Result<BTreeSet<Association>> {
    let mut datagram = Zeroizing::new(vec![0; DATAGRAM]);
    // If the last list was not read to its end: the kernel begins no other before.
    while receive(asking, &mut datagram).is_ok() {}
    send(asking.as_raw_fd(), &list::question(), MsgFlags::empty())?;
    let mut found = BTreeSet::new();
    loop {
        let length = receive(asking, &mut datagram)?;
        let bytes = datagram.get(..length).ok_or(io::ErrorKind::InvalidData)?;
        if list::read(bytes, &mut found).map_err(needs_admin)? {
            return Ok(found);
        }
    }
}

/// Takes one of the news, if there is one, and leaves what it says in the kernel.
fn take(news: &impl AsFd) -> io::Result<bool> {
    match receive(news, &mut []) {
        // Some were lost: news, too.
        Ok(_) | Err(Errno::ENOBUFS) => Ok(true),
        Err(Errno::EAGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
