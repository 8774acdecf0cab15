//! What a confined process can and cannot do. Each trial runs this program again as the process that is
//! confined, with everything opened before that a prober has been handed.

#![expect(clippy::unwrap_used, reason = "a trial that cannot prepare its stage must fail")]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use adit::io::{letters, sandbox};
use libtest_mimic::{Arguments, Failed, Trial};
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::getppid;

const AS: &str = "ADIT_SANDBOX_DEED";
const FOLDER: &str = "ADIT_SANDBOX_FOLDER";

/// Deeds that have something to show before they are confined.
const DOES: &str = "what_a_prober_does";
const ROUTES: &str = "routes_are_not_written_by_a_socket_of_a_privileged_parent";
const DISGUISE: &str = "a_connection_in_the_shape_of_an_answer_is_refused";
const NAMESPACES: &str = "namespaces_can_be_made";
const GAPS: &str = "gaps";

/// Something that a confined process tries.
type Deed = (&'static str, fn() -> io::Result<()>);

/// What ends the process, each with a try that reports how it went.
const FATAL: &[Deed] = &[
    ("a_socket_of_tcp", || open(AddressFamily::Inet, SockType::Stream, None)),
    ("a_socket_of_udp", || UdpSocket::bind("127.0.0.1:0").map(drop)),
    ("a_raw_socket", || open(AddressFamily::Inet, SockType::Raw, Some(SockProtocol::Icmp))),
    ("a_packet_socket", || open(AddressFamily::Packet, SockType::Datagram, None)),
    ("a_netlink_socket", || open(AddressFamily::Netlink, SockType::Raw, Some(SockProtocol::NetlinkRoute))),
    ("a_unix_socket", || UnixStream::connect("/run/systemd/journal/socket").map(drop)),
    ("a_pair_of_sockets", || UnixStream::pair().map(drop)),
    ("another_program", || Err(Command::new("/bin/true").exec())),
    ("another_process", || Command::new("/bin/true").spawn().map(drop)),
    ("another_namespace", || unshare(CloneFlags::CLONE_NEWNET).map_err(Into::into)),
    ("a_namespace_of_others", || setns(io::stdin(), CloneFlags::CLONE_NEWNET).map_err(Into::into)),
    ("the_memory_of_its_parent", || {
        let mut bytes = [0; 8];
        let remote = [RemoteIoVec { base: 0x1000, len: 8 }];
        process_vm_readv(getppid(), &mut [io::IoSliceMut::new(&mut bytes)], &remote).map(drop).map_err(Into::into)
    }),
    ("a_signal_to_its_parent", || nix::sys::signal::kill(getppid(), Signal::SIGTERM).map_err(Into::into)),
    ("a_mount", || {
        nix::mount::mount(None::<&str>, "/tmp", Some("tmpfs"), nix::mount::MsFlags::empty(), None::<&str>)
            .map_err(Into::into)
    }),
    ("another_root", || nix::unistd::chroot("/").map_err(Into::into)),
    ("another_user", || nix::unistd::setuid(nix::unistd::getuid()).map_err(Into::into)),
];

/// What Landlock keeps a process from.
const SHUT: &[Deed] = &[
    ("a_file_of_the_system_to_be_read", || File::open("/etc/passwd").map(drop)),
    ("a_file_beside_the_folder", || File::create(folder().parent().unwrap().join("beside")).map(drop)),
    ("a_file_that_is_moved_out_of_the_folder", || {
        fs::write(folder().join("own"), "x")?;
        fs::rename(folder().join("own"), folder().parent().unwrap().join("beside"))
    }),
    ("a_link_out_of_the_folder", || std::os::unix::fs::symlink("/etc/passwd", folder().join("link"))),
    ("a_list_of_processes", || fs::read_dir("/proc").map(drop)),
];

/// What else fails.
const REFUSED: &[Deed] = &[
    ("to_keep_capabilities", || nix::sys::prctl::set_keepcaps(true).map_err(Into::into)),
    ("a_change_of_limits", || {
        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, 1, 1).map_err(Into::into)
    }),
    ("a_capability", || {
        caps::raise(None, caps::CapSet::Inheritable, caps::Capability::CAP_NET_RAW)
            .map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error.to_string()))
    }),
];

fn open(family: AddressFamily, kind: SockType, protocol: Option<SockProtocol>) -> io::Result<()> {
    socket(family, kind, SockFlag::empty(), protocol).map(drop).map_err(Into::into)
}

fn folder() -> std::path::PathBuf {
    std::env::var_os(FOLDER).unwrap().into()
}

fn main() -> ExitCode {
    if let Ok(deed) = std::env::var(AS) {
        return run(&deed);
    }
    let fatal = FATAL.iter().map(|(name, _)| {
        Trial::test(format!("ends_whoever_wants::{name}"), move || {
            let ended = child(name).status;
            check(ended.signal() == Some(libc::SIGSYS), || format!("{ended}"))
        })
    });
    let open = lacks_landlock();
    let refused = SHUT.iter().map(|deed| (open, deed)).chain(REFUSED.iter().map(|deed| (false, deed)));
    let refused = refused.map(|(ignored, (name, _))| {
        let trial = Trial::test(format!("refuses::{name}"), move || {
            let output = child(name);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            check(output.status.success() && said.contains("refused"), || format!("{}: {said}", output.status))
        });
        trial.with_ignored_flag(ignored)
    });
    let works = [DOES, ROUTES].map(|name| {
        let trial = Trial::test(name, move || {
            let output = child(name);
            check(output.status.success(), || format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
        });
        trial.with_ignored_flag(name == ROUTES && lacks_namespaces())
    });
    let works = works.into_iter().chain([Trial::test(DISGUISE, || {
        let output = child(DISGUISE);
        check(output.status.success(), || format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
    })]);
    let unconfined = Trial::test("without_walls_the_same_tries_do_no_harm_to_the_trial", || {
        // That they fail for want of walls: the folder is read, a socket opened.
        check(File::open("/etc/passwd").is_ok() && UdpSocket::bind("127.0.0.1:0").is_ok(), || "no".to_owned())
    });
    let trials = fatal.chain(refused).chain(works).chain([unconfined]).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Whether this kernel has no Landlock, and need not have it.
fn lacks_landlock() -> bool {
    let lacks = std::env::var_os("ADIT_REQUIRE_LANDLOCK").is_none() && child(GAPS).stdout != b"[]";
    if lacks {
        eprintln!("skipped: what is refused of files: this kernel has no Landlock");
    }
    lacks
}

/// Whether namespaces cannot be made here, and need not be.
fn lacks_namespaces() -> bool {
    let lacks = std::env::var_os("ADIT_REQUIRE_NETNS").is_none() && !child(NAMESPACES).status.success();
    if lacks {
        eprintln!("skipped: {ROUTES}: this user cannot make a network namespace");
    }
    lacks
}

fn enter() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what().into()) }
}

fn child(deed: &str) -> std::process::Output {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("state");
    fs::create_dir(&folder).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(AS, deed).env(FOLDER, &folder).stdin(Stdio::null()).output().unwrap()
}

/// The confined process.
fn run(deed: &str) -> ExitCode {
    match deed {
        DOES => return probe(),
        ROUTES => return write_route(),
        DISGUISE => return disguise(),
        NAMESPACES => return enter().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        GAPS => {
            print!("[{}]", sandbox::confine(Some(&folder())).landlock.unwrap_or_default());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let (is_fatal, (_, deed)) = FATAL
        .iter()
        .map(|deed| (true, deed))
        .chain(SHUT.iter().chain(REFUSED).map(|deed| (false, deed)))
        .find(|(_, (name, _))| *name == deed)
        .unwrap();
    confine();
    match deed() {
        Err(error) if !is_fatal => {
            println!("refused: {error}");
            ExitCode::SUCCESS
        }
        done => {
            println!("{done:?}");
            ExitCode::FAILURE
        }
    }
}

fn confine() {
    let gaps = sandbox::confine(Some(&folder()));
    assert_eq!(gaps.others, [""; 0], "the other walls must stand without Landlock");
    assert!(gaps.landlock.is_none_or(|lack| lack == "this kernel has none, or it is off"));
}

/// Everything that a prober needs, with what it was handed.
fn probe() -> ExitCode {
    let folder = folder();
    let (ours, theirs) = letters::line().unwrap();
    let listener = UnixListener::bind(folder.join("socket")).unwrap();
    let client = UnixStream::connect(folder.join("socket")).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut visitor = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    confine();
    // Files: aside, to the disk, renamed, locked; the folder itself.
    fs::write(folder.join("file.new"), "text").unwrap();
    File::open(folder.join("file.new")).unwrap().sync_all().unwrap();
    fs::rename(folder.join("file.new"), folder.join("file")).unwrap();
    File::open(&folder).unwrap().sync_all().unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.try_lock().unwrap();
    fs::remove_file(folder.join("file")).unwrap();
    // Letters with descriptors, over threads.
    let file = File::create(folder.join("handed")).unwrap();
    let sender = std::thread::Builder::new().name("sender".to_owned()).spawn(move || {
        letters::send(&ours, &vec![7; 200_000], &[file.as_fd()]).unwrap();
    });
    let letter = letters::receive(&theirs).unwrap().unwrap();
    sender.unwrap().join().unwrap();
    let [handed]: [OwnedFd; 1] = letter.handed.try_into().unwrap();
    File::from(handed).write_all(b"text").unwrap();
    // Packets in batches, filters, time stamps.
    let address = udp.local_addr().unwrap();
    udp.send_to(b"packet", address).unwrap();
    let filter = [socket2::SockFilter::new(0x06, 0, 0, u32::MAX)];
    socket2::SockRef::from(&udp).attach_filter(&filter).unwrap();
    let mut buffer = [0; 16];
    assert_eq!(udp.recv(&mut buffer).unwrap(), 6);
    let slices = [[io::IoSlice::new(b"batch")], [io::IoSlice::new(b"of two")]];
    let addresses = [Some(nix::sys::socket::SockaddrStorage::from(address)); 2];
    let mut headers = nix::sys::socket::MultiHeaders::preallocate(2, None);
    let flags = nix::sys::socket::MsgFlags::MSG_DONTWAIT;
    let sent = nix::sys::socket::sendmmsg(udp.as_raw_fd(), &mut headers, slices.iter(), addresses, [], flags);
    assert_eq!(sent.unwrap().count(), 2);
    // A runtime, its timers, a thread for what blocks, another runtime, the socket that was handed over.
    listener.set_nonblocking(true).unwrap();
    runtime.block_on(async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        let listener = tokio::net::UnixListener::from_std(listener).unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        accepted.writable().await.unwrap();
        accepted.try_write(b"hello").unwrap();
    });
    let mut said = [0; 5];
    (&client).read_exact(&mut said).unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A listener of TCP that was handed over.
    let (mut accepted, _) = tcp.accept().unwrap();
    accepted.write_all(b"hello").unwrap();
    accepted.shutdown(Shutdown::Write).unwrap();
    visitor.read_exact(&mut said).unwrap();
    getrandom::fill(&mut buffer).unwrap();
    // A panic of a thread is no end of the process.
    assert!(std::thread::spawn(|| panic!("on purpose")).join().is_err());
    ExitCode::SUCCESS
}

/// A listener of TCP, shut down, would do for a connection to anywhere: sendto(2) with MSG_FASTOPEN makes one.
fn disguise() -> ExitCode {
    let goal = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nix::sys::socket::SockaddrStorage::from(goal.local_addr().unwrap());
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let reach = |listener: &TcpListener| {
        nix::sys::socket::shutdown(listener.as_raw_fd(), nix::sys::socket::Shutdown::Both).unwrap();
        let flags = nix::sys::socket::MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);
        nix::sys::socket::sendto(listener.as_raw_fd(), b"hello", &address, flags)
    };
    assert_eq!(reach(&listeners[0]), Ok(5), "without walls it goes out");
    confine();
    assert_eq!(reach(&listeners[1]), Err(Errno::EPERM));
    ExitCode::SUCCESS
}

/// The kernel asks for the capability of whoever writes, not only of whoever opened.
fn write_route() -> ExitCode {
    use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
    // Whoever runs this has all power here; and nothing of the host's is touched.
    enter().unwrap();
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    socket.connect(&SocketAddr::new(0, 0)).unwrap();
    // RTM_NEWROUTE (24) with REQUEST, ACK, CREATE and EXCL: 10.0.0.0/8 by a device that does not exist.
    let mut message = vec![44, 0, 0, 0, 24, 0, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0];
    message.extend([2, 8, 0, 0, 254, 212, 253, 1, 0, 0, 0, 0]);
    message.extend([8, 0, 1, 0, 10, 0, 0, 0, 8, 0, 4, 0, 0xff, 0xff, 0, 0]);
    let ask = || {
        socket.send(&message, 0).unwrap();
        let (answer, _) = socket.recv_from_full().unwrap();
        Errno::from_raw(-i32::from_ne_bytes(answer[16..20].try_into().unwrap()))
    };
    assert_eq!(ask(), Errno::ENODEV, "with the capability it is the device that is missing");
    confine();
    assert_eq!(ask(), Errno::EPERM);
    ExitCode::SUCCESS
}
