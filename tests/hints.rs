//! ICMP errors about our probes: read for people, believed by nobody.

mod bpf;
mod packets;
mod sim;

use std::net::IpAddr;

use adit::engine::State;
use adit::wire::filter::{self, Pass, Protocol};
use adit::wire::{Family, quote};
use pnet::packet::{icmp, icmpv6, ip::IpNextHeaderProtocols, ipv4, ipv6};
use sim::{Sim, at_ms, ms};

/// An ICMP error from a router on the way that quotes a packet, built by pnet.
#[expect(clippy::unwrap_used, reason = "a test's own packets")]
fn error(quoted: &[u8], kind: u8, code: u8) -> Vec<u8> {
    match quoted[0] >> 4 {
        4 => {
            let mut packet = vec![0; 28 + quoted.len()];
            packet[28..].copy_from_slice(quoted);
            let mut header = ipv4::MutableIpv4Packet::new(&mut packet).unwrap();
            header.set_version(4);
            header.set_header_length(5);
            header.set_total_length(u16::try_from(28 + quoted.len()).unwrap());
            header.set_ttl(63);
            header.set_next_level_protocol(IpNextHeaderProtocols::Icmp);
            header.set_source("198.51.100.77".parse().unwrap());
            header.set_destination("192.0.2.1".parse().unwrap());
            let mut message = icmp::MutableIcmpPacket::new(&mut packet[20..]).unwrap();
            message.set_icmp_type(icmp::IcmpType(kind));
            message.set_icmp_code(icmp::IcmpCode(code));
            message.set_checksum(icmp::checksum(&message.to_immutable()));
            packet
        }
        _ => {
            let mut packet = vec![0; 48 + quoted.len()];
            packet[48..].copy_from_slice(quoted);
            let (source, destination) = ("2001:db8:77::1".parse().unwrap(), "2001:db8::1".parse().unwrap());
            let mut header = ipv6::MutableIpv6Packet::new(&mut packet).unwrap();
            header.set_version(6);
            header.set_payload_length(u16::try_from(8 + quoted.len()).unwrap());
            header.set_next_header(IpNextHeaderProtocols::Icmpv6);
            header.set_hop_limit(63);
            header.set_source(source);
            header.set_destination(destination);
            let mut message = icmpv6::MutableIcmpv6Packet::new(&mut packet[40..]).unwrap();
            message.set_icmpv6_type(icmpv6::Icmpv6Type(kind));
            message.set_icmpv6_code(icmpv6::Icmpv6Code(code));
            let sum = icmpv6::checksum(&message.to_immutable(), &source, &destination);
            message.set_checksum(sum);
            packet
        }
    }
}

/// "No such port" in each family, which is what Linux says where it has no such tunnel.
fn port_unreachable(quoted: &[u8]) -> Vec<u8> {
    if quoted[0] >> 4 == 4 { error(quoted, 3, 3) } else { error(quoted, 1, 4) }
}

fn passes(packet: &[u8]) -> bool {
    let (family, seen) = if packet[0] >> 4 == 4 { (Family::V4, packet) } else { (Family::V6, &packet[40..]) };
    bpf::run(&filter::program(family, Protocol::Icmp, Pass::Answers { epoch: packets::EPOCH }), seen) as usize
        >= seen.len()
}

#[test]
fn an_error_that_quotes_any_of_our_probes_is_read_and_passes_the_filter() {
    for fixture in packets::named("sent-") {
        let packet = port_unreachable(&fixture.bytes());
        let quote = quote::parse(sim::arrived(&packet), &packets::secret());
        let quote = quote.unwrap_or_else(|| panic!("{}: not read", fixture.name));
        assert_eq!(quote.fields, packets::FIELDS, "{}", fixture.name);
        assert_eq!(quote.says, "port unreachable: it has no such tunnel (endpoints or key)");
        let from: IpAddr = if packet[0] >> 4 == 4 { "198.51.100.77" } else { "2001:db8:77::1" }.parse().unwrap();
        assert_eq!(quote.from, from);
        assert!(passes(&packet), "{}", fixture.name);
    }
}

/// As those of a diagnosis are, or of a tunnel that the kernel wraps.
#[test]
fn so_is_one_that_quotes_a_bare_probe_and_no_other_ping() {
    for fixture in packets::named("sent-") {
        let bare = sim::far::decapsulate(&fixture.bytes()).to_vec();
        let packet = port_unreachable(&bare);
        let quote = quote::parse(sim::arrived(&packet), &packets::secret());
        assert_eq!(quote.map(|quote| quote.fields), Some(packets::FIELDS), "{}", fixture.name);
        assert!(passes(&packet), "{}", fixture.name);
        let mut users = bare;
        let at = users.len() - 72;
        users[at] ^= 0xFF;
        assert!(!passes(&port_unreachable(&users)), "{}", fixture.name);
    }
}

#[test]
fn a_quote_that_is_cut_or_changed_says_nothing() {
    for fixture in packets::named("sent-") {
        let whole = fixture.bytes();
        for length in 1..whole.len() {
            let packet = port_unreachable(&whole[..length]);
            assert_eq!(quote::parse(sim::arrived(&packet), &packets::secret()), None, "{}: {length}", fixture.name);
        }
        let mut forged = whole.clone();
        // Within the tag, which is followed by the mark of 16 bytes.
        let at = forged.len() - 20;
        forged[at] ^= 1;
        assert_eq!(
            quote::parse(sim::arrived(&port_unreachable(&forged)), &packets::secret()),
            None,
            "{}",
            fixture.name
        );
    }
}

#[test]
fn an_error_about_the_users_traffic_does_not_pass_the_filter() {
    for fixture in packets::named("sent-") {
        let mut users = fixture.bytes();
        // Another magic: somebody's ping through the same tunnel.
        let at = users.len() - 72;
        users[at] ^= 0xFF;
        assert!(!passes(&port_unreachable(&users)), "{}", fixture.name);
    }
    assert!(!passes(&port_unreachable(&[0x45; 100])));
}

/// What a router on the way to an endpoint says. The packet that it quotes has the source that the kernel chose.
#[test]
fn a_hint_about_an_endpoint_is_shown_and_moves_nothing() {
    for (address, near, source) in
        [("10.20.0.5", "10.1.0.1", "198.51.100.77"), ("2001:db8:20::5", "fd00:1::1", "2001:db8:77::1")]
    {
        let mut sim = Sim::new(Vec::new(), Vec::new(), 1);
        sim.engine.set_endpoints(sim.now, vec![sim::hosts::endpoint("erp", address)]);
        sim.host(address).cut = true;
        sim.run_until(at_ms(60_000));
        let view = |sim: &Sim| {
            let number = sim.engine.find_endpoint("erp").expect("the endpoint");
            sim.engine.endpoint(sim.now, number).expect("its view")
        };
        let (before, told) = (view(&sim), sim.events.len());
        assert_eq!(before.last_hint, None);
        let message = sim.host(address).last.clone();
        let sent = sim::hosts::with_header(near, address, &message);
        let packet = if sent[0] >> 4 == 4 { error(&sent, 3, 1) } else { error(&sent, 1, 0) };
        let answers = Pass::Answers { epoch: sim::secret().epoch };
        let (family, seen) = if packet[0] >> 4 == 4 { (Family::V4, &packet[..]) } else { (Family::V6, &packet[40..]) };
        assert!(bpf::run(&filter::program(family, Protocol::Icmp, answers), seen) as usize >= seen.len());
        let others = Pass::Answers { epoch: sim::secret().epoch ^ 1 };
        assert_eq!(bpf::run(&filter::program(family, Protocol::Icmp, others), seen), 0, "of another run");

        sim.inject(sim.now + ms(1), 0, sim::hosts::NUMBERS, packet.clone());
        // One that was written by somebody who has not seen the probe.
        let mut forged = sent;
        let tag = forged.len() - 20;
        forged[tag] ^= 1;
        sim.inject(sim.now + ms(2), 0, sim::hosts::NUMBERS, port_unreachable(&forged));
        sim.run_for(ms(10));
        let after = view(&sim);
        let hint = after.last_hint.expect("the hint is shown").reason;
        let says = if family == Family::V4 { "host unreachable" } else { "no route to destination" };
        assert_eq!((hint, sim.engine.hints()), (format!("{source} says {says}"), 1));
        assert_eq!((after.state, after.counters, after.window), (before.state, before.counters, before.window));
        assert_eq!(sim.events.len(), told);
    }
}

#[test]
fn a_hint_is_shown_and_moves_nothing() {
    let mut sim = Sim::new(vec![sim::tunnel(0)], Vec::new(), 1);
    sim.keep_bytes = true;
    sim.run_until(at_ms(5_500));
    let (before, told) = (sim.view(0), sim.events.len());
    assert_eq!(before.state, State::Healthy);
    let packet = port_unreachable(&sim.sent.last().unwrap().bytes.clone());
    for _ in 0..1_000 {
        sim.inject(sim.now + ms(1), 0, 0, packet.clone());
    }
    sim.run_for(ms(10));
    let after = sim.view(0);
    let hint = after.last_hint.clone().expect("the hint is shown");
    assert_eq!(hint.reason, "198.51.100.77 says port unreachable: it has no such tunnel (endpoints or key)");
    assert_eq!((after.state, after.counters, after.window), (before.state, before.counters, before.window));
    assert_eq!(sim.events.len(), told);
}
