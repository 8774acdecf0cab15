//! Associations, and a folder with a record in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use adit::engine::WallTime;
use adit::engine::ledger::{Begin, Fingerprint, Identity, Kind};
use adit::io::ledger::Ledger;
use tempfile::TempDir;

/// The part that this binary plays when it is run again.
pub(crate) const PART: &str = "ADIT_LEDGER_PART";
/// The state folder of that part.
pub(crate) const FOLDER: &str = "ADIT_LEDGER_FOLDER";

/// 2026-03-01T12:00:00Z.
pub(crate) const NOON: WallTime = WallTime(1_772_366_400_000_000_000);

/// Different in all digits for different numbers, as hashes are.
pub(crate) fn fingerprint(number: u32) -> Fingerprint {
    let digits = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Fingerprint::parse(&format!("{digits:032x}")).unwrap()
}

pub(crate) fn here() -> Identity {
    Identity::new(Some("3d1219c7c4c5404aaa1f6d2a48adfda4"), Some("12345678-0000-0000-0000-000000000001"))
}

/// A static association that is to use numbers from `first` up to `mark`, exclusive.
pub(crate) fn fixed(number: u32, first: u64, mark: u64) -> Begin {
    let tunnel = format!("ams-{number}");
    Begin { fingerprint: fingerprint(number), spi: 0x1000 + number, kind: Kind::Static, tunnel, first, mark }
}

/// An installed one.
pub(crate) fn installed(number: u32, tunnel: &str) -> Begin {
    let (tunnel, mark) = (tunnel.to_owned(), 1 << 32);
    Begin { fingerprint: fingerprint(number), spi: 0x1000 + number, kind: Kind::Installed, tunnel, first: 1, mark }
}

/// A state folder.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.path().join("sequence-numbers")
    }

    pub(crate) fn open(&self) -> Ledger {
        Ledger::open(self.path(), here()).unwrap()
    }

    pub(crate) fn read(&self) -> String {
        fs::read_to_string(self.record()).unwrap()
    }

    /// The names in it, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// This binary, to play a part with this folder.
    pub(crate) fn part(&self, part: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(PART, part).env(FOLDER, self.path());
        command
    }
}

/// The folder of the part that is played.
pub(crate) fn folder_of_part() -> PathBuf {
    PathBuf::from(std::env::var_os(FOLDER).unwrap())
}
