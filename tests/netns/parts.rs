//! The daemon's two processes: what each can do, and what becomes of the other when one ends.

use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use adit::io::clock::Clock;
use adit::io::raw::{self, Leaving};
use adit::io::{device, netns};
use adit::wire::Family;
use adit::wire::filter::{Pass, Protocol};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::socket::setsockopt;
// The macro's own parts must be in scope beside it.
use nix::unistd::Pid;
use nix::{libc, setsockopt_impl, sockopt_impl};
use socket2::{SockFilter, SockRef};

use crate::kit::{Pair, eventually, ms};
use crate::site::{Running, Site};
use crate::steering::stage::Stage;
use crate::steering::witness::Witness;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("parts::a_prober_that_is_killed_has_a_successor_and_routes_stay", killed),
        case("parts::a_prober_has_no_power_and_no_socket_that_would_send_to_a_path", confined),
        case("parts::what_is_handed_over_cannot_be_made_to_listen_to_more", locked).with_tun(),
        case("parts::a_prober_of_very_many_tunnels_has_large_pages", large),
        case("parts::a_prober_does_not_outlive_its_steward", orphan),
        case("parts::a_prober_that_does_not_go_on_is_replaced", stuck),
        case("parts::a_prober_that_lingers_has_no_successor_until_it_has_ended", lingers),
        case("parts::what_is_typed_at_a_terminal_reaches_the_steward_only", group),
    ]
}

fn killed() {
    let stage = Stage::new("mode = \"metric\"\n");
    let daemon = stage.healthy();
    let (wanted, witness) = (stage.ours(), Witness::watch(&stage));
    for _ in 0..3 {
        let before = daemon.prober();
        daemon.send_prober(Signal::SIGKILL);
        // The socket is still there: who asks now is answered by the successor.
        assert!(stage.site.adit(&["status"]).status.code() != Some(69), "nobody listens any more");
        assert_ne!(daemon.prober(), before);
        stage.await_health();
        assert_eq!(stage.ours(), wanted);
    }
    assert_eq!(witness.assert_never_without_a_route().unwrap_or(0), 0, "changes of routes");
    stage.await_all_installed();
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

fn confined() {
    let site = Site::new();
    let (daemon, _far) = site.healthy();
    let prober = daemon.prober();
    let status = fs::read_to_string(format!("/proc/{prober}/status")).unwrap();
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(value(set), "0000000000000000", "{set}");
    }
    assert_eq!([value("NoNewPrivs:"), value("Seccomp:")], ["1", "2"]);
    let log = site.read("adit.conf.log");
    assert!(!log.contains("less confined"), "{log}");
    // Flags, type, state, inode: see proc(5), /proc/net/unix.
    let sockets = fs::read_to_string(format!("/proc/{prober}/net/unix")).unwrap();
    let datagram = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let datagram: Vec<_> = datagram.filter(|row| row.get(4) == Some(&"0002")).map(|row| row[6].to_owned()).collect();
    let links = fs::read_dir(format!("/proc/{prober}/fd")).unwrap().map(|entry| fs::read_link(entry.unwrap().path()));
    // One that has been closed meanwhile, of a file that is written, say, is none.
    for link in links.flatten().map(|link| link.to_string_lossy().into_owned()) {
        assert!(!datagram.iter().any(|inode| link == format!("socket:[{inode}]")), "{link}");
    }
}

/// A filter that passes everything, for each kind of socket.
fn locked() {
    let pair = Pair::new();
    let everything = [SockFilter::new(6, 0, 0, u32::MAX)];
    let widen = |socket: BorrowedFd<'_>| SockRef::from(&socket).attach_filter(&everything);
    let is_locked = |socket: BorrowedFd<'_>| {
        let refused = widen(socket).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        // Nor is the lock anybody's to open.
        refused && setsockopt(&socket, Unlock, &false).is_err()
    };
    netns::within(Some(&pair.near), || {
        assert!(Command::new("ip").args(["tuntap", "add", "tun1", "mode", "tun"]).status()?.success());
        let device = device::open("tun1", true)?;
        assert!(device.parts().unwrap().into_iter().all(is_locked));
        for family in [Family::V4, Family::V6] {
            for protocol in Protocol::ALL {
                let opened = raw::open_receiver(family, protocol, Pass::Answers { epoch: 7 })?;
                // Those of ESP change with the keys.
                assert_ne!(is_locked(opened.socket()), protocol.is_esp(), "{family:?} {protocol:?}");
            }
            let sender = raw::open_sender(&Leaving { family, device: None, mark: 0, source: None })?;
            assert!(is_locked(sender.socket()), "{family:?}");
        }
        Ok(())
    })
    .unwrap();
}

sockopt_impl!(Unlock, SetOnly, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, bool);

/// The C library asks for them, if its allocator is told so before the program begins.
fn large() {
    let told = |tunnels: u32, wish: Option<&str>| {
        let site = Site::new();
        let tunnel = |at: u32| {
            let [far, near] = [(0x0a80_0001 + at), (0xac10_0000 + 2 * at)].map(Ipv4Addr::from);
            format!(
                "[[tunnel]]\nname = \"t{at}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"192.0.2.1\"\n\
                 remote_endpoint = \"{far}\"\ninterface_address = \"{near}/31\"\nhealth_check = {{ enabled = false }}\n"
            )
        };
        let tunnels: String = (0..tunnels).map(tunnel).collect();
        site.write("adit.conf", &format!("[daemon]\nsocket = \"adit.sock\"\nstate_dir = \"state\"\n{tunnels}"));
        let mut command = site.command("run", "adit.conf");
        command.env_remove("GLIBC_TUNABLES").envs(wish.map(|wish| ("GLIBC_TUNABLES", wish)));
        let daemon = Running::start(&site.pair.near, &mut command);
        eventually("the socket", || site.path("adit.sock").exists());
        let given = fs::read(format!("/proc/{}/environ", daemon.prober())).unwrap();
        let given = given.split(|byte| *byte == 0).map(|one| String::from_utf8_lossy(one).into_owned());
        given.filter_map(|one| Some(one.strip_prefix("GLIBC_TUNABLES=")?.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(told(5_000, None), ["glibc.malloc.hugetlb=1"]);
    assert_eq!(told(10, None), [""; 0]);
    // Whoever knows better is heeded.
    assert_eq!(told(5_000, Some("glibc.malloc.hugetlb=0")), ["glibc.malloc.hugetlb=0"]);
}

fn orphan() {
    let site = Site::new();
    let daemon = site.daemon();
    let prober = daemon.prober();
    daemon.send(Signal::SIGKILL);
    daemon.end();
    let is_there = || Path::new(&format!("/proc/{prober}/exe")).exists();
    eventually("the prober's end", || !is_there());
}

fn stuck() {
    let site = Site::new();
    let (daemon, _far) = site.healthy();
    let before = daemon.prober();
    daemon.send_prober(Signal::SIGSTOP);
    // It shows once a second that it goes on, and is given up after 20 seconds.
    std::thread::sleep(ms(15_000));
    assert_eq!(daemon.prober(), before, "patience");
    let clock = Clock::start();
    while daemon.prober() == before {
        assert!(clock.age() < ms(15_000), "it is not replaced");
        std::thread::sleep(ms(100));
    }
    site.await_state("ams-1", "healthy");
    assert!(site.read("adit.conf.log").contains("has not gone on"));
}

/// As one whose disk does not answer when it is killed: the kernel goes on to count it as there, with its locks.
fn lingers() {
    let site = Site::new();
    let (daemon, _far) = site.healthy();
    site.say(&["drain", "fra-1"]);
    let before = daemon.prober();
    let lingering = Lingering::make(before);
    daemon.send_prober(Signal::SIGKILL);
    let log = || site.read("adit.conf.log");
    // Its end shows by its silence only.
    eventually("a word about it", || log().contains("the kernel has not ended it yet"));
    std::thread::sleep(ms(4_000));
    assert_eq!(daemon.prober(), before, "nobody in its place");
    drop(lingering);
    eventually("a successor", || daemon.prober() != before && site.adit(&["status"]).status.success());
    assert_eq!(site.state("fra-1"), "healthy");
    let shown = site.json(&["status", "fra-1", "--json"]);
    assert_eq!(shown["drained"], true, "{shown}");
    assert!(site.transitions().is_empty(), "{:?}", site.transitions());
    daemon.send(Signal::SIGTERM);
    assert!(daemon.end().success());
}

/// Holds a process at its end, with all that it has open (ptrace(2), `PTRACE_O_TRACEEXIT`).
struct Lingering {
    release: Option<Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl Lingering {
    fn make(process: u32) -> Self {
        let (release, released) = channel();
        let (tell, held) = channel();
        // Whoever traces is a thread, and lets go by ending.
        let tracer = std::thread::spawn(move || {
            let pid = Pid::from_raw(process.try_into().unwrap());
            ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACEEXIT).unwrap();
            tell.send(()).unwrap();
            // An error is the end of whoever would say so.
            let _ = released.recv();
        });
        held.recv().unwrap();
        Self { release: Some(release), tracer: Some(tracer) }
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        drop(self.release.take());
        self.tracer.take().map(JoinHandle::join);
    }
}

fn group() {
    let site = Site::new();
    let daemon = site.daemon();
    let of = |id: u32| {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let (_, rest) = text.rsplit_once(')').unwrap();
        rest.split(' ').nth(3).unwrap().to_owned()
    };
    assert_ne!(of(daemon.child.id()), of(daemon.prober()), "process groups");
    assert_eq!(of(daemon.prober()), daemon.prober().to_string());
}
