//! Why there is no mark, and the remedy.

use std::fmt;

use super::{Kind, WallTime};

/// Why the sequence numbers that an association has used are not known. Each is one sentence to stand
/// after its name: `sequence-state-lost: there is no record of …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    /// There is no line for these keys, or no file.
    Missing,
    /// A line is damaged: the first, or one that seems to be about these keys.
    Damaged {
        /// Its number in the file, from 1.
        line: usize,
    },
    /// Lines have gone, and nobody knows about which keys.
    Incomplete,
    /// The file was written on another machine.
    OtherMachine,
    /// The file is older than the last one that was written here.
    Older {
        /// Its generation.
        found: u64,
        /// The generation that was written last.
        written: u64,
    },
    /// The file is not what this run has written.
    ChangedUnderUs,
    /// The file can not be read.
    Unreadable(String),
    /// The file has a format that came after this program.
    LaterVersion(u32),
}

impl Lost {
    /// The name under which all of them are told.
    pub const NAME: &'static str = "sequence-state-lost";

    /// Whether the file may be set aside, for an operator who says how to go on. Not while somebody
    /// else writes it, nor where it may be whole for a later version or another user.
    #[must_use]
    pub const fn may_be_replaced(&self) -> bool {
        match self {
            Self::Missing | Self::Damaged { .. } | Self::Incomplete | Self::OtherMachine | Self::Older { .. } => true,
            Self::ChangedUnderUs | Self::Unreadable(_) | Self::LaterVersion(_) => false,
        }
    }

    /// What an operator can do about it, for a tunnel whose keys come from there.
    #[must_use]
    pub fn remedy(&self, tunnel: &str, kind: Kind) -> String {
        let begin = match kind {
            Kind::Static => format!(
                "write new keys and SPIs at both ends; or, if the far router's counter is known (ip -s xfrm state), \
                 run `adit sa begin {tunnel} --at N` with N above it; if these keys have never been used, run \
                 `adit sa begin {tunnel}`"
            ),
            Kind::Installed => format!(
                "make sure that no keys will be installed that were installed before, and say so with \
                 `adit sa begin {tunnel}`; then install fresh ones"
            ),
        };
        match self {
            Self::Missing | Self::Damaged { .. } | Self::Incomplete | Self::OtherMachine | Self::Older { .. } => begin,
            Self::ChangedUnderUs => {
                format!(
                    "find out who else writes to state_dir (another host? a restored backup?) and restart adit; then {begin}"
                )
            }
            Self::Unreadable(_) => "let adit's user read the file, and restart adit".to_owned(),
            Self::LaterVersion(_) => {
                format!("run the later adit; or move the file away and restart adit; then {begin}")
            }
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "there is no record of the sequence numbers that were used with these keys"),
            Self::Damaged { line } => write!(f, "line {line} of the record of sequence numbers is damaged"),
            Self::Incomplete => {
                write!(f, "the record of sequence numbers has lost lines, and these keys may have been in one of them")
            }
            Self::OtherMachine => {
                write!(f, "the record of sequence numbers was written on another machine (a copied disk or image?)")
            }
            Self::Older { found, written } => write!(
                f,
                "the record of sequence numbers is an old one, generation {found}, though {written} was written here \
                 since (a restored backup?)"
            ),
            Self::ChangedUnderUs => {
                write!(f, "the record of sequence numbers was changed by somebody else while adit was running")
            }
            Self::Unreadable(reason) => write!(f, "the record of sequence numbers can not be read: {reason}"),
            Self::LaterVersion(version) => write!(
                f,
                "the record of sequence numbers has format version {version}, which is later than this adit and is \
                 left alone"
            ),
        }
    }
}

impl std::error::Error for Lost {}

/// Why an association was not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeginError {
    /// Its keys have been used before.
    UsedBefore {
        /// In this tunnel.
        tunnel: String,
        /// Since then.
        written: WallTime,
    },
    /// It is not known whether they have.
    Lost(Lost),
    /// It could not be written down.
    Unwritten(String),
}

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UsedBefore { tunnel, written } => write!(
                f,
                "these keys were begun before, for tunnel {tunnel} at {written}, if only by an install that was cut \
                 short; keys that are installed are begun once, for no nonce may be used twice with a key (RFC 4106 \
                 section 2): install fresh ones"
            ),
            Self::Lost(lost) => write!(f, "{}: {lost}", Lost::NAME),
            Self::Unwritten(reason) => write!(f, "the record of sequence numbers can not be written: {reason}"),
        }
    }
}

impl std::error::Error for BeginError {}

/// Why numbers were not reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotReserved {
    /// The record is lost: nothing can be reserved in this run.
    Lost(Lost),
    /// It could not be written: worth another try.
    Unwritten(String),
}

impl fmt::Display for NotReserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => write!(f, "{}: {lost}", Lost::NAME),
            Self::Unwritten(reason) => write!(f, "the record of sequence numbers can not be written: {reason}"),
        }
    }
}

impl std::error::Error for NotReserved {}

impl From<NotReserved> for BeginError {
    fn from(reason: NotReserved) -> Self {
        match reason {
            NotReserved::Lost(lost) => Self::Lost(lost),
            NotReserved::Unwritten(reason) => Self::Unwritten(reason),
        }
    }
}
