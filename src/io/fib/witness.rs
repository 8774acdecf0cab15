//! Whether somebody else changes what is just being read.

use std::io;

use nix::errno::Errno;
use nix::libc;
use rtnetlink::sys::Socket;

use super::socket;
use crate::io::netlink::receive;

/// Lists of which the kernel does not say itself whether they have changed while it gave them out.
const GROUPS: [u32; 3] = [libc::RTNLGRP_IPV4_RULE, libc::RTNLGRP_IPV6_RULE, libc::RTNLGRP_IPV6_ROUTE];

/// Hears changes, but only while something is read: at any other time it costs the kernel nothing.
#[derive(Debug)]
pub(super) struct Witness {
    socket: Socket,
}

impl Witness {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { socket: socket()?.0 })
    }

    pub(super) fn begin(&self) -> io::Result<()> {
        GROUPS.into_iter().try_for_each(|group| self.socket.add_membership(group))
    }

    pub(super) fn end(&self) -> io::Result<()> {
        GROUPS.into_iter().try_for_each(|group| self.socket.drop_membership(group))
    }

    /// Whether nothing was changed since the last time.
    pub(super) fn quiet(&self) -> bool {
        let mut quiet = true;
        // Too much is not quiet, either.
        while matches!(receive(&self.socket, &mut []), Ok(_) | Err(Errno::ENOBUFS)) {
            quiet = false;
        }
        quiet
    }
}
