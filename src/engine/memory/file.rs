//! The bytes of a file: what is no such file, or not whole, is known for it.
//!
//! ```text
//! magic (8) │ kind (1) │ version (1) │ length of the rest (8, little endian) │ its SHA-256 (32) │ preface, records
//! ```
//!
//! Preface and records are in the notation of postcard, one after the other.
//!
//! | file | version | since |
//! | --- | --- | --- |
//! | states | 1 | the beginning |
//! | | 2 | a drain has an end, a reason, and who asked for it |
//! | windows | 1 | the beginning |
//!
//! Earlier versions are read; a later one is left to whoever wrote it, and nothing of it is taken up.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{Preface, Record};

const MAGIC: &[u8; 8] = b"\x89adit\r\n\x1a";
/// Bytes before the preface.
pub const HEADER: usize = 8 + 1 + 1 + 8 + 32;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Verdicts.
    States,
    /// Samples.
    Windows,
}

impl Kind {
    /// Its name in the folder.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::States => "states",
            Self::Windows => "windows",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::States => 1,
            Self::Windows => 2,
        }
    }

    /// The version that is written.
    const fn version(self) -> u8 {
        match self {
            Self::States => 2,
            Self::Windows => 1,
        }
    }
}

/// What is wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// It is none of ours.
    Foreign,
    /// A later version of adit wrote it.
    Newer {
        /// The version of its format.
        version: u8,
        /// The last one that this program knows.
        known: u8,
    },
    /// It ends too early, or too late.
    Length,
    /// Some of it is not what was written.
    Checksum,
    /// It was written so, and makes no sense.
    Content,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is no file of adit's memory"),
            Self::Newer { version, known } => {
                write!(f, "a later version of adit wrote it (format {version}, this one knows {known})")
            }
            Self::Length => f.write_str("it is not whole"),
            Self::Checksum => f.write_str("its checksum is wrong"),
            Self::Content => f.write_str("its content makes no sense"),
        }
    }
}

/// Makes a header for a content that comes in pieces.
#[derive(Debug, Default)]
pub struct Seal {
    sum: Sha256,
    length: u64,
}

impl Seal {
    /// Takes the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// What stands before all of it.
    #[must_use]
    pub fn header(self, kind: Kind) -> [u8; HEADER] {
        let (sum, mut header) = (self.sum.finalize(), [0; HEADER]);
        let parts: [&[u8]; 5] = [MAGIC, &[kind.code()], &[kind.version()], &self.length.to_le_bytes(), &sum];
        let mut place = header.iter_mut();
        parts.iter().copied().flatten().zip(&mut place).for_each(|(byte, place)| *place = *byte);
        header
    }
}

/// Looks at a file's beginning, [`HEADER`] bytes or more, and at its length: so that nothing is read that is
/// no such file.
///
/// # Errors
/// What is wrong with it.
pub fn examine(kind: Kind, beginning: &[u8], length: u64) -> Result<(), Damage> {
    let said = header(kind, beginning)?.length;
    let real = length.checked_sub(HEADER as u64).ok_or(Damage::Length)?;
    if said == real { Ok(()) } else { Err(Damage::Length) }
}

/// What a header says, and what comes after it.
struct Header<'a> {
    version: u8,
    length: u64,
    sum: &'a [u8; 32],
    rest: &'a [u8],
}

fn header(kind: Kind, bytes: &[u8]) -> Result<Header<'_>, Damage> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Damage::Foreign)?;
    let ([code, version], rest) = rest.split_first_chunk().ok_or(Damage::Length)?;
    let known = kind.version();
    if *code != kind.code() || *version == 0 {
        return Err(Damage::Foreign);
    }
    if *version > known {
        return Err(Damage::Newer { version: *version, known });
    }
    let (length, rest) = rest.split_first_chunk().ok_or(Damage::Length)?;
    let (sum, rest) = rest.split_first_chunk::<32>().ok_or(Damage::Length)?;
    Ok(Header { version: *version, length: u64::from_le_bytes(*length), sum, rest })
}

/// Reads a file.
///
/// # Errors
/// Whatever the bytes are, what is wrong with them.
pub fn decode<T: Record>(kind: Kind, bytes: &[u8]) -> Result<(Preface, Vec<T>), Damage> {
    let Header { version, length, sum, rest } = header(kind, bytes)?;
    if length != rest.len() as u64 {
        return Err(Damage::Length);
    }
    if Sha256::digest(rest).as_slice() != sum {
        return Err(Damage::Checksum);
    }
    let content = |_| Damage::Content;
    let (preface, mut rest) = postcard::take_from_bytes(rest).map_err(content)?;
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (record, after) = T::read(version, rest).map_err(content)?;
        records.push(record);
        rest = after;
    }
    Ok((preface, records))
}

/// A number that stands for a text.
pub(super) fn number_of(text: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = Sha256::digest(text).into();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}
