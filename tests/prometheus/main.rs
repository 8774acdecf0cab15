//! A real Prometheus (Debian's) that scrapes the built program, with the rules and the dashboard of `packaging/`.
//!
//! Times in the rules are made short; nothing else is changed. A trial that cannot run is skipped with its reason; with
//! `ADIT_REQUIRE_NETNS` and `ADIT_REQUIRE_TOOLS` it fails.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a trial that cannot go on must fail")]
#![allow(dead_code, reason = "each of the modules of others is of use in part")]

#[path = "../netns/by_hand.rs"]
mod by_hand;
#[path = "../netns/kit.rs"]
mod kit;
#[path = "../netns/sealed.rs"]
mod sealed;
#[path = "../netns/silent.rs"]
mod silent;
#[path = "../netns/site.rs"]
mod site;
#[path = "../netns/web.rs"]
mod web;
#[path = "../netns/world.rs"]
mod world;

use std::fs::File;
use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

use kit::holds_within;
use site::{Running, Site};
use world::{Case, World, case};

const RULES: &str = include_str!("../../packaging/prometheus/adit.rules.yml");
const DASHBOARD: &str = include_str!("../../packaging/grafana/adit.json");
/// Where it listens, in the near namespace.
const PROMETHEUS: &str = "127.0.0.1:9090";
/// An alert comes by way of three programs.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let world = World::enter(args.list);
    let missing = missing();
    let trial = |case: Case| match &missing {
        None => case.trial(&world),
        Some(why) if std::env::var_os("ADIT_REQUIRE_TOOLS").is_some() => {
            let why = why.clone();
            Trial::test(case.name, move || Err(Failed::from(why)))
        }
        Some(why) => {
            eprintln!("skipped: {}: {why}", case.name);
            Trial::test(case.name, || Ok(())).with_ignored_flag(true)
        }
    };
    let cases = vec![
        case("a_cut_tunnel_is_an_alert_and_so_is_a_daemon_that_is_gone", alerts),
        case("every_query_of_the_dashboard_is_answered", dashboard),
    ];
    libtest_mimic::run(&args, cases.into_iter().map(trial).collect()).exit_code()
}

fn missing() -> Option<String> {
    let mut command = Command::new("prometheus");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let runs = command.status().is_ok_and(|status| status.success());
    (!runs).then(|| "prometheus cannot be run (Debian package prometheus)".to_owned())
}

/// A Prometheus in the near namespace, beside a daemon.
struct Watch<'a> {
    site: &'a Site,
    prometheus: Running,
}

impl<'a> Watch<'a> {
    fn begin(site: &'a Site) -> Self {
        let rules: Vec<String> = RULES
            .lines()
            .map(|line| line.split_once("for: ").map_or(line.to_owned(), |(before, _)| format!("{before}for: 5s")))
            .collect();
        site.write("adit.rules.yml", &rules.join("\n"));
        site.write(
            "prometheus.yml",
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n\
             rule_files: [adit.rules.yml]\n\
             scrape_configs: [{job_name: adit, static_configs: [{targets: ['127.0.0.1:9911']}]}]\n",
        );
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", site.path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", site.path("tsdb").display()))
            .arg(format!("--web.listen-address={PROMETHEUS}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(site.path("prometheus.log")).unwrap());
        let watch = Self { site, prometheus: Running::start(&site.pair.near, &mut command) };
        watch.eventually("a Prometheus that is ready", |watch| {
            watch.site.connect(PROMETHEUS).is_ok() && watch.request("GET /-/ready", "").0 == 200
        });
        watch
    }

    fn request(&self, what: &str, form: &str) -> (u16, String) {
        let mut stream = self.site.connect(PROMETHEUS).unwrap();
        let head = "host: localhost\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded";
        write!(stream, "{what} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{form}", form.len()).unwrap();
        let (status, _, body) = Site::answer(stream);
        (status, body)
    }

    /// The data of an answer, which must be a good one.
    fn api(&self, path: &str, form: &str) -> Value {
        let method = if form.is_empty() { "GET" } else { "POST" };
        let (status, body) = self.request(&format!("{method} /api/v1/{path}"), form);
        let mut answer: Value = serde_json::from_str(&body).unwrap_or_default();
        assert!(status == 200 && answer["status"] == "success", "{path} {form}: {status} {body}");
        answer["data"].take()
    }

    /// The result of an expression as of now.
    fn query(&self, expression: &str) -> Vec<Value> {
        let mut data = self.api("query", &format!("query={}", encoded(expression)));
        data["result"].take().as_array().cloned().unwrap_or_default()
    }

    /// The states of an alert, for each of its sets of labels that has this one.
    fn alert(&self, name: &str, label: &str, value: &str) -> Option<String> {
        let alerts = self.api("alerts", "");
        let mut alerts = alerts["alerts"].as_array().into_iter().flatten();
        let found = alerts.find(|alert| {
            alert["labels"]["alertname"] == name && (label.is_empty() || alert["labels"][label] == value)
        });
        found.map(|alert| alert["state"].as_str().unwrap_or("without a state").to_owned())
    }

    fn eventually(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let found = holds_within(PATIENCE, &mut || condition(self));
        let log = || format!("{}\n{}", self.site.read("prometheus.log"), self.site.read("adit.conf.log"));
        assert!(found, "not seen in {PATIENCE:?}: {what}\n{}", log());
    }

    fn await_scrape(&self) {
        self.eventually("a good scrape", |watch| {
            watch.query("up{job=\"adit\"}").first().is_some_and(|sample| sample["value"][1] == "1")
        });
    }
}

/// As in a form (only letters and digits stay as they are).
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn site() -> Site {
    let site = Site::new();
    site.serve_metrics("metrics = \"127.0.0.1:9911\"");
    site
}

fn alerts() {
    let site = site();
    let (daemon, [ams, _fra]) = site.healthy();
    let watch = Watch::begin(&site);
    watch.await_scrape();
    assert_eq!(watch.alert("TunnelDown", "", ""), None);
    drop(ams);
    // First it waits, then it rings.
    watch.eventually("TunnelDown pending", |watch| {
        watch.alert("TunnelDown", "tunnel", "ams-1").as_deref() == Some("pending")
    });
    watch.eventually("TunnelDown firing", |watch| {
        watch.alert("TunnelDown", "tunnel", "ams-1").as_deref() == Some("firing")
    });
    assert_eq!(watch.alert("TunnelDown", "tunnel", "fra-1"), None);
    assert_eq!(watch.alert("NoPath", "", ""), None, "the other tunnel is a path");
    let _ams = site.far("ams-1");
    watch.eventually("TunnelDown over", |watch| watch.alert("TunnelDown", "", "").is_none());
    // A configuration that is wrong.
    let right = site.read("adit.conf");
    site.write("adit.conf", "[daemon]\nmetrics = 1\n");
    assert_eq!(site.adit(&["reload"]).status.code(), Some(78));
    watch.eventually("ReloadRefused firing", |watch| watch.alert("ReloadRefused", "", "").as_deref() == Some("firing"));
    site.write("adit.conf", &right);
    site.say(&["reload"]);
    watch.eventually("ReloadRefused over", |watch| watch.alert("ReloadRefused", "", "").is_none());
    drop(daemon);
    watch.eventually("AditDown firing", |watch| watch.alert("AditDown", "job", "adit").as_deref() == Some("firing"));
    // Nothing is wrong with any rule.
    let rules = watch.api("rules", "");
    let groups = rules["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(rules.len() >= 12);
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule:#}");
    }
}

fn dashboard() {
    let site = site();
    // The far side's own address, which its kernel answers for.
    let endpoint = "[[endpoint]]\nname = \"lab\"\naddress = \"192.0.2.11\"\ninterval = \"1s\"\ntimeout = \"5s\"\n";
    site.write("adit.conf", &format!("{}\n{endpoint}", site.read("adit.conf")));
    let (_daemon, _far) = site.healthy();
    let watch = Watch::begin(&site);
    watch.await_scrape();
    watch.eventually("an endpoint", |watch| !watch.query("adit_endpoint_rtt_seconds").is_empty());
    // All of the text was understood.
    let text = site.http("GET", "/metrics").2;
    let samples = text.lines().filter(|line| !line.starts_with('#')).count().to_string();
    watch.eventually("every sample in the store", |watch| {
        watch.query("scrape_samples_scraped{job=\"adit\"}").first().is_some_and(|sample| sample["value"][1] == *samples)
    });
    watch.eventually("a rate", |watch| watch.query("rate(adit_probes_sent_total[10s]) > 0").len() == 2);
    watch.eventually("a rate of probes of endpoints", |watch| {
        !watch.query("rate(adit_endpoint_probes_total[10s]) > 0").is_empty()
    });
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array()).flatten();
    let annotations = dashboard["annotations"]["list"].as_array().unwrap();
    let mut empty = Vec::new();
    for target in targets.chain(annotations) {
        let expression = target["expr"].as_str().unwrap();
        let chosen = expression.replace("$__rate_interval", "10s").replace("$job", "adit").replace("$instance", ".*");
        let chosen = chosen.replace("$tunnel", "ams-1|fra-1");
        assert!(!chosen.contains('$'), "{chosen}");
        if watch.query(&chosen).is_empty() {
            empty.push(expression.to_owned());
        }
    }
    // Only of what has not happened here there is nothing to be seen.
    let quiet = [
        "adit_local_faults_total",
        "adit_rejected_packets_total",
        "adit_socket_receive_dropped_total",
        "adit_icmp_hints_total",
        "adit_esp_sequence_remaining",
        "adit_tunnel_state",
    ];
    for expression in &empty {
        assert!(quiet.iter().any(|name| expression.contains(name)), "nothing to be seen: {expression}");
    }
}
