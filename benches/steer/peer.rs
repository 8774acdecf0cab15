//! `ip -batch`, which has the kernel do the same.

use std::fs::File;
use std::io::{Seek, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use adit::engine::penalty::DOWN;
use adit::io::clock::Clock;
use adit::io::netns;
use adit::steer::{Leads, Mode, Picture};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::helm::{BASES, Moved, TAG, via};
use crate::stage::Stage;

/// Which `ip` there is.
pub(crate) fn version() -> Result<String, String> {
    let output = Command::new("ip").arg("-V").output();
    let output = output.map_err(|error| format!("ip cannot be run (Debian package iproute2): {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// One script for each verdict.
pub(crate) struct Scripts {
    files: [File; 2],
    changes: usize,
}

impl Scripts {
    /// The picture is that of the healthy tunnels.
    pub(crate) fn new(stage: &Stage, mode: Mode, picture: Picture) -> Self {
        let lines = |down: bool| match mode {
            Mode::Metric => by_metric(stage, down),
            Mode::Nexthop => by_group(&picture, down),
        };
        let changes = lines(true).len();
        let files = [false, true].map(|down| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all((lines(down).join("\n") + "\n").as_bytes()).unwrap();
            file
        });
        Self { files, changes }
    }

    pub(crate) fn run(&self, stage: &Stage, down: bool) -> Moved {
        let mut file = self.files[usize::from(down)].try_clone().unwrap();
        file.rewind().unwrap();
        let (clock, cpu) = (Clock::start(), cpu());
        let begin = clock.now();
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]).stdin(Stdio::from(file));
        let output = netns::within(Some(&stage.host), || ip.output()).unwrap();
        let last = clock.now().since(begin);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Moved { changes: self.changes, first: Duration::ZERO, last, cpu: self::cpu().saturating_sub(cpu) }
    }
}

/// Each prefix by itself, as a careful script would: the new route, then the old one.
fn by_metric(stage: &Stage, down: bool) -> Vec<String> {
    let (from, to) = if down { (BASES[0], BASES[0] + DOWN) } else { (BASES[0] + DOWN, BASES[0]) };
    let of = |prefix| {
        let route = |verb, metric| format!("route {verb} {prefix} via {} dev t1 metric {metric} proto {TAG}", via(0));
        [route("add", to), route("del", from)]
    };
    stage.prefixes.iter().flat_map(of).collect()
}

fn by_group(picture: &Picture, down: bool) -> Vec<String> {
    let nexthops = picture.nexthops.as_ref().unwrap();
    let leads = |way: usize| {
        let is = |leads: &Leads| matches!(leads, Leads::Hop(_, hop) if hop.via == Some(via(way)));
        nexthops.iter().find(|nexthop| is(&nexthop.leads)).unwrap().id
    };
    let group = nexthops.iter().find(|nexthop| matches!(nexthop.leads, Leads::Group(_))).unwrap().id;
    vec![format!("nexthop replace id {group} group {} proto {TAG}", leads(usize::from(down)))]
}

/// Of all children so far.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let time = |time: TimeVal| {
        Duration::from_secs(time.tv_sec().unsigned_abs()) + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    time(usage.user_time()) + time(usage.system_time())
}
