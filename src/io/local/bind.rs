//! The socket's path: whose it is, who may use it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use tokio::net::UnixListener;

/// Where the socket is and who may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Path of the socket.
    pub path: PathBuf,
    /// The group that may read; everybody's if none is named.
    pub readers: Option<String>,
    /// The group that may change, besides root and the daemon's own user.
    pub admins: Option<String>,
}

/// The socket, and the lock that says that this process owns its path.
#[derive(Debug)]
pub struct Bound {
    pub(super) listener: UnixListener,
    path: PathBuf,
    pub(super) admins: Option<nix::unistd::Group>,
    lock: Flock<fs::File>,
}

/// Takes the socket's path.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if another daemon owns it; a path that is something else than a
/// socket is left alone.
pub fn bind(access: &Access) -> io::Result<Bound> {
    let path = &access.path;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| named(error, "cannot make the folder of the socket", folder))?;
    }
    let lock_path = path.with_extension("lock");
    let file = fs::OpenOptions::new().create(true).append(true).open(&lock_path);
    let file = file.map_err(|error| named(error, "cannot open the socket's lock", &lock_path))?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
        io::Error::new(io::ErrorKind::AddrInUse, format!("another adit already serves {}", path.display()))
    })?;
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} is there and no socket; it is left alone", path.display()),
            ));
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(|error| named(error, "cannot listen on", path))?;
    let mode = if access.readers.is_some() { 0o660 } else { 0o666 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    if let Some(readers) = &access.readers {
        let group = group(readers)?;
        nix::unistd::chown(path, None, Some(group.gid))
            .map_err(|error| named(error.into(), "cannot give to its group", path))?;
    }
    let admins = access.admins.as_deref().map(group).transpose()?;
    Ok(Bound { listener, path: path.clone(), admins, lock })
}

fn group(name: &str) -> io::Result<nix::unistd::Group> {
    let found = nix::unistd::Group::from_name(name)?;
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no group {name}")))
}

fn named(error: io::Error, what: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

impl Drop for Bound {
    fn drop(&mut self) {
        // The lock file stays: removing it would let two daemons lock two files of one name.
        let _ = fs::remove_file(&self.path);
        let _ = &self.lock;
    }
}
