//! Endpoints: addresses beyond the far routers, over real routes.

use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adit::io::netns;
use adit::wire::{Ends, icmp, payload};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::by_hand::{Injector, firewall, no_firewall};
use crate::kit::{FAR, NEAR, PATIENCE, Pair, eventually, holds_within, uninterrupted};
use crate::site::Site;
use crate::spaces::Name;
use crate::steering::net::ip;
use crate::steering::stage::{PREFIXES, Stage, TUNNELS, route};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("endpoints::over_a_path_that_dies_and_a_route_that_moves", over_a_route_that_moves).with_routers(),
        case("endpoints::a_host_that_is_silent_moves_no_route", a_host_that_is_silent_moves_no_route).with_routers(),
        case("endpoints::what_cannot_leave_is_said_and_no_verdict", what_cannot_leave_is_said),
        case("endpoints::a_forged_answer_is_not_counted", a_forged_answer_is_not_counted),
    ]
}

/// One that is asked as often as can be; the machine may be busy, so an answer has its time.
fn endpoint(name: &str, address: &str, more: &str) -> String {
    format!(
        "[[endpoint]]\nname = \"{name}\"\naddress = \"{address}\"\ninterval = \"1s\"\ntimeout = \"2s\"\n\
         count = 2\n{more}\n"
    )
}

/// What is beyond both paths, by family; the sender's network is what every router knows the way back to.
const SERVERS: [&str; 2] = ["server", "server6"];

fn servers() -> String {
    endpoint(SERVERS[0], "10.20.0.1", "source = \"10.1.0.1\"")
        + &endpoint(SERVERS[1], "2001:db8:20::1", "source = \"fd00:1::1\"")
}

fn view(site: &Site, name: &str) -> Value {
    serde_json::from_slice(&site.adit(&["endpoints", name, "--json"]).stdout).unwrap_or_default()
}

fn await_reach(site: &Site, name: &str, state: &str) -> Value {
    let mut last = Value::Null;
    let found = holds_within(PATIENCE, &mut || {
        last = view(site, name);
        last["state"] == state
    });
    assert!(found, "not {state}: {last:#}\n{}", site.read("adit.conf.log"));
    last
}

/// So many more of its probes are answered.
fn await_answers(site: &Site, name: &str, more: u64) {
    let received = || view(site, name)["counters"]["received"].as_u64().unwrap();
    let wanted = received() + more;
    eventually(&format!("{more} more answers of {name}"), || received() >= wanted);
}

/// From what to what endpoints went, by name.
fn told(site: &Site, name: &str) -> Vec<(String, String)> {
    let lines = site.say(&["events", "--json"]);
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = events.filter(|event| event["kind"] == "endpoint" && event["endpoint"] == name);
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    own.map(|event| (text(&event, "from"), text(&event, "to"))).collect()
}

fn exit_code(site: &Site, name: &str) -> Option<i32> {
    site.adit(&["endpoints", name]).status.code()
}

/// The path dies under the only route, and the endpoint with it; then there is another route.
fn over_a_route_that_moves() {
    let stage = Stage::new("");
    let over = |path: usize| PREFIXES.map(|prefix| route(prefix, path, 100 * (u32::try_from(path).unwrap() + 1), ""));
    stage.configure("", &format!("{}{}", over(0).concat(), servers()));
    let _daemon = stage.healthy();
    for (name, source) in SERVERS.iter().zip(["10.1.0.1", "fd00:1::1"]) {
        let seen = await_reach(&stage.site, name, "reachable");
        assert_eq!((&seen["route"]["tunnel"], &seen["source"]), (&TUNNELS[0].into(), &source.into()), "{seen:#}");
        assert_eq!(exit_code(&stage.site, name), Some(0));
    }
    let routes = stage.routes();
    let answered = view(&stage.site, "server")["counters"]["received"].as_u64().unwrap();

    stage.kill_path(0);
    for name in SERVERS {
        let lost = await_reach(&stage.site, name, "unreachable");
        assert_eq!(lost["last_failure"]["reason"], "timeout", "{lost:#}");
        assert_eq!(exit_code(&stage.site, name), Some(1));
    }
    stage.site.await_state(TUNNELS[0], "down");
    let ways = |routes: &[Value]| routes.iter().map(|route| route["tunnel"].clone()).collect::<Vec<_>>();
    assert_eq!(ways(&stage.routes()), ways(&routes), "the only way stays");

    // The dead path also drops what a neighbour has to say: answers come the other way, too, from now on.
    ip(stage.receiver(), "-4 route replace default via 10.30.1.1");
    ip(stage.receiver(), "-6 route replace default via fd00:30:1::1");
    // The other path gets its routes; what is known of the endpoints stays known.
    stage.configure("", &format!("{}{}{}", over(0).concat(), over(1).concat(), servers()));
    stage.site.say(&["reload"]);
    for name in SERVERS {
        let again = await_reach(&stage.site, name, "reachable");
        assert_eq!(again["route"]["tunnel"], TUNNELS[1], "{again:#}");
        assert!(again["loss_ratio"].as_f64().unwrap() > 0.0, "{again:#}");
        let changes = [("unknown", "reachable"), ("reachable", "unreachable"), ("unreachable", "reachable")];
        let seen = told(&stage.site, name);
        // At the start the routes may not have been there yet.
        assert!(seen.ends_with(&changes.map(|(from, to)| (from.to_owned(), to.to_owned()))[1..]), "{seen:?}");
    }
    assert!(view(&stage.site, "server")["counters"]["received"].as_u64().unwrap() > answered);
    let (_, _, metrics) = stage.site.http("GET", "/metrics");
    for line in ["adit_endpoint_reachable{endpoint=\"server\"} 1", "adit_endpoint_rtt_seconds{endpoint=\"server6\"} "] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

/// Only the server is silent: both paths carry everything.
fn a_host_that_is_silent_moves_no_route() {
    let stage = Stage::new("");
    let lost = endpoint("lost", "10.20.7.7", "source = \"10.1.0.1\"");
    stage.configure("", &format!("{}{}{lost}", stage.usual_routes(), servers()));
    stage.make_patient();
    let _daemon = stage.healthy();
    SERVERS.iter().for_each(|name| drop(await_reach(&stage.site, name, "reachable")));
    // Beyond the last router that knows a way the packet goes round and round.
    let lost = || view(&stage.site, "lost")["last_hint"]["reason"].as_str().unwrap_or_default().to_owned();
    eventually("a hint of a router", || lost().contains("says time exceeded"));
    let changes = || (stage.events("route"), stage.events("transition"), stage.routes(), stage.ours());
    let before = changes();
    firewall(stage.receiver(), "input", "icmp type echo-request drop\nicmpv6 type echo-request drop");
    SERVERS.iter().for_each(|name| drop(await_reach(&stage.site, name, "unreachable")));
    assert_eq!(changes(), before, "no tunnel is judged by an endpoint, and no route moves");
    no_firewall(stage.receiver());
    SERVERS.iter().for_each(|name| drop(await_reach(&stage.site, name, "reachable")));
    assert_eq!(changes(), before);
    // A route that moves for another reason takes the endpoint with it.
    stage.site.say(&["drain", TUNNELS[0]]);
    eventually("the other way", || view(&stage.site, "server")["route"]["tunnel"] == TUNNELS[1]);
    SERVERS.iter().for_each(|name| await_answers(&stage.site, name, 4));
}

/// A namespace that is missing, a network without a route, an address that is nobody's; and a reload.
fn what_cannot_leave_is_said() {
    let site = Site::new();
    let name = Name::new(&site);
    let there = endpoint("there", FAR[0], "");
    let blue = endpoint("blue", FAR[0], &format!("netns = \"{}\"", name.path.display()));
    let nowhere = endpoint("nowhere", "198.18.0.1", "");
    let foreign = endpoint("foreign", FAR[0], "source = \"192.0.2.77\"");
    site.make_patient();
    let tunnels = site.read("adit.conf");
    site.write("adit.conf", &format!("{tunnels}{there}{blue}{nowhere}{foreign}"));
    let (_daemon, _far) = site.healthy();
    await_reach(&site, "there", "reachable");
    for (name, words) in [
        ("blue", "is missing"),
        ("nowhere", "not sent: Network is unreachable"),
        ("foreign", "source 192.0.2.77: is it an address of this host?"),
    ] {
        let mut last = Value::Null;
        let is_said = holds_within(PATIENCE, &mut || {
            last = view(&site, name);
            last["state"] == "unknown" && last["reason"].as_str().unwrap_or_default().contains(words)
        });
        assert!(is_said, "{last:#}");
        assert_eq!((&last["window"]["samples"], exit_code(&site, name)), (&0.into(), Some(1)), "no sample");
    }
    let table = site.say(&["endpoints"]);
    assert_eq!(table.lines().count(), 5, "{table}");

    // The namespace comes, with a host of that address in it.
    let Pair { near, far } = Pair::new();
    name.set(&near);
    let found = await_reach(&site, "blue", "reachable");
    assert_eq!(found["source"], NEAR[0]);
    set_silent(&far, true);
    await_reach(&site, "blue", "unreachable");
    // With the far end of its cable the route there goes, too.
    drop(far);
    let cut_off = await_reach(&site, "blue", "unknown");
    assert_eq!(cut_off["reason"], "not sent: Network is unreachable");

    // One goes, one comes, one is as it was.
    let sent = view(&site, "there")["counters"]["sent"].as_u64().unwrap();
    site.write("adit.conf", &format!("{tunnels}{}{there}", endpoint("new", "2001:db8::11", "")));
    site.say(&["reload"]);
    let names = site.json(&["endpoints", "--json"]);
    let names: Vec<&str> =
        names["endpoints"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["new", "there"]);
    await_reach(&site, "new", "reachable");
    assert!(view(&site, "there")["counters"]["sent"].as_u64().unwrap() >= sent);
    let gone = site.adit(&["endpoints", "blue"]);
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(gone.status.code() == Some(2) && said.contains("there is no endpoint blue"), "{said}");
    crate::site::TUNNELS.iter().for_each(|name| site.await_state(name, "healthy"));
}

/// The host is silent, and somebody on the path answers in its place, who has seen the probe but not the key.
fn a_forged_answer_is_not_counted() {
    let site = Site::new();
    set_silent(&site.pair.far, true);
    let stop = Arc::new(AtomicBool::new(false));
    let forger = std::thread::spawn(forge(&site, Arc::clone(&stop)));
    site.write("adit.conf", &format!("{}{}", site.read("adit.conf"), endpoint("host", FAR[0], "")));
    let _daemon = site.daemon();
    let mut last = Value::Null;
    let is_seen_through = holds_within(PATIENCE, &mut || {
        last = view(&site, "host");
        last["state"] == "unreachable" && last["counters"]["forged"].as_u64() >= Some(4)
    });
    assert!(is_seen_through, "{last:#}");
    assert_eq!((&last["counters"]["received"], &last["last_reject"]["reason"]), (&0.into(), &"tag".into()));
    assert_eq!(told(&site, "host"), [("unknown".to_owned(), "unreachable".to_owned())]);
    stop.store(true, Ordering::Relaxed);
    forger.join().unwrap();
    set_silent(&site.pair.far, false);
    await_reach(&site, "host", "reachable");
}

/// Whether the kernel of a namespace answers no echo request over IPv4.
fn set_silent(namespace: &File, is_silent: bool) {
    let set = || fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", if is_silent { "1" } else { "0" });
    netns::within(Some(namespace), set).unwrap();
}

/// Answers every echo request in the far namespace, with a tag that is wrong.
fn forge(site: &Site, stop: Arc<AtomicBool>) -> impl FnOnce() + Send + 'static {
    const IP: usize = 20;
    let open = || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(1.into()))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        Ok(socket)
    };
    let socket = netns::within(Some(&site.pair.far), open).unwrap();
    let injector = Injector::open(&site.pair.far);
    move || {
        let mut bytes = vec![0; 2_048];
        while !stop.load(Ordering::Relaxed) {
            let Ok(length) = uninterrupted(|| (&socket).read(&mut bytes)) else { continue };
            let mut packet = bytes[..length].to_vec();
            if packet[IP] != 8 || !packet[IP + icmp::HEADER..].starts_with(&payload::MAGIC) {
                continue;
            }
            (0..4).for_each(|at| packet.swap(12 + at, 16 + at));
            packet[IP] = 0;
            packet[IP + icmp::HEADER + 41] ^= 1;
            let address = |at: usize| IpAddr::V4(Ipv4Addr::from(*packet[at..].first_chunk::<4>().unwrap()));
            let (from, to) = (address(12), address(16));
            icmp::seal(Ends::new(to, from).unwrap(), &mut packet[IP..]);
            injector.send(&[(to, packet)]);
        }
    }
}
