//! What is refused: every problem of a file, at its place, with what to write instead.

use std::fs;

use adit::config::Config;

use crate::{Fixtures, good, load};

#[test]
fn every_good_file_loads() {
    let files = Fixtures::new();
    assert!(files.files("ok").len() >= 12);
    files.files("ok").iter().for_each(|file| good(load(file)));
}

/// What a bad file says of itself: places and parts of texts.
fn announced(text: &str) -> Vec<((usize, usize), &str)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("#! "));
    let parts = lines.map(|line| {
        let (row, rest) = line.split_once(':').unwrap();
        let (column, text) = rest.split_once(": ").unwrap();
        ((row.parse().unwrap(), column.parse().unwrap()), text)
    });
    parts.collect()
}

#[test]
fn every_bad_file_is_refused_with_all_its_problems_at_their_places() {
    let fixtures = Fixtures::new();
    let files = fixtures.files("bad");
    assert!(files.len() >= 100);
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut wanted = announced(&text);
        assert!(!wanted.is_empty(), "{} announces nothing", file.display());
        let problems = load(&file).err().map_or_else(Vec::new, |problems| problems.iter().cloned().collect());
        for problem in &problems {
            assert_eq!(problem.file, file);
            let is_it = |(place, text): &((usize, usize), &str)| {
                Some(*place) == problem.place && problem.message.contains(text)
            };
            match wanted.iter().position(is_it) {
                Some(at) => drop(wanted.remove(at)),
                None => wrong.push(format!("not announced: {problem}")),
            }
        }
        wrong.extend(wanted.iter().map(|(place, text)| format!("not reported: {} {place:?} {text}", file.display())));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_problem_is_one_line_that_says_what_to_write() {
    const REMEDIES: [&str; 7] = ["write", "remove", "keep", "did you mean", "known are", "chmod", "32 hex digits"];
    for file in Fixtures::new().files("bad") {
        let problems = load(&file).unwrap_err();
        for problem in problems.iter() {
            let (line, column) = problem.place.unwrap();
            let text = problem.to_string();
            assert!(text.starts_with(&format!("{}:{line}:{column}: ", file.display())), "{text}");
            assert!(REMEDIES.iter().any(|remedy| text.contains(remedy)), "no remedy: {text}");
        }
        assert_eq!(problems.to_string().lines().count(), problems.count());
    }
}

#[test]
fn a_file_cut_off_or_garbled_anywhere_is_judged_without_a_panic() {
    let text = include_str!("../../fixtures/config/ok/whole.toml");
    for at in 0..text.len() {
        let (before, after) = text.split_at(at);
        let _ = Config::parse("adit.toml", before);
        for strange in ["\"", "]", "ä"] {
            let _ = Config::parse("adit.toml", &format!("{before}{strange}{}", &after[1..]));
        }
    }
}

#[test]
fn what_a_file_says_cannot_disturb_a_terminal() {
    let text = "\"\\u001b[2J\\n\" = 1\n[daemon]\nsocket_group = [\"\\u001b\"]\nsocket = 1\n[[tunnel]]\nname = \"\\u001b\\n\"\n\
                netns = \"a/\\u001b\\n\"\nunderlay_device = \"\\u001b\\n\"\nlocal_endpoint = \"\\u001b\\n\"\n\
                health_check = { rate = \"\\u001b\\n\", mark_key_file = \"\\u001b\\n\" }\n";
    let problems = Config::parse("adit.toml", text).err().unwrap();
    assert!(problems.count() >= 8, "{problems}");
    for problem in problems.iter() {
        assert!(!problem.to_string().contains(char::is_control), "{problem:?}");
    }
}
