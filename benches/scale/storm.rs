//! The uplink of all tunnels fails at once, and comes back.

use std::io;
use std::time::{Duration, Instant};

use crate::stage::Stage;
use crate::subject::{Subject, Wrapping};

/// Before it, and between the two.
const CALM: Duration = Duration::from_secs(5);

/// They do not become healthy again before the samples of the outage have left the long window, five minutes later.
pub(crate) fn run(stage: &Stage, tunnels: u32) -> io::Result<()> {
    let subject = Subject::start(stage, tunnels, Wrapping::Gre, false)?;
    subject.await_all("healthy", tunnels)?;
    std::thread::sleep(CALM);
    let (before, follower) = (subject.metrics()?, subject.follow()?);
    let begin = Instant::now();
    stage.cut()?;
    subject.await_all("down", tunnels)?;
    let (down, kept_down) = (begin.elapsed(), subject.await_kept()?);
    std::thread::sleep(CALM);
    stage.heal()?;
    let begin = Instant::now();
    subject.await_all("degraded", tunnels)?;
    let (alive, kept_alive) = (begin.elapsed(), subject.await_kept()?);
    std::thread::sleep(CALM);
    let (after, (events, missed)) = (subject.metrics()?, follower.stop()?);
    println!(
        "\n{tunnels} tunnels fail at once: all down after {:.2} s, on the disk {:.2} s later; they come back: all alive after \
         {:.2} s, on the disk {:.2} s later; loop lag p99 {:.1} ms; own troubles {} {}; events followed {events}, missed {missed}",
        down.as_secs_f64(),
        kept_down.as_secs_f64(),
        alive.as_secs_f64(),
        kept_alive.as_secs_f64(),
        after.quantile(&before, "adit_loop_lag_seconds", 0.99) * 1e3,
        after.sum("adit_local_faults_total", "") - before.sum("adit_local_faults_total", ""),
        subject.health()?["local_faults"],
    );
    Ok(())
}
