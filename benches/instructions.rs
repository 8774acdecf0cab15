//! How many instructions a probe costs: built, settled, judged. Unlike time they are the same on a busy machine, so that
//! the gate can hold them to a bound, a generous one: a compiler may do a little worse, and what has become dear is seen.
//!
//! `cargo bench --bench instructions` runs itself under callgrind (Debian package `valgrind`), once for each task.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on must fail")]

#[path = "loaded/mod.rs"]
mod loaded;
#[path = "../tests/sim/mod.rs"]
mod sim;

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::Duration;

use adit::engine::Time;
use adit::engine::health::{Health, Rules, State};
use adit::engine::window::Outcome;
use adit::wire::payload::{Fields, Secret};
use adit::wire::{Stamp, Template};
use loaded::Loaded;
use sim::{secret, tunnel};

/// A task: what is counted are these functions and all that they call.
struct Task {
    name: &'static str,
    functions: &'static [&'static str],
    /// Half as much again as it took when this was last set.
    bound: u64,
    /// Does it very often, and says how often.
    run: fn() -> u64,
}

const TASKS: [Task; 4] = [
    Task { name: "build", functions: &["build_one"], bound: 1_600, run: build },
    Task { name: "send", functions: &["handle_timeout", "poll_transmit", "handle_sent"], bound: 4_200, run: work },
    Task { name: "settle", functions: &["handle_datagram"], bound: 3_900, run: work },
    Task { name: "judge", functions: &["judge_one"], bound: 400, run: judge },
];
const TIMES: u64 = 10_000;
/// Tunnels of an engine at work.
const TUNNELS: u32 = 100;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, name] = &arguments[..]
        && word == "--run"
    {
        println!("{}", (TASKS.iter().find(|task| task.name == name).unwrap().run)());
        return ExitCode::SUCCESS;
    }
    println!("instructions for one probe");
    let mut code = ExitCode::SUCCESS;
    for task in TASKS {
        let (each, bound) = (counted(&task), task.bound);
        println!("{:8} {each:6}, at most {bound:6}", task.name);
        if each > bound {
            println!("it has become dearer: find out why, or set another bound in benches/instructions.rs");
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// How many instructions a task takes once.
fn counted(task: &Task) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.args(task.functions.iter().map(|function| format!("--toggle-collect=*{function}*")));
    let output = command.arg(std::env::current_exe().unwrap()).args(["--run", task.name]).output();
    let Ok(output) = output else { panic!("valgrind is missing: apt install valgrind") };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = told.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse::<u64>().ok());
    let times: Option<u64> = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    match (count, times) {
        (Some(count), Some(times)) if count > times => count / times,
        _ => panic!("callgrind has not counted {:?}: {told}", task.functions),
    }
}

fn build() -> u64 {
    let (template, secret, mut buffer) = (Template::new(&tunnel(0).onion), secret(), [0; 2048]);
    (0..TIMES).for_each(|sequence| _ = black_box(build_one(&template, &secret, sequence, &mut buffer)));
    TIMES
}

#[inline(never)]
fn build_one(template: &Template, secret: &Secret, sequence: u64, buffer: &mut [u8]) -> Option<usize> {
    let stamp = Stamp { fields: Fields { tunnel: 7, sequence, sent: sequence }, identifier: 1, ip_id: 1 };
    template.emit(&stamp, secret, None, buffer)
}

/// An engine probes: its windows are full, and every answer comes.
fn work() -> u64 {
    Loaded::new(TUNNELS).sent()
}

fn judge() -> u64 {
    let mut health = Health::starting_as(State::Healthy, Rules::default());
    (0..TIMES).for_each(|second| judge_one(&mut health, Time::from_nanos(second * 1_000_000_000)));
    TIMES
}

#[inline(never)]
fn judge_one(health: &mut Health, now: Time) {
    black_box(health.judge(now, Outcome::Success(Duration::from_millis(10))));
}
