//! Bytes are the proof: what is built and what is accepted or refused, against packets that other
//! code made; and pnet as an oracle for what is built.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

mod bpf;
mod packets;
mod sealed;

use std::collections::BTreeSet;
use std::net::IpAddr;

use adit::wire::filter::{self, Pass, Protocol};
use adit::wire::payload::{self, Fields};
use adit::wire::probe::{self, Template, unpack};
use adit::wire::{Direction, Encapsulation, Ends, Family, Kind, Onion, Reject, Stamp, Style, gre, ip};
use packets::{Fixture, arrived, secret};
use pnet::packet::Packet;
use pnet::packet::gre::GrePacket;
use pnet::packet::icmp::echo_request::EchoRequestPacket;
use pnet::packet::icmpv6::Icmpv6Packet;
use pnet::packet::ipv4::{self, Ipv4Packet};
use pnet::packet::ipv6::Ipv6Packet;

/// The first reject that the engine gives instead of the parser.
const FIRST_OF_ENGINE: Reject = Reject::UnknownTunnel;

fn gre_of(onion: &Onion) -> gre::Options {
    onion.encapsulation.gre().unwrap()
}

fn emit(onion: &Onion, fields: Fields, ip_id: u16) -> Vec<u8> {
    let mut out = vec![0xAA; 2048];
    let stamp = Stamp { fields, identifier: packets::IDENTIFIER, ip_id };
    let length = Template::new(onion).emit(&stamp, &secret(), None, &mut out).unwrap();
    assert!(out[length..].iter().all(|&byte| byte == 0xAA), "wrote past the length it returned");
    out.truncate(length);
    out
}

/// Puts the fixture's GRE sequence into ours, with pnet's checksum over it: ours is the low half
/// of the probe's own sequence, the fixture's is 1000.
fn with_sequence(mut packet: Vec<u8>, at: usize, fixture: &Fixture) -> Vec<u8> {
    if let Some(sequence) = fixture.gre_sequence {
        let word = at + gre_of(&fixture.onion()).header_len() - 4;
        packet[word..word + 4].copy_from_slice(&sequence.to_be_bytes());
        if fixture.checksum {
            packet[at + 4..at + 6].fill(0);
            let sum = pnet::packet::util::checksum(&packet[at..], usize::MAX);
            packet[at + 4..at + 6].copy_from_slice(&sum.to_be_bytes());
        }
    }
    packet
}

#[test]
fn every_sent_packet_is_built_byte_for_byte() {
    let fixtures = packets::named("sent-");
    assert_eq!(fixtures.len(), 24);
    for fixture in fixtures {
        let onion = fixture.onion();
        let at = match onion.outer.family() {
            Family::V4 => 20,
            Family::V6 => 40,
        };
        // The generator gave the two headers different identifications, ours share one: so the
        // outer header comes from one building, all the rest from another.
        let outer = emit(&onion, packets::FIELDS, packets::OUTER_ID);
        let inner = emit(&onion, packets::FIELDS, packets::INNER_ID);
        let built = [&outer[..at], &with_sequence(inner, at, &fixture)[at..]].concat();
        assert_eq!(hex(&built), hex(&fixture.bytes()), "{}: {}", fixture.name, fixture.about);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_accepted_packet_parses_to_the_right_fields() {
    for fixture in packets::named("accept-") {
        assert!(fixture.accept, "{}", fixture.name);
        let bytes = fixture.bytes();
        let reply =
            probe::parse(arrived(&bytes), &secret()).unwrap_or_else(|reject| panic!("{}: {reject}", fixture.name));
        assert_eq!(reply.fields, packets::FIELDS, "{}", fixture.name);
        assert_eq!(reply.path, fixture.path(), "{}", fixture.name);
        assert_eq!(reply.inner, fixture.inner(), "{}", fixture.name);
        assert_eq!(payload::is_marked(reply.payload, &packets::mark_key()), fixture.marked, "{}", fixture.name);
        assert_eq!(probe::claimed_tunnel(arrived(&bytes)), Some(7), "{}", fixture.name);
    }
}

#[test]
fn every_refused_packet_is_refused_for_its_reason() {
    for fixture in packets::named("reject-") {
        let bytes = fixture.bytes();
        let found = probe::parse(arrived(&bytes), &secret()).map(|reply| reply.fields).map_err(Reject::label);
        assert_eq!(found, Err(fixture.reject.as_deref().unwrap()), "{}: {}", fixture.name, fixture.about);
    }
}

#[test]
fn every_reject_of_the_parser_has_a_fixture_and_every_fixture_a_reject() {
    let plain = packets::all().into_iter().filter_map(|fixture| fixture.reject);
    let fixtures: BTreeSet<String> = plain.chain(sealed::labels()).collect();
    let wire = Reject::ALL.iter().take_while(|reject| **reject != FIRST_OF_ENGINE);
    let labels: BTreeSet<String> = wire.map(|reject| reject.label().to_owned()).collect();
    assert_eq!(fixtures, labels);
}

#[test]
fn rejects_have_labels_of_their_own() {
    let labels: BTreeSet<&str> = Reject::ALL.iter().map(|reject| reject.label()).collect();
    assert_eq!(labels.len(), Reject::COUNT);
    assert!(Reject::ALL.iter().enumerate().all(|(at, reject)| reject.index() == at));
}

#[test]
fn a_probe_seen_on_its_way_out_is_no_answer_unless_its_style_makes_it_one() {
    for fixture in packets::named("sent-") {
        let bytes = fixture.bytes();
        let parsed = probe::parse(arrived(&bytes), &secret());
        match fixture.kind() {
            Kind::Request => assert_eq!(parsed.map(|reply| reply.fields), Err(Reject::IcmpType), "{}", fixture.name),
            // A reply-style probe has the form of its own answer. What tells them apart is the way:
            // outgoing it is encapsulated from here to there, or encapsulated where it must be bare.
            Kind::Reply => assert_ne!(parsed.unwrap().path, fixture.path(), "{}", fixture.name),
        }
    }
}

/// Onions over everything that changes their shape.
fn onions() -> Vec<Onion> {
    let mut onions = Vec::new();
    let outers = [packets::ends("192.0.2.1", "203.0.113.2"), packets::ends("2001:db8::1", "2001:db8:1::2")];
    let inners = [packets::ends("10.100.0.8", "10.100.0.9"), packets::ends("fd00:100::8", "fd00:100::9")];
    for (outer, inner) in outers.into_iter().flat_map(|outer| inners.map(|inner| (outer, inner))) {
        for bits in 0..16_u32 {
            let bit = |at: u32| bits >> at & 1 == 1;
            let kind = if bit(3) { Kind::Reply } else { Kind::Request };
            onions.push(Onion {
                style: Style { kind, direction: Direction::Bidirectional },
                outer,
                encapsulation: Encapsulation::Gre(gre::Options {
                    key: bit(0).then_some(0xDEAD_BEEF),
                    checksum: bit(1),
                    sequence: bit(2),
                }),
                inner,
                ttl: u8::try_from(17 + bits).unwrap(),
                dscp: u8::try_from(bits * 4 + 3).unwrap(),
                size: u16::try_from(72 + bits * 75).unwrap(),
            });
        }
    }
    onions
}

/// Source and destination of an IP packet, its TTL, DSCP, protocol and payload, as pnet reads them;
/// lengths and checksums are checked on the way.
fn read_ip(bytes: &[u8]) -> (IpAddr, IpAddr, u8, u8, u8, Vec<u8>) {
    if bytes[0] >> 4 == 4 {
        let packet = Ipv4Packet::new(bytes).unwrap();
        assert_eq!(usize::from(packet.get_total_length()), bytes.len());
        assert_eq!(packet.get_header_length(), 5);
        assert_eq!(packet.get_checksum(), ipv4::checksum(&packet));
        assert_eq!(packet.get_flags(), ipv4::Ipv4Flags::DontFragment);
        assert_eq!(packet.get_fragment_offset(), 0);
        assert_ne!(packet.get_identification(), 0, "a zero would make the kernel choose one");
        let (source, destination) = (packet.get_source().into(), packet.get_destination().into());
        let protocol = packet.get_next_level_protocol().0;
        (source, destination, packet.get_ttl(), packet.get_dscp(), protocol, packet.payload().to_vec())
    } else {
        let packet = Ipv6Packet::new(bytes).unwrap();
        assert_eq!(packet.get_version(), 6);
        assert_eq!(usize::from(packet.get_payload_length()) + 40, bytes.len());
        assert_eq!(packet.get_flow_label(), 0);
        let (source, destination) = (packet.get_source().into(), packet.get_destination().into());
        let dscp = packet.get_traffic_class() >> 2;
        let protocol = packet.get_next_header().0;
        (source, destination, packet.get_hop_limit(), dscp, protocol, packet.payload().to_vec())
    }
}

#[test]
fn pnet_reads_what_is_built_to_the_same_fields() {
    for (onion, number) in onions().into_iter().zip(0_u64..) {
        let fields = Fields { tunnel: 99, sequence: 0xFFFF_FFF0_0000_0000 + number, sent: u64::MAX - number };
        let ip_id = u16::try_from(number).unwrap();
        let bytes = emit(&onion, fields, ip_id);
        assert_eq!(bytes.len(), Template::new(&onion).len());
        let (source, destination, ttl, dscp, protocol, payload) = read_ip(&bytes);
        assert_eq!((source, destination), (onion.outer.local(), onion.outer.far()));
        assert_eq!((ttl, dscp, protocol), (onion.ttl, onion.dscp, 47));

        let header = GrePacket::new(&payload).unwrap();
        assert_eq!((header.get_version(), header.get_routing_present(), header.get_zero_flags()), (0, 0, 0));
        assert_eq!(header.get_protocol_type(), if onion.inner.local().is_ipv4() { 0x0800 } else { 0x86DD });
        assert_eq!(hex(header.get_key_raw()), gre_of(&onion).key.map_or(String::new(), |key| hex(&key.to_be_bytes())));
        let [.., a, b, c, d] = fields.sequence.to_be_bytes();
        let sequence = if gre_of(&onion).sequence { hex(&[a, b, c, d]) } else { String::new() };
        assert_eq!(hex(header.get_sequence_raw()), sequence);
        assert_eq!(header.get_checksum_present() == 1, gre_of(&onion).checksum);
        if gre_of(&onion).checksum {
            let sum = pnet::packet::util::checksum(&payload, 2);
            assert_eq!(hex(header.get_checksum_raw()), hex(&sum.to_be_bytes()));
            assert_eq!(hex(header.get_offset_raw()), "0000");
        }

        let (source, destination, ttl, dscp, protocol, message) = read_ip(header.payload());
        let (local, far) = (onion.inner.local(), onion.inner.far());
        match onion.style.kind {
            Kind::Request => assert_eq!((source, destination), (local, far)),
            Kind::Reply => assert_eq!((source, destination), (far, local)),
        }
        assert_eq!((ttl, dscp), (64, onion.dscp));
        let kind = match (source, destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) => {
                assert_eq!(protocol, 1);
                let own = u16::from_be_bytes([message[2], message[3]]);
                assert_eq!(own, pnet::packet::util::checksum(&message, 1));
                if onion.style.kind == Kind::Request { 8 } else { 0 }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                assert_eq!(protocol, 58);
                let packet = Icmpv6Packet::new(&message).unwrap();
                assert_eq!(packet.get_checksum(), pnet::packet::icmpv6::checksum(&packet, &source, &destination));
                if onion.style.kind == Kind::Request { 128 } else { 129 }
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => panic!("two families in one header"),
        };
        // Identifier and sequence lie at the same places in both families.
        let echo = EchoRequestPacket::new(&message).unwrap();
        assert_eq!((echo.get_icmp_type().0, echo.get_icmp_code().0), (kind, 0));
        assert_eq!(echo.get_identifier(), packets::IDENTIFIER);
        assert_eq!(u64::from(echo.get_sequence_number()), fields.sequence & 0xFFFF);
        assert_eq!(echo.payload().len(), usize::from(onion.size));
        assert!(echo.payload()[payload::LEN..].iter().all(|&byte| byte == 0), "the padding is zeros");
    }
}

#[test]
fn our_own_parser_reads_what_is_built() {
    for onion in onions() {
        let bytes = emit(&onion, packets::FIELDS, 5);
        let unpacked = unpack(arrived(&bytes)).unwrap();
        assert_eq!(unpacked.echo.kind, onion.style.kind);
        assert_eq!(unpacked.path, probe::Path::Gre { outer: onion.outer.reversed(), key: gre_of(&onion).key });
        let far_to_local = if onion.style.kind == Kind::Request { onion.inner.reversed() } else { onion.inner };
        assert_eq!(unpacked.ends, far_to_local);
    }
}

#[test]
fn a_buffer_that_is_too_short_gives_nothing() {
    let onion = onions().remove(0);
    let template = Template::new(&onion);
    let stamp = Stamp { fields: packets::FIELDS, identifier: 0, ip_id: 0 };
    for length in 0..template.len() {
        assert_eq!(template.emit(&stamp, &secret(), None, &mut vec![0; length]), None);
    }
    assert_eq!(template.emit(&stamp, &secret(), None, &mut vec![0; template.len()]), Some(template.len()));
}

#[test]
fn the_default_probe_stays_below_1280_bytes() {
    let worst = Onion {
        encapsulation: Encapsulation::Gre(gre::Options { key: Some(1), checksum: true, sequence: true }),
        size: 72,
        ..onions().pop().unwrap()
    };
    assert!(matches!((worst.outer, worst.inner), (Ends::V6 { .. }, Ends::V6 { .. })));
    assert!(Template::new(&worst).len() < 1280);
}

/// What the socket of this family and protocol would see of a packet; `None` for another socket's.
fn seen(bytes: &[u8], protocol: Protocol) -> Option<(Family, &[u8])> {
    let number = match (bytes[0] >> 4, protocol) {
        (_, Protocol::Gre) => gre::PROTOCOL,
        (4, Protocol::Icmp) => ip::ICMP,
        _ => ip::ICMPV6,
    };
    match bytes[0] >> 4 {
        4 if bytes[9] == number => Some((Family::V4, bytes)),
        6 if bytes[6] == number => Some((Family::V6, &bytes[40..])),
        _ => None,
    }
}

/// What the run of the vectors listens to.
const ANSWERS: Pass = Pass::Answers { epoch: packets::EPOCH };

fn passes(bytes: &[u8], pass: Pass) -> bool {
    [Protocol::Gre, Protocol::Icmp]
        .into_iter()
        .filter_map(|protocol| seen(bytes, protocol).map(|(family, seen)| (family, protocol, seen)))
        .any(|(family, protocol, seen)| bpf::run(&filter::program(family, protocol, pass), seen) > 0)
}

#[test]
fn the_filter_passes_every_answer_whole() {
    for fixture in packets::named("accept-") {
        assert!(passes(&fixture.bytes(), ANSWERS), "{}", fixture.name);
        assert!(passes(&fixture.bytes(), Pass::Echoes), "{}", fixture.name);
    }
    for onion in onions() {
        let answer = Onion { style: Style { kind: Kind::Reply, ..onion.style }, ..onion };
        let bytes = emit(&answer, packets::FIELDS, 1);
        for protocol in [Protocol::Gre, Protocol::Icmp] {
            if let Some((family, seen)) = seen(&bytes, protocol) {
                let passed = bpf::run(&filter::program(family, protocol, ANSWERS), seen);
                assert!(passed as usize >= bytes.len(), "{answer:?}: cut to {passed}");
            }
        }
    }
}

#[test]
fn the_filter_drops_our_own_requests_but_a_reflector_s_passes_them() {
    for fixture in packets::named("sent-request-") {
        assert!(!passes(&fixture.bytes(), ANSWERS), "{}", fixture.name);
        assert!(passes(&fixture.bytes(), Pass::Echoes), "{}", fixture.name);
    }
    for fixture in packets::named("sent-reply-") {
        assert!(passes(&fixture.bytes(), Pass::Echoes), "{}", fixture.name);
    }
}

#[test]
fn the_filter_drops_what_its_own_headers_refuse() {
    // Whatever the filter can see without sums or keys, it keeps from waking us.
    let seen_by_filter =
        ["gre-version", "gre-routing", "gre-protocol", "gre-truncated", "inner-protocol", "icmp-type", "magic"];
    for fixture in packets::named("reject-") {
        let label = fixture.reject.clone().unwrap();
        // An error that quotes a probe of ours passes: it is a hint, see tests/hints.rs.
        if fixture.name.starts_with("reject-icmp-type-unreachable-bare") {
            assert!(passes(&fixture.bytes(), ANSWERS), "{}", fixture.name);
        } else if seen_by_filter.contains(&label.as_str()) {
            assert!(!passes(&fixture.bytes(), ANSWERS), "{}", fixture.name);
        }
    }
}

/// Users' traffic in a tunnel: GRE with these options around an inner packet of this protocol.
fn traffic(onion: &Onion, protocol: u8, content: &[u8]) -> Vec<u8> {
    let mut packet = emit(onion, packets::FIELDS, 1);
    let gre_at = if onion.outer.local().is_ipv4() { 20 } else { 40 };
    let inner_at = gre_at + gre_of(onion).header_len();
    let (protocol_at, content_at) = match onion.inner.family() {
        Family::V4 => (inner_at + 9, inner_at + 20),
        Family::V6 => (inner_at + 6, inner_at + 40),
    };
    packet[protocol_at] = protocol;
    let end = (content_at + content.len()).min(packet.len());
    packet[content_at..end].copy_from_slice(&content[..end - content_at]);
    packet
}

#[test]
fn the_filter_drops_ordinary_traffic() {
    for onion in onions() {
        let (icmp, reply) = match onion.inner.family() {
            Family::V4 => (ip::ICMP, Kind::Reply.number(Family::V4)),
            Family::V6 => (ip::ICMPV6, Kind::Reply.number(Family::V6)),
        };
        // TCP and UDP, even where their bytes look like an answer of ours.
        let mut lookalike = vec![reply, 0, 0, 0, 0, 0, 0, 0];
        lookalike.extend(payload::MAGIC);
        lookalike.extend([0; 12]);
        lookalike.extend(packets::EPOCH.to_be_bytes());
        for protocol in [6, 17, 50, 47, 4, 41, 132] {
            assert!(!passes(&traffic(&onion, protocol, &lookalike), ANSWERS), "protocol {protocol}, {onion:?}");
            assert!(!passes(&traffic(&onion, protocol, &lookalike), Pass::Echoes), "protocol {protocol}, {onion:?}");
        }
        // The lookalike as ICMP does pass: the test above can fail.
        assert!(passes(&traffic(&onion, icmp, &lookalike), ANSWERS), "{onion:?}");
        // Somebody else's ping, its payload the usual time stamp and counting bytes.
        let mut ping = vec![reply, 0, 0x12, 0x34, 0, 1, 0, 1];
        ping.extend(0..64_u8);
        assert!(!passes(&traffic(&onion, icmp, &ping), ANSWERS), "{onion:?}");
        // An error message that quotes us.
        for kind in [3, 11, 1, 2, 4, 8, 128, 135, 136] {
            let mut error = vec![kind, 0, 0, 0, 0, 0, 0, 0];
            error.extend(payload::MAGIC);
            error.extend([0; 12]);
            error.extend(packets::EPOCH.to_be_bytes());
            assert!(!passes(&traffic(&onion, icmp, &error), ANSWERS), "type {kind}, {onion:?}");
        }
    }
}

#[test]
fn the_filter_drops_every_wrong_flag_and_every_truncation() {
    for onion in onions() {
        let answer = Onion { style: Style { kind: Kind::Reply, ..onion.style }, ..onion };
        let good = emit(&answer, packets::FIELDS, 1);
        let gre_at = if answer.outer.local().is_ipv4() { 20 } else { 40 };
        assert!(passes(&good, ANSWERS));
        for (byte, bits) in [(0, 0x40_u8), (1, 0x01), (1, 0x02), (1, 0x04)] {
            let mut bad = good.clone();
            bad[gre_at + byte] ^= bits;
            assert!(!passes(&bad, ANSWERS), "flag bits {bits:#x} in byte {byte}");
        }
        let epoch_ends = good.len() - usize::from(answer.size) + 24;
        for length in gre_at..epoch_ends {
            assert!(!passes(&good[..length], ANSWERS), "{length} of {} bytes", good.len());
        }
        assert!(passes(&good[..epoch_ends], ANSWERS));
    }
}

/// Who has seen no probe would have to guess all of it, for each packet that is to get as far as the queue.
#[test]
fn the_filter_drops_every_answer_of_another_epoch() {
    for onion in onions() {
        let answer = Onion { style: Style { kind: Kind::Reply, ..onion.style }, ..onion };
        let good = emit(&answer, packets::FIELDS, 1);
        for epoch in (0..64).map(|bit| packets::EPOCH ^ (1 << bit)) {
            assert!(!passes(&good, Pass::Answers { epoch }), "{epoch:#x}");
        }
    }
}

#[test]
fn a_socket_that_only_sends_sees_nothing() {
    for fixture in packets::all() {
        assert_eq!(bpf::run(&filter::nothing(), &fixture.bytes()), 0);
    }
}

#[test]
fn what_the_kernel_announces_of_our_own_changes_is_dropped_there() {
    let ours = 0x8000_1234_u32;
    // `struct nlmsghdr`: length, kind, flags, sequence number, port.
    let announced =
        |port: u32| [&[36, 0, 0, 0, 24, 0, 0, 0][..], &ours.to_ne_bytes(), &port.to_ne_bytes(), &[0; 20]].concat();
    let program = filter::not_from(ours);
    assert_eq!(bpf::run(&program, &announced(ours)), 0);
    for other in [0, 1, ours + 1, ours.swap_bytes()] {
        assert_eq!(bpf::run(&program, &announced(other)), u32::MAX, "{other:#x}");
    }
    assert_eq!(bpf::run(&program, &announced(0)[..15]), 0, "too short to say");
}

#[test]
fn programs_are_such_as_the_kernel_loads() {
    for (family, protocol, pass) in [Family::V4, Family::V6].into_iter().flat_map(|family| {
        [Protocol::Gre, Protocol::Icmp]
            .into_iter()
            .flat_map(move |protocol| [ANSWERS, Pass::Echoes].map(|pass| (family, protocol, pass)))
    }) {
        let program = filter::program(family, protocol, pass);
        // Every jump lands inside, and the last instruction returns: bpf_check_classic.
        assert!(program.len() <= 4096);
        assert_eq!(program.last().unwrap().code & 0x07, 0x06);
        for (at, instruction) in program.iter().enumerate().filter(|(_, instruction)| instruction.code & 0x07 == 5) {
            let furthest = at + 1 + usize::from(instruction.jt.max(instruction.jf));
            assert!(furthest < program.len(), "{family:?} {protocol:?} {pass:?}: {at} jumps to {furthest}");
        }
    }
}

/// A checksum that was left to a network card which never computed it; every other value is right
/// or refused.
#[test]
fn a_gre_checksum_is_right_or_left_at_zero() {
    for fixture in packets::named("accept-").into_iter().filter(|fixture| fixture.checksum) {
        let bytes = fixture.bytes();
        let gre_at = if bytes[0] >> 4 == 4 { usize::from(bytes[0] & 0x0F) * 4 } else { 40 };
        let right = [bytes[gre_at + 4], bytes[gre_at + 5]];
        for value in (0..=u16::MAX).step_by(7).map(u16::to_be_bytes) {
            let mut packet = bytes.clone();
            packet[gre_at + 4..gre_at + 6].copy_from_slice(&value);
            let found = probe::parse(arrived(&packet), &secret()).map(|reply| reply.fields);
            let good = value == [0, 0] || value == right;
            let expected = if good { Ok(packets::FIELDS) } else { Err(Reject::GreChecksum) };
            assert_eq!(found, expected, "{}: {value:02x?}", fixture.name);
        }
    }
}
