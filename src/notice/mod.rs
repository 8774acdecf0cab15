//! What people are told: which events, together with which others, and once.
//!
//! ```text
//! event ─▶ sink's filter ─▶ guard against repetition ─▶ batch ─▶ message ─▶ a program, a webhook
//! counters ─▶ objective ──────────────────────────────▲
//! ```
//!
//! A **sink** is what people are told by. A **message** is what a sink is told at once: whatever has come
//! together in its **batch**. A sink is told one message after the other, so what happens while it is told waits in
//! its next batch, of which a part is listed and the rest is counted: ten thousand tunnels that go down together are
//! a message or two.
//!
//! All that is decided here can be written down at any moment ([`Desk::note`]), and taken up again: so nothing is told
//! twice, but for the one message that was on its way to a sink when everything was killed.
//!
//! | file | holds |
//! | --- | --- |
//! | `sink` | a sink as it is configured |
//! | `heard` | events and tunnels, as whoever follows the daemon hears of them |
//! | `batch` | what has come together, and the message that it makes |
//! | `guard` | the same state of the same tunnel, again and again |
//! | `objective` | a share of successes that is to be reached |
//! | `post` | one sink: its batch, its message under way |
//! | `desk` | all of them |
//!
//! May import: the engine's values.

mod batch;
mod desk;
mod guard;
mod heard;
mod objective;
mod post;
mod sink;

pub use batch::{LISTED, Message};
pub use desk::{Delivery, Desk, Note};
pub use heard::{Event, Now, Seen, What};
pub use post::{ATTEMPTS, Outcome};
pub use sink::{Headers, Means, Notify, Objective, Sink, matches};
