//! Which namespace stands under a name. It may be missing, and another one may stand there later.
//!
//! A name is a file that a namespace is mounted on, or a link to one. `ip netns add` makes the file and
//! mounts then, so a file that is not of the kernel's own `nsfs` is no namespace yet. Namespaces are told
//! apart by device and inode. The kernel gives an inode to another one only when the first is gone, and
//! while its file is held here, it is not.
//!
//! A watch is asked again and again: that costs one `stat` for each name. (inotify would not do: it tells
//! of a file's making, not of what is mounted on it, and nothing of links and of files in /proc.)

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions, metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs, statfs};

/// What has become of a name.
#[derive(Debug)]
pub enum Seen {
    /// A namespace stands there, and it is another one than before, if there was one. That it is a network
    /// namespace shows when it is entered ([`super::within`]).
    There(Arc<File>),
    /// None stands there.
    Gone,
    /// This cannot be seen for now. A namespace that stood there before is still held.
    Refused(io::Error),
}

/// Names of namespaces, each with what stands there. It holds every namespace that it has shown until
/// that is gone or replaced.
#[derive(Debug)]
pub struct Watch {
    names: Vec<Name>,
}

#[derive(Debug)]
struct Name {
    path: PathBuf,
    held: Option<Held>,
    told: Told,
}

#[derive(Debug)]
struct Held {
    id: Id,
    _file: Arc<File>,
}

/// Device and inode.
type Id = (u64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    There,
    Gone,
    Refused(io::ErrorKind),
}

impl Watch {
    /// Watches these files, known from now on by their place.
    #[must_use]
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let name = |path| Name { path, held: None, told: Told::Nothing };
        Self { names: paths.into_iter().map(name).collect() }
    }

    /// What has changed since the last time, by place; the first time, everything. Whoever is told that
    /// one is gone, or that another one is there, should let go of all that was opened in the old one: it
    /// lives as long as somebody holds it.
    pub fn changed(&mut self) -> Vec<(usize, Seen)> {
        let looked = self.names.iter_mut().enumerate();
        looked.filter_map(|(place, name)| Some((place, name.look()?))).collect()
    }

    /// Watches these files from now on, each at its place. What is held of them stays held, here or by `other`,
    /// and what is held of others is not any more.
    pub fn arrange(&mut self, paths: impl IntoIterator<Item = PathBuf>, other: Self) {
        let known = std::mem::take(&mut self.names).into_iter().chain(other.names);
        let mut known: BTreeMap<PathBuf, Name> = known.map(|name| (name.path.clone(), name)).collect();
        let name = |path| known.remove(&path).unwrap_or(Name { path, held: None, told: Told::Nothing });
        self.names = paths.into_iter().map(name).collect();
    }

    /// Forgets what stands at a place, so that it is told of again the next time: it could not be used.
    pub fn again(&mut self, place: usize) {
        if let Some(name) = self.names.get_mut(place) {
            (name.held, name.told) = (None, Told::Nothing);
        }
    }
}

impl Name {
    fn look(&mut self) -> Option<Seen> {
        match metadata(&self.path) {
            Ok(found) if self.holds(id(&found)) => None,
            Ok(_) => self.open(),
            Err(error) => self.without(error),
        }
    }

    /// Something else stands there than what is held, but not for sure a namespace.
    fn open(&mut self) -> Option<Seen> {
        match open(&self.path) {
            // Not the file that was looked at counts, but the one that was opened.
            Ok(Some((id, _))) if self.holds(id) => None,
            Ok(Some((id, file))) => {
                let file = Arc::new(file);
                self.held = Some(Held { id, _file: Arc::clone(&file) });
                self.told = Told::There;
                Some(Seen::There(file))
            }
            Ok(None) => self.gone(),
            Err(error) => self.without(error),
        }
    }

    fn holds(&mut self, id: Id) -> bool {
        let same = self.held.as_ref().is_some_and(|held| held.id == id);
        if same {
            self.told = Told::There;
        }
        same
    }

    fn without(&mut self, error: io::Error) -> Option<Seen> {
        // A path in /proc leads to a process that may have ended.
        let ended = error.raw_os_error() == Some(libc::ESRCH);
        if ended || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            return self.gone();
        }
        let told = Told::Refused(error.kind());
        let is_new = std::mem::replace(&mut self.told, told) != told;
        is_new.then_some(Seen::Refused(error))
    }

    fn gone(&mut self) -> Option<Seen> {
        self.held = None;
        let is_new = std::mem::replace(&mut self.told, Told::Gone) != Told::Gone;
        is_new.then_some(Seen::Gone)
    }
}

/// Opens a namespace; `None` if it is none.
fn open(path: &Path) -> io::Result<Option<(Id, File)>> {
    // Asked before it is opened, because the mere file that `ip netns add` makes may be read by nobody.
    if statfs(path)?.filesystem_type() != NSFS_MAGIC {
        return Ok(None);
    }
    // In between it may have become anything; so this waits for nobody, were it a pipe.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let is_namespace = fstatfs(&file)?.filesystem_type() == NSFS_MAGIC;
    Ok(if is_namespace { Some((id(&file.metadata()?), file)) } else { None })
}

fn id(found: &Metadata) -> Id {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::Weak;

    use super::*;

    /// A folder with names that are links to namespaces of this process; of another kind where there
    /// must be another one, because making one needs rights.
    struct Names(tempfile::TempDir);

    const ONE: &str = "/proc/self/ns/net";
    const OTHER: &str = "/proc/self/ns/uts";

    impl Names {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn set(&self, name: &str, to: impl AsRef<Path>) {
            let _ = fs::remove_file(self.path(name));
            symlink(to, self.path(name)).unwrap();
        }

        fn watch(&self, names: &[&str]) -> Watch {
            Watch::new(names.iter().map(|name| self.path(name)))
        }
    }

    /// What a watch tells, in short.
    fn told(watch: &mut Watch) -> Vec<(usize, &'static str)> {
        let word = |seen: &Seen| match seen {
            Seen::There(_) => "there",
            Seen::Gone => "gone",
            Seen::Refused(_) => "refused",
        };
        watch.changed().iter().map(|(place, seen)| (*place, word(seen))).collect()
    }

    #[test]
    fn everything_is_told_at_first_and_then_what_changes() {
        let names = Names::new();
        names.set("blue", ONE);
        let mut watch = names.watch(&["blue", "green"]);
        assert_eq!(told(&mut watch), [(0, "there"), (1, "gone")]);
        assert_eq!(told(&mut watch), []);
        names.set("green", ONE);
        assert_eq!(told(&mut watch), [(1, "there")]);
        fs::remove_file(names.path("blue")).unwrap();
        assert_eq!(told(&mut watch), [(0, "gone")]);
        assert_eq!(told(&mut watch), []);
        names.set("blue", ONE);
        assert_eq!(told(&mut watch), [(0, "there")]);
    }

    #[test]
    fn another_one_under_the_same_name_is_told_and_the_same_one_is_not() {
        let names = Names::new();
        names.set("blue", ONE);
        let mut watch = names.watch(&["blue"]);
        assert_eq!(told(&mut watch), [(0, "there")]);
        names.set("other-way", ONE);
        names.set("blue", names.path("other-way"));
        assert_eq!(told(&mut watch), [], "another way to the same");
        names.set("blue", OTHER);
        let [(0, Seen::There(file))] = &watch.changed()[..] else { panic!("nothing was told") };
        assert_eq!(id(&file.metadata().unwrap()), id(&metadata(OTHER).unwrap()));
    }

    #[test]
    fn what_is_no_namespace_is_not_taken_for_one() {
        let names = Names::new();
        let blue = names.path("blue");
        let mut watch = names.watch(&["blue"]);
        // As ip-netns leaves it before it mounts.
        fs::write(&blue, "").unwrap();
        fs::set_permissions(&blue, fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(told(&mut watch), [(0, "gone")]);
        names.set("blue", ONE);
        assert_eq!(told(&mut watch), [(0, "there")]);
        fs::remove_file(&blue).unwrap();
        // To open it for reading would wait for a writer.
        nix::unistd::mkfifo(&blue, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(told(&mut watch), [(0, "gone")]);
        for not_there in ["/proc/self/ns/net/x", "/proc/self/fd/999999", "/", "/dev/null"] {
            names.set("blue", not_there);
            assert_eq!(told(&mut watch), [], "{not_there}");
        }
    }

    #[test]
    fn what_is_gone_is_no_longer_held() {
        let names = Names::new();
        names.set("blue", ONE);
        let mut watch = names.watch(&["blue"]);
        let hold = |watch: &mut Watch| -> Weak<File> {
            let [(0, Seen::There(file))] = &watch.changed()[..] else { panic!("nothing was told") };
            Arc::downgrade(file)
        };
        let first = hold(&mut watch);
        assert_eq!(first.strong_count(), 1, "the watch itself holds it");
        names.set("blue", OTHER);
        let second = hold(&mut watch);
        assert_eq!((first.strong_count(), second.strong_count()), (0, 1));
        fs::remove_file(names.path("blue")).unwrap();
        assert_eq!(told(&mut watch), [(0, "gone")]);
        assert_eq!(second.strong_count(), 0);
    }

    #[test]
    fn what_cannot_be_seen_is_told_once_and_kept() {
        let names = Names::new();
        names.set("blue", ONE);
        let mut watch = names.watch(&["blue"]);
        assert_eq!(told(&mut watch), [(0, "there")]);
        // A link to itself cannot be followed, by root neither.
        names.set("blue", names.path("blue"));
        assert_eq!(told(&mut watch), [(0, "refused")]);
        assert_eq!(told(&mut watch), []);
        names.set("blue", ONE);
        assert_eq!(told(&mut watch), [], "it has been held all the time");
        names.set("blue", names.path("blue"));
        assert_eq!(told(&mut watch), [(0, "refused")]);
        fs::remove_file(names.path("blue")).unwrap();
        assert_eq!(told(&mut watch), [(0, "gone")]);
    }

    #[test]
    fn what_could_not_be_used_is_offered_again() {
        let names = Names::new();
        names.set("blue", ONE);
        let mut watch = names.watch(&["green", "blue"]);
        assert_eq!(told(&mut watch), [(0, "gone"), (1, "there")]);
        watch.again(1);
        assert_eq!(told(&mut watch), [(1, "there")]);
        assert_eq!(told(&mut watch), []);
        watch.again(2);
        assert_eq!(told(&mut watch), []);
    }
}
