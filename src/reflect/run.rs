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
use crate::engine::esp::Reserve;
use crate::engine::ledger::NotReserved;
use crate::io::clock::Clock;
use crate::io::ledger::{Clerk, Report};
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
    /// Whoever keeps the record of ESP sequence numbers.
    clerk: Option<Clerk>,
}

impl Sockets {
    /// Opens them in the namespace of the calling thread.
    ///
    /// # Errors
    /// Needs `CAP_NET_RAW`.
    pub fn open() -> io::Result<Self> {
        let each = |family| [Protocol::Gre, Protocol::Esp, Protocol::EspInUdp].map(|protocol| (family, protocol));
        let receivers = [Family::V4, Family::V6].into_iter().flat_map(each);
        let receivers = receivers.map(|(family, protocol)| raw::open_receiver(family, protocol, Pass::Echoes));
        let sender = |family| raw::open_sender(&Leaving { family, device: None, mark: 0, source: None });
        Ok(Self {
            receivers: receivers.collect::<io::Result<_>>()?,
            v4: sender(Family::V4)?,
            v6: sender(Family::V6)?,
            clerk: None,
        })
    }

    /// With somebody who records the ESP sequence numbers that are used.
    #[must_use]
    pub fn recording(mut self, clerk: Option<Clerk>) -> Self {
        self.clerk = clerk;
        self
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
    let mut clerk = sockets.clerk;
    let clock = Clock::start();
    let mut reflector = Reflector::new(clock.now(), tunnels, mark_key, plan);
    let receivers = sockets.receivers.into_iter().map(|opened| opened.register(clock.now()));
    let mut receivers: Vec<Receiver> = receivers.collect::<io::Result<_>>()?;
    let inlets = reflector.inlets();
    for receiver in receivers.iter().filter(|receiver| receiver.ear(0).protocol.is_esp()) {
        receiver.listen(&inlets)?;
    }
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
            Some(report) = report(&mut clerk) => reserved(&mut reflector, report),
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
        while let Some(Reserve { key, mark }) = reflector.poll_reserve() {
            clerk.iter().for_each(|clerk| clerk.reserve(key, mark));
        }
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

/// The next report of the clerk; none ever, where there is no clerk or it has ended.
async fn report(clerk: &mut Option<Clerk>) -> Option<Report> {
    match clerk {
        Some(clerk) => clerk.report().await,
        None => None,
    }
}

fn reserved(reflector: &mut Reflector, report: Report) {
    match report {
        Report::Reserved { fingerprint, mark } => reflector.handle_reserved(fingerprint, Some(mark)),
        Report::Failed { fingerprint, reason } => {
            tracing::error!(%fingerprint, "{reason}");
            // Where the record is lost, what is reserved is used up, and then its tunnel is silent.
            let again = matches!(reason, NotReserved::Unwritten(_));
            again.then(|| reflector.handle_reserved(fingerprint, None));
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
