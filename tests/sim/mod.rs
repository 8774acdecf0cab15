//! Virtual time: an engine, the far ends of its tunnels, and the packets between them.
//!
//! Nothing sleeps. [`Sim::run_until`] jumps from one moment at which something happens to the next
//! (the engine's own wake-up or a packet's arrival) and calls the engine in the order that
//! `src/engine/mod.rs` lays down. A far end makes its answers from the very bytes that were sent,
//! with pnet, so that nothing of `wire` is trusted to judge itself.

#![allow(dead_code, reason = "each test uses its part of it")]
#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on must fail")]

pub(crate) mod esp;
pub(crate) mod far;
pub(crate) mod hosts;
pub(crate) mod router;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use adit::engine::diagnose::{FIRST, TOO_LONG};
use adit::engine::event::{Event, Kind};
use adit::engine::health::{Rules, State};
use adit::engine::settings::{Check, ReturnPath, Timeout};
use adit::engine::snapshot::TunnelView;
use adit::engine::{
    Ear, Engine, Layout, Namespace, Reloaded, Route, Setup, Time, Transmit, Tunnel, Unsent, WallTime, schedule,
};
use adit::wire::filter::Protocol;
use adit::wire::payload::{Key, Secret};
use adit::wire::probe::Arrived;
use adit::wire::{Direction, Ends, Family, Kind as ProbeKind, Onion, Style, gre};
use far::{Far, Sending};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn at_ms(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

pub(crate) fn secret() -> Secret {
    Secret { key: Key::new(*b"the run's own key"[..16].first_chunk().unwrap()), epoch: 0x1122_3344_5566_7788 }
}

/// A bidirectional request-style tunnel over IPv4, probed every second, with all defaults.
pub(crate) fn tunnel(index: u32) -> Tunnel {
    let v4 = |base: [u8; 4], add: u32| IpAddr::from(Ipv4Addr::from(u32::from_be_bytes(base) + add));
    Tunnel {
        name: format!("t{index}"),
        onion: Onion {
            style: Style { kind: ProbeKind::Request, direction: Direction::Bidirectional },
            outer: Ends::new(v4([192, 0, 2, 1], 0), v4([100, 64, 0, 1], index)).unwrap(),
            encapsulation: gre::Options::default().into(),
            inner: Ends::new(v4([10, 100, 0, 0], 2 * index), v4([10, 100, 0, 1], 2 * index)).unwrap(),
            ttl: 64,
            dscp: 48,
            size: 72,
        },
        check: Check {
            enabled: true,
            interval: Duration::from_secs(1),
            timeout: Timeout::Fixed(ms(500)),
            early_retry: true,
            return_path: ReturnPath::Strict,
            mark_key: None,
            rules: Rules::default(),
        },
        namespace: 0,
        egress: 0,
        terms: None,
        exit: 0,
        interface: None,
        targets: None,
    }
}

/// A route to one prefix over each tunnel, the first of them preferred.
pub(crate) fn route(tunnel: u32) -> Route {
    Route {
        prefix: "10.0.0.0/8".parse().unwrap(),
        tunnel,
        priority: 100 * (tunnel + 1),
        weight: 1,
        device: None,
        via: None,
        place: 0,
        onlink: false,
    }
}

/// One probe that the engine gave out to be sent, whatever became of it.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) tunnel: u32,
    pub(crate) sequence: u64,
    /// What the kernel said to it.
    pub(crate) sending: Sending,
    /// The packet, if [`Sim::keep_bytes`] is set.
    pub(crate) bytes: Vec<u8>,
}

struct Packet {
    namespace: Namespace,
    tunnel: u32,
    bytes: Vec<u8>,
}

pub(crate) struct Sim {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    /// The far end of each tunnel; change it at will between two runs.
    pub(crate) far: Vec<Far>,
    pub(crate) tunnels: Vec<Tunnel>,
    /// What endpoints are, by address.
    pub(crate) hosts: BTreeMap<IpAddr, hosts::Host>,
    /// Everything the engine told, in its order.
    pub(crate) events: Vec<Event>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) keep_bytes: bool,
    /// So much may happen at one instant that the ring cannot hold it: then `events` has gaps.
    pub(crate) gaps_allowed: bool,
    /// A refused burst may leave another probe whose early retry was due before: then the engine wants
    /// to be woken at once.
    pub(crate) haste_allowed: bool,
    /// It is woken as the daemon is: at its ticks only, to which what arrives waits.
    pub(crate) by_ticks: bool,
    /// What arrives is lost in the receive queue, and the kernel's counter says so.
    pub(crate) overflowing: bool,
    /// The engine is stopped for so long between a turn's beginning and the reading of its sockets.
    pub(crate) reading_takes: Duration,
    /// And between a probe's stamp and the system call that sends it.
    pub(crate) sending_takes: Duration,
    /// And all that a turn sends leave so long one after the other.
    pub(crate) batch_takes: Duration,
    begun: bool,
    /// Packets under way to us, by arrival.
    air: BTreeMap<(Time, u64), Packet>,
    order: u64,
    drawn: u64,
    seed: u64,
    buffer: Vec<u8>,
}

impl Sim {
    pub(crate) fn new(tunnels: Vec<Tunnel>, routes: Vec<Route>, seed: u64) -> Self {
        Self::recording(tunnels, routes, seed, false)
    }

    /// With every sample told as an event, if `record`.
    pub(crate) fn recording(tunnels: Vec<Tunnel>, routes: Vec<Route>, seed: u64, record: bool) -> Self {
        Self::starting(Time::ZERO, tunnels, routes, seed, record)
    }

    /// At this time, which is the wall clock's, too.
    pub(crate) fn starting(now: Time, tunnels: Vec<Tunnel>, routes: Vec<Route>, seed: u64, record: bool) -> Self {
        let setup = Setup {
            tunnels: tunnels.clone(),
            routes,
            places: Vec::new(),
            steers: false,
            secret: secret(),
            record,
            associations: BTreeMap::new(),
        };
        Self {
            engine: Engine::new(now, WallTime(now.as_nanos()), setup),
            now,
            far: vec![Far::default(); tunnels.len()],
            tunnels,
            hosts: BTreeMap::new(),
            events: Vec::new(),
            sent: Vec::new(),
            keep_bytes: false,
            gaps_allowed: false,
            haste_allowed: false,
            by_ticks: false,
            overflowing: false,
            reading_takes: Duration::ZERO,
            sending_takes: Duration::ZERO,
            batch_takes: Duration::ZERO,
            begun: false,
            air: BTreeMap::new(),
            order: 0,
            drawn: 0,
            seed,
            buffer: vec![0; 16 << 10],
        }
    }

    /// Evenly distributed, the same for the same seed.
    pub(crate) fn random(&mut self) -> u64 {
        self.drawn += 1;
        schedule::mix(self.seed, self.drawn)
    }

    /// A random part of a duration.
    pub(crate) fn part_of(&mut self, whole: Duration) -> Duration {
        let nanos = (whole.as_nanos() * u128::from(self.random())) >> 64;
        Duration::from_nanos(u64::try_from(nanos).unwrap())
    }

    /// Lets everything happen that happens before `until`.
    pub(crate) fn run_until(&mut self, until: Time) {
        while let Some(next) = self.next_moment().filter(|next| *next < until) {
            self.now = next;
            self.wake();
        }
        self.now = self.now.max(until);
    }

    /// Lets the next thing happen, if it does before `until`; else time passes until then.
    pub(crate) fn step(&mut self, until: Time) {
        match self.next_moment().filter(|next| *next < until) {
            Some(next) => {
                self.now = next;
                self.wake();
            }
            None => self.now = self.now.max(until),
        }
    }

    pub(crate) fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now + duration);
    }

    /// The engine gets no processor time for so long (SIGSTOP, an overloaded host): packets still
    /// arrive in the kernel's queue and are stamped there.
    pub(crate) fn stall(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.wake();
    }

    /// Nothing passes any more, and what is under way is lost too.
    pub(crate) fn cut(&mut self, tunnel: u32) {
        self.far[tunnel as usize].cut = true;
        self.air.retain(|_, packet| packet.tunnel != tunnel);
    }

    pub(crate) fn heal(&mut self, tunnel: u32) {
        self.far[tunnel as usize].cut = false;
    }

    /// Puts a packet into the receive queue of a namespace.
    pub(crate) fn inject(&mut self, at: Time, namespace: Namespace, tunnel: u32, bytes: Vec<u8>) {
        self.order += 1;
        self.air.insert((at, self.order), Packet { namespace, tunnel, bytes });
    }

    /// The moment at which something happens next.
    fn next_moment(&mut self) -> Option<Time> {
        if !std::mem::replace(&mut self.begun, true) {
            self.engine.handle_begin(self.now);
        }
        let wakeup = self.engine.next_wakeup(self.now);
        let arrival = self.air.keys().next().map(|(at, _)| *at);
        let next = [wakeup, arrival].into_iter().flatten().min().map(|next| next.max(self.now))?;
        Some(if self.by_ticks { next.ceil(self.engine.tick()) } else { next })
    }

    /// One turn of the loop, in the order that the engine asks for.
    fn wake(&mut self) {
        let now = self.now;
        self.engine.handle_wakeup(now);
        self.now = now + self.reading_takes;
        self.read();
        self.engine.handle_timeout(now);
        self.transmit();
        self.listen();
        let next = self.engine.next_wakeup(self.now);
        let calm = self.haste_allowed || self.by_ticks || self.now > now || next.is_none_or(|next| next > now);
        assert!(calm, "after its turn at {now} the engine wants another at once");
    }

    fn read(&mut self) {
        let now = self.now;
        self.engine.handle_drained(now);
        while let Some(entry) = self.air.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), packet) = entry.remove_entry();
            if self.overflowing {
                let to_endpoint = Ear { namespace: 0, family: Family::V4, protocol: Protocol::Icmp };
                let ear = self.tunnels.get(packet.tunnel as usize).map_or(to_endpoint, Tunnel::ear);
                self.engine.handle_overflow(now, ear, 1);
            } else {
                self.engine.handle_datagram(now, at, packet.namespace, 0, arrived(&packet.bytes));
            }
        }
    }

    /// Probes leave one by one in no time, or where sending takes its time all of a turn after that.
    fn transmit(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let stamped = self.now;
        let mut held_up = Vec::new();
        while let Some(transmit) = self.engine.poll_transmit(stamped, &mut buffer) {
            let bytes = &buffer[..transmit.length];
            if self.sending_takes.is_zero() && self.batch_takes.is_zero() {
                self.send(transmit, bytes);
                self.engine.handle_sent(self.now, self.now, [transmit].iter());
            } else {
                held_up.push((transmit, bytes.to_vec()));
            }
        }
        if !held_up.is_empty() {
            let begun = stamped + self.sending_takes;
            for (place, (transmit, bytes)) in (0..).zip(&held_up) {
                self.now = begun + self.batch_takes * place / u32::try_from(held_up.len()).unwrap();
                self.send(*transmit, bytes);
            }
            self.now = begun + self.batch_takes;
            self.engine.handle_sent(begun, self.now, held_up.iter().map(|(transmit, _)| transmit));
        }
        self.engine.handle_flushed(self.now);
        self.buffer = buffer;
    }

    /// What is under way to us comes at this time.
    pub(crate) fn delay_what_is_under_way(&mut self, at: Time) {
        for ((_, order), packet) in std::mem::take(&mut self.air) {
            self.air.insert((at, order), packet);
        }
    }

    fn send(&mut self, transmit: Transmit, bytes: &[u8]) {
        let Transmit { tunnel, sequence, destination, egress, .. } = transmit;
        if tunnel >= FIRST {
            return self.send_leg(transmit, bytes);
        }
        if tunnel >= hosts::NUMBERS {
            return self.send_to_host(transmit, bytes);
        }
        let settings = &self.tunnels[tunnel as usize];
        assert_eq!((destination, egress), (settings.onion.outer.far(), settings.egress));
        let sending = self.far[tunnel as usize].sending;
        let kept = if self.keep_bytes { bytes.to_vec() } else { Vec::new() };
        self.sent.push(Sent { at: self.now, tunnel, sequence, sending, bytes: kept });
        match sending {
            Sending::Fine => self.pass_on(tunnel, bytes),
            Sending::LocalFault(error) => {
                self.engine.handle_unsent(self.now, tunnel, sequence, Unsent::LocalFault(error));
            }
            Sending::Refused(error) => {
                self.engine.handle_unsent(self.now, tunnel, sequence, Unsent::Refused(error));
            }
            Sending::Missing => self.engine.handle_unsent(self.now, tunnel, sequence, Unsent::Missing),
        }
    }

    /// A probe of a diagnosis leaves; its far router is [`Far::router`].
    fn send_leg(&mut self, Transmit { tunnel: number, sequence, destination, egress, .. }: Transmit, bytes: &[u8]) {
        let tunnel = self.engine.diagnosed(number).unwrap();
        let settings = &self.tunnels[tunnel as usize];
        assert_eq!((destination, egress), (settings.onion.outer.far(), settings.egress));
        let far = &mut self.far[tunnel as usize];
        far.router.note(self.now, bytes);
        let unsent = match far.sending {
            Sending::Fine if bytes.len() > far.router.link => Some(Unsent::Refused(TOO_LONG)),
            Sending::Fine => None,
            Sending::LocalFault(error) => Some(Unsent::LocalFault(error)),
            Sending::Refused(error) => Some(Unsent::Refused(error)),
            Sending::Missing => Some(Unsent::Missing),
        };
        if let Some(unsent) = unsent {
            return self.engine.handle_unsent(self.now, number, sequence, unsent);
        }
        let via = self.tunnels[far.returns_by.unwrap_or(tunnel) as usize].onion.clone();
        if far.cut {
            return;
        }
        let (at, namespace) = (self.now + far.rtt, settings.namespace);
        if let Some(answer) = far.router.treat(bytes, &via) {
            self.inject(at, namespace, tunnel, answer);
        }
    }

    /// What the far end makes of a probe.
    fn pass_on(&mut self, tunnel: u32, bytes: &[u8]) {
        if self.far[tunnel as usize].loses() {
            return;
        }
        let drawn = self.random();
        let far = self.far[tunnel as usize].clone();
        if drawn % 1_000_000 < u64::from(far.loss_ppm) {
            return;
        }
        let is_one = far.silent.is_empty() && far.slower.is_empty();
        let target = if is_one { None } else { far::target(bytes) };
        if target.is_some_and(|target| far.silent.contains(&target)) {
            return;
        }
        let slower = far.slower.iter().find(|(slow, _)| Some(*slow) == target).map_or(Duration::ZERO, |(_, by)| *by);
        let via = &self.tunnels[far.returns_by.unwrap_or(tunnel) as usize].onion;
        let answer = far.answer(bytes, self.tunnels[tunnel as usize].onion.style.direction, via);
        let namespace = self.tunnels[tunnel as usize].namespace;
        for _ in 0..far.copies {
            let at = self.now + far.rtt + slower + self.part_of(far.jitter);
            self.inject(at, namespace, tunnel, answer.clone());
        }
    }

    /// Takes what the engine has told, and holds the routes to laws 3 and 6 whenever it told
    /// something that moves them.
    fn listen(&mut self) {
        let told = self.events.last().map_or(0, |event| event.id);
        let missed = self.engine.events().missed(told);
        assert!(self.gaps_allowed || missed == 0, "the ring let go of events before they were read");
        let news: Vec<Event> = self.engine.events().after(told).cloned().collect();
        let moved = news.iter().any(|event| matches!(event.kind, Kind::Transition { .. } | Kind::Drain { .. }));
        self.events.extend(news);
        if moved {
            self.audit_routes();
        }
    }

    /// Law 3: each effective priority is base plus penalty, and the lowest carry the traffic; law 6:
    /// no prefix is without a route that does.
    pub(crate) fn audit_routes(&self) {
        let routes = self.engine.routes();
        let mut lowest: BTreeMap<String, u32> = BTreeMap::new();
        let mut selected: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (_, route, carries) in routes.iter() {
            let effective = route.priority + routes.penalty(route.tunnel);
            assert_eq!(routes.effective_priority(route), effective);
            let prefix = route.prefix.to_string();
            lowest.entry(prefix.clone()).and_modify(|low| *low = effective.min(*low)).or_insert(effective);
            if carries {
                selected.entry(prefix).or_default().push(effective);
            }
        }
        for (prefix, low) in lowest {
            let carrying = selected.get(&prefix).map_or(&[][..], Vec::as_slice);
            assert!(!carrying.is_empty(), "no route to {prefix} carries traffic");
            assert!(carrying.iter().all(|effective| *effective == low), "{prefix}: {carrying:?}, lowest {low}");
        }
    }

    /// Another configuration. Far ends stay with the names of their tunnels, and so does what is under way.
    pub(crate) fn reload(&mut self, layout: Layout) -> Reloaded {
        let names: BTreeMap<String, usize> =
            self.tunnels.iter().enumerate().map(|(index, tunnel)| (tunnel.name.clone(), index)).collect();
        let known = |tunnel: &Tunnel| names.get(&tunnel.name).map_or_else(Far::default, |&at| self.far[at].clone());
        let far = layout.tunnels.iter().map(known).collect();
        for packet in self.air.values_mut() {
            let name = &self.tunnels[packet.tunnel as usize].name;
            // Of one that is gone only the bytes matter.
            let index = layout.tunnels.iter().position(|tunnel| tunnel.name == *name).unwrap_or(0);
            packet.tunnel = u32::try_from(index).unwrap();
        }
        (self.far, self.tunnels) = (far, layout.tunnels.clone());
        let reloaded = self.engine.handle_reload(self.now, layout);
        self.listen();
        self.audit_routes();
        reloaded
    }

    /// What an operator does between two wake-ups; the events it causes are taken.
    pub(crate) fn command(&mut self, act: impl FnOnce(&mut Engine, Time)) {
        act(&mut self.engine, self.now);
        self.listen();
    }

    pub(crate) fn state(&self, tunnel: u32) -> State {
        self.engine.state(tunnel).unwrap()
    }

    pub(crate) fn view(&mut self, tunnel: u32) -> TunnelView {
        let now = self.now;
        self.engine.tunnel(now, tunnel).unwrap()
    }

    /// Transitions so far: when, which tunnel, to what.
    pub(crate) fn transitions(&self) -> Vec<(Time, String, State)> {
        let all = self.events.iter().filter_map(|event| {
            let Kind::Transition { tunnel, to, .. } = &event.kind else { return None };
            Some((Time::from_nanos(event.at.0), tunnel.clone(), *to))
        });
        all.collect()
    }

    /// How often a reject was counted.
    pub(crate) fn rejected(&self, reject: adit::wire::Reject) -> u64 {
        self.engine.rejects()[reject.index()]
    }

    /// Runs until the tunnel has this state; when that was.
    pub(crate) fn run_to(&mut self, tunnel: u32, state: State, patience: Duration) -> Time {
        let last = self.now + patience;
        while self.state(tunnel) != state {
            let next = self.next_moment().unwrap();
            assert!(next <= last, "not {state} after {patience:?}, but {}", self.state(tunnel));
            self.now = next;
            self.wake();
        }
        let name = &self.tunnels[tunnel as usize].name;
        let entered = self.transitions().into_iter().rev().find(|(_, of, _)| of == name);
        entered.map_or(self.now, |(at, ..)| at)
    }
}

/// A whole packet as a raw socket hands it over.
pub(crate) fn arrived(bytes: &[u8]) -> Arrived<'_> {
    match bytes.first().map_or(4, |first| first >> 4) {
        6 => {
            let address = |at: usize| Ipv6Addr::from(*bytes[at..].first_chunk::<16>().unwrap());
            Arrived::V6 { protocol: bytes[6], source: address(8), destination: address(24), payload: &bytes[40..] }
        }
        _ => Arrived::V4(bytes),
    }
}
