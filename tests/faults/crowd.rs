//! Very many tunnels: the built program beside one far end that cannot be starved, because it is the
//! kernel itself that answers there.
//!
//! The tunnels are those of `encapsulation = "device"` without a device, so their probes are bare ICMP, and
//! a whole prefix is local at the far end. Their checks are the usual ones, but for the rate: nothing here is
//! made patient.

use std::fs;

use adit::io::netns;
use serde_json::Value;

use crate::kit::{Pair, eventually, holds_within};
use crate::process::Daemon;
use crate::site::{Running, Site};

/// As many as the promises are about.
pub(crate) const MANY: usize = 2_000;

pub(crate) struct Crowd {
    pub(crate) daemon: Daemon,
    pub(crate) site: Site,
}

impl Crowd {
    /// So many tunnels, all of them healthy, under these settings of `[daemon]`.
    pub(crate) fn healthy(tunnels: usize, settings: &str) -> Self {
        let site = Site { pair: Pair::new(), folder: tempfile::tempdir().unwrap() };
        answer_pings(&site.pair);
        site.write("adit.conf", &configuration(tunnels, settings));
        let daemon = Daemon::of(site.daemon());
        let crowd = Self { daemon, site };
        let last = &mut Value::Null;
        let all = holds_within(crate::kit::PATIENCE, &mut || {
            *last = crowd.health();
            last["tunnels"]["healthy"] == tunnels
        });
        assert!(all, "{last:#}: {}", crowd.site.read("adit.conf.log"));
        crowd
    }

    /// What the daemon says of itself.
    pub(crate) fn health(&self) -> Value {
        serde_json::from_str(&self.site.http("GET", "/v1/healthz").2).unwrap()
    }

    /// How often this trouble of its own was counted.
    pub(crate) fn faults(&self, name: &str) -> u64 {
        self.health()["local_faults"][name].as_u64().unwrap_or(0)
    }

    /// A counter of all tunnels together.
    pub(crate) fn sum(&self, counter: &str) -> u64 {
        let all: Value = serde_json::from_str(&self.site.http("GET", "/v1/tunnels").2).unwrap();
        all["tunnels"].as_array().unwrap().iter().map(|view| view["counters"][counter].as_u64().unwrap()).sum()
    }

    /// Waits until each tunnel has been probed about so often again, and answered.
    pub(crate) fn await_rounds(&self, rounds: u64) {
        let tunnels = self.health()["tunnels"]["healthy"].as_u64().unwrap();
        let wanted = self.sum("received") + rounds * tunnels;
        eventually("more answers", || self.sum("received") >= wanted);
    }

    /// That no tunnel has had another state than healthy since the start.
    pub(crate) fn assert_calm(&self, tunnels: usize) {
        let health = self.health();
        assert_eq!(health["tunnels"]["healthy"], tunnels, "{health:#}");
        let log = self.site.read("adit.conf.log");
        let moves: Vec<_> = log.lines().filter(|line| line.contains("healthy -> ")).collect();
        assert!(moves.is_empty(), "{} transitions, such as {}", moves.len(), moves[0]);
    }

    /// The near side's program ends as it was asked to.
    pub(crate) fn end(self) {
        assert!(self.daemon.end().success());
    }
}

/// Has the kernel at the far end answer for every target, and shows the near one the way.
fn answer_pings(pair: &Pair) {
    // An ordinary kernel answers no more than this many in a second, and none to bursts.
    let unlimited = || fs::write("/proc/sys/net/ipv4/icmp_msgs_per_sec", "1000000");
    netns::within(Some(&pair.far), unlimited).unwrap();
    crate::steering::net::ip(&pair.far, "route add local 10.50.0.0/16 dev lo");
    crate::steering::net::ip(&pair.near, "route add 10.50.0.0/16 via 192.0.2.11");
}

fn configuration(tunnels: usize, settings: &str) -> String {
    let tunnel = |number: usize| {
        format!(
            "[[tunnel]]\nname = \"t{number}\"\nencapsulation = \"device\"\ninterface_address = \"192.0.2.1/30\"\n\
             [tunnel.health_check]\ntarget = \"10.50.{}.{}\"\n",
            number / 250,
            number % 250 + 1
        )
    };
    let tunnels: String = (0..tunnels).map(tunnel).collect();
    format!(
        "[daemon]\nsocket = \"adit.sock\"\n{settings}\n\
         [defaults.health_check]\nrate = \"high\"\ntype = \"request\"\n{tunnels}"
    )
}
