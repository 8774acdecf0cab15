//! Colours, signs, widths, small pictures. A state has a colour, a sign and a word: each alone tells which it is.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::history::Point;
use super::tunnel::State;

/// How things look on this terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// Whether colours may be used.
    pub(super) colours: bool,
    /// Whether the terminal has more letters than those of ASCII.
    pub(super) unicode: bool,
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const PLAIN_BARS: [char; 8] = ['_', '_', '.', '.', '-', '-', '=', '#'];

impl Look {
    /// The sign of a state.
    pub(super) const fn sign(self, state: State) -> &'static str {
        match (state, self.unicode) {
            (State::Down, true) => "✗",
            (State::Degraded, true) => "▲",
            (State::Healthy, true) => "●",
            (State::Down, false) => "X",
            (State::Degraded, false) => "!",
            (State::Healthy, false) => "+",
            (State::Unknown, _) => "?",
        }
    }

    /// The style of a state.
    pub(super) fn style(self, state: State) -> Style {
        let (colour, modifier) = match state {
            State::Down => (Color::Red, Modifier::BOLD),
            State::Degraded => (Color::Yellow, Modifier::empty()),
            State::Healthy => (Color::Green, Modifier::empty()),
            State::Unknown => (Color::Reset, Modifier::DIM),
        };
        self.coloured(colour).add_modifier(modifier)
    }

    /// For what is wrong and wants to be seen.
    pub(super) fn alarm(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }

    fn coloured(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    const fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }

    /// The sign between two things.
    pub(super) const fn dot(self) -> &'static str {
        if self.unicode { " · " } else { " | " }
    }

    /// A text cut to this width.
    pub(super) fn fit(self, text: &str, room: usize) -> String {
        if width(text) <= room {
            return text.to_owned();
        }
        let (mut cut, mut taken) = (String::new(), 0);
        // By what a terminal shows in one place, never by half of a wide letter.
        for part in Span::raw(text).styled_graphemes(Style::new()) {
            let wide = width(part.symbol);
            if taken + wide + 1 > room {
                break;
            }
            cut.push_str(part.symbol);
            taken += wide;
        }
        if room > 0 {
            cut.push_str(self.ellipsis());
        }
        cut
    }

    /// A text that takes exactly this width.
    pub(super) fn pad(self, text: &str, room: usize, right: bool) -> String {
        let text = self.fit(text, room);
        let fill = " ".repeat(room.saturating_sub(width(&text)));
        if right { format!("{fill}{text}") } else { format!("{text}{fill}") }
    }

    /// The latest points that fit, one a column, the newest at the right: how long each answer took against the
    /// longest, and what was lost.
    pub(super) fn picture(self, points: impl DoubleEndedIterator<Item = Point>, room: usize) -> Vec<Span<'static>> {
        let mut points: Vec<Point> = points.rev().take(room).collect();
        points.reverse();
        let longest = points.iter().map(|&point| if let Point::Answered(us) = point { us } else { 0 }).max();
        let longest = longest.unwrap_or(0).max(1);
        let span = |point: Point| match point {
            Point::Answered(us) => {
                let level = us.saturating_mul(7) / longest;
                let bars = if self.unicode { BARS } else { PLAIN_BARS };
                let bar = bars[usize::try_from(level).unwrap_or(0).min(7)];
                Span::styled(bar.to_string(), self.coloured(Color::Cyan))
            }
            Point::Lost => Span::styled(self.sign(State::Down), self.style(State::Down)),
            Point::Spoilt => Span::styled("?", self.style(State::Unknown)),
        };
        let fill = room.saturating_sub(points.len());
        std::iter::once(Span::raw(" ".repeat(fill))).chain(points.into_iter().map(span)).collect()
    }
}

/// How many columns of a terminal a text takes.
pub(super) fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { Line::raw(text).width() }
}
