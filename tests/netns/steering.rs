//! The built program steers the kernel's routes, and real traffic is forwarded by them.
//!
//! | file | holds |
//! | --- | --- |
//! | [`stage`] | routers, cables, a far end for each of two paths, what `ip` shows |
//! | [`stream`] | a numbered stream: what is lost, and which path each packet takes |
//! | [`moves`] | verdicts and drains move the stream |
//! | [`lives`] | starts, ends, kills, and what a dry run says |
//! | [`others`] | routes of others |
//! | [`drift`] | what others do to ours |
//! | [`ways`] | devices, addresses and carriers that go and come back |
//! | [`tables`] | rules, tables and namespaces |

pub(crate) mod drift;
pub(crate) mod lives;
pub(crate) mod moves;
pub(crate) mod others;
pub(crate) mod stage;
pub(crate) mod stream;
pub(crate) mod tables;
pub(crate) mod ways;

use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let rooms = [moves::cases(), lives::cases(), others::cases(), drift::cases(), ways::cases(), tables::cases()];
    rooms.into_iter().flatten().map(Case::with_routers).collect()
}

/// A trial for each mode.
fn in_both_modes(name: &str, run: fn(&str)) -> [Case; 2] {
    stage::MODES.map(|mode| case(format!("steering::{name}, in_mode_{mode}"), move || run(mode)))
}
