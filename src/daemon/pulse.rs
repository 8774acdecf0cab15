//! How the steward knows that the loop goes on: after a turn, once a second, the loop says so, and with what
//! there is to show.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::link::Request;
use crate::engine::snapshot::Census;
use crate::engine::{Engine, Time};

/// Between two beats.
const BEAT: Duration = Duration::from_secs(1);

pub(super) struct Pulse {
    tell: UnboundedSender<Request>,
    next: Time,
    /// Of the last event when the tunnels were last counted: without an event nothing has changed.
    counted: Option<u64>,
    census: Census,
}

impl Pulse {
    pub(super) const fn new(tell: UnboundedSender<Request>) -> Self {
        Self { tell, next: Time::ZERO, counted: None, census: Census { tunnels: [0; 4], penalised: 0 } }
    }

    /// Tells of the turn that has ended, if it is time to. How long until the next time.
    pub(super) fn beat(&mut self, now: Time, engine: &Engine) -> Duration {
        if now >= self.next {
            self.next = now + BEAT;
            if self.counted.replace(engine.events().last()) != Some(engine.events().last()) {
                self.census = engine.census();
            }
            // The steward may have gone; that is seen elsewhere.
            let _ = self.tell.send(Request::Alive(self.census));
        }
        self.next.since(now)
    }
}
