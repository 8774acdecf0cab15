//! The texts of a configuration, gathered by whoever may read files; whoever makes a [`super::Config`] of
//! them needs none.
//!
//! Keys are among them, so they are wiped from memory when they have been used, and there is no `Debug`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::key_file::{self, Unread};
use super::problem::{Problem, path};
use super::source::{self, File};

/// The file that has drop-ins beside it; any other stands alone.
const WITH_DROP_INS: &str = "adit.toml";
/// The folder of the drop-ins.
const DROP_INS: &str = "conf.d";

/// What is in a key file, or why that is not known.
pub(super) type KeyText = Result<Zeroizing<Vec<u8>>, Unread>;
/// Key files, by their absolute paths.
pub(super) type Keys = BTreeMap<PathBuf, KeyText>;

/// All that one configuration consists of: its file, the drop-ins, the key files that they name. It can be
/// handed to another process.
#[derive(Serialize, Deserialize)]
pub struct Texts {
    /// Where paths begin that are not absolute.
    #[serde(with = "path")]
    folder: PathBuf,
    files: Vec<Text>,
    #[serde(with = "by_path")]
    keys: Keys,
    /// What could not be read.
    problems: Vec<Problem>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    #[serde(with = "path")]
    name: PathBuf,
    text: String,
}

impl Texts {
    /// Reads a file; one that is called `adit.toml` with the drop-ins `conf.d/*.toml` beside it, in the order
    /// of their names. What cannot be read is said by [`super::Config::of_texts`].
    #[must_use]
    pub fn gather(path: &Path) -> Self {
        let mut texts = Self::empty();
        let drop_ins = drop_ins(path).unwrap_or_else(|problem| {
            texts.problems.push(problem);
            Vec::new()
        });
        for name in std::iter::once(path.to_owned()).chain(drop_ins) {
            match read(&name) {
                Ok(text) => texts.files.push(Text { name, text }),
                Err(problem) => texts.problems.push(problem),
            }
        }
        texts.with_keys()
    }

    /// A text as the file of this name, and the key files that it names.
    #[must_use]
    pub fn of(name: impl AsRef<Path>, text: &str) -> Self {
        let mut texts = Self::empty();
        texts.files.push(Text { name: name.as_ref().to_owned(), text: text.to_owned() });
        texts.with_keys()
    }

    fn empty() -> Self {
        let folder = std::env::current_dir().unwrap_or_default();
        Self { folder, files: Vec::new(), keys: Keys::new(), problems: Vec::new() }
    }

    fn with_keys(mut self) -> Self {
        let named = source::key_files(&self).into_iter();
        self.keys = named.map(|path| (path.clone(), key_file::load(&path))).collect();
        self
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names and texts, in the order in which they are merged.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.files.iter().map(|Text { name, text }| (name.as_path(), text.as_str()))
    }

    pub(super) const fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// A map by paths, as a list: a path need not be UTF-8, and then is no text.
mod by_path {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{KeyText, Keys, PathBuf, path};

    #[derive(Serialize)]
    struct Lent<'a>(#[serde(with = "path")] &'a PathBuf, &'a KeyText);

    #[derive(Deserialize)]
    struct Owned(#[serde(with = "path")] PathBuf, KeyText);

    pub(super) fn serialize<S: Serializer>(keys: &Keys, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(keys.iter().map(|(path, text)| Lent(path, text)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Keys, D::Error> {
        let list = Vec::<Owned>::deserialize(deserializer)?;
        Ok(list.into_iter().map(|Owned(path, text)| (path, text)).collect())
    }
}

fn read(path: &Path) -> Result<String, Problem> {
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        let place = Some(File::new(path.to_owned(), before).place(valid));
        Problem { file: path.to_owned(), place, message: "this is not UTF-8; save the file as UTF-8 text".to_owned() }
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let kind = error.kind();
    let remedy = if kind == io::ErrorKind::NotFound {
        "; write it, or name another with --config"
    } else if kind == io::ErrorKind::PermissionDenied {
        "; run as a user who may read it"
    } else {
        ""
    };
    Problem { file: path.to_owned(), place: None, message: format!("cannot be read: {error}{remedy}") }
}

fn drop_ins(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    if path.file_name().is_none_or(|name| name != WITH_DROP_INS) {
        return Ok(Vec::new());
    }
    let folder = path.with_file_name(DROP_INS);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let mut names: Vec<_> =
        entries.map_err(|error| unreadable(&folder, &error))?.iter().map(fs::DirEntry::path).collect();
    names.retain(|name| name.extension().is_some_and(|end| end == "toml") && !is_hidden(name));
    names.sort();
    Ok(names)
}

/// Editors keep their unfinished copies under such names.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}
