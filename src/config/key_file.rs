//! Keys from files that only their owner may read, or from systemd's credentials.
//!
//! Whatever was read is wiped from memory when it has become a key, and never stands in a message:
//! it may be most of a key.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64ct::{Base64, Encoding};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::section::Section;
use super::texts::KeyText;
use super::tree::Placed;
use crate::notice::Headers;
use crate::wire::payload::Key;

/// A key and the file that it came from. Without `Debug`, as the key is.
#[derive(Clone)]
pub(super) struct KeyFile<K> {
    pub(super) path: PathBuf,
    pub(super) key: K,
}

/// The bytes of a key; wiped when dropped.
pub(super) type Bytes = Zeroizing<Vec<u8>>;

/// What is read of a file at most: headers of a webhook may hold a long token.
const READ_MAX: usize = 8_192;
/// The longest text of a key: it has 64 bytes at most, in whatever notation.
const TEXT_MAX: usize = 1_024;

/// Every key of the configuration that names such a file.
pub(super) const KEYS: [&str; 4] = ["mark_key_file", "key_out_file", "key_in_file", "header_file"];

/// Reads `key` of a section, which is one of [`KEYS`], and takes what is in the file that it names. `what` is the key that is wanted, for
/// messages; `make` makes it of the bytes that were found, or `None` where those are too many or few.
pub(super) fn read<K>(
    section: &mut Section<'_>,
    key: &'static str,
    example: &str,
    what: &str,
    make: impl FnOnce(Bytes) -> Option<K>,
) -> Option<Placed<KeyFile<K>>> {
    debug_assert!(KEYS.contains(&key), "nobody gathers the file of {key}");
    let path = section.path(key, example)?;
    let made = decoded(section.report().key(&path.value), what).and_then(|bytes| {
        let found = bytes.len();
        make(bytes).ok_or_else(|| format!("holds {found} bytes; write {what} into it"))
    });
    match made {
        Ok(key) => Some(Placed { at: path.at, value: KeyFile { path: path.value, key } }),
        Err(why) => {
            section.report().add(path.at, format!("`{key}` {:?}: {why}", path.value));
            None
        }
    }
}

/// Reads `mark_key_file` of a section: the key that a reflector marks answers with.
pub(super) fn mark(section: &mut Section<'_>) -> Option<Placed<KeyFile<Key>>> {
    const WHAT: &str = "a key of 16 bytes, as 32 hex digits or base64,";
    let make = |bytes: Bytes| bytes.first_chunk().filter(|_| bytes.len() == 16).map(|key| Key::new(*key));
    read(section, "mark_key_file", "/etc/adit/keys/mark", WHAT, make)
}

/// Reads `header_file` of a section: the headers that a webhook is sent.
pub(super) fn headers(section: &mut Section<'_>) -> Option<Placed<Headers>> {
    const WHAT: &str = "Authorization: Bearer … or another header, a line each,";
    let path = section.path("header_file", "/etc/adit/keys/webhook.headers")?;
    let text = section.report().key(&path.value);
    let read = || {
        let text = text.ok_or_else(|| "was not gathered with the configuration".to_owned())?;
        let text = text.as_ref().map_err(|unread| unread.explained(WHAT))?;
        let too_long = (text.len() >= READ_MAX).then(|| format!("is longer than {} bytes", READ_MAX - 1));
        too_long.map_or(Ok(()), Err)?;
        let text = std::str::from_utf8(text).map_err(|_| "is not UTF-8".to_owned())?;
        Headers::read(path.value.clone(), text)
    };
    match read() {
        Ok(headers) => Some(Placed { at: path.at, value: headers }),
        Err(why) => {
            let remedy =
                if why.contains("write ") || why.contains("run ") { "" } else { "; write Name: value into it" };
            section.report().add(path.at, format!("`header_file` {:?}: {why}{remedy}", path.value));
            None
        }
    }
}

/// Why what is in a key file is not known.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Unread {
    why: String,
    remedy: Remedy,
}

/// What to do about it, beyond what the reason says.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Remedy {
    Said,
    Write,
    WriteFile,
}

impl Unread {
    const fn new(why: String, remedy: Remedy) -> Self {
        Self { why, remedy }
    }

    /// In words, for somebody who should have this key.
    fn explained(&self, what: &str) -> String {
        let why = &self.why;
        match self.remedy {
            Remedy::Said => why.clone(),
            Remedy::Write => format!("{why}; write {what} into it, and chmod 0600 it"),
            Remedy::WriteFile => format!("{why}; write {what} into one"),
        }
    }
}

/// Reads a key file, whatever is in it.
///
/// # Errors
/// It cannot be read, or others may read it, too.
pub(super) fn load(path: &Path) -> Result<Bytes, Unread> {
    let said = |why| Unread::new(why, Remedy::Said);
    let unreadable = |error: io::Error| {
        if error.kind() == io::ErrorKind::PermissionDenied {
            let remedy = "run this as its owner, or use LoadCredential= (systemd.exec(5))";
            return said(format!("cannot be read: {error}; {remedy}"));
        }
        Unread::new(format!("cannot be read: {error}"), Remedy::Write)
    };
    // The file that is opened is the one that was looked for, wherever links of it lead.
    let real = path.canonicalize().map_err(unreadable)?;
    // Without waiting: a pipe in place of the file must not hold up the start.
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&real).map_err(unreadable)?;
    let metadata = file.metadata().map_err(|error| said(format!("cannot be examined: {error}")))?;
    if !metadata.is_file() {
        return Err(Unread::new("is not a file".to_owned(), Remedy::WriteFile));
    }
    private(&metadata, is_credential(&real)).map_err(said)?;
    text(file).map_err(said)
}

/// The key in a file that was gathered with the configuration.
fn decoded(text: Option<&KeyText>, what: &str) -> Result<Bytes, String> {
    let text = text.ok_or_else(|| "was not gathered with the configuration".to_owned())?;
    let text = text.as_ref().map_err(|unread| unread.explained(what))?;
    decode(text).map_err(|why| format!("{why}; write {what} into it"))
}

/// Whether nobody but root and the user who runs this can use a file.
fn private(metadata: &Metadata, is_credential: bool) -> Result<(), String> {
    let (owner, own) = (metadata.uid(), nix::unistd::geteuid().as_raw());
    if ![0, own].contains(&owner) {
        let who = if own == 0 { "not to root" } else { "neither to root nor to who runs this" };
        return Err(format!("belongs to user {owner}, {who}; run chown on it"));
    }
    // systemd gives the service's user an ACL entry for reading (`write_credential`, in src/core/execute.c of
    // version 252 and in src/core/exec-credential.c since), and in the mode an ACL's mask stands where the
    // group's bits do (acl(5)). Where the file system has no ACLs, it gives the user the file.
    let others = if is_credential { 0o037 } else { 0o077 };
    let mode = metadata.mode() & 0o777;
    if mode & others != 0 {
        return Err(format!("others than its owner may use it (mode {mode:04o}); run chmod 0600 on it"));
    }
    Ok(())
}

/// Whether a path without links is a credential that systemd has handed to this service (systemd.exec(5)).
fn is_credential(real: &Path) -> bool {
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY").and_then(|folder| Path::new(&folder).canonicalize().ok());
    folder.is_some_and(|folder| real.parent() == Some(&folder))
}

fn text(file: File) -> Result<Bytes, String> {
    // Room for all of it from the beginning: a buffer that grows leaves copies of itself behind.
    let mut text = Zeroizing::new(Vec::with_capacity(2 * READ_MAX));
    let most = u64::try_from(READ_MAX).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut text).map_err(|error| format!("cannot be read: {error}"))?;
    Ok(text)
}

/// Hex digits, with or without `0x` as `ip xfrm` wants it, or base64 (RFC 4648 section 4); blanks and
/// line ends anywhere.
///
/// # Errors
/// What it holds instead, without repeating it.
pub fn decode(text: &[u8]) -> Result<Bytes, String> {
    if text.len() >= TEXT_MAX {
        return Err("is longer than any key".to_owned());
    }
    let words = || text.split(u8::is_ascii_whitespace);
    let bare = |word| <[u8]>::strip_prefix(word, b"0x").unwrap_or(word);
    let in_hex = words().all(|word| bare(word).iter().all(u8::is_ascii_hexdigit));
    let mut joined = Zeroizing::new(Vec::with_capacity(text.len()));
    words().for_each(|word| joined.extend_from_slice(if in_hex { bare(word) } else { word }));
    let mut bytes = Zeroizing::new(vec![0; joined.len()]);
    let found = if in_hex {
        let odd = |_| format!("holds {} hex digits, an odd number", joined.len());
        base16ct::mixed::decode(&*joined, &mut bytes).map_err(odd)?.len()
    } else {
        let other = |_| "holds something else than hex digits or base64".to_owned();
        Base64::decode(&*joined, &mut bytes).map_err(other)?.len()
    };
    bytes.truncate(found);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Result<Vec<u8>, String> {
        decode(text.as_bytes()).map(|bytes| bytes.to_vec())
    }

    #[test]
    fn one_key_can_be_written_in_many_ways() {
        let key: Vec<u8> = (0xF0..=0xFF).collect();
        for text in [
            "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
            "0xF0F1f2f3f4f5f6f7f8f9fafbfcfdfeff\n",
            "0xf0f1f2f3f4f5f6f7 0xf8f9fafbfcfdfeff\r\n",
            "\n f0f1f2f3f4f5f6f7\n\tf8f9fafbfcfdfeff \n\n",
            "8PHy8/T19vf4+fr7/P3+/w==",
            "8PHy8/T19vf4\n+fr7/P3+/w==\n",
        ] {
            assert_eq!(decoded(text).as_ref(), Ok(&key), "{text}");
        }
        assert_eq!(decoded(""), Ok(Vec::new()));
        // Base64 that begins as a hexadecimal number does.
        assert_eq!(decoded("0xyz"), Ok(vec![0xd3, 0x1c, 0xb3]));
    }

    #[test]
    fn what_is_neither_hex_nor_base64_is_refused() {
        assert_eq!(decoded("0xabc").unwrap_err(), "holds 3 hex digits, an odd number");
        assert_eq!(decoded(&"a".repeat(TEXT_MAX)).unwrap_err(), "is longer than any key");
        for text in ["correct horse!", "8PHy8/T19vf4+fr7/P3+/w", "8PHy8_T19vf4-fr7_P3-_w==", "\u{0}", "ä", "0x 0x-"] {
            assert_eq!(decoded(text).unwrap_err(), "holds something else than hex digits or base64", "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged_without_a_panic(text: Vec<u8>) {
            let _ = decode(&text);
        }

        #[test]
        fn every_key_is_read_as_it_was_written(key: Vec<u8>, upper: bool) {
            let mut hex = vec![0; 2 * key.len()];
            let hex = if upper { base16ct::upper::encode(&key, &mut hex) } else { base16ct::lower::encode(&key, &mut hex) };
            proptest::prop_assert_eq!(&*decode(hex.unwrap()).unwrap(), &key);
            let mut base64 = vec![0; 4 * key.len() + 4];
            let base64 = Base64::encode(&key, &mut base64).unwrap();
            // Base64 that is all hex digits is read as those. So short a key there is none.
            let digits = base64.strip_prefix("0x").unwrap_or(base64);
            proptest::prop_assume!(key.is_empty() || !digits.bytes().all(|letter| letter.is_ascii_hexdigit()));
            proptest::prop_assert_eq!(&*decode(base64.as_bytes()).unwrap(), &key);
        }
    }
}
