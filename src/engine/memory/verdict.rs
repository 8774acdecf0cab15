//! What is kept of a tunnel's verdict, and of an operator's drain.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Record, Tail, code};
use crate::engine::drain::{self, Drained, Order};
use crate::engine::health::{Reason, Transition};
use crate::engine::prober::Prober;
use crate::engine::time::WallTime;
use crate::engine::{Drain, State, Time};

/// What is kept of a tunnel's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The tunnel's name.
    pub name: String,
    /// Which way its probes go.
    pub way: u64,
    pub(super) judged: Judged,
    /// Of a drain: what was asked for beside its level. No earlier version has known that.
    asked: Option<Asked>,
}

/// What has been kept of a verdict since the first version of the format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Judged {
    /// Its state, by its place in [`State::ALL`].
    pub(super) state: u8,
    /// Likewise, the state whose penalty holds while it cannot be probed.
    pub(super) held: u8,
    /// Since when, in nanoseconds since the Unix epoch.
    pub(super) since: u64,
    /// The transition that led there.
    pub(super) last: Option<Last>,
    /// 0 is none.
    drain: u8,
    /// It is from before an earlier restart, and has not been confirmed since.
    pub(super) is_stale: bool,
    /// Its last samples: those that led to the verdict may be in no file of samples yet.
    pub(super) tail: Tail,
}

/// Of a drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    /// In nanoseconds since the Unix epoch.
    since: u64,
    /// Likewise.
    until: Option<u64>,
    reason: Option<String>,
    /// A user's number.
    by: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Last {
    pub(super) from: u8,
    pub(super) rule: u8,
    pub(super) alike: u32,
    pub(super) samples: u64,
    pub(super) failures: u64,
    pub(super) span: Duration,
}

impl Verdict {
    pub(super) fn of(prober: &Prober, begun: Time, now: Time) -> Self {
        let last = prober.health.last_transition().map(|&Transition { from, reason, .. }| {
            let Reason { rule, alike, samples, failures, span } = reason;
            Last { from: code(from), rule, alike, samples, failures, span }
        });
        let drain = prober.drain.as_deref();
        let judged = Judged {
            state: code(prober.health.state()),
            held: code(prober.held.unwrap_or(State::Unknown)),
            since: prober.since.0,
            last,
            drain: match drain.map(|drained| drained.order.level) {
                None => 0,
                Some(Drain::Degraded) => 1,
                Some(Drain::Down) => 2,
            },
            is_stale: prober.unconfirmed > 0,
            tail: Tail::of(prober, begun, now),
        };
        let asked = drain.map(|Drained { order, since }| Asked {
            since: since.0,
            until: order.until.map(|until| until.0),
            reason: order.reason.as_ref().map(|reason| reason.text().to_owned()),
            by: order.by,
        });
        Self { name: prober.settings.name.clone(), way: prober.way, judged, asked }
    }

    /// The drain; of one that does not say since when, it was at the latest when the file was begun.
    pub(super) fn drain(&self, begun: u64) -> Option<Drained> {
        let level = match self.judged.drain {
            0 => return None,
            1 => Drain::Degraded,
            _ => Drain::Down,
        };
        let Some(Asked { since, until, reason, by }) = &self.asked else {
            return Some(Drained { order: level.into(), since: WallTime(begun) });
        };
        // A reason that nobody could have given is none.
        let reason = reason.as_deref().and_then(|text| drain::Reason::new(text).ok());
        let order = Order { level, until: until.map(WallTime), reason, by: *by };
        Some(Drained { order, since: WallTime(*since) })
    }
}

impl Record for Verdict {
    fn read(version: u8, bytes: &[u8]) -> postcard::Result<(Self, &[u8])> {
        if version == 1 {
            let ((name, way, judged), rest) = postcard::take_from_bytes(bytes)?;
            return Ok((Self { name, way, judged, asked: None }, rest));
        }
        postcard::take_from_bytes(bytes)
    }
}
