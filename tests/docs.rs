//! The pages in `docs/` and the README show what is there: their configurations load, their commands exist, their links lead
//! somewhere, the programs of docs/notify.md are run, and what the how-tos show is either run (`tests/lab/howto.rs`) or
//! says that it is not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod shown;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use adit::config::{Config, ReflectConfig};
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
    for page in pages("docs/howto")
        .into_iter()
        .chain(["README.md", "docs/install.md", "docs/decision-rules.md"].map(PathBuf::from))
    {
        // That those of the README load is a trial of its own.
        let is_howto = page.starts_with("docs/howto");
        let steps = shown::steps(&read(&page)).unwrap_or_else(|why| panic!("{}: {why}", page.display()));
        for step in steps {
            match step {
                Step::Run { script, .. } | Step::Session { script, .. } => {
                    well_formed(&script, &page);
                    run += script.lines().count();
                }
                Step::File { path, text, .. } if path.ends_with(".toml") && is_howto => {
                    assert!(fixtures.contains(&text), "{}: {path} is no fixture of fixtures/config/ok", page.display());
                    configurations += 1;
                }
                Step::Shown { kind, text } if kind == "toml" && is_howto => {
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

/// What needs neither root nor a daemon: done here, with a recording and a configuration of those names.
#[test]
fn what_can_be_done_anywhere_is_done() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy("docs/pictures/cut.jsonl", folder.path().join("record.jsonl")).unwrap();
    fs::copy("fixtures/config/ok/two-tunnels.toml", folder.path().join("other.toml")).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_adit")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    for step in shown::steps(&read(Path::new("docs/decision-rules.md"))).unwrap() {
        let Step::Run { place, script } = step else { continue };
        assert_eq!(place, "here");
        let mut shell = Command::new("sh");
        let done = shell.args(["-ec", &script]).current_dir(folder.path()).env("PATH", &path).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success() && said.contains("-> down"), "{script}{said}{done:?}");
    }
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

/// The blocks of a kind that a page shows.
fn blocks<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let of_kind = |block: &'a str| block.strip_prefix(kind)?.strip_prefix('\n');
    text.split("```").skip(1).step_by(2).filter_map(of_kind).collect()
}

/// The README and the pages that are no how-to, of which another test sees to that.
fn others() -> impl Iterator<Item = PathBuf> {
    pages("docs").into_iter().filter(|page| !page.starts_with("docs/howto")).chain([PathBuf::from("README.md")])
}

#[test]
fn every_configuration_shown_loads() {
    // What a configuration names must be there: keys for the cipher and for HMAC, and a header.
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    file("par-1.out", &"4b".repeat(64));
    file("par-1.in", &"5c".repeat(64));
    file("webhook.headers", "Authorization: Bearer 4711\n");
    let mut loaded = 0;
    for page in others() {
        for block in blocks(&read(&page), "toml") {
            let text = block.replace("/etc/adit/keys", folder.path().to_str().unwrap());
            let problems = match (Config::parse("adit.toml", &text), ReflectConfig::parse("far.toml", &text)) {
                (Err(problems), Err(_)) => problems.to_string(),
                (Ok(_), _) | (_, Ok(_)) => String::new(),
            };
            assert!(problems.is_empty(), "{}: {problems}\n{text}", page.display());
            loaded += 1;
        }
    }
    assert!(loaded >= 14, "only {loaded} configurations are shown");
}

#[test]
fn every_script_shown_is_one() {
    for page in others() {
        blocks(&read(&page), "sh").into_iter().for_each(|block| well_formed(block, &page));
    }
}

/// Runs a script of docs/notify.md with a message, and gives what its `curl` was called with, argument by argument and
/// then its standard input, each on lines of its own.
fn posted(script: &str, message: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| {
        fs::write(at(name), text).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("curl", "#!/bin/sh\n{ printf '%s\\n' \"$@\"; cat; echo; } >>\"$POSTED\"\n");
    write("script", &script.replace("/run/credentials/adit.service/pager.key", at("key").to_str().unwrap()));
    write("key", "R0UTING");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut run = Command::new(at("script"));
    run.env("PATH", path).env("POSTED", at("posted")).env("ADIT_COUNT", "1").env("ADIT_TEXT", "ams-1 is down");
    let mut child = run.stdin(Stdio::piped()).spawn().unwrap();
    // One that reads nothing may have ended.
    let _ = child.stdin.take().unwrap().write_all(message.as_bytes());
    assert!(child.wait().unwrap().success(), "{script}");
    fs::read_to_string(at("posted")).unwrap()
}

#[test]
fn the_programs_of_the_page_about_notify_do_what_it_says() {
    let page = read(Path::new("docs/notify.md"));
    let message = blocks(&page, "json")[0];
    let script = |name: &str| {
        blocks(&page, "sh").into_iter().find(|block| block.contains(name)).unwrap_or_else(|| panic!("no {name}"))
    };
    let mail = posted(script("mail.sh"), message);
    assert!(mail.contains("--upload-file\n-\n") && mail.contains("Subject: adit: 1 change(s)"), "{mail}");
    assert!(mail.trim_end().ends_with("ams-1 is down"), "{mail}");

    if Command::new("jq").arg("--version").output().is_err() {
        println!("SKIPPED: jq is missing: apt install jq");
        assert!(std::env::var_os("ADIT_REQUIRE_TOOLS").is_none(), "jq is required here");
        return;
    }
    let pager = posted(script("pager.sh"), message);
    let event: serde_json::Value = serde_json::from_str(pager.lines().last().unwrap()).unwrap();
    assert_eq!(event["routing_key"], "R0UTING");
    assert_eq!(event["dedup_key"], "adit/edge-1/ams-1");
    assert_eq!((&event["event_action"], &event["payload"]["summary"]), (&"trigger".into(), &"ams-1: down".into()));
}

/// The links of a page, as they are written.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// The names of a page's headings, as browsers of Markdown make them: small letters, hyphens for blanks, nothing else.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose = text.split("```").step_by(2).flat_map(str::lines);
    let name = |heading: &str| -> String {
        let letters = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        letters.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    prose.filter(|line| line.starts_with('#')).map(|line| name(line.trim_start_matches('#'))).collect()
}

#[test]
fn links_lead_somewhere() {
    for page in pages("docs").into_iter().chain([PathBuf::from("README.md")]) {
        let text = read(&page);
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(file.exists(), "{}: {link} leads nowhere", page.display());
            if let Some(anchor) = anchor {
                assert!(anchors(&read(&file)).contains(anchor), "{}: {link}: no such heading", page.display());
            }
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
