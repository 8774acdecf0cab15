//! What this machine lets us do: a trial that needs more is skipped with its reason, or fails where that is
//! asked for.

#![allow(dead_code, reason = "each target of trials uses its part of it")]

use std::process::Command;

use adit::io::netns;
use libtest_mimic::{Failed, Trial};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Trials at once, unless told otherwise: they mostly wait.
pub(crate) const THREADS: usize = 10;

/// One trial: its name, what it is, and what it needs beyond namespaces.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) needs: Needs,
    run: Box<dyn FnOnce() + Send>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
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
    pub(crate) fn with_nft(self) -> Self {
        Self { needs: Needs::Nft, ..self }
    }

    pub(crate) fn with_xfrm(self) -> Self {
        Self { needs: Needs::Xfrm, ..self }
    }

    pub(crate) fn with_iproute(self) -> Self {
        Self { needs: Needs::Iproute, ..self }
    }

    pub(crate) fn with_tun(self) -> Self {
        Self { needs: Needs::Tun, ..self }
    }

    pub(crate) fn with_routers(self) -> Self {
        Self { needs: Needs::Routers, ..self }
    }

    pub(crate) fn with_two_users(self) -> Self {
        Self { needs: Needs::TwoUsers, ..self }
    }

    /// The same under another name.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// The same, run within something else.
    pub(crate) fn around(self, wrap: impl FnOnce(Box<dyn FnOnce() + Send>) + Send + 'static) -> Self {
        let run = self.run;
        Self { run: Box::new(move || wrap(run)), ..self }
    }

    /// The trial, or what stands for it where it cannot run.
    pub(crate) fn trial(self, world: &World) -> Trial {
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
pub(crate) struct World {
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
    pub(crate) fn enter(listing: bool) -> Self {
        let was_root = nix::unistd::geteuid().is_root();
        let unshared = unshare(CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from);
        let entered = unshared.or_else(|_| netns::become_root_of_new_user_namespace());
        // What is mounted from now on is nobody else's business, and ends with the last trial.
        let entered = entered.and_then(|()| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            Ok(mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?)
        });
        Self {
            namespaces: entered.map_err(|error| format!("cannot make a network namespace: {error}")),
            nft: crate::by_hand::nft_works(),
            xfrm: crate::silent::xfrm_works(),
            iproute: iproute_works(),
            tun: tun_works(),
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

/// Whether `ip` is there, and the kernel has next-hop objects.
fn iproute_works() -> Result<(), String> {
    ip_works(&["-j", "nexthop", "show"]).map_err(|why| format!("no next-hop objects: {why}"))
}

/// Whether this kernel, and who runs this, can make tun devices.
fn tun_works() -> Result<(), String> {
    ip_works(&["tuntap", "add", "tun0", "mode", "tun"])
        .map_err(|why| format!("no tun device can be made (/dev/net/tun): {why}"))
}

/// Whether `ip` does this in a new namespace.
fn ip_works(arguments: &[&str]) -> Result<(), String> {
    let namespace = netns::make().map_err(|error| error.to_string())?;
    let output = netns::within(Some(&namespace), || Command::new("ip").args(arguments).output());
    let output = output.map_err(|error| format!("ip cannot be run (Debian package iproute2): {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
