//! What it takes to move the traffic of 1 000, 10 000 and 100 000 prefixes from one tunnel to another: real
//! routes, real packets, in namespaces of its own. `cargo bench --bench steer`; as root, or as whoever may
//! make a user namespace. Numbers behind `--` are the prefixes to try instead.
//!
//! The parts are those of the daemon, called as its thread of the kernel's routes calls them: a picture,
//! a verdict, batch after batch. Beside them `ip -batch` has the same kernel do the same changes, in the
//! same run: the ratio travels, the microseconds do not.
//!
//! | aim | at most |
//! | --- | --- |
//! | nexthop mode, 100 000 prefixes, from the verdict to the last answer | 10 ms |
//! | metric mode, CPU of one route's change (one added, one deleted) | 10 µs |

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot go on must fail")]

mod helm;
mod peer;
mod stage;
mod stream;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use adit::steer::Mode;
use nix::sched::{CloneFlags, unshare};

use helm::{Helm, Moved};
use stage::Stage;
use stream::{Arrived, Stream};

/// Prefixes at a time, unless told otherwise.
const COUNTS: [u32; 3] = [1_000, 10_000, 100_000];
/// The tunnel dies and heals so many times; the best time counts, and the worst loss.
const ROUNDS: usize = 3;
/// What is on its way when a measurement begins or ends has arrived after this.
const CALM: Duration = Duration::from_millis(100);

/// How often all is looked at, if nothing gives cause to: `kernel.reconcile_interval`.
const RECONCILE: Duration = adit::config::defaults::RECONCILE;

/// A way to steer: mode, `net.ipv4.nexthop_compat_mode`, and what that is called.
const WAYS: [(Mode, bool, &str); 3] = [
    (Mode::Metric, true, "metric"),
    (Mode::Nexthop, true, "nexthop, each route announced"),
    (Mode::Nexthop, false, "nexthop, groups announced only"),
];

fn main() -> ExitCode {
    // Here, while there is one thread.
    let unshared = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
    if let Err(error) = unshared.or_else(|_| adit::io::netns::become_root_of_new_user_namespace()) {
        eprintln!("nothing measured: no network namespace can be made here ({error}).");
        eprintln!("Run it as root, or where an ordinary user may make user namespaces.");
        return ExitCode::FAILURE;
    }
    if let Err(error) = peer::version() {
        eprintln!("nothing measured: {error}");
        return ExitCode::FAILURE;
    }
    let asked: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let counts = if asked.is_empty() { COUNTS.to_vec() } else { asked };
    println!("{}; Linux {}; {} processors", peer::version().unwrap(), kernel(), processors());
    for count in counts {
        for (mode, announced, name) in WAYS {
            measure(count, mode, announced, name);
        }
    }
    ExitCode::SUCCESS
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// One number of prefixes, one way.
fn measure(count: u32, mode: Mode, announced: bool, name: &str) {
    let stage = Stage::new(count, mode == Mode::Nexthop && !announced);
    let mut helm = Helm::new(&stage, mode);
    let row = |what: &str, moved: Moved, arrived: Arrived| println!("  {what:18} {}   {arrived}", moved.of(count));
    println!("\n{count} prefixes, {name}");
    println!("{HEADINGS}");
    row("at the start", helm.start(), Arrived::default());
    let mut ours = Best::default();
    (0..ROUNDS).for_each(|_| ours.round(&stage, |down| if down { helm.goes_down() } else { helm.comes_back() }));
    row("a tunnel dies", ours.down, ours.death);
    row("it heals", ours.up, ours.healing);

    let scripts = peer::Scripts::new(&stage, mode, helm.picture());
    let mut theirs = Best::default();
    (0..ROUNDS).for_each(|_| theirs.round(&stage, |down| scripts.run(&stage, down)));
    row("dies, by ip -batch", theirs.down, theirs.death);
    row("heals, likewise", theirs.up, theirs.healing);
    let ratio = |theirs: Duration, ours: Duration| theirs.as_secs_f64() / ours.as_secs_f64();
    let (time, cpu) = (ratio(theirs.down.last, ours.down.last), ratio(theirs.down.cpu, ours.down.cpu));
    println!("  ip -batch takes {time:.1} times as long, and {cpu:.1} times as much CPU");

    let [listed, compared] = helm.looks();
    let share = 100.0 * (listed.cpu + compared.cpu).as_secs_f64() / RECONCILE.as_secs_f64();
    let (list, compare) = (ms(listed.time), ms(compared.time));
    println!("  a look: {list:.1} ms to list, {compare:.1} ms to compare; every 30 s {share:.2} % of a processor");
    println!("  memory: {} bytes a prefix", helm.memory() / i64::from(count));
}

/// Above each table.
const HEADINGS: &str =
    "                      changes   first ms    last ms    CPU µs a prefix   stream moved after ms, lost";

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The best of several rounds, and the worst that a stream saw in any.
#[derive(Default)]
struct Best {
    down: Moved,
    up: Moved,
    death: Arrived,
    healing: Arrived,
}

impl Best {
    fn round(&mut self, stage: &Stage, mut steer: impl FnMut(bool) -> Moved) {
        for down in [true, false] {
            let stream = Stream::start(stage);
            std::thread::sleep(CALM);
            let verdict = stream.now();
            let moved = steer(down);
            std::thread::sleep(CALM);
            let arrived = stream.end(verdict, usize::from(down));
            let (best, worst) =
                if down { (&mut self.down, &mut self.death) } else { (&mut self.up, &mut self.healing) };
            best.improve(moved);
            worst.worsen(arrived);
        }
    }
}
