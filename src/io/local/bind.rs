//! The socket's path: whose it is, who may use it.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use nix::unistd::{Gid, Group, chown};
use socket2::{Domain, SockAddr, Socket, Type};

use super::admins::{Admins, Membership};
use crate::config::defaults::SOCKET_GROUP;
use crate::io::lock;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Where the socket is and who may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Path of the socket.
    pub path: PathBuf,
    /// The group that may read, besides root and the daemon's own user. If none is named it is that of
    /// `admins`, and without that the one of the default's name, where there is one.
    pub readers: Option<String>,
    /// The group that may change, besides root and the daemon's own user. Its members can do so only
    /// if they may read.
    pub admins: Option<String>,
}

/// A group that the configuration names and this machine does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownGroup {
    key: &'static str,
    name: String,
}

impl fmt::Display for UnknownGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, name } = self;
        write!(
            f,
            "[daemon] {key} = {name:?}: this machine has no such group; make it (groupadd --system {name}), or name another"
        )
    }
}

impl std::error::Error for UnknownGroup {}

/// The socket, and the lock that says that this process owns its path.
#[derive(Debug)]
pub struct Bound {
    pub(super) listener: UnixListener,
    /// Where it is, unless another process owns that.
    pub(super) place: Option<Place>,
    pub(super) admins: Option<Admins>,
    readers: Option<String>,
}

impl Bound {
    /// The socket's path; empty if another process owns it.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.as_ref().map_or(Path::new(""), |place| &place.path)
    }

    /// The socket itself, for another process to serve.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.try_clone()?.into())
    }

    /// The group whose members may change things, besides root and the daemon's own user.
    #[must_use]
    pub fn admins(&self) -> Option<Gid> {
        self.admins.as_ref().map(|admins| admins.group)
    }

    /// The socket of another process, to be served by this one.
    #[must_use]
    pub fn handed(socket: OwnedFd, admins: Option<Gid>, membership: Membership) -> Self {
        let admins = admins.map(|group| Admins::new(group, membership));
        Self { listener: socket.into(), place: None, admins, readers: None }
    }

    /// The group whose members may read, besides root and the daemon's own user.
    #[must_use]
    pub fn readers(&self) -> Option<&str> {
        self.readers.as_deref()
    }
}

/// The path, ours for as long as this lives.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    lock: Flock<fs::File>,
}

impl Drop for Place {
    fn drop(&mut self) {
        // The lock file stays: removing it would let two daemons lock two files of one name.
        let _ = fs::remove_file(&self.path);
        let _ = &self.lock;
    }
}

/// Takes the socket's path. Nobody can connect before its permissions are what they should be, and
/// a failure leaves no socket behind.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if another daemon owns it, [`UnknownGroup`] inside the error if a
/// group is not there; a path that is something else than a socket is left alone.
pub fn bind(access: &Access) -> io::Result<Bound> {
    let readers = access.readers.as_deref().map(|name| group("socket_group", name)).transpose()?;
    let admins = access.admins.as_deref().map(|name| group("admin_group", name)).transpose()?;
    let path = &access.path;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| named(error, "cannot make the folder of the socket", folder))?;
    }
    let taken = format!("another adit already serves {}", path.display());
    let lock = lock::take(&path.with_extension("lock"), "the socket's lock", &taken)?;
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            fs::remove_file(path).map_err(|error| named(error, "cannot replace", path))?;
        }
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} is there and no socket; it is left alone", path.display()),
            ));
        }
        Err(_) => {}
    }
    let cannot_listen = |error| named(error, "cannot listen on", path);
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?).map_err(cannot_listen)?;
    let place = Place { path: path.clone(), lock };
    let readers = restrict(path, readers.or_else(|| admins.clone()))?;
    socket.listen(BACKLOG).map_err(cannot_listen)?;
    socket.set_nonblocking(true)?;
    let listener = OwnedFd::from(socket).into();
    let admins = admins.map(|group| Admins::new(group.gid, Membership::Database));
    Ok(Bound { listener, place: Some(place), admins, readers })
}

/// Lets nobody use the socket but root, the daemon's own user, and a group: the one that is named,
/// else the default's. Returns that group's name.
fn restrict(path: &Path, named_readers: Option<Group>) -> io::Result<Option<String>> {
    let permit = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(path, permissions).map_err(|error| named(error, "cannot set the permissions of", path))
    };
    let readers = match named_readers {
        Some(group) => {
            give(path, &group).map_err(|error| {
                let name = &group.name;
                named(error, &format!("only root and members of the group {name} can give it"), path)
            })?;
            Some(group)
        }
        // That there is such a group is luck, and that it cannot be used is no reason not to start.
        None => Group::from_name(SOCKET_GROUP).ok().flatten().filter(|group| match give(path, group) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, group = SOCKET_GROUP, "cannot let the group read from the local socket");
                false
            }
        }),
    };
    permit(if readers.is_some() { 0o660 } else { 0o600 })?;
    Ok(readers.map(|group| group.name))
}

/// Gives the socket to a group, unless it is born in it: a filter of system calls may not allow even
/// what changes nothing.
fn give(path: &Path, group: &Group) -> io::Result<()> {
    if fs::symlink_metadata(path)?.gid() != group.gid.as_raw() {
        chown(path, None, Some(group.gid))?;
    }
    Ok(())
}

fn group(key: &'static str, name: &str) -> io::Result<Group> {
    let found = Group::from_name(name)
        .map_err(|error| io::Error::other(format!("cannot look up [daemon] {key} = {name:?}: {error}")))?;
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, UnknownGroup { key, name: name.to_owned() }))
}

fn named(error: io::Error, what: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}
