//! How true the round-trip times are: from a recording, in a run of its own.

use std::io;
use std::time::Duration;

use serde_json::Value;

use crate::stage::Stage;
use crate::subject::{Subject, Wrapping};

const RECORDED: Duration = Duration::from_secs(8);

/// Percentiles of round-trip times. The path itself takes some 6 µs: what is shown beyond that is an
/// error.
pub(crate) fn shown(stage: &Stage, tunnels: u32, wrapping: Wrapping) -> io::Result<String> {
    let subject = Subject::start(stage, tunnels, wrapping, true)?;
    subject.await_all("healthy", tunnels)?;
    std::thread::sleep(RECORDED);
    let recording = subject.recording()?;
    drop(subject);
    let sample = |line: &str| serde_json::from_str::<Value>(line).ok().filter(|event| event["kind"] == "sample");
    let rtts = recording.lines().filter_map(sample).filter_map(|event| event["rtt_us"].as_f64());
    let mut rtts: Vec<f64> = rtts.collect();
    // Of the start there are as many again as of a second or two, and it is not what goes on for ever.
    rtts.drain(..rtts.len() / 3);
    rtts.sort_by(f64::total_cmp);
    let at = |share: usize| rtts.get(rtts.len() * share / 100).copied().unwrap_or(f64::NAN);
    Ok(format!("{:.0} / {:.0}", at(50), at(99)))
}
