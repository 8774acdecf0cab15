//! Which devices can be probed, and how that is written.

use super::far::{self, Inner};
use super::found::{Kind, Link, View};
use crate::config::lines::{Lines, plain};
use crate::config::names::{self, Free, Netns};
use crate::config::{defaults, ends};
use crate::wire::Ends;

/// What becomes of one tunnel device.
pub(super) struct Choice<'a> {
    pub(super) link: &'a Link,
    /// The tunnel's name; empty if there is none.
    pub(super) name: String,
    /// Its inner ends, or why it is left out.
    pub(super) inner: Result<Inner, String>,
}

/// Decides about every tunnel device.
pub(super) fn choose<'a>(view: &View<'a>) -> Vec<Choice<'a>> {
    let mut names = Free::default();
    let tunnels = view.found.links.iter().filter(|link| link.kind != Kind::Other);
    let choice = |link| {
        let inner = unfit(link).map_or_else(|| far::inner(view, link), Err);
        let name = if inner.is_ok() { names.of(&link.name) } else { String::new() };
        Choice { link, name, inner }
    };
    tunnels.map(choice).collect()
}

/// What the kernel makes by itself with the module of a kind, for packets that no other device takes.
const FALLBACK: [&str; 9] =
    ["gre0", "gretap0", "erspan0", "ip6gre0", "tunl0", "sit0", "ip6tnl0", "ip_vti0", "ip6_vti0"];

fn is_fallback(link: &Link) -> bool {
    link.remote.is_none() && FALLBACK.contains(&link.name.as_str())
}

/// Why a device cannot be probed, whatever its addresses are. What `io::device` refuses is among it.
fn unfit(link: &Link) -> Option<String> {
    let many = || {
        let fixed = match link.kind {
            Kind::Gre | Kind::Ip6gre => link.point_to_point,
            Kind::Ipip | Kind::Sit | Kind::Ip6tnl => link.remote.is_some(),
            // They find the far end by their keys.
            Kind::Vti | Kind::Vti6 | Kind::Xfrm | Kind::Wireguard | Kind::Tun | Kind::Ethernet | Kind::Other => true,
        };
        !fixed
    };
    let why = if is_fallback(link) {
        "it is the kernel's own, for packets that no other device takes".to_owned()
    } else if link.kind == Kind::Ethernet {
        "it carries Ethernet, and takes no bare IP packets".to_owned()
    } else if link.external {
        "each packet says by itself where it goes (external), so there is no one far end".to_owned()
    } else if many() {
        "it has no one far end; give it its local and remote address".to_owned()
    } else if link.name.is_empty() || names::device("device", &link.name).is_err() {
        "its name cannot be written here; give it another (`ip link set … name …`)".to_owned()
    } else if !link.up {
        "it is down; set it up and ask again".to_owned()
    } else {
        return None;
    };
    Some(why)
}

/// Comments in place of the `[[tunnel]]` that there are not.
pub(super) fn write_left_out(unfit: &[Choice<'_>], view: &View<'_>, lines: &mut Lines) {
    let (fallback, others): (Vec<_>, Vec<_>) = unfit.iter().partition(|choice| is_fallback(choice.link));
    others.iter().for_each(|choice| choice.write_left_out(view, lines));
    let names: Vec<&str> = fallback.iter().map(|choice| choice.link.name.as_str()).collect();
    if !names.is_empty() {
        lines.gap();
        let what = "the kernel's own, for packets that no other device takes";
        lines.comment(format_args!("Left out: {what}: {}.", names.join(", ")));
    }
}

impl Choice<'_> {
    /// Its `[[tunnel]]`.
    pub(super) fn write(&self, netns: Option<&Netns>, lines: &mut Lines) {
        let Ok(inner) = &self.inner else { return };
        lines.header("[[tunnel]]");
        lines.comment(self.described());
        lines.text("name", &self.name);
        lines.text("encapsulation", "device");
        lines.text("device", &self.link.name);
        netns.iter().for_each(|netns| lines.text("netns", netns.to_string()));
        if let Some(outer) = self.endpoints() {
            lines.text("local_endpoint", outer.local().to_string());
            lines.text("remote_endpoint", outer.far().to_string());
        }
        inner.notes.iter().for_each(|note| lines.comment(note));
        lines.text("interface_address", inner.interface.to_string());
        if let Some(target) = inner.target {
            lines.header("[tunnel.health_check]");
            lines.comment("Probes go here; the length of the prefix above only fills its place.");
            lines.text("target", target.to_string());
        }
    }

    /// A comment in place of its `[[tunnel]]`.
    fn write_left_out(&self, view: &View<'_>, lines: &mut Lines) {
        let Err(why) = &self.inner else { return };
        lines.gap();
        lines.comment(format_args!("Left out: {}, {}: {why}.", plain(&self.link.name), self.described()));
        match view.over(self.link).iter().filter(|(way, _)| way.is_made()).count() {
            0 => {}
            1 => lines.comment("So is the route over it."),
            routes => lines.comment(format_args!("So are the {routes} routes over it.")),
        }
    }

    fn described(&self) -> String {
        let Link { kind, local, remote, key, .. } = self.link;
        let local = local.map_or_else(String::new, |local| format!(" from {local}"));
        let remote = remote.map_or_else(String::new, |remote| format!(" to {remote}"));
        let key = key.map_or_else(String::new, |key| format!(" with key {key}"));
        format!("{}{local}{remote}{key}", kind.name())
    }

    /// The endpoints, if a file can say them. Probes do not need them; who reads it may.
    fn endpoints(&self) -> Option<Ends> {
        let (local, remote) = (self.link.local?, self.link.remote?);
        let usable = local != remote && ends::unusable(local).is_none() && ends::unusable(remote).is_none();
        usable.then(|| Ends::new(local, remote))?
    }
}

const _: () = assert!(defaults::NAME_MAX >= 15, "a device's name is short enough for a tunnel's");
