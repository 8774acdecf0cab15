//! Why a tunnel cannot be answered, and what people are told of that, once.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use super::{FarTunnel, Reflector};
use crate::engine::Obstacle;
use crate::engine::associations::clash;
use crate::engine::esp::Reserve;
use crate::engine::ledger::{Lost, NotReserved};
use crate::engine::numbers::Numbers;
use crate::wire::esp::Fingerprint;

/// What people are to be told of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its name.
    pub tunnel: String,
    /// What.
    pub news: News,
}

/// What there is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It cannot be answered any more.
    Silent(Obstacle),
    /// It can be answered again.
    Answerable,
    /// Nine tenths of its sequence numbers are used.
    Scarce,
    /// No more sequence numbers can be reserved.
    Unreserved {
        /// Why.
        why: String,
        /// How many are left of those that were reserved before.
        left: u64,
    },
    /// They can be again, in time.
    Reserved,
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(obstacle) => write!(f, "cannot be answered: {obstacle}"),
            Self::Answerable => f.write_str("can be answered again"),
            Self::Scarce => f.write_str(
                "nine tenths of the association's sequence numbers are used: give it new keys and SPIs at both ends, \
                 and start again",
            ),
            Self::Unreserved { why, left } => {
                write!(
                    f,
                    "{why}; see to it that state_dir can be written: {left} more answers can be sealed until then"
                )
            }
            Self::Reserved => f.write_str("sequence numbers are reserved again"),
        }
    }
}

/// What an operator can do about a record that is lost.
#[must_use]
pub fn remedy(tunnel: &str, lost: &Lost) -> String {
    let begin = format!(
        "if its keys have never been used, start once with --begin {tunnel}; else with --begin {tunnel}=N, N above the \
         highest number that the prober has received (`adit sa show` there), or with new keys and SPIs at both ends"
    );
    match lost {
        Lost::Missing | Lost::Damaged { .. } | Lost::Incomplete | Lost::OtherMachine | Lost::Older { .. } => begin,
        Lost::ChangedUnderUs => {
            format!(
                "find out who else writes to state_dir (another host? a restored backup?) and stop it; then {begin}"
            )
        }
        Lost::Unreadable(_) => "let this user read the file, and start again".to_owned(),
        Lost::LaterVersion(_) => format!("use the later adit; or move the file away; then {begin}"),
    }
}

/// What keeps one tunnel from being answered.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// The SPI that the kernel has, too.
    conflict: Option<u32>,
    /// Why nobody knows which sequence numbers have been used.
    lost: Option<String>,
    /// Why no more sequence numbers could be reserved the last time.
    unreserved: Option<String>,
    /// What people know.
    told: Option<Obstacle>,
}

impl Standing {
    fn obstacle(&self, numbers: &Numbers) -> Option<Obstacle> {
        if let Some(spi) = self.conflict {
            return Some(Obstacle::Conflict(spi));
        }
        if let Some(why) = &self.lost {
            return Some(Obstacle::StateLost(why.clone()));
        }
        if numbers.exhausted() {
            return Some(Obstacle::Exhausted);
        }
        let why = self.unreserved.as_ref().filter(|_| numbers.ready() == 0)?;
        Some(Obstacle::Unwritten(format!(
            "{why}; see to it that state_dir can be written, and answers go on by themselves"
        )))
    }
}

impl FarTunnel {
    /// The first of its SPIs that the kernel has for the same address, too.
    fn clash(&self, known: &BTreeSet<(IpAddr, u32)>) -> Option<u32> {
        let pair = self.pair()?;
        clash(self.outer, [pair.outbound.spi(), pair.inbound.spi()], known)
    }
}

impl Reflector {
    /// The next thing that people are to be told.
    pub fn poll_told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    /// The next reservation of ESP sequence numbers that is wanted.
    pub fn poll_reserve(&mut self) -> Option<Reserve> {
        self.wanted.pop()
    }

    /// Numbers have been reserved, durably.
    pub fn handle_reserved(&mut self, key: Fingerprint, mark: u64) {
        for index in self.sealed_with(key) {
            self.tunnels[index].pair_mut().into_iter().for_each(|pair| pair.numbers.grant(mark));
            let standing = &mut self.standings[index];
            if standing.unreserved.take().is_some() && standing.told.is_none() {
                self.tell(index, News::Reserved);
            }
            self.review(index);
        }
    }

    /// Numbers could not be reserved. Those that were before can still be used, and then more are asked for
    /// again; but not where the record is lost.
    pub fn handle_unreserved(&mut self, key: Fingerprint, reason: &NotReserved) {
        for index in self.sealed_with(key) {
            match reason {
                NotReserved::Lost(lost) => {
                    let why = format!("{lost}; {}", remedy(&self.tunnels[index].name, lost));
                    self.standings[index].lost = Some(why);
                }
                NotReserved::Unwritten(_) => self.retry(index, reason.to_string()),
            }
            self.review(index);
        }
    }

    fn retry(&mut self, index: usize, why: String) {
        let Some(pair) = self.tunnels[index].pair_mut() else { return };
        pair.numbers.retry();
        let left = pair.numbers.ready();
        let before = self.standings[index].unreserved.replace(why.clone());
        if before.is_none() && left > 0 {
            self.tell(index, News::Unreserved { why, left });
        }
    }

    /// The security associations for ESP that the kernel has, by destination and SPI.
    pub fn handle_kernel_associations(&mut self, known: &BTreeSet<(IpAddr, u32)>) {
        for index in 0..self.tunnels.len() {
            self.standings[index].conflict = self.tunnels[index].clash(known);
            self.review(index);
        }
    }

    /// Whether nothing may be sent through a tunnel, given by its index, not even what is sealed already.
    #[must_use]
    pub fn is_barred(&self, index: usize) -> bool {
        self.standings.get(index).is_some_and(|standing| standing.conflict.is_some() || standing.lost.is_some())
    }

    /// Sees how far a tunnel's numbers are used, and asks for more in time.
    pub(super) fn take_stock(&mut self, index: usize) {
        let Some(pair) = self.tunnels[index].pair_mut() else { return };
        let key = pair.outbound_key;
        self.wanted.extend(pair.numbers.wants().map(|mark| Reserve { key, mark }));
        if pair.numbers.became_scarce() {
            self.tell(index, News::Scarce);
        }
        self.review(index);
    }

    /// Looks whether a tunnel can be answered, and tells if that has changed.
    fn review(&mut self, index: usize) {
        let Some(pair) = self.tunnels[index].pair() else { return };
        let obstacle = self.standings[index].obstacle(&pair.numbers);
        if self.standings[index].told == obstacle {
            return;
        }
        self.standings[index].told.clone_from(&obstacle);
        self.tell(index, obstacle.map_or(News::Answerable, News::Silent));
    }

    fn tell(&mut self, index: usize, news: News) {
        let tunnel = self.tunnels[index].name.clone();
        self.told.push_back(Told { tunnel, news });
    }

    /// The indices of the tunnels whose answers are sealed with this key.
    fn sealed_with(&self, key: Fingerprint) -> Vec<usize> {
        let seals = |tunnel: &FarTunnel| tunnel.pair().is_some_and(|pair| pair.outbound_key == key);
        (0..self.tunnels.len()).filter(|&index| seals(&self.tunnels[index])).collect()
    }
}
