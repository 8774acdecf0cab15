//! `adit discover` on devices that this kernel is likely to have. Those of GRE and IPsec are in the lab's
//! trials.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use adit::io::netns;

use crate::kit::Pair;
use crate::site::{NOBODY, adit};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("discover::what_is_printed_loads_as_it_is", what_is_printed_loads_as_it_is).with_tun(),
        case("discover::nobody_needs_root_but_for_another_namespace", nobody_needs_root).with_tun(),
        case("discover::where_there_is_no_tunnel_that_is_said", where_there_is_no_tunnel).with_tun(),
        case("discover::a_namespace_that_is_none_is_named", a_namespace_that_is_none),
    ]
}

/// Runs a shell script in a namespace.
fn run(namespace: &File, script: &str) -> io::Result<String> {
    let output = netns::within(Some(namespace), || Command::new("sh").args(["-ec", script]).output())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn said(namespace: &File, command: &mut Command) -> Said {
    let output = netns::within(Some(namespace), || command.output()).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A namespace with two tunnels, one of them numbered like a network, and routes of several tables.
const TUNNELS: &str = "
ip tuntap add tun1 mode tun; ip addr add 10.9.0.0/31 dev tun1; ip addr add fd00:9::/127 dev tun1 nodad
ip tuntap add tun2 mode tun; ip addr add 10.8.0.1/24 dev tun2
ip tuntap add tun3 mode tun; ip addr add 10.7.0.1 peer 10.7.0.9 dev tun3
ip tuntap add tap9 mode tap; ip addr add 10.6.0.0/31 dev tap9
for device in tun1 tun2 tap9; do ip link set $device up; done
ip route add 10.20.0.0/16 dev tun1; ip route add 10.20.0.0/16 via 10.8.0.7 dev tun2 metric 90
ip route add 10.30.0.0/16 dev tun1 metric 7 table 100
ip -6 route add fd01::/64 via fd00:9::1 dev tun1
ip route add 10.40.0.0/16 via 10.8.0.7 proto 212 metric 1000040
ip route add 0.0.0.0/0 dev tap9
";

fn what_is_printed_loads_as_it_is() {
    let pair = Pair::new();
    run(&pair.near, TUNNELS).unwrap();
    let here = said(&pair.near, Command::new(adit()).arg("discover"));
    assert_eq!((here.code, here.err.as_str()), (Some(0), ""), "{}", here.out);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("adit.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        said(&pair.near, Command::new(adit()).args(["check", "--effective", "--config"]).arg(&file))
    };
    let checked = check(&here.out);
    assert_eq!(checked.code, Some(0), "{}{}", checked.err, here.out);
    for expected in [
        "interface_address = \"10.9.0.0/31\"\ndevice = \"tun1\"",
        "interface_address = \"10.8.0.1/31\"\ndevice = \"tun2\"",
        "target = \"10.8.0.7\"",
        "prefix = \"10.20.0.0/16\"\ntunnel = \"tun1\"\npriority = 100\n",
        "prefix = \"10.20.0.0/16\"\ntunnel = \"tun2\"\npriority = 200\n",
        "prefix = \"10.30.0.0/16\"\ntunnel = \"tun1\"\npriority = 7\n",
        "prefix = \"10.40.0.0/16\"\ntunnel = \"tun2\"\npriority = 40\n",
        "prefix = \"fd01::/64\"\ntunnel = \"tun1\"\npriority = 1024\n",
    ] {
        assert!(checked.out.contains(expected), "not there: {expected}\n{}", checked.out);
    }
    assert_eq!(checked.out.matches("[[tunnel]]").count(), 2, "{}", here.out);
    assert_eq!(checked.out.matches("[[route]]").count(), 5, "{}", here.out);
    assert!(here.out.contains("# Left out: tun3, tun: it is down; set it up and ask again.\n"), "{}", here.out);
    assert!(here.out.contains("table = 100\n") && !here.out.contains("tap9"), "{}", here.out);

    // The same from outside, by the file of the namespace.
    let path = format!("/proc/{}/fd/{}", std::process::id(), pair.near.as_raw_fd());
    let there = said(&pair.far, Command::new(adit()).args(["discover", "--netns", &path]));
    let netns = format!("netns = \"{path}\"\n");
    assert_eq!((there.code, there.out.matches(&netns).count()), (Some(0), 2), "{}{}", there.err, there.out);
    let without = there.out.replace(&netns, "").replace(&format!(" in the network namespace {path}"), "");
    assert_eq!(without, here.out);
    assert_eq!(check(&there.out).code, Some(0));
}

fn nobody_needs_root() {
    let pair = Pair::new();
    run(&pair.near, TUNNELS).unwrap();
    // Where it was built may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("adit");
    assert!(Command::new("cp").arg(adit()).arg(&program).status().unwrap().success());
    let by = |user: u32, arguments: &[&str]| {
        said(&pair.near, Command::new(&program).args(arguments).current_dir("/").uid(user).gid(user))
    };
    let [root, nobody] = [0, NOBODY].map(|user| by(user, &["discover"]));
    assert_eq!((nobody.code, &nobody.out), (Some(0), &root.out), "{}", nobody.err);
    let refused = by(NOBODY, &["discover", "--netns", "/proc/self/ns/net"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(77), ""), "{}", refused.err);
    assert!(refused.err.contains("/proc/self/ns/net") && refused.err.contains("CAP_SYS_ADMIN"), "{}", refused.err);
}

fn where_there_is_no_tunnel() {
    let pair = Pair::new();
    let nothing = said(&pair.near, Command::new(adit()).arg("discover"));
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(1), ""), "{}", nothing.err);
    assert!(nothing.err.contains("the kernel has no tunnel device here"), "{}", nothing.err);
    run(&pair.near, "ip tuntap add tun1 mode tun").unwrap();
    let unfit = said(&pair.near, Command::new(adit()).arg("discover"));
    assert_eq!(unfit.code, Some(1), "{}", unfit.out);
    assert!(unfit.out.contains("# Left out: tun1, tun: it is down"), "{}", unfit.out);
    assert!(unfit.err.contains("none of the kernel's 1 tunnel devices here can be probed"), "{}", unfit.err);
}

fn a_namespace_that_is_none() {
    let pair = Pair::new();
    let unknown = said(&pair.near, Command::new(adit()).args(["discover", "--netns", "no-such-namespace"]));
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(2), ""), "{}", unknown.err);
    assert!(unknown.err.contains("there is no network namespace no-such-namespace"), "{}", unknown.err);
    let strange = said(&pair.near, Command::new(adit()).args(["discover", "--netns", "blue/1"]));
    assert_eq!(strange.code, Some(2), "{}", strange.err);
    assert!(strange.err.contains("neither a name nor an absolute path"), "{}", strange.err);
    let no_file = said(&pair.near, Command::new(adit()).args(["discover", "--netns", "/dev/null"]));
    assert_eq!((no_file.code, no_file.out.as_str()), (Some(74), ""), "{}", no_file.err);
    assert!(no_file.err.contains("/dev/null") && !no_file.err.contains("CAP_SYS_ADMIN"), "{}", no_file.err);
}
