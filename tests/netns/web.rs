//! What the built program serves over TCP: the metrics, and where it is asked for the status page.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use adit::io::netns;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{PATIENCE, eventually};
use crate::site::{Running, Site};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("web::metrics_alone_unless_the_page_is_asked_for", metrics_alone_unless_the_page_is_asked_for),
        case("web::the_page_has_what_it_needs_and_no_more", the_page_has_what_it_needs_and_no_more),
        case("web::nothing_can_be_changed", nothing_can_be_changed),
        case("web::other_names_are_refused_where_only_this_host_may_ask", other_names),
        case("web::whoever_fills_it_locks_nobody_out_of_the_socket", whoever_fills_it),
        case("web::a_port_that_is_taken_stops_nothing", a_port_that_is_taken_stops_nothing),
        case("web::a_reload_moves_it", a_reload_moves_it),
        case("web::another_prober_goes_on_serving", another_prober_goes_on_serving),
    ]
}

const ADDRESS: &str = "127.0.0.1:9911";

impl Site {
    /// Has the metrics served over TCP, under these settings.
    pub(crate) fn serve_metrics(&self, settings: &str) {
        let text = self.configuration().replace("[daemon]\n", &format!("[daemon]\n{settings}\n"));
        // Events for people, without each sample among them.
        self.write("adit.conf", &text.replace("record = \"record.jsonl\"\n", ""));
    }

    /// A connection from the near side.
    pub(crate) fn connect(&self, address: &str) -> std::io::Result<TcpStream> {
        let stream = netns::within(Some(&self.pair.near), || TcpStream::connect(address))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// One request over TCP, with these fields: status, headers, body.
    pub(crate) fn fetch(&self, method: &str, path: &str, fields: &str) -> (u16, String, String) {
        let mut stream = self.connect(ADDRESS).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\n{fields}\r\n").unwrap();
        Self::answer(stream)
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.fetch("GET", path, "host: localhost\r\n")
    }

    /// Waits until the metrics are served over TCP.
    fn await_metrics(&self, address: &str) {
        eventually("metrics over TCP", || {
            let Ok(mut stream) = self.connect(address) else { return false };
            write!(stream, "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            Self::answer(stream).0 == 200
        });
    }

    fn assert_refused(&self, address: &str) {
        eventually("a closed port", || {
            self.connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
    }
}

const PAGE: &str = "metrics = \"127.0.0.1:9911\"\nstatus_page = true";

fn metrics_alone_unless_the_page_is_asked_for() {
    let site = Site::new();
    site.serve_metrics("metrics = \"127.0.0.1:9911\"");
    let _daemon = site.daemon();
    site.await_metrics(ADDRESS);
    let (status, head, text) = site.get("/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(head.contains("nosniff") && head.contains("no-store") && head.contains("default-src 'none'"), "{head}");
    assert!(text.ends_with("# EOF\n") && text.contains("adit_tunnel_state{tunnel=\"ams-1\""), "{text}");
    let (status, head, plain) = site.fetch("GET", "/metrics", "host: localhost\r\naccept: text/plain\r\n");
    assert_eq!(status, 200);
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(!plain.contains("# EOF") && plain.contains("# TYPE adit_probes_sent_total counter\n"), "{plain}");
    // Over the local socket, too.
    assert!(site.http("GET", "/metrics").1.contains("application/openmetrics-text"));
    for path in [
        "/",
        "/v1/tunnels",
        "/v1/routes",
        "/v1/endpoints",
        "/v1/events",
        "/v1/healthz",
        "/v1/openapi.json",
        "/v1/tunnels/ams-1",
    ] {
        let (status, head, body) = site.get(path);
        assert_eq!(status, 404, "{path}: {body}");
        assert!(head.contains("application/problem+json") && !body.contains("fra-1"), "{path}: {head}{body}");
    }
    assert!(site.get("/").2.contains("status_page = true"));
}

fn the_page_has_what_it_needs_and_no_more() {
    let site = Site::new();
    site.serve_metrics(PAGE);
    let _daemon = site.daemon();
    site.await_metrics(ADDRESS);
    let (status, head, page) = site.get("/");
    assert_eq!(status, 200);
    assert!(head.contains("text/html; charset=utf-8") && page.starts_with("<!doctype html>"), "{head}");
    let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    for part in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "script-src 'sha256-"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe-inline"), "{policy}");
    let body = |path: &str| -> Value {
        let (status, _, body) = site.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    };
    assert_eq!(body("/v1/tunnels")["tunnels"].as_array().unwrap().len(), 2);
    assert_eq!(body("/v1/routes")["routes"].as_array().unwrap().len(), 2);
    assert_eq!(body("/v1/endpoints")["endpoints"].as_array().unwrap().len(), 0);
    assert_eq!(body("/v1/healthz")["status"], "ok");
    let (status, _, events) = site.get("/v1/events?since=0");
    assert!(status == 200 && events.contains("\"kind\":\"start\""), "{events}");
    let (status, _, body) = site.get("/v1/events?follow=true");
    assert!(status == 400 && body.contains("local socket"), "{body}");
    for path in [
        "/v1/sa",
        "/v1/tunnels/ams-1",
        "/v1/tunnels/ams-1/sa",
        "/v1/tunnels/ams-1/explain",
        "/v1/endpoints/lab",
        "/v1/openapi.json",
    ] {
        assert_eq!(site.get(path).0, 404, "{path}");
    }
}

fn nothing_can_be_changed() {
    let site = Site::new();
    site.serve_metrics(PAGE);
    let _daemon = site.daemon();
    site.await_metrics(ADDRESS);
    let paths = site.json_of("/v1/openapi.json");
    let paths: Vec<String> =
        paths["paths"].as_object().unwrap().keys().map(|path| path.replace("{name}", "ams-1")).collect();
    assert!(paths.len() > 10);
    for path in paths.iter().map(String::as_str).chain(["/", "/v1"]) {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let (status, head, body) =
                site.fetch(method, path, "host: localhost\r\norigin: http://evil.example\r\ncontent-length: 0\r\n");
            assert!(matches!(status, 404 | 405), "{method} {path}: {status} {body}");
            assert!(!head.contains("access-control-allow"), "{head}");
        }
    }
    let view = site.json_of("/v1/tunnels/ams-1");
    assert_eq!(view["drained"], false);
    assert!(!site.say(&["events"]).contains("read again"));
}

fn other_names() {
    let site = Site::new();
    site.serve_metrics(PAGE);
    let mut daemon = site.daemon();
    site.await_metrics(ADDRESS);
    let status = |fields: &str| site.fetch("GET", "/v1/tunnels", fields).0;
    for host in ["localhost", "localhost:9911", "127.0.0.1:9911", "[::1]:9911"] {
        assert_eq!(status(&format!("host: {host}\r\n")), 200, "{host}");
    }
    for host in ["evil.example", "evil.example:9911", "localhost.evil.example", ""] {
        let (status, head, body) = site.fetch("GET", "/v1/tunnels", &format!("host: {host}\r\n"));
        assert_eq!(status, 421, "{host}: {body}");
        assert!(head.contains("nosniff") && !body.contains("ams-1"), "{head}{body}");
    }
    assert_eq!(status(""), 400);
    assert_eq!(status("host: localhost\r\nhost: evil.example\r\n"), 400);
    drop(daemon);
    // Where others may ask, they do so by whatever name that address has there; the operator was told who can.
    site.serve_metrics(&PAGE.replace("127.0.0.1", "192.0.2.1"));
    let checked = site.adit(&["check", "--config", site.path("adit.conf").to_str().unwrap()]);
    let said = format!("{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success() && said.contains("whoever reaches this address can read"), "{said}");
    daemon = site.daemon();
    let far = || netns::within(Some(&site.pair.far), || TcpStream::connect("192.0.2.1:9911"));
    eventually("metrics for others", || far().is_ok());
    let mut stream = far().unwrap();
    write!(stream, "GET /v1/tunnels HTTP/1.1\r\nhost: router.example\r\n\r\n").unwrap();
    assert_eq!(Site::answer(stream).0, 200);
    drop(daemon);
}

/// Clients that say nothing, and clients that take nothing.
fn whoever_fills_it() {
    let site = Site::new();
    site.make_patient();
    let text = site.read("adit.conf").replace("[daemon]\n", &format!("[daemon]\n{PAGE}\n"));
    site.write("adit.conf", &text);
    let (_daemon, _far) = site.healthy();
    site.await_metrics(ADDRESS);
    // Some are told that there is no place, others are hung up on; none keeps the local socket waiting.
    let mut crowd = Vec::new();
    eventually("somebody who is told that there are too many", || {
        crowd = (0..100).filter_map(|_| site.connect(ADDRESS).ok()).collect::<Vec<TcpStream>>();
        crowd.iter_mut().rev().any(|stream| {
            let mut said = String::new();
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
            let _ = stream.read_to_string(&mut said);
            said.contains(" 503 ")
        })
    });
    assert!(UnixStream::connect(site.path("adit.sock")).is_ok());
    for name in ["ams-1", "fra-1"] {
        assert_eq!(site.state(name), "healthy");
    }
    // Whoever says nothing for long loses its place.
    site.await_metrics(ADDRESS);
    drop(crowd);
}

fn a_port_that_is_taken_stops_nothing() {
    let site = Site::new();
    site.serve_metrics("metrics = \"127.0.0.1:9911\"");
    let taken = netns::within(Some(&site.pair.near), || TcpListener::bind(ADDRESS)).unwrap();
    let (_daemon, _far) = site.healthy();
    let log = site.read("adit.conf.log");
    assert!(log.contains("another program has this port") && log.contains("every 10 s"), "{log}");
    drop(taken);
    site.await_metrics(ADDRESS);
    assert!(site.read("adit.conf.log").contains("serving the metrics"));
}

fn a_reload_moves_it() {
    let site = Site::new();
    site.serve_metrics("");
    let _daemon = site.daemon();
    site.assert_refused(ADDRESS);
    site.serve_metrics("metrics = \"127.0.0.1:9911\"");
    assert!(!site.say(&["reload"]).contains("next start"));
    site.await_metrics(ADDRESS);
    assert_eq!(site.get("/").0, 404);
    site.serve_metrics(PAGE);
    site.say(&["reload"]);
    eventually("the page", || site.get("/").0 == 200);
    site.serve_metrics("metrics = \"[::1]:9912\"");
    site.say(&["reload"]);
    site.await_metrics("[::1]:9912");
    site.assert_refused(ADDRESS);
    // What is wrong changes nothing, and shows.
    site.write("adit.conf", "[daemon]\nmetrics = \"localhost:9911\"\n");
    assert_eq!(site.adit(&["reload"]).status.code(), Some(78));
    site.await_text("adit_reload_refused 1.0\n");
    site.await_text("adit_reloads_total{result=\"applied\"} 3\n");
    site.await_text("adit_reloads_total{result=\"refused\"} 1\n");
    site.await_metrics("[::1]:9912");
    site.serve_metrics("");
    site.say(&["reload"]);
    site.assert_refused("[::1]:9912");
    site.await_text("adit_reload_refused 0.0\n");
}

fn another_prober_goes_on_serving() {
    let site = Site::new();
    site.serve_metrics(PAGE);
    let daemon: Running = site.daemon();
    site.await_metrics(ADDRESS);
    let first = daemon.prober();
    daemon.send_prober(Signal::SIGKILL);
    eventually("another prober", || daemon.prober() != first && site.http_works());
    site.await_metrics(ADDRESS);
    assert_eq!(site.get("/").0, 200);
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    site.assert_refused(ADDRESS);
    // It is free for the next one at once.
    let _again = site.daemon();
    site.await_metrics(ADDRESS);
    assert!(!site.read("adit.conf.log").contains("cannot be served"), "{}", site.read("adit.conf.log"));
}

impl Site {
    fn json_of(&self, path: &str) -> Value {
        serde_json::from_str(&self.http("GET", path).2).unwrap()
    }

    /// Waits for a line of the metrics: a text is handed out for a second.
    fn await_text(&self, line: &str) {
        eventually(line, || self.http("GET", "/metrics").2.contains(&format!("\n{line}")));
    }

    fn http_works(&self) -> bool {
        self.adit(&["status"]).status.success()
    }
}
