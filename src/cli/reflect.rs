//! `adit reflect`: a far end in user space.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::args;
use super::run::start_log;
use super::{Exit, Failure, Outcome};
use crate::config::{ReflectConfig, Tunnel};
use crate::reflect::run::{Sockets, run as reflect};
use crate::reflect::{FarTunnel, Wrap};
use crate::wire::Encapsulation;

pub(super) fn run(args: &args::Reflect) -> Outcome {
    let config =
        ReflectConfig::load(&args.config).map_err(|problems| Failure::new(Exit::BadInput, problems.to_string()))?;
    start_log();
    let sockets = Sockets::open()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let tunnels: Vec<FarTunnel> = config.tunnels.into_iter().map(far).collect();
        tracing::info!(tunnels = tunnels.len(), faults = config.faults.len(), "reflecting");
        // Held open: when the other end of this channel goes, the reflector stops.
        let (_open, faults) = mpsc::channel(1);
        let lasting = async {
            match args.lasting {
                Some(lasting) => tokio::time::sleep(lasting).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = reflect(sockets, tunnels, config.mark_key, config.faults, faults) => result?,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = lasting => {}
        }
        Ok(Exit::Done)
    })
}

fn far(tunnel: Tunnel) -> FarTunnel {
    let Tunnel { name, onion, .. } = tunnel;
    let wrap = match onion.encapsulation {
        Encapsulation::Gre(options) => Wrap::Gre(options),
        Encapsulation::Esp(_) | Encapsulation::Device => Wrap::Gre(Default::default()),
    };
    FarTunnel { name, outer: onion.outer, inner: onion.inner, wrap }
}
