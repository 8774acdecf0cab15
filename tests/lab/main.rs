//! adit against a far end that is a real Linux kernel with GRE devices.
//!
//! Where this kernel has GRE, the tests run right here (as root); where it has not, this very
//! program is run again inside a guest kernel (`guest.sh`). Where neither is possible, one test says
//! so and is counted as ignored, or fails if `ADIT_REQUIRE_LAB` is set, as `.ci/run` does.

mod arrival;
mod associations;
mod kernel_io;
mod kinds;
mod router;
mod two;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};
use std::time::Duration;

use adit::engine::State;
use libtest_mimic::{Arguments, Failed, Trial};
use nix::sched::{CloneFlags, unshare};
use router::{Case, Key, Lab, Setting, Style};

const GUEST: &str = "ADIT_LAB_GUEST";

fn main() {
    if std::env::var_os(associations::UNPRIVILEGED).is_some() {
        return associations::say_what_is_seen();
    }
    let arguments = Arguments::from_args();
    let in_guest = std::env::var_os(GUEST).is_some();
    if in_guest || kernel_has_gre() {
        println!("lab: {}", kernel());
        // One after the other: the lab is one router, and a guest may have one processor.
        let arguments = Arguments { test_threads: Some(1), ..arguments };
        libtest_mimic::run(&arguments, trials()).exit();
    }
    if arguments.list {
        libtest_mimic::run(&arguments, trials()).exit();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/guest.sh");
    // Asked first whether it can run at all, so that its own failure is told from the tests'.
    let able = Command::new(&script).args(["-t", "120", "--", "true"]).output();
    let reason = match able {
        Ok(output) if output.status.success() => {
            let error = Command::new(&script)
                .args(["-t", "600", "--", "env", &format!("{GUEST}=1")])
                .args(std::env::current_exe())
                .args(std::env::args_os().skip(1))
                .exec();
            eprintln!("lab: cannot run {}: {error}", script.display());
            exit(1);
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    println!("lab: SKIPPED: this kernel has no GRE, and there is no guest kernel: {reason}");
    let required = std::env::var_os("ADIT_REQUIRE_LAB").is_some();
    let skipped = Trial::test("the_lab_is_available", move || Err(Failed::from(reason)));
    libtest_mimic::run(&arguments, vec![skipped.with_ignored_flag(!required)]).exit();
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Whether a GRE device can be made here; tried on a thread in a namespace that ends with it.
fn kernel_has_gre() -> bool {
    std::thread::spawn(|| {
        let link = ["link", "add", "gre1", "type", "gre", "local", "192.0.2.1", "remote", "192.0.2.2"];
        unshare(CloneFlags::CLONE_NEWNET).is_ok()
            && Command::new("ip").args(link).output().is_ok_and(|output| output.status.success())
    })
    .join()
    .unwrap_or(false)
}

fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<(), Failed>| Trial::test(name, test);
    let mut trials = vec![
        trial("a_linux_router_answers_every_style_in_every_family_and_every_gre_variant", every_variant),
        trial("a_wrong_or_missing_key_is_a_failure", wrong_keys),
        trial("a_device_that_goes_down_is_found_and_so_is_its_return", device_down_and_up),
        trial("loss_in_the_kernel_degrades_and_does_not_break", netem_loss),
        trial("router_settings_fail_the_styles_that_the_specification_says", router_settings),
    ];
    trials.extend(kernel_io::trials());
    trials.extend(arrival::trials());
    trials.extend(associations::trials());
    trials
}

const STYLES: [Style; 4] = [
    Style { kind: "request", direction: "bidirectional" },
    Style { kind: "reply", direction: "bidirectional" },
    Style { kind: "request", direction: "unidirectional" },
    Style { kind: "reply", direction: "unidirectional" },
];

fn plain(style: Style) -> Case {
    Case { style, outer_v6: false, inner_v6: false, key: Key::None, checksum: false, sequence: false }
}

/// Four styles × inner × outer × {plain, key, checksum, sequence, all}. The answers of a
/// unidirectional probe are bare and in its inner family.
fn every_variant() -> Result<(), Failed> {
    let variants = [
        (Key::None, false, false),
        (Key::Same(4711), false, false),
        (Key::None, true, false),
        (Key::None, false, true),
        (Key::Same(4711), true, true),
    ];
    let mut cases = Vec::new();
    for style in STYLES {
        for (outer_v6, inner_v6) in [(false, false), (false, true), (true, false), (true, true)] {
            for (key, checksum, sequence) in variants {
                cases.push(Case { style, outer_v6, inner_v6, key, checksum, sequence });
            }
        }
    }
    let lab = Lab::new(&cases)?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    lab.none_rejected()
}

fn wrong_keys() -> Result<(), Failed> {
    let with = |key| Case { key, ..plain(STYLES[0]) };
    let v6 = |key| Case { outer_v6: true, ..with(key) };
    let cases = [Key::Differs(1, 2), Key::OnlyHere(1), Key::OnlyThere(2)];
    let cases: Vec<Case> = cases.into_iter().flat_map(|key| [with(key), v6(key)]).collect();
    let lab = Lab::new(&cases)?;
    lab.all_become(State::Down, Duration::from_secs(30))?;
    // The router says why; Linux limits how often, so not of every tunnel at once.
    lab.some_hint("it has no such tunnel", Duration::from_secs(20))
}

fn device_down_and_up() -> Result<(), Failed> {
    let lab = Lab::new(&STYLES.map(plain))?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    lab.router("for n in 1 2 3 4; do ip link set t$n down; done")?;
    lab.all_become(State::Down, Duration::from_secs(20))?;
    lab.router("for n in 1 2 3 4; do ip link set t$n up; done")?;
    lab.restore_after_link_up()?;
    lab.all_become(State::Degraded, Duration::from_secs(20))
}

fn netem_loss() -> Result<(), Failed> {
    let lab = Lab::new(&STYLES.map(plain))?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    lab.router("tc qdisc add dev wan root netem loss 20% limit 100000")?;
    lab.all_become(State::Degraded, Duration::from_secs(60))?;
    lab.router("tc qdisc replace dev wan root netem delay 30ms limit 100000")?;
    lab.rtt_reaches(Duration::from_millis(30), Duration::from_secs(20))
}

/// The table "What the far router must be set to" of the specification, one setting at a time.
fn router_settings() -> Result<(), Failed> {
    let [req_bi, rep_bi, req_uni, rep_uni] = [0, 1, 2, 3];
    let table = [
        ("accept_local=0", Setting::device("accept_local", 0, 1), vec![rep_bi, rep_uni]),
        ("ip_forward=0", Setting::global("ip_forward", 0, 1), vec![rep_bi, rep_uni]),
        ("rp_filter=1", Setting::device("rp_filter", 1, 0), vec![req_uni, rep_uni]),
        ("icmp_echo_ignore_all=1", Setting::global("icmp_echo_ignore_all", 1, 0), vec![req_bi, req_uni]),
    ];
    let lab = Lab::new(&STYLES.map(plain))?;
    lab.all_become(State::Healthy, Duration::from_secs(30))?;
    for (name, setting, fail) in table {
        lab.router(&setting.wrong)?;
        for style in 0..STYLES.len() {
            let result = if fail.contains(&style) { lab.becomes(style, State::Down) } else { lab.stays_up(style) };
            result.map_err(|failed| Failed::from(format!("{name}: {}", failed.message().unwrap_or_default())))?;
        }
        lab.router(&setting.right)?;
        lab.restore_after_link_up()?;
        (0..STYLES.len()).try_for_each(|style| lab.comes_back(style))?;
    }
    Ok(())
}
