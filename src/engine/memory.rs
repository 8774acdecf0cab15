//! What is worth keeping of all that is known (law 7), as bytes, and how a new engine takes it up.
//!
//! There are two files, because they change at different paces:
//!
//! | file | holds, of each tunnel | is written |
//! | --- | --- | --- |
//! | [`Kind::States`] | state, since when, by which rule; what was held; an operator's drain; the last samples in short | at every transition, and once a minute |
//! | [`Kind::Windows`] | the samples of the long window, the estimate of round-trip times | now and then |
//!
//! A file is a header ([`HEADER`]), a [`Preface`] and one record a tunnel. A [`Scribe`] writes it in
//! [`Piece`]s, one at each turn of the loop, so that a hundred thousand records hold up no probe.
//!
//! What is taken up again is a matter of age ([`FRESH`]): the samples of long ago say nothing about now.
//! A tunnel whose probes go another way than before is another tunnel; only an operator's drain, which
//! is of its name, stays.

mod file;
mod restore;
mod scribe;
mod verdict;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use file::{Damage, HEADER, Kind, Seal, decode, examine};
pub use scribe::{File, Piece, Scribe};
pub use verdict::Verdict;

use super::event::CAPACITY;
use super::prober::Prober;
use super::settings::Tunnel;
use super::time::WallTime;
use super::window::Counts;
use super::{Engine, State, Time};
use crate::wire::probe::{Encapsulation, Kind as ProbeKind};
use crate::wire::{Direction, Family};

/// Up to this age everything is taken up; of what is older only states and drains.
pub const FRESH: Duration = Duration::from_secs(300);
/// A wall clock may have been set back by as much since.
const SET_BACK: Duration = Duration::from_secs(2);
/// A file of states is younger than this while its writer lives and its disk is well.
const LATEST: Duration = Duration::from_secs(120);

/// What stands before the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preface {
    /// When the file was begun, in nanoseconds since the Unix epoch.
    pub saved: u64,
    /// Whether the daemon stopped after that, and nothing happened any more.
    pub clean: bool,
    /// The number of the next event.
    pub next_event: u64,
    /// So many events may be told before the next file is on the disk.
    pub ahead: u64,
    /// Since when the kernel's routes are held, in nanoseconds since the Unix epoch, if they are.
    pub held: Option<u64>,
}

impl Preface {
    fn now(engine: &Engine, now: Time, clean: bool) -> Self {
        let next_event = engine.events().last() + 1;
        let held = engine.held().map(|held| held.since.0);
        Self { saved: engine.wall(now).0, clean, next_event, ahead: engine.events_ahead(), held }
    }

    /// How old what is in the file is now; `None` if it is of the future, so that nobody knows.
    fn age(&self, now: WallTime) -> Option<Duration> {
        let age = Duration::from_nanos(now.0.saturating_add(nanos(SET_BACK)).checked_sub(self.saved)?);
        Some(age.saturating_sub(SET_BACK))
    }

    /// Whether it is young enough for everything.
    #[must_use]
    pub fn is_fresh(&self, now: WallTime) -> bool {
        self.age(now).is_some_and(|age| age <= FRESH)
    }
}

impl Engine {
    /// How many events may be told while a file is on its way: a file must be on the disk before there are
    /// as many more, or after a crash a number would be told twice. All tunnels may turn down at once.
    #[must_use]
    pub fn events_ahead(&self) -> u64 {
        (CAPACITY + 8 * self.probers.len()) as u64
    }
}

/// A tunnel's last samples in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Tail {
    /// How long after the file was begun this was written down, in microseconds.
    after: u64,
    /// As bits, the last one lowest; 1 is a failure.
    recent: u64,
    total: u64,
    successes_in_a_row: u64,
    /// How long before this was written down the last success was, in microseconds.
    last_success: Option<u64>,
}

/// What is kept of a tunnel's samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// The tunnel's name.
    pub name: String,
    /// Which way its probes go.
    pub way: u64,
    tail: Tail,
    /// Newest first: microseconds before the next newer one (of the newest: before this was written down),
    /// and the round-trip time in microseconds, or one more than any for a failure.
    samples: Vec<(u64, u32)>,
    /// Smoothed, variation, last, jitter: microseconds.
    rtt: Option<[u64; 4]>,
    /// The slowest late answer of the last minutes: how long before this was written down, and its
    /// round-trip time; microseconds.
    late: Option<[u64; 2]>,
}

/// A record of one of the files.
pub trait Record: Sized {
    /// Reads one from the beginning of these bytes, and says what comes after it.
    ///
    /// # Errors
    /// They are none, in this version of the format.
    fn read(version: u8, bytes: &[u8]) -> postcard::Result<(Self, &[u8])>;
}

impl Record for Samples {
    fn read(_: u8, bytes: &[u8]) -> postcard::Result<(Self, &[u8])> {
        postcard::take_from_bytes(bytes)
    }
}

/// All that is remembered.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Verdicts, if there were any.
    pub states: Option<(Preface, Vec<Verdict>)>,
    /// Samples, likewise.
    pub windows: Option<(Preface, Vec<Samples>)>,
}

impl Tail {
    fn of(prober: &Prober, begun: Time, now: Time) -> Self {
        let window = prober.health.window();
        let Counts { recent, total, successes_in_a_row, last_success } = window.counts();
        Self {
            after: micros(now.since(begun)),
            recent,
            total,
            successes_in_a_row,
            last_success: last_success.map(|at| micros(now.since(at))),
        }
    }

    /// Of a file that was begun at this time.
    fn counts(&self, begun: Time) -> Counts {
        // No file is from a time when more was counted.
        let total = self.total.min(u64::MAX >> 1);
        Counts {
            recent: self.recent,
            total,
            successes_in_a_row: self.successes_in_a_row.min(total),
            last_success: self.last_success.map(|before| self.written(begun) - Duration::from_micros(before)),
        }
    }

    fn written(&self, begun: Time) -> Time {
        begun + Duration::from_micros(self.after)
    }
}

impl Samples {
    fn of(prober: &Prober, begun: Time, now: Time) -> Self {
        let mut newer = now;
        let samples = prober.health.window().newest_first().map(|(at, rtt)| {
            let before = micros(newer.since(at));
            // What is cut off here must not add up.
            newer = newer - Duration::from_micros(before);
            (before, rtt)
        });
        Self {
            name: prober.settings.name.clone(),
            way: prober.way,
            tail: Tail::of(prober, begun, now),
            samples: samples.collect(),
            rtt: prober.rtt.parts().map(|parts| parts.map(micros)),
            late: prober.latest_late.map(|(at, rtt)| [now.since(at), rtt].map(micros)),
        }
    }
}

/// Which way a tunnel's probes go, as a number that another version of this program also finds. Which keys
/// seal them is no part of it.
pub(super) fn way(settings: &Tunnel) -> u64 {
    let onion = &settings.onion;
    let key = match onion.encapsulation {
        Encapsulation::Gre(options) => options.key.map_or_else(|| "-".to_owned(), |key| key.to_string()),
        Encapsulation::Esp(shape) => if shape.udp() { "udp" } else { "-" }.to_owned(),
        Encapsulation::Device => "-".to_owned(),
    };
    let kind = match onion.style.kind {
        ProbeKind::Request => "request",
        ProbeKind::Reply => "reply",
    };
    let direction = match onion.style.direction {
        Direction::Bidirectional => "bidirectional",
        Direction::Unidirectional => "unidirectional",
    };
    let [outer, inner] = [onion.outer, onion.inner].map(|ends| format!("{} {}", ends.local(), ends.far()));
    let (name, exit) = (onion.encapsulation.name(), settings.exit);
    let further: String = settings.further().iter().map(|target| format!(" {target}")).collect();
    file::number_of(format!("{exit:x} {name} {key} {outer} {inner} {kind} {direction}{further}").as_bytes())
}

/// A number for a socket that probes leave by, and for its namespace, that another run also finds.
#[must_use]
pub fn exit(netns: Option<&str>, device: Option<&str>, family: Option<Family>, mark: u32, source: Option<&str>) -> u64 {
    let family = family.map_or("-", |family| match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    });
    let [netns, device, source] = [netns, device, source].map(|text| text.unwrap_or_default());
    // No name has a zero byte.
    file::number_of(format!("{netns}\0{device}\0{source}\0{family}\0{mark}").as_bytes())
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
