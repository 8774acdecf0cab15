//! A file's text in, a [`Config`] that cannot be wrong out; or everything that is wrong with it.
//!
//! ```text
//! files → texts → source (merged) → tree (values with places) → section (typed getters) → Config
//! ```
//!
//! Nobody likes to mend a file one error a run. So reading goes on after a problem, each getter of
//! a `section` notes what it did not like and where, a key that was not asked for is unknown, and
//! [`Problems`] holds all of it: file, line, column, what was expected, what to write instead.
//!
//! | file | holds |
//! | --- | --- |
//! | `texts` | the one place where files are read: the configuration, its drop-ins, its keys |
//! | `source` | texts parsed and merged; the report of what is wrong |
//! | `tree` | values as written, each with its place |
//! | `section` | the typed reader of one table |
//! | `notation` | durations, shares, DSCP names, marks, ports |
//! | `names` | what a tunnel, a namespace, a device can be called |
//! | `daemon`, `tunnel`, `encapsulation`, `esp`, `ends`, `check`, `rules`, `route`, `kernel`, `fail_static`, `reflect` | a section each |
//! | `endpoint` | `[[endpoint]]` |
//! | `notify` | `[[notify]]`: who is told of what, and how |
//! | `policy` | `[[rule]]`: policy rules, where `rules` are those of health |
//! | `hops` | next hops that the kernel cannot take, or not keep apart |
//! | `apart` | what two tunnels cannot share |
//! | `possible` | the combinations of numbers with which a rule could never fire |
//! | `key_file` | keys, from files that only their owner may read |
//! | `refused` | what later versions will do |
//! | `defaults` | every default and limit |
//! | `effective` | a configuration written out again |
//! | [`mod@reference`] | every key in words, for the manual |
//! | [`propose`] | a configuration from what the kernel has |
//! | [`import`] | a configuration from a Cloudflare export |
//! | `lines` | TOML, line by line |
//! | `near` | "did you mean" |
//!
//! May import: `engine`, `notice`, `steer` and `wire` for the values that it makes, `reflect::plan`.

mod apart;
mod check;
mod daemon;
pub mod defaults;
mod effective;
mod encapsulation;
mod endpoint;
mod ends;
mod esp;
mod fail_static;
mod hops;
pub mod import;
mod kernel;
mod key_file;
mod lines;
mod names;
mod near;
mod notation;
mod notify;
mod policy;
mod possible;
mod problem;
pub mod propose;
pub mod reference;
mod reflect;
mod route;
mod rules;
mod section;
mod source;
mod targets;
mod texts;
mod tree;
mod tunnel;

use std::path::Path;

pub use check::{Cadence, Rate};
pub use daemon::Daemon;
pub use endpoint::Endpoint;
pub use kernel::{Kernel, NotifyRoutes, OnExit};
pub use key_file::decode as key_text;
pub use names::{Netns, Place};
pub use near::nearest;
pub use problem::{Problem, Problems};
pub use reflect::ReflectConfig;
pub use texts::Texts;
pub use tunnel::{Esp, Tunnel};

use crate::engine::health::Rules;
use crate::engine::{FailStatic, Route};
use crate::notice::Notify;
use crate::steer::Rule;
use esp::Side;
use section::Section;
use tunnel::Tunnels;

/// A configuration of the daemon. Whatever is in it was checked, and fits together. Without
/// `Debug`: it may hold keys.
#[derive(Clone)]
pub struct Config {
    /// The daemon's own settings.
    pub daemon: Daemon,
    /// The health rules of a tunnel that says nothing of its own: those of `[defaults]`.
    pub rules: Rules,
    /// The tunnels; routes name them by index.
    pub tunnels: Vec<Tunnel>,
    /// The routes over them.
    pub routes: Vec<Route>,
    /// Where routes are; routes name them by index.
    pub places: Vec<Place>,
    /// How the kernel is steered.
    pub kernel: Kernel,
    /// When this host is suspected rather than its tunnels; `None` if never.
    pub fail_static: Option<FailStatic>,
    /// The policy rules, each with its network namespace; `None` is the one where adit runs.
    pub policy: Vec<(Option<Netns>, Rule)>,
    /// What is probed in no tunnel.
    pub endpoints: Vec<Endpoint>,
    /// Who is told of what.
    pub notify: Vec<Notify>,
    /// What is allowed, and may yet not be meant.
    pub hints: Vec<Problem>,
}

impl Config {
    /// Reads a file; one that is called `adit.toml` with the drop-ins `conf.d/*.toml` beside it, in
    /// the order of their names. Tables are merged key by key, the later value winning; tunnels and
    /// routes are added.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        Self::of_texts(&Texts::gather(path))
    }

    /// Reads a text as the file of this name. No other file is read, but for key files.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(name: impl AsRef<Path>, text: &str) -> Result<Self, Problems> {
        Self::of_texts(&Texts::of(name, text))
    }

    /// The configuration that some texts are. No file is read.
    ///
    /// # Errors
    /// Everything that is wrong with them, and what could not be read when they were gathered.
    pub fn of_texts(texts: &Texts) -> Result<Self, Problems> {
        source::merge(texts).and_then(Self::read)
    }

    /// The whole configuration as TOML, with all defaults filled in. It reads back as an equal one,
    /// and holds no key, only the paths of key files.
    #[must_use]
    pub fn effective(&self) -> String {
        effective::text(self)
    }

    fn read((report, table): source::Loaded) -> Result<Self, Problems> {
        let mut root = Section::root(&table, &report);
        let daemon = Daemon::read(&mut root);
        let tunnels = Tunnels::read(&mut root, Side::Prober);
        let kernel = Kernel::read(&mut root);
        let (routes, places) = route::read_all(&mut root, &tunnels, &kernel);
        let fail_static = fail_static::read(&mut root);
        let policy = policy::read_all(&mut root, &kernel);
        let endpoints = endpoint::read_all(&mut root);
        let notify = notify::read_all(&mut root, &tunnels);
        for key in ["reflect", "fault"] {
            root.refuse(key, "belongs in the configuration of `adit reflect`, not of `adit run`; remove it");
        }
        root.finish();
        let Tunnels { list: tunnels, rules, .. } = tunnels;
        report.conclude(|hints| Self {
            daemon,
            rules,
            tunnels,
            routes,
            places,
            kernel,
            fail_static,
            policy,
            endpoints,
            notify,
            hints,
        })
    }
}
