//! Rounds: of a tunnel with several targets, one probe to each of them at the same time, and one sample by all of them.
//!
//! What is in flight ([`super::inflight`]) is the round; here is what becomes of each of its probes. A probe's sequence
//! is the number of its round times the number of targets, and its target's place. A round is a success as soon as a
//! quorum of targets have answered, a failure as soon as too many have failed for that, and neither where that depends on
//! a probe that came to nothing by this host's own trouble.

mod settle;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use super::Time;
use super::inflight::{Probe, Standing};
use super::outbox::Item;
use super::prober::{Prober, Stalls};
use super::settings::{Targets, Tunnel};
use super::time::WallTime;
use crate::wire::{Ends, Onion, Template};

/// How one of a round's probes stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Under way, or about to be.
    Waiting,
    Answered,
    /// Not in time.
    Lost,
    /// Not in time, and then an answer came.
    Late,
    /// This host's own trouble.
    Spoilt,
}

/// One of a round's probes.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// How long after the round's stamp it left, in microseconds.
    lay: u32,
    /// How long the answer took, likewise.
    rtt: u32,
    held_up: bool,
    fate: Fate,
}

const WAITING: Part = Part { lay: 0, rtt: 0, held_up: false, fate: Fate::Waiting };

impl Part {
    fn took(&self, round: &Probe, at: Time) -> Duration {
        let left = round.sent + Duration::from_micros(self.lay.into());
        at.since(if self.held_up { round.sent } else { left })
    }
}

/// What has come of the probes to one target.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    sent: u64,
    answered: u64,
    lost: u64,
    lost_in_a_row: u64,
    rtt: Option<Duration>,
    last_answer: Option<WallTime>,
    /// The last round that it has answered.
    round: u64,
}

struct Target {
    ends: Ends,
    template: Template,
    tally: Tally,
}

/// The rounds of one tunnel.
pub(super) struct Rounds {
    targets: Vec<Target>,
    pub(super) quorum: usize,
    /// The round of the first of `parts`, which has as many for each round as there are targets.
    first: u64,
    parts: VecDeque<Part>,
    /// No probe of an earlier round is waited for.
    swept: u64,
}

/// A round some of whose probes have not left yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Going {
    pub(super) tunnel: u32,
    pub(super) round: u64,
    /// The place of the next target.
    pub(super) next: usize,
    pub(super) item: Item,
}

impl Going {
    /// The tunnel has another index.
    pub(super) const fn renumbered(self, tunnel: u32) -> Self {
        Self { tunnel, item: Item { tunnel, ..self.item }, ..self }
    }
}

/// One of several targets, as status shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetView {
    /// Its address.
    pub target: IpAddr,
    /// Probes that left.
    pub sent: u64,
    /// Those that were answered in time.
    pub answered: u64,
    /// Those that were not.
    pub lost: u64,
    /// Of them the last ones, since it answered last.
    pub lost_in_a_row: u64,
    /// The last round-trip time; null before the first answer.
    pub rtt_us: Option<u64>,
    /// When it answered last; null before that.
    pub last_answer: Option<WallTime>,
}

impl Rounds {
    /// Those of a tunnel with several targets.
    pub(super) fn of(settings: &Tunnel) -> Option<Box<Self>> {
        let Targets { further, quorum } = settings.targets.as_ref()?;
        let local = settings.onion.inner.local();
        let ends = further.iter().filter_map(|far| Ends::new(local, *far));
        let target = |ends| Target { ends, template: template(&settings.onion, ends), tally: Tally::default() };
        let targets: Vec<Target> = std::iter::once(settings.onion.inner).chain(ends).map(target).collect();
        let quorum = (*quorum).clamp(1, targets.len());
        Some(Box::new(Self { targets, quorum, first: 0, parts: VecDeque::new(), swept: 0 }))
    }

    /// Makes probes anew: what is around them is another.
    pub(super) fn follow(&mut self, onion: &Onion) {
        self.targets.iter_mut().for_each(|target| target.template = template(onion, target.ends));
    }

    pub(super) const fn count(&self) -> usize {
        self.targets.len()
    }

    /// A probe is about to leave: what it is made from.
    pub(super) fn leaving(&mut self, sequence: u64) -> Option<&Template> {
        let (_, place) = self.split(sequence);
        let Target { tally, template, .. } = self.targets.get_mut(place)?;
        tally.sent += 1;
        Some(template)
    }

    /// The inner addresses of a probe.
    pub(super) fn ends(&self, sequence: u64) -> Option<Ends> {
        let (_, place) = self.split(sequence);
        self.targets.get(place).map(|target| target.ends)
    }

    /// A probe's round, and the place of its target.
    pub(super) fn split(&self, sequence: u64) -> (u64, usize) {
        let count = self.targets.len().max(1) as u64;
        (sequence / count, usize::try_from(sequence % count).unwrap_or(0))
    }

    /// The sequence of a round's probe to this target.
    pub(super) fn sequence(&self, round: u64, place: usize) -> u64 {
        round * self.targets.len() as u64 + place as u64
    }

    fn at(&self, round: u64, place: usize) -> Option<usize> {
        let before = usize::try_from(round.checked_sub(self.first)?).ok()?.checked_mul(self.targets.len())?;
        Some(before + place)
    }

    fn get(&self, round: u64, place: usize) -> Option<Part> {
        self.parts.get(self.at(round, place)?).copied()
    }

    fn set(&mut self, round: u64, place: usize, fate: Fate) {
        if let Some(part) = self.at(round, place).and_then(|at| self.parts.get_mut(at)) {
            part.fate = fate;
        }
    }

    /// A round's probes.
    fn parts(&self, round: u64) -> impl Iterator<Item = Part> {
        (0..self.targets.len()).filter_map(move |place| self.get(round, place))
    }

    fn having(&self, round: u64, fate: Fate) -> usize {
        self.parts(round).filter(|part| part.fate == fate).count()
    }

    /// What a round has come to; `None` while that is open.
    fn verdict(&self, round: u64) -> Option<Standing> {
        let [answered, waiting, spoilt] =
            [Fate::Answered, Fate::Waiting, Fate::Spoilt].map(|fate| self.having(round, fate));
        if answered >= self.quorum {
            Some(Standing::Answered)
        } else if answered + waiting + spoilt < self.quorum {
            Some(Standing::Lost)
        } else if answered + waiting < self.quorum {
            Some(Standing::Inconclusive)
        } else {
            None
        }
    }

    /// How long the slowest answer to a round took.
    fn slowest(&self, round: u64) -> Duration {
        let answered = self.parts(round).filter(|part| part.fate == Fate::Answered);
        Duration::from_micros(answered.map(|part| part.rtt).max().unwrap_or(0).into())
    }

    /// Which targets have not answered a round in time, a bit for each.
    fn silent(&self, round: u64) -> u16 {
        let places = (0..self.targets.len())
            .filter(|&place| self.get(round, place).is_some_and(|part| matches!(part.fate, Fate::Lost | Fate::Late)));
        places.fold(0, |mask, place| mask | 1 << place)
    }

    /// Gives up those of a round's probes that are waiting; how many those are.
    fn give_up(&mut self, round: u64, is_own_trouble: bool) -> u64 {
        let mut count = 0;
        for place in 0..self.targets.len() {
            if self.get(round, place).is_none_or(|part| part.fate != Fate::Waiting) {
                continue;
            }
            if is_own_trouble {
                self.set(round, place, Fate::Spoilt);
            } else {
                self.lose(round, place);
                count += 1;
            }
        }
        count
    }

    fn lose(&mut self, round: u64, place: usize) {
        self.set(round, place, Fate::Lost);
        if let Some(Target { tally, .. }) = self.targets.get_mut(place) {
            tally.lost += 1;
            // Where it has answered a later one already, it is not silent.
            tally.lost_in_a_row = if tally.round > round { 0 } else { tally.lost_in_a_row + 1 };
        }
    }

    /// A round is in flight.
    fn begin(&mut self, round: u64) {
        if self.parts.is_empty() {
            self.first = round;
        }
        self.parts.extend(std::iter::repeat_n(WAITING, self.targets.len()));
    }

    /// Rounds before this one are not remembered any more.
    fn forget(&mut self, first: u64) {
        while self.first < first && self.parts.len() >= self.targets.len() {
            self.parts.drain(..self.targets.len());
            self.first += 1;
        }
    }

    /// The targets in words, of a mask.
    pub(super) fn name(&self, mask: u16) -> String {
        let named = (0..).zip(&self.targets).filter(|(place, _)| mask & (1 << place) != 0);
        let names: Vec<String> = named.map(|(_, target)| target.ends.far().to_string()).collect();
        format!("{} of {} targets silent: {}", names.len(), self.targets.len(), names.join(", "))
    }

    /// What status shows.
    pub(super) fn views(&self) -> Vec<TargetView> {
        let view = |Target { ends, tally, .. }: &Target| TargetView {
            target: ends.far(),
            sent: tally.sent,
            answered: tally.answered,
            lost: tally.lost,
            lost_in_a_row: tally.lost_in_a_row,
            rtt_us: tally.rtt.map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
            last_answer: tally.last_answer,
        };
        self.targets.iter().map(view).collect()
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn template(onion: &Onion, inner: Ends) -> Template {
    Template::new(&Onion { inner, ..onion.clone() })
}

impl Prober {
    /// Begins a round: what is in flight bears this number. Gives up what earlier rounds, that have their outcome, still
    /// wait for and has had its time; `deaf` says since when answers may have been lost on this side.
    pub(super) fn begin_round(&mut self, round: u64, now: Time, stalls: Stalls, deaf: Option<Time>) {
        let Some(rounds) = &mut self.rounds else { return };
        rounds.begin(round);
        while rounds.swept < round {
            let swept = rounds.swept;
            let own_trouble = match self.in_flight.get(swept) {
                None => false,
                Some(probe) if probe.standing == Standing::Waiting || Self::deadline(probe, stalls) > now => break,
                Some(probe) => deaf.is_some_and(|at| at >= probe.sent),
            };
            self.counters.lost += rounds.give_up(swept, own_trouble);
            rounds.swept += 1;
        }
        rounds.forget(self.in_flight.first().min(rounds.swept));
    }

    /// Takes a number of GRE that no regular probe will have. Of several targets it is the first of a whole round, so
    /// that rounds and their probes stay in step.
    pub(super) fn skip(&mut self, now: Time) -> u64 {
        let number = self.in_flight.skip(now);
        let Some(rounds) = &mut self.rounds else { return number };
        rounds.begin(number);
        rounds.give_up(number, true);
        rounds.sequence(number, 0)
    }

    /// Notes that a probe has left; the probe or round that is in flight.
    pub(super) fn left(&mut self, sequence: u64, at: Time, now: Time) -> Option<Probe> {
        let Some(rounds) = &mut self.rounds else { return self.in_flight.left(sequence, at, now) };
        let (round, place) = rounds.split(sequence);
        let probe = self.in_flight.left(round, at, now)?;
        if let Some(part) = rounds.at(round, place).and_then(|at| rounds.parts.get_mut(at)) {
            part.lay = micros(probe.left().since(probe.sent));
            part.held_up = probe.held_up;
        }
        Some(probe)
    }

    /// Of the same targets as many must answer from now on.
    pub(super) fn set_quorum(&mut self, targets: Option<Targets>) {
        if let (Some(rounds), Some(Targets { quorum, .. })) = (&mut self.rounds, &targets) {
            rounds.quorum = (*quorum).clamp(1, rounds.count());
        }
        self.settings.targets = targets;
    }

    /// Whether an answer to this probe is waited for.
    pub(super) fn awaits(&self, sequence: u64) -> bool {
        let is_awaited =
            |sequence| self.in_flight.get(sequence).is_some_and(|probe| probe.standing == Standing::Waiting);
        match &self.rounds {
            None => is_awaited(sequence),
            Some(rounds) => {
                let (round, place) = rounds.split(sequence);
                rounds.get(round, place).is_some_and(|part| part.fate == Fate::Waiting)
            }
        }
    }

    /// The inner addresses between which an answer to this probe travels.
    pub(super) fn inner(&self, sequence: u64) -> Ends {
        let of_target = self.rounds.as_ref().and_then(|rounds| rounds.ends(sequence));
        of_target.unwrap_or(self.settings.onion.inner)
    }

    /// What is in flight under this number has come to nothing by this host's own trouble.
    pub(super) fn spoil(&mut self, round: u64) {
        if let Some(rounds) = &mut self.rounds {
            rounds.give_up(round, true);
        }
    }

    fn note_target(&mut self, round: u64, place: usize, rtt: Duration, wall: WallTime) {
        let Some(rounds) = &mut self.rounds else { return };
        if let Some(part) = rounds.at(round, place).and_then(|at| rounds.parts.get_mut(at)) {
            (part.fate, part.rtt) = (Fate::Answered, micros(rtt));
        }
        if let Some(Target { tally, .. }) = rounds.targets.get_mut(place) {
            tally.answered += 1;
            tally.lost_in_a_row = 0;
            (tally.rtt, tally.last_answer) = (Some(rtt), Some(wall));
            tally.round = tally.round.max(round);
        }
        self.counters.received += 1;
    }
}
