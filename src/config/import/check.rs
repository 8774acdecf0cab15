//! How Cloudflare checks a tunnel, and how this host does.

use std::net::IpAddr;

use super::Side;
use super::export::Kind;
use super::json::Item;
use crate::config::ends;
use crate::config::lines::Lines;
use crate::wire::{Ends, Family};

/// A `health_check` as the API has it; what it does not say has the API's own default.
#[derive(Debug, Clone)]
pub(super) struct Check {
    enabled: bool,
    kind: &'static str,
    direction: &'static str,
    rate: &'static str,
    /// Where probes go, if somebody has said so.
    target: Option<IpAddr>,
}

const REQUEST: &str = "request";
const BIDIRECTIONAL: &str = "bidirectional";

impl Default for Check {
    fn default() -> Self {
        Self { enabled: true, kind: "reply", direction: "unidirectional", rate: "mid", target: None }
    }
}

impl Check {
    pub(super) fn read(item: &Item<'_>) -> Self {
        let usual = Self::default();
        // An object only where it was asked for (x-magic-new-hc-target).
        let target = match item.field("target") {
            Some(object) if object.value.is_object() => {
                object.address("effective");
                object.address("saved")
            }
            _ => item.address("target"),
        };
        Self {
            enabled: item.boolean("enabled").unwrap_or(usual.enabled),
            kind: item.choice("type", &["reply", REQUEST]).unwrap_or(usual.kind),
            direction: item.choice("direction", &["unidirectional", BIDIRECTIONAL]).unwrap_or(usual.direction),
            rate: item.choice("rate", &["low", "mid", "high"]).unwrap_or(usual.rate),
            target,
        }
    }

    /// The tunnel's `[tunnel.health_check]`. `outer` are its endpoints, if they are known.
    pub(super) fn write(&self, side: Side, kind: Kind, outer: Option<Ends>, lines: &mut Lines) {
        lines.header("[tunnel.health_check]");
        let written = self.possible(side, kind, outer);
        if (self.kind, self.direction, self.target) != (written.kind, written.direction, written.target) {
            let target = self.target.map_or_else(String::new, |target| format!(", target {target}"));
            lines.comment(format_args!("Cloudflare's probes: {}, {}{target}.", self.kind, self.direction));
        }
        if !self.enabled {
            lines.line("enabled", false);
        }
        lines.text("type", written.kind);
        lines.text("direction", written.direction);
        lines.text("rate", written.rate);
        written.target.iter().for_each(|target| lines.text("target", target.to_string()));
    }

    /// As far as this host can check so.
    fn possible(&self, side: Side, kind: Kind, outer: Option<Ends>) -> Self {
        let there_and_back = Self { kind: REQUEST, direction: BIDIRECTIONAL, target: None, ..self.clone() };
        match side {
            Side::Customer => there_and_back,
            // Nothing wraps these: a reply-style probe would have to leave by a device, and nobody knows which.
            Side::Cloudflare if kind == Kind::Interconnect => there_and_back,
            Side::Cloudflare if outer.is_none() || self.direction == BIDIRECTIONAL => {
                Self { direction: BIDIRECTIONAL, target: None, ..self.clone() }
            }
            Side::Cloudflare => {
                let fits = |target: &IpAddr| self.kind == REQUEST && outer.is_some_and(|outer| reaches(outer, *target));
                Self { target: self.target.filter(fits), ..self.clone() }
            }
        }
    }
}

/// Whether a probe from the local endpoint can have this target.
fn reaches(outer: Ends, target: IpAddr) -> bool {
    let is_other = target != outer.local() && target != outer.far();
    is_other && Family::of(target) == outer.family() && ends::unusable(target).is_none()
}
