//! `adit diagnose`: which leg fails, and what to change at which end.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::args;
use super::client::{block_on, escaped, post_slow};
use super::text::{Cell, Table, coloured, millis, printable};
use super::{Exit, Failure, Outcome, conclude};

/// Between two signs that it goes on.
const SIGN: Duration = Duration::from_millis(500);

pub(super) fn run(socket: &Path, args: &args::Diagnose) -> Outcome {
    let path = format!("/v1/tunnels/{}/diagnose", escaped(&args.tunnel));
    let diagnosis = block_on(with_signs(&args.tunnel, post_slow(socket, &path)))?;
    let verdict = if diagnosis["conclusion"]["ok"] == true { Exit::Done } else { Exit::BadNews };
    let mut out = io::stdout().lock();
    let written = if args.json {
        writeln!(out, "{diagnosis}")
    } else {
        let colours = coloured(&out);
        lines(&diagnosis, colours).iter().try_for_each(|line| writeln!(out, "{line}"))
    };
    conclude(written, verdict)
}

/// Waits, and shows on a terminal that it does.
async fn with_signs(tunnel: &str, work: impl Future<Output = Result<Value, Failure>>) -> Result<Value, Failure> {
    let mut terminal = Some(io::stderr()).filter(IsTerminal::is_terminal);
    tokio::pin!(work);
    let mut signs = 0;
    let outcome = loop {
        if let Some(terminal) = &mut terminal {
            // Nobody needs to see it.
            let _ = write!(terminal, "\rdiagnosing {}, some seconds{} ", printable(tunnel), ".".repeat(signs));
            let _ = terminal.flush();
        }
        signs += 1;
        tokio::select! {
            outcome = &mut work => break outcome,
            () = tokio::time::sleep(SIGN) => {}
        }
    };
    if let Some(terminal) = &mut terminal {
        // To the beginning, and clear what is there.
        let _ = write!(terminal, "\r\x1b[K");
    }
    outcome
}

fn lines(it: &Value, colours: bool) -> Vec<String> {
    let mut table = Table::new(&["", "LEG", "STYLE", "SIZE", "ANSWERED", "RTT", "NOTE"], &[3, 4, 5]);
    for leg in it["legs"].as_array().into_iter().flatten().filter(|leg| leg["leg"] != "size") {
        table.row(row(leg));
    }
    let mut lines = table.lines(colours);
    if let (Some(inner), Some(outer)) = (it["mtu"]["inner"].as_u64(), it["mtu"]["outer"].as_u64()) {
        let longer = match it["mtu"]["longer"].as_str().unwrap_or_default() {
            "refused" => "longer ones do not fit into this host's link",
            "told" => "of longer ones a router says that they are too long",
            "lost" => "longer ones vanish, and nobody says so",
            _ => "longer ones were not tried",
        };
        let fails = it["mtu"]["fails"].as_u64().filter(|fails| *fails > inner + 1);
        let fails = fails.map(|fails| format!(", {fails} do not")).unwrap_or_default();
        lines.push(format!("packets of up to {inner} bytes pass inside{fails}, {outer} in all; {longer}"));
    }
    lines.push(String::new());
    let sentence = text(&it["conclusion"]["sentence"]);
    let (sign, style) = mark(if it["conclusion"]["ok"] == true { "answered" } else { "silent" });
    lines.push(if colours { format!("{style}{sign}{style:#} {sentence}") } else { format!("{sign} {sentence}") });
    lines.extend(list(&it["conclusion"]["remedy"]).map(|remedy| format!("  {remedy}")));
    lines.extend(list(&it["notes"]).map(|note| format!("note: {note}")));
    lines
}

fn list(values: &Value) -> impl Iterator<Item = String> {
    values.as_array().into_iter().flatten().map(text)
}

fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or("-"))
}

/// A sign and its colour.
fn mark(outcome: &str) -> (&'static str, Style) {
    match outcome {
        "answered" => ("+", AnsiColor::Green.on_default()),
        "astray" => ("~", AnsiColor::Yellow.on_default()),
        "silent" => ("-", AnsiColor::Red.on_default().bold()),
        _ => ("?", Style::new().dimmed()),
    }
}

fn row(leg: &Value) -> Vec<Cell> {
    let number = |name: &str| leg[name].as_u64().unwrap_or(0);
    let (sent, answered) = (number("sent"), number("answered"));
    let outcome = match (sent, answered) {
        (_, 1..) => "answered",
        _ if leg["astray"].is_object() => "astray",
        (0, _) => "not sent",
        _ => "silent",
    };
    let (sign, colour) = mark(outcome);
    let name = match leg["leg"].as_str().unwrap_or("-") {
        "underlay" => "bare ping",
        "regular" => "as regular probes",
        "fresh" => "fresh identifier",
        "tracked" => "after a request",
        "foreign" => "foreign source",
        "router" => "far router itself",
        other => other,
    };
    let name = match leg["target"].as_str() {
        Some(target) if name == "target" => format!("target {}", printable(target)),
        _ => name.to_owned(),
    };
    let style = match name.as_str() {
        "bare ping" => String::new(),
        _ => format!("{} {}", leg["type"].as_str().unwrap_or("-"), leg["direction"].as_str().unwrap_or("-")),
    };
    let came = leg["astray"]["came"].as_str().map(|came| format!("came {came}"));
    let said = [leg["unsent"].as_str(), leg["hint"].as_str()].into_iter().flatten().map(str::to_owned);
    let rtt = leg["rtt_us"].as_u64().map_or_else(|| "-".to_owned(), millis);
    vec![
        Cell::styled(sign, colour),
        name.into(),
        style.into(),
        number("length").to_string().into(),
        format!("{answered}/{sent}").into(),
        rtt.into(),
        came.into_iter().chain(said).collect::<Vec<_>>().join("; ").into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn leg(name: &str, sent: u32, answered: u32) -> Value {
        json!({
            "leg": name, "target": "192.0.2.3", "type": "reply", "direction": "bidirectional", "length": 124,
            "inner_length": 100, "sent": sent, "answered": answered, "rtt_us": (answered > 0).then_some(812),
            "astray": null, "hint": null, "unsent": null,
        })
    }

    #[test]
    fn each_leg_has_a_line_with_a_mark_and_the_sentence_follows() {
        let mut stray = leg("fresh", 3, 0);
        stray["astray"] = json!({ "reason": "wrong-path", "came": "bare, by the device of index 7" });
        let mut unsent = leg("tracked", 0, 0);
        unsent["unsent"] = json!("no\u{1b}[2J");
        let it = json!({
            "legs": [
                leg("underlay", 3, 3), leg("regular", 3, 0), stray, unsent, leg("target", 3, 3), leg("size", 3, 3),
            ],
            "mtu": { "inner": 1376, "outer": 1400, "longer": "lost", "fails": 1380 },
            "conclusion": { "ok": false, "sentence": "it is sick", "remedy": ["do this", "or that"] },
            "notes": ["and so on"],
        });
        let lines = lines(&it, false);
        let marks: Vec<&str> = lines.iter().skip(1).take(4).map(|line| &line[..1]).collect();
        assert_eq!(marks, ["+", "-", "~", "?"], "{lines:#?}");
        assert!(lines[1].contains("bare ping") && lines[1].contains("3/3") && lines[1].contains("0.81 ms"));
        assert!(lines[3].ends_with("came bare, by the device of index 7"));
        assert!(lines[4].ends_with(r"no\u{1b}[2J"), "{lines:#?}");
        assert!(lines[5].contains("target 192.0.2.3 ") && lines[5].starts_with('+'), "{lines:#?}");
        assert_eq!(
            lines[6..],
            [
                "packets of up to 1376 bytes pass inside, 1380 do not, 1400 in all; longer ones vanish, and nobody says so",
                "",
                "- it is sick",
                "  do this",
                "  or that",
                "note: and so on"
            ]
        );
    }
}
