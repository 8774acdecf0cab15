//! `[reflect]` and `[[fault]]`.

use super::{Key, Table, Usual, key, quoted, said, times};
use crate::config::defaults;

pub(super) fn tables() -> Vec<Table> {
    vec![
        Table {
            titles: &["[reflect]"],
            about: "The reflector itself.",
            keys: vec![
                key(
                    "mark_key_file",
                    said("a path"),
                    Usual::Else("answers are not marked"),
                    "A file with the 16-byte key to mark answers with.",
                ),
                key(
                    "state_dir",
                    said("a path"),
                    quoted(defaults::REFLECT_STATE_DIR),
                    "The folder of the record of ESP sequence numbers.",
                ),
            ],
        },
        Table { titles: &["[[fault]]"], about: "What the reflector does wrong on purpose.", keys: fault() },
    ]
}

fn fault() -> Vec<Key> {
    let share = || said("a share such as `\"30%\"`");
    const NONE: Usual = Usual::Else("none");
    vec![
        key("tunnel", said("the name of a tunnel"), Usual::Else("all"), "To which tunnel it happens."),
        key("after", times(&defaults::FAULT_TIME), Usual::Else("at once"), "When it begins, from the start on."),
        key("for", times(&defaults::FAULT_TIME), Usual::Else("it does not end"), "How long it lasts."),
        key("drop", share(), NONE, "So many answers are left out."),
        key("delay", times(&defaults::FAULT_DELAY), NONE, "How much later answers leave."),
        key("jitter", times(&defaults::FAULT_DELAY), NONE, "Up to so much more, at random."),
        key("delayed", share(), Usual::Else("all"), "So many answers are delayed."),
        key("duplicate", share(), NONE, "So many answers are sent twice."),
        key("corrupt", share(), NONE, "In so many answers a bit of what proves them is flipped."),
    ]
}
