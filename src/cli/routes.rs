//! `adit routes`: which way traffic goes, and why.

use std::io::{self, Write};
use std::path::Path;

use anstyle::Style;
use serde_json::Value;

use super::args::{self, RoutesCommand};
use super::client::{block_on, get};
use super::text::{Cell, Table, thousands};
use super::{Exit, Outcome, conclude};

pub(super) fn run(socket: &Path, args: &args::Routes) -> Outcome {
    let path = match &args.get {
        None => "/v1/routes".to_owned(),
        Some(RoutesCommand::Get { destination, flow: None }) => format!("/v1/routes/lookup?dst={destination}"),
        Some(RoutesCommand::Get { destination, flow: Some(flow) }) => {
            format!("/v1/routes/lookup?dst={destination}&flow={flow}")
        }
    };
    let answer = block_on(get(socket, &path))?;
    let found = answer["routes"].as_array().is_some_and(|routes| !routes.is_empty());
    let written = if args.json {
        writeln!(io::stdout().lock(), "{answer}")
    } else if found {
        table(&answer).print()
    } else if let Some(RoutesCommand::Get { destination, .. }) = &args.get {
        writeln!(io::stdout().lock(), "no route holds {destination}")
    } else {
        writeln!(io::stdout().lock(), "no routes are configured")
    };
    let asked = args.get.is_some();
    conclude(written, if asked && !found { Exit::BadNews } else { Exit::Done })
}

/// Routes as a table; the demo shows the same.
pub(super) fn table(answer: &Value) -> Table {
    let mut table =
        Table::new(&["PREFIX", "TUNNEL", "PRIORITY", "PENALTY", "EFFECTIVE", "WEIGHT", "TRAFFIC"], &[2, 3, 4, 5]);
    for route in answer["routes"].as_array().into_iter().flatten() {
        let text = |name: &str| route[name].as_str().unwrap_or("-").to_owned();
        let number = |name: &str| thousands(route[name].as_u64().unwrap_or(0));
        let selected = route["selected"] == true;
        table.row(vec![
            text("prefix").into(),
            text("tunnel").into(),
            number("priority").into(),
            number("penalty").into(),
            number("effective_priority").into(),
            number("weight").into(),
            Cell::styled(if selected { "<- here" } else { "" }, Style::new().bold()),
        ]);
    }
    table
}
