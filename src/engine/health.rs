//! The hysteresis: samples in, a verdict out. `spec/health.md` in code.
//!
//! | # | in state | when | goes to |
//! | --- | --- | --- | --- |
//! | 1 | unknown, healthy, degraded | the last second holds at least 3 samples, all failures | down |
//! | 2 | down | the last 3 samples are successes | degraded |
//! | 3 | healthy | of the last 5 minutes' samples at least 2 and at least 0.1 % failed | degraded |
//! | 4 | degraded | none of the last 30 samples failed and rule 3's condition does not hold | healthy |
//! | 5 | unknown | 3 samples, rule 1 did not fire | degraded if 2 failed, else healthy |
//!
//! The rules are applied to each sample in this order, and the first that fires ends it: there is
//! never more than one transition for one sample. Going down is fast, coming back is slow; that
//! asymmetry is the hysteresis, and there is no other damping.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Time;
use super::window::{Outcome, Window};

/// What adit says of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// No verdict yet, or not checked at all. Never reported as healthy.
    Unknown,
    /// Carries traffic.
    Healthy,
    /// Loses some, or was down a short time ago.
    Degraded,
    /// Carries nothing.
    Down,
}

impl State {
    /// All of them, best first after "unknown".
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Healthy, Self::Degraded, Self::Down];

    /// The name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Down => "down",
        }
    }

    /// The state of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// 1, 0.5 and 0 as in Cloudflare's analytics; nothing for unknown.
    #[must_use]
    pub const fn code(self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::Healthy => Some(1.0),
            Self::Degraded => Some(0.5),
            Self::Down => Some(0.0),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name).ok_or_else(|| serde::de::Error::custom("no state has this name"))
    }
}

/// A share in millionths, so that "at least 0.1 %" is exact integer arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ratio(pub u32);

impl Ratio {
    /// Whether `part` of `whole` is at least this share.
    #[must_use]
    pub fn reached(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 1_000_000 >= u128::from(whole) * u128::from(self.0)
    }

    /// How many more failures bring `failures` of `samples` to this share. `None` if no number does:
    /// where the share is 100 % and there is a success.
    #[must_use]
    pub fn missing(self, failures: u64, samples: u64) -> Option<u64> {
        let share = u128::from(self.0);
        let short = (u128::from(samples) * share).saturating_sub(u128::from(failures) * 1_000_000);
        if short == 0 {
            return Some(0);
        }
        // Each failure counts for a whole and makes the share of one more sample due.
        let gain = 1_000_000_u128.checked_sub(share).filter(|gain| *gain > 0)?;
        u64::try_from(short.div_ceil(gain)).ok()
    }

    /// How many more successes bring `failures` of `samples` below this share.
    #[must_use]
    pub fn diluting(self, failures: u64, samples: u64) -> u64 {
        let below = u128::from(failures) * 1_000_000 / u128::from(self.0.max(1)) + 1;
        u64::try_from(below.saturating_sub(u128::from(samples))).unwrap_or(u64::MAX)
    }

    /// Whether this is more than a half.
    #[must_use]
    pub const fn is_most(self) -> bool {
        self.0 > 500_000
    }
}

/// The numbers in the rules. The defaults are the specification's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Rule 3: the share of failures within `degraded_window` that makes a tunnel degraded.
    pub degraded_ratio: Ratio,
    /// Rules 3 and 5: never on fewer failures than this, so that one lost packet costs nothing.
    pub degraded_min_failures: u32,
    /// The long window (W5).
    pub degraded_window: Duration,
    /// Rule 1: at least so many samples; rule 5: the first verdict needs as many.
    pub down_min_samples: u32,
    /// The short window (W1).
    pub down_window: Duration,
    /// Rule 2: so many successes in a row.
    pub up_samples: u32,
    /// Rule 4: of so many last samples none may have failed (L30); at most [`super::window::RECENT_MAX`].
    pub recovery_samples: u32,
}

impl Rules {
    /// Rule 3: how many more failures it takes in a window with so many failures and samples; `None` if
    /// no number does while they are in it.
    #[must_use]
    pub fn lossy_after(&self, failures: u64, samples: u64) -> Option<u64> {
        let by_count = u64::from(self.degraded_min_failures).saturating_sub(failures);
        Some(self.degraded_ratio.missing(failures, samples)?.max(by_count))
    }

    /// Rule 4: how many more successes it takes until rule 3's condition does not hold any more.
    #[must_use]
    pub fn clean_after(&self, failures: u64, samples: u64) -> u64 {
        if failures < u64::from(self.degraded_min_failures) {
            return 0;
        }
        self.degraded_ratio.diluting(failures, samples)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            degraded_ratio: Ratio(1_000),
            degraded_min_failures: 2,
            degraded_window: Duration::from_secs(300),
            down_min_samples: 3,
            down_window: Duration::from_secs(1),
            up_samples: 3,
            recovery_samples: 30,
        }
    }
}

/// A change of state: a value, whose consequences are drawn elsewhere, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// When: the time of the sample that decided.
    pub at: Time,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// Why.
    pub reason: Reason,
}

impl Transition {
    /// The state whose penalty holds from now on: where a tunnel cannot be probed any more, that of the
    /// last verdict.
    #[must_use]
    pub const fn penalised(&self) -> State {
        if self.reason.rule == 0 { self.from } else { self.to }
    }
}

/// The rule that fired, with the numbers that it saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// 1 to 5, as in the table above; 0 where a tunnel cannot be probed any more.
    pub rule: u8,
    /// How many last samples are alike; 0 where the rule does not ask for that.
    pub alike: u32,
    /// Samples looked at.
    pub samples: u64,
    /// Failures among them.
    pub failures: u64,
    /// The span of time looked at; zero where the rule counts samples only.
    pub span: Duration,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, alike, samples, failures, span } = self;
        let span = humantime::format_duration(*span);
        match rule {
            0 => f.write_str("the tunnel cannot be probed"),
            1 => write!(f, "rule 1: all of the last {alike} samples failed within {span}"),
            2 => write!(f, "rule 2: the last {alike} samples are successes"),
            3 => write!(f, "rule 3: {failures} of {samples} samples failed in {span}"),
            4 => write!(f, "rule 4: the last {alike} samples are clean, {failures} of {samples} failed in {span}"),
            _ => write!(f, "rule 5: {failures} of the first {samples} samples failed"),
        }
    }
}

/// The health of one tunnel.
#[derive(Debug, Clone)]
pub struct Health {
    state: State,
    rules: Rules,
    window: Window,
    last: Option<Transition>,
}

impl Health {
    /// A tunnel of which nothing is known.
    #[must_use]
    pub const fn new(rules: Rules) -> Self {
        Self::starting_as(State::Unknown, rules)
    }

    /// A tunnel with a first state and an empty history.
    #[must_use]
    pub const fn starting_as(state: State, rules: Rules) -> Self {
        Self { state, rules, window: Window::new(rules.degraded_window), last: None }
    }

    /// A tunnel whose state is remembered, but not its samples.
    pub(super) const fn recalled(state: State, rules: Rules, last: Option<Transition>) -> Self {
        Self { state, rules, window: Window::new(rules.degraded_window), last }
    }

    /// Its samples, too.
    pub(super) fn recall_window(&mut self, window: Window) {
        self.window = window;
    }

    /// The state now.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The rules that hold.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Judges by other rules from now on. Moves no state: the next sample may.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        self.window.set_length(rules.degraded_window);
        self.rules = rules;
    }

    /// The samples.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// How the state was reached.
    #[must_use]
    pub const fn last_transition(&self) -> Option<&Transition> {
        self.last.as_ref()
    }

    /// Makes room for the samples of one probe in each `interval`.
    pub(super) fn make_room(&mut self, interval: Duration) {
        self.window.make_room(interval);
    }

    /// Lets go of samples that have become too old. Moves no state: only a sample does.
    pub fn forget(&mut self, now: Time) {
        self.window.forget(now);
    }

    /// Judges one sample: the only way in which a state changes.
    pub fn judge(&mut self, now: Time, outcome: Outcome) -> Option<Transition> {
        self.window.push(now, outcome);
        let (to, rule) = match self.state {
            State::Unknown if self.dead(now) => (State::Down, 1),
            State::Unknown if self.known() && self.failed_often() => (State::Degraded, 5),
            State::Unknown if self.known() => (State::Healthy, 5),
            State::Unknown => return None,
            State::Healthy if self.dead(now) => (State::Down, 1),
            State::Healthy if self.lossy() => (State::Degraded, 3),
            State::Healthy => return None,
            State::Degraded if self.dead(now) => (State::Down, 1),
            State::Degraded if self.clean() && !self.lossy() => (State::Healthy, 4),
            State::Degraded => return None,
            State::Down if self.alive() => (State::Degraded, 2),
            State::Down => return None,
        };
        let transition = Transition { at: now, from: self.state, to, reason: self.reason(rule) };
        self.state = to;
        self.last = Some(transition);
        Some(transition)
    }

    /// Rule 1's condition.
    fn dead(&self, now: Time) -> bool {
        self.window.all_failed(self.rules.down_min_samples, self.rules.down_window, now)
    }

    /// Rule 2's condition.
    fn alive(&self) -> bool {
        self.window.successes_in_a_row() >= u64::from(self.rules.up_samples)
    }

    /// Rule 3's condition.
    fn lossy(&self) -> bool {
        self.failed_often() && self.rules.degraded_ratio.reached(self.window.failures(), self.window.samples())
    }

    /// Rule 4's first condition: as many samples as it takes, none of them a failure, whatever the ratio.
    fn clean(&self) -> bool {
        self.window.successes_in_a_row() >= u64::from(self.rules.recovery_samples)
    }

    fn failed_often(&self) -> bool {
        self.window.failures() >= u64::from(self.rules.degraded_min_failures)
    }

    fn known(&self) -> bool {
        self.window.total() >= u64::from(self.rules.down_min_samples)
    }

    fn reason(&self, rule: u8) -> Reason {
        let rules = &self.rules;
        let long = (self.window.samples(), self.window.failures(), rules.degraded_window);
        let (alike, (samples, failures, span)) = match rule {
            1 => {
                let count = u64::from(rules.down_min_samples);
                (rules.down_min_samples, (count, count, rules.down_window))
            }
            2 => (rules.up_samples, (u64::from(rules.up_samples), 0, Duration::ZERO)),
            4 => (rules.recovery_samples, long),
            _ => (0, long),
        };
        Reason { rule, alike, samples, failures, span }
    }
}
