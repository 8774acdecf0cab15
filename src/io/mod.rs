//! THIN shells over the system: sockets, namespaces, clocks. No decision about health is made here;
//! if it needs an `if` about a tunnel's state, it does not belong in this room.
//!
//! | file | holds |
//! | --- | --- |
//! | [`clock`] | the one place where now is read |
//! | [`netns`] | running something inside a network namespace; which one stands under a name |
//! | [`raw`] | raw sockets: opened, filtered, drained and filled in batches |
//! | [`device`] | sending through one of the kernel's own tunnel devices |
//! | [`xfrm`] | watching the kernel's security associations |
//! | [`links`] | veth pairs and addresses in namespaces that we made |
//! | [`local`] | the local socket: HTTP with JSON |
//! | [`ledger`] | the durable record of ESP sequence numbers |
//! | `lock` | a lock file: who owns a path |
//!
//! May import: the engine's and the wire's values, and the crates that wrap system calls.

pub mod clock;
pub mod device;
pub mod ledger;
pub mod links;
pub mod local;
mod lock;
pub mod netns;
pub mod raw;
pub mod xfrm;
