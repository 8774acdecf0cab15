//! Namespaces as routers: cables, addresses, forwarding; and what `ip` shows and does there.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use adit::io::{links, netns};
use serde_json::Value;

use crate::kit::await_cable;

/// Everything with our tag in a namespace.
pub(crate) fn ours_in(namespace: &File) -> Vec<String> {
    let lists = [
        "-4 -N route show table all proto 212",
        "-6 -N route show table all proto 212",
        "-4 -N rule show",
        "-6 -N rule show",
        "-N nexthop show proto 212",
    ];
    let mut lines: Vec<String> = Vec::new();
    for list in lists {
        let text = ip(namespace, list);
        let is_ours = |line: &&str| !list.contains("rule") || line.contains("proto 212");
        let told = |line: &str| format!("{} {}", &list[..2], line.trim_end());
        lines.extend(text.replace("\n\t", " ").lines().filter(is_ours).map(told));
    }
    lines.sort();
    lines
}

/// Everything that is not ours in a namespace, byte for byte.
pub(crate) fn others_in(namespace: &File) -> Vec<String> {
    let lists = ["-4 route show table all", "-6 route show table all", "-4 rule show", "-6 rule show", "nexthop show"];
    let list = |list: &&str| {
        let text = ip(namespace, &format!("-j -N -details {list}"));
        let entries: Vec<Value> =
            if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() };
        entries
            .into_iter()
            .filter(|entry| entry["protocol"] != "212")
            .map(|entry| entry.to_string())
            .collect::<Vec<_>>()
    };
    lists.iter().flat_map(list).collect()
}

/// That nothing of others has changed since.
pub(crate) fn assert_others_unchanged(namespace: &File, before: &[String], when: &str) {
    let now = others_in(namespace);
    let new: Vec<_> = now.iter().filter(|entry| !before.contains(entry)).collect();
    let gone: Vec<_> = before.iter().filter(|entry| !now.contains(entry)).collect();
    assert!(now == before, "{when}: new {new:#?}, gone {gone:#?}");
}

/// Runs `ip` in a namespace, and it must do as it is told.
pub(crate) fn ip(namespace: &File, arguments: &str) -> String {
    let output = netns::within(Some(namespace), || Command::new("ip").args(arguments.split(' ')).output()).unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs many commands of `ip` in a namespace.
pub(crate) fn batch(namespace: &File, lines: &str) {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = netns::within(Some(namespace), || command.spawn()).unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{lines}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A path to a namespace that other processes can open, too.
pub(crate) fn path_of(namespace: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd())
}

/// Makes a router of a new namespace: a namespace may begin as the machine is set, so all is said.
pub(crate) fn prepare(namespace: &File) {
    let settings = [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/all/keep_addr_on_down", "1"),
    ];
    let set = || settings.iter().try_for_each(|(name, value)| fs::write(format!("/proc/sys/net/{name}"), value));
    netns::within(Some(namespace), set).unwrap();
    ip(namespace, "link set lo up");
}

/// Lays every cable of the stage, and shows each router its ways, but for near.
pub(crate) fn lay_cables(near: &File, receiver: &File, sender: &File, fars: &[File; 2]) {
    netns::within(Some(sender), || links::connect("s0", "n0", near)).unwrap();
    set_up(sender, "s0", &["10.1.0.2/24", "fd00:1::2/64"]);
    set_up(near, "n0", &["10.1.0.1/24", "fd00:1::1/64"]);
    batch(sender, "route add default via 10.1.0.1\nroute add default via fd00:1::1\n");
    set_up(receiver, "lo", &["10.20.0.1/32", "2001:db8:20::1/128"]);
    for (path, far) in fars.iter().enumerate() {
        lay_path(near, far, path);
        let (here, there) = (format!("d{path}"), format!("e{path}"));
        netns::within(Some(far), || links::connect(&here, &there, receiver)).unwrap();
        set_up(far, &here, &[&format!("10.30.{path}.1/24"), &format!("fd00:30:{path}::1/64")]);
        set_up(receiver, &there, &[&format!("10.30.{path}.2/24"), &format!("fd00:30:{path}::2/64")]);
        batch(
            far,
            &format!("route add 10.20.0.0/16 via 10.30.{path}.2\nroute add 2001:db8:20::/48 via fd00:30:{path}::2\n"),
        );
        let ends = [
            [format!("10.30.{path}.1"), format!("10.30.{path}.2")],
            [format!("fd00:30:{path}::1"), format!("fd00:30:{path}::2")],
        ];
        ends.iter().for_each(|[here, there]| await_cable([(far, here), (receiver, there)]));
    }
    batch(receiver, "route add default via 10.30.0.1\nroute add default via fd00:30:0::1\n");
}

/// Lays the cable between near and the far router of a path.
pub(crate) fn lay_path(near: &File, far: &File, path: usize) {
    let (here, there) = (format!("t{path}"), format!("p{path}"));
    netns::within(Some(near), || links::connect(&here, &there, far)).unwrap();
    set_up(far, &there, &[&format!("10.100.{path}.1/31"), &format!("fd00:100:{path}::b/64")]);
    set_up(near, &here, &[&format!("10.100.{path}.0/31"), &format!("fd00:100:{path}::a/64")]);
    lead_back(far, path);
    let ends = [
        [format!("10.100.{path}.0"), format!("10.100.{path}.1")],
        [format!("fd00:100:{path}::a"), format!("fd00:100:{path}::b")],
    ];
    ends.iter().for_each(|[here, there]| await_cable([(near, here), (far, there)]));
}

/// Shows a far router the way to the sender.
pub(crate) fn lead_back(far: &File, path: usize) {
    batch(far, &format!("route add 10.1.0.0/24 via 10.100.{path}.0\nroute add fd00:1::/64 via fd00:100:{path}::a\n"));
}

fn set_up(namespace: &File, device: &str, addresses: &[&str]) {
    let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    links::configure(Some(namespace), device, &addresses).unwrap();
}
