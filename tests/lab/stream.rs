//! A numbered stream of UDP packets, and by which device each of them came.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adit::io::netns;
use libtest_mimic::Failed;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Socket, Type};

/// Packets a second.
pub(crate) const RATE: u32 = 500;
/// A guest has one processor, and its clock no more than 250 ticks a second.
const TICK: Duration = Duration::from_millis(4);
/// So many packets in a row by a device are not by chance.
const IN_A_ROW: usize = 25;
/// What was sent before a packet that has arrived has arrived this long after it.
const CALM: Duration = Duration::from_millis(100);
/// Every packet that arrives does so within this, however busy the host of the guest.
const WAY: Duration = Duration::from_secs(5);

/// One stream, from its first packet on.
pub(crate) struct Stream {
    name: String,
    /// One socket for each device.
    ears: Vec<UdpSocket>,
    /// By which device a packet came, by its number.
    ways: Vec<Option<usize>>,
    twice: u64,
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl Stream {
    /// Starts a stream from an address in one namespace to one in another, where packets may come by
    /// these devices.
    pub(crate) fn start(from: (&File, IpAddr), to: (&File, SocketAddr), devices: [&str; 2]) -> io::Result<Self> {
        let ear = |device: &str| netns::within(Some(to.0), || listen(device, to.1));
        let ears = devices.into_iter().map(ear).collect::<io::Result<Vec<_>>>()?;
        let socket = netns::within(Some(from.0), || {
            let socket = UdpSocket::bind((from.1, 0))?;
            socket.connect(to.1)?;
            Ok(socket)
        })?;
        let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let shared = (Arc::clone(&sent), Arc::clone(&stop));
        let sender = Some(std::thread::spawn(move || send(&socket, &shared.0, &shared.1)));
        let name = format!("{} → {}", from.1, to.1.ip());
        Ok(Self { name, ears, ways: Vec::new(), twice: 0, sent, stop, sender })
    }

    /// The number of the packet that is sent next.
    pub(crate) fn now(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Waits until packets that are sent from now on come by this device only, and gives the number of
    /// the first of them.
    #[expect(clippy::disallowed_methods, reason = "real packets take real time")]
    pub(crate) fn comes_by(&mut self, way: usize, limit: Duration) -> Result<u64, Failed> {
        let (mark, begin) = (self.now(), Instant::now());
        loop {
            self.take()?;
            let came = self.ways.get(at(mark)..).unwrap_or_default();
            let behind = came.iter().rposition(|by| by.is_some_and(|by| by != way)).map_or(0, |last| last + 1);
            let count = came[behind..].iter().filter(|by| by.is_some()).count();
            if count >= IN_A_ROW {
                // It may have come this way before it was asked.
                let other = self.ways.iter().rposition(|by| by.is_some_and(|by| by != way));
                let first = other.map_or(0, |last| last + 1);
                let first = first + self.ways[first..].iter().position(Option::is_some).unwrap_or(0);
                return Ok(first as u64);
            }
            if begin.elapsed() > limit {
                let all = self.ways.iter().flatten().count();
                return Err(format!("{}: not by device {way} after {limit:?}: {count} of {all} came", self.name).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Nothing of this part of the stream is missing.
    pub(crate) fn is_whole(&mut self, part: Range<u64>) -> Result<(), Failed> {
        let lost = self.lost(part.clone())?;
        if lost.is_empty() {
            return Ok(());
        }
        Err(format!("{}: {} of {part:?} lost: {:?}…", self.name, lost.len(), &lost[..lost.len().min(20)]).into())
    }

    /// No more than this of a part is missing.
    pub(crate) fn lacks_at_most(&mut self, part: Range<u64>, bound: Duration) -> Result<(), Failed> {
        let (lost, most) = (self.lost(part.clone())?.len(), bound.as_secs_f64() * f64::from(RATE));
        println!("lab: {}: {lost} packets lost, {} ms", self.name, 1_000 * lost / RATE as usize);
        if lost as f64 <= most { Ok(()) } else { Err(format!("{}: {lost} of {part:?} lost", self.name).into()) }
    }

    #[expect(clippy::disallowed_methods, reason = "real packets take real time")]
    fn lost(&mut self, part: Range<u64>) -> Result<Vec<u64>, Failed> {
        let begin = Instant::now();
        // Something behind it is here: it is not on its way any more.
        while self.ways.len() <= at(part.end) && begin.elapsed() < WAY {
            std::thread::sleep(TICK);
            self.take()?;
        }
        std::thread::sleep(CALM);
        self.take()?;
        if self.twice > 0 {
            return Err(format!("{}: {} packets came twice", self.name, self.twice).into());
        }
        Ok(part.filter(|number| self.ways.get(at(*number)).copied().flatten().is_none()).collect())
    }

    fn take(&mut self) -> io::Result<()> {
        for (way, ear) in self.ears.iter().enumerate() {
            let mut packet = [0; 8];
            loop {
                match ear.recv(&mut packet) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
                let number = at(u64::from_be_bytes(packet));
                if self.ways.len() <= number {
                    self.ways.resize(number + 1, None);
                }
                self.twice += u64::from(self.ways[number].replace(way).is_some());
            }
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            // Its packets were counted already.
            let _ = sender.join();
        }
    }
}

fn at(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn listen(device: &str, at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
    socket.bind_device(Some(device.as_bytes()))?;
    socket.set_nonblocking(true)?;
    setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20))?;
    socket.bind(&at.into())?;
    Ok(socket.into())
}

#[expect(clippy::disallowed_methods, reason = "real packets take real time")]
fn send(socket: &UdpSocket, sent: &AtomicU64, stop: &AtomicBool) {
    let begin = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX) * u64::from(RATE) / 1_000;
        for number in sent.load(Ordering::Relaxed)..due {
            // Where there is no route the sender is told so; the packet is lost then, and counted.
            let _ = socket.send(&number.to_be_bytes());
            sent.store(number + 1, Ordering::Relaxed);
        }
        std::thread::sleep(TICK);
    }
}
