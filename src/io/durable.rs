//! Files that are there whole, or as they were before, whenever the power fails: written aside, brought to the
//! disk, and renamed; the folder's names, too, are brought to the disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// Puts a file in another's place. What is on its way has the name with the ending `new`; left behind by a
/// crash it means nothing.
pub(super) fn replace(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    let swapped = write(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    if let Err(error) = swapped {
        // What does not fit on the disk must not fill it.
        let _ = fs::remove_file(&aside);
        return Err(error);
    }
    sync_folder(folder)
}

/// What a file holds; `None` if there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let careful = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(careful.bits()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(error, "open", path)),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{} is no file", path.display())));
    }
    let mut bytes = Vec::new();
    (&file).read_to_end(&mut bytes).map_err(|error| named(error, "read", path))?;
    Ok(Some(bytes))
}

/// Writes a new file, to the disk. What an earlier run has left under its name goes.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(error, "remove", path)),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(0o600).open(path).map_err(|error| named(error, "make", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| named(error, "write", path))
}

/// Makes a folder and those it lies in, each durably; none but this user can enter them.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make(parent)?;
    DirBuilder::new().mode(0o700).create(folder)?;
    sync_folder(parent)
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(|error| named(error, "make durable", folder))
}

pub(super) fn named(error: io::Error, doing: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {doing} {}: {error}", path.display()))
}
