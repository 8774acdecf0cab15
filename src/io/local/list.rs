//! Answers that may be long: made piece by piece.
//!
//! There may be a hundred thousand tunnels. Asked for in one go, they would keep the engine's loop from its
//! probes, and the answer would lie in memory for each client that asks and does not read. So the next piece
//! is asked for when the client has taken the last one: a slow one holds up itself.

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;

use super::Handle;
use super::api::{Answer, Problem};
use crate::engine::{Engine, Time};

/// Items of a piece: some 30 kB, and a small part of a millisecond of the loop.
pub(super) const PIECE: usize = 32;

/// Some items, and where the next ones begin, if there are more.
pub(super) type Piece<T> = (Vec<T>, Option<usize>);

/// `{"<name>": [<items>]}`. Each item is as it was when its piece was made; a reload meanwhile may show one
/// twice, or not at all.
pub(super) async fn list<T: Serialize + Send + 'static>(
    handle: Handle,
    name: &'static str,
    piece: impl Fn(&mut Engine, Time, usize) -> Piece<T> + Clone + Send + Sync + 'static,
) -> Answer<Response> {
    let ask = move |handle: Handle, from: usize| {
        let piece = piece.clone();
        async move { handle.ask(move |engine, now| piece(engine, now, from)).await }
    };
    let first = ask(handle.clone(), 0).await.ok_or_else(Problem::stopping)?;
    let rest = move |(handle, state): (Handle, State<T>)| {
        let ask = ask.clone();
        async move {
            let (head, (items, next)) = match state {
                State::Begun(piece) => (format!("{{\"{name}\":["), piece),
                // The daemon ends: what is not whole must not look so.
                State::Next(from) => (",".to_owned(), ask(handle.clone(), from).await?),
                State::Over => return None,
            };
            let state = next.map_or(State::Over, State::Next);
            Some((text(head, &items, next.is_none()), (handle, state)))
        }
    };
    let body = Body::from_stream(stream::unfold((handle, State::Begun(first)), rest));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

enum State<T> {
    Begun(Piece<T>),
    Next(usize),
    Over,
}

fn text<T: Serialize>(head: String, items: &[T], is_last: bool) -> Result<Bytes, serde_json::Error> {
    let mut text = head.into_bytes();
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        serde_json::to_writer(&mut text, item)?;
    }
    if is_last {
        text.extend(b"]}");
    }
    // It may wait for a client who does not read, and a buffer that grew holds up to twice what is in it.
    text.shrink_to_fit();
    Ok(text.into())
}
