//! The configuration of `adit reflect`: the same tunnels from the far side, and faults on purpose.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::esp::Side;
use super::key_file;
use super::problem::Problems;
use super::section::Section;
use super::source;
use super::texts::Texts;
use super::tunnel::{Tunnel, Tunnels};
use super::{defaults, notation};
use crate::engine::health::Ratio;
use crate::reflect::plan::Fault;
use crate::wire::payload;

/// A reflector's configuration. Without `Debug`: it holds keys.
#[derive(Clone)]
pub struct ReflectConfig {
    /// The tunnels as they look from here: `local_endpoint` is the reflector's own.
    pub tunnels: Vec<Tunnel>,
    /// The key to mark answers with.
    pub mark_key: Option<payload::Key>,
    /// Where used ESP sequence numbers are recorded.
    pub state_dir: PathBuf,
    /// What it does wrong on purpose.
    pub faults: Vec<Fault>,
}

impl ReflectConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        source::merge(&Texts::gather(path)).and_then(Self::read)
    }

    /// Reads a text as the file of this name.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(name: impl AsRef<Path>, text: &str) -> Result<Self, Problems> {
        source::merge(&Texts::of(name, text)).and_then(Self::read)
    }

    fn read((report, table): source::Loaded) -> Result<Self, Problems> {
        let mut root = Section::root(&table, &report);
        let tunnels = Tunnels::read(&mut root, Side::Reflector);
        let (mark_key, state_dir) = own(&mut root);
        let faults = root.sections("fault").into_iter().map(|section| fault(section, &tunnels)).collect();
        for key in ["daemon", "route", "kernel", "rule", "notify", "endpoint"] {
            root.refuse(key, "belongs in the configuration of `adit run`, not of `adit reflect`; remove it");
        }
        root.finish();
        report.conclude(|_| Self { tunnels: tunnels.list, mark_key, state_dir, faults })
    }
}

/// Reads `[reflect]`: the mark's key, and the folder of the state.
fn own(root: &mut Section<'_>) -> (Option<payload::Key>, PathBuf) {
    let usual = || PathBuf::from(defaults::REFLECT_STATE_DIR);
    let Some(mut section) = root.section("reflect", "[reflect]") else { return (None, usual()) };
    let file = key_file::mark(&mut section);
    let state_dir = section.path("state_dir", defaults::REFLECT_STATE_DIR);
    section.finish();
    (file.map(|file| file.value.key), state_dir.map_or_else(usual, |path| path.value))
}

fn fault(mut section: Section<'_>, tunnels: &Tunnels) -> Fault {
    let usual = Fault::default();
    let second = Duration::from_secs(1);
    let tunnel = tunnels.reference(&mut section).map(|tunnel| tunnel.value.1);
    let after = section.duration("after", defaults::FAULT_TIME, second * 10);
    let lasts = section.duration("for", defaults::FAULT_TIME, second * 30);
    let drop = share(&mut section, "drop");
    let delay = section.duration("delay", defaults::FAULT_DELAY, second / 10);
    let jitter = section.duration("jitter", defaults::FAULT_DELAY, second / 50);
    let delayed = share(&mut section, "delayed");
    let duplicate = share(&mut section, "duplicate");
    let corrupt = share(&mut section, "corrupt");
    let fault = Fault {
        tunnel,
        after: after.map_or(usual.after, |after| after.value),
        lasts: lasts.map(|lasts| lasts.value),
        drop: drop.unwrap_or(usual.drop),
        delay: delay.map_or(usual.delay, |delay| delay.value),
        jitter: jitter.map_or(usual.jitter, |jitter| jitter.value),
        delayed: delayed.unwrap_or(usual.delayed),
        duplicate: duplicate.unwrap_or(usual.duplicate),
        corrupt: corrupt.unwrap_or(usual.corrupt),
    };
    refuse_idle(&section);
    section.finish();
    fault
}

fn share(section: &mut Section<'_>, key: &'static str) -> Option<Ratio> {
    let read = section.read(key, |value| notation::ratio(value, Ratio(0), key, Ratio(300_000)));
    read.map(|share| share.value)
}

/// A fault that does nothing is a slip of whoever wrote it.
fn refuse_idle(section: &Section<'_>) {
    let delays = section.has("delay") || section.has("jitter");
    if !delays && !["drop", "duplicate", "corrupt"].into_iter().any(|key| section.has(key)) {
        let why = "this [[fault]] does nothing; write drop = \"30%\", delay, jitter, duplicate or corrupt in it";
        section.report().add(section.at(), why);
    } else if section.has("delayed") && !delays {
        let why = "`delayed` is missing what it is the share of; write delay = \"100ms\" or jitter beside it";
        section.report().add(section.at(), why);
    }
}
