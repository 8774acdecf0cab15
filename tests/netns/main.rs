//! Real packets: probers and far ends in network namespaces, as root or as an ordinary user.
//!
//! | file | holds |
//! | --- | --- |
//! | [`world`] | what this machine lets us do, and what is done about the rest |
//! | [`kit`] | a pair of namespaces, a far end, a prober, and waiting for something to happen |
//! | [`by_hand`] | packets made, taken and sent by hand |
//! | [`styles`] | the probe styles, the families, the GRE options |
//! | [`loss`] | what goes missing, comes late, twice, broken or out of order |
//! | [`change`] | links and addresses that go and come back |
//! | [`forgery`] | what a third party may send |
//! | [`inlets`] | which ESP packets a kernel lets through to us |
//! | [`burden`] | traffic beside the probes, a full queue, a prober that cannot run |
//! | [`paths`] | more than one tunnel: namespaces, return paths, marks |
//! | [`devices`] | by which device a packet comes, and by which it can leave |
//! | [`diagnose`] | each leg of a tunnel made to fail, and found |
//! | [`discover`] | a configuration from what the kernel has |
//! | [`site`] | a place for the built program |
//! | [`commands`] | the built program, end to end |
//! | [`top`] | the screen of all tunnels, on a terminal |
//! | [`sealed`] | the built program and ESP: keys, sequence numbers, what is left after a kill |
//! | [`recording`] | the built program with a recording that nobody takes |
//! | [`silent`] | the built program where it must not or cannot seal, and what it says then |
//! | [`spaces`] | the built program where namespaces and devices are missing, come and go |
//! | [`fib`] | the kernel's routes, objects and rules: changed by us and seen by `ip`, and the other way round |
//! | [`fib_edges`] | what must be refused, what must not be hit, what must not be lost |
//! | [`fib_lent`] | which objects others lead over |
//! | [`hearing`] | what others change there is heard, and what we change is not |
//! | [`steering`] | the built program steers the kernel's routes: forwarded traffic, others, drift, devices |
//! | [`endpoints`] | addresses beyond the far routers, probed over whatever route they take |
//! | [`web`] | what the built program serves over TCP |
//! | [`notify`] | people are told: programs, webhooks, kills, storms |
//! | [`crash`] | kill after kill while it sends ESP |
//!
//! This is the one place where tests meet real time. They say that something happens, and in which
//! order, never at which instant; so they wait for a condition, and their patience is long.
//!
//! Nothing here needs root: where it is missing, the whole binary moves into a user namespace. A
//! trial that cannot run is skipped with its reason; with `ADIT_REQUIRE_NETNS` set it fails.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a trial that cannot go on must fail")]

mod burden;
mod by_hand;
mod change;
mod commands;
mod crash;
mod devices;
mod diagnose;
mod discover;
mod drain;
mod endpoints;
mod fib;
mod fib_edges;
mod fib_lent;
mod forgery;
mod hearing;
mod inlets;
#[path = "../kills/mod.rs"]
mod kills;
mod kit;
mod log;
mod loss;
mod manager;
mod memory;
mod metrics;
mod notify;
mod parts;
mod paths;
mod recording;
mod reload;
mod sealed;
mod silent;
mod site;
mod spaces;
mod steering;
mod styles;
mod targets;
mod top;
mod web;
mod world;

use std::process::ExitCode;

use libtest_mimic::Arguments;

pub(crate) use world::{Case, case};
use world::{THREADS, World};

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(THREADS);
    let world = World::enter(args.list);
    let rooms = [
        styles::cases(),
        loss::cases(),
        change::cases(),
        forgery::cases(),
        inlets::cases(),
        burden::cases(),
        log::cases(),
        manager::cases(),
        memory::cases(),
        metrics::cases(),
        notify::cases(),
        parts::cases(),
        paths::cases(),
        recording::cases(),
        reload::cases(),
        devices::cases(),
        diagnose::cases(),
        discover::cases(),
        endpoints::cases(),
        drain::cases(),
        commands::cases(),
        top::cases(),
        sealed::cases(),
        silent::cases(),
        spaces::cases(),
        fib::cases(),
        fib_edges::cases(),
        fib_lent::cases(),
        hearing::cases(),
        crash::cases(),
        web::cases(),
        steering::cases(),
        targets::cases(),
    ];
    let trials = rooms.into_iter().flatten().map(|case| case.trial(&world)).collect();
    libtest_mimic::run(&args, trials).exit_code()
}
