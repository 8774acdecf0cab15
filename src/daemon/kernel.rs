//! What the kernel does beside us, seen by a thread of its own: a list of many associations takes as long
//! as a probe may wait.

use std::collections::BTreeSet;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::engine::Namespace;
use crate::io::clock::Clock;
use crate::io::xfrm::{self, Association, Watch};
use crate::io::{device, netns};

/// How often devices are inspected, at the most.
const ROUND: Duration = Duration::from_secs(10);
/// A pause is so many times as long as the work before it, so that one core is never busy with this.
const REST: u32 = 19;

/// What the kernel does.
pub(super) enum News {
    /// All associations of a namespace.
    Associations(Namespace, BTreeSet<Association>),
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
    let (tell, news) = unbounded_channel();
    let (ready, begun) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let look = move || runtime.block_on(look(watches, devices, tell, ready));
    thread::Builder::new().name("kernel".to_owned()).spawn(look)?;
    // If the thread has ended instead, it has said why.
    let _ = begun.recv();
    Ok(Some(news))
}

async fn look(
    opened: Vec<(Namespace, xfrm::Opened)>,
    devices: Vec<Inspected>,
    tell: UnboundedSender<News>,
    ready: mpsc::Sender<()>,
) {
    let mut watching = tokio::task::JoinSet::new();
    for (namespace, opened) in opened {
        match opened.register() {
            Ok(mut watch) => {
                list(namespace, &mut watch, &tell);
                let tell = tell.clone();
                watching.spawn(async move { follow(namespace, watch, &tell).await });
            }
            Err(error) => unseen(&error),
        }
    }
    drop(ready);
    tokio::select! {
        () = tell.closed() => {}
        () = inspect(devices, &tell) => {}
    }
}

/// Lists a namespace's associations whenever they have changed.
async fn follow(namespace: Namespace, mut watch: Watch, tell: &UnboundedSender<News>) {
    let clock = Clock::start();
    loop {
        poll_fn(|context| watch.poll_ready(context)).await;
        match watch.changed() {
            Ok(false) => {}
            Ok(true) => {
                let begin = clock.now();
                list(namespace, &mut watch, tell);
                tokio::time::sleep(clock.now().since(begin) * REST).await;
            }
            Err(error) => return unseen(&error),
        }
    }
}

fn list(namespace: Namespace, watch: &mut Watch, tell: &UnboundedSender<News>) {
    match watch.associations() {
        // Nobody may be listening any more; then this ends shortly.
        Ok(known) => drop(tell.send(News::Associations(namespace, known))),
        Err(error) => unseen(&error),
    }
}

fn unseen(error: &io::Error) {
    tracing::warn!(%error, "the kernel's security associations cannot be seen: collisions are not noticed");
}

/// Asks again and again which devices would drop probes: routes come and go.
async fn inspect(devices: Vec<Inspected>, tell: &UnboundedSender<News>) {
    let clock = Clock::start();
    let mut known: Vec<Option<&'static str>> = vec![None; devices.len()];
    loop {
        let begin = clock.now();
        for (device, known) in devices.iter().zip(&mut known) {
            let Inspected { tunnel, device, namespace, source, destination } = device;
            let asked = netns::within(namespace.as_deref(), || device::withheld(device, *source, *destination));
            // A device that is missing is refused where a probe is sent.
            let found = asked.unwrap_or(None);
            if std::mem::replace(known, found) != found {
                drop(tell.send(News::Withheld(*tunnel, found)));
            }
            tokio::task::yield_now().await;
        }
        tokio::time::sleep((clock.now().since(begin) * REST).max(ROUND)).await;
    }
}
