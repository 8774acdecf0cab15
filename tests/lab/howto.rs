//! The how-tos of `docs/howto` and the README, done: their commands are run, their files are written, in namespaces that
//! stand for the machines.
//!
//! A place is a network namespace with processes, `/etc` and `/run` of its own. There is no service manager in it:
//! `howto.sh` is `systemctl` there, and starts the same programs as the units do. Nor is there an internet: `howto-curl.sh`
//! is `curl`.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::kinds::kind;
use crate::router::run;
use crate::shown::{self, Step};

/// How long a command may take to end well: that a tunnel is healthy again takes half a minute.
const PATIENCE: Duration = Duration::from_secs(180);

/// How soon a command that goes on would have ended, if it does not.
const LASTS: Duration = Duration::from_secs(2);

/// A page, the kind of device that it needs, and programs.
const PAGES: [(&str, &str, &[&str]); 5] = [
    ("docs/howto/gre", "gre", &[]),
    ("docs/howto/two-isps", "gre", &[]),
    ("docs/howto/frr", "gre", &["/usr/lib/frr/bgpd", "/usr/bin/vtysh"]),
    ("docs/howto/ipsec-strongswan", "xfrm", &["/usr/sbin/charon-systemd", "/usr/sbin/swanctl"]),
    ("README", "gre", &["/usr/bin/curl", "/usr/bin/script"]),
];

pub(crate) fn trials() -> Vec<Trial> {
    PAGES.into_iter().map(|(page, device, programs)| trial(page, device, programs)).collect()
}

/// A trial that is left out, with its reason, where a program is missing, unless nothing may be.
fn trial(page: &'static str, device: &'static str, programs: &'static [&'static str]) -> Trial {
    let short = page.rsplit('/').next().unwrap_or(page);
    let name = format!("howto_{short}_is_done_as_it_is_written");
    let missing = programs.iter().find(|program| !Path::new(program).exists());
    let Some(missing) = missing else {
        return crate::kernel_io::trial(kind(device), name, move || done(page));
    };
    eprintln!("lab: skipped: {name}: {missing} is missing");
    let required = std::env::var_os("ADIT_REQUIRE_LAB").is_some();
    let trial = Trial::test(name, move || Err(format!("{missing} is missing").into()));
    trial.with_ignored_flag(!required)
}

fn done(page: &str) -> Result<(), Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join(format!("{page}.md")))?;
    let mut places = Vec::new();
    for step in shown::steps(&text)? {
        match step {
            Step::Stage { places: names, script } => {
                for name in names {
                    places.push(Place::new(name)?);
                }
                run(&script)?;
            }
            Step::Run { place, script } => at(&mut places, &place)?.run(&script).map(drop)?,
            Step::Session { place, lasting, script } => at(&mut places, &place)?.session(&lasting, &script)?,
            Step::File { place, path, text } => at(&mut places, &place)?.write(&path, &text)?,
            Step::Then { place, command } => at(&mut places, &place)?.eventually(&command)?,
            Step::Shown { .. } => {}
        }
    }
    Ok(())
}

fn at<'a>(places: &'a mut [Place], name: &str) -> Result<&'a mut Place, Failed> {
    places.iter_mut().find(|place| place.name == name).ok_or_else(|| format!("{name} is no place").into())
}

/// A machine that is none.
struct Place {
    name: String,
    /// Has its namespaces, and takes everything with it when it ends.
    holder: Child,
    process: u32,
    /// What goes on at terminals of its own.
    lasting: Vec<Child>,
    _programs: tempfile::TempDir,
    path: String,
}

/// What a place has of its own: nothing, or a copy of what is there.
const SETUP: &str = "mount -t proc proc /proc
    mkdir -p /etc/adit /var/lib/adit
    for folder in /run /etc/adit /var/lib/adit /var/log; do mount -t tmpfs tmpfs $folder; done
    for folder in /etc/frr /etc/swanctl /etc/strongswan.d /etc/iproute2; do
        [ -d $folder ] || continue
        cp -a $folder /run/copy; mount -t tmpfs tmpfs $folder; cp -a /run/copy/. $folder; rm -r /run/copy
    done
    ip link set lo up
    mkdir /run/home; cd /run/home
    echo ready
    exec sleep infinity";

impl Place {
    fn new(name: String) -> Result<Self, Failed> {
        run(&format!("ip netns add {name}"))?;
        let mut holder = Command::new("ip")
            .args(["netns", "exec", &name, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", SETUP])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = holder.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.id()))?;
        let process = children.split_whitespace().next().and_then(|id| id.parse().ok());
        let process = process.filter(|_| line == "ready\n").ok_or_else(|| format!("{name} does not begin"))?;
        let programs = tempfile::tempdir()?;
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_adit"), programs.path().join("adit"))?;
        let systemctl = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/lab/howto.sh");
        std::os::unix::fs::symlink(systemctl, programs.path().join("systemctl"))?;
        let curl = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/lab/howto-curl.sh");
        std::os::unix::fs::symlink(curl, programs.path().join("curl"))?;
        // Who may do everything already need not ask.
        let sudo = programs.path().join("sudo");
        std::fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n")?;
        std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o755))?;
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.path().display());
        Ok(Self { name, holder, process, lasting: Vec::new(), _programs: programs, path })
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.process.to_string(), "--net", "--mount", "--pid", "--wd", "sh", "-ec", script]);
        command.env("PATH", &self.path).env("ROOT", env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
        command
    }

    fn run(&self, script: &str) -> Result<String, Failed> {
        let Output { status, stdout, stderr } = self.command(script).output()?;
        let said = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        if status.success() {
            return Ok(said);
        }
        let log = self.command("cat /run/log-* 2>/dev/null || true").output()?.stdout;
        Err(format!("at {}: {script}\n{status}: {said}\n{}", self.name, String::from_utf8_lossy(&log)).into())
    }

    /// One line after the other.
    fn session(&mut self, lasting: &[String], script: &str) -> Result<(), Failed> {
        for line in script.lines() {
            if lasting.iter().any(|command| line.starts_with(command)) {
                self.last(line)?;
            } else {
                self.eventually(line)?;
            }
        }
        Ok(())
    }

    /// Begins something that goes on, at a terminal of its own, and has it say something.
    fn last(&mut self, line: &str) -> Result<(), Failed> {
        let line = line.split(" #").next().unwrap_or_default().trim_end_matches([' ', '&']);
        let log = format!("/run/log-{}", self.lasting.len());
        let terminal = format!("exec script -qefc 'stty rows 24 cols 80; exec {line}' {log} >/dev/null");
        let mut command = self.command(&terminal);
        let child = command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8").stdin(Stdio::piped()).spawn()?;
        self.lasting.push(child);
        // The first line of the log is about the log.
        self.eventually(&format!("sed 1d {log} | grep -q ."))?;
        std::thread::sleep(LASTS);
        match self.lasting.last_mut().map(Child::try_wait).transpose()?.flatten() {
            Some(status) => {
                Err(format!("at {}: {line}\n{status}: {}", self.name, self.run(&format!("cat {log}"))?).into())
            }
            None => Ok(()),
        }
    }

    fn write(&self, path: &str, text: &str) -> Result<(), Failed> {
        let (how, path) = path.strip_prefix(">>").map_or((">", path), |path| (">>", path));
        let script = format!("mkdir -p \"$(dirname {path})\"; cat {how} {path}");
        let mut child = self.command(&script).stdin(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(text.as_bytes())?;
        }
        if child.wait()?.success() { Ok(()) } else { Err(format!("{path} cannot be written").into()) }
    }

    /// Asks until a command ends well.
    #[expect(clippy::disallowed_methods, reason = "real packets take real time")]
    fn eventually(&self, command: &str) -> Result<(), Failed> {
        let begin = Instant::now();
        loop {
            match self.run(command) {
                Ok(_) => return Ok(()),
                Err(failed) if begin.elapsed() > PATIENCE => return Err(failed),
                Err(_) => std::thread::sleep(Duration::from_millis(500)),
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        for child in &mut self.lasting {
            let _ = child.wait();
        }
        let _ = run(&format!("ip netns delete {}", self.name));
    }
}
