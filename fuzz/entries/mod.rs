//! What is tried with whatever bytes there are: one function a target. The fuzzer calls them, and so does
//! `tests/fuzz_corpus.rs` with every input that is kept, so that none can rot.
//!
//! Each says more than that nothing panics: a law that must hold whatever the bytes.

#![allow(dead_code, reason = "each target uses its part of it")]

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod esp;
pub(crate) mod gre;
pub(crate) mod ledger;
pub(crate) mod memory;
pub(crate) mod netlink;
pub(crate) mod onion;
pub(crate) mod reflect;
pub(crate) mod replay;
pub(crate) mod socket;

/// What a target does with bytes.
pub(crate) type Run = fn(&[u8]);

/// Every target, by its name.
pub(crate) const ALL: [(&str, Run); 10] = [
    ("config", config::run),
    ("esp", esp::run),
    ("gre", gre::run),
    ("ledger", ledger::run),
    ("memory", memory::run),
    ("netlink", netlink::run),
    ("onion", onion::run),
    ("reflect", reflect::run),
    ("replay", replay::run),
    ("socket", socket::run),
];
