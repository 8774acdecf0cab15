//! The lab: a far router in a namespace of its own, as `spec/probes.md` says, and a prober in another
//! one at the other end of a veth pair. What kind of tunnels the two have is said elsewhere.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adit::daemon::{Daemon, plan::Plan};
use adit::engine::snapshot::TunnelView;
use adit::engine::{Engine, State, Time};
use adit::io::local::Handle;
use adit::io::netns;
use adit::wire::{Direction, Family, Kind, Reject, Style};
use libtest_mimic::Failed;
use tokio::sync::oneshot;

/// Requests at even places, replies at odd ones; the first two bidirectional.
pub(crate) const STYLES: [Style; 4] = [
    Style { kind: Kind::Request, direction: Direction::Bidirectional },
    Style { kind: Kind::Reply, direction: Direction::Bidirectional },
    Style { kind: Kind::Request, direction: Direction::Unidirectional },
    Style { kind: Kind::Reply, direction: Direction::Unidirectional },
];

/// A setting of the router's, wrong and right.
pub(crate) struct Setting {
    pub(crate) wrong: String,
    pub(crate) right: String,
}

impl Setting {
    pub(crate) fn device(devices: &str, name: &str, wrong: u8, right: u8) -> Self {
        let set = |value| format!("for f in /proc/sys/net/ipv4/conf/{devices}/{name}; do echo {value} > $f; done");
        Self { wrong: set(wrong), right: set(right) }
    }

    pub(crate) fn global(name: &str, wrong: u8, right: u8) -> Self {
        let set = |value| format!("echo {value} > /proc/sys/net/ipv4/{name}");
        Self { wrong: set(wrong), right: set(right) }
    }
}

/// The two namespaces, and the cable between them.
pub(crate) struct Net {
    pub(crate) near: File,
    pub(crate) far: File,
}

/// Addresses of one tunnel: outer near and far, inner near and far with their prefix length.
pub(crate) struct Addresses {
    pub(crate) outer: [String; 2],
    pub(crate) inner: [String; 2],
    pub(crate) prefix: &'static str,
}

impl Net {
    /// A router, on which a shell script has been run.
    pub(crate) fn new(script: &str) -> Result<Self, Failed> {
        let net = Self { near: netns::make()?, far: netns::make()? };
        netns::within(Some(&net.near), || {
            run("ip link set lo up; ip link add wan type veth peer name far")?;
            let (pid, fd) = (std::process::id(), net.far.as_raw_fd());
            run(&format!("ip link set far netns /proc/{pid}/fd/{fd}"))?;
            run("sysctl -qw net.ipv6.conf.wan.accept_dad=0; ip link set wan up
                 ip addr add 192.0.2.1/24 dev wan; ip -6 addr add 2001:db8::1/64 dev wan nodad
                 ip route add 198.51.100.0/24 dev wan; ip -6 route add 2001:db8:1::/64 dev wan")
        })?;
        net.router(&format!("{BASE}{script}"))?;
        Ok(net)
    }

    /// Runs a shell script at the router and gives what it prints.
    pub(crate) fn router(&self, script: &str) -> Result<String, Failed> {
        Ok(netns::within(Some(&self.far), || output(script))?)
    }

    /// Gives lines to `ip -batch` at the router.
    pub(crate) fn router_batch(&self, lines: &str) -> Result<(), Failed> {
        Ok(netns::within(Some(&self.far), || batch(lines))?)
    }
}

/// The two namespaces and a prober at work in the near one.
pub(crate) struct Lab {
    pub(crate) net: Net,
    labels: Vec<String>,
    handle: Handle,
    runtime: tokio::runtime::Runtime,
    stop: Option<oneshot::Sender<()>>,
    prober: Option<JoinHandle<io::Result<()>>>,
}

impl Lab {
    /// Starts a prober for tunnels named t1, t2, …, of which the labels speak in words.
    pub(crate) fn start(net: Net, labels: Vec<String>, plan: Plan) -> Result<Self, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handle, stop, prober) = start(&net.near, plan)?;
        Ok(Self { net, labels, handle, runtime, stop: Some(stop), prober: Some(prober) })
    }

    /// Runs a shell script at the router and gives what it prints.
    pub(crate) fn router(&self, script: &str) -> Result<String, Failed> {
        self.net.router(script)
    }

    /// What a link's going down, or a switched-off forwarding, takes away does not come back with it.
    pub(crate) fn restore_after_link_up(&self) -> Result<(), Failed> {
        self.router("echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects").map(drop)
    }

    #[expect(clippy::expect_used, reason = "a prober that has gone ends the test")]
    pub(crate) fn ask<R: Send + 'static>(&self, question: impl FnOnce(&mut Engine, Time) -> R + Send + 'static) -> R {
        self.runtime.block_on(self.handle.ask(question)).expect("the prober runs")
    }

    pub(crate) fn views(&self) -> Vec<TunnelView> {
        self.ask(Engine::tunnels)
    }

    #[expect(clippy::disallowed_methods, reason = "real packets take real time")]
    pub(crate) fn until(&self, limit: Duration, what: &str, holds: impl Fn(&TunnelView) -> bool) -> Result<(), Failed> {
        let begin = Instant::now();
        loop {
            let views = self.views();
            let missing: Vec<&TunnelView> = views.iter().filter(|view| !holds(view)).collect();
            if missing.is_empty() {
                return Ok(());
            }
            if begin.elapsed() > limit {
                let list: Vec<String> = missing.iter().map(|view| self.describe(view)).collect();
                let rejects = self.ask(|engine, _| engine.self_view().rejected);
                return Err(format!("not {what} after {limit:?}: {}; rejected {rejects:?}", list.join("; ")).into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn describe(&self, view: &TunnelView) -> String {
        let number: usize = view.name.trim_start_matches('t').parse().unwrap_or(0);
        format!(
            "{} {} is {} ({:?}, last reject {:?})",
            view.name,
            self.labels[number - 1],
            view.state,
            view.counters,
            view.last_reject
        )
    }

    pub(crate) fn some_hint(&self, words: &str, limit: Duration) -> Result<(), Failed> {
        let hinted = |view: &TunnelView| view.last_hint.as_ref().is_some_and(|hint| hint.reason.contains(words));
        let found = std::cell::Cell::new(false);
        self.until(limit, "hinted at", |view| {
            found.set(found.get() || hinted(view));
            found.get()
        })
    }

    pub(crate) fn all_become(&self, state: State, limit: Duration) -> Result<(), Failed> {
        self.until(limit, state.name(), |view| view.state == state)
    }

    pub(crate) fn becomes(&self, style: usize, state: State) -> Result<(), Failed> {
        let name = format!("t{}", style + 1);
        self.until(Duration::from_secs(20), state.name(), |view| view.name != name || view.state == state)
    }

    pub(crate) fn comes_back(&self, style: usize) -> Result<(), Failed> {
        let name = format!("t{}", style + 1);
        self.until(Duration::from_secs(20), "back", |view| view.name != name || view.state != State::Down)
    }

    /// Still answered: what has been sent a second from now on comes back.
    pub(crate) fn stays_up(&self, style: usize) -> Result<(), Failed> {
        let name = format!("t{}", style + 1);
        let before = self.views()[style].counters.received;
        self.until(Duration::from_secs(20), "answered", |view| {
            view.name != name || view.counters.received > before + 3 && view.state != State::Down
        })
    }

    /// Makes one setting after the other wrong, and right again; each fails exactly these tunnels (by
    /// their place) of those that are healthy.
    pub(crate) fn settings_fail(&self, table: &[(&str, Setting, &[usize])]) -> Result<(), Failed> {
        self.all_become(State::Healthy, Duration::from_secs(30))?;
        for (name, setting, fail) in table {
            self.router(&setting.wrong)?;
            for place in 0..self.labels.len() {
                let result =
                    if fail.contains(&place) { self.becomes(place, State::Down) } else { self.stays_up(place) };
                result.map_err(|failed| Failed::from(format!("{name}: {}", failed.message().unwrap_or_default())))?;
            }
            self.router(&setting.right)?;
            self.restore_after_link_up()?;
            (0..self.labels.len()).try_for_each(|place| self.comes_back(place))?;
        }
        Ok(())
    }

    pub(crate) fn none_rejected(&self) -> Result<(), Failed> {
        let rejects = self.ask(|engine, _| *engine.rejects());
        let met: Vec<_> = Reject::ALL.iter().filter(|reject| rejects[reject.index()] > 0).collect();
        if met.is_empty() { Ok(()) } else { Err(format!("packets were rejected: {met:?}").into()) }
    }

    pub(crate) fn rtt_reaches(&self, rtt: Duration, limit: Duration) -> Result<(), Failed> {
        self.until(limit, "slow", |view| view.rtt.is_some_and(|seen| u128::from(seen.last_us) >= rtt.as_micros()))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(prober) = self.prober.take() {
            // Its error would have shown in the test.
            let _ = prober.join();
        }
    }
}

type Started = (Handle, oneshot::Sender<()>, JoinHandle<io::Result<()>>);

/// Starts a prober on a thread inside the near namespace.
fn start(near: &File, plan: Plan) -> io::Result<Started> {
    let near = near.try_clone()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (started, wait) = mpsc::channel();
    let prober = std::thread::spawn(move || {
        nix::sched::setns(&near, nix::sched::CloneFlags::CLONE_NEWNET)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (daemon, handle, _) = Daemon::start(plan)?;
            started.send(handle).map_err(io::Error::other)?;
            daemon
                .run(async {
                    let _ = stopped.await;
                })
                .await;
            Ok(())
        })
    });
    match wait.recv() {
        Ok(handle) => Ok((handle, stop, prober)),
        Err(_) => Err(prober.join().map_or_else(
            |_| io::Error::other("the prober panicked"),
            |result| result.err().unwrap_or_else(|| io::Error::other("the prober ended")),
        )),
    }
}

/// Runs a shell script in the namespace of the calling thread.
pub(crate) fn run(script: &str) -> io::Result<()> {
    output(script).map(drop)
}

/// The same, and gives what it prints.
pub(crate) fn output(script: &str) -> io::Result<String> {
    finished(script, Command::new("sh").args(["-ec", script]).output()?)
}

/// Gives lines to `ip -batch`: hundreds of them cost one process.
pub(crate) fn batch(lines: &str) -> io::Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes())?;
    }
    finished(lines, child.wait_with_output()?).map(drop)
}

fn finished(script: &str, output: Output) -> io::Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(io::Error::other(format!("{script}\n{text}{}", String::from_utf8_lossy(&output.stderr))))
}

/// What holds for all tunnels of the router. Forwarding resets `send_redirects`, and a redirect for
/// a forwarded reply-style probe would be noise.
const BASE: &str = "
ip link set lo up
ip link set far name wan
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
for c in all default; do
  echo 0 > /proc/sys/net/ipv4/conf/$c/rp_filter
  echo 0 > /proc/sys/net/ipv4/conf/$c/send_redirects
done
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
echo 0 > /proc/sys/net/ipv6/conf/wan/accept_dad
ip link set wan up
ip route add 192.0.2.0/24 dev wan
ip -6 addr add 2001:db8::ffff/64 dev wan nodad
";

/// The addresses of the tunnel of this number, 1 to 250: each has a far endpoint of its own.
pub(crate) fn addresses(number: usize, outer: Family, inner: Family, direction: Direction) -> Addresses {
    let public = |family| match family {
        Family::V4 => ["192.0.2.1".to_owned(), format!("198.51.100.{number}")],
        Family::V6 => ["2001:db8::1".to_owned(), format!("2001:db8:1::{number:x}")],
    };
    let (inner, prefix) = match (direction, inner) {
        (Direction::Bidirectional, Family::V4) => ([format!("10.10.{number}.0"), format!("10.10.{number}.1")], "31"),
        (Direction::Bidirectional, Family::V6) => {
            ([format!("fd00:{number:x}::"), format!("fd00:{number:x}::1")], "127")
        }
        // Bare answers travel between the public addresses of the inner family.
        (Direction::Unidirectional, Family::V4) => (public(inner), "32"),
        (Direction::Unidirectional, Family::V6) => (public(inner), "128"),
    };
    Addresses { outer: public(outer), inner, prefix }
}

/// The length of a prefix that is one address.
pub(crate) const fn whole(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

/// An address of this program's own.
pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| unreachable!("an address: {text}"))
}
