//! The built program at work on very many tunnels.

use std::fmt::Write;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adit::io::netns;
use serde_json::Value;

use crate::stage::{NEAR, Stage, far, inner, own, target};

/// In what probes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrapping {
    /// Nothing: an echo that the far kernel answers.
    Bare,
    Gre,
    /// AES-256-GCM.
    Esp,
}

impl Wrapping {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Gre => "gre",
            Self::Esp => "esp",
        }
    }
}

pub(crate) struct Subject {
    steward: Child,
    pub(crate) prober: u32,
    socket: PathBuf,
    folder: tempfile::TempDir,
    begun: Instant,
}

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(120);

impl Subject {
    /// Starts it, and waits until the local socket answers.
    pub(crate) fn start(stage: &Stage, tunnels: u32, wrapping: Wrapping, records: bool) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("adit.toml");
        fs::write(&path, configuration(folder.path(), tunnels, wrapping, records))?;
        let log = fs::File::create(folder.path().join("log"))?;
        let begun = Instant::now();
        let steward = netns::within(Some(&stage.near), || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_adit"));
            command.arg("run").arg("--config").arg(&path).env("ADIT_LOG", "error").stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(log).spawn()
        })?;
        let socket = folder.path().join("socket");
        let mut subject = Self { steward, prober: 0, socket, folder, begun };
        while subject.health().is_err() {
            if subject.steward.try_wait()?.is_some() || begun.elapsed() > PATIENCE {
                let log = fs::read_to_string(subject.folder.path().join("log"))?;
                return Err(io::Error::other(format!("adit does not run: {log}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if wrapping == Wrapping::Esp {
            subject.install(tunnels)?;
        }
        subject.prober = child_of(subject.steward.id())?;
        Ok(subject)
    }

    pub(crate) fn steward(&self) -> u32 {
        self.steward.id()
    }

    /// Waits until each tunnel is in this state; how long that took from the start.
    pub(crate) fn await_all(&self, state: &str, tunnels: u32) -> io::Result<Duration> {
        let begin = Instant::now();
        loop {
            let health = self.health()?;
            if health["tunnels"][state] == tunnels {
                return Ok(self.begun.elapsed());
            }
            if begin.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("not all are {state}: {health}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn health(&self) -> io::Result<Value> {
        serde_json::from_slice(&self.ask("GET", "/v1/healthz", "")?).map_err(Into::into)
    }

    /// The sum of a counter of all tunnels.
    pub(crate) fn sum(&self, series: &str) -> io::Result<u64> {
        let text = String::from_utf8_lossy(&self.ask("GET", "/metrics", "")?).into_owned();
        let values = text.lines().filter(|line| line.starts_with(series));
        Ok(values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum())
    }

    /// What was recorded.
    pub(crate) fn recording(&self) -> io::Result<String> {
        fs::read_to_string(self.folder.path().join("record.jsonl"))
    }

    fn install(&self, tunnels: u32) -> io::Result<()> {
        for tunnel in 0..tunnels {
            // The far end returns what it gets: one key both ways.
            let key = format!("{:072x}", u128::from(tunnel) + 1);
            let spi = 0x1000 + tunnel;
            let pair = serde_json::json!({
                "algorithm": "aes256-gcm", "spi_out": spi, "spi_in": spi, "key_out": key, "key_in": key
            });
            self.ask("POST", &format!("/v1/tunnels/t{tunnel}/sa"), &pair.to_string())?;
        }
        Ok(())
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\nhost: adit\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
        let body = answer.split_off(end);
        if answer.starts_with(b"HTTP/1.0 200") || answer.starts_with(b"HTTP/1.1 200") {
            return Ok(body);
        }
        Err(io::Error::other(format!("{method} {path}: {}", String::from_utf8_lossy(&body))))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let steward = nix::unistd::Pid::from_raw(self.steward.id().try_into().unwrap_or(i32::MAX));
        // It may have ended.
        let _ = nix::sys::signal::kill(steward, nix::sys::signal::Signal::SIGTERM);
        let _ = self.steward.wait();
    }
}

fn child_of(process: u32) -> io::Result<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    text.split_whitespace().next().and_then(|child| child.parse().ok()).ok_or_else(|| io::Error::other("no prober"))
}

fn configuration(folder: &Path, tunnels: u32, wrapping: Wrapping, records: bool) -> String {
    let folder = folder.display();
    let mut text = format!("[daemon]\nsocket = \"{folder}/socket\"\nstate_dir = \"{folder}\"\n");
    if records {
        text.push_str(&format!("record = \"{folder}/record.jsonl\"\n"));
    }
    text.push_str("[defaults.health_check]\nrate = \"high\"\n");
    if wrapping == Wrapping::Esp {
        text.push_str("type = \"reply\"\n");
    }
    for tunnel in 0..tunnels {
        let bare = wrapping == Wrapping::Bare;
        let (far, inner) = if bare { (target(tunnel), own(tunnel)) } else { (far(tunnel), inner(tunnel)) };
        // Into a String, which is never full.
        let _ = write!(
            text,
            "[[tunnel]]\nname = \"t{tunnel}\"\nlocal_endpoint = \"{NEAR}\"\nremote_endpoint = \"{far}\"\n\
             interface_address = \"{inner}/31\"\n"
        );
        match wrapping {
            Wrapping::Bare => {
                let _ = writeln!(text, "encapsulation = \"device\"\nhealth_check = {{ target = \"{far}\" }}");
            }
            Wrapping::Gre => {}
            Wrapping::Esp => {
                let keys = "keys = \"installed\"\nalgorithm = \"aes256-gcm\"\n";
                let _ = write!(text, "encapsulation = \"esp\"\n[tunnel.esp]\n{keys}");
            }
        }
    }
    text
}
