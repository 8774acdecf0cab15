//! What `adit import` makes of Cloudflare's exports: every output loads, is the one that stands beside its export,
//! and holds nothing that a text of the export has put there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::io::Write;
use std::process::{Command, Stdio};

use adit::config::Config;
use adit::config::import::{Host, Import, Side, import};
use adit::wire::{Direction, Encapsulation, Kind as Echo};
use proptest::prelude::*;

const CUSTOMER: Host = Host { side: Side::Customer, endpoint: None };
const CLOUDFLARE: Host = Host { side: Side::Cloudflare, endpoint: None };
const EXPORTS: [&str; 5] = ["gre", "ipsec", "interconnects", "whole", "object"];

fn fixture(name: &str) -> String {
    std::fs::read_to_string(format!("fixtures/import/{name}")).unwrap()
}

fn made(text: &str, host: Host) -> Result<Import, String> {
    import(&[("f.json".to_owned(), text.as_bytes().to_vec())], host).map_err(|problems| problems.to_string())
}

/// The import, and the configuration that it is.
fn loaded(text: &str, host: Host) -> (Import, Config) {
    let import = made(text, host).unwrap_or_else(|problems| panic!("{problems}"));
    let config = Config::parse("f.toml", &import.text).unwrap_or_else(|why| panic!("{why}\n{}", import.text));
    assert_eq!((config.tunnels.len(), config.routes.len()), (import.tunnels, import.routes), "{}", import.text);
    // An import steers nothing, opens nothing, and listens nowhere but where it is usual.
    assert!(!config.kernel.apply && config.policy.is_empty() && config.daemon.record.is_none());
    assert_eq!(config.daemon.socket.to_str(), Some("/run/adit/adit.sock"));
    (import, config)
}

/// One GRE tunnel, with more in it, and what stands beside it.
fn one(more: &str, beside: &str) -> String {
    format!(
        r#"{{"gre_tunnels":[{{"name":"GRE_1","customer_gre_endpoint":"198.51.100.1",
        "cloudflare_gre_endpoint":"203.0.113.10","interface_address":"10.213.0.8/31"{more}}}]{beside}}}"#
    )
}

fn refused(text: &str, place: &str, words: &[&str]) {
    let said = made(text, CUSTOMER).err().unwrap_or_else(|| panic!("not refused: {text}"));
    let place = if place.is_empty() { "f.json: ".to_owned() } else { format!("f.json:{place}: ") };
    assert!(said.contains(&place), "{place}{said}");
    words.iter().for_each(|word| assert!(said.contains(word), "{word:?} is not in {said}"));
}

/// Whether the words stand in the comments, wherever lines end.
fn says(import: &Import, words: &str) -> bool {
    let text: Vec<&str> = import.text.split_whitespace().filter(|word| *word != "#").collect();
    text.join(" ").contains(words)
}

#[test]
fn each_export_becomes_what_stands_beside_it() {
    for (name, (side, host)) in
        EXPORTS.iter().flat_map(|name| [(name, ("customer", CUSTOMER)), (name, ("cloudflare", CLOUDFLARE))])
    {
        let (import, _) = loaded(&fixture(&format!("{name}.json")), host);
        let golden = format!("{name}.{side}.toml");
        assert_eq!(
            import.text,
            fixture(&golden),
            "adit import --side {side} fixtures/import/{name}.json is not {golden}"
        );
    }
}

#[test]
fn the_customers_side_has_the_other_end_and_asks_by_requests() {
    let (_, config) = loaded(&fixture("gre.json"), CUSTOMER);
    let ends: Vec<_> = config
        .tunnels
        .iter()
        .map(|tunnel| {
            [tunnel.onion.outer.local(), tunnel.onion.outer.far(), tunnel.onion.inner.local(), tunnel.onion.inner.far()]
        })
        .map(|ends| ends.map(|end| end.to_string()))
        .collect();
    assert_eq!(ends[0], ["198.51.100.1", "203.0.113.10", "10.213.0.9", "10.213.0.8"]);
    assert_eq!(ends[1], ["198.51.100.1", "203.0.113.20", "10.213.0.14", "10.213.0.13"]);
    for tunnel in &config.tunnels {
        assert_eq!((tunnel.onion.style.kind, tunnel.onion.style.direction), (Echo::Request, Direction::Bidirectional));
    }
    assert_eq!(config.tunnels[0].check.interval.as_secs(), 60);
    assert_eq!(config.tunnels[1].check.interval.as_secs(), 1);
    assert!(config.tunnels[0].check.enabled && !config.tunnels[1].check.enabled);
    assert_eq!((config.tunnels[0].onion.ttl, config.tunnels[1].onion.ttl), (63, 64));
}

#[test]
fn cloudflares_side_has_its_ends_and_checks_as_it_does() {
    let (_, config) = loaded(&fixture("gre.json"), CLOUDFLARE);
    let onion = &config.tunnels[0].onion;
    assert_eq!([onion.outer.local(), onion.outer.far()].map(|end| end.to_string()), ["203.0.113.10", "198.51.100.1"]);
    assert_eq!([onion.inner.local(), onion.inner.far()].map(|end| end.to_string()), ["10.213.0.8", "10.213.0.9"]);
    assert_eq!((onion.style.kind, onion.style.direction), (Echo::Request, Direction::Bidirectional));
    let onion = &config.tunnels[1].onion;
    assert_eq!((onion.style.kind, onion.style.direction), (Echo::Request, Direction::Unidirectional));
    assert_eq!(onion.inner.far().to_string(), "192.0.2.77", "the target");
    // What the API's own defaults are: replies, one way.
    let (_, config) = loaded(&one("", ""), CLOUDFLARE);
    let style = config.tunnels[0].onion.style;
    assert_eq!((style.kind, style.direction), (Echo::Reply, Direction::Unidirectional));
}

/// What the API documents of a tunnel or a route, but for identifiers and dates: it is in the configuration, or in a comment.
#[test]
fn no_documented_field_gets_lost() {
    let (import, _) = loaded(&fixture("whole.json"), CLOUDFLARE);
    for word in [
        "name = \"GRE_1\"",
        "local_endpoint = \"203.0.113.10\"",
        "remote_endpoint = \"198.51.100.1\"",
        "interface_address = \"10.213.0.8/31\"",
        "interface_address = \"2001:db8:7::8/127\"",
        "Tunnel for ISP X",
        "mtu 1476",
        "ttl = 63",
        "automatic_return_routing",
        "BGP with AS 65001, which announces 10.99.0.0/16 besides",
        "rate = \"low\"",
        "type = \"request\"",
        "direction = \"bidirectional\"",
        "target = \"192.0.2.77\"",
        "enabled = false",
        "allow_null_cipher",
        "replay_protection",
        "lab.023e105f4ecef8ad9ca31a8372d0c353.custom.ipsec.cloudflare.com",
        "a pre-shared key made 2017-06-14T05:20:00Z",
        "colo_name pni_ams",
        "prefix = \"10.20.0.0/16\"",
        "tunnel = \"GRE_1\"",
        "priority = 100",
        "weight = 64",
        "Cloudflare has it only in den01, APAC",
        "New route for new prefix 10.20.0.0/16",
    ] {
        assert!(says(&import, word), "{word:?} is not in\n{}", import.text);
    }
}

#[test]
fn keys_of_an_export_are_not_repeated() {
    for name in EXPORTS {
        for host in [CUSTOMER, CLOUDFLARE] {
            assert!(!loaded(&fixture(&format!("{name}.json")), host).0.text.contains("never-shown"), "{name}");
        }
    }
    let said = made(r#"{"gre_tunnels":[{"name":1,"psk":"never-shown","bgp":{"md5_key":"never-shown"}}]}"#, CUSTOMER);
    assert!(!said.err().unwrap().contains("never-shown"));
}

#[test]
fn an_ipsec_tunnel_leaves_by_the_kernels_device() {
    let (import, config) = loaded(&fixture("ipsec.json"), CUSTOMER);
    for (tunnel, device) in config.tunnels.iter().zip(["IPsec_1", "IPsec-for-a-rou"]) {
        assert_eq!((tunnel.onion.encapsulation, tunnel.device.as_deref()), (Encapsulation::Device, Some(device)));
    }
    assert!(says(&import, "keys = \"installed\""), "{}", import.text);
    assert!(says(&import, "the API names no customer endpoint; --endpoint ADDRESS"), "{}", import.text);
}

#[test]
fn an_endpoint_leaves_out_other_routers_and_completes_what_is_missing() {
    let host = |endpoint: &str| Host { endpoint: Some(endpoint.parse().unwrap()), ..CUSTOMER };
    let (import, config) = loaded(&fixture("whole.json"), host("198.51.100.1"));
    assert_eq!((import.tunnels, import.left_out), (6, 0));
    let gre = config.tunnels.iter().find(|tunnel| tunnel.name == "pni_ord").unwrap();
    assert_eq!(gre.onion.outer.local().to_string(), "198.51.100.1");
    let (import, config) = loaded(&fixture("object.json"), host("192.0.2.99"));
    assert_eq!(config.tunnels.iter().map(|tunnel| tunnel.name.as_str()).collect::<Vec<_>>(), ["GRE_far"]);
    assert!(says(&import, "it ends at 198.51.100.1, not at 192.0.2.99"), "{}", import.text);
    assert_eq!(import.routes, 0, "their tunnels are another router's");
    let (import, _) = loaded(&fixture("object.json"), CUSTOMER);
    assert!(says(&import, "The tunnels end at 2 customer endpoints."), "{}", import.text);
}

#[test]
fn answers_come_in_any_bundle() {
    let route = r#"{"prefix":"10.20.0.0/16","nexthop":"10.213.0.9","priority":100}"#;
    let tunnel = one("", "");
    let bare = tunnel.strip_prefix("{\"gre_tunnels\":[").and_then(|text| text.strip_suffix("]}")).unwrap();
    for text in [
        format!(r#"{tunnel}{{"result":{{"routes":[{route}]}},"success":true}}"#),
        format!("\u{feff}{tunnel}\n\n{{\"result\":{{\"route\":{route}}}}}"),
        format!(r#"[{tunnel},{{"result":{{"routes":[{route}]}},"success":true}}]"#),
        format!(
            r#"{{"gre_tunnels":{{"result":{tunnel},"success":true}},"routes":{{"result":{{"routes":[{route}]}}}}}}"#
        ),
        one("", &format!(r#","routes":[{route}],"ipsec_tunnels":null,"interconnects":[]"#)),
        format!("[{bare},{route}]"),
        format!(r#"{{"result":{{"gre_tunnel":{bare}}}}} {{"result":{route}}}"#),
        // The same once more is no second one.
        format!("[{bare},{bare},{route},{route}]"),
    ] {
        let (import, config) = loaded(&text, CUSTOMER);
        assert_eq!((import.tunnels, import.routes, import.left_out), (1, 1, 0), "{text}\n{}", import.text);
        assert_eq!((config.routes[0].priority, config.routes[0].tunnel), (100, 0));
    }
    let files = [("a".to_owned(), tunnel.into_bytes()), ("b".to_owned(), route.to_owned().into_bytes())];
    assert_eq!(import(&files, CUSTOMER).unwrap().routes, 1, "in two files");
}

#[test]
fn what_is_malformed_is_told_with_its_place_and_the_remedy() {
    refused("{\n  \"result\": [}\n", "2:14", &["not JSON", "save the API's answer as it is"]);
    refused(" \n", "", &["there is nothing in it"]);
    refused(&one("", "")[..40], "1:40", &["not JSON"]);
    refused("[[[7]]]", "[0][0][0]", &["holds none of gre_tunnels"]);
    refused("{\"result\":{\"apps\":[]}}", "result", &["GET /accounts/{account_id}/magic/gre_tunnels"]);
    refused("{\"gre_tunnels\":[3]}", "gre_tunnels[0]", &["expected an object, found 3"]);
    refused("{\"gre_tunnels\":3}", "gre_tunnels", &["expected an object, found 3"]);
    let api = r#"{"success":false,"errors":[{"code":10000,"message":"Authentication error"}],"result":null}"#;
    refused(api, "", &["the API refused to answer: Authentication error (code 10000)", "token"]);
    refused(
        r#"{"gre_tunnels":[{}]}"#,
        "gre_tunnels[0]",
        &["no `name`", "no `interface_address`", "no `cloudflare_gre_endpoint`"],
    );
    for (more, place, words) in [
        (r#","ttl":"high""#, "ttl", "expected a whole number, found \"high\""),
        (r#","mtu":1.5"#, "mtu", "a whole number, found 1.5"),
        (r#","interface_address6":"fd00::/abc""#, "interface_address6", "such as \"2001:db8::8/127\""),
        (r#","health_check":{"rate":"fast"}"#, "health_check.rate", "\"low\" or \"mid\" or \"high\", found \"fast\""),
        (r#","health_check":{"type":7}"#, "health_check.type", "a text in quotes, found 7"),
        (r#","health_check":{"enabled":"yes"}"#, "health_check.enabled", "true or false"),
        (r#","health_check":{"target":{"saved":"x"}}"#, "health_check.target.saved", "an address such as"),
        (r#","health_check":{"target":[]}"#, "health_check.target", "a text in quotes, found a list"),
        (r#","bgp":{"extra_prefixes":"all"}"#, "bgp.extra_prefixes", "expected a list"),
        (r#","description":{}"#, "description", "found an object"),
    ] {
        refused(&one(more, ""), &format!("gre_tunnels[0].{place}"), &[words]);
    }
    for (route, place, words) in [
        (r#"{"prefix":"10.0.0.0/40","nexthop":"10.0.0.1","priority":1}"#, "routes[0].prefix", "\"10.0.0.0/40\""),
        (r#"{"prefix":"10.0.0.0/8","nexthop":"GRE_1","priority":1}"#, "routes[0].nexthop", "found \"GRE_1\""),
        (r#"{"prefix":"10.0.0.0/8","nexthop":"10.0.0.1"}"#, "routes[0]", "no `priority`"),
        (r#"{"prefix":"10.0.0.0/8","nexthop":"10.0.0.1","priority":1e300}"#, "routes[0].priority", "a whole number"),
    ] {
        refused(&one("", &format!(",\"routes\":[{route}]")), place, &[words]);
    }
    // All at once, and no flood.
    let many = format!("{{\"routes\":[{}]}}", vec!["7"; 80].join(","));
    let said = made(&many, CUSTOMER).unwrap_err();
    assert_eq!(said.lines().count(), 51);
    assert!(said.ends_with("and 30 more like these"), "{said}");
    // In the second document of a file.
    refused(&format!("{} {{\"routes\":[7]}}", one("", "")), "(document 2).routes[0]", &["expected an object"]);
    // Deeper than anybody means.
    refused(&"[".repeat(100_000), "1:128", &["recursion limit"]);
    let said =
        made("{\"gre_tunnels\":[{\"name\":\"\\u001b[2J\",\"ttl\":\"\\u001b[2J\\u202e\"}]}", CUSTOMER).unwrap_err();
    assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
}

#[test]
fn the_order_of_priorities_stays_whatever_they_are() {
    let routes = |priorities: &[i64]| {
        let tunnel = |index: usize| {
            let (outer, inner) = (index + 1, 2 * index);
            format!(
                r#"{{"name":"g{index}","customer_gre_endpoint":"198.51.100.1","cloudflare_gre_endpoint":"203.0.113.{outer}",
                "interface_address":"10.213.0.{inner}/31"}}"#
            )
        };
        let route = |(index, priority): (usize, &i64)| {
            let hop = 2 * index + 1;
            format!(r#"{{"prefix":"10.20.0.0/16","nexthop":"10.213.0.{hop}","priority":{priority}}}"#)
        };
        let tunnels: Vec<String> = (0..priorities.len()).map(tunnel).collect();
        let routes: Vec<String> = priorities.iter().enumerate().map(route).collect();
        let text = format!("{{\"gre_tunnels\":[{}],\"routes\":[{}]}}", tunnels.join(","), routes.join(","));
        let (_, config) = loaded(&text, CUSTOMER);
        let mut routes = config.routes;
        routes.sort_by_key(|route| route.tunnel);
        routes.into_iter().map(|route| route.priority).collect::<Vec<u32>>()
    };
    assert_eq!(routes(&[100, 200, 100]), [100, 200, 100]);
    assert_eq!(routes(&[1, 499_999]), [1, 499_999]);
    assert_eq!(routes(&[0, 7, 0]), [100, 200, 100]);
    assert_eq!(routes(&[500_000, 3, 1 << 50, -9]), [300, 200, 400, 100]);
}

/// Texts that somebody could hope to break out by.
fn hostile() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("\"".to_owned()),
        Just("\n[kernel]\napply = true\n".to_owned()),
        Just("\r".to_owned()),
        Just("\"\"\"".to_owned()),
        Just("'''\n".to_owned()),
        Just("\\".to_owned()),
        Just("\\u000a".to_owned()),
        Just("\u{202e}\u{2066}\u{2028}\u{2029}\u{85}\u{0}\u{1b}[2J".to_owned()),
        Just("# ".to_owned()),
        any::<char>().prop_map(String::from),
        "[a-zA-Z0-9._-]{0,80}",
        " {1,5}",
    ];
    proptest::collection::vec(word, 0..8).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn no_text_of_an_export_becomes_a_value(
        names in proptest::collection::vec(hostile(), 1..6),
        description in hostile(),
        scope in hostile(),
        customer in any::<bool>(),
    ) {
        let gre: Vec<_> = (1..).zip(&names).map(|(index, name)| serde_json::json!({
            "name": name, "description": description,
            "customer_gre_endpoint": "198.51.100.1", "cloudflare_gre_endpoint": format!("203.0.113.{index}"),
            "interface_address": format!("10.213.0.{}/31", 2 * index),
            "bgp": {"customer_asn": 65001, "extra_prefixes": [scope]},
        })).collect();
        let ipsec: Vec<_> = (1..).zip(&names).map(|(index, name)| serde_json::json!({
            "name": name, "cloudflare_endpoint": "203.0.113.1", "interface_address": format!("10.214.0.{}/31", 2 * index),
            "custom_remote_identities": {"fqdn_id": description}, "psk_metadata": {"last_generated_on": scope},
        })).collect();
        let route = |nexthop: &str| serde_json::json!({
            "prefix": "10.20.0.0/16", "nexthop": nexthop, "priority": 100, "description": description,
            "scope": {"colo_names": [scope], "colo_regions": [description]},
        });
        let routes = [route("10.213.0.3"), route("10.9.9.9")];
        let text = serde_json::json!({"gre_tunnels": gre, "ipsec_tunnels": ipsec, "routes": routes}).to_string();
        let host = if customer { CUSTOMER } else { CLOUDFLARE };
        let filled = names.iter().filter(|name| !name.is_empty()).count();
        if filled < names.len() {
            prop_assert!(made(&text, host).is_err());
            return Ok(());
        }
        let (import, config) = loaded(&text, host);
        prop_assert_eq!((import.tunnels, import.routes), (2 * names.len(), 1));
        prop_assert!(import.text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{:?}", import.text);
        prop_assert!(!import.text.contains(['\u{202e}', '\u{2066}', '\u{2028}', '\u{2029}']), "{:?}", import.text);
        let known: std::collections::BTreeSet<_> = config.tunnels.iter().map(|tunnel| &tunnel.name).collect();
        prop_assert_eq!(known.len(), config.tunnels.len());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = import(&[("f".to_owned(), bytes)], CUSTOMER);
    }
}

#[test]
fn ten_thousand_tunnels_of_one_name_take_no_time_worth_speaking_of() {
    let tunnel = |index: usize| {
        let (high, low) = (index / 250, index % 250 + 1);
        let net = std::net::Ipv4Addr::from(0x0A00_0000 + 2 * u32::try_from(index).unwrap());
        format!(
            r#"{{"name":"x","customer_gre_endpoint":"198.51.100.1","cloudflare_gre_endpoint":"203.0.{high}.{low}",
            "interface_address":"{net}/31"}}"#
        )
    };
    let route = |index: usize| {
        let hop = std::net::Ipv4Addr::from(0x0A00_0001 + 2 * u32::try_from(index).unwrap());
        format!(r#"{{"prefix":"10.20.0.0/16","nexthop":"{hop}","priority":100}}"#)
    };
    let tunnels: Vec<String> = (0..10_000).map(tunnel).collect();
    let routes: Vec<String> = (0..10_000).map(route).collect();
    let text = format!("{{\"gre_tunnels\":[{}],\"routes\":[{}]}}", tunnels.join(","), routes.join(","));
    let (import, _) = loaded(&text, CUSTOMER);
    assert_eq!((import.tunnels, import.routes), (10_000, 10_000));
}

/// Exit code, standard output and standard error of the program.
fn run(arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adit"));
    let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code().unwrap(), out, err)
}

#[test]
fn the_command_reads_files_and_standard_input_and_what_it_prints_passes_its_check() {
    let folder = tempfile::tempdir().unwrap();
    for name in EXPORTS {
        let golden = fixture(&format!("{name}.customer.toml"));
        let (code, out, _) = run(&["import", &format!("fixtures/import/{name}.json")], "");
        assert_eq!((code, &out), (0, &golden), "{name}");
        let (code, out, _) = run(&["import", "-"], &fixture(&format!("{name}.json")));
        assert_eq!((code, &out), (0, &golden), "{name}");
        let file = folder.path().join("adit.toml");
        std::fs::write(&file, &out).unwrap();
        let (code, out, err) = run(&["check", "--config", file.to_str().unwrap()], "");
        assert_eq!(code, 0, "{name}: {out}{err}");
    }
    let both = ["import", "--side", "cloudflare", "fixtures/import/gre.json", "fixtures/import/ipsec.json"];
    let (code, out, _) = run(&both, "");
    assert!(code == 0 && out.contains("\"GRE_2\"") && out.contains("\"IPsec_1\""), "{out}");
}

#[test]
fn the_command_says_what_is_wrong_by_its_exit_code() {
    let (code, out, err) = run(&["import", "-"], "{\"routes\":[{}]}");
    assert_eq!((code, out.as_str()), (78, ""), "{err}");
    assert!(err.starts_with("standard input:routes[0]: there is no `prefix`"), "{err}");
    let (code, out, err) = run(&["import", "-"], "{\"gre_tunnels\":[]}");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("there is no tunnel in it") && out.lines().all(|line| line.starts_with('#')), "{out}{err}");
    let elsewhere = ["import", "--endpoint", "192.0.2.200", "fixtures/import/gre.json"];
    let (code, out, err) = run(&elsewhere, "");
    assert!(
        code == 1 && err.contains("none of its 2 tunnels") && out.contains("it ends at 198.51.100.1"),
        "{out}{err}"
    );
    let (code, _, err) = run(&["import", "no/such/file"], "");
    assert!(code == 78 && err.starts_with("no/such/file: cannot be read: "), "{err}");
    assert_eq!(run(&["import"], "").0, 2);
    assert_eq!(run(&["import", "--side", "middle", "-"], "").0, 2);
}
