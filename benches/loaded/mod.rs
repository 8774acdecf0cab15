//! An engine at work, for benches.

use std::time::Duration;

use adit::engine::{Engine, Setup, Time, Tunnel, WallTime};
use adit::wire::probe::Arrived;

use crate::sim::{self, secret, tunnel};

/// An engine in its steady state, and the answers to the probes that it has just sent.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    tunnels: Vec<Tunnel>,
    pub(crate) now: Time,
    buffer: Vec<u8>,
    pub(crate) answers: Vec<Vec<u8>>,
    sent: u64,
}

impl Loaded {
    pub(crate) fn new(count: u32) -> Self {
        let tunnels: Vec<Tunnel> = (0..count).map(tunnel).collect();
        let setup = Setup {
            tunnels: tunnels.clone(),
            routes: Vec::new(),
            places: Vec::new(),
            steers: false,
            secret: secret(),
            record: false,
            associations: std::collections::BTreeMap::new(),
        };
        let engine = Engine::new(Time::ZERO, WallTime(0), setup);
        let mut loaded = Self { engine, tunnels, now: Time::ZERO, buffer: vec![0; 2048], answers: Vec::new(), sent: 0 };
        // The long window is full from here on.
        for _ in 0..310 {
            loaded.send();
            loaded.settle();
        }
        loaded
    }

    /// Every tunnel sends a probe; the far ends answer.
    pub(crate) fn send(&mut self) {
        self.now = self.now + Duration::from_millis(1_060);
        self.engine.handle_timeout(self.now);
        self.answers.clear();
        let far = sim::far::Far::default();
        let mut left = Vec::new();
        while let Some(transmit) = self.engine.poll_transmit(self.now, &mut self.buffer) {
            let onion = &self.tunnels[transmit.tunnel as usize].onion;
            let sent = &self.buffer[..transmit.length];
            self.answers.push(far.answer(sent, onion.style.direction, onion));
            left.push(transmit);
        }
        self.engine.handle_sent(self.now, self.now, left.iter());
        self.sent += left.len() as u64;
        self.now = self.now + Duration::from_millis(10);
    }

    pub(crate) fn settle(&mut self) {
        for answer in &self.answers {
            self.engine.handle_datagram(self.now, self.now, 0, 0, Arrived::V4(answer));
        }
    }

    /// How many probes have left so far.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }
}
