//! The chances of an alarm by random loss alone, by rule: exact where a chain of few states tells, else the bounds that
//! they lie between.

use std::time::Duration;

use super::Bounds;
use super::beat::Beat;
use super::chain::Chain;
use super::tail::{cluster, tail};
use crate::engine::health::Rules;
use crate::engine::settings::Check;

/// Of the number of regular probes in the long window no more than this many roots are ever missing, or too many.
const SWAY: f64 = 0.15;

/// A check under random loss.
#[derive(Debug)]
pub(super) struct Chance {
    /// The share of samples that fail.
    loss: f64,
    /// Seconds between two regular probes.
    interval: f64,
    degraded: Degraded,
    down: Down,
}

/// What rule 3 takes.
#[derive(Debug)]
enum Degraded {
    /// One failure.
    One,
    /// Two in one window.
    Two(Chain),
    /// At least the first number of failures in a window, at most the second; and the chain, where the first is two.
    More { failures: [f64; 2], probes: [f64; 2], chain: Option<Chain> },
}

/// What rule 1 takes.
#[derive(Debug)]
enum Down {
    /// So many beats in a row that bring no answer, each with this chance.
    Beats(f64, u32),
    /// At least, and at most, this for each regular probe; the first needs so many of them.
    Between { chances: [f64; 2], probes: f64 },
    /// It never fires.
    Never,
}

impl Chance {
    pub(super) fn new(beat: &Beat, check: &Check, loss: f64) -> Self {
        let interval = check.interval.as_secs_f64();
        let window = check.rules.degraded_window.as_secs_f64() / interval;
        let down = Down::new(beat, check, loss);
        let degraded = match down {
            // A loss alone is called down, and so it is healthy no more.
            Down::Beats(chance, 1) if chance >= loss => Degraded::One,
            Down::Beats(..) | Down::Between { .. } | Down::Never => Degraded::new(window, &check.rules, loss),
        };
        Self { loss, interval, degraded, down }
    }

    /// That a healthy tunnel is not healthy any more within a time.
    pub(super) fn degraded(&self, time: Duration) -> Bounds {
        let steps = time.as_secs_f64() / self.interval;
        match &self.degraded {
            Degraded::One => Bounds::exact(repeated(self.loss, steps)),
            Degraded::Two(chain) => Bounds::exact(chain.within(steps)),
            Degraded::More { failures, probes, chain } => {
                // Spans of time beside each other, none longer than the window, in each of which it may happen.
                let span = probes[0].min(steps.floor());
                let [low, _] = tail(span, self.loss, failures[1]);
                let at_least = repeated(low, (steps / span.max(1.0)).floor());
                let at_most = steps * self.alarms(failures[0], probes[1]);
                let at_most = chain.as_ref().map_or(at_most, |chain| chain.within(steps));
                // Rule 1 may come first.
                let down = self.down(time);
                let at_most = (at_most + down.at_most).min(1.0);
                Bounds { at_least: at_least.max(down.at_least).min(at_most), at_most }
            }
        }
    }

    /// Seconds until a healthy tunnel is not healthy any more, on average.
    pub(super) fn mean_to_degraded(&self) -> Bounds {
        let seconds = |steps: f64| steps * self.interval;
        match &self.degraded {
            Degraded::One => Bounds::exact(seconds(1.0 / self.loss)),
            Degraded::Two(chain) => Bounds::exact(seconds(chain.mean())),
            Degraded::More { failures, probes, chain } => {
                let [low, _] = tail(probes[0], self.loss, failures[1]);
                // Where it is no more likely than `r` at each step, half of 1/r is the least that the mean can be.
                // And each step brings so many failures on average, of which there must be enough (Wald's identity).
                let each = self.loss * (1.0 + 2.0 * self.loss);
                let at_least = seconds((0.5 / self.alarms(failures[0], probes[1])).max(failures[0] / each));
                let at_least = chain.as_ref().map_or(at_least, |chain| seconds(chain.mean()));
                // Rule 1 may come first.
                let down = self.mean_to_down();
                let at_least = 1.0 / (1.0 / at_least + 1.0 / down.at_least);
                Bounds { at_least, at_most: seconds(probes[0] / low).min(down.at_most).max(at_least) }
            }
        }
    }

    /// How likely a step at most is the one with which so many failures are in the window.
    fn alarms(&self, failures: f64, probes: f64) -> f64 {
        let each = [1.0, 2.0, 3.0].into_iter().zip(cluster(self.loss).into_iter().skip(1));
        each.map(|(own, chance)| chance * tail(probes, self.loss, failures - own)[1]).sum()
    }

    /// That a tunnel is called down within a time.
    pub(super) fn down(&self, time: Duration) -> Bounds {
        let steps = time.as_secs_f64() / self.interval;
        match self.down {
            Down::Beats(chance, count) => {
                Bounds::exact(repeated(1.0 / run(chance, count), steps + 1.0 - f64::from(count)))
            }
            Down::Between { chances: [low, high], probes } => {
                let at_most = (steps * high).min(1.0);
                Bounds { at_least: repeated(low, (steps / probes).floor()).min(at_most), at_most }
            }
            Down::Never => Bounds::exact(0.0),
        }
    }

    /// Seconds until a tunnel is called down, on average.
    pub(super) fn mean_to_down(&self) -> Bounds {
        match self.down {
            Down::Beats(chance, count) => Bounds::exact(self.interval * run(chance, count)),
            Down::Between { chances: [low, high], probes } => {
                Bounds { at_least: self.interval * 0.5 / high, at_most: self.interval * probes / low }
            }
            Down::Never => Bounds::exact(f64::INFINITY),
        }
    }
}

impl Degraded {
    fn new(window: f64, rules: &Rules, loss: f64) -> Self {
        let sway = 1.0 + SWAY * window.sqrt();
        let probes = [(window - sway).floor().max(1.0), (window + sway).ceil()];
        let (least, share) = (f64::from(rules.degraded_min_failures), f64::from(rules.degraded_ratio.0) / 1e6);
        // Each lost regular probe brings two more samples, which make the share of each failure smaller.
        let room = 1.0 - 2.0 * share;
        let few = (share * probes[0]).ceil().max(least).max(1.0);
        let many = if room > 0.0 { (share * probes[1] / room).ceil() } else { f64::INFINITY };
        let many = many.max(least).max(1.0);
        let chain = (few <= 2.0).then(|| Chain::new(window, loss));
        match chain {
            Some(_) if many <= 1.0 => Self::One,
            Some(chain) if few >= 2.0 && many <= 2.0 => Self::Two(chain),
            chain => Self::More { failures: [few, many], probes, chain: chain.filter(|_| few >= 2.0) },
        }
    }
}

impl Down {
    fn new(beat: &Beat, check: &Check, loss: f64) -> Self {
        let [Some(short), Some(usual), Some(long)] = beat.downs else { return Self::Never };
        let all = [short, usual, long];
        if let Some(beats) = beat.beats_to_down() {
            return Self::Beats(loss.powi(3), beats);
        }
        if all.iter().all(|down| down.lost == 1) && check.rules.down_min_samples == 1 {
            return Self::Beats(loss, 1);
        }
        let (lost, regular) = all.iter().fold((0, 0), |most, down| (most.0.max(down.lost), most.1.max(down.regular)));
        let low = (1.0 - loss) * loss.powf(f64::from(lost));
        // Every regular probe that could have been answered in the window was lost; and so were as many of all that could
        // have failed in it as the rule asks for.
        let [shortest, _, longest] = beat.intervals();
        let silent = f64::from(u32::try_from(beat.down_window / longest).unwrap_or(u32::MAX));
        let failing = 3.0 * (f64::from(u32::try_from(beat.down_window / shortest).unwrap_or(u32::MAX)) + 1.0);
        let beats = beat.beats_to_down().map_or(1.0, |beats| loss.powf(3.0 * f64::from(beats)));
        let high =
            beats.min(loss.powf(silent)).min(chosen(failing, check.rules.down_min_samples) * loss.powi(wanted(check)));
        Self::Between { chances: [low.min(high), high], probes: f64::from(regular) + 1.0 }
    }
}

fn wanted(check: &Check) -> i32 {
    i32::try_from(check.rules.down_min_samples).unwrap_or(i32::MAX)
}

/// In how many ways some can be chosen of many.
fn chosen(many: f64, some: u32) -> f64 {
    (0..some).map(f64::from).map(|taken| (many - taken).max(0.0) / (taken + 1.0)).product()
}

/// The mean number of trials until something with this chance has happened so many times in a row.
fn run(chance: f64, count: u32) -> f64 {
    let all = chance.powf(f64::from(count));
    (1.0 - all) / ((1.0 - chance) * all)
}

/// That something with this chance happens at least once in so many trials.
fn repeated(chance: f64, trials: f64) -> f64 {
    if trials <= 0.0 {
        return 0.0;
    }
    if chance >= 1.0 { 1.0 } else { -(trials * (-chance).ln_1p()).exp_m1() }
}
