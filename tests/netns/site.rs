//! A place for the built program: a daemon in the near namespace, far ends in the other, its files, and
//! the commands that a person types.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use adit::io::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::kit::{Pair, eventually, holds_within};

/// The program under test: cargo's, or the one that `ADIT_BIN` names, because an ordinary user may
/// not be able to read the folder that cargo builds in.
pub(crate) fn adit() -> PathBuf {
    std::env::var_os("ADIT_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_adit")), PathBuf::from)
}

/// A child that does not outlive its trial.
pub(crate) struct Running {
    pub(crate) child: Child,
}

impl Running {
    pub(crate) fn start(namespace: &File, command: &mut Command) -> Self {
        // A child is born into the namespace of the thread that makes it.
        Self { child: netns::within(Some(namespace), || command.spawn()).unwrap() }
    }

    /// Sends a signal to the process that was started: of a daemon, the steward.
    pub(crate) fn send(&self, signal: Signal) {
        kill(pid(self.child.id()), signal).unwrap();
    }

    /// Sends a signal to the daemon's prober.
    pub(crate) fn send_prober(&self, signal: Signal) {
        kill(pid(self.prober()), signal).unwrap();
    }

    /// Of the daemon: the process of its prober, when it has one that probes.
    pub(crate) fn prober(&self) -> u32 {
        let mut found = None;
        eventually("a prober", || {
            found = self.part("prober");
            found.is_some()
        });
        found.unwrap()
    }

    /// Of the daemon: the process of one of its parts, if there is one.
    pub(crate) fn part(&self, name: &str) -> Option<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let children = tasks.flatten().flat_map(|task| fs::read_to_string(task.path().join("children")));
        let children = children.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let is_it = |id: &String| {
            fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| line == format!("adit\0{name}\0").as_bytes())
        };
        children.filter(is_it).find_map(|id| id.parse().ok())
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.wait()
    }

    /// The same, and keeps what is left of it.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the end of a child", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.try_into().unwrap())
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A place for one daemon: two namespaces, its files, its socket.
pub(crate) struct Site {
    pub(crate) pair: Pair,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) const TUNNELS: [&str; 2] = ["ams-1", "fra-1"];

impl Site {
    /// Two tunnels, the second as a backup of the first.
    pub(crate) fn new() -> Self {
        let site = Self { pair: Pair::new(), folder: tempfile::tempdir().unwrap() };
        site.write("adit.conf", &site.configuration());
        for (at, name) in TUNNELS.iter().enumerate() {
            site.write(
                &format!("{name}.far"),
                &format!(
                    "[[tunnel]]\nname = \"{name}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"192.0.2.1{}\"\n\
                     remote_endpoint = \"192.0.2.1\"\ninterface_address = \"10.100.0.{}/31\"\n",
                    at + 1,
                    2 * at + 9
                ),
            );
        }
        site
    }

    pub(crate) fn configuration(&self) -> String {
        let tunnel = |at: usize, name: &&str| {
            format!(
                "[[tunnel]]\nname = \"{name}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"192.0.2.1\"\n\
                 remote_endpoint = \"192.0.2.1{}\"\ninterface_address = \"10.100.0.{}/31\"\n\
                 [[route]]\nprefix = \"10.20.0.0/16\"\ntunnel = \"{name}\"\npriority = {}\n",
                at + 1,
                2 * at + 8,
                100 * (at + 1)
            )
        };
        let tunnels: String = TUNNELS.iter().enumerate().map(|(at, name)| tunnel(at, name)).collect();
        format!(
            "[daemon]\nsocket = \"adit.sock\"\nstate_dir = \"state\"\nrecord = \"record.jsonl\"\n\
             [defaults.health_check]\ninterval = \"100ms\"\ntimeout = \"400ms\"\ndown_window = \"900ms\"\n\
             [defaults.health_check.rules]\ndegraded_window = \"4s\"\nrecovery_samples = 10\n{tunnels}"
        )
    }

    /// Tunnels that wait long for an answer: for trials in which none may be called sick.
    pub(crate) fn make_patient(&self) {
        let text = self.configuration().replace("\"400ms\"", "\"5s\"").replace("\"900ms\"", "\"12s\"");
        self.write("adit.conf", &text.replace("degraded_window = \"4s\"\n", ""));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn command(&self, name: &str, config: &str) -> Command {
        let mut command = Command::new(adit());
        let log = File::create(self.path(&format!("{config}.log"))).unwrap();
        command.arg(name).arg("--config").arg(self.path(config)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    /// Starts the daemon, and waits until it answers.
    pub(crate) fn daemon(&self) -> Running {
        let mut daemon = Running::start(&self.pair.near, &mut self.command("run", "adit.conf"));
        let answers = holds_within(crate::kit::PATIENCE, &mut || {
            assert!(daemon.child.try_wait().unwrap().is_none(), "it ended: {}", self.read("adit.conf.log"));
            self.adit(&["status"]).status.success()
        });
        assert!(answers, "{}", self.read("adit.conf.log"));
        daemon
    }

    /// Starts the far end of a tunnel, and waits until it hears.
    pub(crate) fn far(&self, name: &str) -> Running {
        let config = format!("{name}.far");
        let far = Running::start(&self.pair.far, &mut self.command("reflect", &config));
        eventually("a reflector at work", || self.read(&format!("{config}.log")).contains("reflecting"));
        far
    }

    /// A daemon and far ends with every tunnel healthy.
    pub(crate) fn healthy(&self) -> (Running, [Running; 2]) {
        let far = TUNNELS.map(|name| self.far(name));
        let daemon = self.daemon();
        TUNNELS.iter().for_each(|name| self.await_state(name, "healthy"));
        (daemon, far)
    }

    /// Asks the daemon, as a person does.
    pub(crate) fn adit(&self, arguments: &[&str]) -> Output {
        Command::new(adit()).arg("--socket").arg(self.path("adit.sock")).args(arguments).output().unwrap()
    }

    /// What it answers, which must be good.
    pub(crate) fn say(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.adit(arguments);
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "adit {}: {status}: {stderr}", arguments.join(" "));
        assert_eq!(stderr, "", "adit {}", arguments.join(" "));
        String::from_utf8(stdout).unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.say(arguments)).unwrap()
    }

    pub(crate) fn state(&self, name: &str) -> String {
        let Output { stdout, .. } = self.adit(&["status", name, "--json"]);
        let view: Value = serde_json::from_slice(&stdout).unwrap_or_default();
        view["state"].as_str().unwrap_or("no answer").to_owned()
    }

    pub(crate) fn await_state(&self, name: &str, state: &str) {
        let mut last = String::new();
        let found = holds_within(crate::kit::PATIENCE, &mut || {
            last = self.state(name);
            last == state
        });
        assert!(found, "{name} is {last}, not {state}: {}", self.read("adit.conf.log"));
    }

    /// The transitions that the daemon tells of.
    pub(crate) fn transitions(&self) -> Vec<Value> {
        let lines = self.say(&["events", "--json"]);
        let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["kind"] == "transition").collect()
    }

    /// One request over the socket, as `curl --unix-socket` makes it: status, headers, body.
    pub(crate) fn http(&self, method: &str, path: &str) -> (u16, String, String) {
        let mut stream = UnixStream::connect(self.path("adit.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: adit\r\nconnection: close\r\n\r\n").unwrap();
        Self::answer(stream)
    }

    /// The answer to a request: status, headers in small letters, body.
    pub(crate) fn answer(mut stream: impl Read) -> (u16, String, String) {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let head = head.to_lowercase();
        let body = if head.contains("transfer-encoding: chunked") { joined(body) } else { body.to_owned() };
        (status, head, body)
    }
}

/// A body that came in chunks (RFC 9112 section 7.1), without extensions.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = chunks.split_once("\r\n") {
        let (chunk, rest) = rest.split_at(usize::from_str_radix(length, 16).unwrap());
        body.push_str(chunk);
        chunks = rest.strip_prefix("\r\n").unwrap();
    }
    body
}

/// A user without any right, whose group is "nogroup".
pub(crate) const NOBODY: u32 = 65_534;

impl Site {
    /// Lets other users find the socket, and the program.
    pub(crate) fn open_to_all(&self) {
        fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Where the program was built may be closed to others. Copied by another program: a file that
        // this one has open for writing cannot be run (ETXTBSY).
        assert!(Command::new("cp").arg(adit()).arg(self.path("adit")).status().unwrap().success());
    }

    /// Asks the daemon, as somebody without rights does.
    pub(crate) fn as_nobody(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("adit"));
        command.current_dir("/").uid(NOBODY).gid(NOBODY).arg("--socket").arg(self.path("adit.sock")).args(arguments);
        command
    }

    /// The mode of a file, and its group.
    pub(crate) fn mode(&self, name: &str) -> (u32, u32) {
        let found = fs::symlink_metadata(self.path(name)).unwrap();
        (found.mode() & 0o7777, found.gid())
    }

    /// Starts a daemon that must not start: how it ends, and what it says.
    pub(crate) fn refused(&self) -> (Option<i32>, String) {
        let daemon = Running::start(&self.pair.near, &mut self.command("run", "adit.conf"));
        (daemon.end().code(), self.read("adit.conf.log"))
    }

    /// Changes the daemon's own settings.
    pub(crate) fn set(&self, settings: &str) {
        self.write("adit.conf", &self.configuration().replace("[daemon]", &format!("[daemon]\n{settings}")));
    }
}
