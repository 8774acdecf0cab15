//! Sealing.

use super::algorithm::TRAILER;
use super::cipher::{Cipher, Front};
use super::{Algorithm, HEADER, ICV, IvSeed, Keys, Shape, halves, next_header, udp};
use crate::wire::{Ends, Family};

/// One outbound association. It seals under the sequence numbers that it is given: who gives them
/// must never give one twice under the same keys.
pub struct Outbound {
    spi: u32,
    esn: bool,
    cipher: Cipher,
    seed: IvSeed,
}

impl Outbound {
    /// An association: its SPI, whether its sequence numbers are extended (RFC 4304), its keys, and
    /// the seed of its IVs, which no other association and no other run has.
    #[must_use]
    pub fn new(spi: u32, esn: bool, keys: &Keys, seed: &IvSeed) -> Self {
        Self { spi, esn, cipher: Cipher::new(keys), seed: seed.clone() }
    }

    /// The SPI.
    #[must_use]
    pub const fn spi(&self) -> u32 {
        self.spi
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.cipher.algorithm()
    }

    /// Whether sequence numbers are extended.
    #[must_use]
    pub const fn esn(&self) -> bool {
        self.esn
    }

    /// The highest sequence number there is: 2³² − 1, or 2⁶⁴ − 1 where they are extended. They must
    /// not wrap (RFC 4303 section 3.3.3).
    #[must_use]
    pub const fn last(&self) -> u64 {
        if self.esn { u64::MAX } else { u32::MAX as u64 }
    }

    /// Seals one packet where it is.
    ///
    /// `packet` is what follows the outer IP header: [`Shape::length`] bytes, of which the
    /// `inner_len` from [`Shape::inner_at`] on are the inner packet. All others are written here.
    /// `outer` are the outer addresses, from the local one to the far one; only UDP over IPv6 needs
    /// them, for its checksum.
    ///
    /// # Panics
    /// On what must never leave: a sequence number of 0 or above [`Self::last`], a shape of another
    /// algorithm, a packet of another length or longer than an IP packet can be.
    pub fn seal(&self, shape: Shape, outer: Ends, sequence: u64, inner: Family, inner_len: usize, packet: &mut [u8]) {
        let iv = &mut packet[shape.esp_at() + HEADER..shape.inner_at()];
        match iv.len() {
            0 => {}
            8 => iv.copy_from_slice(&self.seed.counter(sequence)),
            _ => iv.copy_from_slice(&self.seed.unforeseeable(self.spi, sequence)),
        }
        self.close(shape, outer, sequence, inner, inner_len, packet);
    }

    /// The same, under the IV that is in its place.
    pub(super) fn close(
        &self,
        shape: Shape,
        outer: Ends,
        sequence: u64,
        inner: Family,
        inner_len: usize,
        packet: &mut [u8],
    ) {
        assert!((1..=self.last()).contains(&sequence), "no such sequence number");
        assert!(shape.algorithm() == self.algorithm(), "a shape of another algorithm");
        assert!(packet.len() == shape.length(inner_len) && packet.len() <= LONGEST, "a packet of another length");
        let (udp, esp) = packet.split_at_mut(shape.esp_at());
        let (header, rest) = esp.split_at_mut(HEADER);
        let (high, low) = halves(sequence);
        header[..4].copy_from_slice(&self.spi.to_be_bytes());
        header[4..].copy_from_slice(&low.to_be_bytes());
        let (iv, rest) = rest.split_at_mut(self.algorithm().iv_len());
        let (body, icv) = rest.split_at_mut(rest.len() - ICV);
        trail(inner, &mut body[inner_len..]);

        let front = Front { header, high: self.esn.then_some(high), iv };
        icv.copy_from_slice(&self.cipher.seal(front, body));
        if !udp.is_empty() {
            udp::emit(outer, packet);
        }
    }
}

/// The most that an IP packet carries.
const LONGEST: usize = u16::MAX as usize;

/// Padding of 1, 2, 3, …, its length, the next header (RFC 4303 sections 2.4 to 2.6).
fn trail(inner: Family, trailer: &mut [u8]) {
    let padding = trailer.len() - TRAILER;
    for (byte, number) in trailer[..padding].iter_mut().zip(1..) {
        *byte = number;
    }
    #[expect(clippy::cast_possible_truncation, reason = "less than a block")]
    let length = padding as u8;
    trailer[padding..].copy_from_slice(&[length, next_header(inner)]);
}
