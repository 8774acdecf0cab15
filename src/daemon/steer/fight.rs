//! Drift again and again: another program does not want what we want. Then it is mended more slowly, and
//! told seldom.

use std::time::Duration;

use crate::engine::Time;

/// Drift so many times with no longer a pause than this between is a fight.
const PATIENCE: u32 = 5;
const PAUSE: Duration = Duration::from_secs(10);
/// In a fight all is looked at, and mended, no more often than this.
pub(super) const TRUCE: Duration = Duration::from_secs(1);

/// Drift of late.
#[derive(Debug, Default)]
pub(super) struct Fight {
    /// How many times in a row.
    times: u32,
    last: Time,
    /// What has not been told yet: how many things, and the last examples.
    held: (usize, Vec<String>),
    told: Time,
}

/// What is to be told of drift.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) count: usize,
    pub(super) changes: Vec<String>,
    /// It has just become a fight.
    pub(super) warn: bool,
}

impl Fight {
    /// Takes what has drifted, and says what of it is to be told now: in a fight the sum, now and then.
    pub(super) fn drifted(&mut self, now: Time, count: usize, changes: Vec<String>) -> Option<Told> {
        if now.since(self.last) > PAUSE {
            self.times = 0;
        }
        self.times = self.times.saturating_add(1);
        self.last = now;
        self.held = (self.held.0 + count, changes);
        let due = !self.is_on(now) || self.times == PATIENCE + 1 || now.since(self.told) >= PAUSE;
        due.then(|| self.tell(now))
    }

    /// What is left to be told when it is over, or long enough has passed.
    pub(super) fn rest(&mut self, now: Time) -> Option<Told> {
        (self.held.0 > 0 && now.since(self.told) >= PAUSE).then(|| self.tell(now))
    }

    fn tell(&mut self, now: Time) -> Told {
        self.told = now;
        let (count, changes) = std::mem::take(&mut self.held);
        Told { count, changes, warn: self.times == PATIENCE + 1 }
    }

    /// Whether it goes on.
    pub(super) fn is_on(&self, now: Time) -> bool {
        self.times > PATIENCE && now.since(self.last) <= PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_secs(100) + Duration::from_millis(millis)
    }

    #[test]
    fn what_drifts_now_and_then_is_told_at_once_each_time() {
        let mut fight = Fight::default();
        for round in 0..20 {
            let told = fight.drifted(at(11_000 * round), 2, vec!["it".to_owned()]);
            assert_eq!(told, Some(Told { count: 2, changes: vec!["it".to_owned()], warn: false }));
            assert!(!fight.is_on(at(11_000 * round)));
        }
    }

    #[test]
    fn a_fight_is_warned_of_once_and_then_told_every_ten_seconds_with_nothing_left_out() {
        let mut fight = Fight::default();
        let told: Vec<Told> = (0..600).filter_map(|round| fight.drifted(at(50 * round), 1, Vec::new())).collect();
        assert_eq!(told.iter().filter(|told| told.warn).count(), 1);
        assert_eq!(told.len(), 6 + 2, "five and the warning at once, then one each ten seconds: {told:?}");
        assert!(fight.is_on(at(30_000)));
        let rest = fight.rest(at(45_000)).unwrap();
        assert_eq!(told.iter().map(|told| told.count).sum::<usize>() + rest.count, 600);
        assert_eq!(fight.rest(at(60_000)), None);
        assert!(!fight.is_on(at(45_000)));
    }
}
