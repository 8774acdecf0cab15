//! The kernel filter of the sockets that receive ESP: ours pass, all others do not, and where there are
//! too many SPIs to be told apart, as few others as can be.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod bpf;

use std::collections::BTreeSet;

use adit::wire::Family;
use adit::wire::esp::udp::PORT;
use adit::wire::filter::{self, Protocol};
use proptest::prelude::*;

/// What the socket would see of an ESP packet with this SPI.
fn packet(family: Family, protocol: Protocol, port: u16, options: usize, spi: u32) -> Vec<u8> {
    let mut packet = match family {
        Family::V4 => {
            let mut header = vec![0; 20 + 4 * options];
            header[0] = 0x45 + u8::try_from(options).unwrap();
            header
        }
        Family::V6 => Vec::new(),
    };
    if protocol == Protocol::EspInUdp {
        packet.extend([PORT, port, 100, 0].map(u16::to_be_bytes).concat());
    }
    packet.extend(spi.to_be_bytes());
    packet.extend([0, 0, 0, 7]);
    packet.extend([0xA5; 40]);
    packet
}

const SOCKETS: [(Family, Protocol); 4] = [
    (Family::V4, Protocol::Esp),
    (Family::V6, Protocol::Esp),
    (Family::V4, Protocol::EspInUdp),
    (Family::V6, Protocol::EspInUdp),
];

fn passes(family: Family, protocol: Protocol, ours: &[u32], spi: u32) -> bool {
    let program = filter::inlets(family, protocol, ours);
    let passed = bpf::run(&program, &packet(family, protocol, PORT, 0, spi));
    assert!(passed == 0 || passed == u32::MAX, "whole or not at all");
    passed > 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn ours_pass_and_as_long_as_they_can_be_told_apart_no_others(
        ours in prop::collection::btree_set(prop_oneof![256..2_000_u32, any::<u32>()], 0..60),
        others in prop::collection::vec(prop_oneof![0..2_100_u32, any::<u32>()], 50),
        near in -2..=2_i64,
    ) {
        let list: Vec<u32> = ours.iter().copied().collect();
        let beside = list.iter().filter_map(|spi| u32::try_from(i64::from(*spi) + near).ok());
        for spi in beside.chain(others).chain(list.clone()).chain([0, u32::MAX]) {
            for (family, protocol) in SOCKETS {
                prop_assert_eq!(passes(family, protocol, &list, spi), ours.contains(&spi), "{}", spi);
            }
        }
    }

    #[test]
    fn of_very_many_all_pass_and_those_outside_all_of_them_do_not(
        seeds in prop::collection::btree_set(256..u32::MAX, 65..800),
    ) {
        let list: Vec<u32> = seeds.into_iter().collect();
        let program = filter::inlets(Family::V4, Protocol::Esp, &list);
        prop_assert!(program.len() <= 300, "{} instructions", program.len());
        prop_assert!(list.iter().all(|spi| passes(Family::V4, Protocol::Esp, &list, *spi)));
        prop_assert!(!passes(Family::V4, Protocol::Esp, &list, list[0] - 1));
        prop_assert!(!passes(Family::V4, Protocol::Esp, &list, list[list.len() - 1].saturating_add(1)) || list.last() == Some(&u32::MAX));
    }
}

#[test]
fn blocks_of_neighbours_stay_apart_however_many_spis_they_have() {
    let blocks = [0x1000..0x9000_u32, 0x20_0000..0x20_4000, 0x7000_0000..0x7000_0100];
    let ours: Vec<u32> = blocks.iter().cloned().flatten().collect();
    for block in &blocks {
        for (spi, ours_too) in
            [(block.start - 1, false), (block.start, true), (block.end - 1, true), (block.end, false)]
        {
            assert_eq!(passes(Family::V6, Protocol::Esp, &ours, spi), ours_too, "{spi:#x}");
        }
    }
}

#[test]
fn with_no_spi_nothing_passes() {
    for (family, protocol) in SOCKETS {
        assert!(!passes(family, protocol, &[], 0x1000));
        let program = filter::program(family, protocol, filter::Pass::Answers);
        assert_eq!(bpf::run(&program, &packet(family, protocol, PORT, 0, 0x1000)), 0);
    }
}

#[test]
fn options_before_it_and_another_port_are_seen() {
    for (family, protocol) in SOCKETS {
        let program = filter::inlets(family, protocol, &[0x1000]);
        let with_options = packet(family, protocol, PORT, if family == Family::V4 { 10 } else { 0 }, 0x1000);
        assert!(bpf::run(&program, &with_options) > 0);
        let elsewhere = packet(family, protocol, PORT - 1, 0, 0x1000);
        assert_eq!(bpf::run(&program, &elsewhere) > 0, protocol == Protocol::Esp);
        for length in 0..with_options.len() - 44 {
            assert_eq!(bpf::run(&program, &with_options[..length]), 0, "cut to {length} bytes");
        }
    }
}

#[test]
fn programs_are_such_as_the_kernel_loads() {
    let many: Vec<u32> = (0..5_000).map(|index| 256 + index * 977).collect();
    let lists = [vec![], vec![256], many[..64].to_vec(), many[..65].to_vec(), many];
    for ((family, protocol), list) in
        SOCKETS.into_iter().flat_map(|socket| lists.iter().map(move |list| (socket, list)))
    {
        let program = filter::inlets(family, protocol, list);
        // Every jump lands inside, and the last instruction returns: bpf_check_classic.
        assert!(program.len() <= 4096);
        assert_eq!(program.last().unwrap().code & 0x07, 0x06);
        let jumps: BTreeSet<usize> = (0..program.len()).filter(|at| program[*at].code & 0x07 == 5).collect();
        for at in jumps {
            assert!(at + 1 + usize::from(program[at].jt.max(program[at].jf)) < program.len(), "{at}");
        }
    }
}
