//! Changes as a person would type them.

use std::fmt::Write as _;

use super::context::Context;
use super::{Change, Hop, KernelRoute, Leads, Nexthop, Rule, Way};
use crate::wire::Family;

/// A word as a shell takes it: the kernel lets a device have nearly any name.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@+,%=".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if word.chars().any(char::is_control) {
        // As bash has it, so that nothing of it moves a terminal's cursor.
        let escaped = |letter: char| match letter {
            '\'' | '\\' => format!(r"\{letter}"),
            letter if letter.is_control() => format!(r"\x{:02x}", u32::from(letter)),
            letter => letter.to_string(),
        };
        format!("$'{}'", word.chars().map(escaped).collect::<String>())
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The name of a routing protocol (`rtm_protocol`), as iproute2 has it.
#[must_use]
pub fn protocol(number: u8) -> String {
    let name = match number {
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        18 => "keepalived",
        42 => "babel",
        99 => "openr",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        _ => return number.to_string(),
    };
    name.to_owned()
}

/// A change as an `ip` command; `tag` is the protocol of ours.
pub(super) fn change(change: &Change, tag: u8, context: &Context) -> String {
    match change {
        Change::AddRoute(route) => format!("ip route add {}", self::route(route, tag, context)),
        Change::AppendRoute(route) => format!("ip route append {}", self::route(route, tag, context)),
        Change::DeleteRoute(route) => format!("ip route del {}", self::route(route, tag, context)),
        Change::AddNexthop(object) => format!("ip {}", nexthop("add", object, tag, context)),
        Change::ReplaceNexthop(object) => format!("ip {}", nexthop("replace", object, tag, context)),
        Change::DeleteNexthop(id) => format!("ip nexthop del id {id}"),
        Change::AddRule(rule) => format!("ip {}", self::rule("add", rule, tag)),
        Change::DeleteRule(rule) => format!("ip {}", self::rule("del", rule, tag)),
    }
}

/// A route without the tag: for a list of what has drifted.
pub(super) fn brief(route: &KernelRoute, context: &Context) -> String {
    let KernelRoute { table, prefix, metric, way } = route;
    let table = if *table == 254 { String::new() } else { format!(" table {table}") };
    format!("{prefix}{}{table} metric {metric}", self::way(way, context))
}

fn route(route: &KernelRoute, tag: u8, context: &Context) -> String {
    let KernelRoute { table, prefix, metric, way } = route;
    let (kind, way) = match way {
        Way::Unreachable => ("unreachable ", String::new()),
        Way::Hops(_) | Way::Object(_) | Way::Other => ("", self::way(way, context)),
    };
    let attributes = format!(" table {table} metric {metric} proto {tag}");
    // After `nexthop`, all that `ip` reads is about hops.
    let (first, last) = if way.starts_with(" nexthop") { (attributes, way) } else { (way, attributes) };
    format!("{kind}{prefix}{first}{last}")
}

fn way(way: &Way, context: &Context) -> String {
    match way {
        Way::Hops(hops) => match &hops[..] {
            [one] => hop(one, context),
            several => {
                let each = |one: &Hop| format!(" nexthop{} weight {}", hop(one, context), one.weight);
                several.iter().map(each).collect()
            }
        },
        Way::Object(id) => format!(" nhid {id}"),
        Way::Unreachable => " unreachable".to_owned(),
        Way::Other => String::new(),
    }
}

fn hop(hop: &Hop, context: &Context) -> String {
    let mut text = String::new();
    if let Some(via) = hop.via {
        let _ = write!(text, " via {via}");
    }
    if hop.device != 0 {
        let _ = write!(text, " dev {}", shell_word(&context.name(hop.device)));
    }
    if hop.onlink {
        text.push_str(" onlink");
    }
    text
}

fn nexthop(verb: &str, Nexthop { id, leads }: &Nexthop, tag: u8, context: &Context) -> String {
    // By a device alone `ip` cannot tell the family.
    let family = if matches!(leads, Leads::Hop(Family::V6, _)) { "-6 " } else { "" };
    let leads = match leads {
        Leads::Hop(_, one) => hop(one, context),
        Leads::Group(members) => {
            let member = |&(id, weight): &(u32, u16)| format!("{id},{weight}");
            format!(" group {}", members.iter().map(member).collect::<Vec<_>>().join("/"))
        }
        Leads::Other => String::new(),
    };
    format!("{family}nexthop {verb} id {id}{leads} proto {tag}")
}

fn rule(verb: &str, rule: &Rule, tag: u8) -> String {
    let &Rule { family, priority, table, source, destination, fwmark, protocol, ports } = rule;
    let mut text = if family == Family::V6 { String::from("-6 ") } else { String::new() };
    let _ = write!(text, "rule {verb}");
    let mut say = |what: String| text.push_str(&what);
    if let Some(source) = source {
        say(format!(" from {source}"));
    }
    if let Some(destination) = destination {
        say(format!(" to {destination}"));
    }
    if let Some((mark, mask)) = fwmark {
        say(format!(" fwmark {mark:#x}/{mask:#x}"));
    }
    if let Some(protocol) = protocol {
        say(format!(" ipproto {protocol}"));
    }
    if let Some((first, last)) = ports {
        say(format!(" dport {first}-{last}"));
    }
    say(format!(" lookup {table} priority {priority} protocol {tag}"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_device_is_called_a_shell_takes_it_for_one_word() {
        let cases = [
            ("gre1", "gre1"),
            ("br-lan.7@eth0", "br-lan.7@eth0"),
            ("a;reboot", "'a;reboot'"),
            ("x$(id)", "'x$(id)'"),
            ("#5", "'#5'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("\u{1b}[2J'", r"$'\x1b[2J\''"),
        ];
        for (word, quoted) in cases {
            assert_eq!(shell_word(word), quoted);
        }
    }
}
