//! Names: of tunnels, network namespaces, places, devices and groups.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::defaults::NAME_MAX;
use crate::engine;

/// A network namespace: its file. One that was given by name is below `/run/netns`, where ip-netns
/// keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Netns(PathBuf);

const NETNS: &str = "/run/netns";

impl Netns {
    /// The namespace of this name or absolute path.
    ///
    /// # Errors
    /// Why there can be none, as the end of a sentence that begins with the key.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            // /var/run is a link to /run, and two names for one namespace would be two to us.
            let path = text.strip_prefix("/var").filter(|rest| rest.starts_with(NETNS)).unwrap_or(text);
            return Ok(Self(PathBuf::from(path)));
        }
        if text.contains(['/', '\0']) || text == "." || text == ".." {
            let name = text.rsplit('/').find(|part| !part.trim_matches('.').is_empty()).unwrap_or("blue");
            let path = format!("{NETNS}/{name}");
            let wanted = format!("write netns = {name:?} or netns = {path:?}");
            return Err(format!("is {text:?}, neither a name nor an absolute path; {wanted}"));
        }
        Ok(Self(Path::new(NETNS).join(text)))
    }

    /// The file to enter it by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for Netns {
    /// The name, or the path where that is no mere name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.strip_prefix(NETNS).ok().filter(|name| name.components().count() == 1);
        name.unwrap_or(&self.0).display().fmt(f)
    }
}

/// Where routes are: a routing table of a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The namespace; `None` is the one where adit runs.
    pub netns: Option<Netns>,
    /// The table.
    pub table: u32,
}

impl Place {
    /// It by name, as it is shown.
    #[must_use]
    pub fn named(&self) -> engine::Place {
        engine::Place { netns: self.netns.as_ref().map(Netns::to_string), table: self.table }
    }
}

/// A tunnel's name: it is a word in the command line, a label, and a part of a URL's path.
pub(super) fn tunnel(text: &str) -> Result<String, String> {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let wrong = if text.len() > NAME_MAX {
        format!("has {} letters, more than {NAME_MAX}", text.chars().count())
    } else if let Some(other) = text.chars().find(|c| !letter(*c)) {
        format!("is {text:?}, which holds {other:?}")
    } else if text.starts_with(['.', '-']) {
        format!("is {text:?}, which does not begin with a letter, a digit or _")
    } else {
        return Ok(text.to_owned());
    };
    let kept: String = text.chars().map(|c| if letter(c) { c } else { '-' }).take(NAME_MAX).collect();
    let kept = kept.trim_start_matches(['.', '-']);
    let proposed = if kept.is_empty() { "ams-1" } else { kept };
    Err(format!("{wrong}; use the letters a to z, A to Z, 0 to 9, \".\", \"_\" and \"-\": write name = {proposed:?}"))
}

/// Names for tunnels that are made of words from elsewhere, each of them once.
#[derive(Debug, Default)]
pub(super) struct Free {
    /// Those given out, each with the number that a second one of it gets.
    taken: BTreeMap<String, u32>,
}

impl Free {
    /// The word, as far as a tunnel can be called so and no other is.
    pub(super) fn of(&mut self, word: &str) -> String {
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let kept = word.chars().skip_while(|c| !c.is_ascii_alphanumeric() && *c != '_').take(NAME_MAX);
        let kept: String = kept.map(|c| if letter(c) { c } else { '-' }).collect();
        let base = if kept.is_empty() { "tunnel".to_owned() } else { kept };
        let mut name = base.clone();
        let mut number = self.taken.get(&base).copied().unwrap_or(1);
        while self.taken.contains_key(&name) {
            number = number.saturating_add(1);
            let suffix = format!("-{number}");
            let room = base.len().min(NAME_MAX - suffix.len());
            name = format!("{}{suffix}", base.get(..room).unwrap_or_default());
        }
        self.taken.insert(base, number);
        self.taken.entry(name.clone()).or_insert(1);
        name
    }
}

/// A network device's name, as the kernel's `dev_valid_name` has it.
pub(super) fn device(key: &str, text: &str) -> Result<String, String> {
    const MAX: usize = 15;
    let strange = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
    if text.len() > MAX || text.contains(strange) || text == "." || text == ".." {
        return Err(format!(
            "is {text:?}, which no device can be called (at most {MAX} bytes, without spaces, \"/\" and \":\"); \
             write it as in `ip link`, for example {key} = \"eth0\""
        ));
    }
    Ok(text.to_owned())
}
