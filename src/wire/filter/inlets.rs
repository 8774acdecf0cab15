//! The filter of a socket that receives ESP: passes the packets with our SPIs, and no others.
//!
//! The users' ESP comes to the same socket, at line rate and with SPIs as random as ours. So the SPIs
//! are searched by halves, and where a few are left, one after another: that takes about one instruction
//! an SPI, and the kernel's room for a filter is small.

use super::{Instruction, JA, JEQ, JGE, JGT, LD_IND, LDH_IND, LDX_IMM, LDX_MSH, Protocol, RET, nothing};
use crate::wire::{Family, esp};

/// How many ranges of SPIs a program tells apart at most. A range takes two instructions at most, the
/// halving and the ends four for each `FEW` or less, and the kernel takes 4 096 in all (`BPF_MAXINSNS`).
pub const RANGES: usize = 1_750;

/// Ranges that are looked at one after another: with more the program is hardly shorter, with fewer
/// hardly quicker. A conditional jump, which reaches 255 instructions, leads from each to the end.
const FEW: usize = 16;

/// The first and the last of some SPIs.
type Range = (u32, u32);

/// The program for a socket that receives ESP: passes packets with these SPIs (in ascending order), and
/// where those are more than [`RANGES`] ranges, also with some between.
#[must_use]
pub fn inlets(family: Family, protocol: Protocol, spis: &[u32]) -> Vec<Instruction> {
    inlets_within(family, protocol, spis, RANGES)
}

/// The same with so many ranges at most, from 1 to [`RANGES`]: for a kernel that has no room for more.
#[must_use]
pub fn inlets_within(family: Family, protocol: Protocol, spis: &[u32], most: usize) -> Vec<Instruction> {
    // A raw IPv4 socket sees its packets from the IP header on, a raw IPv6 socket from behind it.
    let mut code = vec![match family {
        Family::V4 => plain(LDX_MSH, 0),
        Family::V6 => plain(LDX_IMM, 0),
    }];
    let spi_at = match protocol {
        Protocol::Esp => 0,
        Protocol::EspInUdp => {
            code.extend([plain(LDH_IND, 2), jump(JEQ, u32::from(esp::udp::PORT), 1, 0), plain(RET, 0)]);
            8
        }
        Protocol::Gre | Protocol::Icmp => return nothing(),
    };
    code.push(plain(LD_IND, spi_at));
    search(&mut code, &ranges(spis, most.clamp(1, RANGES)));
    code
}

/// With the SPI in A: passes or drops.
fn search(code: &mut Vec<Instruction>, ranges: &[Range]) {
    if ranges.len() <= FEW {
        return one_by_one(code, ranges);
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    code.push(jump(JGE, upper[0].0, 0, 1));
    // The lower half may be longer than a conditional jump reaches.
    let over = code.len();
    code.push(plain(JA, 0));
    search(code, lower);
    code[over].k = u32::try_from(code.len() - over - 1).unwrap_or(u32::MAX);
    search(code, upper);
}

/// The same, for a few.
fn one_by_one(code: &mut Vec<Instruction>, ranges: &[Range]) {
    let length: usize = ranges.iter().map(|(first, last)| if first == last { 1 } else { 2 }).sum();
    let pass = code.len() + length + 1;
    for &(first, last) in ranges {
        if first != last {
            code.push(jump(JGE, first, 0, 1));
        }
        // At most 32 of them, so that it fits.
        let to_pass = u8::try_from(pass - code.len() - 1).unwrap_or(u8::MAX);
        code.push(if first == last { jump(JEQ, last, to_pass, 0) } else { jump(JGT, last, 0, to_pass) });
    }
    code.extend([plain(RET, 0), plain(RET, u32::MAX)]);
}

/// Ascending numbers as at most so many ranges: those with the least between them are joined.
fn ranges(numbers: &[u32], most: usize) -> Vec<Range> {
    let gaps = numbers.windows(2).map(|pair| pair[1] - pair[0]);
    let mut gaps: Vec<(u32, usize)> = gaps.zip(1..).filter(|(gap, _)| *gap > 1).collect();
    gaps.sort_unstable_by(|one, other| other.cmp(one));
    gaps.truncate(most - 1);
    let mut cuts: Vec<usize> = gaps.into_iter().map(|(_, at)| at).collect();
    cuts.sort_unstable();
    let begins = [0].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([numbers.len()]);
    begins.zip(ends).filter_map(|(begin, end)| Some((*numbers.get(begin)?, *numbers[begin..end].last()?))).collect()
}

const fn plain(code: u16, k: u32) -> Instruction {
    jump(code, k, 0, 0)
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}
