//! `adit explain`: why, and what next.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use super::args;
use super::client::{block_on, escaped, get};
use super::status::counted;
use super::text::{ago, ahead, coloured, style_of, thousands};
use super::{Exit, Outcome};

pub(super) fn run(socket: &Path, args: &args::Explain) -> Outcome {
    let explanation = block_on(get(socket, &format!("/v1/tunnels/{}/explain", escaped(&args.tunnel))))?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{explanation}")?;
    } else {
        let colours = coloured(&out);
        sentences(&explanation, colours).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(Exit::Done)
}

fn sentences(it: &Value, colours: bool) -> Vec<String> {
    let text = |name: &str| it[name].as_str().unwrap_or("-");
    let style = style_of(text("state"));
    let state = if colours { format!("{style}{}{style:#}", text("state")) } else { text("state").to_owned() };
    let mut lines = vec![
        format!("{} is {state} since {} ({})", text("name"), ago(text("since")), text("since")),
        format!("  because  {}", text("reason")),
        format!("  samples  {}  (oldest first; + answered, - failed)", strip(&it["samples"])),
        format!(
            "  penalty  {}{}",
            thousands(it["penalty"].as_u64().unwrap_or(0)),
            if it["drained"] == true { ", an operator's drain included" } else { "" }
        ),
    ];
    for (name, label) in [("last_failure", "failure"), ("last_reject", "refused"), ("last_hint", "hint")] {
        if let (Some(at), Some(reason)) = (it[name]["at"].as_str(), it[name]["reason"].as_str()) {
            lines.push(format!("  {label:<8} {} ago: {reason}", ago(at)));
        }
    }
    lines.push(format!("  counted  {}", counted(&it["counters"])));
    let faults = it["host"]["local_faults"].as_object().into_iter().flatten();
    let mut host: Vec<String> = faults.map(|(kind, count)| format!("{count} {kind}")).collect();
    host.extend(it["host"]["hints"].as_u64().filter(|hints| *hints > 0).map(|hints| format!("{hints} ICMP errors")));
    if !host.is_empty() {
        lines.push(format!("  host     {}  (all tunnels together; no part of any verdict)", host.join(", ")));
    }
    for trouble in it["host"]["troubles"].as_array().into_iter().flatten() {
        let part = |name: &str| trouble[name].as_str().unwrap_or("-");
        lines.push(format!("  trouble  {} ago: {} ({})", ago(part("at")), part("reason"), part("fault")));
    }
    if let Some(reason) = it["host"]["fail_static"]["reason"].as_str() {
        lines.push(format!("  held     {reason}"));
    }
    for next in it["next"].as_array().into_iter().flatten() {
        let part = |name: &str| next[name].as_str().unwrap_or("-");
        lines.push(format!(
            "  becomes  {} (rule {}) after {}; {} at the earliest ({})",
            part("to"),
            next["rule"],
            part("needs"),
            ahead(part("earliest")),
            part("earliest")
        ));
    }
    lines
}

/// Samples as a strip of signs.
fn strip(samples: &Value) -> String {
    let samples = samples.as_array().into_iter().flatten();
    let strip: String = samples.map(|sample| if sample["ok"] == true { '+' } else { '-' }).collect();
    if strip.is_empty() { "none yet".to_owned() } else { strip }
}
