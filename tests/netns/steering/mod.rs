//! The built program steers the kernel's routes, and real traffic is forwarded by them.
//!
//! | file | holds |
//! | --- | --- |
//! | [`net`] | namespaces as routers, and `ip` in them |
//! | [`stage`] | two paths with a far end for each, and the program that steers |
//! | [`stream`] | a numbered stream: what is lost, and which path each packet takes |
//! | [`witness`] | that there was a route at each moment |
//! | [`moves`] | verdicts and drains move the stream |
//! | [`lives`] | starts, ends, kills, and what a dry run says |
//! | [`others`] | routes of others |
//! | [`drift`] | what others do to ours |
//! | [`feuds`] | and do again and again |
//! | [`leaving`] | what goes at the end and in the sweep, and what must stay |
//! | [`held`] | all ways out that are lost at once |
//! | [`dry`] | what a dry run prints, and a shell makes of it |
//! | [`ways`] | devices, addresses and carriers that go and come back |
//! | [`tables`] | rules, tables and namespaces |

mod drift;
mod dry;
mod feuds;
mod held;
mod leaving;
mod lives;
mod moves;
pub(crate) mod net;
mod others;
pub(crate) mod stage;
pub(crate) mod stream;
mod tables;
mod ways;
pub(crate) mod witness;

use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let rooms = [moves::cases(), lives::cases(), others::cases(), drift::cases(), ways::cases(), tables::cases()];
    let more = [feuds::cases(), leaving::cases(), dry::cases(), held::cases()];
    rooms.into_iter().chain(more).flatten().map(Case::with_routers).collect()
}

/// A trial for each mode.
fn in_both_modes(name: &str, run: fn(&str)) -> [Case; 2] {
    stage::MODES.map(|mode| case(format!("steering::{name}, in_mode_{mode}"), move || run(mode)))
}
