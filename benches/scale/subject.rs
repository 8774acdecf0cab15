//! The built program at work on very many tunnels.

use std::fmt::Write;
use std::fs;
use std::io::{self, BufRead, Read, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adit::engine::memory::{Kind, Verdict, decode};
use adit::io::netns;
use serde_json::Value;

use crate::router::{FIRST_SPI, Router, key};
use crate::stage::{NEAR, Stage, far, inner, own, target};

/// In what probes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrapping {
    /// Nothing: an echo that the far kernel answers.
    Bare,
    Gre,
    /// The same, answered by [`Router`](crate::router::Router).
    RoutedGre,
    /// AES-256-GCM, likewise.
    Esp,
}

impl Wrapping {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Gre => "gre",
            Self::RoutedGre => "gre, routed",
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
    /// The far end, if it is not a program in the kernel.
    _router: Option<Router>,
}

/// How many ask at a time.
const CLIENTS: u32 = 16;
/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(120);

impl Subject {
    /// Starts it, and waits until the local socket answers.
    pub(crate) fn start(stage: &Stage, tunnels: u32, wrapping: Wrapping, records: bool) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let is_routed = matches!(wrapping, Wrapping::RoutedGre | Wrapping::Esp);
        let router = is_routed.then(|| Router::start(&stage.far, wrapping, tunnels)).transpose()?;
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
        let mut subject = Self { steward, prober: 0, socket, folder, begun, _router: router };
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

    pub(crate) fn metrics(&self) -> io::Result<Metrics> {
        Ok(Metrics(String::from_utf8_lossy(&self.ask("GET", "/metrics", "")?).into_owned()))
    }

    /// What was recorded.
    pub(crate) fn recording(&self) -> io::Result<String> {
        fs::read_to_string(self.folder.path().join("record.jsonl"))
    }

    /// Waits until the file of states knows all that has happened so far; how long that took.
    pub(crate) fn await_kept(&self) -> io::Result<Duration> {
        let (begin, last) = (Instant::now(), self.health()?["last_event"].as_u64().unwrap_or(u64::MAX));
        loop {
            // While another one takes its place it may be missing.
            let bytes = fs::read(self.folder.path().join(Kind::States.name())).unwrap_or_default();
            let known = decode::<Verdict>(Kind::States, &bytes).is_ok_and(|(preface, _)| preface.next_event > last);
            if known {
                return Ok(begin.elapsed());
            }
            if begin.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("event {last} does not come to the file of states")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Hands every tunnel its keys. Each is recorded on the disk before it is used, so several at a time.
    fn install(&self, tunnels: u32) -> io::Result<()> {
        std::thread::scope(|scope| {
            let some =
                |first: u32| move || (first..tunnels).step_by(CLIENTS as usize).try_for_each(|at| self.hand_over(at));
            let clients: Vec<_> = (0..CLIENTS).map(|first| scope.spawn(some(first))).collect();
            let ended = clients.into_iter().map(std::thread::ScopedJoinHandle::join);
            let failed = |_| Err(io::Error::other("a client has panicked"));
            ended.map(|ended| ended.unwrap_or_else(failed)).fold(Ok(()), Result::and)
        })
    }

    fn hand_over(&self, tunnel: u32) -> io::Result<()> {
        let (spi, [key_out, key_in]) = (FIRST_SPI + tunnel, [false, true].map(|inbound| key(tunnel, inbound)));
        let pair = serde_json::json!({
            "algorithm": "aes256-gcm", "spi_out": spi, "spi_in": spi, "key_out": key_out, "key_in": key_in
        });
        self.ask("POST", &format!("/v1/tunnels/t{tunnel}/sa"), &pair.to_string()).map(drop)
    }

    /// Reads the events from now on, until this is stopped; how many came, and how many were missed.
    pub(crate) fn follow(&self) -> io::Result<Follower> {
        let last = self.health()?["last_event"].as_u64().unwrap_or(0);
        let mut stream = UnixStream::connect(&self.socket)?;
        stream
            .write_all(format!("GET /v1/events?since={last}&follow=true HTTP/1.0\r\nhost: adit\r\n\r\n").as_bytes())?;
        let end = stream.try_clone()?;
        let thread = std::thread::spawn(move || {
            let (mut events, mut missed) = (0, 0);
            for line in io::BufReader::new(stream).lines().map_while(Result::ok) {
                let told = serde_json::from_str::<Value>(&line).unwrap_or_default();
                events += u64::from(told["id"].is_u64());
                missed += told["missed"].as_u64().unwrap_or(0);
            }
            (events, missed)
        });
        Ok(Follower { end, thread })
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

/// A client that follows the events.
pub(crate) struct Follower {
    end: UnixStream,
    thread: JoinHandle<(u64, u64)>,
}

impl Follower {
    pub(crate) fn stop(self) -> io::Result<(u64, u64)> {
        self.end.shutdown(Shutdown::Both)?;
        self.thread.join().map_err(|_| io::Error::other("the follower has panicked"))
    }
}

/// What `/metrics` said once.
pub(crate) struct Metrics(String);

impl Metrics {
    /// The sum of all series of a name that bear this word.
    pub(crate) fn sum(&self, name: &str, word: &str) -> u64 {
        let values = self.0.lines().filter(|line| line.starts_with(name) && line.contains(word));
        values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    }

    /// What this share of a histogram's values since another time are not above, to the end of a bucket.
    pub(crate) fn quantile(&self, before: &Self, name: &str, share: f64) -> f64 {
        let head = format!("{name}_bucket{{le=\"");
        let bucket = |line: &str| {
            let (bound, count) = line.strip_prefix(&head)?.split_once("\"} ")?;
            Some((bound.parse::<f64>().ok()?, count.parse::<f64>().ok()?))
        };
        let buckets = |metrics: &Self| metrics.0.lines().filter_map(bucket).collect::<Vec<_>>();
        let counts =
            buckets(self).into_iter().zip(buckets(before)).map(|((bound, now), (_, then))| (bound, now - then));
        let counts: Vec<(f64, f64)> = counts.collect();
        let wanted = share * counts.last().map_or(0.0, |(_, all)| *all);
        counts.into_iter().find(|(_, count)| *count >= wanted).map_or(f64::NAN, |(bound, _)| bound)
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
    if matches!(wrapping, Wrapping::RoutedGre | Wrapping::Esp) {
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
            Wrapping::Gre | Wrapping::RoutedGre => {}
            Wrapping::Esp => {
                let keys = "keys = \"installed\"\nalgorithm = \"aes256-gcm\"\n";
                let _ = write!(text, "encapsulation = \"esp\"\n[tunnel.esp]\n{keys}");
            }
        }
    }
    text
}
