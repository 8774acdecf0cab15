//! Events and tunnels, from the local socket.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::mpsc::Sender;

use crate::engine::{State, WallTime};
use crate::io::local::client;
use crate::notice::{Event, Seen, What};

/// How soon it is asked again when nobody has answered; it doubles.
const SOON: Duration = Duration::from_millis(100);
/// But not longer than this.
const LATE: Duration = Duration::from_secs(2);

/// What is heard.
pub(super) enum Heard {
    Event(Event),
    Gap {
        missed: Option<u64>,
        /// Counting has begun anew.
        anew: bool,
    },
}

/// Follows the events after the one of this number for ever, whoever answers on the socket.
pub(super) async fn follow(socket: PathBuf, mut since: u64, to: Sender<Heard>) {
    let mut wait = SOON;
    while !to.is_closed() {
        let before = since;
        if let Err(error) = follow_once(&socket, &mut since, &to).await {
            tracing::debug!(%error, "the events are not heard now");
        }
        wait = if since == before { (wait * 2).min(LATE) } else { SOON };
        tokio::time::sleep(wait).await;
    }
}

async fn follow_once(socket: &std::path::Path, since: &mut u64, to: &Sender<Heard>) -> io::Result<()> {
    let mut lines = client::lines(socket, &format!("/v1/events?since={since}&follow=true")).await?;
    while let Some(line) = lines.next().await? {
        let Some(heard) = read(line) else { continue };
        match &heard {
            Heard::Event(event) => *since = event.id,
            Heard::Gap { anew: true, .. } => *since = 0,
            Heard::Gap { .. } => {}
        }
        if to.send(heard).await.is_err() {
            break;
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    id: u64,
    #[serde(default)]
    at: String,
    kind: String,
    tunnel: Option<String>,
    from: Option<serde_json::Value>,
    to: Option<serde_json::Value>,
    reason: Option<String>,
    missed: Option<u64>,
    since: Option<u64>,
    drained: Option<bool>,
    #[serde(default)]
    removed: u64,
}

/// One line; `None` if it is of nobody whom we know.
fn read(line: &[u8]) -> Option<Heard> {
    let text = std::str::from_utf8(line).ok()?;
    let Line { id, at, kind, tunnel, from, to, reason, missed, since, drained, removed } =
        serde_json::from_str(text).ok()?;
    let what = match kind.as_str() {
        "gap" => return Some(Heard::Gap { missed, anew: since.is_some() }),
        "transition" => {
            let state = |value: Option<serde_json::Value>| State::from_name(value?.as_str()?);
            let (tunnel, from, to) = (tunnel?, state(from)?, state(to)?);
            What::Transition { tunnel, from, to, reason: reason.unwrap_or_default(), json: text.to_owned() }
        }
        "drain" => What::Drain { tunnel: tunnel?, drained: drained? },
        "reload" if removed > 0 => What::Removed,
        "start" => What::Start,
        _ => What::Other,
    };
    Some(Heard::Event(Event { id, at: wall(&at).unwrap_or_default(), what }))
}

/// RFC 3339.
fn wall(text: &str) -> Option<WallTime> {
    let since = humantime::parse_rfc3339(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok().map(WallTime)
}

#[derive(Deserialize)]
struct Tunnels {
    tunnels: Vec<Tunnel>,
}

#[derive(Deserialize)]
struct Tunnel {
    name: String,
    state: State,
    since: String,
    reason: String,
    drained: bool,
    checked: bool,
    samples: Samples,
}

#[derive(Deserialize)]
struct Samples {
    success: u64,
    failure: u64,
}

/// Looks at all tunnels.
pub(super) async fn look(socket: PathBuf) -> io::Result<Vec<Seen>> {
    let bytes = client::get(&socket, "/v1/tunnels").await?;
    Ok(seen(&bytes)?)
}

fn seen(bytes: &[u8]) -> serde_json::Result<Vec<Seen>> {
    let Tunnels { tunnels } = serde_json::from_slice(bytes)?;
    let seen = |tunnel: Tunnel| Seen {
        tunnel: tunnel.name,
        state: tunnel.state,
        since: wall(&tunnel.since).unwrap_or_default(),
        reason: tunnel.reason,
        counts: tunnel.checked && !tunnel.drained,
        drained: tunnel.drained,
        successes: tunnel.samples.success,
        failures: tunnel.samples.failure,
    };
    Ok(tunnels.into_iter().map(seen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_samples_and_not_each_target_s_probe() {
        // Two of three targets suffice, and one has been dead for ever.
        let tunnel = serde_json::json!({
            "name": "ams-1", "state": "healthy", "since": "2026-11-30T00:54:25Z", "reason": "rule 4", "drained": false,
            "checked": true, "counters": { "sent": 1_200, "received": 800, "lost": 400 },
            "samples": { "success": 399, "failure": 1 },
        });
        let answer = serde_json::json!({ "tunnels": [tunnel] }).to_string();
        let seen = seen(answer.as_bytes()).unwrap();
        assert_eq!((seen[0].successes, seen[0].failures, seen[0].counts), (399, 1, true));
    }

    fn what(line: &str) -> Option<What> {
        match read(line.as_bytes()) {
            Some(Heard::Event(event)) => Some(event.what),
            Some(Heard::Gap { .. }) | None => None,
        }
    }

    #[test]
    fn drains_and_removals_are_heard_of() {
        let drained = |drained| Some(What::Drain { tunnel: "ams-1".to_owned(), drained });
        let head = r#""id":7,"at":"2026-11-30T12:00:00.123Z","kind""#;
        let drain = r#""drain","tunnel":"ams-1","penalty":0"#;
        assert_eq!(what(&format!(r#"{{{head}:{drain},"drained":true,"as":"down"}}"#)), drained(true));
        assert_eq!(what(&format!(r#"{{{head}:{drain},"drained":false}}"#)), drained(false));
        let reload = |removed| what(&format!(r#"{{{head}:"reload","kept":1,"removed":{removed},"reason":null}}"#));
        assert_eq!([reload(0), reload(2)], [Some(What::Other), Some(What::Removed)]);
    }
}
