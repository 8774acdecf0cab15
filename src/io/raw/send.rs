//! Sending sockets, filled in batches.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg, setsockopt, sockopt};
use socket2::Socket;

use super::{BATCH, filter_for_ever, needs, open};
use crate::wire::{Family, filter};

const SEND_BUFFER: usize = 4 << 20;

/// A socket that sends packets with their IP header.
#[derive(Debug)]
pub struct Sender {
    socket: Socket,
    /// The name of the device that it is bound to, as the kernel has it: the configuration may have
    /// another one for it (`altname`).
    device: Option<Vec<u8>>,
}

/// By which socket packets leave.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leaving {
    /// Family of the outer header.
    pub family: Family,
    /// Device or VRF to bind to.
    pub device: Option<String>,
    /// Firewall mark; 0 for none.
    pub mark: u32,
    /// The source by which the kernel looks for a route and for an IPsec policy. The packet's own does
    /// not count there: without this one it is the source that the kernel would choose itself.
    pub source: Option<IpAddr>,
}

/// Opens a sending socket in the namespace of the calling thread.
///
/// # Errors
/// Needs `CAP_NET_RAW`, a mark `CAP_NET_ADMIN`; `NotFound` if there is no such device.
pub fn open_sender(leaving: &Leaving) -> io::Result<Sender> {
    open_with(leaving, libc::IPPROTO_RAW)
}

/// The same for ICMP messages whose IP header the kernel makes, with the source that it chooses by the route, unless there
/// is one here.
///
/// # Errors
/// As [`open_sender`].
pub fn open_plain_sender(leaving: &Leaving) -> io::Result<Sender> {
    let protocol = match leaving.family {
        Family::V4 => libc::IPPROTO_ICMP,
        Family::V6 => libc::IPPROTO_ICMPV6,
    };
    open_with(leaving, protocol)
}

fn open_with(leaving: &Leaving, protocol: i32) -> io::Result<Sender> {
    let socket = open(leaving.family, protocol)?;
    filter_for_ever(&socket, &filter::nothing())?;
    socket.set_nonblocking(true)?;
    if let Some(device) = &leaving.device {
        socket.bind_device(Some(device.as_bytes())).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => io::Error::new(io::ErrorKind::NotFound, error),
            _ => error,
        })?;
    }
    let device = leaving.device.as_ref().map(|_| socket.device()).transpose()?.flatten();
    if leaving.mark != 0 {
        socket.set_mark(leaving.mark).map_err(|error| needs(error, "mark needs CAP_NET_ADMIN"))?;
    }
    if let Some(source) = leaving.source {
        // Nor need it be an address of this host yet.
        match source {
            IpAddr::V4(_) => socket.set_freebind_v4(true)?,
            IpAddr::V6(_) => socket.set_freebind_v6(true)?,
        }
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    enlarge_send_buffer(&socket)?;
    Ok(Sender { socket, device })
}

pub(in crate::io) fn enlarge_send_buffer(socket: &Socket) -> io::Result<()> {
    if setsockopt(socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
        socket.set_send_buffer_size(SEND_BUFFER)?;
    }
    Ok(())
}

impl Sender {
    /// The socket, which another process may be handed.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// A sender of a socket that another process has opened.
    ///
    /// # Errors
    /// The kernel does not say to which device it is bound.
    pub fn handed(socket: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(socket);
        let device = socket.device()?;
        Ok(Self { socket, device })
    }

    /// Whether this sender is bound to a device.
    #[must_use]
    pub const fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Whether the device that it is bound to is still there, by the same name. The kernel binds to a
    /// device's index: one that is made anew under the name has another, so open another sender then.
    /// True without a device.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        // The kernel looks the name up by the index, in the namespace of the socket.
        self.device.is_none() || self.socket.device().is_ok_and(|device| device == self.device)
    }

    /// Sends packets, each to its address, and reports those that the kernel did not take by their
    /// place and its reason.
    pub fn send(&self, packets: &[(IpAddr, &[u8])], refused: impl FnMut(usize, Errno)) {
        let address = |address| SocketAddr::new(address, 0).into();
        send_all(&self.socket, packets, address, refused);
    }
}

/// Sends packets in batches, each to what `address` makes of its destination, and reports those that
/// the kernel did not take by their place and its reason.
pub(in crate::io) fn send_all(
    socket: &Socket,
    packets: &[(IpAddr, &[u8])],
    address: impl Fn(IpAddr) -> SockaddrStorage,
    mut refused: impl FnMut(usize, Errno),
) {
    let mut from = 0;
    while from < packets.len() {
        let batch = &packets[from..packets.len().min(from + BATCH)];
        let slices: Vec<_> = batch.iter().map(|(_, bytes)| [IoSlice::new(bytes)]).collect();
        let addresses: Vec<_> = batch.iter().map(|&(destination, _)| Some(address(destination))).collect();
        let mut headers = MultiHeaders::preallocate(batch.len(), None);
        let fd = socket.as_raw_fd();
        let taken =
            sendmmsg(fd, &mut headers, slices.iter(), addresses, [], MsgFlags::MSG_DONTWAIT).map(Iterator::count);
        match taken {
            Ok(taken) if taken > 0 => from += taken,
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            // The error is that of the first packet that was left (sendmmsg(2)).
            Err(error) => {
                refused(from, error);
                from += 1;
            }
        }
    }
}
