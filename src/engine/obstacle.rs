//! Tunnels that cannot be probed, by no fault of theirs: unknown, with the reason, and never down.
//!
//! That no probe can be sent says nothing about what a tunnel carries (law 4). So the health of such a
//! tunnel is as if it were new until the obstacle is gone, but for its penalty: that of the last verdict
//! stays until there is another.

use std::fmt;
use std::time::Duration;

use super::event::Kind;
use super::health::Health;
use super::inflight::Standing;
use super::prober::Burst;
use super::{Engine, State, Time, schedule};

/// Devices are inspected often enough that a verdict older than this was not made by one that swallows
/// probes.
const INSPECTED: Duration = Duration::from_secs(30);
/// Tunnels that can be probed again begin within this time.
pub(super) const SPREAD: Duration = Duration::from_secs(1);

/// Why a tunnel cannot be probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// Keys are handed over at run time, and none have been.
    NotInstalled,
    /// Nobody knows which sequence numbers have been used.
    StateLost(String),
    /// The kernel has an association with the same SPI for the same address: sending on it would use
    /// the kernel's sequence numbers and nonces a second time.
    Conflict(u32),
    /// Every sequence number has been used.
    Exhausted,
    /// No more sequence numbers can be reserved, because they cannot be written down.
    Unwritten(String),
    /// The kernel's tunnel device would drop the probe and tell nobody.
    Withheld(&'static str),
}

impl Obstacle {
    /// The name in every output.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotInstalled => "no-keys",
            Self::StateLost(_) => "sequence-state-lost",
            Self::Conflict(_) => "spi-conflict",
            Self::Exhausted => "sequence-exhausted",
            Self::Unwritten(_) => "sequence-state-unwritten",
            Self::Withheld(_) => "withheld",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        match self {
            Self::NotInstalled => f.write_str("no security associations have been installed; run `adit sa install`"),
            Self::StateLost(why) | Self::Unwritten(why) => f.write_str(why),
            Self::Conflict(spi) => write!(
                f,
                "the kernel has an association with SPI {spi:#x} for the same address; give this tunnel a pair of its \
                 own, or use encapsulation = \"device\" for the kernel's"
            ),
            Self::Exhausted => {
                f.write_str("every sequence number of the association has been used; give it new keys and SPIs")
            }
            Self::Withheld(why) => f.write_str(why),
        }
    }
}

impl Engine {
    /// Whether the kernel's device would drop a tunnel's probes and tell nobody, and why.
    pub fn handle_withheld(&mut self, now: Time, tunnel: u32, why: Option<&'static str>) {
        if (tunnel as usize) < self.probers.len() {
            self.set_obstacle(now, tunnel, why.map(Obstacle::Withheld));
        }
    }

    /// Draws the consequences of an obstacle that is there, or not any more.
    pub(super) fn set_obstacle(&mut self, now: Time, tunnel: u32, obstacle: Option<Obstacle>) {
        let before = std::mem::replace(&mut self.probers[tunnel as usize].obstacle, obstacle.clone());
        if before == obstacle {
            return;
        }
        let (name, reason) = (self.name(tunnel).to_owned(), obstacle.as_ref().map(Obstacle::to_string));
        self.tell(now, Kind::Obstacle { tunnel: name, reason });
        match (before, obstacle) {
            (None, Some(obstacle)) => self.halt(now, tunnel, &obstacle),
            (Some(_), None) => self.resume(now, tunnel),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Nothing can be known of this tunnel any more.
    fn halt(&mut self, now: Time, tunnel: u32, obstacle: &Obstacle) {
        let wall = self.wall(now);
        let from = self.forget(tunnel);
        let prober = &mut self.probers[tunnel as usize];
        let since = Duration::from_nanos(wall.0.saturating_sub(prober.since.0));
        if from != State::Unknown {
            // What was last measured is worth more than nothing: traffic does not come back to a dead
            // tunnel because this host has run into trouble. But what was measured while a device
            // swallowed the probes, which is seen a little later, is not the tunnel's.
            let swallowed = matches!(obstacle, Obstacle::Withheld(_)) && since < INSPECTED;
            prober.held = if swallowed { prober.held } else { Some(from) };
            self.enter(now, tunnel, [from, State::Unknown], 0, obstacle.to_string());
        }
        self.rearm(tunnel);
    }

    /// Forgets what was measured, and what is under way. The state until now.
    pub(super) fn forget(&mut self, tunnel: u32) -> State {
        let prober = &mut self.probers[tunnel as usize];
        let waiting: Vec<u64> = prober.in_flight.waiting().map(|(sequence, _)| sequence).collect();
        for sequence in waiting {
            prober.in_flight.settle(sequence, Standing::Inconclusive);
            prober.spoil(sequence);
        }
        let from = prober.health.state();
        prober.health = Health::new(*prober.health.rules());
        prober.burst = Burst::default();
        from
    }

    /// A tunnel can be probed again: as if it were new.
    pub(super) fn resume(&mut self, now: Time, tunnel: u32) {
        let prober = &mut self.probers[tunnel as usize];
        // Not all at once, where one thing was in the way of many.
        let check = &prober.settings.check;
        let phase = schedule::phase(prober.number, check.interval.min(SPREAD));
        prober.next_due = (now + phase).ceil(schedule::step(check, self.longest_tick));
        prober.started = false;
        self.rearm(tunnel);
    }
}
