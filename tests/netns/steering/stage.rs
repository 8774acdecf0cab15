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

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use adit::io::{links, netns};
use adit::reflect::plan::Fault;
use adit::reflect::{FarTunnel, Wrap};
use serde_json::Value;

use crate::by_hand::{firewall, no_firewall};
use crate::kit::{ALL, FarEnd, Pair, await_cable, ends, eventually, holds_within, ms, share};
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

    /// Waits until what is there is this again; how long that took, in steps of 10 ms or a little more.
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
        "[daemon]\nsocket = \"adit.sock\"\n[kernel]\napply = true\n{kernel}\n\
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
        name: TUNNELS[path].to_owned(),
        outer: ends([format!("10.100.{path}.1"), format!("10.100.{path}.0")]),
        inner: ends([format!("10.200.{path}.1"), format!("10.200.{path}.0")]),
        wrap: Wrap::Gre(adit::wire::gre::Options::default()),
    }
}

/// Everything with our tag in a namespace.
pub(crate) fn ours_in(namespace: &File) -> Vec<String> {
    let lists = [
        "-4 -N route show table all proto 212",
        "-6 -N route show table all proto 212",
        "-4 -N rule show",
        "-6 -N rule show",
        "-N nexthop show proto 212",
    ];
    let mut lines: Vec<String> = Vec::new();
    for list in lists {
        let text = ip(namespace, list);
        let is_ours = |line: &&str| !list.contains("rule") || line.contains("proto 212");
        let told = |line: &str| format!("{} {}", &list[..2], line.trim_end());
        lines.extend(text.replace("\n\t", " ").lines().filter(is_ours).map(told));
    }
    lines.sort();
    lines
}

/// Everything that is not ours in a namespace, byte for byte.
pub(crate) fn others_in(namespace: &File) -> Vec<String> {
    let lists = ["-4 route show table all", "-6 route show table all", "-4 rule show", "-6 rule show", "nexthop show"];
    let list = |list: &&str| {
        let text = ip(namespace, &format!("-j -N -details {list}"));
        let entries: Vec<Value> =
            if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() };
        entries
            .into_iter()
            .filter(|entry| entry["protocol"] != "212")
            .map(|entry| entry.to_string())
            .collect::<Vec<_>>()
    };
    lists.iter().flat_map(list).collect()
}

/// Runs `ip` in a namespace.
pub(crate) fn try_ip(namespace: &File, arguments: &str) -> Output {
    netns::within(Some(namespace), || Command::new("ip").args(arguments.split(' ')).output()).unwrap()
}

/// The same, and it must do as it is told.
pub(crate) fn ip(namespace: &File, arguments: &str) -> String {
    let output = try_ip(namespace, arguments);
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs many commands of `ip` in a namespace.
pub(crate) fn batch(namespace: &File, lines: &str) {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = netns::within(Some(namespace), || command.spawn()).unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{lines}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A path to a namespace that other processes can open, too.
pub(crate) fn path_of(namespace: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd())
}

/// Makes a router of a new namespace: a namespace may begin as the machine is set, so all is said.
fn prepare(namespace: &File) {
    let settings = [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/all/keep_addr_on_down", "1"),
    ];
    let set = || settings.iter().try_for_each(|(name, value)| fs::write(format!("/proc/sys/net/{name}"), value));
    netns::within(Some(namespace), set).unwrap();
    ip(namespace, "link set lo up");
}

fn lay_cables(near: &File, receiver: &File, sender: &File, fars: &[File; 2]) {
    netns::within(Some(sender), || links::connect("s0", "n0", near)).unwrap();
    set_up(sender, "s0", &["10.1.0.2/24", "fd00:1::2/64"]);
    set_up(near, "n0", &["10.1.0.1/24", "fd00:1::1/64"]);
    batch(sender, "route add default via 10.1.0.1\nroute add default via fd00:1::1\n");
    set_up(receiver, "lo", &["10.20.0.1/32", "2001:db8:20::1/128"]);
    for (path, far) in fars.iter().enumerate() {
        lay_path(near, far, path);
        let (here, there) = (format!("d{path}"), format!("e{path}"));
        netns::within(Some(far), || links::connect(&here, &there, receiver)).unwrap();
        set_up(far, &here, &[&format!("10.30.{path}.1/24"), &format!("fd00:30:{path}::1/64")]);
        set_up(receiver, &there, &[&format!("10.30.{path}.2/24"), &format!("fd00:30:{path}::2/64")]);
        batch(
            far,
            &format!("route add 10.20.0.0/16 via 10.30.{path}.2\nroute add 2001:db8:20::/48 via fd00:30:{path}::2\n"),
        );
        let ends = [
            [format!("10.30.{path}.1"), format!("10.30.{path}.2")],
            [format!("fd00:30:{path}::1"), format!("fd00:30:{path}::2")],
        ];
        ends.iter().for_each(|[here, there]| await_cable([(far, here), (receiver, there)]));
    }
    batch(receiver, "route add default via 10.30.0.1\nroute add default via fd00:30:0::1\n");
}

fn lay_path(near: &File, far: &File, path: usize) {
    let (here, there) = (format!("t{path}"), format!("p{path}"));
    netns::within(Some(near), || links::connect(&here, &there, far)).unwrap();
    set_up(far, &there, &[&format!("10.100.{path}.1/31"), &format!("fd00:100:{path}::b/64")]);
    set_up(near, &here, &[&format!("10.100.{path}.0/31"), &format!("fd00:100:{path}::a/64")]);
    lead_back(far, path);
    let ends = [
        [format!("10.100.{path}.0"), format!("10.100.{path}.1")],
        [format!("fd00:100:{path}::a"), format!("fd00:100:{path}::b")],
    ];
    ends.iter().for_each(|[here, there]| await_cable([(near, here), (far, there)]));
}

/// Shows a far router the way to the sender.
fn lead_back(far: &File, path: usize) {
    batch(far, &format!("route add 10.1.0.0/24 via 10.100.{path}.0\nroute add fd00:1::/64 via fd00:100:{path}::a\n"));
}

pub(crate) fn set_up(namespace: &File, device: &str, addresses: &[&str]) {
    let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    links::configure(Some(namespace), device, &addresses).unwrap();
}
