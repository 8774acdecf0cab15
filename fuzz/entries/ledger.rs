//! The record of sequence numbers: what is read is written and read again as the same, and no mark goes down.
//!
//! The first byte says whether the lines get their checks, so that those are no wall.

use adit::engine::ledger::{Book, Identity};
use sha2::{Digest, Sha256};

pub(crate) fn run(bytes: &[u8]) {
    let Some((&choice, text)) = bytes.split_first() else { return };
    let here = Identity::new(Some("0123456789abcdef0123456789abcdef"), None);
    if choice & 1 == 0 {
        read(text, here);
    } else {
        read(&checked(text), here);
    }
}

fn read(text: &[u8], here: Identity) {
    let Ok(book) = Book::parse(text, here) else { return };
    assert!(book.entries().len() <= text.len() / 32, "bounded");
    for entry in book.entries() {
        super::deep();
        assert_eq!(book.mark(entry.fingerprint).ok(), Some(entry.mark), "what is whole is believed");
    }
    let written = book.render();
    let again = Book::parse(written.as_bytes(), here).unwrap_or_else(|lost| panic!("{lost}: {written}"));
    assert_eq!(again.entries(), book.entries(), "{written}");
    assert!(!again.newly_damaged(), "damage is found once: {written}");
    assert_eq!(again.render(), written);
}

/// The lines with their checks: heads of a SHA-256, the header's over itself, a line's over both.
fn checked(text: &[u8]) -> Vec<u8> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let body = lines.next().unwrap_or_default();
    let header = [body, b" check=", check(b"", body).as_bytes()].concat();
    let mut all = [&header[..], b"\n"].concat();
    for line in lines {
        all.extend([line, b" ", check(&header, line).as_bytes(), b"\n"].concat());
    }
    all
}

fn check(header: &[u8], body: &[u8]) -> String {
    let hash = Sha256::new().chain_update(header).chain_update(b"\n").chain_update(body).finalize();
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
