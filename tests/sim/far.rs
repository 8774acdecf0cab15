//! A far router, and what the path to it does.

use std::net::IpAddr;
use std::time::Duration;

use adit::wire::payload::{self, Key};
use adit::wire::{Direction, Onion};
use pnet::packet::gre::MutableGrePacket;
use pnet::packet::icmp::{IcmpTypes, MutableIcmpPacket};
use pnet::packet::icmpv6::{self, Icmpv6Types, MutableIcmpv6Packet};
use pnet::packet::ip::IpNextHeaderProtocols;
use pnet::packet::ipv4::{self, Ipv4Flags, Ipv4Packet, MutableIpv4Packet};
use pnet::packet::ipv6::{Ipv6Packet, MutableIpv6Packet};
use pnet::packet::util;

use crate::sim::router::Router;

/// What the kernel does with a probe that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    Fine,
    /// Short of buffers, as with ENOBUFS.
    LocalFault(&'static str),
    /// Refused, as with EPERM.
    Refused(&'static str),
    /// What it leaves by is missing.
    Missing,
}

/// How a path and the router at its end behave.
#[derive(Clone)]
pub(crate) struct Far {
    /// Nothing passes.
    pub(crate) cut: bool,
    /// So many probes from now on are lost.
    pub(crate) lose_next: u32,
    /// Every so-many-th probe is lost; 0 for none.
    pub(crate) lose_every: u32,
    /// Share of the probes that is lost, in millionths.
    pub(crate) loss_ppm: u32,
    pub(crate) rtt: Duration,
    /// Up to so much more, evenly distributed; more than the gap between two probes reorders.
    pub(crate) jitter: Duration,
    /// How many times each probe is answered.
    pub(crate) copies: u32,
    pub(crate) sending: Sending,
    /// Of several targets, those that say nothing.
    pub(crate) silent: Vec<IpAddr>,
    /// And by how much later others answer.
    pub(crate) slower: Vec<(IpAddr, Duration)>,
    /// The tunnel through which answers come back, if it is another.
    pub(crate) returns_by: Option<u32>,
    /// Answers are encapsulated (or not) contrary to what they must be.
    pub(crate) wrong_path: bool,
    /// A bit of the tag is flipped on the way, all checksums repaired.
    pub(crate) forges: bool,
    /// The reflector's mark.
    pub(crate) mark: Option<Key>,
    /// What it does with the probes of a diagnosis.
    pub(crate) router: Router,
    seen: u32,
}

impl Default for Far {
    fn default() -> Self {
        Self {
            cut: false,
            lose_next: 0,
            lose_every: 0,
            loss_ppm: 0,
            rtt: Duration::from_millis(10),
            jitter: Duration::ZERO,
            copies: 1,
            sending: Sending::Fine,
            silent: Vec::new(),
            slower: Vec::new(),
            returns_by: None,
            wrong_path: false,
            forges: false,
            mark: None,
            router: Router::default(),
            seen: 0,
        }
    }
}

impl Far {
    /// Whether the next probe is lost.
    pub(crate) fn loses(&mut self) -> bool {
        self.seen += 1;
        let marked_out = self.lose_next > 0;
        self.lose_next = self.lose_next.saturating_sub(1);
        self.cut || marked_out || self.lose_every > 0 && self.seen.is_multiple_of(self.lose_every)
    }

    /// The packet that comes back for a probe, made from its bytes; `via` is the tunnel it comes by.
    pub(crate) fn answer(&self, sent: &[u8], direction: Direction, via: &Onion) -> Vec<u8> {
        let mut inner = decapsulate(sent).to_vec();
        turn(&mut inner);
        if self.forges || self.mark.is_some() {
            let at = if inner[0] >> 4 == 4 { 28 } else { 48 };
            let body = inner[at..].first_chunk_mut::<{ payload::LEN }>();
            let body = body.unwrap_or_else(|| panic!("a probe has a whole payload"));
            if let Some(key) = &self.mark {
                payload::mark(body, key);
            }
            if self.forges {
                body[41] ^= 1;
            }
            seal(&mut inner);
        }
        if (direction == Direction::Bidirectional) != self.wrong_path { encapsulate(&inner, via) } else { inner }
    }
}

/// The far end of an inner IPv4 packet with a request.
pub(crate) fn target(packet: &[u8]) -> Option<IpAddr> {
    let inner = Ipv4Packet::new(decapsulate(packet)).filter(|inner| inner.get_version() == 4)?;
    Some(inner.get_destination().into())
}

/// What a GRE packet, its outer header included, carries.
pub(crate) fn decapsulate(packet: &[u8]) -> &[u8] {
    let gre_at = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let words = (packet[gre_at] & 0xB0).count_ones() as usize;
    &packet[gre_at + 4 + 4 * words..]
}

/// The inner packet that comes back for an inner packet.
pub(crate) fn answer_of(inner: &[u8]) -> Vec<u8> {
    let mut answer = inner.to_vec();
    turn(&mut answer);
    answer
}

/// Answers an echo request, or takes an echo reply one hop further.
fn turn(inner: &mut [u8]) {
    if inner[0] >> 4 == 4 {
        let request = inner[20] == IcmpTypes::EchoRequest.0;
        let mut header = MutableIpv4Packet::new(inner).unwrap_or_else(|| panic!("too short for IPv4"));
        if request {
            let (source, destination) = (header.get_source(), header.get_destination());
            header.set_source(destination);
            header.set_destination(source);
            header.set_identification(0x9C01);
            header.set_flags(0);
        } else {
            header.set_ttl(header.get_ttl() - 1);
        }
        header.set_checksum(ipv4::checksum(&header.to_immutable()));
        if request {
            inner[20] = IcmpTypes::EchoReply.0;
        }
    } else {
        let request = inner[40] == Icmpv6Types::EchoRequest.0;
        let mut header = MutableIpv6Packet::new(inner).unwrap_or_else(|| panic!("too short for IPv6"));
        if request {
            let (source, destination) = (header.get_source(), header.get_destination());
            header.set_source(destination);
            header.set_destination(source);
            inner[40] = Icmpv6Types::EchoReply.0;
        } else {
            header.set_hop_limit(header.get_hop_limit() - 1);
        }
    }
    seal(inner);
}

/// Repairs the ICMP checksum of an inner packet.
pub(crate) fn seal(inner: &mut [u8]) {
    if inner[0] >> 4 == 4 {
        let sum = util::checksum(&inner[20..], 1);
        if let Some(mut message) = MutableIcmpPacket::new(&mut inner[20..]) {
            message.set_checksum(sum);
        }
        return;
    }
    let ends = Ipv6Packet::new(inner).map(|header| (header.get_source(), header.get_destination()));
    let Some((source, destination)) = ends else { return };
    if let Some(mut message) = MutableIcmpv6Packet::new(&mut inner[40..]) {
        message.set_checksum(icmpv6::checksum(&message.to_immutable(), &source, &destination));
    }
}

/// Wraps a packet the way the far end of this tunnel does.
pub(crate) fn encapsulate(inner: &[u8], via: &Onion) -> Vec<u8> {
    let options = via.encapsulation.gre().unwrap_or_else(|| panic!("no GRE tunnel"));
    let mut words = Vec::new();
    words.extend(options.checksum.then_some(0));
    words.extend(options.key);
    // The far side counts its packets on its own; it proves nothing.
    words.extend(options.sequence.then_some(77));
    let mut gre = vec![0; 4];
    gre.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    gre.extend(inner);
    if let Some(mut header) = MutableGrePacket::new(&mut gre) {
        header.set_checksum_present(u8::from(options.checksum));
        header.set_key_present(u8::from(options.key.is_some()));
        header.set_sequence_present(u8::from(options.sequence));
        header.set_protocol_type(if inner[0] >> 4 == 4 { 0x0800 } else { 0x86DD });
    }
    if options.checksum {
        let sum = util::checksum(&gre, 2);
        gre[4..6].copy_from_slice(&sum.to_be_bytes());
    }
    wrap_ip(&gre, via.outer.far(), via.outer.local())
}

/// Puts an IP header for GRE in front.
fn wrap_ip(gre: &[u8], source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let length = u16::try_from(gre.len()).unwrap_or(u16::MAX);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut packet = vec![0; Ipv4Packet::minimum_packet_size()];
            if let Some(mut header) = MutableIpv4Packet::new(&mut packet) {
                header.set_version(4);
                header.set_header_length(5);
                header.set_total_length(20 + length);
                header.set_identification(0x5151);
                header.set_flags(Ipv4Flags::DontFragment);
                header.set_ttl(61);
                header.set_next_level_protocol(IpNextHeaderProtocols::Gre);
                header.set_source(source);
                header.set_destination(destination);
                header.set_checksum(ipv4::checksum(&header.to_immutable()));
            }
            packet.extend(gre);
            packet
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut packet = vec![0; Ipv6Packet::minimum_packet_size()];
            if let Some(mut header) = MutableIpv6Packet::new(&mut packet) {
                header.set_version(6);
                header.set_payload_length(length);
                header.set_next_header(IpNextHeaderProtocols::Gre);
                header.set_hop_limit(61);
                header.set_source(source);
                header.set_destination(destination);
            }
            packet.extend(gre);
            packet
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => panic!("two families in one header"),
    }
}
