//! Decisions. PURE: time and bytes come in as arguments, values come out; no socket, no clock, no
//! randomness.
//!
//! [`Engine`] owns every tunnel. The daemon's loop hands it what happened (`handle_*`) and takes
//! what follows (`poll_*`), in this order at each wake-up:
//!
//! ```text
//! handle_wakeup(now)            was I late? then a missing answer may be my own fault
//! handle_datagram(…) …          all that has arrived, in the order of arrival
//! handle_timeout(now)           deadlines that have passed, probes that are due
//! poll_transmit(now, buffer) …  until it has nothing more; handle_refused for what could not leave
//! next_wakeup(now)              sleep until then
//! ```
//!
//! A settled probe becomes a sample in [`Engine::sample`]; what follows from a transition is drawn
//! in [`Engine::transition`] and nowhere else. Iteration is deterministic throughout.

pub mod event;
pub mod explain;
pub mod health;
pub mod inflight;
mod outbox;
pub mod penalty;
mod prober;
pub mod routes;
pub mod rtt;
pub mod schedule;
pub mod settings;
pub mod snapshot;
mod time;
pub mod window;

use std::collections::BTreeSet;
use std::time::Duration;

pub use health::State;
pub use penalty::Drain;
pub use prober::{Counters, Failure};
pub use routes::{Route, RouteTable};
pub use settings::{Egress, Namespace, Tunnel};
pub use time::{Time, WallTime};

use crate::wire::{self, Path, Reject, Stamp, payload::Fields, payload::Secret, probe::Arrived};
use event::{Kind, Ring};
use health::Transition;
use inflight::{Purpose, Settled, Standing};
use outbox::{Item, Outbox};
use prober::{Burst, Prober};
use schedule::Timers;
use window::Outcome;

/// What an engine is made of.
pub struct Setup {
    /// Tunnels; their place here is their index.
    pub tunnels: Vec<Tunnel>,
    /// Routes over them.
    pub routes: Vec<Route>,
    /// Key and epoch of this run's probes: random, from the caller.
    pub secret: Secret,
    /// Whether each sample is told as an event.
    pub record: bool,
}

/// A probe in the caller's buffer, to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The tunnel.
    pub tunnel: u32,
    /// The probe's sequence in it.
    pub sequence: u64,
    /// Which socket it leaves by.
    pub egress: Egress,
    /// Where to.
    pub destination: std::net::IpAddr,
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
}

/// A wake-up this much later than asked for is a stall: the engine was stopped or starved.
pub const STALL: Duration = Duration::from_millis(50);
/// The same local fault is told once in this time, and counted always.
const FAULT_QUIET: Duration = Duration::from_secs(10);

/// All tunnels, their health and their routes.
pub struct Engine {
    probers: Vec<Prober>,
    routes: RouteTable,
    timers: Timers,
    outbox: Outbox,
    events: Ring,
    secret: Secret,
    record: bool,
    rejects: [u64; Reject::COUNT],
    /// The ways by which an answer may come at all, for `return_path = "any"`.
    ways: BTreeSet<(Namespace, wire::Ends, Option<u32>)>,
    /// When a namespace's receive queue last overflowed.
    overflowed: Vec<Option<Time>>,
    /// The end of the last stall.
    stall_end: Time,
    faults: Vec<Fault>,
    /// What to add to a [`Time`] for the wall clock's.
    wall_offset: u64,
}

/// A kind of local trouble.
struct Fault {
    name: &'static str,
    count: u64,
    told: Time,
}

impl Engine {
    /// An engine that begins now.
    #[must_use]
    pub fn new(now: Time, wall: WallTime, setup: Setup) -> Self {
        let Setup { tunnels, routes, secret, record } = setup;
        let namespaces = tunnels.iter().map(|tunnel| usize::from(tunnel.namespace) + 1).max().unwrap_or(0);
        let ways = tunnels.iter().map(|tunnel| (tunnel.namespace, tunnel.onion.outer, tunnel.onion.gre.key)).collect();
        let probers: Vec<Prober> = (0..)
            .zip(tunnels)
            .map(|(index, tunnel)| {
                let first = now + schedule::phase(index, tunnel.check.interval);
                Prober::new(tunnel, first, wall)
            })
            .collect();
        let mut engine = Self {
            routes: RouteTable::new(routes, probers.len()),
            timers: Timers::new(probers.len()),
            outbox: Outbox::default(),
            events: Ring::default(),
            secret,
            record,
            rejects: [0; Reject::COUNT],
            ways,
            overflowed: vec![None; namespaces],
            stall_end: Time::ZERO,
            faults: Vec::new(),
            wall_offset: wall.0.saturating_sub(now.as_nanos()),
            probers,
        };
        engine.tell(now, Kind::Start { tunnels: engine.probers.len(), version: env!("CARGO_PKG_VERSION") });
        (0..engine.count()).for_each(|tunnel| engine.rearm(tunnel));
        engine
    }

    /// Says what the wall clock shows, so that events can be dated. Nothing else depends on it.
    pub fn set_wall(&mut self, now: Time, wall: WallTime) {
        self.wall_offset = wall.0.saturating_sub(now.as_nanos());
    }

    /// Begins a wake-up: a late one is the engine's own trouble.
    pub fn handle_wakeup(&mut self, now: Time) {
        let late = self.timers.earliest().map_or(Duration::ZERO, |wanted| now.since(wanted));
        if late >= STALL {
            self.stalled(now, "stall", &format!("woken {} ms late", late.as_millis()));
        }
    }

    /// The host was suspended: answers may have been lost while nobody listened.
    pub fn handle_suspend(&mut self, now: Time, asleep: Duration) {
        self.stalled(now, "suspend", &format!("the host slept for {} s", asleep.as_secs()));
        for tunnel in 0..self.count() {
            let waiting: Vec<u64> =
                self.probers[tunnel as usize].in_flight.waiting().map(|(sequence, _)| sequence).collect();
            waiting.into_iter().for_each(|sequence| self.inconclusive(tunnel, sequence, now));
            self.rearm(tunnel);
        }
    }

    fn stalled(&mut self, now: Time, name: &'static str, reason: &str) {
        self.stall_end = now;
        self.fault(now, None, name, reason);
        // Deadlines have moved; a timer at the old one would only wake us for nothing.
        (0..self.count()).for_each(|tunnel| self.rearm(tunnel));
    }

    /// A namespace's receive queue has dropped packets: probes in flight may have been answered.
    pub fn handle_overflow(&mut self, now: Time, namespace: Namespace, dropped: u32) {
        if let Some(overflowed) = self.overflowed.get_mut(usize::from(namespace)) {
            *overflowed = Some(now);
        }
        self.fault(now, None, "receive-overflow", &format!("{dropped} packets lost in the receive queue"));
    }

    /// Takes a datagram that arrived at `at`, no later than `now`.
    pub fn handle_datagram(&mut self, now: Time, at: Time, namespace: Namespace, arrived: Arrived<'_>) {
        let at = at.min(now);
        let result = wire::probe::parse(arrived, &self.secret)
            .and_then(|reply| self.check_way(&reply, namespace).map(|()| reply.fields));
        match result {
            Ok(fields) => self.answered(at, fields),
            Err(Reject::IcmpType) if self.hinted(at, arrived) => {}
            Err(reject) => self.rejected(at, reject, wire::probe::claimed_tunnel(arrived)),
        }
    }

    fn check_way(&self, reply: &wire::Reply<'_>, namespace: Namespace) -> Result<(), Reject> {
        let prober = self.probers.get(reply.fields.tunnel as usize).ok_or(Reject::UnknownTunnel)?;
        if prober.settings.namespace != namespace {
            return Err(Reject::WrongNamespace);
        }
        prober.check_way(reply, |path| match *path {
            Path::Bare => false,
            Path::Gre { outer, key } => self.ways.contains(&(namespace, outer, key)),
        })
    }

    /// Keeps an ICMP error about a probe for people to read. It moves nothing else: anybody can send
    /// one.
    fn hinted(&mut self, at: Time, arrived: Arrived<'_>) -> bool {
        let Some(quote) = wire::quote::parse(arrived, &self.secret) else { return false };
        let wall = self.wall(at);
        let prober = self.probers.get_mut(quote.fields.tunnel as usize);
        prober.map(|prober| prober.last_hint = Some((wall, quote))).is_some()
    }

    fn rejected(&mut self, at: Time, reject: Reject, claimed: Option<u32>) {
        self.rejects[reject.index()] += 1;
        let wall = self.wall(at);
        if let Some(prober) = claimed.and_then(|tunnel| self.probers.get_mut(tunnel as usize)) {
            prober.counters.forged += u64::from(reject == Reject::Tag);
            prober.last_reject = Some((wall, reject));
        }
    }

    fn answered(&mut self, at: Time, fields: Fields) {
        let Fields { tunnel, sequence, .. } = fields;
        // A deadline before this arrival comes first, or the samples would be out of order.
        self.expire(tunnel, at, false);
        let prober = &mut self.probers[tunnel as usize];
        match prober.in_flight.answer(sequence) {
            Settled::Now(probe) => {
                let rtt = at.since(probe.sent);
                if rtt > probe.timeout {
                    // Only a stall leaves a probe waiting past its time-out: too late to be a
                    // success, and our own trouble, so no failure.
                    prober.counters.late += 1;
                    self.rejects[Reject::Late.index()] += 1;
                    self.note_inconclusive(tunnel, probe.purpose, at);
                } else {
                    self.sample(tunnel, at, probe.purpose, true, Ok(rtt));
                }
            }
            Settled::Duplicate => {
                prober.counters.duplicate += 1;
                self.rejects[Reject::Duplicate.index()] += 1;
            }
            Settled::Late(probe) => {
                prober.counters.late += 1;
                self.rejects[Reject::Late.index()] += 1;
                if let Some(probe) = probe {
                    prober.rtt.update(at.since(probe.sent));
                    self.warn_if_slow(tunnel, at);
                }
            }
            Settled::NeverSent => self.rejects[Reject::NeverSent.index()] += 1,
        }
        self.rearm(tunnel);
    }

    /// Takes a probe that [`Self::poll_transmit`] gave out and the kernel did not take.
    pub fn handle_unsent(&mut self, now: Time, tunnel: u32, sequence: u64, unsent: Unsent) {
        let Some(prober) = self.probers.get_mut(tunnel as usize) else { return };
        prober.counters.sent = prober.counters.sent.saturating_sub(1);
        match unsent {
            Unsent::LocalFault(error) => {
                let Some(probe) = prober.in_flight.settle(sequence, Standing::Inconclusive) else { return };
                prober.counters.local_faults += 1;
                let not_after = probe.sent + prober.settings.check.rules.down_window;
                prober.queued |= probe.purpose == Purpose::Regular;
                self.outbox.delay(now, Item { tunnel, purpose: probe.purpose, not_after });
                let name = self.probers[tunnel as usize].settings.name.clone();
                self.fault(now, Some(name), "send", error);
            }
            Unsent::Refused(error) => {
                let Some(probe) = prober.in_flight.settle(sequence, Standing::Lost) else { return };
                self.sample(tunnel, now, probe.purpose, probe.retried, Err(Failure::Refused(error)));
            }
        }
        self.rearm(tunnel);
    }

    /// Settles what has passed its deadline and queues what is due. Everything that has arrived by
    /// `now` must have been handed in before.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(tunnel) = self.timers.pop(now) {
            self.expire(tunnel, now, true);
            self.retry_early(tunnel, now);
            self.queue_due(tunnel, now);
            self.rearm(tunnel);
        }
    }

    /// Settles the probes whose deadline is before `now`, or at it where that is `inclusive`.
    fn expire(&mut self, tunnel: u32, now: Time, inclusive: bool) {
        loop {
            let prober = &mut self.probers[tunnel as usize];
            let stall_end = self.stall_end;
            let expired = prober
                .in_flight
                .waiting()
                .map(|(sequence, probe)| (Prober::deadline(probe, stall_end), sequence))
                .min();
            let Some((deadline, sequence)) =
                expired.filter(|&(deadline, _)| deadline < now || inclusive && deadline == now)
            else {
                return;
            };
            let overflow = self.overflowed[usize::from(prober.settings.namespace)];
            if prober.in_flight.get(sequence).is_some_and(|probe| overflow >= Some(probe.sent)) {
                self.inconclusive(tunnel, sequence, deadline);
            } else if let Some(probe) = prober.in_flight.settle(sequence, Standing::Lost) {
                self.sample(tunnel, deadline, probe.purpose, probe.retried, Err(Failure::Timeout));
            }
        }
    }

    fn retry_early(&mut self, tunnel: u32, now: Time) {
        let prober = &self.probers[tunnel as usize];
        let late = prober
            .in_flight
            .waiting()
            .find(|(_, probe)| prober.early(probe, self.stall_end).is_some_and(|at| at <= now));
        if let Some((sequence, probe)) = late {
            let sent = probe.sent;
            self.probers[tunnel as usize].in_flight.set_retried(sequence);
            self.start_burst(tunnel, sent, true);
        }
    }

    fn queue_due(&mut self, tunnel: u32, now: Time) {
        let prober = &mut self.probers[tunnel as usize];
        if now < prober.next_due {
            return;
        }
        let interval = prober.settings.check.interval;
        let next = prober.next_due
            + schedule::jittered(interval, schedule::mix(u64::from(tunnel), prober.next_due.as_nanos()));
        prober.next_due = schedule::resumed(next, interval, now);
        let first = !std::mem::replace(&mut prober.started, true);
        if !std::mem::replace(&mut prober.queued, true) {
            self.outbox.push(Item { tunnel, purpose: Purpose::Regular, not_after: now });
        }
        if first {
            self.start_burst(tunnel, now, false);
        }
    }

    /// Queues two confirming probes. `origin` is when the probe was sent that they confirm: the
    /// outcomes of all three must fall into the short window.
    fn start_burst(&mut self, tunnel: u32, origin: Time, confirms_failure: bool) {
        let prober = &mut self.probers[tunnel as usize];
        prober.burst = Burst { left: 2, confirms_failure, answered: false };
        let not_after = origin + prober.settings.check.rules.down_window - outbox_slack();
        for _ in 0..2 {
            self.outbox.push(Item { tunnel, purpose: Purpose::Burst, not_after });
        }
    }

    /// Writes the next probe into `buffer`, if one may leave now.
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        loop {
            let Item { tunnel, purpose, .. } = self.outbox.pop(now)?;
            let prober = &mut self.probers[tunnel as usize];
            match purpose {
                Purpose::Regular => prober.queued = false,
                Purpose::Burst if prober.burst.confirms_failure && prober.burst.answered => {
                    prober.burst.left = prober.burst.left.saturating_sub(1);
                    continue;
                }
                Purpose::Burst => {}
            }
            let sequence = prober.in_flight.send(now, prober.timeout(), purpose);
            let [.., high, low] = schedule::mix(sequence, u64::from(tunnel)).to_be_bytes();
            let stamp = Stamp {
                fields: Fields { tunnel, sequence, sent: now.as_nanos() },
                identifier: prober.identifier(tunnel, self.secret.epoch),
                ip_id: u16::from_be_bytes([high, low]),
            };
            let length = prober.template.emit(&stamp, &self.secret, buffer)?;
            prober.counters.sent += 1;
            let transmit = Transmit {
                tunnel,
                sequence,
                egress: prober.settings.egress,
                destination: prober.template.destination(),
                length,
            };
            self.rearm(tunnel);
            return Some(transmit);
        }
    }

    /// When the engine wants to be woken; never later than something it has promised.
    pub fn next_wakeup(&mut self, now: Time) -> Option<Time> {
        [self.timers.earliest(), self.outbox.earliest(now)].into_iter().flatten().min()
    }

    /// Asks for traffic to leave a tunnel, or to come back. Moves no state.
    pub fn set_drain(&mut self, now: Time, tunnel: u32, drain: Option<Drain>) {
        let Some(prober) = self.probers.get_mut(tunnel as usize) else { return };
        if prober.drain == drain {
            return;
        }
        prober.drain = drain;
        let (name, penalty) = (prober.settings.name.clone(), prober.penalty());
        self.tell(now, Kind::Drain { tunnel: name, drained: drain.is_some(), penalty });
        self.steer(now, tunnel);
    }

    /// The engine stops.
    pub fn handle_stop(&mut self, now: Time) {
        self.tell(now, Kind::Stop {});
    }

    /// Takes the outcome of a settled probe: the way to every transition.
    fn sample(&mut self, tunnel: u32, at: Time, purpose: Purpose, retried: bool, result: Result<Duration, Failure>) {
        let wall = self.wall(at);
        let prober = &mut self.probers[tunnel as usize];
        let at = at.max(prober.last_sample);
        prober.last_sample = at;
        self.note_burst(tunnel, purpose);
        let prober = &mut self.probers[tunnel as usize];
        let outcome = match result {
            Ok(rtt) => {
                prober.note_success(rtt);
                Outcome::Success(rtt)
            }
            Err(failure) => {
                prober.note_failure(wall, failure);
                Outcome::Failure
            }
        };
        let transition = prober.health.judge(at, outcome);
        prober.follow_path();
        self.record_sample(tunnel, at, Some(outcome));
        if let Some(transition) = transition {
            self.transition(tunnel, transition);
        }
        self.warn_if_slow(tunnel, at);
        self.confirm(tunnel, at, purpose, retried, outcome);
    }

    /// Two more probes after a failure while not down, and after a success while down.
    fn confirm(&mut self, tunnel: u32, at: Time, purpose: Purpose, retried: bool, outcome: Outcome) {
        let prober = &self.probers[tunnel as usize];
        if purpose == Purpose::Burst || prober.burst.left > 0 {
            return;
        }
        let down = prober.health.state() == State::Down;
        match outcome {
            Outcome::Failure if !down && !retried => self.start_burst(tunnel, at - prober.timeout(), true),
            Outcome::Success(_) if down => self.start_burst(tunnel, at, false),
            Outcome::Failure | Outcome::Success(_) => {}
        }
    }

    /// What follows from a transition.
    fn transition(&mut self, tunnel: u32, transition: Transition) {
        let Transition { at, from, to, reason } = transition;
        let wall = self.wall(at);
        let prober = &mut self.probers[tunnel as usize];
        prober.since = wall;
        let (name, penalty) = (prober.settings.name.clone(), prober.penalty());
        self.tell(
            at,
            Kind::Transition { tunnel: name, from, to, rule: reason.rule, reason: reason.to_string(), penalty },
        );
        self.steer(at, tunnel);
    }

    /// Computes a tunnel's penalty anew and moves the traffic for which that makes a difference.
    fn steer(&mut self, at: Time, tunnel: u32) {
        let penalty = self.probers[tunnel as usize].penalty();
        for change in self.routes.set_penalty(tunnel, penalty) {
            let names = |tunnels: &[u32]| tunnels.iter().map(|&tunnel| self.name(tunnel).to_owned()).collect();
            let kind =
                Kind::Route { prefix: change.prefix.to_string(), from: names(&change.from), to: names(&change.to) };
            self.tell(at, kind);
        }
    }

    fn inconclusive(&mut self, tunnel: u32, sequence: u64, at: Time) {
        if let Some(probe) = self.probers[tunnel as usize].in_flight.settle(sequence, Standing::Inconclusive) {
            self.note_inconclusive(tunnel, probe.purpose, at);
        }
    }

    fn note_inconclusive(&mut self, tunnel: u32, purpose: Purpose, at: Time) {
        self.probers[tunnel as usize].counters.local_faults += 1;
        self.note_burst(tunnel, purpose);
        self.record_sample(tunnel, at, None);
    }

    fn note_burst(&mut self, tunnel: u32, purpose: Purpose) {
        if purpose == Purpose::Burst {
            let burst = &mut self.probers[tunnel as usize].burst;
            burst.left = burst.left.saturating_sub(1);
        }
    }

    fn record_sample(&mut self, tunnel: u32, at: Time, outcome: Option<Outcome>) {
        if !self.record {
            return;
        }
        let (ok, rtt) = match outcome {
            Some(Outcome::Success(rtt)) => (Some(true), Some(rtt)),
            Some(Outcome::Failure) => (Some(false), None),
            None => (None, None),
        };
        let rtt_us = rtt.map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX));
        let tunnel = self.name(tunnel).to_owned();
        self.tell(at, Kind::Sample { tunnel, t: at, ok, inconclusive: ok.is_none(), rtt_us });
    }

    fn warn_if_slow(&mut self, tunnel: u32, at: Time) {
        let prober = &mut self.probers[tunnel as usize];
        if prober.became_slow() {
            let reason = format!(
                "the round-trip time, {} ms, is above 70 % of the time-out, {} ms: raise timeout",
                prober.rtt.smoothed().unwrap_or_default().as_millis(),
                prober.timeout().as_millis(),
            );
            let tunnel = prober.settings.name.clone();
            self.tell(at, Kind::Warning { tunnel, reason });
        }
    }

    fn fault(&mut self, now: Time, tunnel: Option<String>, name: &'static str, reason: &str) {
        let at = self.faults.iter().position(|fault| fault.name == name);
        let at = at.unwrap_or_else(|| {
            self.faults.push(Fault { name, count: 0, told: Time::ZERO });
            self.faults.len() - 1
        });
        let fault = &mut self.faults[at];
        fault.count += 1;
        if fault.count == 1 || now.since(fault.told) >= FAULT_QUIET {
            fault.told = now;
            self.tell(now, Kind::LocalFault { tunnel, fault: name, reason: reason.to_owned() });
        }
    }

    fn tell(&mut self, at: Time, kind: Kind) {
        self.events.push(self.wall(at), kind);
    }

    fn rearm(&mut self, tunnel: u32) {
        let attention = self.probers[tunnel as usize].attention(self.stall_end);
        self.timers.set(tunnel, attention);
    }

    fn count(&self) -> u32 {
        u32::try_from(self.probers.len()).unwrap_or(u32::MAX)
    }

    fn name(&self, tunnel: u32) -> &str {
        self.probers.get(tunnel as usize).map_or("", |prober| &prober.settings.name)
    }

    fn wall(&self, at: Time) -> WallTime {
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

    /// How often each reason to refuse a packet has been met.
    #[must_use]
    pub const fn rejects(&self) -> &[u64; Reject::COUNT] {
        &self.rejects
    }
}

/// A burst probe leaves this long before its outcome would fall out of the short window.
const fn outbox_slack() -> Duration {
    Duration::from_millis(20)
}
