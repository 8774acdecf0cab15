//! THIN shells over the system: sockets, namespaces, clocks. No decision about health is made here;
//! if it needs an `if` about a tunnel's state, it does not belong in this room.
//!
//! | file | holds |
//! | --- | --- |
//! | [`clock`] | the one place where now is read |
//! | [`alarm`] | being woken on time |
//! | [`notify`] | what the service manager is told |
//! | [`netns`] | running something inside a network namespace; which one stands under a name |
//! | [`raw`] | raw sockets: opened, filtered, drained and filled in batches |
//! | [`sandbox`] | the walls of a process that strangers can reach |
//! | [`logbook`] | the way out of the log and of the recording, for which nobody waits |
//! | [`journal`] | entries with fields for systemd's journal |
//! | [`device`] | sending through one of the kernel's own tunnel devices |
//! | [`xfrm`] | watching the kernel's security associations |
//! | [`fib`] | the kernel's routes: changed, pictured, listened to |
//! | [`links`] | veth pairs and addresses in namespaces that we made |
//! | [`tunnels`] | the kernel's tunnel devices, addresses and routes, for a proposal |
//! | [`heap`] | memory given back |
//! | [`local`] | the local socket: HTTP with JSON |
//! | [`ledger`] | the durable record of ESP sequence numbers |
//! | [`letters`] | a private line between two processes, over which descriptors can be handed |
//! | [`deliver`] | the way to whom people are told by: programs, webhooks |
//! | [`told`] | what people have been told, on the disk |
//! | [`memory`] | what is remembered of the tunnels, on the disk |
//! | `durable` | files that are there whole whenever the power fails |
//! | `lock` | a lock file: who owns a path |
//! | `netlink` | messages to and from the kernel |
//!
//! May import: the engine's and the wire's values, `config::propose`'s, and the crates that wrap system calls.

pub mod alarm;
pub mod clock;
pub mod deliver;
pub mod device;
mod durable;
pub mod fib;
pub mod heap;
pub mod journal;
pub mod ledger;
pub mod letters;
pub mod links;
pub mod local;
mod lock;
pub mod logbook;
pub mod memory;
mod netlink;
pub mod netns;
pub mod notify;
pub mod raw;
pub mod sandbox;
pub mod told;
pub mod tunnels;
pub mod xfrm;
