//! A share of successes that is to be reached: judged over a short time and a long one, as in the multi-window
//! alerts of Cloudflare's tunnel health.
//!
//! It is missed when both fall short of the target: the short one says that it goes on, the long one that it is
//! worth telling. It is reached again when neither does.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::batch::Item;
use super::guard::apart;
use super::heard::Seen;
use super::sink::{Objective, Sink};
use crate::engine::WallTime;
use crate::engine::health::Ratio;

/// The long time in short ones.
const LONG: u32 = 12;
/// Samples without which nothing is said of a time: at the lowest rate there are five in five minutes.
const LEAST: u64 = 3;

/// What is known for one sink's objective.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Judge {
    /// When it was judged last, in nanoseconds of the wall clock.
    judged: Option<u64>,
    tunnels: BTreeMap<String, Track>,
}

/// What is known of one tunnel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Track {
    /// The counters when they were read last: successes and failures.
    read: [u64; 2],
    /// What came beside these in each short time, the last one at the end.
    periods: VecDeque<Period>,
    /// When it was told last that the target is missed, unless it has been reached since.
    told: Option<u64>,
    /// And before that.
    before: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Period {
    end: u64,
    good: u64,
    bad: u64,
}

/// Successes and failures.
#[derive(Clone, Copy)]
struct Share {
    good: u64,
    bad: u64,
}

impl Share {
    fn of<'a>(periods: impl Iterator<Item = &'a Period>) -> Self {
        periods.fold(Self { good: 0, bad: 0 }, |sum, Period { good, bad, .. }| Self {
            good: sum.good + good,
            bad: sum.bad + bad,
        })
    }

    /// Whether the target is reached; `None` if there are too few to say.
    fn reaches(self, target: Ratio) -> Option<bool> {
        let all = self.good + self.bad;
        (all >= LEAST).then(|| target.reached(self.good, all))
    }

    fn json(self, length: Duration) -> serde_json::Value {
        json!({
            "seconds": length.as_secs(),
            "samples": self.good + self.bad,
            "failures": self.bad,
            "success_ratio": self.ratio(),
        })
    }

    /// To four places.
    #[expect(clippy::cast_precision_loss, reason = "a share for people to read")]
    fn ratio(self) -> f64 {
        (self.good as f64 / (self.good + self.bad).max(1) as f64 * 10_000.0).floor() / 10_000.0
    }
}

impl Judge {
    /// The daemon's counters begin anew.
    pub(super) fn restart(&mut self) {
        self.tunnels.values_mut().for_each(|track| track.read = [0, 0]);
    }

    /// How long until it is to be judged again.
    pub(super) fn wait(&self, now: WallTime, objective: &Objective) -> Duration {
        self.judged.map_or(Duration::ZERO, |judged| objective.window.saturating_sub(apart(now.0, judged)))
    }

    /// Judges all tunnels, if it is time.
    pub(super) fn look(&mut self, now: WallTime, sink: &Sink, objective: &Objective, seen: &[Seen]) -> Vec<Item> {
        if self.wait(now, objective) > Duration::ZERO {
            return Vec::new();
        }
        // A longer time than was meant, because nobody was here to look, is not judged as a short one.
        let is_whole = self.judged.is_some_and(|judged| apart(now.0, judged) < objective.window * 2);
        self.judged = Some(now.0);
        let mut tracks = std::mem::take(&mut self.tunnels);
        let mut told = Vec::new();
        for seen in seen.iter().filter(|seen| sink.hears_of(&seen.tunnel)) {
            let known = tracks.remove(&seen.tunnel);
            let is_new = known.is_none();
            let mut track = known.unwrap_or_default();
            let [good, bad] = track.read([seen.successes, seen.failures]);
            track.periods.retain(|period| apart(now.0, period.end) < objective.window * LONG);
            if !seen.counts {
                // Nobody's business: as if it were new when it is again.
                track = Track { read: track.read, ..Track::default() };
            } else if is_whole && !is_new {
                track.periods.push_back(Period { end: now.0, good, bad });
                told.extend(track.judge(now, objective, seen));
            }
            self.tunnels.insert(seen.tunnel.clone(), track);
        }
        told
    }
}

impl Track {
    /// What has come beside what was read before. Counters that are smaller than they were have begun anew.
    fn read(&mut self, counters: [u64; 2]) -> [u64; 2] {
        let [before, now] = [std::mem::replace(&mut self.read, counters), counters];
        let anew = now[0] < before[0] || now[1] < before[1];
        if anew { now } else { [now[0] - before[0], now[1] - before[1]] }
    }

    fn judge(&mut self, now: WallTime, objective: &Objective, seen: &Seen) -> Option<Item> {
        let short = Share::of(self.periods.back().into_iter());
        let long = Share::of(self.periods.iter());
        let word = match [short, long].map(|share| share.reaches(objective.target)) {
            [Some(false), Some(false)] => {
                if self.told.or(self.before).is_some_and(|told| apart(now.0, told) < objective.repeat) {
                    return None;
                }
                self.told = Some(now.0);
                "missed"
            }
            [Some(true), Some(true)] => {
                self.before = Some(self.told.take()?);
                "met"
            }
            [None | Some(_), None | Some(_)] => return None,
        };
        Some(item(now, word, [short, long], objective, seen))
    }
}

fn item(now: WallTime, word: &str, [short, long]: [Share; 2], objective: &Objective, seen: &Seen) -> Item {
    let Objective { target: Ratio(target), window, .. } = objective;
    let lengths = [*window, *window * LONG];
    let percent = |millionths: u32| f64::from(millionths) / 10_000.0;
    let words = format!(
        "{}: {} of {} % is {word}: {:.2} % of {} samples succeeded in {}, {:.2} % of {} in {}",
        seen.tunnel,
        "a target",
        percent(*target),
        short.ratio() * 100.0,
        short.good + short.bad,
        humantime::format_duration(lengths[0]),
        long.ratio() * 100.0,
        long.good + long.bad,
        humantime::format_duration(lengths[1]),
    );
    let json = json!({
        "at": now,
        "kind": "slo",
        "tunnel": seen.tunnel,
        "slo": word,
        "state": seen.state,
        "target": f64::from(*target) / 1_000_000.0,
        "short": short.json(lengths[0]),
        "long": long.json(lengths[1]),
        "reason": words,
    });
    Item { json: json.to_string(), words, count_as: format!("slo {word}"), tunnel: Some(seen.tunnel.clone()) }
}
