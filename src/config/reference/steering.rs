//! `[[route]]`, `[[rule]]`, `[kernel]`, `[fail_static]`.

use super::{Key, Table, Usual, flag, key, number, plain, quoted, said, time, times, words};
use crate::config::{defaults, fail_static, notation};

pub(super) fn tables() -> Vec<Table> {
    vec![
        Table {
            titles: &["[[route]]"],
            about: "A way to a prefix, over a tunnel. Of several to one prefix the one that costs least carries the traffic.",
            keys: route(),
        },
        Table { titles: &["[kernel]"], about: "Whether and how routes are written to the kernel.", keys: kernel() },
        Table {
            titles: &["[[rule]]"],
            about: "A policy rule: which packets look into a table. All that it names must match, and one of `source`, \
                    `destination`, `fwmark` and `protocol` is named. Needs `apply = true` in `[kernel]`.",
            keys: rule(),
        },
        Table {
            titles: &["[fail_static]"],
            about: "When many tunnels go down at once, and this host shows signs of trouble of its own, the kernel's routes \
                    are held as they are.",
            keys: fail_static_keys(),
        },
    ]
}

fn table_key(usual: Usual, means: &'static str) -> Key {
    key("table", format!("{}, but 255", number(&(1..=u32::MAX))), usual, means)
}

fn route() -> Vec<Key> {
    vec![
        key("prefix", said("a prefix"), Usual::Needed, "Where it leads."),
        key("tunnel", said("the name of a tunnel"), Usual::Needed, "The tunnel whose state decides what it costs."),
        key(
            "priority",
            number(&defaults::PRIORITY),
            Usual::Needed,
            "The lower one wins. A penalty of 500 000 or 1 000 000 is added by the tunnel's state.",
        ),
        key(
            "weight",
            number(&defaults::WEIGHT_RANGE),
            plain(defaults::WEIGHT),
            "Its part of the traffic among those that cost the same.",
        ),
        key(
            "device",
            said("the name of a device"),
            Usual::Else("as `via` says"),
            "The next hop: this device, `via`, or both. With neither the route stays in adit's own table.",
        ),
        key("via", said("an address"), Usual::Else("as `device` says"), "The next hop's address."),
        key(
            "onlink",
            flag(),
            Usual::Else("`false`"),
            "`via` is a neighbour on `device`, whatever the addresses there say.",
        ),
        table_key(Usual::Else("that of `[kernel]`"), "The kernel's table that it is in."),
        key("netns", said("the name of a network namespace, or its path"), Usual::Else("its tunnel's"), "Where it is."),
    ]
}

fn kernel() -> Vec<Key> {
    let mut keys = vec![
        key("apply", flag(), Usual::Needed, "`true`: routes and policy rules are written to the kernel."),
        table_key(plain(defaults::TABLE), "The table of a route that names none."),
        key(
            "mode",
            words(&["metric", "nexthop"]),
            quoted("metric"),
            "`\"metric\"`: every route, with its effective priority as the metric. `\"nexthop\"`: one route a prefix over a \
             group of next-hop objects (Linux 5.3), and a fail-over changes the group.",
        ),
        key(
            "nexthop_notify_routes",
            words(&["keep", "off"]),
            quoted("keep"),
            "`\"off\"` sets `net.ipv4.nexthop_compat_mode` to 0: the kernel no longer announces every route when a group \
             changes.",
        ),
        key(
            "protocol",
            said("a whole number from 5 to 255 that no other program tags its routes with"),
            plain(defaults::PROTOCOL),
            "The tag of everything that adit writes. What bears another is never touched.",
        ),
    ];
    keys.extend([
        key(
            "backstop",
            flag(),
            plain(false),
            "`true`: an unreachable route of the highest metric for each prefix, so that nothing leaks past dead tunnels.",
        ),
        key("on_exit", words(&["keep", "remove"]), quoted("keep"), "What becomes of the routes when adit stops, to be started anew by an upgrade, too."),
        key(
            "reconcile_interval",
            times(&defaults::RECONCILE_RANGE),
            time(defaults::RECONCILE),
            "How often the kernel's routes are compared with what they should be if nothing gives cause to.",
        ),
        key(
            "receive_buffer",
            number(&defaults::RECEIVE_BUFFER_RANGE),
            plain(defaults::RECEIVE_BUFFER),
            "Bytes of the queue for what the kernel tells of its routes.",
        ),
    ]);
    keys
}

fn rule() -> Vec<Key> {
    const ANY: Usual = Usual::Else("any");
    vec![
        key("source", said("a prefix, or an address"), ANY, "Where packets come from."),
        key("destination", said("a prefix, or an address"), ANY, "Where they go."),
        key("fwmark", said("a mark such as `1`, or under a mask `\"0x1/0xff\"`"), ANY, "The firewall mark."),
        key("protocol", said("a name such as `\"udp\"`, or a number from 1 to 255"), ANY, "The IP protocol."),
        key(
            "destination_port",
            said("a port, or a range such as `\"1000-2000\"`"),
            ANY,
            "The port, of a protocol that has ports.",
        ),
        table_key(Usual::Needed, "The table that these packets look into."),
        key("priority", number(&defaults::RULE_PRIORITY), Usual::Needed, "The lowest one that matches is asked first."),
        key(
            "family",
            words(&["ipv4", "ipv6"]),
            Usual::Else("that of the prefixes or the protocol, or both"),
            "The family of the packets.",
        ),
        key(
            "netns",
            said("the name of a network namespace, or its path"),
            Usual::Else("the one in which adit runs"),
            "Where it is.",
        ),
    ]
}

fn fail_static_keys() -> Vec<Key> {
    vec![
        key("enabled", flag(), plain(true), "Whether routes are ever held."),
        key(
            "share",
            said("a share such as `\"50%\"`"),
            quoted(notation::percent(fail_static::SHARE)),
            "So many of the tunnels that had a verdict, and at least two, went down.",
        ),
        key("while_clean", flag(), plain(false), "`true`: also without any sign of trouble of this host."),
    ]
}
