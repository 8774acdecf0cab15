//! The walls of a process that strangers can reach: no capability, no file but those of one folder, no
//! system call that it does not need.
//!
//! | wall | keeps out |
//! | --- | --- |
//! | capabilities(7) laid down | raw sockets, routes, namespaces |
//! | landlock(7) | all files outside the folder, TCP, signals to other processes, abstract sockets |
//! | seccomp(2), an allow-list | every call that is not on it fails with `EPERM` |
//! | seccomp(2), a list of the worst | ends the process at once: whoever tries has taken it over |
//!
//! Sockets of all kinds are on the last list: what this process may use, it has been handed.

use std::fmt;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Compatible, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use nix::libc;
use nix::sys::prctl;
use nix::unistd::getpid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The latest version of Landlock that is asked for; of an older kernel, as much as it has.
const LANDLOCK: ABI = ABI::V8;

/// What may be done in the folder.
const IN_FOLDER: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | WriteFile | ReadDir | MakeReg | RemoveFile | Truncate});

/// What could not be had on this kernel, in words; empty if every wall stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gaps(Vec<String>);

impl Gaps {
    /// Whether every wall stands.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// Builds the walls around this process for ever. To be called when there is one thread only: of others,
/// some would stay outside. `folder` is where files may be read and written, if there is such a place.
///
/// A runtime of tokio must have been built before: the first one makes a pair of sockets.
#[must_use]
pub fn confine(folder: Option<&Path>) -> Gaps {
    let mut gaps = Vec::new();
    let mut note = |wall: &str, error: Option<String>| gaps.extend(error.map(|error| format!("{wall}: {error}")));
    note("capabilities", lay_down().err().map(|error| error.to_string()));
    note("no_new_privs", prctl::set_no_new_privs().err().map(|error| error.to_string()));
    note("Landlock", shut_out(folder).unwrap_or_else(|error| Some(error.to_string())));
    // The allow-list last: it lets no filter be set any more.
    for filter in [fatal(), absent(), allowed()] {
        let set = filter.and_then(|filter| seccompiler::apply_filter(&filter));
        note("seccomp", set.err().map(|error| error.to_string()));
    }
    Gaps(gaps)
}

/// Lays every capability down, and the right to ever have one.
fn lay_down() -> Result<(), caps::errors::CapsError> {
    use caps::CapSet::{Ambient, Bounding, Effective, Inheritable, Permitted};
    // Takes a capability of its own; without it, nothing can be had either, because nothing is executed.
    let _ = caps::clear(None, Bounding);
    // A kernel without it has nothing there.
    let _ = caps::clear(None, Ambient);
    [Inheritable, Effective, Permitted].into_iter().try_for_each(|set| caps::clear(None, set))
}

/// What Landlock lacks, if it lacks something.
fn shut_out(folder: Option<&Path>) -> Result<Option<String>, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    // One that cannot be opened cannot be used by others either.
    let open = folder.and_then(|folder| PathFd::new(folder).ok());
    let rules =
        open.map(|open| Ok(PathBeneath::new(open, IN_FOLDER).set_compatibility(landlock::CompatLevel::BestEffort)));
    let RestrictionStatus { ruleset, .. } =
        ruleset.add_rules(rules.into_iter().collect::<Vec<Result<_, RulesetError>>>())?.restrict_self()?;
    Ok(match ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => None,
        RulesetStatus::NotEnforced => Some("this kernel has none, or it is off".to_owned()),
    })
}

type Built = Result<BpfProgram, seccompiler::Error>;

/// Calls that this program makes; any other fails.
fn allowed() -> Built {
    let plain = CALLS.iter().chain(OLD_CALLS).map(|&call| (call, Vec::new()));
    let own = getpid().as_raw();
    let conditional = [
        // Threads, no processes.
        (libc::SYS_clone, vec![masked(0, libc::CLONE_THREAD)?]),
        // Names of threads and of memory.
        (libc::SYS_prctl, vec![equal(0, libc::PR_SET_NAME)?, equal(0, libc::PR_SET_VMA)?]),
        // Whether a socket blocks; whether something is a terminal.
        (libc::SYS_ioctl, vec![equal(1, libc::FIONBIO)?, equal(1, libc::TCGETS)?]),
        // A panic ends this process, and no other.
        (libc::SYS_tgkill, vec![equal(0, own)?]),
        // A thread may give way to others.
        (libc::SYS_setpriority, vec![both(equal_to(0, libc::PRIO_PROCESS)?, equal_to(1, 0)?)?]),
        // Asking for limits, not setting them.
        (libc::SYS_prlimit64, vec![equal(2, 0)?]),
    ];
    let rules = plain.chain(conditional).collect();
    program(SeccompFilter::new(rules, SeccompAction::Errno(EPERM), SeccompAction::Allow, arch()?))
}

/// Calls that only somebody else would make: the end.
fn fatal() -> Built {
    let rules = FATAL.iter().map(|&call| (call, Vec::new())).collect();
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

fn equal(argument: u8, value: impl TryInto<u64>) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![equal_to(argument, value)?])?)
}

fn equal_to(argument: u8, value: impl TryInto<u64>) -> Result<SeccompCondition, seccompiler::Error> {
    // None of ours is negative.
    let value = value.try_into().unwrap_or(u64::MAX);
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?)
}

fn both(one: SeccompCondition, other: SeccompCondition) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![one, other])?)
}

fn masked(argument: u8, flag: libc::c_int) -> Result<SeccompRule, seccompiler::Error> {
    let flag = u64::from(flag.unsigned_abs());
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Files of the folder, memory, threads, time, and sockets that are open.
const CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_openat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_fchmod,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_membarrier,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendto,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
];

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];

/// What a process that has been taken over would begin with.
const FATAL: &[libc::c_long] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_open_by_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_capset,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
];
