//! `adit routes`: which way traffic goes, and why.

use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::args::{self, RoutesCommand};
use super::client::{block_on, escaped, get};
use super::status::held;
use super::text::{Cell, Table, thousands};
use super::{Exit, Outcome, conclude};
use crate::engine::MAIN;

pub(super) fn run(socket: &Path, args: &args::Routes) -> Outcome {
    let (answer, held) = block_on(async {
        let answer = get(socket, &path(args.get.as_ref())).await?;
        let held = if args.json { Vec::new() } else { held(socket).await? };
        Ok((answer, held))
    })?;
    let found = answer["routes"].as_array().is_some_and(|routes| !routes.is_empty());
    let written = if args.json {
        writeln!(io::stdout().lock(), "{answer}")
    } else if found {
        let mut out = io::stdout().lock();
        held.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| table(&answer).print())
    } else if let Some(RoutesCommand::Get { destination, .. }) = &args.get {
        writeln!(io::stdout().lock(), "no route holds {destination}")
    } else {
        writeln!(io::stdout().lock(), "no routes are configured")
    };
    let asked = args.get.is_some();
    conclude(written, if asked && !found { Exit::BadNews } else { Exit::Done })
}

/// What is asked for.
fn path(command: Option<&RoutesCommand>) -> String {
    let Some(RoutesCommand::Get { destination, flow, table, netns }) = command else {
        return "/v1/routes".to_owned();
    };
    let flow = flow.map(|flow| format!("&flow={flow}"));
    let table = table.map(|table| format!("&table={table}"));
    let netns = netns.as_ref().map(|netns| format!("&netns={}", escaped(netns)));
    let filters: String = [flow, table, netns].into_iter().flatten().collect();
    format!("/v1/routes/lookup?dst={destination}{filters}")
}

/// Routes as a table; the demo shows the same. Where they are is shown if that is not the same for all
/// routes of the world, and what the kernel makes of them if it is told of any.
pub(super) fn table(answer: &Value) -> Table {
    let routes = || answer["routes"].as_array().into_iter().flatten();
    let has_tables = routes().any(|route| route["table"].as_u64() != Some(MAIN.into()));
    let has_netns = routes().any(|route| !route["netns"].is_null());
    let has_kernel = routes().any(|route| route["kernel"] != "not managed");
    let mut table = Table::new(
        &columns(
            &["PREFIX", "TABLE", "NETNS", "TUNNEL", "PRIORITY", "PENALTY", "EFFECTIVE", "WEIGHT", "TRAFFIC", "KERNEL"],
            [has_tables, has_netns, has_kernel],
        ),
        match [has_tables, has_netns] {
            [false, false] => &[2, 3, 4, 5],
            [true, false] => &[1, 3, 4, 5, 6],
            [false, true] => &[3, 4, 5, 6],
            [true, true] => &[1, 4, 5, 6, 7],
        },
    );
    for route in routes() {
        let text = |name: &str| Cell::from(route[name].as_str().unwrap_or("-"));
        let number = |name: &str| Cell::from(thousands(route[name].as_u64().unwrap_or(0)));
        let selected = route["selected"] == true;
        let cells = [
            text("prefix"),
            // A name in digits, not a quantity.
            Cell::from(route["table"].as_u64().map_or_else(|| "-".to_owned(), |table| table.to_string())),
            text("netns"),
            text("tunnel"),
            number("priority"),
            number("penalty"),
            number("effective_priority"),
            number("weight"),
            Cell::styled(if selected { "<- here" } else { "" }, Style::new().bold()),
            kernel(route),
        ];
        table.row(columns(&cells, [has_tables, has_netns, has_kernel]));
    }
    table
}

/// A row without the columns that would say nothing.
fn columns<T: Clone>(row: &[T; 10], [has_tables, has_netns, has_kernel]: [bool; 3]) -> Vec<T> {
    let shown = [true, has_tables, has_netns, true, true, true, true, true, true, has_kernel];
    row.iter().zip(shown).filter(|(_, shown)| *shown).map(|(cell, _)| cell.clone()).collect()
}

/// What the kernel makes of a route: the word, and why.
fn kernel(route: &Value) -> Cell {
    let word = route["kernel"].as_str().unwrap_or("-");
    let style = match word {
        "installed" => AnsiColor::Green.on_default(),
        "pending" | "waiting" => AnsiColor::Yellow.on_default(),
        "conflict" | "refused" => AnsiColor::Red.on_default().bold(),
        _ => Style::new().dimmed(),
    };
    match (route["kernel_reason"].as_str(), route["kernel_metric"].as_u64()) {
        (Some(why), _) => Cell::styled(format!("{word}: {why}"), style),
        // Between a verdict and its change, or where one route stands for several.
        (None, Some(metric)) if route["effective_priority"] != metric => {
            Cell::styled(format!("{word} at {}", thousands(metric)), style)
        }
        (None, _) => Cell::styled(word, style),
    }
}
