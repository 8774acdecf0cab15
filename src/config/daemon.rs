//! `[daemon]`.

use std::path::PathBuf;

use super::section::Section;
use super::{defaults, refused};

/// The daemon's own settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// The local socket.
    pub socket: PathBuf,
    /// The group whose members may read from the socket, besides root and the daemon's own user. None
    /// unless it is written; then it is `admin_group`, and without that [`defaults::SOCKET_GROUP`] where
    /// this machine has that group: a start that fails for a default helps nobody.
    pub socket_group: Option<String>,
    /// The group whose members may change things, besides root and the daemon's own user. They must
    /// be members of `socket_group`, too, if that is written.
    pub admin_group: Option<String>,
    /// Where states and windows survive a restart.
    pub state_dir: PathBuf,
    /// The file that every sample is recorded in, for `adit replay`.
    pub record: Option<PathBuf>,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(defaults::SOCKET),
            socket_group: None,
            admin_group: None,
            state_dir: PathBuf::from(defaults::STATE_DIR),
            record: None,
        }
    }
}

impl Daemon {
    /// The keys whose values are others in `other`, which a running daemon cannot take.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let Self { socket, socket_group, admin_group, state_dir, record } = other;
        let same = [
            ("socket", &self.socket == socket),
            ("socket_group", &self.socket_group == socket_group),
            ("admin_group", &self.admin_group == admin_group),
            ("state_dir", &self.state_dir == state_dir),
            ("record", &self.record == record),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(key, _)| key).collect()
    }

    pub(super) fn read(root: &mut Section<'_>) -> Self {
        let usual = Self::default();
        let Some(mut section) = root.section("daemon", "[daemon]") else { return usual };
        let daemon = Self {
            socket: socket(&mut section).unwrap_or(usual.socket),
            socket_group: group(&mut section, "socket_group"),
            admin_group: group(&mut section, "admin_group"),
            state_dir: path(&mut section, "state_dir", defaults::STATE_DIR).unwrap_or(usual.state_dir),
            record: path(&mut section, "record", "/var/lib/adit/record.jsonl"),
        };
        refused::daemon(&mut section);
        section.finish();
        daemon
    }
}

fn path(section: &mut Section<'_>, key: &'static str, example: &str) -> Option<PathBuf> {
    section.path(key, example).map(|path| path.value)
}

fn group(section: &mut Section<'_>, key: &'static str) -> Option<String> {
    section.text(key, "a group's name", "adit", |text| Ok(text.to_owned())).map(|group| group.value)
}

fn socket(section: &mut Section<'_>) -> Option<PathBuf> {
    let socket = section.path("socket", defaults::SOCKET)?;
    let (length, most) = (socket.value.as_os_str().len(), defaults::SOCKET_PATH_MAX);
    if length > most {
        let why = format!("has {length} bytes, but a socket's path has at most {most}");
        section.report().add(socket.at, format!("`socket` {why}; write socket = {:?}", defaults::SOCKET));
    }
    Some(socket.value)
}
