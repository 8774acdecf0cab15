//! What a key does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Change, Mode, Model};
use super::order::Only;

/// Letters of a search that are kept.
const SEARCHED: usize = 64;

/// What is to be done outside the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Suspend,
    Redraw,
    Change(Change),
}

/// All keys, for the help.
pub(super) const HELP: [(&str, &str); 17] = [
    ("arrows, j k", "another tunnel"),
    ("PgUp PgDn", "a page; in the pane: scroll it"),
    ("Ctrl-B Ctrl-F", "the same"),
    ("g G, Home End", "the top (and stay there), the end"),
    ("Enter", "the pane of this tunnel"),
    ("Esc", "close it; end the search"),
    ("s S", "sort by something else; the other way round"),
    ("f F", "show fewer states; all of them"),
    ("/", "search names"),
    ("d", "drain, as costly as degraded (asks first)"),
    ("D", "drain, as costly as down (asks first)"),
    ("u", "undrain (asks first)"),
    ("e", "the endpoints, and back"),
    ("Ctrl-L", "draw the screen anew"),
    ("Ctrl-Z", "suspend"),
    ("? h F1", "these keys"),
    ("q, Ctrl-C", "quit"),
];

impl Model {
    /// Does what a key asks for.
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Action> {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return self.press_control(key.code);
        }
        match self.mode.clone() {
            Mode::Normal => self.press_normal(key.code),
            Mode::Search => {
                self.press_search(key.code);
                None
            }
            Mode::Question(change) => self.answer(key.code, change),
            Mode::Help => {
                self.mode = Mode::Normal;
                None
            }
            Mode::Endpoints => self.press_endpoints(key.code),
        }
    }

    fn press_control(&mut self, code: KeyCode) -> Option<Action> {
        let KeyCode::Char(letter) = code else { return None };
        match letter {
            'c' => return Some(Action::Quit),
            'z' => return Some(Action::Suspend),
            'l' => return Some(Action::Redraw),
            // Not `d` and `u`, as some programs have it: these are next to keys that drain.
            'f' if self.mode == Mode::Normal => self.turn(1),
            'b' if self.mode == Mode::Normal => self.turn(-1),
            _ => {}
        }
        None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys do nothing")]
    fn press_normal(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('j') => self.move_by(1),
            KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Char('g') => self.release(),
            KeyCode::Char('G') => self.move_to_end(),
            KeyCode::Char('s') => self.choose(|it| (it.sort, it.reversed) = (it.sort.next(), false)),
            KeyCode::Char('S') => self.choose(|it| it.reversed = !it.reversed),
            KeyCode::Char('f') => self.choose(|it| it.only = it.only.next()),
            KeyCode::Char('F') => self.choose(|it| it.only = Only::All),
            KeyCode::Char('e') => (self.mode, self.scroll) = (Mode::Endpoints, 0),
            KeyCode::Char('/') => self.mode = Mode::Search,
            KeyCode::Char('d') => self.ask(|name| Change::Drain { name, down: false }),
            KeyCode::Char('D') => self.ask(|name| Change::Drain { name, down: true }),
            KeyCode::Char('u') => self.ask(|name| Change::Undrain { name }),
            KeyCode::Enter => self.open(),
            KeyCode::Esc if self.pane => (self.pane, self.scroll) = (false, 0),
            KeyCode::Esc => self.choose(|it| it.search.clear()),
            other => self.walk(other),
        }
        None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys do nothing")]
    fn press_endpoints(&mut self, code: KeyCode) -> Option<Action> {
        let page = i16::try_from(self.page()).unwrap_or(i16::MAX);
        let lines = match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('e') | KeyCode::Esc => {
                (self.mode, self.scroll) = (Mode::Normal, 0);
                return None;
            }
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::PageDown => page,
            KeyCode::PageUp => page.saturating_neg(),
            _ => return None,
        };
        let last = self.endpoints["endpoints"].as_array().map_or(0, |all| all.len().saturating_sub(1));
        let last = u16::try_from(last).unwrap_or(u16::MAX);
        self.scroll = self.scroll.saturating_add_signed(lines).min(last);
        None
    }

    /// The keys that move, whatever letters mean.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys do nothing")]
    fn walk(&mut self, code: KeyCode) {
        match code {
            KeyCode::Down => self.move_by(1),
            KeyCode::Up => self.move_by(-1),
            KeyCode::PageDown => self.turn(1),
            KeyCode::PageUp => self.turn(-1),
            KeyCode::Home => self.release(),
            KeyCode::End => self.move_to_end(),
            _ => {}
        }
    }

    /// A page of the list; of the pane where that is open.
    fn turn(&mut self, pages: i16) {
        if self.pane {
            self.scroll = self.scroll.saturating_add_signed(8 * pages);
        } else {
            self.move_by(isize::from(pages).saturating_mul(self.page()));
        }
    }

    fn open(&mut self) {
        if self.chosen().is_some() {
            // From here on it is about this tunnel, wherever that moves.
            self.move_by(0);
            self.pane = true;
        }
    }

    fn ask(&mut self, change: impl FnOnce(String) -> Change) {
        match self.chosen().map(|row| row.tunnel.name.clone()) {
            Some(name) => self.mode = Mode::Question(change(name)),
            None => self.say("there is no tunnel here", true),
        }
    }

    /// Only a clear yes is one.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys do nothing")]
    fn answer(&mut self, code: KeyCode, change: Change) -> Option<Action> {
        match code {
            KeyCode::Char('y' | 'Y') => {
                self.mode = Mode::Normal;
                return Some(Action::Change(change));
            }
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
                self.mode = Mode::Normal;
                self.say("nothing has been changed", false);
            }
            _ => {}
        }
        None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys do nothing")]
    fn press_search(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Normal,
            KeyCode::Esc => {
                self.mode = Mode::Normal;
                self.choose(|it| it.search.clear());
            }
            KeyCode::Backspace => self.choose(|it| {
                it.search.pop();
            }),
            KeyCode::Char(letter) if self.search.chars().count() < SEARCHED => self.choose(|it| it.search.push(letter)),
            other => self.walk(other),
        }
    }
}
