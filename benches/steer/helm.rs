//! The parts that steer, called as the daemon's thread calls them.

use std::net::IpAddr;
use std::time::Duration;

use adit::engine::penalty::DOWN;
use adit::io::clock::Clock;
use adit::io::fib::{self, Opened};
use adit::io::netns;
use adit::steer::{Change, Fib, Leg, Mode, Picture, Setup};
use ipnet::IpNet;
use nix::time::{ClockId, clock_gettime};

use crate::stage::Stage;

pub(crate) const TAG: u8 = 212;
/// Base priorities of the two ways.
pub(crate) const BASES: [u32; 2] = [100, 200];

pub(crate) struct Helm {
    fib: Fib,
    opened: Opened,
    clock: Clock,
    memory: i64,
}

/// What it took to bring the kernel where it should be.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moved {
    pub(crate) changes: usize,
    /// From the verdict to the answer to the first changes that move traffic.
    pub(crate) first: Duration,
    /// And to the last answer.
    pub(crate) last: Duration,
    /// Of the thread that steers, in the kernel and out of it.
    pub(crate) cpu: Duration,
}

/// What something took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spent {
    pub(crate) time: Duration,
    /// Of this thread.
    pub(crate) cpu: Duration,
}

impl Helm {
    pub(crate) fn new(stage: &Stage, mode: Mode) -> Self {
        let mut fib = None;
        let taken = allocation_counter::measure(|| {
            let setup = Setup { mode, backstop: false, legs: legs(&stage.prefixes), rules: Vec::new(), tunnels: 2 };
            fib = Some(Fib::new(TAG, setup));
        });
        let opened = netns::within(Some(&stage.host), || fib::open(TAG, 4 << 20)).unwrap();
        let mut helm = Self { fib: fib.unwrap(), opened, clock: Clock::start(), memory: taken.bytes_current };
        let picture = helm.picture();
        helm.fib.handle_picture(picture);
        helm
    }

    /// Brings everything to the kernel.
    pub(crate) fn start(&mut self) -> Moved {
        let mut moved = Moved::default();
        let taken = allocation_counter::measure(|| {
            moved = self.steer(|fib| (0..2).for_each(|tunnel| fib.set_penalty(tunnel, Some(0))), |_| true);
        });
        self.memory += taken.bytes_current;
        moved
    }

    pub(crate) fn goes_down(&mut self) -> Moved {
        // Traffic moves when the old route goes: the new one costs more.
        self.steer(|fib| fib.set_penalty(0, Some(DOWN)), |change| !matches!(change, Change::AddRoute(_)))
    }

    pub(crate) fn comes_back(&mut self) -> Moved {
        self.steer(|fib| fib.set_penalty(0, Some(0)), |_| true)
    }

    fn steer(&mut self, verdict: impl FnOnce(&mut Fib), moves: impl Fn(&Change) -> bool) -> Moved {
        let (begin, cpu) = (self.clock.now(), cpu());
        let mut moved = Moved::default();
        verdict(&mut self.fib);
        while !self.fib.poll_changes().is_empty() {
            let refusals = self.opened.writer.carry_out(self.fib.changes()).unwrap();
            assert!(refusals.is_empty(), "the kernel refused {refusals:?}");
            moved.last = self.clock.now().since(begin);
            moved.changes += self.fib.changes().len();
            if moved.first.is_zero() && self.fib.changes().iter().any(&moves) {
                moved.first = moved.last;
            }
            self.fib.handle_outcome(refusals);
            // What the thread tells the daemon's loop.
            drop((self.fib.poll_standings(), self.fib.poll_notes()));
        }
        moved.cpu = self::cpu().saturating_sub(cpu);
        moved
    }

    /// What the kernel has.
    pub(crate) fn picture(&mut self) -> Picture {
        let fib = &self.fib;
        self.opened.reader.picture(|table, prefix| fib.concerns(table, prefix), || true).unwrap().unwrap()
    }

    /// What it takes to see all there is, and to find that it is as it should be.
    pub(crate) fn looks(&mut self) -> [Spent; 2] {
        let mut best = [Spent { time: Duration::MAX, cpu: Duration::MAX }; 2];
        for _ in 0..3 {
            let mut picture = Picture::default();
            let listed = self.timed(|helm| picture = helm.picture());
            let compared = self.timed(|helm| {
                helm.fib.handle_picture(picture);
                assert!(helm.fib.poll_changes().is_empty(), "all is as it should be");
            });
            assert!(self.fib.poll_notes().is_empty(), "nothing has drifted");
            best = [best[0].min(listed), best[1].min(compared)];
        }
        best
    }

    fn timed(&mut self, what: impl FnOnce(&mut Self)) -> Spent {
        let (begin, cpu) = (self.clock.now(), cpu());
        what(self);
        Spent { time: self.clock.now().since(begin), cpu: self::cpu().saturating_sub(cpu) }
    }

    /// What the configuration, and what is known of the kernel, take; in bytes.
    pub(crate) const fn memory(&self) -> i64 {
        self.memory
    }
}

/// Two ways to each prefix.
fn legs(prefixes: &[IpNet]) -> Vec<Leg> {
    let leg = |(place, prefix)| {
        let way = place % 2;
        Leg {
            route: u32::try_from(place).unwrap(),
            tunnel: u32::try_from(way).unwrap(),
            table: 254,
            prefix,
            priority: BASES[way],
            weight: 1,
            device: Some(format!("t{}", way + 1)),
            via: Some(via(way)),
            onlink: false,
        }
    };
    prefixes.iter().flat_map(|prefix| [*prefix; 2]).enumerate().map(leg).collect()
}

pub(crate) fn via(way: usize) -> IpAddr {
    [10, if way == 0 { 1 } else { 2 }, 0, 1].into()
}

/// Of the calling thread.
fn cpu() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap())
}

impl Moved {
    pub(crate) fn improve(&mut self, other: Self) {
        let least = |one: Duration, other: Duration| if one.is_zero() { other } else { one.min(other) };
        *self = Self {
            changes: other.changes,
            first: least(self.first, other.first),
            last: least(self.last, other.last),
            cpu: least(self.cpu, other.cpu),
        };
    }

    /// A row's numbers, for so many prefixes.
    pub(crate) fn of(self, count: u32) -> String {
        let Self { changes, first, last, cpu } = self;
        let per = cpu.as_secs_f64() * 1e6 / f64::from(count);
        let first = if first.is_zero() { "-".to_owned() } else { format!("{:.2}", crate::ms(first)) };
        format!("{changes:8} {first:>10} {:10.2} {per:18.2}", crate::ms(last))
    }
}
