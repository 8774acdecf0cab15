//! `adit status`: the tunnels at a glance, or one in full.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::args;
use super::client::{block_on, escaped, get};
use super::drain;
use super::targets;
use super::text::{Cell, Table, ago, coloured, millis, style_of, thousands};
use super::{Exit, Failure, Outcome, conclude};

/// Drained tunnels that are told one by one.
const DRAINS: usize = 20;

pub(super) fn run(socket: &Path, args: &args::Status) -> Outcome {
    block_on(async {
        loop {
            let (lines, json, exit) = look(socket, args).await?;
            let written = if args.json { writeln!(io::stdout(), "{json}") } else { show(&lines, args.watch) };
            if !args.watch || written.is_err() {
                return conclude(written, exit);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

fn show(lines: &[String], again: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if again && out.is_terminal() {
        // Home, each line cleared to its end, the rest of the screen cleared: without flicker.
        write!(out, "\x1b[H")?;
        lines.iter().try_for_each(|line| write!(out, "{line}\x1b[K\r\n"))?;
        write!(out, "\x1b[J")?;
    } else {
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        if again {
            writeln!(out)?;
        }
    }
    out.flush()
}

async fn look(socket: &Path, args: &args::Status) -> Result<(Vec<String>, Value, Exit), Failure> {
    let colours = coloured(&io::stdout());
    match &args.tunnel {
        Some(name) => {
            let tunnel = get(socket, &format!("/v1/tunnels/{}", escaped(name))).await?;
            let sick = tunnel["checked"] == true && tunnel["state"] != "healthy";
            let exit = if sick { Exit::BadNews } else { Exit::Done };
            Ok((one(&tunnel, colours), tunnel, exit))
        }
        None => {
            let all = get(socket, "/v1/tunnels").await?;
            let mut lines = if args.json { Vec::new() } else { held(socket).await? };
            lines.extend(table(&all).lines(colours));
            lines.extend(drains(&all));
            Ok((lines, all, Exit::Done))
        }
    }
}

/// A line that says so where the kernel's routes are held, to stand before everything else.
pub(super) async fn held(socket: &Path) -> Result<Vec<String>, Failure> {
    let health = get(socket, "/v1/healthz").await?;
    let held = &health["fail_static"];
    let line = held["reason"].as_str().map(|reason| format!("HELD: {reason} (since {})", text(&held["since"])));
    Ok(line.into_iter().collect())
}

/// All tunnels as a table; the demo shows the same.
pub(super) fn table(all: &Value) -> Table {
    let head = ["TUNNEL", "STATE", "SINCE", "LOSS", "LAST 30", "RTT", "PENALTY", "LAST FAILURE"];
    let mut table = Table::new(&head, &[3, 4, 5, 6]);
    for tunnel in all["tunnels"].as_array().into_iter().flatten() {
        table.row(vec![
            text(&tunnel["name"]).into(),
            Cell::styled(state(tunnel), style_of(&text(&tunnel["state"]))),
            ago(&text(&tunnel["since"])).into(),
            loss(tunnel).into(),
            last(tunnel).into(),
            rtt(tunnel).into(),
            penalty(tunnel).into(),
            dated(&tunnel["last_failure"]).into(),
        ]);
    }
    table
}

/// What is to be said of drained tunnels, below the table; of very many not each.
fn drains(all: &Value) -> Vec<String> {
    let tunnels = all["tunnels"].as_array().into_iter().flatten();
    let told = tunnels.filter(|tunnel| tunnel["drain"]["until"].is_string() || tunnel["drain"]["reason"].is_string());
    let mut lines = Vec::new();
    let mut left = 0_usize;
    for tunnel in told {
        match drain::words(&tunnel["drain"]) {
            Some(words) if lines.len() < DRAINS => lines.push(format!("{}: {words}", text(&tunnel["name"]))),
            Some(_) => left += 1,
            None => {}
        }
    }
    lines.extend((left > 0).then(|| format!("and {left} more are drained")));
    lines
}

fn state(tunnel: &Value) -> String {
    let mut state = text(&tunnel["state"]);
    if tunnel["drained"] == true {
        state.push_str(", drained");
    }
    if tunnel["stale"] == true {
        state.push_str(", stale");
    }
    if tunnel["checked"] == false {
        state.push_str(", not checked");
    } else if let Some(obstacle) = tunnel["obstacle"].as_str() {
        state.push_str(", ");
        state.push_str(obstacle);
    }
    state
}

fn loss(tunnel: &Value) -> String {
    let window = &tunnel["window"];
    if window["samples"] == 0 {
        "-".to_owned()
    } else {
        format!("{:.2} %", window["loss_ratio"].as_f64().unwrap_or(0.0) * 100.0)
    }
}

fn last(tunnel: &Value) -> String {
    let last = &tunnel["last_30"];
    let (samples, failures) = (number(&last["samples"]), number(&last["failures"]));
    format!("{}/{samples}", samples.saturating_sub(failures))
}

fn rtt(tunnel: &Value) -> String {
    tunnel["rtt"]["last_us"].as_u64().map_or_else(|| "-".to_owned(), millis)
}

fn penalty(tunnel: &Value) -> String {
    thousands(number(&tunnel["penalty"]))
}

/// A reason with its time.
pub(super) fn dated(value: &Value) -> String {
    if value.is_null() {
        "-".to_owned()
    } else {
        format!("{} ago: {}", ago(&text(&value["at"])), text(&value["reason"]))
    }
}

fn one(tunnel: &Value, colours: bool) -> Vec<String> {
    let head = [
        ("tunnel", text(&tunnel["name"])),
        ("state", since(tunnel, colours)),
        ("reason", text(&tunnel["reason"])),
        ("penalty", penalty(tunnel)),
    ];
    let rest = [
        ("probes", probes(tunnel)),
        ("loss", losses(tunnel)),
        ("last 30", format!("{} answered", last(tunnel))),
        ("rtt", rtts(&tunnel["rtt"])),
        ("counted", counted(&tunnel["counters"])),
        ("last failure", dated(&tunnel["last_failure"])),
        ("last refused", dated(&tunnel["last_reject"])),
        ("last hint", dated(&tunnel["last_hint"])),
    ];
    let drain = drain::in_full(&tunnel["drain"]).map(|drain| ("drain", drain));
    let mut title = Some("targets");
    let targets = targets::lines(tunnel).into_iter().map(|line| (title.take().unwrap_or_default(), line));
    let lines = head.into_iter().chain(drain).chain(targets).chain(rest);
    lines.map(|(name, value)| format!("{name:<13} {value}")).collect()
}

fn since(tunnel: &Value, colours: bool) -> String {
    let (style, state, since) = (style_of(&text(&tunnel["state"])), state(tunnel), text(&tunnel["since"]));
    let state = if colours { format!("{style}{state}{style:#}") } else { state };
    format!("{state} since {} ({since})", ago(&since))
}

fn probes(tunnel: &Value) -> String {
    let [kind, direction, encapsulation, assurance] =
        ["type", "direction", "encapsulation", "assurance"].map(|name| text(&tunnel[name]));
    format!("{kind} {direction} in {encapsulation}, answers {assurance}")
}

fn losses(tunnel: &Value) -> String {
    let window = &tunnel["window"];
    let (failures, samples) = (number(&window["failures"]), number(&window["samples"]));
    format!("{failures} of {samples} in {} ({})", span(&window["seconds"]), loss(tunnel))
}

fn rtts(rtt: &Value) -> String {
    let one = |(label, field): (&str, &str)| {
        format!("{label} {}", rtt[field].as_u64().map_or_else(|| "-".to_owned(), millis))
    };
    let all =
        [("last", "last_us"), ("least", "min_us"), ("mean", "mean_us"), ("p99", "p99_us"), ("jitter", "jitter_us")];
    all.map(one).join(", ")
}

/// Every counter of a tunnel.
pub(super) fn counted(counters: &Value) -> String {
    let one = |(name, count): (&String, &Value)| format!("{} {}", number(count), name.replace('_', " "));
    counters.as_object().into_iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

/// A number of seconds as `5m`, or `2s 500ms`.
fn span(seconds: &Value) -> String {
    let millis = (seconds.as_f64().unwrap_or(0.0) * 1_000.0).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a window of a day at the most")]
    let span = Duration::from_millis(millis as u64);
    humantime::format_duration(span).to_string()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
