//! The reflector's packets: it never sends more than it was sent, never asks, and what it sends is whole.
//!
//! The first byte: whether checksums and tags are put right, and the faults.

use std::time::Duration;

use adit::engine::health::Ratio;
use adit::reflect::plan::Fault;
use adit::wire::probe::{self, Arrived};
use adit::wire::{Kind, icmp, ip};

use super::{bench, onion};

const LONGEST: usize = 512;

pub(crate) fn run(bytes: &[u8]) {
    let Some((&choice, packet)) = bytes.split_first() else { return };
    let mut packet = packet[..packet.len().min(LONGEST)].to_vec();
    if choice & 1 != 0 {
        onion::mend_outer(&mut packet, choice & 2 != 0);
    }
    let some = |bit: u8| Ratio(if choice & bit == 0 { 0 } else { 1_000_000 });
    let fault =
        Fault { duplicate: some(4), corrupt: some(8), drop: some(16), delay: Duration::MAX, ..Fault::default() };
    let fault = if choice & 32 == 0 { Fault { delay: Duration::ZERO, ..fault } } else { fault };
    let mut reflector = bench::reflector(vec![fault]);
    let mut answers = Vec::new();
    let taken = reflector.handle(bench::START, onion::arrived(&packet), &mut answers);
    assert!(taken.is_ok() || answers.is_empty());
    assert_eq!(reflector.counters().refused, u64::from(taken.is_err()));
    assert!(answers.len() <= 1 + usize::from(choice & 4 != 0), "no more than the plan has it");
    for answer in &answers {
        super::deep();
        assert!(answer.at >= bench::START);
        assert!(answer.bytes.len() <= packet.len() + 64, "no more bytes than came, but for headers");
        whole(&answer.bytes, &packet);
    }
}

/// What is sent is an IP packet of its own length; and an echo request only if one came to be forwarded.
fn whole(bytes: &[u8], came: &[u8]) {
    let version = bytes[0] >> 4;
    let read = if version == 4 { ip::parse_v4(bytes, ip::Layer::Inner) } else { ip::parse_v6(bytes, ip::Layer::Inner) };
    let outer = read.unwrap_or_else(|reject| panic!("{reject}: {bytes:02x?} for {came:02x?}"));
    assert!(outer.ttl > 0);
    let arrived = if version == 4 { Arrived::V4(bytes) } else { onion::arrived(bytes) };
    let unpacked = probe::unpack(arrived).unwrap_or_else(|reject| panic!("{reject}: {bytes:02x?} for {came:02x?}"));
    let asked = probe::unpack(onion::arrived(came)).map(|unpacked| unpacked.echo.kind);
    assert!(unpacked.echo.kind == Kind::Reply || asked == Ok(Kind::Request), "nobody asked");
    assert!(icmp::HEADER + unpacked.echo.payload.len() <= bytes.len());
}
