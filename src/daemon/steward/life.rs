//! One prober's life, as the steward sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::daemon::keeper::Keeper;
use crate::daemon::kernel::{self, Line, News, Wish};
use crate::daemon::link::{Outward, Parcel, Word};
use crate::daemon::space::Space;
use crate::engine::Time;
use crate::io::letters;
use crate::io::local;
use nix::unistd::{Gid, Uid};
use tokio::sync::Semaphore;

/// The name of the command that is a prober.
pub(crate) const COMMAND: &str = "prober";
/// Look-ups of users at once: more than a prober asks for at a time.
const LOOKUPS: usize = 16;
/// Whether it has ended is asked this often.
const POLL: Duration = Duration::from_millis(10);

pub(super) struct Life {
    pub(super) outward: Outward,
    /// What opens its sockets.
    pub(super) line: Line,
    child: Child,
    /// When it last showed that it goes on.
    pub(super) shown: Time,
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
        let (child, theirs) = spawn()?;
        let outward = Outward::start(theirs)?;
        outward.say(first);
        let known = std::iter::from_fn(|| line.news.try_recv().ok());
        found.into_iter().chain(known).flat_map(Parcel::of).for_each(|parcel| outward.say(parcel));
        outward.say(Word::Go);
        Ok(Self {
            outward,
            line,
            child,
            shown: now,
            told: vec![false; tunnels],
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
        })
    }

    /// Asks for something where sockets are opened.
    pub(super) fn wish(&self, wish: Wish) {
        // The thread may have ended; then nothing is opened any more, and that has been said.
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
        let ended = async {
            // An error would be that it is not there.
            while matches!(self.child.try_wait(), Ok(None)) {
                tokio::time::sleep(POLL).await;
            }
        };
        if tokio::time::timeout(patience, ended).await.is_err() {
            tracing::warn!("the prober does not end by itself, and is ended");
        }
        self.bury();
    }

    /// Makes sure that it has ended.
    pub(super) fn bury(mut self) -> Option<ExitStatus> {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

/// The next news of the thread that opens sockets; none ever once it has ended.
pub(super) async fn news(line: &mut Line) -> News {
    match line.news.recv().await {
        Some(news) => news,
        None => std::future::pending().await,
    }
}

/// A prober, and the line to it. The line is its standard input: so it needs no number, and nothing else of
/// ours is open there.
fn spawn() -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = letters::line()?;
    // This very program, even if another one has been installed in its place meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("adit").arg(COMMAND).stdin(Stdio::from(theirs));
    // What a terminal sends to end its programs is for the steward, who ends the prober.
    command.process_group(0);
    Ok((command.spawn()?, ours))
}
