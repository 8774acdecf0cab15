//! Sealing and opening, each algorithm with itself.

use zeroize::Zeroizing;

use super::*;
use crate::wire::Ends;

const OUTER: Ends =
    Ends::V4 { local: std::net::Ipv4Addr::new(192, 0, 2, 1), far: std::net::Ipv4Addr::new(203, 0, 113, 2) };

fn keys(algorithm: Algorithm) -> Keys {
    let material = (1..).take(algorithm.key_len()).collect();
    Keys::new(algorithm, Zeroizing::new(material)).unwrap()
}

#[test]
fn what_is_sealed_opens_to_the_same() {
    for algorithm in Algorithm::ALL {
        for esn in [false, true] {
            let (keys, shape) = (keys(algorithm), Shape::new(algorithm, false));
            let outbound = Outbound::new(SPI_MIN, esn, &keys, &IvSeed::new([7; 16]));
            let mut inbound = Inbound::new(SPI_MIN, esn, 64, &keys);
            let mut scratch = Vec::new();
            for length in 0..100 {
                let mut packet = vec![0; shape.length(length)];
                packet[shape.inner_at()..][..length].fill(0x5A);
                let sequence = length as u64 + 1;
                outbound.seal(shape, OUTER, sequence, Family::V6, length, &mut packet);
                let opened = inbound.open(&packet, &mut scratch).unwrap();
                assert_eq!(opened, Opened { inner: Family::V6, packet: &vec![0x5A; length], sequence });
                assert_eq!(inbound.open(&packet, &mut scratch), Err(Reject::EspReplay));
            }
        }
    }
}
