//! What a state costs a route.

use super::State;

/// Added to the priority of every route over a degraded tunnel.
pub const DEGRADED: u32 = 500_000;
/// Added to the priority of every route over a tunnel that is down.
pub const DOWN: u32 = 1_000_000;
/// All that a tunnel can cost: its state, a drain, or one on top of the other.
pub const ALL: [u32; 5] = [0, DEGRADED, DOWN, DEGRADED + DOWN, DOWN + DOWN];
/// The largest base priority: a penalty must outrank any of them.
pub const BASE_MAX: u32 = 499_999;

/// An operator's wish that traffic leaves a tunnel. Not a failure, and never reported as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drain {
    /// As costly as degraded.
    Degraded,
    /// As costly as down.
    Down,
}

impl Drain {
    /// Its name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Degraded => "degraded",
            Self::Down => "down",
        }
    }
}

/// The penalty of a tunnel, from its state and an operator's drain: a pure look-up, computed anew
/// each time and never accumulated. The drain comes on top of the measured state, so that among
/// drained tunnels health still decides.
#[must_use]
pub const fn penalty(state: State, drain: Option<Drain>) -> u32 {
    let measured = match state {
        State::Unknown | State::Healthy => 0,
        State::Degraded => DEGRADED,
        State::Down => DOWN,
    };
    let wished = match drain {
        None => 0,
        Some(Drain::Degraded) => DEGRADED,
        Some(Drain::Down) => DOWN,
    };
    measured + wished
}
