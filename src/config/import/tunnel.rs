//! Which tunnels this host can probe, and how that is written.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::export::{Kind, Tunnel};
use super::json::brief;
use super::{Host, Side};
use crate::config::lines::Lines;
use crate::config::names::{self, Free};
use crate::config::{defaults, ends};
use crate::wire::Ends;

/// The longest name of a device (`IFNAMSIZ`, its closing zero aside).
const DEVICE_MAX: usize = 15;

/// What becomes of one tunnel.
pub(super) struct Choice<'a> {
    pub(super) tunnel: &'a Tunnel,
    /// Its name here; empty if it is left out.
    pub(super) name: String,
    /// How it is written, or why it is left out.
    pub(super) fit: Result<Fit, String>,
}

/// How a tunnel is written.
pub(super) struct Fit {
    /// The endpoints, if they are known.
    outer: Option<Ends>,
    /// This side's inner address.
    interface: IpNet,
    /// Another one that would do.
    other: Option<IpNet>,
    /// What a person should know of them.
    note: Option<String>,
    /// The kernel's device, if it has one; guessed.
    device: Option<String>,
}

/// Decides about every tunnel.
pub(super) fn choose(tunnels: &[Tunnel], host: Host) -> Vec<Choice<'_>> {
    let mut names = Free::default();
    let (mut devices, mut ways) = (BTreeSet::new(), BTreeMap::new());
    let choice = |tunnel| {
        let mut fit = fit(tunnel, host);
        let way = fit.as_ref().ok().and_then(|fit| fit.outer).filter(|_| tunnel.kind.is_gre());
        let first = way.map(|way| *ways.entry(way).or_insert(tunnel));
        if let Some(before) = first.filter(|first| !std::ptr::eq(*first, tunnel)) {
            let before = brief(&before.name, 40);
            fit = Err(format!("it has the endpoints of {before}, and the API names no GRE key to tell the two apart"));
        }
        let name = if fit.is_ok() { names.of(&tunnel.name) } else { String::new() };
        if let Ok(fit) = &mut fit
            && tunnel.kind == Kind::Ipsec
        {
            fit.device = Some(device(&name, &mut devices));
        }
        Choice { tunnel, name, fit }
    };
    tunnels.iter().map(choice).collect()
}

/// The device is called like the tunnel, as far as that is possible.
fn device(name: &str, taken: &mut BTreeSet<String>) -> String {
    let begun = |room: usize| name.get(..room.min(name.len())).unwrap_or_default();
    let numbered = (2_u32..).map(|number| {
        let suffix = format!("-{number}");
        format!("{}{suffix}", begun(DEVICE_MAX.saturating_sub(suffix.len())))
    });
    let mut free = std::iter::once(begun(DEVICE_MAX).to_owned()).chain(numbered);
    let name = free.find(|device| !taken.contains(device) && names::device("device", device).is_ok());
    let name = name.unwrap_or_default();
    taken.insert(name.clone());
    name
}

fn fit(tunnel: &Tunnel, host: Host) -> Result<Fit, String> {
    let Tunnel { kind, cloudflare, .. } = *tunnel;
    let [local, far] = match host.side {
        Side::Customer => [tunnel.customer.or(host.endpoint), cloudflare],
        Side::Cloudflare => [cloudflare, tunnel.customer],
    };
    if let (Some(own), Some(local)) = (host.endpoint, local)
        && own != local
    {
        return Err(format!("it ends at {local}, not at {own}"));
    }
    let mut interfaces = tunnel.interfaces.iter().map(|net| inner(*net, host.side));
    let interface =
        interfaces.find(Result::is_ok).or_else(|| tunnel.interfaces.first().map(|net| inner(*net, host.side)));
    let interface = interface.unwrap_or_else(|| Err("it has no inner address".to_owned()))?;
    let other = interfaces.find_map(Result::ok);
    let outer = match (local, far) {
        (Some(local), Some(far)) => outer(local, far),
        _ => Err(missing(host.side).to_owned()),
    };
    let note = match (&outer, kind) {
        (Ok(_), _) | (Err(_), Kind::Interconnect) => None,
        (Err(why), Kind::Ipsec) => Some(format!("Its endpoints are not written: {why}.")),
        (Err(why), Kind::Gre | Kind::InterconnectGre) => return Err(why.clone()),
    };
    let outer = outer.ok().filter(|_| kind != Kind::Interconnect);
    Ok(Fit { outer, interface, other, note, device: None })
}

const fn missing(side: Side) -> &'static str {
    match side {
        Side::Customer => "the API names no customer endpoint; --endpoint ADDRESS, this host's own, says it",
        Side::Cloudflare => "the API names no customer endpoint; add it to the export",
    }
}

/// The endpoints, or why a file cannot say them.
fn outer(local: IpAddr, far: IpAddr) -> Result<Ends, String> {
    for address in [local, far] {
        if let Some(why) = ends::unusable(address) {
            let why = why.split(';').next().unwrap_or_default();
            return Err(format!("{address} is {why}"));
        }
        if ends::is_link_local(address) {
            return Err(format!("{address} is a link-local address, which means nothing without its device"));
        }
    }
    if local == far {
        return Err(format!("both its endpoints are {local}"));
    }
    Ends::new(local, far).ok_or_else(|| format!("{local} and {far} are of two families"))
}

/// This side's inner address, where Cloudflare's is `api`.
fn inner(api: IpNet, side: Side) -> Result<IpNet, String> {
    let longest = api.max_prefix_len();
    if ![longest - 1, longest - 2].contains(&api.prefix_len()) {
        let (one, two) = (longest - 1, longest - 2);
        return Err(format!("its inner address {api} is in no /{one} or /{two}, so that nobody knows the other end's"));
    }
    let other =
        ends::other_end(api).map_err(|why| format!("its inner address {}", why.split(';').next().unwrap_or(&why)))?;
    if let Some(bad) = [api.addr(), other].into_iter().find(|address| ends::unusable(*address).is_some()) {
        return Err(format!("its inner address {bad} cannot be a host's"));
    }
    let own = match side {
        Side::Customer => other,
        Side::Cloudflare => api.addr(),
    };
    IpNet::new(own, api.prefix_len()).map_err(|_| format!("its inner address {api} has no prefix"))
}

impl Kind {
    const fn is_gre(self) -> bool {
        matches!(self, Self::Gre | Self::InterconnectGre)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Gre => "GRE tunnel",
            Self::Ipsec => "IPsec tunnel",
            Self::InterconnectGre => "interconnect with GRE",
            Self::Interconnect => "interconnect",
        }
    }
}

impl Choice<'_> {
    /// This side's endpoint, if the tunnel is written.
    pub(super) fn local(&self) -> Option<IpAddr> {
        self.fit.as_ref().ok().and_then(|fit| fit.outer).map(Ends::local)
    }

    /// Its `[[tunnel]]`, or a comment in place of it.
    pub(super) fn write(&self, side: Side, lines: &mut Lines) {
        let fit = match &self.fit {
            Ok(fit) => fit,
            Err(why) => {
                lines.gap();
                let (kind, name) = (self.tunnel.kind.name(), brief(&self.tunnel.name, 60));
                lines.comment(format_args!("Left out: the {kind} {name}: {why}."));
                return;
            }
        };
        lines.header("[[tunnel]]");
        self.describe(lines);
        lines.text("name", &self.name);
        fit.write_wrapping(self.tunnel.kind, lines);
        if let Some(outer) = fit.outer {
            lines.text("local_endpoint", outer.local().to_string());
            lines.text("remote_endpoint", outer.far().to_string());
        }
        fit.note.iter().for_each(|note| lines.comment(note));
        lines.text("interface_address", fit.interface.to_string());
        if let Some(other) = fit.other {
            lines.comment(format_args!("Another inner address would do: interface_address = \"{other}\"."));
        }
        let ttl = self.tunnel.ttl.filter(|ttl| (1..=255).contains(ttl) && *ttl != i64::from(defaults::TTL));
        if self.tunnel.kind.is_gre() {
            ttl.iter().for_each(|ttl| lines.line("ttl", ttl));
        }
        self.tunnel.check.write(side, self.tunnel.kind, fit.outer, lines);
    }

    fn describe(&self, lines: &mut Lines) {
        let Tunnel { kind, name, description, beside, .. } = self.tunnel;
        let description = description.as_ref().map_or_else(String::new, |text| format!(": {text}"));
        lines.comment(format_args!("{}{description}", kind.name()));
        if *name != self.name {
            lines.comment(format_args!("Cloudflare calls it {}.", brief(name, 200)));
        }
        if !beside.is_empty() {
            lines.comment(format_args!("Without a counterpart here: {}.", beside.join("; ")));
        }
    }
}

impl Fit {
    fn write_wrapping(&self, kind: Kind, lines: &mut Lines) {
        match kind {
            Kind::Gre | Kind::InterconnectGre => lines.text("encapsulation", "gre"),
            Kind::Interconnect => {
                lines.comment("Nothing is wrapped: probes leave by ordinary routing, over the cable.");
                lines.text("encapsulation", "device");
            }
            Kind::Ipsec => {
                lines.text("encapsulation", "device");
                lines.comment("Guessed: the device is called like the tunnel; `ip link` says how it is.");
                self.device.iter().for_each(|device| lines.text("device", device));
            }
        }
    }
}
