//! Who may change things, besides root and the daemon's own user: the members of a group.

use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

use nix::unistd::{Gid, Uid, User, getgrouplist};
use tokio::sync::oneshot;

/// The members of a group.
#[derive(Debug, Clone)]
pub(super) struct Admins {
    pub(super) group: Gid,
    pub(super) membership: Membership,
}

/// Who knows whether a user belongs to it.
#[derive(Clone, Default)]
pub enum Membership {
    /// The system's user database, asked here.
    #[default]
    Database,
    /// Somebody who may ask it: where this process may open no socket, it cannot reach a directory service.
    Asked(Arc<dyn Fn(u32) -> oneshot::Receiver<bool> + Send + Sync>),
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Database => "Database",
            Self::Asked(_) => "Asked",
        })
    }
}

impl Admins {
    /// Whether a user is one of them. A directory service may take its time, so only this client waits for
    /// it, and it is only asked about who wants to change something.
    pub(super) async fn have(&self, uid: Uid) -> bool {
        match &self.membership {
            Membership::Database => {
                let group = self.group;
                tokio::task::spawn_blocking(move || is_member(uid, group)).await.unwrap_or(false)
            }
            Membership::Asked(ask) => ask(uid.as_raw()).await.unwrap_or(false),
        }
    }
}

/// Whether a user belongs to a group by what the system's user database says.
#[must_use]
pub fn is_member(uid: Uid, group: Gid) -> bool {
    let groups = || {
        let user = User::from_uid(uid).ok()??;
        getgrouplist(&CString::new(user.name).ok()?, user.gid).ok()
    };
    groups().is_some_and(|groups| groups.contains(&group))
}
