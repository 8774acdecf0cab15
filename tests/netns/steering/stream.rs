//! A numbered stream from the sender to the receiver, in both families: which numbers arrive, and by
//! which path.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adit::io::netns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Socket, Type};

use super::net::ip;
use super::stage::Stage;
use crate::kills::now;
use crate::kit::{eventually, ms, uninterrupted};

/// One packet of each family is sent so often: a thousand a second.
const PAUSE: Duration = ms(2);
/// So many packets in a row by one path show that it is the one.
const ENOUGH: usize = 25;
const PORT: u16 = 7_000;
const TO: [&str; 2] = ["10.20.0.1", "2001:db8:20::1"];
/// Room for what comes while the receiver's thread waits for its turn.
const ROOM: usize = 4 << 20;

/// A packet that arrived.
#[derive(Debug, Clone, Copy)]
struct Got {
    family: usize,
    number: u32,
    path: usize,
}

#[derive(Debug, Default)]
struct Book {
    /// When each number was sent, by family.
    sent: [Vec<Instant>; 2],
    /// In the order of arrival.
    got: Vec<Got>,
}

/// A place in the stream: how many were sent by then, by family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark([usize; 2]);

pub(crate) struct Stream {
    book: Arc<Mutex<Book>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    begin: Mark,
}

impl Stream {
    /// Begins, and returns once packets of both families arrive; what was sent before does not count.
    pub(crate) fn start(stage: &Stage) -> Self {
        let (book, stop) = (Arc::<Mutex<Book>>::default(), Arc::<AtomicBool>::default());
        let receiver = Receiver::open(stage.receiver());
        let receive = {
            let (book, stop) = (Arc::clone(&book), Arc::clone(&stop));
            move || {
                // What is under way at the end gets the time that it needs.
                while let Some((bytes, path)) = next_unless(&receiver, &stop) {
                    let [family, number @ ..] = bytes;
                    let got = Got { family: family.into(), number: u32::from_be_bytes(number), path };
                    book.lock().unwrap().got.push(got);
                }
            }
        };
        let send = {
            let (book, stop) = (Arc::clone(&book), Arc::clone(&stop));
            let bind = |address: &str| netns::within(Some(&stage.sender), || UdpSocket::bind(address)).unwrap();
            let sockets = [bind("0.0.0.0:0"), bind("[::]:0")];
            move || send(&sockets, &book, &stop)
        };
        let threads = vec![std::thread::spawn(receive), std::thread::spawn(send)];
        let mut stream = Self { book, stop, threads, begin: Mark([0; 2]) };
        eventually("the first packets", || {
            let got = &stream.book.lock().unwrap().got;
            [0, 1].iter().all(|family| got.iter().any(|got| got.family == *family))
        });
        stream.begin = stream.mark();
        stream
    }

    /// Now.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.book.lock().unwrap().sent.each_ref().map(Vec::len))
    }

    /// Waits until packets of both families arrive, and all by this path; gives the first ones that did.
    pub(crate) fn await_path(&self, path: usize) -> Mark {
        let (begin, mut first) = (self.mark(), Mark([0; 2]));
        eventually(&format!("everything by path {path}"), || {
            let book = self.book.lock().unwrap();
            for family in 0..2 {
                let of = |got: &&Got| got.family == family && got.number as usize >= begin.0[family];
                let by = |got: &&Got| got.path == path;
                let fresh: Vec<u32> = book.got.iter().rev().filter(of).take_while(by).map(|got| got.number).collect();
                if fresh.len() <= ENOUGH {
                    return false;
                }
                first.0[family] = fresh.into_iter().min().unwrap() as usize;
            }
            true
        });
        first
    }

    /// Ends, and says what became of it.
    pub(crate) fn end(mut self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        let book = std::mem::take(&mut *self.book.lock().unwrap());
        Report { book, begin: self.begin }
    }
}

/// What became of a stream.
pub(crate) struct Report {
    book: Book,
    begin: Mark,
}

impl Report {
    /// When the packets were sent that never came, of those between two places.
    fn lost_between(&self, from: Mark, to: Option<Mark>) -> Vec<Instant> {
        let mut lost = Vec::new();
        for family in 0..2 {
            let sent = &self.book.sent[family];
            let mut came = vec![false; sent.len()];
            let got = self.book.got.iter().filter(|got| got.family == family);
            got.for_each(|got| came[got.number as usize] = true);
            let numbers = from.0[family]..to.map_or(sent.len(), |to| to.0[family]);
            lost.extend(numbers.filter(|number| !came[*number]).map(|number| sent[number]));
        }
        lost
    }

    /// When the packets were sent that never came.
    pub(crate) fn lost(&self) -> Vec<Instant> {
        self.lost_between(self.begin, None)
    }

    /// That all came that were sent between two places.
    pub(crate) fn assert_whole(&self, from: Option<Mark>, to: Option<Mark>) {
        let lost = self.lost_between(from.unwrap_or(self.begin), to);
        assert_eq!(lost.len(), 0, "lost, {self}");
    }

    /// How many came more than once.
    pub(crate) fn duplicated(&self) -> usize {
        let mut counts = BTreeMap::new();
        self.book.got.iter().for_each(|got| *counts.entry((got.family, got.number)).or_insert(0_usize) += 1);
        counts.values().map(|count| count - 1).sum()
    }

    /// How many came after a later one.
    pub(crate) fn reordered(&self) -> usize {
        let mut highest = [0; 2];
        let late = |got: &&Got| {
            let highest = &mut highest[got.family];
            *highest = (*highest).max(got.number);
            got.number < *highest
        };
        self.book.got.iter().filter(late).count()
    }

    /// How many took each path, from a place on.
    pub(crate) fn by_path(&self, from: Mark) -> [usize; 2] {
        let here = |path| move |got: &&Got| got.path == path && got.number as usize >= from.0[got.family];
        [0, 1].map(|path| self.book.got.iter().filter(here(path)).count())
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sent: usize = self.book.sent.iter().map(Vec::len).sum();
        let (lost, duplicated, reordered) = (self.lost().len(), self.duplicated(), self.reordered());
        let [one, two] = self.by_path(self.begin);
        write!(f, "{sent} sent: {lost} lost, {duplicated} twice, {reordered} late; {one} by path 0, {two} by path 1")
    }
}

/// Sends one of each family in two milliseconds, or as often as this thread gets its turn.
fn send(sockets: &[UdpSocket; 2], book: &Mutex<Book>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for (family, socket) in sockets.iter().enumerate() {
            let mut book = book.lock().unwrap();
            let number = u32::try_from(book.sent[family].len()).unwrap();
            let mut bytes = [0; 5];
            bytes[0] = u8::try_from(family).unwrap();
            bytes[1..].copy_from_slice(&number.to_be_bytes());
            let to = SocketAddr::new(TO[family].parse().unwrap(), PORT);
            // One that this host does not even send says nothing about the way.
            if socket.send_to(&bytes, to).is_ok() {
                book.sent[family].push(now());
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// The next packet, unless this is the end and there is none for a while.
fn next_unless(receiver: &Receiver, stop: &AtomicBool) -> Option<([u8; 5], usize)> {
    loop {
        let last = stop.load(Ordering::Relaxed);
        match receiver.next() {
            None if !last => {}
            next => return next,
        }
    }
}

/// Hears packets, and by which path they come.
pub(crate) struct Receiver {
    socket: Socket,
    /// Indices of the devices at the end of each path.
    devices: [u32; 2],
}

impl Receiver {
    pub(crate) fn open(namespace: &File) -> Self {
        let open = || Socket::new(Domain::IPV6, Type::DGRAM, None);
        let socket = netns::within(Some(namespace), open).unwrap();
        socket.set_only_v6(false).unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &ROOM).unwrap_or_else(|_| socket.set_recv_buffer_size(ROOM).unwrap());
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true).unwrap();
        socket.set_read_timeout(Some(ms(300))).unwrap();
        socket.bind(&SocketAddr::new("::".parse().unwrap(), PORT).into()).unwrap();
        let index = |name: &str| {
            let links: serde_json::Value =
                serde_json::from_str(&ip(namespace, &format!("-j link show {name}"))).unwrap();
            links[0]["ifindex"].as_u64().unwrap().try_into().unwrap()
        };
        Self { socket, devices: ["e0", "e1"].map(index) }
    }

    /// The next packet and its path; `None` if there is none for a while.
    pub(crate) fn next(&self) -> Option<([u8; 5], usize)> {
        let mut bytes = [0; 5];
        let mut control = nix::cmsg_space!(nix::libc::in6_pktinfo);
        // What is here is taken without waiting then.
        uninterrupted(|| self.socket.peek(&mut [MaybeUninit::uninit()])).ok()?;
        let mut room = [IoSliceMut::new(&mut bytes)];
        let message =
            recvmsg::<SockaddrIn6>(self.socket.as_raw_fd(), &mut room, Some(&mut control), MsgFlags::empty()).ok()?;
        let device = message.cmsgs().ok()?.find_map(|control| {
            if let ControlMessageOwned::Ipv6PacketInfo(info) = control { Some(info.ipi6_ifindex) } else { None }
        });
        let path = self.devices.iter().position(|of| Some(*of) == device);
        assert!(path.is_some(), "a packet by device {device:?}");
        Some((bytes, path?))
    }
}
