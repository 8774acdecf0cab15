//! adit against a far end that is a real Linux kernel: its GRE devices, and its IPsec.
//!
//! Where this kernel has both, the tests run right here (as root); where it has not, this very
//! program is run again inside a guest kernel (`guest.sh`). Where neither is possible, one test says
//! so and is counted as ignored, or fails if `ADIT_REQUIRE_LAB` is set, as `.ci/run` does.

mod arrival;
mod associations;
mod conflict;
mod counters;
mod crash;
mod device;
mod diagnose;
mod discover;
mod encapsulation;
mod esp;
mod gre;
mod howto;
mod ipsec;
mod kernel_io;
#[path = "../kills/mod.rs"]
mod kills;
mod kinds;
mod router;
mod sequence;
#[path = "../shown/mod.rs"]
mod shown;
mod steer;
mod stream;
mod two;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};

use libtest_mimic::{Arguments, Failed, Trial};
use nix::sched::{CloneFlags, unshare};

const GUEST: &str = "ADIT_LAB_GUEST";
/// Seconds for all of it in a guest, on a machine that does other things beside it.
const LIMIT: &str = "3000";

fn main() {
    if std::env::var_os(associations::UNPRIVILEGED).is_some() {
        return associations::say_what_is_seen();
    }
    let arguments = Arguments::from_args();
    let in_guest = std::env::var_os(GUEST).is_some();
    if in_guest || kernel_has_both() {
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
                .args(["-t", LIMIT, "--", "env", &format!("{GUEST}=1")])
                .args(std::env::current_exe())
                .args(std::env::args_os().skip(1))
                .exec();
            eprintln!("lab: cannot run {}: {error}", script.display());
            exit(1);
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    println!("lab: SKIPPED: this kernel lacks GRE or IPsec, and there is no guest kernel: {reason}");
    let required = std::env::var_os("ADIT_REQUIRE_LAB").is_some();
    let skipped = Trial::test("the_lab_is_available", move || Err(Failed::from(reason)));
    libtest_mimic::run(&arguments, vec![skipped.with_ignored_flag(!required)]).exit();
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Whether a GRE device and a security association can be made here; tried on a thread in a namespace
/// that ends with it.
fn kernel_has_both() -> bool {
    const TRY: &str = "ip link add gre1 type gre local 192.0.2.1 remote 192.0.2.2
        ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel \
            aead 'rfc4106(gcm(aes))' 0x4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b 128";
    std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET).is_ok() && router::run(TRY).is_ok()).join().unwrap_or(false)
}

fn trials() -> Vec<Trial> {
    let mut trials = gre::trials();
    trials.extend(esp::trials());
    trials.extend(sequence::trials());
    trials.extend(kernel_io::trials());
    trials.extend(arrival::trials());
    trials.extend(associations::trials());
    trials.extend(conflict::trials());
    trials.extend(device::trials());
    trials.extend(diagnose::trials());
    trials.extend(discover::trials());
    trials.extend(steer::trials());
    trials.extend(howto::trials());
    trials.extend(crash::trials());
    trials
}
