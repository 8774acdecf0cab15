//! Texts of all that is measured. Each is long where there are many tunnels, so there are never more than a few
//! of them, however many clients ask and do not read: several are handed the same one.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use tokio::sync::Mutex;

use super::api::{Answer, Problem};
use super::list::{PIECE, Piece};
use super::{Handle, metrics};
use crate::engine::{Engine, Time};

/// A text is handed to whoever asks so soon after.
const FRESH: Duration = Duration::from_secs(1);
/// And so long, while there are too many to make another one: by then, clients have had to go.
const STALE: Duration = Duration::from_secs(15);
/// Texts that may be under way to clients before none is made for that.
const TEXTS: usize = 2;

/// The texts that are under way, the newest last.
#[derive(Debug, Clone, Default)]
pub(super) struct Shelf(Arc<Mutex<Vec<(Time, Bytes)>>>);

impl Shelf {
    /// A text of now, or of a moment ago. While it is made, who asks for one waits for it.
    pub(super) async fn text(&self, handle: &Handle) -> Answer<Bytes> {
        let mut texts = self.0.lock().await;
        let (now, own) = handle.ask(|engine, now| (now, engine.own_metrics())).await.ok_or_else(Problem::stopping)?;
        if let Some(text) = choose(&mut texts, now) {
            return Ok(text);
        }
        let tunnels = whole(handle, |engine, now, from| engine.tunnel_metrics_from(now, from, PIECE)).await?;
        let routes = whole(handle, |engine, _, from| engine.route_metrics_from(from, PIECE)).await?;
        let endpoints = whole(handle, |engine, _, from| engine.endpoint_metrics_from(from, PIECE)).await?;
        let text = metrics::text(metrics::Metrics { tunnels, routes, endpoints, ..own })
            .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the metrics have no text"))?;
        let text = Bytes::from(text);
        // On a busy host that has taken a while, and those who have waited for it are to have it, not to make another.
        let made = handle.ask(|_, now| now).await.ok_or_else(Problem::stopping)?;
        texts.push((made, text.clone()));
        Ok(text)
    }
}

/// The text that will do, if there is one; those that nobody reads any more are let go of.
fn choose(texts: &mut Vec<(Time, Bytes)>, now: Time) -> Option<Bytes> {
    texts.retain(|(made, text)| now.since(*made) < FRESH || !text.is_unique());
    let patience = if texts.len() < TEXTS { FRESH } else { STALE };
    texts.last().filter(|(made, _)| now.since(*made) < patience).map(|(_, text)| text.clone())
}

/// All of a list, piece by piece, so that probes need not wait for it.
async fn whole<T: Send + 'static>(
    handle: &Handle,
    piece: impl Fn(&mut Engine, Time, usize) -> Piece<T> + Copy + Send + 'static,
) -> Answer<Vec<T>> {
    let (mut all, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let asked = handle.ask(move |engine, now| piece(engine, now, from)).await;
        let (some, then) = asked.ok_or_else(Problem::stopping)?;
        all.extend(some);
        next = then;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn there_are_never_more_than_a_few_texts_and_none_is_very_old() {
        let (mut texts, mut held) = (Vec::new(), Vec::new());
        for second in 0..100 {
            let text = choose(&mut texts, at(second)).unwrap_or_else(|| {
                let text = Bytes::from(vec![0; 100]);
                texts.push((at(second), text.clone()));
                text
            });
            let (made, _) = texts.iter().find(|(_, known)| known.as_ptr() == text.as_ptr()).unwrap();
            assert!(at(second).since(*made) < STALE);
            // Who asks once a second, and keeps each text as long as is allowed.
            held.push((second, text));
            held.retain(|(since, _)| second - since < STALE.as_secs());
            assert!(texts.len() <= TEXTS + 1, "{} texts", texts.len());
        }
    }

    #[test]
    fn a_text_that_nobody_reads_is_not_kept() {
        let mut texts = vec![(at(1), Bytes::from(vec![0; 100]))];
        assert!(choose(&mut texts, at(1)).is_some());
        assert!(choose(&mut texts, at(3)).is_none() && texts.is_empty());
    }
}
