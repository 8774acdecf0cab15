//! `adit top`: all tunnels on one screen, as they are now.
//!
//! What is shown is a [`model::Model`], which keys and the daemon's answers change, and which [`view`] makes a screen
//! of: both without a clock, a terminal or a socket. The rest is a thin shell.
//!
//! | file | holds |
//! | --- | --- |
//! | `tunnel` | a tunnel as the local socket shows it |
//! | `history` | what was seen of it |
//! | `order` | sort keys and filters |
//! | `model` | all that is shown, as values |
//! | `keys` | what a key does |
//! | `view` | the model as a screen |
//! | `list`, `pane`, `endpoints` | of that, the tunnels; one of them; what is probed in none |
//! | `look` | colours, signs, widths, small pictures |
//! | `feed` | the daemon's answers, on a thread of its own |
//! | `screen` | the terminal, taken and given back |

mod endpoints;
mod feed;
mod history;
mod keys;
mod list;
mod look;
mod model;
mod order;
mod pane;
mod screen;
#[cfg(test)]
mod tests;
mod tunnel;
mod view;

use std::io;
use std::path::Path;
use std::time::Duration;

use nix::libc::SIGCONT;
use ratatui::crossterm::event::{Event, KeyEventKind, read};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Interval, interval};

use super::client::{block_on, get};
use super::text::{coloured, now};
use super::{Exit, Failure, Outcome};
use feed::Feed;
use keys::Action;
use look::Look;
use model::Model;
use screen::Screen;

/// Times on the screen are shown in seconds.
const TICK: Duration = Duration::from_secs(1);

pub(super) fn run(socket: &Path) -> Outcome {
    screen::check()?;
    block_on(async {
        // Where nobody answers from the start, that is said as every command says it.
        get(socket, "/v1/healthz").await?;
        let look = Look { colours: coloured(&io::stdout()), unicode: screen::is_unicode() };
        let mut shell = Shell::open(socket, look)?;
        while shell.turn().await? {}
        Ok(Exit::Done)
    })
}

/// The model, and what it is joined to.
struct Shell {
    model: Model,
    look: Look,
    feed: Feed,
    typed: mpsc::UnboundedReceiver<Event>,
    signals: Signals,
    tick: Interval,
    screen: Screen,
}

struct Signals {
    ends: [Signal; 3],
    resumed: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let [terminate, interrupt, hangup] =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        Ok(Self { ends: [terminate?, interrupt?, hangup?], resumed: signal(SignalKind::from_raw(SIGCONT))? })
    }
}

impl Shell {
    fn open(socket: &Path, look: Look) -> Result<Self, Failure> {
        let signals = Signals::listen()?;
        let feed = feed::start(socket)?;
        let screen = Screen::take()?;
        Ok(Self { model: Model::new(now()), look, feed, typed: typed()?, signals, tick: interval(TICK), screen })
    }

    /// Draws, waits for something to happen, and takes in all that has; false when it is time to go.
    async fn turn(&mut self) -> Result<bool, Failure> {
        self.draw()?;
        let Signals { ends: [terminate, interrupt, hangup], resumed } = &mut self.signals;
        let mut goes_on = true;
        tokio::select! {
            update = self.feed.updates.recv() => self.model.take(update.ok_or_else(broken)?),
            event = self.typed.recv() => goes_on = self.happen(event.ok_or_else(broken)?)?,
            _ = self.tick.tick() => goes_on = !self.screen.is_hung_up(),
            _ = terminate.recv() => goes_on = false,
            _ = interrupt.recv() => goes_on = false,
            _ = hangup.recv() => goes_on = false,
            _ = resumed.recv() => self.screen.resume()?,
        }
        // One picture for all that is there already: a held key, or a storm of events, is not drawn step by step.
        while goes_on && let Ok(event) = self.typed.try_recv() {
            self.settle()?;
            goes_on = self.happen(event)?;
        }
        while goes_on && let Ok(update) = self.feed.updates.try_recv() {
            self.model.take(update);
        }
        Ok(goes_on)
    }

    fn settle(&mut self) -> io::Result<()> {
        view::settle(&mut self.model, self.screen.terminal.size()?, self.look);
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        self.model.now = now();
        self.settle()?;
        let focus = self.model.focus();
        self.feed.focus.send_if_modified(|before| {
            *before != focus && {
                *before = focus;
                true
            }
        });
        let (model, look) = (&self.model, self.look);
        self.screen.terminal.draw(|frame| view::draw(frame, model, look)).map(drop)
    }

    /// Does what was typed; false if that is to go.
    fn happen(&mut self, event: Event) -> io::Result<bool> {
        let Event::Key(key) = event else { return Ok(true) };
        if key.kind == KeyEventKind::Release {
            return Ok(true);
        }
        match self.model.press(key) {
            None => {}
            Some(Action::Quit) => return Ok(false),
            Some(Action::Suspend) => self.screen.suspend()?,
            Some(Action::Redraw) => self.screen.redraw()?,
            Some(Action::Change(change)) => {
                // Its end is noticed where its answers are taken.
                let _ = self.feed.changes.send(change);
            }
        }
        Ok(true)
    }
}

/// What is typed, read on a thread of its own, which ends with the process.
fn typed() -> io::Result<mpsc::UnboundedReceiver<Event>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let work = move || while read().is_ok_and(|event| sender.send(event).is_ok()) {};
    std::thread::Builder::new().name("adit-keys".to_owned()).spawn(work)?;
    Ok(receiver)
}

fn broken() -> Failure {
    Failure::new(Exit::System, "adit top has lost its terminal, or one of its own threads")
}
