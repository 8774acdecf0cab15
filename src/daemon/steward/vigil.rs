//! Whether a prober goes on, as its steward sees it.

use std::time::Duration;

use crate::engine::Time;

/// A prober that has not shown for so long that it goes on never will.
const STUCK: Duration = Duration::from_secs(20);
/// So much longer may it take until it shows that for the first time: it has a configuration to read, and all that is
/// known of its tunnels. Both together are less than the watchdog of the service has.
const BIRTH: Duration = Duration::from_secs(30);
/// How often it is looked whether it does.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// When a prober has shown that it goes on, and when that was looked for.
pub(super) struct Vigil {
    shown: Time,
    looked: Time,
}

impl Vigil {
    /// Of a prober that begins now.
    pub(super) fn new(now: Time) -> Self {
        Self { shown: now + BIRTH, looked: now }
    }

    /// It shows that it goes on.
    pub(super) fn shows(&mut self, now: Time) {
        self.shown = now;
    }

    /// For how long it has shown nothing, if that is too long. A time in which nobody looked is not held against
    /// it: this host, or the steward alone, may have stood still, and what it said then is yet to be heard.
    pub(super) fn look(&mut self, now: Time) -> Option<Duration> {
        if now.since(std::mem::replace(&mut self.looked, now)) > LOOK * 2 {
            self.shown = self.shown.max(now);
        }
        Some(now.since(self.shown)).filter(|silent| *silent > STUCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Time = Time::from_nanos(1_000_000_000_000);

    fn after(seconds: u64) -> Time {
        BEGIN + Duration::from_secs(seconds)
    }

    /// The first look at which it is given up.
    fn end(vigil: &mut Vigil, looks: impl IntoIterator<Item = u64>) -> Option<u64> {
        looks.into_iter().find(|&look| vigil.look(after(look)).is_some())
    }

    #[test]
    fn it_is_given_up_when_it_has_shown_nothing_for_20_s() {
        let mut vigil = Vigil::new(BEGIN);
        vigil.shows(after(5));
        assert_eq!(end(&mut vigil, 1..100), Some(26));
    }

    #[test]
    fn it_may_take_longer_to_begin() {
        assert_eq!(end(&mut Vigil::new(BEGIN), 1..1_000), Some(51));
    }

    #[test]
    fn a_pause_of_the_steward_is_not_held_against_it() {
        let mut vigil = Vigil::new(BEGIN);
        vigil.shows(after(5));
        assert_eq!(end(&mut vigil, (1..10).chain(400..420)), None, "the first looks after a pause");
        assert_eq!(end(&mut vigil, 420..500), Some(421), "but silence after it is");
    }
}
