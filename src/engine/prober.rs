//! One tunnel's run-time state, and what it decides by itself.

use std::collections::VecDeque;
use std::time::Duration;

use super::associations::Associations;
use super::drain::Drained;
use super::health::{Health, State};
use super::inflight::{InFlight, Probe, Purpose};
use super::memory;
use super::metrics::{self, Histogram};
use super::needs::{Need, Needs};
use super::obstacle::Obstacle;
use super::penalty;
use super::rounds::Rounds;
use super::rtt::Estimator;
use super::schedule;
use super::settings::{Timeout, Tunnel};
use super::time::{Time, WallTime};
use crate::wire::quote::Quote;
use crate::wire::{Reject, Template};

/// What is counted for each tunnel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Probes that left.
    pub sent: u64,
    /// Probes answered in time.
    pub received: u64,
    /// Probes settled as failures.
    pub lost: u64,
    /// Answers after the deadline.
    pub late: u64,
    /// Answers to a probe that had been answered.
    pub duplicate: u64,
    /// Answers that name this tunnel, with a tag that is not ours.
    pub forged: u64,
    /// Probes that came to nothing by the prober's own trouble.
    pub local_faults: u64,
}

/// Samples by outcome: of several targets a whole round is one, where [`Counters`] has each target's probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Samples {
    /// Those that were a success.
    pub success: u64,
    /// Those that were a failure.
    pub failure: u64,
}

/// Why a probe failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No valid answer by the deadline.
    Timeout,
    /// Too few targets have answered by the deadline; those that have not, a bit for each.
    Silent(u16),
    /// The kernel refused to send: traffic could not have left either.
    Refused(&'static str),
    /// What it needs was missing: nor could it then.
    Missing(Need),
}

impl Failure {
    /// In words.
    pub(super) fn reason(self, needs: &Needs, rounds: Option<&Rounds>) -> String {
        match self {
            Self::Timeout => "timeout".to_owned(),
            Self::Silent(mask) => rounds.map_or_else(|| "timeout".to_owned(), |rounds| rounds.name(mask)),
            Self::Refused(error) => format!("not sent: {error}"),
            Self::Missing(need) => format!("not sent: {}", needs.why(need)),
        }
    }
}

/// When the engine itself was stopped or starved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stalls {
    /// The end of the last time.
    pub(super) end: Time,
    /// All times together.
    pub(super) total: Duration,
}

/// Confirming probes under way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Burst {
    /// Probes of it that are queued or in flight.
    pub(super) left: u8,
    /// It confirms a failure: a probe of it that is still queued is pointless after an answer.
    pub(super) confirms_failure: bool,
    /// One of its probes, or the one it confirms, was answered.
    pub(super) answered: bool,
}

/// Successive failures after which the ICMP identifier changes: a stateful box on the way may have
/// pinned the old one to a broken flow.
const IDENTIFIER_PATIENCE: u32 = 10;
/// How long a probe waits that this host had no buffers for; it doubles with each try, up to
/// 160 ms, so that an error that stays does not keep the host busy.
const RETRY: Duration = Duration::from_millis(10);
const RETRY_DOUBLINGS: u32 = 4;
/// Samples between two looks at the percentile that `timeout = "auto"` follows.
const AUTO_EVERY: u64 = 16;
/// So many spoilt probes are remembered: what spoils one often spoils those of all tunnels.
const SPOILT: usize = 4;

pub(super) struct Prober {
    /// What its probes call it: no other tunnel of this run has it, before or after.
    pub(super) number: u32,
    /// Which way they go, as another run would find it, too.
    pub(super) way: u64,
    pub(super) settings: Tunnel,
    pub(super) template: Template,
    pub(super) health: Health,
    pub(super) in_flight: InFlight,
    /// Of a tunnel with several targets.
    pub(super) rounds: Option<Box<Rounds>>,
    pub(super) rtt: Estimator,
    pub(super) counters: Counters,
    pub(super) samples: Samples,
    /// Round-trip times since this run began.
    pub(super) rtts: Histogram<12>,
    /// From where to where it went since then, and how often.
    pub(super) transitions: Vec<(State, State, u64)>,
    /// An operator's drain.
    pub(super) drain: Option<Box<Drained>>,
    /// An operator has ended a drain: traffic is to come back, whatever its routes were found to cost.
    pub(super) undrained: bool,
    /// The last verdict before an obstacle, whose penalty stays until there is another.
    pub(super) held: Option<State>,
    pub(super) burst: Burst,
    pub(super) next_due: Time,
    pub(super) started: bool,
    /// Regular probes queued but not sent: never more than one.
    pub(super) queued: bool,
    /// The last probe could not leave this host.
    pub(super) refused: bool,
    /// When it went down, if that was of late ([`super::hold`]).
    pub(super) fell: Option<Time>,
    /// So many samples are missing until a remembered state is confirmed.
    pub(super) unconfirmed: u32,
    pub(super) last_sample: Time,
    pub(super) since: WallTime,
    pub(super) last_failure: Option<(WallTime, Failure)>,
    pub(super) last_reject: Option<(WallTime, Reject)>,
    pub(super) last_hint: Option<(WallTime, Quote)>,
    /// The last probes that came to nothing by this host's own trouble, and by which.
    pub(super) spoilt: VecDeque<(Time, &'static str)>,
    /// The last answer bore the reflector's mark.
    pub(super) authenticated: bool,
    pub(super) slow: bool,
    /// The security associations of an ESP tunnel.
    pub(super) associations: Option<Box<Associations>>,
    /// Why it cannot be probed.
    pub(super) obstacle: Option<Obstacle>,
    /// When it was last told that the far router's sequence numbers have gone back.
    pub(super) rollback_told: Option<Time>,
    failures_in_a_row: u32,
    identifier_salt: u32,
    auto_timeout: Duration,
    /// The slowest late answer of the last minutes.
    pub(super) latest_late: Option<(Time, Duration)>,
    /// Probes in a row that this host could not send.
    unsent_in_a_row: u32,
}

impl Prober {
    pub(super) fn new(number: u32, settings: Tunnel, first_due: Time, since: WallTime) -> Self {
        Self {
            number,
            way: memory::way(&settings),
            template: Template::new(&settings.onion),
            rounds: Rounds::of(&settings),
            health: Health::new(settings.check.rules),
            settings,
            in_flight: InFlight::default(),
            rtt: Estimator::default(),
            counters: Counters::default(),
            samples: Samples::default(),
            rtts: Histogram::new(&metrics::RTT),
            transitions: Vec::new(),
            drain: None,
            undrained: false,
            held: None,
            burst: Burst::default(),
            next_due: first_due,
            started: false,
            queued: false,
            refused: false,
            fell: None,
            unconfirmed: 0,
            last_sample: Time::ZERO,
            since,
            last_failure: None,
            last_reject: None,
            last_hint: None,
            spoilt: VecDeque::new(),
            authenticated: false,
            slow: false,
            associations: None,
            obstacle: None,
            rollback_told: None,
            failures_in_a_row: 0,
            identifier_salt: 0,
            auto_timeout: Timeout::AUTO_MAX,
            latest_late: None,
            unsent_in_a_row: 0,
        }
    }

    pub(super) fn penalty(&self) -> u32 {
        penalty::penalty(
            self.held.unwrap_or(self.health.state()),
            self.drain.as_ref().map(|drained| drained.order.level),
        )
    }

    /// Whether there is a verdict, its own or one that is held from before it could not be probed.
    pub(super) fn is_judged(&self) -> bool {
        self.held.is_some() || self.health.state() != State::Unknown
    }

    /// The penalty, once there is a reason for one: a verdict, an operator's wish, or that there will
    /// never be a verdict.
    pub(super) fn cost(&self) -> Option<u32> {
        (self.is_judged() || self.drain.is_some() || self.undrained || !self.settings.check.enabled)
            .then(|| self.penalty())
    }

    pub(super) fn timeout(&self) -> Duration {
        match self.settings.check.timeout {
            Timeout::Fixed(timeout) => timeout,
            Timeout::Auto => self.auto_timeout,
        }
    }

    /// When a probe is given up. A stall restarts the wait: what the engine could not listen for is
    /// waited for once more. But stalls that go on and on do not put it off for ever: it ends when the
    /// probe has been waited for twice its time-out of running time.
    pub(super) fn deadline(probe: &Probe, stalls: Stalls) -> Time {
        let deadline = probe.left() + probe.timeout();
        if probe.left() >= stalls.end {
            return deadline;
        }
        let stalled = stalls.total.saturating_sub(probe.stalled());
        deadline.max((stalls.end + probe.timeout()).min(deadline + stalled + probe.timeout()))
    }

    /// When a probe's answer is suspiciously late, so that the confirming probes need not wait for
    /// its deadline. `None` where early retry does not apply.
    pub(super) fn early(&self, probe: &Probe, stalls: Stalls) -> Option<Time> {
        let applies = self.settings.check.early_retry
            && probe.purpose == Purpose::Regular
            && !probe.retried
            && probe.left() >= stalls.end
            && self.burst.left == 0
            && self.health.state() != State::Down;
        let patience = self.rtt.early_retry().filter(|_| applies)?;
        (patience < probe.timeout()).then(|| probe.left() + patience)
    }

    /// When this tunnel wants attention next.
    pub(super) fn attention(&self, stalls: Stalls) -> Option<Time> {
        let retires = self.associations.as_ref().and_then(|associations| associations.retires());
        if !self.is_probed() {
            return retires;
        }
        let waiting = self
            .in_flight
            .waiting()
            .flat_map(|(_, probe)| [Some(Self::deadline(probe, stalls)), self.early(probe, stalls)]);
        waiting.flatten().chain([self.next_due]).chain(retires).min()
    }

    /// Whether probes are sent at all.
    pub(super) const fn is_probed(&self) -> bool {
        self.settings.check.enabled && self.obstacle.is_none()
    }

    pub(super) fn receives(&self, spi: u32) -> bool {
        self.associations.as_ref().is_some_and(|associations| associations.receives(spi))
    }

    /// The ICMP identifier: spread over tunnels, another one after repeated failure.
    pub(super) fn identifier(&self, epoch: u64) -> u16 {
        let bits = schedule::mix(epoch, u64::from(self.number) << 32 | u64::from(self.identifier_salt));
        let [high, low, ..] = bits.to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Notes that this host could not send, and says how long to wait before the next try.
    pub(super) fn back_off(&mut self, now: Time, why: &'static str) -> Duration {
        let doublings = self.unsent_in_a_row.min(RETRY_DOUBLINGS);
        self.unsent_in_a_row += 1;
        self.note_spoilt(now, why);
        RETRY * 2_u32.pow(doublings)
    }

    /// A probe has come to nothing by this host's own trouble.
    pub(super) fn note_spoilt(&mut self, at: Time, why: &'static str) {
        self.counters.local_faults += 1;
        if self.spoilt.len() == SPOILT {
            self.spoilt.pop_front();
        }
        self.spoilt.push_back((at, why));
    }

    pub(super) fn note_success(&mut self, rtt: Duration) {
        // Of several targets each answer is counted when it comes, and what is lost of them likewise.
        self.counters.received += u64::from(self.rounds.is_none());
        self.samples.success += 1;
        self.rtts.note(rtt);
        self.failures_in_a_row = 0;
        self.unsent_in_a_row = 0;
        self.rtt.update(rtt);
        self.burst.answered = true;
        self.authenticated = self.settings.check.mark_key.is_some();
    }

    pub(super) fn note_failure(&mut self, at: WallTime, failure: Failure) {
        self.counters.lost += u64::from(self.rounds.is_none());
        self.samples.failure += 1;
        self.last_failure = Some((at, failure));
        self.failures_in_a_row += 1;
        self.unsent_in_a_row = 0;
        if self.failures_in_a_row.is_multiple_of(IDENTIFIER_PATIENCE) {
            self.identifier_salt += 1;
        }
    }

    /// An answer came after its probe was given up. It is no success, but it tells how slow the path
    /// has become; a time-out that follows the path must hear of it, or it would stay too short.
    pub(super) fn note_late(&mut self, at: Time, rtt: Duration) {
        self.rtt.update(rtt);
        let window = self.health.window().length();
        let slower = self.latest_late.is_none_or(|(then, known)| rtt >= known || !then.within(window, at));
        if slower {
            self.latest_late = Some((at, rtt));
        }
        self.follow_path(at);
    }

    /// Follows the path's round-trip times, where the time-out is "auto": now and then, or at once
    /// after a late answer.
    pub(super) fn follow_path(&mut self, now: Time) {
        let total = self.health.window().total();
        let due = total < AUTO_EVERY || total.is_multiple_of(AUTO_EVERY);
        if self.settings.check.timeout == Timeout::Auto && (due || self.late(now).is_some()) {
            self.adopt_path(now);
        }
    }

    /// The same, when samples have been taken up from an earlier run. Whether the path is slow is old news
    /// then.
    pub(super) fn recall_path(&mut self, now: Time) {
        self.health.forget(now);
        self.adopt_path(now);
        self.became_slow();
    }

    fn late(&self, now: Time) -> Option<Duration> {
        let length = self.health.window().length();
        self.latest_late.filter(|(then, _)| then.within(length, now)).map(|(_, rtt)| rtt)
    }

    fn adopt_path(&mut self, now: Time) {
        let (window, late) = (self.health.window(), self.late(now));
        let p99 = window.rtt().map(|rtt| Duration::from_micros(u64::from(rtt.p99_us)));
        self.auto_timeout =
            p99.max(late).map_or(Timeout::AUTO_MAX, |slow| (slow * 3).clamp(Timeout::AUTO_MIN, Timeout::AUTO_MAX));
    }

    /// Whether the smoothed round-trip time has just passed 70 % of the time-out. It must fall
    /// below 60 % before it can pass again.
    pub(super) fn became_slow(&mut self) -> bool {
        let (smoothed, timeout) = (self.rtt.smoothed().unwrap_or_default(), self.timeout());
        if smoothed * 10 > timeout * 7 {
            return !std::mem::replace(&mut self.slow, true);
        }
        if smoothed * 10 < timeout * 6 {
            self.slow = false;
        }
        false
    }
}
