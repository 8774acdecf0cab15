//! The kernel filter of the sockets that receive ESP: ours pass, all others do not, and where there are
//! too many SPIs to be told apart, as few others as can be. (That a kernel takes it is proven in `netns`.)

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod bpf;

use std::collections::BTreeSet;

use adit::wire::Family;
use adit::wire::esp::udp::PORT;
use adit::wire::filter::{self, Instruction, Protocol, RANGES};
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

/// The filter for these SPIs, and what it does with a packet.
struct Inlets {
    family: Family,
    protocol: Protocol,
    program: Vec<Instruction>,
}

impl Inlets {
    fn new(family: Family, protocol: Protocol, ours: &[u32]) -> Self {
        Self { family, protocol, program: filter::inlets(family, protocol, ours) }
    }

    fn of_esp(ours: &[u32]) -> Self {
        Self::new(Family::V4, Protocol::Esp, ours)
    }

    fn pass(&self, spi: u32) -> bool {
        self.judge(spi).0
    }

    /// Whether a packet with this SPI passes, and by how many instructions that is known.
    fn judge(&self, spi: u32) -> (bool, usize) {
        let (passed, steps) = bpf::run_counting(&self.program, &packet(self.family, self.protocol, PORT, 0, spi));
        assert!(passed == 0 || passed == u32::MAX, "whole or not at all");
        (passed > 0, steps)
    }
}

/// So many SPIs as a key exchange draws them, in ascending order. RFC 4303 section 2.1: those up to 255
/// are reserved.
fn scattered(count: usize) -> Vec<u32> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut spis = BTreeSet::new();
    while spis.len() < count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        spis.extend(u32::try_from(state >> 32).ok().filter(|spi| *spi > 255));
    }
    spis.into_iter().collect()
}

/// Each SPI, both its neighbours, and the ends of all numbers.
fn about(spis: &[u32]) -> impl Iterator<Item = u32> {
    spis.iter().flat_map(|spi| [spi.saturating_sub(1), *spi, spi.saturating_add(1)]).chain([0, u32::MAX])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn ours_pass_and_no_others(
        ours in prop::collection::btree_set(prop_oneof![256..3_000_u32, any::<u32>()], 0..=800),
        others in prop::collection::vec(prop_oneof![0..3_100_u32, any::<u32>()], 50),
    ) {
        let list: Vec<u32> = ours.iter().copied().collect();
        for (family, protocol) in SOCKETS {
            let inlets = Inlets::new(family, protocol, &list);
            for spi in about(&list).chain(others.iter().copied()) {
                prop_assert_eq!(inlets.pass(spi), ours.contains(&spi), "{}", spi);
            }
        }
    }

    #[test]
    fn where_the_kernel_has_less_room_ours_pass_and_those_outside_all_of_them_do_not(
        ours in prop::collection::btree_set(256..u32::MAX, 1..400), most in 1..400_usize,
    ) {
        let list: Vec<u32> = ours.into_iter().collect();
        let program = filter::inlets_within(Family::V4, Protocol::Esp, &list, most);
        prop_assert!(program.len() <= 10 + 3 * most, "{} instructions", program.len());
        let inlets = Inlets { family: Family::V4, protocol: Protocol::Esp, program };
        prop_assert!(list.iter().all(|spi| inlets.pass(*spi)));
        prop_assert!(!inlets.pass(list[0] - 1));
        prop_assert!(!inlets.pass(list[list.len() - 1].saturating_add(1)) || list.last() == Some(&u32::MAX));
        let told_apart = list.windows(2).filter(|pair| pair[1] - pair[0] > 1 && !inlets.pass(pair[0] + 1)).count();
        let gaps = list.windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
        prop_assert_eq!(told_apart, gaps.min(most - 1));
    }
}

#[test]
fn as_many_as_a_program_can_hold_are_told_apart_even_if_each_is_two() {
    let pairs: Vec<u32> = scattered(RANGES).into_iter().map(|spi| spi & !3).collect();
    let ours: BTreeSet<u32> = pairs.iter().flat_map(|spi| [*spi, spi + 1]).collect();
    assert_eq!(ours.len(), 2 * RANGES);
    let inlets = Inlets::of_esp(&ours.iter().copied().collect::<Vec<_>>());
    assert!(inlets.program.len() <= 4_096, "{} instructions", inlets.program.len());
    for spi in about(&pairs).chain(pairs.iter().map(|spi| spi + 2)) {
        assert_eq!(inlets.pass(spi), ours.contains(&spi), "{spi:#x}");
    }
}

#[test]
fn beyond_that_all_pass_and_the_fewest_others() {
    let ours = scattered(RANGES + 250);
    let inlets = Inlets::of_esp(&ours);
    assert!(ours.iter().all(|spi| inlets.pass(*spi)));
    let mut gaps: Vec<(u32, bool)> =
        ours.windows(2).map(|pair| (pair[1] - pair[0], inlets.pass(pair[0] + 1) && pair[0] + 1 < pair[1])).collect();
    gaps.sort_unstable();
    assert_eq!(gaps.iter().filter(|(_, open)| *open).count(), 250);
    assert!(gaps[..250].iter().all(|(gap, open)| *open || *gap == 1), "the narrowest gaps are those that are open");
}

#[test]
fn a_packet_costs_a_logarithm_of_the_number_of_spis() {
    for count in [1, 16, 17, 100, 800, 1_600] {
        let ours = scattered(count);
        let halvings = count.div_ceil(16).next_power_of_two().ilog2() as usize;
        for (family, protocol) in SOCKETS {
            let inlets = Inlets::new(family, protocol, &ours);
            let most = about(&ours).map(|spi| inlets.judge(spi).1).max().unwrap();
            // To the SPI at most 4, by halves 2 each, then 16 one by one, and the verdict.
            assert!(most <= 4 + 2 * halvings + 16 + 1, "{most} for {count} SPIs");
        }
    }
}

#[test]
fn blocks_of_neighbours_stay_apart_however_many_spis_they_have() {
    let blocks = [0x1000..0x9000_u32, 0x20_0000..0x20_4000, 0x7000_0000..0x7000_0100];
    let ours: Vec<u32> = blocks.iter().cloned().flatten().collect();
    let inlets = Inlets::new(Family::V6, Protocol::Esp, &ours);
    for block in &blocks {
        for (spi, ours_too) in
            [(block.start - 1, false), (block.start, true), (block.end - 1, true), (block.end, false)]
        {
            assert_eq!(inlets.pass(spi), ours_too, "{spi:#x}");
        }
    }
}

#[test]
fn with_no_spi_nothing_passes() {
    for (family, protocol) in SOCKETS {
        assert!(!Inlets::new(family, protocol, &[]).pass(0x1000));
        let program = filter::program(family, protocol, filter::Pass::Answers { epoch: 1 });
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
    let evenly: Vec<u32> = (0..5_000).map(|index| 256 + index * 977).collect();
    let blocks: Vec<u32> = evenly.iter().flat_map(|spi| *spi..*spi + 2).collect();
    let lists = [vec![], vec![256], scattered(16), scattered(17), scattered(800), scattered(5_000), evenly, blocks];
    for ((family, protocol), list) in
        SOCKETS.into_iter().flat_map(|socket| lists.iter().map(move |list| (socket, list)))
    {
        let program = filter::inlets(family, protocol, list);
        // Every jump lands inside, and the last instruction returns: bpf_check_classic.
        assert!(program.len() <= 4096);
        assert_eq!(program.last().unwrap().code & 0x07, 0x06);
        let jumps: BTreeSet<usize> = (0..program.len()).filter(|at| program[*at].code & 0x07 == 5).collect();
        for at in jumps {
            let Instruction { code, jt, jf, k } = program[at];
            let distance = if code == 0x05 { k as usize } else { usize::from(jt.max(jf)) };
            assert!(at + 1 + distance < program.len(), "{at}");
        }
    }
}
