//! Bytes in, values out. PURE: no socket, no clock, no policy.
//!
//! The contract of this room: a parser takes any bytes at all and returns a value or one
//! [`Reject`] reason; it never panics. What is built here can be emitted, and nonsense (two
//! address families in one header, say) cannot be built.
//!
//! | file | holds |
//! | --- | --- |
//! | [`reject`] | one reason for every way a packet can be wrong |
//! | [`checksum`] | the Internet checksum (RFC 1071) |
//! | [`ends`] | the two ends of a header, in one family |
//! | [`ip`] | checked views of IPv4 and IPv6, over etherparse |
//! | [`icmp`] | echo request and reply, ICMPv4 and ICMPv6 |
//! | [`gre`] | RFC 2784 and 2890 headers |
//! | [`esp`] | RFC 4303 in tunnel mode, sealed and opened; RFC 3948 |
//! | [`payload`] | what makes a probe prove itself |
//! | [`probe`] | the onion: all of these, built and parsed |
//! | [`quote`] | ICMP errors that quote a probe: hints, never evidence |
//! | [`filter`] | the kernel filter that passes only what can be an answer |
//!
//! May import: etherparse, pnet (building only: its GRE accessors panic on hostile input),
//! siphasher, the ciphers, hashes and zeroize for [`esp`], the standard library. Never anything of `engine`, `io`, `config` or `cli`.

pub mod checksum;
pub mod ends;
pub mod esp;
pub mod filter;
pub mod gre;
pub mod icmp;
pub mod ip;
pub mod payload;
pub mod probe;
pub mod quote;
pub mod reject;

pub use ends::{Ends, Family};
pub use probe::{Direction, Encapsulation, Kind, Onion, Path, Reply, Stamp, Style, Template};
pub use reject::Reject;
