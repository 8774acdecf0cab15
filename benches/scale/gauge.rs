//! What processes have cost so far.

use std::fs;
use std::io;
use std::time::Duration;

/// Of one or more processes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    /// On a processor, in the kernel and out of it.
    pub(crate) cpu: Duration,
    /// In and out, in the ticks of `/proc`: only their ratio is used.
    pub(crate) user: u64,
    pub(crate) system: u64,
    /// Times that it was given a processor.
    pub(crate) turns: u64,
}

/// Of all threads of a process that there are.
pub(crate) fn cost(process: u32) -> io::Result<Cost> {
    let mut cost = Cost::default();
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // proc(5): nanoseconds on the processor, waiting for one, and how often it was given one.
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        cost.cpu += Duration::from_nanos(numbers.first().copied().unwrap_or(0));
        cost.turns += numbers.get(2).copied().unwrap_or(0);
    }
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |place: usize| fields.get(place).and_then(|field| field.parse().ok()).unwrap_or(0);
    (cost.user, cost.system) = (field(11), field(12));
    Ok(cost)
}

impl Cost {
    /// Of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            user: self.user + other.user,
            system: self.system + other.system,
            turns: self.turns + other.turns,
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            user: self.user - before.user,
            system: self.system - before.system,
            turns: self.turns - before.turns,
        }
    }
}

/// Bytes of memory that a process has to itself, and its share of what it has with others.
pub(crate) fn memory(process: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).map(|kib| kib << 10).ok_or_else(|| io::Error::other("no Pss"))
}
