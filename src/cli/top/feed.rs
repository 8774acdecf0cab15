//! What the daemon tells: asked on a thread of its own, so that a long answer or a slow daemon holds up no key.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::model::{Change, Focus, Update};
use super::tunnel::Tunnels;
use crate::cli::client::{escaped, get, get_as, lines, post};
use crate::cli::text::{now, thousands};
use crate::cli::{Exit, Failure};

/// How often the daemon is asked.
const PACE: Duration = Duration::from_secs(1);
/// The daemon is asked for no more than a part of the time that this is the inverse of: with very many tunnels the
/// answer is long. Transitions come as they happen, whatever the pace.
const SHARE: u32 = 10;
/// But so often at least.
const SLOWEST: Duration = Duration::from_secs(20);
/// Updates on their way to the screen.
const UPDATES: usize = 256;

/// The screen's end.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) updates: mpsc::Receiver<Update>,
    pub(super) changes: mpsc::UnboundedSender<Change>,
    /// What is looked at closely.
    pub(super) focus: watch::Sender<Focus>,
}

/// The other end.
struct Asker {
    socket: PathBuf,
    updates: mpsc::Sender<Update>,
}

/// Asks from now on, until the screen's end is dropped.
pub(super) fn start(socket: &Path) -> Result<Feed, Failure> {
    let (updates, receiver) = mpsc::channel(UPDATES);
    let (changes, made) = mpsc::unbounded_channel();
    let (focus, watched) = watch::channel(Focus::Nothing);
    let asker = Asker { socket: socket.to_owned(), updates };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = move || runtime.block_on(asker.work(made, watched));
    std::thread::Builder::new().name("adit-feed".to_owned()).spawn(work)?;
    Ok(Feed { updates: receiver, changes, focus })
}

/// The screen is gone.
struct Over;

impl Asker {
    async fn work(self, made: mpsc::UnboundedReceiver<Change>, watched: watch::Receiver<Focus>) {
        // Whichever notices first that the screen is gone ends all of them.
        tokio::select! {
            Err(Over) = self.look() => {}
            Err(Over) = self.follow() => {}
            Err(Over) = self.look_closely(watched) => {}
            Err(Over) = self.change(made) => {}
        }
    }

    async fn tell(&self, update: Update) -> Result<(), Over> {
        self.updates.send(update).await.map_err(|_| Over)
    }

    /// All tunnels, again and again.
    async fn look(&self) -> Result<Infallible, Over> {
        let mut wait = Duration::ZERO;
        loop {
            match get(&self.socket, "/v1/healthz").await {
                Ok(health) => self.tell(Update::Health(health)).await?,
                Err(failure) => self.tell(Update::Silent(failure.message)).await?,
            }
            if wait.is_zero() {
                self.tell(Update::Asking).await?;
                let begun = now();
                match get_as::<Tunnels>(&self.socket, "/v1/tunnels").await {
                    Ok(Tunnels { tunnels }) => self.tell(Update::Tunnels(tunnels)).await?,
                    Err(failure) => self.tell(Update::Silent(failure.message)).await?,
                }
                let took = now().duration_since(begun).unwrap_or_default();
                wait = took.saturating_mul(SHARE).clamp(PACE, SLOWEST);
            }
            // The daemon itself is asked after more often.
            let pause = wait.min(PACE);
            sleep(pause).await;
            wait = wait.saturating_sub(pause);
        }
    }

    /// What happens, as it happens.
    async fn follow(&self) -> Result<Infallible, Over> {
        let mut since = 0;
        loop {
            let path = format!("/v1/events?since={since}&follow=true");
            // That the daemon is silent is told by who looks.
            let _ = lines(&self.socket, &path, async |line| {
                let Ok(event) = serde_json::from_slice::<Value>(line) else { return Ok(()) };
                since = event["id"].as_u64().unwrap_or(since);
                // Told for each probe, while a recording is on.
                if event["kind"] == "sample" {
                    return Ok(());
                }
                let sent = self.updates.send(Update::Event(event)).await;
                sent.map_err(|_| Failure::new(Exit::Done, "the screen is gone"))
            })
            .await;
            if self.updates.is_closed() {
                return Err(Over);
            }
            sleep(PACE).await;
        }
    }

    /// The tunnel in the pane, or the endpoints.
    async fn look_closely(&self, mut watched: watch::Receiver<Focus>) -> Result<Infallible, Over> {
        loop {
            let focus = watched.borrow_and_update().clone();
            let begun = now();
            // What is wrong with the daemon is told by who looks; a tunnel that is gone is gone from the list.
            match focus {
                Focus::Nothing => {
                    watched.changed().await.map_err(|_| Over)?;
                    continue;
                }
                Focus::Tunnel(name) => {
                    if let Ok((explanation, routes)) = self.close(&name).await {
                        self.tell(Update::Close { name, explanation, routes }).await?;
                    }
                }
                Focus::Endpoints => {
                    if let Ok(all) = get(&self.socket, "/v1/endpoints").await {
                        self.tell(Update::Endpoints(all)).await?;
                    }
                }
            }
            let took = now().duration_since(begun).unwrap_or_default();
            let wait = took.saturating_mul(SHARE).clamp(PACE, SLOWEST);
            tokio::select! {
                () = sleep(wait) => {}
                changed = watched.changed() => changed.map_err(|_| Over)?,
            }
        }
    }

    async fn close(&self, name: &str) -> Result<(Value, Value), Failure> {
        let name = escaped(name);
        let explanation = get(&self.socket, &format!("/v1/tunnels/{name}/explain")).await?;
        let routes = get(&self.socket, &format!("/v1/routes?tunnel={name}")).await?;
        Ok((explanation, routes))
    }

    /// Changes that were asked for, one after another.
    async fn change(&self, mut made: mpsc::UnboundedReceiver<Change>) -> Result<Infallible, Over> {
        loop {
            let change = made.recv().await.ok_or(Over)?;
            let path = match &change {
                Change::Drain { name, down } => format!("/v1/tunnels/{}/drain?down={down}", escaped(name)),
                Change::Undrain { name } => format!("/v1/tunnels/{}/undrain", escaped(name)),
            };
            let update = match post(&self.socket, &path).await {
                Ok(tunnel) => Update::Done(outcome(&tunnel)),
                Err(failure) => Update::Refused(failure.message),
            };
            self.tell(update).await?;
        }
    }
}

fn outcome(tunnel: &Value) -> String {
    let text = |name: &str| tunnel[name].as_str().unwrap_or("-");
    let drained = if tunnel["drained"] == true { "drained" } else { "not drained" };
    let penalty = thousands(tunnel["penalty"].as_u64().unwrap_or(0));
    format!("{}: {drained}; measured {}; penalty {penalty}", text("name"), text("state"))
}
