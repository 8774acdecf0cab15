//! Which system calls a confined process may make, as filters of seccomp(2).

use nix::libc;
use nix::unistd::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::calls::{CALLS, FATAL, OLD_CALLS, OLD_FATAL};

type Built = Result<BpfProgram, seccompiler::Error>;

/// The filters of a process, in the order in which they are to be set. Of what they say the strictest holds.
pub(super) fn of(own: Pid) -> [Built; 3] {
    // The allow-list last: it lets no filter be set any more.
    [fatal(), absent(), allowed(own)]
}

/// Calls that this program makes; any other fails.
fn allowed(own: Pid) -> Built {
    let plain = CALLS.iter().chain(OLD_CALLS).map(|&call| (call, Vec::new()));
    let conditional = [
        // Packets and answers. Not MSG_FASTOPEN: it is a connect(2), for which a listener of TCP that was shut down
        // would do.
        (libc::SYS_sendto, vec![rule([bits(3, libc::MSG_FASTOPEN, false)])?]),
        (libc::SYS_sendmsg, vec![rule([bits(2, libc::MSG_FASTOPEN, false)])?]),
        (libc::SYS_sendmmsg, vec![rule([bits(3, libc::MSG_FASTOPEN, false)])?]),
        // Threads, no processes.
        (libc::SYS_clone, vec![rule([bits(0, libc::CLONE_THREAD, true)])?]),
        // Data, no new code: all there is has been loaded.
        (libc::SYS_mmap, vec![rule([bits(2, libc::PROT_EXEC, false)])?]),
        (libc::SYS_mprotect, vec![rule([bits(2, libc::PROT_EXEC, false)])?]),
        // A copy of a descriptor, its flags. Not F_SETOWN and F_SETSIG: together they are a kill(2).
        (
            libc::SYS_fcntl,
            any(1, &[libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL])?,
        ),
        // Which packets the kernel lets through to a socket that is open.
        (libc::SYS_setsockopt, vec![rule([equal(1, libc::SOL_SOCKET), equal(2, libc::SO_ATTACH_FILTER)])?]),
        // Names of threads and of memory.
        (libc::SYS_prctl, any(0, &[libc::PR_SET_NAME, libc::PR_SET_VMA])?),
        // Whether a socket blocks; whether something is a terminal.
        (libc::SYS_ioctl, any(1, &[libc::FIONBIO, libc::TCGETS])?),
        // A panic ends this process, and no other.
        (libc::SYS_tgkill, any(0, &[own.as_raw()])?),
        // A thread may give way to others.
        (libc::SYS_setpriority, vec![rule([equal(0, libc::PRIO_PROCESS), equal(1, 0)])?]),
        // Asking for limits, not setting them.
        (libc::SYS_prlimit64, any(2, &[0])?),
    ];
    let rules = plain.chain(conditional).collect();
    program(SeccompFilter::new(rules, SeccompAction::Errno(EPERM), SeccompAction::Allow, arch()?))
}

/// Calls that only somebody else would make: the end.
fn fatal() -> Built {
    let plain = FATAL.iter().chain(OLD_FATAL).map(|&call| (call, Vec::new()));
    let process = (libc::SYS_clone, vec![rule([bits(0, libc::CLONE_THREAD, false)])?]);
    let rules = plain.chain([process]).collect();
    program(SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillProcess, arch()?))
}

/// A call whose arguments a filter cannot see: as on an old kernel, the C library makes another in its place.
fn absent() -> Built {
    let rules = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    program(SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(ENOSYS), arch()?))
}

const EPERM: u32 = libc::EPERM.unsigned_abs();
const ENOSYS: u32 = libc::ENOSYS.unsigned_abs();

fn program(filter: Result<SeccompFilter, seccompiler::BackendError>) -> Built {
    Ok(filter?.try_into()?)
}

fn arch() -> Result<seccompiler::TargetArch, seccompiler::Error> {
    Ok(std::env::consts::ARCH.try_into()?)
}

type Condition = Result<SeccompCondition, seccompiler::Error>;

/// That an argument has a value.
fn equal(argument: u8, value: impl TryInto<u64>) -> Condition {
    // None of ours is negative.
    let value = value.try_into().unwrap_or(u64::MAX);
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?)
}

/// That a flag of an argument is set, or is not.
fn bits(argument: u8, flag: libc::c_int, is_set: bool) -> Condition {
    let flag = u64::from(flag.unsigned_abs());
    let wanted = if is_set { flag } else { 0 };
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), wanted)?)
}

/// All of these conditions.
fn rule<const COUNT: usize>(conditions: [Condition; COUNT]) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)?)
}

/// One of these values.
fn any<T: TryInto<u64> + Copy>(argument: u8, values: &[T]) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    values.iter().map(|&value| rule([equal(argument, value)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Pid = Pid::from_raw(77);
    /// As linux/audit.h has it.
    const ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

    /// What becomes of a call: the strictest of what the filters say.
    fn fate(call: libc::c_long, arguments: [u64; 6]) -> u32 {
        fate_by(ARCH, call, arguments)
    }

    fn fate_by(arch: u32, call: libc::c_long, arguments: [u64; 6]) -> u32 {
        of(OWN).into_iter().map(|filter| run(&filter.unwrap(), arch, call, arguments)).min_by_key(rank).unwrap()
    }

    fn rank(fate: &u32) -> u8 {
        match *fate {
            libc::SECCOMP_RET_KILL_PROCESS => 0,
            libc::SECCOMP_RET_ALLOW => 2,
            _ => 1,
        }
    }

    /// Runs a filter as the kernel does (linux/filter.h), over what it is given of a call (linux/seccomp.h).
    fn run(filter: &BpfProgram, arch: u32, call: libc::c_long, arguments: [u64; 6]) -> u32 {
        let mut data = [u32::try_from(call).unwrap().to_ne_bytes(), arch.to_ne_bytes()].concat();
        data.extend([0; 8]);
        data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
        let (mut at, mut word) = (0, 0_u32);
        loop {
            let step = &filter[at];
            let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            at += 1;
            match u32::from(step.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    let place = usize::try_from(step.k).unwrap();
                    word = u32::from_ne_bytes(data[place..place + 4].try_into().unwrap());
                }
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => word &= step.k,
                code if code == libc::BPF_JMP | libc::BPF_JA => at += usize::try_from(step.k).unwrap(),
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => at += jump(word == step.k),
                code if code == libc::BPF_RET | libc::BPF_K => return step.k,
                code => panic!("a filter with an instruction that this test does not know: {code:#x}"),
            }
        }
    }

    const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | EPERM;

    #[test]
    fn what_a_call_asks_for_decides() {
        let number = |value: libc::c_int| u64::from(value.unsigned_abs());
        let (allow, end) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS);
        let thread = number(libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND);
        let data = number(libc::PROT_READ | libc::PROT_WRITE);
        let socket = number(libc::SOL_SOCKET);
        for (what, call, arguments, expected) in [
            ("a thread", libc::SYS_clone, [thread, 0, 0], allow),
            ("a process", libc::SYS_clone, [number(libc::SIGCHLD), 0, 0], end),
            ("a process by a newer call", libc::SYS_clone3, [0, 0, 0], libc::SECCOMP_RET_ERRNO | ENOSYS),
            ("memory", libc::SYS_mmap, [0, 4096, data], allow),
            ("code", libc::SYS_mmap, [0, 4096, data | number(libc::PROT_EXEC)], REFUSED),
            ("a guard page", libc::SYS_mprotect, [0, 4096, number(libc::PROT_NONE)], allow),
            ("data made code", libc::SYS_mprotect, [0, 4096, number(libc::PROT_READ | libc::PROT_EXEC)], REFUSED),
            ("a copy", libc::SYS_fcntl, [3, number(libc::F_DUPFD_CLOEXEC), 0], allow),
            ("an owner to be signalled", libc::SYS_fcntl, [3, number(libc::F_SETOWN), 1], REFUSED),
            ("which signal", libc::SYS_fcntl, [3, 10, 9], REFUSED),
            ("an owner by ioctl", libc::SYS_ioctl, [3, 0x8901, 1], REFUSED),
            ("keys typed for a terminal", libc::SYS_ioctl, [3, libc::TIOCSTI, 0], REFUSED),
            ("a packet", libc::SYS_sendmmsg, [3, 0, 1], allow),
            ("an answer", libc::SYS_sendmsg, [3, 0, number(libc::MSG_NOSIGNAL)], allow),
            ("a connection in the shape of an answer", libc::SYS_sendmsg, [3, 0, number(libc::MSG_FASTOPEN)], REFUSED),
            ("a filter", libc::SYS_setsockopt, [3, socket, number(libc::SO_ATTACH_FILTER)], allow),
            ("a mark", libc::SYS_setsockopt, [3, socket, number(libc::SO_MARK)], REFUSED),
            ("the same number at another level", libc::SYS_setsockopt, [3, 0, number(libc::SO_ATTACH_FILTER)], REFUSED),
            ("its own end", libc::SYS_tgkill, [77, 77, number(libc::SIGABRT)], allow),
            ("the end of others", libc::SYS_tgkill, [78, 78, number(libc::SIGKILL)], REFUSED),
            ("others to outlive it", libc::SYS_prctl, [number(libc::PR_SET_PDEATHSIG), 0, 0], REFUSED),
            ("a dump with its keys", libc::SYS_prctl, [number(libc::PR_SET_DUMPABLE), 1, 0], REFUSED),
            ("to ask for limits", libc::SYS_prlimit64, [0, 7, 0], allow),
            ("to set them", libc::SYS_prlimit64, [0, 7, 0xffff_0000], REFUSED),
            ("another filter", libc::SYS_seccomp, [1, 0, 0], REFUSED),
        ] {
            let [one, two, three] = arguments;
            assert_eq!(fate(call, [one, two, three, 0, 0, 0]), expected, "{what}");
        }
    }

    #[test]
    fn a_call_is_on_one_list() {
        for call in CALLS.iter().chain(OLD_CALLS) {
            assert!(!FATAL.contains(call) && !OLD_FATAL.contains(call), "{call}");
        }
        for &call in FATAL.iter().chain(OLD_FATAL) {
            assert_eq!(fate(call, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS, "{call}");
        }
    }

    #[test]
    fn calls_by_another_door_are_no_calls() {
        // As a program of 32 bits makes them (AUDIT_ARCH_I386, AUDIT_ARCH_ARM), with numbers that are other calls.
        for arch in [0x4000_0003, 0x4000_0028] {
            assert_eq!(fate_by(arch, libc::SYS_read, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS, "{arch:#x}");
        }
        // The x32 ABI: the same architecture, and a bit in the number (__X32_SYSCALL_BIT).
        for call in [libc::SYS_socket, libc::SYS_read, libc::SYS_execve] {
            assert_eq!(fate(call | 0x4000_0000, [0; 6]), REFUSED, "{call}");
        }
    }

    #[test]
    fn a_call_that_does_not_exist_yet_is_refused() {
        assert_eq!(fate(4000, [0; 6]), REFUSED);
    }
}
