//! How the steward knows that the loop goes on: after a turn, once a second, the loop says so, and with what
//! there is to show.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::link::Request;
use crate::engine::{Engine, Time};

/// Between two beats.
const BEAT: Duration = Duration::from_secs(1);

pub(super) struct Pulse {
    tell: UnboundedSender<Request>,
    next: Time,
}

impl Pulse {
    pub(super) const fn new(tell: UnboundedSender<Request>) -> Self {
        Self { tell, next: Time::ZERO }
    }

    /// Tells of the turn that has ended, if it is time to. How long until the next time.
    pub(super) fn beat(&mut self, now: Time, engine: &Engine) -> Duration {
        if now >= self.next {
            self.next = now + BEAT;
            // The steward may have gone; that is seen elsewhere.
            let _ = self.tell.send(Request::Alive(engine.census()));
        }
        self.next.since(now)
    }
}
