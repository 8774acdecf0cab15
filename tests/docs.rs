//! The pages in `docs/` show what is there: their configurations are fixtures that load, their commands exist, their
//! links lead somewhere, and what the how-tos show is either run (`tests/lab/howto.rs`) or says that it is not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod shown;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use shown::Step;

fn pages(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(pages(entry.to_str().unwrap()));
        } else if entry.extension().is_some_and(|end| end == "md") {
            found.push(entry);
        }
    }
    found.sort();
    found
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap()
}

#[test]
fn the_how_tos_say_of_each_block_what_is_done_with_it() {
    let fixtures: BTreeSet<String> =
        fs::read_dir("fixtures/config/ok").unwrap().map(|entry| read(&entry.unwrap().path())).collect();
    let (mut run, mut configurations) = (0, 0);
    for page in pages("docs/howto") {
        let steps = shown::steps(&read(&page)).unwrap_or_else(|why| panic!("{}: {why}", page.display()));
        for step in steps {
            match step {
                Step::Run { script, .. } => {
                    well_formed(&script, &page);
                    run += script.lines().count();
                }
                Step::File { path, text, .. } if path.ends_with(".toml") => {
                    assert!(fixtures.contains(&text), "{}: {path} is no fixture of fixtures/config/ok", page.display());
                    configurations += 1;
                }
                Step::Shown { kind, text } if kind == "toml" => {
                    assert!(fixtures.contains(&text), "{}: no fixture of fixtures/config/ok\n{text}", page.display());
                    configurations += 1;
                }
                Step::Shown { kind, text } if kind == "sh" => well_formed(&text, &page),
                Step::File { .. } | Step::Shown { .. } | Step::Stage { .. } | Step::Then { .. } => {}
            }
        }
    }
    assert!(run > 60 && configurations >= 5, "{run} lines are run, {configurations} configurations are shown");
}

/// A shell can read it.
fn well_formed(script: &str, page: &Path) {
    let mut shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "{}:\n{script}", page.display());
}

#[test]
fn the_commands_shown_exist() {
    let mut shown = 0;
    for page in pages("docs") {
        let text = read(&page);
        let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
        shown += shown::commands(blocks.flat_map(str::lines));
    }
    assert!(shown >= 20, "only {shown} commands are shown");
}

/// The links of a page, as they are written.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

#[test]
fn links_lead_somewhere() {
    for page in pages("docs").into_iter().chain([PathBuf::from("README.md")]) {
        let text = read(&page);
        for link in links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = page.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(file.exists(), "{}: {link} leads nowhere", page.display());
        }
    }
}

#[test]
fn the_index_has_every_page() {
    let index = read(Path::new("docs/README.md"));
    let listed: BTreeSet<PathBuf> = links(&index).into_iter().map(|link| Path::new("docs").join(link)).collect();
    let missing: Vec<_> =
        pages("docs").into_iter().filter(|page| !page.ends_with("docs/README.md") && !listed.contains(page)).collect();
    assert!(missing.is_empty(), "docs/README.md does not lead to {missing:?}");
}
