//! HMAC-SHA-256-128 (RFC 4868): the leftmost half of an HMAC-SHA-256.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::ICV;
use super::cipher::{Front, WrongIcv};

/// The state of the hash after the key's block, inner and outer.
pub(super) struct Authenticator(Hmac<Sha256>);

impl Authenticator {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    pub(super) fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("a key of any length"))
    }

    pub(super) fn icv(&self, front: Front<'_>, body: &[u8]) -> [u8; ICV] {
        let mut icv = [0; ICV];
        icv.copy_from_slice(&self.over(front, body).finalize().into_bytes()[..ICV]);
        icv
    }

    /// Compares in constant time.
    pub(super) fn verify(&self, front: Front<'_>, body: &[u8], icv: &[u8; ICV]) -> Result<(), WrongIcv> {
        self.over(front, body).verify_truncated_left(icv).map_err(|_| WrongIcv)
    }

    /// The packet as it travels, and then the upper half of an extended sequence number, which
    /// does not (RFC 4303 section 2.2.1).
    fn over(&self, front: Front<'_>, body: &[u8]) -> Hmac<Sha256> {
        let mut hmac = self.0.clone();
        hmac.update(front.header);
        hmac.update(front.iv);
        hmac.update(body);
        if let Some(high) = front.high {
            hmac.update(&high.to_be_bytes());
        }
        hmac
    }
}
