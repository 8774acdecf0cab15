//! `adit discover` on the kernel's own tunnel devices: what it prints loads as it is, and a daemon that
//! runs with it finds its tunnel healthy.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use adit::config::Config;
use adit::io::netns;
use libtest_mimic::{Failed, Trial};

use crate::kernel_io::trial;
use crate::kinds::{IP6TNL, KINDS, Kind, kind};
use crate::two::{Two, holds_in_time};

pub(crate) fn trials() -> Vec<Trial> {
    let each = KINDS.into_iter().chain([IP6TNL]).filter(|kind| kind.name != "gretap").map(|kind| {
        let name = format!("a_{}_device_is_discovered_and_is_healthy_as_it_is_printed", kind.name);
        trial(kind, name, move || healthy(kind))
    });
    let gre = |name: &str, test: fn() -> Result<(), Failed>| trial(kind("gre"), name.to_owned(), test);
    let others =
        [gre("discover_tells_why_it_leaves_devices_out", left_out), gre("discover_finds_every_way_of_a_route", ways)];
    each.chain(others).collect()
}

const ADIT: &str = env!("CARGO_BIN_EXE_adit");

fn adit(namespace: &File, arguments: &[&str]) -> io::Result<Output> {
    netns::within(Some(namespace), || Command::new(ADIT).args(arguments).output())
}

/// What is printed in the near namespace, in a file of a folder of its own.
struct Printed {
    text: String,
    folder: tempfile::TempDir,
}

impl Printed {
    fn by(two: &Two) -> Result<Self, Failed> {
        let output = adit(&two.near, &["discover"])?;
        let [text, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if output.status.code() != Some(0) || !error.is_empty() {
            return Err(format!("discover: {:?}: {error}\n{text}", output.status).into());
        }
        let printed = Self { text, folder: tempfile::tempdir()? };
        std::fs::write(printed.path("adit.toml"), &printed.text)?;
        let check = adit(&two.near, &["check", "--config", &printed.path("adit.toml").to_string_lossy()])?;
        printed.holds(&format!("loads: {}", String::from_utf8_lossy(&check.stderr)), check.status.success())?;
        Ok(printed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self) -> Result<Config, Failed> {
        Config::load(&self.path("adit.toml")).map_err(|problems| Failed::from(problems.to_string()))
    }

    fn holds(&self, what: &str, holds: bool) -> Result<(), Failed> {
        if holds { Ok(()) } else { Err(format!("not so: {what}\n{}", self.text).into()) }
    }

    fn contains(&self, words: &str) -> Result<(), Failed> {
        // Wherever its lines end.
        let plain = |text: &str| text.split_whitespace().filter(|word| *word != "#").collect::<Vec<_>>().join(" ");
        self.holds(words, plain(&self.text).contains(&plain(words)))
    }

    /// Prefix, tunnel, priority and weight of each route.
    fn routes(&self) -> Result<Vec<String>, Failed> {
        let config = self.config()?;
        let name = |tunnel: u32| config.tunnels.get(tunnel as usize).map_or("", |tunnel| tunnel.name.as_str());
        let routes = config.routes.iter();
        Ok(routes
            .map(|route| format!("{} {} {} {}", route.prefix, name(route.tunnel), route.priority, route.weight))
            .collect())
    }
}

/// A daemon that ends with its trial.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a daemon needs besides on a machine that has no group for it; its paths begin where it is.
const PLACE: &str =
    "[daemon]\nsocket = \"adit.sock\"\nstate_dir = \"state\"\n[defaults.health_check]\nrate = \"high\"\n";

/// Starts the daemon with what was printed.
fn run(two: &Two, printed: &Printed) -> io::Result<Daemon> {
    std::fs::create_dir(printed.path("conf.d"))?;
    std::fs::write(printed.path("conf.d/place.toml"), PLACE)?;
    let log = File::create(printed.path("log"))?;
    let mut command = Command::new(ADIT);
    command.args(["run", "--config"]).arg(printed.path("adit.toml")).stdin(Stdio::null()).stderr(log);
    netns::within(Some(&two.near), || command.spawn()).map(Daemon)
}

fn is_healthy(printed: &Printed, name: &str) -> io::Result<bool> {
    let socket = printed.path("conf.d/adit.sock");
    let status = Command::new(ADIT).arg("--socket").arg(socket).args(["status", name]).output()?;
    Ok(status.status.success())
}

/// Nothing is done at the far end but what any router does that has the device and an address on it.
fn healthy(kind: Kind) -> Result<(), Failed> {
    let two = Two::new()?;
    kind.join(&two)?;
    let families = [
        (false, "ip route add 10.20.0.0/16 dev tun9 metric 70", "10.20.0.0/16 tun9 70 1", "10.9.0.1"),
        (true, "ip -6 route add fd01::/64 dev tun9", "fd01::/64 tun9 1024 1", "fd00:9::1"),
    ];
    let families: Vec<_> = families.into_iter().filter(|(v6, ..)| kind.inner.contains(v6)).collect();
    families.iter().try_for_each(|(_, route, ..)| two.near(route))?;
    let printed = Printed::by(&two)?;
    printed.contains(&format!("# {}", kind.name))?;
    let routes: Vec<&str> = families.iter().map(|&(_, _, route, _)| route).collect();
    printed.holds(&format!("routes {routes:?}"), printed.routes()? == routes)?;
    let far = printed.config()?.tunnels.iter().map(|tunnel| tunnel.onion.inner.far().to_string()).collect::<Vec<_>>();
    let wanted = families.first().map(|&(.., far)| far.to_owned());
    printed.holds(&format!("one tunnel to {wanted:?}"), far.iter().eq(&wanted))?;
    let daemon = run(&two, &printed)?;
    let healthy = holds_in_time(|| Ok(is_healthy(&printed, "tun9")?.then_some(())))?;
    drop(daemon);
    let log = || std::fs::read_to_string(printed.path("log")).unwrap_or_default();
    printed.holds(&format!("healthy: {}", if healthy.is_some() { String::new() } else { log() }), healthy.is_some())
}

/// Devices of which each lacks something.
fn left_out() -> Result<(), Failed> {
    let two = Two::new()?;
    kind("gre").join(&two)?;
    two.near(
        "ip link add low type gre local 192.0.2.1 remote 192.0.2.5
         ip link add any type gre local 192.0.2.1 key 7
         ip link add many type gre local 192.0.2.1 remote 239.0.0.1 key 8
         ip link add loose type ip6gre remote 2001:db8::2
         ip link add each type gre external
         ip link add tap type gretap local 192.0.2.1 remote 192.0.2.6
         ip link add sit9 type sit local 192.0.2.1
         ip link add bare type gre local 192.0.2.1 remote 192.0.2.7
         ip link add wide type gre local 192.0.2.1 remote 192.0.2.8 key 42; ip addr add 10.8.0.1/24 dev wide
         for device in any many loose each tap sit9; do ip addr add 10.7.0.0/31 dev $device; ip link set $device up; done
         ip link set bare up; ip link set wide up; ip route add 10.40.0.0/16 dev wide",
    )?;
    let printed = Printed::by(&two)?;
    for words in [
        "# Left out: low, gre from 192.0.2.1 to 192.0.2.5: it is down",
        "# Left out: any, gre from 192.0.2.1 with key 7: it has no one far end",
        "# Left out: many, gre from 192.0.2.1 to 239.0.0.1 with key 8: it has no one far end",
        "# Left out: loose, ip6gre to 2001:db8::2: it has no one far end",
        "# Left out: each, gre: each packet says by itself where it goes",
        "# Left out: tap, Ethernet tunnel: it carries Ethernet",
        "# Left out: sit9, sit from 192.0.2.1: it has no one far end",
        "# Left out: bare, gre from 192.0.2.1 to 192.0.2.7: it has no address",
        "# Left out: wide, gre from 192.0.2.1 to 192.0.2.8 with key 42: 10.8.0.1/24 does not say",
        "# Left out: the kernel's own, for packets that no other device takes: ",
        " gre0, gretap0, ",
        "sit0",
        "ip6gre0",
        "# So is the route over it.",
    ] {
        printed.contains(words)?;
    }
    printed.holds("one tunnel", printed.config()?.tunnels.len() == 1)?;
    // With a gateway behind it, the far address can be guessed.
    two.near("ip route add 10.50.0.0/16 via 10.8.0.9 dev wide")?;
    let printed = Printed::by(&two)?;
    printed
        .contains("# Guessed: 10.8.0.9 is the gateway of routes over it; the device's own address is 10.8.0.1/24.")?;
    printed.contains("[tunnel.health_check]")
}

/// Routes of all the ways in which the kernel can say where they lead.
fn ways() -> Result<(), Failed> {
    let two = Two::new()?;
    kind("gre").join(&two)?;
    two.near(
        "ip link add tun8 type gre local 192.0.2.1 remote 192.0.2.8; ip addr add 10.8.0.1 peer 10.8.0.9 dev tun8
         ip link set tun8 up
         ip route add 10.20.0.0/16 nexthop dev tun9 weight 3 nexthop via 10.8.0.9 dev tun8
         ip route add 10.30.0.0/16 nexthop dev tun9 nexthop via 192.0.2.2 dev wire
         ip -6 route add fd02::/64 nexthop via fd00:9::1 dev tun9 weight 2 nexthop via fe80::9 dev tun8
         ip route add default dev tun9 metric 4000000000; ip route add default via 192.0.2.2
         ip route add 10.60.0.0/16 dev tun9 tos 0x10; ip route add 10.61.0.0/16 dev tun9 src 10.9.0.0 proto bgp table 61
         ip route add blackhole 10.62.0.0/16
         ip route add 10.63.0.0/16 dev tun9 proto 212 metric 500063; ip route add 10.63.0.0/16 dev tun8 proto 212 metric 90
         ip nexthop add id 9 dev tun9; ip nexthop add id 8 via 10.8.0.9 dev tun8; ip nexthop add id 98 group 9,4/8,2
         ip route add 10.70.0.0/16 nhid 9; ip route add 10.71.0.0/16 nhid 98",
    )?;
    let printed = Printed::by(&two)?;
    let expected = [
        "0.0.0.0/0 tun9 100 1",
        "10.20.0.0/16 tun9 100 3",
        "10.20.0.0/16 tun8 100 1",
        "10.30.0.0/16 tun9 100 1",
        "10.63.0.0/16 tun9 63 1",
        "10.63.0.0/16 tun8 90 1",
        "10.70.0.0/16 tun9 100 1",
        "10.71.0.0/16 tun9 100 4",
        "10.71.0.0/16 tun8 100 2",
        "fd02::/64 tun9 1024 2",
        "fd02::/64 tun8 1024 1",
        "10.61.0.0/16 tun9 100 1",
    ];
    let routes = printed.routes()?;
    printed.holds(&format!("{expected:#?}, not {routes:#?}"), routes == expected)?;
    for words in [
        "# - one over wire, metric 0, protocol boot: it goes through no tunnel above",
        "# - one over tun9, metric 0, protocol boot: it is for packets of one type of service only",
        "# The kernel's proposes the source address 10.9.0.0; adit's would not.",
        "target = \"10.8.0.9\"",
        "table = 61",
        "via = \"fe80::9\"",
    ] {
        printed.contains(words)?;
    }
    let set = |value| two.near(&format!("echo {value} > /proc/sys/net/ipv4/nexthop_compat_mode"));
    set(0)?;
    Printed::by(&two)?.contains("# Not looked at: 2 routes over next-hop objects.")?;
    set(1)?;
    Ok(())
}
