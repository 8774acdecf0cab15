//! Each event has a kind of message in the journal's catalogue, and the catalogue has nothing else.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

use std::collections::BTreeMap;
use std::process::Command;

use adit::daemon::message_id;
use adit::engine::event::Kind;
use adit::engine::{State, endpoints};

fn text() -> String {
    String::new()
}

/// One of each kind that is written to the log.
fn kinds() -> Vec<Kind> {
    let [from, to] = [State::Healthy, State::Down];
    vec![
        Kind::Transition { tunnel: text(), from, to, rule: 1, reason: text(), penalty: 0 },
        Kind::Route { prefix: text(), table: None, netns: None, from: Vec::new(), to: Vec::new() },
        Kind::Routes { tunnel: text(), moved: 1 },
        Kind::KernelDrift { netns: None, count: 1, changes: Vec::new() },
        Kind::LocalFault { tunnel: None, fault: "stall", reason: text() },
        Kind::Drain { tunnel: text(), drained: true, penalty: 0, level: None, until: None, reason: None, by: None },
        Kind::Obstacle { tunnel: text(), reason: None },
        Kind::Need { need: text(), reason: None },
        Kind::Endpoint {
            endpoint: text(),
            from: endpoints::State::Reachable,
            to: endpoints::State::Unreachable,
            reason: text(),
        },
        Kind::Association { tunnel: text(), spi_out: 1, spi_in: 2 },
        Kind::Warning { tunnel: None, reason: text() },
        Kind::Reload { kept: 1, changed: 0, added: 0, removed: 0, reason: None },
        Kind::Start { tunnels: 1, version: "1" },
        Kind::Stop {},
    ]
}

/// The catalogue's entries: subject and text by the number of the message.
fn catalogue() -> BTreeMap<String, (String, String)> {
    let text = std::fs::read_to_string("systemd/adit.catalog").unwrap();
    let entries = text.split("\n-- ").skip(1).map(|entry| {
        let (id, rest) = entry.split_once('\n').unwrap();
        let (head, body) = rest.split_once("\n\n").unwrap();
        assert!(head.contains("Defined-By: adit"), "{head}");
        let subject = head.lines().find_map(|line| line.strip_prefix("Subject: ")).unwrap();
        (id.to_owned(), (subject.to_owned(), body.to_owned()))
    });
    let count = text.matches("\n-- ").count();
    let entries: BTreeMap<_, _> = entries.collect();
    assert_eq!(entries.len(), count, "each once");
    entries
}

#[test]
fn each_event_is_in_the_catalogue_and_nothing_else() {
    let ids: Vec<_> = kinds().iter().map(|kind| message_id(kind).unwrap().to_owned()).collect();
    let mut sorted = ids.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), ids.len(), "each its own");
    assert_eq!(catalogue().keys().cloned().collect::<Vec<_>>(), sorted);
    let is_id = |id: &String| id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    assert!(ids.iter().all(is_id));
}

#[test]
fn samples_are_not_logged() {
    let sample =
        Kind::Sample { tunnel: text(), t: adit::engine::Time::ZERO, ok: None, inconclusive: true, rtt_us: None };
    assert_eq!(message_id(&sample), None);
}

#[test]
fn fields_that_the_catalogue_names_are_fields_of_the_log() {
    let source = std::fs::read_to_string("src/daemon/tell.rs").unwrap();
    for (id, (subject, body)) in catalogue() {
        assert!(!body.trim().is_empty(), "{id}");
        let text = format!("{subject}\n{body}");
        for name in text.split('@').skip(1).step_by(2) {
            let field = name.strip_prefix("ADIT_").unwrap_or_else(|| panic!("{name}")).to_lowercase();
            assert!(source.contains(&format!("adit.{field} =")), "{name}");
        }
    }
}

#[test]
fn the_journal_takes_the_catalogue() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("usr/lib/systemd/catalog");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(root.path().join("var/lib/systemd/catalog")).unwrap();
    std::fs::copy("systemd/adit.catalog", folder.join("adit.catalog")).unwrap();
    let journalctl =
        |what: &str| Command::new("journalctl").arg(format!("--root={}", root.path().display())).arg(what).output();
    let Ok(updated) = journalctl("--update-catalog") else {
        assert!(std::env::var_os("ADIT_REQUIRE_TOOLS").is_none(), "journalctl is missing");
        println!("skipped: journalctl is missing");
        return;
    };
    assert!(updated.status.success(), "{}", String::from_utf8_lossy(&updated.stderr));
    let listed = String::from_utf8(journalctl("--list-catalog").unwrap().stdout).unwrap();
    for id in catalogue().keys() {
        assert!(listed.contains(id.as_str()), "{id}: {listed}");
    }
}
