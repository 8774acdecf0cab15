//! The six algorithms at work. Common to them: some bytes that are only authenticated, some that
//! are encrypted, an ICV over both.

use aes::{Aes128, Aes128Enc, Aes256, Aes256Enc};
use aes_gcm::AesGcm;
use aes_gcm::aead::consts::U12;
use chacha20poly1305::ChaCha20Poly1305;

use super::aead::Aead;
use super::cbc::Cbc;
use super::hmac::Authenticator;
use super::{Algorithm, ICV, Keys};

/// GCM never decrypts a block: with half of the key schedule an association takes half of the memory.
type Aes128Gcm = AesGcm<Aes128Enc, U12>;
type Aes256Gcm = AesGcm<Aes256Enc, U12>;

/// An association's key schedules, set up once. In boxes, so that who moves the association leaves
/// no copy of them behind.
pub(super) enum Cipher {
    Aes128Cbc(Box<(Cbc<Aes128>, Authenticator)>),
    Aes256Cbc(Box<(Cbc<Aes256>, Authenticator)>),
    Null(Box<Authenticator>),
    Aes128Gcm(Box<Aead<Aes128Gcm>>),
    Aes256Gcm(Box<Aead<Aes256Gcm>>),
    ChaCha20Poly1305(Box<Aead<ChaCha20Poly1305>>),
}

/// What is in front of the encrypted bytes.
#[derive(Clone, Copy)]
pub(super) struct Front<'a> {
    /// SPI and the sequence number's lower half, as they travel.
    pub(super) header: &'a [u8],
    /// The upper half, which does not travel, where numbers are extended (RFC 4304).
    pub(super) high: Option<u32>,
    /// The IV as it travels.
    pub(super) iv: &'a [u8],
}

/// The ICV is not the one that these keys make.
#[derive(Debug)]
pub(super) struct WrongIcv;

impl Cipher {
    pub(super) fn new(keys: &Keys) -> Self {
        let (key, tail) = keys.split();
        match keys.algorithm() {
            Algorithm::Aes128CbcHmacSha256 => Self::Aes128Cbc(Box::new((Cbc::new(key), Authenticator::new(tail)))),
            Algorithm::Aes256CbcHmacSha256 => Self::Aes256Cbc(Box::new((Cbc::new(key), Authenticator::new(tail)))),
            Algorithm::NullHmacSha256 => Self::Null(Box::new(Authenticator::new(tail))),
            Algorithm::Aes128Gcm => Self::Aes128Gcm(Box::new(Aead::new(key, tail))),
            Algorithm::Aes256Gcm => Self::Aes256Gcm(Box::new(Aead::new(key, tail))),
            Algorithm::ChaCha20Poly1305 => Self::ChaCha20Poly1305(Box::new(Aead::new(key, tail))),
        }
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Aes128Cbc(_) => Algorithm::Aes128CbcHmacSha256,
            Self::Aes256Cbc(_) => Algorithm::Aes256CbcHmacSha256,
            Self::Null(_) => Algorithm::NullHmacSha256,
            Self::Aes128Gcm(_) => Algorithm::Aes128Gcm,
            Self::Aes256Gcm(_) => Algorithm::Aes256Gcm,
            Self::ChaCha20Poly1305(_) => Algorithm::ChaCha20Poly1305,
        }
    }

    /// Encrypts `body` where it is, a whole number of [`Algorithm::alignment`], and returns the ICV.
    pub(super) fn seal(&self, front: Front<'_>, body: &mut [u8]) -> [u8; ICV] {
        match self {
            Self::Aes128Cbc(both) => {
                both.0.encrypt(front.iv, body);
                both.1.icv(front, body)
            }
            Self::Aes256Cbc(both) => {
                both.0.encrypt(front.iv, body);
                both.1.icv(front, body)
            }
            Self::Null(authenticator) => authenticator.icv(front, body),
            Self::Aes128Gcm(aead) => aead.seal(front, body),
            Self::Aes256Gcm(aead) => aead.seal(front, body),
            Self::ChaCha20Poly1305(aead) => aead.seal(front, body),
        }
    }

    /// Decrypts `body` into `out`, which is as long, if the ICV is right. Compares in constant
    /// time, and decrypts nothing that has not proven itself.
    pub(super) fn open(&self, front: Front<'_>, body: &[u8], icv: &[u8; ICV], out: &mut [u8]) -> Result<(), WrongIcv> {
        match self {
            Self::Aes128Cbc(both) => {
                both.1.verify(front, body, icv)?;
                both.0.decrypt(front.iv, body, out);
            }
            Self::Aes256Cbc(both) => {
                both.1.verify(front, body, icv)?;
                both.0.decrypt(front.iv, body, out);
            }
            Self::Null(authenticator) => {
                authenticator.verify(front, body, icv)?;
                out.copy_from_slice(body);
            }
            Self::Aes128Gcm(aead) => aead.open(front, body, icv, out)?,
            Self::Aes256Gcm(aead) => aead.open(front, body, icv, out)?,
            Self::ChaCha20Poly1305(aead) => aead.open(front, body, icv, out)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The features of the crates that see to it are on, or this does not compile.
    #[test]
    fn key_schedules_are_wiped_when_dropped() {
        fn wiped<T: zeroize::ZeroizeOnDrop>() {}
        wiped::<Aes128>();
        wiped::<Aes256>();
        wiped::<Aes128Gcm>();
        wiped::<Aes256Gcm>();
        wiped::<ChaCha20Poly1305>();
        // Of these an HMAC keeps two, and it does not say so itself.
        wiped::<sha2::block_api::Sha256VarCore>();
    }
}
