//! `adit explain`: why, and what next.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use super::args;
use super::client::{block_on, escaped, get};
use super::drain;
use super::status::counted;
use super::targets;
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
        format!("  samples  {}  (oldest first; + answered, - failed, ? no sample)", strip(it)),
        format!(
            "  penalty  {}{}",
            thousands(it["penalty"].as_u64().unwrap_or(0)),
            if it["drained"] == true { ", an operator's drain included" } else { "" }
        ),
    ];
    lines.extend(drain::in_full(&it["drain"]).map(|drain| format!("  drain    {drain}")));
    let mut title = Some("targets");
    lines
        .extend(targets::lines(it).into_iter().map(|line| format!("  {:<8} {line}", title.take().unwrap_or_default())));
    for (name, label) in [("last_failure", "failure"), ("last_reject", "refused"), ("last_hint", "hint")] {
        if let (Some(at), Some(reason)) = (it[name]["at"].as_str(), it[name]["reason"].as_str()) {
            lines.push(format!("  {label:<8} {} ago: {reason}", ago(at)));
        }
    }
    lines.push(format!("  counted  {}", counted(&it["counters"])));
    if let Some(last) = it["inconclusive"].as_array().and_then(|all| all.last()) {
        let part = |name: &str| last[name].as_str().unwrap_or("-");
        let count = it["counters"]["local_faults"].as_u64().unwrap_or(0);
        let probes = if count == 1 { "probe" } else { "probes" };
        lines.push(format!(
            "  no fault {count} {probes} came to nothing by this host's own trouble; the last {} ago: {} ({})",
            ago(part("at")),
            part("reason"),
            part("fault")
        ));
    }
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

/// Samples as a strip of signs, and what was none among them where it belongs.
fn strip(it: &Value) -> String {
    let list = |name: &str| it[name].as_array().into_iter().flatten();
    let at = |value: &Value| value["at"].as_str().unwrap_or_default().to_owned();
    let samples = list("samples").map(|sample| (at(sample), if sample["ok"] == true { '+' } else { '-' }));
    // Times are all of one form, so that their order is that of the texts.
    let first = list("samples").next().map(at);
    let spoilt = list("inconclusive").map(|spoilt| (at(spoilt), '?'));
    let mut all: Vec<(String, char)> = samples.chain(spoilt.filter(|(at, _)| Some(at) >= first.as_ref())).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    if all.is_empty() { "none yet".to_owned() } else { all.into_iter().map(|(_, sign)| sign).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: u32) -> String {
        format!("2026-11-29T12:00:{second:02}.000Z")
    }

    fn explained() -> Value {
        let sample = |second, ok| json!({ "at": at(second), "ok": ok });
        let spoilt = |second, fault| json!({ "at": at(second), "fault": fault, "reason": "this host was busy" });
        json!({
            "name": "ams-1", "state": "healthy", "since": at(0), "reason": "rule 5", "penalty": 0, "drained": false,
            "samples": [sample(10, true), sample(11, true), sample(13, false), sample(14, true)],
            "inconclusive": [spoilt(2, "suspend"), spoilt(12, "stall")],
            "next": [], "last_failure": { "at": at(13), "reason": "timeout" }, "last_reject": null, "last_hint": null,
            "counters": { "lost": 1, "late": 2, "forged": 3, "local_faults": 7 },
            "host": {
                "local_faults": { "stall": 4 }, "hints": 0,
                "troubles": [{ "fault": "stall", "count": 4, "at": at(12), "reason": "woken 80 ms late" }],
                "fail_static": { "since": at(12), "reason": "2 of 2 tunnels went down" },
            },
        })
    }

    #[test]
    fn loss_and_this_host_s_own_trouble_are_told_apart() {
        let lines = sentences(&explained(), false);
        let line = |label: &str| {
            let found = lines.iter().find(|line| line.trim_start().starts_with(label));
            found.unwrap_or_else(|| panic!("no {label}: {lines:#?}")).clone()
        };
        assert!(line("samples").contains(" ++?-+  "), "{lines:#?}");
        assert!(line("failure").ends_with("timeout"));
        assert!(line("no fault").contains("7 probes came to nothing by this host's own trouble"), "{lines:#?}");
        assert!(line("no fault").ends_with("this host was busy (stall)"), "{lines:#?}");
        assert!(line("counted").contains("2 late") && line("counted").contains("3 forged"));
        assert!(line("trouble").ends_with("woken 80 ms late (stall)"));
        assert!(line("held").ends_with("2 of 2 tunnels went down"));
    }

    #[test]
    fn where_nothing_was_spoilt_nothing_is_said_of_it() {
        let mut it = explained();
        it["inconclusive"] = json!([]);
        assert!(!sentences(&it, false).iter().any(|line| line.contains("no fault")));
        it["samples"] = json!([]);
        assert_eq!(strip(&it), "none yet");
        it["inconclusive"] = explained()["inconclusive"].clone();
        assert_eq!(strip(&it), "??", "nothing but that");
    }
}
