//! What is served over TCP, where the configuration asks for it: what is measured, and a page that shows the tunnels.
//!
//! Nobody knows who asks there, so nothing can be changed, and nothing is said but what the page needs. All of it is
//! asked of the engine as the local socket asks it, on another thread and with places of its own: whoever fills these
//! keeps nobody from the local socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use axum::Router;
use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, JoinSet};

use super::api::{self, Answer, Asked, EventsQuery, Problem, busy};
use super::guard;
use super::serve::{FAREWELL, Peer, Places, REFUSED, Server, be_modest, visit};
use super::{Handle, endpoints, serve};

/// Clients at once. A browser that shows the page takes two for a moment.
const CLIENTS: usize = 24;
/// Clients that may wait to be accepted.
const BACKLOG: i32 = 32;
const PAGE: &str = include_str!("page.html");

/// Takes an address, for another process to serve. Where it is one of IPv6, it is that alone.
///
/// # Errors
/// Somebody has it already, it is none of this host's, or the port is one for which a capability is missing.
pub fn listen(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a run before that are not forgotten yet do not count.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A listener of another process, to be served by this one.
#[derive(Debug)]
pub struct Door {
    /// The socket.
    pub socket: OwnedFd,
    /// Its address.
    pub address: SocketAddr,
    /// Whether the page is served, and what it needs.
    pub page: bool,
}

/// What serves the listeners, as they come and go. It has no thread before the first.
#[derive(Debug)]
pub struct Web(JoinHandle<Option<Server>>);

impl Web {
    /// Waits for listeners; each takes the place of the one before, and `None` leaves none. Must be called within a
    /// runtime.
    #[must_use]
    pub fn begin(mut doors: UnboundedReceiver<Option<Door>>, handle: Handle) -> Self {
        Self(tokio::spawn(async move {
            let first = tokio::select! {
                () = handle.ended() => None,
                first = first(&mut doors) => first,
            };
            let server = first.map(|first| start(first, doors, handle)).transpose();
            server.inspect_err(|error| tracing::error!(%error, "the metrics are not served over TCP")).ok().flatten()
        }))
    }

    /// Waits until the engine has ended, and clients have heard of that.
    pub async fn join(self) {
        // It has not panicked: nothing in it could.
        self.0.await.ok().flatten().into_iter().for_each(Server::join);
    }
}

/// The first listener; never, if there will be none.
async fn first(doors: &mut UnboundedReceiver<Option<Door>>) -> Option<Door> {
    loop {
        match doors.recv().await {
            Some(Some(door)) => return Some(door),
            Some(None) => {}
            None => std::future::pending().await,
        }
    }
}

/// Serves on a thread of its own, as the local socket's is: making text of very many tunnels takes long.
fn start(first: Door, doors: UnboundedReceiver<Option<Door>>, handle: Handle) -> io::Result<Server> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serve = move || {
        be_modest();
        runtime.block_on(serve(first, doors, handle));
    };
    std::thread::Builder::new().name("adit-metrics".to_owned()).spawn(serve).map(Server::on)
}

async fn serve(first: Door, mut doors: UnboundedReceiver<Option<Door>>, handle: Handle) {
    let (clients, refused) = (Places::new((CLIENTS, 0)), Places::new((REFUSED, 0)));
    let (busy, mut visits, ended) = (busy(), JoinSet::new(), handle.ended());
    tokio::pin!(ended);
    let mut open = enter(first, &handle);
    loop {
        let accepted = tokio::select! {
            () = &mut ended => break,
            // What has ended is let go of.
            Some(_) = visits.join_next() => continue,
            Some(door) = doors.recv() => {
                open = door.and_then(|door| enter(door, &handle));
                continue;
            }
            accepted = accept(open.as_ref()) => accepted,
        };
        let Ok((stream, router)) = accepted else {
            // Out of descriptors, say: not to be met by spinning.
            tokio::time::sleep(serve::PAUSE).await;
            continue;
        };
        let peer = Peer::stranger();
        let place = clients.take(&peer).map(|place| (place, router));
        let Some((place, router)) = place.or_else(|| refused.take(&peer).map(|place| (place, &busy))) else { continue };
        visits.spawn(visit(stream, peer, router.clone(), place));
    }
    drop(open);
    let _ = tokio::time::timeout(FAREWELL, async { while visits.join_next().await.is_some() {} }).await;
}

async fn accept(open: Option<&(TcpListener, Router)>) -> io::Result<(tokio::net::TcpStream, &Router)> {
    let Some((listener, router)) = open else { return std::future::pending().await };
    let (stream, _) = listener.accept().await?;
    Ok((stream, router))
}

fn enter(Door { socket, address, page }: Door, handle: &Handle) -> Option<(TcpListener, Router)> {
    let listener = TcpListener::from_std(socket.into());
    let listener = listener.inspect_err(|error| tracing::error!(%error, %address, "the listener cannot be used"));
    Some((listener.ok()?, router(handle.clone(), address, page)))
}

fn router(handle: Handle, address: SocketAddr, page: bool) -> Router {
    let router = Router::new().route("/metrics", get(api::metrics));
    let router = if page {
        router
            .route("/", get(status_page))
            .route("/v1/tunnels", get(api::tunnels))
            .route("/v1/routes", get(api::routes))
            .route("/v1/endpoints", get(endpoints::all))
            .route("/v1/events", get(events))
            .route("/v1/healthz", get(api::healthz))
    } else {
        router.route("/", get(front))
    };
    let is_local = address.ip().to_canonical().is_loopback();
    let guarded = move |request: Request, next: Next| async move {
        match guard::check(&request) {
            Err(refused) if is_local => guard::label(*refused),
            Ok(()) | Err(_) => guard::label(next.run(request).await),
        }
    };
    let nothing = async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path over TCP");
    let wrong = async || Problem::new(StatusCode::METHOD_NOT_ALLOWED, "over TCP nothing can be changed: only GET");
    router
        .fallback(nothing)
        .method_not_allowed_fallback(wrong)
        .layer(axum::extract::DefaultBodyLimit::max(0))
        .layer(middleware::from_fn(guarded))
        .with_state(handle)
}

async fn status_page() -> Response {
    let fields = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_SECURITY_POLICY, guard::policy(PAGE)),
    ];
    (fields, PAGE).into_response()
}

/// What is at the front where there is no page.
async fn front() -> Problem {
    let where_else = "/metrics is here; for the status page write status_page = true below [daemon], and reload";
    Problem::new(StatusCode::NOT_FOUND, where_else)
}

/// Events so far: nobody follows them here, because a client that is gone without a word could not be told from one
/// that waits.
async fn events(
    Shared(handle): Shared<Handle>,
    Asked(EventsQuery { since, follow }): Asked<EventsQuery>,
) -> Answer<Response> {
    if follow {
        let why = "events are not followed over TCP: ask again with the last number as since, or use the local socket";
        return Err(Problem::new(StatusCode::BAD_REQUEST, why));
    }
    Ok(api::told(handle, since, false, ()))
}
