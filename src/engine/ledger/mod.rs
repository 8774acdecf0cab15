//! The durable record of ESP sequence numbers: what it says, and how it is written. PURE: the file is
//! [`crate::io::ledger`]'s.
//!
//! | file | holds |
//! | --- | --- |
//! | `book` | the entries, and what may be begun, resumed, reserved |
//! | `text` | the file's text, and what damage does to it |
//! | `identity` | whose machine the record was written on |
//! | `lost` | why there is no mark, and the remedy |
//!
//! For each outbound association the record has a **mark**: every sequence number below it may have
//! been used. A run resumes at the mark. The record is not believed lightly: a mark that is too low
//! means numbers sent twice, so whatever is not surely the latest record of this machine is *lost*, and
//! only those associations go on whose own line is whole.
//!
//! # Why a first use must be said
//!
//! A record without a line for an association can not say whether the line was lost or never written.
//! So a static pair of keys is used only after somebody has said that it is new, or above which number
//! the far end has seen nothing: `adit sa begin`. Whoever knows neither writes new keys.
//!
//! Installed keys live in memory only, are fresh by contract, and may be used with counter-mode
//! ciphers; so they are begun without being asked, once, and never resumed. The record remembers
//! their fingerprints for one thing: that a script which hands over the same keys again, after a
//! restart of adit, is refused (RFC 4106 section 2). Of these lines the newest [`KEPT`] of a tunnel
//! stay: what can be handed over again by mistake is what an IKE daemon still holds, the current keys
//! and for a while the ones before; keeping all would grow by 120 bytes with each rekeying, and every
//! write writes all. Lines of static pairs are never dropped.

mod book;
mod identity;
mod lost;
mod text;

pub use book::Book;
pub use identity::Identity;
pub use lost::{BeginError, Lost, NotReserved};

use super::WallTime;
pub use crate::wire::esp::Fingerprint;

/// Lines that are kept of a tunnel's installed associations: a few times what an IKE daemon holds.
pub const KEPT: usize = 8;

/// The exclusive or of fingerprints: with one of them missing it gives that one away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Parity(u128);

impl Parity {
    const fn with(self, fingerprint: Fingerprint) -> Self {
        Self(self.0 ^ u128::from_be_bytes(fingerprint.to_bytes()))
    }

    const fn missing(self, other: Self) -> Fingerprint {
        Fingerprint::from_bytes((self.0 ^ other.0).to_be_bytes())
    }
}

/// Where an association's keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From files: the same keys in every run.
    Static,
    /// Handed over at run time, kept in memory.
    Installed,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Installed => "installed",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Static, Self::Installed].into_iter().find(|kind| kind.name() == text)
    }
}

/// What the record holds of an association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its keys' name.
    pub fingerprint: Fingerprint,
    /// Its SPI; for people to read.
    pub spi: u32,
    /// Where its keys come from.
    pub kind: Kind,
    /// Every number below may have been used.
    pub mark: u64,
    /// When the mark was written, to the millisecond; for people to read.
    pub written: WallTime,
    /// The tunnel that it was begun for; for people to read.
    pub tunnel: String,
}

/// An association to be begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// Its keys' name.
    pub fingerprint: Fingerprint,
    /// Its SPI.
    pub spi: u32,
    /// Where its keys come from.
    pub kind: Kind,
    /// The tunnel.
    pub tunnel: String,
    /// The first number that it is to use.
    pub first: u64,
    /// Numbers from `first` up to this, exclusive, are reserved for this run. For installed keys: the
    /// end of the space, since no other run will use them.
    pub mark: u64,
}

/// An association that has begun: [`super::numbers::Numbers::new`] takes both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// The first number that may be used: the one asked for, or the recorded mark if that is higher.
    pub first: u64,
    /// Those from `first` up to this, exclusive, are reserved.
    pub mark: u64,
}
