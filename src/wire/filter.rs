//! The kernel filter of a raw socket: passes only what can be an answer.
//!
//! The tunnels that are probed carry the users' traffic at line rate, and a raw socket gets a copy
//! of each packet of its protocol. So each socket has a classic BPF program (the language of
//! McCanne and Jacobson 1993, run by the kernel before the packet costs a wake-up) that follows
//! the headers to the ICMP type and the magic of the payload. A read past the end of a packet ends
//! the program with "drop".

mod inlets;

pub use inlets::{RANGES, inlets, inlets_within};

use super::icmp::Kind;
use super::{Family, gre, payload};

/// One instruction, as the kernel takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// How many instructions to skip if a comparison holds.
    pub jt: u8,
    /// How many instructions to skip if it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// Which packets a raw socket is given by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Protocol {
    /// GRE (47).
    Gre,
    /// ESP (50).
    Esp,
    /// ESP in UDP (17), port 4500 (RFC 3948).
    EspInUdp,
    /// ICMPv4 (1) or ICMPv6 (58), by the socket's family.
    Icmp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gre, Self::Esp, Self::EspInUdp, Self::Icmp];

    /// The name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gre => "gre",
            Self::Esp => "esp",
            Self::EspInUdp => "esp-in-udp",
            Self::Icmp => "icmp",
        }
    }

    /// Whether it is ESP, in UDP or not.
    #[must_use]
    pub const fn is_esp(self) -> bool {
        matches!(self, Self::Esp | Self::EspInUdp)
    }
}

/// Which echo messages may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Echo replies that bear our magic and this epoch: what a prober can use. Of a flood from off the path,
    /// whose sender has not seen the epoch, nothing comes into the socket's queue.
    Answers {
        /// The run's own.
        epoch: u64,
    },
    /// Probes of that epoch as they were sent: echo messages of either type.
    Probes {
        /// The run's own.
        epoch: u64,
    },
    /// Any echo message: what a reflector answers or routes back.
    Echoes,
}

/// The program for a socket of this family and protocol. What ESP packets hold cannot be seen from
/// outside, so nothing of theirs passes until it is known which are ours: [`inlets()`].
#[must_use]
pub fn program(family: Family, protocol: Protocol, pass: Pass) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    // A raw IPv4 socket sees its packets from the IP header on, a raw IPv6 socket from behind it.
    match family {
        Family::V4 => asm.plain(LDX_MSH, 0),
        Family::V6 => asm.plain(LDX_IMM, 0),
    }
    match protocol {
        Protocol::Gre => inside_gre(&mut asm, pass),
        Protocol::Esp | Protocol::EspInUdp => return nothing(),
        Protocol::Icmp => {
            if let Pass::Answers { epoch } = pass {
                quoted(&mut asm, family, epoch);
            }
            echo(&mut asm, family, pass);
        }
    }
    asm.finish()
}

/// With X at the GRE header: passes or drops by the echo message inside.
fn inside_gre(asm: &mut Assembler, pass: Pass) {
    gre_header(asm);
    // X is now the start of the inner packet, M[3] the protocol type.
    asm.plain(LD_MEM, 3);
    let v6 = asm.jump_unless_equal(u32::from(Family::V4.ethertype()));
    asm.plain(LDB_IND, 9);
    asm.require(JEQ, u32::from(super::ip::ICMP));
    skip_v4_header(asm);
    echo(asm, Family::V4, pass);
    asm.land(v6);
    asm.require(JEQ, u32::from(Family::V6.ethertype()));
    asm.plain(LDB_IND, 6);
    asm.require(JEQ, u32::from(super::ip::ICMPV6));
    skip(asm, 40);
    echo(asm, Family::V6, pass);
}

/// With X at an ICMP header: if it is an error that quotes a GRE packet or a bare echo message, passes or drops
/// by the probe in that packet; anything else goes on behind, X unchanged.
fn quoted(asm: &mut Assembler, family: Family, epoch: u64) {
    // RFC 792: 3, 11 and 12 are errors, 0 is the answer. RFC 4443 section 2.1: those below 128 are.
    let highest = match family {
        Family::V4 => 12,
        Family::V6 => 127,
    };
    asm.plain(LDB_IND, 0);
    let echo_v6 = asm.jump_if_greater(highest);
    let echo_v4 = asm.jump_if_equal(0);
    skip(asm, 8);
    let (protocol_at, icmp) = match family {
        Family::V4 => (9, super::ip::ICMP),
        Family::V6 => (6, super::ip::ICMPV6),
    };
    let skip_header = |asm: &mut Assembler| match family {
        Family::V4 => skip_v4_header(asm),
        Family::V6 => skip(asm, 40),
    };
    asm.plain(LDB_IND, protocol_at);
    let bare = asm.jump_if_equal(icmp.into());
    asm.require(JEQ, u32::from(gre::PROTOCOL));
    skip_header(asm);
    inside_gre(asm, Pass::Probes { epoch });
    asm.land_true(bare);
    skip_header(asm);
    echo(asm, family, Pass::Probes { epoch });
    asm.land_true(echo_v6);
    asm.land_true(echo_v4);
}

fn skip_v4_header(asm: &mut Assembler) {
    asm.plain(LDB_IND, 0);
    asm.plain(AND, 0x0F);
    asm.plain(LSH, 2);
    asm.plain(ADD_X, 0);
    asm.plain(TAX, 0);
}

fn skip(asm: &mut Assembler, bytes: u32) {
    asm.plain(TXA, 0);
    asm.plain(ADD, bytes);
    asm.plain(TAX, 0);
}

/// The program of a socket that only sends: nothing passes.
#[must_use]
pub fn nothing() -> Vec<Instruction> {
    vec![Instruction { code: RET, jt: 0, jf: 0, k: 0 }]
}

/// The program of a netlink socket that hears what the kernel announces, but not of what was done through
/// another socket: the announcement bears that one's port (`nlmsg_pid`, the fourth word of a message). So
/// however much we change, there is room for what others do.
#[must_use]
pub fn not_from(port: u32) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    asm.plain(LD_ABS, 12);
    // The program reads in network byte order what is in the order of this host.
    asm.refuse(JEQ, u32::from_be_bytes(port.to_ne_bytes()));
    asm.plain(RET, u32::MAX);
    asm.finish()
}

/// With X at the GRE header: leaves X at the inner packet and the protocol type in `M[3]`.
fn gre_header(asm: &mut Assembler) {
    asm.plain(LDH_IND, 2);
    asm.plain(ST, 3);
    asm.plain(LDH_IND, 0);
    // The routing bit and every version but 0.
    asm.refuse(JSET, 0x4007);
    asm.plain(ST, 1);
    // Each of the C, K and S bits, moved down to the value 4, is its word's length.
    asm.plain(RSH, 13);
    asm.plain(AND, 4);
    asm.plain(ADD_X, 0);
    asm.plain(ADD, 4);
    asm.plain(TAX, 0);
    for shift in [11, 10] {
        asm.plain(LD_MEM, 1);
        asm.plain(RSH, shift);
        asm.plain(AND, 4);
        asm.plain(ADD_X, 0);
        asm.plain(TAX, 0);
    }
}

/// With X at the ICMP header: passes or drops.
fn echo(asm: &mut Assembler, family: Family, pass: Pass) {
    let reply = u32::from(Kind::Reply.number(family));
    let request = u32::from(Kind::Request.number(family));
    asm.plain(LDB_IND, 0);
    if matches!(pass, Pass::Answers { .. }) {
        asm.require(JEQ, reply);
    } else {
        let is_reply = asm.jump_if_equal(reply);
        asm.require(JEQ, request);
        asm.land_true(is_reply);
    }
    if let Pass::Answers { epoch } | Pass::Probes { epoch } = pass {
        asm.plain(LD_IND, PAYLOAD);
        asm.require(JEQ, u32::from_be_bytes(payload::MAGIC));
        let [a, b, c, d, e, f, g, h] = epoch.to_be_bytes();
        for (at, half) in [(0, [a, b, c, d]), (4, [e, f, g, h])] {
            asm.plain(LD_IND, PAYLOAD + payload::EPOCH_AT + at);
            asm.require(JEQ, u32::from_be_bytes(half));
        }
    }
    asm.plain(RET, u32::MAX);
}

/// Where the payload of an echo message begins (RFC 792).
const PAYLOAD: u32 = 8;

const LDX_MSH: u16 = 0xB1; // X = 4 * (P[k] & 0xF)
const LDX_IMM: u16 = 0x01;
const LD_ABS: u16 = 0x20; // A = the word at P[k]
const LD_IND: u16 = 0x40; // A = the word at P[X + k]
const LDH_IND: u16 = 0x48;
const LDB_IND: u16 = 0x50;
const LD_MEM: u16 = 0x60;
const ST: u16 = 0x02;
const ADD: u16 = 0x04;
const ADD_X: u16 = 0x0C;
const AND: u16 = 0x54;
const LSH: u16 = 0x64;
const RSH: u16 = 0x74;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const RET: u16 = 0x06;

/// Writes a program whose failed requirements all lead to the one "drop" at its end.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    /// Instructions whose "false" (or, if set, "true") branch leads to the end.
    to_drop: Vec<(usize, bool)>,
}

impl Assembler {
    fn plain(&mut self, code: u16, k: u32) {
        self.code.push(Instruction { code, jt: 0, jf: 0, k });
    }

    fn require(&mut self, code: u16, k: u32) {
        self.to_drop.push((self.code.len(), false));
        self.plain(code, k);
    }

    fn refuse(&mut self, code: u16, k: u32) {
        self.to_drop.push((self.code.len(), true));
        self.plain(code, k);
    }

    /// A forward jump taken if A equals `k`; [`Self::land_true`] says where to.
    fn jump_if_equal(&mut self, k: u32) -> usize {
        self.plain(JEQ, k);
        self.code.len() - 1
    }

    /// A forward jump taken if A is greater than `k`; [`Self::land_true`] says where to.
    fn jump_if_greater(&mut self, k: u32) -> usize {
        self.plain(JGT, k);
        self.code.len() - 1
    }

    fn land_true(&mut self, jump: usize) {
        self.code[jump].jt = distance(jump, self.code.len());
    }

    /// A forward jump taken unless A equals `k`; [`Self::land`] says where to.
    fn jump_unless_equal(&mut self, k: u32) -> usize {
        self.plain(JEQ, k);
        self.code.len() - 1
    }

    fn land(&mut self, jump: usize) {
        self.code[jump].jf = distance(jump, self.code.len());
    }

    fn finish(mut self) -> Vec<Instruction> {
        let end = self.code.len();
        self.plain(RET, 0);
        for (at, when_true) in self.to_drop {
            let skip = distance(at, end);
            let instruction = &mut self.code[at];
            if when_true { instruction.jt = skip } else { instruction.jf = skip }
        }
        self.code
    }
}

/// Programs here have under 128 instructions, so a distance always fits.
fn distance(from: usize, to: usize) -> u8 {
    u8::try_from(to - from - 1).unwrap_or(u8::MAX)
}
