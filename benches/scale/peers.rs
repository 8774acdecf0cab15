//! Others at the same work, one after the other in the same run: an echo a second to each of so many targets, or, of
//! those that speak BFD, a control packet each way. What differs is said beside each.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use adit::io::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::gauge::{self, Cost};
use crate::stage::{NEAR, Stage, target};
use crate::subject::{Subject, Wrapping};

const SETTLED: Duration = Duration::from_secs(10);
/// Sessions come up one by one.
const SESSIONS_UP: Duration = Duration::from_secs(20);
const MEASURED: Duration = Duration::from_secs(10);
/// More sessions than this do not come up in time, and more processes of a raw socket each freeze a small machine.
const FEW: u32 = 100;

/// What one of them has cost.
struct Row {
    name: String,
    cost: Cost,
    /// Round trips.
    trips: u64,
    memory: u64,
}

impl Row {
    fn micros(&self) -> f64 {
        self.cost.cpu.as_secs_f64() * 1e6 / (self.trips.max(1) as f64)
    }
}

/// Processes that end with this.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = kill(Pid::from_raw(child.id().try_into().unwrap_or(i32::MAX)), Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

/// Measures all that are installed, at so many targets.
pub(crate) fn run(stage: &Stage, targets: u32) -> io::Result<()> {
    let ours = [Wrapping::Bare, Wrapping::Gre].map(|wrapping| ours(stage, targets, wrapping));
    let [bare, gre] = ours;
    let bare = bare?;
    println!("\n{targets} targets, one probe a second; CPU of the whole round trip, the far end's part included");
    println!("{:34} {:>9} {:>12} {:>7} {:>11} {:>8}", "", "trips/s", "µs/trip", "ratio", "% of a core", "MiB");
    let show = |row: &Row, unit: &Row| {
        println!(
            "{:34} {:9.0} {:12.1} {:7.2} {:11.2} {:8.1}",
            row.name,
            row.trips as f64 / MEASURED.as_secs_f64(),
            row.micros(),
            row.micros() / unit.micros(),
            100.0 * row.cost.cpu.as_secs_f64() / MEASURED.as_secs_f64(),
            row.memory as f64 / f64::from(1 << 20)
        );
    };
    show(&bare, &bare);
    show(&gre?, &bare);
    for peer in [fping_spread, fping_burst, oping, dpinger, bird, bfdd] {
        match peer(stage, targets) {
            Ok(row) => show(&row, &bare),
            Err(error) => println!("not measured: {error}"),
        }
    }
    Ok(())
}

fn ours(stage: &Stage, targets: u32, wrapping: Wrapping) -> io::Result<Row> {
    let subject = Subject::start(stage, targets, wrapping, false)?;
    subject.await_all("healthy", targets)?;
    let processes = [subject.steward(), subject.prober];
    // Each probe is answered here: what is received beside it is nothing.
    let trips = || stage.packets().map(|[received, _]| received);
    let name = match wrapping {
        Wrapping::Bare => "adit, bare ICMP echo",
        Wrapping::Gre => "adit, echo in GRE",
        Wrapping::RoutedGre | Wrapping::Esp => wrapping.name(),
    };
    measure(name.to_owned(), &processes, SETTLED, trips)
}

/// What the processes cost from `settled` on.
fn measure(name: String, processes: &[u32], settled: Duration, trips: impl Fn() -> io::Result<u64>) -> io::Result<Row> {
    std::thread::sleep(settled);
    let cost = || {
        processes.iter().try_fold(Cost::default(), |sum, &process| Ok::<_, io::Error>(sum.and(gauge::cost(process)?)))
    };
    // One that has ended by itself has no costs.
    let (cost_before, trips_before) =
        (cost().map_err(|_| io::Error::other(format!("{name}: it has ended by itself")))?, trips()?);
    std::thread::sleep(MEASURED);
    let (cost, trips) = (cost()?.since(cost_before), trips()? - trips_before);
    let memory = processes.iter().map(|&process| gauge::memory(process)).sum::<io::Result<u64>>()?;
    Ok(Row { name, cost, trips, memory })
}

fn fping_spread(stage: &Stage, targets: u32) -> io::Result<Row> {
    // By itself it waits 10 ms between two: no more than a hundred a second.
    fping(stage, targets, "spread over the second", &format!("{:.3}", 900.0 / f64::from(targets)))
}

fn fping_burst(stage: &Stage, targets: u32) -> io::Result<Row> {
    fping(stage, targets, "all at once", "0")
}

fn fping(stage: &Stage, targets: u32, how: &str, gap: &str) -> io::Result<Row> {
    let folder = tempfile::tempdir()?;
    let list = folder.path().join("targets");
    fs::write(&list, (0..targets).fold(String::new(), |list, at| list + &format!("{}\n", target(at))))?;
    let version = version("fping", &["-v"])?;
    let arguments = ["-l", "-q", "-p", "1000", "-i", gap, "-f"].map(String::from);
    let arguments = arguments.into_iter().chain([list.display().to_string()]);
    let running = Running(vec![start(&stage.near, "fping", arguments)?]);
    let name = format!("{version}, {how}");
    measure(name, &[running.0[0].id()], SETTLED, || echoes(&stage.near))
}

fn oping(stage: &Stage, targets: u32) -> io::Result<Row> {
    let version = version("oping", &["-h"])?;
    let arguments = ["-i".to_owned(), "1".to_owned()].into_iter().chain((0..targets).map(|at| target(at).to_string()));
    let running = Running(vec![start(&stage.near, "oping", arguments)?]);
    measure(version, &[running.0[0].id()], SETTLED, || echoes(&stage.near))
}

/// A process for each target (it wants to report, or it ends), each with a raw socket to which the kernel copies every answer.
fn dpinger(stage: &Stage, targets: u32) -> io::Result<Row> {
    let Ok(program) = std::env::var("DPINGER") else {
        return Err(io::Error::other("dpinger: say where it is by the variable DPINGER"));
    };
    let (version, targets) = (version(&program, &["-h"])?, targets.min(FEW));
    let of = |at: u32| {
        ["-f", "-s", "1000", "-t", "60000", "-r", "60000"].map(String::from).into_iter().chain([target(at).to_string()])
    };
    let running = (0..targets).map(|at| start(&stage.near, &program, of(at))).collect::<io::Result<Vec<_>>>()?;
    let running = Running(running);
    let processes: Vec<u32> = running.0.iter().map(Child::id).collect();
    measure(format!("{version}, {targets} of it"), &processes, SETTLED, || echoes(&stage.near))
}

fn bfdd(stage: &Stage, targets: u32) -> io::Result<Row> {
    let (folder, targets) = (folder()?, targets.min(FEW));
    let version = version(FRR, &["--version"])?.replace("(", "").replace(")", "");
    let far = frr(&stage.far, &folder.path().join("far"), (0..targets).map(|at| (NEAR, target(at))))?;
    let near = frr(&stage.near, &folder.path().join("near"), (0..targets).map(|at| (target(at), NEAR)))?;
    let name = format!("{version}, {targets} sessions");
    let row = measure(name, &[near.0[1].id()], SESSIONS_UP, || pairs(&stage.near));
    drop(far);
    row
}

fn bird(stage: &Stage, targets: u32) -> io::Result<Row> {
    let (folder, targets) = (folder()?, targets.min(FEW));
    let version = version("bird", &["--version"])?;
    // Its sessions are told apart by the address of the other end alone: at the far end that is one for all.
    let far = frr(&stage.far, &folder.path().join("far"), (0..targets).map(|at| (NEAR, target(at))))?;
    let mut text = format!(
        "log stderr all;\nrouter id {NEAR};\nprotocol device {{}}\nprotocol bfd {{\n multihop {{ interval 1 s; multiplier 3; }};\n"
    );
    (0..targets).for_each(|at| text += &format!(" neighbor {} local {NEAR} multihop;\n", target(at)));
    let (config, control) = (folder.path().join("bird.conf"), folder.path().join("bird.ctl"));
    fs::write(&config, text + "}\n")?;
    let arguments = ["-f", "-c", &config.display().to_string(), "-s", &control.display().to_string()].map(String::from);
    let near = Running(vec![start(&stage.near, "bird", arguments.into_iter())?]);
    let row = measure(format!("{version}, {targets} sessions"), &[near.0[0].id()], SESSIONS_UP, || pairs(&stage.near));
    drop(far);
    row
}

const FRR: &str = "/usr/lib/frr/bfdd";

/// A folder that daemons can write to who give up their rights first.
fn folder() -> io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    open(folder.path())?;
    Ok(folder)
}

fn open(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o777))
}

/// FRR's `zebra`, which it does not run without, and `bfdd` with sessions by the addresses of their two ends, the other one first.
fn frr(namespace: &File, folder: &Path, sessions: impl Iterator<Item = (Ipv4Addr, Ipv4Addr)>) -> io::Result<Running> {
    fs::create_dir(folder)?;
    open(folder)?;
    let mut text = "bfd\n".to_owned();
    for (other, own) in sessions {
        // Into a String, which is never full.
        let _ = write!(
            text,
            " peer {other} multihop local-address {own}\n  detect-multiplier 3\n  receive-interval 1000\n  \
             transmit-interval 1000\n  minimum-ttl 1\n exit\n"
        );
    }
    let path = |name: &str| folder.join(name).display().to_string();
    fs::write(path("bfdd.conf"), text + "exit\n")?;
    fs::write(path("zebra.conf"), "")?;
    let common = |name: &str| {
        let named = [("-f", format!("{name}.conf")), ("-i", format!("{name}.pid")), ("-z", "zserv".to_owned())];
        let named = named.into_iter().flat_map(|(option, file)| [option.to_owned(), path(&file)]);
        let plain = ["--vty_socket", &folder.display().to_string(), "-P", "0"].map(String::from);
        named.chain(plain).collect::<Vec<_>>()
    };
    let zebra = start(namespace, "/usr/lib/frr/zebra", common("zebra").into_iter())?;
    let mut running = Running(vec![zebra]);
    std::thread::sleep(Duration::from_secs(1));
    let control = ["--bfdctl".to_owned(), path("bfdd.sock")];
    running.0.push(start(namespace, FRR, common("bfdd").into_iter().chain(control))?);
    Ok(running)
}

fn start(namespace: &File, program: &str, arguments: impl Iterator<Item = String>) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    netns::within(Some(namespace), || command.spawn()).map_err(|error| missing(program, &error))
}

/// What it calls itself: its name and its version, from the first line of what it says that has a digit.
fn version(program: &str, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| missing(program, &error))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let name = program.rsplit('/').next().unwrap_or(program);
    let number = text.split_whitespace().map(|word| word.trim_end_matches([',', ';']));
    let number = number.filter(|word| word.contains('.')).find(|word| word.bytes().any(|byte| byte.is_ascii_digit()));
    Ok(format!("{name} {}", number.unwrap_or("of an unknown version")))
}

fn missing(program: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{program}: {error}; apt install fping oping frr bird2"))
}

/// Echo replies that have come to a namespace.
fn echoes(namespace: &File) -> io::Result<u64> {
    counter(namespace, "Icmp:", "InEchoReps")
}

/// Pairs of UDP packets, one each way.
fn pairs(namespace: &File) -> io::Result<u64> {
    Ok((counter(namespace, "Udp:", "InDatagrams")? + counter(namespace, "Udp:", "OutDatagrams")?) / 2)
}

fn counter(namespace: &File, protocol: &str, name: &str) -> io::Result<u64> {
    let text = netns::within(Some(namespace), || fs::read_to_string("/proc/thread-self/net/snmp"))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let place = names.split_whitespace().position(|known| known == name);
    let value = place.and_then(|place| values.split_whitespace().nth(place)?.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("the kernel does not count {protocol} {name}")))
}
