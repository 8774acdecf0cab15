//! The reference of the configuration says what the parser takes: every key, nothing else, and the defaults that hold.
//!
//! Who adds a key adds it to `src/config/reference/`, and has `docs/configuration.md` written anew by
//! `ADIT_WRITE_DOCS=1 cargo test --test reference`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use adit::cli::manual;
use adit::config::reference::{Table, Usual, reflect_tables, tables};
use adit::config::{Config, Problems, ReflectConfig};
use toml::Value;

/// Keys by the table that they stand in.
type Keys = BTreeMap<String, BTreeSet<String>>;

/// What no key resembles, so that the parser lists those it knows.
const NONSENSE: &str = "zzzzzzzzzzzzzzzz";
/// What the parser calls the table that has no title.
const TOP: &str = "the top of the file";

fn documented(tables: &[Table]) -> Keys {
    let mut keys = Keys::new();
    for table in tables {
        for title in table.titles {
            let names = table.keys.iter().map(|key| key.name.to_owned());
            keys.entry((*title).to_owned()).or_default().extend(names);
            // A table is a key of the one that it is in.
            let path = title.trim_matches(['[', ']']);
            let (parent, name) = path.rsplit_once('.').map_or((TOP.to_owned(), path), |(parent, name)| {
                let many = tables.iter().any(|table| table.titles.contains(&format!("[[{parent}]]").as_str()));
                (if many { format!("[[{parent}]]") } else { format!("[{parent}]") }, name)
            });
            keys.entry(parent).or_default().insert(name.to_owned());
        }
    }
    keys
}

/// A file with all the tables, and in each a key that nobody knows. What a tunnel is wrapped in is unclear, so
/// that the parser looks for all that any of them can have.
fn nonsense(tables: &[Table]) -> String {
    let mut text = format!("{NONSENSE} = 1\n");
    for title in tables.iter().flat_map(|table| table.titles) {
        let _ = writeln!(text, "{title}\n{NONSENSE} = 1");
        if *title == "[[tunnel]]" {
            text += "encapsulation = \"unclear\"\n";
        }
    }
    text
}

/// The keys that the parser says it knows.
fn known(problems: &Problems) -> Keys {
    let mut keys = Keys::new();
    for problem in problems.iter() {
        let Some(rest) = problem.message.strip_prefix(&format!("`{NONSENSE}` is no key of ")) else { continue };
        let (title, list) = rest.split_once("; known are ").unwrap();
        keys.entry(title.to_owned()).or_default().extend(list.split(", ").map(str::to_owned));
    }
    keys
}

/// The keys are the same as those that are documented; each difference is said.
fn assert_same(known: &Keys, documented: &Keys) {
    for title in known.keys().chain(documented.keys()) {
        let none = BTreeSet::new();
        let (known, documented) = (known.get(title).unwrap_or(&none), documented.get(title).unwrap_or(&none));
        let undocumented: Vec<_> = known.difference(documented).collect();
        let unknown: Vec<_> = documented.difference(known).collect();
        assert!(undocumented.is_empty(), "{title}: not in src/config/reference: {undocumented:?}");
        assert!(unknown.is_empty(), "{title}: in src/config/reference, but the parser does not know {unknown:?}");
    }
}

#[test]
fn every_key_that_is_read_is_documented_and_every_documented_one_is_read() {
    let tables = tables();
    let Err(problems) = Config::parse("adit.toml", &nonsense(&tables)) else { panic!("it loads") };
    let known = known(&problems);
    assert!(known.values().map(BTreeSet::len).sum::<usize>() > 80, "{known:?}");
    assert_same(&known, &documented(&tables));
}

#[test]
fn so_of_a_far_end() {
    let mut tables: Vec<_> = tables()
        .into_iter()
        .filter(|table| table.titles.iter().any(|title| title.contains("[tunnel") || title.contains("defaults")))
        .collect();
    tables.extend(reflect_tables());
    let Err(problems) = ReflectConfig::parse("far.toml", &nonsense(&tables)) else { panic!("it loads") };
    assert_same(&known(&problems), &documented(&tables));
}

/// A configuration in which every table is, and which says nothing else that it need not.
const LEAST: &str = r#"
[kernel]
apply = true
[[tunnel]]
name = "one"
local_endpoint = "198.51.100.1"
remote_endpoint = "203.0.113.10"
interface_address = "10.100.0.8/31"
[[tunnel]]
name = "two"
encapsulation = "esp"
local_endpoint = "198.51.100.1"
remote_endpoint = "203.0.113.11"
interface_address = "10.100.0.10/31"
[tunnel.esp]
keys = "installed"
[[route]]
prefix = "10.20.0.0/16"
tunnel = "one"
priority = 100
device = "gre1"
[[rule]]
source = "10.20.0.0/16"
table = 100
priority = 1000
[[endpoint]]
name = "erp"
address = "10.20.0.5"
[[notify]]
on = ["down"]
exec = ["/etc/adit/notify.sh"]
"#;

/// The value at a path such as `tunnel.gre`; of a list, of those of its tables that have it.
fn values<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a Value> {
    let Some((first, rest)) = path.split_first() else { return vec![value] };
    match value.as_array() {
        Some(list) => list.iter().flat_map(|value| values(value, path)).collect(),
        None => value.get(first).map_or_else(Vec::new, |value| values(value, rest)),
    }
}

#[test]
fn the_defaults_are_those_that_hold() {
    let Ok(config) = Config::parse("adit.toml", LEAST) else { panic!("it does not load") };
    let effective: Value = toml::from_str(&config.effective()).unwrap();
    let mut compared = 0;
    for table in tables() {
        let title = table.titles.last().unwrap().trim_matches(['[', ']']);
        for key in &table.keys {
            let path: Vec<_> = title.split('.').chain([key.name]).collect();
            let found = values(&effective, &path);
            let Usual::Value(usual) = &key.usual else { continue };
            let usual = toml::from_str::<Value>(&format!("usual = {usual}")).unwrap()["usual"].clone();
            assert!(!found.is_empty(), "{title}: {} is not in what holds", key.name);
            // The first tunnel is of the usual encapsulation, the second is not.
            assert_eq!(found[0], &usual, "{title}: {}", key.name);
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

const PAGE: &str = "docs/configuration.md";

#[test]
fn the_page_is_what_the_program_makes() {
    let made = manual::markdown();
    if std::env::var_os("ADIT_WRITE_DOCS").is_some() {
        return std::fs::write(PAGE, made).unwrap();
    }
    let page = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(page == made, "{PAGE} is out of date: ADIT_WRITE_DOCS=1 cargo test --test reference");
}

#[test]
fn the_manual_page_has_every_table_and_key() {
    let page = manual::page();
    for key in tables().iter().chain(&reflect_tables()).flat_map(|table| &table.keys) {
        assert!(page.contains(&format!("\\fB{}\\fR", key.name.replace('-', "\\-"))), "{} is not in the page", key.name);
        let text = [key.means, key.takes.as_str()];
        assert!(text.iter().all(|text| !text.is_empty() && text.matches('`').count() % 2 == 0), "{text:?}");
        assert!(!key.means.contains('|') && key.means.ends_with(['.', ',', 'd']), "{}: {}", key.name, key.means);
    }
}
