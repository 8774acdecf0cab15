//! The Internet checksum (RFC 1071).

/// The one's complement sum of `bytes` as 16-bit words, added to `start`; not yet folded.
///
/// Sums of an even number of bytes can be chained. An odd last byte counts as if a zero byte
/// followed (RFC 1071 section 4.1).
#[must_use]
pub fn sum(start: u64, bytes: &[u8]) -> u64 {
    let mut total = start;
    // Four bytes a step: the carries gather in the upper half and are folded once at the end
    // (RFC 1071 section 2, "deferred carries").
    let mut chunks = bytes.chunks_exact(4);
    for chunk in &mut chunks {
        total += u64::from(u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]));
    }
    let rest = chunks.remainder();
    let word = |i: usize| u64::from(rest.get(i).copied().unwrap_or(0));
    total + (word(0) << 24 | word(1) << 16 | word(2) << 8)
}

/// Folds a sum to 16 bits and complements it: the value of a checksum field.
#[must_use]
pub fn finish(mut total: u64) -> u16 {
    while total > 0xFFFF {
        total = (total >> 16) + (total & 0xFFFF);
    }
    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits above")]
    let folded = total as u16;
    !folded
}

/// The checksum of `bytes`; zero if they carry their own right checksum.
#[must_use]
pub fn of(bytes: &[u8]) -> u16 {
    finish(sum(0, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_section_3() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(of(&bytes), !0xddf2);
    }

    #[test]
    fn agrees_with_pnet_on_every_length() {
        let bytes: Vec<u8> = (0..=200u8).map(|i| i.wrapping_mul(167).wrapping_add(13)).collect();
        for length in 1..bytes.len() {
            let expected = pnet::packet::util::checksum(&bytes[..length], usize::MAX);
            assert_eq!(of(&bytes[..length]), expected, "{length} bytes");
        }
    }
}
