//! Packets made, taken and sent by hand: what a third party, a strange far end or a firewall does.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use adit::io::netns;
use adit::io::raw::{self, Leaving, Sender};
use adit::wire::{Ends, Family, icmp, payload};
use nix::errno::Errno;
use socket2::{Domain, Socket, Type};

use crate::kit::{eventually, uninterrupted};

/// A probe, or an answer, as IPv4 in GRE over IPv4.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    bytes: Vec<u8>,
}

const IP: usize = 20;
const GRE: usize = 4;

impl Packet {
    /// What the far router answers to a request-style probe.
    pub(crate) fn answer(probe: &Self) -> Self {
        let mut answer = Self::returned(probe);
        let inner = answer.inner_at();
        answer.swap(inner + 12, inner + 16);
        let message = answer.message_at();
        answer.bytes[message] = 0;
        answer.seal();
        answer
    }

    /// A packet with the outer addresses the other way round: what the far router does with a
    /// reply-style probe, but for the TTL.
    pub(crate) fn returned(probe: &Self) -> Self {
        let mut answer = probe.clone();
        answer.swap(12, 16);
        answer
    }

    /// Without its outer headers, to be sent to where the outer packet would go.
    pub(crate) fn bare(&self) -> (IpAddr, Vec<u8>) {
        (self.outward().0, self.bytes[self.inner_at()..].to_vec())
    }

    /// To be sent as it is, to its outer destination.
    pub(crate) fn outward(&self) -> (IpAddr, Vec<u8>) {
        (self.outer_address(16).into(), self.bytes.clone())
    }

    pub(crate) fn set_outer_source(&mut self, source: IpAddr) {
        let IpAddr::V4(source) = source else { panic!("an IPv4 packet") };
        self.set_source(0, source);
    }

    pub(crate) fn set_inner_source(&mut self, source: Ipv4Addr) {
        self.set_source(self.inner_at(), source);
    }

    fn set_source(&mut self, header: usize, source: Ipv4Addr) {
        let header = &mut self.bytes[header..header + IP];
        header[12..16].copy_from_slice(&source.octets());
        header[10..12].fill(0);
        let sum = adit::wire::checksum::of(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    pub(crate) fn set_key(&mut self, key: u32) {
        self.bytes[IP + GRE..IP + GRE + 4].copy_from_slice(&key.to_be_bytes());
    }

    pub(crate) fn identifier(&self) -> u16 {
        u16::from_be_bytes(*self.bytes[self.message_at() + 4..].first_chunk().unwrap())
    }

    /// What proves it.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[self.message_at() + icmp::HEADER..]
    }

    /// Changes the payload, and leaves no other trace of it.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut [u8])) {
        let at = self.message_at() + icmp::HEADER;
        change(&mut self.bytes[at..]);
        self.seal();
    }

    fn seal(&mut self) {
        let inner = self.inner_at();
        let address = |at| IpAddr::V4(self.outer_address(inner + at));
        let ends = Ends::new(address(16), address(12)).unwrap();
        let at = self.message_at();
        icmp::seal(ends, &mut self.bytes[at..]);
    }

    fn outer_address(&self, at: usize) -> Ipv4Addr {
        Ipv4Addr::from(*self.bytes[at..].first_chunk::<4>().unwrap())
    }

    fn swap(&mut self, one: usize, other: usize) {
        (0..4).for_each(|at| self.bytes.swap(one + at, other + at));
    }

    fn inner_at(&self) -> usize {
        let words = [0x80, 0x20, 0x10].iter().filter(|&&bit| self.bytes[IP] & bit != 0).count();
        IP + GRE + 4 * words
    }

    fn message_at(&self) -> usize {
        self.inner_at() + IP
    }
}

/// Takes every GRE packet that comes to a namespace.
pub(crate) struct Tap {
    socket: Socket,
}

impl Tap {
    pub(crate) fn open(namespace: &File) -> Self {
        let open = || {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(47.into()))?;
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            Ok(socket)
        };
        Self { socket: netns::within(Some(namespace), open).unwrap() }
    }

    /// The next probe, if one comes soon.
    pub(crate) fn next(&self) -> Option<Packet> {
        let mut bytes = vec![0; 2_048];
        let length = uninterrupted(|| (&self.socket).read(&mut bytes)).ok()?;
        bytes.truncate(length);
        let packet = Packet { bytes };
        packet.payload().starts_with(&payload::MAGIC).then_some(packet)
    }

    /// So many probes, one after the other.
    pub(crate) fn take(&self, count: usize) -> Vec<Packet> {
        let mut taken = Vec::new();
        eventually("probes arriving", || {
            taken.extend(self.next());
            taken.len() >= count
        });
        taken
    }
}

/// Sends packets as they are.
pub(crate) struct Injector {
    sender: Sender,
}

impl Injector {
    pub(crate) fn open(namespace: &File) -> Self {
        Self::of(namespace, Family::V4)
    }

    pub(crate) fn of(namespace: &File, family: Family) -> Self {
        let leaving = Leaving { family, device: None, mark: 0, source: None };
        Self { sender: netns::within(Some(namespace), || raw::open_sender(&leaving)).unwrap() }
    }

    pub(crate) fn send(&self, packets: &[(IpAddr, Vec<u8>)]) {
        let mut left: Vec<(IpAddr, &[u8])> = packets.iter().map(|(to, bytes)| (*to, bytes.as_slice())).collect();
        while !left.is_empty() {
            let mut again = Vec::new();
            self.sender.send(&left, |place, error| {
                let is_full = matches!(error, Errno::EAGAIN | Errno::ENOBUFS);
                assert!(is_full, "cannot send by hand: {error}");
                again.push(left[place]);
            });
            left = again;
        }
    }
}

/// A far end that does with each probe what it is told.
pub(crate) struct Puppet {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Puppet {
    pub(crate) fn start(
        namespace: &File,
        mut play: impl FnMut(&Packet) -> Vec<(IpAddr, Vec<u8>)> + Send + 'static,
    ) -> Self {
        let (tap, injector) = (Tap::open(namespace), Injector::open(namespace));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(probe) = tap.next() {
                    injector.send(&play(&probe));
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// Gives a namespace a firewall of its own: this one rule in this hook, and nothing else.
pub(crate) fn firewall(namespace: &File, hook: &str, rule: &str) {
    run_nft(
        namespace,
        &format!(
            "flush ruleset\ntable inet adit {{\nchain it {{\ntype filter hook {hook} priority 0\n{rule}\n}}\n}}\n"
        ),
    )
    .unwrap();
}

/// Takes it away.
pub(crate) fn no_firewall(namespace: &File) {
    run_nft(namespace, "flush ruleset\n").unwrap();
}

/// Whether nft is here and the kernel does what it says.
pub(crate) fn nft_works() -> Result<(), String> {
    let namespace = netns::make().map_err(|error| error.to_string())?;
    let rules =
        "table inet adit {\nchain it {\ntype filter hook input priority 0\nnumgen random mod 100 < 30 drop\n}\n}\n";
    run_nft(&namespace, rules).map_err(|error| format!("nft cannot be used (Debian package nftables): {error}"))
}

fn run_nft(namespace: &File, rules: &str) -> io::Result<()> {
    let found = ["/usr/sbin/nft", "/sbin/nft"].into_iter().find(|path| std::path::Path::new(path).exists());
    netns::within(Some(namespace), || {
        // A child is born into the namespace of the thread that makes it.
        let mut child = Command::new(found.unwrap_or("nft"))
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?.write_all(rules.as_bytes())?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(io::Error::other(said)) }
    })
}
