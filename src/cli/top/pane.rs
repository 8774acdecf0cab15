//! The pane: everything about one tunnel.

use std::time::SystemTime;

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use serde_json::Value;

use super::list::{loss, marks, since};
use super::look::Look;
use super::model::{Model, Row, moment};
use crate::cli::text::{millis, printable, short, thousands};
use crate::engine::MAIN;

/// Columns of a label.
const LABEL: usize = 10;
/// Routes that are shown; a tunnel may carry a hundred thousand.
const ROUTES: usize = 100;
/// Events that are shown.
const EVENTS: usize = 20;

/// The lines about the chosen tunnel, for a pane of this width.
pub(super) fn lines(model: &Model, width: usize, look: Look) -> Vec<Line<'static>> {
    let Some(row) = model.chosen() else { return vec![Line::raw("there is no tunnel here")] };
    let mut lines = vec![title(row, model.now, look)];
    lines.extend(facts(row, model.now));
    lines.extend(pictures(model, row, width, look));
    // Of another tunnel, where the answer about this one is on its way.
    if model.close.name == row.tunnel.name {
        lines.extend(explained(&model.close.explanation, model.now));
        lines.extend(routes(&model.close.routes));
    } else {
        lines.push(labelled("explain", "(being asked)".to_owned()));
    }
    let mut label = "events";
    for told in model.told_of(&row.tunnel.name).take(EVENTS) {
        lines.push(labelled(label, format!("{} ago: {}", since(told.at, model.now), told.text)));
        label = "";
    }
    lines
}

fn labelled(label: &'static str, text: String) -> Line<'static> {
    Line::from(vec![Span::styled(format!("{label:<LABEL$}"), Modifier::BOLD), Span::raw(text)])
}

fn title(row: &Row, now: SystemTime, look: Look) -> Line<'static> {
    let (tunnel, state) = (&row.tunnel, row.tunnel.state);
    let mut spans = vec![
        Span::styled(format!("{} {}", look.sign(state), row.name), look.style(state).add_modifier(Modifier::BOLD)),
        Span::raw(" is "),
        Span::styled(state.word(), look.style(state)),
        Span::raw(format!(" since {}", since(tunnel.since, now))),
    ];
    let marks = marks(tunnel, now);
    spans.extend(marks.iter().map(|mark| Span::styled(format!(", {mark}"), Modifier::BOLD)));
    Line::from(spans)
}

fn facts(row: &Row, now: SystemTime) -> Vec<Line<'static>> {
    let tunnel = &row.tunnel;
    let window = tunnel.window;
    let [kind, direction, encapsulation, assurance] =
        [&tunnel.kind, &tunnel.direction, &tunnel.encapsulation, &tunnel.assurance].map(|text| printable(text));
    let rtt = tunnel.rtt.map_or_else(
        || "none yet".to_owned(),
        |rtt| {
            let [last, min, mean, p99, jitter] =
                [rtt.last_us, rtt.min_us, rtt.mean_us, rtt.p99_us, rtt.jitter_us].map(millis);
            format!("last {last}, least {min}, mean {mean}, p99 {p99}, jitter {jitter}")
        },
    );
    let mut lines = vec![
        labelled("because", printable(&tunnel.reason)),
        labelled("penalty", thousands(tunnel.penalty)),
        labelled("probes", format!("{kind} {direction} in {encapsulation}, answers {assurance}")),
        labelled("rtt", rtt),
        labelled(
            "loss",
            format!("{} of {} in {} s ({})", window.failures, window.samples, window.seconds, loss(tunnel)),
        ),
    ];
    if let Some(failure) = &tunnel.last_failure {
        lines.push(labelled("failure", format!("{} ago: {}", since(failure.at, now), printable(&failure.reason))));
    }
    lines
}

/// Round-trip times and failures, sample by sample, as far back as this screen has seen.
fn pictures(model: &Model, row: &Row, width: usize, look: Look) -> Vec<Line<'static>> {
    let Some(samples) = model.samples_of(&row.tunnel.name) else { return Vec::new() };
    let mut spans = vec![Span::styled(format!("{:<LABEL$}", "history"), Modifier::BOLD)];
    spans.extend(look.picture(samples.points(), width.saturating_sub(LABEL)));
    vec![Line::raw(""), Line::from(spans), labelled("", legend(look)), Line::raw("")]
}

fn legend(look: Look) -> String {
    let lost = look.sign(super::tunnel::State::Down);
    format!("round-trip times, the newest at the right; {lost} failed, ? no sample")
}

fn explained(it: &Value, now: SystemTime) -> Vec<Line<'static>> {
    let part = |value: &Value, name: &str| value[name].as_str().map_or_else(|| "-".to_owned(), printable);
    let mut lines = Vec::new();
    for next in it["next"].as_array().into_iter().flatten() {
        let earliest = moment(&next["earliest"]);
        let left = earliest.and_then(|at| at.duration_since(now).ok()).filter(|left| left.as_secs() > 0);
        let when = left.map_or_else(|| "at once".to_owned(), |left| format!("in {}", short(left)));
        let (to, rule, needs) = (part(next, "to"), &next["rule"], part(next, "needs"));
        lines.push(labelled("becomes", format!("{to} (rule {rule}) after {needs}; {when} at the earliest")));
    }
    for (name, label) in [("last_reject", "refused"), ("last_hint", "hint")] {
        if it[name]["reason"].is_string() {
            lines.push(labelled(
                label,
                format!("{} ago: {}", since(moment(&it[name]["at"]), now), part(&it[name], "reason")),
            ));
        }
    }
    let labels = std::iter::once("targets").chain(std::iter::repeat(""));
    lines.extend(labels.zip(crate::cli::targets::lines(it)).map(|(label, text)| labelled(label, text)));
    if it["counters"].is_object() {
        lines.push(labelled("counted", printable(&crate::cli::status::counted(&it["counters"]))));
    }
    lines
}

fn routes(answer: &Value) -> Vec<Line<'static>> {
    let routes = answer["routes"].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines: Vec<Line<'static>> = routes.iter().take(ROUTES).map(route).collect();
    if lines.is_empty() {
        lines.push(labelled("routes", "none".to_owned()));
    }
    if routes.len() > ROUTES {
        lines.push(labelled("", format!("and {} more", thousands((routes.len() - ROUTES) as u64))));
    }
    lines
}

fn route(route: &Value) -> Line<'static> {
    let text = |name: &str| route[name].as_str().map_or_else(|| "-".to_owned(), printable);
    let number = |name: &str| thousands(route[name].as_u64().unwrap_or(0));
    let netns = route["netns"].as_str().map(|netns| format!(" in namespace {}", printable(netns))).unwrap_or_default();
    let table = route["table"].as_u64().filter(|&table| table != u64::from(MAIN));
    let table = table.map(|table| format!(" in table {table}")).unwrap_or_default();
    let traffic = if route["selected"] == true { "  <- traffic" } else { "" };
    let kernel = route["kernel_reason"].as_str().map(|why| format!(": {}", printable(why))).unwrap_or_default();
    labelled(
        "route",
        format!(
            "{}{table}{netns}  {} + {} = {}{traffic}  {}{kernel}",
            text("prefix"),
            number("priority"),
            number("penalty"),
            number("effective_priority"),
            text("kernel")
        ),
    )
}
