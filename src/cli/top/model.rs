//! All that the screen shows, as values: what the daemon has told, and what a person has chosen.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::SystemTime;

use serde_json::Value;

use super::history::{History, Samples};
use super::order::{Only, Sort};
use super::tunnel::{Drain, State, Tunnel};
use crate::cli::events;
use crate::cli::text::printable;

/// Events kept of each tunnel.
const TOLD: usize = 50;
/// Events kept that may be newer than the answer that is waited for.
const FRESH: usize = 10_000;
/// Tunnels whose samples are kept.
const CLOSE: usize = 64;

/// One tunnel of the list.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) tunnel: Tunnel,
    /// Its name as it is shown.
    pub(super) name: String,
    /// Its name as it is searched.
    folded: String,
    pub(super) history: History,
}

impl Row {
    fn new(tunnel: Tunnel) -> Self {
        let (name, folded) = (printable(&tunnel.name), tunnel.name.to_lowercase());
        Self { tunnel, name, folded, history: History::default() }
    }
}

/// What the feed tells.
#[derive(Debug)]
pub(super) enum Update {
    /// All tunnels are being asked for: what happens from here on may be newer than the answer.
    Asking,
    /// All tunnels.
    Tunnels(Vec<Tunnel>),
    /// The daemon itself.
    Health(Value),
    /// Something happened.
    Event(Value),
    /// What explain says of a tunnel, and the routes over it.
    Close {
        /// The tunnel.
        name: String,
        /// What explain says.
        explanation: Value,
        /// The routes over it.
        routes: Value,
    },
    /// All endpoints.
    Endpoints(Value),
    /// A change was made: its words.
    Done(String),
    /// A question or a change was refused: the daemon's words.
    Refused(String),
    /// The daemon does not answer: why.
    Silent(String),
}

/// A change that a person asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Drain { name: String, down: bool },
    Undrain { name: String },
}

impl Change {
    /// The question before it is made.
    fn question(&self) -> String {
        match self {
            Self::Drain { name, down: false } => format!("Drain {}, as costly as degraded?", printable(name)),
            Self::Drain { name, down: true } => format!("Drain {}, as costly as down?", printable(name)),
            Self::Undrain { name } => format!("Let traffic come back to {}?", printable(name)),
        }
    }
}

/// What the keys mean at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Mode {
    #[default]
    Normal,
    /// Letters are searched.
    Search,
    /// Nothing else is done before this is answered.
    Question(Change),
    Help,
    /// The endpoints are shown instead of the tunnels.
    Endpoints,
}

/// What is looked at closely.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Focus {
    #[default]
    Nothing,
    Tunnel(String),
    Endpoints,
}

/// A line that stays until the next key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) is_bad: bool,
}

/// An event as it is shown.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) at: Option<SystemTime>,
    pub(super) text: String,
}

/// What is known of the tunnel that is looked at closely.
#[derive(Debug, Clone, Default)]
pub(super) struct Close {
    pub(super) name: String,
    pub(super) explanation: Value,
    pub(super) routes: Value,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) now: SystemTime,
    pub(super) rows: Vec<Row>,
    places: HashMap<String, usize>,
    /// Rows that are shown, in their order.
    shown: Vec<usize>,
    /// Tunnels by state, and those that are drained.
    pub(super) counts: ([usize; 4], usize),
    /// The widest name.
    pub(super) widest: usize,
    /// The tunnel that the cursor stays on; none: it stays at the top of the list.
    held: Option<String>,
    cursor: usize,
    top: usize,
    page: usize,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) only: Only,
    pub(super) search: String,
    pub(super) mode: Mode,
    /// Whether the pane of the chosen tunnel is open, and how far it is scrolled.
    pub(super) pane: bool,
    pub(super) scroll: u16,
    pub(super) message: Option<Message>,
    /// When the tunnels shown were told.
    pub(super) answered: Option<SystemTime>,
    /// Since when the daemon has not answered, and why.
    pub(super) silence: Option<(SystemTime, String)>,
    heard: SystemTime,
    /// Why the kernel's routes are held.
    pub(super) fail_static: Option<String>,
    pub(super) close: Close,
    pub(super) endpoints: Value,
    samples: BTreeMap<String, Samples>,
    told: BTreeMap<String, VecDeque<Told>>,
    pub(super) last_told: Option<Told>,
    /// What has happened since the tunnels were asked for.
    fresh: VecDeque<Value>,
    is_dirty: bool,
}

impl Model {
    pub(super) fn new(now: SystemTime) -> Self {
        Self {
            now,
            rows: Vec::new(),
            places: HashMap::new(),
            shown: Vec::new(),
            counts: ([0; 4], 0),
            widest: 0,
            held: None,
            cursor: 0,
            top: 0,
            page: 1,
            sort: Sort::default(),
            reversed: false,
            only: Only::default(),
            search: String::new(),
            mode: Mode::Normal,
            pane: false,
            scroll: 0,
            message: None,
            answered: None,
            silence: None,
            heard: now,
            fail_static: None,
            close: Close::default(),
            endpoints: Value::Null,
            samples: BTreeMap::new(),
            told: BTreeMap::new(),
            last_told: None,
            fresh: VecDeque::new(),
            is_dirty: false,
        }
    }

    /// Takes in what the feed tells.
    pub(super) fn take(&mut self, update: Update) {
        match update {
            Update::Asking => self.fresh.clear(),
            Update::Tunnels(tunnels) => {
                self.hear();
                self.answered = Some(self.now);
                self.replace(tunnels);
                std::mem::take(&mut self.fresh).iter().for_each(|event| self.apply(event));
            }
            Update::Health(health) => {
                self.hear();
                self.fail_static = health["fail_static"]["reason"].as_str().map(printable);
            }
            Update::Event(event) => {
                self.apply(&event);
                self.tell(&event);
                if self.fresh.len() == FRESH {
                    self.fresh.pop_front();
                }
                self.fresh.push_back(event);
            }
            Update::Close { name, explanation, routes } => {
                if self.samples.len() >= CLOSE && !self.samples.contains_key(&name) {
                    self.samples.clear();
                }
                self.samples.entry(name.clone()).or_default().note(&explanation);
                self.close = Close { name, explanation, routes };
            }
            Update::Endpoints(answer) => self.endpoints = answer,
            Update::Done(text) => self.say(&text, false),
            Update::Refused(text) => self.say(&text, true),
            Update::Silent(why) => {
                let since = self.silence.take().map_or(self.heard, |(since, _)| since);
                self.silence = Some((since, printable(&why)));
            }
        }
    }

    fn hear(&mut self) {
        self.heard = self.now;
        self.silence = None;
    }

    pub(super) fn say(&mut self, text: &str, is_bad: bool) {
        self.message = Some(Message { text: printable(text), is_bad });
    }

    fn replace(&mut self, tunnels: Vec<Tunnel>) {
        let mut before = std::mem::take(&mut self.rows);
        let row = |(place, tunnel): (usize, Tunnel)| {
            // Nearly always they are in the same order.
            let is_here = before.get(place).is_some_and(|row| row.tunnel.name == tunnel.name);
            let old = if is_here { Some(place) } else { self.places.get(&tunnel.name).copied() };
            match old.and_then(|old| before.get_mut(old)).map(std::mem::take) {
                Some(mut row) => {
                    row.history.note(&row.tunnel, &tunnel);
                    Row { tunnel, ..row }
                }
                None => Row::new(tunnel),
            }
        };
        self.rows = tunnels.into_iter().enumerate().map(row).collect();
        self.places = self.rows.iter().enumerate().map(|(place, row)| (row.tunnel.name.clone(), place)).collect();
        self.widest = self.rows.iter().map(|row| super::look::width(&row.name)).max().unwrap_or(0);
        if self.told.len() > 2 * self.rows.len() + CLOSE {
            self.told.retain(|name, _| self.places.contains_key(name));
        }
        self.is_dirty = true;
    }

    /// What an event changes of a tunnel, at once.
    fn apply(&mut self, event: &Value) {
        let place = event["tunnel"].as_str().and_then(|name| self.places.get(name));
        let Some(row) = place.and_then(|&place| self.rows.get_mut(place)) else { return };
        let tunnel = &mut row.tunnel;
        match event["kind"].as_str() {
            Some("transition") => {
                tunnel.state = State::of(event["to"].as_str().unwrap_or_default());
                tunnel.since = moment(&event["at"]);
                tunnel.reason = event["reason"].as_str().unwrap_or_default().to_owned();
            }
            Some("drain") => {
                tunnel.drained = event["drained"] == true;
                let reason = event["reason"].as_str().map(str::to_owned);
                tunnel.drain = tunnel.drained.then(|| Drain { reason, until: moment(&event["until"]) });
            }
            _ => return,
        }
        tunnel.penalty = event["penalty"].as_u64().unwrap_or(tunnel.penalty);
        self.is_dirty = true;
    }

    /// Keeps an event for all tunnels that it names.
    fn tell(&mut self, event: &Value) {
        let told = Told { at: moment(&event["at"]), text: events::what(event, false) };
        let lists = [&event["from"], &event["to"]].into_iter().filter_map(Value::as_array).flatten();
        for name in lists.chain([&event["tunnel"]]).filter_map(Value::as_str) {
            let events = self.told.entry(name.to_owned()).or_default();
            if events.len() == TOLD {
                events.pop_front();
            }
            events.push_back(told.clone());
        }
        self.last_told = Some(told);
    }

    /// The question before a change is made. Another drain takes the place of the one that holds, with its end and its
    /// reason, which nobody should lose unasked.
    pub(super) fn question(&self, change: &Change) -> String {
        let question = change.question();
        let Change::Drain { name, .. } = change else { return question };
        let row = self.places.get(name).and_then(|&place| self.rows.get(place));
        let held = row.and_then(|row| super::list::terms(&row.tunnel, self.now));
        held.map_or_else(|| question.clone(), |held| format!("{question} (in place of: {held})"))
    }

    /// The latest events of a tunnel, the newest first.
    pub(super) fn told_of(&self, name: &str) -> impl Iterator<Item = &Told> {
        self.told.get(name).into_iter().flatten().rev()
    }

    pub(super) fn samples_of(&self, name: &str) -> Option<&Samples> {
        self.samples.get(name)
    }

    /// Changes which tunnels are shown, or in which order.
    pub(super) fn choose(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.is_dirty = true;
    }

    /// Whether the list that is shown is made of all that has come: a key that only moves leaves it so.
    #[cfg(test)]
    pub(super) const fn is_settled(&self) -> bool {
        !self.is_dirty
    }

    /// Events that are kept until the next answer.
    #[cfg(test)]
    pub(super) fn fresh(&self) -> usize {
        self.fresh.len()
    }

    /// Makes the list that is shown of what has come, for a screen with so many lines for it.
    pub(super) fn settle(&mut self, page: usize) {
        self.page = page.max(1);
        if std::mem::take(&mut self.is_dirty) {
            let folded = self.search.to_lowercase();
            let (only, sort, rows) = (self.only, self.sort, &self.rows);
            let is_shown = |row: &Row| only.shows(&row.tunnel) && row.folded.contains(&folded);
            self.shown = (0..rows.len()).filter(|&place| is_shown(&rows[place])).collect();
            self.shown.sort_by(|&one, &other| sort.compare(&rows[one], &rows[other]));
            if self.reversed {
                self.shown.reverse();
            }
            let count = |state| rows.iter().filter(|row| row.tunnel.state == state).count();
            self.counts = (State::ALL.map(count), rows.iter().filter(|row| row.tunnel.drained).count());
            self.find_held();
        }
        self.cursor = self.cursor.min(self.shown.len().saturating_sub(1));
        let last_top = self.shown.len().saturating_sub(self.page);
        self.top = self.top.clamp((self.cursor + 1).saturating_sub(self.page), self.cursor).min(last_top);
    }

    /// The cursor goes where its tunnel has gone. If that is not shown any more, it stays where it is.
    fn find_held(&mut self) {
        let Some(name) = &self.held else {
            self.cursor = 0;
            return;
        };
        let place = self.places.get(name);
        match self.shown.iter().position(|shown| Some(shown) == place) {
            Some(found) => self.cursor = found,
            None => self.hold(self.cursor),
        }
    }

    /// Puts the cursor on a line of the list, and has it stay on that tunnel.
    pub(super) fn hold(&mut self, line: usize) {
        self.cursor = line.min(self.shown.len().saturating_sub(1));
        let chosen = self.chosen().map(|row| row.tunnel.name.clone());
        if chosen != self.held {
            self.scroll = 0;
        }
        self.held = chosen;
    }

    /// Puts the cursor at the top, and has it stay there, whichever tunnel that is.
    pub(super) fn release(&mut self) {
        (self.cursor, self.held, self.scroll) = (0, None, 0);
    }

    pub(super) fn move_by(&mut self, lines: isize) {
        self.hold(self.cursor.saturating_add_signed(lines));
    }

    pub(super) fn move_to_end(&mut self) {
        self.hold(usize::MAX);
    }

    pub(super) fn page(&self) -> isize {
        isize::try_from(self.page).unwrap_or(isize::MAX)
    }

    /// The tunnel under the cursor.
    pub(super) fn chosen(&self) -> Option<&Row> {
        self.shown.get(self.cursor).and_then(|&place| self.rows.get(place))
    }

    pub(super) fn shown(&self) -> usize {
        self.shown.len()
    }

    /// The rows on the screen, and for each whether the cursor is there: never more than there are lines.
    pub(super) fn visible(&self) -> impl Iterator<Item = (&Row, bool)> {
        let lines = self.shown.iter().enumerate().skip(self.top).take(self.page);
        lines.filter_map(|(line, &place)| Some((self.rows.get(place)?, line == self.cursor)))
    }

    /// The pane's last line is this: it is scrolled no further.
    pub(super) fn settle_pane(&mut self, last: u16) {
        self.scroll = self.scroll.min(last);
    }

    /// What is to be looked at closely.
    pub(super) fn focus(&self) -> Focus {
        if self.mode == Mode::Endpoints {
            return Focus::Endpoints;
        }
        let chosen = self.chosen().filter(|_| self.pane).map(|row| row.tunnel.name.clone());
        chosen.map_or(Focus::Nothing, Focus::Tunnel)
    }
}

/// An RFC 3339 time; none if it is something else.
pub(super) fn moment(value: &Value) -> Option<SystemTime> {
    value.as_str().and_then(|at| humantime::parse_rfc3339(at).ok())
}
