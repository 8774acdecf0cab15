//! What can happen.

use std::time::Duration;

/// One trouble, or the end of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// The far end of a tunnel dies.
    Cut(usize),
    /// It is there again.
    Heal(usize),
    /// The prober gets no processor time for so long.
    Stop(Duration),
    /// The prober is killed.
    KillProber,
    /// All of the daemon is killed, and started again.
    KillAll,
    /// The daemon is stopped and started as an upgrade does it.
    Restart,
    /// The configuration is read again, and is the same.
    Reload,
    /// It is read again, and wrong.
    BadReload,
    /// An operator drains a tunnel, or ends that.
    Drain(usize),
    /// Clients come, say half of something, and hang up, or do not.
    Clients(u64),
    /// The file of verdicts is damaged while nobody looks, and the daemon killed.
    Damage,
    /// Nothing, for so long.
    Rest(Duration),
}

impl Deed {
    /// The next one.
    pub(crate) fn draw(draw: &mut impl FnMut(u64) -> u64) -> Self {
        let tunnel = usize::from(draw(2) == 1);
        match draw(14) {
            0 | 1 => Self::Cut(tunnel),
            2..=4 => Self::Heal(tunnel),
            5 => Self::Stop(Duration::from_millis(200 + draw(3_000))),
            6 => Self::KillProber,
            7 => Self::KillAll,
            8 => Self::Restart,
            9 => Self::Reload,
            10 => Self::BadReload,
            11 => Self::Drain(tunnel),
            12 => Self::Clients(1 + draw(60)),
            _ if draw(4) == 0 => Self::Damage,
            _ => Self::Rest(Duration::from_millis(draw(3_000))),
        }
    }
}
