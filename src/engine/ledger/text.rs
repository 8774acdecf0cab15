//! The file's text, and what damage does to it.
//!
//! ```text
//! adit-sequence-numbers 1 generation=812 lines=2 parity=… whole=yes machine=… hardware=… check=…
//! # association, SPI, kind, mark (every number below may have been used), written, tunnel, check
//! 00112233445566778899aabbccddeeff 0x00001001 static 30001 2026-03-01T12:00:00.000Z ams-1 …
//! ffeeddccbbaa99887766554433221100 damaged 4 …
//! ```
//!
//! A check is the head of a SHA-256, the header's over itself, a line's over the header and itself.
//! So a line counts only in the file that it was written into: one from an older generation, left by
//! a disk that lost a write, is damaged too. Without its header the whole file is lost; damage to a
//! line harms its own association only. The header has the number of lines and the parity of their
//! fingerprints ([`Parity`]): they tell whether it is known whose the damaged lines were, and whose
//! it was if only one is damaged or gone.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::{Book, Entry, Fingerprint, Identity, Kind, Lost, Parity, WallTime};

const NAME: &str = "adit-sequence-numbers";
const VERSION: u32 = 1;
/// For people; the second line is never read.
const LEGEND: &str = "# association, SPI, kind, mark (every number below may have been used), written, tunnel, check";
/// Header and legend.
const HEAD: usize = 2;

/// The first 8 bytes as a number.
pub(super) fn leading(hash: &[u8]) -> u64 {
    hash.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// What makes and verifies checks.
struct Seal(Sha256);

impl Seal {
    fn of_header() -> Self {
        Self(Sha256::new())
    }

    fn of_lines(header: &str) -> Self {
        Self(Sha256::new_with_prefix(header))
    }

    fn check(&self, body: &str) -> u64 {
        let mut hash = self.0.clone();
        // A byte that is in neither the header nor the body.
        hash.update(b"\n");
        hash.update(body);
        leading(&hash.finalize())
    }

    /// The line without its check, if that is right.
    fn open<'a>(&self, line: &'a str, name: &str) -> Option<&'a str> {
        let (body, check) = line.rsplit_once(' ')?;
        let digits = check.strip_prefix(name)?;
        (digits == format!("{:016x}", self.check(body))).then_some(body)
    }
}

impl Book {
    /// The text of the file.
    #[must_use]
    pub fn render(&self) -> String {
        let header = Header::of(self).to_string();
        let seal = Seal::of_lines(&header);
        let mut text = String::with_capacity(512 + 160 * self.entries.len());
        let mut body = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{header}\n{LEGEND}");
        for entry in &self.entries {
            body.clear();
            write_entry(&mut body, entry);
            let _ = writeln!(text, "{body} {:016x}", seal.check(&body));
        }
        for (fingerprint, line) in &self.damaged {
            let body = format!("{fingerprint} damaged {line}");
            let _ = writeln!(text, "{body} {:016x}", seal.check(&body));
        }
        text
    }

    /// Reads a file's bytes, whatever they are, on the machine `here`. What can be believed is in the
    /// book; of what can not, the book knows that it is lost.
    ///
    /// # Errors
    /// Why nothing can be believed.
    pub fn parse(bytes: &[u8], here: Identity) -> Result<Self, Lost> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut lines = (1..).zip(bytes.split(|&byte| byte == b'\n'));
        let header = lines.next().and_then(|(_, line)| std::str::from_utf8(line).ok()).unwrap_or_default();
        let seal = Seal::of_lines(header);
        let header = Header::parse(header)?;
        if header.identity.contradicts(here) {
            return Err(Lost::OtherMachine);
        }
        let mut reading = Reading::new(header.identity);
        for (number, line) in lines.skip(HEAD - 1) {
            let body = std::str::from_utf8(line).ok().and_then(|line| seal.open(line, ""));
            reading.take(number, line, body);
        }
        Ok(reading.finish(&header))
    }
}

/// What has been read of a file.
struct Reading {
    book: Book,
    /// Lines that were there, whole or not.
    found: usize,
    /// Of those that are whole.
    parity: Parity,
    /// Two whole lines were about the same keys.
    doubled: bool,
    /// Damaged lines, and the fingerprint that still seems to be there.
    damaged: Vec<(usize, Option<Fingerprint>)>,
}

impl Reading {
    const fn new(identity: Identity) -> Self {
        let book = Book::new(identity);
        Self { book, found: 0, parity: Parity(0), doubled: false, damaged: Vec::new() }
    }

    fn take(&mut self, number: usize, line: &[u8], body: Option<&str>) {
        self.found += 1;
        if let Some(entry) = body.and_then(read_entry) {
            self.parity = self.parity.with(entry.fingerprint);
            self.doubled |= !self.book.put(entry);
        } else if let Some((fingerprint, line)) = body.and_then(read_damaged) {
            self.parity = self.parity.with(fingerprint);
            self.doubled |= self.book.damaged.insert(fingerprint, line).is_some();
        } else {
            let digits = line.get(..32).and_then(|digits| std::str::from_utf8(digits).ok());
            self.damaged.push((number, digits.and_then(Fingerprint::parse)));
        }
    }

    /// Finds out which keys the lines were about that are damaged or gone.
    fn finish(mut self, header: &Header) -> Book {
        let (lost, damaged) = (header.parity.missing(self.parity), self.damaged.len());
        let intact = damaged == 0 && self.found == header.count;
        let one = damaged <= 1 && self.found - damaged + 1 == header.count;
        let readable = self.damaged.iter().filter_map(|&(_, fingerprint)| fingerprint);
        let all_readable = readable.clone().count() == damaged && self.found == header.count;
        let agreed = readable.fold(self.parity, Parity::with) == header.parity;
        let known = !self.doubled && (one || (all_readable && agreed));
        if one && known {
            let line = self.damaged.first().map_or(self.found + HEAD + 1, |&(line, _)| line);
            self.damaged = vec![(line, Some(lost))];
        }
        for (line, fingerprint) in self.damaged {
            // A fingerprint that is damaged itself does no harm here.
            self.book.damaged.extend(fingerprint.map(|fingerprint| (fingerprint, line)));
        }
        self.book.newly_damaged = !intact || !known;
        self.book.whole = header.whole && known;
        self.book.generation = header.generation;
        self.book
    }
}

/// The first line.
struct Header {
    generation: u64,
    /// Lines, other than this and the legend.
    count: usize,
    parity: Parity,
    whole: bool,
    identity: Identity,
}

impl Header {
    fn of(book: &Book) -> Self {
        let entries = book.entries.iter().map(|entry| entry.fingerprint);
        Self {
            generation: book.generation,
            count: book.entries.len() + book.damaged.len(),
            parity: entries.chain(book.damaged.keys().copied()).fold(Parity::default(), Parity::with),
            whole: book.whole,
            identity: book.identity,
        }
    }

    fn parse(line: &str) -> Result<Self, Lost> {
        let damaged = Lost::Damaged { line: 1 };
        let mut words = line.split(' ');
        if words.next() != Some(NAME) {
            return Err(damaged);
        }
        match words.next().and_then(|version| version.parse::<u32>().ok()) {
            Some(VERSION) => {}
            Some(later) if later > VERSION => return Err(Lost::LaterVersion(later)),
            Some(_) | None => return Err(damaged),
        }
        let body = Seal::of_header().open(line, "check=");
        body.and_then(Self::fields).ok_or(damaged)
    }

    fn fields(body: &str) -> Option<Self> {
        let words: Vec<&str> = body.split(' ').collect();
        let [_, _, generation, count, parity, whole, machine, hardware] = words[..] else { return None };
        Some(Self {
            generation: generation.strip_prefix("generation=")?.parse().ok()?,
            count: count.strip_prefix("lines=")?.parse().ok()?,
            parity: Parity::default().with(Fingerprint::parse(parity.strip_prefix("parity=")?)?),
            whole: match whole {
                "whole=yes" => true,
                "whole=no" => false,
                _ => return None,
            },
            identity: Identity::parse(machine, hardware)?,
        })
    }
}

impl std::fmt::Display for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { generation, count, parity, whole, identity } = self;
        let parity = parity.missing(Parity::default());
        let whole = if *whole { "yes" } else { "no" };
        let body =
            format!("{NAME} {VERSION} generation={generation} lines={count} parity={parity} whole={whole} {identity}");
        write!(f, "{body} check={:016x}", Seal::of_header().check(&body))
    }
}

fn write_entry(text: &mut String, entry: &Entry) {
    let Entry { fingerprint, spi, kind, mark, written, tunnel } = entry;
    let _ = write!(text, "{fingerprint} {spi:#010x} {} {mark} {written} {tunnel}", kind.name());
}

fn read_entry(body: &str) -> Option<Entry> {
    let words: Vec<&str> = body.split(' ').collect();
    let [fingerprint, spi, kind, mark, written, tunnel] = words[..] else { return None };
    let written = humantime::parse_rfc3339(written).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Entry {
        fingerprint: Fingerprint::parse(fingerprint)?,
        spi: u32::from_str_radix(spi.strip_prefix("0x")?, 16).ok()?,
        kind: Kind::parse(kind)?,
        mark: mark.parse().ok()?,
        written: WallTime(u64::try_from(written.as_nanos()).ok()?),
        tunnel: tunnel.to_owned(),
    })
}

fn read_damaged(body: &str) -> Option<(Fingerprint, usize)> {
    let (fingerprint, line) = body.split_once(" damaged ")?;
    Some((Fingerprint::parse(fingerprint)?, line.parse().ok()?))
}
