//! What must hold of the numbers that were seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::wire::Seen;

/// The first number that a run may use, by SPI.
pub(crate) type Marks = BTreeMap<u32, u64>;

/// The packets of each association, over all lives.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    sent: BTreeMap<u32, Sent>,
    /// Packets the other way, by the SPI of the association that they answer.
    answers: BTreeMap<u32, u64>,
    /// Whose answers bear which SPI.
    answered: BTreeMap<u32, u32>,
    lives: Lives,
    faults: Vec<String>,
}

/// The numbers of one association.
#[derive(Debug)]
struct Sent {
    highest: u64,
    numbers: BTreeSet<u64>,
    packets: u64,
    /// The first of this life.
    first: Option<u64>,
}

#[derive(Debug, Default)]
struct Lives {
    /// That came to send.
    speaking: u32,
    /// That reserved numbers, and were killed before they sent one.
    reserving: u32,
    /// That came to nothing.
    silent: u32,
    /// First numbers that were the mark of the record before, and those that were above.
    at_mark: u32,
    above: u32,
}

impl Tally {
    /// Of associations by their SPI, that of the answers, and the number that the first packet bears.
    pub(crate) fn new(associations: &[(u32, u32, u64)]) -> Self {
        let sent = |first: u64| Sent { highest: first - 1, numbers: BTreeSet::new(), packets: 0, first: None };
        Self {
            sent: associations.iter().map(|&(spi, _, first)| (spi, sent(first))).collect(),
            answers: associations.iter().map(|&(spi, ..)| (spi, 0)).collect(),
            answered: associations.iter().map(|&(spi, back, _)| (back, spi)).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, (spi, low): Seen) {
        if let Some(sent) = self.sent.get_mut(&spi) {
            let fault = sent.add(low);
            self.faults.extend(fault.map(|fault| format!("{spi:#x}: {fault}")));
        } else if let Some(answers) = self.answered.get(&spi).and_then(|spi| self.answers.get_mut(spi)) {
            *answers += 1;
        } else {
            self.faults.push(format!("{spi:#x}: nobody's"));
        }
    }

    /// Whether this life has sent anything.
    pub(crate) fn has_sent(&self) -> bool {
        self.sent.values().any(|sent| sent.first.is_some())
    }

    /// A life has ended, which began with one record and left another: what it has sent lies between.
    pub(crate) fn end_life(&mut self, before: &Marks, after: &Marks) {
        let lives = &mut self.lives;
        match (self.sent.values().any(|sent| sent.first.is_some()), before == after) {
            (true, _) => lives.speaking += 1,
            (false, false) => lives.reserving += 1,
            (false, true) => lives.silent += 1,
        }
        for (spi, sent) in &mut self.sent {
            let (Some(&begin), Some(&end)) = (before.get(spi), after.get(spi)) else {
                self.faults.push(format!("{spi:#x}: not in the record"));
                continue;
            };
            let Some(first) = sent.first.take() else { continue };
            lives.at_mark += u32::from(first == begin);
            lives.above += u32::from(first > begin);
            if first < begin || sent.highest >= end {
                let highest = sent.highest;
                self.faults.push(format!("{spi:#x}: from {first} to {highest}, of {begin} to {end}"));
            }
        }
    }

    /// Lives that came to send something.
    pub(crate) fn speaking(&self) -> u32 {
        self.lives.speaking
    }

    /// Packets of one association; 0 if it is not known.
    pub(crate) fn packets(&self, spi: u32) -> u64 {
        self.sent.get(&spi).map_or(0, |sent| sent.packets)
    }

    /// The highest number that was seen.
    pub(crate) fn highest(&self, spi: u32) -> u64 {
        self.sent.get(&spi).map_or(0, |sent| sent.highest)
    }

    /// Whether the far end has answered each packet.
    pub(crate) fn all_answered(&self) -> bool {
        self.answers.iter().all(|(&spi, &answers)| answers == self.packets(spi))
    }

    /// No number twice, none after a higher one, none outside of what the record says.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let shown: Vec<&str> = self.faults.iter().take(5).map(String::as_str).collect();
        if shown.is_empty() { Ok(()) } else { Err(format!("{} faults: {}", self.faults.len(), shown.join("; "))) }
    }
}

impl Sent {
    fn add(&mut self, low: u32) -> Option<String> {
        let number = self.extended(low);
        self.packets += 1;
        self.first.get_or_insert(number);
        let highest = self.highest;
        self.highest = highest.max(number);
        if !self.numbers.insert(number) {
            Some(format!("{number} twice"))
        } else if number <= highest {
            Some(format!("{number} after {highest}"))
        } else {
            None
        }
    }

    /// Of the numbers that end like this, the one nearest to the highest: no step here is as long as
    /// 2^31.
    fn extended(&self, low: u32) -> u64 {
        let step = (u64::from(low).wrapping_sub(self.highest) << 32).cast_signed() >> 32;
        self.highest.saturating_add_signed(step)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lives { speaking, reserving, silent, at_mark, above } = self.lives;
        write!(
            f,
            "{speaking} lives sent, {reserving} had reserved only, {silent} had not; {at_mark} of {} first numbers were \
             the record's mark;",
            at_mark + above
        )?;
        for (at, (spi, Sent { packets, numbers, highest, .. })) in self.sent.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let answers = self.answers.get(spi).copied().unwrap_or_default();
            let different = numbers.len();
            write!(f, "{comma} {spi:#x}: {packets} packets, {different} numbers up to {highest}, {answers} answers")?;
        }
        Ok(())
    }
}
