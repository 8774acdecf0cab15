//! Files that are there whole, or as they were before, whenever the power fails: written aside, brought to the
//! disk, and renamed; the folder's names, too, are brought to the disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// A file that is to take another's place. On its way it has the name with the ending `new`; left behind by a
/// crash it means nothing.
#[derive(Debug)]
pub(super) struct Aside {
    path: PathBuf,
    aside: PathBuf,
    file: File,
    is_in_place: bool,
}

impl Aside {
    /// An empty one.
    pub(super) fn begin(path: PathBuf) -> io::Result<Self> {
        let aside = path.with_extension("new");
        let file = create(&aside)?;
        Ok(Self { path, aside, file, is_in_place: false })
    }

    /// Adds to its end.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).map_err(|error| named(error, "write", &self.aside))
    }

    /// Writes over its beginning, brings it to the disk, and puts it in place.
    pub(super) fn put_in_place(mut self, beginning: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(beginning, 0).and_then(|()| self.file.sync_all());
        written.map_err(|error| named(error, "write", &self.aside))?;
        fs::rename(&self.aside, &self.path).map_err(|error| named(error, "replace", &self.path))?;
        self.is_in_place = true;
        self.path.parent().map_or(Ok(()), sync_folder)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_in_place {
            // What does not fit on the disk must not fill it.
            let _ = fs::remove_file(&self.aside);
        }
    }
}

/// What a file holds; `None` if there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let Some((mut file, _)) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| named(error, "read", path))?;
    Ok(Some(bytes))
}

/// A file and its length; `None` if there is none.
pub(super) fn open(path: &Path) -> io::Result<Option<(File, u64)>> {
    let careful = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(careful.bits()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(error, "open", path)),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other(format!("{} is no file", path.display())));
    }
    Ok(Some((file, found.len())))
}

/// Writes a new file, to the disk. What an earlier run has left under its name goes.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| named(error, "write", path))
}

fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(error, "remove", path)),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path).map_err(|error| named(error, "make", path))
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
