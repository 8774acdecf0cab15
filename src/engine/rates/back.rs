//! The way back: rule 2 to degraded, rule 4 to healthy.

use super::Spread;
use super::beat::{Beat, duration, nanos};
use crate::engine::health::Rules;
use crate::engine::settings::Check;

/// From the path's return to degraded and to healthy, after an outage that has filled the long window with failures.
pub(super) fn times(beat: &Beat, check: &Check) -> (Spread, Spread) {
    let rules = &check.rules;
    let [short, usual, long] = beat.intervals();
    let degraded = Spread {
        best: duration(Back::new(beat, rules, short, 0).degraded),
        typical: duration(Back::new(beat, rules, usual, usual / 2).degraded),
        worst: duration(Back::new(beat, rules, long, long).degraded + beat.stragglers(long)),
    };
    let phases = |interval: i64| [0, interval / 4, interval / 2, interval / 4 * 3, interval];
    let ways = [short, usual, long].into_iter().flat_map(|interval| phases(interval).map(|first| (interval, first)));
    let all: Vec<[i64; 3]> =
        ways.map(|(interval, first)| Back::new(beat, rules, interval, first).healthy(rules)).collect();
    let usually = phases(usual).map(|first| Back::new(beat, rules, usual, first).healthy(rules)[1]);
    let healthy = Spread {
        best: duration(all.iter().map(|times| times[0]).min().unwrap_or(0)),
        typical: duration(usually.iter().take(4).sum::<i64>() / 4),
        worst: duration(all.iter().map(|times| times[2]).max().unwrap_or(0)),
    };
    (degraded, healthy)
}

/// One way back; the path is there again at 0.
struct Back<'a> {
    beat: &'a Beat,
    interval: i64,
    /// When the first regular probe leaves.
    first: i64,
    /// When it is degraded, by how many regular probes, and by how many successes in all.
    degraded: i64,
    turns: i64,
    successes: i64,
}

/// A probe that is answered while the tunnel is down, and the two that confirm it.
const EACH: i64 = 3;

impl<'a> Back<'a> {
    fn new(beat: &'a Beat, rules: &Rules, interval: i64, first: i64) -> Self {
        let wanted = i64::from(rules.up_samples).max(1);
        let (turns, last) = ((wanted - 1) / EACH, (wanted - 1) % EACH);
        // The two leave when the answer is read.
        let confirmed = if last == 0 { 0 } else { beat.awake(beat.path) };
        let degraded = first + turns * interval + beat.path + confirmed;
        Self { beat, interval, first, degraded, turns: turns + 1, successes: (turns + 1) * EACH }
    }

    /// When it is healthy: by luck, on average, by bad luck.
    fn healthy(&self, rules: &Rules) -> [i64; 3] {
        // The last probe that was lost fails when it has been waited for, and a row begins anew.
        let again = self.first - self.interval + self.beat.timeout - self.degraded;
        let row = if again > 0 { -(again / self.interval) } else { self.successes };
        let straight = self.at((i64::from(rules.recovery_samples) - row).max(1));
        let window = nanos(rules.degraded_window);
        let (mut lossy, mut clean) = (straight, straight + window + self.beat.timeout + self.interval);
        if !self.lossy(straight, rules) {
            return [straight; 3];
        }
        while clean - lossy > 1 {
            let middle = i64::midpoint(lossy, clean);
            if self.lossy(middle, rules) { lossy = middle } else { clean = middle }
        }
        // The sample that decides is the next one, and may come at once.
        [clean, clean + self.interval / 2, clean + self.interval]
    }

    /// When the so-manieth regular success after the verdict of degraded is.
    fn at(&self, turn: i64) -> i64 {
        (self.first + (self.turns - 1 + turn) * self.interval + self.beat.path).max(self.degraded)
    }

    /// Rule 3's condition at a time; no success has left the window before the failures.
    fn lossy(&self, at: i64, rules: &Rules) -> bool {
        // While it was down a regular probe failed in each interval; the last one left an interval before the first
        // that was answered.
        let span = nanos(rules.degraded_window) + self.first + self.beat.timeout - at;
        let failures = u64::try_from((span - 1).div_euclid(self.interval)).unwrap_or(0);
        let successes = self.successes + ((at - self.at(0)) / self.interval).max(0);
        let samples = failures + u64::try_from(successes).unwrap_or(0);
        failures >= u64::from(rules.degraded_min_failures) && rules.degraded_ratio.reached(failures, samples)
    }
}
