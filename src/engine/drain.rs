//! An operator's drain: traffic is to leave a tunnel, until when, why, and who asked for it.
//!
//! It ends by itself when the wall clock shows its end: the clock that the operator reads, and the only one that goes
//! on over a restart. A clock that is set ahead past the end ends it; one that is set back makes it longer, until the
//! same time is shown. What has ended begins by nobody's clock again.

use std::fmt;

use serde::Serialize;

use super::event::Kind;
use super::{Drain, Engine, Time, WallTime};

/// Bytes of a reason at most.
pub const REASON_MAX: usize = 200;
/// Why a drain ended that nobody has ended.
const OVER: &str = "its time is over";

/// Why a tunnel is drained, in an operator's words: a line of printable text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason(String);

/// What is wrong with a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadReason {
    /// It says nothing.
    Empty,
    /// It has so many bytes.
    Long(usize),
    /// It has a letter that moves a cursor, or turns the direction of a text.
    Unprintable(char),
}

impl fmt::Display for BadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the reason is empty; say why, or leave it out"),
            Self::Long(bytes) => write!(f, "the reason has {bytes} bytes; {REASON_MAX} are the most, so shorten it"),
            Self::Unprintable(letter) => {
                write!(f, "the reason has a {}; it must be one line of printable text", letter.escape_unicode())
            }
        }
    }
}

impl Reason {
    /// A reason without the blanks around it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, BadReason> {
        let text = text.trim();
        if text.is_empty() {
            return Err(BadReason::Empty);
        }
        if text.len() > REASON_MAX {
            return Err(BadReason::Long(text.len()));
        }
        match text.chars().find(|letter| moves(*letter)) {
            Some(letter) => Err(BadReason::Unprintable(letter)),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Control characters, line and paragraph separators, and marks of direction (Unicode's UAX 9).
fn moves(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Order {
    /// What the tunnel is to cost as.
    #[serde(rename = "as")]
    pub level: Drain,
    /// When it ends by itself; never without.
    pub until: Option<WallTime>,
    /// Why.
    pub reason: Option<Reason>,
    /// The user who asked for it, by number.
    pub by: Option<u32>,
}

impl From<Drain> for Order {
    fn from(level: Drain) -> Self {
        Self { level, until: None, reason: None, by: None }
    }
}

/// A drain that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drained {
    /// What was asked for.
    #[serde(flatten)]
    pub order: Order,
    /// Since when.
    pub since: WallTime,
}

impl Engine {
    /// Asks for traffic to leave a tunnel: in the place of what was asked for before. Moves no state.
    pub fn drain(&mut self, now: Time, tunnel: u32, order: Order) {
        let since = self.wall(now);
        let Some(prober) = self.probers.get_mut(tunnel as usize) else { return };
        let before = prober.drain.as_ref().map(|drained| &drained.order);
        if before.is_some_and(|before| Order { by: order.by, ..before.clone() } == order) {
            return;
        }
        if let Some(until) = before.and_then(|before| before.until) {
            self.ends.remove(&(until, tunnel));
        }
        self.ends.extend(order.until.map(|until| (until, tunnel)));
        prober.undrained = false;
        let Order { level, until, by, .. } = order;
        let reason = order.reason.as_ref().map(|reason| reason.text().to_owned());
        prober.drain = Some(Box::new(Drained { order, since }));
        let (tunnel_name, penalty) = (prober.settings.name.clone(), prober.penalty());
        let kind = Kind::Drain { tunnel: tunnel_name, drained: true, penalty, level: Some(level), until, reason, by };
        self.tell_drain(now, tunnel, kind);
    }

    /// Lets traffic come back, because this user has asked for it.
    pub fn undrain(&mut self, now: Time, tunnel: u32, by: Option<u32>) {
        self.release(now, tunnel, None, by);
    }

    /// Drains a tunnel without an end or a reason, or ends that.
    pub fn set_drain(&mut self, now: Time, tunnel: u32, drain: Option<Drain>) {
        match drain {
            Some(level) => self.drain(now, tunnel, level.into()),
            None => self.undrain(now, tunnel, None),
        }
    }

    fn release(&mut self, now: Time, tunnel: u32, reason: Option<&str>, by: Option<u32>) {
        let Some(prober) = self.probers.get_mut(tunnel as usize) else { return };
        let Some(drained) = prober.drain.take() else { return };
        if let Some(until) = drained.order.until {
            self.ends.remove(&(until, tunnel));
        }
        // A verdict says what the tunnel costs without it.
        prober.undrained = !prober.is_judged();
        let (name, penalty) = (prober.settings.name.clone(), prober.penalty());
        let reason = reason.map(str::to_owned);
        let kind = Kind::Drain { tunnel: name, drained: false, penalty, level: None, until: None, reason, by };
        self.tell_drain(now, tunnel, kind);
    }

    fn tell_drain(&mut self, now: Time, tunnel: u32, kind: Kind) {
        self.tell(now, kind);
        self.last_drain = self.events.last();
        self.steer(now, tunnel);
    }

    /// Ends the drains whose time is over.
    pub(super) fn end_drains(&mut self, now: Time) {
        let wall = self.wall(now);
        while let Some(&(until, tunnel)) = self.ends.first()
            && until <= wall
        {
            self.release(now, tunnel, Some(OVER), None);
        }
    }

    /// When the first of them is, as the clocks stand now.
    pub(super) fn next_end(&self) -> Option<Time> {
        let (until, _) = self.ends.first()?;
        Some(Time::from_nanos(until.0.saturating_sub(self.wall_offset)))
    }

    /// Finds all ends anew: tunnels have other places.
    pub(super) fn list_ends(&mut self) {
        let until =
            |(tunnel, prober): (u32, &super::prober::Prober)| Some((prober.drain.as_ref()?.order.until?, tunnel));
        self.ends = (0..).zip(&self.probers).filter_map(until).collect();
    }

    /// The number of the last event by which this run has drained a tunnel or the opposite; 0 without one.
    #[must_use]
    pub const fn last_drain(&self) -> u64 {
        self.last_drain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_line_of_printable_text() {
        let known = |text: &str| Reason::new(text).map(|reason| reason.text().to_owned());
        assert_eq!(
            known("  replace the line card (zürich → ams) "),
            Ok("replace the line card (zürich → ams)".to_owned())
        );
        assert_eq!(known(" \t"), Err(BadReason::Empty));
        assert_eq!(known("a\nb"), Err(BadReason::Unprintable('\n')));
        assert_eq!(known("a\u{1b}[2J"), Err(BadReason::Unprintable('\u{1b}')));
        assert_eq!(known("a\u{202e}b"), Err(BadReason::Unprintable('\u{202e}')));
        assert!(known(&"é".repeat(REASON_MAX / 2)).is_ok());
        assert_eq!(known(&"é".repeat(REASON_MAX / 2 + 1)), Err(BadReason::Long(REASON_MAX + 2)));
        assert!(BadReason::Unprintable('\n').to_string().contains(r"\u{a}"));
    }
}
