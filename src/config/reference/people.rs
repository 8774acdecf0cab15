//! `[[notify]]`.

use super::{Key, Table, Usual, key, said, time, times, words};
use crate::config::defaults;
use crate::engine::State;

pub(super) fn table() -> Table {
    let about = "Who is told of what: a program or a webhook, by a process of its own, which holds nothing up. One of `on` and \
                 `slo` is written, or both; and either `exec` or `webhook`.";
    let mut keys = what();
    keys.extend(how());
    Table { titles: &["[[notify]]"], about, keys }
}

fn what() -> Vec<Key> {
    let states = words(&State::ALL.map(State::name));
    vec![
        key(
            "name",
            said("as a tunnel's"),
            Usual::Else("the program's, or the webhook's host"),
            "What the log calls it, and `adit notify test`.",
        ),
        key(
            "on",
            format!("a list of {states}"),
            Usual::Else("no state is told"),
            "The states whose beginning is told.",
        ),
        key(
            "slo",
            said("a share such as `\"98%\"`"),
            Usual::Else("no target is judged"),
            "Told of a tunnel that answers fewer of its probes, over `slo_window` and over twelve times as long, and when it \
             does again.",
        ),
        key(
            "slo_window",
            times(&defaults::SLO_WINDOW_RANGE),
            Usual::Else("5 min"),
            "How often `slo` is judged, over how long.",
        ),
        key(
            "tunnels",
            said("a list of names, with `*` for any letters and `?` for one"),
            Usual::Else("all"),
            "The tunnels that it is told of.",
        ),
        key(
            "repeat",
            times(&defaults::NOTIFY_REPEAT_RANGE),
            Usual::Else("5 min for states, an hour for `slo`"),
            "The same of the same tunnel is told once in so long, the next time with how often it was. Beside `on` it is about \
             states, and `slo` keeps its hour.",
        ),
    ]
}

fn how() -> Vec<Key> {
    vec![
        key(
            "exec",
            said("a list of texts: an absolute path, and arguments"),
            Usual::Else("as `webhook` says"),
            "A program, without a shell. The message is its standard input.",
        ),
        key("webhook", said("a URL, https or http"), Usual::Else("as `exec` says"), "Where the message is posted to."),
        key(
            "header_file",
            said("a path"),
            Usual::Else("no more headers than needed"),
            "A file with header lines for the webhook, `Authorization` say. It is closed to all but its owner.",
        ),
        key(
            "timeout",
            times(&defaults::NOTIFY_TIMEOUT_RANGE),
            time(defaults::NOTIFY_TIMEOUT),
            "How long either may take. A program is killed then.",
        ),
        key(
            "batch",
            times(&defaults::NOTIFY_BATCH_RANGE),
            time(defaults::NOTIFY_BATCH),
            "What happens within so long is told together.",
        ),
    ]
}
