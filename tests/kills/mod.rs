//! A program that is killed again and again while it sends ESP, and what is counted on the wire. Nobody
//! who counts here has any part in the program's own bookkeeping, but for reading its record while it
//! is dead.
//!
//! A life reserves numbers when it starts, and would again after some 5 000 packets; no life here lasts
//! that long. That a kill in the midst of a later reservation does no harm, `tests/ledger/kill.rs` shows.

mod tally;
mod wire;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use adit::engine::schedule::mix;
use adit::io::ledger::{Ledger, this_machine};

pub(crate) use tally::{Marks, Tally};
pub(crate) use wire::Wire;

/// How long anything that must happen may take: the machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// The cable is empty when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(5);
/// A kill comes at most so long after the first packet of a life.
const LONGEST: Duration = Duration::from_millis(400);
/// Of so many kills one comes about the time when the first packet is expected, so that numbers may just
/// be reserved.
const EARLY: u32 = 4;

/// A child that does not outlive its trial.
#[derive(Debug)]
pub(crate) struct Victim(pub(crate) Child);

impl Victim {
    /// SIGKILL. That it lives until then is part of the trial.
    fn kill(mut self) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        match self.0.try_wait().map_err(failed)? {
            Some(status) => Err(format!("it ended by itself: {status}")),
            None => self.0.kill().and_then(|()| self.0.wait()).map(drop).map_err(failed),
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills, and counts at the far end.
pub(crate) struct Killer<'a> {
    pub(crate) wire: Wire,
    pub(crate) tally: Tally,
    /// Where the program keeps its record.
    pub(crate) state_dir: PathBuf,
    /// Starts the program.
    pub(crate) start: Box<dyn Fn() -> io::Result<Child> + 'a>,
}

impl Killer<'_> {
    /// So many lives, each ended at a random moment and followed by the next one at once.
    pub(crate) fn kill(&mut self, kills: u32) -> Result<(), String> {
        let seed = std::env::var("ADIT_KILL_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(kills));
        println!("kills: the moments come from ADIT_KILL_SEED={seed}");
        let mut ready = LONGEST / 4;
        for kill in 0..kills {
            // A number from 0 to 1.
            let part = (mix(seed, kill.into()) >> 32) as f64 / 2_f64.powi(32);
            ready = self.live(kill % EARLY == 0, part, ready).map_err(|why| format!("life {kill}: {why}"))?;
        }
        Ok(())
    }

    /// One life. How long it took until its first packet, if that was waited for; else the time given.
    fn live(&mut self, early: bool, part: f64, ready: Duration) -> Result<Duration, String> {
        let before = self.marks()?;
        let victim = Victim((self.start)().map_err(|error| error.to_string())?);
        let begin = now();
        let mut took = ready;
        if early {
            self.watch(begin + ready.mul_f64(0.5 + 0.75 * part))?;
        } else {
            self.await_one(begin + PATIENCE)?;
            took = begin.elapsed();
            self.watch(now() + LONGEST.mul_f64(part))?;
        }
        self.end(victim, &before)?;
        Ok(took)
    }

    /// Ends a life that began with these marks.
    pub(crate) fn end(&mut self, victim: Victim, before: &Marks) -> Result<(), String> {
        victim.kill()?;
        self.settle()?;
        self.tally.end_life(before, &self.marks()?);
        Ok(())
    }

    /// Counts what travels until then.
    pub(crate) fn watch(&mut self, end: Instant) -> Result<(), String> {
        while let Some(seen) = self.wire.next(end).map_err(|error| error.to_string())? {
            self.tally.add(seen);
        }
        Ok(())
    }

    /// Counts what is still on its way.
    fn settle(&mut self) -> Result<(), String> {
        while let Some(seen) = self.wire.next(now() + QUIET).map_err(|error| error.to_string())? {
            self.tally.add(seen);
        }
        Ok(())
    }

    fn await_one(&mut self, end: Instant) -> Result<(), String> {
        while !self.tally.has_sent() {
            let seen = self.wire.next(end).map_err(|error| error.to_string())?;
            self.tally.add(seen.ok_or_else(|| format!("nothing was sent in {PATIENCE:?}"))?);
        }
        Ok(())
    }

    /// The marks of the record, while nobody holds it.
    pub(crate) fn marks(&self) -> Result<Marks, String> {
        let ledger = Ledger::open(&self.state_dir, this_machine()).map_err(|error| error.to_string())?;
        let entries = ledger.entries().map_err(|lost| lost.to_string())?;
        Ok(entries.iter().map(|entry| (entry.spi, entry.mark)).collect())
    }
}

#[expect(clippy::disallowed_methods, reason = "real packets take real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn until(end: Instant) -> Duration {
    end.saturating_duration_since(now())
}
