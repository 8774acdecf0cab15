//! The Debian package: made as `packaging/deb/build.sh` makes it, looked at by lintian, and installed, upgraded,
//! removed and purged on a machine that a real systemd runs (`tests/service/boot.sh`).
//!
//! It holds the program of the debug build, or that of `ADIT_PACKAGE_BINARY`. Where it cannot be made or
//! installed, the trials are counted as ignored, or fail if `ADIT_REQUIRE_PACKAGE` is set, as `.ci/run` does.

#![expect(clippy::unwrap_used, reason = "a trial that cannot go on must fail")]

#[path = "../service/machine.rs"]
mod machine;
#[path = "../service/plan.rs"]
mod plan;
#[path = "../shown/mod.rs"]
mod shown;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use machine::{Machine, eventually, lacking};
use serde_json::Value;

/// Two tunnels, and a window that is longer than the trial's steps.
fn configuration() -> String {
    plan::usual().replace("degraded_window = \"4s\"", "degraded_window = \"2m\"")
}

const HEALTHY: &str = "2 healthy, 0 degraded, 0 down; 0 routes penalised";
/// What the trials make, first and later version.
const VERSIONS: [&str; 2] = ["0.1.0-1", "0.1.1-1"];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let lacking = lacking().or_else(tools);
    let required = std::env::var_os("ADIT_REQUIRE_PACKAGE").is_some();
    if let Some(why) = &lacking {
        println!("package: {}: {why}", if required { "FAILS" } else { "SKIPPED" });
    }
    let ignored = lacking.is_some() && !required;
    let trial = Trial::test("it_is_in_order_and_keeps_what_was_known_from_install_to_purge", move || match lacking {
        Some(why) => Err(Failed::from(why)),
        None => {
            from_install_to_purge();
            Ok(())
        }
    });
    libtest_mimic::run(&arguments, vec![trial.with_ignored_flag(ignored)]).exit_code()
}

/// What is missing to make the package, and to look at it.
fn tools() -> Option<String> {
    let missing =
        [("cargo-deb", "--version"), ("lintian", "--version"), ("dpkg-deb", "--version"), ("man", "--version")]
            .into_iter()
            .find(|(tool, ask)| Command::new(tool).arg(ask).output().is_err());
    missing.map(|(tool, _)| match tool {
        "cargo-deb" => "cargo-deb is missing: cargo install --locked cargo-deb".to_owned(),
        "man" => "man is missing: apt install man-db".to_owned(),
        _ => format!("{tool} is missing: apt install {tool}"),
    })
}

/// Makes the package of a version.
fn build(version: &str, folder: &Path) -> PathBuf {
    let binary = std::env::var_os("ADIT_PACKAGE_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_adit").into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/deb/build.sh");
    let mut command = Command::new(script);
    command.args(["--fast", "--version", version, "--binary"]).arg(binary).arg(folder);
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

fn lint(package: &Path) {
    let mut command = Command::new("lintian");
    command.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]).arg(package);
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success() && text.is_empty(), "{text}{}", String::from_utf8_lossy(&said.stderr));
}

fn from_install_to_purge() {
    let folder = tempfile::tempdir().unwrap();
    let packages = VERSIONS.map(|version| build(version, folder.path()));
    lint(&packages[0]);
    let machine = Machine::without_adit();
    // A container's image may forbid that packages start anything, and leave their documents out.
    machine.say(&["rm", "-f", "/usr/sbin/policy-rc.d", "/etc/dpkg/dpkg.cfg.d/docker"]);
    for (package, version) in packages.iter().zip(VERSIONS) {
        machine.copy(package, &format!("root/{version}.deb"));
    }
    let before = ours(&machine);
    installed(&machine);
    begun(&machine);
    configured(&machine);
    upgraded(&machine);
    stopped(&machine);
    removed(&machine);
    purged(&machine, &before);
}

fn dpkg(machine: &Machine, arguments: &[&str]) {
    machine.say(&[&["env", "DEBIAN_FRONTEND=noninteractive", "dpkg"], arguments].concat());
}

fn install(machine: &Machine, version: &str) {
    dpkg(machine, &["--install", &format!("/root/{version}.deb")]);
}

/// A fresh installation runs, as its own user, and has its manual.
fn installed(machine: &Machine) {
    install(machine, VERSIONS[0]);
    let state = ["ActiveState", "UnitFileState", "Result"].map(|name| machine.property(name));
    assert_eq!(state, ["active", "enabled", "success"].map(str::to_owned), "{}", machine.journal());
    let user = machine.say(&["id", "--user", "adit"]);
    let steward = machine.property("MainPID");
    assert_eq!(machine.say(&["stat", "--format=%u", &format!("/proc/{steward}")]), user);
    assert_eq!(machine.say(&["stat", "--format=%U:%G %a", "/run/adit/adit.sock"]).trim(), "adit:adit 660");
    assert_eq!(machine.say(&["stat", "--format=%U:%G %a", "/etc/adit/keys"]).trim(), "root:root 700");
    machine.say(&["adit", "check"]);
    for page in ["adit", "adit-run", "adit.toml"] {
        assert!(machine.say(&["man", "--pager=cat", page]).contains("adit"), "{page}");
    }
    machine.say(&["ip", "route", "add", "192.0.2.0/24", "dev", "near0", "proto", "adit"]);
    machine.say(&["ip", "route", "delete", "192.0.2.0/24"]);
    assert_eq!(machine.say(&["journalctl", "--update-catalog"]), "");
    let catalog = machine.say(&["journalctl", "--dump-catalog", "c5a9fa17f8e743a1a1d98ee7a4c05c2c"]);
    assert!(catalog.contains("adit has started"), "{catalog}");
    assert!(machine.say(&["journalctl", "-u", "adit"]).contains("started tunnels=0"), "{}", machine.journal());
}

/// What docs/install.md has one do first, with a tunnel device that is there and a user of that name.
fn begun(machine: &Machine) {
    const TUNNEL: &str = "mkdir -p /dev/net; mknod /dev/net/tun c 10 200
        ip tuntap add tun0 mode tun; ip link set tun0 up; ip addr add 10.77.0.0/31 dev tun0";
    machine.say(&["useradd", "alice"]);
    machine.say(&["sh", "-ec", TUNNEL]);
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/install.md")).unwrap();
    let mut run = 0;
    for step in shown::steps(&page).unwrap() {
        if let shown::Step::Run { place, script } = step {
            assert_eq!(place, "machine");
            machine.say(&["sh", "-ec", &script]);
            run += 1;
        }
    }
    assert_eq!(run, 1);
    // As the page says of her.
    machine.say(&["setpriv", "--reuid=alice", "--regid=alice", "--init-groups", "adit", "status"]);
    machine.say(&["ip", "link", "delete", "tun0"]);
    machine.say(&["userdel", "alice"]);
}

/// Two tunnels, of which one is drained.
fn configured(machine: &Machine) {
    machine.write("etc/adit/adit.toml", &configuration());
    machine.say(&["systemctl", "reload", "adit"]);
    machine.await_property("StatusText", HEALTHY);
    machine.say(&["adit", "drain", "path1"]);
    eventually("a window of some length", || (samples(machine) > 60).then_some(()));
}

/// How many samples the window of the first tunnel has.
fn samples(machine: &Machine) -> u64 {
    status(machine, "path0")["window"]["samples"].as_u64().unwrap()
}

fn status(machine: &Machine, tunnel: &str) -> Value {
    serde_json::from_str(&machine.say(&["adit", "status", tunnel, "--json"])).unwrap()
}

/// What of [`status`] outlives a restart.
fn lasting(machine: &Machine, tunnel: &str) -> [Value; 4] {
    let status = status(machine, tunnel);
    ["state", "since", "drained", "penalty"].map(|name| status[name].clone())
}

fn routes(machine: &Machine) -> String {
    machine.say(&["ip", "route", "show", "proto", "212"])
}

/// What has happened since the daemon began, but for that, and for the numbers that an earlier run told.
fn happened(machine: &Machine) -> Vec<String> {
    let events = machine.say(&["adit", "events", "--json"]);
    let told = events.lines().filter(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["kind"] != "start" && event["kind"] != "gap"
    });
    told.map(str::to_owned).collect()
}

/// A route of nobody's, which shows that changes of routes are heard.
const MARKER: &str = "192.0.2.0/24";

/// An upgrade restarts the daemon, and that is all: no transition, no route gone, nothing forgotten.
fn upgraded(machine: &Machine) {
    let known = || ["path0", "path1"].map(|tunnel| lasting(machine, tunnel));
    let (before, window, way, steward) = (known(), samples(machine), routes(machine), machine.property("MainPID"));
    assert_eq!(way.lines().count(), 2, "{way}");
    machine.say(&[
        "systemd-run",
        "--unit=watch",
        "--property=StandardOutput=file:/root/routes",
        "ip",
        "monitor",
        "route",
    ]);
    let heard = |what: &str| machine.say(&["cat", "/root/routes"]).contains(what);
    eventually("ip monitor tells of routes", || {
        machine.say(&["ip", "route", "replace", MARKER, "dev", "near0"]);
        heard(MARKER).then_some(())
    });
    install(machine, VERSIONS[1]);
    assert!(samples(machine) >= window, "{} of {window} samples are left", samples(machine));
    assert_ne!(machine.property("MainPID"), steward, "it runs the new program");
    assert_eq!(machine.say(&["dpkg-query", "--show", "--showformat=${Version}", "adit"]), VERSIONS[1]);
    machine.await_property("StatusText", &HEALTHY.replace("0 routes", "1 route"));
    // As long as it takes to judge anew, if it had to.
    sleep(Duration::from_secs(2));
    assert_eq!(known(), before);
    assert_eq!(happened(machine), Vec::<String>::new(), "{}", machine.journal());
    assert_eq!(routes(machine), way);
    machine.say(&["ip", "route", "del", MARKER]);
    eventually("it still does", || heard("Deleted").then_some(()));
    let seen = machine.say(&["cat", "/root/routes"]);
    assert!(!seen.contains("10.20.0.0/16"), "routes were touched:\n{seen}");
    machine.say(&["systemctl", "stop", "watch"]);
    assert_eq!(machine.say(&["cat", "/etc/adit/adit.toml"]), configuration(), "the operator's file");
    assert_eq!(machine.property("NRestarts"), "0");
}

/// What an operator has stopped, no upgrade starts.
fn stopped(machine: &Machine) {
    machine.say(&["systemctl", "stop", "adit"]);
    install(machine, VERSIONS[1]);
    assert_eq!(machine.property("ActiveState"), "inactive");
    machine.say(&["systemctl", "start", "adit"]);
}

/// A removal leaves the configuration and what was known, and an installation goes on from there.
fn removed(machine: &Machine) {
    let (way, before) = (routes(machine), lasting(machine, "path0"));
    dpkg(machine, &["--remove", "adit"]);
    assert!(!machine.run(&["pgrep", "--exact", "adit"]).status.success(), "it still runs");
    assert_eq!(routes(machine), way, "on_exit = \"keep\"");
    install(machine, VERSIONS[1]);
    assert_eq!(machine.property("ActiveState"), "active", "{}", machine.journal());
    assert_eq!(lasting(machine, "path0"), before);
    assert_eq!(routes(machine), way);
}

/// A purge leaves nothing but the user.
fn purged(machine: &Machine, before: &[String]) {
    dpkg(machine, &["--purge", "adit"]);
    assert_eq!(ours(machine), before);
    assert!(machine.run(&["id", "adit"]).status.success(), "a user stays, as what it has written may");
}

/// Whatever bears our name in the file system.
fn ours(machine: &Machine) -> Vec<String> {
    // What the reader of the manual keeps is his.
    let script = "find /etc /usr /var /run -iname '*adit*' -not -path '/var/cache/man/*'";
    let found = machine.run(&["sh", "-c", script]);
    let mut found: Vec<_> = String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect();
    found.sort();
    found
}
