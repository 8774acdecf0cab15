//! One prober's life, as the steward sees it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::vigil::Vigil;
use crate::daemon::keeper::Keeper;
use crate::daemon::kernel::{self, Line, News, Wish};
use crate::daemon::link::{Outward, Parcel, Word};
use crate::daemon::space::{Space, Way};
use crate::engine::{Need, Time};
use crate::io::letters;
use crate::io::local;
use nix::unistd::{Gid, Uid};
use tokio::sync::Semaphore;

/// The name of the command that is a prober.
pub(crate) const COMMAND: &str = "prober";
/// Look-ups of users at once: more than a prober asks for at a time.
const LOOKUPS: usize = 16;
/// The kernel ends a process that was killed at once, unless that waits for a disk.
pub(super) const KILLED: Duration = Duration::from_secs(2);
/// What is said then.
pub(super) const LINGERS: &str = "the prober was killed, but the kernel has not ended it yet: it waits for a disk, say";
/// Whether it has ended is asked this often.
const POLL: Duration = Duration::from_millis(10);
/// From so many tunnels on, a prober has so much memory that it waits for the tables of small pages; with fewer, large
/// ones would be more memory for nothing.
const MANY: usize = 5_000;
/// The settings of the C library's allocator.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// It asks the kernel for large pages.
const LARGE_PAGES: &str = "glibc.malloc.hugetlb=1";

pub(super) struct Life {
    pub(super) outward: Outward,
    /// What opens its sockets.
    pub(super) line: Line,
    child: Child,
    pub(super) vigil: Vigil,
    /// What it was handed, and has not said to be of no use.
    handed: BTreeSet<Need>,
    /// Of which tunnels it has said what they cost.
    pub(super) told: Vec<bool>,
    /// Look-ups that may still be begun.
    lookups: Arc<Semaphore>,
}

impl Life {
    /// Opens everything, starts a prober, and hands it over.
    pub(super) fn begin(first: Parcel, mut spaces: Vec<Space>, tunnels: usize, now: Time) -> io::Result<Self> {
        spaces.iter_mut().for_each(|space| space.to_hand = true);
        let (keeper, found) = Keeper::start(spaces)?;
        let mut line = kernel::watch(keeper)?;
        let (child, theirs) = spawn(tunnels)?;
        let outward = Outward::start(theirs)?;
        outward.say(first);
        let known = std::iter::from_fn(|| line.news.try_recv().ok());
        let found: Vec<News> = found.into_iter().chain(known).collect();
        let lookups = Arc::new(Semaphore::new(LOOKUPS));
        let (vigil, handed, told) = (Vigil::new(now), BTreeSet::new(), vec![false; tunnels]);
        let mut life = Self { outward, line, child, vigil, handed, told, lookups };
        found.into_iter().for_each(|news| life.tell(news));
        life.outward.say(Word::Go);
        Ok(life)
    }

    /// Passes on what the thread of sockets tells.
    pub(super) fn tell(&mut self, news: News) {
        let handed = &mut self.handed;
        let mut note = |egress, way: &Result<Way, String>| {
            let need = Need::Egress(egress);
            if way.is_ok() {
                handed.insert(need)
            } else {
                handed.remove(&need)
            };
        };
        match &news {
            News::Way(egress, way) => note(*egress, way),
            News::There(namespace, sockets) => {
                sockets.ways.iter().for_each(|(egress, way)| note(*egress, way));
                handed.insert(Need::Namespace(*namespace));
            }
            News::Missing(..)
            | News::Associations(..)
            | News::Withheld(..)
            | News::Renewed(_)
            | News::NotRenewed(..) => {}
        }
        Parcel::of(news).into_iter().for_each(|parcel| self.outward.say(parcel));
    }

    /// Asks for what the prober says that it lacks: once for each time that it was handed it, so that it cannot
    /// have more opened than it takes.
    pub(super) fn lack(&mut self, need: Need, wish: Wish) {
        if self.handed.remove(&need) {
            self.wish(wish);
        }
    }

    /// Asks for something where sockets are opened.
    pub(super) fn wish(&self, wish: Wish) {
        // The thread may have ended; that is seen where its news are waited for.
        drop(self.line.wishes.send(wish));
    }

    /// Answers whether a user belongs to a group, when the system's user database has been asked.
    pub(super) fn look_up(&self, question: u32, uid: Uid, group: Gid) {
        let answer = self.outward.speaker();
        let Ok(turn) = Arc::clone(&self.lookups).try_acquire_owned() else {
            // A prober that is itself has no more than a few under way.
            return answer(Word::Member(question, false));
        };
        tokio::task::spawn_blocking(move || {
            answer(Word::Member(question, local::is_member(uid, group)));
            drop(turn);
        });
    }

    /// Has it end, and waits for that.
    pub(super) async fn stop(mut self, patience: Duration) {
        self.outward.say(Word::Stop);
        if tokio::time::timeout(patience, self.ended()).await.is_ok() {
            return;
        }
        tracing::warn!("the prober does not end by itself, and is ended");
        self.kill();
        if tokio::time::timeout(KILLED, self.ended()).await.is_err() {
            tracing::warn!("{LINGERS}");
        }
    }

    pub(super) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }

    /// How it has ended, once it has.
    pub(super) async fn ended(&mut self) -> String {
        loop {
            match self.child.try_wait() {
                Ok(None) => tokio::time::sleep(POLL).await,
                Ok(Some(status)) => return status.to_string(),
                // It is not there.
                Err(_) => return "how is not known".to_owned(),
            }
        }
    }
}

/// A prober, and the line to it. The line is its standard input: so it needs no number, and nothing else of
/// ours is open there.
fn spawn(tunnels: usize) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = letters::line()?;
    // This very program, even if another one has been installed in its place meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("adit").arg(COMMAND).stdin(Stdio::from(theirs));
    // What a terminal sends to end its programs is for the steward, who ends the prober.
    command.process_group(0);
    // Whoever has set something there has reasons.
    if tunnels >= MANY && std::env::var_os(TUNABLES).is_none() {
        command.env(TUNABLES, LARGE_PAGES);
    }
    Ok((command.spawn()?, ours))
}
