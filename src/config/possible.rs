//! Refuses a cadence and rules of which each is fine, and which together never let a rule fire.

use std::time::Duration;

use super::defaults::WINDOW;
use super::notation::written;
use super::rules::WrittenRules;
use super::source::Report;
use super::tree::{At, Placed};
use crate::engine::health::Rules;
use crate::engine::schedule::{BURST, apart};
use crate::engine::settings::Check;

/// Reports the windows that cannot be filled.
pub(super) fn judge(check: &Check, rules: &WrittenRules, timeout_at: Option<At>, report: &Report) {
    let Rules { down_window, degraded_window, .. } = check.rules;
    let window_at = place(rules.down_window);
    if down_window > degraded_window {
        let (short, long) = (written(down_window), written(degraded_window));
        let why = format!("longer than `degraded_window`, {long}, beyond which samples are forgotten");
        let message = format!("`down_window` is {short}, {why}; write down_window = {long:?} or less");
        add(window_at.or(place(rules.degraded_window)), message, report);
    }
    let down = Demand {
        count: ("down_min_samples", check.rules.down_min_samples, place(rules.down_min_samples)),
        window: ("down_window", down_window, window_at),
        state: "down",
    };
    let degraded = Demand {
        count: ("degraded_min_failures", check.rules.degraded_min_failures, place(rules.degraded_min_failures)),
        window: ("degraded_window", degraded_window, place(rules.degraded_window)),
        state: "degraded",
    };
    for demand in [down, degraded] {
        if let Some((at, message)) = demand.refusal(check, timeout_at) {
            add(at, message, report);
        }
    }
}

/// So many failures within so long a window make this state.
struct Demand {
    count: (&'static str, u32, Option<At>),
    window: (&'static str, Duration, Option<At>),
    state: &'static str,
}

impl Demand {
    fn refusal(&self, check: &Check, timeout_at: Option<At>) -> Option<(Option<At>, String)> {
        let (count_key, count, count_at) = self.count;
        let (window_key, window, window_at) = self.window;
        let apart = apart(check, count);
        // Half open: a sample exactly as old as the window is out of it.
        if count <= 1 || apart < window {
            return None;
        }
        let (timeout, interval) = (written(check.timeout.longest()), written(check.interval));
        let at = if count > BURST { count_at.or(window_at).or(timeout_at) } else { timeout_at.or(window_at) };
        let smaller = if count > BURST { count_key } else { "timeout" };
        let longer = written((apart * 2).min(*WINDOW.end()));
        let (apart, window, state) = (written(apart), written(window), self.state);
        Some((
            at,
            format!(
                "{count} failures, at a `timeout` of {timeout} and one probe in {interval}, can be {apart} apart, \
                 too far for the `{window_key}` of {window}: the tunnel might never be {state}; \
                 write {window_key} = {longer:?}, or a smaller {smaller}"
            ),
        ))
    }
}

fn place<T>(written: Option<Placed<T>>) -> Option<At> {
    written.map(|written| written.at)
}

/// What holds unwritten fits together, so that one of the numbers in question was written.
fn add(at: Option<At>, message: String, report: &Report) {
    report.add(at.unwrap_or(At { file: 0, offset: 0 }), message);
}
