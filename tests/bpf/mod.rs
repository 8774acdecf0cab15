//! A small interpreter of classic BPF, as far as a socket filter needs it: written from the table of
//! opcodes in the kernel's `Documentation/networking/filter.rst`, sharing nothing with the
//! assembler that it checks.

use adit::wire::filter::Instruction;

/// How many bytes of `packet` the program lets through: 0 drops it.
///
/// # Panics
/// If the program is one that the kernel would refuse to load, or does not end.
pub(crate) fn run(program: &[Instruction], packet: &[u8]) -> u32 {
    run_counting(program, packet).0
}

/// The same, and how many instructions were executed.
///
/// # Panics
/// As [`run`].
pub(crate) fn run_counting(program: &[Instruction], packet: &[u8]) -> (u32, usize) {
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; 16]);
    let (mut at, mut steps) = (0, 0);
    loop {
        steps += 1;
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        // Class in bits 0 to 2; size and mode, or operation and source, above.
        let (class, size, mode) = (code & 0x07, code & 0x18, code & 0xE0);
        let operand = if code & 0x08 == 0 { k } else { x };
        match class {
            // LD
            0 => {
                let loaded = match mode {
                    0x00 => Some(k),
                    0x20 => load(packet, size, u64::from(k)),
                    0x40 => load(packet, size, u64::from(x) + u64::from(k)),
                    0x60 => Some(memory[k as usize]),
                    0x80 => u32::try_from(packet.len()).ok(),
                    _ => panic!("LD mode {mode:#x}"),
                };
                let Some(loaded) = loaded else { return (0, steps) };
                a = loaded;
            }
            // LDX
            1 => match mode {
                0x00 => x = k,
                0x60 => x = memory[k as usize],
                0xA0 => {
                    let Some(byte) = packet.get(k as usize) else { return (0, steps) };
                    x = u32::from(byte & 0x0F) * 4;
                }
                _ => panic!("LDX mode {mode:#x}"),
            },
            // ST, STX
            2 => memory[k as usize] = a,
            3 => memory[k as usize] = x,
            // ALU
            4 => {
                a = match code & 0xF0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a << operand,
                    0x70 => a >> operand,
                    operation => panic!("ALU operation {operation:#x}"),
                }
            }
            // JMP
            5 => {
                let holds = match code & 0xF0 {
                    0x00 => {
                        at += k as usize;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    operation => panic!("JMP operation {operation:#x}"),
                };
                at += usize::from(if holds { jt } else { jf });
            }
            // RET
            6 => return (if code & 0x18 == 0x10 { a } else { k }, steps),
            // MISC
            _ => match code & 0xF8 {
                0x00 => x = a,
                0x80 => a = x,
                operation => panic!("MISC operation {operation:#x}"),
            },
        }
    }
}

/// A word, half word or byte in network order; `None` past the end, where the kernel drops.
fn load(packet: &[u8], size: u16, at: u64) -> Option<u32> {
    let length = match size {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => panic!("size {size:#x}"),
    };
    let at = usize::try_from(at).ok()?;
    let bytes = packet.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
}
