//! What is wrong with a tunnel: more probes than the regular ones, until it is known which leg fails.
//!
//! A diagnosis is a few rounds of probes that leave beside the regular ones:
//!
//! | round | sends |
//! | --- | --- |
//! | styles | a bare ping of the far endpoint; what regular probes are, with their identifier; every style that fits, with a fresh one; and what tells apart why a style fails |
//! | sizes | longer and longer probes that must not be fragmented, if the tunnel's own style is answered |
//! | between | the sizes between the longest that was answered and the shortest that was not |
//!
//! Its probes bear numbers of tunnels that no tunnel has, from [`FIRST`] on, and prove themselves by the same
//! secret. So an answer is known to be theirs, and is no sample and in no counter of the tunnel (law 1, law 2).
//! They are sealed with sequence numbers from the tunnel's own book.
//!
//! | file | holds |
//! | --- | --- |
//! | here | rounds, one after the other |
//! | `packets` | their probes on the way out, and what comes back |
//! | `leg` | the probes of one kind |
//! | `plan` | which legs a round has |
//! | [`findings`] | what was found |
//! | [`conclude`], `words` | what that means |

pub mod conclude;
pub mod findings;
mod leg;
mod packets;
mod plan;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use super::prober::Prober;
use super::{Egress, Engine, Interface, Namespace, Time, WallTime, schedule};
use crate::wire::{Encapsulation, Ends, Path, Reject};
pub use findings::Diagnosis;
use findings::Findings;
use leg::{Leg, Shot};

/// The number of the first diagnosis; those of tunnels are lower.
pub const FIRST: u32 = 1 << 31;
/// What the kernel says of a packet that is longer than its own link takes.
pub const TOO_LONG: &str = "Message too long";
/// Diagnoses at once, of different tunnels.
const AT_ONCE: usize = 4;
/// An answer is waited for as long as the tunnel's regular probes wait, but within these limits.
const PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// No round begins later than this after the first.
const BUDGET: Duration = Duration::from_secs(7);
/// What was found is kept for so long for whoever has asked.
const KEPT: Duration = Duration::from_secs(30);
/// When a probe is tried again that waits for a sequence number, or for room in this host.
const AGAIN: Duration = Duration::from_millis(20);

/// What a diagnosis must know of a tunnel that its regular probes need not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bearings {
    /// By what a bare ping of the far endpoint leaves, where that is not what probes leave by.
    pub underlay: Option<Egress>,
    /// The interface's addresses, where regular probes travel between others.
    pub inside: Option<Ends>,
    /// The name of the kernel's tunnel device.
    pub device: Option<String>,
}

/// Why a diagnosis was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotBegun {
    /// One of the same tunnel is under way.
    UnderWay,
    /// So many are.
    TooMany,
}

/// How far a diagnosis is.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// It goes on.
    UnderWay,
    /// It has ended.
    Done(Box<Diagnosis>),
    /// There is none of this number, or its tunnel has gone.
    Gone,
}

/// All diagnoses.
#[derive(Default)]
pub(super) struct Diagnoses {
    courses: Vec<Course>,
    begun: u32,
    bearings: BTreeMap<u32, Bearings>,
}

/// An answer to a probe of a diagnosis.
pub(super) struct LegAnswer {
    number: u32,
    sequence: u64,
    path: Path,
    interface: Interface,
    way: Result<(), Reject>,
}

/// Which round it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    Styles,
    Sizes,
    Between(u8),
}

/// One diagnosis under way, or ended.
struct Course {
    number: u32,
    /// The number of its tunnel.
    of: u32,
    begun: Time,
    wall: WallTime,
    round: Round,
    /// All legs so far; those of this round begin at `from`.
    legs: Vec<Leg>,
    from: usize,
    patience: Duration,
    sequence: u64,
    /// Packets that this host had lost when it began.
    lost_before: u64,
    done: Option<(Time, Progress)>,
}

impl Diagnoses {
    fn get_mut(&mut self, number: u32) -> Option<&mut Course> {
        self.courses.iter_mut().find(|course| course.number == number && course.done.is_none())
    }

    fn under_way(&self) -> impl Iterator<Item = &Course> {
        self.courses.iter().filter(|course| course.done.is_none())
    }

    /// When something is to be done next.
    pub(super) fn next(&self) -> Option<Time> {
        self.under_way().map(Course::next).min()
    }
}

impl Course {
    /// The probes of this round.
    fn shots(&self) -> impl Iterator<Item = &Shot> {
        self.legs[self.from..].iter().flat_map(|leg| &leg.shots)
    }

    /// When the round ends if nothing comes.
    fn end(&self) -> Time {
        let last = self.shots().map(|shot| shot.sent.unwrap_or(shot.at)).max();
        last.unwrap_or(self.begun) + self.patience
    }

    fn next(&self) -> Time {
        let due = self.shots().filter(|shot| shot.is_due()).map(|shot| shot.at);
        due.chain([self.end()]).min().unwrap_or(self.begun)
    }

    fn is_over(&self, now: Time) -> bool {
        self.shots().all(Shot::is_settled) || now >= self.end()
    }

    fn shot(&mut self, sequence: u64) -> Option<(&mut Leg, usize)> {
        let known = |leg: &Leg| leg.shots.iter().position(|shot| shot.sent.is_some() && shot.sequence == sequence);
        self.legs.iter_mut().find_map(|leg| known(leg).map(|at| (leg, at)))
    }
}

impl Engine {
    /// What diagnoses must know of the tunnels of these indices.
    pub fn set_bearings(&mut self, bearings: BTreeMap<u32, Bearings>) {
        self.diagnoses.bearings = bearings;
    }

    /// Begins a diagnosis of a tunnel; its number.
    ///
    /// # Errors
    /// There is one, or there are too many.
    pub fn begin_diagnosis(&mut self, now: Time, tunnel: u32) -> Result<u32, NotBegun> {
        let gone = |course: &mut Course| course.done.as_ref().is_some_and(|(at, _)| now.since(*at) > KEPT);
        self.diagnoses.courses.retain_mut(|course| !gone(course));
        let (wall, lost_before) = (self.wall(now), self.packets_lost());
        let prober = &self.probers[tunnel as usize];
        if self.diagnoses.under_way().any(|course| course.of == prober.number) {
            return Err(NotBegun::UnderWay);
        }
        if self.diagnoses.under_way().count() >= AT_ONCE {
            return Err(NotBegun::TooMany);
        }
        let none = Bearings::default();
        let bearings = self.diagnoses.bearings.get(&tunnel).unwrap_or(&none);
        let number = FIRST + self.diagnoses.begun % FIRST;
        let known = prober.identifier(self.secret.epoch);
        let fresh = schedule::mix(self.secret.epoch, number.into()).to_le_bytes();
        let legs = plan::styles(prober, bearings, now, [known, u16::from_le_bytes([fresh[0], fresh[1]])]);
        let [least, most] = PATIENCE;
        self.diagnoses.begun = self.diagnoses.begun.wrapping_add(1);
        let course = Course {
            number,
            of: prober.number,
            begun: now,
            wall,
            round: Round::Styles,
            legs,
            from: 0,
            patience: prober.timeout().clamp(least, most),
            sequence: 0,
            lost_before,
            done: None,
        };
        self.diagnoses.courses.push(course);
        Ok(number)
    }

    /// How far a diagnosis is. What was found is given once.
    pub fn take_diagnosis(&mut self, number: u32) -> Progress {
        let courses = &mut self.diagnoses.courses;
        let Some(at) = courses.iter().position(|course| course.number == number) else { return Progress::Gone };
        if courses[at].done.is_none() {
            return Progress::UnderWay;
        }
        courses.swap_remove(at).done.map_or(Progress::Gone, |(_, progress)| progress)
    }

    /// The tunnel that is diagnosed under this number.
    #[must_use]
    pub fn diagnosed(&self, number: u32) -> Option<u32> {
        let course = self.diagnoses.under_way().find(|course| course.number == number)?;
        self.numbered(course.of)
    }

    /// Ends rounds that are over, and begins the next.
    pub(super) fn go_on_diagnosing(&mut self, now: Time) {
        for at in 0..self.diagnoses.courses.len() {
            let course = &self.diagnoses.courses[at];
            if course.done.is_some() || !course.is_over(now) {
                continue;
            }
            let Some(tunnel) = self.numbered(course.of) else {
                self.diagnoses.courses[at].done = Some((now, Progress::Gone));
                continue;
            };
            let prober = &self.probers[tunnel as usize];
            let course = &mut self.diagnoses.courses[at];
            let next = match course.round {
                _ if now.since(course.begun) > BUDGET => None,
                Round::Styles => Some((Round::Sizes, plan::sizes(prober, &course.legs, now))),
                Round::Sizes => Some((Round::Between(1), plan::between(prober, &course.legs, now))),
                Round::Between(round) if round < plan::BETWEEN => {
                    Some((Round::Between(round + 1), plan::between(prober, &course.legs, now)))
                }
                Round::Between(_) => None,
            };
            match next.filter(|(_, legs)| !legs.is_empty()) {
                Some((round, legs)) => {
                    course.round = round;
                    course.from = course.legs.len();
                    course.legs.extend(legs);
                }
                None => self.end_diagnosis(now, at, tunnel),
            }
        }
    }

    fn end_diagnosis(&mut self, now: Time, at: usize, tunnel: u32) {
        let lost = self.packets_lost();
        let prober = &self.probers[tunnel as usize];
        let course = &self.diagnoses.courses[at];
        let device = self.diagnoses.bearings.get(&tunnel).and_then(|bearings| bearings.device.clone());
        let findings = Findings {
            is_deaf: lost > course.lost_before,
            device,
            ..findings::gather(prober, &course.legs, course.wall, |path| self.brings(prober.settings.namespace, path))
        };
        self.diagnoses.courses[at].done = Some((now, Progress::Done(Box::new(Diagnosis::of(findings)))));
    }

    /// The tunnel by which such a packet came, if it is one of ours.
    fn brings(&self, namespace: Namespace, path: Path) -> Option<&str> {
        let is_it = |prober: &&Prober| {
            let settings = &prober.settings;
            settings.namespace == namespace
                && match (settings.onion.encapsulation, path) {
                    (Encapsulation::Gre(options), Path::Gre { outer, key }) => {
                        settings.onion.outer == outer && options.key == key
                    }
                    (Encapsulation::Esp(_), Path::Esp { outer, spi, .. }) => {
                        settings.onion.outer == outer && prober.receives(spi)
                    }
                    _ => false,
                }
        };
        self.probers.iter().find(is_it).map(|prober| prober.settings.name.as_str())
    }

    /// Packets that this host has lost so far, or was not there for.
    fn packets_lost(&self) -> u64 {
        let lost = self.faults.iter().filter(|fault| ["receive-overflow", "receive", "suspend"].contains(&fault.name));
        lost.map(|fault| fault.count).sum()
    }
}
