//! The six algorithms and their lengths.

use super::ICV;

/// How an association encrypts and authenticates.
///
/// RFC 8221 asks for AES-GCM, AES-CBC, NULL and HMAC-SHA-256-128 of everybody and recommends
/// ChaCha20-Poly1305; so these are what a far router has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// AES-CBC with a key of 128 bits (RFC 3602), HMAC-SHA-256-128 (RFC 4868).
    Aes128CbcHmacSha256,
    /// AES-CBC with a key of 256 bits, HMAC-SHA-256-128.
    Aes256CbcHmacSha256,
    /// No encryption (RFC 2410), HMAC-SHA-256-128.
    NullHmacSha256,
    /// AES-GCM with a key of 128 bits and an ICV of 16 bytes (RFC 4106).
    Aes128Gcm,
    /// AES-GCM with a key of 256 bits and an ICV of 16 bytes.
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
}

/// HMAC-SHA-256-128: the key has the length of the hash (RFC 4868 section 2.1.1).
pub(super) const AUTHENTICATION_KEY: usize = 32;
/// What follows the cipher key: RFC 4106 section 8.1, RFC 7634 section 2.
pub(super) const SALT: usize = 4;
/// Pad length and next header.
pub(super) const TRAILER: usize = 2;

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Aes128CbcHmacSha256,
        Self::Aes256CbcHmacSha256,
        Self::NullHmacSha256,
        Self::Aes128Gcm,
        Self::Aes256Gcm,
        Self::ChaCha20Poly1305,
    ];

    /// The name in configuration and status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128CbcHmacSha256 => "aes128-cbc-hmac-sha256",
            Self::Aes256CbcHmacSha256 => "aes256-cbc-hmac-sha256",
            Self::NullHmacSha256 => "null-hmac-sha256",
            Self::Aes128Gcm => "aes128-gcm",
            Self::Aes256Gcm => "aes256-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// The algorithm of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Bytes of key material: the cipher's key, then the salt of four bytes where there is one,
    /// else the authentication key of 32 bytes. `ip xfrm` wants them in the same order.
    #[must_use]
    pub const fn key_len(self) -> usize {
        let tail = if self.is_counter_mode() { SALT } else { AUTHENTICATION_KEY };
        self.cipher_key_len() + tail
    }

    /// Bytes of the cipher's own key.
    #[must_use]
    pub const fn cipher_key_len(self) -> usize {
        match self {
            Self::NullHmacSha256 => 0,
            Self::Aes128CbcHmacSha256 | Self::Aes128Gcm => 16,
            Self::Aes256CbcHmacSha256 | Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Bytes of the IV in each packet.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 => 16,
            Self::NullHmacSha256 => 0,
            Self::Aes128Gcm | Self::Aes256Gcm | Self::ChaCha20Poly1305 => 8,
        }
    }

    /// Bytes of the integrity check value.
    #[must_use]
    pub const fn icv_len(self) -> usize {
        ICV
    }

    /// What the encrypted bytes must be a multiple of: the cipher's block, and four bytes at
    /// least (RFC 4303 section 2.4).
    #[must_use]
    pub const fn alignment(self) -> usize {
        match self {
            Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 => 16,
            Self::NullHmacSha256 | Self::Aes128Gcm | Self::Aes256Gcm | Self::ChaCha20Poly1305 => 4,
        }
    }

    /// Whether one nonce used twice gives its secrets away: such a cipher must not have a static
    /// key (RFC 4106 section 2, RFC 7634 section 5, RFC 8221 section 3).
    #[must_use]
    pub const fn is_counter_mode(self) -> bool {
        match self {
            Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 | Self::NullHmacSha256 => false,
            Self::Aes128Gcm | Self::Aes256Gcm | Self::ChaCha20Poly1305 => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_algorithm() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_name(algorithm.name()), Some(algorithm));
        }
        assert_eq!(Algorithm::from_name("AES128-GCM"), None);
    }

    #[test]
    fn key_material_is_as_long_as_the_rfcs_have_it() {
        let lengths = Algorithm::ALL.map(Algorithm::key_len);
        assert_eq!(lengths, [16 + 32, 32 + 32, 32, 16 + 4, 32 + 4, 32 + 4]);
    }
}
