//! A lock file: who owns a path.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::geteuid;

use super::clock::Clock;

/// How long whoever holds a lock may take to end.
const ENDING: Duration = Duration::from_secs(3);

/// Takes a lock as [`take`] does, but waits a little: who holds it may be about to end, because this process
/// was started in its place.
pub(super) fn await_end(path: &Path, what: &str, taken: &str) -> io::Result<Flock<fs::File>> {
    let begin = Clock::start();
    loop {
        match take(path, what, taken) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begin.age() < ENDING => {
                std::thread::sleep(Duration::from_millis(10));
            }
            taken => return taken,
        }
    }
}

/// Takes a lock for as long as what is returned lives. Nobody else can open its file, or they could
/// hold it. The file stays: removing it would let two processes lock two files of one name.
///
/// `what` names the lock in errors; `taken` is the error if another process holds it, an
/// [`io::ErrorKind::AddrInUse`].
pub(super) fn take(path: &Path, what: &str, taken: &str) -> io::Result<Flock<fs::File>> {
    let named = |error: io::Error, doing: &str| {
        io::Error::new(error.kind(), format!("cannot {doing} {what} {}: {error}", path.display()))
    };
    let careful = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(0o600).custom_flags(careful.bits());
    let file = options.open(path).map_err(|error| named(error, "open"))?;
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 1 || found.uid() != geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!(
                "{} is no lock of this user's (it belongs to user {}); see what it is, and remove it",
                path.display(),
                found.uid()
            ),
        ));
    }
    if found.mode() & 0o777 != 0o600 {
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(|error| named(error, "close to others"))?;
    }
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
        if error == Errno::EWOULDBLOCK {
            return io::Error::new(io::ErrorKind::AddrInUse, taken);
        }
        named(error.into(), "lock")
    })
}
