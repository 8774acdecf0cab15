//! A configuration from what the kernel has: its tunnel devices, their addresses, the routes over them.
//!
//! PURE: values in ([`Found`]), text out ([`Proposal`]). What is written loads as it is. What had to be
//! guessed says so in a comment, and what is left out is told, with the reason.
//!
//! Every tunnel is probed by requests through the kernel's own device (`encapsulation = "device"`): any
//! far end that answers a ping answers these, whatever the device wraps them in, and of a GRE tunnel
//! that the kernel has, the kernel would take the answers.
//!
//! | file | holds |
//! | --- | --- |
//! | `found` | what the kernel has, as values |
//! | `far` | this side's and the far side's inner address |
//! | `tunnel` | which devices can be probed, and how |
//! | `route` | their routes, with priorities |
//!
//! May import: what the configuration knows of names and addresses.

mod far;
mod found;
mod route;
mod tunnel;

pub use found::{Address, Found, Hop, Kind, Link, Odd, Way};

use found::View;

use super::lines::{Lines, plain};
use super::names::Netns;

/// A configuration that `adit discover` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The whole text: TOML, empty if there is nothing to tell.
    pub text: String,
    /// How many tunnels it has.
    pub tunnels: usize,
    /// How many tunnel devices it leaves out.
    pub left_out: usize,
}

/// Proposes a configuration for the tunnels of one network namespace, `None` being the one that adit
/// runs in.
#[must_use]
pub fn propose(found: &Found, netns: Option<&Netns>) -> Proposal {
    let view = View::new(found);
    let tunnels = tunnel::choose(&view);
    let (fit, unfit): (Vec<_>, Vec<_>) = tunnels.into_iter().partition(|choice| choice.inner.is_ok());
    let mut lines = Lines::default();
    if !fit.is_empty() || !unfit.is_empty() {
        heading(netns, &mut lines);
    }
    if !fit.is_empty() {
        how_to_probe(&mut lines);
    }
    fit.iter().for_each(|choice| choice.write(netns, &mut lines));
    tunnel::write_left_out(&unfit, &view, &mut lines);
    if route::write_all(&view, &fit, &mut lines) > 0 {
        kernel(&mut lines);
    }
    Proposal { text: lines.into_text(), tunnels: fit.len(), left_out: unfit.len() }
}

fn heading(netns: Option<&Netns>, lines: &mut Lines) {
    let place = netns.map_or_else(String::new, |netns| format!(" in the network namespace {}", plain(netns)));
    lines.comment(format_args!("Proposed by `adit discover` from the kernel's tunnels{place}."));
    lines.comment("Read the comments, change what you like, and see what `adit check --config FILE` says.");
}

fn how_to_probe(lines: &mut Lines) {
    lines.header("[defaults.health_check]");
    lines.comment("A far end that answers a ping needs nothing more than it has.");
    lines.text("type", "request");
    lines.text("direction", "bidirectional");
    lines.comment("A probe in 60 s (low), in 10 s (mid) or every second (high).");
    lines.text("rate", "mid");
}

/// Writing to the kernel is for a person to decide.
fn kernel(lines: &mut Lines) {
    lines.gap();
    for line in [
        "The routes above live in adit's own table. To have them in the kernel, too, write:",
        "[kernel]",
        "apply = true",
        "They then come beside the ones that the kernel has already, with protocol 212, and of two the one",
        "with the lower metric wins. So whoever made those must remove them, or traffic stays where it is.",
    ] {
        lines.comment(line);
    }
}
