//! What can be asked, and the answers.

use std::net::IpAddr;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path as Part, Query, State as Shared};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Handle, OPENAPI, PIECE};
use crate::config::nearest;
use crate::engine::event::Event;
use crate::engine::{Drain, Engine, Time};

/// Bytes of a request's body that are read at most; no request needs any.
pub(super) const BODY: usize = 64 << 10;

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) may_change: bool,
}

pub(super) fn router(handle: Handle) -> Router {
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
