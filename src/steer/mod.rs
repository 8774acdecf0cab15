//! From penalties to the kernel's routes. PURE: a [`Picture`] of the kernel comes in, [`Change`]s go
//! out.

pub mod kernel;
pub mod setup;

pub use kernel::{Change, Foreign, Hop, KernelRoute, Leads, Link, Nexthop, Picture, Refusal, Rule, Way};
pub use setup::{Leg, Mode, Setup};
