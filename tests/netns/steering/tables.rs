//! Rules, tables of tenants, and namespaces: which packet looks where.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::time::Duration;

use adit::io::netns;
use nix::sys::signal::Signal;
use socket2::SockRef;

use super::net::{assert_others_unchanged, batch, others_in, ours_in, path_of};
use super::stage::{PREFIXES, SOON, Stage, configuration, route, tunnel};
use super::stream::{Receiver, Stream};
use crate::kit::{eventually, holds_within};
use crate::site::Running;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("steering::tables::what_a_rule_says_is_what_packets_do_until_it_is_taken_out", rules),
        case("steering::tables::each_tenant's_table_has_its_own_answer", tenants),
        case("steering::tables::routes_of_another_namespace_are_kept_there", elsewhere),
        case("steering::tables::a_namespace_out_of_sight_for_a_while_is_kept", out_of_sight),
    ]
}

/// Of what was said about the same prefix in two tables and by rules, what a packet does: the near router's
/// own packets, from an address and with a mark.
struct Tracer<'a> {
    stage: &'a Stage,
    receiver: Receiver,
}

impl<'a> Tracer<'a> {
    fn new(stage: &'a Stage) -> Self {
        Self { stage, receiver: Receiver::open(stage.receiver()) }
    }

    /// The path of a packet from this address, with this mark.
    fn path(&self, source: &str, mark: u32) -> usize {
        let to: SocketAddr =
            if source.contains(':') { "[2001:db8:20::1]:7000" } else { "10.20.0.1:7000" }.parse().unwrap();
        let socket = netns::within(Some(self.stage.near()), || UdpSocket::bind((source, 0))).unwrap();
        if mark != 0 {
            SockRef::from(&socket).set_mark(mark).unwrap();
        }
        let mut path = None;
        eventually("a packet that arrives", || {
            socket.send_to(&[0; 5], to).unwrap();
            path = self.receiver.next().map(|(_, path)| path);
            path.is_some()
        });
        // Whatever was sent more often than it was waited for.
        while self.receiver.next().is_some() {}
        path.unwrap()
    }
}

/// Addresses of the near router's own.
const SOURCES: &str = "address add 172.64.240.253/32 dev lo\naddress add 2001:db8:f0::1/128 dev lo nodad\n";
const RULES: &str = "[[rule]]\nsource = \"172.64.240.252/30\"\ntable = 100\npriority = 1000\n\
                     [[rule]]\nsource = \"2001:db8:f0::/64\"\ntable = 100\npriority = 1001\n\
                     [[rule]]\nfwmark = 7\ntable = 100\npriority = 1002\n";

fn rules() {
    let stage = Stage::new("mode = \"metric\"\n");
    let apart: String = PREFIXES.map(|prefix| route(prefix, 1, 100, "table = 100")).concat();
    let routes = format!("{}{apart}", stage.usual_routes());
    stage.configure("mode = \"metric\"\n", &format!("{routes}{RULES}"));
    batch(stage.near(), SOURCES);
    let foreign = ["from 198.18.0.0/15 lookup 77 priority 900", "fwmark 0x8 lookup 100 priority 1003 protocol static"];
    batch(stage.near(), &foreign.map(|rule| format!("rule add {rule}\n")).concat());
    // The kernel takes an IPv6 address in when it has time to.
    eventually("the address", || stage.ip("-6 route show table local").contains("2001:db8:f0::1"));
    let others = others_in(stage.near());
    let daemon = stage.healthy();
    let tracer = Tracer::new(&stage);
    assert_eq!([tracer.path("172.64.240.253", 0), tracer.path("2001:db8:f0::1", 0)], [1, 1], "by the rule's table");
    assert_eq!([tracer.path("10.1.0.1", 0), tracer.path("fd00:1::1", 0)], [0, 0], "by the main table");
    assert_eq!([tracer.path("10.1.0.1", 7), tracer.path("fd00:1::1", 7)], [1, 1], "by the mark");
    let ours = |line: &&String| line.contains("lookup");
    assert_eq!(stage.ours().iter().filter(ours).count(), 4, "{:#?}", stage.ours());
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    assert_eq!(tracer.path("172.64.240.253", 0), 1, "they stay");

    stage.configure("mode = \"metric\"\n", &routes);
    let _daemon = stage.healthy();
    assert!(holds_within(SOON, &mut || stage.ours().iter().filter(ours).count() == 0), "{:#?}", stage.ours());
    assert_eq!([tracer.path("172.64.240.253", 0), tracer.path("2001:db8:f0::1", 7)], [0, 0]);
    assert_others_unchanged(stage.near(), &others, "with rules and without");
}

fn tenants() {
    let stage = Stage::new("mode = \"nexthop\"\n");
    let table = |table: u32, [first, second]: [usize; 2]| {
        let more = format!("table = {table}");
        PREFIXES
            .map(|prefix| format!("{}{}", route(prefix, first, 100, &more), route(prefix, second, 200, &more)))
            .concat()
    };
    let rule = |table: u32| format!("[[rule]]\nfwmark = {table}\ntable = {table}\npriority = {table}\n");
    let text = [table(101, [0, 1]), table(102, [1, 0]), table(103, [0, 1]), rule(101), rule(102), rule(103)].concat();
    stage.configure("mode = \"nexthop\"\n", &text);
    let _daemon = stage.healthy();
    let tracer = Tracer::new(&stage);
    let paths = || [101, 102, 103].map(|mark| [tracer.path("10.1.0.1", mark), tracer.path("fd00:1::1", mark)]);
    assert_eq!(paths(), [[0, 0], [1, 1], [0, 0]]);
    stage.lose_all(0);
    stage.site.await_state("one", "down");
    stage.await_all_installed();
    eventually("one way for all", || paths() == [[1, 1]; 3]);
    stage.heal(0);
    stage.site.await_state("one", "healthy");
    eventually("each its own way", || paths() == [[0, 0], [1, 1], [0, 0]]);
}

/// The program runs where it has no route to keep.
fn elsewhere() {
    let stage = Stage::new("");
    let there = format!("netns = \"{}\"", path_of(stage.near()));
    let tunnels = [0, 1].map(|path| tunnel(path, &there)).concat();
    let routes =
        PREFIXES.map(|prefix| [route(prefix, 0, 100, &there), route(prefix, 1, 200, &there)].concat()).concat();
    let rule = format!("[[rule]]\nsource = \"172.64.240.252/30\"\ntable = 100\npriority = 1000\n{there}\n");
    stage.site.write("adit.conf", &configuration("on_exit = \"remove\"", &[tunnels, routes, rule].concat()));
    let daemon = Running::start(&stage.sender, &mut stage.site.command("run", "adit.conf"));
    eventually("an answer", || stage.site.adit(&["status"]).status.success());
    stage.await_health();
    assert_eq!(stage.ours().len(), 5, "{:#?}", stage.ours());
    assert_eq!(ours_in(&stage.sender), Vec::<String>::new());
    assert_eq!(stage.routes()[0]["netns"], path_of(stage.near()));
    let stream = Stream::start(&stage);
    stream.await_path(0);
    stage.site.say(&["drain", "one"]);
    stream.await_path(1);
    let wanted = stage.ours();
    stage.ip("-4 route flush table all proto 212");
    stage.await_ours(&wanted, "a flush over there");
    stage.await_event("kernel_drift", &["10.20.0.0/16", "is gone", &path_of(stage.near())]);
    drop(stream);
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    assert_eq!(stage.ours(), Vec::<String>::new());
}

/// Its name leads in a circle for a while; it is still there.
fn out_of_sight() {
    let stage = Stage::new("");
    let (name, other) = (stage.site.path("there"), stage.site.path("circle"));
    symlink(path_of(stage.near()), &name).unwrap();
    let there = format!("netns = {name:?}");
    let tunnels = [0, 1].map(|path| tunnel(path, &there)).concat();
    let routes = [route(PREFIXES[0], 0, 100, &there), route(PREFIXES[0], 1, 200, &there)].concat();
    stage.site.write("adit.conf", &configuration("on_exit = \"remove\"", &[tunnels, routes].concat()));
    let daemon = Running::start(&stage.sender, &mut stage.site.command("run", "adit.conf"));
    eventually("an answer", || stage.site.adit(&["status"]).status.success());
    stage.await_health();
    let wanted = stage.ours();
    assert_eq!(wanted.len(), 2);
    symlink(&name, &other).unwrap();
    fs::rename(&other, &name).unwrap();
    assert!(fs::metadata(&name).is_err());
    for _ in 0..3 {
        // It is looked for once a second.
        std::thread::sleep(Duration::from_millis(900));
        stage.ip("-4 route flush table all proto 212");
        stage.await_ours(&wanted, "a flush out of sight");
    }
    symlink(path_of(stage.near()), &other).unwrap();
    fs::rename(&other, &name).unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    stage.ip("-4 route flush table all proto 212");
    stage.await_ours(&wanted, "a flush in sight again");
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    assert_eq!(stage.ours(), Vec::<String>::new());
}
