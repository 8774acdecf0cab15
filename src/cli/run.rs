//! `adit run`: the daemon in the foreground.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::args;
use super::{Exit, Failure, Outcome};
use crate::config::Config;
use crate::daemon::{Daemon, plan::Plan, steer::Steering};
use crate::io::local::{Bound, Handle, Server, UnknownGroup};

pub(super) fn run(args::Run { config, dry_run }: args::Run) -> Outcome {
    let dumpable = keep_secrets();
    let config = Config::load(&config).map_err(|problems| Failure::new(Exit::BadInput, problems.to_string()))?;
    start_log();
    warn_of(dumpable);
    config.hints.iter().for_each(|hint| tracing::warn!("{hint}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = Stop::new()?;
        let mut plan = Plan::new(config);
        if dry_run {
            plan.steering = plan.steering.map(Steering::dry);
        }
        let (tunnels, namespaces) = (plan.tunnels.len(), plan.namespaces.len());
        let (daemon, handle, bound) = Daemon::start(plan).map_err(failure)?;
        let server = bound.map(|bound| serve(bound, handle, tunnels, namespaces)).transpose()?;
        daemon.run(stop.wait()).await;
        // It ends with the daemon; waited for, so that followers hear of that, and so that the
        // socket's path is free again when this process has ended.
        server.into_iter().for_each(Server::join);
        Ok(Exit::Done)
    })
}

/// Says what is served to whom, and serves it.
fn serve(bound: Bound, handle: Handle, tunnels: usize, namespaces: usize) -> io::Result<Server> {
    let (socket, readers) = (bound.path().display(), bound.readers());
    tracing::info!(%socket, group = readers.unwrap_or("none"), tunnels, namespaces, "serving the local socket");
    bound.serve(handle)
}

/// What is wrong with the configuration is told as such, though only this machine could say so.
fn failure(error: io::Error) -> Failure {
    match error.get_ref() {
        Some(inner) if inner.is::<UnknownGroup>() => Failure::new(Exit::BadInput, inner.to_string()),
        _ => error.into(),
    }
}

/// The signals that end a daemon.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Stop {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                // Taken, because its default would end the daemon.
                _ = self.hang_up.recv() => tracing::warn!("SIGHUP: this version cannot reload; restart it"),
            }
        }
    }
}

/// A process that holds keys leaves no core dump, which would hold them too. To be called before they are
/// read.
pub(super) fn keep_secrets() -> nix::Result<()> {
    nix::sys::prctl::set_dumpable(false)
}

/// Says that it could not be so.
pub(super) fn warn_of(dumpable: nix::Result<()>) {
    if let Err(error) = dumpable {
        tracing::warn!(%error, "a core dump of this process would hold keys, and cannot be forbidden");
    }
}

/// Logs go to standard error, coloured only on a terminal.
pub(super) fn start_log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    // Whoever read the log may have gone. To say so on the same standard error would be a panic.
    log.log_internal_errors(false).with_ansi(super::text::coloured(&io::stderr())).init();
}
