//! Decisions. PURE: time and bytes come in as arguments, values come out; no socket, no clock, no
//! randomness.
//!
//! [`Engine`] owns every tunnel. The daemon's loop hands it what happened (`handle_*`) and takes
//! what follows (`poll_*`), in this order at each wake-up:
//!
//! ```text
//! handle_begin(now)             once, before all that
//! handle_wakeup(now)            was I late? then a missing answer may be my own fault
//! handle_drained(now)           was I stopped while I read? the same
//! handle_datagram(…) …          all that has arrived, in the order of arrival
//! handle_timeout(now)           deadlines that have passed, probes that are due
//! poll_transmit(now, buffer) …  until it has nothing more; handle_unsent for what could not leave,
//! handle_sent(begun, now, …)    and then for all of it: when it left. Only from then on an answer is waited for
//! handle_flushed(now)           was I stopped before it left?
//! next_wakeup(now)              sleep until then
//! ```
//!
//! A settled probe becomes a sample in `Engine::sample`; what follows from another state is drawn in
//! `Engine::enter` and nowhere else (both in `settle.rs`). A tunnel that cannot be probed, for want of
//! keys, say, is halted in `obstacle.rs`. Iteration is deterministic throughout.

pub mod associations;
pub mod diagnose;
pub mod drain;
mod earliest;
pub mod endpoints;
pub mod esp;
pub mod event;
pub mod explain;
pub mod health;
mod hold;
pub mod inflight;
mod kernel;
pub mod ledger;
pub mod memory;
pub mod metrics;
mod needs;
pub mod numbers;
mod obstacle;
mod outbox;
pub mod penalty;
mod prober;
pub mod rates;
mod receive;
mod reload;
mod rounds;
mod route;
pub mod route_view;
pub mod routes;
pub mod rtt;
pub mod schedule;
mod send;
pub mod settings;
mod settle;
pub mod snapshot;
mod time;
mod timers;
mod trouble;
mod way;
pub mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

pub use drain::{Drained, Order};
pub use health::State;
use hold::Hold;
pub use hold::{FailStatic, HoldView};
pub use penalty::Drain;
pub use prober::{Counters, Failure, Samples};
pub use reload::{Layout, Reloaded};
pub use rounds::TargetView;
pub use route::{MAIN, Place, Route, Standing};
pub use routes::RouteTable;
pub use settings::{Ear, Egress, Interface, Namespace, Targets, Tunnel};
pub use time::{Time, WallTime};
pub use trouble::{KINDS, STALL, Trouble};

use crate::wire::esp::Fingerprint;
use crate::wire::{self, Reject, payload::Secret};
pub use associations::{Material, Pair, PairName, Start};
use diagnose::Diagnoses;
use endpoints::Endpoints;
use event::{Kind, Ring};
pub use kernel::Steer;
use metrics::Histogram;
pub use needs::Need;
use needs::Needs;
use numbers::Numbers;
pub use obstacle::Obstacle;
use outbox::Outbox;
use prober::{Prober, Stalls};
use timers::Timers;
use trouble::{Fault, Listening};

/// What an engine is made of.
pub struct Setup {
    /// Tunnels; their place here is their index.
    pub tunnels: Vec<Tunnel>,
    /// Routes over them; their order here is their index.
    pub routes: Vec<Route>,
    /// Where routes are; those of an index that is not here are in the main table, where adit runs.
    pub places: Vec<Place>,
    /// Whether the kernel's routes are to follow ours.
    pub steers: bool,
    /// Key and epoch of this run's probes: random, from the caller.
    pub secret: Secret,
    /// Whether each sample is told as an event.
    pub record: bool,
    /// What the ESP tunnels start with, by their index. One that is not here waits for its keys.
    pub associations: BTreeMap<u32, Start>,
}

/// A probe in the caller's buffer, to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The tunnel, by index; from `endpoints::FIRST` on an endpoint, from `diagnose::FIRST` on a leg of a diagnosis.
    pub tunnel: u32,
    /// The probe's sequence in it.
    pub sequence: u64,
    /// When it was to leave, if it is a regular one.
    pub due: Option<Time>,
    /// Which socket it leaves by.
    pub egress: Egress,
    /// Where to.
    pub destination: IpAddr,
    /// Its length in the buffer.
    pub length: usize,
}

/// Why a probe did not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsent {
    /// The host lacked buffers or memory for the moment: no sample, sent again shortly.
    LocalFault(&'static str),
    /// Traffic could not go either: a failure.
    Refused(&'static str),
    /// The same, because something is missing that [`Engine::handle_missing`] was told of.
    Missing,
}

/// All tunnels, their health and their routes.
pub struct Engine {
    probers: Vec<Prober>,
    /// Where they are, by the numbers that their probes bear; in order.
    by_number: Vec<(u32, u32)>,
    next_number: u32,
    routes: RouteTable,
    timers: Timers,
    outbox: Outbox,
    /// A round of which not all probes have left.
    going: Option<rounds::Going>,
    events: Ring,
    last_drain: u64,
    /// When drains end by themselves, by the wall clock.
    ends: BTreeSet<(WallTime, u32)>,
    secret: Secret,
    record: bool,
    rejects: [u64; Reject::COUNT],
    /// ICMP errors about probes.
    hints: u64,
    /// The ways by which an answer may come at all, for `return_path = "any"`.
    ways: BTreeSet<(Namespace, wire::Ends, Option<u32>)>,
    /// The kernel's tunnel devices that are probed.
    devices: BTreeSet<(Namespace, Interface)>,
    /// Whose ESP packets come by which SPI.
    inlets: BTreeMap<esp::Inlet, u32>,
    /// The SPIs of sealed probes, by the address that they are sent to.
    exits: BTreeSet<(Namespace, IpAddr, u32)>,
    inlets_changed: bool,
    /// Whose the outbound keys in use are.
    keys: BTreeMap<Fingerprint, u32>,
    /// How far sequence numbers were used with keys that were in use in this run and are not now.
    spent: BTreeMap<Fingerprint, Numbers>,
    /// Sequence numbers that are to be reserved.
    wanted: Vec<esp::Reserve>,
    /// The associations that the kernel has, where it was asked.
    kernel: BTreeMap<Namespace, BTreeSet<(IpAddr, u32)>>,
    /// Where packets are decrypted to; kept, so that none costs an allocation.
    scratch: Vec<u8>,
    /// Tunnels whose cost may have changed since it was last asked for.
    steered: VecDeque<u32>,
    /// What wakes this process is to do so at multiples of this.
    tick: Duration,
    /// Of those tunnels that need no finer ones.
    longest_tick: Duration,
    /// How long the probe that this host has held up longest was held up, of those that have left of late.
    held_up: Duration,
    /// Whether this host is suspected rather than its tunnels.
    hold: Hold,
    /// Tunnels by state, in the order of [`State::ALL`].
    states: [usize; 4],
    /// How often the kernel's routes were not as they should be.
    drifts: u64,
    /// How often the configuration was read again.
    reloads: reload::Reloads,
    /// When a socket last lost answers on this side of the wire, and by what.
    deaf: BTreeMap<Ear, (Time, &'static str)>,
    /// How often traffic has moved to another tunnel.
    route_changes: u64,
    /// How late the loop was woken.
    lag: Histogram<12>,
    /// How much later than planned regular probes left.
    late: Histogram<12>,
    /// Packets that sockets have lost for want of room.
    overflowed: BTreeMap<Ear, u64>,
    listening: Listening,
    stalls: Stalls,
    faults: Vec<Fault>,
    needs: Needs,
    /// What is probed beyond the far routers.
    endpoints: Endpoints,
    diagnoses: Diagnoses,
    /// What to add to a [`Time`] for the wall clock's.
    wall_offset: u64,
}

impl Engine {
    /// An engine that begins now.
    #[must_use]
    pub fn new(now: Time, wall: WallTime, setup: Setup) -> Self {
        let Setup { tunnels, routes, places, steers, secret, record, associations } = setup;
        let mut engine = Self {
            probers: Vec::with_capacity(tunnels.len()),
            by_number: Vec::new(),
            next_number: 0,
            routes: RouteTable::default(),
            timers: Timers::default(),
            outbox: Outbox::default(),
            going: None,
            events: Ring::default(),
            last_drain: 0,
            ends: BTreeSet::new(),
            secret,
            record,
            rejects: [0; Reject::COUNT],
            hints: 0,
            ways: BTreeSet::new(),
            devices: BTreeSet::new(),
            inlets: BTreeMap::new(),
            exits: BTreeSet::new(),
            inlets_changed: true,
            keys: BTreeMap::new(),
            spent: BTreeMap::new(),
            wanted: Vec::new(),
            kernel: BTreeMap::new(),
            scratch: Vec::new(),
            steered: VecDeque::new(),
            tick: schedule::TICK,
            longest_tick: schedule::TICK,
            held_up: Duration::ZERO,
            hold: Hold::default(),
            states: [0; 4],
            drifts: 0,
            reloads: reload::Reloads::default(),
            deaf: BTreeMap::new(),
            route_changes: 0,
            lag: Histogram::new(&metrics::LAG),
            late: Histogram::new(&metrics::LATE),
            overflowed: BTreeMap::new(),
            listening: Listening::new(now),
            stalls: Stalls::default(),
            faults: Vec::new(),
            needs: Needs::default(),
            endpoints: Endpoints::default(),
            diagnoses: Diagnoses::default(),
            wall_offset: wall.0.saturating_sub(now.as_nanos()),
        };
        engine.tell(now, Kind::Start { tunnels: tunnels.len(), version: env!("CARGO_PKG_VERSION") });
        engine.lay_out(now, Layout { tunnels, routes, places, steers, associations }, |interval| interval);
        engine
    }

    /// Probing begins only now: to be made has taken its time, with very many tunnels. What was to begin since then
    /// begins as much later.
    pub fn handle_begin(&mut self, now: Time) {
        let late = now.since(self.listening.seen());
        for tunnel in 0..self.count() {
            let prober = &mut self.probers[tunnel as usize];
            prober.next_due = (prober.next_due + late).ceil(schedule::step(&prober.settings.check, self.longest_tick));
            self.rearm(tunnel);
        }
        self.listening.see(now);
    }

    /// Settles what has passed its deadline and queues what is due. Everything that has arrived by
    /// `now` must have been handed in before.
    pub fn handle_timeout(&mut self, now: Time) {
        self.reconsider(now);
        self.end_drains(now);
        while let Some(tunnel) = self.timers.pop(now) {
            self.retire(tunnel, now);
            self.expire(tunnel, now, true);
            self.retry_early(tunnel, now);
            // One that is queued wants attention when it has left.
            if !self.queue_due(tunnel, now) {
                self.rearm(tunnel);
            }
        }
        self.attend_endpoints(now);
        self.go_on_diagnosing(now);
    }

    /// What wakes this process is to do so at multiples of this, which is as coarse as the tunnels allow: a wake-up costs
    /// as much as ten probes.
    #[must_use]
    pub const fn tick(&self) -> Duration {
        self.tick
    }

    /// When the engine wants to be woken, or at the next multiple of [`Self::tick`]; never later than something it has
    /// promised.
    pub fn next_wakeup(&mut self, now: Time) -> Option<Time> {
        let listening = self.listening.beat();
        let others =
            [self.outbox.earliest(now), self.next_reconsidered(), self.next_end(), listening, self.diagnoses.next()];
        let endpoints = if self.endpoints.is_waiting() { Some(now) } else { self.endpoints.earliest() };
        others.into_iter().chain([self.timers.earliest(), endpoints]).flatten().min()
    }

    /// The kernel's tunnel devices by which probes leave have these indices now, by egress; 0 is one that
    /// is missing, and an egress that is no device is not there.
    pub fn handle_interfaces(&mut self, interfaces: &BTreeMap<Egress, Interface>) {
        for prober in &mut self.probers {
            prober.settings.interface = interfaces.get(&prober.settings.egress).copied();
        }
        self.note_devices();
    }

    fn note_devices(&mut self) {
        let device = |prober: &Prober| Some((prober.settings.namespace, prober.settings.interface?));
        self.devices = self.probers.iter().filter_map(device).filter(|&(_, interface)| interface != 0).collect();
    }

    /// The engine stops.
    pub fn handle_stop(&mut self, now: Time) {
        self.tell(now, Kind::Stop {});
    }

    fn tell(&mut self, at: Time, kind: Kind) {
        self.events.push(self.wall(at), kind);
    }

    fn rearm(&mut self, tunnel: u32) {
        let attention = self.probers[tunnel as usize].attention(self.stalls);
        self.timers.set(tunnel, attention);
    }

    fn count(&self) -> u32 {
        u32::try_from(self.probers.len()).unwrap_or(u32::MAX)
    }

    fn name(&self, tunnel: u32) -> &str {
        self.probers.get(tunnel as usize).map_or("", |prober| &prober.settings.name)
    }

    /// What the wall clock shows at a time.
    #[must_use]
    pub const fn wall(&self, at: Time) -> WallTime {
        WallTime(at.as_nanos().saturating_add(self.wall_offset))
    }

    /// The index of a tunnel.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u32> {
        (0..self.count()).find(|&tunnel| self.name(tunnel) == name)
    }

    /// The names of all tunnels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.probers.iter().map(|prober| prober.settings.name.as_str())
    }

    /// The state of a tunnel.
    #[must_use]
    pub fn state(&self, tunnel: u32) -> Option<State> {
        Some(self.probers.get(tunnel as usize)?.health.state())
    }

    /// The events of late.
    #[must_use]
    pub const fn events(&self) -> &Ring {
        &self.events
    }

    /// The routes and what they cost.
    #[must_use]
    pub const fn routes(&self) -> &RouteTable {
        &self.routes
    }

    /// How many ICMP errors about probes have come.
    #[must_use]
    pub const fn hints(&self) -> u64 {
        self.hints
    }

    /// How often each reason to refuse a packet has been met.
    #[must_use]
    pub const fn rejects(&self) -> &[u64; Reject::COUNT] {
        &self.rejects
    }
}
