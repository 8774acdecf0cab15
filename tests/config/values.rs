//! What a configuration that loads means.

use std::fs;
use std::path::Path;
use std::time::Duration;

use adit::config::{Config, Esp, Kernel, ReflectConfig, Tunnel, nearest};
use adit::engine::Material;
use adit::engine::health::{Ratio, Rules};
use adit::engine::settings::{ReturnPath, Source, Terms, Timeout};
use adit::reflect::plan::Fault;
use adit::wire::{Direction, Encapsulation, Kind, gre};

use crate::{Fixtures, ends, good, parse};

/// Everything of a tunnel that can be compared: a key cannot.
fn same(one: &Tunnel, other: &Tunnel) -> bool {
    let check = |tunnel: &Tunnel| {
        let check = &tunnel.check;
        let of = (check.enabled, check.interval, check.timeout, check.early_retry, check.return_path);
        (of, check.mark_key.is_some(), check.rules)
    };
    one.name == other.name
        && one.onion == other.onion
        && check(one) == check(other)
        && one.netns == other.netns
        && one.underlay_device == other.underlay_device
        && one.mark == other.mark
        && one.device == other.device
        && one.targets == other.targets
        && same_esp(one.esp.as_ref(), other.esp.as_ref())
}

fn same_esp(one: Option<&Esp>, other: Option<&Esp>) -> bool {
    let pair = |esp: &Esp| {
        let material = esp.material.as_ref()?;
        let Material { spi_out, spi_in, key_out, key_in, esn, replay_window } = material;
        let keys = (key_out.fingerprint(), key_in.fingerprint());
        Some((*spi_out, *spi_in, keys, *esn, *replay_window))
    };
    one.map(|esp| (esp.terms, pair(esp))) == other.map(|esp| (esp.terms, pair(esp)))
}

#[test]
fn several_targets_and_how_many_of_them_must_answer() {
    let config = good(Config::load(Path::new("fixtures/config/ok/targets.toml")));
    let seen = config.tunnels.iter().map(|tunnel| {
        let several = tunnel.targets.as_ref().map(|targets| (targets.further.len(), targets.quorum));
        (tunnel.onion.inner.far().to_string(), several)
    });
    let several = [("192.0.2.1", Some((2, 1))), ("192.0.2.7", Some((3, 3))), ("192.0.2.7", None)];
    assert_eq!(seen.collect::<Vec<_>>(), several.map(|(first, targets)| (first.to_owned(), targets)));
    for (count, majority) in [(2, 2), (3, 2), (4, 3), (5, 3), (16, 9)] {
        let list: Vec<String> = (1..=count).map(|last| format!("\"192.0.2.{last}\"")).collect();
        let text = format!(
            "[[tunnel]]\nname = \"t\"\nlocal_endpoint = \"198.51.100.1\"\nremote_endpoint = \"203.0.113.10\"\n\
             interface_address = \"10.100.0.8/31\"\nhealth_check.targets = [{}]\n",
            list.join(", ")
        );
        assert_eq!(parse(&text).tunnels[0].targets.as_ref().unwrap().quorum, majority, "more than half of {count}");
    }
}

#[test]
fn beside_states_a_target_keeps_its_hour() {
    let of = |keys: &str| format!("[[notify]]\nname = \"a\"\nexec = [\"/bin/true\"]\n{keys}\n");
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    for (keys, states, target) in [
        ("on = [\"down\"]\nslo = \"98%\"\nrepeat = \"5m\"", 5, Some(60)),
        ("on = [\"down\"]\nslo = \"98%\"", 5, Some(60)),
        ("on = [\"down\"]\nrepeat = \"7m\"", 7, None),
        ("slo = \"98%\"\nrepeat = \"7m\"", 7, Some(7)),
        ("slo = \"98%\"", 60, Some(60)),
    ] {
        let config = parse(&of(keys));
        let sink = &config.notify[0].sink;
        let wanted = (minutes(states), target.map(minutes));
        assert_eq!((sink.repeat, sink.slo.as_ref().map(|slo| slo.repeat)), wanted, "{keys}");
        assert_eq!(&parse(&config.effective()).notify[0].sink, sink, "{keys}");
    }
}

#[test]
fn an_effective_configuration_reads_back_as_an_equal_one() {
    let fixtures = Fixtures::new();
    for file in fixtures.files("ok") {
        let Ok(config) = Config::load(&file) else { continue };
        let text = config.effective();
        let again = parse(&text);
        assert_eq!((&again.daemon, &again.routes), (&config.daemon, &config.routes));
        assert_eq!((&again.places, &again.kernel, &again.policy), (&config.places, &config.kernel, &config.policy));
        assert_eq!(again.tunnels.len(), config.tunnels.len());
        for (one, other) in again.tunnels.iter().zip(&config.tunnels) {
            assert!(same(one, other), "{}: {text}", one.name);
        }
        assert_eq!(again.effective(), text);
        for key in fixtures.files("keys") {
            let key = fs::read_to_string(key).unwrap();
            assert!(key.split_whitespace().all(|word| !text.contains(word)), "a key is in the text");
        }
    }
}

#[test]
fn nothing_written_means_the_specification() {
    let config = parse("");
    assert_eq!(config.daemon.socket, Path::new("/run/adit/adit.sock"));
    assert_eq!(config.daemon.state_dir, Path::new("/var/lib/adit"));
    assert_eq!((config.daemon.socket_group, config.daemon.admin_group, config.daemon.record), (None, None, None));
    assert_eq!((config.daemon.metrics, config.daemon.status_page), (None, false));
    assert!(config.tunnels.is_empty() && config.routes.is_empty());

    let tunnel = &Fixtures::new().tunnels("least.toml")["ams-1"];
    assert_eq!(tunnel.onion.style.kind, Kind::Request);
    assert_eq!(tunnel.onion.style.direction, Direction::Bidirectional);
    assert_eq!(tunnel.onion.outer, ends("198.51.100.1", "203.0.113.10"));
    assert_eq!(tunnel.onion.inner, ends("10.100.0.8", "10.100.0.9"));
    assert_eq!(tunnel.onion.encapsulation, gre::Options::default().into());
    assert_eq!((tunnel.onion.ttl, tunnel.onion.dscp, tunnel.onion.size, tunnel.mark), (64, 48, 72, 0));
    assert_eq!((&tunnel.netns, &tunnel.underlay_device), (&None, &None));
    let check = &tunnel.check;
    assert!(check.enabled && check.early_retry && check.mark_key.is_none());
    assert_eq!(check.interval, Duration::from_secs(10));
    assert_eq!(check.timeout, Timeout::Fixed(Duration::from_millis(500)));
    assert_eq!(check.return_path, ReturnPath::Strict);
    assert_eq!(check.rules, Rules::default());
}

#[test]
fn who_can_read_the_metrics_is_said_where_it_may_be_others() {
    let with = |address: &str| parse(&format!("[daemon]\nmetrics = \"{address}\"\nstatus_page = true\n"));
    for address in ["127.0.0.1:9911", "[::1]:1", "127.8.9.10:65535"] {
        let config = with(address);
        assert_eq!(config.daemon.metrics, Some(address.parse().unwrap()));
        assert!(config.daemon.status_page && config.hints.is_empty(), "{address}");
    }
    for address in ["0.0.0.0:9911", "[::]:9911", "192.0.2.1:80", "[2001:db8::1]:9911"] {
        let [hint] = &with(address).hints[..] else { panic!("{address}: one hint") };
        let text = hint.to_string();
        assert!(
            text.contains("adit.toml:2:11: `metrics`: whoever reaches this address can read the status page"),
            "{text}"
        );
    }
}

#[test]
fn the_specification_example_as_far_as_it_is_supported() {
    let config = Fixtures::new().load("whole.toml");
    assert_eq!(config.daemon.socket_group.as_deref(), Some("adit"));
    assert_eq!(config.daemon.record.as_deref(), Some(Path::new("/var/lib/adit/record.jsonl")));
    assert_eq!(config.daemon.metrics, Some("127.0.0.1:9911".parse().unwrap()));
    assert!(config.daemon.status_page);
    let [tunnel, esp, device] = &config.tunnels[..] else { panic!("three tunnels") };
    assert_eq!(tunnel.onion.inner, ends("10.100.0.8", "192.0.2.1"));
    assert_eq!(tunnel.onion.encapsulation, gre::Options::keyed(4711).into());
    let netns = tunnel.netns.as_ref().unwrap();
    assert_eq!((netns.path(), netns.to_string().as_str()), (Path::new("/run/netns/blue"), "blue"));
    assert_eq!(tunnel.underlay_device.as_deref(), Some("eth0"));
    assert_eq!(tunnel.check.rules, Rules::default());
    assert!(tunnel.device.is_none() && tunnel.esp.is_none());
    let terms = Terms { source: Source::Static, esn: true, replay_window: 64 };
    assert_eq!(esp.esp.as_ref().unwrap().terms, terms);
    assert_eq!((device.onion.encapsulation, device.device.as_deref()), (Encapsulation::Device, Some("gre1")));
    let [route] = &config.routes[..] else { panic!("one route") };
    assert_eq!((route.prefix.to_string().as_str(), route.tunnel, route.priority), ("10.20.0.0/16", 0, 100));
    assert_eq!((route.device.as_deref(), route.via), (Some("gre1"), Some([10, 100, 0, 9].into())));
    assert_eq!((config.kernel, route.onlink), (Kernel { apply: true, ..Kernel::default() }, true));
    let priorities: Vec<u32> = config.policy.iter().map(|(_, rule)| rule.priority).collect();
    assert_eq!(priorities, [1_000, 1_001]);
}

#[test]
fn the_other_end_of_an_interface() {
    let fixtures = Fixtures::new();
    let inner = |file: &str, name: &str| fixtures.tunnels(file)[name].onion.inner;
    assert_eq!(inner("two-tunnels.toml", "ams-2"), ends("10.100.0.11", "10.100.0.10"));
    assert_eq!(inner("point-to-point-30.toml", "low"), ends("10.100.0.9", "10.100.0.10"));
    assert_eq!(inner("point-to-point-30.toml", "high"), ends("10.100.0.14", "10.100.0.13"));
    assert_eq!(inner("ipv6.toml", "v6-in-v6"), ends("fd00::8", "fd00::9"));
    assert_eq!(inner("ipv6.toml", "v6-in-v4"), ends("fd00::a", "fd00::9"));
    assert_eq!(inner("ipv6.toml", "link-local"), ends("fd00::9", "fd00::a"));
}

#[test]
fn unidirectional_probes_travel_between_the_endpoints() {
    let tunnels = Fixtures::new().tunnels("unidirectional.toml");
    let [endpoints, target, bidirectional] = ["endpoints", "target", "bidirectional"].map(|name| &tunnels[name]);
    assert_eq!(endpoints.onion.inner, endpoints.onion.outer);
    assert_eq!(endpoints.check.return_path, ReturnPath::Strict);
    assert_eq!(target.onion.inner, ends("198.51.100.1", "192.0.2.1"));
    assert_eq!(target.onion.style.kind, Kind::Reply);
    assert_eq!(bidirectional.check.return_path, ReturnPath::Any);
    assert_eq!(bidirectional.onion.inner, ends("10.100.0.8", "10.100.0.9"));
}

#[test]
fn a_tunnel_overrides_the_defaults_key_by_key() {
    let tunnels = Fixtures::new().tunnels("defaults.toml");
    let (plain, own) = (&tunnels["plain"].check, &tunnels["own"].check);
    assert_eq!((plain.interval, plain.timeout, plain.early_retry), (Duration::from_secs(60), Timeout::Auto, false));
    assert_eq!((plain.rules.up_samples, plain.rules.recovery_samples), (5, 64));
    assert_eq!((own.interval, own.early_retry, own.enabled), (Duration::from_secs(120), true, false));
    assert_eq!(own.timeout, Timeout::Fixed(Duration::from_secs(3)));
    assert_eq!((own.rules.up_samples, own.rules.recovery_samples), (1, 64));
    assert_eq!(own.rules.down_window, Duration::from_secs(4));
    assert!(plain.mark_key.is_some() && own.mark_key.is_some());
}

#[test]
fn servers_of_a_site_share_the_rate() {
    let tunnels = Fixtures::new().tunnels("servers.toml");
    let interval = |name: &str| tunnels[name].check.interval;
    assert_eq!(interval("mid"), Duration::from_secs(40));
    assert_eq!(interval("low"), Duration::from_secs(60));
    assert_eq!(interval("outright"), Duration::from_secs(1));
    assert_eq!(interval("longer"), Duration::from_secs(3_600));
}

#[test]
fn numbers_are_exact() {
    let fixtures = Fixtures::new();
    let tunnels = fixtures.tunnels("sub-second.toml");
    let ratio = |name: &str| tunnels[name].check.rules.degraded_ratio;
    assert_eq!((ratio("by-cadence"), ratio("many"), ratio("one")), (Ratio(1), Ratio(123_456), Ratio(1_000_000)));
    assert_eq!((tunnels["fast"].onion.ttl, tunnels["fast"].onion.dscp, tunnels["fast"].mark), (255, 63, u32::MAX));
    assert_eq!((tunnels["by-cadence"].onion.dscp, tunnels["many"].onion.dscp), (34, 0));
    let keys = fixtures.tunnels("gre-keys.toml");
    assert_eq!(
        keys["most"].onion.encapsulation,
        Encapsulation::Gre(gre::Options { key: Some(u32::MAX), sequence: true, checksum: true })
    );
    assert_eq!(
        (keys["none"].onion.encapsulation, keys["zero"].onion.encapsulation),
        (gre::Options::default().into(), gre::Options::keyed(0).into())
    );
    assert_eq!(keys["process"].netns.as_ref().unwrap().to_string(), "/proc/4711/ns/net");
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let fixtures = Fixtures::new();
    let config = fixtures.load("relative-paths.toml");
    assert_eq!(config.daemon.socket, fixtures.path("adit.sock"));
    assert_eq!(config.daemon.state_dir, fixtures.path("state"));
    assert!(config.tunnels[0].check.mark_key.is_some());
}

#[test]
fn a_reflector_reads_tunnels_from_the_far_side_and_its_faults() {
    let config = good(ReflectConfig::load(&Fixtures::new().path("reflect-far-side.toml")));
    assert_eq!(config.tunnels[0].onion.outer, ends("203.0.113.10", "198.51.100.1"));
    assert_eq!(config.tunnels[0].onion.inner, ends("10.100.0.9", "10.100.0.8"));
    assert!(config.mark_key.is_some());
    let lossy = Fault {
        tunnel: Some("ams-1".to_owned()),
        after: Duration::from_secs(10),
        lasts: Some(Duration::from_secs(30)),
        drop: Ratio(300_000),
        ..Fault::default()
    };
    let slow = Fault {
        delay: Duration::from_millis(100),
        jitter: Duration::from_millis(20),
        delayed: Ratio(500_000),
        duplicate: Ratio(10_000),
        ..Fault::default()
    };
    assert_eq!(config.faults, [lossy, slow]);
}

#[test]
fn many_tunnels_load() {
    let block = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        format!(
            "[[tunnel]]\nname = \"t{n}\"\nlocal_endpoint = \"198.51.100.1\"\nremote_endpoint = \"10.{a}.{b}.{c}\"\n\
             interface_address = \"10.100.0.8/31\"\n\
             [[route]]\nprefix = \"10.{a}.{b}.{c}/32\"\ntunnel = \"t{n}\"\npriority = 1\n"
        )
    };
    let config = parse(&(0..20_000).map(block).collect::<String>());
    assert_eq!((config.tunnels.len(), config.routes.len()), (20_000, 20_000));
}

#[test]
fn the_nearest_word_is_proposed_if_it_is_near() {
    let names = ["ams-1", "ams-2", "fra-1"];
    assert_eq!(nearest("asm-2", names), Some("ams-2"));
    assert_eq!(nearest("AMS-1", names), Some("ams-1"));
    assert_eq!(nearest("fra", names), Some("fra-1"));
    assert_eq!(nearest("fr", names), None);
    assert_eq!(nearest("", names), None);
    assert_eq!(nearest("london", names), None);
}

#[test]
fn when_this_host_is_suspected_can_be_said() {
    use adit::engine::FailStatic;
    use adit::engine::health::Ratio;
    let usual = FailStatic { share: Ratio(500_000), while_clean: false };
    assert_eq!(parse("").fail_static, Some(usual));
    assert_eq!(parse("[fail_static]\nenabled = false\nshare = \"20%\"\n").fail_static, None);
    let other = parse("[fail_static]\nshare = \"20%\"\nwhile_clean = true\n");
    assert_eq!(other.fail_static, Some(FailStatic { share: Ratio(200_000), while_clean: true }));
    assert_eq!(parse(&other.effective()).fail_static, other.fail_static);
    let never = parse("[fail_static]\nenabled = false\n");
    assert_eq!(parse(&never.effective()).fail_static, None);
}
