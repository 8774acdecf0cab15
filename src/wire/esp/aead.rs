//! The algorithms that encrypt and authenticate in one: AES-GCM (RFC 4106), ChaCha20-Poly1305
//! (RFC 7634).

use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::aead::{AeadInOut, KeyInit};
use zeroize::Zeroizing;

use super::algorithm::SALT;
use super::cipher::{Front, WrongIcv};
use super::{HEADER, ICV};

/// A key schedule and the salt that begins every nonce (RFC 4106 section 4, RFC 7634 section 2).
pub(super) struct Aead<C> {
    cipher: C,
    salt: Zeroizing<[u8; SALT]>,
}

/// The nonce: the salt, and the IV in the packet.
const NONCE: usize = 12;

impl<C: AeadInOut<NonceSize = U12, TagSize = U16> + KeyInit> Aead<C> {
    #[expect(clippy::expect_used, reason = "Keys has checked the length")]
    pub(super) fn new(key: &[u8], salt: &[u8]) -> Self {
        let mut own = Zeroizing::new([0; SALT]);
        own.copy_from_slice(salt);
        Self { cipher: C::new_from_slice(key).expect("a key of the cipher's length"), salt: own }
    }

    pub(super) fn seal(&self, front: Front<'_>, body: &mut [u8]) -> [u8; ICV] {
        let (aad, length) = aad(front);
        self.encrypt(self.nonce(front), &aad[..length], body)
    }

    pub(super) fn open(&self, front: Front<'_>, body: &[u8], icv: &[u8; ICV], out: &mut [u8]) -> Result<(), WrongIcv> {
        let (aad, length) = aad(front);
        self.decrypt(self.nonce(front), &aad[..length], body, icv, out)
    }

    #[expect(clippy::expect_used, reason = "fails only on 64 GiB")]
    pub(super) fn encrypt(&self, nonce: [u8; NONCE], aad: &[u8], body: &mut [u8]) -> [u8; ICV] {
        let tag = self.cipher.encrypt_inout_detached(&nonce.into(), aad, body.into());
        tag.expect("a packet is short").into()
    }

    /// Compares in constant time, then decrypts.
    pub(super) fn decrypt(
        &self,
        nonce: [u8; NONCE],
        aad: &[u8],
        body: &[u8],
        icv: &[u8; ICV],
        out: &mut [u8],
    ) -> Result<(), WrongIcv> {
        let buffer = InOutBuf::new(body, out).map_err(|_| WrongIcv)?;
        self.cipher.decrypt_inout_detached(&nonce.into(), aad, buffer, icv.into()).map_err(|_| WrongIcv)
    }

    fn nonce(&self, front: Front<'_>) -> [u8; NONCE] {
        let mut nonce = [0; NONCE];
        nonce[..SALT].copy_from_slice(&*self.salt);
        nonce[SALT..].copy_from_slice(front.iv);
        nonce
    }
}

/// The header, with the upper half of an extended sequence number in its middle (RFC 4106
/// section 5, RFC 7634 section 2.1); and how many bytes that are.
fn aad(front: Front<'_>) -> ([u8; HEADER + 4], usize) {
    let (mut aad, mut length) = ([0; HEADER + 4], HEADER);
    aad[..HEADER].copy_from_slice(front.header);
    if let Some(high) = front.high {
        aad.copy_within(4..8, 8);
        aad[4..8].copy_from_slice(&high.to_be_bytes());
        length += 4;
    }
    (aad, length)
}
