//! One namespace: what should be in it, and the hands that bring it there.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use super::News;
use super::fight::{Fight, TRUCE, Told};
use super::hands::{Hands, Heard};
use crate::config::{Kernel, Netns, NotifyRoutes};
use crate::engine::Time;
use crate::io::clock::Clock;
use crate::steer::{Fib, Mode, Note, Setup};

/// Events seldom come alone: a picture waits this long for the others.
const SETTLE: Duration = Duration::from_millis(30);
/// And a pause between two pictures is so many times as long as the last one took.
const REST: u32 = 3;
/// An unexplained refusal puts off the next look to twice as long as the last time, but no more often
/// than so: half a minute.
const DOUBTS: u32 = 10;
/// A picture is given up so many times in a row.
const INSIST: u8 = 3;
/// In a hundred years.
const NEVER: Time = Time::from_nanos(3_155_760_000_000_000_000);
/// After a picture that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Where the daemon runs.
const OURS: &str = "/proc/self/ns/net";

/// Device and inode of a namespace.
pub(super) type Id = (u64, u64);

pub(super) struct Realm {
    name: Option<Netns>,
    kernel: Kernel,
    dry_run: bool,
    pub(super) fib: Fib,
    hands: Option<Hands>,
    id: Id,
    /// When the next picture is to be taken.
    due: Time,
    /// Nothing is changed before it is.
    blind: bool,
    /// How often in a row it was given up for the sake of a verdict.
    given_up: u8,
    rested: Time,
    /// Whether something was refused since the last picture that it does not explain.
    doubting: bool,
    /// For how many pictures in a row.
    doubts: u32,
    /// How many batches in a row have failed.
    failures: u32,
    /// Whether the kernel's news cannot be heard.
    deaf: bool,
    fight: Fight,
    news: Vec<News>,
    warned: Option<String>,
    /// Nothing is wanted in it any more.
    leaving: bool,
}

impl Realm {
    pub(super) fn new(name: Option<Netns>, setup: Setup, kernel: Kernel, dry_run: bool) -> Self {
        Self {
            name,
            kernel,
            dry_run,
            fib: Fib::new(kernel.protocol, setup),
            hands: None,
            id: (0, 0),
            due: Time::ZERO,
            blind: true,
            given_up: 0,
            rested: Time::ZERO,
            doubting: false,
            doubts: 0,
            failures: 0,
            deaf: false,
            fight: Fight::default(),
            news: Vec::new(),
            warned: None,
            leaving: false,
        }
    }

    /// Keeps something else from now on; if it is `leaving`, only until nothing of before is left.
    pub(super) fn renew(&mut self, setup: Setup, kernel: Kernel, penalties: &[Option<u32>], leaving: bool) {
        self.fib = Fib::succeeding(kernel.protocol, setup, penalties);
        let is_heard_alike = self.kernel.receive_buffer == kernel.receive_buffer;
        self.kernel = kernel;
        if !is_heard_alike && !leaving {
            self.hands = None;
        }
        (self.leaving, self.blind, self.due, self.doubting) = (leaving, true, Time::ZERO, false);
        (self.given_up, self.doubts, self.failures, self.warned) = (0, 0, 0, None);
    }

    /// Takes no verdict to be still to come.
    pub(super) fn begin_with(&mut self, penalties: &[Option<u32>]) {
        (0..).zip(penalties).for_each(|(tunnel, penalty)| self.fib.set_penalty(tunnel, *penalty));
        self.fib.settle();
    }

    /// Whether it is to go, and nothing of what was wanted in it is left. To be asked when there is nothing to
    /// do.
    pub(super) fn has_left(&self) -> bool {
        self.leaving && (self.hands.is_none() || !self.blind && !self.fib.doubts())
    }

    pub(super) const fn netns(&self) -> Option<&Netns> {
        self.name.as_ref()
    }

    /// Whether it is the namespace where the daemon runs.
    pub(super) const fn is_own(&self) -> bool {
        self.name.is_none()
    }

    pub(super) fn name(&self) -> Option<String> {
        self.name.as_ref().map(ToString::to_string)
    }

    /// The namespace itself, while it is open.
    pub(super) fn id(&self) -> Option<Id> {
        self.hands.as_ref().map(|_| self.id)
    }

    /// Works in this namespace from now on, unless it is one of the `others`. Whether that is possible.
    pub(super) fn open(&mut self, file: Option<Arc<File>>, others: &[Id], now: Time) -> bool {
        if self.hands.is_some() {
            self.close("another one has taken its place");
        }
        match self.enter(file.as_deref(), others) {
            Ok(hands) => {
                self.quieten(file.as_deref());
                self.hands = Some(hands);
                self.blind = true;
                (self.due, self.rested) = (now, now);
                true
            }
            Err(error) => {
                let what = format!("routes cannot be kept: {error}");
                self.fib.handle_lost(&what);
                self.warn(what);
                false
            }
        }
    }

    fn enter(&mut self, file: Option<&File>, others: &[Id]) -> io::Result<Hands> {
        let found = file.map_or_else(|| fs::metadata(OURS), File::metadata)?;
        self.id = (found.dev(), found.ino());
        // Each would take away what the other has made.
        if others.contains(&self.id) {
            let why = "it is the namespace of other routes under another name: write the same `netns` for all of them";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Hands::open(file, &self.kernel, self.name.as_ref(), self.dry_run)
    }

    /// Has the kernel announce groups only, if that is asked for.
    fn quieten(&mut self, file: Option<&File>) {
        if self.kernel.mode == Mode::Nexthop && self.kernel.notify_routes == NotifyRoutes::Off && !self.dry_run {
            let failed = super::hands::quieten(file).err();
            failed.into_iter().for_each(|error| self.warn(error.to_string()));
        }
    }

    /// What there is to tell.
    pub(super) fn news(&mut self, now: Time, generation: u32) -> Vec<News> {
        self.collect(now);
        if let Some(told) = self.fight.rest(now) {
            self.tell(told);
        }
        let standings = self.fib.poll_standings();
        // In a dry run nothing is installed.
        let standings = (!standings.is_empty() && !self.dry_run).then_some(News::Standings(generation, standings));
        std::mem::take(&mut self.news).into_iter().chain(standings).collect()
    }

    fn collect(&mut self, now: Time) {
        for note in self.fib.poll_notes() {
            match note {
                Note::Warning(what) => self.news.push(self.warning(&what)),
                Note::Drift { count, examples } => {
                    if let Some(told) = self.fight.drifted(now, count, examples) {
                        self.tell(told);
                    }
                }
            }
        }
    }

    fn tell(&mut self, Told { count, changes, warn }: Told) {
        self.news.push(News::Drift { netns: self.name(), count, changes });
        if warn {
            let what = "another program keeps changing what is ours in the kernel: it is mended once a second at the \
                        most, and told seldom; two adits in one network namespace need two tags (`protocol`)";
            self.news.push(self.warning(what));
        }
    }

    fn warning(&self, what: &str) -> News {
        let what = self.name().map_or_else(|| what.to_owned(), |netns| format!("network namespace {netns}: {what}"));
        News::Warning(what)
    }

    /// Warns once of the same thing, until there is something else to warn of.
    fn warn(&mut self, what: String) {
        if self.warned.as_ref() != Some(&what) {
            self.news.push(self.warning(&what));
            self.warned = Some(what);
        }
    }

    /// Lets go of it: it is not there any more.
    pub(super) fn close(&mut self, why: &str) {
        self.hands = None;
        let name = self.name().unwrap_or_default();
        self.fib.handle_lost(&format!("network namespace {name}: {why}"));
    }

    /// Makes the next changes. Whether there were any.
    pub(super) fn step(&mut self, now: Time) -> bool {
        if self.blind || self.hands.is_none() {
            return false;
        }
        if self.fib.poll_changes().is_empty() {
            return self.doubt(now);
        }
        let Self { hands: Some(hands), fib, .. } = self else { return false };
        match hands.carry_out(fib.changes(), |change| fib.text(change)) {
            Ok(refusals) => {
                if refusals.iter().any(|refusal| refusal.errno == nix::libc::EPERM) {
                    self.warn("the kernel's routes cannot be changed: that needs CAP_NET_ADMIN".to_owned());
                }
                self.fib.handle_outcome(refusals);
                self.failures = 0;
                self.doubt(now);
                true
            }
            Err(error) => {
                // What was done is known to a picture only.
                self.fib.lose_sight();
                self.warn(format!("changes of the kernel's routes were lost sight of: {error}"));
                (self.blind, self.due) = (true, now + SETTLE * (1 << self.failures.min(DOUBTS)));
                self.failures += 1;
                false
            }
        }
    }

    /// Looks again where the picture does not explain what the kernel refused, or is too old; ever more
    /// seldom where another look does not help either. Whether there may be changes at once.
    fn doubt(&mut self, now: Time) -> bool {
        if !self.fib.doubts() {
            return false;
        }
        if self.dry_run {
            // Another look would show that nothing was done.
            self.fib.look_no_further();
            return true;
        }
        if !std::mem::replace(&mut self.doubting, true) {
            let delay = SETTLE * (1 << self.doubts.min(DOUBTS));
            self.due = self.due.min((now + delay).max(self.rested));
            self.doubts += 1;
        }
        false
    }

    /// Whether what is in it is as it should be, as far as that is possible by now.
    pub(super) const fn is_reconciled(&self) -> bool {
        self.hands.is_none() || !self.blind
    }

    /// A picture should be taken soon, but not for ever one after the other.
    fn soon(&mut self, now: Time) {
        self.due = self.due.min((now + SETTLE).max(self.rested));
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.hands.as_ref().map(|_| self.due)
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Takes a picture, unless it is to be given up, which it is not for ever.
    pub(super) fn take_picture(&mut self, clock: &Clock, go_on: impl Fn() -> bool) {
        let Some(hands) = &mut self.hands else { return };
        let (begin, insists) = (clock.now(), self.given_up >= INSIST);
        let picture = hands.picture(|table, prefix| self.fib.concerns(table, prefix), || insists || go_on());
        self.given_up = if matches!(picture, Ok(None)) { self.given_up + 1 } else { 0 };
        let took = clock.now().since(begin);
        match picture {
            Ok(Some(picture)) => {
                self.fib.handle_picture(picture);
                self.blind = false;
                if !std::mem::take(&mut self.doubting) {
                    self.doubts = 0;
                }
                let now = clock.now();
                self.collect(now);
                let truce = if self.fight.is_on(now) { TRUCE } else { Duration::ZERO };
                (self.rested, self.deaf) = (now + truce.max(took * REST), false);
                // A dry run sees what it would have done, not what is.
                self.due = if self.dry_run { NEVER } else { now + self.kernel.reconcile_interval };
            }
            Ok(None) => self.due = clock.now() + SETTLE,
            Err(error) => {
                self.warn(format!("the kernel's routes cannot be listed: {error}"));
                self.due = clock.now() + AGAIN;
            }
        }
    }

    /// All of ours is to go.
    pub(super) fn dismantle(&mut self, clock: &Clock) {
        // What an earlier run has left, and what others lead over by now, only a look tells.
        self.take_picture(clock, || true);
        self.fib.dismantle();
    }

    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> bool {
        !self.deaf && self.hands.as_ref().is_some_and(|hands| hands.poll_ready(context))
    }

    /// Hears what the kernel tells. Whether some of it was lost.
    pub(super) fn hear(&mut self, now: Time) -> bool {
        let Some(hands) = &mut self.hands else { return false };
        match hands.hear(|table, prefix| self.fib.concerns(table, prefix)) {
            Ok(Heard::Nothing) => false,
            Ok(Heard::Changed(_)) => {
                self.soon(now);
                false
            }
            Ok(Heard::Overrun) => {
                self.soon(now);
                true
            }
            Err(error) => {
                // Not listened to again before the next look, or it would be heard of again and again.
                self.deaf = true;
                self.warn(format!("the kernel's routes cannot be watched: {error}"));
                self.soon(now);
                false
            }
        }
    }
}
