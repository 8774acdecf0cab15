//! When one tunnel's probes leave, and what a cut makes of them.
//!
//! Times are whole nanoseconds from the sending of the first regular probe that is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Spread;
use crate::engine::rtt::EARLY_FLOOR;
use crate::engine::schedule::{self, TICK};
use crate::engine::settings::Check;

/// So many regular probes are gone through one by one. Who needs more waits for a window to pass, and nothing else.
const PATIENCE: i64 = 20_000;

/// What of a check decides about times.
#[derive(Debug, Clone)]
pub(super) struct Beat {
    pub(super) interval: i64,
    pub(super) timeout: i64,
    /// How long an answer takes.
    pub(super) path: i64,
    /// After which two more probes leave.
    patience: i64,
    pub(super) step: i64,
    pub(super) down_window: i64,
    down_samples: usize,
    /// What a cut comes to, with the shortest, the usual and the longest interval.
    pub(super) downs: [Option<Down>; 3],
}

/// What a tunnel that answers nothing any more comes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Down {
    /// When it is called down.
    pub(super) at: i64,
    /// How many probes had to be lost for that, one answer of which would have spoilt it.
    pub(super) lost: u32,
    /// How many regular probes had left.
    pub(super) regular: u32,
}

/// What happens next to a probe, or to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Deadline { probe: usize },
    Late,
    Regular,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    sent: i64,
    regular: bool,
    /// It has its two probes already, or its deadline is over.
    done: bool,
}

/// An interval, a twentieth shorter and longer, in parts of it.
const JITTER: [i64; 3] = [19, 20, 21];

pub(super) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

pub(super) fn duration(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

impl Beat {
    /// `None` if answers come after the time-out.
    pub(super) fn new(check: &Check, path: Duration, timeout: Duration) -> Option<Self> {
        let patience = if check.early_retry { path.max(EARLY_FLOOR).min(timeout) } else { timeout };
        let mut beat = Self {
            interval: nanos(check.interval).max(1),
            timeout: nanos(timeout),
            path: nanos(path),
            patience: nanos(patience),
            step: nanos(schedule::step(check, TICK)).max(1),
            down_window: nanos(check.rules.down_window),
            down_samples: check.rules.down_min_samples as usize,
            downs: [None; 3],
        };
        beat.downs = beat.intervals().map(|interval| beat.down(interval));
        (path < timeout).then_some(beat)
    }

    /// The next time at which the process is awake: probes leave then.
    pub(super) fn awake(&self, at: i64) -> i64 {
        at.div_euclid(self.step).saturating_add(i64::from(at.rem_euclid(self.step) > 0)).saturating_mul(self.step)
    }

    /// The interval as jitter may have it, shortest first.
    pub(super) fn intervals(&self) -> [i64; 3] {
        JITTER.map(|part| (self.interval / 20).saturating_mul(part).max(1))
    }

    /// When the last of a lost beat has failed: a regular probe and the two that confirm it.
    fn over(&self) -> i64 {
        self.awake(self.patience) + self.timeout
    }

    /// With how many beats in a row that bring no answer at all a tunnel is called down, neither sooner nor later; `None`
    /// where beats reach into each other, or jitter decides.
    pub(super) fn beats_to_down(&self) -> Option<u32> {
        let [short, _, long] = self.intervals();
        let [Some(one), Some(two), Some(three)] = self.downs else { return None };
        let all = [one, two, three];
        if self.over() > short {
            return None;
        }
        if all.iter().all(|down| (down.regular, down.lost) == (1, 3)) {
            return Some(1);
        }
        // Answers to these would be in the window, whichever of the last one's probes is the last to fail.
        let span = self.down_window + self.path - self.over();
        let beats = u32::try_from((span - 1).div_euclid(long) + 1).unwrap_or(1).max(1);
        let is_early = self.awake(self.patience) + self.path <= self.timeout;
        (is_early && all.iter().all(|down| down.lost == 3 * beats)).then_some(beats)
    }

    /// How long after the path's return probes from before it may fail, which end a row of successes.
    pub(super) fn stragglers(&self, interval: i64) -> i64 {
        (self.timeout - interval).max(0)
    }

    /// From a cut at any moment to down.
    pub(super) fn detection(&self) -> Option<Spread> {
        let [_, usual, long] = self.intervals();
        let [Some(early), Some(typical), Some(late)] = self.downs else { return None };
        let all = [early, typical, late].map(|down| down.at);
        // The cut comes after the last answer, and before the one that is missed.
        let (least, most) = (all.iter().min()?, all.iter().max()?);
        Some(Spread {
            best: duration(least - self.path),
            typical: duration(typical.at - self.path + usual / 2),
            worst: duration(most - self.path + long),
        })
    }

    /// What happens if no probe is answered any more, the regular ones leaving so far apart.
    fn down(&self, interval: i64) -> Option<Down> {
        let answered = self.path - interval;
        if self.down_window / interval > PATIENCE {
            // Only the last answer is in the way.
            let at = answered + self.down_window + interval / 2;
            let regular = u32::try_from(self.down_window / interval).unwrap_or(u32::MAX);
            return Some(Down { at, lost: regular, regular });
        }
        let events = BTreeSet::from([(0, What::Regular)]);
        let mut cut = Cut { beat: self, probes: Vec::new(), open: 0, events, burst: 0 };
        let mut failed = Vec::new();
        let mut regular = 0;
        while let Some((now, what)) = cut.events.pop_first() {
            match what {
                What::Regular => {
                    regular += 1;
                    if i64::from(regular) > PATIENCE + self.down_window / interval {
                        return None;
                    }
                    cut.send(now, true);
                    cut.events.insert((now + interval, What::Regular));
                }
                What::Late => cut.confirm(now),
                What::Deadline { probe } => {
                    failed.push((now, probe));
                    let window = now - self.down_window;
                    let needed = failed.len().checked_sub(self.down_samples).and_then(|first| failed.get(first..));
                    let needed = needed.filter(|needed| needed.first().is_none_or(|(at, _)| *at > window));
                    if let Some(needed) = needed.filter(|_| answered <= window) {
                        let within = |sent: i64| sent + self.path > window && sent + self.path <= now;
                        let lost = cut.probes.iter().enumerate().filter(|(number, probe)| {
                            within(probe.sent) || needed.iter().any(|(_, failed)| failed == number)
                        });
                        let lost = u32::try_from(lost.count()).unwrap_or(u32::MAX);
                        return Some(Down { at: now, lost, regular });
                    }
                    cut.failed(probe, now);
                }
            }
        }
        None
    }
}

/// A cut under way.
struct Cut<'a> {
    beat: &'a Beat,
    probes: Vec<Probe>,
    /// All before this one are done.
    open: usize,
    events: BTreeSet<(i64, What)>,
    /// Confirming probes under way.
    burst: u8,
}

impl Cut<'_> {
    fn send(&mut self, now: i64, regular: bool) {
        let probe = self.probes.len();
        self.probes.push(Probe { sent: now, regular, done: !regular });
        self.events.insert((now + self.beat.timeout, What::Deadline { probe }));
        if regular && self.beat.patience < self.beat.timeout {
            self.events.insert((self.beat.awake(now + self.beat.patience), What::Late));
        }
    }

    /// Two more probes for the first that is suspiciously late.
    fn confirm(&mut self, now: i64) {
        let patience = self.beat.patience;
        while self.probes.get(self.open).is_some_and(|probe| probe.done) {
            self.open += 1;
        }
        let waiting = |probe: &&mut Probe| !probe.done && probe.sent + patience <= now;
        if patience < self.beat.timeout
            && self.burst == 0
            && let Some(probe) = self.probes.iter_mut().skip(self.open).find(waiting)
        {
            probe.done = true;
            self.start_burst(now);
        }
    }

    fn start_burst(&mut self, now: i64) {
        self.burst = 2;
        let awake = self.beat.awake(now);
        (0..2).for_each(|_| self.send(awake, false));
    }

    /// A probe's deadline is over.
    fn failed(&mut self, number: usize, now: i64) {
        let Some(probe) = self.probes.get_mut(number) else { return };
        let had = std::mem::replace(&mut probe.done, true);
        if !probe.regular {
            self.burst = self.burst.saturating_sub(1);
        } else if !had && self.burst == 0 {
            self.start_burst(now);
        }
        self.confirm(self.beat.awake(now));
    }
}
