//! The local socket: HTTP/1.1 with JSON, so that `curl --unix-socket` and every language can use it.
//!
//! A request becomes a question to the engine's loop ([`Handle::ask`]); the answer is turned into
//! JSON here, off the loop. A slow or stuck client costs the engine nothing: clients are limited
//! in number and time, and a follower of events is given them piece by piece.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path as Part, Query, State as Shared};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::fcntl::{Flock, FlockArg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::config::nearest;
use crate::engine::event::Event;
use crate::engine::{Drain, Engine, Time};

/// Clients at once; more wait to be accepted.
const CLIENTS: usize = 64;
/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long clients may take, once the engine has ended, to hear the rest of their answers.
const FAREWELL: Duration = Duration::from_millis(500);
/// Events handed to a follower at once.
const PIECE: usize = 256;
/// Bytes of a request's body that are read at most; no request needs any.
const BODY: usize = 64 << 10;

/// The description of everything that is served here.
pub const OPENAPI: &str = include_str!("openapi.json");

/// A question to the engine: run by its loop, between two wake-ups.
pub type Question = Box<dyn FnOnce(&mut Engine, Time) + Send>;

/// The way to the engine's loop.
#[derive(Debug, Clone)]
pub struct Handle {
    questions: mpsc::Sender<Question>,
    last_event: watch::Receiver<u64>,
}

impl Handle {
    /// A handle that asks over `questions` and hears of new events over `last_event`.
    #[must_use]
    pub const fn new(questions: mpsc::Sender<Question>, last_event: watch::Receiver<u64>) -> Self {
        Self { questions, last_event }
    }

    /// Asks the engine; `None` if its loop has ended.
    pub async fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Engine, Time) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, wait) = oneshot::channel();
        let question: Question = Box::new(move |engine, now| {
            // The asker may have gone; then nobody misses the answer.
            let _ = answer.send(question(engine, now));
        });
        self.questions.send(question).await.ok()?;
        wait.await.ok()
    }

    /// Waits until the engine's loop has ended.
    async fn ended(&self) {
        let mut last_event = self.last_event.clone();
        while last_event.changed().await.is_ok() {}
    }

    /// The next events after `since`, waiting for one if `wait`; with how many were missed.
    pub async fn events(&mut self, since: u64, wait: bool) -> Option<(u64, Vec<Event>)> {
        if wait {
            self.last_event.wait_for(|&last| last > since).await.ok()?;
        }
        self.ask(move |engine, _| {
            let events = engine.events();
            (events.missed(since), events.after(since).take(PIECE).cloned().collect())
        })
        .await
    }
}

/// Where the socket is and who may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Path of the socket.
    pub path: PathBuf,
    /// The group that may read; everybody's if none is named.
    pub readers: Option<String>,
    /// The group that may change, besides root and the daemon's own user.
    pub admins: Option<String>,
}

/// The socket, and the lock that says that this process owns its path.
#[derive(Debug)]
pub struct Bound {
    listener: UnixListener,
    path: PathBuf,
    admins: Option<nix::unistd::Group>,
    lock: Flock<fs::File>,
}

/// Takes the socket's path.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if another daemon owns it; a path that is something else than a
/// socket is left alone.
pub fn bind(access: &Access) -> io::Result<Bound> {
    let path = &access.path;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| named(error, "cannot make the folder of the socket", folder))?;
    }
    let lock_path = path.with_extension("lock");
    let file = fs::OpenOptions::new().create(true).append(true).open(&lock_path);
    let file = file.map_err(|error| named(error, "cannot open the socket's lock", &lock_path))?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
        io::Error::new(io::ErrorKind::AddrInUse, format!("another adit already serves {}", path.display()))
    })?;
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} is there and no socket; it is left alone", path.display()),
            ));
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(|error| named(error, "cannot listen on", path))?;
    let mode = if access.readers.is_some() { 0o660 } else { 0o666 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    if let Some(readers) = &access.readers {
        let group = group(readers)?;
        nix::unistd::chown(path, None, Some(group.gid))
            .map_err(|error| named(error.into(), "cannot give to its group", path))?;
    }
    let admins = access.admins.as_deref().map(group).transpose()?;
    Ok(Bound { listener, path: path.clone(), admins, lock })
}

fn group(name: &str) -> io::Result<nix::unistd::Group> {
    let found = nix::unistd::Group::from_name(name)?;
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no group {name}")))
}

fn named(error: io::Error, what: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
struct Peer {
    may_change: bool,
}

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

impl Drop for Bound {
    fn drop(&mut self) {
        // The lock file stays: removing it would let two daemons lock two files of one name.
        let _ = fs::remove_file(&self.path);
        let _ = &self.lock;
    }
}

fn router(handle: Handle) -> Router {
    Router::new()
        .route("/v1/tunnels", get(tunnels))
        .route("/v1/tunnels/{name}", get(tunnel))
        .route("/v1/tunnels/{name}/explain", get(explain))
        .route("/v1/tunnels/{name}/drain", post(drain))
        .route("/v1/tunnels/{name}/undrain", post(undrain))
        .route("/v1/routes", get(routes))
        .route("/v1/routes/lookup", get(lookup))
        .route("/v1/events", get(events))
        .route("/v1/healthz", get(healthz))
        .route("/v1/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI)))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method: GET asks, POST changes")
        })
        .layer(axum::extract::DefaultBodyLimit::max(BODY))
        .with_state(handle)
}

/// An error as RFC 9457 has it.
#[derive(Debug)]
struct Problem {
    status: StatusCode,
    detail: String,
    nearest: Option<String>,
}

impl Problem {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), nearest: None }
    }

    fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping")
    }

    fn unknown(name: &str, nearest: Option<String>) -> Self {
        let hint = nearest.as_ref().map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
        Self { nearest, ..Self::new(StatusCode::NOT_FOUND, format!("there is no tunnel {name}{hint}")) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("error");
        let mut body =
            json!({"type": "about:blank", "title": title, "status": self.status.as_u16(), "detail": self.detail});
        if let Some(nearest) = self.nearest {
            body["nearest"] = Value::String(nearest);
        }
        (self.status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
    }
}

/// The name in a path. As axum's own, but that what is wrong with it is told as a [`Problem`].
struct Named(String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let name = Part::from_request_parts(parts, state).await;
        name.map(|Part(name)| Self(name)).map_err(|wrong| Problem::new(wrong.status(), wrong.body_text()))
    }
}

/// What follows the question mark; likewise.
struct Asked<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|wrong| Problem::new(wrong.status(), wrong.body_text()))
    }
}

type Answer<T> = Result<T, Problem>;

async fn tunnels(Shared(handle): Shared<Handle>) -> Answer<Json<Value>> {
    let views = handle.ask(Engine::tunnels).await.ok_or_else(Problem::stopping)?;
    Ok(Json(json!({ "tunnels": views })))
}

/// Asks about a tunnel by its name; an unknown one is answered with the nearest known.
async fn about<R: Send + 'static>(
    handle: &Handle,
    name: String,
    question: impl FnOnce(&mut Engine, Time, u32) -> Option<R> + Send + 'static,
) -> Answer<R> {
    let asked = name.clone();
    let answer = handle.ask(move |engine, now| match engine.find(&asked) {
        Some(tunnel) => question(engine, now, tunnel).ok_or(None),
        None => Err(nearest(&asked, engine.names()).map(str::to_owned)),
    });
    answer.await.ok_or_else(Problem::stopping)?.map_err(|nearest| Problem::unknown(&name, nearest))
}

async fn tunnel(Shared(handle): Shared<Handle>, Named(name): Named) -> Answer<Response> {
    Ok(Json(about(&handle, name, Engine::tunnel).await?).into_response())
}

async fn explain(Shared(handle): Shared<Handle>, Named(name): Named) -> Answer<Response> {
    Ok(Json(about(&handle, name, Engine::explain).await?).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainQuery {
    #[serde(default)]
    down: bool,
}

async fn drain(
    Shared(handle): Shared<Handle>,
    Extension(peer): Extension<Peer>,
    Named(name): Named,
    Asked(DrainQuery { down }): Asked<DrainQuery>,
) -> Answer<Response> {
    set_drain(&handle, peer, name, Some(if down { Drain::Down } else { Drain::Degraded })).await
}

async fn undrain(
    Shared(handle): Shared<Handle>,
    Extension(peer): Extension<Peer>,
    Named(name): Named,
) -> Answer<Response> {
    set_drain(&handle, peer, name, None).await
}

async fn set_drain(handle: &Handle, peer: Peer, name: String, drain: Option<Drain>) -> Answer<Response> {
    if !peer.may_change {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "only root, the daemon's user and its admin_group may change anything",
        ));
    }
    let view = about(handle, name, move |engine, now, tunnel| {
        engine.set_drain(now, tunnel, drain);
        engine.tunnel(now, tunnel)
    });
    Ok(Json(view.await?).into_response())
}

async fn routes(Shared(handle): Shared<Handle>) -> Answer<Json<Value>> {
    let views = handle.ask(|engine, _| engine.route_views()).await.ok_or_else(Problem::stopping)?;
    Ok(Json(json!({ "routes": views })))
}

#[derive(Debug, Deserialize)]
struct LookupQuery {
    dst: String,
}

async fn lookup(Shared(handle): Shared<Handle>, Asked(LookupQuery { dst }): Asked<LookupQuery>) -> Answer<Json<Value>> {
    let destination: IpAddr =
        dst.parse().map_err(|_| Problem::new(StatusCode::BAD_REQUEST, format!("{dst} is no IP address")))?;
    let views = handle.ask(move |engine, _| engine.lookup(destination)).await.ok_or_else(Problem::stopping)?;
    Ok(Json(json!({ "routes": views })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    #[serde(default)]
    since: u64,
    #[serde(default)]
    follow: bool,
}

async fn events(Shared(handle): Shared<Handle>, Asked(EventsQuery { since, follow }): Asked<EventsQuery>) -> Response {
    // One piece at a time, made when the client has taken the last: a slow one holds up itself.
    let lines = futures_util::stream::unfold((handle, since, false), move |(mut handle, since, over)| async move {
        if over {
            return None;
        }
        let (missed, events) = handle.events(since, follow).await?;
        let last = events.last().map_or(since, |event| event.id);
        let over = !follow && events.len() < PIECE;
        Some((lines(missed, &events), (handle, last, over)))
    });
    ([(header::CONTENT_TYPE, "application/jsonl")], Body::from_stream(lines)).into_response()
}

fn lines(missed: u64, events: &[Event]) -> Result<Bytes, serde_json::Error> {
    let mut text = Vec::new();
    if missed > 0 {
        text.extend(format!("{{\"kind\":\"gap\",\"missed\":{missed}}}\n").into_bytes());
    }
    for event in events {
        event.serialize(&mut serde_json::Serializer::new(&mut text))?;
        text.push(b'\n');
    }
    Ok(text.into())
}

async fn healthz(Shared(handle): Shared<Handle>) -> Answer<Json<Value>> {
    let view = handle.ask(|engine, _| engine.self_view()).await.ok_or_else(Problem::stopping)?;
    let pairs = |pairs: Vec<(&'static str, u64)>| {
        pairs.into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect()
    };
    let tunnels = view.tunnels.into_iter().map(|(name, count)| (name, count as u64)).collect();
    Ok(Json(json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "tunnels": Value::Object(pairs(tunnels)),
        "rejected": Value::Object(pairs(view.rejected)),
        "hints": view.hints,
        "local_faults": Value::Object(pairs(view.local_faults)),
        "last_event": view.last_event,
    })))
}
