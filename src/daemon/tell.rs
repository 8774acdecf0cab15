//! Events on their way to the log.

use crate::engine::Drain;
use crate::engine::event::{Event, Kind};

/// The kind of an event to the journal's catalogue (`MESSAGE_ID`): one for ever.
#[must_use]
pub const fn message_id(kind: &Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Transition { .. } => "03d365a118e5438e9f0591e153c3bebf",
        Kind::Route { .. } => "1ecb655226414aeba4cc592aee7bb01a",
        Kind::Routes { .. } => "49cef07e93ab412d838ceaacd88a4455",
        Kind::KernelDrift { .. } => "e7b3cd6a2df540f79b6de8a558c7933a",
        Kind::LocalFault { .. } => "88bf96c507de4b9f882cea9c35f0a523",
        Kind::Drain { .. } => "4eaaedd136784f6d8967f4d00f9b713b",
        Kind::Obstacle { .. } => "df1ac0d4f4bf4996b700b6bba3bce98a",
        Kind::Need { .. } => "bab9f75ec5874a64918aa340e39bf05e",
        Kind::Endpoint { .. } => "bf24812aff094b44a905f11626804907",
        Kind::Association { .. } => "089e1c646f1a43f9a42cde85ee14627a",
        Kind::Warning { .. } => "52d5ff63ea434514a16177976e8bc4ec",
        Kind::Reload { .. } => "a172cc8a42104630b5a457821d66cde8",
        Kind::Start { .. } => "c5a9fa17f8e743a1a1d98ee7a4c05c2c",
        Kind::Stop {} => "3d27bd2efc954551b718c4f8a812d173",
        Kind::Sample { .. } => return None,
    })
}

/// Writes an event to the log. A field that is called `adit.…` is `ADIT_…` in the journal.
pub(super) fn log(event: &Event) {
    let Some(message_id) = message_id(&event.kind) else { return };
    /// One line, with the kind and the number of the event.
    macro_rules! log {
        ($level:ident, $($rest:tt)*) => {
            tracing::$level!(message_id, adit.event_id = event.id, $($rest)*)
        };
    }
    match &event.kind {
        Kind::Transition { tunnel, from, to, reason, penalty, rule } => {
            log!(
                info,
                adit.tunnel = tunnel,
                adit.from = %from,
                adit.to = %to,
                adit.rule = rule,
                adit.penalty = penalty,
                "{reason}"
            );
        }
        Kind::Route { prefix, table, netns, from, to } => {
            log!(
                info,
                adit.prefix = prefix,
                adit.table = table,
                adit.netns = netns,
                adit.from = ?from,
                adit.to = ?to,
                "route moved"
            );
        }
        Kind::Routes { tunnel, moved } => {
            log!(info, adit.tunnel = tunnel, adit.moved = moved, "more routes moved than are told one by one");
        }
        Kind::KernelDrift { netns, count, changes } => {
            log!(
                warn,
                adit.netns = netns,
                adit.count = count,
                adit.changes = ?changes,
                "the kernel's routes were not as they should be"
            );
        }
        Kind::LocalFault { tunnel, fault, reason } => {
            log!(warn, adit.tunnel = tunnel, adit.fault = fault, "{reason}");
        }
        Kind::Warning { tunnel, reason } => log!(warn, adit.tunnel = tunnel, "{reason}"),
        Kind::Drain { tunnel, drained, penalty, level, until, reason, by } => {
            log!(
                info,
                adit.tunnel = tunnel,
                adit.drained = drained,
                adit.penalty = penalty,
                adit.level = level.map(Drain::name),
                adit.until = until.map(tracing::field::display),
                adit.reason = reason,
                adit.by = by,
                "drain"
            );
        }
        Kind::Obstacle { tunnel, reason: Some(reason) } => {
            log!(warn, adit.tunnel = tunnel, "cannot be probed: {reason}");
        }
        Kind::Obstacle { tunnel, reason: None } => log!(info, adit.tunnel = tunnel, "can be probed again"),
        Kind::Need { need, reason: Some(reason) } => {
            log!(warn, adit.need = need, "{reason}: its tunnels fail until it is there");
        }
        Kind::Need { need, reason: None } => log!(info, adit.need = need, "{need} is there"),
        Kind::Endpoint { endpoint, from, to, reason } => {
            log!(info, adit.endpoint = endpoint, adit.from = from.name(), adit.to = to.name(), "{reason}");
        }
        Kind::Association { tunnel, spi_out, spi_in } => {
            log!(
                info,
                adit.tunnel = tunnel,
                adit.spi_out = format!("{spi_out:#x}"),
                adit.spi_in = format!("{spi_in:#x}"),
                "new associations"
            );
        }
        Kind::Reload { kept, changed, added, removed, reason: None } => {
            log!(
                info,
                adit.kept = kept,
                adit.changed = changed,
                adit.added = added,
                adit.removed = removed,
                "reloaded"
            );
        }
        Kind::Reload { reason: Some(reason), .. } => {
            log!(error, adit.reason = reason, "not reloaded, nothing has changed: {reason}");
        }
        Kind::Start { tunnels, version } => log!(info, adit.tunnels = tunnels, adit.version = version, "started"),
        Kind::Stop {} => log!(info, "stopped"),
        Kind::Sample { .. } => {}
    }
}
