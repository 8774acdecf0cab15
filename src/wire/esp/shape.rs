//! Where things lie in a packet, and how long it becomes.

use super::algorithm::TRAILER;
use super::{Algorithm, HEADER, ICV, udp};

/// What decides the lengths: the algorithm, and whether UDP is around it. All lengths are in bytes
/// and count from the end of the outer IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    algorithm: Algorithm,
    udp: bool,
}

impl Shape {
    /// The shape of packets sealed with this algorithm, in UDP (RFC 3948) or not.
    #[must_use]
    pub const fn new(algorithm: Algorithm, udp: bool) -> Self {
        Self { algorithm, udp }
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(self) -> Algorithm {
        self.algorithm
    }

    /// Whether UDP is around it.
    #[must_use]
    pub const fn udp(self) -> bool {
        self.udp
    }

    /// The protocol that the outer IP header names: ESP or UDP.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        if self.udp { udp::PROTOCOL } else { super::PROTOCOL }
    }

    /// Where the ESP header begins.
    #[must_use]
    pub const fn esp_at(self) -> usize {
        if self.udp { udp::HEADER } else { 0 }
    }

    /// Where the inner packet begins: after the UDP header, if any, the ESP header and the IV.
    #[must_use]
    pub const fn inner_at(self) -> usize {
        self.esp_at() + HEADER + self.algorithm.iv_len()
    }

    /// How long all of it is around an inner packet of this length: with padding, trailer and ICV.
    #[must_use]
    pub const fn length(self, inner: usize) -> usize {
        self.inner_at() + (inner + TRAILER).next_multiple_of(self.algorithm.alignment()) + ICV
    }

    /// How much longer than the inner packet that is.
    #[must_use]
    pub const fn overhead(self, inner: usize) -> usize {
        self.length(inner) - inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_rfcs() {
        // 84 bytes and 2 of the trailer need 2 of padding to be a multiple of 4, 10 to be one of 16.
        let gcm = Shape::new(Algorithm::Aes256Gcm, false);
        assert_eq!((gcm.inner_at(), gcm.length(84), gcm.overhead(84)), (16, 16 + 88 + 16, 36));
        let cbc = Shape::new(Algorithm::Aes128CbcHmacSha256, false);
        assert_eq!((cbc.inner_at(), cbc.length(84)), (24, 24 + 96 + 16));
        let null = Shape::new(Algorithm::NullHmacSha256, true);
        assert_eq!((null.inner_at(), null.length(84)), (16, 16 + 88 + 16));
    }

    #[test]
    fn what_fits_exactly_gets_no_padding() {
        let cbc = Shape::new(Algorithm::Aes128CbcHmacSha256, false);
        assert_eq!(cbc.length(94), cbc.length(84));
        assert_eq!(cbc.length(95), cbc.length(84) + 16);
    }
}
