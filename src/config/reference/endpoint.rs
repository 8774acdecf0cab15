//! `[[endpoint]]`.

use super::{Key, Table, Usual, key, number, plain, said, time, times};
use crate::config::defaults;

pub(super) fn table() -> Table {
    let about = "An address beyond the far routers, which is probed in no tunnel, over whatever route it takes. It is \
                 measured and told, and steers nothing.";
    Table { titles: &["[[endpoint]]"], about, keys: keys() }
}

fn keys() -> Vec<Key> {
    vec![
        key("name", said("as a tunnel's"), Usual::Needed, "What every output calls it. No two have the same."),
        key("address", said("an address"), Usual::Needed, "What is probed."),
        key("source", said("an address"), Usual::Else("the kernel chooses"), "Where its probes come from."),
        key(
            "netns",
            said("the name of a network namespace, or its path"),
            Usual::Else("the one in which adit runs"),
            "Whose routes its probes take.",
        ),
        key("mark", number(&(0..=u32::MAX)), plain(defaults::MARK), "The firewall mark of its probes; 0 is none."),
        key(
            "interval",
            times(&defaults::ENDPOINT_INTERVAL_RANGE),
            time(defaults::ENDPOINT_INTERVAL),
            "From one round of probes to the next.",
        ),
        key(
            "retry_interval",
            times(&defaults::ENDPOINT_INTERVAL_RANGE),
            time(defaults::ENDPOINT_RETRY),
            "The same while it is not reachable; no more than `interval`.",
        ),
        key(
            "timeout",
            times(&defaults::TIMEOUT_RANGE),
            time(defaults::ENDPOINT_TIMEOUT),
            "How long an answer may take.",
        ),
        key(
            "count",
            number(&defaults::ENDPOINT_COUNT_RANGE),
            plain(defaults::ENDPOINT_COUNT),
            "Probes of a round. One answer is enough.",
        ),
    ]
}
