//! Exports of Cloudflare's: what is made of one loads, steers nothing, and has no line that a text of it has put there.
//!
//! The first byte says which side this host is, and whether it says its own address.

use std::collections::BTreeSet;

use adit::config::Config;
use adit::config::import::{Host, Side, import};

pub(crate) fn run(bytes: &[u8]) {
    let Some((&choice, export)) = bytes.split_first() else { return };
    let side = if choice & 1 == 0 { Side::Customer } else { Side::Cloudflare };
    let endpoint = (choice & 2 != 0).then(|| "198.51.100.1".parse().unwrap());
    match import(&[("f".to_owned(), export.to_vec())], Host { side, endpoint }) {
        Ok(import) => {
            if import.tunnels > 0 {
                super::deep();
            }
            let config = Config::parse("/fuzz/f.toml", &import.text);
            let config = config.unwrap_or_else(|problems| panic!("{problems}\n{}", import.text));
            assert_eq!((config.tunnels.len(), config.routes.len()), (import.tunnels, import.routes));
            assert!(!config.kernel.apply && config.policy.is_empty());
            let begins = |line: &str| {
                let word = line.split([' ', '[', ']']).find(|word| !word.is_empty()).unwrap_or_default();
                line.starts_with('#') || KNOWN.contains(&word)
            };
            let strange: BTreeSet<&str> =
                import.text.lines().filter(|line| !line.is_empty() && !begins(line)).collect();
            assert!(strange.is_empty(), "{strange:?}");
        }
        Err(problems) => {
            assert!(problems.iter().count() > 0);
            for problem in problems.iter() {
                assert!(!problem.message.is_empty() && !problem.to_string().contains(char::is_control), "{problem}");
            }
        }
    }
}

/// What a line can begin with.
const KNOWN: [&str; 18] = [
    "tunnel",
    "tunnel.health_check",
    "route",
    "name",
    "encapsulation",
    "device",
    "local_endpoint",
    "remote_endpoint",
    "interface_address",
    "ttl",
    "enabled",
    "type",
    "direction",
    "rate",
    "target",
    "prefix",
    "priority",
    "weight",
];
