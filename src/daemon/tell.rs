//! Events on their way out: to the log, and to a recording.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use crate::engine::event::{Event, Kind, Ring};

/// Appends the events after `since` to a recording, saying so if some are no longer there.
pub(super) fn write(events: &Ring, since: u64, record: &mut BufWriter<File>) -> io::Result<()> {
    let missed = events.missed(since);
    if missed > 0 {
        writeln!(record, r#"{{"kind":"gap","missed":{missed}}}"#)?;
    }
    for event in events.after(since) {
        serde_json::to_writer(&mut *record, event)?;
        record.write_all(b"\n")?;
    }
    record.flush()
}

/// Writes an event to the log.
pub(super) fn log(event: &Event) {
    match &event.kind {
        Kind::Transition { tunnel, from, to, reason, penalty, .. } => {
            tracing::info!(tunnel, %from, %to, penalty, "{reason}");
        }
        Kind::Route { prefix, table, netns, from, to } => {
            tracing::info!(prefix, table, netns, ?from, ?to, "route moved");
        }
        Kind::Routes { tunnel, moved } => tracing::info!(tunnel, moved, "more routes moved than are told one by one"),
        Kind::KernelDrift { netns, count, changes } => {
            tracing::warn!(netns, count, ?changes, "the kernel's routes were not as they should be");
        }
        Kind::LocalFault { tunnel, fault, reason } => tracing::warn!(tunnel, fault, "{reason}"),
        Kind::Warning { tunnel, reason } => tracing::warn!(tunnel, "{reason}"),
        Kind::Drain { tunnel, drained, penalty } => tracing::info!(tunnel, drained, penalty, "drain"),
        Kind::Obstacle { tunnel, reason: Some(reason) } => tracing::warn!(tunnel, "cannot be probed: {reason}"),
        Kind::Obstacle { tunnel, reason: None } => tracing::info!(tunnel, "can be probed again"),
        Kind::Need { reason: Some(reason), .. } => tracing::warn!("{reason}: its tunnels fail until it is there"),
        Kind::Need { need, reason: None } => tracing::info!("{need} is there"),
        Kind::Association { tunnel, spi_out, spi_in } => {
            tracing::info!(
                tunnel,
                spi_out = format!("{spi_out:#x}"),
                spi_in = format!("{spi_in:#x}"),
                "new associations"
            );
        }
        Kind::Reload { kept, changed, added, removed, reason: None } => {
            tracing::info!(kept, changed, added, removed, "reloaded");
        }
        Kind::Reload { reason: Some(reason), .. } => tracing::error!("not reloaded, nothing has changed: {reason}"),
        Kind::Start { tunnels, version } => tracing::info!(tunnels, version, "started"),
        Kind::Stop {} => tracing::info!("stopped"),
        Kind::Sample { .. } => {}
    }
}
