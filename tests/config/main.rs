//! Configurations: what loads and what it means, what is refused and where.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod credentials;
mod drop_ins;
mod endpoints;
mod esp;
mod kernel;
mod refusals;
mod texts;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use adit::config::{Config, Problems, ReflectConfig, Tunnel};
use adit::wire::Ends;
use tempfile::TempDir;

/// A copy of the fixtures whose keys are private: what git cannot keep.
struct Fixtures(TempDir);

impl Fixtures {
    fn new() -> Self {
        let copy = tempfile::tempdir().unwrap();
        for folder in ["ok", "bad", "keys"] {
            let target = copy.path().join(folder);
            fs::create_dir(&target).unwrap();
            for file in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/config").join(folder)) {
                let name = file.file_name().unwrap();
                fs::copy(&file, target.join(name)).unwrap();
                let mode = if folder == "keys" && name != "open.key" { 0o600 } else { 0o644 };
                fs::set_permissions(target.join(name), fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        Self(copy)
    }

    fn files(&self, folder: &str) -> Vec<PathBuf> {
        files(&self.0.path().join(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("ok").join(name)
    }

    fn load(&self, name: &str) -> Config {
        good(Config::load(&self.path(name)))
    }

    fn tunnels(&self, name: &str) -> BTreeMap<String, Tunnel> {
        self.load(name).tunnels.into_iter().map(|tunnel| (tunnel.name.clone(), tunnel)).collect()
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn good<T>(loaded: Result<T, Problems>) -> T {
    loaded.unwrap_or_else(|problems| panic!("{problems}"))
}

fn parse(text: &str) -> Config {
    good(Config::parse("/elsewhere/adit.toml", text))
}

/// Loads a file as the command that it is for does.
fn load(path: &Path) -> Result<(), Problems> {
    if path.file_name().unwrap().to_str().unwrap().starts_with("reflect-") {
        ReflectConfig::load(path).map(drop)
    } else {
        Config::load(path).map(drop)
    }
}

fn ends(local: &str, far: &str) -> Ends {
    Ends::new(local.parse().unwrap(), far.parse().unwrap()).unwrap()
}
