//! The stage: traffic that is forwarded over two paths, and the built program that steers it.
//!
//! ```text
//!                         near            path 0: t0 ══ p0  far 0  d0 ── e0
//!  sender  s0 ── n0  the program run  ══╡                                    ╞══  receiver
//!                                         path 1: t1 ══ p1  far 1  d1 ── e1
//!  10.1.0.2          10.1.0.1         10.100.N.0   10.100.N.1          10.20.0.1
//!  fd00:1::2         fd00:1::1        fd00:100:N::a  …::b              2001:db8:20::1
//! ```
//!
//! Each far router has a reflector of its own; so a path can be made to look sick (the reflector
//! loses answers, traffic goes on), and it can be made to be dead (the far router drops everything).

#![allow(dead_code, reason = "each target of trials uses its part of it")]

use std::fs::File;
use std::time::Duration;

use adit::io::netns;
use adit::reflect::plan::Fault;
use adit::reflect::{FarTunnel, Wrap};
use serde_json::Value;

use super::net::{ip, lay_cables, lay_path, lead_back, ours_in, prepare};
use crate::by_hand::{firewall, no_firewall};
use crate::kit::{ALL, FarEnd, Pair, ends, eventually, holds_within, ms, share};
use crate::site::{Running, Site};

pub(crate) const MODES: [&str; 2] = ["metric", "nexthop"];
/// Where the receiver is, by family.
pub(crate) const PREFIXES: [&str; 2] = ["10.20.0.0/16", "2001:db8:20::/48"];
/// One tunnel a path; the first is preferred.
pub(crate) const TUNNELS: [&str; 2] = ["one", "two"];
/// A second is meant to be enough for any repair, and this machine may be very busy. All the same it is far
/// below the 30 s after which everything is looked at anyway.
pub(crate) const SOON: Duration = ms(5_000);

pub(crate) struct Stage {
    reflectors: [FarEnd; 2],
    /// Its pair is the near router and the receiver.
    pub(crate) site: Site,
    pub(crate) sender: File,
    pub(crate) fars: [File; 2],
}

impl Stage {
    /// Everything but the program: its `[kernel]` says this, besides that it applies.
    pub(crate) fn new(kernel: &str) -> Self {
        let [near, receiver, sender] = [(); 3].map(|()| netns::make().unwrap());
        let fars = [(); 2].map(|()| netns::make().unwrap());
        let all = [&near, &receiver, &sender, &fars[0], &fars[1]];
        all.iter().for_each(|namespace| prepare(namespace));
        lay_cables(&near, &receiver, &sender, &fars);
        let reflectors = [0, 1].map(|path| FarEnd::with(&fars[path], vec![far_tunnel(path)], None));
        let site = Site { pair: Pair { near, far: receiver }, folder: tempfile::tempdir().unwrap() };
        let stage = Self { reflectors, site, sender, fars };
        stage.configure(kernel, &stage.usual_routes());
        stage
    }

    pub(crate) const fn near(&self) -> &File {
        &self.site.pair.near
    }

    pub(crate) const fn receiver(&self) -> &File {
        &self.site.pair.far
    }

    /// Both prefixes over both paths, the first preferred.
    pub(crate) fn usual_routes(&self) -> String {
        PREFIXES.iter().flat_map(|prefix| [route(prefix, 0, 100, ""), route(prefix, 1, 200, "")]).collect()
    }

    /// Writes the configuration: what `[kernel]` says besides that it applies, and what there is beside
    /// the tunnels.
    pub(crate) fn configure(&self, kernel: &str, more: &str) {
        let tunnels: String = [0, 1].map(|path| tunnel(path, "")).concat();
        self.site.write("adit.conf", &configuration(kernel, &format!("{tunnels}{more}")));
    }

    /// Tunnels that wait long for an answer: none is called sick because the machine is busy.
    pub(crate) fn make_patient(&self) {
        let text = self.site.read("adit.conf").replace("\"400ms\"", "\"5s\"").replace("\"900ms\"", "\"12s\"");
        self.site.write("adit.conf", &text.replace("degraded_window = \"4s\"\n", ""));
    }

    /// The program, with every tunnel healthy and every route as it should be.
    pub(crate) fn healthy(&self) -> Running {
        let daemon = self.site.daemon();
        self.await_health();
        daemon
    }

    pub(crate) fn await_health(&self) {
        TUNNELS.iter().for_each(|name| self.site.await_state(name, "healthy"));
        self.await_all_installed();
        // The kernel's metrics follow the verdicts.
        let is_penalised = |line: &String| [" metric 500", " metric 1000"].iter().any(|metric| line.contains(metric));
        eventually("no penalised route", || !self.ours().iter().any(is_penalised));
    }

    pub(crate) fn await_all_installed(&self) {
        let mut last = Vec::new();
        let installed = holds_within(crate::kit::PATIENCE, &mut || {
            last = self.routes();
            !last.is_empty() && last.iter().all(|route| route["kernel"] == "installed")
        });
        assert!(installed, "{last:#?}");
    }

    pub(crate) fn routes(&self) -> Vec<Value> {
        self.site.json(&["routes", "--json"])["routes"].as_array().unwrap().clone()
    }

    /// What the kernel makes of a route, in a word, and why.
    pub(crate) fn standing(&self, prefix: &str, path: usize) -> (String, String) {
        let routes = self.routes();
        let route = routes.iter().find(|route| route["prefix"] == prefix && route["tunnel"] == TUNNELS[path]).unwrap();
        let text = |name: &str| route[name].as_str().unwrap_or_default().to_owned();
        (text("kernel"), text("kernel_reason"))
    }

    /// Waits until the kernel makes this of a route, for a reason that has these words.
    pub(crate) fn await_standing(&self, prefix: &str, path: usize, word: &str, reason: &str) {
        let mut last = Default::default();
        let found = holds_within(SOON, &mut || {
            last = self.standing(prefix, path);
            last.0 == word && last.1.contains(reason)
        });
        assert!(found, "{prefix} over path {path} is {last:?}, not {word}: {reason}; {:#?}", self.ours());
    }

    /// Everything of the program's in the near router, as `ip` shows it, in an order of its own.
    pub(crate) fn ours(&self) -> Vec<String> {
        ours_in(self.near())
    }

    /// Waits until what is there is this again.
    pub(crate) fn await_ours(&self, wanted: &[String], after: &str) {
        let mut last = Vec::new();
        let found = holds_within(SOON, &mut || {
            last = self.ours();
            last == wanted
        });
        assert!(found, "not repaired in {SOON:?} after {after}: {last:#?}, not {wanted:#?}");
    }

    pub(crate) fn ip(&self, arguments: &str) -> String {
        ip(self.near(), arguments)
    }

    /// The events of one kind.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let lines = self.site.say(&["events", "--json"]);
        let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["kind"] == kind).collect()
    }

    /// Waits until an event of a kind has these words.
    pub(crate) fn await_event(&self, kind: &str, words: &[&str]) {
        eventually(&format!("an event {kind} with {words:?}"), || {
            let has = |event: &Value| words.iter().all(|words| event.to_string().contains(words));
            self.events(kind).iter().any(has)
        });
    }

    /// The reflector of a path loses such a share of the answers; traffic goes on.
    pub(crate) fn lose(&self, path: usize, share: adit::engine::health::Ratio) {
        self.reflectors[path].suffer(vec![Fault { drop: share, ..Fault::default() }]);
    }

    pub(crate) fn lose_all(&self, path: usize) {
        self.lose(path, share(ALL));
    }

    /// The reflector of a path answers so much later.
    pub(crate) fn delay(&self, path: usize, delay: Duration) {
        self.reflectors[path].suffer(vec![Fault { delay, ..Fault::default() }]);
    }

    pub(crate) fn heal(&self, path: usize) {
        self.reflectors[path].heal();
    }

    /// A far router drops all that comes by its path: probes and traffic alike.
    pub(crate) fn kill_path(&self, path: usize) {
        firewall(&self.fars[path], "prerouting", &format!("iifname p{path} drop"));
    }

    pub(crate) fn revive_path(&self, path: usize) {
        no_firewall(&self.fars[path]);
    }

    /// Pulls the cable of a path: near's device stays up, without a carrier.
    pub(crate) fn unplug(&self, path: usize) {
        ip(&self.fars[path], &format!("link set p{path} down"));
    }

    pub(crate) fn plug(&self, path: usize) {
        ip(&self.fars[path], &format!("link set p{path} up"));
        lead_back(&self.fars[path], path);
    }

    /// Lays a cable between near and a far router anew.
    pub(crate) fn lay_path(&self, path: usize) {
        lay_path(self.near(), &self.fars[path], path);
    }
}

/// A configuration with these tunnels and routes; it speaks the dialect of [`Site`].
pub(crate) fn configuration(kernel: &str, more: &str) -> String {
    format!(
        "[daemon]\nsocket = \"adit.sock\"\nstate_dir = \"state\"\n[kernel]\napply = true\n{kernel}\n\
         [defaults.health_check]\ninterval = \"100ms\"\ntimeout = \"400ms\"\ndown_window = \"900ms\"\n\
         [defaults.health_check.rules]\ndegraded_window = \"4s\"\nrecovery_samples = 10\n{more}"
    )
}

/// The tunnel of a path, with more keys.
pub(crate) fn tunnel(path: usize, more: &str) -> String {
    format!(
        "[[tunnel]]\nname = \"{}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"10.100.{path}.0\"\n\
         remote_endpoint = \"10.100.{path}.1\"\ninterface_address = \"10.200.{path}.0/31\"\n{more}\n",
        TUNNELS[path]
    )
}

/// A route over a path, with more keys.
pub(crate) fn route(prefix: &str, path: usize, priority: u32, more: &str) -> String {
    let via = gateway(prefix, path);
    format!(
        "[[route]]\nprefix = \"{prefix}\"\ntunnel = \"{}\"\npriority = {priority}\ndevice = \"t{path}\"\n\
         via = \"{via}\"\n{more}\n",
        TUNNELS[path]
    )
}

/// The far router of a path, of the family of a prefix.
pub(crate) fn gateway(prefix: &str, path: usize) -> String {
    if prefix.contains(':') { format!("fd00:100:{path}::b") } else { format!("10.100.{path}.1") }
}

fn far_tunnel(path: usize) -> FarTunnel {
    let ends = |[far, near]: [String; 2]| ends([&far, &near]);
    FarTunnel {
        further: Vec::new(),
        name: TUNNELS[path].to_owned(),
        outer: ends([format!("10.100.{path}.1"), format!("10.100.{path}.0")]),
        inner: ends([format!("10.200.{path}.1"), format!("10.200.{path}.0")]),
        wrap: Wrap::Gre(adit::wire::gre::Options::default()),
    }
}
