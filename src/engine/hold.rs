//! Fail-static: when too many tunnels go down at once while this host itself is in trouble, it is the host
//! that is suspected. States go on as the samples say; but what follows from them for the kernel's routes
//! is held back, and an alarm is raised. No sample is touched by it.
//!
//! While a sign of trouble is fresh, orders that make a tunnel dearer wait a moment: else the first of many
//! would be carried out before the others show what it is.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde::Serialize;

use super::event::Kind;
use super::health::Ratio;
use super::memory::place;
use super::time::WallTime;
use super::{Engine, State, Time};

/// When this host is suspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailStatic {
    /// Which share of the tunnels that had a verdict must go down within one detection window.
    pub share: Ratio,
    /// Also without a sign of trouble of this host's.
    pub while_clean: bool,
}

/// The local faults that are a sign. (The others concern what is told or kept, not what is measured.)
const SIGNS: [&str; 7] = ["stall", "suspend", "clock-step", "receive-overflow", "receive", "send", "kernel-overrun"];
/// Nothing leaves this host at all.
const NOTHING_LEAVES: &str = "nothing leaves this host";
/// An earlier run has not ended well.
const BEFORE: &str = "an end while routes were held";
/// One tunnel alone says nothing about the host.
const LEAST: usize = 2;
/// How long a worsening order waits while a sign is fresh, and how long it is.
const DOUBT: Duration = Duration::from_secs(1);

/// What is suspected, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HoldView {
    /// Since when the kernel's routes are held.
    pub since: WallTime,
    /// Why.
    pub reason: String,
}

#[derive(Debug, Default)]
pub(super) struct Hold {
    pub(super) settings: Option<FailStatic>,
    /// The time in which every dead tunnel is found.
    window: Duration,
    /// Who has gone down within it, each once. One that cannot be probed any more has no verdict, and its fall
    /// is not in its prober any more.
    falls: VecDeque<(Time, u32)>,
    /// How many of them count.
    fallen: usize,
    /// The last sign of trouble.
    sign: Option<(Time, &'static str)>,
    /// Tunnels with a verdict whose last probe could not leave.
    pub(super) refused: usize,
    /// Orders that wait, by the time when they go.
    waiting: VecDeque<(Time, u32)>,
    held: Option<HoldView>,
}

impl Hold {
    /// Calls tunnels by other indices from now on; those that have none are forgotten.
    pub(super) fn renumber(&mut self, index: impl Fn(u32) -> Option<u32>) {
        let renamed = |(at, tunnel): (Time, u32)| Some((at, index(tunnel)?));
        self.falls = self.falls.drain(..).filter_map(renamed).collect();
        self.waiting = self.waiting.drain(..).filter_map(renamed).collect();
    }

    /// Tunnels whose cost is not to be told yet.
    pub(super) fn waiting(&self) -> BTreeSet<u32> {
        self.waiting.iter().map(|(_, tunnel)| *tunnel).collect()
    }

    fn sign_within(&self, span: Duration, now: Time) -> Option<&'static str> {
        self.sign.filter(|(at, _)| at.within(span, now)).map(|(_, sign)| sign)
    }
}

impl Engine {
    /// When this host is to be suspected; never without settings.
    pub fn set_fail_static(&mut self, settings: Option<FailStatic>) {
        self.hold.settings = settings;
        let window = |prober: &super::prober::Prober| {
            let check = &prober.settings.check;
            check.interval + check.interval / 20 + check.timeout.longest() + check.rules.down_window
        };
        self.hold.window = self.probers.iter().map(window).max().unwrap_or_default();
    }

    /// Why the kernel's routes are held, if they are.
    #[must_use]
    pub const fn held(&self) -> Option<&HoldView> {
        self.hold.held.as_ref()
    }

    /// A local fault may be a sign.
    pub(super) fn note_sign(&mut self, now: Time, fault: &'static str) {
        if SIGNS.contains(&fault) {
            self.hold.sign = Some((now, fault));
        }
    }

    /// Whether a tunnel's last probe could leave.
    pub(super) fn note_refused(&mut self, tunnel: u32, now: Time, refused: bool) {
        let prober = &mut self.probers[tunnel as usize];
        let refused = refused && prober.health.state() != State::Unknown;
        let before = std::mem::replace(&mut prober.refused, refused);
        match (before, refused) {
            (false, true) => self.hold.refused += 1,
            (true, false) => self.hold.refused = self.hold.refused.saturating_sub(1),
            (true, true) | (false, false) => {}
        }
        let judged = self.judged();
        if refused && judged >= LEAST && self.hold.refused >= judged {
            self.hold.sign = Some((now, NOTHING_LEAVES));
        }
    }

    /// Tunnels that have a verdict.
    fn judged(&self) -> usize {
        let [_, healthy, degraded, down] = self.states;
        healthy + degraded + down
    }

    /// A tunnel has another state: whether that has to do with this host, and when its cost is to be known
    /// where the kernel's routes are kept.
    pub(super) fn weigh(&mut self, now: Time, tunnel: u32, [from, to]: [State; 2]) {
        if to == State::Unknown {
            self.leave_reckoning(now, tunnel);
        }
        let Some(settings) = self.hold.settings else { return self.steered.push_back(tunnel) };
        if to == State::Down && from != State::Unknown {
            self.note_fall(now, tunnel);
            self.suspect(now, settings);
        }
        let is_worse = matches!(to, State::Degraded | State::Down) && from < to;
        let doubtful = is_worse && from != State::Unknown && self.hold.sign_within(DOUBT, now).is_some();
        if doubtful && self.hold.held.is_none() {
            self.hold.waiting.push_back((now + DOUBT, tunnel));
        } else {
            self.steered.push_back(tunnel);
        }
    }

    fn note_fall(&mut self, now: Time, tunnel: u32) {
        let Hold { falls, fallen, window, .. } = &mut self.hold;
        while let Some(&(at, tunnel)) = falls.front()
            && !at.within(*window, now)
        {
            falls.pop_front();
            let fell = &mut self.probers[tunnel as usize].fell;
            *fallen -= usize::from(fell.take_if(|fell| *fell == at).is_some());
        }
        let fell = &mut self.probers[tunnel as usize].fell;
        if fell.is_none() {
            *fell = Some(now);
            *fallen += 1;
            falls.push_back((now, tunnel));
        }
    }

    /// A tunnel has no verdict any more.
    fn leave_reckoning(&mut self, now: Time, tunnel: u32) {
        self.note_refused(tunnel, now, false);
        self.hold.fallen -= usize::from(self.probers[tunnel as usize].fell.take().is_some());
    }

    fn suspect(&mut self, now: Time, settings: FailStatic) {
        let (fallen, judged) = (self.hold.fallen, self.judged());
        let sign = self.hold.sign_within(self.hold.window, now);
        let is_much = fallen >= LEAST && settings.share.reached(fallen as u64, judged as u64);
        if self.hold.held.is_some() || !is_much || sign.is_none() && !settings.while_clean {
            return;
        }
        let why = sign.map_or_else(|| "at once".to_owned(), |sign| format!("while this host is in trouble ({sign})"));
        let reason = format!("{fallen} of {judged} tunnels went down {why}: the kernel's routes stay as they are");
        self.hold.held = Some(HoldView { since: self.wall(now), reason: reason.clone() });
        // What has not gone yet does not go.
        let waiting = std::mem::take(&mut self.hold.waiting);
        self.steered.extend(waiting.into_iter().map(|(_, tunnel)| tunnel));
        self.raise(now, reason);
    }

    /// The kernel's routes were held when an earlier run ended, perhaps of the same trouble: so they are now,
    /// until there has been no sign of it for as long as ever.
    pub(super) fn hold_on(&mut self, now: Time, since: WallTime) {
        if self.hold.settings.is_none() {
            return;
        }
        self.hold.sign = Some((now, BEFORE));
        let reason = "they were held when adit ended: the kernel's routes stay as they are".to_owned();
        self.hold.held = Some(HoldView { since, reason });
    }

    /// Lets go what has waited long enough, and of the suspicion if there is no reason for it any more.
    pub(super) fn reconsider(&mut self, now: Time) {
        while let Some(&(at, tunnel)) = self.hold.waiting.front()
            && at <= now
        {
            self.hold.waiting.pop_front();
            self.steered.push_back(tunnel);
        }
        if self.hold.held.is_some()
            && let Some(why) = self.cleared(now)
        {
            self.hold.held = None;
            self.forget_falls();
            let (down, judged) = (self.states[place(State::Down)], self.judged());
            let follow = "the kernel's routes follow the verdicts again";
            self.raise(now, format!("{why}: {follow}, {down} of {judged} tunnels down"));
        }
    }

    /// Why this host is not suspected any more.
    fn cleared(&self, now: Time) -> Option<&'static str> {
        let Some(settings) = self.hold.settings else { return Some("fail_static is off") };
        let (down, judged) = (self.states[place(State::Down)], self.judged());
        let is_much = down >= LEAST && settings.share.reached(down as u64, judged as u64);
        let is_troubled = settings.while_clean || self.hold.sign_within(self.hold.window, now).is_some();
        match (is_much, is_troubled) {
            (true, true) => None,
            (true, false) => Some("this host has been well for a while"),
            (false, _) => Some("most tunnels carry traffic"),
        }
    }

    fn forget_falls(&mut self) {
        (self.hold.falls, self.hold.fallen) = (VecDeque::new(), 0);
        self.probers.iter_mut().for_each(|prober| prober.fell = None);
    }

    /// Always told: a begin without its end would be worse than two of them.
    fn raise(&mut self, now: Time, reason: String) {
        self.count_fault(now, "fail-static", &reason);
        self.tell(now, Kind::LocalFault { tunnel: None, fault: "fail-static", reason });
    }

    /// When this must be looked at again.
    pub(super) fn next_reconsidered(&self) -> Option<Time> {
        let waiting = self.hold.waiting.front().map(|(at, _)| *at);
        let settings = self.hold.settings.filter(|settings| !settings.while_clean && self.hold.held.is_some());
        let calm = settings.and(self.hold.sign).map(|(at, _)| at + self.hold.window);
        [waiting, calm].into_iter().flatten().min()
    }

    /// Counts the tunnels by their states anew, where there are others than before.
    pub(super) fn count_states(&mut self) {
        self.states = [0; 4];
        for prober in &self.probers {
            self.states[place(prober.health.state())] += 1;
        }
        self.hold.refused = self.probers.iter().filter(|prober| prober.refused).count();
        let falls = (0..).zip(&self.probers).filter_map(|(tunnel, prober)| Some((prober.fell?, tunnel)));
        let mut falls: Vec<(Time, u32)> = falls.collect();
        falls.sort_unstable();
        (self.hold.fallen, self.hold.falls) = (falls.len(), falls.into());
    }
}
