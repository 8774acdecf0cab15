//! `adit endpoints`: what is probed beyond the far routers, at a glance, or one in full.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use super::args;
use super::client::{block_on, escaped, get};
use super::status::{counted, dated};
use super::text::{Cell, Table, ago, ahead, coloured, millis, printable, style_of};
use super::{Exit, Outcome, conclude};

pub(super) fn run(socket: &Path, args: &args::Endpoints) -> Outcome {
    let path = args.endpoint.as_ref().map_or_else(String::new, |name| format!("/{}", escaped(name)));
    let answer = block_on(get(socket, &format!("/v1/endpoints{path}")))?;
    let is_bad = args.endpoint.is_some() && answer["state"] != "reachable";
    let exit = if is_bad { Exit::BadNews } else { Exit::Done };
    let mut out = io::stdout().lock();
    let written = if args.json {
        writeln!(out, "{answer}")
    } else if args.endpoint.is_some() {
        one(&answer, coloured(&out)).iter().try_for_each(|line| writeln!(out, "{line}"))
    } else if answer["endpoints"].as_array().is_none_or(Vec::is_empty) {
        writeln!(out, "no endpoints are configured")
    } else {
        table(&answer).lines(coloured(&out)).iter().try_for_each(|line| writeln!(out, "{line}"))
    };
    conclude(written, exit)
}

fn table(all: &Value) -> Table {
    let head = ["ENDPOINT", "ADDRESS", "STATE", "SINCE", "LOSS", "ANSWERED", "RTT", "ROUTE", "LAST FAILURE"];
    let mut table = Table::new(&head, &[4, 5, 6]);
    for endpoint in all["endpoints"].as_array().into_iter().flatten() {
        let state = text(&endpoint["state"]);
        table.row(vec![
            text(&endpoint["name"]).into(),
            address(endpoint).into(),
            Cell::styled(state, style_of(state)),
            ago(text(&endpoint["since"])).into(),
            loss(endpoint).into(),
            answered(endpoint).into(),
            rtt(endpoint, "last_us").into(),
            route(endpoint).into(),
            dated(&endpoint["last_failure"]).into(),
        ]);
    }
    table
}

fn one(endpoint: &Value, colours: bool) -> Vec<String> {
    let (state, since) = (text(&endpoint["state"]), text(&endpoint["since"]));
    let style = style_of(state);
    let painted = if colours { format!("{style}{state}{style:#}") } else { state.to_owned() };
    let rtts = [("last", "last_us"), ("least", "min_us"), ("mean", "mean_us")];
    let rtts = rtts.map(|(label, field)| format!("{label} {}", rtt(endpoint, field)));
    // What comes from outside is made harmless; the colours are ours.
    let lines = [
        ("endpoint", printable(text(&endpoint["name"]))),
        ("address", printable(&address(endpoint))),
        ("source", printable(text(&endpoint["source"]))),
        ("state", format!("{painted} since {} ({since})", ago(since))),
        ("reason", printable(text(&endpoint["reason"]))),
        ("loss", format!("{} ({} of the last ones answered)", loss(endpoint), answered(endpoint))),
        ("rtt", rtts.join(", ")),
        ("route", printable(&route(endpoint))),
        ("counted", counted(&endpoint["counters"])),
        ("last failure", printable(&dated(&endpoint["last_failure"]))),
        ("last refused", printable(&dated(&endpoint["last_reject"]))),
        ("last hint", printable(&dated(&endpoint["last_hint"]))),
        ("next probe", ahead(text(&endpoint["next_probe"]))),
    ];
    lines.map(|(name, value)| format!("{name:<13} {value}")).to_vec()
}

fn address(endpoint: &Value) -> String {
    let netns = endpoint["netns"].as_str().map(|netns| format!(" in {netns}")).unwrap_or_default();
    format!("{}{netns}", text(&endpoint["address"]))
}

fn loss(endpoint: &Value) -> String {
    match endpoint["window"]["samples"].as_u64() {
        Some(1..) => format!("{:.0} %", endpoint["loss_ratio"].as_f64().unwrap_or(0.0) * 100.0),
        Some(0) | None => "-".to_owned(),
    }
}

fn answered(endpoint: &Value) -> String {
    let number = |name: &str| endpoint["window"][name].as_u64().unwrap_or(0);
    let samples = number("samples");
    format!("{}/{samples}", samples.saturating_sub(number("failures")))
}

fn rtt(endpoint: &Value, field: &str) -> String {
    endpoint["rtt"][field].as_u64().map_or_else(|| "-".to_owned(), millis)
}

/// The prefix, and the tunnels that carry its traffic.
fn route(endpoint: &Value) -> String {
    let route = &endpoint["route"];
    let Some(prefix) = route["prefix"].as_str() else { return "-".to_owned() };
    let tunnels: Vec<&str> = route["tunnels"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    format!("{prefix} over {}", tunnels.join(", "))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
