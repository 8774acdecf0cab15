//! What the two processes of the daemon say to each other.
//!
//! The **steward** has the capabilities: it opens sockets, keeps the kernel's routes, reads the files of the
//! configuration. The **prober** has none, and everything that strangers can reach: packets, clients. So
//! what the prober may ask for is little, of fixed size, and harmless even if a stranger asks for it: a
//! [`Request`]. What the steward says is a [`Word`], with descriptors beside it.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | what the prober asks for, as bytes |
//! | `outward` | the steward's end |
//! | `inward` | the prober's end |

mod inward;
mod outward;
mod request;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::steer;
use crate::config::Texts;
use crate::engine::{Egress, Namespace};
use crate::io::local::NotReloaded;
use crate::wire::Family;
use crate::wire::filter::Protocol;

pub(super) use inward::{Begun, Inward, Supplies};
pub(super) use outward::{Outward, Parcel};
pub(super) use request::Request;

/// What the steward says.
#[derive(Serialize, Deserialize)]
pub(super) enum Word {
    /// The first.
    Begin(Begin),
    /// A namespace is there. With its receivers, and followed by so many [`Word::Way`].
    There(Namespace, Vec<(Family, Protocol)>, usize),
    /// A namespace is missing, and why.
    Missing(Namespace, String),
    /// Another way out, with its descriptors, or why there is none.
    Way(Egress, Result<WayKind, String>),
    /// All associations of a namespace, or why they are not seen for now.
    Associations(Namespace, Result<BTreeSet<(IpAddr, u32)>, String>),
    /// Which reason a tunnel's device has to drop its probes (a place in `io::device::WITHHELD`).
    Withheld(u32, Option<u8>),
    /// All that is there, or new there, has been told: begin to probe.
    Go,
    /// Another configuration, of this generation, asked for by these questions. What is open for it follows,
    /// up to a [`Word::Go`].
    Renew(u32, Vec<u32>, Packed),
    /// The configuration that these questions asked for is refused.
    NotRenewed(Vec<u32>, NotReloaded),
    /// News of the kernel's routes.
    Routes(steer::News),
    /// Whether the user of this question belongs to the group that may change things.
    Member(u32, bool),
    /// A listener of TCP, which comes beside this, to serve the metrics at; with its address, and whether the status
    /// page is served there. It takes the place of the one before; without one, none is served any more.
    Door(Option<(SocketAddr, bool)>),
    /// The end.
    Stop,
}

/// What the prober must know before anything else.
#[derive(Serialize, Deserialize)]
pub(super) struct Begin {
    /// The configuration.
    pub(super) texts: Packed,
    /// How many there were before it.
    pub(super) generation: u32,
    /// Tells its probes from those of other runs; the sockets that are handed over pass no others.
    pub(super) epoch: u64,
    /// The steward's process.
    pub(super) steward: u32,
    /// Changes of the kernel's routes are printed instead of made.
    pub(super) dry_run: bool,
    /// The group that may change things over the local socket, whose listener comes beside this.
    pub(super) admins: Option<u32>,
    /// The log goes by the line that is the first of what comes beside this.
    pub(super) relays: bool,
}

/// What a way out is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WayKind {
    /// A raw socket.
    Raw,
    /// A device of this index: three sockets.
    Device(u32),
}

/// The texts of a configuration on their way. There are keys in it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Packed(Zeroizing<Vec<u8>>);

impl Packed {
    /// # Errors
    /// None that the texts could cause.
    pub(super) fn pack(texts: &Texts) -> io::Result<Self> {
        postcard::to_stdvec(texts).map(Zeroizing::new).map(Self).map_err(io::Error::other)
    }

    /// # Errors
    /// It is not what was packed.
    pub(super) fn unpack(&self) -> io::Result<Texts> {
        postcard::from_bytes(&self.0).map_err(io::Error::other)
    }
}
