//! `adit discover`: a configuration from what the kernel has.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

use super::args;
use super::{Exit, Failure, Outcome, conclude};
use crate::config::Netns;
use crate::config::propose::{Proposal, propose};
use crate::io::tunnels;

pub(super) fn run(args::Discover { netns }: &args::Discover) -> Outcome {
    let namespace = netns.as_ref().map(open).transpose()?;
    let found = tunnels::look(namespace.as_ref()).map_err(|error| within(netns.as_ref(), &error))?;
    let Proposal { text, tunnels, left_out } = propose(&found, netns.as_ref());
    let written = io::stdout().lock().write_all(text.as_bytes());
    if tunnels > 0 {
        return conclude(written, Exit::Done);
    }
    conclude(written, Exit::BadNews)?;
    let here = netns.as_ref().map_or_else(|| "here".to_owned(), |netns| format!("in {netns}"));
    Err(Failure::new(Exit::BadNews, nothing(&here, left_out)))
}

fn nothing(here: &str, left_out: usize) -> String {
    match left_out {
        0 => format!(
            "the kernel has no tunnel device {here}; `ip netns` lists other network namespaces, --netns looks into one"
        ),
        _ => format!(
            "none of the kernel's {left_out} tunnel devices {here} can be probed as it is; the comments say why"
        ),
    }
}

fn open(netns: &Netns) -> Result<File, Failure> {
    File::open(netns.path()).map_err(|error| {
        let path = netns.path().display();
        if error.kind() == ErrorKind::NotFound {
            return Failure::new(Exit::Usage, format!("there is no network namespace {netns}: no file {path}"));
        }
        io::Error::new(error.kind(), format!("cannot open the network namespace {path}: {error}")).into()
    })
}

/// Names the namespace that could not be looked into.
fn within(netns: Option<&Netns>, error: &io::Error) -> Failure {
    let place = netns.map_or_else(String::new, |netns| format!(" in the network namespace {netns}"));
    io::Error::new(error.kind(), format!("cannot look at the kernel's tunnels{place}: {error}")).into()
}
