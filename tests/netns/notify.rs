//! The built program tells people: programs and webhooks, kills, storms, reloads.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use adit::io::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::kit::{eventually, holds_within, ms};
use crate::site::{Running, Site};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("notify::a_program_is_told_of_the_states_that_it_asked_for", told),
        case("notify::the_messenger_and_what_it_runs_have_no_power", powerless),
        case("notify::a_program_that_hangs_is_killed_with_all_that_it_began_and_holds_nobody_up", hangs),
        case(
            "notify::after_a_kill_of_the_messenger_nothing_is_told_twice_and_what_was_missed_is_told",
            messenger_killed,
        ),
        case("notify::after_a_kill_of_everything_nothing_is_told_twice_and_what_has_come_of_it_is_told", all_killed),
        case("notify::two_hundred_tunnels_that_go_down_are_few_messages", storm),
        case("notify::a_reload_brings_a_sink_changes_it_and_takes_it_away", reloaded),
        case("notify::a_webhook_that_fails_is_tried_again_and_no_secret_is_logged", webhook),
        case("notify::a_webhook_is_trusted_by_its_certificate_only", tls),
        case("notify::a_target_that_is_missed_is_told", slo),
        case("notify::a_drained_tunnel_is_told_when_it_is_not_drained_any_more", drained),
        case("notify::a_test_message_says_what_came_of_it", test_message),
    ]
}

/// A program that writes down what it is told, a line each, in a file of its name.
fn script(site: &Site, name: &str) -> String {
    let path = site.path(name);
    let told = site.path(&format!("{name}.told"));
    // One line at once: `cat` alone would not end it. A little later than the note that it is on its way.
    let text = format!("#!/bin/sh\nline=$(cat)\nsleep 0.05\nprintf '%s\\n' \"$line\" >>{}\n", told.display());
    program(site, name, &text);
    path.to_str().unwrap().to_owned()
}

fn program(site: &Site, name: &str, text: &str) {
    site.write(name, text);
    fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// All that it was told.
fn messages(site: &Site, name: &str) -> Vec<Value> {
    site.read(&format!("{name}.told")).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Tunnel and state of each event that it was told.
fn events(site: &Site, name: &str) -> Vec<(String, String)> {
    let word = |event: &Value, key: &str| event[key].as_str().unwrap_or("-").to_owned();
    let messages = messages(site, name);
    let events = messages.iter().flat_map(|message| message["events"].as_array().unwrap());
    events
        .map(|event| (word(event, "tunnel"), word(event, if event["kind"] == "slo" { "slo" } else { "to" })))
        .collect()
}

fn count(site: &Site, name: &str, tunnel: &str, state: &str) -> usize {
    events(site, name).iter().filter(|(of, to)| of == tunnel && to == state).count()
}

fn await_told(site: &Site, name: &str, tunnel: &str, state: &str, times: usize) {
    let told = holds_within(crate::kit::PATIENCE, &mut || count(site, name, tunnel, state) >= times);
    assert!(told, "{tunnel} {state} x{times}: {:?}\n{}", events(site, name), site.read("adit.conf.log"));
}

fn notify(site: &Site, rest: &str) {
    site.write("adit.conf", &format!("{}{rest}", site.configuration()));
}

fn messenger(daemon: &Running) -> u32 {
    let mut found = None;
    eventually("a messenger", || {
        found = daemon.part("messenger");
        found.is_some()
    });
    found.unwrap()
}

fn signal(process: u32, signal: Signal) {
    kill(Pid::from_raw(process.try_into().unwrap()), signal).unwrap();
}

/// Waits until it has been noted that a sink has heard what it was told.
fn await_note(site: &Site, name: &str) {
    let written = |path: &str| fs::metadata(site.path(path)).and_then(|found| found.modified()).unwrap();
    eventually("the note", || written("state/told") >= written(&format!("{name}.told")));
}

/// A moment in which something would have happened that must not.
fn a_moment() {
    std::thread::sleep(ms(2_500));
}

fn told() {
    let site = Site::new();
    let (mail, ams) = (script(&site, "mail"), script(&site, "ams"));
    notify(
        &site,
        &format!(
            "[[notify]]\non = [\"down\", \"healthy\"]\nexec = [\"{mail}\"]\nrepeat = \"0s\"\n\
             [[notify]]\non = [\"down\"]\ntunnels = [\"fra-*\"]\nexec = [\"{ams}\"]\n"
        ),
    );
    let (daemon, far) = site.healthy();
    await_told(&site, "mail", "ams-1", "healthy", 1);
    far[0].send(Signal::SIGSTOP);
    await_told(&site, "mail", "ams-1", "down", 1);
    far[0].send(Signal::SIGCONT);
    await_told(&site, "mail", "ams-1", "healthy", 2);
    // Each event as the local socket gives it.
    let transitions = site.transitions();
    let told = messages(&site, "mail");
    let events: Vec<&Value> = told.iter().flat_map(|message| message["events"].as_array().unwrap()).collect();
    assert!(events.iter().all(|event| transitions.contains(event)), "{events:?}");
    let wanted = transitions.iter().filter(|event| ["down", "healthy"].contains(&event["to"].as_str().unwrap()));
    assert_eq!(events.len(), wanted.count());
    let last = told.last().unwrap();
    assert_eq!([&last["kind"], &last["sink"]], ["notification", "mail"]);
    assert!(last["text"].as_str().unwrap().contains("ams-1 is healthy (was degraded): rule 4"), "{last}");
    assert_eq!(messages(&site, "ams"), Vec::<Value>::new());
    far[1].send(Signal::SIGSTOP);
    await_told(&site, "ams", "fra-1", "down", 1);
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

fn powerless() {
    let site = Site::new();
    let found = site.path("found");
    let text = format!(
        "#!/bin/sh\n{{ grep -E '^(Cap|NoNewPrivs)' /proc/self/status; env; pwd; ls -l /proc/self/fd; }} >{}\n",
        found.display()
    );
    program(&site, "look", &text);
    notify(&site, &format!("[[notify]]\non = [\"healthy\"]\nexec = [\"{}\"]\n", site.path("look").display()));
    let (daemon, _far) = site.healthy();
    eventually("what it found", || site.read("found").contains("fd") || site.read("found").contains("->"));
    let status = fs::read_to_string(format!("/proc/{}/status", messenger(&daemon))).unwrap();
    for text in [status, site.read("found")] {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(value(set), "0000000000000000", "{set}");
        }
        assert_eq!(value("NoNewPrivs:"), "1");
    }
    let found = site.read("found");
    let mut names: Vec<_> = found.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    // What a shell sets by itself.
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["ADIT_COUNT", "ADIT_SINK", "ADIT_STATE", "ADIT_TEXT", "ADIT_TUNNEL", "PATH"], "{found}");
    assert!(found.lines().any(|line| line == "/"), "{found}");
    // Nothing of the daemon's is open there: no socket.
    assert!(!found.contains("socket:"), "{found}");
}

fn hangs() {
    let site = Site::new();
    let mail = script(&site, "mail");
    let left = site.path("left");
    let text = format!("#!/bin/sh\nsleep 1000 &\necho $! $$ >>{}\necho stuck here >&2\nsleep 1000\n", left.display());
    program(&site, "stuck", &text);
    let stuck = site.path("stuck").display().to_string();
    notify(
        &site,
        &format!(
            "[[notify]]\non = [\"down\", \"healthy\"]\nexec = [\"{stuck}\"]\ntimeout = \"2s\"\nrepeat = \"0s\"\n\
             [[notify]]\non = [\"down\", \"healthy\"]\nexec = [\"{mail}\"]\nrepeat = \"0s\"\n"
        ),
    );
    let (_daemon, far) = site.healthy();
    eventually("one that hangs", || !site.read("left").is_empty());
    far[0].send(Signal::SIGSTOP);
    await_told(&site, "mail", "ams-1", "down", 1);
    let log = || site.read("adit.conf.log");
    eventually("its end", || log().contains("was killed: not done in 2s: stuck here"));
    let first: Vec<String> = site.read("left").lines().next().unwrap().split(' ').map(str::to_owned).collect();
    for process in &first {
        eventually("the end of all that it began", || !Path::new(&format!("/proc/{process}/exe")).exists());
    }
    // It is told of the rest by its next message, with what it has missed.
    eventually("its next try", || site.read("left").lines().count() >= 2);
    assert_eq!(site.state("fra-1"), "healthy");
    let faults: Value = serde_json::from_str(&site.http("GET", "/v1/healthz").2).unwrap();
    assert!(faults["loop_lag"]["wakeups"].as_u64().unwrap() > 0);
}

fn messenger_killed() {
    let site = Site::new();
    let mail = script(&site, "mail");
    notify(&site, &format!("[[notify]]\non = [\"down\", \"healthy\"]\nexec = [\"{mail}\"]\nrepeat = \"0s\"\n"));
    let (daemon, far) = site.healthy();
    await_told(&site, "mail", "ams-1", "healthy", 1);
    await_told(&site, "mail", "fra-1", "healthy", 1);
    for round in 1..=2 {
        await_note(&site, "mail");
        let before = messenger(&daemon);
        // It can hear nothing, and then it is gone.
        signal(before, Signal::SIGSTOP);
        far[0].send(Signal::SIGSTOP);
        site.await_state("ams-1", "down");
        signal(before, Signal::SIGKILL);
        await_told(&site, "mail", "ams-1", "down", round);
        assert_ne!(messenger(&daemon), before);
        far[0].send(Signal::SIGCONT);
        await_told(&site, "mail", "ams-1", "healthy", round + 1);
        a_moment();
        assert_eq!(count(&site, "mail", "ams-1", "down"), round);
        assert_eq!(count(&site, "mail", "ams-1", "healthy"), round + 1);
    }
    assert_eq!(count(&site, "mail", "fra-1", "healthy"), 1);
    assert!(site.read("adit.conf.log").contains("the messenger has ended"));
}

fn all_killed() {
    let site = Site::new();
    let mail = script(&site, "mail");
    notify(&site, &format!("[[notify]]\non = [\"down\", \"healthy\"]\nexec = [\"{mail}\"]\nrepeat = \"0s\"\n"));
    let far = ["ams-1", "fra-1"].map(|name| site.far(name));
    let daemon = site.daemon();
    await_told(&site, "mail", "ams-1", "healthy", 1);
    await_told(&site, "mail", "fra-1", "healthy", 1);
    await_note(&site, "mail");
    // Long enough for states to be on the disk.
    a_moment();
    let end = |daemon: Running| {
        let part = messenger(&daemon);
        signal(part, Signal::SIGKILL);
        daemon.send(Signal::SIGKILL);
        daemon.end();
    };
    end(daemon);
    let daemon = site.daemon();
    let telling = || site.read("adit.conf.log").contains("telling people");
    eventually("a messenger that listens", telling);
    a_moment();
    assert_eq!(messages(&site, "mail").iter().map(|message| message["count"].as_u64().unwrap()).sum::<u64>(), 2);
    // What happens while nobody is there to hear it, and is not in the ring of the next daemon.
    signal(messenger(&daemon), Signal::SIGSTOP);
    far[0].send(Signal::SIGSTOP);
    site.await_state("ams-1", "down");
    a_moment();
    end(daemon);
    let daemon = site.daemon();
    await_told(&site, "mail", "ams-1", "down", 1);
    let last = messages(&site, "mail").pop().unwrap();
    assert_eq!(last["events"][0]["missed"], true, "{last}");
    assert_eq!(last["events"][1]["kind"], "gap", "{last}");
    await_note(&site, "mail");
    end(daemon);
    let _daemon = site.daemon();
    a_moment();
    assert_eq!(count(&site, "mail", "ams-1", "down"), 1);
    assert_eq!(count(&site, "mail", "fra-1", "healthy"), 1);
}

fn storm() {
    let site = Site::new();
    let mail = script(&site, "mail");
    let tunnel = |at: u32| {
        let (far, near) = (std::net::Ipv4Addr::from(0x0a80_0001 + at), std::net::Ipv4Addr::from(0xac10_0000 + 2 * at));
        format!(
            "[[tunnel]]\nname = \"t{at}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"192.0.2.1\"\n\
             remote_endpoint = \"{far}\"\ninterface_address = \"{near}/31\"\n"
        )
    };
    let tunnels: String = (0..200).map(tunnel).collect();
    let rest = format!("{tunnels}[[notify]]\non = [\"down\"]\ntunnels = [\"t*\"]\nexec = [\"{mail}\"]\n");
    notify(&site, &rest);
    let daemon = site.daemon();
    let told = || messages(&site, "mail").iter().map(|message| message["count"].as_u64().unwrap()).sum::<u64>();
    eventually("all of them", || told() >= 200);
    a_moment();
    assert_eq!(told(), 200);
    let messages = messages(&site, "mail");
    assert!(messages.len() <= 20, "{} messages", messages.len());
    assert!(messages.iter().all(|message| message["events"].as_array().unwrap().len() <= 50));
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

fn reloaded() {
    let site = Site::new();
    let (mail, other) = (script(&site, "mail"), script(&site, "other"));
    let (daemon, far) = site.healthy();
    assert_eq!(daemon.part("messenger"), None, "nobody is to be told");
    let sink = |program: &str, name: &str| {
        format!(
            "[[notify]]\nname = \"{name}\"\non = [\"down\", \"healthy\"]\nexec = [\"{program}\"]\nrepeat = \"0s\"\n"
        )
    };
    notify(&site, &sink(&mail, "one"));
    site.say(&["reload"]);
    let first = messenger(&daemon);
    eventually("it listens", || site.read("adit.conf.log").contains("telling people"));
    a_moment();
    assert_eq!(messages(&site, "mail"), Vec::<Value>::new(), "nothing of what was before it");
    far[0].send(Signal::SIGSTOP);
    await_told(&site, "mail", "ams-1", "down", 1);
    // The same sink by another program, and another one beside it.
    notify(&site, &format!("{}{}", sink(&other, "one"), sink(&mail, "two")));
    site.say(&["reload"]);
    far[0].send(Signal::SIGCONT);
    await_told(&site, "other", "ams-1", "healthy", 1);
    await_told(&site, "mail", "ams-1", "healthy", 1);
    assert_eq!(count(&site, "other", "ams-1", "down"), 0);
    assert_eq!(messenger(&daemon), first, "the same messenger");
    site.write("adit.conf", &site.configuration());
    site.say(&["reload"]);
    eventually("the end of the messenger", || daemon.part("messenger").is_none());
    far[0].send(Signal::SIGSTOP);
    site.await_state("ams-1", "down");
    notify(&site, &sink(&mail, "two"));
    site.say(&["reload"]);
    messenger(&daemon);
    a_moment();
    assert_eq!(count(&site, "mail", "ams-1", "down"), 1, "what happened without it does not concern it");
    assert!(!site.read("adit.conf.log").contains("the messenger has ended"));
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

/// A service that answers with one line after the other, and hands on what it was asked.
fn service(
    site: &Site,
    answers: Vec<&'static str>,
    secure: Option<Arc<rustls::ServerConfig>>,
) -> (u16, Receiver<String>) {
    netns::within(Some(&site.pair.near), || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (hand_on, asked) = channel();
        std::thread::spawn(move || {
            let mut answers = answers.into_iter();
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let answer = answers.next().unwrap_or("200 OK");
                let heard = match &secure {
                    None => attend(&mut stream, answer),
                    Some(config) => {
                        let session = rustls::ServerConnection::new(Arc::clone(config)).unwrap();
                        attend(&mut rustls::StreamOwned::new(session, stream), answer)
                    }
                };
                // A client that hangs up before it has asked is none.
                if let Some(heard) = heard
                    && hand_on.send(heard).is_err()
                {
                    return;
                }
            }
        });
        Ok((port, asked))
    })
    .unwrap()
}

/// What was asked; nothing, if the client has hung up before.
fn attend(stream: &mut (impl Read + Write), answer: &str) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?.trim().parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let stream = reader.into_inner();
    let rest = "location: http://127.0.0.1:1/\r\ncontent-length: 6\r\nconnection: close\r\n\r\nheard\n";
    write!(stream, "HTTP/1.1 {answer}\r\n{rest}").ok()?;
    stream.flush().ok()?;
    Some(head + &String::from_utf8(body).ok()?)
}

fn lo_up(site: &Site) {
    adit::io::links::configure(Some(&site.pair.near), "lo", &[]).unwrap();
}

fn webhook() {
    let site = Site::new();
    lo_up(&site);
    let (port, asked) =
        service(&site, vec!["503 Service Unavailable", "429 Too Many Requests", "200 OK", "302 Found"], None);
    site.write("headers", "# for the webhook\nAuthorization: Bearer hunter2\n");
    fs::set_permissions(site.path("headers"), fs::Permissions::from_mode(0o600)).unwrap();
    let rest = format!(
        "[[notify]]\nname = \"hook\"\non = [\"healthy\"]\ntunnels = [\"ams-1\"]\n\
         webhook = \"http://127.0.0.1:{port}/T0/pathsecret\"\nheader_file = \"headers\"\ntimeout = \"5s\"\n\
         [[notify]]\nname = \"nobody\"\non = [\"healthy\"]\nwebhook = \"http://127.0.0.1:1/pathsecret\"\n"
    );
    notify(&site, &rest);
    let (daemon, far) = site.healthy();
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(asked.recv_timeout(crate::kit::PATIENCE).unwrap());
    }
    let request = heard.last().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /T0/pathsecret HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("authorization: bearer hunter2"), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
    let bodies: Vec<Value> =
        heard.iter().map(|text| serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()).collect();
    assert!(bodies.iter().all(|body| body["events"] == bodies[0]["events"]), "{bodies:?}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!([&body["sink"], &body["events"][0]["tunnel"]], ["hook", "ams-1"]);
    // A redirect is an end.
    far[0].send(Signal::SIGSTOP);
    site.await_state("ams-1", "down");
    far[0].send(Signal::SIGCONT);
    site.await_state("ams-1", "healthy");
    let log = || site.read("adit.conf.log");
    // The guard holds it back, unless it is turned off.
    notify(&site, &rest.replace("timeout = \"5s\"", "repeat = \"0s\""));
    site.say(&["reload"]);
    far[0].send(Signal::SIGSTOP);
    site.await_state("ams-1", "down");
    far[0].send(Signal::SIGCONT);
    eventually("a redirect", || log().contains("a redirect is not followed"));
    for words in ["503 Service Unavailable: heard; it is tried again", "http://127.0.0.1:1", "sink=\"nobody\""] {
        assert!(log().contains(words), "{words}: {}", log());
    }
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
    for secret in ["hunter2", "pathsecret"] {
        assert!(!log().contains(secret), "{}", log());
    }
}

/// A certificate for 127.0.0.1, and the one by which it can be trusted.
fn certificates() -> (Arc<rustls::ServerConfig>, String) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let root = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = config.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key.into()).unwrap();
    (Arc::new(config), root.pem())
}

fn tls() {
    let site = Site::new();
    lo_up(&site);
    let (config, root) = certificates();
    site.write("root.pem", &root);
    let (port, asked) = service(&site, Vec::new(), Some(config));
    let rest = format!("[[notify]]\nname = \"hook\"\non = [\"healthy\"]\nwebhook = \"https://127.0.0.1:{port}/\"\n");
    notify(&site, &rest);
    let test = |trusted: &str| {
        let mut command = std::process::Command::new(crate::site::adit());
        command
            .args(["notify", "test", "--config"])
            .arg(site.path("adit.conf"))
            .env("SSL_CERT_FILE", site.path(trusted));
        let output = netns::within(Some(&site.pair.near), || command.output()).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    // The certificate of somebody else.
    site.write("other.pem", &certificates().1);
    let (code, said) = test("other.pem");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no trust"), "{said}");
    assert!(asked.try_recv().is_err(), "it has been told all the same");
    let (code, said) = test("root.pem");
    assert_eq!(code, Some(0), "{said}");
    assert!(asked.recv_timeout(crate::kit::PATIENCE).unwrap().contains("\"kind\":\"test\""));
    // The daemon, too.
    let _far = ["ams-1", "fra-1"].map(|name| site.far(name));
    let mut command = site.command("run", "adit.conf");
    let _daemon = Running::start(&site.pair.near, command.env("SSL_CERT_FILE", site.path("root.pem")));
    let heard = asked.recv_timeout(crate::kit::PATIENCE).unwrap();
    assert!(heard.contains("\"to\":\"healthy\""), "{heard}");
}

fn slo() {
    let site = Site::new();
    let mail = script(&site, "mail");
    notify(&site, &format!("[[notify]]\nslo = \"98%\"\nslo_window = \"5s\"\nexec = [\"{mail}\"]\n"));
    let (daemon, far) = site.healthy();
    far[0].send(Signal::SIGSTOP);
    await_told(&site, "mail", "ams-1", "missed", 1);
    // What is known of it outlives a kill, and nothing is told twice.
    await_note(&site, "mail");
    signal(messenger(&daemon), Signal::SIGKILL);
    std::thread::sleep(ms(12_000));
    let told = events(&site, "mail");
    assert_eq!(told, [("ams-1".to_owned(), "missed".to_owned())]);
    let event = &messages(&site, "mail")[0]["events"][0];
    assert_eq!([&event["kind"], &event["target"]], [&Value::from("slo"), &Value::from(0.98)]);
    assert!(event["short"]["success_ratio"].as_f64().unwrap() < 0.98, "{event}");
}

fn drained() {
    let site = Site::new();
    let mail = script(&site, "mail");
    notify(&site, &format!("[[notify]]\non = [\"down\"]\nexec = [\"{mail}\"]\n"));
    let (daemon, far) = site.healthy();
    site.say(&["drain", "ams-1"]);
    far.iter().for_each(|far| far.send(Signal::SIGSTOP));
    await_told(&site, "mail", "fra-1", "down", 1);
    site.await_state("ams-1", "down");
    a_moment();
    assert_eq!(count(&site, "mail", "ams-1", "down"), 0);
    site.say(&["undrain", "ams-1"]);
    await_told(&site, "mail", "ams-1", "down", 1);
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

fn test_message() {
    let site = Site::new();
    let mail = script(&site, "mail");
    program(&site, "bad", "#!/bin/sh\necho 'no mail \u{1b}[2J server' >&2\nexit 3\n");
    let bad = site.path("bad").display().to_string();
    let missing = site.path("missing").display().to_string();
    let rest = format!(
        "[[notify]]\non = [\"down\"]\nexec = [\"{mail}\"]\n[[notify]]\non = [\"down\"]\nexec = [\"{bad}\"]\n\
         [[notify]]\nslo = \"98%\"\nexec = [\"{missing}\"]\n"
    );
    notify(&site, &rest);
    let config = site.path("adit.conf").display().to_string();
    let test = |rest: &[&str]| {
        let output = site.adit(&[&["notify", "test", "--config", &config], rest].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = test(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("told: done"), "{said}");
    assert!(said.contains(r"not told: ended with exit status: 3: no mail \u{1b}[2J server"), "{said}");
    assert!(said.contains("not told: cannot be run: No such file or directory"), "{said}");
    let message = messages(&site, "mail").pop().unwrap();
    assert_eq!([&message["events"][0]["kind"], &message["sink"]], ["test", "mail"]);
    assert_eq!(test(&["mail"]).0, Some(0));
    // As under the daemon, though root tries it.
    program(
        &site,
        "mail",
        &format!("#!/bin/sh\ngrep -E '^(CapEff|NoNewPrivs)' /proc/self/status >{}\n", site.path("had").display()),
    );
    assert_eq!(test(&["mail"]).0, Some(0));
    assert_eq!(site.read("had"), "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n");
    let (code, said) = test(&["maill"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no [[notify]] is called maill; did you mean mail?"), "{said}");
    // And before that, adit check says that it would not run.
    let output = site.adit(&["check", "--config", &config]);
    assert!(output.status.success());
    let hints = String::from_utf8(output.stderr).unwrap();
    assert!(hints.contains("\"missing\"") && hints.contains("is not there"), "{hints}");
}
