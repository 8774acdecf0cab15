//! AES-CBC (RFC 3602). ESP pads by itself, so there are only whole blocks.

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser, InnerIvInit, KeyInit,
};
use cbc::{Decryptor, Encryptor};

/// A block cipher's key schedules, both ways.
pub(super) struct Cbc<C>(C);

const BLOCK: usize = 16;

impl<C: KeyInit + BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt> Cbc<C> {
    #[expect(clippy::expect_used, reason = "Keys has checked the length")]
    pub(super) fn new(key: &[u8]) -> Self {
        Self(C::new_from_slice(key).expect("a key of the cipher's length"))
    }

    pub(super) fn encrypt(&self, iv: &[u8], body: &mut [u8]) {
        let (blocks, rest) = InOutBuf::from(body).into_chunks();
        assert!(rest.is_empty(), "padded to whole blocks");
        Encryptor::inner_iv_init(&self.0, &block(iv)).encrypt_blocks_inout(blocks);
    }

    #[expect(clippy::expect_used, reason = "the one caller takes a slice of this length")]
    pub(super) fn decrypt(&self, iv: &[u8], body: &[u8], out: &mut [u8]) {
        let (blocks, rest) = InOutBuf::new(body, out).expect("as long as what is decrypted").into_chunks();
        assert!(rest.is_empty(), "checked to be whole blocks");
        Decryptor::inner_iv_init(&self.0, &block(iv)).decrypt_blocks_inout(blocks);
    }
}

fn block(iv: &[u8]) -> Array<u8, U16> {
    let mut block = [0; BLOCK];
    block.copy_from_slice(iv);
    block.into()
}
