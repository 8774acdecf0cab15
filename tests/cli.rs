//! The built program as a person uses it: what it says, and how it ends.
//!
//! What needs a running daemon is in `tests/netns/commands.rs`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::CommandFactory;
use serde_json::Value;
use tempfile::TempDir;

const ADIT: &str = env!("CARGO_BIN_EXE_adit");
/// A user without any right.
const NOBODY: u32 = 65_534;

const GOOD: &str = r#"
[[tunnel]]
name = "ams-1"
encapsulation = "gre"
local_endpoint = "198.51.100.1"
remote_endpoint = "203.0.113.10"
interface_address = "10.100.0.8/31"

[[route]]
prefix = "10.20.0.0/16"
tunnel = "ams-1"
priority = 100
"#;

/// The program, with nothing of the environment that could change what it says.
fn adit() -> Command {
    plain(ADIT.as_ref())
}

fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    ["ADIT_SOCKET", "NO_COLOR", "RUST_LOG", "RUST_BACKTRACE", "COLUMNS"].iter().for_each(|name| {
        command.env_remove(name);
    });
    command.stdin(Stdio::null());
    command
}

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn by(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        Self { code: status.code(), out: String::from_utf8(stdout).unwrap(), err: String::from_utf8(stderr).unwrap() }
    }

    /// Nothing but good news.
    fn good(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// Nothing but this end and these words.
    fn bad(self, code: i32, words: &[&str]) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        words.iter().for_each(|word| assert!(self.err.contains(word), "{word:?} is not in {:?}", self.err));
        self.err
    }
}

fn say(arguments: &[&str]) -> Said {
    Said::by(adit().args(arguments))
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path as text.
    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The program run by a user without rights; whoever is none already becomes one. Where it was
    /// built may be closed to others, so a copy of it is taken.
    fn as_nobody(&self) -> Command {
        if !nix::unistd::geteuid().is_root() {
            return adit();
        }
        let copy = self.path("adit");
        if !copy.exists() {
            // By another program: a file that this one has open for writing is open in every child
            // that another test is about to start, and cannot be run (ETXTBSY).
            assert!(Command::new("cp").arg(ADIT).arg(&copy).status().unwrap().success());
        }
        let mut command = plain(&copy);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        command
    }
}

#[test]
fn check_says_that_a_good_file_is_good() {
    let folder = Folder::new();
    let file = folder.file("good.toml", GOOD);
    assert_eq!(say(&["check", "--config", &file]).good(), format!("{file}: good: 1 tunnels, 1 routes\n"));
}

#[test]
fn check_tells_every_problem_with_its_place() {
    let folder = Folder::new();
    let file = folder.file("bad.toml", &GOOD.replace("gre", "grey").replace("priority = 100", "priority = 0\nvia = 7"));
    let said = say(&["check", "--config", &file]).bad(78, &["encapsulation = \"gre\"", "priority", "via"]);
    for place in ["4:17", "12:12", "13:7"] {
        assert!(said.lines().any(|line| line.contains(&format!("{file}:{place}: "))), "{place}: {said}");
    }
    let unknown = folder.file("unknown.toml", &GOOD.replace("remote_endpoint", "remote_endpiont"));
    say(&["check", "--config", &unknown]).bad(78, &[&format!("{unknown}:6:1: "), "remote_endpoint"]);
    let broken = folder.file("broken.toml", "[[tunnel]\n");
    say(&["check", "--config", &broken]).bad(78, &[&format!("{broken}:1:"), "not TOML"]);
    let missing = folder.path("missing.toml");
    let missing = missing.to_str().unwrap();
    say(&["check", "--config", missing]).bad(78, &[missing, "--config"]);
}

#[test]
fn the_effective_configuration_is_whole_and_reads_back() {
    let folder = Folder::new();
    let file = folder.file("good.toml", GOOD);
    let whole = say(&["check", "--effective", "--config", &file]).good();
    for default in ["ttl = 64", "rate = \"mid\"", "timeout = \"500ms\"", "weight = 1", "type = \"request\""] {
        assert!(whole.contains(default), "{default} is not in\n{whole}");
    }
    let again = folder.file("whole.toml", &whole);
    assert_eq!(say(&["check", "--effective", "--config", &again]).good(), whole);
}

#[test]
fn check_reads_key_files_and_never_shows_a_key() {
    let folder = Folder::new();
    let keys = ["0f1e2d3c", "4b5a6978"].map(|word| word.repeat(16));
    for (name, key) in ["out", "in"].iter().zip(&keys) {
        folder.file(name, key);
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let esp = "[tunnel.esp]\nkeys = \"static\"\nspi_out = 0x1001\nspi_in = 0x2001\n\
               algorithm = \"aes256-cbc-hmac-sha256\"\nkey_out_file = \"out\"\nkey_in_file = \"in\"\n";
    let text = GOOD.replace("gre", "esp").replace("[[route]]", &format!("{esp}[[route]]"));
    let file = folder.file("esp.toml", &text);
    assert_eq!(say(&["check", "--config", &file]).good(), format!("{file}: good: 1 tunnels, 1 routes\n"));
    let whole = say(&["check", "--effective", "--config", &file]).good();
    for line in
        ["keys = \"static\"", "spi_out = 0x1001", "esn = true", "replay_window = 64", "udp_encapsulation = false"]
    {
        assert!(whole.contains(line), "{line} is not in\n{whole}");
    }
    let again = folder.file("whole.toml", &whole);
    assert_eq!(say(&["check", "--effective", "--config", &again]).good(), whole);
    folder.file("in", &keys[0]);
    let equal = say(&["check", "--config", &file]).bad(78, &[&format!("{file}:15:15: "), "same key"]);
    fs::set_permissions(folder.path("out"), fs::Permissions::from_mode(0o644)).unwrap();
    let open = say(&["check", "--config", &file]).bad(78, &[&format!("{file}:14:16: "), "mode 0644", "chmod 0600"]);
    for said in [whole, equal, open] {
        assert!(!said.contains("0f1e2d3c") && !said.contains("4b5a6978"), "{said}");
    }
}

#[test]
fn check_knows_a_far_end() {
    let folder = Folder::new();
    let tunnel = GOOD.split("[[route]]").next().unwrap();
    let file = folder.file("far.toml", &format!("{tunnel}[[fault]]\ntunnel = \"ams-1\"\ndrop = \"30%\"\n"));
    assert_eq!(say(&["check", "--reflect", "--config", &file]).good(), format!("{file}: good: 1 tunnels, 1 faults\n"));
    say(&["check", "--config", &file]).bad(78, &["adit reflect"]);
    say(&["reflect", "--config", &folder.file("good.toml", GOOD)]).bad(78, &["adit run"]);
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    say(&["statsu"]).bad(2, &["statsu", "status"]);
    say(&[]).bad(2, &["Usage"]);
    say(&["status", "--jsn"]).bad(2, &["--json"]);
    say(&["explain"]).bad(2, &["TUNNEL"]);
    say(&["events", "--since", "soon"]).bad(2, &["--since"]);
    say(&["routes", "get", "10.20.0.0/16"]).bad(2, &["10.20.0.0/16"]);
    say(&["demo", "--json", "--plain"]).bad(2, &["--plain"]);
    say(&["reflect"]).bad(2, &["--config"]);
    assert_eq!(say(&["--version"]).good(), format!("adit {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn without_a_daemon_each_command_says_how_to_start_one() {
    let folder = Folder::new();
    let socket = folder.path("adit.sock");
    let socket = socket.to_str().unwrap();
    let remedy = [socket, "adit run", "--socket"];
    let commands = [
        &["status"][..],
        &["status", "ams-1"],
        &["explain", "ams-1"],
        &["routes"],
        &["routes", "get", "::1"],
        &["endpoints"],
        &["endpoints", "erp"],
        &["events"],
        &["events", "--follow"],
        &["drain", "ams-1"],
        &["undrain", "ams-1"],
    ];
    for command in commands {
        Said::by(adit().args(["--socket", socket]).args(command)).bad(69, &remedy);
    }
    Said::by(adit().env("ADIT_SOCKET", socket).arg("status")).bad(69, &remedy);
    // One that was left behind by a daemon that was killed.
    drop(UnixListener::bind(socket).unwrap());
    Said::by(adit().args(["--socket", socket, "status"])).bad(69, &remedy);
}

#[test]
fn what_is_no_daemon_is_not_waited_for() {
    let folder = Folder::new();
    let socket = folder.path("adit.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for answer in [None, Some("220 smtp.example.org ESMTP\r\n"), Some("")] {
            let (mut stream, _) = listener.accept().unwrap();
            match answer {
                // Takes the call and never says anything.
                Some("") => kept.push(stream),
                Some(words) => stream.write_all(words.as_bytes()).unwrap(),
                None => drop(stream),
            }
        }
        std::thread::park();
    });
    for _ in 0..3 {
        Said::by(adit().arg("--socket").arg(&socket).arg("status")).bad(69, &["the daemon"]);
    }
}

#[test]
fn a_closed_socket_names_the_group() {
    let folder = Folder::new();
    let socket = folder.path("adit.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o000)).unwrap();
    let said = Said::by(folder.as_nobody().arg("--socket").arg(&socket).arg("status"));
    said.bad(77, &[socket.to_str().unwrap(), "socket_group"]);
}

/// Where a user without rights may write.
fn common(folder: &Folder) -> PathBuf {
    let common = folder.path("common");
    fs::create_dir(&common).unwrap();
    fs::set_permissions(&common, fs::Permissions::from_mode(0o777)).unwrap();
    common
}

#[test]
fn run_and_reflect_name_the_capability_that_is_missing() {
    let folder = Folder::new();
    let socket = common(&folder).join("adit.sock");
    let file = folder.file("adit.conf", &format!("[daemon]\nsocket = {socket:?}\n{GOOD}"));
    Said::by(folder.as_nobody().args(["run", "--config", &file])).bad(77, &["CAP_NET_RAW"]);
    assert!(!socket.exists(), "it has cleaned up behind itself");
    let far = folder.file("far.toml", GOOD.split("[[route]]").next().unwrap());
    Said::by(folder.as_nobody().args(["reflect", "--config", &far])).bad(77, &["CAP_NET_RAW"]);
}

#[test]
fn a_bad_configuration_starts_nothing() {
    let folder = Folder::new();
    let socket = folder.path("adit.sock");
    let file = folder.file("adit.conf", &format!("[daemon]\nsocket = {socket:?}\nsoket = 1\n{GOOD}"));
    say(&["run", "--config", &file]).bad(78, &[&format!("{file}:3:1: "), "socket"]);
    assert!(!socket.exists());
}

const SAMPLES: &str = r#"{"t": 0, "ok": true}
{"t": 0.5, "ok": true}
{"t": 1, "ok": true}
{"t": 2, "inconclusive": true}
{"t": 10, "ok": false}
{"t": 10.5, "ok": false}
{"t": 10.6, "ok": false}
"#;

const TRANSITIONS: [&str; 3] = [
    r#"{"t":1,"tunnel":"tunnel","from":"unknown","to":"healthy","rule":5,"penalty":0}"#,
    r#"{"t":10.5,"tunnel":"tunnel","from":"healthy","to":"degraded","rule":3,"penalty":500000}"#,
    r#"{"t":10.6,"tunnel":"tunnel","from":"degraded","to":"down","rule":1,"penalty":1000000}"#,
];

#[test]
fn replay_prints_transitions() {
    let folder = Folder::new();
    let file = folder.file("samples.jsonl", SAMPLES);
    assert_eq!(say(&["replay", "--json", &file]).good().lines().collect::<Vec<_>>(), TRANSITIONS);
    let text = say(&["replay", &file]).good();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("10.6 s  tunnel: degraded -> down; ") && text.ends_with("penalty 1 000 000\n"), "{text}");

    let mut child =
        adit().args(["replay", "--json", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(SAMPLES.as_bytes()).unwrap();
    let Output { status, stdout, .. } = child.wait_with_output().unwrap();
    assert!(status.success());
    assert_eq!(String::from_utf8(stdout).unwrap().lines().collect::<Vec<_>>(), TRANSITIONS);
}

#[test]
fn replay_starts_in_the_state_it_is_told() {
    let folder = Folder::new();
    let file =
        folder.file("samples.jsonl", "{\"t\": 0, \"ok\": true}\n{\"t\": 1, \"ok\": true}\n{\"t\": 2, \"ok\": true}\n");
    let from = |state| say(&["replay", "--json", "--initial", state, &file]).good();
    assert_eq!(from("unknown"), TRANSITIONS[0].replace("\"t\":1", "\"t\":2") + "\n");
    assert_eq!(from("healthy"), "");
    assert_eq!(
        from("down"),
        r#"{"t":2,"tunnel":"tunnel","from":"down","to":"degraded","rule":2,"penalty":500000}"#.to_owned() + "\n"
    );
    say(&["replay", "--initial", "sick", &file]).bad(2, &["sick", "healthy"]);
}

#[test]
fn replay_takes_the_rules_of_a_configuration() {
    let folder = Folder::new();
    let rules = format!("{GOOD}[defaults.health_check.rules]\ndown_min_samples = 2\n");
    let config = folder.file("adit.conf", &rules);
    let samples: Vec<_> = SAMPLES.lines().map(|line| line.replace('}', ", \"tunnel\": \"ams-1\"}")).collect();
    let file = folder.file("samples.jsonl", &samples.join("\n"));
    let out = say(&["replay", "--json", "--config", &config, &file]).good();
    let last = out.lines().last().unwrap();
    assert!(last.contains("\"t\":10.5,\"tunnel\":\"ams-1\",\"from\":\"healthy\",\"to\":\"down\""), "{out}");
    let wrong = folder.file("wrong.conf", &rules.replace("= 2", "= 0"));
    say(&["replay", "--config", &wrong, &file]).bad(78, &[&wrong, "down_min_samples"]);
}

/// Once for each name; a line without a name names none that could be wrong.
#[test]
fn replay_says_which_tunnels_a_configuration_does_not_know() {
    let folder = Folder::new();
    let config = folder.file("adit.conf", &format!("{GOOD}[defaults.health_check.rules]\ndown_min_samples = 2\n"));
    let named =
        |name: &str| SAMPLES.lines().map(|line| line.replace('}', &format!(", \"tunnel\": {name:?}}}\n"))).collect();
    for (samples, warnings) in [
        (SAMPLES.to_owned(), &[][..]),
        (named("ams-1"), &[]),
        (named("asm-1"), &["no tunnel \"asm-1\"", "did you mean ams-1?"]),
        (named("elsewhere"), &["no tunnel \"elsewhere\""]),
    ] {
        let file = folder.file("samples.jsonl", &samples);
        let said = say(&["replay", "--json", "--config", &config, &file]);
        assert_eq!(said.code, Some(0));
        let last = said.out.lines().last().unwrap();
        assert!(last.contains("\"t\":10.5,") && last.contains("\"to\":\"down\""), "by its defaults: {}", said.out);
        assert_eq!(said.err.lines().count(), usize::from(!warnings.is_empty()), "{}", said.err);
        warnings.iter().for_each(|word| assert!(said.err.contains(word), "{word:?} is not in {:?}", said.err));
        assert!(warnings.is_empty() || said.err.starts_with(&format!("adit: {file}:1: ")), "{}", said.err);
        assert_eq!(warnings.len() == 2, said.err.contains("did you mean"), "{}", said.err);
    }
}

#[test]
fn replay_says_where_a_recording_has_a_gap() {
    let folder = Folder::new();
    let mut lines: Vec<_> = SAMPLES.lines().collect();
    lines.insert(4, r#"{"kind":"gap","missed":7}"#);
    let file = folder.file("samples.jsonl", &lines.join("\n"));
    let said = say(&["replay", "--json", &file]);
    assert_eq!((said.code, said.out.lines().collect::<Vec<_>>()), (Some(0), TRANSITIONS.to_vec()));
    assert!(said.err.starts_with(&format!("adit: {file}:5: ")), "{}", said.err);
    assert!(said.err.contains("missing") && said.err.contains("--initial"), "{}", said.err);
}

#[test]
fn replay_forgets_a_tunnel_that_could_not_be_probed() {
    let folder = Folder::new();
    let failed = |t: f64| format!("{{\"t\": {t}, \"ok\": false, \"tunnel\": \"a\"}}\n");
    let obstacle = "{\"kind\": \"obstacle\", \"tunnel\": \"a\", \"reason\": \"no-keys\"}\n";
    let replay = |lines: String| say(&["replay", "--json", &folder.file("samples.jsonl", &lines)]).good();
    assert!(replay([0.1, 0.2, 0.3].map(failed).concat()).contains("\"to\":\"down\""));
    let between = [failed(0.1), failed(0.2), obstacle.to_owned(), failed(0.3), failed(0.4)].concat();
    assert_eq!(replay(between), "", "two before and two after are no three");
    let from_the_start = [obstacle.to_owned(), failed(0.1), failed(0.2), failed(0.3)].concat();
    let file = folder.file("samples.jsonl", &from_the_start);
    let replayed = say(&["replay", "--json", "--initial", "healthy", &file]).good();
    assert!(replayed.starts_with("{\"t\":0.3,\"tunnel\":\"a\",\"from\":\"unknown\",\"to\":\"down\""), "{replayed}");
}

#[test]
fn replay_ends_at_a_malformed_line_unless_it_is_lenient() {
    let folder = Folder::new();
    for (line, words) in [
        ("{\"t\": 0.7, \"ok\": tru", "JSON"),
        ("{\"ok\": true}", "\"t\""),
        ("{\"t\": 0.7}", "\"ok\""),
        ("{\"t\": -1, \"ok\": true}", "-1"),
        ("{\"t\": 0.1, \"ok\": true}", "goes back"),
    ] {
        let mut lines: Vec<_> = SAMPLES.lines().collect();
        lines.insert(2, line);
        let file = folder.file("samples.jsonl", &lines.join("\n"));
        say(&["replay", "--json", &file]).bad(78, &[&format!("{file}:3: "), words, "--lenient"]);
        let lenient = say(&["replay", "--json", "--lenient", &file]);
        assert_eq!((lenient.code, lenient.err.as_str()), (Some(0), "adit: 1 malformed lines skipped\n"), "{line}");
        assert_eq!(lenient.out.lines().collect::<Vec<_>>(), TRANSITIONS);
    }
    let missing = folder.path("missing");
    say(&["replay", missing.to_str().unwrap()]).bad(78, &["missing"]);
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = say(&["completions", shell]).good();
        for command in adit::cli::args::Args::command().get_subcommands() {
            assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
        }
        let mut check = Command::new(shell);
        let check = check.arg("-n").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        // A shell that is not installed cannot say whether it would understand.
        if let Ok(mut check) = check {
            check.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            let Output { status, stderr, .. } = check.wait_with_output().unwrap();
            assert!(status.success(), "{shell}: {}", String::from_utf8_lossy(&stderr));
        }
    }
    say(&["completions", "cmd"]).bad(2, &["cmd", "bash"]);
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let page = say(&["man"]).good();
    assert!(page.contains(".TH adit 1") && page.contains("Exit codes"), "{page}");
    let folder = Folder::new();
    let pages = folder.path("made/by/man");
    assert_eq!(say(&["man", "--dir", pages.to_str().unwrap()]).good(), "");
    for command in adit::cli::args::Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let page = fs::read_to_string(pages.join(format!("adit-{}.1", command.get_name()))).unwrap();
        assert!(page.contains(&format!(".TH adit-{}", command.get_name())), "{}", command.get_name());
    }
    let file = folder.file("file", "");
    say(&["man", "--dir", &file]).bad(74, &["file"]);
}

#[test]
fn help_mentions_every_option() {
    fn each(path: &[&str], command: &clap::Command) {
        let help = say(&[path, &["--help"]].concat()).good();
        assert!(help.contains("Usage: adit"), "{help}");
        for argument in command.get_arguments() {
            let name = match argument.get_long() {
                Some(long) => format!("--{long}"),
                None => argument.get_value_names().unwrap()[0].to_string(),
            };
            assert!(help.contains(&name), "{name} is not in the help of adit {}:\n{help}", path.join(" "));
            assert!(argument.get_help().is_some(), "{name} of adit {} is not explained", path.join(" "));
        }
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set()) {
            assert!(help.contains(inner.get_name()), "{help}");
            each(&[path, &[inner.get_name()]].concat(), inner);
        }
    }
    each(&[], &adit::cli::args::Args::command());
    let help = say(&["--help"]).good();
    for code in ["0 ", "1 ", "2 ", "69", "77", "78"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(code)), "exit code {code} is not explained");
    }
}

/// As in `adit … | head -0`.
#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let folder = Folder::new();
    let good = folder.file("good.toml", GOOD);
    let flapping: String = (0..20_000).map(|at| format!("{{\"t\": {}, \"ok\": {}}}\n", at, at / 3 % 2 == 0)).collect();
    let rules = "[defaults.health_check]\ninterval = \"1s\"\ndown_window = \"10s\"\n";
    let config = folder.file("rules.toml", rules);
    let samples = folder.file("samples.jsonl", &flapping);
    let commands = [
        &["completions", "bash"][..],
        &["man"],
        &["check", "--effective", "--config", &good],
        &["check", "--config", &good],
        &["replay", "--json", &samples],
        &["replay", "--config", &config, &samples],
        &["--help"],
        &["--version"],
    ];
    for arguments in commands {
        let mut child = adit().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "adit {}", arguments.join(" "));
    }
}

/// A daemon that says this to every question.
fn daemon_that_says(socket: &Path, body: String) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.get_mut().write_all((head + &body).as_bytes()).unwrap();
        }
    });
}

/// As in `adit status ams-1 | head -0`: a script that tests the exit code must hear of it.
#[test]
fn a_reader_who_has_seen_enough_changes_no_verdict() {
    let folder = Folder::new();
    for (name, body, arguments, code) in [
        ("down", r#"{"name":"ams-1","checked":true,"state":"down"}"#, &["status", "ams-1"][..], 1),
        ("json", r#"{"name":"ams-1","checked":true,"state":"down"}"#, &["status", "ams-1", "--json"], 1),
        ("watched", r#"{"name":"ams-1","checked":true,"state":"down"}"#, &["status", "ams-1", "--watch"], 1),
        ("healthy", r#"{"name":"ams-1","checked":true,"state":"healthy"}"#, &["status", "ams-1"], 0),
        ("unreachable", r#"{"name":"erp","state":"unreachable"}"#, &["endpoints", "erp"], 1),
        ("nowhere", r#"{"routes":[]}"#, &["routes", "get", "192.0.2.1"], 1),
    ] {
        let socket = folder.path(name);
        daemon_that_says(&socket, body.to_owned());
        let mut child = adit();
        child.arg("--socket").arg(&socket).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(code), ""), "{name}");
    }
}

#[test]
fn a_closed_place_for_complaints_changes_no_exit_code() {
    let folder = Folder::new();
    let socket = folder.path("adit.sock");
    let file = folder.file("samples.jsonl", "nonsense\n");
    let commands: [(&[&str], i32); 4] = [
        (&["--socket", socket.to_str().unwrap(), "status"], 69),
        (&["check", "--config", "/nonexistent"], 78),
        (&["replay", "--lenient", &file], 0),
        (&["nonsense"], 2),
    ];
    for (arguments, code) in commands {
        let mut child = adit().args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "adit {}", arguments.join(" "));
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let folder = Folder::new();
    let good = folder.file("good.toml", GOOD);
    let samples = folder.file("samples.jsonl", SAMPLES);
    for arguments in [
        &["completions", "zsh"][..],
        &["man"],
        &["check", "--config", &good],
        &["check", "--effective", "--config", &good],
        &["replay", "--json", &samples],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = adit().args(arguments).stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(74), "adit {}: {said}", arguments.join(" "));
        assert!(said.contains("No space left"), "{said}");
    }
}

#[test]
fn colours_are_for_terminals_only() {
    let folder = Folder::new();
    let file = folder.file("samples.jsonl", SAMPLES);
    let bad = folder.file("bad.toml", "x = 1\n");
    for arguments in
        [&["replay", &file][..], &["--help"], &["status", "--help"], &["nonsense"], &["check", "--config", &bad]]
    {
        for no_color in [false, true] {
            let mut command = adit();
            if no_color {
                command.env("NO_COLOR", "1");
            }
            let said = Said::by(command.args(arguments).env("TERM", "xterm-256color"));
            assert!(!said.out.contains('\x1b') && !said.err.contains('\x1b'), "adit {}", arguments.join(" "));
        }
    }
}

/// What of the machine's network a demo might have left behind.
fn network() -> (String, Vec<PathBuf>) {
    let devices = fs::read_to_string("/proc/self/net/dev").unwrap();
    let names = devices.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    let named = fs::read_dir("/run/netns").into_iter().flatten().map(|entry| entry.unwrap().path());
    // Others may be at work on this machine, too.
    let ours = named.filter(|path| path.to_string_lossy().contains("adit"));
    (names.collect::<Vec<_>>().join(" "), ours.collect())
}

fn shows_everything(mut demo: Command, json: bool) {
    let before = network();
    let mut child = demo
        .args(["demo", "--seconds", "8", if json { "--json" } else { "--plain" }])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    let out = lines.join("\n");
    if status.code() == Some(77) && std::env::var_os("ADIT_REQUIRE_NETNS").is_none() {
        eprintln!("skipped: {said}");
        return;
    }
    assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{out}");
    assert!(!out.contains('\x1b'), "{out}");
    if json {
        let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = lines.last().unwrap();
        assert_eq!(
            (&last["kind"], &last["ok"], &last["missing"]),
            (&"result".into(), &true.into(), &Value::Array(vec![]))
        );
        for time in ["detection_ms", "failover_ms", "alive_ms", "failback_ms"] {
            assert!(last[time].is_u64(), "{time}: {last}");
        }
        let phases: Vec<_> = lines.iter().filter(|line| line["kind"] == "phase").map(|line| &line["phase"]).collect();
        assert_eq!(phases, ["start", "break", "heal"]);
    } else {
        for words in ["Compressed in time", "amsterdam", "-> down", "traffic moves from amsterdam to frankfurt"] {
            assert!(out.contains(words), "{words:?} is not in\n{out}");
        }
        assert!(out.ends_with("Everything that should happen was seen."), "{out}");
    }
    assert_eq!(network(), before, "something was left behind");
}

#[test]
fn the_demo_as_json() {
    shows_everything(adit(), true);
}

#[test]
fn the_demo_in_plain_lines() {
    shows_everything(adit(), false);
}

/// As in `adit demo --json | head -1`: that nobody reads on is no reason to say that all was seen.
#[test]
fn the_demo_verifies_even_if_nobody_reads_on() {
    let uptime = || fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse::<f64>().unwrap();
    let start = uptime();
    let mut child = adit()
        .args(["demo", "--seconds", "8", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    if status.code() == Some(77) && std::env::var_os("ADIT_REQUIRE_NETNS").is_none() {
        eprintln!("skipped: {said}");
        return;
    }
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    assert!(uptime() - start > 4.0, "the way back alone takes longer");
}

#[test]
fn the_demo_of_an_ordinary_user() {
    let folder = Folder::new();
    shows_everything(folder.as_nobody(), true);
}

/// Later lines of the filter change earlier ones: the socket is given to its group by chown(2).
#[test]
fn the_unit_lets_the_socket_be_given_to_its_group() {
    let unit = fs::read_to_string("systemd/adit.service").unwrap();
    let filters: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
    let [allowed, denied, given_back, walls, nicer] = filters[..] else { panic!("{filters:?}") };
    assert_eq!((allowed, given_back), ("@system-service", "@chown"));
    assert_eq!(nicer, "setpriority", "threads that answer clients give way to the loop");
    assert!(["capset", "seccomp", "landlock_restrict_self"].iter().all(|call| walls.contains(call)), "{walls}");
    assert!(denied.starts_with('~') && denied.contains("@privileged"), "{denied}");
    let folder = Folder::new();
    let file = folder.file("adit.service", &unit);
    let analyze =
        Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=20", &file]).output();
    // Where there is no systemd, nobody can say how exposed its service would be.
    if let Ok(Output { status, stdout, .. }) = analyze {
        assert!(status.success(), "{}", String::from_utf8_lossy(&stdout));
    }
}
