//! Receiving sockets: opened, filtered, and drained into an inbox.

use std::io::{self, IoSliceMut};
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, getsockopt, recvmmsg, setsockopt, sockopt,
};
// The macro's own parts must be in scope beside it.
use nix::{getsockopt_impl, libc, sockopt_impl};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::{BATCH, filter_for_ever, open, program};
use crate::engine::{Ear, Namespace, Time, WallTime};
use crate::io::clock::{Clock, stamped};
use crate::wire::filter::{self, Pass, Protocol};
use crate::wire::{Family, esp, gre, ip, probe::Arrived};

/// The longest packet that is received whole; a probe may be padded up to about this.
const PACKET: usize = 9_216;
/// Asked for, so that the answers of a whole tick fit; the kernel may give less.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Bytes that are taken at once at most; what is more is as good as a flood.
const ARENA: usize = 16 << 20;
/// What the inbox keeps of its memory from one turn to the next.
const ARENA_KEPT: usize = 1 << 20;
/// System calls a socket is drained with at most before the others have their turn: more than its
/// buffer can hold, so that only a flood that outruns this process is cut short.
const BATCHES: usize = 512;

sockopt_impl!(
    /// What the kernel knows of a socket's memory (`SO_MEMINFO`): bytes waiting, room for them, six
    /// numbers that do not matter here, packets dropped.
    MemInfo,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_MEMINFO,
    [u32; 9]
);

/// What emptying a socket has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Packets that the kernel has dropped for want of room since the last time.
    pub overflowed: u32,
    /// Whether the socket was read to its end.
    pub whole: bool,
}

/// A socket that receives what passes its filter.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    family: Family,
    protocol: Protocol,
    /// Packets that the kernel has dropped so far.
    dropped: u32,
    drained: Time,
}

/// A receiving socket that is open, but not yet in a runtime's hands.
#[derive(Debug)]
pub struct Opened {
    socket: OwnedFd,
    family: Family,
    protocol: Protocol,
}

/// Opens a receiving socket in the namespace of the calling thread.
///
/// # Errors
/// Needs `CAP_NET_RAW`.
pub fn open_receiver(family: Family, protocol: Protocol, pass: Pass) -> io::Result<Opened> {
    let socket = open(family, number(family, protocol).into())?;
    let filter = filter::program(family, protocol, pass);
    // Those of ESP change with the keys.
    match protocol {
        Protocol::Esp | Protocol::EspInUdp => socket.attach_filter(&program(&filter))?,
        Protocol::Gre | Protocol::Icmp => filter_for_ever(&socket, &filter)?,
    }
    socket.set_nonblocking(true)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    match family {
        // By which device it came (ip(7)).
        Family::V4 => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
        // The same, and the destination: a raw IPv6 socket gives no header (RFC 3542, section 6).
        Family::V6 => setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?,
    }
    // Going beyond the host's limit needs CAP_NET_ADMIN; without it the limit has to do.
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    }
    Ok(Opened { socket: socket.into(), family, protocol })
}

impl Opened {
    /// The socket, which another process may be handed.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Of which packets it is given.
    #[must_use]
    pub const fn kind(&self) -> (Family, Protocol) {
        (self.family, self.protocol)
    }

    /// A receiving socket that another process has opened.
    #[must_use]
    pub const fn handed(socket: OwnedFd, (family, protocol): (Family, Protocol)) -> Self {
        Self { socket, family, protocol }
    }

    /// Hands the socket to the runtime that is running.
    ///
    /// # Errors
    /// Registering it may fail for want of descriptors.
    pub fn register(self, now: Time) -> io::Result<Receiver> {
        // tokio has no type for raw sockets; its UDP socket is but a descriptor with readiness, and
        // nothing of UDP is used here.
        let socket = UdpSocket::from_std(self.socket.into())?;
        Ok(Receiver { socket, family: self.family, protocol: self.protocol, dropped: 0, drained: now })
    }
}

impl Receiver {
    /// Of which packets it is given.
    #[must_use]
    pub const fn kind(&self) -> (Family, Protocol) {
        (self.family, self.protocol)
    }

    /// Whether something may have arrived; wakes the task when it does.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_recv_ready(context).map(|_| ())
    }

    /// Lets ESP packets with these SPIs pass from now on, in ascending order, and no others; where the
    /// kernel has no room for so long a filter (`net.core.optmem_max`), some between them, too.
    ///
    /// # Errors
    /// None that a packet could cause.
    pub fn listen(&self, spis: &[u32]) -> io::Result<()> {
        if self.attach(spis, filter::RANGES)? {
            return Ok(());
        }
        // The old filter takes its room until the new one is in place: a short one between them.
        self.attach(spis, 1)?;
        let mut ranges = spis.len().min(filter::RANGES);
        while !self.attach(spis, ranges)? && ranges > 1 {
            ranges = ranges * 7 / 8;
        }
        if ranges < spis.len() {
            let spis = spis.len();
            tracing::warn!(spis, ranges, "the kernel's net.core.optmem_max is low: ESP of others comes here, too");
        }
        Ok(())
    }

    /// Filters by so many ranges at most; whether the kernel has room for that.
    fn attach(&self, spis: &[u32], ranges: usize) -> io::Result<bool> {
        let filter = filter::inlets_within(self.family, self.protocol, spis, ranges);
        match SockRef::from(&self.socket).attach_filter(&program(&filter)) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Which socket this is.
    #[must_use]
    pub const fn ear(&self, namespace: Namespace) -> Ear {
        Ear { namespace, family: self.family, protocol: self.protocol }
    }

    /// Moves everything that has arrived into the inbox.
    ///
    /// # Errors
    /// None that a packet could cause.
    pub fn drain(&mut self, clock: &Clock, namespace: Namespace, inbox: &mut Inbox) -> io::Result<Drained> {
        let mut overflowed = 0;
        for _ in 0..BATCHES {
            overflowed += self.overflowed()?;
            let before = clock.now();
            if self.receive(clock, namespace, inbox)? < BATCH {
                self.drained = before;
                // Nothing is left, so that the next arrival shall wake us again.
                let _ = self.socket.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                return Ok(Drained { overflowed, whole: true });
            }
            if inbox.arena.len() > ARENA {
                break;
            }
        }
        Ok(Drained { overflowed, whole: false })
    }

    /// How many packets were lost since the last time because the queue was full.
    ///
    /// The counter alone will not do: the kernel also counts ICMPv6 packets with a wrong checksum in
    /// it, which anybody can send, and it says so beside a packet (`SO_RXQ_OVFL`) only with the next
    /// one that arrives. Asked before each batch, because only taking packets out makes room: a queue
    /// that was full since the last time has lost no more than a batch, and is still half full.
    fn overflowed(&mut self) -> io::Result<u32> {
        let memory = getsockopt(&self.socket, MemInfo)?;
        let [used, room, .., dropped] = memory;
        let lost = dropped.wrapping_sub(std::mem::replace(&mut self.dropped, dropped));
        Ok(if used >= room / 2 { lost } else { 0 })
    }

    fn receive(&self, clock: &Clock, namespace: Namespace, inbox: &mut Inbox) -> io::Result<usize> {
        let fd = self.socket.as_fd().as_raw_fd();
        // Made anew for each batch: nix leaves the lengths as the last batch set them. A stamp and a
        // place take 72 bytes of the control messages at most.
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, Some(nix::cmsg_space!([u8; 128])));
        let mut slices: Vec<_> = inbox.buffers.iter_mut().map(|buffer| [IoSliceMut::new(&mut buffer[..])]).collect();
        let messages = match recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None) {
            Ok(messages) => messages,
            Err(Errno::EAGAIN) => return Ok(0),
            // Interrupted: as good as a full batch, so that it is tried again.
            Err(Errno::EINTR) => return Ok(BATCH),
            Err(error) => return Err(error.into()),
        };
        let (now, wall) = (clock.now(), clock.wall());
        let mut count = 0;
        for message in messages {
            count += 1;
            let mut arrival = Arrival { namespace, protocol: number(self.family, self.protocol), ..Arrival::at(now) };
            arrival.source =
                message.address.as_ref().and_then(|address| address.as_sockaddr_in6()).map(|address| address.ip());
            for control in message.cmsgs().into_iter().flatten() {
                #[expect(clippy::wildcard_enum_match_arm, reason = "only what was asked for comes")]
                match control {
                    ControlMessageOwned::ScmTimestampns(stamp) => {
                        let stamp = WallTime(u64::try_from(Duration::from(stamp).as_nanos()).unwrap_or(0));
                        arrival.at = stamped(now, wall, stamp, self.drained);
                    }
                    ControlMessageOwned::Ipv6PacketInfo(info) => {
                        arrival.destination = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr));
                        arrival.interface = info.ipi6_ifindex;
                    }
                    ControlMessageOwned::Ipv4PacketInfo(info) => {
                        arrival.interface = u32::try_from(info.ipi_ifindex).unwrap_or(0);
                    }
                    _ => {}
                }
            }
            message.iovs().for_each(|bytes| inbox.arena.extend_from_slice(bytes));
            arrival.end = inbox.arena.len();
            arrival.begin = arrival.end - message.bytes.min(PACKET);
            inbox.arrivals.push(arrival);
        }
        Ok(count)
    }
}

/// What has arrived at all sockets, to be handed on in the order of arrival.
#[derive(Debug)]
pub struct Inbox {
    buffers: Box<[Box<[u8; PACKET]>]>,
    arena: Vec<u8>,
    arrivals: Vec<Arrival>,
}

/// One packet in the inbox.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: Time,
    namespace: Namespace,
    interface: u32,
    protocol: u8,
    source: Option<Ipv6Addr>,
    destination: Option<Ipv6Addr>,
    begin: usize,
    end: usize,
}

impl Arrival {
    const fn at(at: Time) -> Self {
        Self { at, namespace: 0, interface: 0, protocol: 0, source: None, destination: None, begin: 0, end: 0 }
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self { buffers: (0..BATCH).map(|_| Box::new([0; PACKET])).collect(), arena: Vec::new(), arrivals: Vec::new() }
    }
}

impl Inbox {
    /// Hands on what has arrived, oldest first, and empties the inbox: when, in which namespace, by
    /// the device of which index there (0: unknown), what. What comes out of a tunnel device came by
    /// that device, whatever carried its outer packet. What this host has sent to itself is said to come
    /// by the device that has its destination address, though it never was there.
    pub fn deliver(&mut self, mut to: impl FnMut(Time, Namespace, u32, Arrived<'_>)) {
        // A tunnel's answers can come to more than one socket; their order must not depend on ours.
        self.arrivals.sort_by_key(|arrival| arrival.at);
        for arrival in &self.arrivals {
            let bytes = &self.arena[arrival.begin..arrival.end];
            let arrived = match (arrival.source, arrival.destination) {
                (Some(source), Some(destination)) => {
                    Arrived::V6 { protocol: arrival.protocol, source, destination, payload: bytes }
                }
                _ => Arrived::V4(bytes),
            };
            to(arrival.at, arrival.namespace, arrival.interface, arrived);
        }
        self.arrivals.clear();
        self.arena.clear();
        self.arena.shrink_to(ARENA_KEPT);
    }
}

const fn number(family: Family, protocol: Protocol) -> u8 {
    match (protocol, family) {
        (Protocol::Gre, _) => gre::PROTOCOL,
        (Protocol::Esp, _) => esp::PROTOCOL,
        (Protocol::EspInUdp, _) => esp::udp::PROTOCOL,
        (Protocol::Icmp, Family::V4) => ip::ICMP,
        (Protocol::Icmp, Family::V6) => ip::ICMPV6,
    }
}
