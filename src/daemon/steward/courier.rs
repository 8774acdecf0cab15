//! The messenger, as the steward sees it: begun if anybody is to be told, and again if it ends.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::{LATE, LONG, SOON};
use crate::daemon::messenger::Orders;
use crate::engine::Time;
use crate::io::clock::Clock;
use crate::io::letters;
use crate::notice::Notify;

/// The name of the command that is a messenger.
const COMMAND: &str = "messenger";
/// Whether it has ended is asked this often, at the end.
const POLL: Duration = Duration::from_millis(10);

pub(super) struct Courier {
    socket: PathBuf,
    state_dir: PathBuf,
    orders: Option<Orders>,
    life: Option<Life>,
    /// Nobody was to be told any more, so it has been told to end.
    is_unwanted: bool,
    wait: Duration,
    /// It is not begun before.
    from: Time,
}

struct Life {
    child: Child,
    orders: mpsc::Sender<Zeroizing<Vec<u8>>>,
    since: Time,
}

impl Courier {
    pub(super) fn new(notify: Vec<Notify>, socket: PathBuf, state_dir: PathBuf, clock: &Clock) -> Self {
        let orders = Orders::new(notify, &socket, &state_dir, clock.wall());
        let orders = Some(orders).filter(|orders| !orders.notify.is_empty());
        Self { socket, state_dir, orders, life: None, is_unwanted: false, wait: SOON, from: Time::ZERO }
    }

    /// Begins one if there is none and should be.
    pub(super) fn look(&mut self, clock: &Clock) {
        let now = clock.now();
        if let Some(life) = &mut self.life {
            let how = match life.child.try_wait() {
                Ok(None) => return,
                Ok(Some(status)) => status.to_string(),
                Err(error) => error.to_string(),
            };
            self.wait = if now.since(life.since) > LONG { SOON } else { (self.wait * 2).min(LATE) };
            self.from = now + self.wait;
            self.life = None;
            if !std::mem::take(&mut self.is_unwanted) {
                tracing::error!("the messenger has ended ({how}); another one goes on");
            }
        }
        if let Some(orders) = self.orders.as_ref().filter(|_| now >= self.from) {
            match Life::begin(orders, now) {
                Ok(life) => self.life = Some(life),
                Err(error) => {
                    self.from = now + LATE;
                    tracing::error!(%error, "no messenger can be started; it is tried again");
                }
            }
        }
    }

    /// Hands over another configuration. Without sinks, the messenger ends.
    pub(super) fn renew(&mut self, notify: Vec<Notify>, clock: &Clock) {
        let orders = Orders::new(notify, &self.socket, &self.state_dir, clock.wall());
        if self.orders.as_ref().is_some_and(|known| known.is_same(&orders)) {
            return;
        }
        if let Some(life) = &mut self.life {
            life.say(&orders);
            if orders.notify.is_empty() {
                life.hang_up();
                self.is_unwanted = true;
            }
        }
        self.orders = Some(orders).filter(|orders| !orders.notify.is_empty());
        self.look(clock);
    }

    /// Has it end, and waits for that.
    pub(super) async fn stop(&mut self, patience: Duration) {
        let Some(mut life) = self.life.take() else { return };
        life.hang_up();
        let ended = async {
            while let Ok(None) = life.child.try_wait() {
                tokio::time::sleep(POLL).await;
            }
        };
        if tokio::time::timeout(patience, ended).await.is_err() {
            tracing::warn!("the messenger does not end by itself, and is ended");
            // It may have ended just now.
            let _ = life.child.kill();
            let _ = life.child.try_wait();
        }
    }
}

impl Life {
    fn begin(orders: &Orders, now: Time) -> io::Result<Self> {
        let (ours, theirs) = letters::line()?;
        // This very program, even if another one has been installed in its place meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("adit").arg(COMMAND).stdin(Stdio::from(theirs)).process_group(0);
        let (sender, outbox) = mpsc::channel();
        let life = Self { child: command.spawn()?, orders: sender, since: now };
        // It may take as long as it likes to hear: nobody else waits for that.
        std::thread::Builder::new().name("to-messenger".to_owned()).spawn(move || write(&ours, &outbox))?;
        life.say(orders);
        Ok(life)
    }

    fn say(&self, orders: &Orders) {
        if let Ok(packed) = orders.pack() {
            // Nobody at the other end: that is seen by its end.
            let _ = self.orders.send(packed);
        }
    }

    /// The line is closed when all that was said has been heard.
    fn hang_up(&mut self) {
        self.orders = mpsc::channel().0;
    }
}

fn write(line: &OwnedFd, outbox: &mpsc::Receiver<Zeroizing<Vec<u8>>>) {
    for bytes in outbox {
        if letters::send(line, &bytes, &[]).is_err() {
            return;
        }
    }
}
