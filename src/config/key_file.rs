//! The key that a reflector marks answers with, from a file that only its owner may read.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::section::Section;
use super::tree::Placed;
use crate::wire::payload::Key;

/// A key and the file that it came from. Without `Debug`, as the key is.
#[derive(Clone)]
pub(super) struct KeyFile {
    pub(super) path: PathBuf,
    pub(super) key: Key,
}

/// What is read of a file at most: a key is 32 digits and a line's end.
const READ_MAX: u64 = 1_024;
/// Bytes of a key.
const KEY_LEN: usize = 16;

/// Reads `mark_key_file` of a section, and the file itself.
pub(super) fn read(section: &mut Section<'_>) -> Option<Placed<KeyFile>> {
    let path = section.path("mark_key_file", "/etc/adit/keys/mark")?;
    match load(&path.value) {
        Ok(key) => Some(Placed { at: path.at, value: KeyFile { path: path.value, key } }),
        Err(why) => {
            section.report().add(path.at, format!("`mark_key_file` {:?}: {why}", path.value));
            None
        }
    }
}

fn load(path: &Path) -> Result<Key, String> {
    // Without waiting: a pipe in place of the file must not hold up the start.
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let file = file.map_err(|error| format!("cannot be read: {error}; write 32 hex digits into it, and chmod 0600"))?;
    let metadata = file.metadata().map_err(|error| format!("cannot be examined: {error}"))?;
    if !metadata.is_file() {
        return Err("is not a file; name a file that holds 32 hex digits".to_owned());
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!("others than its owner may use it (mode {mode:04o}); run chmod 0600 on it"));
    }
    digits(&file)
}

fn digits(file: &File) -> Result<Key, String> {
    let mut text = Vec::new();
    file.take(READ_MAX).read_to_end(&mut text).map_err(|error| format!("cannot be read: {error}"))?;
    let text = text.trim_ascii();
    // What stands in the file is not repeated: it may be most of a key.
    if text.len() != 2 * KEY_LEN {
        let found = text.len();
        return Err(format!("holds {found} characters; a key is 16 bytes, written as 32 hex digits"));
    }
    let mut key = [0; KEY_LEN];
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        let pair = str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()));
        *byte = pair
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .ok_or("holds something else than hex digits; a key is 16 bytes, written as 32 hex digits")?;
    }
    Ok(Key::new(key))
}
