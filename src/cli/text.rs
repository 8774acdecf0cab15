//! Tables, colours and times, for people.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};

/// Whether to use colours: only on a terminal, and not against the user's wish (no-color.org).
pub(super) fn coloured(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    stream.is_terminal() && !unwanted && !dumb
}

/// The colour of a state. The word itself stands beside it, so nobody needs to see colours.
pub(super) fn style_of(state: &str) -> Style {
    match state {
        "healthy" | "reachable" => AnsiColor::Green.on_default(),
        "degraded" => AnsiColor::Yellow.on_default(),
        "down" | "unreachable" => AnsiColor::Red.on_default().bold(),
        _ => Style::new().dimmed(),
    }
}

/// A cell of a table: text, and how it is painted.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), style: Style::new() }
    }
}

impl Cell {
    /// A cell with a style.
    pub(super) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

/// Columns as wide as their widest cell.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<Cell>>,
    right: &'static [usize],
}

impl Table {
    /// A table with this head; the columns numbered in `right` are aligned to the right.
    pub(super) fn new(head: &[&str], right: &'static [usize]) -> Self {
        let head = head.iter().map(|text| Cell::styled(*text, Style::new().bold())).collect();
        Self { rows: vec![head], right }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, mut cells: Vec<Cell>) {
        cells.iter_mut().for_each(|cell| cell.text = printable(&cell.text));
        self.rows.push(cells);
    }

    /// The table as lines.
    pub(super) fn lines(&self, coloured: bool) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let paint = |column: usize, cell: &Cell| {
            let fill = " ".repeat(widths[column].saturating_sub(cell.text.chars().count()));
            let Cell { text, style } = cell;
            let text = if coloured { format!("{style}{text}{style:#}") } else { text.clone() };
            if self.right.contains(&column) { format!("{fill}{text}") } else { format!("{text}{fill}") }
        };
        let line = |row: &Vec<Cell>| {
            let cells: Vec<String> = row.iter().enumerate().map(|(column, cell)| paint(column, cell)).collect();
            cells.join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }

    /// Prints the table to standard output.
    pub(super) fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        self.lines(coloured(&out)).iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

/// A text in which nothing moves a terminal's cursor, ends a line or turns the direction of what follows: the kernel
/// lets a device have nearly any name.
pub(super) fn printable(text: &str) -> String {
    let escaped = |letter: char| {
        if letter.is_control() || is_hidden(letter) { letter.escape_default().to_string() } else { letter.to_string() }
    };
    text.chars().map(escaped).collect()
}

/// Letters that are not seen and change how others are: separators of lines, marks of direction (Unicode UAX 9),
/// and those without any width that no script needs.
fn is_hidden(letter: char) -> bool {
    matches!(letter,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// How long ago an RFC 3339 time was: `12s`, `5m 3s`, `2h 1m`, `3d 4h`.
pub(super) fn ago(at: &str) -> String {
    let then = humantime::parse_rfc3339(at).ok();
    let elapsed = then.and_then(|then| now().duration_since(then).ok()).unwrap_or_default();
    short(elapsed)
}

/// How far ahead an RFC 3339 time is: `at once`, `in 300ms`, `in 12s`, `in 5m 3s`.
pub(super) fn ahead(at: &str) -> String {
    let then = humantime::parse_rfc3339(at).ok();
    let left = then.and_then(|then| then.duration_since(now()).ok()).unwrap_or_default();
    match left.as_millis() {
        0 => "at once".to_owned(),
        millis @ 1..1_000 => format!("in {millis}ms"),
        _ => format!("in {}", short(left)),
    }
}

/// An RFC 3339 time in UTC for people: `14:00 UTC`, and the day where that is another one.
pub(super) fn clock(at: &str) -> String {
    let today = humantime::format_rfc3339_seconds(now()).to_string();
    match (at.split_once('T'), today.split_once('T')) {
        (Some((day, time)), Some((today, _))) => {
            let time = time.get(..5).unwrap_or(time);
            if day == today { format!("{time} UTC") } else { format!("{day} {time} UTC") }
        }
        _ => printable(at),
    }
}

/// Now, for what is shown.
#[expect(clippy::disallowed_methods, reason = "shown to a person; decides nothing")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// A duration in its two largest units.
pub(super) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Microseconds as milliseconds.
pub(super) fn millis(micros: u64) -> String {
    format!("{}.{:02} ms", micros / 1_000, micros % 1_000 / 10)
}

/// A number with spaces between the thousands, as in 1 000 100.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_an_escape_sequence_does_not_reach_the_terminal_as_one() {
        let mut table = Table::new(&["DEVICE"], &[]);
        table.row(vec!["a\u{1b}[2Jb".into()]);
        assert_eq!(table.lines(false)[1], r"a\u{1b}[2Jb");
        assert_eq!(printable("zürich → ams-1"), "zürich → ams-1");
    }

    #[test]
    fn a_name_can_not_turn_the_direction_of_what_follows() {
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{200f}\u{2028}d"), r"a\u{202e}b\u{2066}c\u{200f}\u{2028}d");
        assert_eq!(printable("東京 नमस्ते"), "東京 नमस्ते");
    }
}
