//! Who may change things, besides root and the daemon's own user: the members of a group.

use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

use nix::unistd::{Gid, Uid, User, getgrouplist};
use tokio::sync::{Semaphore, oneshot};

/// Look-ups at once; each may wait for a directory service.
pub(super) const LOOKUPS: usize = 4;

/// The members of a group.
#[derive(Debug, Clone)]
pub(super) struct Admins {
    pub(super) group: Gid,
    membership: Membership,
    /// A client that goes does not end the look-up that it has caused: so turns are counted, not clients.
    turns: Arc<Semaphore>,
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
    pub(super) fn new(group: Gid, membership: Membership) -> Self {
        Self { group, membership, turns: Arc::new(Semaphore::new(LOOKUPS)) }
    }

    /// Whether a user is one of them. A directory service may take its time, so only this client waits for
    /// it, and it is only asked about who wants to change something.
    pub(super) async fn have(&self, uid: Uid) -> bool {
        let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await else { return false };
        let (group, membership) = (self.group, self.membership.clone());
        let look_up = async move {
            let _turn = turn;
            match membership {
                Membership::Database => tokio::task::spawn_blocking(move || is_member(uid, group)).await.ok(),
                Membership::Asked(ask) => ask(uid.as_raw()).await.ok(),
            }
        };
        // It goes on, and keeps its turn, even if nobody waits for it any more.
        tokio::spawn(look_up).await.ok().flatten().unwrap_or(false)
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
