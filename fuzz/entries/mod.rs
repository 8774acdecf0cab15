//! What is tried with whatever bytes there are: one function a target. The fuzzer calls them, and so does
//! `tests/fuzz_corpus.rs` with every input that is kept, so that none can rot.
//!
//! Each says more than that nothing panics: a law that must hold whatever the bytes.

#![allow(dead_code, reason = "each target uses its part of it")]

use std::cell::Cell;

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod esp;
pub(crate) mod gre;
pub(crate) mod import;
pub(crate) mod ledger;
pub(crate) mod memory;
pub(crate) mod netlink;
pub(crate) mod onion;
pub(crate) mod reflect;
pub(crate) mod replay;
pub(crate) mod socket;

thread_local! {
    static DEEP: Cell<u64> = const { Cell::new(0) };
}

/// Said where an input has got through every check: what is kept must not become shallow as formats change.
pub(crate) fn deep() {
    DEEP.set(DEEP.get() + 1);
}

/// How often that was said on this thread so far.
pub(crate) fn depth() -> u64 {
    DEEP.get()
}

/// A name, and what is done with the bytes.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const ALL: [Target; 11] = [
    ("config", config::run),
    ("esp", esp::run),
    ("gre", gre::run),
    ("import", import::run),
    ("ledger", ledger::run),
    ("memory", memory::run),
    ("netlink", netlink::run),
    ("onion", onion::run),
    ("reflect", reflect::run),
    ("replay", replay::run),
    ("socket", socket::run),
];
