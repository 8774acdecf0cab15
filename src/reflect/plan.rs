//! What a reflector does wrong on purpose, and when.

use std::time::Duration;

use crate::engine::health::Ratio;

/// One planned fault. What it says of a probe's answer is drawn anew for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The tunnel that it hits; `None` hits all.
    pub tunnel: Option<String>,
    /// When it begins, after the reflector's start.
    pub after: Duration,
    /// How long it lasts; `None` is for ever.
    pub lasts: Option<Duration>,
    /// Share of the answers that are not sent.
    pub drop: Ratio,
    /// How much later answers are sent.
    pub delay: Duration,
    /// Up to so much more, evenly distributed.
    pub jitter: Duration,
    /// Share of the answers that the delay and jitter apply to: less than all reorders.
    pub delayed: Ratio,
    /// Share of the answers that are sent twice.
    pub duplicate: Ratio,
    /// Share of the answers in which one bit of what proves them is flipped.
    pub corrupt: Ratio,
}

impl Default for Fault {
    fn default() -> Self {
        Self {
            tunnel: None,
            after: Duration::ZERO,
            lasts: None,
            drop: Ratio(0),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            delayed: Ratio(1_000_000),
            duplicate: Ratio(0),
            corrupt: Ratio(0),
        }
    }
}

impl Fault {
    /// A fault that lets nothing through a tunnel.
    #[must_use]
    pub fn cut(tunnel: &str) -> Self {
        Self { tunnel: Some(tunnel.to_owned()), drop: Ratio(1_000_000), ..Self::default() }
    }

    /// Whether it applies to a tunnel at this time after the start.
    #[must_use]
    pub fn hits(&self, tunnel: &str, elapsed: Duration) -> bool {
        self.tunnel.as_ref().is_none_or(|name| name == tunnel)
            && elapsed >= self.after
            && self.lasts.is_none_or(|lasts| elapsed < self.after + lasts)
    }
}
