//! The files of a configuration: read, parsed, merged; and the report of what is wrong with them.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::problem::{Problem, Problems};
use super::tree::{self, At, Table};

/// The file that has drop-ins beside it; any other stands alone.
const WITH_DROP_INS: &str = "adit.toml";
/// The folder of the drop-ins.
const DROP_INS: &str = "conf.d";

struct File {
    name: PathBuf,
    text: String,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl File {
    fn new(name: PathBuf, text: String) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name, text, lines }
    }

    /// Line and column of a byte, both from 1.
    fn place(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or("");
        (line, before.chars().count() + 1)
    }
}

/// Collects what is wrong, so that one run says all of it.
pub(super) struct Report {
    files: Vec<File>,
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
        let folder = self.files.get(at.file).and_then(|file| file.name.parent()).unwrap_or(Path::new(""));
        let joined = folder.join(path);
        std::path::absolute(&joined).unwrap_or(joined)
    }

    /// What is built of the hints, if nothing was wrong.
    pub(super) fn conclude<T>(self, build: impl FnOnce(Vec<Problem>) -> T) -> Result<T, Problems> {
        let Self { files, found, hints } = self;
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

/// Reads a file and its drop-ins.
pub(super) fn load(path: &Path) -> Result<Loaded, Problems> {
    let mut problems = Vec::new();
    let mut files = Vec::new();
    let drop_ins = drop_ins(path).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    for name in std::iter::once(path.to_owned()).chain(drop_ins) {
        match read(&name) {
            Ok(text) => files.push(File::new(name, text)),
            Err(problem) => problems.push(problem),
        }
    }
    parse_all(files, problems)
}

/// Takes a text as the file of this name.
pub(super) fn parse(name: &Path, text: &str) -> Result<Loaded, Problems> {
    parse_all(vec![File::new(name.to_owned(), text.to_owned())], Vec::new())
}

fn parse_all(files: Vec<File>, mut problems: Vec<Problem>) -> Result<Loaded, Problems> {
    let mut root = Table::new();
    for (index, file) in files.iter().enumerate() {
        let (parsed, errors) = DeTable::parse_recoverable(&file.text);
        problems.extend(errors.iter().map(|error| syntax(file, error)));
        tree::merge(&mut root, tree::table(parsed.get_ref(), index));
    }
    if problems.is_empty() {
        Ok((Report { files, found: RefCell::default(), hints: RefCell::default() }, root))
    } else {
        Err(Problems(problems))
    }
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
