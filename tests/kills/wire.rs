//! What travels: every ESP packet that comes to a namespace or leaves it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use adit::io::netns;
use nix::errno::Errno;
use nix::libc::{ETH_P_ALL, IPPROTO_ESP};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use nix::sys::time::TimeSpec;
use socket2::{Domain, SockFilter, Socket, Type};

/// In the kernel's filter language: ESP in IPv4, and maybe some of another kind.
const LOAD_PROTOCOL: SockFilter = SockFilter::new(0x30, 0, 0, 9);
const SKIP_UNLESS_ESP: SockFilter = SockFilter::new(0x15, 0, 1, IPPROTO_ESP.cast_unsigned());
const TAKE: SockFilter = SockFilter::new(0x06, 0, 0, 128);
const LEAVE: SockFilter = SockFilter::new(0x06, 0, 0, 0);

/// The SPI, and the sequence number as far as it travels: its low 32 bits.
pub(crate) type Seen = (u32, u32);

#[derive(Debug)]
pub(crate) struct Wire {
    socket: Socket,
}

impl Wire {
    pub(crate) fn tap(namespace: &File) -> io::Result<Self> {
        let every = u16::try_from(ETH_P_ALL).map_err(io::Error::other)?.to_be();
        let open = || Socket::new(Domain::PACKET, Type::DGRAM, Some(i32::from(every).into()));
        let socket = netns::within(Some(namespace), open)?;
        socket.attach_filter(&[LOAD_PROTOCOL, SKIP_UNLESS_ESP, TAKE, LEAVE])?;
        // Only root may. Without it there is room for a second of ours, and nobody looks away for as long.
        let _ = setsockopt(&socket, RcvBufForce, &(8 << 20));
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// The next one that travels, if one does by then; in their order, as a cable keeps it.
    pub(crate) fn next(&self, by: Instant) -> io::Result<Option<Seen>> {
        loop {
            let mut bytes = [0; 128];
            match (&self.socket).read(&mut bytes) {
                Ok(length) => {
                    if let Some(seen) = esp(&bytes[..length]) {
                        return Ok(Some(seen));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.readable(by)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits to the microsecond, for moments are what this is about.
    fn readable(&self, by: Instant) -> io::Result<bool> {
        let left = super::until(by);
        if left == Duration::ZERO {
            return Ok(false);
        }
        let mut sockets = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut sockets, Some(TimeSpec::from_duration(left)), None) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads an IPv4 packet, if it is ESP.
fn esp(packet: &[u8]) -> Option<Seen> {
    let [first, ..] = *packet else { return None };
    let protocol = *packet.get(9)?;
    if first >> 4 != 4 || i32::from(protocol) != IPPROTO_ESP {
        return None;
    }
    let header = packet.get(usize::from(first & 0xf) * 4..)?;
    let (spi, rest) = header.split_first_chunk()?;
    Some((u32::from_be_bytes(*spi), u32::from_be_bytes(*rest.first_chunk()?)))
}
