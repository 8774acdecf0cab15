//! Hosts beyond the far routers, and the kernel between them and the engine: it makes the IP header of what is sent to
//! an endpoint.

use std::net::IpAddr;
use std::time::Duration;

use adit::engine::endpoints::{Endpoint, Timing};
use adit::engine::{Time, Transmit, Unsent};
use pnet::packet::icmp::IcmpTypes;
use pnet::packet::icmpv6::Icmpv6Types;
use pnet::packet::util;

use super::far::{self, Sending};
use super::{Sim, ms};

/// The lowest number that an endpoint's probes can bear.
pub(crate) const NUMBERS: u32 = 1 << 30;
/// The source that the kernel chooses, by family.
pub(crate) const NEAR: [&str; 2] = ["10.1.0.1", "fd00:1::1"];

/// A host, and the path to it.
#[derive(Clone)]
pub(crate) struct Host {
    /// Nothing passes.
    pub(crate) cut: bool,
    /// So many probes from now on are lost.
    pub(crate) lose_next: u32,
    pub(crate) rtt: Duration,
    /// How many times each probe is answered.
    pub(crate) copies: u32,
    /// A bit of the tag is flipped on the way, all checksums repaired.
    pub(crate) forges: bool,
    /// Answers come from another address.
    pub(crate) answers_from: Option<IpAddr>,
    /// Answers come through a GRE tunnel between these outer addresses, and are seen on the way.
    pub(crate) through: Option<[&'static str; 2]>,
    /// The kernel has no device that would unwrap them.
    pub(crate) stays_wrapped: bool,
    pub(crate) sending: Sending,
    /// When it was probed.
    pub(crate) probed: Vec<Time>,
    /// The last probe, from the ICMP header on.
    pub(crate) last: Vec<u8>,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            cut: false,
            lose_next: 0,
            rtt: ms(12),
            copies: 1,
            forges: false,
            answers_from: None,
            through: None,
            stays_wrapped: false,
            sending: Sending::Fine,
            probed: Vec::new(),
            last: Vec::new(),
        }
    }
}

/// An endpoint with all defaults.
pub(crate) fn endpoint(name: &str, address: &str) -> Endpoint {
    Endpoint {
        name: name.to_owned(),
        address: address.parse().unwrap(),
        source: None,
        netns: None,
        namespace: 0,
        egress: 0,
        timing: Timing { interval: ms(600_000), retry_interval: ms(30_000), timeout: ms(1_000), count: 3 },
    }
}

impl Sim {
    pub(crate) fn host(&mut self, address: &str) -> &mut Host {
        self.hosts.entry(address.parse().unwrap()).or_default()
    }

    /// What is sent to an endpoint.
    pub(super) fn send_to_host(&mut self, transmit: Transmit, message: &[u8]) {
        let Transmit { tunnel, sequence, destination, .. } = transmit;
        let (now, host) = (self.now, self.hosts.entry(destination).or_default());
        host.probed.push(now);
        host.last = message.to_vec();
        let unsent = match host.sending {
            Sending::Fine => None,
            Sending::LocalFault(error) => Some(Unsent::LocalFault(error)),
            Sending::Refused(error) => Some(Unsent::Refused(error)),
            Sending::Missing => Some(Unsent::Missing),
        };
        if let Some(unsent) = unsent {
            return self.engine.handle_unsent(now, tunnel, sequence, unsent);
        }
        let is_lost = host.lose_next > 0 || host.cut;
        host.lose_next = host.lose_next.saturating_sub(1);
        if is_lost {
            return;
        }
        let host = host.clone();
        let answer = answer(&host, destination, message);
        if let Some([far, near]) = host.through {
            self.inject(now + host.rtt, 0, tunnel, in_gre(far, near, &answer));
        }
        if host.stays_wrapped {
            return;
        }
        (0..host.copies).for_each(|_| self.inject(now + host.rtt, 0, tunnel, answer.clone()));
    }
}

/// A packet of IPv4 in GRE (RFC 2784) in IPv4.
fn in_gre(from: &str, to: &str, packet: &[u8]) -> Vec<u8> {
    let mut outer = with_header(from, to, &[&[0; 4], packet].concat());
    // Another protocol than ICMP has no checksum where that would be, and that of the header is another.
    outer[22..24].copy_from_slice(&[8, 0]);
    (outer[9], outer[10], outer[11]) = (47, 0, 0);
    let sum = util::checksum(&outer[..20], 5);
    outer[10..12].copy_from_slice(&sum.to_be_bytes());
    outer
}

/// The packet that comes back for a message.
fn answer(host: &Host, destination: IpAddr, message: &[u8]) -> Vec<u8> {
    let (request, reply, family) = match destination {
        IpAddr::V4(_) => (IcmpTypes::EchoRequest.0, IcmpTypes::EchoReply.0, 0),
        IpAddr::V6(_) => (Icmpv6Types::EchoRequest.0, Icmpv6Types::EchoReply.0, 1),
    };
    // That of ICMPv6 is the kernel's to fill in.
    let sum = if family == 0 { util::checksum(message, 1) } else { 0 };
    assert_eq!((message[0], u16::from_be_bytes([message[2], message[3]])), (request, sum));
    let mut message = message.to_vec();
    message[0] = reply;
    if host.forges {
        // Within the tag.
        message[8 + 41] ^= 1;
    }
    let from = host.answers_from.unwrap_or(destination).to_string();
    with_header(&from, NEAR[family], &message)
}

/// A message between these addresses as it is on the wire, its checksum right.
pub(crate) fn with_header(from: &str, to: &str, message: &[u8]) -> Vec<u8> {
    let length = |header: usize| u16::try_from(header + message.len()).unwrap().to_be_bytes();
    let mut packet = match (from.parse().unwrap(), to.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let [high, low] = length(20);
            let header = [0x45, 0, high, low, 0x33, 0x44, 0, 0, 61, 1, 0, 0];
            let mut header = [&header[..], &from.octets(), &to.octets()].concat();
            let sum = util::checksum(&header, 5);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let [high, low] = length(0);
            [&[0x60, 0, 0, 0, high, low, 58, 61][..], &from.octets(), &to.octets()].concat()
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => panic!("two families in one header"),
    };
    packet.extend(message);
    far::seal(&mut packet);
    packet
}
