//! Users' own packets in the same tunnels, as many as one processor can send, while adit probes them.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use adit::io::netns;
use adit::io::raw::{self, Leaving};
use adit::wire::Family;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg};
use nix::time::{ClockId, clock_gettime};

use crate::cost;
use crate::stage::{NEAR, Stage, far};
use crate::subject::{Subject, Wrapping};

const MEASURED: Duration = Duration::from_secs(10);
const CALM: Duration = Duration::from_secs(3);
const BATCH: u32 = 64;
/// Of a packet, its outer header included.
const LENGTH: usize = 1_000;
/// No probe has this one.
const SPI: u32 = 0x00ff_ff00;

/// Sends until it is dropped.
struct Blaster {
    stop: Arc<AtomicBool>,
    /// How many packets it has sent, and on a processor for how long.
    thread: Option<JoinHandle<io::Result<(u64, Duration)>>>,
}

impl Blaster {
    fn start(from: &File, wrapping: Wrapping, tunnels: u32) -> io::Result<Self> {
        let leaving = Leaving { family: Family::V4, device: None, mark: 0, source: None };
        let sender = netns::within(Some(from), || raw::open_sender(&leaving))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let packets: Vec<Vec<u8>> = (0..BATCH).map(|number| packet(wrapping, number % tunnels)).collect();
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) {
                let slices: Vec<_> = packets.iter().map(|bytes| [IoSlice::new(bytes)]).collect();
                let addresses = vec![Some(SockaddrIn::from(SocketAddrV4::new(NEAR, 0))); packets.len()];
                let mut headers = MultiHeaders::preallocate(packets.len(), None);
                let fd = sender.socket().as_raw_fd();
                sent += sendmmsg(fd, &mut headers, slices.iter(), addresses, [], MsgFlags::empty())?.count() as u64;
            }
            Ok((sent, Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?)))
        });
        Ok(Self { stop, thread: Some(thread) })
    }

    fn stop(mut self) -> io::Result<(u64, Duration)> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_else(|| Err(io::Error::other("the blaster has panicked")))
    }
}

impl Drop for Blaster {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A user's packet, as it comes from the far end of a tunnel.
fn packet(wrapping: Wrapping, tunnel: u32) -> Vec<u8> {
    let mut bytes = vec![0x5a; LENGTH];
    let protocol = if wrapping == Wrapping::Esp { 50 } else { 47 };
    let total = u16::try_from(LENGTH).unwrap_or(u16::MAX).to_be_bytes();
    // The kernel fills in the checksum (raw(7)).
    bytes[..12].copy_from_slice(&[0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, protocol, 0, 0]);
    bytes[12..16].copy_from_slice(&far(tunnel).octets());
    bytes[16..20].copy_from_slice(&NEAR.octets());
    if wrapping == Wrapping::Esp {
        bytes[20..24].copy_from_slice(&(SPI + tunnel).to_be_bytes());
        return bytes;
    }
    // GRE around UDP in IPv4.
    bytes[20..24].copy_from_slice(&[0, 0, 8, 0]);
    bytes[24] = 0x45;
    bytes[24 + 9] = 17;
    bytes
}

pub(crate) fn run(stage: &Stage, tunnels: u32, wrapping: Wrapping) -> io::Result<()> {
    let subject = Subject::start(stage, tunnels, wrapping, false)?;
    subject.await_all("healthy", tunnels)?;
    std::thread::sleep(CALM);
    let during = || -> io::Result<Duration> {
        let before = cost(&subject)?;
        std::thread::sleep(MEASURED);
        Ok(cost(&subject)?.since(before).cpu)
    };
    let alone = during()?;
    let blaster = Blaster::start(&stage.far, wrapping, tunnels)?;
    let blasted = during()?;
    let (sent, spent) = blaster.stop()?;
    let metrics = subject.metrics()?;
    let lost = metrics.sum("adit_probes_total", "result=\"lost\"") + metrics.sum("adit_local_faults_total", "");
    let percent = |duration: Duration| 100.0 * duration.as_secs_f64() / MEASURED.as_secs_f64();
    println!(
        "\n{tunnels} {} tunnels among {:.0} other packets a second: adit takes {:.1} % of a core, without them {:.1} %; \
         the difference is {:.1} % of what sending them takes; lost {lost}",
        wrapping.name(),
        sent as f64 / MEASURED.as_secs_f64(),
        percent(blasted),
        percent(alone),
        100.0 * (blasted.as_secs_f64() - alone.as_secs_f64()) / spent.as_secs_f64(),
    );
    Ok(())
}
