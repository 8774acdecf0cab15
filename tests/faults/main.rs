//! Everything that can go wrong, by number: what is promised about it, and a trial that proves it.
//!
//! | file | holds |
//! | --- | --- |
//! | [`table`] | the faults by number, rows, and the page that is made of them |
//! | [`crowd`] | very many tunnels, with a far end that cannot be starved |
//! | [`process`] | processes that are stopped, starved, looked at |
//! | [`halt`] | the process stopped, or starved |
//!
//! What `tests/netns` has is used here, and where one of its trials proves a row, that trial is run under
//! the row's number.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a trial that cannot go on must fail")]
#![allow(dead_code, reason = "each of the modules of others is of use in part")]

mod abuse;
mod answers;
mod attacker;
mod clocks;
mod crowd;
mod flood;
mod halt;
mod life;
mod malformed;
mod process;
mod routes;
mod sealing;
mod stranger;
mod table;

// Of what `tests/netns` has, what is of use here; and each of its modules is of use in part.
macro_rules! of_netns {
    ($($path:literal $name:ident)*) => {
        $(#[path = $path] mod $name;)*
    };
}
of_netns! {
    "../netns/burden.rs" burden
    "../netns/by_hand.rs" by_hand
    "../netns/change.rs" change
    "../netns/commands.rs" commands
    "../netns/forgery.rs" forgery
    "../netns/kit.rs" kit
    "../netns/loss.rs" loss
    "../netns/manager.rs" manager
    "../netns/memory.rs" memory
    "../netns/parts.rs" parts
    "../netns/paths.rs" paths
    "../netns/recording.rs" recording
    "../netns/sealed.rs" sealed
    "../netns/silent.rs" silent
    "../netns/site.rs" site
    "../netns/spaces.rs" spaces
    "../netns/steering/mod.rs" steering
    "../netns/world.rs" world
    "../kills/mod.rs" kills
    "../sim/mod.rs" sim
}

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Trial};
use table::{Load, Proof, Row};
pub(crate) use world::{Case, case};
use world::{THREADS, World};

/// Taken by all who can be beside each other, and alone by who cannot.
static ROOM: RwLock<()> = RwLock::new(());

fn rows() -> Vec<Row> {
    let rooms = [
        burden::cases(),
        change::cases(),
        commands::cases(),
        forgery::cases(),
        loss::cases(),
        manager::cases(),
        memory::cases(),
        parts::cases(),
        paths::cases(),
        recording::cases(),
        sealed::cases(),
        silent::cases(),
        spaces::cases(),
        steering::cases(),
    ];
    let mut theirs: BTreeMap<String, Case> =
        rooms.into_iter().flatten().map(|case| (case.name.clone(), case)).collect();
    let mut netns = |name: &str| theirs.remove(name).unwrap_or_else(|| panic!("tests/netns has no {name}"));
    let mut rows: Vec<Row> = [
        answers::rows(&mut netns),
        flood::rows(),
        clocks::rows(&mut netns),
        malformed::rows(),
        sealing::rows(&mut netns),
        routes::rows(&mut netns),
        abuse::rows(&mut netns),
        life::rows(&mut netns),
        halt::rows(),
    ]
    .into_iter()
    .flatten()
    .collect();
    rows.sort_by_key(|row| row.number);
    rows
}

fn main() -> ExitCode {
    if let Some(ended) = attacker::attack() {
        return ended;
    }
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(THREADS);
    let world = World::enter(args.list);
    let rows = rows();
    let (checked, document) = (table::check(&rows), table::document(&rows));
    let trials = rows.into_iter().filter_map(|row| match row.proof {
        Proof::Trial(case, load) => Some((load, case)),
        Proof::Elsewhere(..) => None,
    });
    let (mut loud, mut quiet): (Vec<_>, Vec<_>) = trials.partition(|(load, _)| *load == Load::Loud);
    // While one waits to be alone no other begins: so these come last.
    quiet.append(&mut loud);
    let mut trials: Vec<Trial> =
        quiet.into_iter().map(|(load, case)| case.around(move |run| within(load, run)).trial(&world)).collect();
    trials.push(Trial::test("table_each_fault_has_its_row", move || checked.map_err(Into::into)));
    trials.push(Trial::test("table_the_page_says_what_the_trials_say", move || {
        table::assert_page(&document);
        Ok(())
    }));
    libtest_mimic::run(&args, trials).exit_code()
}

fn within(load: Load, run: Box<dyn FnOnce() + Send>) {
    // A trial that failed leaves the lock poisoned, and nothing else.
    match load {
        Load::Quiet => {
            let _beside = ROOM.read().unwrap_or_else(PoisonError::into_inner);
            run();
        }
        Load::Loud => {
            let _alone = ROOM.write().unwrap_or_else(PoisonError::into_inner);
            run();
        }
    }
}
