//! `health_check.rules`, and the combinations of numbers with which a rule could never fire.

use std::time::Duration;

use super::section::Section;
use super::source::Report;
use super::tree::{At, Placed};
use super::{defaults, notation};
use crate::engine::health::{Ratio, Rules};
use crate::engine::settings::Check;

/// The rules, as far as a file says anything about them.
#[derive(Clone, Default)]
pub(super) struct WrittenRules {
    degraded_ratio: Option<Placed<Ratio>>,
    degraded_min_failures: Option<Placed<u32>>,
    degraded_window: Option<Placed<Duration>>,
    down_min_samples: Option<Placed<u32>>,
    down_window: Option<Placed<Duration>>,
    up_samples: Option<Placed<u32>>,
    recovery_samples: Option<Placed<u32>>,
}

impl WrittenRules {
    /// Reads `down_window` and `rules` of a `health_check`.
    pub(super) fn read(check: &mut Section<'_>, title: &str) -> Self {
        let usual = Rules::default();
        let outright = check.duration("down_window", defaults::WINDOW, usual.down_window);
        let title = format!("{}.rules]", title.trim_end_matches(']'));
        let Some(mut section) = check.section("rules", &title) else {
            return Self { down_window: outright, ..Self::default() };
        };
        let least = Ratio(1);
        let read = Self {
            degraded_ratio: section
                .read("degraded_ratio", |value| notation::ratio(value, least, "degraded_ratio", usual.degraded_ratio)),
            degraded_min_failures: section.integer(
                "degraded_min_failures",
                defaults::FAILURES,
                "",
                usual.degraded_min_failures,
            ),
            degraded_window: section.duration("degraded_window", defaults::WINDOW, usual.degraded_window),
            down_min_samples: samples(&mut section, "down_min_samples", usual.down_min_samples),
            down_window: down_window(&mut section, outright, usual.down_window),
            up_samples: samples(&mut section, "up_samples", usual.up_samples),
            recovery_samples: samples(&mut section, "recovery_samples", usual.recovery_samples),
        };
        section.finish();
        read
    }

    /// These, and where they say nothing, the defaults.
    pub(super) fn over(&self, below: &Self) -> Self {
        Self {
            degraded_ratio: self.degraded_ratio.or(below.degraded_ratio),
            degraded_min_failures: self.degraded_min_failures.or(below.degraded_min_failures),
            degraded_window: self.degraded_window.or(below.degraded_window),
            down_min_samples: self.down_min_samples.or(below.down_min_samples),
            down_window: self.down_window.or(below.down_window),
            up_samples: self.up_samples.or(below.up_samples),
            recovery_samples: self.recovery_samples.or(below.recovery_samples),
        }
    }

    /// The numbers, all of them.
    pub(super) fn resolve(&self) -> Rules {
        fn or<T>(written: Option<Placed<T>>, usual: T) -> T {
            written.map_or(usual, |written| written.value)
        }
        let usual = Rules::default();
        Rules {
            degraded_ratio: or(self.degraded_ratio, usual.degraded_ratio),
            degraded_min_failures: or(self.degraded_min_failures, usual.degraded_min_failures),
            degraded_window: or(self.degraded_window, usual.degraded_window),
            down_min_samples: or(self.down_min_samples, usual.down_min_samples),
            down_window: or(self.down_window, usual.down_window),
            up_samples: or(self.up_samples, usual.up_samples),
            recovery_samples: or(self.recovery_samples, usual.recovery_samples),
        }
    }
}

fn samples(section: &mut Section<'_>, key: &'static str, usual: u32) -> Option<Placed<u32>> {
    section.integer(key, defaults::SAMPLES, "", usual)
}

fn down_window(
    section: &mut Section<'_>,
    outright: Option<Placed<Duration>>,
    usual: Duration,
) -> Option<Placed<Duration>> {
    let here = section.duration("down_window", defaults::WINDOW, usual);
    if let (Some(here), Some(outright)) = (here, outright) {
        let other = section.report().refer(here.at, outright.at);
        let why = format!("`down_window` stands in {other} already; keep one of the two");
        section.report().add(here.at, why);
    }
    here.or(outright)
}

/// Refuses rules that this cadence could never make fire.
pub(super) fn refuse_impossible(check: &Check, written: &WrittenRules, timeout_at: Option<At>, report: &Report) {
    let place = |placed: Option<Placed<Duration>>| placed.map(|placed| placed.at);
    let Rules { down_window, degraded_window, .. } = check.rules;
    if down_window > degraded_window {
        let at = place(written.down_window).or(place(written.degraded_window));
        let (short, long) = (notation::written(down_window), notation::written(degraded_window));
        let why = "samples older than the latter are forgotten";
        report_at(
            at,
            report,
            &format!(
                "`down_window` is {short}, longer than `degraded_window`, {long}: {why}; write down_window = {long:?} or less"
            ),
        );
    }
    let count = |placed: Option<Placed<u32>>| placed.map(|placed| placed.at);
    let down = Demand {
        count: ("down_min_samples", check.rules.down_min_samples),
        window: ("down_window", down_window),
        at: count(written.down_min_samples),
        window_at: place(written.down_window),
        outcome: "the tunnel would never be down",
    };
    let degraded = Demand {
        count: ("degraded_min_failures", check.rules.degraded_min_failures),
        window: ("degraded_window", degraded_window),
        at: count(written.degraded_min_failures),
        window_at: place(written.degraded_window),
        outcome: "the tunnel would never be degraded",
    };
    down.check(check, timeout_at, report);
    degraded.check(check, timeout_at, report);
}

/// So many failures within so long a window.
struct Demand {
    count: (&'static str, u32),
    window: (&'static str, Duration),
    at: Option<At>,
    window_at: Option<At>,
    outcome: &'static str,
}

impl Demand {
    /// A failure and the two probes that confirm it come out within one time-out of each other
    /// (the two leave at the first one's deadline at the latest); each failure beyond those waits
    /// for its regular turn. The window is half open: a sample exactly as old as it is out.
    fn check(&self, check: &Check, timeout_at: Option<At>, report: &Report) {
        let (count_key, count) = self.count;
        let (window_key, window) = self.window;
        let timeout = check.timeout.longest();
        let apart = match count {
            0 | 1 => return,
            2..=defaults::BURST => timeout,
            more => timeout + (check.interval + check.interval / defaults::JITTER_DIVISOR) * (more - defaults::BURST),
        };
        if apart < window {
            return;
        }
        let (long, shown) = (notation::written(apart), notation::written(window));
        let wider = notation::written((apart * 2).min(*defaults::WINDOW.end()));
        let (at, cause) = if count <= defaults::BURST {
            let timeout = notation::written(timeout);
            (timeout_at.or(self.window_at).or(self.at), format!("`timeout` is {timeout}, so that"))
        } else {
            let interval = notation::written(check.interval);
            (
                self.at.or(self.window_at).or(timeout_at),
                format!("`{count_key}` is {count} at an interval of {interval}, so that"),
            )
        };
        let outcome = self.outcome;
        report_at(
            at,
            report,
            &format!(
                "{cause} {count} failures can come {long} apart and need not fall into `{window_key}`, {shown}: {outcome}; \
             write {window_key} = {wider:?}, or a smaller {}",
                if count <= defaults::BURST { "timeout" } else { count_key },
            ),
        );
    }
}

/// The numbers that hold unwritten fit each other, so one of those in question was written.
fn report_at(at: Option<At>, report: &Report, message: &str) {
    report.add(at.unwrap_or(At { file: 0, offset: 0 }), message);
}
