//! In which order tunnels stand, and which of them are shown.

use std::cmp::Ordering;

use super::model::Row;
use super::tunnel::{State, Tunnel};

/// What the list is sorted by; equals stand as in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    #[default]
    Worst,
    Name,
    Loss,
    Rtt,
    Since,
    Penalty,
}

impl Sort {
    const ALL: [Self; 6] = [Self::Worst, Self::Name, Self::Loss, Self::Rtt, Self::Since, Self::Penalty];

    pub(super) fn next(self) -> Self {
        following(&Self::ALL, self)
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Worst => "worst first",
            Self::Name => "by name",
            Self::Loss => "most loss first",
            Self::Rtt => "slowest first",
            Self::Since => "last changed first",
            Self::Penalty => "highest penalty first",
        }
    }

    pub(super) fn compare(self, one: &Row, other: &Row) -> Ordering {
        let (a, b) = (&one.tunnel, &other.tunnel);
        match self {
            Self::Worst => (!a.checked.0, a.state).cmp(&(!b.checked.0, b.state)),
            Self::Name => a.name.cmp(&b.name),
            Self::Loss => b.window.loss_ratio.total_cmp(&a.window.loss_ratio),
            Self::Rtt => last(b).cmp(&last(a)),
            Self::Since => b.since.cmp(&a.since),
            Self::Penalty => b.penalty.cmp(&a.penalty),
        }
    }
}

fn last(tunnel: &Tunnel) -> Option<u64> {
    tunnel.rtt.map(|rtt| rtt.last_us)
}

/// Which states are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Only {
    #[default]
    All,
    Sick,
    Down,
    Degraded,
    Unknown,
    Healthy,
    Drained,
}

impl Only {
    const ALL: [Self; 7] =
        [Self::All, Self::Sick, Self::Down, Self::Degraded, Self::Unknown, Self::Healthy, Self::Drained];

    pub(super) fn next(self) -> Self {
        following(&Self::ALL, self)
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::All => "all states",
            Self::Sick => "not healthy",
            Self::Down => "down",
            Self::Degraded => "degraded",
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Drained => "drained",
        }
    }

    pub(super) fn shows(self, tunnel: &Tunnel) -> bool {
        match self {
            Self::All => true,
            // What is not checked is not sick.
            Self::Sick => tunnel.checked.0 && tunnel.state != State::Healthy,
            Self::Down => tunnel.state == State::Down,
            Self::Degraded => tunnel.state == State::Degraded,
            Self::Unknown => tunnel.state == State::Unknown,
            Self::Healthy => tunnel.state == State::Healthy,
            Self::Drained => tunnel.drained,
        }
    }
}

/// The one after this, and after the last the first.
fn following<T: Copy + PartialEq>(all: &[T], this: T) -> T {
    let mut after = all.iter().cycle().skip_while(|&&one| one != this).skip(1);
    after.next().copied().unwrap_or(this)
}
