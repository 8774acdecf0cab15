//! The planner of the kernel's routes against a model of the kernel: law 6, and what follows from it.

#![expect(clippy::unwrap_used, reason = "a model that cannot go on must fail")]
#![expect(clippy::wildcard_enum_match_arm, reason = "what is meant is named, the rest is not")]

mod chaos;
mod kernel;
mod objects;
mod rig;
mod scenes_devices;
mod scenes_lent;
mod scenes_others;
mod scenes_reloads;
mod scenes_restarts;
mod scenes_strays;
mod scenes_verdicts;
mod scenes_waiting;
mod setup;
mod v4;
mod v6;
mod wanted;
