//! A diagnosis, begun for a client who waits for it.

use std::time::Duration;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use super::api::{Answer, Desk, Named, Problem, about, may_change};
use super::serve::Peer;
use crate::engine::diagnose::{NotBegun, Progress};

/// It is asked this often whether it has ended.
const POLL: Duration = Duration::from_millis(50);

/// Begins one, and answers with what it has found. A client who goes does not end it: it takes seconds.
pub(super) async fn diagnose(
    Shared(desk): Shared<Desk>,
    Extension(peer): Extension<Peer>,
    Named(name): Named,
) -> Answer<Response> {
    if !may_change(peer, desk.admins.as_ref()).await {
        return Err(Problem::forbidden());
    }
    let begun = about(&desk.handle, name, |engine, now, tunnel| Some(engine.begin_diagnosis(now, tunnel))).await?;
    let number = begun.map_err(|why| {
        let why = match why {
            NotBegun::UnderWay => "this tunnel is being diagnosed; ask again in some seconds",
            NotBegun::TooMany => "as many tunnels are being diagnosed as may be at once; ask again in some seconds",
        };
        Problem::new(StatusCode::CONFLICT, why)
    })?;
    loop {
        tokio::time::sleep(POLL).await;
        let progress = desk.handle.ask(move |engine, _| engine.take_diagnosis(number)).await;
        match progress.ok_or_else(Problem::stopping)? {
            Progress::UnderWay => {}
            Progress::Done(diagnosis) => return Ok(Json(diagnosis).into_response()),
            Progress::Gone => {
                return Err(Problem::new(
                    StatusCode::CONFLICT,
                    "the tunnel has become another one meanwhile; ask again",
                ));
            }
        }
    }
}
