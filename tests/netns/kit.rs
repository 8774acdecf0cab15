//! A pair of namespaces with a cable, a far end, a prober, and waiting for something to happen.
//!
//! ```text
//!  near namespace                                far namespace
//!  ┌────────────────────────────┐                ┌─────────────────────────────┐
//!  │ Prober: a Daemon,          │ near0     far0 │ FarEnd: a reflector,        │
//!  │ on a thread in here        ├────────────────┤ on a thread of its own      │
//!  └────────────────────────────┘                └─────────────────────────────┘
//!    192.0.2.1    2001:db8::1                      192.0.2.11    2001:db8::11
//!    10.100.0.8   fd00:100::8   inside a tunnel    10.100.0.9    fd00:100::9
//! ```

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adit::daemon::{Daemon, plan::Plan};
use adit::engine::event::{Event, Kind as Told};
use adit::engine::health::Rules;
use adit::engine::settings::{Check, ReturnPath, Timeout};
use adit::engine::snapshot::TunnelView;
use adit::engine::{Engine, State, Time, Tunnel};
use adit::io::local::Handle;
use adit::io::raw::Leaving;
use adit::io::{links, netns};
use adit::reflect::FarTunnel;
use adit::reflect::plan::Fault;
use adit::reflect::run::{Sockets, run as reflect};
use adit::wire::payload::Key;
use adit::wire::{Direction, Ends, Family, Kind, Onion, Reject, Style, gre};
use nix::sched::{CloneFlags, setns};
use nix::unistd::Pid;
use tokio::sync::{mpsc, oneshot};

/// How long anything that must happen may take: the machine may be very busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// This side's endpoints, by family.
pub(crate) const NEAR: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// The far router's.
pub(crate) const FAR: [&str; 2] = ["192.0.2.11", "2001:db8::11"];
/// A second far router's, in the same namespace.
pub(crate) const OTHER: [&str; 2] = ["192.0.2.12", "2001:db8::12"];
/// This side's and the far side's address inside a tunnel.
pub(crate) const INNER: [[&str; 2]; 2] = [["10.100.0.8", "10.100.0.9"], ["fd00:100::8", "fd00:100::9"]];

pub(crate) const REQUEST: Style = Style { kind: Kind::Request, direction: Direction::Bidirectional };
pub(crate) const REPLY: Style = Style { kind: Kind::Reply, direction: Direction::Bidirectional };
pub(crate) const REQUEST_BARE: Style = Style { kind: Kind::Request, direction: Direction::Unidirectional };

pub(crate) const ALL: u32 = 1_000_000;

/// Asks once more when a signal, or the thaw of a frozen machine, comes between: the kernel does not by itself where a
/// socket has a time limit (signal(7)).
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    assert!(holds_within(PATIENCE, &mut condition), "not seen in {PATIENCE:?}: {what}");
}

/// Whether a condition comes to hold in this time.
#[expect(clippy::disallowed_methods, reason = "namespace tests alone meet real time, and here is where")]
pub(crate) fn holds_within(limit: Duration, condition: &mut dyn FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn ends([local, far]: [&str; 2]) -> Ends {
    Ends::new(address(local), address(far)).unwrap()
}

/// Two namespaces with a cable between them.
pub(crate) struct Pair {
    pub(crate) near: File,
    pub(crate) far: File,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let pair = Self { near: netns::make().unwrap(), far: netns::make().unwrap() };
        pair.join("near0", "far0");
        let with = |addresses: &[&str]| addresses.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        links::configure(Some(&pair.near), "lo", &[]).unwrap();
        links::configure(Some(&pair.far), "lo", &[]).unwrap();
        links::configure(Some(&pair.near), "near0", &with(&["192.0.2.1/24", "2001:db8::1/64"])).unwrap();
        let far = with(&["192.0.2.11/24", "192.0.2.12/24", "2001:db8::11/64", "2001:db8::12/64"]);
        links::configure(Some(&pair.far), "far0", &far).unwrap();
        pair.await_carrier();
        pair
    }

    fn await_carrier(&self) {
        (0..2).for_each(|family| await_cable([(&self.near, NEAR[family]), (&self.far, FAR[family])]));
    }

    fn join(&self, here: &str, there: &str) {
        netns::within(Some(&self.near), || links::connect(here, there, &self.far)).unwrap();
    }
}

/// Waits until a cable carries packets both ways between these namespaces and addresses: one that was just
/// plugged in carries nothing until a worker of the kernel's has noticed, which can take as long as a
/// time-out.
pub(crate) fn await_cable(ends: [(&File, &str); 2]) {
    let [near, far] = ends.map(|(namespace, text)| {
        let address = std::net::SocketAddr::new(address(text), 0);
        let socket = netns::within(Some(namespace), || std::net::UdpSocket::bind(address)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    for (from, to) in [(&near, &far), (&far, &near)] {
        eventually("a packet through the new cable", || {
            let sent = from.send_to(b"?", to.local_addr().unwrap());
            sent.is_ok() && holds_within(ms(50), &mut || to.recv(&mut [0]).is_ok())
        });
    }
}

/// Probes ten times a second and gives up soon: for trials in which something is to go wrong.
pub(crate) fn hasty() -> Check {
    Check {
        enabled: true,
        interval: ms(100),
        timeout: Timeout::Fixed(ms(400)),
        early_retry: true,
        return_path: ReturnPath::Strict,
        mark_key: None,
        rules: Rules { degraded_window: ms(4_000), down_window: ms(900), recovery_samples: 10, ..Rules::default() },
    }
}

/// Probes as often, but waits long: for trials in which nothing may go wrong, however busy the
/// machine.
pub(crate) fn patient() -> Check {
    let rules = Rules { down_window: ms(12_000), ..Rules::default() };
    Check { timeout: Timeout::Fixed(ms(5_000)), rules, ..hasty() }
}

/// A hasty tunnel over IPv4 in IPv4, between the first endpoints.
pub(crate) fn tunnel(name: &str, style: Style) -> Tunnel {
    tunnel_of(name, style, [NEAR[0], FAR[0]], 0)
}

/// A hasty tunnel between these endpoints, with inner addresses of a family by its index.
pub(crate) fn tunnel_of(name: &str, style: Style, outer: [&str; 2], inner: usize) -> Tunnel {
    let inner = match style.direction {
        Direction::Bidirectional => INNER[inner],
        // A bare answer finds its way by the endpoints' own addresses.
        Direction::Unidirectional => [NEAR[inner], FAR[inner]],
    };
    let outer = ends(outer);
    let egress = match outer.family() {
        Family::V4 => 0,
        Family::V6 => 1,
    };
    let onion = Onion {
        style,
        outer,
        encapsulation: gre::Options::default().into(),
        inner: ends(inner),
        ttl: 64,
        dscp: 48,
        size: 72,
    };
    Tunnel {
        name: name.to_owned(),
        onion,
        check: hasty(),
        namespace: 0,
        egress,
        exit: 0,
        terms: None,
        interface: None,
        targets: None,
    }
}

/// The same tunnel as the far router has it: there, a bare answer is one to an address that is not
/// inside the tunnel.
pub(crate) fn seen_from_afar(tunnel: &Tunnel) -> FarTunnel {
    let onion = &tunnel.onion;
    let inner = match onion.style.direction {
        Direction::Bidirectional => onion.inner.reversed(),
        Direction::Unidirectional => {
            let inside = address(INNER[usize::from(onion.inner.family() == Family::V6)][0]);
            Ends::new(onion.inner.far(), inside).unwrap()
        }
    };
    FarTunnel {
        further: Vec::new(),
        name: tunnel.name.clone(),
        outer: onion.outer.reversed(),
        inner,
        wrap: adit::reflect::Wrap::Gre(onion.encapsulation.gre().unwrap()),
    }
}

/// A plan for tunnels in the namespace of the prober.
pub(crate) fn plan(tunnels: Vec<Tunnel>) -> Plan {
    let leaving = |family| (0, adit::daemon::plan::Exit::Raw(Leaving { family, device: None, mark: 0, source: None }));
    Plan {
        bearings: std::collections::BTreeMap::new(),
        fail_static: None,
        endpoints: Vec::new(),
        steering: None,
        tunnels,
        routes: Vec::new(),
        places: Vec::new(),
        namespaces: vec![None],
        egresses: vec![leaving(Family::V4), leaving(Family::V6)],
        material: std::collections::BTreeMap::new(),
        state_dir: None,
        access: None,
        record: None,
        epoch: 0,
    }
}

/// A reflector in the far namespace, on a thread of its own.
pub(crate) struct FarEnd {
    faults: Option<mpsc::Sender<Vec<Fault>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl FarEnd {
    /// The far end of these tunnels.
    pub(crate) fn start(pair: &Pair, tunnels: &[Tunnel]) -> Self {
        Self::with(&pair.far, tunnels.iter().map(seen_from_afar).collect(), None)
    }

    pub(crate) fn with(namespace: &File, tunnels: Vec<FarTunnel>, mark_key: Option<Key>) -> Self {
        let sockets = netns::within(Some(namespace), Sockets::open).unwrap();
        let (faults, plans) = mpsc::channel(1);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(reflect(sockets, tunnels, mark_key, Vec::new(), plans))
        });
        Self { faults: Some(faults), thread: Some(thread) }
    }

    /// Replaces the faults; their times count from now.
    pub(crate) fn suffer(&self, faults: Vec<Fault>) {
        self.faults.as_ref().unwrap().blocking_send(faults).unwrap();
    }

    /// Swallows everything from now on.
    pub(crate) fn cut(&self) {
        self.suffer(vec![Fault { drop: share(ALL), ..Fault::default() }]);
    }

    /// Does everything right again.
    pub(crate) fn heal(&self) {
        self.suffer(Vec::new());
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.faults.take();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap().unwrap();
        }
    }
}

pub(crate) const fn share(millionths: u32) -> adit::engine::health::Ratio {
    adit::engine::health::Ratio(millionths)
}

/// A daemon on a thread in the near namespace, asked as the local socket asks it.
pub(crate) struct Prober {
    handle: Handle,
    thread_id: Pid,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Prober {
    /// Starts with these tunnels in the near namespace.
    pub(crate) fn start(pair: &Pair, tunnels: &[Tunnel]) -> Self {
        Self::with(&pair.near, plan(tunnels.to_vec()))
    }

    pub(crate) fn with(namespace: &File, plan: Plan) -> Self {
        let namespace = namespace.try_clone().unwrap();
        let (ready, started) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let (daemon, handle, _) = Daemon::start(plan)?;
                ready.send((handle, nix::unistd::gettid())).map_err(io::Error::other)?;
                daemon.run(async { drop(stopped.await) }).await;
                Ok(())
            })
        });
        match started.recv() {
            Ok((handle, thread_id)) => Self { handle, thread_id, stop: Some(stop), thread: Some(thread) },
            Err(_) => panic!("the prober did not start: {:?}", thread.join()),
        }
    }

    /// Asks the engine, between two of its wake-ups.
    pub(crate) fn ask<R: Send + 'static>(&self, question: impl FnOnce(&mut Engine, Time) -> R + Send + 'static) -> R {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = async { tokio::time::timeout(PATIENCE, self.handle.ask(question)).await };
        runtime.block_on(answer).expect("an answer in time").expect("a running prober")
    }

    /// The way to ask from another thread.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    pub(crate) fn view(&self, name: &str) -> TunnelView {
        let name = name.to_owned();
        self.ask(move |engine, now| engine.find(&name).and_then(|tunnel| engine.tunnel(now, tunnel))).unwrap()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.ask(|engine, _| engine.events().after(0).cloned().collect())
    }

    /// The states that a tunnel has entered, in order.
    pub(crate) fn entered(&self, name: &str) -> Vec<State> {
        let entered = |event: Event| {
            let Told::Transition { tunnel, to, .. } = event.kind else { return None };
            (tunnel == name).then_some(to)
        };
        self.events().into_iter().filter_map(entered).collect()
    }

    /// How often this reason to refuse a packet was met.
    pub(crate) fn rejects(&self, reject: Reject) -> u64 {
        self.ask(move |engine, _| engine.rejects()[reject.index()])
    }

    /// How often any was.
    pub(crate) fn all_rejects(&self) -> u64 {
        self.ask(|engine, _| engine.rejects().iter().sum())
    }

    /// Troubles of the prober's own, by kind.
    pub(crate) fn local_faults(&self) -> Vec<(&'static str, u64)> {
        self.ask(|engine, _| engine.self_view().local_faults)
    }

    /// Waits until a tunnel is in a state.
    pub(crate) fn await_state(&self, name: &str, state: State) {
        self.await_view(name, &format!("{name} {state}"), |view| view.state == state);
    }

    /// Waits until something can be seen of a tunnel.
    pub(crate) fn await_view(&self, name: &str, what: &str, seen: impl Fn(&TunnelView) -> bool) -> TunnelView {
        let mut last = self.view(name);
        let found = holds_within(PATIENCE, &mut || {
            last = self.view(name);
            seen(&last)
        });
        assert!(found, "not seen in {PATIENCE:?}: {what}\n{last:#?}\n{:#?}", self.events());
        last
    }

    /// Waits until so many more probes of a tunnel have been settled.
    pub(crate) fn await_samples(&self, name: &str, more: u64) {
        let settled = |view: &TunnelView| view.counters.received + view.counters.lost;
        let wanted = settled(&self.view(name)) + more;
        self.await_view(name, &format!("{more} more samples"), |view| settled(view) >= wanted);
    }

    /// How often the prober's thread has gone to sleep so far.
    pub(crate) fn sleeps(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", self.thread_id)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.take();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap().unwrap();
        }
    }
}

/// A pair of namespaces with both ends of some tunnels at work.
pub(crate) struct Scene {
    // In the order in which they end.
    pub(crate) prober: Prober,
    pub(crate) far: FarEnd,
    pub(crate) pair: Pair,
}

impl Scene {
    pub(crate) fn new(tunnels: &[Tunnel]) -> Self {
        let pair = Pair::new();
        let far = FarEnd::start(&pair, tunnels);
        let prober = Prober::start(&pair, tunnels);
        Self { prober, far, pair }
    }

    /// With every tunnel healthy.
    pub(crate) fn healthy(tunnels: &[Tunnel]) -> Self {
        let scene = Self::new(tunnels);
        tunnels.iter().for_each(|tunnel| scene.prober.await_state(&tunnel.name, State::Healthy));
        scene
    }
}
