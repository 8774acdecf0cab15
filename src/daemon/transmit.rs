//! Probes on their way out: gathered, sent by the batch, and told apart from those that the kernel did not take.

use std::net::IpAddr;

use super::Daemon;
use super::outlet::Refusal;
use crate::engine::{Need, Transmit};

/// Bytes of probes that are gathered before they are sent: some 250 of the usual size, in a small part of the time in
/// which a probe is to leave after its stamp.
const OUTGOING: usize = 32 << 10;
/// A probe that would not fit there is sent by itself; none is longer than this.
const LONGEST: usize = 16 << 10;
/// So many gatherings leave in a turn: then it is time to read, or the answers would not fit where they wait.
const GATHERINGS: usize = 16;
/// Room for both.
pub(super) const ROOM: usize = OUTGOING + LONGEST;

impl Daemon {
    /// Sends what is to leave; whether that is all.
    pub(super) fn transmit(&mut self) -> bool {
        for _ in 0..GATHERINGS {
            let mut used = 0;
            let now = self.clock.now();
            while used < OUTGOING
                && let Some(transmit) = self.engine.poll_transmit(now, &mut self.buffer[used..])
            {
                self.outgoing.push((transmit, used));
                used += transmit.length;
            }
            if used == 0 {
                return true;
            }
            self.flush();
        }
        false
    }

    fn flush(&mut self) {
        // Those of one way stay in the order of their stamps.
        self.outgoing.sort_by_key(|(transmit, _)| transmit.egress);
        let mut lost = Vec::new();
        for leaving in self.outgoing.chunk_by(|(one, _), (next, _)| one.egress == next.egress) {
            let egress = leaving[0].0.egress;
            // There is one for every way out that a plan names.
            let Some(outlet) = self.spaces.outlets.get(egress as usize) else { continue };
            let packet = |&(transmit, at): &(Transmit, usize)| -> (IpAddr, &[u8]) {
                (transmit.destination, &self.buffer[at..at + transmit.length])
            };
            let packets: Vec<_> = leaving.iter().map(packet).collect();
            let begun = self.clock.now();
            outlet.send(&packets, |place, refusal| {
                let (Transmit { tunnel, sequence, .. }, _) = leaving[place];
                let now = self.clock.now();
                if refusal == Refusal::Gone && !lost.contains(&egress) {
                    lost.push(egress);
                    let why = format!("{} is missing", outlet.title());
                    self.engine.handle_missing(now, Need::Egress(egress), outlet.title(), &why);
                }
                self.engine.handle_unsent(now, tunnel, sequence, refusal.unsent());
            });
            self.engine.handle_sent(begun, self.clock.now(), leaving.iter().map(|(transmit, _)| transmit));
        }
        self.engine.handle_flushed(self.clock.now());
        self.outgoing.clear();
        lost.into_iter().for_each(|egress| self.spaces.lose(egress));
        self.spaces.note_interfaces(&mut self.engine);
    }
}
