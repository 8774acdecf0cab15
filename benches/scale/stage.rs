//! Two namespaces, a cable between them, and at its other end the far end of every tunnel.
//!
//! ```text
//!   near                                far
//!  ┌───────────────┐  near0      far0  ┌────────────────────────────┐
//!  │ 10.77.0.1     ├───────────────────┤ 10.77.0.2                  │
//!  │ adit          │                   │ 10.128.0.0/10 by reflect.c │
//!  │ 10.208.0.0/12 │                   │ 10.200.0.0/13 by its kernel│
//!  └───────────────┘                   └────────────────────────────┘
//! ```

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use adit::io::netns;

/// Where the near end is.
pub(crate) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FIRST_FAR: u32 = 0x0a80_0001;
const FIRST_INNER: u32 = 0xac10_0000;
const FIRST_TARGET: u32 = 0x0ac8_0001;
const FIRST_OWN: u32 = 0x0ad0_0000;

/// The far endpoint of a tunnel.
pub(crate) fn far(tunnel: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_FAR + tunnel)
}

/// The near address inside a tunnel; the far one is the next.
pub(crate) fn inner(tunnel: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_INNER + 2 * tunnel)
}

/// An address of the far end's kernel, which answers for so many.
pub(crate) fn target(tunnel: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_TARGET + tunnel)
}

/// The near address for it.
pub(crate) fn own(tunnel: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_OWN + 2 * tunnel)
}

pub(crate) struct Stage {
    pub(crate) near: File,
    pub(crate) far: File,
    /// The programs that the kernel runs at the far end.
    object: PathBuf,
}

impl Stage {
    /// # Errors
    /// What is missing on this machine, and how to have it.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let object = compiled(folder)?;
        let [near, far] = [netns::make()?, netns::make()?];
        let peer = format!("/proc/{}/fd/{}", std::process::id(), far.as_raw_fd());
        sh(
            &near,
            &format!(
            "ip link add near0 address 02:00:00:00:00:01 type veth peer name far0 address 02:00:00:00:00:02 netns {peer}
             ip link set lo up; ip addr add {NEAR}/16 dev near0; ip link set near0 up
             ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:02 dev near0 nud permanent
             ip route add 10.128.0.0/9 via 10.77.0.2
             ip route add local 10.208.0.0/12 dev lo"
        ),
        )?;
        sh(
            &far,
            &format!(
                "ip link set lo up; ip addr add 10.77.0.2/16 dev far0; ip link set far0 up
             ip neigh replace {NEAR} lladdr 02:00:00:00:00:01 dev far0 nud permanent
             ip route add local 10.200.0.0/13 dev lo; ip route add 10.208.0.0/12 via {NEAR}
             ip route add local 10.128.0.0/10 dev lo
             tc qdisc add dev far0 clsact
             tc filter add dev far0 ingress bpf direct-action object-file {} section reflect",
                object.display()
            ),
        )?;
        Ok(Self { near, far, object })
    }

    /// The program in the kernel answers no more: what comes is for whoever listens at the far end.
    pub(crate) fn leave_to_router(&self) -> io::Result<()> {
        sh(&self.far, "tc qdisc del dev far0 clsact")
    }

    /// Packets that came by the cable so far, and that left by it.
    pub(crate) fn packets(&self) -> io::Result<[u64; 2]> {
        let text = netns::within(Some(&self.near), || fs::read_to_string("/proc/thread-self/net/dev"))?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix("near0:")).unwrap_or_default();
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let at = |place: usize| numbers.get(place).copied().ok_or_else(|| io::Error::other("near0 is not there"));
        Ok([at(1)?, at(9)?])
    }

    /// The far end answers nothing from now on.
    pub(crate) fn cut(&self) -> io::Result<()> {
        self.answer_by("swallow")
    }

    /// It does once more.
    pub(crate) fn heal(&self) -> io::Result<()> {
        self.answer_by("reflect")
    }

    fn answer_by(&self, section: &str) -> io::Result<()> {
        let object = self.object.display();
        sh(
            &self.far,
            &format!(
                "tc qdisc del dev far0 clsact; tc qdisc add dev far0 clsact
                 tc filter add dev far0 ingress bpf direct-action object-file {object} section {section}"
            ),
        )
    }
}

fn compiled(folder: &Path) -> io::Result<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/scale/reflect.c");
    let object = folder.join("reflect.o");
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let status =
        Command::new("clang").args(["-O2", "-target", "bpf", &headers, "-c", source, "-o"]).arg(&object).status();
    match status {
        Ok(status) if status.success() => Ok(object),
        Ok(status) => Err(io::Error::other(format!("clang: {status}; it needs linux-libc-dev"))),
        Err(error) => Err(io::Error::other(format!("the far end wants clang: apt install clang iproute2 ({error})"))),
    }
}

fn sh(namespace: &File, script: &str) -> io::Result<()> {
    let output = netns::within(Some(namespace), || Command::new("sh").args(["-ec", script]).output())?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}
