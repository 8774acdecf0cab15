//! `[daemon]`.

use super::{Key, Table, Usual, flag, key, quoted, said};
use crate::config::defaults;

pub(super) fn table() -> Table {
    let about = "The daemon itself. What stands here holds from its next start on, but for `metrics` and `status_page`, which follow a reload.";
    Table { titles: &["[daemon]"], about, keys: keys() }
}

fn keys() -> Vec<Key> {
    vec![
        key("socket", said("a path"), quoted(defaults::SOCKET), "The local socket, which every command speaks to."),
        key(
            "socket_group",
            said("the name of a group"),
            Usual::Else("`admin_group`; without that `adit`, where this machine has such a group; or nobody"),
            "Its members may read from the socket, besides root and the daemon's own user.",
        ),
        key(
            "admin_group",
            said("the name of a group"),
            Usual::Else("nobody but root and the daemon's own user"),
            "Its members may change things: drain, diagnose, reload, install keys. They must be members of `socket_group`, too, \
             if that is written.",
        ),
        key(
            "state_dir",
            said("a path"),
            quoted(defaults::STATE_DIR),
            "The folder of what outlives the daemon: states, windows, drains, sequence numbers of ESP. Two daemons \
             need two.",
        ),
        key(
            "record",
            said("a path"),
            Usual::Else("nothing is recorded"),
            "A file to which every event is added, samples among them, for `adit replay`.",
        ),
        key(
            "metrics",
            said("an address with a port, such as `\"127.0.0.1:9911\"`"),
            Usual::Else("nothing is served over TCP"),
            "Where `/metrics` is served to whoever reaches that address; it is on the local socket anyway.",
        ),
        key(
            "status_page",
            flag(),
            Usual::Else("`false`"),
            "`true`: there is a page for people at `/` there, with all tunnels, routes and events.",
        ),
    ]
}
