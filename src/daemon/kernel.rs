//! What the kernel does beside us, seen by a thread of its own: a list of many associations takes as long
//! as a probe may wait.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::engine::Namespace;
use crate::io::clock::Clock;
use crate::io::xfrm;
use crate::io::xfrm::follow::{Pending, REST, Seen, aside, follow};
use crate::io::{device, netns};

/// How often devices are inspected, at the most.
const ROUND: Duration = Duration::from_secs(10);

/// What the kernel does.
pub(super) enum News {
    /// All associations of a namespace, or why they are not seen for now.
    Associations(Namespace, Seen),
    /// Whether the device of a tunnel would drop its probes and tell nobody.
    Withheld(u32, Option<&'static str>),
}

/// A tunnel whose probes leave by a device of the kernel's.
pub(super) struct Inspected {
    pub(super) tunnel: u32,
    pub(super) device: String,
    /// `None` is the namespace where the daemon runs.
    pub(super) namespace: Option<Arc<File>>,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
}

/// Begins to look, and returns when all associations of now have been told. It ends when nobody listens
/// any more. `None` if there is nothing to look at.
///
/// # Errors
/// No room for a thread or its runtime.
pub(super) fn watch(
    watches: Vec<(Namespace, xfrm::Opened)>,
    devices: Vec<Inspected>,
) -> io::Result<Option<UnboundedReceiver<News>>> {
    if watches.is_empty() && devices.is_empty() {
        return Ok(None);
    }
    aside(move |tell, pending| look(watches, devices, tell, pending)).map(Some)
}

async fn look(
    opened: Vec<(Namespace, xfrm::Opened)>,
    devices: Vec<Inspected>,
    tell: UnboundedSender<News>,
    pending: Pending,
) {
    let mut watching = tokio::task::JoinSet::new();
    for (namespace, opened) in opened {
        let tell = tell.clone();
        // Nobody may be listening any more; then this ends shortly.
        let tell = move |seen| drop(tell.send(News::Associations(namespace, seen)));
        watching.spawn(follow(opened, pending.clone(), tell));
    }
    tokio::select! {
        () = tell.closed() => {}
        () = inspect(devices, pending, &tell) => {}
    }
}

/// Asks again and again which devices would drop probes: routes come and go.
async fn inspect(devices: Vec<Inspected>, pending: Pending, tell: &UnboundedSender<News>) {
    let clock = Clock::start();
    let (mut known, mut pending) = (vec![None; devices.len()], Some(pending));
    loop {
        let begin = clock.now();
        for (device, known) in devices.iter().zip(&mut known) {
            let found = device.ask();
            if std::mem::replace(known, found) != found {
                drop(tell.send(News::Withheld(device.tunnel, found)));
            }
            tokio::task::yield_now().await;
        }
        drop(pending.take());
        tokio::time::sleep((clock.now().since(begin) * REST).max(ROUND)).await;
    }
}

impl Inspected {
    fn ask(&self) -> Option<&'static str> {
        let Self { device, namespace, source, destination, .. } = self;
        let asked = netns::within(namespace.as_deref(), || device::withheld(device, *source, *destination));
        // A device that is missing is refused where a probe is sent.
        asked.unwrap_or(None)
    }
}
