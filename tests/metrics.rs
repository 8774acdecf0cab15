//! What is measured, as it is written down, and what is built on that: the alerts and the dashboard in `packaging/`.
//!
//! `promtool` (Debian package prometheus) reads the texts and runs the rules. Where it is missing that is said, or fails
//! if `ADIT_REQUIRE_TOOLS` is set.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use adit::engine::{Drain, State, associations::Start};
use adit::io::local::{Handle, attend};
use adit::wire::esp::Algorithm;
use serde_json::Value;
use sim::hosts::endpoint;
use sim::{Sim, at_ms, ms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

const RULES: &str = include_str!("../packaging/prometheus/adit.rules.yml");
const RULE_TESTS: &str = include_str!("../packaging/prometheus/adit.rules.test.yml");
const DASHBOARD: &str = include_str!("../packaging/grafana/adit.json");

/// A daemon that has seen something: a tunnel that was down, one that is drained, one with keys, one not checked; an
/// endpoint that answers, and one that does not.
fn seasoned() -> Sim {
    let mut tunnels =
        vec![sim::tunnel(0), sim::tunnel(1), sim::esp::esp_tunnel(2, Algorithm::Aes256Gcm, false), sim::tunnel(3)];
    tunnels[1].name = "a \"quoted\" \\ name\n".to_owned();
    tunnels[3].check.enabled = false;
    let routes = (0..2).map(sim::route).collect();
    let mut sim = Sim::new(tunnels, routes, 7);
    let endpoints = vec![endpoint("erp", "10.20.0.5"), endpoint("mute", "10.20.0.6")];
    sim.host("10.20.0.6").cut = true;
    sim.command(|engine, now| engine.set_endpoints(now, endpoints));
    sim.run_until(at_ms(10_000));
    sim.cut(0);
    sim.run_to(0, State::Down, Duration::from_secs(60));
    sim.heal(0);
    sim.run_for(ms(5_000));
    sim.command(|engine, now| engine.set_drain(now, 1, Some(Drain::Degraded)));
    sim.command(|engine, now| engine.handle_reload_refused(now, "adit.toml:1:1: it is wrong"));
    // Last of all: the far ends here do not speak ESP.
    let material = sim::esp::gcm(1);
    let Start { pair, .. } = sim::esp::started(&material);
    sim.command(|engine, now| engine.install(now, 2, pair.unwrap(), Duration::from_secs(30)).unwrap());
    sim
}

/// What the socket answers.
fn fetch(accept: &str) -> String {
    let mut sim = seasoned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (ask, mut questions) = mpsc::channel(8);
        let (_last_event, heard) = watch::channel(0);
        let (mut ours, theirs) = tokio::io::duplex(1 << 20);
        let visit = attend(theirs, (0, 0), Handle::new(ask, heard));
        let answering = async {
            while let Some(question) = questions.recv().await {
                sim.command(question);
            }
        };
        let asking = async {
            let request = format!("GET /metrics HTTP/1.1\r\nhost: adit\r\naccept: {accept}\r\n\r\n");
            ours.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            ours.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let (answer, (), ()) = tokio::join!(asking, visit, answering);
        whole(&answer)
    })
}

/// On a host that is so busy that a text takes seconds.
#[test]
fn who_has_waited_for_a_text_makes_no_other() {
    let mut sim = Sim::new(vec![sim::tunnel(0), sim::tunnel(1)], vec![sim::route(0)], 7);
    sim.run_until(at_ms(10_000));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answers: Vec<String> = runtime.block_on(async {
        let (ask, mut questions) = mpsc::channel(8);
        let (_last_event, heard) = watch::channel(0);
        let handle = Handle::new(ask, heard);
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let (mut ours, theirs) = tokio::io::duplex(1 << 20);
                let visit = attend(theirs, (0, 0), handle.clone());
                let asking = async move {
                    ours.write_all(b"GET /metrics HTTP/1.1\r\nhost: adit\r\n\r\n").await.unwrap();
                    let mut answer = String::new();
                    ours.read_to_string(&mut answer).await.unwrap();
                    whole(&answer)
                };
                async { tokio::join!(asking, visit).0 }
            })
            .collect();
        drop(handle);
        let answering = async {
            while let Some(question) = questions.recv().await {
                sim.run_for(ms(400));
                sim.command(question);
            }
        };
        tokio::join!(futures_util::future::join_all(clients), answering).0
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]), "texts of different times");
}

/// The body, put together where it came in chunks (RFC 9112 section 7.1).
fn whole(answer: &str) -> String {
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    if !head.contains("transfer-encoding: chunked") {
        return rest.to_owned();
    }
    let mut body = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let (chunk, after) = after.split_at(usize::from_str_radix(length, 16).unwrap());
        body.push_str(chunk);
        rest = after.strip_prefix("\r\n").unwrap();
    }
    body
}

fn open() -> String {
    fetch("application/openmetrics-text")
}

fn plain() -> String {
    fetch("text/plain")
}

/// Runs promtool over a text; `None` if there is none, which is said.
fn promtool(arguments: &[&str], folder: &str, input: &str) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => Some(feed(child, input)),
        Err(error) => {
            assert!(std::env::var_os("ADIT_REQUIRE_TOOLS").is_none(), "promtool (Debian package prometheus): {error}");
            println!("skipped: promtool cannot be run (Debian package prometheus): {error}");
            None
        }
    }
}

fn feed(mut child: Child, input: &str) -> Output {
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn promtool_has_nothing_against_the_text() {
    let Some(output) = promtool(&["check", "metrics"], ".", &plain()) else { return };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
    // It does see what is wrong.
    let output = promtool(&["check", "metrics"], ".", &plain().replace("_total", "")).unwrap();
    assert!(!output.status.success());
}

#[test]
fn both_texts_say_the_same() {
    let samples =
        |text: String| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    let (open, plain) = (open(), plain());
    assert!(open.ends_with("# EOF\n") && open.contains("# UNIT ") && open.contains("# TYPE adit_build info\n"));
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT ") && plain.contains("# TYPE adit_build_info gauge\n"));
    let (open, plain) = (samples(open), samples(plain));
    assert!(open.len() > 100);
    assert_eq!(open, plain);
}

/// The labels of each sample, by its name.
type Exported = BTreeMap<String, BTreeSet<String>>;

fn exported() -> Exported {
    let text = open();
    let mut found = Exported::new();
    // A family without a sample is exported as well: whatever it measures has not happened here.
    for (name, kind) in families(&text) {
        let ends: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            _ => &[""],
        };
        found.extend(ends.iter().map(|end| (format!("{name}{end}"), BTreeSet::new())));
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name: String = line.chars().take_while(|letter| is_word(*letter)).collect();
        let labels = line[name.len()..].strip_prefix('{').map(|rest| matchers(rest).0).unwrap_or_default();
        found.entry(name).or_default().extend(labels);
    }
    found
}

/// Name and kind of each family of metrics.
fn families(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
}

const fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The names of labels up to a closing brace, and what follows it. Their values are in quotes.
fn matchers(text: &str) -> (Vec<String>, &str) {
    let (mut labels, mut name, mut in_quotes, mut escaped) = (Vec::new(), String::new(), false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if in_quotes => escaped = true,
            '"' => in_quotes = !in_quotes,
            _ if in_quotes => {}
            '=' | '!' if !name.is_empty() => labels.push(std::mem::take(&mut name)),
            '}' => return (labels, &text[at + 1..]),
            letter if is_word(letter) => name.push(letter),
            _ => name.clear(),
        }
    }
    panic!("a brace stays open: {text}")
}

/// What an expression speaks of that is not exported.
fn strangers(expression: &str, exported: &Exported) -> Vec<String> {
    // What Prometheus adds to each series.
    let added = ["job", "instance"];
    let (mut strange, mut of_all) = (Vec::new(), BTreeSet::from(added.map(str::to_owned)));
    let mut rest = expression;
    while let Some(at) = rest.find("adit_") {
        let name: String = rest[at..].chars().take_while(|letter| is_word(*letter)).collect();
        rest = &rest[at + name.len()..];
        let Some(labels) = exported.get(&name) else {
            strange.push(name);
            continue;
        };
        of_all.extend(labels.iter().cloned());
        if let Some(inside) = rest.strip_prefix('{') {
            let (asked, after) = matchers(inside);
            rest = after;
            let unknown = asked.into_iter().filter(|label| !labels.contains(label) && !added.contains(&label.as_str()));
            strange.extend(unknown.map(|label| format!("{name}{{{label}}}")));
        }
    }
    for word in ["by", "without", "on", "ignoring"] {
        for list in expression.split(&format!(" {word} (")).skip(1) {
            let names = list.split(')').next().unwrap().split(',').map(str::trim);
            strange.extend(names.filter(|name| !of_all.contains(*name)).map(|name| format!("{word} ({name})")));
        }
    }
    strange
}

/// What templates speak of: `{{name}}` in a dashboard, `{{ $labels.name }}` in a rule.
fn named_in_templates(text: &str) -> Vec<&str> {
    let inside = text.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()).map(str::trim);
    inside.filter_map(|name| if name.starts_with('$') { name.strip_prefix("$labels.") } else { Some(name) }).collect()
}

#[test]
fn the_names_of_the_interface_are_exported() {
    let exported = exported();
    for (name, labels) in [
        ("adit_tunnel_health", &["tunnel"][..]),
        ("adit_tunnel_state", &["tunnel", "state"]),
        ("adit_tunnel_transitions_total", &["tunnel", "from", "to"]),
        ("adit_probes_sent_total", &["tunnel"]),
        ("adit_probes_total", &["tunnel", "result"]),
        ("adit_probe_rtt_seconds_bucket", &["tunnel", "le"]),
        ("adit_tunnel_loss_ratio", &["tunnel"]),
        ("adit_route_effective_priority", &["prefix", "table", "netns", "tunnel"]),
        ("adit_route_changes_total", &[]),
        ("adit_local_faults_total", &["kind"]),
        ("adit_loop_lag_seconds_bucket", &["le"]),
        ("adit_rejected_packets_total", &["reason"]),
        ("adit_build_info", &["version"]),
        ("adit_reload_refused", &[]),
        ("adit_reloads_total", &["result"]),
        ("adit_tunnel_checked", &["tunnel"]),
        ("adit_esp_sequence_remaining", &["tunnel"]),
        ("adit_endpoint_reachable", &["endpoint"]),
        ("adit_endpoint_loss_ratio", &["endpoint"]),
        ("adit_endpoint_rtt_seconds", &["endpoint"]),
        ("adit_endpoint_probes_total", &["endpoint", "result"]),
    ] {
        let labels: BTreeSet<String> = labels.iter().map(ToString::to_string).collect();
        assert_eq!(exported.get(name), Some(&labels), "{name}");
    }
    let text = open();
    assert!(
        text.contains("\nadit_reload_refused 1.0\n") && text.contains("\nadit_tunnel_checked{tunnel=\"t3\"} 0.0\n")
    );
    let reach = "adit_endpoint_reachable{endpoint=\"erp\"} 1.0\nadit_endpoint_reachable{endpoint=\"mute\"} 0.0\n";
    assert!(text.contains(reach), "{text}");
    assert!(text.contains("adit_tunnel_checked{tunnel=\"a \\\"quoted\\\" \\\\ name\\n\"} 1.0\n"), "{text}");
}

/// The expressions of the rules, with the texts of the same rule.
fn rules() -> Vec<(String, String, String)> {
    let alerts = RULES.split("- alert: ").skip(1);
    let field = |alert: &str, key: &str| {
        alert.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap_or_default().to_owned()
    };
    alerts.map(|alert| (alert.lines().next().unwrap().to_owned(), field(alert, "expr: "), alert.to_owned())).collect()
}

#[test]
fn the_alerts_speak_of_what_is_exported() {
    let exported = exported();
    let rules = rules();
    assert!(rules.len() >= 12);
    for (name, expression, text) in &rules {
        // `up` is what Prometheus says of the scrape itself.
        assert!(expression.contains("adit_") || expression.starts_with("up{"), "{name}: {expression}");
        assert_eq!(strangers(expression, &exported), [""; 0], "{name}: {expression}");
        let known: BTreeSet<&str> = exported
            .iter()
            .filter(|(metric, _)| expression.contains(metric.as_str()))
            .flat_map(|(_, labels)| labels)
            .map(String::as_str)
            .chain(["job", "instance"])
            .collect();
        for label in named_in_templates(text) {
            assert!(known.contains(label), "{name} names {label}, which none of its metrics has");
        }
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(text.contains(part), "{name} has no {part}");
        }
        assert!(RULE_TESTS.matches(&format!("alertname: {name}")).count() >= 2, "{name} has no test of both kinds");
    }
}

#[test]
fn promtool_runs_the_tests_of_the_alerts() {
    let folder = "packaging/prometheus";
    for arguments in [&["check", "rules", "adit.rules.yml"][..], &["test", "rules", "adit.rules.test.yml"]] {
        let Some(output) = promtool(arguments, folder, "") else { return };
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("SUCCESS"), "{said}");
    }
}

/// Every expression of the dashboard, with the template of its names.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array());
    let of_panels = targets.flatten().map(|target| (text(&target["expr"]), text(&target["legendFormat"])));
    let annotations = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let of_annotations = annotations.map(|one| (text(&one["expr"]), text(&one["titleFormat"])));
    // label_values(series, label)
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter().filter(|one| one["type"] == "query");
    let of_variables = variables.map(|one| {
        let inside = text(&one["definition"]);
        let (series, label) =
            inside.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap().rsplit_once(", ").unwrap();
        (series.to_owned(), format!("{{{{{label}}}}}"))
    });
    of_panels.chain(of_annotations).chain(of_variables).collect()
}

#[test]
fn the_dashboard_speaks_of_what_is_exported() {
    let exported = exported();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let queries = queries(&dashboard);
    assert!(queries.len() > 25);
    let mut used = BTreeSet::new();
    for (expression, template) in &queries {
        assert!(expression.contains("adit_"), "{expression}");
        assert_eq!(strangers(expression, &exported), [""; 0], "{expression}");
        let metrics = || exported.iter().filter(|(metric, _)| expression.contains(metric.as_str()));
        used.extend(metrics().map(|(metric, _)| metric.clone()));
        for label in named_in_templates(template) {
            let known = ["job", "instance"].contains(&label) || metrics().any(|(_, labels)| labels.contains(label));
            assert!(known, "{template} of {expression}");
        }
        // Each is of what was chosen above.
        assert!(expression.contains("$job") || expression == "adit_build_info", "{expression}");
    }
    // Nothing that is measured is out of sight, but for what others there say as well.
    let base =
        |name: &str| name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count").to_owned();
    let unseen: BTreeSet<String> =
        exported.keys().filter(|name| !used.iter().any(|used| base(used) == base(name))).cloned().collect();
    assert_eq!(unseen.iter().map(String::as_str).collect::<Vec<_>>(), ["adit_event_last_id"]);
}

#[test]
fn the_page_about_monitoring_names_them_all() {
    let page = include_str!("../docs/monitoring.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let (mut metrics, mut alerts) = (BTreeMap::new(), BTreeSet::new());
    for (cell, rest) in rows {
        for name in names(cell) {
            if name.starts_with("adit_") {
                let labels = rest.split('|').next().unwrap().split(',').map(|label| label.trim().to_owned());
                metrics.insert(name, labels.filter(|label| !label.is_empty()).collect::<BTreeSet<_>>());
            } else {
                alerts.insert(name);
            }
        }
    }
    let mut exported = exported();
    // Of a histogram, its name, and not where its buckets end.
    exported.retain(|name, _| !name.ends_with("_bucket") && !name.ends_with("_sum"));
    let exported = exported.into_iter().map(|(name, labels)| (name.trim_end_matches("_count").to_owned(), labels));
    assert_eq!(metrics, exported.collect());
    assert_eq!(alerts, rules().into_iter().map(|(name, ..)| name).collect());
}

#[test]
fn the_panels_of_the_dashboard_stand_beside_each_other() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{}", panel["title"]);
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{} covers another", panel["title"]);
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            assert!(!panel["targets"].as_array().unwrap().is_empty());
        }
    }
}

#[test]
fn the_checks_see_what_they_look_for() {
    let exported = Exported::from([("adit_x".to_owned(), BTreeSet::from(["tunnel".to_owned()]))]);
    assert_eq!(strangers("sum by (tunnel, job) (adit_x{tunnel=~\"a}b\", job=\"x\"})", &exported), [""; 0]);
    assert_eq!(strangers("adit_y", &exported), ["adit_y"]);
    assert_eq!(strangers("adit_x{tunel=\"tunnel\"}", &exported), ["adit_x{tunel}"]);
    assert_eq!(strangers("sum by (kind) (adit_x)", &exported), ["by (kind)"]);
    assert_eq!(named_in_templates("{{ $labels.tunnel }} {{ $value | humanize }} {{prefix}}"), ["tunnel", "prefix"]);
}
