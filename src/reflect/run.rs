//! The reflector's shell: raw sockets, a clock, and answers that wait for their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;

use super::plan::Fault;
use super::{Answer, FarTunnel, Reflector};
use crate::engine::Time;
use crate::io::clock::Clock;
use crate::io::raw::{self, Inbox, Leaving, Opened, Receiver, Sender};
use crate::wire::Family;
use crate::wire::filter::{Pass, Protocol};
use crate::wire::payload::Key;

/// The sockets of a reflector, opened in the namespace where it is to live.
#[derive(Debug)]
pub struct Sockets {
    receivers: Vec<Opened>,
    v4: Sender,
    v6: Sender,
}

impl Sockets {
    /// Opens them in the namespace of the calling thread.
    ///
    /// # Errors
    /// Needs `CAP_NET_RAW`.
    pub fn open() -> io::Result<Self> {
        let receivers = [Family::V4, Family::V6].map(|family| raw::open_receiver(family, Protocol::Gre, Pass::Echoes));
        let sender = |family| raw::open_sender(&Leaving { family, device: None, mark: 0 });
        Ok(Self {
            receivers: receivers.into_iter().collect::<io::Result<_>>()?,
            v4: sender(Family::V4)?,
            v6: sender(Family::V6)?,
        })
    }
}

/// An answer that waits; the earliest first, those of one time in the order they came.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    at: Time,
    order: u64,
    destination: IpAddr,
    bytes: Vec<u8>,
}

/// Reflects until `faults` is closed. What comes over it replaces the fault plan.
///
/// # Errors
/// None that a packet could cause.
pub async fn run(
    sockets: Sockets,
    tunnels: Vec<FarTunnel>,
    mark_key: Option<Key>,
    plan: Vec<Fault>,
    mut faults: mpsc::Receiver<Vec<Fault>>,
) -> io::Result<()> {
    let clock = Clock::start();
    let mut reflector = Reflector::new(clock.now(), tunnels, mark_key, plan);
    let receivers = sockets.receivers.into_iter().map(|opened| opened.register(clock.now()));
    let mut receivers: Vec<Receiver> = receivers.collect::<io::Result<_>>()?;
    let (mut inbox, mut answers) = (Inbox::default(), Vec::new());
    let (mut waiting, mut order) = (BinaryHeap::new(), 0);
    loop {
        let earliest = waiting.peek().map(|Reverse(Waiting { at, .. })| *at);
        let pause = earliest.map_or(Duration::from_secs(3600), |at| at.since(clock.now()));
        tokio::select! {
            plan = faults.recv() => match plan {
                Some(plan) => reflector.set_faults(clock.now(), plan),
                None => return Ok(()),
            },
            () = readable(&receivers) => {}
            () = tokio::time::sleep(pause) => {}
        }
        for receiver in &mut receivers {
            receiver.drain(&clock, 0, &mut inbox)?;
        }
        let now = clock.now();
        inbox.deliver(|_, _, _, arrived| {
            // Counted in the reflector; a broken packet is nothing that a router complains about.
            let _ = reflector.handle(now, arrived, &mut answers);
        });
        for Answer { at, destination, bytes } in answers.drain(..) {
            order += 1;
            waiting.push(Reverse(Waiting { at, order, destination, bytes }));
        }
        while waiting.peek().is_some_and(|Reverse(next): &Reverse<Waiting>| next.at <= now) {
            let Some(Reverse(due)) = waiting.pop() else { break };
            let sender = match due.destination {
                IpAddr::V4(_) => &sockets.v4,
                IpAddr::V6(_) => &sockets.v6,
            };
            sender.send(&[(due.destination, &due.bytes)], |_, error| {
                tracing::debug!(%error, destination = %due.destination, "an answer could not be sent");
            });
        }
    }
}

async fn readable(receivers: &[Receiver]) {
    poll_fn(|context| {
        let ready = receivers.iter().any(|receiver| receiver.poll_ready(context).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
