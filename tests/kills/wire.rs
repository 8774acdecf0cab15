//! What travels: every ESP packet that comes to a namespace or leaves it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use adit::io::netns;
use nix::errno::Errno;
use nix::libc::{ETH_P_ALL, IPPROTO_ESP, IPPROTO_UDP};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use nix::sys::time::TimeSpec;
use socket2::{Domain, SockFilter, Socket, Type};

/// Where UDP holds ESP (RFC 3948).
const PORT: u16 = 4500;

/// In the kernel's filter language: takes ESP and UDP over IPv4 and IPv6, and spares us what they hold.
const FILTER: [SockFilter; 10] = [
    SockFilter::new(LOAD_BYTE, 0, 0, 0),
    SockFilter::new(AND, 0, 0, 0xf0),
    SockFilter::new(IF_EQUAL, 0, 2, 0x40),
    SockFilter::new(LOAD_BYTE, 0, 0, 9),
    SockFilter::new(SKIP, 0, 0, 1),
    SockFilter::new(LOAD_BYTE, 0, 0, 6),
    SockFilter::new(IF_EQUAL, 1, 0, IPPROTO_ESP.cast_unsigned()),
    SockFilter::new(IF_EQUAL, 0, 1, IPPROTO_UDP.cast_unsigned()),
    SockFilter::new(TAKE, 0, 0, 128),
    SockFilter::new(TAKE, 0, 0, 0),
];
const LOAD_BYTE: u16 = 0x30;
const AND: u16 = 0x54;
const IF_EQUAL: u16 = 0x15;
const SKIP: u16 = 0x05;
const TAKE: u16 = 0x06;
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
        socket.attach_filter(&FILTER)?;
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

/// Reads an IP packet without options, if it is ESP, bare or in UDP.
fn esp(packet: &[u8]) -> Option<Seen> {
    let (protocol, header) = match packet.first()? >> 4 {
        4 => (packet.get(9)?, packet.get(20..)?),
        6 => (packet.get(6)?, packet.get(40..)?),
        _ => return None,
    };
    let header = match i32::from(*protocol) {
        IPPROTO_ESP => header,
        // Behind ports, length and checksum; what is shorter than ESP is a keep-alive.
        IPPROTO_UDP if header.get(2..4)? == PORT.to_be_bytes() => header.get(8..)?,
        _ => return None,
    };
    let (spi, rest) = header.split_first_chunk()?;
    Some((u32::from_be_bytes(*spi), u32::from_be_bytes(*rest.first_chunk()?)))
}
