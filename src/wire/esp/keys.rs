//! Key material, its fingerprint, and the seed of the IVs. Nothing in here has `Debug` or
//! `Serialize` that could give a key away, and all of it is wiped when dropped.

use std::fmt;
use std::hash::Hasher;

use sha2::{Digest, Sha256};
use siphasher::sip128::{Hasher128, SipHasher24};
use zeroize::Zeroizing;

use super::Algorithm;

/// An algorithm and key material of the length that it needs.
#[derive(Clone)]
pub struct Keys {
    algorithm: Algorithm,
    material: Zeroizing<Vec<u8>>,
}

impl Keys {
    /// Keys from their bytes: cipher key, then salt or authentication key ([`Algorithm::key_len`]).
    /// `None` where the length is another one.
    #[must_use]
    pub fn new(algorithm: Algorithm, material: Zeroizing<Vec<u8>>) -> Option<Self> {
        (material.len() == algorithm.key_len()).then_some(Self { algorithm, material })
    }

    /// What these are keys of.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Cipher key, and salt or authentication key.
    pub(super) fn split(&self) -> (&[u8], &[u8]) {
        self.material.split_at(self.algorithm.cipher_key_len())
    }

    /// Names these keys without giving them away: the first 16 bytes of a SHA-256 over a text of its
    /// own, the algorithm's name and the key material. The SPI is no part of it: a number or nonce
    /// that was used with a key was used with it under whatever SPI.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        hash.update(b"adit: fingerprint of ESP keys, 1\0");
        hash.update(self.algorithm.name());
        hash.update(b"\0");
        hash.update(&*self.material);
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&hash.finalize()[..16]);
        Fingerprint(fingerprint)
    }
}

/// The name of an association's keys; written as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// The name that these bytes are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Reads 32 hexadecimal digits; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all_hex = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = all_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()?;
        Some(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// What an association's IVs come from: 16 random bytes, new for each association and each run.
#[derive(Clone)]
pub struct IvSeed(Zeroizing<[u8; 16]>);

impl IvSeed {
    /// A seed of these bytes, which must be random.
    #[must_use]
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The IV of a counter mode: the sequence number, each bit of which the seed flips or not. So
    /// no two packets of an association have the same (RFC 4106 section 3.1), and keys that are
    /// installed once more meet other ones.
    pub(super) fn counter(&self, sequence: u64) -> [u8; 8] {
        let [s0, s1, s2, s3, s4, s5, s6, s7, ..] = *self.0;
        (sequence ^ u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7])).to_be_bytes()
    }

    /// The IV of CBC, which nobody may foretell (RFC 3602 section 3): a pseudo-random function of
    /// SPI and sequence number.
    pub(super) fn unforeseeable(&self, spi: u32, sequence: u64) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&spi.to_be_bytes());
        hasher.write(&sequence.to_be_bytes());
        hasher.finish128().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(algorithm: Algorithm, byte: u8) -> Keys {
        Keys::new(algorithm, Zeroizing::new(vec![byte; algorithm.key_len()])).unwrap()
    }

    #[test]
    fn keys_of_a_wrong_length_are_none() {
        for algorithm in Algorithm::ALL {
            for length in (0..80).filter(|&length| length != algorithm.key_len()) {
                assert!(Keys::new(algorithm, Zeroizing::new(vec![1; length])).is_none());
            }
        }
    }

    #[test]
    fn a_fingerprint_differs_by_algorithm_and_key() {
        let one = keys(Algorithm::Aes256Gcm, 1);
        assert_eq!(one.fingerprint(), keys(Algorithm::Aes256Gcm, 1).fingerprint());
        let others = [keys(Algorithm::Aes256Gcm, 2).fingerprint(), keys(Algorithm::ChaCha20Poly1305, 1).fingerprint()];
        assert!(!others.contains(&one.fingerprint()));
    }

    #[test]
    fn a_fingerprint_is_read_as_it_is_written() {
        let fingerprint = Fingerprint([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(fingerprint.to_string(), "000102030405060708090a0b0c0d0e0f");
        assert_eq!(Fingerprint::parse(&fingerprint.to_string()), Some(fingerprint));
        for wrong in ["", "00", "+00102030405060708090a0b0c0d0e0f", "000102030405060708090a0b0c0d0e0f0"] {
            assert_eq!(Fingerprint::parse(wrong), None);
        }
    }

    #[test]
    fn the_ivs_of_two_runs_differ_and_those_of_one_do_not_repeat() {
        let (one, other) = (IvSeed::new([1; 16]), IvSeed::new([2; 16]));
        let ivs: std::collections::BTreeSet<[u8; 8]> =
            [0, 1, 2, 1 << 32, (1 << 32) + 1, u64::MAX].map(|sequence| one.counter(sequence)).into();
        assert_eq!(ivs.len(), 6);
        assert_ne!(one.counter(1), other.counter(1));
        assert_ne!(one.unforeseeable(256, 1), other.unforeseeable(256, 1));
        assert_ne!(one.unforeseeable(256, 1), one.unforeseeable(257, 1));
        assert_ne!(one.unforeseeable(256, 1), one.unforeseeable(256, 2));
    }
}
