//! Clients: how many, for how long.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use super::api::{BODY, Peer, router};
use super::{Bound, Handle};

/// Clients at once; more wait to be accepted.
const CLIENTS: usize = 64;
/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long clients may take, once the engine has ended, to hear the rest of their answers.
const FAREWELL: Duration = Duration::from_millis(500);

impl Bound {
    /// Serves clients until the engine has ended.
    pub async fn serve(self, handle: Handle) {
        let router = router(handle.clone());
        let clients = Arc::new(Semaphore::new(CLIENTS));
        loop {
            let next = async {
                let permit = Arc::clone(&clients).acquire_owned().await;
                (permit, self.listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = handle.ended() => break,
                next = next => next,
            };
            let Ok((stream, _)) = accepted else {
                // Out of descriptors, say: not to be met by spinning.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let peer = Peer { may_change: self.may_change(&stream) };
            let service = TowerToHyperService::new(router.clone().layer(Extension(peer)));
            tokio::spawn(async move {
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(BODY).keep_alive(false);
                if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
                    tracing::debug!(%error, "a client of the local socket went wrong");
                }
                drop(permit);
            });
        }
        let everyone = u32::try_from(CLIENTS).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(FAREWELL, clients.acquire_many(everyone)).await;
    }

    fn may_change(&self, stream: &UnixStream) -> bool {
        let Ok(peer) = stream.peer_cred() else { return false };
        let uid = nix::unistd::Uid::from_raw(peer.uid());
        uid.is_root() || uid == nix::unistd::geteuid() || self.is_admin(uid, peer.gid())
    }

    fn is_admin(&self, uid: nix::unistd::Uid, gid: u32) -> bool {
        let Some(admins) = &self.admins else { return false };
        let name = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
        admins.gid.as_raw() == gid || name.is_some_and(|name| admins.mem.contains(&name))
    }
}
