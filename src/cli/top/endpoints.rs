//! The endpoints: what is probed beyond the far routers, in no tunnel.

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use serde_json::Value;

use super::list::since;
use super::look::Look;
use super::model::{Model, moment};
use super::tunnel::State;
use crate::cli::text::{millis, printable};

/// Columns of state, since, loss and round-trip time, each with the space behind it.
const FIXED: usize = 12 + 8 + 8 + 11;
/// A name and an address have so much at most.
const NAME: usize = 20;

/// The head and the endpoints that fit into so many lines, from where it is scrolled to on.
pub(super) fn lines(model: &Model, (width, height): (usize, usize), look: Look) -> Vec<Line<'static>> {
    let all = model.endpoints["endpoints"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(left) = width.checked_sub(FIXED + 2) else { return vec![Line::raw("the screen is too narrow")] };
    let name = NAME.min(left / 3);
    let widths = [name, name, left.saturating_sub(2 * name + 2)];
    let head =
        cells(["ENDPOINT", "ADDRESS", "STATE", "SINCE", "LOSS", "RTT", "ROUTE"].map(str::to_owned), widths, look);
    let mut lines = vec![Line::styled(format!("  {}", head.concat()), Modifier::BOLD)];
    if all.is_empty() {
        let why = if model.endpoints.is_null() { "the daemon is being asked" } else { "no endpoints are configured" };
        lines.push(Line::styled(format!("  {why}"), Modifier::DIM));
    }
    let from = usize::from(model.scroll).min(all.len().saturating_sub(1));
    let some = all.iter().skip(from).take(height.saturating_sub(1));
    lines.extend(some.map(|endpoint| line(endpoint, model, widths, look)));
    lines
}

fn line(it: &Value, model: &Model, widths: [usize; 3], look: Look) -> Line<'static> {
    let text = |name: &str| it[name].as_str().map_or_else(|| "-".to_owned(), printable);
    let netns = it["netns"].as_str().map(|netns| format!(" in {}", printable(netns))).unwrap_or_default();
    let loss = match it["window"]["samples"].as_u64() {
        Some(1..) => format!("{:.0} %", it["loss_ratio"].as_f64().unwrap_or(0.0) * 100.0),
        Some(0) | None => "-".to_owned(),
    };
    let rtt = it["rtt"]["last_us"].as_u64().map_or_else(|| "-".to_owned(), millis);
    let state = match it["state"].as_str() {
        Some("reachable") => State::Healthy,
        Some("unreachable") => State::Down,
        Some(_) | None => State::Unknown,
    };
    let since = since(moment(&it["since"]), model.now);
    let address = format!("{}{netns}", text("address"));
    let [name, address, word, since, loss, rtt, route] =
        cells([text("name"), address, text("state"), since, loss, rtt, route(it)], widths, look);
    Line::from(vec![
        Span::styled(format!("{} ", look.sign(state)), look.style(state)),
        Span::raw(name + &address),
        Span::styled(word, look.style(state)),
        Span::raw(since + &loss + &rtt + &route),
    ])
}

/// Each with the space behind it.
fn cells(texts: [String; 7], [name, address, route]: [usize; 3], look: Look) -> [String; 7] {
    let shapes = [(name, false), (address, false), (11, false), (7, false), (7, true), (10, true), (route, false)];
    let mut shapes = shapes.into_iter();
    texts.map(|text| {
        let (width, right) = shapes.next().unwrap_or_default();
        look.pad(&text, width, right) + " "
    })
}

/// The prefix, and the tunnels that carry its traffic.
fn route(it: &Value) -> String {
    let Some(prefix) = it["route"]["prefix"].as_str() else { return "-".to_owned() };
    let tunnels = it["route"]["tunnels"].as_array().into_iter().flatten().filter_map(Value::as_str);
    printable(&format!("{prefix} over {}", tunnels.collect::<Vec<_>>().join(", ")))
}
