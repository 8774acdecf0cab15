//! What can be asked, and the answers.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use axum::body::{Body, Bytes};
use axum::extract::{FromRef, FromRequestParts, Path as Part, Query, State as Shared};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::admins::Admins;
use super::list::{PIECE, list};
use super::serve::{Peer, Places};
use super::{Applied, EVENTS, Gap, Handle, NotReloaded, OPENAPI, diagnose, drain, endpoints, format, sa};
use crate::config::{defaults::NAME_MAX, nearest};
use crate::engine::event::{Event, Kind};
use crate::engine::route_view::Whereabouts;
use crate::engine::{Engine, Time};

/// Bytes of a request's body that are read at most; no request needs any.
pub(super) const BODY: usize = 64 << 10;

/// Names among which the nearest to a wrong one is looked for: a hint is not worth more.
pub(super) const HINTED: usize = 4_096;

/// What answers share.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    pub(super) handle: Handle,
    pub(super) admins: Option<Admins>,
    followers: Places,
}

impl FromRef<Desk> for Handle {
    fn from_ref(desk: &Desk) -> Self {
        desk.handle.clone()
    }
}

pub(super) fn router(handle: Handle, admins: Option<Admins>, followers: Places) -> Router {
    Router::new()
        .route("/v1/tunnels", get(tunnels))
        .route("/v1/tunnels/{name}", get(tunnel))
        .route("/v1/tunnels/{name}/explain", get(explain))
        .route("/v1/tunnels/{name}/diagnose", post(diagnose::diagnose))
        .route("/v1/tunnels/{name}/drain", post(drain::drain))
        .route("/v1/tunnels/{name}/undrain", post(drain::undrain))
        .route("/v1/tunnels/{name}/sa", get(sa::one).post(sa::install))
        .route("/v1/tunnels/{name}/sa/begin", post(sa::begin))
        .route("/v1/sa", get(sa::all))
        .route("/v1/routes", get(routes))
        .route("/v1/routes/lookup", get(lookup))
        .route("/v1/endpoints", get(endpoints::all))
        .route("/v1/endpoints/{name}", get(endpoints::one))
        .route("/v1/events", get(events))
        .route("/v1/reload", post(reload))
        .route("/v1/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .route("/v1/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI)))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method: GET asks, POST changes")
        })
        .layer(axum::extract::DefaultBodyLimit::max(BODY))
        .with_state(Desk { handle, admins, followers })
}

/// What answers while there is no place.
pub(super) fn busy() -> Router {
    let answer = async || Problem::busy("too many clients at once; ask again");
    Router::new().fallback(answer)
}

/// An error as RFC 9457 has it.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    nearest: Option<String>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), nearest: None }
    }

    pub(super) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping")
    }

    pub(super) fn forbidden() -> Self {
        let who = "only root, the daemon's user and its admin_group may change anything";
        Self::new(StatusCode::FORBIDDEN, who)
    }

    fn busy(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(super) fn unknown(what: &str, name: &str, nearest: Option<String>) -> Self {
        let hint = nearest.as_ref().map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
        Self { nearest, ..Self::new(StatusCode::NOT_FOUND, format!("there is no {what} {name}{hint}")) }
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
pub(super) struct Named(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let name = Part::from_request_parts(parts, state).await;
        name.map(|Part(name)| Self(name)).map_err(|wrong| Problem::new(wrong.status(), wrong.body_text()))
    }
}

/// What follows the question mark; likewise.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|wrong| Problem::new(wrong.status(), wrong.body_text()))
    }
}

pub(super) type Answer<T> = Result<T, Problem>;

pub(super) async fn tunnels(Shared(handle): Shared<Handle>) -> Answer<Response> {
    list(handle, "tunnels", |engine, now, from| engine.tunnels_from(now, from, PIECE)).await
}

/// Asks about a tunnel by its name; an unknown one is answered with the nearest known.
pub(super) async fn about<R: Send + 'static>(
    handle: &Handle,
    name: String,
    question: impl FnOnce(&mut Engine, Time, u32) -> Option<R> + Send + 'static,
) -> Answer<R> {
    if name.len() > NAME_MAX {
        return Err(Problem::new(StatusCode::NOT_FOUND, "there is no tunnel of so long a name"));
    }
    let asked = name.clone();
    let answer = handle.ask(move |engine, now| match engine.find(&asked) {
        Some(tunnel) => question(engine, now, tunnel).ok_or_else(Vec::new),
        None => Err(engine.names().take(HINTED).map(str::to_owned).collect()),
    });
    // The nearest name is looked for here, because it may take longer than a probe may wait.
    let known: Result<R, Vec<String>> = answer.await.ok_or_else(Problem::stopping)?;
    known.map_err(|names| {
        let nearest = nearest(&name, names.iter().map(String::as_str)).map(str::to_owned);
        Problem::unknown("tunnel", &name, nearest)
    })
}

async fn tunnel(Shared(handle): Shared<Handle>, Named(name): Named) -> Answer<Response> {
    Ok(Json(about(&handle, name, Engine::tunnel).await?).into_response())
}

async fn explain(Shared(handle): Shared<Handle>, Named(name): Named) -> Answer<Response> {
    Ok(Json(about(&handle, name, Engine::explain).await?).into_response())
}

async fn reload(Shared(desk): Shared<Desk>, Extension(peer): Extension<Peer>) -> Answer<Json<Applied>> {
    if !may_change(peer, desk.admins.as_ref()).await {
        return Err(Problem::forbidden());
    }
    match desk.handle.reload().await.ok_or_else(Problem::stopping)? {
        Ok(applied) => Ok(Json(applied)),
        Err(NotReloaded::Wrong(problems)) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, problems)),
        Err(NotReloaded::Failed(why)) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why)),
    }
}

pub(super) async fn may_change(peer: Peer, admins: Option<&Admins>) -> bool {
    match admins {
        _ if peer.is_trusted() => true,
        Some(admins) => match peer.user {
            Some((uid, gid)) => gid == admins.group || admins.have(uid).await,
            None => false,
        },
        None => false,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoutesQuery {
    tunnel: Option<String>,
}

pub(super) async fn routes(
    Shared(handle): Shared<Handle>,
    Asked(RoutesQuery { tunnel }): Asked<RoutesQuery>,
) -> Answer<Response> {
    let Some(name) = tunnel else {
        return list(handle, "routes", |engine, _, from| engine.route_views_from(from, PIECE)).await;
    };
    about(&handle, name.clone(), |_, _, _| Some(())).await?;
    // By name each time: a reload may have given its index to another.
    let piece = move |engine: &mut Engine, _, from| {
        engine.find(&name).map_or((Vec::new(), None), |tunnel| engine.route_views_over(tunnel, from, PIECE))
    };
    list(handle, "routes", piece).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupQuery {
    dst: String,
    flow: Option<u64>,
    table: Option<u32>,
    netns: Option<String>,
}

async fn lookup(
    Shared(handle): Shared<Handle>,
    Asked(LookupQuery { dst, flow, table, netns }): Asked<LookupQuery>,
) -> Answer<Json<Value>> {
    let destination: IpAddr =
        dst.parse().map_err(|_| Problem::new(StatusCode::BAD_REQUEST, format!("{dst} is no IP address")))?;
    let whereabouts = Whereabouts { table, netns };
    let views = handle.ask(move |engine, _| engine.lookup(destination, flow, &whereabouts)).await;
    let views = views.ok_or_else(Problem::stopping)?;
    Ok(Json(json!({ "routes": views })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    #[serde(default)]
    pub(super) since: u64,
    #[serde(default)]
    pub(super) follow: bool,
}

async fn events(
    Shared(desk): Shared<Desk>,
    Extension(peer): Extension<Peer>,
    Asked(EventsQuery { since, follow }): Asked<EventsQuery>,
) -> Answer<Response> {
    // Who only reads what there is may take their time, too, if a place is free for that.
    let place = desk.followers.take(&peer);
    if follow && place.is_none() {
        return Err(Problem::busy("too many clients follow the events; ask without follow, or again"));
    }
    peer.follows.store(place.is_some(), Ordering::Relaxed);
    // The loop goes on until the last follower has heard of its end.
    let heard = follow.then(|| desk.handle.audience().subscribe());
    Ok(told(desk.handle, since, follow, (place, heard)))
}

/// The events after a number, one a line. One piece at a time, made when the client has taken the last: a slow one
/// holds up itself. What is `held` is let go of behind the last.
pub(super) fn told(handle: Handle, since: u64, follow: bool, held: impl Send + 'static) -> Response {
    let next = move |(mut handle, since, over): (Handle, u64, bool)| {
        let _held = &held;
        async move {
            if over {
                return None;
            }
            let (gap, events) = handle.events(since, follow).await?;
            let last = events.last().map_or(since, |event| event.id);
            let ended = matches!(events.last(), Some(Event { kind: Kind::Stop {}, .. }));
            let over = ended || (!follow && events.len() < EVENTS);
            Some((lines(gap, &events), (handle, last, over)))
        }
    };
    let lines = futures_util::stream::unfold((handle, since, false), next);
    ([(header::CONTENT_TYPE, "application/jsonl")], Body::from_stream(lines)).into_response()
}

fn lines(gap: Option<Gap>, events: &[Event]) -> Result<Bytes, serde_json::Error> {
    let mut text = Vec::new();
    if let Some(gap) = gap {
        serde_json::to_writer(&mut text, &gap)?;
        text.push(b'\n');
    }
    for event in events {
        serde_json::to_writer(&mut text, event)?;
        text.push(b'\n');
    }
    // As of a list: it may wait for a client who does not read.
    text.shrink_to_fit();
    Ok(text.into())
}

pub(super) async fn metrics(Shared(handle): Shared<Handle>, headers: HeaderMap) -> Answer<Response> {
    let text = handle.texts.text(&handle).await?;
    Ok(format::wanted(&headers).answer(text))
}

pub(super) async fn healthz(Shared(handle): Shared<Handle>) -> Answer<Json<Value>> {
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
        "loop_lag": view.loop_lag,
        "lateness": view.lateness,
        "fail_static": view.fail_static,
        "kernel_drifts": view.kernel_drifts,
        "last_event": view.last_event,
    })))
}
