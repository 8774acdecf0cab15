//! `[daemon]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::defaults;
use super::section::{Section, expected};
use super::tree::{Placed, Value};

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
    /// Where the metrics are served over TCP, besides the local socket: to everybody who reaches that address.
    pub metrics: Option<SocketAddr>,
    /// Whether the status page is served there, too.
    pub status_page: bool,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(defaults::SOCKET),
            socket_group: None,
            admin_group: None,
            state_dir: PathBuf::from(defaults::STATE_DIR),
            record: None,
            metrics: None,
            status_page: false,
        }
    }
}

impl Daemon {
    /// The keys whose values are others in `other`, which a running daemon cannot take.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        // What is served over TCP follows a reload.
        let Self { socket, socket_group, admin_group, state_dir, record, metrics: _, status_page: _ } = other;
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
        let (metrics, status_page) = web(&mut section);
        let daemon = Self {
            socket: socket(&mut section).unwrap_or(usual.socket),
            socket_group: group(&mut section, "socket_group"),
            admin_group: group(&mut section, "admin_group"),
            state_dir: path(&mut section, "state_dir", defaults::STATE_DIR).unwrap_or(usual.state_dir),
            record: path(&mut section, "record", "/var/lib/adit/record.jsonl"),
            metrics,
            status_page,
        };
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

/// Where the metrics are served over TCP, and whether the status page is, too.
fn web(section: &mut Section<'_>) -> (Option<SocketAddr>, bool) {
    let metrics = section.text("metrics", ADDRESS, defaults::METRICS, listening);
    let page = section.boolean("status_page", true);
    if let Some(Placed { at, value: true }) = page
        && !section.has("metrics")
    {
        let why = "needs a place to be served at";
        section.report().add(at, format!("`status_page` {why}; write metrics = {:?}, too", defaults::METRICS));
    }
    if let Some(Placed { at, value }) = metrics
        && !value.ip().to_canonical().is_loopback()
    {
        let (who, more) = (
            "whoever reaches this address can read",
            if page.is_some_and(|page| page.value) {
                "the status page with all tunnels, routes and events, and the metrics"
            } else {
                "the names and prefixes in the metrics"
            },
        );
        let remedy = format!("a firewall should say who that is, or write metrics = {:?}", defaults::METRICS);
        section.report().hint(at, format!("`metrics`: {who} {more}, without a password and unencrypted; {remedy}"));
    }
    (metrics.map(|metrics| metrics.value), page.is_some_and(|page| page.value))
}

const ADDRESS: &str = "an IP address and a port";

/// Names would have to be looked up, and may mean another address tomorrow.
fn listening(text: &str) -> Result<SocketAddr, String> {
    let wrong = |kind: &str, example: &str| {
        Err(expected(kind, &Value::Text(text.to_owned()), "metrics", &format!("{example:?}")))
    };
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            let example = SocketAddr::new(address.ip(), defaults::METRICS_PORT).to_string();
            wrong("an address and a port from 1 to 65535", &example)
        }
        Ok(address) if address.ip().is_multicast() => wrong("an address of this host", defaults::METRICS),
        Ok(address) => Ok(address),
        Err(_) => wrong(ADDRESS, &meant(text)),
    }
}

/// What was perhaps meant: an address without a port, a port without an address.
fn meant(text: &str) -> String {
    let bare = text.trim_matches(['[', ']']).parse().ok();
    let port = text.rsplit(':').next().and_then(|port| port.parse().ok()).filter(|port| *port != 0);
    match (bare, port) {
        (Some(address), _) => SocketAddr::new(address, defaults::METRICS_PORT).to_string(),
        (None, Some(port)) => SocketAddr::from(([127, 0, 0, 1], port)).to_string(),
        (None, None) => defaults::METRICS.to_owned(),
    }
}
