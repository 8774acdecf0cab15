//! `adit routes`, and what `adit check` hints at, as a person reads them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::JoinHandle;

use serde_json::{Value, json};

/// A daemon that gives these answers, one after the other, and returns what it was asked for.
fn daemon<const N: usize>(socket: &Path, bodies: [Value; N]) -> JoinHandle<[String; N]> {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        bodies.map(|body| {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let (mut asked, mut line) = (String::new(), String::new());
            stream.read_line(&mut asked).unwrap();
            while stream.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            let body = body.to_string();
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.get_mut().write_all((head + &body).as_bytes()).unwrap();
            asked.split(' ').nth(1).unwrap().to_owned()
        })
    })
}

fn adit(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_adit")).args(arguments).env_remove("ADIT_SOCKET").output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// What `adit routes` says of this, and what it asked the daemon for.
fn shown(arguments: &[&str], routes: Value) -> (Option<i32>, String, String) {
    shown_while(arguments, routes, json!({ "status": "ok", "fail_static": null }))
}

/// The same, while the daemon says this of itself.
fn shown_while(arguments: &[&str], routes: Value, health: Value) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let daemon = daemon(&socket, [json!({ "routes": routes }), health]);
    let (code, out, err) = adit(&[&["--socket", socket.to_str().unwrap(), "routes"], arguments].concat());
    assert_eq!(err, "");
    let [asked, then] = daemon.join().unwrap();
    assert_eq!(then, "/v1/healthz");
    (code, out, asked)
}

fn route(tunnel: &str, kernel: &str, more: Value) -> Value {
    let mut route = json!({
        "prefix": "10.20.0.0/16", "table": 254, "netns": null, "tunnel": tunnel, "priority": 100, "penalty": 500_000,
        "effective_priority": 500_100, "weight": 1, "device": null, "via": null, "selected": tunnel == "a",
        "kernel": kernel, "kernel_metric": null, "kernel_reason": null
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| route[key] = value.clone());
    route
}

#[test]
fn a_table_of_adits_own_routes_has_no_columns_that_say_nothing() {
    let routes = json!([route("a", "not managed", json!({})), route("b", "not managed", json!({}))]);
    let (code, out, asked) = shown(&[], routes);
    let wanted = "\
PREFIX        TUNNEL  PRIORITY  PENALTY  EFFECTIVE  WEIGHT  TRAFFIC
10.20.0.0/16  a            100  500 000    500 100       1  <- here
10.20.0.0/16  b            100  500 000    500 100       1
";
    assert_eq!((code, out.as_str(), asked.as_str()), (Some(0), wanted, "/v1/routes"));
}

#[test]
fn routes_that_are_held_are_not_shown_as_if_they_followed_the_tunnels() {
    let health = json!({ "status": "ok", "fail_static": { "reason": "2 of 2 went down", "since": "10:00:00" } });
    let (_, out, _) = shown_while(&[], json!([route("a", "installed", json!({}))]), health);
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("HELD: 2 of 2 went down (since 10:00:00)"));
    assert!(lines.next().unwrap().starts_with("PREFIX"), "{out}");
}

#[test]
fn what_a_program_reads_is_the_daemons_answer_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let answer = json!({ "routes": [route("a", "installed", json!({}))] });
    let daemon = daemon(&socket, [answer.clone()]);
    let (code, out, err) = adit(&["--socket", socket.to_str().unwrap(), "routes", "--json"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), answer);
    assert_eq!(daemon.join().unwrap(), ["/v1/routes"]);
}

#[test]
fn the_kernels_answer_stands_beside_each_route_and_why_it_does_not_have_it() {
    let why = |word: &str| json!({"kernel_reason": word});
    let routes = json!([
        route("a", "installed", json!({"kernel_metric": 500_100})),
        route("b", "installed", json!({"kernel_metric": 100})),
        route("c", "waiting", why("there is no device gre1")),
        route("d", "conflict", why("proto static has it")),
        route("e", "not managed", json!({})),
    ]);
    let (_, out, _) = shown(&[], routes);
    let column = out.lines().next().unwrap().find("KERNEL").unwrap();
    let answers: Vec<&str> = out.lines().skip(1).map(|line| &line[column..]).collect();
    let wanted = [
        "installed",
        "installed at 100",
        "waiting: there is no device gre1",
        "conflict: proto static has it",
        "not managed",
    ];
    assert_eq!(answers, wanted);
}

#[test]
fn tables_and_namespaces_are_shown_where_there_is_more_than_the_usual() {
    let tenant = json!({"table": 1_000, "prefix": "10.0.0.0/8"});
    let (_, out, _) = shown(&[], json!([route("a", "not managed", json!({})), route("b", "not managed", tenant)]));
    let wanted = "\
PREFIX        TABLE  TUNNEL  PRIORITY  PENALTY  EFFECTIVE  WEIGHT  TRAFFIC
10.20.0.0/16    254  a            100  500 000    500 100       1  <- here
10.0.0.0/8     1000  b            100  500 000    500 100       1
";
    assert_eq!(out, wanted);
    let blue = json!({"netns": "blue", "kernel": "pending"});
    let (_, out, _) = shown(&[], json!([route("a", "pending", json!({})), route("b", "pending", blue)]));
    let wanted = "\
PREFIX        NETNS  TUNNEL  PRIORITY  PENALTY  EFFECTIVE  WEIGHT  TRAFFIC  KERNEL
10.20.0.0/16  -      a            100  500 000    500 100       1  <- here  pending
10.20.0.0/16  blue   b            100  500 000    500 100       1           pending
";
    assert_eq!(out, wanted);
    let both = json!({"netns": "blue", "table": 7});
    let (_, out, _) = shown(&[], json!([route("a", "not managed", both)]));
    assert_eq!(
        out.lines().nth(1).unwrap(),
        "10.20.0.0/16      7  blue   a            100  500 000    500 100       1  <- here"
    );
}

#[test]
fn a_look_up_can_be_narrowed_to_a_table_and_a_namespace() {
    let asked = |arguments: &[&str]| shown(arguments, json!([])).2;
    let lookup = "/v1/routes/lookup?dst=10.20.1.1";
    assert_eq!(asked(&["get", "10.20.1.1"]), lookup);
    assert_eq!(asked(&["get", "10.20.1.1", "--table", "100"]), format!("{lookup}&table=100"));
    assert_eq!(asked(&["get", "10.20.1.1", "--netns", ""]), format!("{lookup}&netns="));
    let all = ["get", "10.20.1.1", "--flow", "3", "--table", "9", "--netns", "/proc/1/ns/net"];
    assert_eq!(asked(&all), format!("{lookup}&flow=3&table=9&netns=%2Fproc%2F1%2Fns%2Fnet"));
    let (code, out, _) = shown(&["get", "10.20.1.1", "--table", "9"], json!([]));
    assert_eq!((code, out.as_str()), (Some(1), "no route holds 10.20.1.1\n"));
}

const TUNNEL: &str = "[[tunnel]]\nname = \"a\"\nencapsulation = \"device\"\ndevice = \"gre1\"\n\
                      interface_address = \"10.100.0.8/31\"\n";

fn checked(text: &str, more: &[&str]) -> (Option<i32>, String, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file.toml");
    fs::write(&file, format!("{TUNNEL}{text}")).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let (code, out, err) = adit(&[&["check", "--config", &path], more].concat());
    (code, out, err, path)
}

#[test]
fn a_hint_changes_no_exit_code_and_does_not_get_among_the_configuration() {
    let route = "[[route]]\nprefix = \"10.0.0.0/8\"\ntunnel = \"a\"\npriority = 1\n";
    let text = format!("{route}[kernel]\napply = true\n[[rule]]\nfwmark = 1\ntable = 9\npriority = 1\n");
    let (code, out, err, path) = checked(&text, &[]);
    assert_eq!((code, out), (Some(0), format!("{path}: good: 1 tunnels, 1 routes, 2 policy rules\n")));
    assert!(err.starts_with(&format!("{path}:6:1: hint: routes with neither `device` nor `via`: 1 of 1")), "{err}");
    assert_eq!(err.lines().count(), 1);
    let (code, out, again, _) = checked(&text, &["--effective"]);
    assert_eq!(code, Some(0));
    assert!(again.contains(": hint: ") && !out.contains("hint"), "{out}");
    assert!(out.contains("apply = true\ntable = 254\nmode = \"metric\"\n"), "{out}");
    assert!(out.contains("[[rule]]\nfwmark = 0x1\ntable = 9\npriority = 1\nfamily = \"ipv6\"\n"), "{out}");
}

/// What the kernel would announce depends on the machine: the hint is there if the kernel says so.
#[test]
fn the_cost_of_announced_routes_is_hinted_at_where_this_kernel_announces_them() {
    let route = "[[route]]\nprefix = \"10.0.0.0/8\"\ntunnel = \"a\"\npriority = 1\ndevice = \"gre1\"\n";
    let announces = fs::read_to_string("/proc/sys/net/ipv4/nexthop_compat_mode").is_ok_and(|on| on.trim() == "1");
    let hint = |kernel: &str| checked(&format!("{route}[kernel]\napply = true\n{kernel}\n"), &[]).2;
    assert_eq!(hint("mode = \"metric\""), "");
    let keep = hint("mode = \"nexthop\"");
    assert_eq!(keep.contains("hint: net.ipv4.nexthop_compat_mode is 1: the kernel announces every route"), announces);
    let off = hint("mode = \"nexthop\"\nnexthop_notify_routes = \"off\"");
    assert_eq!(off.contains("hint: net.ipv4.nexthop_compat_mode is 1: `adit run` sets it to 0"), announces);
    let elsewhere = hint(
        "mode = \"nexthop\"\n[[route]]\nprefix = \"10.1.0.0/16\"\ntunnel = \"a\"\npriority = 1\n\
                          device = \"gre1\"\nnetns = \"no-such-namespace\"",
    );
    assert!(elsewhere.contains("nexthop_compat_mode in namespace no-such-namespace cannot be read"), "{elsewhere}");
}
