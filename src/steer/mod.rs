//! From penalties to the kernel's routes. PURE: a [`Picture`] of the kernel comes in, [`Change`]s go
//! out.
//!
//! Nothing here follows events: what should be is compared with what is, as often as need be, and the
//! difference is what to do (*level-triggered*). So it does not matter which events were missed, in
//! which order they came, or who died in between.
//!
//! | file | holds |
//! | --- | --- |
//! | `kernel` | what the kernel has and can be asked for, as values |
//! | `setup` | what is configured, as values |
//! | [`fib`] | one namespace: what should be, what is, the next batch of changes |
//! | `entry` | one prefix of it: what should be there, and what is |
//! | `diff` | the changes from the one to the other |
//! | `known` | what becomes of what is there by a change |
//! | `standing` | what to tell of it |
//! | `groups` | next-hop objects |
//! | `index` | where a prefix is found |
//! | `context` | what all prefixes have in common: verdicts, devices |
//! | `listed` | many things of a kind, to be told |
//! | `note`, `text` | what a person should know; changes as `ip` commands |

mod context;
mod diff;
mod entry;
pub mod fib;
mod groups;
mod index;
pub mod kernel;
mod known;
mod listed;
mod note;
pub mod setup;
mod standing;
mod text;

pub use fib::Fib;
pub use kernel::{Change, Foreign, Hop, KernelRoute, Leads, Link, Nexthop, Picture, Refusal, Rule, Way};
pub use note::Note;
pub use setup::{Leg, Mode, Setup};
pub use text::{protocol, shell_word};

/// Indices are 32 bits wide; a configuration cannot reach that many of anything.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
