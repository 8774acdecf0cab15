//! GRE headers: what parses is written back as it was.

use adit::wire::gre::{self, Options};
use adit::wire::{Reject, checksum};

/// Longer packets have nothing new for a parser of headers.
const LONGEST: usize = 512;

pub(crate) fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    let _ = read(bytes);
    // Once more with the right checksum, so that it is no wall.
    let mut buffer = [0; LONGEST];
    let mended = &mut buffer[..bytes.len()];
    mended.copy_from_slice(bytes);
    if bytes.first().is_some_and(|flags| flags & 0x80 != 0) && bytes.len() >= 8 {
        mended[4..6].fill(0);
        let sum = checksum::of(mended);
        mended[4..6].copy_from_slice(&sum.to_be_bytes());
        assert_ne!(read(mended).err(), Some(Reject::GreChecksum));
    }
}

fn read(bytes: &[u8]) -> Result<(), Reject> {
    let (header, inside) = gre::parse(bytes)?;
    super::deep();
    let checksum = bytes[0] & 0x80 != 0;
    let options = Options { key: header.key, checksum, sequence: header.sequence.is_some() };
    assert_eq!(options.header_len() + inside.len(), bytes.len(), "nothing is lost");
    assert!(bytes.ends_with(inside));

    let mut buffer = [0xA5; LONGEST];
    let again = &mut buffer[..bytes.len()];
    again[options.header_len()..].copy_from_slice(inside);
    gre::emit(options, header.inner, again);
    if checksum {
        // The word that a receiver ignores (RFC 2784 section 2.6).
        again[6..8].copy_from_slice(&bytes[6..8]);
    }
    gre::patch(options, header.sequence.unwrap_or(0), again);
    assert_eq!(gre::parse(again), Ok((header, inside)));
    // Bits 6 to 12 are ignored, and a checksum of zero stands for one that nobody has computed.
    let ignored = bytes[0] & 0x03 != 0 || bytes[1] & 0xF8 != 0;
    let left = checksum && matches!(bytes[4..6], [0, 0] | [0xFF, 0xFF]);
    assert!(ignored || left || again == bytes, "written back as it was");
    Ok(())
}
