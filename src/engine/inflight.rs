//! Probes between sending and settling. A probe settles once (law 1).

use std::collections::VecDeque;
use std::time::Duration;

use super::Time;

/// How a probe stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Under way.
    Waiting,
    /// Settled as a success.
    Answered,
    /// Settled as a failure.
    Lost,
    /// Settled as neither: the engine's own trouble.
    Inconclusive,
}

/// Why a probe was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Its turn had come.
    Regular,
    /// To confirm what another probe showed.
    Burst,
}

/// One probe. There are a handful of each tunnel: what it remembers is packed into 32 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// Its stamp: it was not sent before.
    pub sent: Time,
    /// How long the engine had been stopped in all when it was sent, in nanoseconds.
    stalled: u64,
    /// How long after that it left, and how long an answer may take, in microseconds.
    lay: u32,
    timeout: u32,
    /// This host has held it up.
    pub held_up: bool,
    /// Why it was sent.
    pub purpose: Purpose,
    /// How it stands.
    pub standing: Standing,
    /// A burst has been started because of it, before its deadline: its failure starts no other.
    pub retried: bool,
    /// An answer has come after it was given up.
    pub late: bool,
}

impl Probe {
    /// When it left, to the microsecond. Of one that this host has held up, when it had left at the latest.
    #[must_use]
    pub fn left(&self) -> Time {
        self.sent + Duration::from_micros(self.lay.into())
    }

    /// How long the engine had been stopped in all when it was sent.
    #[must_use]
    pub const fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled)
    }

    /// How long an answer may take.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        Duration::from_micros(self.timeout as u64)
    }

    /// How long the answer that came then has taken. Of a probe that lay on this host it is not known when it
    /// left: from its stamp on.
    #[must_use]
    pub fn took(&self, at: Time) -> Duration {
        at.since(if self.held_up { self.sent } else { self.left() })
    }
}

/// What an answer turned out to be.
#[derive(Debug, Clone, Copy)]
pub enum Settled {
    /// The first answer to a waiting probe.
    Now(Probe),
    /// The probe had been answered.
    Duplicate,
    /// The probe had been given up; its data are there the first time, while they are still
    /// remembered. Sent again much later, the same answer would say that the path is slow.
    Late(Option<Probe>),
    /// No such probe was ever sent.
    NeverSent,
}

/// The probes of one tunnel, by sequence; or its rounds (`rounds`), by their number.
#[derive(Debug, Clone, Default)]
pub struct InFlight {
    /// Sequence of the first of `probes`.
    first: u64,
    /// Every probe from there on, settled or not.
    probes: VecDeque<Probe>,
    /// How many of them are waiting.
    waiting: u32,
    /// How many are settled before the first that is not.
    settled: u32,
}

/// Settled probes are remembered for so long after their sending, to tell a duplicate from a late
/// answer, and a late answer's round-trip time.
const REMEMBERED: Duration = Duration::from_secs(5);
/// But never more of them than this.
const REMEMBERED_MAX: usize = 512;
/// A batch of probes is stamped and sent within this time, unless this process is stopped meanwhile.
pub(super) const HASTE: Duration = Duration::from_millis(5);

/// Whole ones.
fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

impl InFlight {
    /// Notes a sending and returns its sequence.
    pub fn send(&mut self, sent: Time, stalled: Duration, timeout: Duration, purpose: Purpose) -> u64 {
        let forgotten = |probe: &Probe, kept: usize| {
            probe.standing != Standing::Waiting && (kept > REMEMBERED_MAX || !probe.sent.within(REMEMBERED, sent))
        };
        while self.probes.front().is_some_and(|probe| forgotten(probe, self.probes.len())) {
            self.probes.pop_front();
            self.first += 1;
            self.settled = self.settled.saturating_sub(1);
        }
        if self.probes.len() == self.probes.capacity() {
            // Twice as many, as is usual, would be for nothing: there are never many more than now.
            self.probes.reserve_exact(self.probes.len() / 4 + 1);
        }
        self.probes.push_back(Probe {
            sent,
            stalled: u64::try_from(stalled.as_nanos()).unwrap_or(u64::MAX),
            lay: 0,
            timeout: micros(timeout),
            held_up: false,
            purpose,
            standing: Standing::Waiting,
            retried: false,
            late: false,
        });
        self.waiting += 1;
        self.first + self.probes.len() as u64 - 1
    }

    /// Takes a sequence that no probe will have: nothing is ever waited for under it.
    pub fn skip(&mut self, now: Time) -> u64 {
        let sequence = self.send(now, Duration::ZERO, Duration::ZERO, Purpose::Regular);
        self.settle(sequence, Standing::Inconclusive);
        sequence
    }

    /// Notes that a waiting probe has left at this time, or, where it was stamped long before `now`, by then.
    pub fn left(&mut self, sequence: u64, at: Time, now: Time) -> Option<Probe> {
        let probe = self.get_mut(sequence).filter(|probe| probe.standing == Standing::Waiting)?;
        probe.held_up = now.since(probe.sent) > HASTE;
        // Up, so that none seems to have left before it has.
        probe.lay = micros(if probe.held_up { now } else { at }.since(probe.sent) + Duration::from_nanos(999));
        Some(*probe)
    }

    /// Settles a probe, unless it has been: then `None`.
    pub fn settle(&mut self, sequence: u64, standing: Standing) -> Option<Probe> {
        let probe = self.get_mut(sequence)?;
        if probe.standing != Standing::Waiting {
            return None;
        }
        probe.standing = standing;
        let settled = *probe;
        self.waiting -= 1;
        let is_settled = |probe: &Probe| probe.standing != Standing::Waiting;
        while self.probes.get(self.settled as usize).is_some_and(is_settled) {
            self.settled += 1;
        }
        Some(settled)
    }

    /// What an answer to this sequence is worth; settles it if it is the first in time.
    pub fn answer(&mut self, sequence: u64) -> Settled {
        if sequence >= self.first + self.probes.len() as u64 {
            return Settled::NeverSent;
        }
        match self.get_mut(sequence) {
            None => Settled::Late(None),
            Some(probe) => match probe.standing {
                Standing::Waiting => self.settle(sequence, Standing::Answered).map_or(Settled::Duplicate, Settled::Now),
                Standing::Answered => Settled::Duplicate,
                Standing::Lost | Standing::Inconclusive => {
                    let again = std::mem::replace(&mut probe.late, true);
                    Settled::Late((!again).then_some(*probe))
                }
            },
        }
    }

    /// Marks a probe as the reason of a burst.
    pub fn set_retried(&mut self, sequence: u64) {
        if let Some(probe) = self.get_mut(sequence) {
            probe.retried = true;
        }
    }

    /// The probe of this sequence, while it is remembered.
    #[must_use]
    pub fn get(&self, sequence: u64) -> Option<&Probe> {
        self.probes.get(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, sequence: u64) -> Option<&mut Probe> {
        self.probes.get_mut(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }

    /// The waiting probes, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, &Probe)> {
        let from = self.settled as usize;
        let unsettled = (self.first + u64::from(self.settled)..).zip(self.probes.range(from..));
        unsettled.filter(|(_, probe)| probe.standing == Standing::Waiting)
    }

    /// The sequence of the first probe that is remembered.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// The sequence of the next probe.
    pub(super) fn next(&self) -> u64 {
        self.first + self.probes.len() as u64
    }

    /// How many probes are waiting.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.waiting
    }
}
