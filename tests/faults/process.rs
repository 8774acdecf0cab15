//! Processes that are stopped, starved, and looked at.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A word of `/proc/PID/status`.
pub(crate) fn text_of(process: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

/// A number of it.
pub(crate) fn status(process: u32, name: &str) -> u64 {
    text_of(process, name).parse().unwrap()
}

/// The most memory that a process has had so far, in bytes.
pub(crate) fn most_memory(process: u32) -> u64 {
    status(process, "VmHWM:") * 1024
}

/// Processes that are stopped, until this is dropped.
pub(crate) struct Stopped(Vec<Pid>);

impl Stopped {
    pub(crate) fn new(processes: &[u32]) -> Self {
        let processes: Vec<_> = processes.iter().map(|id| Pid::from_raw((*id).try_into().unwrap())).collect();
        processes.iter().for_each(|process| kill(*process, Signal::SIGSTOP).unwrap());
        Self(processes)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // One that has been killed meanwhile is not there any more.
        for process in &self.0 {
            let _ = kill(*process, Signal::SIGCONT);
        }
    }
}

/// Somebody who wakes up every few milliseconds, and notices when that is late: then it is the machine that is
/// busy, and not only the daemon.
pub(crate) struct Canary {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Canary {
    pub(crate) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut late = 0;
            while !stopped.load(Ordering::Relaxed) {
                let asleep = crate::kills::now();
                std::thread::sleep(Duration::from_millis(5));
                late += stalls_in(asleep.elapsed());
            }
            late
        });
        Self { stop, thread }
    }

    /// How often it was late; one that was late for long counts as often as the daemon can have been meanwhile.
    pub(crate) fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn stalls_in(span: Duration) -> u64 {
    u64::try_from(span.as_nanos() / adit::engine::STALL.as_nanos()).unwrap()
}

/// Processes that get hardly any processor time, until this is dropped: by a quota where there is a
/// controller for that, and else because others who are more important want all of it.
pub(crate) enum Starved {
    Quota(PathBuf, Vec<u32>),
    Crowded(Vec<Child>),
}

impl Starved {
    /// They get a fiftieth of one processor, a slice of 20 ms in each second.
    pub(crate) fn new(processes: &[u32]) -> Self {
        Self::by_quota(processes).unwrap_or_else(|| Self::by_crowd(processes))
    }

    fn by_quota(processes: &[u32]) -> Option<Self> {
        let name = format!("adit-faults-{}", std::process::id());
        let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(PathBuf::from);
        let group = roots.into_iter().map(|root| root.join(&name)).find(|group| fs::create_dir(group).is_ok())?;
        let starved = Self::Quota(group.clone(), processes.to_vec());
        let set = |file: &str, text: &str| fs::write(group.join(file), text).is_ok();
        let limited =
            set("cpu.max", "20000 1000000") || set("cpu.cfs_period_us", "1000000") && set("cpu.cfs_quota_us", "20000");
        let moved = limited && processes.iter().all(|id| set("cgroup.procs", &id.to_string()));
        moved.then_some(starved)
    }

    /// Each processor has work of its own, and the processes are of the kind that only gets what is left.
    fn by_crowd(processes: &[u32]) -> Self {
        for id in processes {
            for task in fs::read_dir(format!("/proc/{id}/task")).unwrap() {
                let task = task.unwrap().file_name();
                let done = Command::new("chrt").args(["--idle", "-p", "0"]).arg(task).status();
                assert!(done.unwrap().success());
            }
        }
        let busy =
            || Command::new("timeout").args(["60", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
        let processors = std::thread::available_parallelism().unwrap().get();
        Self::Crowded((0..2 * processors).map(|_| busy().unwrap()).collect())
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        match self {
            Self::Quota(group, processes) => {
                let root = group.parent().unwrap().join("cgroup.procs");
                processes.iter().for_each(|id| drop(fs::write(&root, id.to_string())));
                let _ = fs::remove_dir(group);
            }
            Self::Crowded(children) => children.iter_mut().for_each(|child| {
                // What ends by this ends its shell, too.
                let _ = kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM);
                let _ = child.wait();
            }),
        }
    }
}
