//! Real packets: probers and far ends in network namespaces, as root or as an ordinary user.
//!
//! | file | holds |
//! | --- | --- |
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
//! | [`discover`] | a configuration from what the kernel has |
//! | [`site`] | a place for the built program |
//! | [`commands`] | the built program, end to end |
//! | [`sealed`] | the built program and ESP: keys, sequence numbers, what is left after a kill |
//! | [`silent`] | the built program where it must not or cannot seal, and what it says then |
//! | [`spaces`] | the built program where namespaces and devices are missing, come and go |
//! | [`fib`] | the kernel's routes, objects and rules: changed by us and seen by `ip`, and the other way round |
//! | [`fib_edges`] | what must be refused, what must not be hit, what must not be lost |
//! | [`fib_lent`] | which objects others lead over |
//! | [`hearing`] | what others change there is heard, and what we change is not |
//! | [`spaces`] | the built program where namespaces and devices are missing, come and go |
//! | [`steering`] | the built program steers the kernel's routes: forwarded traffic, others, drift, devices |
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
mod discover;
mod fib;
mod fib_edges;
mod fib_lent;
mod forgery;
mod hearing;
mod inlets;
#[path = "../kills/mod.rs"]
mod kills;
mod kit;
mod loss;
mod manager;
mod memory;
mod parts;
mod paths;
mod reload;
mod sealed;
mod silent;
mod site;
mod spaces;
mod steering;
mod styles;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Trials at once, unless told otherwise: they mostly wait.
const THREADS: usize = 10;

/// One trial: its name, what it is, and what it needs beyond namespaces.
pub(crate) struct Case {
    name: String,
    needs: Needs,
    run: Box<dyn FnOnce() + Send>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Namespaces,
    /// The program nft, to make a kernel lose packets.
    Nft,
    /// Security associations of the kernel's, and the program ip to make them.
    Xfrm,
    /// The program ip, and a kernel with next-hop objects.
    Iproute,
    /// Tun devices, and the program ip to make them.
    Tun,
    /// The programs ip and nft, a kernel with next-hop objects, and settings of a namespace that can be
    /// written: to make routers.
    Routers,
    /// A second user: user namespaces as an ordinary user makes them have one only.
    TwoUsers,
}

pub(crate) fn case(name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> Case {
    Case { name: name.into(), needs: Needs::Namespaces, run: Box::new(run) }
}

impl Case {
    fn with_nft(self) -> Self {
        Self { needs: Needs::Nft, ..self }
    }

    fn with_xfrm(self) -> Self {
        Self { needs: Needs::Xfrm, ..self }
    }

    fn with_iproute(self) -> Self {
        Self { needs: Needs::Iproute, ..self }
    }

    fn with_tun(self) -> Self {
        Self { needs: Needs::Tun, ..self }
    }

    fn with_routers(self) -> Self {
        Self { needs: Needs::Routers, ..self }
    }

    fn with_two_users(self) -> Self {
        Self { needs: Needs::TwoUsers, ..self }
    }

    /// The trial, or what stands for it where it cannot run.
    fn trial(self, world: &World) -> Trial {
        let Self { name, needs, run } = self;
        let Some(reason) = world.lacks(needs) else {
            return Trial::test(name, || {
                run();
                Ok(())
            });
        };
        // What only root has is missing by no fault of the machine: run as root, too.
        if world.strict && (world.two_users || !matches!(needs, Needs::TwoUsers | Needs::Tun)) {
            return Trial::test(name, move || Err(Failed::from(reason)));
        }
        if !world.listing {
            eprintln!("skipped: {name}: {reason}");
        }
        Trial::test(name, || Ok(())).with_ignored_flag(true)
    }
}

/// What this machine lets us do.
struct World {
    namespaces: Result<(), String>,
    nft: Result<(), String>,
    xfrm: Result<(), String>,
    iproute: Result<(), String>,
    tun: Result<(), String>,
    two_users: bool,
    /// A trial that cannot run is a failure.
    strict: bool,
    listing: bool,
}

impl World {
    /// Leaves the machine's own network, and its mounts, for namespaces; to be called while there is one thread.
    fn enter(listing: bool) -> Self {
        let was_root = nix::unistd::geteuid().is_root();
        let unshared = unshare(CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from);
        let entered = unshared.or_else(|_| adit::io::netns::become_root_of_new_user_namespace());
        // What is mounted from now on is nobody else's business, and ends with the last trial.
        let entered = entered.and_then(|()| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            Ok(mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?)
        });
        Self {
            namespaces: entered.map_err(|error| format!("cannot make a network namespace: {error}")),
            nft: by_hand::nft_works(),
            xfrm: silent::xfrm_works(),
            iproute: fib::iproute_works(),
            tun: discover::tun_works(),
            two_users: was_root,
            strict: std::env::var_os("ADIT_REQUIRE_NETNS").is_some(),
            listing,
        }
    }

    fn lacks(&self, needs: Needs) -> Option<String> {
        let lacking = self.namespaces.clone().err();
        lacking.or_else(|| match needs {
            Needs::Namespaces => None,
            Needs::Nft => self.nft.clone().err(),
            Needs::Xfrm => self.xfrm.clone().err(),
            Needs::Iproute => self.iproute.clone().err(),
            Needs::Tun => self.tun.clone().err(),
            Needs::Routers => [&self.nft, &self.iproute].into_iter().find_map(|works| works.clone().err()),
            Needs::TwoUsers => (!self.two_users).then(|| "needs a second user: run as root".to_owned()),
        })
    }
}

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
        manager::cases(),
        memory::cases(),
        parts::cases(),
        paths::cases(),
        reload::cases(),
        devices::cases(),
        discover::cases(),
        commands::cases(),
        sealed::cases(),
        silent::cases(),
        spaces::cases(),
        fib::cases(),
        fib_edges::cases(),
        fib_lent::cases(),
        hearing::cases(),
        crash::cases(),
        steering::cases(),
    ];
    let trials = rooms.into_iter().flatten().map(|case| case.trial(&world)).collect();
    libtest_mimic::run(&args, trials).exit_code()
}
