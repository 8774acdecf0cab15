//! `adit events`: what happened, and what happens.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use super::args;
use super::client::{block_on, lines};
use super::drain::user;
use super::text::{coloured, printable, style_of, thousands};
use super::{Exit, Outcome};

pub(super) fn run(socket: &Path, args: &args::Events) -> Outcome {
    let path = format!("/v1/events?since={}&follow={}", args.since, args.follow);
    let colours = coloured(&io::stdout());
    block_on(lines(socket, &path, async |line| {
        let mut out = io::stdout().lock();
        match serde_json::from_slice(line) {
            Ok(event) if !args.json => writeln!(out, "{}", sentence(&event, colours))?,
            Ok(
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
            )
            | Err(_) => {
                out.write_all(line)?;
                out.write_all(b"\n")?;
            }
        }
        Ok(out.flush()?)
    }))?;
    Ok(Exit::Done)
}

/// One event as a line.
fn sentence(event: &Value, colours: bool) -> String {
    let at = event["at"].as_str().map(|at| format!("{at}  ")).unwrap_or_default();
    format!("{at}{}", what(event, colours))
}

/// What an event says, without its time; the demo shows the same.
pub(super) fn what(event: &Value, colours: bool) -> String {
    let text = |name: &str| printable(event[name].as_str().unwrap_or("-"));
    let list = |name: &str| {
        let names: Vec<&str> = event[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        printable(&names.join(", "))
    };
    let state = |name: &str| {
        let state = text(name);
        let style = style_of(&state);
        if colours { format!("{style}{state}{style:#}") } else { state }
    };
    match text("kind").as_str() {
        "transition" => format!(
            "{}: {} -> {}; {}; penalty {}",
            text("tunnel"),
            state("from"),
            state("to"),
            text("reason"),
            thousands(event["penalty"].as_u64().unwrap_or(0))
        ),
        "route" => {
            format!("{}{}: traffic moves from {} to {}", text("prefix"), place(event), list("from"), list("to"))
        }
        "local_fault" => format!("local fault ({}): {}; no tunnel is judged by it", text("fault"), text("reason")),
        "routes" => format!("{}: traffic of {} prefixes moves in all", text("tunnel"), event["moved"]),
        "kernel_drift" => {
            let place = event["netns"].as_str().map(|netns| format!(" in {netns}")).unwrap_or_default();
            let told = event["changes"].as_array().map_or(0, Vec::len);
            let more = event["count"].as_u64().unwrap_or(0).saturating_sub(told as u64);
            let more = if more > 0 { format!(", and {} more", thousands(more)) } else { String::new() };
            format!("the kernel{place} was not as adit left it: {}{more}; it is being mended", list("changes"))
        }
        "warning" if event["tunnel"].is_null() => text("reason"),
        "warning" => format!("{}: {}", text("tunnel"), text("reason")),
        "obstacle" if event["reason"].is_null() => format!("{}: can be probed again", text("tunnel")),
        "obstacle" => format!("{}: cannot be probed: {}", text("tunnel"), text("reason")),
        "need" if event["reason"].is_null() => format!("{} is there", text("need")),
        "need" => format!("{}: its tunnels fail until it is there", text("reason")),
        "endpoint" if event["from"] == event["to"] => {
            format!("endpoint {}: still {}; {}", text("endpoint"), state("to"), text("reason"))
        }
        "endpoint" => {
            format!("endpoint {}: {} -> {}; {}", text("endpoint"), state("from"), state("to"), text("reason"))
        }
        "association" => {
            let spi = |name: &str| format!("{:#x}", event[name].as_u64().unwrap_or(0));
            format!("{}: new pair of associations, SPI {} out, {} in", text("tunnel"), spi("spi_out"), spi("spi_in"))
        }
        "drain" => {
            let drained = if event["drained"] == true { "drained" } else { "no longer drained" };
            let until = event["until"].as_str().map(|until| format!(" until {until}"));
            let reason = event["reason"].as_str().map(|reason| format!(": {}", printable(reason)));
            let by = user(&event["by"]).map(|user| format!(" (by {user})"));
            format!("{}: {drained}{}", text("tunnel"), [until, reason, by].into_iter().flatten().collect::<String>())
        }
        "sample" => format!(
            "{}: {}",
            text("tunnel"),
            if event["ok"] == true {
                "answered"
            } else if event["inconclusive"] == true {
                "inconclusive"
            } else {
                "failed"
            }
        ),
        "gap" if event["missed"].is_null() => format!(
            "there is no event {}, the last is {}: adit has been restarted; these are its events since",
            event["since"], event["last"]
        ),
        "gap" => format!("{} events are no longer there", event["missed"]),
        "reload" if event["reason"].is_null() => format!(
            "the configuration was read again: {} tunnels kept, {} changed, {} added, {} removed",
            event["kept"], event["changed"], event["added"], event["removed"]
        ),
        "reload" => format!("the configuration was not read again, and nothing has changed: {}", text("reason")),
        "start" => format!("adit {} started with {} tunnels", text("version"), event["tunnels"]),
        "stop" => "adit stopped".to_owned(),
        other => other.to_owned(),
    }
}

/// Where a route is, if that is not where routes usually are.
fn place(event: &Value) -> String {
    let table = event["table"].as_u64().map(|table| format!(" in table {table}"));
    let netns = event["netns"].as_str().map(|netns| format!(" in namespace {netns}"));
    table.into_iter().chain(netns).collect()
}
