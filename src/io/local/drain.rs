//! Drains over the local socket: what may be asked for, and by whom.

use std::time::{Duration, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;

use super::api::{Answer, Asked, Desk, Named, Problem, about, may_change};
use super::serve::Peer;
use crate::engine::drain::Reason;
use crate::engine::{Drain, Engine, Order, Time, WallTime};

/// A drain with an end is no longer than this: what is to last has none.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainQuery {
    down: Option<bool>,
}

/// What the body says, if there is one.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(rename = "as")]
    level: Option<Drain>,
    #[serde(rename = "for")]
    span: Option<String>,
    until: Option<String>,
    reason: Option<String>,
}

/// When a drain is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Never,
    After(Duration),
    At(WallTime),
}

/// `POST /v1/tunnels/{name}/drain`
pub(super) async fn drain(
    Shared(desk): Shared<Desk>,
    Extension(peer): Extension<Peer>,
    Named(name): Named,
    Asked(DrainQuery { down }): Asked<DrainQuery>,
    body: Bytes,
) -> Answer<Response> {
    let (end, order) = wanted(down, &body, peer.uid()).map_err(refused)?;
    change(&desk, peer, name, move |engine, now, tunnel| {
        let until = end.by(engine.wall(now))?;
        engine.drain(now, tunnel, Order { until, ..order });
        Ok(())
    })
    .await
}

/// `POST /v1/tunnels/{name}/undrain`
pub(super) async fn undrain(
    Shared(desk): Shared<Desk>,
    Extension(peer): Extension<Peer>,
    Named(name): Named,
) -> Answer<Response> {
    let by = peer.uid();
    change(&desk, peer, name, move |engine, now, tunnel| {
        engine.undrain(now, tunnel, by);
        Ok(())
    })
    .await
}

fn refused(why: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, why)
}

async fn change(
    desk: &Desk,
    peer: Peer,
    name: String,
    act: impl FnOnce(&mut Engine, Time, u32) -> Result<(), String> + Send + 'static,
) -> Answer<Response> {
    if !may_change(peer, desk.admins.as_ref()).await {
        return Err(Problem::forbidden());
    }
    let changed = about(&desk.handle, name, move |engine, now, tunnel| {
        if let Err(why) = act(engine, now, tunnel) {
            return Some(Err(why));
        }
        // Where it was so before, that may be on its way to the disk still.
        Some(Ok((engine.tunnel(now, tunnel)?, engine.last_drain())))
    });
    let (view, told) = changed.await?.map_err(refused)?;
    desk.handle.kept(told).await;
    Ok(Json(view).into_response())
}

/// What is asked for; its end is still to be reckoned.
fn wanted(down: Option<bool>, body: &[u8], by: Option<u32>) -> Result<(End, Order), String> {
    let of_query = down.map(|down| if down { Drain::Down } else { Drain::Degraded });
    let wanted = if body.is_empty() { Wanted::default() } else { read(body)? };
    let level = match (of_query, wanted.level) {
        (Some(one), Some(other)) if one != other => {
            return Err(format!(
                "down={} and \"as\": \"{}\" contradict each other; say one",
                one == Drain::Down,
                other.name()
            ));
        }
        (one, other) => one.or(other).unwrap_or(Drain::Degraded),
    };
    let reason = wanted.reason.as_deref().map(Reason::new).transpose().map_err(|wrong| wrong.to_string())?;
    let end = End::of(wanted.span.as_deref(), wanted.until.as_deref())?;
    Ok((end, Order { level, until: None, reason, by }))
}

fn read(body: &[u8]) -> Result<Wanted, String> {
    let example = r#"{"as": "down", "for": "2h", "reason": "replace the line card"}"#;
    serde_json::from_slice(body).map_err(|wrong| format!("the body: {wrong}; an example: {example}"))
}

impl End {
    fn of(span: Option<&str>, until: Option<&str>) -> Result<Self, String> {
        match (span, until) {
            (None, None) => Ok(Self::Never),
            (Some(_), Some(_)) => Err("\"for\" and \"until\" say the same; give one of them".to_owned()),
            (Some(span), None) => {
                let span = humantime::parse_duration(span).ok().filter(|span| !span.is_zero() && *span <= LONGEST);
                let why = "\"for\" is how long, like \"2h\" or \"90m\": more than nothing, and at most 366 days";
                span.map(Self::After).ok_or_else(|| why.to_owned())
            }
            (None, Some(until)) => {
                let at = humantime::parse_rfc3339(until).ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                let at = at.and_then(|at| u64::try_from(at.as_nanos()).ok());
                let why = "\"until\" is a time in UTC, like \"2026-11-29T14:00:00Z\" (RFC 3339)";
                at.map(|at| Self::At(WallTime(at))).ok_or_else(|| why.to_owned())
            }
        }
    }

    /// The time of the wall clock, which shows `now`.
    fn by(self, now: WallTime) -> Result<Option<WallTime>, String> {
        let after = |span: Duration| WallTime(now.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        match self {
            Self::Never => Ok(None),
            Self::After(span) => Ok(Some(after(span))),
            Self::At(until) if until <= now => Err(format!("\"until\" is past: this host's clock shows {now}")),
            Self::At(until) if until > after(LONGEST) => {
                Err("\"until\" is more than 366 days ahead; leave it out for a drain without an end".to_owned())
            }
            Self::At(until) => Ok(Some(until)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(1_796_040_000_000_000_000);

    fn asked(down: Option<bool>, body: &str) -> Result<Order, String> {
        let (end, order) = wanted(down, body.as_bytes(), Some(7))?;
        Ok(Order { until: end.by(NOW)?, ..order })
    }

    #[test]
    fn what_is_asked_for_is_understood() {
        let plain = Order { by: Some(7), ..Drain::Degraded.into() };
        assert_eq!(asked(None, ""), Ok(plain.clone()));
        assert_eq!(asked(Some(true), ""), Ok(Order { level: Drain::Down, ..plain.clone() }));
        assert_eq!(asked(Some(true), r#"{"as":"down"}"#), Ok(Order { level: Drain::Down, ..plain }));
        let full = asked(None, r#"{"as":"down","for":"1h 30m","reason":" line card "}"#).map(|order| {
            let span = order.until.map(|until| until.0 - NOW.0);
            (order.level, span, order.reason.map(|reason| reason.text().to_owned()))
        });
        assert_eq!(full, Ok((Drain::Down, Some(5_400_000_000_000), Some("line card".to_owned()))));
        let until =
            asked(None, r#"{"until":"2026-11-30T14:00:00Z"}"#).map(|order| order.until.map(|at| at.to_string()));
        assert_eq!(until, Ok(Some("2026-11-30T14:00:00.000Z".to_owned())));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_write() {
        assert_eq!(NOW.to_string(), "2026-11-30T12:00:00.000Z");
        for (body, said) in [
            ("{", "an example"),
            ("[]", "the body"),
            (r#"{"why":"x"}"#, "unknown field `why`"),
            (r#"{"as":"gone"}"#, "`degraded` or `down`"),
            (r#"{"as":"degraded"}"#, "contradict"),
            (r#"{"for":"soon"}"#, "like \"2h\""),
            (r#"{"for":"0s"}"#, "more than nothing"),
            (r#"{"for":"367d"}"#, "at most 366 days"),
            (r#"{"for":"1h","until":"2026-11-30T14:00:00Z"}"#, "one of them"),
            (r#"{"until":"14:00"}"#, "RFC 3339"),
            (r#"{"until":"1966-11-30T14:00:00Z"}"#, "RFC 3339"),
            (r#"{"until":"2026-11-30T12:00:00Z"}"#, "is past: this host's clock shows 2026-11-30T12:00:00.000Z"),
            (r#"{"until":"2036-11-30T12:00:00Z"}"#, "without an end"),
            (r#"{"reason":""}"#, "is empty"),
            (r#"{"reason":"a\nb"}"#, "one line"),
        ] {
            let why = asked(Some(true), body);
            assert!(why.as_ref().is_err_and(|why| why.contains(said)), "{body}: {why:?}");
        }
    }
}
