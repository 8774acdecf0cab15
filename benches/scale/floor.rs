//! The least that the task needs: packets that were built before, sent and received by the same system calls, a tick
//! after the other; nothing is checked, judged or remembered. In the same run, so that the ratio travels.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use adit::engine::schedule::TICK;
use adit::io::netns;
use adit::io::raw::{self, Leaving};
use adit::wire::filter::{Pass, Protocol};
use adit::wire::payload::{Fields, Key, Secret};
use adit::wire::{Direction, Ends, Family, Kind, Onion, Stamp, Style, Template, gre};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg};
use nix::time::{ClockId, clock_gettime};

use crate::stage::{NEAR, far, inner};

const BATCH: usize = 64;
/// From so many a second on adit's own tick is half as long.
const MANY: u32 = 5_000;
const EPOCH: u64 = 7;

/// CPU of one round trip, and how many there were.
pub(crate) fn run(near: &File, tunnels: u32, length: Duration) -> io::Result<(Duration, u64)> {
    netns::within(Some(near), || {
        let leaving = Leaving { family: Family::V4, device: None, mark: 0, source: None };
        let sender = raw::open_sender(&leaving)?;
        let receiver = raw::open_receiver(Family::V4, Protocol::Gre, Pass::Answers { epoch: EPOCH })?;
        let packets: Vec<Vec<u8>> = (0..tunnels).map(packet).collect();
        let mut buffers = vec![[0_u8; 256]; BATCH];
        let tick = if tunnels < MANY { TICK } else { TICK / 2 };
        let slots = Duration::from_secs(1).as_nanos() / tick.as_nanos();
        let (begin, cpu) = (Instant::now(), cpu()?);
        let (mut slot, mut received) = (0_u128, 0);
        while begin.elapsed() < length {
            let due = begin + tick * u32::try_from(slot).unwrap_or(u32::MAX);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let at = |slot: u128| usize::try_from(u128::from(tunnels) * slot / slots).unwrap_or(usize::MAX);
            let range = at(slot % slots)..at(slot % slots + 1);
            for batch in packets[range.clone()].chunks(BATCH).zip(0..) {
                let from = range.start + batch.1 * BATCH;
                send(sender.socket().as_raw_fd(), batch.0, from)?;
            }
            received += drain(receiver.socket().as_raw_fd(), &mut buffers)?;
            slot += 1;
        }
        Ok((self::cpu()?.saturating_sub(cpu), received))
    })
}

fn packet(tunnel: u32) -> Vec<u8> {
    let (near, far) = (inner(tunnel), std::net::Ipv4Addr::from(u32::from(inner(tunnel)) + 1));
    let onion = Onion {
        style: Style { kind: Kind::Request, direction: Direction::Bidirectional },
        outer: Ends::V4 { local: NEAR, far: self::far(tunnel) },
        inner: Ends::V4 { local: near, far },
        encapsulation: gre::Options::default().into(),
        ttl: 64,
        dscp: 0,
        size: 72,
    };
    let stamp = Stamp { fields: Fields { tunnel, sequence: 1, sent: 1 }, identifier: 1, ip_id: 1 };
    let mut bytes = vec![0; 256];
    let secret = Secret { key: Key::new([7; 16]), epoch: EPOCH };
    let length = Template::new(&onion).emit(&stamp, &secret, None, &mut bytes).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

fn send(socket: i32, packets: &[Vec<u8>], from: usize) -> io::Result<()> {
    let slices: Vec<_> = packets.iter().map(|bytes| [IoSlice::new(bytes)]).collect();
    let address = |place: usize| {
        let tunnel = u32::try_from(from + place).unwrap_or(u32::MAX);
        Some(SockaddrIn::from(SocketAddrV4::new(far(tunnel), 0)))
    };
    let addresses: Vec<_> = (0..packets.len()).map(address).collect();
    let mut headers = MultiHeaders::preallocate(packets.len(), None);
    sendmmsg(socket, &mut headers, slices.iter(), addresses, [], MsgFlags::empty())?;
    Ok(())
}

fn drain(socket: i32, buffers: &mut [[u8; 256]]) -> io::Result<u64> {
    let mut all = 0;
    loop {
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, Some(nix::cmsg_space!([u8; 128])));
        let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(&mut buffer[..])]).collect();
        match recvmmsg(socket, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None) {
            Ok(messages) => {
                let count = messages.count();
                all += count as u64;
                if count < BATCH {
                    return Ok(all);
                }
            }
            Err(nix::errno::Errno::EAGAIN) => return Ok(all),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Of this thread.
fn cpu() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}
