//! A far end for ESP, whose two directions must not have one key: a program after all, on a thread of its own. It opens,
//! and seals again what it has opened, as a router does with a reply-style probe. What comes in GRE goes back likewise,
//! so that what ESP adds can be told from what this far end adds.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use adit::io::netns;
use adit::io::raw::{self, Leaving, Sender};
use adit::wire::esp::{Algorithm, Inbound, IvSeed, Keys, Outbound, Shape};
use adit::wire::{Ends, Family};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, setsockopt, sockopt};
use socket2::{Domain, Socket, Type};
use zeroize::Zeroizing;

use crate::stage::{NEAR, far};
use crate::subject::Wrapping;

const BATCH: usize = 64;
/// It looks so often: were it woken by each packet, it would take the processor away from whoever sends the next one,
/// which a far end on a machine of its own does not.
const NAP: Duration = Duration::from_millis(2);
/// An IPv4 header without options, and an ESP header without its IV.
const IP: usize = 20;
/// Probes are shorter.
const LONGEST: usize = 256;
const ALGORITHM: Algorithm = Algorithm::Aes256Gcm;

/// The first SPI, both ways.
pub(crate) const FIRST_SPI: u32 = 0x1000;

/// A key in hexadecimal, of each direction another one.
pub(crate) fn key(tunnel: u32, inbound: bool) -> String {
    format!("{:02x}{:070x}", 1 + u8::from(inbound), tunnel)
}

pub(crate) struct Router {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    pub(crate) fn start(namespace: &File, wrapping: Wrapping, tunnels: u32) -> io::Result<Self> {
        let protocol = if wrapping == Wrapping::Esp { 50 } else { 47 };
        let (receiver, sender) = netns::within(Some(namespace), || {
            let receiver = Socket::new(Domain::IPV4, Type::RAW, Some(protocol.into()))?;
            setsockopt(&receiver, sockopt::RcvBufForce, &(16 << 20))?;
            let leaving = Leaving { family: Family::V4, device: None, mark: 0, source: None };
            Ok((OwnedFd::from(receiver), raw::open_sender(&leaving)?))
        })?;
        let mut pairs = if wrapping == Wrapping::Esp { (0..tunnels).map(pair).collect() } else { Vec::new() };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffers = vec![[0; LONGEST]; BATCH];
            while !stopped.load(Ordering::Relaxed) {
                let answers = receive(&receiver, &mut buffers, &mut pairs);
                if answers.is_empty() {
                    std::thread::sleep(NAP);
                }
                send(&sender, &answers);
            }
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It has nothing to tell.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Pair {
    inbound: Inbound,
    outbound: Outbound,
    sequence: u64,
}

fn pair(tunnel: u32) -> Pair {
    let keys = |inbound| {
        let hex = key(tunnel, inbound);
        let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap_or(0);
        Keys::new(ALGORITHM, Zeroizing::new((0..ALGORITHM.key_len()).map(byte).collect()))
    };
    let [Some(out), Some(back)] = [false, true].map(keys) else { unreachable!("keys of the right length") };
    let spi = FIRST_SPI + tunnel;
    Pair {
        inbound: Inbound::new(spi, true, 64, &out),
        outbound: Outbound::new(spi, true, &back, &IvSeed::new([7; 16])),
        sequence: 0,
    }
}

/// What has come, as it goes back.
fn receive(socket: &OwnedFd, buffers: &mut [[u8; LONGEST]], pairs: &mut [Pair]) -> Vec<Vec<u8>> {
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(&mut buffer[..])]).collect();
    let messages = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
    let Ok(messages) = messages else { return Vec::new() };
    let mut scratch = Vec::new();
    let packets = messages.filter_map(|message| {
        let bytes = message.iovs().next()?;
        if pairs.is_empty() { Some(turned(bytes, &bytes[IP..])) } else { resealed(bytes, pairs, &mut scratch) }
    });
    packets.collect()
}

fn resealed(bytes: &[u8], pairs: &mut [Pair], scratch: &mut Vec<u8>) -> Option<Vec<u8>> {
    let esp = bytes.get(IP..)?;
    let spi = u32::from_be_bytes(*esp.first_chunk()?);
    let pair = pairs.get_mut(usize::try_from(spi.checked_sub(FIRST_SPI)?).ok()?)?;
    let inner = pair.inbound.open(esp, scratch).ok()?.packet;
    let shape = Shape::new(ALGORITHM, false);
    let mut sealed = vec![0; shape.length(inner.len())];
    sealed[shape.inner_at()..][..inner.len()].copy_from_slice(inner);
    pair.sequence += 1;
    let ends = Ends::V4 { local: far(spi - FIRST_SPI), far: NEAR };
    pair.outbound.seal(shape, ends, pair.sequence, Family::V4, inner.len(), &mut sealed);
    Some(turned(bytes, &sealed))
}

/// A packet with its outer addresses the other way round.
fn turned(came: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = came[..IP].to_vec();
    let length = u16::try_from(IP + payload.len()).unwrap_or(u16::MAX);
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes[12..20].rotate_left(4);
    bytes.extend_from_slice(payload);
    bytes
}

fn send(sender: &Sender, mut packets: &[Vec<u8>]) {
    let address = |packet: &Vec<u8>| {
        let address = packet[16..20].first_chunk::<4>().copied().unwrap_or_default();
        Some(SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::from(address), 0)))
    };
    while !packets.is_empty() {
        let slices: Vec<_> = packets.iter().map(|bytes| [IoSlice::new(bytes)]).collect();
        let addresses: Vec<_> = packets.iter().map(address).collect();
        let mut headers = MultiHeaders::preallocate(packets.len(), None);
        let fd = sender.socket().as_raw_fd();
        let sent = sendmmsg(fd, &mut headers, slices.iter(), addresses, [], MsgFlags::empty()).map(Iterator::count);
        match sent {
            Ok(sent) => packets = &packets[sent..],
            Err(Errno::EINTR) => {}
            // It is lost, and will be counted.
            Err(_) => packets = &packets[1..],
        }
    }
}
