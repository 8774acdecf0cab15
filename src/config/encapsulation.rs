//! `encapsulation`, the keys that belong to one kind of it, and how packets leave.

use super::esp::{self, Pair, Sealing, Side};
use super::section::Section;
use super::tree::Placed;
use super::{defaults, names, notation};
use crate::wire::esp::{Algorithm, Shape};
use crate::wire::{Encapsulation, Family, Kind as Style, gre};

/// What a tunnel is wrapped in, as far as the file says it right.
pub(super) enum Wrapping {
    /// GRE.
    Gre(gre::Options),
    /// ESP; `None` where something is wrong with its table.
    Esp(Option<Box<Sealing>>),
    /// The kernel's own tunnel device, or without one its policy.
    Device(Option<String>),
    /// Nobody knows.
    Unclear,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gre,
    Esp,
    Device,
}

const CHOICES: [(&str, Kind); 3] = [("gre", Kind::Gre), ("esp", Kind::Esp), ("device", Kind::Device)];

/// Reads `encapsulation`, `[tunnel.gre]`, `[tunnel.esp]` and `device`.
pub(super) fn read(section: &mut Section<'_>, side: Side) -> Wrapping {
    let written = section.choice("encapsulation", &CHOICES);
    let unclear = section.has("encapsulation") && written.is_none();
    let kind = written.map_or(Kind::Gre, |kind| kind.value);
    if unclear {
        // What is meant cannot be known, what is wrong with it can.
        gre(section);
        esp::read(section, side);
        device(section);
        return Wrapping::Unclear;
    }
    refuse_others(section, kind);
    match kind {
        Kind::Gre => Wrapping::Gre(gre(section)),
        Kind::Esp => Wrapping::Esp(sealing(section, written, side)),
        Kind::Device if side == Side::Reflector => {
            refuse_at_reflector(section, written);
            Wrapping::Unclear
        }
        Kind::Device => Wrapping::Device(device(section)),
    }
}

/// Keys that would do nothing in a tunnel of this kind.
fn refuse_others(section: &mut Section<'_>, kind: Kind) {
    for ((name, other), key) in CHOICES.into_iter().zip(["gre", "esp", "device"]) {
        if other != kind {
            let why = format!("belongs to a tunnel with encapsulation = {name:?}; write that, or remove it");
            section.refuse(key, &why);
        }
    }
}

fn sealing(section: &mut Section<'_>, written: Option<Placed<Kind>>, side: Side) -> Option<Box<Sealing>> {
    if let (false, Some(Placed { at, .. })) = (section.has("esp"), written) {
        let why = "is \"esp\", but nothing says where the keys come from";
        let keys = if side == Side::Reflector { "static" } else { "installed" };
        let what = format!("write [tunnel.esp] below, and keys = {keys:?} in it");
        section.report().add(at, format!("`encapsulation` {why}; {what}"));
    }
    esp::read(section, side).map(Box::new)
}

fn refuse_at_reflector(section: &mut Section<'_>, written: Option<Placed<Kind>>) {
    device(section);
    let why = "the reflector opens packets itself, and what the kernel has opened it never sees";
    let what = "write encapsulation = \"gre\" or \"esp\"";
    let report = section.report();
    written.iter().for_each(|kind| {
        report.add(kind.at, format!("`encapsulation` cannot be \"device\" here: {why}; {what}"));
    });
}

fn gre(section: &mut Section<'_>) -> gre::Options {
    let Some(mut section) = section.section("gre", "[tunnel.gre]") else { return gre::Options::default() };
    let options = gre::Options {
        key: section.integer("key", 0..=u32::MAX, "", 4711).map(|key| key.value),
        sequence: section.boolean("sequence", false).is_some_and(|sequence| sequence.value),
        checksum: section.boolean("checksum", false).is_some_and(|checksum| checksum.value),
    };
    section.finish();
    options
}

fn device(section: &mut Section<'_>) -> Option<String> {
    section.text("device", "a device's name", "gre1", |text| names::device("device", text)).map(|device| device.value)
}

impl Wrapping {
    /// Whether the kernel wraps the probes.
    pub(super) const fn is_device(&self) -> bool {
        matches!(self, Self::Device(_))
    }

    /// The pair of associations that stands in the file.
    pub(super) fn pair(&self) -> Option<&Pair> {
        match self {
            Self::Esp(sealing) => sealing.as_ref()?.pair.as_ref(),
            Self::Gre(_) | Self::Device(_) | Self::Unclear => None,
        }
    }

    /// What the prober is told.
    pub(super) fn encapsulation(&self) -> Option<Encapsulation> {
        match self {
            Self::Gre(options) => Some(Encapsulation::Gre(*options)),
            Self::Esp(sealing) => sealing.as_ref().map(|sealing| Encapsulation::Esp(sealing.shape)),
            Self::Device(_) => Some(Encapsulation::Device),
            Self::Unclear => None,
        }
    }

    /// The length of the longest packet that it can make of an inner one: a pair that is installed may
    /// bring any algorithm.
    pub(super) fn longest(&self, outer: Family, inner: usize) -> usize {
        let wrapped = |encapsulation: Encapsulation| encapsulation.length(outer, inner);
        match self {
            Self::Esp(Some(sealing)) if sealing.pair.is_none() => {
                let each = |algorithm| wrapped(Encapsulation::Esp(Shape::new(algorithm, sealing.shape.udp())));
                Algorithm::ALL.map(each).into_iter().max().unwrap_or(inner)
            }
            Self::Gre(_) | Self::Esp(_) | Self::Device(_) | Self::Unclear => {
                self.encapsulation().map_or(inner, wrapped)
            }
        }
    }
}

/// What decides how packets leave, beside their encapsulation.
pub(super) struct Leaving {
    pub(super) underlay_device: Option<String>,
    pub(super) mark: u32,
    pub(super) ttl: u8,
    pub(super) dscp: u8,
}

/// Reads `underlay_device`, `mark`, `ttl` and `dscp`; of a tunnel that the kernel wraps only what has a
/// meaning.
pub(super) fn leaving(section: &mut Section<'_>, wrapping: &Wrapping, style: Style) -> Leaving {
    let dscp = section.read("dscp", notation::dscp).map_or(defaults::DSCP, |dscp| dscp.value);
    let mut leaving = Leaving { underlay_device: None, mark: defaults::MARK, ttl: defaults::TTL, dscp };
    if wrapping.is_device() {
        section.refuse("ttl", "cannot be set here: the kernel makes the outer header; remove it");
    } else {
        let ttl = section.integer("ttl", 1..=255, "", defaults::TTL.into());
        leaving.ttl = ttl.and_then(|ttl| u8::try_from(ttl.value).ok()).unwrap_or(defaults::TTL);
    }
    if wrapping.is_device() && section.has("device") {
        let why = "is of no use beside `device`, by which probes leave whatever the routes say; remove it";
        ["mark", "underlay_device"].into_iter().for_each(|key| section.refuse(key, why));
        return leaving;
    }
    if wrapping.is_device() && style == Style::Reply {
        let why = "a reply-style probe is addressed to this host itself, and leaves it by no route";
        section.require("device", why, "\"gre1\", or type = \"request\"");
    }
    let device =
        section.text("underlay_device", "a device's name", "eth0", |text| names::device("underlay_device", text));
    leaving.underlay_device = device.map(|device| device.value);
    let mark = section.integer("mark", 0..=u32::MAX, "", defaults::MARK);
    leaving.mark = mark.map_or(defaults::MARK, |mark| mark.value);
    leaving
}
