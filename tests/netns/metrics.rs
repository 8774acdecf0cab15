//! What is measured, as somebody else's parser reads it.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::kit::eventually;
use crate::site::Site;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![case("metrics::a_parser_of_others_reads_what_is_measured", measured)]
}

/// Each sample as name, labels and value.
const PARSER: &str = "
import sys, json
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
for family in parse(sys.stdin.read()):
    assert family.documentation, family.name
    for s in family.samples:
        print(json.dumps([s.name, s.labels, s.value, family.type]))
";

/// The samples, by name; none if there is no parser.
fn parsed(text: &str) -> Option<BTreeMap<String, Vec<(Value, f64)>>> {
    let has = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import prometheus_client.openmetrics.parser"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    // The distribution's, where another one stands before it.
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has) else {
        assert!(std::env::var_os("ADIT_REQUIRE_TOOLS").is_none(), "python3-prometheus-client is missing");
        println!("skipped: python3-prometheus-client is missing");
        return None;
    };
    let child = Command::new(python).args(["-c", PARSER]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let output = feed(child, text);
    assert!(output.status.success(), "{text}");
    Some(grouped(&String::from_utf8_lossy(&output.stdout)))
}

/// What the parser prints, by name.
fn grouped(printed: &str) -> BTreeMap<String, Vec<(Value, f64)>> {
    let mut samples = BTreeMap::<String, Vec<_>>::new();
    for line in printed.lines() {
        let sample: Value = serde_json::from_str(line).unwrap();
        let name = sample[0].as_str().unwrap().to_owned();
        samples.entry(name).or_default().push((sample[1].clone(), sample[2].as_f64().unwrap_or(f64::INFINITY)));
    }
    samples
}

fn feed(mut child: Child, text: &str) -> Output {
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn measured() {
    let site = Site::new();
    let (_daemon, [ams, _fra]) = site.healthy();
    drop(ams);
    site.await_state("ams-1", "down");
    site.say(&["drain", "fra-1"]);
    let (status, head, text) = site.http("GET", "/metrics");
    assert_eq!(status, 200);
    assert!(head.to_lowercase().contains("application/openmetrics-text"), "{head}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let Some(samples) = parsed(&text) else { return };
    let value = |name: &str, labels: &[(&str, &str)]| {
        let all = samples.get(name).unwrap_or_else(|| panic!("{name} is missing: {text}"));
        let fits = |found: &Value| labels.iter().all(|(key, value)| found[*key] == **value);
        all.iter().find(|(found, _)| fits(found)).unwrap_or_else(|| panic!("{name} {labels:?}: {all:?}")).1
    };
    let ams = ("tunnel", "ams-1");
    assert_eq!(value("adit_tunnel_health", &[ams]), 0.0);
    assert_eq!(value("adit_tunnel_state", &[ams, ("state", "down")]), 1.0);
    assert_eq!(value("adit_tunnel_state", &[ams, ("state", "healthy")]), 0.0);
    assert_eq!(value("adit_tunnel_drained", &[("tunnel", "fra-1")]), 1.0);
    assert_eq!(value("adit_tunnel_transitions_total", &[ams, ("from", "unknown"), ("to", "healthy")]), 1.0);
    let sent = value("adit_probes_sent_total", &[ams]);
    let success = value("adit_probes_total", &[ams, ("result", "success")]);
    let lost = value("adit_probes_total", &[ams, ("result", "lost")]);
    assert!(success >= 3.0 && lost >= 3.0 && success + lost <= sent, "{success} and {lost} of {sent}");
    for result in ["late", "duplicate", "forged", "inconclusive"] {
        value("adit_probes_total", &[ams, ("result", result)]);
    }
    assert_eq!(value("adit_probe_rtt_seconds_count", &[ams]), success);
    assert_eq!(value("adit_probe_rtt_seconds_bucket", &[ams, ("le", "+Inf")]), success);
    let sum = value("adit_probe_rtt_seconds_sum", &[ams]);
    assert!(sum > 0.0 && sum < success, "seconds, not microseconds: {sum}");
    assert!(value("adit_tunnel_loss_ratio", &[ams]) > 0.0);
    let route = [("prefix", "10.20.0.0/16"), ams];
    assert_eq!(value("adit_route_effective_priority", &route), 1_000_100.0);
    assert!(value("adit_route_changes_total", &[]) >= 1.0);
    assert!(value("adit_loop_lag_seconds_count", &[]) > 10.0);
    assert_eq!(value("adit_fail_static", &[]), 0.0);
    assert_eq!(value("adit_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert_eq!(value("adit_tunnels", &[("state", "down")]), 1.0);
    assert!(samples.contains_key("adit_rejected_packets_total"));
    assert_eq!(samples["adit_local_faults_total"].len(), adit::engine::KINDS.len(), "each kind from the start");
    assert_eq!(value("adit_local_faults_total", &[("kind", "fail-static")]), 0.0);
    assert_eq!(value("adit_socket_receive_dropped_total", &[("family", "v4"), ("protocol", "gre")]), 0.0);
    assert_eq!(value("adit_needs_missing", &[]), 0.0);
    assert!(value("adit_event_last_id", &[]) >= 4.0);
    for name in ["adit_icmp_hints_total", "adit_kernel_drifts_total"] {
        value(name, &[]);
    }
    // Counters do not go down.
    eventually("more probes", || {
        let (_, _, later) = site.http("GET", "/metrics");
        let later = parsed(&later).unwrap();
        later["adit_probes_sent_total"].iter().any(|(labels, count)| labels["tunnel"] == "ams-1" && *count > sent)
    });
}
