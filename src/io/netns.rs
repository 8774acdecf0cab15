//! Running something inside a network namespace, and watching which one stands under a name.

pub mod watch;

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

/// Runs `work` inside the namespace that `file` stands for, or here if there is none.
///
/// A namespace belongs to a thread, and the threads of a runtime are shared by its tasks; so the
/// work is done on a thread of its own, which ends with it. A socket stays in the namespace in
/// which it was opened.
///
/// # Errors
/// Entering needs `CAP_SYS_ADMIN`, here and in the user namespace that owns it; `InvalidInput` if it is
/// no network namespace; and whatever `work` gives.
pub fn within<T: Send>(file: Option<&File>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(file) = file else { return work() };
    alone(|| {
        setns(file, CloneFlags::CLONE_NEWNET).map_err(not_entered)?;
        work()
    })
}

/// Runs `work` on a thread of its own and waits for its end.
pub(super) fn alone<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        // `Scope::spawn` would panic where there is no room for a thread.
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}

fn not_entered(errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    #[expect(clippy::wildcard_enum_match_arm, reason = "the system's list is open")]
    match errno {
        Errno::EPERM => io::Error::new(error.kind(), format!("entering it needs CAP_SYS_ADMIN ({error})")),
        Errno::EINVAL => io::Error::new(error.kind(), "it is a namespace, but not of the network"),
        _ => error,
    }
}

/// Makes a namespace without a name, held by the file that is returned: it ends with the last
/// file, socket or process in it.
///
/// # Errors
/// Needs `CAP_SYS_ADMIN`, which [`become_root_of_new_user_namespace`] gives.
pub fn make() -> io::Result<File> {
    alone(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        here()
    })
}

/// The namespace of the calling thread.
///
/// # Errors
/// Without /proc.
pub fn here() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Moves this process, which must still have one thread only, into a user namespace of its own in
/// which it is root, and into a network namespace that belongs to it.
///
/// # Errors
/// The kernel or its administrator may forbid user namespaces.
pub fn become_root_of_new_user_namespace() -> io::Result<()> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    // Without "deny" the kernel lets nobody map groups unless privileged (user_namespaces(7)).
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
