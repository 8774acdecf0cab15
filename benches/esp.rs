//! What ESP adds to a probe: sealed and opened, with each algorithm; an inner IPv4 packet of 100
//! bytes, the least that a probe has. Beside each stands the raw cipher of the same library on the
//! same bytes, its key schedule set up likewise: the difference is ours.
//!
//! Aim: at most 300 ns each for AES-256-GCM.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on must fail")]

use std::hint::black_box;
use std::net::Ipv4Addr;

use adit::wire::esp::{Algorithm, Inbound, IvSeed, Keys, Outbound, SPI_MIN, Shape};
use adit::wire::{Ends, Family};
use aes::cipher::inout::InOutBuf;
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use aes::{Aes128, Aes256};
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm, KeyInit};
use chacha20poly1305::ChaCha20Poly1305;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// IPv4 and ICMP headers and the payload.
const INNER: usize = 20 + 8 + 72;
const OUTER: Ends = Ends::V4 { local: Ipv4Addr::new(192, 0, 2, 1), far: Ipv4Addr::new(203, 0, 113, 2) };
/// So many different packets are opened in turn, for the window takes each once.
const PACKETS: u64 = 256;

fn keys(algorithm: Algorithm) -> Keys {
    Keys::new(algorithm, Zeroizing::new(vec![0x42; algorithm.key_len()])).unwrap()
}

fn seal(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("seal a probe in ESP");
    for algorithm in Algorithm::ALL {
        let shape = Shape::new(algorithm, false);
        let outbound = Outbound::new(SPI_MIN, true, &keys(algorithm), &IvSeed::new([7; 16]));
        let mut packet = vec![0x5A; shape.length(INNER)];
        let mut sequence = 0;
        group.bench_function(algorithm.name(), |bencher| {
            bencher.iter(|| {
                sequence += 1;
                outbound.seal(shape, OUTER, black_box(sequence), Family::V4, INNER, &mut packet);
                packet[packet.len() - 1]
            });
        });
        raw(&mut group, algorithm, true);
    }
    group.finish();
}

fn open(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("open a probe in ESP");
    for algorithm in Algorithm::ALL {
        let (shape, keys) = (Shape::new(algorithm, false), keys(algorithm));
        let outbound = Outbound::new(SPI_MIN, true, &keys, &IvSeed::new([7; 16]));
        let sealed = |sequence| {
            let mut packet = vec![0x5A; shape.length(INNER)];
            outbound.seal(shape, OUTER, sequence, Family::V4, INNER, &mut packet);
            packet
        };
        let packets: Vec<Vec<u8>> = (1..=PACKETS).map(sealed).collect();
        let anew = || Inbound::new(SPI_MIN, true, 64, &keys);
        let (mut inbound, mut at, mut scratch) = (anew(), 0, Vec::new());
        group.bench_function(algorithm.name(), |bencher| {
            bencher.iter(|| {
                if at == packets.len() {
                    (inbound, at) = (anew(), 0);
                }
                at += 1;
                inbound.open(black_box(&packets[at - 1]), &mut scratch).unwrap().packet[0]
            });
        });
        raw(&mut group, algorithm, false);
    }
    group.finish();
}

/// The cipher alone, over as many bytes as the probe has in ESP: before those that are encrypted the
/// header, the IV and half a sequence number, as far as they are authenticated.
fn raw(group: &mut BenchmarkGroup<'_, WallTime>, algorithm: Algorithm, seal: bool) {
    let length = (INNER + 2).next_multiple_of(algorithm.alignment());
    let name = format!("part: the raw cipher of {}", algorithm.name());
    match algorithm {
        Algorithm::Aes128Gcm => raw_aead::<Aes128Gcm>(group, &name, length, seal),
        Algorithm::Aes256Gcm => raw_aead::<Aes256Gcm>(group, &name, length, seal),
        Algorithm::ChaCha20Poly1305 => raw_aead::<ChaCha20Poly1305>(group, &name, length, seal),
        Algorithm::NullHmacSha256 => raw_hmac(group, &name, 8 + 4, length, |_, _| {}),
        Algorithm::Aes128CbcHmacSha256 => {
            let cipher = Aes128::new(&[0x42; 16].into());
            raw_hmac(group, &name, 8 + 16 + 4, length, |from, to| cbc(&cipher, seal, from, to));
        }
        Algorithm::Aes256CbcHmacSha256 => {
            let cipher = Aes256::new(&[0x42; 32].into());
            raw_hmac(group, &name, 8 + 16 + 4, length, |from, to| cbc(&cipher, seal, from, to));
        }
    }
}

fn raw_aead<C>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, length: usize, seal: bool)
where
    C: AeadInOut + KeyInit,
    aes_gcm::aead::Nonce<C>: From<[u8; 12]>,
{
    let cipher = C::new_from_slice(&[0x42; 64][..C::key_size()]).unwrap();
    let (aad, mut buffer) = ([1; 12], vec![0x5A; length]);
    let tag = cipher.encrypt_inout_detached(&[7; 12].into(), &aad, (&mut buffer[..]).into()).unwrap();
    let sealed = buffer.clone();
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let nonce = black_box([7; 12]).into();
            if seal {
                let both = (&mut buffer[..]).into();
                drop(black_box(cipher.encrypt_inout_detached(&nonce, &aad, both)));
            } else {
                let both = InOutBuf::new(black_box(&sealed[..]), &mut buffer[..]).unwrap();
                cipher.decrypt_inout_detached(&nonce, &aad, both, &tag).unwrap();
            }
        });
    });
}

fn raw_hmac(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    front: usize,
    length: usize,
    mut cipher: impl FnMut(&[u8], &mut [u8]),
) {
    let keyed = Hmac::<Sha256>::new_from_slice(&[0x42; 32]).unwrap();
    let (from, mut to) = (vec![0x5A; length], vec![0; length]);
    let front = vec![1; front];
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            cipher(black_box(&from), &mut to);
            let mut hmac = keyed.clone();
            hmac.update(&front);
            hmac.update(&to);
            hmac.finalize().into_bytes()[0]
        });
    });
}

fn cbc<C>(cipher: &C, seal: bool, from: &[u8], to: &mut [u8])
where
    C: aes::cipher::BlockCipherEncrypt
        + aes::cipher::BlockCipherDecrypt
        + aes::cipher::BlockSizeUser<BlockSize = aes::cipher::consts::U16>,
{
    let (blocks, _) = InOutBuf::new(from, to).unwrap().into_chunks();
    let iv = black_box([7; 16]).into();
    if seal {
        cbc::Encryptor::inner_iv_init(cipher, &iv).encrypt_blocks_inout(blocks);
    } else {
        cbc::Decryptor::inner_iv_init(cipher, &iv).decrypt_blocks_inout(blocks);
    }
}

criterion_group!(benches, seal, open);
criterion_main!(benches);
