//! What the kernel does beside us, seen by a thread of its own: a list of many associations takes as long
//! as a probe may wait, and so may looking after many namespaces, opening their sockets and closing them.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::keeper::Keeper;
use super::renewal::Renewal;
use super::space::Way;
use crate::engine::{Egress, Namespace};
use crate::io::clock::Clock;
use crate::io::local::NotReloaded;
use crate::io::raw::{Opened, Receiver};
use crate::io::xfrm::follow::{Pending, REST, Seen, aside};

/// How often devices are inspected, at the most.
const INSPECTION: Duration = Duration::from_secs(10);
/// How often it is seen to that everything is there, at the most.
const ROUND: Duration = Duration::from_millis(500);

/// What the kernel does.
pub(super) enum News {
    /// All associations of a namespace, or why they are not seen for now.
    Associations(Namespace, Seen),
    /// Whether the device of a tunnel would drop its probes and tell nobody.
    Withheld(u32, Option<&'static str>),
    /// A namespace is there, with what was opened in it.
    There(Namespace, Sockets),
    /// A namespace is missing, and why: what was open in it is to be closed.
    Missing(Namespace, String),
    /// Another way out, or why there is none.
    Way(Egress, Result<Way, String>),
    /// Another configuration, with everything open that it needs beside what is open already. What is told
    /// from here on is told by its numbers.
    Renewed(Box<Renewal>),
    /// Another configuration that was asked for by these questions is refused, and why: nothing has changed.
    NotRenewed(Vec<u32>, NotReloaded),
}

/// What was opened in a namespace.
pub(super) struct Sockets {
    pub(super) receivers: Vec<Opened>,
    pub(super) ways: Vec<(Egress, Result<Way, String>)>,
}

/// What the thread is asked for.
pub(super) enum Wish {
    /// The device of an exit is gone: look for another one.
    Search(Egress),
    /// What was opened in a namespace could not be used: open it again.
    Again(Namespace),
    /// Close this: the kernel may take its time.
    Close(Vec<Receiver>, Vec<Way>),
    /// Keep what another configuration wants.
    Renew(Box<Renewal>),
}

/// The line to the thread.
pub(super) struct Line {
    pub(super) news: UnboundedReceiver<News>,
    pub(super) wishes: UnboundedSender<Wish>,
}

/// A tunnel whose probes leave by a device of the kernel's.
pub(super) struct Inspected {
    pub(super) tunnel: u32,
    pub(super) device: String,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Why the device would drop its probes, as was told last.
    pub(super) withheld: Option<&'static str>,
}

impl Inspected {
    /// Whether the same is asked of the same device.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.device, self.source, self.destination) == (&other.device, other.source, other.destination)
    }
}

/// Begins to look, and returns when all associations of now have been told. It ends when nobody listens
/// any more.
///
/// # Errors
/// No room for a thread or its runtime.
pub(super) fn watch(keeper: Keeper) -> io::Result<Line> {
    let (wishes, wished) = unbounded_channel();
    let news = aside(move |tell, pending| look(keeper, wished, tell, pending))?;
    Ok(Line { news, wishes })
}

async fn look(mut keeper: Keeper, wished: UnboundedReceiver<Wish>, tell: UnboundedSender<News>, pending: Pending) {
    keeper.follow(&tell, &pending);
    let keeper = RefCell::new(keeper);
    tokio::select! {
        () = tell.closed() => {}
        () = inspect(&keeper, pending, &tell) => {}
        () = keep(&keeper, wished, &tell) => {}
    }
}

/// Asks again and again which devices would drop probes: routes come and go.
async fn inspect(keeper: &RefCell<Keeper>, pending: Pending, tell: &UnboundedSender<News>) {
    let clock = Clock::start();
    let mut pending = Some(pending);
    loop {
        let begin = clock.now();
        let devices = keeper.borrow().inspected();
        for device in devices {
            keeper.borrow_mut().inspect(device, tell);
            tokio::task::yield_now().await;
        }
        drop(pending.take());
        tokio::time::sleep((clock.now().since(begin) * REST).max(INSPECTION)).await;
    }
}

/// Sees to it again and again that everything is there.
async fn keep(keeper: &RefCell<Keeper>, mut wished: UnboundedReceiver<Wish>, tell: &UnboundedSender<News>) {
    let clock = Clock::start();
    let pause = tokio::time::sleep(ROUND);
    tokio::pin!(pause);
    loop {
        tokio::select! {
            wish = wished.recv() => match wish {
                Some(wish) => keeper.borrow_mut().grant(wish, tell),
                None => return,
            },
            () = &mut pause, if !keeper.borrow().is_idle() => {
                let begin = clock.now();
                keeper.borrow_mut().round(tell);
                pause.set(tokio::time::sleep((clock.now().since(begin) * REST).max(ROUND)));
            }
        }
    }
}
