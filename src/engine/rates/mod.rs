//! What the numbers of a check mean: how soon a cut is found, how long the way back takes, how often random loss
//! alone changes a state.
//!
//! PURE, and beside the engine: nothing here decides about a tunnel. The times come from a model of one tunnel's
//! probes (`beat`), which knows when they leave and when their outcomes are known; the chances from the rules of
//! [`super::health`] for probes each of which is lost with the same probability, whatever became of the others.
//! `tests/rates.rs` holds both against the engine itself in virtual time.
//!
//! What is taken for granted: a path whose answers always take the same time, one tunnel (bursts of very many are
//! paced), no trouble of this host's own. Of several targets each probe of a round is lost on its own.
//!
//! | file | holds |
//! | --- | --- |
//! | `beat` | when probes leave, and what a cut makes of them |
//! | `back` | the way back to degraded, and to healthy |
//! | `chain` | rule 3 where two failures are enough: exact |
//! | `tail` | how many failures a window holds |
//! | `chance` | the chances that follow, by rule |

mod back;
mod beat;
mod chain;
mod chance;
mod tail;

use std::time::Duration;

use super::health::Ratio;
use super::settings::{Check, Targets, Timeout};
use beat::Beat;

/// A day.
pub const DAY: Duration = Duration::from_secs(86_400);
/// The shares of lost probes that are asked about.
pub const LOSSES: [Ratio; 4] = [Ratio(1_000), Ratio(10_000), Ratio(20_000), Ratio(50_000)];
/// The path that is assumed where nobody says another: an answer comes within the shortest patience.
pub const PATH: Duration = super::rtt::EARLY_FLOOR;

/// Who is asked at once: a sample is a failure where fewer than a quorum of so many targets answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Round {
    /// How many there are.
    pub targets: u32,
    /// How many must answer.
    pub quorum: u32,
}

impl Round {
    /// One target: each probe is a sample.
    pub const SINGLE: Self = Self { targets: 1, quorum: 1 };

    /// That of a tunnel with these targets.
    #[must_use]
    pub fn of(targets: Option<&Targets>) -> Self {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        targets.map_or(Self::SINGLE, |targets| {
            let count = number(targets.further.len()).saturating_add(1);
            Self { targets: count, quorum: number(targets.quorum).clamp(1, count) }
        })
    }

    /// The share of samples that fail where this share of probes is lost.
    #[must_use]
    pub fn failing(self, loss: f64) -> f64 {
        // That exactly so many answer. A sum of what is no less than nothing: a tiny one keeps its digits.
        let exactly = |answers: u32| {
            let ways: f64 = (0..answers).map(|taken| f64::from(self.targets - taken) / f64::from(taken + 1)).product();
            ways * (1.0 - loss).powf(f64::from(answers)) * loss.powf(f64::from(self.targets - answers))
        };
        (0..self.quorum.min(self.targets)).map(exactly).sum()
    }
}

/// What a check's numbers mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// The time-out that holds on this path.
    pub timeout: Duration,
    /// From a cut to down; `None` if three failures may never come close enough together.
    pub down: Option<Spread>,
    /// From the path's return to degraded.
    pub degraded: Spread,
    /// From the path's return, after an outage longer than the long window, to healthy.
    pub healthy: Spread,
    /// What random loss does, for each of [`LOSSES`].
    pub losses: Vec<Loss>,
}

/// Times from the luckiest moment to the unluckiest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// It happens just before a probe would have told the contrary.
    pub best: Duration,
    /// On average.
    pub typical: Duration,
    /// It happens just after one has, and jitter has the next one late.
    pub worst: Duration,
}

/// What random loss does to a tunnel that is healthy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// The share of probes that is lost.
    pub ratio: Ratio,
    /// The share of samples that fail by that.
    pub failing: f64,
    /// It is healthy no more: rule 3.
    pub degraded: Alarm,
    /// It is called down: rule 1.
    pub down: Alarm,
}

/// How likely, and how soon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alarm {
    /// The probability that it happens within a day.
    pub in_a_day: Bounds,
    /// The mean time until it does, in seconds; infinite if it never does.
    pub mean: Bounds,
}

/// A number, or two that it lies between.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// It is no less.
    pub at_least: f64,
    /// And no more.
    pub at_most: f64,
}

impl Bounds {
    /// Known exactly.
    const fn exact(value: f64) -> Self {
        Self { at_least: value, at_most: value }
    }

    /// Whether it is one number.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.at_least.total_cmp(&self.at_most).is_eq()
    }
}

/// What the numbers of a check mean on a path whose answers take so long. `None` if they take longer than the
/// check waits: then every probe fails.
#[must_use]
pub fn of(check: &Check, round: Round, path: Duration) -> Option<Rates> {
    let timeout = timeout(check, path);
    let beat = Beat::new(check, path, timeout)?;
    let (degraded, healthy) = back::times(&beat, check);
    let losses = LOSSES.map(|ratio| loss(&beat, check, round, ratio)).to_vec();
    Some(Rates { timeout, down: beat.detection(), degraded, healthy, losses })
}

/// The probabilities that a healthy tunnel has been degraded, and down, within some time.
#[must_use]
pub fn within(check: &Check, round: Round, path: Duration, ratio: Ratio, time: Duration) -> Option<[Bounds; 2]> {
    let beat = Beat::new(check, path, timeout(check, path))?;
    let chance = chance::Chance::new(&beat, check, round.failing(share(ratio)));
    Some([chance.degraded(time), chance.down(time)])
}

fn share(ratio: Ratio) -> f64 {
    f64::from(ratio.0) / 1e6
}

fn loss(beat: &Beat, check: &Check, round: Round, ratio: Ratio) -> Loss {
    let failing = round.failing(share(ratio));
    let chance = chance::Chance::new(beat, check, failing);
    let degraded = Alarm { in_a_day: chance.degraded(DAY), mean: chance.mean_to_degraded() };
    let down = Alarm { in_a_day: chance.down(DAY), mean: chance.mean_to_down() };
    Loss { ratio, failing, degraded, down }
}

/// What a check waits for on such a path.
fn timeout(check: &Check, path: Duration) -> Duration {
    match check.timeout {
        Timeout::Fixed(timeout) => timeout,
        Timeout::Auto => (path * 3).clamp(Timeout::AUTO_MIN, Timeout::AUTO_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_fails_where_fewer_than_a_quorum_answer() {
        for (targets, quorum, loss, failing) in [
            (1, 1, 0.01, 0.01),
            (3, 1, 0.01, 1e-6),
            (3, 2, 0.01, 1e-6 + 3.0 * 1e-4 * 0.99),
            (3, 3, 0.01, 1.0 - 0.99_f64.powi(3)),
            (16, 1, 0.001, 1e-48),
        ] {
            let said = Round { targets, quorum }.failing(loss);
            assert!((said / failing - 1.0).abs() < 1e-9, "{quorum} of {targets} at {loss}: {said}, not {failing}");
        }
    }
}
