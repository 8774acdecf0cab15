//! The reflector's shell: raw sockets, a clock, and answers that wait for their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::plan::Fault;
use super::silence::{News, Told};
use super::{Answer, FarTunnel, Reflector, Wrap};
use crate::engine::Time;
use crate::engine::esp::Reserve;
use crate::io::clock::Clock;
use crate::io::ledger::{Clerk, Report};
use crate::io::raw::{self, Inbox, Leaving, Opened, Receiver, Sender};
use crate::io::xfrm;
use crate::io::xfrm::follow::{self, Seen};
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
    /// The kernel's own associations.
    watch: Option<xfrm::Opened>,
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
            watch: None,
        })
    }

    /// With somebody who records the ESP sequence numbers that are used.
    #[must_use]
    pub fn recording(mut self, clerk: Option<Clerk>) -> Self {
        self.clerk = clerk;
        self
    }

    /// Watches the kernel's own associations in the namespace of the calling thread, if a tunnel is ESP and
    /// they can be seen.
    #[must_use]
    pub fn watching(mut self, tunnels: &[FarTunnel]) -> Self {
        let is_esp = |tunnel: &FarTunnel| matches!(tunnel.wrap, Wrap::Esp { .. });
        self.watch = tunnels.iter().any(is_esp).then(follow::open_or_warn).flatten();
        self
    }
}

/// An answer that waits; the earliest first, those of one time in the order they came.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    at: Time,
    order: u64,
    destination: IpAddr,
    tunnel: Option<usize>,
    bytes: Vec<u8>,
}

/// Answers that wait for their time.
#[derive(Debug, Default)]
struct Queue {
    waiting: BinaryHeap<Reverse<Waiting>>,
    order: u64,
}

impl Queue {
    fn add(&mut self, Answer { at, destination, tunnel, bytes }: Answer) {
        self.order += 1;
        self.waiting.push(Reverse(Waiting { at, order: self.order, destination, tunnel, bytes }));
    }

    /// How long until the next is due.
    fn pause(&self, now: Time) -> Duration {
        self.waiting.peek().map_or(Duration::from_secs(3600), |Reverse(Waiting { at, .. })| at.since(now))
    }

    fn take(&mut self, now: Time) -> Option<Waiting> {
        self.waiting.peek().filter(|Reverse(next)| next.at <= now)?;
        self.waiting.pop().map(|Reverse(due)| due)
    }
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
    let Sockets { receivers, v4, v6, mut clerk, watch, .. } = sockets;
    let clock = Clock::start();
    let mut reflector = Reflector::new(clock.now(), tunnels, mark_key, plan);
    let mut receivers = register(receivers, &reflector, clock.now())?;
    let mut kernel = watch.map(follow::spawn).transpose()?;
    // Those of now are known before anything is answered.
    kernel.iter_mut().filter_map(|kernel| kernel.try_recv().ok()).for_each(|seen| {
        learn(&mut reflector, seen);
    });
    let (mut inbox, mut answers, mut queue) = (Inbox::default(), Vec::new(), Queue::default());
    loop {
        std::iter::from_fn(|| reflector.poll_told()).for_each(|told| tell(&told));
        tokio::select! {
            biased;
            plan = faults.recv() => match plan {
                Some(plan) => reflector.set_faults(clock.now(), plan),
                None => return Ok(()),
            },
            Some(seen) = news(&mut kernel) => learn(&mut reflector, seen),
            Some(report) = report(&mut clerk) => reserved(&mut reflector, report),
            () = readable(&receivers) => {}
            () = tokio::time::sleep(queue.pause(clock.now())) => {}
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
        answers.drain(..).for_each(|answer| queue.add(answer));
        while let Some(due) = queue.take(now) {
            if !due.tunnel.is_some_and(|tunnel| reflector.is_barred(tunnel)) {
                send(if due.destination.is_ipv4() { &v4 } else { &v6 }, &due);
            }
        }
    }
}

/// Hands the receivers to the runtime, those of ESP with the SPIs that they are to let through.
fn register(opened: Vec<Opened>, reflector: &Reflector, now: Time) -> io::Result<Vec<Receiver>> {
    let receivers = opened.into_iter().map(|opened| opened.register(now)).collect::<io::Result<Vec<_>>>()?;
    let inlets = reflector.inlets();
    for receiver in receivers.iter().filter(|receiver| receiver.ear(0).protocol.is_esp()) {
        receiver.listen(&inlets)?;
    }
    Ok(receivers)
}

fn send(sender: &Sender, Waiting { destination, bytes, .. }: &Waiting) {
    sender.send(&[(*destination, bytes)], |_, error| {
        tracing::debug!(%error, %destination, "an answer could not be sent");
    });
}

fn tell(Told { tunnel, news }: &Told) {
    match news {
        News::Silent(_) => tracing::error!(tunnel, "{news}"),
        News::Scarce | News::Unreserved { .. } => tracing::warn!(tunnel, "{news}"),
        News::Answerable | News::Reserved => tracing::info!(tunnel, "{news}"),
    }
}

/// The next report of the clerk; none ever, where there is no clerk or it has ended.
async fn report(clerk: &mut Option<Clerk>) -> Option<Report> {
    match clerk {
        Some(clerk) => clerk.report().await,
        None => None,
    }
}

fn learn(reflector: &mut Reflector, seen: Seen) {
    match seen {
        Ok(known) => reflector.handle_kernel_associations(&known),
        Err(error) => {
            tracing::warn!(error, "the kernel's security associations cannot be seen: collisions are not noticed");
        }
    }
}

/// The next list of the kernel's associations; none ever, where nobody looks.
async fn news(kernel: &mut Option<UnboundedReceiver<Seen>>) -> Option<Seen> {
    match kernel {
        Some(kernel) => kernel.recv().await,
        None => None,
    }
}

fn reserved(reflector: &mut Reflector, report: Report) {
    match report {
        Report::Reserved { fingerprint, mark } => reflector.handle_reserved(fingerprint, mark),
        Report::Failed { fingerprint, reason } => reflector.handle_unreserved(fingerprint, &reason),
    }
}

async fn readable(receivers: &[Receiver]) {
    poll_fn(|context| {
        let ready = receivers.iter().any(|receiver| receiver.poll_ready(context).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
