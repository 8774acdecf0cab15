//! The texts of a configuration, parsed and merged; and the report of what is wrong with them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::key_file;
use super::problem::{Problem, Problems};
use super::texts::{KeyText, Keys, Texts};
use super::tree::{self, At, Table};

pub(super) struct File {
    name: PathBuf,
    text: String,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl File {
    pub(super) fn new(name: PathBuf, text: String) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name, text, lines }
    }

    /// Line and column of a byte, both from 1.
    pub(super) fn place(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or("");
        (line, before.chars().count() + 1)
    }
}

/// Collects what is wrong, so that one run says all of it.
pub(super) struct Report {
    files: Vec<File>,
    /// Where names of files begin that are not absolute.
    folder: PathBuf,
    keys: Keys,
    found: RefCell<Vec<(At, String)>>,
    hints: RefCell<Vec<(At, String)>>,
}

impl Report {
    /// Notes a problem.
    pub(super) fn add(&self, at: At, message: impl Into<String>) {
        self.found.borrow_mut().push((at, message.into()));
    }

    /// Notes what is allowed, and may yet not be meant.
    pub(super) fn hint(&self, at: At, message: impl Into<String>) {
        self.hints.borrow_mut().push((at, message.into()));
    }

    /// The words for a place, in a message that stands at another.
    pub(super) fn refer(&self, from: At, to: At) -> String {
        match self.files.get(to.file) {
            Some(file) if from.file == to.file => format!("line {}", file.place(to.offset).0),
            Some(file) => format!("line {} of {}", file.place(to.offset).0, file.name.display()),
            None => "another place".to_owned(),
        }
    }

    /// A path as written in a file: relative ones start at the file's own folder.
    pub(super) fn resolve(&self, at: At, path: &str) -> PathBuf {
        resolve(&self.folder, &self.files, at, path)
    }

    /// What is in a key file.
    pub(super) fn key(&self, path: &Path) -> Option<&KeyText> {
        self.keys.get(path)
    }

    /// What is built of the hints, if nothing was wrong.
    pub(super) fn conclude<T>(self, build: impl FnOnce(Vec<Problem>) -> T) -> Result<T, Problems> {
        let Self { files, found, hints, .. } = self;
        let placed = |noted: RefCell<Vec<(At, String)>>| {
            let mut noted = noted.into_inner();
            noted.sort();
            // A default that is wrong is wrong once, however many tunnels inherit it.
            noted.dedup();
            let problem = |(at, message): (At, String)| {
                let file = files.get(at.file);
                Problem {
                    file: file.map(|file| file.name.clone()).unwrap_or_default(),
                    place: file.map(|file| file.place(at.offset)),
                    message,
                }
            };
            noted.into_iter().map(problem).collect::<Vec<_>>()
        };
        let found = placed(found);
        if found.is_empty() { Ok(build(placed(hints))) } else { Err(Problems(found)) }
    }
}

/// The merged files, and where to report what is wrong with them.
pub(super) type Loaded = (Report, Table);

/// Parses and merges the texts of a configuration.
pub(super) fn merge(texts: &Texts) -> Result<Loaded, Problems> {
    let files = texts.files().map(|(name, text)| File::new(name.to_owned(), text.to_owned())).collect();
    let (files, root) = parse_all(files, texts.problems().to_vec())?;
    let (found, hints) = (RefCell::default(), RefCell::default());
    Ok((Report { files, folder: texts.folder().to_owned(), keys: texts.keys().clone(), found, hints }, root))
}

/// The key files that a configuration names, as far as it can be parsed.
pub(super) fn key_files(texts: &Texts) -> BTreeSet<PathBuf> {
    let files = texts.files().map(|(name, text)| File::new(name.to_owned(), text.to_owned())).collect();
    let mut named = BTreeSet::new();
    if let Ok((files, root)) = parse_all(files, Vec::new()) {
        tree::texts(&root, &key_file::KEYS, &mut |at, path| {
            named.insert(resolve(texts.folder(), &files, at, path));
        });
    }
    named
}

/// A path as written in a file: relative ones start at the file's own folder.
fn resolve(folder: &Path, files: &[File], at: At, path: &str) -> PathBuf {
    let beside = files.get(at.file).and_then(|file| file.name.parent()).unwrap_or(Path::new(""));
    let joined = folder.join(beside).join(path);
    std::path::absolute(&joined).unwrap_or(joined)
}

fn parse_all(files: Vec<File>, mut problems: Vec<Problem>) -> Result<(Vec<File>, Table), Problems> {
    let mut root = Table::new();
    for (index, file) in files.iter().enumerate() {
        let (parsed, errors) = DeTable::parse_recoverable(&file.text);
        problems.extend(errors.iter().map(|error| syntax(file, error)));
        tree::merge(&mut root, tree::table(parsed.get_ref(), index));
    }
    if problems.is_empty() { Ok((files, root)) } else { Err(Problems(problems)) }
}

fn syntax(file: &File, error: &toml::de::Error) -> Problem {
    let what = error.message().replace('\n', " ");
    let remedy = match what.as_str() {
        "duplicate key" => "a key, or a table, stands once: keep one of the two, or write [[…]] for a list of tables",
        text if text.starts_with("string values must be quoted") => "write a text in double quotes",
        _ => "write what TOML expects here, as in key = \"text\", key = 10 or [section]",
    };
    let place = error.span().map(|span| file.place(span.start));
    Problem { file: file.name.clone(), place, message: format!("this is not TOML: {what}; {remedy}") }
}
