//! `adit run`: the daemon in the foreground, in its processes.

use std::cell::OnceCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use tokio::signal::unix::{self, SignalKind, signal};

use super::args;
use super::log;
use super::{Exit, Failure, Outcome};
use crate::config::{Config, Texts};
use crate::daemon::messenger;
use crate::daemon::prober::{self, NotBegun};
use crate::daemon::steward::{Signal, Steward};
use crate::io::local::UnknownGroup;

pub(super) fn run(args::Run { config: path, dry_run }: args::Run) -> Outcome {
    let dumpable = keep_secrets();
    let texts = Texts::gather(&path);
    let config = Config::of_texts(&texts).map_err(|problems| Failure::new(Exit::BadInput, problems.to_string()))?;
    let _log = log::start("steward");
    warn_of(dumpable);
    config.hints.iter().for_each(|hint| tracing::warn!("{hint}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let load = Arc::new(move || Texts::gather(&path));
        let steward = Steward::start(texts, config, dry_run, load).map_err(failure)?;
        steward.keep(async || signals.next().await).await.map_err(failure)?;
        Ok(Exit::Done)
    })
}

/// The prober of a steward that is at the other end of standard input.
pub(super) fn prober() -> Outcome {
    let dumpable = keep_secrets();
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    let log = OnceCell::new();
    let prepare = |relay| {
        let log = log.get_or_init(|| log::prepare(relay, "prober"));
        warn_of(dumpable);
        move || log.begin()
    };
    prober::serve(line, prepare).map(|()| Exit::Done).map_err(|error| match error {
        NotBegun::Config(problems) => Failure::new(Exit::BadInput, problems.to_string()),
        NotBegun::System(error) => error.into(),
    })
}

/// The messenger of a steward that is at the other end of standard input.
pub(super) fn messenger() -> Outcome {
    let dumpable = keep_secrets();
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    let begin_log = || {
        let log = log::start("messenger");
        warn_of(dumpable);
        log
    };
    messenger::serve(line, begin_log)?;
    Ok(Exit::Done)
}

/// What is wrong with the configuration is told as such, though only this machine could say so.
fn failure(error: io::Error) -> Failure {
    match error.get_ref() {
        Some(inner) if inner.is::<UnknownGroup>() => Failure::new(Exit::BadInput, inner.to_string()),
        _ => error.into(),
    }
}

/// The signals that the daemon obeys.
struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hang_up.recv() => Signal::Reload,
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
