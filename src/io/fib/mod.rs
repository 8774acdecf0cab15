//! The kernel's routes, next-hop objects and policy rules of one network namespace (FIB: forwarding
//! information base): changed, pictured whole, and listened to.
//!
//! | file | holds |
//! | --- | --- |
//! | `write` | [`Writer`]: changes, many in one send, each answered |
//! | `encode` | a change as a message |
//! | `read` | [`Reader`]: the picture of now |
//! | `list` | [`List`]: one of the lists that it consists of, as bytes |
//! | `routes` | what a list of routes has for us |
//! | `witness` | whether others change what is just being read |
//! | `decode` | a message as a route, an object, a rule, a device |
//! | `listen` | [`Monitor`]: that others have changed something |
//! | `nexthop` | the layout of next-hop messages, which the library lacks |
//! | `sysctl` | whether the kernel announces each route over an object that changes |
//!
//! Values come in and go out; what is to be done about them is decided in [`crate::steer`].
//!
//! Everything that is made here bears a tag, and nothing without it is changed. The kernel sees to that
//! for routes and rules, as the tag is part of what a deletion must match; of next-hop objects it does
//! not, so [`Writer`] looks at the tag first.
//!
//! Opening and looking need no capability. Each change needs `CAP_NET_ADMIN` in the user namespace that
//! owns the network namespace, and not only at opening: the kernel looks at each message.

mod decode;
mod encode;
mod list;
mod listen;
mod nexthop;
mod read;
#[cfg(test)]
mod recorded;
mod routes;
mod sysctl;
mod witness;
mod write;

pub use list::{Asked, List, Objects};
pub use listen::{Heard, Listener, Monitor, News, Newspaper};
pub use read::Reader;
pub use routes::Routes;
pub use sysctl::{notify_routes, set_notify_routes};
pub use write::Writer;

use std::io;

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Room for one datagram: the kernel fills what room it is given, up to 32 KiB, unless one message
/// alone is longer.
const DATAGRAM: usize = 64 << 10;

/// Three sockets in one network namespace.
#[derive(Debug)]
pub struct Opened {
    /// Changes things.
    pub writer: Writer,
    /// Looks at all there is.
    pub reader: Reader,
    /// Hears what others change; not yet in a runtime's hands.
    pub listener: Listener,
}

/// Opens the kernel's routes of the namespace of the calling thread. `tag` is the protocol number that
/// ours bear (`rtm_protocol` of rtnetlink(7)); 0 means any to the kernel and must not be it. `buffer` is
/// how many bytes of news the kernel may keep for us; without `CAP_NET_ADMIN` it may give less.
///
/// # Errors
/// The system's own: no room for sockets.
pub fn open(tag: u8, buffer: usize) -> io::Result<Opened> {
    let writer = Writer::open(tag)?;
    // Before any change is made, so that none is missed.
    let listener = Listener::open(tag, buffer, writer.port())?;
    Ok(Opened { writer, reader: Reader::open(tag)?, listener })
}

/// Whether an error says that the kernel had no room for what it had to say: some of it is lost, and
/// what there is now must be looked at anew.
#[must_use]
pub fn is_overrun(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENOBUFS as i32)
}

/// A socket that talks to the kernel, with its port number there.
fn socket() -> io::Result<(Socket, u32)> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    let port = socket.bind_auto()?.port_number();
    // From now on it hears nobody but the kernel.
    socket.connect(&SocketAddr::new(0, 0))?;
    // A kernel without it still gives numbers.
    let _ = socket.set_ext_ack(true);
    Ok((socket, port))
}

fn enlarge_receive_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &bytes)?;
    }
    Ok(())
}
