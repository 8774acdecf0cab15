//! Steering over the kernel's own tunnel devices: users' traffic goes through two of them to a far Linux
//! router, and moves when one is sick.
//!
//! ```text
//!  users               near: adit                            far
//!  ┌──────────────┐   ┌────────────────────────┐   ┌────────────────────┐
//!  │ 10.0.0.1, .2 ├───┤ forwards     tun1, tun2├═══┤tun1, tun2 10.20.0.1│
//!  │ fd00::1      │   │                        │   │           fd00:20::1│
//!  └──────────────┘   └────────────────────────┘   └────────────────────┘
//! ```

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use adit::config::Config;
use adit::daemon::plan::Plan;
use adit::engine::{Standing, State};
use adit::io::netns;
use libtest_mimic::{Failed, Trial};

use crate::kernel_io::trial;
use crate::kinds::{kind, xfrm};
use crate::router::{Lab, Net, output, run};
use crate::stream::Stream;
use crate::two::Two;

const SOON: Duration = Duration::from_secs(20);
/// How long the death of a tunnel may go unnoticed: the time that the checks have to fail in, the
/// time-out, an interval; and as much again, since the guest is slow.
const DETECTION: Duration = Duration::from_millis(2 * (450 + 250 + 300));
/// In which what was taken away from the kernel is to be back: a second; and as much again.
const REPAIR: Duration = Duration::from_secs(2);
/// Where users go.
const TARGETS: [&str; 2] = ["10.20.0.1", "fd00:20::1"];

pub(crate) fn trials() -> Vec<Trial> {
    let whole = |mode| {
        let name = format!("users'_packets_leave_a_sick_gre_device_and_come_back_in_{mode}_mode");
        trial(kind("gre"), name, move || all_that_befalls(mode))
    };
    let brief = |name, mode| {
        let sentence = format!("users'_packets_leave_a_dead_{name}_device_and_come_back_in_{mode}_mode");
        trial(kind(name), sentence, move || {
            let mut stage = Stage::new(name, mode)?;
            stage.begin()?;
            stage.dies()
        })
    };
    vec![whole("metric"), whole("nexthop"), brief("ip6gre", "nexthop"), brief("vti", "metric"), brief("xfrm", "metric")]
}

fn all_that_befalls(mode: &'static str) -> Result<(), Failed> {
    let mut stage = Stage::new("gre", mode)?;
    stage.begin()?;
    stage.degrades()?;
    stage.dies()?;
    stage.is_deleted(mode)
}

struct Stage {
    lab: Lab,
    kind: &'static str,
    /// One in each family, and one that a rule sends into another table.
    streams: Vec<Stream>,
    ruled: Stream,
    _users: File,
}

impl Stage {
    fn new(kind: &'static str, mode: &str) -> Result<Self, Failed> {
        let (two, users) = (Two::new()?, netns::make()?);
        join(&two, &users)?;
        (1..=2).try_for_each(|number| tunnel(&two, kind, number))?;
        let text = configuration(kind, mode);
        let config = Config::parse("lab.toml", &text).map_err(|problems| Failed::from(problems.to_string()))?;
        let mut plan = Plan::new(config);
        // What one trial knows is nothing to another.
        plan.state_dir = None;
        plan.access = None;
        let labels = ["the first", "the second"].map(|which| format!("{which} {kind} device")).to_vec();
        let lab = Lab::start(Net { near: two.near, far: two.far }, labels, plan)?;
        lab.until(SOON, "judged", |view| view.state != State::Unknown)?;
        let start = |source: &str, family: usize, port| {
            let (source, to): (IpAddr, _) = (ip(source), SocketAddr::new(ip(TARGETS[family]), port));
            Stream::start((&users, source), (&lab.net.far, to), ["tun1", "tun2"])
        };
        installed(&lab)?;
        let streams = vec![start("10.0.0.1", 0, 4_000)?, start("fd00::1", 1, 4_000)?];
        let ruled = start("10.0.0.2", 0, 4_001)?;
        Ok(Self { lab, kind, streams, ruled, _users: users })
    }

    fn near(&self, script: &str) -> Result<String, Failed> {
        Ok(netns::within(Some(&self.lab.net.near), || output(script))?)
    }

    fn marks(&self) -> Vec<u64> {
        self.streams.iter().map(Stream::now).collect()
    }

    /// All streams have come to take the first device again, and have lost nothing since these marks.
    fn comes_back_whole(&mut self, marks: &[u64]) -> Result<(), Failed> {
        for (stream, mark) in self.streams.iter_mut().zip(marks) {
            stream.comes_by(0, SOON)?;
            let now = stream.now();
            stream.is_whole(*mark..now)?;
        }
        installed(&self.lab)
    }

    fn begin(&mut self) -> Result<(), Failed> {
        self.streams.iter_mut().try_for_each(|stream| stream.comes_by(0, SOON).map(drop))?;
        // It has the same destination, but another source.
        self.ruled.comes_by(1, SOON)?;
        let rules = self.near("ip rule show; ip -6 rule show")?;
        let ours = rules.lines().filter(|line| line.contains("212")).count();
        if ours == 1 { Ok(()) } else { Err(format!("not one rule of ours: {rules}").into()) }
    }

    /// The first tunnel loses some of what it is given.
    fn degrades(&mut self) -> Result<(), Failed> {
        self.near("tc qdisc add dev tun1 root netem loss 20% limit 100000")?;
        for stream in &mut self.streams {
            let first = stream.comes_by(1, SOON)?;
            let now = stream.now();
            stream.is_whole(first..now)?;
        }
        self.near("tc qdisc del dev tun1 root")?;
        let marks = self.marks();
        self.comes_back_whole(&marks)
    }

    /// Nothing gets to the far endpoint of the first tunnel any more, and then it does again.
    fn dies(&mut self) -> Result<(), Failed> {
        let marks = self.marks();
        self.lab.router(&cut(self.kind))?;
        for (stream, mark) in self.streams.iter_mut().zip(&marks) {
            let first = stream.comes_by(1, SOON)?;
            stream.lacks_at_most(*mark..first, DETECTION)?;
            let now = stream.now();
            stream.is_whole(first..now)?;
        }
        let marks = self.marks();
        self.lab.router("tc qdisc del dev wire ingress")?;
        self.comes_back_whole(&marks)?;
        let now = self.ruled.now();
        self.ruled.is_whole(0..now)
    }

    /// The first device itself is deleted and made again.
    fn is_deleted(&mut self, mode: &str) -> Result<(), Failed> {
        let marks = self.marks();
        self.near("ip link del tun1")?;
        // The kernel takes away the routes over it, and there are others below; but of a group that has
        // lost its only way it also takes away the routes.
        let bound = if mode == "metric" { Duration::from_millis(100) } else { REPAIR };
        for (stream, mark) in self.streams.iter_mut().zip(&marks) {
            let first = stream.comes_by(1, SOON)?;
            stream.lacks_at_most(*mark..first, bound)?;
        }
        let marks = self.marks();
        self.near(&device(self.kind, 1, true))?;
        self.comes_back_whole(&marks)
    }
}

/// Every route is in the kernel.
fn installed(lab: &Lab) -> Result<(), Failed> {
    let missing = || {
        lab.ask(|engine, _| {
            let routes = engine.routes();
            let standings = routes.iter().map(|(index, ..)| routes.standing(index).clone());
            standings.filter(|standing| !matches!(standing, Standing::Installed(_))).collect::<Vec<_>>()
        })
    };
    let known = crate::two::holds_in_time(|| Ok(missing().is_empty().then_some(())))?;
    known.ok_or_else(|| format!("not all routes are in the kernel: {:?}", missing()).into())
}

/// Connects the users, and gives them somewhere to go.
fn join(two: &Two, users: &File) -> Result<(), Failed> {
    let peer = format!("/proc/{}/fd/{}", std::process::id(), users.as_raw_fd());
    two.near(&format!(
        "ip link add in type veth peer name out netns {peer}
         ip addr add 10.0.0.6/29 dev in; ip addr add fd00::6/64 dev in nodad; ip link set in up
         echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"
    ))?;
    netns::within(Some(users), || {
        run("ip link set out up; ip addr add 10.0.0.1/29 dev out; ip addr add 10.0.0.2/29 dev out
             ip addr add fd00::1/64 dev out nodad
             ip route add default via 10.0.0.6; ip -6 route add default via fd00::6
             for to in 10.0.0.6 fd00::6; do
               for n in $(seq 20); do ping -c 1 -W 1 $to >/dev/null && continue 2; done; exit 1
             done")
    })?;
    two.far(&format!("ip addr add {}/32 dev lo; ip addr add {}/128 dev lo nodad", TARGETS[0], TARGETS[1]))?;
    Ok(())
}

/// The far endpoint of a tunnel.
fn endpoint(kind: &str, number: usize) -> String {
    if kind.contains('6') { format!("2001:db8::{}", number + 10) } else { format!("192.0.2.{}", number + 10) }
}

/// What drops packets to the far endpoint of the first tunnel. Its address stays: while Linux takes an IPv6
/// address away, it can miss those beside it, and packets of the other tunnel are lost.
fn cut(kind: &str) -> String {
    let (end, protocol) = (endpoint(kind, 1), if kind.contains('6') { "ipv6" } else { "ip" });
    format!(
        "tc qdisc add dev wire ingress
         tc filter add dev wire ingress protocol {protocol} flower dst_ip {end} action drop"
    )
}

/// Makes a tunnel at both ends.
fn tunnel(two: &Two, kind: &str, number: usize) -> Result<(), Failed> {
    let end = endpoint(kind, number);
    let length = if kind.contains('6') { "64 dev wire nodad" } else { "24 dev wire" };
    two.near(&device(kind, number, true))?;
    two.far(&format!("ip addr add {end}/{length}\n{}", device(kind, number, false)))?;
    if let Some(selector) = selector(kind, number) {
        two.near(&xfrm("192.0.2.1", &end, &selector, 0x1000 + number))?;
        two.far(&xfrm(&end, "192.0.2.1", &selector, 0x1000 + number))?;
    }
    Ok(())
}

/// Which security associations and policies are a tunnel's.
fn selector(kind: &str, number: usize) -> Option<String> {
    match kind {
        "vti" => Some(format!("mark {number}")),
        "xfrm" => Some(format!("if_id {number}")),
        _ => None,
    }
}

/// Makes a tunnel's device at one end, as an operator would.
fn device(kind: &str, number: usize, near: bool) -> String {
    let near_end = if kind.contains('6') { "2001:db8::1" } else { "192.0.2.1" };
    let (end, last) = (endpoint(kind, number), usize::from(!near));
    let ends = if near { [near_end, &end] } else { [&end, near_end] }.join(" remote ");
    let link = match kind {
        "gre" => format!("type gre local {ends} ttl 64"),
        "ip6gre" => format!("type ip6gre local {ends} encaplimit none"),
        "vti" => format!("type vti local {ends} key {number}"),
        _ => format!("type xfrm dev wire if_id {number}"),
    };
    // Under such streams the guest's Linux 6.1.192 hung in the softirq that polls a tunnel's GRO cells.
    // Packets of a device without GRO do not go through them.
    format!(
        "ip link add tun{number} {link}; ethtool -K tun{number} gro off
         echo 0 > /proc/sys/net/ipv4/conf/tun{number}/rp_filter
         ip addr add 10.9.{number}.{last}/31 dev tun{number}
         ip addr add fd00:9:{number}::{last}/127 dev tun{number} nodad; ip link set tun{number} up"
    )
}

/// adit's: two tunnels, routes by device alone, and for one user's packets a table of their own.
fn configuration(kind: &str, mode: &str) -> String {
    let near_end = if kind.contains('6') { "2001:db8::1" } else { "192.0.2.1" };
    let mut text = format!(
        "[kernel]\napply = true\nmode = {mode:?}\n\
         [defaults.health_check]\ninterval = \"300ms\"\ntimeout = \"250ms\"\ndown_window = \"450ms\"\n\
         [defaults.health_check.rules]\ndegraded_window = \"2s\"\nup_samples = 1\nrecovery_samples = 3\n\
         [[rule]]\nsource = \"10.0.0.2/32\"\ntable = 100\npriority = 1000\n"
    );
    for number in 1..=2 {
        text += &format!(
            "[[tunnel]]\nname = \"t{number}\"\nencapsulation = \"device\"\ndevice = \"tun{number}\"\n\
             local_endpoint = {near_end:?}\nremote_endpoint = {:?}\ninterface_address = \"10.9.{number}.0/31\"\n",
            endpoint(kind, number)
        );
    }
    let ways = [("10.20.0.0/16", [1, 2], 254), ("fd00:20::/64", [1, 2], 254), ("10.20.0.0/16", [2, 1], 100)];
    for (prefix, tunnels, table) in ways {
        for (place, number) in tunnels.into_iter().enumerate() {
            text += &format!(
                "[[route]]\nprefix = {prefix:?}\ntunnel = \"t{number}\"\ndevice = \"tun{number}\"\n\
                 table = {table}\npriority = {}\n",
                100 * (place + 1)
            );
        }
    }
    text
}

fn ip(text: &str) -> IpAddr {
    crate::router::address(text)
}
