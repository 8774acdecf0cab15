//! The payload with which a probe proves itself.
//!
//! An ICMP identifier has 16 bits, and every ping on the host shares them; so the identity of a
//! probe is in here. All numbers are big-endian.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0–3 | magic `adit` |
//! | 4 | version, 1 |
//! | 5–7 | zero |
//! | 8–11 | tunnel, by a number that no other one has in the same run |
//! | 12–15 | zero |
//! | 16–23 | epoch: random at each start |
//! | 24–31 | sequence |
//! | 32–39 | send time, in nanoseconds of the sender's own monotonic clock |
//! | 40–55 | tag: keyed hash of bytes 0–39, the far inner address and the near one |
//! | 56–71 | mark: zero when sent; a reflector that shares a key puts its own keyed hash of bytes 0–55 here |
//!
//! The keyed hash is SipHash-2-4 with 128 bits of output (Aumasson and Bernstein 2012): a
//! pseudo-random function made to authenticate short messages. It costs some 60 ns for these 72
//! bytes where HMAC-SHA-256 takes several hundred, and the key lives only as long as the process,
//! so what must hold is that nobody who has not seen a probe can make one: 2⁻¹²⁸ a guess.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::{Ends, Reject};

/// The length of the payload; a probe may be padded beyond it.
pub const LEN: usize = 72;
/// The first four bytes of every probe.
pub const MAGIC: [u8; 4] = *b"adit";
/// The format described here.
pub const VERSION: u8 = 1;

/// Where the epoch is.
pub(super) const EPOCH_AT: u32 = 16;
const TAGGED: usize = 40;
/// The bytes before the mark: what the tag proves, and the tag. Who shares no key with the far end
/// does not look at the mark.
pub const MARKED: usize = 56;

/// A key of 128 bits. Without `Debug`, so that it cannot end up in a log.
#[derive(Clone)]
pub struct Key([u8; 16]);

impl Key {
    /// A key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Whether it is the same key.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        same(&self.0, &other.0)
    }

    fn hash(&self, parts: [&[u8]; 2]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish128().as_bytes()
    }
}

/// What makes one run of adit's probes its own: both random at each start.
#[derive(Clone)]
pub struct Secret {
    /// The key of the tags.
    pub key: Key,
    /// Tells this run's probes from another's.
    pub epoch: u64,
}

/// The fields of a payload that is this run's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    /// The tunnel, by a number that is its own for the whole run.
    pub tunnel: u32,
    /// Sequence of the probe within the tunnel.
    pub sequence: u64,
    /// Send time in nanoseconds.
    pub sent: u64,
}

/// Writes a payload, its mark zero.
pub fn emit(fields: Fields, ends: Ends, secret: &Secret, out: &mut [u8; LEN]) {
    out[..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&[VERSION, 0, 0, 0]);
    out[8..12].copy_from_slice(&fields.tunnel.to_be_bytes());
    out[12..16].fill(0);
    out[16..24].copy_from_slice(&secret.epoch.to_be_bytes());
    out[24..32].copy_from_slice(&fields.sequence.to_be_bytes());
    out[32..40].copy_from_slice(&fields.sent.to_be_bytes());
    let tag = secret.key.hash([&out[..TAGGED], &ends.octets()]);
    out[TAGGED..MARKED].copy_from_slice(&tag);
    out[MARKED..].fill(0);
}

/// Checks a payload: length, magic, version, tag, epoch, in this order.
///
/// # Errors
/// The first check that fails. A tag that does not fit is [`Reject::OtherRun`] where the epoch is
/// another run's, because a run cannot know the keys of the others, and [`Reject::Tag`] otherwise.
pub fn parse<'a>(bytes: &'a [u8], ends: Ends, secret: &Secret) -> Result<(Fields, &'a [u8; LEN]), Reject> {
    let payload = bytes.first_chunk::<LEN>().ok_or(Reject::PayloadShort)?;
    if payload[..4] != MAGIC {
        return Err(Reject::Magic);
    }
    if payload[4..8] != [VERSION, 0, 0, 0] {
        return Err(Reject::Version);
    }
    let own_epoch = number(payload, 16) == secret.epoch;
    let tag = secret.key.hash([&payload[..TAGGED], &ends.octets()]);
    if !same(&tag, &payload[TAGGED..MARKED]) {
        return Err(if own_epoch { Reject::Tag } else { Reject::OtherRun });
    }
    if !own_epoch {
        return Err(Reject::OtherRun);
    }
    let tunnel = u32::from_be_bytes([payload[8], payload[9], payload[10], payload[11]]);
    Ok((Fields { tunnel, sequence: number(payload, 24), sent: number(payload, 32) }, payload))
}

/// The tunnel that a payload states, proven or not.
#[must_use]
pub fn claimed_tunnel(bytes: &[u8]) -> Option<u32> {
    let payload = bytes.first_chunk::<LEN>().filter(|payload| payload[..4] == MAGIC)?;
    Some(u32::from_be_bytes([payload[8], payload[9], payload[10], payload[11]]))
}

/// Puts a reflector's mark on a payload.
pub fn mark(payload: &mut [u8; LEN], key: &Key) {
    let value = key.hash([&payload[..MARKED], &[]]);
    payload[MARKED..].copy_from_slice(&value);
}

/// Whether a payload carries the mark of a reflector that has this key.
#[must_use]
pub fn is_marked(payload: &[u8; LEN], key: &Key) -> bool {
    same(&key.hash([&payload[..MARKED], &[]]), &payload[MARKED..])
}

/// Compares without an early exit, so that the time taken tells a forger nothing.
fn same(one: &[u8; 16], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}

fn number(payload: &[u8; LEN], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&payload[at..at + 8]);
    u64::from_be_bytes(bytes)
}
