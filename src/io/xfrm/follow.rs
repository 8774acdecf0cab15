//! Looking at the kernel's associations whenever they have changed, on a thread of its own: a list of many
//! takes as long as a probe may wait.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Association, Opened, Watch, open};
use crate::io::clock::Clock;

/// A pause is so many times as long as the work before it, so that one core is never busy with this.
pub const REST: u32 = 19;

/// A list that has failed is made again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// Held by whoever has not yet told everything of now.
#[derive(Debug, Clone)]
pub struct Pending(#[expect(dead_code, reason = "it is only dropped")] mpsc::Sender<()>);

/// Opens a watch over the namespace of the calling thread, if there are associations to be seen. If they
/// are there but cannot be seen, the log says what is not noticed then.
#[must_use]
pub fn open_or_warn() -> Option<Opened> {
    let error = match open() {
        Ok(watch) => return Some(watch),
        Err(error) => error,
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "the system's list is open")]
    match error.kind() {
        // A kernel without IPsec has nothing to collide with.
        io::ErrorKind::Unsupported => {}
        io::ErrorKind::PermissionDenied => tracing::warn!(
            "without CAP_NET_ADMIN the kernel's security associations cannot be seen: that it has none with an SPI of \
             ours is not checked"
        ),
        _ => tracing::warn!(%error, "the kernel's security associations cannot be watched"),
    }
    None
}

/// Runs what looks and tells on a thread of its own, and returns when all its [`Pending`] are dropped.
///
/// # Errors
/// No room for a thread or its runtime.
pub fn aside<T: Send + 'static, F: Future<Output = ()>>(
    look: impl FnOnce(UnboundedSender<T>, Pending) -> F + Send + 'static,
) -> io::Result<UnboundedReceiver<T>> {
    let (tell, news) = unbounded_channel();
    let (pending, begun) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let look = move || runtime.block_on(look(tell, Pending(pending)));
    thread::Builder::new().name("kernel".to_owned()).spawn(look)?;
    // If the thread has ended instead, it has said why.
    let _ = begun.recv();
    Ok(news)
}

/// What is seen of the associations: all of them, or why they are not seen for now.
pub type Seen = Result<BTreeSet<Association>, String>;

/// The associations of one namespace, now and whenever they have changed. Those of now are there when
/// this returns. It ends when nobody listens any more.
///
/// # Errors
/// As [`aside`].
pub fn spawn(opened: Opened) -> io::Result<UnboundedReceiver<Seen>> {
    aside(|tell, pending| async move {
        tokio::select! {
            () = tell.closed() => {}
            // Nobody may be listening any more; then this ends shortly.
            () = follow(opened, Some(pending), |seen| drop(tell.send(seen))) => {}
        }
    })
}

/// Lists a namespace's associations, and again whenever they have changed, or the last list has failed.
/// When it has done so for the first time, it lets go of `pending`.
pub async fn follow(opened: Opened, pending: Option<Pending>, mut tell: impl FnMut(Seen)) {
    let clock = Clock::start();
    let mut watch = match opened.register() {
        Ok(watch) => watch,
        Err(error) => return tell(Err(error.to_string())),
    };
    let mut listed = list(&mut watch, &mut tell);
    drop(pending);
    loop {
        if listed {
            poll_fn(|context| watch.poll_ready(context)).await;
        } else {
            tokio::time::sleep(AGAIN).await;
        }
        match watch.changed() {
            Ok(false) if listed => {}
            Ok(_) => {
                let begin = clock.now();
                listed = list(&mut watch, &mut tell);
                tokio::time::sleep(clock.now().since(begin) * REST).await;
            }
            Err(error) => {
                listed = false;
                tell(Err(error.to_string()));
            }
        }
    }
}

/// Tells all associations of now, and whether that could be done.
fn list(watch: &mut Watch, tell: &mut impl FnMut(Seen)) -> bool {
    let seen = watch.associations().map_err(|error| error.to_string());
    let listed = seen.is_ok();
    tell(seen);
    listed
}
