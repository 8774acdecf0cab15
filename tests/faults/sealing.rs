//! ESP with keys of our own: what a restart, a loss or an end of numbers does; and that no key gets out.

use std::fs;
use std::path::Path;
use std::process::Output;

use base64ct::{Base64, Encoding};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::eventually;
use crate::sealed::{self, reason, reflector};
use crate::site::Site;
use crate::table::{Row, elsewhere, lent, row};
use crate::world::Case;

pub(crate) fn rows(netns: &mut dyn FnMut(&str) -> Case) -> Vec<Row> {
    vec![
        lent(
            "fault_13_after_a_kill_the_numbers_go_on_above_the_last_one_used",
            "no number is used twice, and the far end takes the first packet",
            netns("sealed::static_keys_begin_once_and_go_on_after_a_kill"),
        ),
        lent(
            "fault_14_a_record_of_numbers_that_is_lost_halts_its_tunnel_alone",
            "missing, empty or cut off: that tunnel is unknown with the reason and the way on; the others go on",
            netns("sealed::a_record_that_is_lost_halts_its_tunnel_alone"),
        ),
        row(
            "fault_15_a_static_key_with_a_counter_mode_starts_nothing",
            "a mistake in the configuration, exit code 78, with the RFC that says why",
            counter_modes,
        ),
        elsewhere(
            16,
            "that tunnel is not sent on and unknown, with the SPI, until the kernel's is gone; the others go on",
            "lab",
            "an_association_that_this_kernel_has_too_is_not_sent_on_until_it_is_gone",
        ),
        lent(
            "fault_16_a_prober_does_not_send_on_what_its_kernel_has",
            "the same, for an association that is only kept in the kernel's list",
            netns("silent::a_prober_does_not_send_on_what_its_kernel_has"),
        ),
        row(
            "fault_17_at_the_end_of_its_numbers_a_tunnel_is_unknown_and_nothing_wraps",
            "warned of at nine tenths; at the end probing stops, the state is unknown, and no number is used again",
            exhaustion,
        ),
        row(
            "fault_44_no_key_gets_out",
            "not in logs at their most talkative, answers, events, recordings, state files, command lines or environments",
            keys,
        ),
        lent(
            "fault_44_a_daemon_that_aborts_leaves_no_dump",
            "and no core dump, which would hold them",
            netns("sealed::a_daemon_that_aborts_leaves_no_dump"),
        ),
    ]
}

fn counter_modes() {
    for (algorithm, rfc) in [("aes256-gcm", "RFC 4106"), ("chacha20-poly1305", "RFC 7634")] {
        let site = sealed::site("static");
        let text = site.read("adit.conf").replace("aes256-cbc-hmac-sha256", algorithm);
        site.write("adit.conf", &text);
        let (code, said) = site.refused();
        assert_eq!(code, Some(78), "{said}");
        assert!(said.contains(rfc) && said.contains("adit.conf:"), "{algorithm}: {said}");
    }
}

/// Numbers of 32 bits, begun shortly before their end.
fn exhaustion() {
    let site = sealed::site("static");
    for file in ["adit.conf", "ams-1.far"] {
        site.write(file, &site.read(file).replace("algorithm =", "esn = false\nalgorithm ="));
    }
    let _far = reflector(&site, true);
    let _other = site.far("fra-1");
    let daemon = site.daemon();
    site.await_state("fra-1", "healthy");
    let last = u64::from(u32::MAX);
    site.say(&["sa", "begin", "ams-1", "--at", &(last - 30).to_string()]);
    eventually("the end of the numbers", || reason(&site).starts_with("sequence-exhausted: "));
    site.await_state("ams-1", "unknown");
    assert!(site.entered().contains(&"healthy".to_owned()), "it went well until then: {:?}", site.entered());
    assert_eq!(site.entered().last().unwrap(), "unknown");
    assert!(site.say(&["events"]).contains("nine tenths"), "{}", site.say(&["events"]));
    let sent = sent(&site);
    assert!((20..=31).contains(&sent), "{sent} of 31");
    // Not after a restart either.
    daemon.send(Signal::SIGKILL);
    daemon.end();
    let _daemon = site.daemon();
    site.await_state("fra-1", "healthy");
    assert!(reason(&site).starts_with("sequence-"), "{}", reason(&site));
    assert_eq!(self::sent(&site), 0);
}

/// How many probes have left by the ESP tunnel.
fn sent(site: &Site) -> u64 {
    let view: Value = serde_json::from_str(&site.http("GET", "/v1/tunnels/ams-1").2).unwrap();
    view["counters"]["sent"].as_u64().unwrap()
}

/// Parts of the keys as the trials of ESP have them, in every form in which they could be written.
fn forms() -> Vec<String> {
    let keys = [
        &[0x4f, 0x4f, 0x4f, 0x4f, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07][..],
        &[0xba, 0xba, 0x5e, 0x1f, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27],
    ];
    let mac = (0x60..0x6c).collect::<Vec<u8>>();
    let all = keys.into_iter().chain([&mac[..]]);
    let each = |key: &[u8]| {
        let joined = |form: fn(&u8) -> String, with: &str| key.iter().map(form).collect::<Vec<_>>().join(with);
        vec![
            joined(|byte| format!("{byte:02x}"), ""),
            joined(|byte| format!("{byte:02X}"), ""),
            joined(|byte| byte.to_string(), ", "),
            joined(|byte| byte.to_string(), ","),
            joined(|byte| format!("{byte:#x}"), ", "),
            // The length is a multiple of three, so that there is no padding.
            Base64::encode(key, &mut [0; 16]).unwrap().to_owned(),
        ]
    };
    all.flat_map(each).collect()
}

fn keys() {
    let site = sealed::site("static");
    let _far = reflector(&site, true);
    let mut command = site.command("run", "adit.conf");
    command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
    let daemon = crate::site::Running::start(&site.pair.near, &mut command);
    eventually("a daemon at work", || site.adit(&["status"]).status.success());
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "healthy");
    let prober = daemon.prober();
    let mut said = vec![];
    for path in paths() {
        said.push((path.clone(), site.http("GET", &path).2));
    }
    for arguments in [
        &["sa", "show", "ams-1"][..],
        &["sa", "show", "--json"],
        &["explain", "ams-1"],
        &["status", "ams-1", "--json"],
        &["events", "--json"],
    ] {
        said.push((arguments.join(" "), text(&site.adit(arguments))));
    }
    let config = site.path("adit.conf").display().to_string();
    for arguments in [&["check", "--config", &config][..], &["check", "--effective", "--config", &config]] {
        said.push((arguments.join(" "), text(&site.adit(arguments))));
    }
    for id in [daemon.child.id(), prober] {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{id}/{file}")).unwrap();
            said.push((file.to_owned(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    // A prober that loses its senses, and a far end that goes: more is told then.
    daemon.send_prober(Signal::SIGKILL);
    eventually("its successor", || daemon.prober() != prober && site.adit(&["status"]).status.success());
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    files(site.folder.path(), &mut said);
    let log = said.iter().find(|(name, _)| name.ends_with("adit.conf.log")).map_or(0, |(_, text)| text.len());
    assert!(said.len() > 20 && log > 1_000, "{} texts, a log of {log} bytes", said.len());
    let forms = forms();
    for (name, text) in &said {
        let found = forms.iter().find(|form| text.contains(form.as_str()));
        assert_eq!(found, None, "in {name}");
    }
    let whole = fs::read_to_string(site.path("out.key")).unwrap();
    assert!(whole.contains(&forms[0]), "what is looked for is part of the key: {whole}");
}

/// Everything that can be asked for.
fn paths() -> Vec<String> {
    let described: Value = serde_json::from_str(adit::io::local::OPENAPI).unwrap();
    let paths = described["paths"].as_object().unwrap().keys().map(|path| path.replace("{name}", "ams-1"));
    paths.collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Every file that is there afterwards, but those that the keys come from.
fn files(folder: &Path, said: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, said);
        } else if path.extension().is_none_or(|extension| extension != "key") {
            let bytes = fs::read(&path).unwrap_or_default();
            said.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}
