//! ESP (RFC 4303) in tunnel mode: a probe's IP packet, sealed and opened.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+ ---
//! |               Security Parameters Index (SPI)                 |  ^
//! |          Sequence number, its lower 32 bits                   |  | header
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+ ---
//! |                    IV (none, 8 or 16 bytes)                   |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+ ---
//! |                    The inner IP packet                        |  ^
//! |               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+  | encrypted
//! |               |     Padding   |  Pad length   | Next header   |  v
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+ ---
//! |          Integrity check value (ICV), 16 bytes                |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! A *security association* is one direction's SPI, algorithm and keys: [`Outbound`] seals, [`Inbound`]
//! opens and has the *replay window*. Who hands out sequence numbers is somebody else, for no
//! number may be used twice, whatever happens to the process.
//!
//! | file | holds |
//! | --- | --- |
//! | [`algorithm`] | the six algorithms and their lengths |
//! | [`keys`] | key material, its fingerprint, the seed of the IVs |
//! | `cipher`, `aead`, `cbc`, `hmac` | the algorithms at work, over RustCrypto |
//! | [`shape`] | where things lie in a packet, and how long it becomes |
//! | [`outbound`] | sealing |
//! | [`inbound`] | opening |
//! | [`replay`] | the replay window, and the upper half of an extended sequence number |
//! | [`udp`] | ESP in UDP (RFC 3948) |

mod aead;
pub mod algorithm;
mod cbc;
mod cipher;
mod hmac;
pub mod inbound;
pub mod keys;
pub mod outbound;
pub mod replay;
pub mod shape;
pub mod udp;

pub use algorithm::Algorithm;
pub use inbound::{Inbound, Opened};
pub use keys::{Fingerprint, IvSeed, Keys};
pub use outbound::Outbound;
pub use shape::Shape;

use super::{Family, Reject};

/// The IP protocol number of ESP.
pub const PROTOCOL: u8 = 50;
/// The bytes of SPI and sequence number.
pub const HEADER: usize = 8;
/// The bytes of the integrity check value; the same for every algorithm here.
pub const ICV: usize = 16;
/// The least SPI: 1 to 255 are reserved, and 0 never goes over the wire (RFC 4303 section 2.1).
pub const SPI_MIN: u32 = 256;

/// What an ESP packet says of itself before anything is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Names the association, together with the addresses.
    pub spi: u32,
    /// The sequence number's lower 32 bits.
    pub sequence: u32,
}

/// Reads SPI and sequence number, to find the association that can open the packet.
///
/// # Errors
/// [`Reject::EspTruncated`] where the eight bytes do not fit.
pub fn peek(packet: &[u8]) -> Result<Header, Reject> {
    let (&[s0, s1, s2, s3, n0, n1, n2, n3], _) = packet.split_first_chunk::<HEADER>().ok_or(Reject::EspTruncated)?;
    Ok(Header { spi: u32::from_be_bytes([s0, s1, s2, s3]), sequence: u32::from_be_bytes([n0, n1, n2, n3]) })
}

/// The next header of an inner packet: the protocol numbers of IP in IP.
const fn next_header(inner: Family) -> u8 {
    match inner {
        Family::V4 => 4,
        Family::V6 => 41,
    }
}

/// The upper and lower half of a sequence number.
#[expect(clippy::cast_possible_truncation, reason = "the two halves of a double word")]
const fn halves(sequence: u64) -> (u32, u32) {
    ((sequence >> 32) as u32, sequence as u32)
}

#[cfg(test)]
mod vectors;
