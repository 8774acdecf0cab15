//! What is worth keeping of all that is known (law 7), as bytes, and how a new engine takes it up.
//!
//! There are two files, because they change at different paces:
//!
//! | file | holds, of each tunnel | is written |
//! | --- | --- | --- |
//! | [`Kind::States`] | state, since when, by which rule; what was held; an operator's drain | at every transition, and soon |
//! | [`Kind::Windows`] | the samples of the long window, the estimate of round-trip times | now and then |
//!
//! A file is a header ([`file`]), a [`Preface`] and one record a tunnel. A [`Scribe`] writes it record by
//! record, a few at each turn of the loop, so that a hundred thousand of them hold up no probe.
//!
//! What is taken up again is a matter of age ([`FRESH`]): the samples of long ago say nothing about now.
//! A tunnel whose probes go another way than before is another tunnel; only an operator's drain, which
//! is of its name, stays.

mod file;
mod restore;
mod scribe;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use file::{Damage, Kind, decode};
pub use scribe::{File, Scribe};

use super::health::{Reason, Transition};
use super::prober::Prober;
use super::time::WallTime;
use super::{Drain, State, Time};
use crate::wire::probe::Encapsulation;

/// Up to this age everything is taken up; of what is older only states and drains.
pub const FRESH: Duration = Duration::from_secs(300);
/// A wall clock may have been set back by as much since.
const SET_BACK: Duration = Duration::from_secs(2);

/// What stands before the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preface {
    /// When the file was written, in nanoseconds since the Unix epoch.
    pub saved: u64,
    /// Whether the daemon stopped after that, and nothing happened any more.
    pub clean: bool,
    /// The number of the next event.
    pub next_event: u64,
}

impl Preface {
    /// How old what is in the file is now; `None` if it is of the future, so that nobody knows.
    fn age(&self, now: WallTime) -> Option<Duration> {
        let age = Duration::from_nanos((now.0 + nanos(SET_BACK)).checked_sub(self.saved)?);
        Some(age.saturating_sub(SET_BACK))
    }

    /// Whether it is young enough for everything.
    #[must_use]
    pub fn is_fresh(&self, now: WallTime) -> bool {
        self.age(now).is_some_and(|age| age <= FRESH)
    }
}

/// What is kept of a tunnel's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The tunnel's name.
    pub name: String,
    /// Which way its probes go.
    pub way: u64,
    /// Its state, by its place in [`State::ALL`].
    state: u8,
    /// Likewise, the state whose penalty holds while it cannot be probed.
    held: u8,
    /// Since when, in nanoseconds since the Unix epoch.
    since: u64,
    /// The transition that led there.
    last: Option<Last>,
    /// 0 is none.
    drain: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    from: u8,
    rule: u8,
    alike: u32,
    samples: u64,
    failures: u64,
    span: Duration,
}

/// What is kept of a tunnel's samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// The tunnel's name.
    pub name: String,
    /// Which way its probes go.
    pub way: u64,
    /// The latest samples as bits, the last one lowest; 1 is a failure.
    recent: u64,
    total: u64,
    successes_in_a_row: u64,
    /// How long before the saving the last success was, in microseconds.
    last_success: Option<u64>,
    /// Newest first: microseconds before the next newer one (of the newest: before the saving), and the
    /// round-trip time in microseconds, or one more than any for a failure.
    samples: Vec<(u64, u32)>,
    /// Smoothed, variation, last, jitter: microseconds.
    rtt: Option<[u64; 4]>,
}

/// All that is remembered.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Verdicts, if there were any.
    pub states: Option<(Preface, Vec<Verdict>)>,
    /// Samples, likewise.
    pub windows: Option<(Preface, Vec<Samples>)>,
}

impl Verdict {
    fn of(prober: &Prober) -> Self {
        let last = prober.health.last_transition().map(|&Transition { from, reason, .. }| {
            let Reason { rule, alike, samples, failures, span } = reason;
            Last { from: code(from), rule, alike, samples, failures, span }
        });
        Self {
            name: prober.settings.name.clone(),
            way: way(prober),
            state: code(prober.health.state()),
            held: code(prober.held.unwrap_or(State::Unknown)),
            since: prober.since.0,
            last,
            drain: match prober.drain {
                None => 0,
                Some(Drain::Degraded) => 1,
                Some(Drain::Down) => 2,
            },
        }
    }

    fn drain(&self) -> Option<Drain> {
        match self.drain {
            0 => None,
            1 => Some(Drain::Degraded),
            _ => Some(Drain::Down),
        }
    }

    /// The state whose penalty holds.
    fn verdict(&self) -> State {
        match (state(self.state), state(self.held)) {
            (State::Unknown, held) => held,
            (verdict, _) => verdict,
        }
    }
}

impl Samples {
    fn of(prober: &Prober, now: Time) -> Self {
        let window = prober.health.window();
        let mut newer = now;
        let samples = window.newest_first().map(|(at, rtt)| {
            let before = micros(newer.since(at));
            // What is cut off here must not add up.
            newer = newer - Duration::from_micros(before);
            (before, rtt)
        });
        Self {
            name: prober.settings.name.clone(),
            way: way(prober),
            recent: window.recent(),
            total: window.total(),
            successes_in_a_row: window.successes_in_a_row(),
            last_success: window.last_success().map(|at| micros(now.since(at))),
            samples: samples.collect(),
            rtt: prober.rtt.parts().map(|parts| parts.map(micros)),
        }
    }
}

/// Which way a tunnel's probes go, as a number that another version of this program also finds.
fn way(prober: &Prober) -> u64 {
    let onion = &prober.settings.onion;
    let key = match onion.encapsulation {
        Encapsulation::Gre(options) => options.key,
        Encapsulation::Esp(_) | Encapsulation::Device => None,
    };
    let text = format!(
        "{} {} {} {key:?} {} {} {:?} {:?}",
        onion.encapsulation.name(),
        onion.outer.local(),
        onion.outer.far(),
        onion.inner.local(),
        onion.inner.far(),
        onion.style.kind,
        onion.style.direction,
    );
    file::number_of(text.as_bytes())
}

fn code(state: State) -> u8 {
    u8::try_from(place(state)).unwrap_or(0)
}

/// A state's place in [`State::ALL`].
pub(super) const fn place(state: State) -> usize {
    match state {
        State::Unknown => 0,
        State::Healthy => 1,
        State::Degraded => 2,
        State::Down => 3,
    }
}

/// Unknown, for what no version has written so far.
fn state(place: u8) -> State {
    State::ALL.get(usize::from(place)).copied().unwrap_or(State::Unknown)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
