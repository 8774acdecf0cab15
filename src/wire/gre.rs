//! GRE headers: RFC 2784 with the key and sequence number of RFC 2890.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |C|R|K|S|    Reserved0    | Ver |         Protocol Type         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |      Checksum (optional)      |       Reserved1 (optional)    |
//! |                         Key (optional)                        |
//! |                    Sequence Number (optional)                 |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use super::{Family, Reject, checksum};

/// The IP protocol number of GRE.
pub const PROTOCOL: u8 = 47;

const CHECKSUM: u16 = 0x8000;
const ROUTING: u16 = 0x4000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// RFC 2784 section 2.3: a receiver must discard a packet with any of bits 1 to 5 set. RFC 2890
/// takes bits 2 and 3 out of those; bits 6 to 12 must be zero when sent and are ignored here.
const MUST_BE_ZERO: u16 = 0x0C00;
const VERSION: u16 = 0x0007;

/// What a tunnel's GRE headers carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The key (RFC 2890 section 2.1): tells tunnels between the same endpoints apart.
    pub key: Option<u32>,
    /// Whether sent packets carry a checksum (RFC 2784 section 2.5).
    pub checksum: bool,
    /// Whether sent packets carry a sequence number (RFC 2890 section 2.2).
    pub sequence: bool,
}

impl Options {
    /// A key, and nothing else.
    #[must_use]
    pub const fn keyed(key: u32) -> Self {
        Self { key: Some(key), checksum: false, sequence: false }
    }

    /// The length of a header with these options, in bytes.
    #[must_use]
    pub const fn header_len(self) -> usize {
        let mut length = 4;
        if self.checksum {
            length += 4;
        }
        if self.key.is_some() {
            length += 4;
        }
        if self.sequence {
            length += 4;
        }
        length
    }
}

/// A GRE header that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The family of the packet inside.
    pub inner: Family,
    /// The key, if there is one.
    pub key: Option<u32>,
    /// The sequence number, if there is one. It orders packets and proves nothing.
    pub sequence: Option<u32>,
}

/// Splits a GRE packet into its header and what it carries.
///
/// # Errors
/// Version other than 0, the routing bit, a reserved bit, an optional word that does not fit, a
/// wrong checksum, or something other than IP inside.
pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), Reject> {
    let mut words = Words { rest: bytes };
    let first = words.next()?;
    let (flags, protocol) = halves(first);
    if flags & VERSION != 0 {
        return Err(Reject::GreVersion);
    }
    if flags & ROUTING != 0 {
        return Err(Reject::GreRouting);
    }
    if flags & MUST_BE_ZERO != 0 {
        return Err(Reject::GreReserved);
    }
    let has_checksum = words.next_if(flags & CHECKSUM != 0)?.is_some();
    let key = words.next_if(flags & KEY != 0)?;
    let sequence = words.next_if(flags & SEQUENCE != 0)?;
    if has_checksum && !left_to_hardware(bytes) && checksum::of(bytes) != 0 {
        return Err(Reject::GreChecksum);
    }
    let inner = match protocol {
        0x0800 => Family::V4,
        0x86DD => Family::V6,
        _ => return Err(Reject::GreProtocol),
    };
    Ok((Header { inner, key, sequence }, words.rest))
}

/// Whether the checksum field is zero. A Linux router leaves the GRE checksum to its network card,
/// and where that is a virtual one, to a neighbour on the same host (veth, virtio), nobody ever
/// computes it. The field is then zero, the kernel believes such a packet, and so do we: everything
/// inside is checked for itself. (A right checksum of zero passes either way.)
fn left_to_hardware(bytes: &[u8]) -> bool {
    bytes.get(4..6) == Some(&[0, 0])
}

/// Writes a header in front of `packet[options.header_len()..]`, with the checksum still zero.
pub fn emit(options: Options, inner: Family, packet: &mut [u8]) {
    let mut flags = 0;
    let mut at = 4;
    if options.checksum {
        flags |= CHECKSUM;
        at += 4;
    }
    if let Some(key) = options.key {
        flags |= KEY;
        packet[at..at + 4].copy_from_slice(&key.to_be_bytes());
        at += 4;
    }
    if options.sequence {
        flags |= SEQUENCE;
    }
    packet[..2].copy_from_slice(&flags.to_be_bytes());
    packet[2..4].copy_from_slice(&inner.ethertype().to_be_bytes());
    debug_assert_eq!(at + if options.sequence { 4 } else { 0 }, options.header_len());
}

/// Fills in the sequence number and then the checksum of a packet that [`emit`] began.
pub fn patch(options: Options, sequence: u32, packet: &mut [u8]) {
    if options.sequence {
        let at = options.header_len() - 4;
        packet[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
    }
    if options.checksum {
        packet[4..6].fill(0);
        let value = checksum::of(packet);
        packet[4..6].copy_from_slice(&value.to_be_bytes());
    }
}

struct Words<'a> {
    rest: &'a [u8],
}

impl Words<'_> {
    fn next(&mut self) -> Result<u32, Reject> {
        let (word, rest) = self.rest.split_first_chunk::<4>().ok_or(Reject::GreTruncated)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*word))
    }

    fn next_if(&mut self, present: bool) -> Result<Option<u32>, Reject> {
        if present { self.next().map(Some) } else { Ok(None) }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
const fn halves(word: u32) -> (u16, u16) {
    ((word >> 16) as u16, word as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Vec<u8> {
        let options = Options { key: Some(7), checksum: true, sequence: true };
        let mut packet = vec![0xA5; options.header_len() + 5];
        emit(options, Family::V4, &mut packet);
        packet[4..8].fill(0);
        patch(options, 9, &mut packet);
        packet
    }

    #[test]
    fn what_is_emitted_parses_to_the_same() {
        let packet = packet();
        let header = Header { inner: Family::V4, key: Some(7), sequence: Some(9) };
        assert_eq!(parse(&packet), Ok((header, &packet[16..])));
    }

    #[test]
    fn a_checksum_that_was_left_to_hardware_is_believed_and_any_other_wrong_one_is_not() {
        let mut packet = packet();
        packet[4..6].copy_from_slice(&[0, 0]);
        assert!(parse(&packet).is_ok());
        packet[4..6].copy_from_slice(&[0, 1]);
        assert_eq!(parse(&packet), Err(Reject::GreChecksum));
    }
}
