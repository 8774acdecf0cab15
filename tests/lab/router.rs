//! The far router: a namespace with GRE devices of the kernel, set up as `spec/probes.md` says, and
//! a prober in another namespace at the other end of a veth pair.

use std::fs::File;
use std::io;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adit::config::Config;
use adit::daemon::{Daemon, plan::Plan};
use adit::engine::snapshot::TunnelView;
use adit::engine::{Engine, State};
use adit::io::local::Handle;
use adit::io::netns;
use adit::wire::Reject;
use libtest_mimic::Failed;
use tokio::sync::oneshot;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    pub(crate) kind: &'static str,
    pub(crate) direction: &'static str,
}

/// The key at this side and at the router's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Key {
    None,
    Same(u32),
    Differs(u32, u32),
    OnlyHere(u32),
    OnlyThere(u32),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) style: Style,
    pub(crate) outer_v6: bool,
    pub(crate) inner_v6: bool,
    pub(crate) key: Key,
    pub(crate) checksum: bool,
    pub(crate) sequence: bool,
}

/// A sysctl, wrong and right.
pub(crate) struct Setting {
    pub(crate) wrong: String,
    pub(crate) right: String,
}

impl Setting {
    pub(crate) fn device(name: &str, wrong: u8, right: u8) -> Self {
        let set = |value| format!("for f in /proc/sys/net/ipv4/conf/t*/{name}; do echo {value} > $f; done");
        Self { wrong: set(wrong), right: set(right) }
    }

    pub(crate) fn global(name: &str, wrong: u8, right: u8) -> Self {
        let set = |value| format!("echo {value} > /proc/sys/net/ipv4/{name}");
        Self { wrong: set(wrong), right: set(right) }
    }
}

pub(crate) struct Lab {
    router: File,
    cases: Vec<Case>,
    handle: Handle,
    runtime: tokio::runtime::Runtime,
    stop: Option<oneshot::Sender<()>>,
    prober: Option<JoinHandle<io::Result<()>>>,
}

/// Addresses of one case: outer near and far, inner near and far with their prefix lengths.
struct Addresses {
    outer: [String; 2],
    inner: [String; 2],
    prefix: &'static str,
}

impl Lab {
    pub(crate) fn new(cases: &[Case]) -> Result<Self, Failed> {
        let (near, router) = (netns::make()?, netns::make()?);
        netns::within(Some(&near), || {
            run("ip link set lo up; ip link add wan type veth peer name far")?;
            let pid = std::process::id();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&router);
            run(&format!("ip link set far netns /proc/{pid}/fd/{fd}"))?;
            run("sysctl -qw net.ipv6.conf.wan.accept_dad=0; ip link set wan up
                 ip addr add 192.0.2.1/24 dev wan; ip -6 addr add 2001:db8::1/64 dev wan nodad
                 ip route add 198.51.100.0/24 dev wan; ip -6 route add 2001:db8:1::/64 dev wan")
        })?;
        let mut script = String::from(BASE);
        (1..).zip(cases).for_each(|(number, case)| script.push_str(&device(number, case)));
        netns::within(Some(&router), || run(&script))?;
        let text: String = (1..).zip(cases).map(|(number, case)| tunnel(number, case)).collect();
        let config = Config::parse("lab.toml", &text).map_err(|problems| Failed::from(problems.to_string()))?;
        let mut plan = Plan::new(config);
        plan.access = None;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handle, stop, prober) = start(&near, plan)?;
        Ok(Self { router, cases: cases.to_vec(), handle, runtime, stop: Some(stop), prober: Some(prober) })
    }

    /// Runs a shell script at the router.
    pub(crate) fn router(&self, script: &str) -> Result<(), Failed> {
        Ok(netns::within(Some(&self.router), || run(script))?)
    }

    /// What a link's going down, or a switched-off forwarding, takes away does not come back with it.
    pub(crate) fn restore_after_link_up(&self) -> Result<(), Failed> {
        self.router("echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects")
    }

    #[expect(clippy::expect_used, reason = "a prober that has gone ends the test")]
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Engine, adit::engine::Time) -> R + Send + 'static,
    ) -> R {
        self.runtime.block_on(self.handle.ask(question)).expect("the prober runs")
    }

    fn views(&self) -> Vec<TunnelView> {
        self.ask(Engine::tunnels)
    }

    #[expect(clippy::disallowed_methods, reason = "real packets take real time")]
    fn until(&self, limit: Duration, what: &str, holds: impl Fn(&TunnelView) -> bool) -> Result<(), Failed> {
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
            "{:?} is {} ({:?}, last reject {:?})",
            self.cases[number - 1],
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

pub(crate) fn run(script: &str) -> io::Result<()> {
    let output = Command::new("sh").args(["-ec", script]).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{script}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )))
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

fn addresses(number: usize, case: &Case) -> Addresses {
    let outer = if case.outer_v6 {
        ["2001:db8::1".to_owned(), format!("2001:db8:1::{number:x}")]
    } else {
        ["192.0.2.1".to_owned(), format!("198.51.100.{number}")]
    };
    let (inner, prefix) = match (case.style.direction, case.inner_v6) {
        ("bidirectional", false) => ([format!("10.10.{number}.0"), format!("10.10.{number}.1")], "31"),
        ("bidirectional", true) => ([format!("fd00:{number:x}::"), format!("fd00:{number:x}::1")], "127"),
        // Bare answers travel between the public addresses of the inner family.
        (_, false) => (["192.0.2.1".to_owned(), format!("198.51.100.{number}")], "32"),
        (_, true) => (["2001:db8::1".to_owned(), format!("2001:db8:1::{number:x}")], "128"),
    };
    Addresses { outer, inner, prefix }
}

/// The router's side of one tunnel, as an operator would type it.
fn device(number: usize, case: &Case) -> String {
    let Addresses { outer: [p, o], inner: [_, t1], prefix } = addresses(number, case);
    let mut options = String::new();
    match case.key {
        Key::None | Key::OnlyHere(_) => {}
        Key::Same(key) | Key::Differs(_, key) | Key::OnlyThere(key) => options.push_str(&format!(" key {key}")),
    }
    if case.checksum {
        options.push_str(" csum");
    }
    if case.sequence {
        options.push_str(" seq");
    }
    let length = if case.outer_v6 { "128" } else { "32" };
    let (family, mode) = if case.outer_v6 { ("-6", "ip6gre") } else { ("-4", "gre") };
    let v4_only = if case.outer_v6 { "" } else { " ttl 64" };
    let t = format!("t{number}");
    format!(
        "ip addr replace {o}/{length} dev wan
ip {family} tunnel add {t} mode {mode} local {o} remote {p}{v4_only}{options}
ip link set {t} up
ip addr replace {t1}/{prefix} dev {dev}
echo 1 > /proc/sys/net/ipv4/conf/{t}/accept_local
echo 0 > /proc/sys/net/ipv4/conf/{t}/rp_filter
",
        dev = if case.style.direction == "bidirectional" { t.as_str() } else { "wan" },
    )
}

/// This side of it, in adit's configuration.
fn tunnel(number: usize, case: &Case) -> String {
    let Addresses { outer: [p, o], inner: [t0, _], prefix } = addresses(number, case);
    let mut text = format!(
        "[[tunnel]]\nname = \"t{number}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"{p}\"\nremote_endpoint = \"{o}\"\n"
    );
    if case.style.direction == "bidirectional" {
        text.push_str(&format!("interface_address = \"{t0}/{prefix}\"\n"));
    }
    text.push_str(&format!(
        "[tunnel.health_check]\ntype = \"{}\"\ndirection = \"{}\"\ninterval = \"300ms\"\ntimeout = \"250ms\"\ndown_window = \"450ms\"\n",
        case.style.kind, case.style.direction,
    ));
    let key = match case.key {
        Key::None | Key::OnlyThere(_) => String::new(),
        Key::Same(key) | Key::Differs(key, _) | Key::OnlyHere(key) => format!("key = {key}\n"),
    };
    text.push_str(&format!("[tunnel.gre]\n{key}checksum = {}\nsequence = {}\n", case.checksum, case.sequence));
    text
}
