//! `adit reflect`: a far end in user space.

use std::collections::BTreeMap;
use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::args;
use super::log;
use super::run::{keep_secrets, warn_of};
use super::{Exit, Failure, Outcome};
use crate::config::{ReflectConfig, Tunnel};
use crate::daemon::records::Records;
use crate::engine::ledger::Lost;
use crate::engine::{Material, Pair};
use crate::io::clock::Clock;
use crate::io::ledger::Clerk;
use crate::io::ledger::this_machine;
use crate::reflect::run::{Sockets, run as reflect};
use crate::reflect::silence::remedy;
use crate::reflect::{FarTunnel, Wrap};
use crate::wire::Encapsulation;

pub(super) fn run(args: &args::Reflect) -> Outcome {
    let dumpable = keep_secrets();
    let config =
        ReflectConfig::load(&args.config).map_err(|problems| Failure::new(Exit::BadInput, problems.to_string()))?;
    let _log = log::start("reflector");
    warn_of(dumpable);
    let begins = begins(&args.begin, &config.tunnels)?;
    let (tunnels, clerk) = far_tunnels(&config, &begins)?;
    let sockets = Sockets::open()?.recording(clerk).watching(&tunnels);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
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

/// Tunnels whose sequence numbers begin here, by index, and with which one.
type Begins = Vec<(u32, Option<u64>)>;

fn begins(written: &[String], tunnels: &[Tunnel]) -> Result<Begins, Failure> {
    let begin = |text: &String| {
        let (name, number) = text.split_once('=').map_or((text.as_str(), None), |(name, number)| (name, Some(number)));
        let index = (0..).zip(tunnels).find(|(_, tunnel)| tunnel.name == name && tunnel.esp.is_some());
        let index =
            index.map(|(index, _)| index).ok_or_else(|| format!("{name} is no ESP tunnel of this configuration"))?;
        let number = number.map(|number| number.parse().ok().filter(|number| *number > 0));
        match number {
            Some(None) => Err(format!("--begin {text}: after the = stands a number from 1 on")),
            Some(number) => Ok((index, number)),
            None => Ok((index, None)),
        }
    };
    written.iter().map(|text| begin(text).map_err(|why| Failure::new(Exit::Usage, why))).collect()
}

/// The tunnels that can be reflected. One whose sequence numbers are not known is left out, and told.
fn far_tunnels(config: &ReflectConfig, begins: &Begins) -> io::Result<(Vec<FarTunnel>, Option<Clerk>)> {
    let material = |tunnel: &Tunnel| tunnel.esp.as_ref().and_then(|esp| esp.material.clone());
    let pairs: BTreeMap<u32, Material> =
        (0..).zip(&config.tunnels).filter_map(|(index, tunnel)| Some((index, material(tunnel)?))).collect();
    if pairs.is_empty() {
        return Ok((config.tunnels.iter().filter_map(|tunnel| far(tunnel, None)).collect(), None));
    }
    let name = |index: u32| config.tunnels[index as usize].name.as_str();
    let remedy = |index, lost: &Lost| remedy(name(index), lost);
    let begins = begins.iter().map(|&(index, first)| (index, name(index), first));
    let mut records =
        Records::open(&config.state_dir, this_machine(), &pairs, Clock::start().wall(), begins.collect(), remedy)?;
    let tunnels = (0..).zip(&config.tunnels).filter_map(|(index, tunnel)| {
        let start = records.starts.remove(&index);
        if let Some(why) = start.as_ref().and_then(|start| start.lost.as_ref()) {
            tracing::error!(tunnel = tunnel.name, "not reflected: {}: {why}", Lost::NAME);
            return None;
        }
        far(tunnel, start.and_then(|start| start.pair))
    });
    Ok((tunnels.collect(), records.clerk))
}

fn far(tunnel: &Tunnel, pair: Option<Pair>) -> Option<FarTunnel> {
    let Tunnel { name, onion, .. } = tunnel;
    let wrap = match onion.encapsulation {
        Encapsulation::Gre(options) => Wrap::Gre(options),
        Encapsulation::Esp(shape) => Wrap::Esp { pair: Box::new(pair?), udp: shape.udp() },
        Encapsulation::Device => return None,
    };
    let further = tunnel.targets.as_ref().map(|targets| targets.further.clone()).unwrap_or_default();
    Some(FarTunnel { name: name.clone(), outer: onion.outer, inner: onion.inner, further, wrap })
}
