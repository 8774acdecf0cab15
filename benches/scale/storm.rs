//! The uplink of all tunnels fails at once, and comes back.

use std::io;
use std::time::Duration;

use crate::stage::Stage;
use crate::subject::{Subject, Wrapping};

/// Between the two: as long as a person needs to look up.
const OUTAGE: Duration = Duration::from_secs(5);

pub(crate) fn run(stage: &Stage, tunnels: u32) -> io::Result<()> {
    let subject = Subject::start(stage, tunnels, Wrapping::Gre, false)?;
    subject.await_all("healthy", tunnels)?;
    std::thread::sleep(Duration::from_secs(2));
    let begin = std::time::Instant::now();
    stage.cut()?;
    subject.await_all("down", tunnels)?;
    let down = begin.elapsed();
    std::thread::sleep(OUTAGE);
    stage.heal()?;
    let begin = std::time::Instant::now();
    subject.await_all("degraded", tunnels)?;
    let alive = begin.elapsed();
    subject.await_all("healthy", tunnels)?;
    let health = subject.health()?;
    println!(
        "\n{tunnels} tunnels cut at once: all down after {:.2} s; healed: all alive after {:.2} s, healthy after {:.1} \
         s; local faults {}; lag {}",
        down.as_secs_f64(),
        alive.as_secs_f64(),
        begin.elapsed().as_secs_f64(),
        health["local_faults"],
        health["loop_lag"]
    );
    Ok(())
}
