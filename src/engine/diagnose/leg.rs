//! A leg: a few probes of one kind, and what has become of them.

use std::time::Duration;

use serde::Serialize;

use super::{AGAIN, TOO_LONG};
use crate::engine::{Egress, Interface, Time};
use crate::wire::quote::Quote;
use crate::wire::{Encapsulation, Ends, Onion, Path, Reject, Style, Template};

/// Probes of a leg.
pub(super) const TRIES: u32 = 3;
/// Between two of them.
pub(super) const GAP: Duration = Duration::from_millis(150);
/// A probe is tried so often that this host has no room for.
const LOCAL_TRIES: u8 = 5;

/// What a leg is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A bare ping of the far endpoint.
    Underlay,
    /// What regular probes are, with their identifier.
    Regular,
    /// A style with a fresh identifier.
    Fresh,
    /// The tunnel's style with the identifier of a request that went the same way just before: a firewall that
    /// tracks connections takes its answers for answers.
    Tracked,
    /// A reply-style probe from an address that is not the far router's own.
    Foreign,
    /// The tunnel's style to one of several targets, beside the first.
    Target,
    /// The tunnel's style to the far router itself, where the target is another.
    Router,
    /// A long probe.
    Size,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Underlay,
        Self::Regular,
        Self::Fresh,
        Self::Tracked,
        Self::Foreign,
        Self::Target,
        Self::Router,
        Self::Size,
    ];
}

/// One probe of a leg.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shot {
    /// When it is to leave.
    pub(super) at: Time,
    pub(super) sent: Option<Time>,
    pub(super) sequence: u64,
    /// How long its answer took.
    pub(super) answered: Option<Duration>,
    /// It was not sent, or its answer came astray.
    is_over: bool,
    tries: u8,
}

impl Shot {
    const fn new(at: Time) -> Self {
        Self { at, sent: None, sequence: 0, answered: None, is_over: false, tries: 0 }
    }

    pub(super) const fn is_due(&self) -> bool {
        self.sent.is_none() && !self.is_over
    }

    pub(super) const fn is_settled(&self) -> bool {
        self.is_over || self.answered.is_some()
    }

    pub(super) fn leave(&mut self, now: Time, sequence: u64) {
        (self.sent, self.sequence) = (Some(now), sequence);
    }

    pub(super) fn put_off(&mut self, now: Time) {
        self.at = now + AGAIN;
        self.tries += 1;
        // Nobody could say what became of it.
        self.is_over = self.tries > 100;
    }
}

/// Where an answer came that did not come as it must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Astray {
    pub(super) reject: Reject,
    pub(super) path: Path,
    pub(super) interface: Interface,
}

pub(super) struct Leg {
    pub(super) part: Part,
    pub(super) style: Style,
    pub(super) inner: Ends,
    pub(super) encapsulation: Encapsulation,
    pub(super) template: Template,
    pub(super) egress: Egress,
    pub(super) identifier: u16,
    /// Bytes of the inner packet.
    pub(super) length: usize,
    pub(super) shots: Vec<Shot>,
    /// Why it was not sent.
    pub(super) unsent: Option<String>,
    pub(super) hint: Option<Quote>,
    pub(super) astray: Option<Astray>,
}

impl Leg {
    /// A leg whose probes leave from then on. `length` is that of the inner packet.
    pub(super) fn new(part: Part, onion: &Onion, egress: Egress, identifier: u16, length: usize, begin: Time) -> Self {
        Self {
            part,
            style: onion.style,
            inner: onion.inner,
            encapsulation: onion.encapsulation,
            template: Template::new(onion),
            egress,
            identifier,
            length,
            shots: (0..TRIES).map(|try_| Shot::new(begin + GAP * try_)).collect(),
            unsent: None,
            hint: None,
            astray: None,
        }
    }

    /// Whether it goes through the tunnel.
    pub(super) fn is_inside(&self) -> bool {
        self.part != Part::Underlay
    }

    /// Why none of it can be sent.
    pub(super) fn barred(mut self, why: Option<&str>) -> Self {
        why.into_iter().for_each(|why| self.bar(why));
        self
    }

    /// None of it will be sent any more.
    pub(super) fn bar(&mut self, why: &str) {
        self.unsent = Some(why.to_owned());
        self.shots.iter_mut().filter(|shot| shot.is_due()).for_each(|shot| shot.is_over = true);
    }

    /// The kernel has refused one.
    pub(super) fn refuse(&mut self, shot: usize, why: String) {
        let is_final = why == TOO_LONG;
        let shot = &mut self.shots[shot];
        (shot.sent, shot.is_over) = (None, true);
        if is_final {
            // The others are as long.
            self.bar(TOO_LONG);
        }
        self.unsent = Some(why);
    }

    /// This host had no room for one.
    pub(super) fn put_off_or_give_up(&mut self, shot: usize, now: Time, why: &str) {
        self.shots[shot].sent = None;
        self.shots[shot].put_off(now);
        if self.shots[shot].tries > LOCAL_TRIES {
            self.refuse(shot, why.to_owned());
        }
    }

    pub(super) fn answered(
        &mut self,
        shot: usize,
        at: Time,
        path: Path,
        interface: Interface,
        way: Result<(), Reject>,
    ) {
        let shot = &mut self.shots[shot];
        match (way, shot.sent) {
            (Ok(()), Some(sent)) if shot.answered.is_none() => shot.answered = Some(at.since(sent)),
            (Err(reject), _) => {
                self.astray = Some(Astray { reject, path, interface });
                shot.is_over = true;
            }
            (Ok(()), _) => {}
        }
    }

    /// How many have left.
    pub(super) fn sent(&self) -> usize {
        self.shots.iter().filter(|shot| shot.sent.is_some()).count()
    }

    /// How many have been answered.
    pub(super) fn answers(&self) -> usize {
        self.shots.iter().filter(|shot| shot.answered.is_some()).count()
    }

    /// The least time that an answer took.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.shots.iter().filter_map(|shot| shot.answered).min()
    }
}
