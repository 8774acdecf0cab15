//! A dry run: what it prints is what a shell does, whatever devices and namespaces are called; and where
//! nobody reads it, nothing comes of that.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use adit::io::netns;
use nix::sys::signal::Signal;

use super::net::{ip, path_of};
use super::stage::{MODES, PREFIXES, Stage, configuration, route, tunnel};
use crate::kills::now;
use crate::kit::{eventually, ms};
use crate::site::Running;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    let shells = MODES.map(|mode| {
        let name = "steering::dry::a_shell_makes_of_what_is_printed_just_what_a_run_makes, in_mode";
        case(format!("{name}_{mode}"), move || shell(mode))
    });
    let more = [
        case("steering::dry::the_name_of_a_namespace_is_quoted_for_a_shell", elsewhere),
        case("steering::dry::a_reader_who_has_gone_costs_nothing_and_is_no_drift", no_reader),
    ];
    shells.into_iter().chain(more).collect()
}

/// Devices whose names a shell would act on: it would make files of these names.
const ODD: [&str; 2] = ["a;>harm", "x$(>harm2)"];
const QUOTED: [&str; 2] = ["'a;>harm'", "'x$(>harm2)'"];

/// A veth over which nothing comes, with both ends here.
fn lay_odd(stage: &Stage) {
    let [one, other] = ODD;
    stage.ip(&format!("link add {one} type veth peer name {other}"));
    for (number, device) in ODD.iter().enumerate() {
        stage.ip(&format!("link set {device} up"));
        stage.ip(&format!("address add 10.66.{number}.1/24 dev {device}"));
        stage.ip(&format!("address add fd00:66:{number}::1/64 dev {device} nodad"));
    }
}

/// Both prefixes over the second device of an odd name, besides the usual paths: in a table of their own.
fn odd_routes() -> String {
    let over = |prefix: &str| {
        let via = if prefix.contains(':') { "fd00:66:1::2" } else { "10.66.1.2" };
        let tunnel = "tunnel = \"two\"\npriority = 300\ntable = 100";
        format!("[[route]]\nprefix = \"{prefix}\"\n{tunnel}\ndevice = \"{}\"\nvia = \"{via}\"\n", ODD[1])
    };
    PREFIXES.map(over).concat()
}

/// What a dry run says until all is said.
fn said(stage: &Stage, namespace: &File, is_all: impl Fn(&str) -> bool) -> String {
    let mut command = stage.site.command("run", "adit.conf");
    command.arg("--dry-run").stdout(File::create(stage.site.path("said")).unwrap());
    let daemon = Running::start(namespace, &mut command);
    eventually("all that is to be said", || is_all(&stage.site.read("said")));
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    stage.site.read("said")
}

/// Has a shell do what was printed, which it must do without a fault, and nothing else.
fn run_all(stage: &Stage, namespace: &File, said: &str) {
    let folder = stage.site.path("shell");
    fs::create_dir(&folder).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-euc", said]).current_dir(&folder).stdin(Stdio::null());
    let output = netns::within(Some(namespace), || shell.output()).unwrap();
    assert!(output.status.success(), "{said}: {}", String::from_utf8_lossy(&output.stderr));
    let made: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(made.is_empty(), "a name was run: {made:?}");
}

fn shell(mode: &str) {
    let kernel = format!("mode = \"{mode}\"\n");
    let stage = Stage::new(&kernel);
    stage.make_patient();
    let patient = stage.site.read("adit.conf");
    stage.site.write("adit.conf", &format!("{patient}{}", odd_routes()));
    lay_odd(&stage);
    // No configuration names these devices.
    let strays = [format!("10.77.0.0/16 dev {}", ODD[0]), "10.78.0.0/16 via 10.1.0.2 dev n0".to_owned()];
    strays.iter().for_each(|stray| drop(stage.ip(&format!("route add {stray} proto 212"))));
    let before = stage.ours();
    let said = said(&stage, stage.near(), |said| ["10.77.0.0/16", "10.78.0.0/16"].iter().all(|one| said.contains(one)));
    assert_eq!(stage.ours(), before, "nothing is changed");
    println!("{mode}: {said}");
    assert!(!said.contains('#'), "a device by its number: {said}");
    let line = |words: [&str; 2]| said.lines().any(|line| words.iter().all(|words| line.contains(words)));
    for words in [["route del 10.77.0.0/16", QUOTED[0]], ["route del 10.78.0.0/16", "dev n0"], [" add ", QUOTED[1]]] {
        assert!(line(words), "no line with {words:?}: {said}");
    }
    run_all(&stage, stage.near(), &said);
    let by_hand = stage.ours();
    let _daemon = stage.healthy();
    assert_eq!(stage.ours(), by_hand, "{said}");
    assert!(stage.events("kernel_drift").is_empty());
}

/// From another namespace than the one that is steered, which has a name that a shell would act on.
fn elsewhere() {
    let stage = Stage::new("");
    let name = stage.site.path("a;>harm b");
    symlink(path_of(stage.near()), &name).unwrap();
    let there = format!("netns = \"{}\"", name.display());
    let tunnels = [0, 1].map(|path| tunnel(path, &there)).concat();
    let routes =
        PREFIXES.map(|prefix| [route(prefix, 0, 100, &there), route(prefix, 1, 200, &there)].concat()).concat();
    stage.site.write("adit.conf", &configuration("", &[tunnels, routes].concat()));
    let said = said(&stage, &stage.sender, |said| said.matches("metric").count() >= 4);
    println!("{said}");
    let quoted = format!("--net='{}' ip ", name.display());
    assert!(said.lines().all(|line| line.contains(&quoted)), "{said}");
    run_all(&stage, &stage.sender, &said);
    assert_eq!(stage.ours().len(), 4, "{:#?}", stage.ours());
    assert!(!ip(&stage.sender, "route show").contains("proto 212"));
}

/// The processor's time that a process has had, in ticks of 10 ms: fields 14 and 15 of proc_pid_stat(5).
fn ticks(daemon: &Running) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", daemon.child.id())).unwrap();
    let (_, rest) = text.rsplit_once(')').unwrap();
    rest.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// How often the thread that keeps routes has gone to sleep.
fn sleeps(daemon: &Running) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let texts = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap());
    let text = texts.into_iter().find(|text| text.starts_with("Name:\troutes\n")).unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// Who reads goes after the first lines; then there is more to be said.
fn no_reader() {
    let stage = Stage::new("mode = \"metric\"\n");
    stage.make_patient();
    let mut command = stage.site.command("run", "adit.conf");
    command.arg("--dry-run").stdout(Stdio::piped());
    let mut daemon = Running::start(stage.near(), &mut command);
    let mut lines = BufReader::new(daemon.child.stdout.take().unwrap()).lines();
    let all = (0..4).map(|_| lines.next().unwrap().unwrap()).collect::<Vec<_>>();
    assert!(all.iter().all(|line| line.starts_with("ip route add ")), "{all:#?}");
    drop(lines);
    ["one", "two"].iter().for_each(|name| stage.site.await_state(name, "healthy"));
    stage.site.say(&["drain", "one"]);
    let (begin, before, slept) = (now(), ticks(&daemon), sleeps(&daemon));
    std::thread::sleep(ms(2_000));
    let (took, spent, slept) = (begin.elapsed(), ticks(&daemon) - before, sleeps(&daemon) - slept);
    println!("{spent} ticks and {slept} sleeps in {took:?}");
    assert!(u128::from(spent) * 40 < took.as_millis(), "{spent} ticks of 10 ms in {took:?}: it spins");
    assert!(slept < 25, "it tries again {slept} times in {took:?}");
    assert!(stage.events("kernel_drift").is_empty(), "{:#?}", stage.events("kernel_drift"));
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}
