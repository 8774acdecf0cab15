//! The list: a line for each tunnel on the screen, and none for the others.

use std::time::SystemTime;

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::look::Look;
use super::model::{Model, Row};
use super::tunnel::{State, Tunnel};
use crate::cli::text::{millis, printable, short, thousands};

/// What a column shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    State,
    Since,
    Loss,
    Last,
    Rtt,
    P99,
    Jitter,
    Penalty,
    History,
    Note,
}

struct Column {
    field: Field,
    title: &'static str,
    width: usize,
    /// It is there from this width of the list on.
    from: usize,
    right: bool,
}

const fn column(field: Field, title: &'static str, width: usize, from: usize, right: bool) -> Column {
    Column { field, title, width, from, right }
}

/// Name and note share what the others leave.
const COLUMNS: [Column; 11] = [
    column(Field::Name, "TUNNEL", 0, 0, false),
    column(Field::State, "STATE", 8, 0, false),
    column(Field::Since, "SINCE", 7, 60, false),
    column(Field::Loss, "LOSS", 8, 36, true),
    column(Field::Last, "LAST", 5, 100, true),
    column(Field::Rtt, "RTT", 10, 48, true),
    column(Field::P99, "P99", 10, 120, true),
    column(Field::Jitter, "JITTER", 10, 130, true),
    column(Field::Penalty, "PENALTY", 9, 72, true),
    column(Field::History, "HISTORY", 30, 150, false),
    column(Field::Note, "", 0, 76, false),
];

/// Columns of a sign and the space behind it.
const SIGN: usize = 2;
/// What the note has at least, where there is one.
const NOTE: usize = 10;
const NAME: usize = 8;

/// The head and the rows on the screen, for a list of this width.
pub(super) fn lines(model: &Model, width: usize, look: Look) -> Vec<Line<'static>> {
    let columns = columns(width, model.widest);
    let head = columns.iter().map(|(column, width)| look.pad(column.title, *width, column.right));
    let head = head.collect::<Vec<_>>().join(" ");
    let head = Line::styled(format!("{}{head}", " ".repeat(SIGN)), Modifier::BOLD);
    let rows = model.visible().map(|(row, is_chosen)| line(row, is_chosen, &columns, model.now, look));
    std::iter::once(head).chain(rows).collect()
}

/// The columns that are there, with their widths.
fn columns(width: usize, widest: usize) -> Vec<(&'static Column, usize)> {
    let there: Vec<&Column> = COLUMNS.iter().filter(|column| width >= column.from).collect();
    let taken: usize = there.iter().map(|column| column.width + 1).sum();
    let left = (width + 1).saturating_sub(SIGN + taken);
    let has_note = there.iter().any(|column| column.field == Field::Note);
    let most = if has_note { left.saturating_sub(NOTE) } else { left };
    let name = widest.max(NAME).min(most);
    let width = |column: &Column| match column.field {
        Field::Name => name,
        Field::Note => left.saturating_sub(name),
        Field::State
        | Field::Since
        | Field::Loss
        | Field::Last
        | Field::Rtt
        | Field::P99
        | Field::Jitter
        | Field::Penalty
        | Field::History => column.width,
    };
    there.into_iter().map(|column| (column, width(column))).collect()
}

fn line(row: &Row, is_chosen: bool, columns: &[(&Column, usize)], now: SystemTime, look: Look) -> Line<'static> {
    let state = row.tunnel.state;
    let style = if row.tunnel.checked.0 { look.style(state) } else { Style::new().add_modifier(Modifier::DIM) };
    let mut spans = vec![Span::styled(format!("{} ", look.sign(state)), style)];
    for (column, width) in columns {
        if column.field == Field::History {
            spans.extend(look.picture(row.history.points(), *width));
        } else {
            let text = look.pad(&text(row, column.field, now), *width, column.right);
            spans.push(Span::styled(text, if column.field == Field::State { style } else { Style::new() }));
        }
        spans.push(Span::raw(" "));
    }
    spans.pop();
    let line = Line::from(spans);
    // The whole line, so that the cursor is seen without colours, too.
    if is_chosen { line.patch_style(Modifier::REVERSED) } else { line }
}

fn text(row: &Row, field: Field, now: SystemTime) -> String {
    let tunnel = &row.tunnel;
    let rtt =
        |value: fn(super::tunnel::Rtt) -> u64| tunnel.rtt.map_or_else(|| "-".to_owned(), |rtt| millis(value(rtt)));
    match field {
        Field::Name => row.name.clone(),
        Field::State => tunnel.state.word().to_owned(),
        Field::Since => since(tunnel.since, now),
        Field::Loss => loss(tunnel),
        Field::Last => {
            format!("{}/{}", tunnel.last_30.samples.saturating_sub(tunnel.last_30.failures), tunnel.last_30.samples)
        }
        Field::Rtt => rtt(|rtt| rtt.last_us),
        Field::P99 => rtt(|rtt| rtt.p99_us),
        Field::Jitter => rtt(|rtt| rtt.jitter_us),
        Field::Penalty => thousands(tunnel.penalty),
        Field::History => String::new(),
        Field::Note => note(tunnel, now),
    }
}

/// How long ago.
pub(super) fn since(at: Option<SystemTime>, now: SystemTime) -> String {
    at.map_or_else(|| "-".to_owned(), |at| short(now.duration_since(at).unwrap_or_default()))
}

pub(super) fn loss(tunnel: &Tunnel) -> String {
    if tunnel.window.samples == 0 { "-".to_owned() } else { format!("{:.2} %", tunnel.window.loss_ratio * 100.0) }
}

/// What the state alone does not say, and why a sick one is.
fn note(tunnel: &Tunnel, now: SystemTime) -> String {
    let mut notes: Vec<String> = marks(tunnel, now);
    if tunnel.checked.0 && tunnel.state != State::Healthy {
        let failure = tunnel.last_failure.as_ref();
        notes.extend(failure.map(|failure| format!("{} ago: {}", since(failure.at, now), printable(&failure.reason))));
    }
    notes.join(", ")
}

/// What else is to be known of a tunnel, in a word each.
pub(super) fn marks(tunnel: &Tunnel, now: SystemTime) -> Vec<String> {
    let mut marks = Vec::new();
    if tunnel.drained {
        marks.push(drained(tunnel, now));
    }
    if tunnel.stale {
        marks.push("stale".to_owned());
    }
    if !tunnel.checked.0 {
        marks.push("not checked".to_owned());
    } else if let Some(obstacle) = &tunnel.obstacle {
        marks.push(printable(obstacle));
    }
    marks
}

/// Why a tunnel is drained and for how long still, where that has been said.
pub(super) fn terms(tunnel: &Tunnel, now: SystemTime) -> Option<String> {
    let drain = tunnel.drain.as_ref().filter(|_| tunnel.drained)?;
    let reason = drain.reason.as_deref().filter(|reason| !reason.is_empty()).map(printable);
    let left = drain.until.and_then(|until| until.duration_since(now).ok());
    let terms: Vec<String> = reason.into_iter().chain(left.map(|left| format!("{} left", short(left)))).collect();
    (!terms.is_empty()).then(|| terms.join(", "))
}

fn drained(tunnel: &Tunnel, now: SystemTime) -> String {
    let drain = tunnel.drain.as_ref();
    let reason = drain.and_then(|drain| drain.reason.as_deref()).filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(": {}", printable(reason))).unwrap_or_default();
    let left = drain.and_then(|drain| drain.until).and_then(|until| until.duration_since(now).ok());
    let left = left.map(|left| format!(" ({} left)", short(left))).unwrap_or_default();
    format!("drained{left}{reason}")
}
