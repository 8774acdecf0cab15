//! The rooms of `src/lib.rs` and the arrows between them, read off the sources.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Names that have no place where time, chance and the world come in as arguments.
const IMPURE: [&str; 21] = [
    "tokio",
    "futures_util",
    "socket2",
    "nix",
    "rtnetlink",
    "axum",
    "hyper",
    "rand",
    "getrandom",
    "tracing",
    "HashMap",
    "HashSet",
    "RandomState",
    "Instant",
    "SystemTime",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
];

/// Paths of the same kind.
const IMPURE_PATHS: [&str; 8] = [
    "std::env::",
    "std::fs",
    "std::thread",
    "std::process",
    "std::io",
    "std::os",
    "std::sync",
    // From a file of a room this leaves the room without naming where it goes.
    "super::super",
];

/// A room, and the rooms it may not know of.
const ARROWS: [(&str, &[&str]); 8] = [
    ("wire", &["engine", "notice", "steer", "config", "reflect", "io", "daemon", "cli"]),
    ("engine", &["notice", "steer", "config", "reflect", "io", "daemon", "cli"]),
    ("steer", &["notice", "config", "reflect", "io", "daemon", "cli"]),
    ("notice", &["wire", "steer", "config", "reflect", "io", "daemon", "cli"]),
    ("config", &["io", "daemon", "cli"]),
    ("io", &["reflect", "daemon", "cli"]),
    ("reflect", &["config", "daemon", "cli"]),
    ("daemon", &["cli"]),
];

/// The sources of a room: `src/<room>.rs` and everything under `src/<room>/`.
fn sources(room: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    collect(&Path::new("src").join(room), &mut files);
    files.extend(Some(Path::new("src").join(format!("{room}.rs"))).filter(|file| file.exists()));
    assert!(!files.is_empty(), "no room {room}");
    files.sort();
    files.into_iter().map(|file| (file.clone(), code(&std::fs::read_to_string(&file).unwrap()))).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The code without comments: prose may name what code must not.
fn code(source: &str) -> String {
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    source.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn names(code: &str) -> BTreeSet<&str> {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect()
}

fn impurities(code: &str) -> Vec<&'static str> {
    let names = names(code);
    let words = IMPURE.into_iter().filter(|word| names.contains(word));
    words.chain(IMPURE_PATHS.into_iter().filter(|path| code.contains(path))).collect()
}

/// Rooms that this code names: `crate::io`, `adit::io`, or in a list, `crate::{io, wire}`.
fn rooms_named(code: &str) -> BTreeSet<&str> {
    let mut rooms = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        let listed = after.strip_prefix('{').map(|list| list.split('}').next().unwrap_or_default());
        match listed {
            Some(list) => rooms.extend(names(list)),
            None => rooms.extend(after.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()),
        }
    }
    rooms.remove("");
    rooms
}

#[test]
fn the_pure_rooms_are_pure() {
    for room in ["wire", "engine", "steer", "notice", "config/propose", "config/import"] {
        for (file, code) in sources(room) {
            assert_eq!(impurities(&code), Vec::<&str>::new(), "{} is in a pure room", file.display());
        }
    }
}

#[test]
fn arrows_point_one_way() {
    for (room, forbidden) in ARROWS {
        for (file, code) in sources(room) {
            let named = rooms_named(&code);
            let wrong: Vec<_> = forbidden.iter().filter(|forbidden| named.contains(**forbidden)).collect();
            assert!(wrong.is_empty(), "{} knows of {wrong:?}", file.display());
        }
    }
}

#[test]
fn now_is_read_in_one_place_for_all_that_decides() {
    let mut files = Vec::new();
    collect(Path::new("src"), &mut files);
    let readers: BTreeSet<PathBuf> = files
        .into_iter()
        .filter(|file| {
            // The number of the system call is for a list of what may be called.
            let code = code(&std::fs::read_to_string(file).unwrap()).replace("SYS_clock_gettime", "");
            ["Instant::now", "SystemTime::now", "clock_gettime"].iter().any(|call| code.contains(call))
        })
        .collect();
    // The command line asks how long ago something was, to show it to a person.
    assert_eq!(readers, ["src/cli/text.rs", "src/io/clock.rs"].map(PathBuf::from).into());
}

#[test]
fn nothing_is_unsafe_but_what_the_system_leaves_no_other_way_for() {
    let mut files = Vec::new();
    collect(Path::new("src"), &mut files);
    let is_unsafe = |file: &PathBuf| names(&code(&std::fs::read_to_string(file).unwrap())).contains("unsafe");
    files.retain(is_unsafe);
    assert_eq!(files, [Path::new("src/io/heap.rs")]);
}

#[test]
fn every_folder_opens_with_what_it_is() {
    let mut folders = vec![PathBuf::from("src")];
    while let Some(folder) = folders.pop() {
        let entries: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let files = entries.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")).count();
        folders.extend(entries.into_iter().filter(|path| path.is_dir()));
        if files < 2 {
            continue;
        }
        let front = [folder.join("lib.rs"), folder.join("mod.rs"), folder.with_extension("rs")];
        let front = front.iter().find(|front| front.exists());
        let front = front.unwrap_or_else(|| panic!("{} has no mod.rs", folder.display()));
        let text = std::fs::read_to_string(front).unwrap();
        assert!(text.starts_with("//!"), "{} does not say what it is", front.display());
    }
}

#[test]
fn the_checks_see_what_they_look_for() {
    let found = |source: &str| impurities(&code(source));
    assert_eq!(found("use tokio::time::sleep;"), ["tokio"]);
    assert_eq!(found("let now = std::time::Instant::now();"), ["Instant"]);
    assert_eq!(found("use std::collections::HashMap;"), ["HashMap"]);
    assert_eq!(found("let key = std::env::var(\"KEY\");"), ["std::env::"]);
    assert_eq!(found("use super::super::io;"), ["super::super"]);
    assert_eq!(found("// tokio, HashMap and std::fs are not for here"), Vec::<&str>::new());
    assert_eq!(found("let random = operand;"), Vec::<&str>::new());
    assert_eq!(
        rooms_named("use crate::io::raw; use crate::{wire, engine::Time};"),
        BTreeSet::from(["Time", "engine", "io", "wire"])
    );
}
