//! Recorded samples: each transition begins where the last one of its tunnel has led.

use std::collections::BTreeMap;

use adit::cli::replay::Replay;
use adit::engine::{State, Time};

pub(crate) fn run(bytes: &[u8]) {
    let Some((&initial, lines)) = bytes.split_first() else { return };
    let initial = State::ALL[usize::from(initial) % State::ALL.len()];
    let mut replay = Replay::starting_as(initial);
    let mut known: BTreeMap<String, (State, Time)> = BTreeMap::new();
    for line in lines.split(|&byte| byte == b'\n') {
        let taken = replay.take(line);
        let value: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
        match taken {
            Ok(Some((tunnel, transition))) => {
                super::deep();
                let forgets = value["kind"] == "obstacle";
                let (from, at) = known.get(&tunnel).copied().unwrap_or((transition.from, Time::ZERO));
                assert_eq!(transition.from, from, "{tunnel}");
                assert!(known.contains_key(&tunnel) || from == initial || from == State::Unknown, "{tunnel}");
                assert!(transition.to != from && transition.at >= at, "{tunnel}");
                assert!(forgets || (1..=5).contains(&transition.reason.rule));
                assert!(!transition.reason.to_string().is_empty());
                known.insert(tunnel, (transition.to, transition.at));
            }
            Ok(None) if value["kind"] == "start" => known.clear(),
            Ok(None) => {}
            Err(why) => assert!(!why.contains('\n'), "one line: {why}"),
        }
    }
}
