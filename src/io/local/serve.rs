//! Clients: on which thread, how many, for how long.
//!
//! A client has a place for as long as it is served. Whoever finds none free is told so at once,
//! instead of waiting in front of those who would find one: some places are kept for root and the
//! daemon's own user. Who follows the events stays for long, so only some places are for that.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::unistd::{Gid, Uid, geteuid};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::admins::{Admins, LOOKUPS};
use super::api::{BODY, busy, router};
use super::patience::Impatient;
use super::{Bound, Handle};

/// Clients at once: this many, and so many more who are root or the daemon's own user.
const CLIENTS: (usize, usize) = (56, 8);
/// Those among them that may follow the events, likewise.
const FOLLOWERS: (usize, usize) = (44, 4);
/// Clients at once that are told that there is no place; more are hung up on.
pub(super) const REFUSED: usize = 16;
/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may take altogether, unless it follows the events; and how long one that does may take
/// nothing of them.
const VISIT: Duration = Duration::from_secs(15);
/// How long clients may take, once the engine has ended, to hear the rest of their answers.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);
/// After a failure to accept one.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// What clients are worth beside probes: a tenth.
const MODESTY: i32 = 10;

/// The thread that serves the local socket.
#[derive(Debug)]
pub struct Server {
    thread: JoinHandle<()>,
}

impl Bound {
    /// Serves clients until the engine has ended, on a thread of its own: making JSON of many
    /// tunnels takes milliseconds, which no probe is to wait for.
    ///
    /// # Errors
    /// There is no room for a thread or its runtime.
    pub fn serve(self, handle: Handle) -> io::Result<Server> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(LOOKUPS).build()?;
        let Self { listener, place, admins, .. } = self;
        let listener = {
            let _within = runtime.enter();
            UnixListener::from_std(listener)?
        };
        let serve = move || {
            be_modest();
            runtime.block_on(serve(listener, handle, admins));
            // A look-up may hang: it is not waited for.
            runtime.shutdown_background();
            drop(place);
        };
        let thread = std::thread::Builder::new().name("adit-socket".to_owned()).spawn(serve)?;
        Ok(Server { thread })
    }
}

/// Where there is little processor time, this thread gets what others leave it. (On Linux a thread has a
/// priority of its own; setpriority(2).)
pub(super) fn be_modest() {
    // It is no worse than before if that cannot be had.
    let _ = rustix::process::setpriority_process(None, MODESTY);
}

impl Server {
    /// One that is at work on this thread.
    pub(super) const fn on(thread: JoinHandle<()>) -> Self {
        Self { thread }
    }

    /// Waits until the engine has ended, clients have heard of that, and the path is free again.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("a thread that answers clients has panicked");
        }
    }
}

/// Who asks.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The user and their group; nobody knows who comes over TCP.
    pub(super) user: Option<(Uid, Gid)>,
    /// Set by the answer that goes on for as long as the client likes.
    pub(super) follows: Arc<AtomicBool>,
}

impl Peer {
    /// The user's number.
    pub(super) fn uid(&self) -> Option<u32> {
        self.user.map(|(user, _)| user.as_raw())
    }

    fn of(stream: &UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        Ok(Self { user: Some((Uid::from_raw(peer.uid()), Gid::from_raw(peer.gid()))), follows: Arc::default() })
    }

    /// Somebody who has no rights.
    pub(super) fn stranger() -> Self {
        Self { user: None, follows: Arc::default() }
    }

    /// Root, or the daemon's own user.
    pub(super) fn is_trusted(&self) -> bool {
        self.user.is_some_and(|(uid, _)| uid.is_root() || uid == geteuid())
    }
}

/// So many places for all, and some more that are kept for those who are trusted.
#[derive(Debug, Clone)]
pub(super) struct Places {
    common: Arc<Semaphore>,
    kept: Arc<Semaphore>,
}

impl Places {
    pub(super) fn new((common, kept): (usize, usize)) -> Self {
        Self { common: Arc::new(Semaphore::new(common)), kept: Arc::new(Semaphore::new(kept)) }
    }

    /// A place, free again when it is dropped.
    pub(super) fn take(&self, peer: &Peer) -> Option<OwnedSemaphorePermit> {
        let free = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        free(&self.common).or_else(|| if peer.is_trusted() { free(&self.kept) } else { None })
    }
}

async fn serve(listener: UnixListener, handle: Handle, admins: Option<Admins>) {
    let router = router(handle.clone(), admins, Places::new(FOLLOWERS));
    let (clients, refused) = (Places::new(CLIENTS), Places::new((REFUSED, 0)));
    let busy = busy();
    let mut visits = JoinSet::new();
    let ended = handle.ended();
    tokio::pin!(ended);
    loop {
        let accepted = tokio::select! {
            () = &mut ended => break,
            // What has ended is let go of.
            Some(_) = visits.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, say: not to be met by spinning.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(peer) = Peer::of(&stream) else { continue };
        let place = clients.take(&peer).map(|place| (place, &router));
        let Some((place, router)) = place.or_else(|| refused.take(&peer).map(|place| (place, &busy))) else { continue };
        visits.spawn(visit(stream, peer, router.clone(), place));
    }
    // Nobody new, and what is left in the queue is refused.
    drop(listener);
    let _ = tokio::time::timeout(FAREWELL, async { while visits.join_next().await.is_some() {} }).await;
}

/// Serves one client, as [`Bound::serve`] does with each, over a stream that is there already: to the user and
/// the group with these numbers. Needs a runtime with time.
pub async fn attend<S>(stream: S, (uid, gid): (u32, u32), handle: Handle)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let peer = Peer { user: Some((Uid::from_raw(uid), Gid::from_raw(gid))), follows: Arc::default() };
    let Some(place) = Places::new((1, 0)).take(&peer) else { return };
    visit(stream, peer, router(handle, None, Places::new(FOLLOWERS)), place).await;
}

/// Serves one client, with patience that has an end.
pub(super) async fn visit<S>(stream: S, peer: Peer, router: Router, place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let follows = Arc::clone(&peer.follows);
    let overdue = async {
        tokio::time::sleep(VISIT).await;
        if follows.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(BODY).keep_alive(false);
    let stream = Impatient::new(stream, VISIT);
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    tokio::select! {
        ended = http.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a client went wrong");
            }
        }
        () = overdue => tracing::debug!("a client took too long"),
    }
    drop(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32) -> Peer {
        Peer { user: Some((Uid::from_raw(uid), Gid::from_raw(uid))), follows: Arc::default() }
    }

    #[test]
    fn some_places_are_kept() {
        let (stranger, root) = (peer(geteuid().as_raw() + 1), peer(0));
        let places = Places::new((2, 1));
        let mut taken: Vec<_> = (0..2).map(|_| places.take(&stranger).unwrap()).collect();
        assert!(places.take(&stranger).is_none());
        let kept = places.take(&root).unwrap();
        assert!(places.take(&root).is_none(), "not even root has more than there are");
        drop(kept);
        assert!(places.take(&stranger).is_none(), "it stays kept");
        taken.pop();
        assert!(places.take(&stranger).is_some());
    }

    #[test]
    fn who_comes_over_tcp_is_nobody() {
        assert!(!Peer::stranger().is_trusted());
        assert!(Places::new((0, 1)).take(&Peer::stranger()).is_none());
    }
}
