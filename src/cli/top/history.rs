//! What was seen of a tunnel since the screen was opened.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::tunnel::Tunnel;

/// Points kept for each tunnel of the list.
const POINTS: usize = 40;
/// Samples kept for each tunnel that was looked at closely.
const SAMPLES: usize = 600;

/// One column of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// Answered, after so many microseconds.
    Answered(u64),
    /// A failure.
    Lost,
    /// No sample, by this host's own trouble.
    Spoilt,
}

/// A point for each answer of the daemon that had a new sample, so that a tunnel that is probed once a minute
/// has one a minute.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    points: VecDeque<Point>,
}

impl History {
    /// Adds what has come between two looks at a tunnel.
    pub(super) fn note(&mut self, before: &Tunnel, now: &Tunnel) {
        let point = if now.samples.failure > before.samples.failure {
            Some(Point::Lost)
        } else if now.samples.success > before.samples.success {
            now.rtt.map(|rtt| Point::Answered(rtt.last_us))
        } else {
            None
        };
        if let Some(point) = point {
            if self.points.len() == POINTS {
                self.points.pop_front();
            }
            self.points.push_back(point);
        }
    }

    pub(super) fn points(&self) -> impl DoubleEndedIterator<Item = Point> {
        self.points.iter().copied()
    }
}

/// The samples of one tunnel, by time: those that explain shows, and those that it has shown before.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    // Times are all of one form, so that their order is that of the texts.
    points: BTreeMap<String, Point>,
}

impl Samples {
    /// Takes in what explain shows.
    pub(super) fn note(&mut self, explanation: &Value) {
        let list = |name: &str| explanation[name].as_array().into_iter().flatten();
        let at = |value: &Value| value["at"].as_str().unwrap_or_default().to_owned();
        for sample in list("samples") {
            let answered = || Point::Answered(sample["rtt_us"].as_u64().unwrap_or(0));
            let point = if sample["ok"] == true { answered() } else { Point::Lost };
            self.points.insert(at(sample), point);
        }
        for spoilt in list("inconclusive") {
            // One that is older than all samples shown belongs to a time that is not.
            if self.points.first_key_value().is_some_and(|(first, _)| *first < at(spoilt)) {
                self.points.insert(at(spoilt), Point::Spoilt);
            }
        }
        while self.points.len() > SAMPLES {
            self.points.pop_first();
        }
    }

    pub(super) fn points(&self) -> impl DoubleEndedIterator<Item = Point> {
        self.points.values().copied()
    }
}
