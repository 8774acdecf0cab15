//! A numbered stream of 10 000 packets a second through the host, and which way each of them took.

use std::fmt::{self, Display};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use adit::engine::Time;
use adit::io::clock::Clock;
use adit::io::netns;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Socket, Type};

use crate::stage::Stage;

const RATE: u64 = 10_000;
const PORT: u16 = 4_000;
/// The sender wakes this often, and then sends what is due.
const TICK: Duration = Duration::from_micros(200);
/// And the receiver takes what has come.
const PAUSE: Duration = Duration::from_millis(1);
/// Room for what comes meanwhile, however long that is; without privileges there is less.
const ROOM: usize = 64 << 20;

pub(crate) struct Stream {
    clock: Clock,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    deaf: Arc<AtomicBool>,
    receiver: JoinHandle<Vec<Packet>>,
}

/// A packet that came: the way that it took (the first or the second), its number, and when it was sent.
type Packet = (usize, u64, Time);

/// What became of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrived {
    sent: u64,
    lost: u64,
    twice: u64,
    /// From the verdict until the first packet left that took the other way.
    moved: Duration,
}

impl Stream {
    pub(crate) fn start(stage: &Stage) -> Self {
        let (clock, stop) = (Clock::start(), Arc::new(AtomicBool::new(false)));
        let to = SocketAddr::from((stage.destination(), PORT));
        let ears = ["far1", "far2"].map(|device| netns::within(Some(&stage.receiver), || ear(device, to)).unwrap());
        let socket = netns::within(Some(&stage.sender), || UdpSocket::bind("0.0.0.0:0")).unwrap();
        socket.connect(to).unwrap();
        let (stopped, deaf) = (Arc::clone(&stop), Arc::new(AtomicBool::new(false)));
        let is_deaf = Arc::clone(&deaf);
        let receiver = std::thread::spawn(move || receive(&ears, &is_deaf));
        let sender = std::thread::spawn(move || send(&socket, &clock, &stopped));
        Self { clock, stop, sender, deaf, receiver }
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Ends it, and counts. The verdict was to move it to this way.
    pub(crate) fn end(self, verdict: Time, way: usize) -> Arrived {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        // What has just been sent is handed on by the sender's own thread, or shortly after.
        std::thread::sleep(Duration::from_millis(20));
        self.deaf.store(true, Ordering::Relaxed);
        let packets = self.receiver.join().unwrap();
        let mut seen = vec![0_u64; usize::try_from(sent).unwrap()];
        packets.iter().for_each(|(_, number, _)| seen[usize::try_from(*number).unwrap()] += 1);
        let lost = seen.iter().filter(|seen| **seen == 0).count() as u64;
        let twice = seen.iter().filter(|seen| **seen > 1).count() as u64;
        let there = packets.iter().filter(|(took, _, at)| *took == way && *at >= verdict);
        let moved = there.map(|(.., at)| at.since(verdict)).min().expect("the stream moved");
        Arrived { sent, lost, twice, moved }
    }
}

fn ear(device: &str, to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    if setsockopt(&socket, sockopt::RcvBufForce, &ROOM).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &ROOM)?;
    }
    socket.bind_device(Some(device.as_bytes()))?;
    socket.bind(&to.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Takes what comes by each way, until it is told to stop.
fn receive(ears: &[Socket; 2], stop: &AtomicBool) -> Vec<Packet> {
    let mut packets = Vec::new();
    loop {
        let last = stop.load(Ordering::Relaxed);
        for (way, ear) in ears.iter().enumerate() {
            let mut packet = [0; 16];
            while let Ok(16) = io::Read::read(&mut &*ear, &mut packet) {
                let [number, at] =
                    [&packet[..8], &packet[8..]].map(|half| u64::from_be_bytes(half.try_into().unwrap()));
                packets.push((way, number, Time::from_nanos(at)));
            }
        }
        if last {
            return packets;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Sends until it is told to stop, and says how many it sent.
fn send(socket: &UdpSocket, clock: &Clock, stop: &AtomicBool) -> u64 {
    let (begin, mut number) = (clock.now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        let due = u64::try_from(now.since(begin).as_nanos()).unwrap() * RATE / 1_000_000_000;
        while number < due {
            let packet = [number.to_be_bytes(), clock.now().as_nanos().to_be_bytes()].concat();
            // The host says "unreachable" where it has no route; that is a packet lost, and counted so.
            drop(socket.send(&packet));
            number += 1;
        }
        std::thread::sleep(TICK);
    }
    number
}

impl Arrived {
    pub(crate) fn worsen(&mut self, other: Self) {
        let Self { sent, lost, twice, moved } = other;
        *self = Self {
            sent: self.sent + sent,
            lost: self.lost + lost,
            twice: self.twice + twice,
            moved: self.moved.max(moved),
        };
    }
}

impl Display for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, lost, twice, moved } = self;
        if *sent == 0 {
            return Ok(());
        }
        write!(f, "{:10.2}, {lost} of {sent}", crate::ms(*moved))?;
        if *twice > 0 { write!(f, ", {twice} came twice") } else { Ok(()) }
    }
}
