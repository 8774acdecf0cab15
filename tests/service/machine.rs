//! A machine of its own for a trial: systemd as its first process, in namespaces.

#![allow(dead_code, reason = "some of it is for the trials of the package only, or of the unit only")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use adit::io::clock::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// Three paths, the last in a namespace, to far ends that answer.
const NETWORK: &str = "set -e
    for n in 0 1 2; do
        ip netns add far$n
        ip link add near$n type veth peer name far$n netns far$n
        ip -n far$n addr add 10.100.$n.9/31 dev far$n
        ip -n far$n link set far$n up
        systemctl start far@$n
    done
    ip netns add red
    ip link set near2 netns red
    ip -n red addr add 10.100.2.8/31 dev near2
    ip -n red link set near2 up
    for n in 0 1; do
        ip addr add 10.100.$n.8/31 dev near$n
        ip link set near$n up
    done";

/// Where the program is that the far ends are, by the number of their path; also the daemon's, unless the
/// package brings its own.
const UNIT: &str = "/usr/bin/adit";
const BESIDE: &str = "/usr/local/bin/far-end";

fn far_unit(program: &str) -> String {
    format!("[Service]\nNetworkNamespacePath=/run/netns/far%i\nExecStart={program} reflect --config /etc/far%i.toml\n")
}

fn far(number: usize) -> String {
    format!(
        "[[tunnel]]\nname = \"path{number}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"10.100.{number}.9\"\n\
         remote_endpoint = \"10.100.{number}.8\"\ninterface_address = \"10.101.{number}.9/31\"\n"
    )
}

pub(crate) struct Machine {
    /// Where it is; it goes last.
    _folder: tempfile::TempDir,
    outer: Child,
    init: Pid,
}

impl Machine {
    /// Boots it, with our unit, and with `files` besides.
    pub(crate) fn boot(files: &[(&str, &str)]) -> Self {
        let package = [
            ("etc/systemd/system/adit.service", "systemd/adit.service"),
            ("usr/lib/systemd/catalog/adit.catalog", "systemd/adit.catalog"),
        ];
        let package = package.map(|(path, source)| (path, fs::read_to_string(manifest(source)).unwrap()));
        let package = package.iter().map(|(path, text)| (*path, text.as_str()));
        let files: Vec<_> = package.chain(files.iter().copied()).collect();
        Self::of(&files, UNIT, &[])
    }

    /// Boots it without anything of ours but the far ends, and with this machine's record of its packages.
    pub(crate) fn without_adit() -> Self {
        Self::of(&[], BESIDE, &["/var/lib/dpkg"])
    }

    fn of(files: &[(&str, &str)], program: &str, kept: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("machine");
        fs::create_dir(&base).unwrap();
        let target = "[Unit]\nRequires=systemd-journald.service\nAfter=systemd-journald.service\n";
        let root = folder.path().join("machine.files");
        put(&root, "etc/systemd/system/trial.target", target);
        put(&root, "etc/systemd/system/far@.service", &far_unit(program));
        (0..3).for_each(|number| put(&root, &format!("etc/far{number}.toml"), &far(number)));
        files.iter().for_each(|(path, text)| put(&root, path, text));
        let mut command = Command::new("unshare");
        command.arg("--mount").arg(manifest("tests/service/boot.sh")).arg(&base);
        command.args([env!("CARGO_BIN_EXE_adit"), program]).args(kept);
        let log = folder.path().join("log");
        let mut outer = command.stdin(Stdio::null()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        let init = eventually("the first process", || {
            assert!(outer.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&log).unwrap());
            first(outer.id())
        });
        let machine = Self { _folder: folder, outer, init };
        eventually("the machine is up", || {
            let state = machine.run(&["systemctl", "is-system-running"]).stdout;
            matches!(state.trim_ascii(), b"running" | b"degraded").then_some(())
        });
        machine.say(&["sh", "-c", NETWORK]);
        machine.say(&["journalctl", "--update-catalog"]);
        machine
    }

    /// Runs a program there.
    pub(crate) fn run(&self, program: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--all", "--root", "--wd", "timeout", "60"]);
        command.args(program).stdin(Stdio::null()).output().unwrap()
    }

    /// What a program says, which must be content.
    pub(crate) fn say(&self, program: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.run(program);
        let told = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{}: {status}: {told}\n{}", program.join(" "), self.journal());
        String::from_utf8(stdout).unwrap()
    }

    /// All that the journal has.
    pub(crate) fn journal(&self) -> String {
        String::from_utf8_lossy(&self.run(&["journalctl", "--no-pager"]).stdout).into_owned()
    }

    /// A property of the unit.
    pub(crate) fn property(&self, name: &str) -> String {
        self.say(&["systemctl", "show", "adit", "--value", "--property", name]).trim().to_owned()
    }

    /// Waits until a property of the unit is as it should be.
    pub(crate) fn await_property(&self, name: &str, value: &str) {
        let mut last = String::new();
        let found = within(|| {
            last = self.property(name);
            (last == value).then_some(())
        });
        assert!(found.is_some(), "{name} is {last:?}, not {value:?}\n{}", self.journal());
    }

    /// Copies a file there.
    pub(crate) fn copy(&self, from: &Path, path: &str) {
        fs::copy(from, format!("/proc/{}/root/{path}", self.init)).unwrap();
    }

    /// Writes a file there.
    pub(crate) fn write(&self, path: &str, text: &str) {
        put(Path::new(&format!("/proc/{}/root", self.init)), path, text);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // With the first process all others end; what started it then clears up.
        let _ = kill(self.init, Signal::SIGKILL);
        let _ = self.outer.wait();
    }
}

/// What keeps a systemd from being booted here.
pub(crate) fn lacking() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    if let Some(missing) = ["/lib/systemd/systemd", "/sbin/ip"].into_iter().find(|path| !Path::new(path).exists()) {
        return Some(format!("{missing} is missing"));
    }
    let script = "mount --make-rprivate / && mount -t tmpfs none /mnt && mkdir /mnt/up /mnt/work /mnt/root /mnt/group && \
         mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/up,workdir=/mnt/work /mnt/root && \
         mount -t cgroup2 cgroup2 /mnt/group && rmdir \"$(mktemp -d /mnt/group/adit-trial-XXXXXX)\"";
    let tried = Command::new("unshare").args(["--mount", "--pid", "--net", "--fork", "sh", "-c", script]).output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// What is the first process of the machine that this one boots: the child of its child, when it has become
/// systemd.
fn first(outer: u32) -> Option<Pid> {
    let child = |id: u32| -> Option<u32> {
        let list = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        list.split_whitespace().next()?.parse().ok()
    };
    let init = child(child(outer)?)?;
    let name = fs::read_to_string(format!("/proc/{init}/comm")).ok()?;
    (name.trim() == "systemd").then(|| Pid::from_raw(init.try_into().unwrap()))
}

fn manifest(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Asks until there is an answer, or patience ends.
pub(crate) fn within<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = Clock::start();
    loop {
        let answer = ask();
        if answer.is_some() || clock.age() > PATIENCE {
            return answer;
        }
        sleep(Duration::from_millis(50));
    }
}

pub(crate) fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    within(ask).unwrap_or_else(|| panic!("{what}: not within {PATIENCE:?}"))
}
