//! `[defaults]`, `[[tunnel]]` and what is below them.

use super::{Key, Table, Usual, flag, key, number, plain, quoted, said, time, times, words};
use crate::config::{defaults, notation};
use crate::engine::Targets;
use crate::engine::health::Rules;
use crate::wire::esp::{Algorithm, replay};

pub(super) fn tables() -> Vec<Table> {
    let of_checks = &["[defaults.health_check]", "[tunnel.health_check]"];
    let of_rules = &["[defaults.health_check.rules]", "[tunnel.health_check.rules]"];
    vec![
        table(
            &["[defaults]"],
            "What holds for every tunnel that says nothing else: it has no keys of its own.",
            vec![],
        ),
        table(&["[[tunnel]]"], "A tunnel, which is probed. There are as many as you like.", tunnel()),
        table(of_checks, "How a tunnel is checked; under `[defaults]`, how all are.", check()),
        table(of_rules, "The numbers of the health rules.", rules()),
        table(
            &["[tunnel.gre]"],
            "The GRE header of a tunnel with `encapsulation = \"gre\"` (RFC 2784, RFC 2890).",
            gre(),
        ),
        table(
            &["[tunnel.esp]"],
            "The security associations of a tunnel with `encapsulation = \"esp\"`: a pair that the kernel does not have.",
            esp(),
        ),
    ]
}

fn table(titles: &'static [&'static str], about: &'static str, keys: Vec<Key>) -> Table {
    Table { titles, about, keys }
}

fn tunnel() -> Vec<Key> {
    let mut keys = ends();
    keys.extend(leaving());
    keys
}

fn ends() -> Vec<Key> {
    vec![
        key(
            "name",
            format!("letters, digits and `.`, `_`, `-`; at most {} of them", defaults::NAME_MAX),
            Usual::Needed,
            "What every output calls the tunnel. No two have the same.",
        ),
        key(
            "encapsulation",
            words(&["gre", "esp", "device"]),
            quoted("gre"),
            "What its probes are wrapped in. `\"device\"`: by the kernel, whose tunnel it is.",
        ),
        key(
            "local_endpoint",
            said("an address"),
            Usual::Else("it must be written, unless the kernel wraps the probes"),
            "This side's outer address.",
        ),
        key(
            "remote_endpoint",
            said("an address"),
            Usual::Else("it must be written, unless the kernel wraps the probes"),
            "The far router's outer address.",
        ),
        key(
            "interface_address",
            said("an address with its prefix, a /31 or /30 (IPv6: /127 or /126)"),
            Usual::Else("it must be written, unless the probes are unidirectional"),
            "This side's inner address. The far router has the other one of the prefix, and probes go there.",
        ),
        key(
            "netns",
            said("the name of a network namespace, or its path"),
            Usual::Else("the one in which adit runs"),
            "Where the outer packets are sent and received.",
        ),
        key(
            "device",
            said("the name of a device"),
            Usual::Else("probes leave by the routes there are, and by the IPsec policies"),
            "The kernel's tunnel device that probes leave by, with `encapsulation = \"device\"`.",
        ),
    ]
}

fn leaving() -> Vec<Key> {
    vec![
        key(
            "underlay_device",
            said("the name of a device, or of a VRF"),
            Usual::Else("the outer packets leave by the routes there are"),
            "What the outer packets are bound to.",
        ),
        key(
            "mark",
            number(&(0..=u32::MAX)),
            plain(defaults::MARK),
            "The firewall mark of the outer packets; 0 is none.",
        ),
        key("ttl", number(&(1..=u8::MAX)), plain(defaults::TTL), "The hop limit of the outer packets."),
        key(
            "dscp",
            said("a number from 0 to 63, or a name such as `\"cs6\"`, `\"af41\"`, `\"ef\"`"),
            Usual::Value(notation::dscp_written(defaults::DSCP)),
            "The class of the outer and the inner packets, so that a queue full of users' traffic drops no probe.",
        ),
        key(
            "servers",
            number(&(1..=defaults::SERVERS_MAX)),
            plain(defaults::SERVERS),
            "How many probers of this site share the tunnel: each of them probes that many times more rarely.",
        ),
    ]
}

fn check() -> Vec<Key> {
    let mut keys = style();
    keys.extend(cadence());
    keys
}

fn style() -> Vec<Key> {
    vec![
        key(
            "enabled",
            flag(),
            plain(true),
            "`false`: the tunnel is not probed, and its routes cost what they cost. That is not down.",
        ),
        key(
            "type",
            words(&["request", "reply"]),
            quoted("request"),
            "Which ICMP message a probe is. A reply has to be forwarded back by the far router, which needs more there.",
        ),
        key(
            "direction",
            words(&["bidirectional", "unidirectional"]),
            quoted("bidirectional"),
            "Whether the answer comes back inside the tunnel, or bare.",
        ),
        key(
            "target",
            said("an address"),
            Usual::Else("the far end"),
            "An address behind the tunnel that is probed in place of the far end.",
        ),
        key(
            "targets",
            format!("a list of up to {} addresses", Targets::MAX),
            Usual::Else("as `target` says"),
            "In place of `target`: several, probed at the same time. What they answer together is one sample.",
        ),
        key(
            "quorum",
            said("a whole number, no more than there are targets"),
            Usual::Else("more than half of `targets`"),
            "So many of `targets` have to answer for a success.",
        ),
        key(
            "return_path",
            words(&["strict", "any"]),
            quoted("strict"),
            "`\"strict\"`: an answer counts only through the tunnel that was probed; `\"any\"`: through any that is \
             configured.",
        ),
        key(
            "size",
            format!("a whole number from {} to 9000", defaults::SIZE),
            plain(defaults::SIZE),
            "Bytes after the ICMP header. A tunnel that loses large packets only shows it to large probes.",
        ),
        key(
            "mark_key_file",
            said("a path"),
            Usual::Else("answers are not authenticated"),
            "A file with the 16-byte key that the far end marks answers with (`adit reflect`); answers without that mark \
             then do not count. It is closed to all but its owner.",
        ),
    ]
}

fn cadence() -> Vec<Key> {
    vec![
        key(
            "rate",
            words(&["low", "mid", "high"]),
            quoted(defaults::RATE.name()),
            "How often it is probed: every 60 s, 10 s, or second.",
        ),
        key(
            "interval",
            times(&defaults::INTERVAL),
            Usual::Else("that of `rate`"),
            "The same as a time. Only one of the two.",
        ),
        key(
            "timeout",
            format!("{}, or `\"auto\"`", times(&defaults::TIMEOUT_RANGE)),
            time(defaults::TIMEOUT),
            "How long an answer may take. `\"auto\"` follows the path's round-trip time.",
        ),
        key(
            "early_retry",
            flag(),
            plain(defaults::EARLY_RETRY),
            "Whether two more probes leave as soon as an answer is suspiciously late, and not only at the deadline.",
        ),
        key(
            "down_window",
            times(&defaults::WINDOW),
            Usual::Else("that of the rules"),
            "The same as in the rules below.",
        ),
    ]
}

fn rules() -> Vec<Key> {
    let usual = Rules::default();
    let samples = number(&defaults::SAMPLES);
    vec![
        key(
            "down_min_samples",
            samples.clone(),
            plain(usual.down_min_samples),
            "Rule 1: down, if the last so many samples failed within `down_window`.",
        ),
        key("down_window", times(&defaults::WINDOW), time(usual.down_window), "The time of rule 1."),
        key(
            "up_samples",
            samples.clone(),
            plain(usual.up_samples),
            "Rule 2: from down to degraded after so many successes in a row.",
        ),
        key(
            "degraded_min_failures",
            number(&defaults::FAILURES),
            plain(usual.degraded_min_failures),
            "Rule 3: from healthy to degraded, if at least so many samples failed within `degraded_window`, and",
        ),
        key(
            "degraded_ratio",
            said("a share such as `\"0.1%\"` or `0.001`"),
            quoted(notation::percent(usual.degraded_ratio)),
            "at least this share of them.",
        ),
        key("degraded_window", times(&defaults::WINDOW), time(usual.degraded_window), "The time of rule 3."),
        key(
            "recovery_samples",
            samples,
            plain(usual.recovery_samples),
            "Rule 4: from degraded to healthy, if none of the last so many samples failed, and rule 3 does not hold.",
        ),
    ]
}

fn gre() -> Vec<Key> {
    vec![
        key("key", number(&(0..=u32::MAX)), Usual::Else("no key"), "The key of both directions."),
        key("sequence", flag(), plain(false), "Whether packets carry sequence numbers."),
        key("checksum", flag(), plain(false), "Whether packets carry a checksum."),
    ]
}

fn esp() -> Vec<Key> {
    let mut keys = pair();
    keys.extend([
        key(
            "esn",
            flag(),
            plain(defaults::ESN),
            "Whether sequence numbers have 64 bits (RFC 4303 section 2.2.1). Both ends must say the same.",
        ),
        key(
            "replay_window",
            format!("{}, or 0", number(&(replay::NARROWEST..=replay::WIDEST))),
            plain(defaults::REPLAY_WINDOW),
            "How far an answer's sequence number may be behind the highest one. 0: as far as it likes, which a far router \
             wants that counts from 1 again.",
        ),
        key("udp_encapsulation", flag(), plain(false), "ESP in UDP, port 4500 (RFC 3948)."),
    ]);
    keys
}

fn pair() -> Vec<Key> {
    let all = Algorithm::ALL.map(|algorithm| format!("`\"{}\"`", algorithm.name())).join(", ");
    const STATIC: Usual = Usual::Else("it must be written with static keys");
    vec![
        key(
            "keys",
            words(&["static", "installed"]),
            Usual::Needed,
            "Where the keys come from: the files below, or `adit sa install` at run time.",
        ),
        key(
            "algorithm",
            all,
            Usual::Else(
                "it must be written with static keys; with installed ones `\"aes256-gcm\"`, or what the pair says",
            ),
            "A counter mode (GCM, ChaCha20) is refused for static keys (RFC 4106, RFC 8221).",
        ),
        key("spi_out", said("a number from 0x100 on"), STATIC, "The SPI of the probes."),
        key("spi_in", said("a number from 0x100 on"), STATIC, "The SPI of the answers."),
        key(
            "key_out_file",
            said("a path"),
            STATIC,
            "A file with the key of the probes, in hexadecimal or Base64: the cipher's, then HMAC's. It belongs to root or \
             to the user who runs adit, and is closed to all others.",
        ),
        key("key_in_file", said("a path"), STATIC, "The same of the answers."),
    ]
}
