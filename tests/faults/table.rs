//! The table: which faults there are, what is promised about each, and which trial proves it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use crate::world::Case;

/// What can go wrong, by number.
pub(crate) const FAULTS: [&str; 44] = [
    "Somebody off the path forges answers for a dead tunnel",
    "Somebody on the path sends our own probe back",
    "Old valid answers are played once more",
    "Answers come more than once",
    "An answer comes after its deadline",
    "Answers overtake each other",
    "A flood of packets fills our receive queue",
    "Forged ICMP errors: unreachable, too big",
    "Another process uses the same ICMP identifiers",
    "GRE with a routing bit, another version, too short, with a wrong checksum or key",
    "A malformed packet inside: header length, total length, fragments",
    "ESP with a wrong ICV, a number once more, a number far ahead",
    "A restart with an ESP pair of our own",
    "Our files are lost, cut off, unreadable, or the disk is full",
    "A static key with a counter mode",
    "The kernel gets an association with our SPI",
    "The sequence numbers of an association run out",
    "One direction of a path is lost",
    "Nearly a third of the packets is lost",
    "A path that comes and goes again and again",
    "Everything fails at once by a cause on this host",
    "Everything fails at once at the far side",
    "A link goes down and up",
    "Somebody deletes or changes our routes",
    "Somebody else's route has our prefix and metric",
    "So many changes of routes that news of them are lost",
    "The kernel refuses a change of routes",
    "Killed in the middle of a change of routes",
    "A clean stop",
    "A namespace is deleted and made again under the same name",
    "A namespace or a device is missing at the start",
    "The wall clock is set, an hour ahead or back",
    "The host sleeps and wakes up",
    "The process is stopped, or gets no processor time",
    "The prober's loop hangs",
    "A reload of a file with mistakes",
    "A reload that leaves tunnels as they are",
    "A restart, an upgrade",
    "Abuse of the local socket",
    "The prober is taken over",
    "A send is refused",
    "Thousands of probes at one instant",
    "A message bus is down or slow",
    "Keys in logs, dumps, answers",
];

/// What is promised about a fault, and what proves it.
pub(crate) struct Row {
    pub(crate) number: usize,
    pub(crate) promise: &'static str,
    pub(crate) proof: Proof,
}

pub(crate) enum Proof {
    /// A trial, and whether others may run beside it.
    Trial(Case, Load),
    /// A trial of another folder of `tests`: of `lab`, which has a kernel with GRE and ESP, say.
    Elsewhere(&'static str, &'static str),
}

/// What a trial does to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// It mostly waits.
    Quiet,
    /// It leaves nothing to others, so it is alone.
    Loud,
}

/// A row with a trial of its own. The trial's name begins with `fault_` and the number.
pub(crate) fn row(name: &'static str, promise: &'static str, run: impl FnOnce() + Send + 'static) -> Row {
    Row { number: number_of(name), promise, proof: Proof::Trial(crate::case(name, run), Load::Quiet) }
}

/// A row whose trial is one of `tests/netns`, too.
pub(crate) fn lent(name: &'static str, promise: &'static str, theirs: Case) -> Row {
    Row { number: number_of(name), promise, proof: Proof::Trial(theirs.named(name), Load::Quiet) }
}

/// A row whose trial is in another folder, and must be: it needs another kernel, or a process of its own.
pub(crate) const fn elsewhere(number: usize, promise: &'static str, folder: &'static str, name: &'static str) -> Row {
    Row { number, promise, proof: Proof::Elsewhere(folder, name) }
}

fn number_of(name: &str) -> usize {
    let digits = name.strip_prefix("fault_").and_then(|rest| rest.get(..2));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{name} does not begin with fault_NN"))
}

impl Row {
    /// Needs more of the machine.
    pub(crate) fn needing(self, needs: impl FnOnce(Case) -> Case) -> Self {
        match self.proof {
            Proof::Trial(case, load) => Self { proof: Proof::Trial(needs(case), load), ..self },
            Proof::Elsewhere(..) => self,
        }
    }

    /// Runs alone.
    pub(crate) fn alone(self) -> Self {
        match self.proof {
            Proof::Trial(case, _) => Self { proof: Proof::Trial(case, Load::Loud), ..self },
            Proof::Elsewhere(..) => self,
        }
    }

    fn proof(&self) -> String {
        match &self.proof {
            Proof::Trial(case, _) => format!("`{}`", case.name),
            Proof::Elsewhere(folder, name) => format!("`{name}` of `tests/{folder}`"),
        }
    }
}

/// The document.
pub(crate) fn document(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for (number, fault) in (1..).zip(FAULTS) {
        let mut fault = fault;
        for row in rows.iter().filter(|row| row.number == number) {
            writeln!(text, "| {number} | {fault} | {} | {} |", row.promise, row.proof()).unwrap();
            fault = "";
        }
    }
    text
}

const HEAD: &str = "\
# What can go wrong, and what is promised

Each row is a fault or an attack, what adit promises about it, and the trial that proves it. The trials are in
`tests/faults`, the built program with real packets in network namespaces wherever that is possible; one runs alone by
`cargo test --test faults -- fault_07`. This page is made from them: `ADIT_WRITE_DOCS=1 cargo test --test faults -- table`
writes it, and the gate fails where it is out of date.

| # | fault | promise | proof |
| --- | --- | --- | --- |
";

const PAGE: &str = "docs/faults.md";

/// That the page says what the trials say; or writes it.
pub(crate) fn assert_page(document: &str) {
    if std::env::var_os("ADIT_WRITE_DOCS").is_some() {
        std::fs::create_dir_all("docs").unwrap();
        return std::fs::write(PAGE, document).unwrap();
    }
    let page = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        page == document,
        "{PAGE} is out of date: write it anew by ADIT_WRITE_DOCS=1 cargo test --test faults -- table"
    );
}

/// That each fault has a row, each trial a name of its own, and each trial elsewhere is there.
pub(crate) fn check(rows: &[Row]) -> Result<(), String> {
    let numbers: BTreeSet<usize> = rows.iter().map(|row| row.number).collect();
    let all: BTreeSet<usize> = (1..=FAULTS.len()).collect();
    if numbers != all {
        return Err(format!("no row of its own, or none: {:?}", numbers.symmetric_difference(&all)));
    }
    let mut names = BTreeSet::new();
    for row in rows {
        match &row.proof {
            Proof::Trial(case, _) if !names.insert(case.name.clone()) => return Err(format!("{} twice", case.name)),
            Proof::Elsewhere(folder, name) => is_there(folder, name)?,
            Proof::Trial(..) => {}
        }
    }
    Ok(())
}

/// Whether the sources in a folder have a trial of this name.
fn is_there(folder: &str, name: &str) -> Result<(), String> {
    let files = std::fs::read_dir(Path::new("tests").join(folder)).map_err(|error| error.to_string())?;
    let text = files.flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok());
    // One of many of a kind is named by both.
    let (kind, own) = name.rsplit_once("::").unwrap_or(("", name));
    let [whole, quoted] = [name, own].map(|name| format!("\"{name}\""));
    let found = text.into_iter().any(|text| text.contains(&whole) || text.contains(kind) && text.contains(&quoted));
    if found { Ok(()) } else { Err(format!("tests/{folder} has no {name}")) }
}
