//! A model as a screen.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect, Size};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Widget, Wrap};

use super::endpoints;
use super::keys::HELP;
use super::list;
use super::look::{Look, width};
use super::model::{Mode, Model};
use super::pane;
use super::tunnel::State;
use crate::cli::text::{short, thousands};

/// From this width on the list and the pane stand side by side.
const BOTH: u16 = 150;
/// The list's part then.
const LIST: u16 = 72;
/// From this width on the counts have words.
const WORDS: usize = 72;
/// A picture of the tunnels that is older than this says so.
const OLD: u64 = 3;

/// Makes the model fit a screen of this size: the list that is shown, and how far the pane is scrolled.
pub(super) fn settle(model: &mut Model, size: Size, look: Look) {
    model.settle(room(model, size));
    if model.pane && model.scroll > 0 && model.mode != Mode::Endpoints {
        let [_, body, _] = areas(Rect::from((Position::ORIGIN, size)), alarms(model).len());
        let area = pane_area(body);
        let last = wrapped(pane::lines(model, usize::from(area.width), look), area.width).saturating_sub(area.height);
        model.settle_pane(last);
    }
}

/// How many lines these become where each is so wide at most. Only the widget knows where it breaks a line: so it draws
/// them, where nobody looks.
fn wrapped(lines: Vec<Line<'static>>, width: u16) -> u16 {
    if width == 0 {
        return 0;
    }
    // Of two lines that follow each other by a break, more than one width is full.
    let most: usize = lines.iter().map(|line| 2 * line.width() / usize::from(width) + 1).sum();
    let height = u16::try_from(most).unwrap_or(u16::MAX);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    Paragraph::new(lines).wrap(Wrap { trim: false }).render(buffer.area, &mut buffer);
    let is_used = |&y: &u16| (0..width).any(|x| buffer[(x, y)].symbol() != " ");
    (0..buffer.area.height).rev().find(is_used).map_or(0, |last| last + 1)
}

/// The head, what is looked at, and the last line.
fn areas(area: Rect, alarms: usize) -> [Rect; 3] {
    let above = u16::try_from(2 + alarms).unwrap_or(u16::MAX);
    Layout::vertical([Constraint::Length(above), Constraint::Min(0), Constraint::Length(1)]).areas(area)
}

/// The list and the pane beside each other.
fn both(body: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Length(LIST), Constraint::Min(0)]).areas(body)
}

fn pane_area(body: Rect) -> Rect {
    if body.width < BOTH { body } else { Block::new().borders(Borders::LEFT).inner(both(body)[1]) }
}

/// How many lines the list has for tunnels, on a screen of this size.
pub(super) fn room(model: &Model, size: Size) -> usize {
    let around = 4 + alarms(model).len();
    usize::from(size.height).saturating_sub(around)
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, look: Look) {
    let alarms = alarms(model);
    let [head, body, foot] = areas(frame.area(), alarms.len());
    let columns = usize::from(head.width);
    let mut lines = vec![counts(model, columns, look), choice(model, columns, look)];
    lines.extend(alarms.into_iter().map(|text| Line::styled(look.fit(&text, columns), look.alarm())));
    frame.render_widget(Paragraph::new(lines), head);
    draw_body(frame, model, body, look);
    frame.render_widget(footer(model, columns, look), foot);
    if model.mode == Mode::Help {
        draw_help(frame, body);
    }
}

fn draw_body(frame: &mut Frame<'_>, model: &Model, body: Rect, look: Look) {
    if model.mode == Mode::Endpoints {
        let size = (usize::from(body.width), usize::from(body.height));
        frame.render_widget(Paragraph::new(endpoints::lines(model, size, look)), body);
    } else if !model.pane {
        draw_list(frame, model, body, look);
    } else if body.width < BOTH {
        draw_pane(frame, model, body, look);
    } else {
        let [left, right] = both(body);
        draw_list(frame, model, left, look);
        // Its line is none of ASCII.
        if look.unicode {
            frame.render_widget(Block::new().borders(Borders::LEFT), right);
        }
        draw_pane(frame, model, pane_area(body), look);
    }
}

fn draw_list(frame: &mut Frame<'_>, model: &Model, area: Rect, look: Look) {
    let mut lines = list::lines(model, usize::from(area.width), look);
    if model.shown() == 0 {
        lines.push(Line::styled(nothing(model), Modifier::DIM));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn nothing(model: &Model) -> String {
    if model.answered.is_none() {
        "  the daemon is being asked".to_owned()
    } else if model.rows.is_empty() {
        "  no tunnels are configured".to_owned()
    } else {
        "  no tunnel is shown: F shows all states, / and Esc end the search".to_owned()
    }
}

fn draw_pane(frame: &mut Frame<'_>, model: &Model, area: Rect, look: Look) {
    let pane = Paragraph::new(pane::lines(model, usize::from(area.width), look)).wrap(Wrap { trim: false });
    frame.render_widget(pane.scroll((model.scroll, 0)), area);
}

/// How many tunnels there are, by state, the worst first.
fn counts(model: &Model, room: usize, look: Look) -> Line<'static> {
    let has_words = room >= WORDS;
    let noun = if model.rows.len() == 1 { "tunnel" } else { "tunnels" };
    let mut spans = vec![
        Span::styled("adit top", Modifier::BOLD),
        Span::raw(format!("  {} {noun}", thousands(model.rows.len() as u64))),
    ];
    let (states, drained) = model.counts;
    for (state, count) in State::ALL.into_iter().zip(states) {
        let word = if has_words { format!(" {}", state.word()) } else { String::new() };
        let text = format!("  {} {}{word}", look.sign(state), thousands(count as u64));
        let style = if count == 0 { Style::new().add_modifier(Modifier::DIM) } else { look.style(state) };
        spans.push(Span::styled(text, style));
    }
    if drained > 0 {
        spans.push(Span::styled(format!("  {} drained", thousands(drained as u64)), Modifier::BOLD));
    }
    Line::from(spans)
}

/// What has been chosen to be shown, and how old it is.
fn choice(model: &Model, room: usize, look: Look) -> Line<'static> {
    let mut parts = vec![model.sort.words().to_owned(), model.only.words().to_owned()];
    if model.reversed {
        parts[0].push_str(", reversed");
    }
    if !model.search.is_empty() || model.mode == Mode::Search {
        parts.push(format!("/{}", crate::cli::text::printable(&model.search)));
    }
    if model.shown() < model.rows.len() {
        parts.push(format!("{} shown", thousands(model.shown() as u64)));
    }
    let age = model.answered.and_then(|at| model.now.duration_since(at).ok()).unwrap_or_default();
    if model.answered.is_some() && age.as_secs() >= OLD {
        parts.push(format!("measured {} ago", short(age)));
    }
    // Last, because it is the first to be cut.
    parts
        .extend(model.last_told.as_ref().map(|told| format!("{} ago: {}", list::since(told.at, model.now), told.text)));
    Line::styled(look.fit(&parts.join(look.dot()), room), Modifier::DIM)
}

/// What must be seen before anything else.
fn alarms(model: &Model) -> Vec<String> {
    let silence = model.silence.as_ref().map(|(since, why)| {
        let age = short(model.now.duration_since(*since).unwrap_or_default());
        let at = humantime::format_rfc3339_seconds(*since);
        format!("no answer from the daemon since {at} ({age}); what is shown is of then: {why}")
    });
    let held = model.fail_static.as_ref().map(|why| format!("HELD: {why}"));
    silence.into_iter().chain(held).collect()
}

/// The question; or the last answer; or what is typed; or what can be typed.
fn footer(model: &Model, room: usize, look: Look) -> Line<'static> {
    let alarmed = |is_bad: bool| if is_bad { look.alarm() } else { Modifier::REVERSED.into() };
    match (&model.mode, &model.message) {
        (Mode::Question(change), _) => {
            // The answer's keys are seen, however long the name is.
            let keys = "  y/n";
            let question = look.fit(&model.question(change), room.saturating_sub(width(keys)));
            Line::styled(format!("{question}{keys}"), Modifier::REVERSED | Modifier::BOLD)
        }
        (Mode::Search, _) => Line::raw(look.fit("type a part of a name  Enter keep it  Esc end the search", room)),
        (Mode::Endpoints, _) => Line::raw(look.fit("e or Esc back to the tunnels  j k PgUp PgDn move  q quit", room)),
        (Mode::Normal | Mode::Help, Some(message)) => {
            Line::styled(look.fit(&message.text, room), alarmed(message.is_bad))
        }
        (Mode::Normal | Mode::Help, None) => {
            let keys = "? help  q quit  Enter pane  s sort  f filter  / search  d drain  u undrain";
            Line::styled(look.fit(keys, room), Modifier::DIM)
        }
    }
}

fn draw_help(frame: &mut Frame<'_>, body: Rect) {
    let line = |(keys, what): (&str, &str)| Line::raw(format!(" {keys:<18}{what} "));
    let mut lines: Vec<Line<'_>> = HELP.into_iter().map(line).collect();
    lines.push(Line::raw(" any key leads back"));
    let wide = lines.iter().map(Line::width).max().unwrap_or(0);
    let (wide, high) = (u16::try_from(wide).unwrap_or(u16::MAX), u16::try_from(lines.len()).unwrap_or(u16::MAX));
    let area = body.centered(Constraint::Length(wide), Constraint::Length(high));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).style(Modifier::REVERSED), area);
}
