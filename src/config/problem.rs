//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One thing that is wrong, with what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// The file.
    #[serde(with = "path")]
    pub file: PathBuf,
    /// Line and column, both from 1, the column in characters; `None` where the file as a whole is
    /// meant (it cannot be read, say).
    pub place: Option<(usize, usize)>,
    /// What is wrong, what was expected, and what to write instead: one line.
    pub message: String,
}

impl Problem {
    /// Where it is: `FILE:LINE:COLUMN:`.
    #[must_use]
    pub fn location(&self) -> String {
        match self.place {
            Some((line, column)) => format!("{}:{line}:{column}:", self.file.display()),
            None => format!("{}:", self.file.display()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.location(), self.message)
    }
}

/// Everything that is wrong with a configuration: at least one problem, in the order of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub(super) Vec<Problem>);

impl Problems {
    /// The problems one by one.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A path byte by byte, for serde: it need not be UTF-8.
pub(super) mod path {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ptr_arg, reason = "serde hands over what the field is")]
    pub(in crate::config) fn serialize<S: Serializer>(path: &PathBuf, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(serializer)
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(deserializer).map(PathBuf::from)
    }
}
