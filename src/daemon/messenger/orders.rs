//! What the steward says to the messenger: whom to tell of what, and where everything is.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::engine::WallTime;
use crate::notice::Notify;

/// Holds secrets: of webhooks.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) notify: Vec<Notify>,
    socket: OsString,
    state_dir: OsString,
    /// Who was not told before is told of what happens from here on: nanoseconds of the wall clock.
    since: u64,
}

impl Orders {
    pub(crate) fn new(notify: Vec<Notify>, socket: &Path, state_dir: &Path, since: WallTime) -> Self {
        Self { notify, socket: socket.into(), state_dir: state_dir.into(), since: since.0 }
    }

    pub(super) fn socket(&self) -> PathBuf {
        PathBuf::from(&self.socket)
    }

    pub(super) fn state_dir(&self) -> PathBuf {
        PathBuf::from(&self.state_dir)
    }

    pub(super) const fn since(&self) -> WallTime {
        WallTime(self.since)
    }

    /// Whether they are about the same sinks.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let packed = |orders: &Self| postcard::to_stdvec(&orders.notify).map(Zeroizing::new);
        packed(self).is_ok_and(|this| packed(other).is_ok_and(|that| this == that))
    }

    pub(crate) fn pack(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        postcard::to_stdvec(self).map(Zeroizing::new).map_err(io::Error::other)
    }

    pub(super) fn unpack(bytes: &[u8]) -> io::Result<Self> {
        postcard::from_bytes(bytes).map_err(io::Error::other)
    }
}
