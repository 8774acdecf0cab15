//! One round: a few probes of an endpoint, and what they say together.

use std::time::Duration;

use super::State;
use crate::engine::Time;

/// From one probe of a round to the next: far enough apart that one short burst of loss does not take all.
pub(super) const APART: Duration = Duration::from_millis(200);
/// Probes that confirm a round without an answer: a route may just be moving.
const CONFIRMING: u32 = 2;

/// What became of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answered in time.
    Answered(Duration),
    /// Not answered.
    Lost,
    /// It could not leave this host, and why.
    Unsent(String),
    /// Nobody knows: this host was in trouble meanwhile.
    Spoilt,
}

/// A round under way.
#[derive(Debug, Clone)]
pub(super) struct Round {
    /// Probes that are to be sent still.
    left: u32,
    /// When the next of them is.
    pub(super) next: Time,
    confirms: bool,
    answered: u32,
    lost: u32,
    /// Why the last probe that could not leave could not.
    unsent: Option<String>,
}

/// What a round says at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// The endpoint's state, and why.
    State(State, String),
    /// Nothing.
    Nothing,
    /// Nothing yet: it goes on.
    More,
}

impl Round {
    /// A round of so many probes from now on.
    pub(super) const fn new(now: Time, count: u32) -> Self {
        Self { left: count, next: now, confirms: false, answered: 0, lost: 0, unsent: None }
    }

    /// Whether a probe of it is to be sent at some time.
    pub(super) const fn wants_more(&self) -> bool {
        self.left > 0
    }

    /// A probe of it has been given out.
    pub(super) fn sent(&mut self, now: Time, tick: Duration) {
        self.left = self.left.saturating_sub(1);
        self.next = (now + APART).ceil(tick);
    }

    /// A probe of it has come to this.
    pub(super) fn note(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(_) => self.answered += 1,
            Outcome::Lost => self.lost += 1,
            Outcome::Unsent(why) => self.unsent = Some(why.clone()),
            Outcome::Spoilt => {}
        }
    }

    /// All of its probes have come to something. That one could not leave says nothing about the endpoint (law 4).
    pub(super) fn end(&mut self, now: Time, state: State) -> Said {
        match (self.answered, self.lost, self.unsent.take()) {
            (1.., ..) => {
                Said::State(State::Reachable, format!("{} of {} probes were answered", self.answered, self.all()))
            }
            (0, _, Some(why)) => Said::State(State::Unknown, format!("not sent: {why}")),
            (0, 0, None) => Said::Nothing,
            (0, 1.., None) if !self.confirms && state != State::Unreachable => {
                (self.confirms, self.left, self.next) = (true, CONFIRMING, now);
                Said::More
            }
            (0, 1.., None) => Said::State(State::Unreachable, format!("none of {} probes was answered", self.lost)),
        }
    }

    const fn all(&self) -> u32 {
        self.answered + self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(1_000);

    fn ended(outcomes: &[Outcome], state: State) -> (Round, Said) {
        let mut round = Round::new(NOW, u32::try_from(outcomes.len()).unwrap());
        outcomes.iter().for_each(|_| round.sent(NOW, Duration::from_millis(20)));
        outcomes.iter().for_each(|outcome| round.note(outcome));
        let said = round.end(NOW, state);
        (round, said)
    }

    fn unsent() -> Outcome {
        Outcome::Unsent("no route".to_owned())
    }

    #[test]
    fn one_answer_is_enough() {
        let answered = Outcome::Answered(Duration::ZERO);
        for state in [State::Unknown, State::Reachable, State::Unreachable] {
            let (_, said) = ended(&[Outcome::Lost, answered.clone(), unsent()], state);
            assert_eq!(said, Said::State(State::Reachable, "1 of 2 probes were answered".to_owned()));
        }
    }

    #[test]
    fn without_an_answer_it_is_asked_twice_more_unless_that_is_known() {
        let (mut round, said) = ended(&[Outcome::Lost, Outcome::Spoilt, Outcome::Lost], State::Reachable);
        assert_eq!((said, round.wants_more(), round.next), (Said::More, true, NOW));
        (0..2).for_each(|_| round.sent(NOW, Duration::from_millis(20)));
        assert!(!round.wants_more());
        (0..2).for_each(|_| round.note(&Outcome::Lost));
        let unreachable = |count| Said::State(State::Unreachable, format!("none of {count} probes was answered"));
        assert_eq!(round.end(NOW, State::Reachable), unreachable(4));
        assert_eq!(ended(&[Outcome::Lost], State::Unreachable).1, unreachable(1));
    }

    #[test]
    fn law_4_what_this_host_did_not_send_or_could_not_hear_is_no_verdict() {
        for state in [State::Unknown, State::Reachable, State::Unreachable] {
            assert_eq!(ended(&[Outcome::Spoilt, Outcome::Spoilt], state).1, Said::Nothing);
            let unknown = Said::State(State::Unknown, "not sent: no route".to_owned());
            assert_eq!(ended(&[unsent(), unsent()], state).1, unknown);
            assert_eq!(ended(&[Outcome::Lost, unsent()], state).1, unknown);
        }
    }
}
