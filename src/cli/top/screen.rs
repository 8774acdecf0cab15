//! The terminal: taken, and given back as it was, however this ends.

use std::io::{self, IsTerminal, Stdout};
use std::sync::Once;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear as ClearScreen, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::cli::{Exit, Failure};

/// Refuses where there is no terminal to draw on.
pub(super) fn check() -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let why = "adit top needs a terminal for its input and its output; for scripts there is adit status --json";
        return Err(Failure::new(Exit::Usage, why));
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        let why = "adit top cannot draw on this terminal (TERM is dumb or not set); adit status --watch needs no more";
        return Err(Failure::new(Exit::Usage, why));
    }
    Ok(())
}

/// Whether the terminal is to be sent more than ASCII, by the locale (POSIX: the first of these that is set).
pub(super) fn is_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The screen, taken.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        restore_on_panic();
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).inspect_err(|_| leave())?;
        Ok(Self { terminal })
    }

    /// Gives the terminal to the shell, and takes it again when that lets this go on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave();
        // Here it stands still. Where no shell could let it go on, the kernel does not stop it.
        raise(Signal::SIGTSTP)?;
        self.resume()
    }

    /// Takes the terminal again: the shell may have set it otherwise meanwhile.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        enter()?;
        self.redraw()
    }

    /// Clears the terminal, and forgets what was drawn there. (ratatui's own way asks the terminal where its cursor
    /// is, and its answer would be taken for keys.)
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        execute!(io::stdout(), ClearScreen(ClearType::All))?;
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// Whether there is nobody at the other end of the terminal any more.
    pub(super) fn is_hung_up(&self) -> bool {
        let stdin = io::stdin();
        let mut asked = [PollFd::new(std::os::fd::AsFd::as_fd(&stdin), PollFlags::empty())];
        let answered = poll(&mut asked, PollTimeout::ZERO).is_ok_and(|count| count > 0);
        answered && asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| leave())
}

fn leave() {
    // Where the terminal is gone, there is nothing to give back.
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// What a panic says is to be read on the screen of the shell.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
    });
}
