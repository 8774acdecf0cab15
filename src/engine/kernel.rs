//! What goes to the keeper of the kernel's routes, and what comes from it.

use super::event::Kind;
use super::{Engine, Time};

/// What a tunnel's state costs its routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steer {
    /// The tunnel.
    pub tunnel: u32,
    /// The penalty; `None` before the first verdict, while routes stay as they were found.
    pub penalty: Option<u32>,
}

impl Engine {
    /// The next tunnel whose cost is to be known where routes are kept; none while that is
    /// held back. At the start that is every one.
    pub fn poll_steer(&mut self) -> Option<Steer> {
        if self.held().is_some() {
            return None;
        }
        let tunnel = self.steered.pop_front()?;
        Some(Steer { tunnel, penalty: self.probers.get(tunnel as usize)?.cost() })
    }

    /// Something of ours in the kernel's routing was not as we left it.
    pub fn handle_kernel_drift(&mut self, now: Time, netns: Option<String>, count: usize, changes: Vec<String>) {
        self.drifts += 1;
        self.tell(now, Kind::KernelDrift { netns, count, changes });
    }

    /// Something about the kernel's routes wants attention.
    pub fn handle_kernel_warning(&mut self, now: Time, reason: String) {
        self.tell(now, Kind::Warning { tunnel: None, reason });
    }

    /// The kernel told more of its routes than its queue holds; all was looked at anew.
    pub fn handle_kernel_overrun(&mut self, now: Time) {
        self.fault(now, None, "kernel-overrun", "the kernel's news of its routes overran their queue: looked at anew");
    }

    /// How often something of ours in the kernel's routing was not as we left it.
    #[must_use]
    pub const fn drifts(&self) -> u64 {
        self.drifts
    }
}
