//! Very many tunnels: the built program beside one far end that cannot be starved, because it is the
//! kernel itself that answers there.
//!
//! The tunnels are those of `encapsulation = "device"` without a device, so their probes are bare ICMP, and
//! a whole prefix is local at the far end. Their checks are the usual ones, but for the rate: nothing here is
//! made patient.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::net::IpAddr;
use std::process::Command;

use adit::io::netns;
use nix::sys::signal::Signal;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::kit::{Pair, address, eventually, holds_within, ms};
use crate::site::{Running, Site};

/// As many as the promises are about.
pub(crate) const MANY: usize = 2_000;

pub(crate) struct Crowd {
    pub(crate) daemon: Running,
    pub(crate) site: Site,
}

impl Crowd {
    /// So many tunnels, all of them healthy, under these settings of `[daemon]`.
    pub(crate) fn healthy(tunnels: usize, settings: &str) -> Self {
        let site = Site { pair: Pair::new(), folder: tempfile::tempdir().unwrap() };
        answer_pings(&site.pair);
        site.write("adit.conf", &configuration(tunnels, settings));
        let daemon = site.daemon();
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
        health(&self.site)
    }

    /// How often this trouble of its own was counted.
    pub(crate) fn faults(&self, name: &str) -> u64 {
        self.health()["local_faults"][name].as_u64().unwrap_or(0)
    }

    /// How many packets were refused.
    pub(crate) fn rejected(&self) -> u64 {
        self.health()["rejected"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
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

    /// That no tunnel has had another state since it became healthy.
    pub(crate) fn assert_calm(&self, tunnels: usize) {
        let health = self.health();
        assert_eq!(health["tunnels"]["healthy"], tunnels, "{health:#}");
        let log = self.site.read("adit.conf.log");
        let moves: Vec<_> =
            log.lines().filter(|line| line.contains(" from=") && !line.contains("from=unknown")).collect();
        assert!(moves.is_empty(), "{} transitions, such as {}", moves.len(), moves[0]);
    }

    /// The program ends as it was asked to.
    pub(crate) fn end(self) {
        self.daemon.send(Signal::SIGTERM);
        assert!(self.daemon.end().success());
    }
}

/// What a daemon says of itself.
pub(crate) fn health(site: &Site) -> Value {
    serde_json::from_str(&site.http("GET", "/v1/healthz").2).unwrap()
}

/// So many different identifiers of echo requests that come to the far end for an address.
pub(crate) fn identifiers(pair: &Pair, target: &str, count: usize) -> BTreeSet<u16> {
    let IpAddr::V4(target) = address(target) else { panic!("an IPv4 address") };
    let mut found = BTreeSet::new();
    hear(pair, |probe| {
        if probe[16..20] == target.octets() {
            found.insert(u16::from_be_bytes([probe[24], probe[25]]));
        }
        found.len() >= count
    });
    found
}

/// What marks the probes of a run, as somebody on the path sees it.
pub(crate) fn epoch(pair: &Pair) -> [u8; 8] {
    let mut epoch = [0; 8];
    hear(pair, |probe| {
        let is_ours = probe.get(28..32) == Some(b"adit");
        if is_ours {
            epoch.copy_from_slice(&probe[44..52]);
        }
        is_ours
    });
    epoch
}

/// Hears what is asked of the far side without a tunnel around, until that is enough.
fn hear(pair: &Pair, mut is_enough: impl FnMut(&[u8]) -> bool) {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4));
    let socket = netns::within(Some(&pair.far), open).unwrap();
    socket.set_read_timeout(Some(ms(50))).unwrap();
    eventually("probes", || {
        let mut bytes = [0; 2_048];
        let read = (&socket).read(&mut bytes).unwrap_or(0);
        read > 28 && bytes[20] == 8 && is_enough(&bytes[..read])
    });
}

/// What a shell says in a namespace.
pub(crate) fn shell(namespace: &File, script: &str) -> String {
    let output = netns::within(Some(namespace), || Command::new("sh").args(["-c", script]).output()).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
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
        "[daemon]\nsocket = \"adit.sock\"\nstate_dir = \"state\"\n{settings}\n\
         [defaults.health_check]\nrate = \"high\"\ntype = \"request\"\n{tunnels}"
    )
}
