//! Refuses what two tunnels cannot share: a way by which their answers could not be told apart, or
//! an association or a key with two senders.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::esp::Pair;
use super::names::Netns;
use super::section::Section;
use super::source::Report;
use super::tree::At;
use crate::wire::Ends;
use crate::wire::esp::Fingerprint;

/// What the tunnels so far have, and where that was written.
#[derive(Default)]
pub(super) struct Taken {
    gre: BTreeMap<(Option<Netns>, Ends, Option<u32>), At>,
    inbound: BTreeMap<(Option<Netns>, Ends, u32), At>,
    outbound: BTreeMap<(Option<Netns>, IpAddr, u32), At>,
    keys_in: BTreeMap<Fingerprint, At>,
    keys_out: BTreeMap<Fingerprint, At>,
}

impl Taken {
    /// A tunnel of GRE.
    pub(super) fn gre(&mut self, section: &Section<'_>, netns: Option<&Netns>, outer: Ends, key: Option<u32>) {
        let why = "their answers could not be told apart; give each its own [tunnel.gre] key, or remove one";
        let message = |first: String| {
            format!("this tunnel has the same namespace, endpoints and GRE key as the one in {first}: {why}")
        };
        once(&mut self.gre, (netns.cloned(), outer, key), section.at(), section.report(), message);
    }

    /// A tunnel of ESP whose keys are static. The far end of an association may be in the same file,
    /// if both ends are this host's: one tunnel's outbound key is another one's inbound key then.
    pub(super) fn esp(&mut self, report: &Report, netns: Option<&Netns>, outer: Ends, pair: &Pair) {
        let Pair { spi_out, spi_in, key_out, key_in } = pair;
        let same = |key: &str, spi: u32, ends: &str, why: &str| {
            let (key, why) = (key.to_owned(), why.to_owned());
            let what = format!("{spi:#x}, in the same namespace and with the same {ends} as in");
            move |first: String| format!("`{key}` is {what} {first}: {why}; write another {key}")
        };
        let message =
            same("spi_in", spi_in.value, "endpoints", "the answers of the two tunnels could not be told apart");
        once(&mut self.inbound, (netns.cloned(), outer, spi_in.value), spi_in.at, report, message);
        let why = "two senders on one association would use each sequence number twice";
        let message = same("spi_out", spi_out.value, "remote_endpoint", why);
        once(&mut self.outbound, (netns.cloned(), outer.far(), spi_out.value), spi_out.at, report, message);
        for (name, known, file, why) in [
            ("key_out_file", &mut self.keys_out, key_out, "two senders would use one key"),
            ("key_in_file", &mut self.keys_in, key_in, "two associations would have one key"),
        ] {
            let what = "write a key of its own into a file of its own";
            let message = |first: String| format!("`{name}` holds the same key as the one in {first}: {why}; {what}");
            once(known, file.value.key.fingerprint(), file.at, report, message);
        }
    }
}

/// Notes that something was written here, and reports that it was written before.
fn once<K: Ord>(known: &mut BTreeMap<K, At>, key: K, at: At, report: &Report, message: impl FnOnce(String) -> String) {
    let first = *known.entry(key).or_insert(at);
    if first != at {
        report.add(at, message(report.refer(at, first)));
    }
}
