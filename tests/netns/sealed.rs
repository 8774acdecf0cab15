//! The built program and ESP: keys that come from files or over the socket, sequence numbers that survive
//! a kill, and records that are lost.

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use adit::io::netns;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::kit::{PATIENCE, eventually, holds_within, uninterrupted};
use crate::site::{NOBODY, Running, Site, adit};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("sealed::static_keys_begin_once_and_go_on_after_a_kill", static_keys_begin_once_and_go_on_after_a_kill),
        case("sealed::a_record_that_is_lost_halts_its_tunnel_alone", a_record_that_is_lost_halts_its_tunnel_alone),
        case("sealed::a_known_counter_is_a_way_on", a_known_counter_is_a_way_on),
        case("sealed::two_daemons_do_not_share_a_record", two_daemons_do_not_share_a_record),
        case(
            "sealed::installed_keys_start_a_tunnel_and_are_taken_once",
            installed_keys_start_a_tunnel_and_are_taken_once,
        ),
        case(
            "sealed::fresh_keys_are_taken_after_a_loss_once_somebody_vouches",
            fresh_keys_are_taken_after_a_loss_once_somebody_vouches,
        ),
        case("sealed::what_is_in_the_way_is_shown_and_is_no_failure", what_is_in_the_way_is_shown_and_is_no_failure),
        case(
            "sealed::what_cannot_be_installed_is_told_without_its_keys",
            what_cannot_be_installed_is_told_without_its_keys,
        ),
        case("sealed::a_stranger_may_look_but_not_install", a_stranger_may_look_but_not_install).with_two_users(),
        case("sealed::esp_in_udp_and_over_ipv6", esp_in_udp_and_over_ipv6),
        case("sealed::a_daemon_that_aborts_leaves_no_dump", a_daemon_that_aborts_leaves_no_dump),
    ]
}

/// 64 bytes: the cipher's key of 32, then HMAC's.
const OUT: &str = "4f4f4f4f000102030405060708090a0b0c0d0e0f101112131415161718191a1b\
                   606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f";
const BACK: &str = "baba5e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b\
                    808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f";

/// A tunnel with ESP, and one with GRE beside it.
pub(crate) fn site(keys: &str) -> Site {
    let site = Site::new();
    for (name, key) in [("out.key", OUT), ("back.key", BACK)] {
        site.write(name, key);
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    site.write("adit.conf", &near(&site, keys, ""));
    site.write("ams-1.far", &far(&site, ""));
    site
}

fn files(site: &Site, out: &str, back: &str) -> String {
    let path = |name| site.path(name).display().to_string();
    format!("key_out_file = \"{}\"\nkey_in_file = \"{}\"\n", path(out), path(back))
}

fn near(site: &Site, keys: &str, more: &str) -> String {
    let own = match keys {
        "static" => format!(
            "[tunnel.esp]\nkeys = \"static\"\nspi_out = 0x1001\nspi_in = 0x2001\n\
             algorithm = \"aes256-cbc-hmac-sha256\"\n{}{more}",
            files(site, "out.key", "back.key")
        ),
        _ => format!("[tunnel.esp]\nkeys = \"installed\"\n{more}"),
    };
    let all = site.configuration();
    let mut parts = all.splitn(2, "encapsulation = \"gre\"");
    let (before, after) = (parts.next().unwrap(), parts.next().unwrap());
    let (tunnel, rest) = after.split_once("[[route]]").unwrap();
    format!("{before}encapsulation = \"esp\"{tunnel}{own}[[route]]{rest}")
}

fn far(site: &Site, more: &str) -> String {
    let state_dir = site.path("far-state");
    let gre = site.read("ams-1.far");
    let tunnel = gre.split("[tunnel.esp]").next().unwrap().split("[reflect]").last().unwrap();
    let tunnel = tunnel.split_once("[[tunnel]]").unwrap().1.replace("\"gre\"", "\"esp\"");
    format!(
        "[reflect]\nstate_dir = \"{}\"\n[[tunnel]]{tunnel}[tunnel.esp]\nkeys = \"static\"\nspi_out = 0x2001\n\
         spi_in = 0x1001\nalgorithm = \"aes256-cbc-hmac-sha256\"\n{}{more}",
        state_dir.display(),
        files(site, "back.key", "out.key")
    )
}

/// The far end of the ESP tunnel, whose own numbers begin here the first time.
pub(crate) fn reflector(site: &Site, begins: bool) -> Running {
    let mut command = site.command("reflect", "ams-1.far");
    if begins {
        command.args(["--begin", "ams-1"]);
    }
    let far = Running::start(&site.pair.far, &mut command);
    eventually("a reflector at work", || site.read("ams-1.far.log").contains("reflecting"));
    far
}

pub(crate) fn reason(site: &Site) -> String {
    site.sa()["obstacle"].as_str().unwrap_or("none").to_owned()
}

fn next(site: &Site) -> u64 {
    site.sa()["pair"]["next_sequence"].as_u64().unwrap()
}

impl Site {
    fn sa(&self) -> Value {
        self.json(&["sa", "show", "ams-1", "--json"])
    }

    /// The states that the ESP tunnel has entered.
    pub(crate) fn entered(&self) -> Vec<String> {
        let own = |event: &&Value| event["tunnel"] == "ams-1";
        self.transitions().iter().filter(own).map(|event| event["to"].as_str().unwrap().to_owned()).collect()
    }

    /// Hands a pair over on standard input.
    fn install(&self, pair: &str) -> Output {
        let mut command = Command::new(adit());
        command.arg("--socket").arg(self.path("adit.sock")).args(["sa", "install", "ams-1"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(pair.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Every answer that was answered is counted.
    pub(crate) fn await_answers(&self) {
        let received = || {
            // A tunnel that is down is bad news, but it is shown.
            let shown = self.adit(&["status", "ams-1", "--json"]).stdout;
            serde_json::from_slice::<Value>(&shown).unwrap_or_default()["counters"]["received"].as_u64().unwrap_or(0)
        };
        let before = received();
        assert!(holds_within(PATIENCE, &mut || received() > before + 3), "no answers: {}", self.read("adit.conf.log"));
    }
}

fn pair(change: impl FnOnce(&mut Value)) -> String {
    let mut pair = json!({"algorithm": "aes256-cbc-hmac-sha256", "spi_out": "0x1001", "spi_in": "0x2001",
        "key_out": OUT, "key_in": BACK, "esn": true});
    change(&mut pair);
    pair.to_string()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

fn static_keys_begin_once_and_go_on_after_a_kill() {
    let site = site("static");
    let (_far, _other) = (reflector(&site, true), site.far("fra-1"));
    let daemon = site.daemon();
    site.await_state("fra-1", "healthy");
    assert_eq!(site.state("ams-1"), "unknown");
    let why = reason(&site);
    assert!(why.starts_with("sequence-state-lost: ") && why.contains("adit sa begin ams-1"), "{why}");
    assert!(site.say(&["explain", "ams-1"]).contains("sequence-state-lost"));

    let begun = site.say(&["sa", "begin", "ams-1"]);
    assert!(
        begun.starts_with("ams-1: begun: aes256-cbc-hmac-sha256, SPI 0x1001 out, 0x2001 in, from number "),
        "{begun}"
    );
    site.await_state("ams-1", "healthy");
    let shown = site.say(&["sa", "show"]);
    assert!(shown.contains("ams-1") && shown.contains("0x1001") && !shown.contains("fra-1"), "{shown}");

    let mut last = next(&site);
    let mut running = daemon;
    for _ in 0..3 {
        running.send(Signal::SIGKILL);
        running.end();
        running = site.daemon();
        let first = next(&site);
        assert!(first >= last, "{first} after {last}");
        site.await_state("ams-1", "healthy");
        last = next(&site);
        // It remembers that, or learns it anew.
        assert!(site.entered().iter().all(|state| state == "healthy"), "nothing in between: {:?}", site.entered());
    }
    for text in [shown, site.read("adit.conf.log"), site.say(&["events", "--json"]), site.sa().to_string()] {
        assert!(!text.contains("4f4f4f4f") && !text.contains("baba5e1f"), "a key: {text}");
    }
}

fn a_record_that_is_lost_halts_its_tunnel_alone() {
    let site = site("static");
    let (_far, _other) = (reflector(&site, true), site.far("fra-1"));
    let daemon = site.daemon();
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "healthy");
    daemon.send(Signal::SIGTERM);
    daemon.end();
    let record = site.path("state").join("sequence-numbers");
    let whole = fs::read_to_string(&record).unwrap();
    assert!(!whole.contains("4f4f4f4f"), "{whole}");
    let half = whole[..whole.len() / 2].to_owned();
    for (what, text) in [("missing", None), ("empty", Some(String::new())), ("truncated", Some(half))] {
        match text {
            None => fs::remove_file(&record).unwrap(),
            Some(text) => fs::write(&record, text).unwrap(),
        }
        let daemon = site.daemon();
        site.await_state("fra-1", "healthy");
        let why = reason(&site);
        assert!(why.starts_with("sequence-state-lost: ") && why.contains("adit sa begin ams-1"), "{what}: {why}");
        assert_eq!((site.state("ams-1").as_str(), site.entered().len()), ("unknown", 0), "{what}");
        daemon.send(Signal::SIGTERM);
        daemon.end();
        fs::write(&record, &whole).unwrap();
    }
}

fn a_known_counter_is_a_way_on() {
    let site = site("static");
    let far = reflector(&site, true);
    let daemon = site.daemon();
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "healthy");
    let used = next(&site);
    daemon.send(Signal::SIGKILL);
    daemon.end();
    fs::remove_dir_all(site.path("state")).unwrap();
    let _daemon = site.daemon();
    assert!(reason(&site).starts_with("sequence-state-lost: "));
    let at = (used + 1_000_000).to_string();
    let begun = site.say(&["sa", "begin", "ams-1", "--at", &at]);
    assert!(begun.trim_end().ends_with(&format!("from number {at}")), "{begun}");
    site.await_state("ams-1", "healthy");
    let zero = site.adit(&["sa", "begin", "ams-1", "--at", "0"]);
    assert_eq!(zero.status.code(), Some(2));

    // The far end has a record of its own, and is as careful with it.
    far.send(Signal::SIGKILL);
    far.end();
    let far = reflector(&site, false);
    site.await_answers();
    far.send(Signal::SIGKILL);
    far.end();
    fs::remove_dir_all(site.path("far-state")).unwrap();
    let _far = reflector(&site, false);
    let log = site.read("ams-1.far.log");
    assert!(log.contains("sequence-state-lost") && log.contains("--begin ams-1"), "{log}");
}

fn two_daemons_do_not_share_a_record() {
    let site = site("static");
    let _far = reflector(&site, true);
    let _daemon = site.daemon();
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "healthy");
    site.write(
        "second.conf",
        &site.read("adit.conf").replace("adit.sock", "second.sock").replace("record.jsonl", "2.jsonl"),
    );
    let _second = Running::start(&site.pair.near, &mut site.command("run", "second.conf"));
    let show = || {
        let mut command = Command::new(adit());
        said(&command.arg("--socket").arg(site.path("second.sock")).args(["sa", "show"]).output().unwrap())
    };
    eventually("the second one's word", || show().contains("sequence-state-lost"));
    assert!(show().contains("state"), "{}", show());
    site.await_answers();
}

fn installed_keys_start_a_tunnel_and_are_taken_once() {
    let site = site("installed");
    let (_far, _other) = (reflector(&site, true), site.far("fra-1"));
    let daemon = site.daemon();
    site.await_state("fra-1", "healthy");
    assert_eq!(site.state("ams-1"), "unknown");
    assert!(reason(&site).starts_with("no-keys: "), "{}", reason(&site));
    let installed = site.install(&pair(|_| {}));
    assert!(installed.status.success(), "{}", said(&installed));
    site.await_state("ams-1", "healthy");
    let events = site.say(&["events"]);
    assert!(events.contains("0x1001"), "{events}");

    // In memory only: a restart begins without, and the same keys are not fresh any more.
    daemon.send(Signal::SIGKILL);
    daemon.end();
    let _daemon = site.daemon();
    assert!(reason(&site).starts_with("no-keys: "), "{}", reason(&site));
    for spi in ["0x1001", "0x1009"] {
        let again = site.install(&pair(|pair| pair["spi_out"] = spi.into()));
        assert_eq!(again.status.code(), Some(1), "{}", said(&again));
        assert!(said(&again).contains("RFC 4106") && said(&again).contains("cut short"), "{}", said(&again));
    }
    assert_eq!((site.state("ams-1").as_str(), site.entered().len()), ("unknown", 0));

    let record = fs::read_to_string(site.path("state").join("sequence-numbers")).unwrap();
    for text in [record, site.read("adit.conf.log"), site.say(&["sa", "show"]), site.say(&["events", "--json"])] {
        assert!(!text.contains("4f4f4f4f") && !text.contains("baba5e1f"), "a key: {text}");
    }
}

/// The far end's key files, and the pair that fits them: keys that differ from turn to turn.
fn fresh(site: &Site, turn: u8) -> String {
    let [out, back] = [0x10, 0x80].map(|whose| format!("{:02x}", whose + turn).repeat(64));
    site.write("out.key", &out);
    site.write("back.key", &back);
    pair(|pair| (pair["key_out"], pair["key_in"]) = (out.into(), back.into()))
}

fn fresh_keys_are_taken_after_a_loss_once_somebody_vouches() {
    let site = site("installed");
    let record = site.path("state").join("sequence-numbers");
    let mut daemon = site.daemon();
    assert!(site.install(&fresh(&site, 0)).status.success());
    let far = reflector(&site, true);
    site.await_state("ams-1", "healthy");
    far.send(Signal::SIGTERM);
    far.end();
    type Loss<'a> = &'a dyn Fn(&str);
    let losses: [(u8, Loss<'_>); 2] = [
        (1, &|_| fs::remove_file(&record).unwrap()),
        (2, &|whole| fs::write(&record, whole.replacen("generation=", "generation=9", 1)).unwrap()),
    ];
    for (turn, lose) in losses {
        daemon.send(Signal::SIGTERM);
        daemon.end();
        lose(&fs::read_to_string(&record).unwrap());
        daemon = site.daemon();
        let pair = fresh(&site, turn);
        let refused = site.install(&pair);
        let why = said(&refused);
        assert_eq!(refused.status.code(), Some(1), "{why}");
        assert!(why.contains("sequence-state-lost: ") && why.contains("`adit sa begin ams-1`"), "{why}");
        assert!(reason(&site).starts_with("no-keys: "), "nothing has changed: {}", reason(&site));

        let noted = site.say(&["sa", "begin", "ams-1"]);
        assert!(noted.starts_with("ams-1: noted for all tunnels: ") && noted.lines().count() == 1, "{noted}");
        let installed = site.install(&pair);
        assert!(installed.status.success(), "{}", said(&installed));
        let far = reflector(&site, true);
        site.await_state("ams-1", "healthy");
        far.send(Signal::SIGTERM);
        far.end();
    }
}

fn what_is_in_the_way_is_shown_and_is_no_failure() {
    for (keys, name) in [("installed", "no-keys"), ("static", "sequence-state-lost")] {
        let site = site(keys);
        let _daemon = site.daemon();
        let why = reason(&site);
        assert!(why.starts_with(&format!("{name}: ")), "{why}");
        let shown = site.say(&["sa", "show"]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "a head, a row and the reason: {shown}");
        assert!(lines[0].starts_with("TUNNEL ") && lines[1].starts_with("ams-1 "), "{shown}");
        assert_eq!(lines[2], format!("ams-1: {why}"));
        let one = site.say(&["sa", "show", "ams-1"]);
        assert!(one.contains(keys) && one.trim_end().ends_with(&format!("obstacle      {why}")), "{one}");
    }
}

fn what_cannot_be_installed_is_told_without_its_keys() {
    let site = site("installed");
    let _daemon = site.daemon();
    let wrong = [
        (
            pair(|pair| pair["key_out"] = OUT[..126].into()),
            78,
            "`key_out` has 63 bytes; aes256-cbc-hmac-sha256 needs 64",
        ),
        (pair(|pair| pair["key_in"] = OUT.into()), 78, "are the same"),
        (pair(|pair| pair["esn"] = OUT.into()), 78, "something of another type"),
        (pair(|pair| pair["spi_out"] = 255.into()), 78, "from 256 on"),
        ("{".to_owned(), 78, "no JSON object"),
    ];
    for (pair, code, words) in wrong {
        let refused = site.install(&pair);
        let said = said(&refused);
        assert_eq!(refused.status.code(), Some(code), "{said}");
        assert!(said.contains(words) && !said.contains("4f4f4f4f") && !said.contains("baba5e1f"), "{said}");
    }
    site.write("pair.json", &pair(|_| {}));
    fs::set_permissions(site.path("pair.json"), fs::Permissions::from_mode(0o640)).unwrap();
    let open = site.adit(&["sa", "install", "ams-1", site.path("pair.json").to_str().unwrap()]);
    assert_eq!(open.status.code(), Some(78));
    assert!(said(&open).contains("chmod 0600"), "{}", said(&open));
    for (arguments, words) in [
        (&["sa", "begin", "ams-1", "--at", "7"][..], "leave --at away"),
        (&["sa", "begin", "fra-1"], "not encapsulated in ESP"),
    ] {
        let refused = site.adit(arguments);
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        assert!(said(&refused).contains(words), "{}", said(&refused));
    }
    assert_eq!(site.http("GET", "/v1/tunnels/fra-1/sa").0, 409);
    assert_eq!(site.http("GET", "/v1/tunnels/ams-2/sa").0, 404);
    assert!(reason(&site).starts_with("no-keys: "), "nothing has changed");
}

fn a_stranger_may_look_but_not_install() {
    let site = site("installed");
    site.write("adit.conf", &site.read("adit.conf").replace("[daemon]", "[daemon]\nsocket_group = \"nogroup\""));
    let _daemon = site.daemon();
    site.open_to_all();
    let look = site.as_nobody(&["sa", "show"]).output().unwrap();
    assert!(look.status.success(), "{NOBODY}: {}", said(&look));
    site.write("pair.json", "{}");
    for arguments in [["sa", "install", "ams-1"], ["sa", "begin", "ams-1"]] {
        let refused = site.as_nobody(&arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(refused.status.code(), Some(77), "{}", said(&refused));
        assert!(said(&refused).contains("admin_group"), "{}", said(&refused));
    }
}

fn esp_in_udp_and_over_ipv6() {
    for (local, remote) in [("192.0.2.1", "192.0.2.11"), ("2001:db8::1", "2001:db8::11")] {
        let site = site("static");
        let more = "udp_encapsulation = true\nreplay_window = 1024\n";
        let swap = |text: &str| text.replace("\"192.0.2.11\"", &format!("\"{remote}\""));
        let own = |text: &str| text.replacen("\"192.0.2.1\"", &format!("\"{local}\""), 1);
        site.write("ams-1.far", &own(&swap(&far(&site, more))));
        site.write("adit.conf", &own(&swap(&near(&site, "static", more))));
        let _far = reflector(&site, true);
        let _daemon = site.daemon();
        site.say(&["sa", "begin", "ams-1"]);
        site.await_state("ams-1", "healthy");
        let (any, near) = if local.contains(':') {
            ("[::]:4500", format!("[{local}]:4500"))
        } else {
            ("0.0.0.0:4500", format!("{local}:4500"))
        };
        an_ike_daemon_starts(&site, any, &near);
        let answered = || site.json(&["status", "ams-1", "--json"])["counters"]["received"].as_u64().unwrap();
        let before = answered();
        eventually("more answers", || answered() > before + 5);
        let entered = site.entered();
        assert_eq!(entered.last().unwrap(), "healthy", "{entered:?}");
    }
}

/// It wants its port at every address, on both sides, and what comes there.
fn an_ike_daemon_starts(site: &Site, any: &str, near: &str) {
    let bind = |namespace| netns::within(Some(namespace), || UdpSocket::bind(any)).unwrap();
    let (here, there) = (bind(&site.pair.near), bind(&site.pair.far));
    here.set_read_timeout(Some(PATIENCE)).unwrap();
    // RFC 3948 section 2.2: four zeros in place of an SPI; then IKE.
    there.send_to(b"\0\0\0\0IKE", near).unwrap();
    let mut bytes = [0; 2_048];
    let ike = std::iter::repeat_with(|| uninterrupted(|| here.recv(&mut bytes)).map(|length| bytes[..length].to_vec()));
    assert!(ike.take(1_000).any(|packet| packet.unwrap() == b"\0\0\0\0IKE"));
}

fn a_daemon_that_aborts_leaves_no_dump() {
    let site = site("static");
    let aborts = |command: &str| {
        let mut shell = Command::new("sh");
        shell.current_dir(site.folder.path()).args(["-c", &format!("ulimit -c unlimited; exec {command}")]);
        Running::start(&site.pair.near, shell.stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let dumped = |running: Running| {
        running.send(Signal::SIGABRT);
        running.end().core_dumped()
    };
    let other = aborts("sleep 60");
    eventually("another program at work", || {
        fs::read_to_string(format!("/proc/{}/comm", other.child.id())).is_ok_and(|name| name.trim() == "sleep")
    });
    if !dumped(other) {
        eprintln!("sealed::a_daemon_that_aborts_leaves_no_dump: nobody leaves a dump here, so it proves nothing");
    }
    let daemon = aborts(&format!("{} run --config adit.conf", adit().display()));
    eventually("a daemon at work", || site.adit(&["status"]).status.success());
    assert!(!dumped(daemon));
}
