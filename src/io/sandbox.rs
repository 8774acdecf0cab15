//! The walls of a process that strangers can reach: no capability, no file but those of one folder, no
//! system call that it does not need.
//!
//! | wall | keeps out |
//! | --- | --- |
//! | capabilities(7) laid down | raw sockets, routes, namespaces |
//! | landlock(7) | all files outside the folder, TCP, signals to other processes, abstract sockets |
//! | seccomp(2), an allow-list | every call that is not on it fails with `EPERM` |
//! | seccomp(2), a list of the worst | ends the process at once: whoever tries has taken it over |
//!
//! Sockets of all kinds are on the last list: what this process may use, it has been handed. What a library
//! may try and do without fails softly; what nobody would try here who is not up to something is the end.
//!
//! A filter sees numbers, not what pointers point at. So none of the sockets that are handed over may be one
//! that sends to a path (a datagram socket of unix(7) would send to any, even after connect(2)).

mod calls;
mod filters;

use std::fs;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Compatible, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use nix::sys::prctl;
use nix::unistd::getpid;

/// The latest version of Landlock that is asked for; of an older kernel, as much as it has.
const LANDLOCK: ABI = ABI::V8;

/// What may be done in the folder.
const IN_FOLDER: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | WriteFile | ReadDir | MakeReg | RemoveFile | Truncate});

/// What could not be had on this kernel, in words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gaps {
    /// Why Landlock does not stand: old kernels lack it, and it may be off.
    pub landlock: Option<String>,
    /// The other walls that do not stand, and why. Every kernel that runs this program has them.
    pub others: Vec<String>,
}

/// Builds the walls around this process for ever. To be called when there is one thread only: of others,
/// some would stay outside. `folder` is where files may be read and written, if there is such a place.
///
/// A runtime of tokio must have been built before: the first one makes a pair of sockets.
#[must_use]
pub fn confine(folder: Option<&Path>) -> Gaps {
    let mut others = Vec::new();
    let mut note = |wall: &str, error: Option<String>| others.extend(error.map(|error| format!("{wall}: {error}")));
    note("threads", accompanied());
    note("capabilities", lay_down().err().map(|error| error.to_string()));
    note("no_new_privs", prctl::set_no_new_privs().err().map(|error| error.to_string()));
    let landlock = shut_out(folder).unwrap_or_else(|error| Some(error.to_string()));
    // The allow-list last: it lets no filter be set any more.
    for filter in filters::of(getpid()) {
        let set = filter.and_then(|filter| seccompiler::apply_filter(&filter));
        note("seccomp", set.err().map(|error| error.to_string()));
    }
    Gaps { landlock, others }
}

/// Lays every capability down for ever, for this process and all that it runs; nothing else. What could not be had.
/// To be called when there is one thread only.
#[must_use]
pub fn renounce() -> Vec<String> {
    let threads = accompanied().map(|error| format!("threads: {error}"));
    let capabilities = lay_down().err().map(|error| format!("capabilities: {error}"));
    // So that a program of root's, or one with capabilities of its own, has none either.
    let no_new_privs = prctl::set_no_new_privs().err().map(|error| format!("no_new_privs: {error}"));
    [threads, capabilities, no_new_privs].into_iter().flatten().collect()
}

/// Why not all of this process would be inside.
fn accompanied() -> Option<String> {
    match fs::read_dir("/proc/self/task").map(Iterator::count) {
        Ok(1) => None,
        Ok(count) => Some(format!("{} of {count} stay outside", count - 1)),
        Err(error) => Some(format!("how many there are is not known: {error}")),
    }
}

/// Lays every capability down, and the right to ever have one.
fn lay_down() -> Result<(), caps::errors::CapsError> {
    use caps::CapSet::{Ambient, Bounding, Effective, Inheritable, Permitted};
    // Takes a capability of its own; without it, nothing can be had either, because nothing is executed.
    let _ = caps::clear(None, Bounding);
    // A kernel without it has nothing there.
    let _ = caps::clear(None, Ambient);
    [Inheritable, Effective, Permitted].into_iter().try_for_each(|set| caps::clear(None, set))
}

/// What Landlock lacks, if it lacks something.
fn shut_out(folder: Option<&Path>) -> Result<Option<String>, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    // One that cannot be opened cannot be used by others either.
    let open = folder.and_then(|folder| PathFd::new(folder).ok());
    let rules =
        open.map(|open| Ok(PathBeneath::new(open, IN_FOLDER).set_compatibility(landlock::CompatLevel::BestEffort)));
    let RestrictionStatus { ruleset, .. } =
        ruleset.add_rules(rules.into_iter().collect::<Vec<Result<_, RulesetError>>>())?.restrict_self()?;
    Ok(match ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => None,
        RulesetStatus::NotEnforced => Some("this kernel has none, or it is off".to_owned()),
    })
}
