//! What very many tunnels cost: the built program, real packets, and a far end next to free, in namespaces of their
//! own. `cargo bench --bench scale`, as root (the far end is a program in the kernel). Words behind `--` are numbers of
//! tunnels, and what to try instead of everything: `gre`, `esp`, `storm` (all fail at once), `blast` (users' packets in
//! the same tunnels), `peers` (other programs at the same work; only if asked for).
//!
//! On one machine the whole round trip is in these figures, the far end's part of it included. Beside each stands the
//! floor: the same packets by the same system calls, nothing checked, judged or remembered. That ratio travels.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod blast;
mod floor;
mod gauge;
mod peers;
mod router;
mod samples;
mod stage;
mod storm;
mod subject;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use gauge::Cost;
use stage::Stage;
use subject::{Subject, Wrapping};

/// Tunnels at a time, unless told otherwise.
const COUNTS: [u32; 4] = [100, 1_000, 10_000, 100_000];
/// What is on its way after the last first verdict is over after this.
const CALM: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(10);
/// More tunnels than this a far end out of the kernel does not answer in time, beside all else on a small machine.
const ROUTED: u32 = 10_000;
/// A recording of more samples a second than this would be what is measured.
const RECORDED: u32 = 10_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nothing more measured: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> io::Result<()> {
    let asked = |word: &str| words.iter().any(|asked| asked == word);
    let counts: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let counts = if counts.is_empty() { COUNTS.to_vec() } else { counts };
    let any = ["gre", "esp", "storm", "peers", "blast"].iter().any(|word| asked(word));
    let folder = tempfile::tempdir()?;
    let (stage, routed) = (Stage::new(folder.path())?, Stage::new(folder.path())?);
    routed.leave_to_router()?;
    println!("Linux {}; {} processors; one probe a second and tunnel", kernel(), processors());
    let few = || counts.iter().copied().filter(|&count| count <= ROUTED);
    if !any || asked("gre") {
        table(&stage, Wrapping::Gre, counts.iter().copied())?;
    }
    if !any || asked("esp") {
        table(&routed, Wrapping::RoutedGre, few())?;
        table(&routed, Wrapping::Esp, few())?;
    }
    if !any || asked("blast") {
        let tunnels = few().max().unwrap_or(ROUTED);
        blast::run(&stage, tunnels, Wrapping::Gre)?;
        blast::run(&routed, tunnels, Wrapping::Esp)?;
    }
    if asked("peers") {
        let counts = if counts == COUNTS { &COUNTS[..2] } else { &counts[..] };
        counts.iter().try_for_each(|&targets| peers::run(&stage, targets))?;
    }
    if !any || asked("storm") {
        counts.iter().try_for_each(|&tunnels| storm::run(&stage, tunnels))?;
    }
    Ok(())
}

fn table(stage: &Stage, wrapping: Wrapping, counts: impl Iterator<Item = u32>) -> io::Result<()> {
    // What the program itself takes.
    let base = memory_of(stage, 1, wrapping)?;
    println!("\n{}; {} with one tunnel", wrapping.name(), mib(base));
    println!("{HEADINGS}");
    counts.into_iter().try_for_each(|tunnels| measure(stage, tunnels, wrapping, base))
}

/// Above each table. CPU is in microseconds a round trip; `lost` counts samples and local faults.
const HEADINGS: &str = "tunnels  CPU  floor  ratio  user  % of a core  turns/s  lost  lag p50/p99 ms  bytes/tunnel  first \
                        verdicts s  late p50/p99 ms  RTT p50/p99 µs";

fn memory_of(stage: &Stage, tunnels: u32, wrapping: Wrapping) -> io::Result<u64> {
    let subject = Subject::start(stage, tunnels, wrapping, false)?;
    subject.await_all("healthy", tunnels)?;
    std::thread::sleep(CALM);
    both(&subject)
}

/// Of both processes.
fn both(subject: &Subject) -> io::Result<u64> {
    Ok(gauge::memory(subject.prober)? + gauge::memory(subject.steward())?)
}

fn measure(stage: &Stage, tunnels: u32, wrapping: Wrapping, base: u64) -> io::Result<()> {
    let subject = Subject::start(stage, tunnels, wrapping, false)?;
    let first = subject.await_all("healthy", tunnels)?;
    std::thread::sleep(CALM);
    // First of all: the text of so many metrics is long.
    let bytes = both(&subject)?.saturating_sub(base) / u64::from(tunnels);
    let before = subject.metrics()?;
    std::thread::sleep(CALM);
    let (cost_before, packets_before) = (cost(&subject)?, stage.packets()?);
    std::thread::sleep(MEASURED);
    let (cost, [received, _]) = (cost(&subject)?.since(cost_before), stage.packets()?);
    let after = subject.metrics()?;
    let quantile = |series: &str, share: f64| after.quantile(&before, series, share) * 1e3;
    let lag = [0.5, 0.99].map(|share| quantile("adit_loop_lag_seconds", share));
    let lag = format!("{:.2} / {:.2}", lag[0], lag[1]);
    let late = [0.5, 0.99].map(|share| quantile("adit_send_lateness_seconds", share));
    let late = format!("{:.2} / {:.2}", late[0], late[1]);
    let lost = after.sum("adit_probes_total", "result=\"lost\"") + after.sum("adit_local_faults_total", "");
    if lost > 0 {
        println!("own troubles: {}", subject.health()?["local_faults"]);
    }
    drop(subject);
    let is_routed = wrapping != Wrapping::Gre;
    // The router answers nobody now.
    let (spent, trips) = if is_routed { (Duration::ZERO, 0) } else { floor::run(&stage.near, tunnels, MEASURED)? };
    let trip = |spent: Duration, trips: u64| spent.as_secs_f64() * 1e6 / (trips.max(1) as f64);
    let (ours, floor) = (trip(cost.cpu, received - packets_before[0]), trip(spent, trips));
    let user = 100.0 * cost.user as f64 / (cost.user + cost.system).max(1) as f64;
    let share = 100.0 * cost.cpu.as_secs_f64() / MEASURED.as_secs_f64();
    let turns = cost.turns / MEASURED.as_secs();
    let recorded = if tunnels <= RECORDED { samples::shown(stage, tunnels, wrapping)? } else { "-".to_owned() };
    println!(
        "{tunnels:7} {ours:5.1} {floor:5.1} {:6.2} {user:4.0} % {share:8.1} % {turns:8} {lost:6}  {lag:>14} {bytes:12} \
         {:10.2}       {late:>15}  {recorded:>15}",
        ours / floor,
        first.as_secs_f64()
    );
    Ok(())
}

/// Of both processes.
fn cost(subject: &Subject) -> io::Result<Cost> {
    Ok(gauge::cost(subject.prober)?.and(gauge::cost(subject.steward())?))
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}
