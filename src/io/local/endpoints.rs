//! Endpoints, as they are asked for.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;

use super::Handle;
use super::api::{Answer, HINTED, Named, Problem};
use super::list::{PIECE, list};
use crate::config::{defaults::NAME_MAX, nearest};
use crate::engine::endpoints::EndpointView;

/// All of them.
pub(super) async fn all(Shared(handle): Shared<Handle>) -> Answer<Response> {
    list(handle, "endpoints", |engine, now, from| engine.endpoints_from(now, from, PIECE)).await
}

/// One by its name; an unknown one is answered with the nearest known.
pub(super) async fn one(Shared(handle): Shared<Handle>, Named(name): Named) -> Answer<Json<EndpointView>> {
    if name.len() > NAME_MAX {
        return Err(Problem::new(StatusCode::NOT_FOUND, "there is no endpoint of so long a name"));
    }
    let asked = name.clone();
    let answer = handle.ask(move |engine, now| {
        let known = || engine.endpoint_names().take(HINTED).map(str::to_owned).collect();
        engine.find_endpoint(&asked).and_then(|number| engine.endpoint(now, number)).ok_or_else(known)
    });
    let found: Result<EndpointView, Vec<String>> = answer.await.ok_or_else(Problem::stopping)?;
    found.map(Json).map_err(|names| {
        let nearest = nearest(&name, names.iter().map(String::as_str)).map(str::to_owned);
        Problem::unknown("endpoint", &name, nearest)
    })
}
