//! The prober: the process that everything a stranger can reach is in, packets and clients, and that has no
//! power but what it was handed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, getppid};
use tokio::sync::watch;

use super::Daemon;
use super::link::{Begin, Begun, Inward};
use super::outside::{Host, Outside};
use super::plan::Plan;
use crate::config::{Config, Problems};
use crate::io::heap;
use crate::io::local::{Bound, Server, Web};
use crate::io::memory;
use crate::io::sandbox::{self, Gaps};

/// Why a prober could not begin.
#[derive(Debug)]
pub enum NotBegun {
    /// The configuration is wrong; the steward had found it right a moment ago.
    Config(Problems),
    /// The system.
    System(io::Error),
}

impl From<io::Error> for NotBegun {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Probes for the steward at the other end of the line, until it wants an end or is gone. `log` is called
/// when it is known that there is a steward, with a line by which it passes on what is for the journal, if
/// there is one; what it returns is called when there may be threads.
///
/// # Errors
/// What is missing.
pub fn serve<F: FnOnce()>(line: OwnedFd, log: impl FnOnce(Option<OwnedFd>) -> F) -> Result<(), NotBegun> {
    let line = Inward::new(line);
    let (Begin { texts, generation, epoch, steward, dry_run, admins, relays }, handed) = line.begin()?;
    // Nobody else could hand over anything, or keep routes.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)?;
    if u32::try_from(getppid().as_raw()) != Ok(steward) {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "the steward is gone").into());
    }
    let mut handed = handed.into_iter();
    let begin_log = log(relays.then(|| handed.next()).flatten());
    let config = Config::of_texts(&texts.unpack()?).map_err(NotBegun::Config)?;
    let settings = config.daemon.clone();
    let mut plan = Plan::new(config).dry(dry_run);
    drop(texts);
    heap::trim();
    plan.epoch = epoch;
    let host = Host { settings: Some(settings), ..Host::open(&mut plan) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    shut_in(plan.state_dir.as_deref())?;
    // From here on there are threads.
    begin_log();
    let mut supplies = line.supplies(&plan, Begun { generation, dry_run })?;
    let doors = supplies.doors.take();
    let mut stop = supplies.stop.clone();
    let membership = supplies.membership.clone();
    let admins = admins.map(Gid::from_raw);
    let bound = handed.next().map(|socket| Bound::handed(socket, admins, membership));
    let outside = Outside::handed(&plan, supplies, bound);
    runtime.block_on(async move {
        let (daemon, handle, bound) = Daemon::begin(plan, host, outside)?;
        let web = doors.map(|doors| Web::begin(doors, handle.clone()));
        let server = bound.map(|bound| bound.serve(handle)).transpose()?;
        daemon.run(ended(&mut stop)).await;
        // It ends with the daemon; waited for, so that followers hear of that.
        server.into_iter().for_each(Server::join);
        if let Some(web) = web {
            web.join().await;
        }
        Ok(())
    })
}

/// Builds the walls, with the state folder inside. Landlock is what a kernel may lack.
///
/// # Errors
/// Another wall does not stand. Without it, whoever takes this process over would have all that the steward has.
fn shut_in(state_dir: Option<&Path>) -> io::Result<()> {
    // One that cannot be made is told of where it is used.
    let folder = state_dir.filter(|folder| memory::prepare(folder).is_ok());
    let Gaps { landlock, others } = sandbox::confine(folder);
    if let Some(lack) = landlock {
        tracing::warn!("the part of adit that parses packets is less confined than it should be: Landlock: {lack}");
    }
    if others.is_empty() {
        return Ok(());
    }
    let what = "the part of adit that parses packets cannot be confined, so it does not begin";
    Err(io::Error::other(format!("{what}: {}", others.join("; "))))
}

async fn ended(stop: &mut watch::Receiver<bool>) {
    // An error would be that nobody can say so any more.
    let _ = stop.wait_for(|stop| *stop).await;
}
