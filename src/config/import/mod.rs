//! A configuration from a Cloudflare export: the answers of its API about GRE tunnels, IPsec tunnels,
//! interconnects and static routes.
//!
//! PURE: bytes in, text out ([`Import`]). What is written loads as it is. What had to be guessed says so in a
//! comment, and what is left out is told, with the reason. No text of an export becomes a value: names are
//! made of the letters that a name can have, all else is an address, a number or a word of ours. Descriptions stand in
//! comments, escaped. Keys that an export may hold are not even read.
//!
//! The API's `interface_address` is Cloudflare's own end of the tunnel's inner subnet, and a route's next hop is
//! the customer's. Which of the two this host is says [`Side`].
//!
//! | file | holds |
//! | --- | --- |
//! | `json` | values with their way into the file, read with complaints |
//! | `export` | the answers' envelopes, and what is in them |
//! | `tunnel` | which tunnels this host can probe, and how |
//! | `check` | how Cloudflare checks a tunnel, and how this host does |
//! | `route` | to which tunnel a route belongs, its priority and weight |
//!
//! May import: what the configuration knows of names and addresses.

mod check;
mod export;
mod json;
mod route;
mod tunnel;

use std::collections::BTreeSet;
use std::net::IpAddr;

pub use json::{Problem, Problems};

use super::lines::Lines;
use export::{Export, Kind};
use tunnel::Choice;

/// Which end of the tunnels this host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The customer's router.
    Customer,
    /// The one that Cloudflare is in the export.
    Cloudflare,
}

/// What the import is told beside the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Which end this host is.
    pub side: Side,
    /// Its own outer address: tunnels that end elsewhere are left out, and one that says no customer endpoint ends here.
    pub endpoint: Option<IpAddr>,
}

/// A configuration that `adit import` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The whole text: TOML.
    pub text: String,
    /// How many tunnels it has.
    pub tunnels: usize,
    /// How many routes.
    pub routes: usize,
    /// How many tunnels it leaves out.
    pub left_out: usize,
}

/// Makes a configuration of exports, each with the name of its file.
///
/// # Errors
/// Everything that is malformed in them.
pub fn import(files: &[(String, Vec<u8>)], host: Host) -> Result<Import, Problems> {
    let export = Export::read(files)?;
    let tunnels = tunnel::choose(&export.tunnels, host);
    let mut lines = Lines::default();
    heading(&tunnels, host, &mut lines);
    tunnels.iter().for_each(|choice| choice.write(host.side, &mut lines));
    let routes = route::write_all(&export.routes, &tunnels, host.side, &mut lines);
    let fit = tunnels.iter().filter(|choice| choice.fit.is_ok()).count();
    Ok(Import { text: lines.into_text(), tunnels: fit, routes, left_out: tunnels.len() - fit })
}

fn heading(tunnels: &[Choice<'_>], host: Host, lines: &mut Lines) {
    let side = match host.side {
        Side::Customer => "this host is the customer's router",
        Side::Cloudflare => "this host has Cloudflare's place",
    };
    lines.comment(format_args!("Made by `adit import` from a Cloudflare export; {side}."));
    lines.comment("Read the comments, change what you like, and see what `adit check --config FILE` says.");
    let fit = || tunnels.iter().filter(|choice| choice.fit.is_ok());
    if host.side == Side::Customer && fit().next().is_some() {
        lines.gap();
        lines.comment(
            "Cloudflare probes the tunnels from its side. This host's probes go the other way, as requests there and back, \
             which need nothing but an answer to a ping; comments say what Cloudflare's are, where they are others.",
        );
    }
    if fit().any(|choice| choice.tunnel.kind == Kind::Ipsec) {
        lines.gap();
        lines.comment(
            "IPsec: the keys are those of this host's IKE daemon, so the kernel seals the probes, which leave by its device. \
             (With a pair of associations of adit's own: encapsulation = \"esp\" and, in [tunnel.esp], keys = \"installed\".)",
        );
    }
    several(fit().filter_map(Choice::local).collect(), host, lines);
}

/// Tunnels of several routers in one export are likely not all this host's.
fn several(ends: BTreeSet<IpAddr>, host: Host, lines: &mut Lines) {
    if host.endpoint.is_none() && host.side == Side::Customer && ends.len() > 1 {
        let count = ends.len();
        let those = "If this host has only one of them, --endpoint ADDRESS leaves the other routers' out.";
        lines.gap();
        lines.comment(format_args!("The tunnels end at {count} customer endpoints. {those}"));
    }
}
