//! `health_check.rules`.

use std::time::Duration;

use super::section::Section;
use super::tree::Placed;
use super::{defaults, notation};
use crate::engine::health::{Ratio, Rules};

/// The rules, as far as a file says anything about them.
#[derive(Clone, Default)]
pub(super) struct WrittenRules {
    degraded_ratio: Option<Placed<Ratio>>,
    pub(super) degraded_min_failures: Option<Placed<u32>>,
    pub(super) degraded_window: Option<Placed<Duration>>,
    pub(super) down_min_samples: Option<Placed<u32>>,
    pub(super) down_window: Option<Placed<Duration>>,
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
