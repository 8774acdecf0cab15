//! A far router that is a real kernel, set wrong in one thing after the other, and diagnosed.

use std::fs::File;
use std::time::{Duration, Instant};

use adit::config::Config;
use adit::daemon::plan::Plan;
use adit::engine::State;
use adit::engine::diagnose::conclude::Culprit;
use adit::engine::diagnose::{Diagnosis, Progress};
use adit::io::netns;
use libtest_mimic::{Failed, Trial};

use crate::ipsec::{Case, Ipsec, Pace, Wrong, plain, policy};
use crate::router::{Lab, Net, STYLES, Setting, run};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a_diagnosis_finds_what_a_gre_router_is_set_wrong_in", gre_router),
        Trial::test("a_diagnosis_finds_what_is_wrong_with_gre_itself", gre_itself),
        Trial::test("a_diagnosis_finds_what_is_wrong_with_ipsec", ipsec),
        Trial::test("a_diagnosis_sees_through_a_device_of_the_kernel_s", device),
    ]
}

const REQUEST: usize = 0;
const REPLY: usize = 1;
const REQUEST_BARE: usize = 2;
const REPLY_BARE: usize = 3;

/// A setting, and in which tunnels what is concluded of it.
type Row<'a> = (&'a str, Setting, &'a [(usize, Culprit)]);

impl Lab {
    /// Diagnoses the tunnel of this place.
    #[expect(clippy::disallowed_methods, reason = "real packets take real time")]
    fn diagnose(&self, place: usize) -> Result<Diagnosis, Failed> {
        let tunnel = u32::try_from(place)?;
        let begun = self.ask(move |engine, now| engine.begin_diagnosis(now, tunnel));
        let number = begun.map_err(|why| Failed::from(format!("not begun: {why:?}")))?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(60) {
            match self.ask(move |engine, _| engine.take_diagnosis(number)) {
                Progress::UnderWay => std::thread::sleep(Duration::from_millis(100)),
                Progress::Done(diagnosis) => return Ok(*diagnosis),
                Progress::Gone => break,
            }
        }
        Err("a diagnosis that does not end".into())
    }

    fn concludes(&self, place: usize, culprit: Culprit) -> Result<Diagnosis, Failed> {
        let it = self.diagnose(place)?;
        if it.conclusion.culprit == culprit { Ok(it) } else { Err(format!("not {culprit:?}: {it:#?}").into()) }
    }

    /// Makes one setting after the other wrong, and right again: each is found in these tunnels.
    fn finds(&self, table: &[Row<'_>]) -> Result<(), Failed> {
        for (name, setting, found) in table {
            self.router(&setting.wrong)?;
            for &(place, culprit) in *found {
                let result = self.concludes(place, culprit);
                result.map_err(|failed| Failed::from(format!("{name}: {}", failed.message().unwrap_or_default())))?;
            }
            self.router(&setting.right)?;
            self.restore_after_link_up()?;
        }
        Ok(())
    }
}

/// A firewall of the router's that drops what connection tracking calls invalid: by nft, or where the kernel
/// has none, by iptables.
fn drops_invalid(chain: &str) -> Setting {
    let hook = chain.to_lowercase();
    let nft = format!(
        "nft add table inet lab && nft 'add chain inet lab it {{ type filter hook {hook} priority 0; }}' && nft add rule inet \
         lab it ct state invalid drop"
    );
    let iptables = format!("iptables-legacy -A {chain} -m conntrack --ctstate INVALID -j DROP");
    Setting {
        wrong: format!("({nft}) 2>/dev/null || {iptables}"),
        right: format!("nft delete table inet lab 2>/dev/null || iptables-legacy -F {chain}"),
    }
}

/// Whether this kernel, and what is installed, can do that.
fn has_connection_tracking(net: &Net) -> bool {
    let Setting { wrong, right } = drops_invalid("FORWARD");
    net.router(&wrong).is_ok() && net.router(&right).is_ok()
}

/// Four GRE tunnels, one of each style. Those whose answers come bare have addresses inside, too.
fn gre(key: &str) -> Result<Lab, Failed> {
    let tunnel = |number: usize| {
        let kind = if number % 2 == 1 { "request" } else { "reply" };
        let direction = if number > 2 { "unidirectional" } else { "bidirectional" };
        format!(
            "[[tunnel]]\nname = \"t{number}\"\nlocal_endpoint = \"192.0.2.1\"\n\
             remote_endpoint = \"198.51.100.{number}\"\ninterface_address = \"10.10.{number}.0/31\"\n\
             [tunnel.health_check]\ntype = \"{kind}\"\ndirection = \"{direction}\"\ninterval = \"300ms\"\n\
             timeout = \"2s\"\ndown_window = \"4s\"\n{key}"
        )
    };
    let text: String = (1..=STYLES.len()).map(tunnel).collect();
    let config = Config::parse("lab.toml", &text).map_err(|problems| Failed::from(problems.to_string()))?;
    let plan = Plan { state_dir: None, access: None, ..Plan::new(config) };
    let device = |number: usize| {
        format!(
            "ip addr add 198.51.100.{number}/32 dev wan\n\
             ip tunnel add t{number} mode gre local 198.51.100.{number} remote 192.0.2.1 ttl 64\n\
             ip link set t{number} up\nip addr add 10.10.{number}.1/31 dev t{number}\n\
             echo 1 > /proc/sys/net/ipv4/conf/t{number}/accept_local\n\
             echo 0 > /proc/sys/net/ipv4/conf/t{number}/rp_filter\n"
        )
    };
    let script: String = (1..=STYLES.len()).map(device).collect();
    Lab::start(Net::new(&script)?, STYLES.iter().map(|style| format!("{style:?}")).collect(), plan)
}

fn gre_router() -> Result<(), Failed> {
    use Culprit::{AcceptLocal, EchoFilter, Forwarding, None, ReplyFilter, ReturnPath, ReversePath};
    let lab = gre("")?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    (0..STYLES.len()).try_for_each(|place| lab.concludes(place, None).map(drop))?;
    lab.finds(&[
        (
            "accept_local=0",
            Setting::device("t*", "accept_local", 0, 1),
            &[(REQUEST, None), (REPLY, AcceptLocal), (REPLY_BARE, AcceptLocal)],
        ),
        (
            "ip_forward=0",
            Setting::global("ip_forward", 0, 1),
            &[(REQUEST, None), (REPLY, Forwarding), (REPLY_BARE, Forwarding)],
        ),
        (
            "rp_filter=1",
            Setting::device("t*", "rp_filter", 1, 0),
            &[(REQUEST, None), (REQUEST_BARE, ReversePath), (REPLY_BARE, ReversePath)],
        ),
        (
            "icmp_echo_ignore_all=1",
            Setting::global("icmp_echo_ignore_all", 1, 0),
            &[(REPLY, None), (REQUEST, EchoFilter), (REQUEST_BARE, EchoFilter)],
        ),
        (
            "no route back",
            Setting {
                wrong: "ip addr del 10.10.1.1/31 dev t1; ip addr add 10.10.1.1/32 dev t1".to_owned(),
                right: "ip addr del 10.10.1.1/32 dev t1; ip addr add 10.10.1.1/31 dev t1".to_owned(),
            },
            &[(REQUEST, ReturnPath)],
        ),
    ])?;
    if !has_connection_tracking(&lab.net) {
        const LACK: &str = "connection tracking, for which this kernel has neither nft nor iptables-legacy";
        let set = |name: &str| std::env::var_os(name).unwrap_or_default();
        if !set("ADIT_REQUIRE_LAB").is_empty() && set("ADIT_LAB_BACKEND") == "qemu" {
            return Err(format!("{LACK}: the lab's machine must have one").into());
        }
        println!("lab: skipped: {LACK}");
        return Ok(());
    }
    lab.finds(&[(
        "ct state invalid drop",
        drops_invalid("FORWARD"),
        &[(REQUEST, None), (REPLY, ReplyFilter), (REPLY_BARE, ReplyFilter)],
    )])
}

fn gre_itself() -> Result<(), Failed> {
    // Whoever has no such tunnel says so.
    let lab = gre("[tunnel.gre]\nkey = 4711\n")?;
    lab.some_hint("it has no such tunnel", Duration::from_secs(20))?;
    let it = lab.concludes(REQUEST, Culprit::TunnelKey)?;
    if !it.conclusion.sentence.contains("with key 4711") {
        return Err(it.conclusion.sentence.into());
    }
    // Links whose other end takes less: a cable drops what is longer, and says nothing.
    let lab = gre("")?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    lab.router("ip link set wan mtu 1400")?;
    let it = lab.concludes(REQUEST, Culprit::Mtu)?;
    let inner = it.mtu.map(|mtu| mtu.inner);
    if inner != Some(1_376) {
        return Err(format!("{it:#?}").into());
    }
    lab.router("ip link set wan down")?;
    lab.concludes(REQUEST, Culprit::Underlay).map(drop)
}

fn ipsec() -> Result<(), Failed> {
    use Culprit::{Association, EchoFilter, Encapsulation, Forwarding, Leak, None};
    let wrong = |wrong| Case { wrong, ..plain(STYLES[REQUEST]) };
    let wrongs = [Wrong::Nothing, Wrong::KeyOut, Wrong::KeyIn, Wrong::SpiOut, Wrong::SpiIn];
    let ipsec = Ipsec::new(&wrongs.map(wrong), Pace::Patient)?;
    for place in 0..wrongs.len() {
        ipsec.lab.concludes(place, if place == 0 { None } else { Association })?;
    }
    // Where this side's inner address is a host's, what comes to it in the clear is seen.
    let cases = [plain(STYLES[REQUEST]), plain(STYLES[REPLY])];
    let address = |near: &File| netns::within(Some(near), || run("ip addr add 10.10.1.0/32 dev wan"));
    let ipsec = Ipsec::prepared(&cases, Pace::Patient, address)?;
    let policies = |verb: &str, direction| {
        let one = |(number, case)| policy(verb, direction, number, case).map(|line| format!("ip {line}"));
        (1..).zip(&ipsec.cases).filter_map(one).collect::<String>()
    };
    let without = |direction| Setting { wrong: policies("delete", direction), right: policies("add", direction) };
    ipsec.lab.all_become(State::Healthy, Duration::from_secs(30))?;
    ipsec.lab.finds(&[
        ("no policy in", without("in"), &[(REQUEST, EchoFilter), (REPLY, None)]),
        ("no policy fwd", without("fwd"), &[(REQUEST, None), (REPLY, Forwarding)]),
        ("no policy out", without("out"), &[(REQUEST, Leak), (REPLY, Encapsulation)]),
    ])
}

/// The far router's GRE, and a device of this side's kernel.
fn device() -> Result<(), Failed> {
    use Culprit::{None, TunnelKey, Underlay};
    let net = Net::new(
        "ip addr add 198.51.100.1/32 dev wan
         ip tunnel add t1 mode gre local 198.51.100.1 remote 192.0.2.1 ttl 64
         ip link set t1 up; ip addr add 10.10.1.1/31 dev t1",
    )?;
    netns::within(Some(&net.near), || {
        run("ip tunnel add gre1 mode gre local 192.0.2.1 remote 198.51.100.1 ttl 64
             ip link set gre1 up; ip addr add 10.10.1.0/31 dev gre1
             echo 0 > /proc/sys/net/ipv4/conf/gre1/rp_filter; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter")
    })?;
    let text = "[[tunnel]]\nname = \"t1\"\nencapsulation = \"device\"\ndevice = \"gre1\"\n\
                local_endpoint = \"192.0.2.1\"\nremote_endpoint = \"198.51.100.1\"\n\
                interface_address = \"10.10.1.0/31\"\n[tunnel.health_check]\ninterval = \"300ms\"\n\
                timeout = \"2s\"\ndown_window = \"4s\"\n";
    let config = Config::parse("lab.toml", text).map_err(|problems| Failed::from(problems.to_string()))?;
    let plan = Plan { state_dir: Option::None, access: Option::None, ..Plan::new(config) };
    let lab = Lab::start(net, vec!["a GRE device".to_owned()], plan)?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    let it = lab.concludes(0, None)?;
    if it.mtu.map(|mtu| mtu.inner) != Some(1_476) {
        return Err(format!("{it:#?}").into());
    }
    // The far router says so itself, of the packet that the kernel made.
    lab.router("ip link set t1 down")?;
    let it = lab.concludes(0, TunnelKey)?;
    if !it.conclusion.sentence.contains("the key of gre1 here") {
        return Err(it.conclusion.sentence.into());
    }
    lab.router("ip link set wan down")?;
    lab.concludes(0, Underlay).map(drop)
}
