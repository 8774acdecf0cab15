//! The local socket's worst client: this program once more, as a user without any right but to connect.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::site::{NOBODY, Site};

/// Set for the run that attacks: how.
const HOW: &str = "ADIT_FAULTS_ATTACK";
/// And which socket.
const WHERE: &str = "ADIT_FAULTS_SOCKET";

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Very many connections, all of them open for as long as they may be.
    Crowd,
    /// As many as there is place for, each of them silent, or saying half of what it wants, byte by byte.
    Half,
    /// Long answers are asked for, and never read; so are events.
    Deaf,
    /// Headers, paths and bodies without end, nonsense, and a hundred requests at once.
    Huge,
    /// Good requests, as many as it can: the longest answers, names that there are not, and changes.
    Busy,
}

impl Attack {
    const ALL: [(&'static str, Self); 5] = [
        ("crowd", Self::Crowd),
        ("half", Self::Half),
        ("deaf", Self::Deaf),
        ("huge", Self::Huge),
        ("busy", Self::Busy),
    ];
}

/// An attack under way; it ends with this.
pub(crate) struct Attacker(Child);

impl Attacker {
    /// Begins, as nobody. The site is open to all.
    pub(crate) fn start(site: &Site, attack: Attack) -> Self {
        let program = site.path("attacker");
        if !program.exists() {
            let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
            assert!(copied.unwrap().success());
        }
        let (name, _) = Attack::ALL.iter().find(|(_, known)| *known == attack).unwrap();
        // What processor time it takes from others is no business of the socket's.
        let mut command = Command::new("nice");
        command.args(["-n", "19", "setpriv"]);
        let nobody = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()];
        command.args(nobody).arg(program).env(HOW, name).env(WHERE, site.path("adit.sock"));
        Self(command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Ends it, and says what it has done.
    pub(crate) fn end(mut self) -> String {
        assert!(self.0.try_wait().unwrap().is_none(), "it gave up");
        self.0.kill().unwrap();
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.0.wait().unwrap();
        said.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Attacks, if that is what this process is for; until it is killed.
pub(crate) fn attack() -> Option<ExitCode> {
    let how = std::env::var(HOW).ok()?;
    let socket = PathBuf::from(std::env::var_os(WHERE)?);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    println!("{soft} descriptors, {hard} at most");
    match Attack::ALL.iter().find(|(name, _)| *name == how)?.1 {
        Attack::Crowd => crowd(&socket, hard),
        Attack::Half => many(&socket, 64, half),
        Attack::Deaf => many(&socket, 100, deaf),
        Attack::Huge => many(&socket, 16, huge),
        Attack::Busy => many(&socket, 32, busy),
    }
    Some(ExitCode::SUCCESS)
}

/// Ten thousand at once, as far as that is allowed, and again and again.
fn crowd(socket: &Path, limit: u64) {
    let most = usize::try_from(limit.saturating_sub(50)).unwrap().min(10_000);
    for round in 1.. {
        let mut open = Vec::new();
        while open.len() < most {
            match UnixStream::connect(socket) {
                Ok(stream) => open.push(stream),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
        println!("{} connections, for the {round}. time", open.len());
    }
}

/// Does this again and again, on so many threads, and counts.
fn many(socket: &Path, threads: usize, act: fn(&Path, usize) -> std::io::Result<()>) {
    let done = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..threads {
            let done = &done;
            scope.spawn(move || {
                for turn in 0.. {
                    // However it went: it is not for this one to complain.
                    if act(socket, number + turn).is_err() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
        loop {
            thread::sleep(Duration::from_millis(100));
            println!("{} visits", done.load(std::sync::atomic::Ordering::Relaxed));
        }
    });
}

fn half(socket: &Path, turn: usize) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    if turn.is_multiple_of(2) {
        // Silent, until the other side has enough of it.
        return stream.read(&mut [0; 1]).map(drop);
    }
    let request = b"GET /v1/tunnels HTTP/1.1\r\nhost: adit\r\nx-long: ";
    for byte in request.iter().chain(std::iter::repeat(&b'a')) {
        stream.write_all(&[*byte])?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn deaf(socket: &Path, turn: usize) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let path = ["/v1/tunnels", "/v1/events?follow=true", "/v1/routes", "/v1/events", "/metrics"][turn % 5];
    write!(stream, "GET {path} HTTP/1.1\r\nhost: adit\r\n\r\n")?;
    // It writes on, to hear when nobody is there any more, and reads nothing.
    let begin = now();
    while begin.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(100));
        stream.write_all(b"x")?;
    }
    Ok(())
}

fn huge(socket: &Path, turn: usize) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let long = vec![b'a'; 1 << 16];
    let mut endless = |head: &str, between: &[u8]| {
        stream.write_all(head.as_bytes())?;
        // A hundred megabytes, were they wanted.
        (0..1_600).try_for_each(|_| stream.write_all(&long).and_then(|()| stream.write_all(between)))
    };
    match turn % 6 {
        0 => endless("GET /v1/tunnels HTTP/1.1\r\nhost: adit\r\nx: ", b""),
        1 => endless("GET /v1/tunnels/", b""),
        2 => endless("POST /v1/tunnels/t1/sa HTTP/1.1\r\nhost: adit\r\ncontent-length: 104857600\r\n\r\n", b""),
        3 => endless("GET / HTTP/1.1\r\nhost: adit\r\ntransfer-encoding: chunked\r\n\r\n10000\r\n", b"\r\n10000\r\n"),
        4 => {
            stream.write_all(&b"GET /v1/tunnels HTTP/1.1\r\nhost: adit\r\n\r\n".repeat(100))?;
            stream.read_to_end(&mut Vec::new()).map(drop)
        }
        _ => {
            let noise: Vec<u8> = (0..1 << 16).map(|at| (at * turn % 251).to_le_bytes()[0]).collect();
            stream.write_all(&noise)
        }
    }
}

fn busy(socket: &Path, turn: usize) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let request = [
        "GET /v1/tunnels",
        "GET /v1/tunnels/t1x",
        "POST /v1/tunnels/t1/drain",
        "GET /v1/tunnels/t1/explain",
        "GET /v1/routes/lookup?dst=192.0.2.1",
        "GET /v1/events",
        "POST /v1/tunnels/t1/sa/begin",
        "GET /v1/healthz",
        "GET /metrics",
    ][turn % 9];
    write!(stream, "{request} HTTP/1.1\r\nhost: adit\r\n\r\n")?;
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        Err(error) => Err(error),
    }
}

#[expect(clippy::disallowed_methods, reason = "a client meets real time")]
fn now() -> Instant {
    Instant::now()
}
