//! Hearing that others have changed something.
//!
//! What the kernel tells unasked only means "look again"; the answer is always a whole picture. So
//! nothing is lost when news come faster than they are read.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use ipnet::IpNet;
use nix::errno::Errno;
use nix::libc;
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::decode::{
    self, Head, RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE, RTM_DELRULE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE,
    RTM_NEWRULE,
};
use super::nexthop::{self, RTM_DELNEXTHOP, RTM_NEWNEXTHOP};
use super::{DATAGRAM, enlarge_receive_buffer};
use crate::io::netlink::{Message, messages, receive};
use crate::io::raw;
use crate::wire::filter;

/// News taken at once at most, so that a flood of them does not hold us up.
const MOST: usize = 4_096;
/// How many different things are named that have changed.
const NAMED: usize = 16;

const GROUPS: [u32; 8] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_NEXTHOP,
];

/// A socket that hears what is changed, not yet in a runtime's hands.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    tag: u8,
}

/// Hears what others change in one network namespace.
#[derive(Debug)]
pub struct Monitor {
    socket: UdpSocket,
    tag: u8,
    datagram: Vec<u8>,
}

/// What has been heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Nothing that matters.
    Nothing,
    /// This has changed, and perhaps more: no more than a few are named.
    Changed(BTreeSet<News>),
    /// More than the kernel could keep for us: anything may have changed.
    Overrun,
}

/// One thing that somebody else has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    /// The device with this index.
    Link(u32),
    /// An address of the device with this index.
    Address(u32),
    /// The next-hop object with this number.
    Nexthop(u32),
    /// A rule that bears our tag.
    Rule,
    /// A route that bears our tag, or that concerns us.
    Route {
        /// Its table.
        table: u32,
        /// Its destination.
        prefix: IpNet,
    },
}

impl Listener {
    /// Hears everything but what the writer with this port does.
    pub(super) fn open(tag: u8, buffer: usize, writer: u32) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        enlarge_receive_buffer(&socket, buffer)?;
        SockRef::from(&socket).attach_filter(&raw::program(&filter::not_from(writer)))?;
        socket.bind_auto()?;
        // From now on it hears nobody but the kernel.
        socket.connect(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            match socket.add_membership(group) {
                // A kernel that has no next-hop objects may not have their group.
                Err(error) if group != libc::RTNLGRP_NEXTHOP => return Err(error),
                _ => {}
            }
        }
        Ok(Self { socket, tag })
    }

    /// Hands the socket to the runtime that is running.
    ///
    /// # Errors
    /// The runtime's own.
    pub fn register(self) -> io::Result<Monitor> {
        // tokio's UDP socket is but a descriptor with readiness; nothing of UDP is used here.
        let descriptor = self.socket.as_fd().try_clone_to_owned()?;
        Ok(Monitor { socket: UdpSocket::from_std(descriptor.into())?, tag: self.tag, datagram: vec![0; DATAGRAM] })
    }
}

impl Monitor {
    /// Whether there may be news; wakes the task when there are.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_recv_ready(context).map(drop)
    }

    /// What has been heard since the last time. `concerns` says of which tables and destinations the
    /// routes of others matter. Does not wait.
    ///
    /// # Errors
    /// The system's own.
    pub fn heard(&mut self, concerns: impl Fn(u32, &IpNet) -> bool) -> io::Result<Heard> {
        let Self { socket, tag, datagram } = self;
        let mut paper = Newspaper::default();
        for _ in 0..MOST {
            let length = match receive(socket, datagram) {
                Ok(length) => length,
                Err(Errno::ENOBUFS) => {
                    paper.overrun = true;
                    continue;
                }
                Err(Errno::EAGAIN) => {
                    // Nothing is left, so that the next one shall wake us again.
                    let _ = socket.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            // One that is cut short is as good as lost.
            match datagram.get(..length) {
                Some(datagram) => paper.take(*tag, datagram, &concerns),
                None => paper.overrun = true,
            }
        }
        Ok(paper.heard())
    }
}

/// News as they come in, datagram by datagram.
#[derive(Debug, Default)]
pub struct Newspaper {
    news: BTreeSet<News>,
    overrun: bool,
}

impl Newspaper {
    /// Takes one datagram; of whatever bytes.
    pub fn take(&mut self, tag: u8, datagram: &[u8], concerns: &impl Fn(u32, &IpNet) -> bool) {
        for message in messages(datagram) {
            match message {
                Ok(message) if self.news.len() < NAMED => self.news.extend(read(tag, &message, concerns)),
                Ok(_) => {}
                Err(_) => self.overrun = true,
            }
        }
    }

    /// All of them.
    #[must_use]
    pub fn heard(self) -> Heard {
        match (self.overrun, self.news.is_empty()) {
            (true, _) => Heard::Overrun,
            (false, true) => Heard::Nothing,
            (false, false) => Heard::Changed(self.news),
        }
    }
}

fn read(tag: u8, message: &Message<'_>, concerns: &impl Fn(u32, &IpNet) -> bool) -> Option<News> {
    let payload = message.payload;
    match message.kind {
        RTM_NEWLINK | RTM_DELLINK => decode::link(payload).map(|link| News::Link(link.index)),
        RTM_NEWADDR | RTM_DELADDR => decode::address_device(payload).map(News::Address),
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => nexthop::read(payload).map(|(_, nexthop)| News::Nexthop(nexthop.id)),
        RTM_NEWRULE | RTM_DELRULE => decode::rule_is_ours(tag, payload).then_some(News::Rule),
        RTM_NEWROUTE | RTM_DELROUTE => {
            let head = Head::read(payload).filter(Head::is_route)?;
            let ours = head.protocol == tag;
            let matters = ours || concerns(head.table, &head.prefix);
            matters.then_some(News::Route { table: head.table, prefix: head.prefix })
        }
        _ => None,
    }
}
