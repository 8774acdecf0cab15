//! What a diagnosis has found: plain values that borrow nothing.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::conclude::{Conclusion, conclude, notes};
use super::leg::{Astray, Leg};
use super::{TOO_LONG, plan};
use crate::engine::WallTime;
use crate::engine::prober::Prober;
use crate::engine::settings::ReturnPath;
use crate::wire::{Direction, Encapsulation, Ends, Kind, Path, Reject, Style};

pub use super::leg::Part;

/// An ICMP error about a regular probe is worth something for so long: routers send few.
const FRESH: Duration = Duration::from_secs(60);

/// What `adit diagnose` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The tunnel's name.
    pub name: String,
    /// How probes are wrapped.
    pub encapsulation: &'static str,
    /// The style of regular probes.
    #[serde(flatten)]
    pub style: StyleView,
    /// Whether it is checked at all.
    pub checked: bool,
    /// What was sent, and what has become of it.
    pub legs: Vec<LegView>,
    /// How long packets may be; null if that was not found out.
    pub mtu: Option<Mtu>,
    /// What it means.
    pub conclusion: Conclusion,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

impl Diagnosis {
    /// What findings mean.
    #[must_use]
    pub fn of(findings: Findings) -> Self {
        let (conclusion, notes) = (conclude(&findings), notes(&findings));
        let Findings { name, encapsulation, style, is_checked, legs, mtu, .. } = findings;
        let (encapsulation, style) = (encapsulation.name(), style.into());
        Self { name, encapsulation, style, checked: is_checked, legs, mtu, conclusion, notes }
    }
}

/// A style in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StyleView {
    /// `request` or `reply`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `bidirectional` or `unidirectional`.
    pub direction: &'static str,
}

impl From<Style> for StyleView {
    fn from(style: Style) -> Self {
        let kind = match style.kind {
            Kind::Request => "request",
            Kind::Reply => "reply",
        };
        let direction = match style.direction {
            Direction::Bidirectional => "bidirectional",
            Direction::Unidirectional => "unidirectional",
        };
        Self { kind, direction }
    }
}

/// One leg.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LegView {
    /// What it is for.
    pub leg: Part,
    /// The style of its probes.
    #[serde(flatten, serialize_with = "in_words")]
    pub style: Style,
    /// The far address inside: what requests go to, and replies come from.
    pub target: IpAddr,
    /// Bytes of the packet as it leaves this program.
    pub length: usize,
    /// Bytes of the packet inside.
    pub inner_length: usize,
    /// Probes that left.
    pub sent: usize,
    /// Those among them that were answered as they must be.
    pub answered: usize,
    /// The least round-trip time.
    pub rtt_us: Option<u64>,
    /// Where answers came that did not come as they must.
    pub astray: Option<Stray>,
    /// An ICMP error about one of them: a hint, no evidence.
    pub hint: Option<String>,
    /// Why they were not sent.
    pub unsent: Option<String>,
}

fn in_words<S: Serializer>(style: &Style, serializer: S) -> Result<S::Ok, S::Error> {
    StyleView::from(*style).serialize(serializer)
}

/// An answer that did not come as it must.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stray {
    /// What is wrong with it, by the name that its counter has.
    #[serde(serialize_with = "label")]
    pub reason: Reject,
    /// How it came.
    pub came: String,
}

fn label<S: Serializer>(reject: &Reject, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reject.label())
}

/// How long packets may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Mtu {
    /// The longest packet inside the tunnel that was answered.
    pub inner: usize,
    /// The same with everything around it, as far as this program knows.
    pub outer: usize,
    /// What became of longer ones.
    pub longer: Longer,
    /// The shortest longer packet inside that was not answered.
    pub fails: Option<usize>,
}

impl Mtu {
    /// Between which lengths the limit lies, in words, if it was not found to the byte.
    pub(super) fn between(self) -> String {
        match self.fails {
            Some(fails) if fails > self.inner + 1 => {
                format!(" (the limit lies between {} and {fails}: there was no time to look closer)", self.inner)
            }
            Some(_) | None => String::new(),
        }
    }
}

/// What became of packets that were too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Longer {
    /// None was.
    Untried,
    /// This host's own link does not take them.
    Refused,
    /// A router on the way has said that they are too long.
    Told,
    /// They vanish, and nobody says so.
    Lost,
}

/// Everything that a conclusion rests on.
#[derive(Debug, Clone)]
pub struct Findings {
    /// The tunnel's name.
    pub name: String,
    /// How probes are wrapped.
    pub encapsulation: Encapsulation,
    /// The style of regular probes.
    pub style: Style,
    /// The endpoints.
    pub outer: Ends,
    /// The ends of regular probes inside.
    pub inner: Ends,
    /// So many targets must answer.
    pub quorum: usize,
    /// The kernel's tunnel device.
    pub device: Option<String>,
    /// The SPI of probes, and that of answers.
    pub spis: Option<[u32; 2]>,
    /// Whether answers may come through any tunnel.
    pub any_return: bool,
    /// Whether it is checked at all.
    pub is_checked: bool,
    /// What keeps it from being probed.
    pub obstacle: Option<String>,
    /// Answers have come by this configuration, or by these keys, before.
    pub was_answered: bool,
    /// How the last answer was wrong that was refused meanwhile and may have been this tunnel's.
    pub reject: Option<Reject>,
    /// What an ICMP error of late says.
    pub hint: Option<String>,
    /// This host has lost packets meanwhile.
    pub is_deaf: bool,
    /// The legs.
    pub legs: Vec<LegView>,
    /// How long packets may be.
    pub mtu: Option<Mtu>,
}

/// What the legs of a diagnosis have shown that began then; `brings` says which tunnel a packet came by.
pub(super) fn gather<'a>(
    prober: &Prober,
    legs: &[Leg],
    begun: WallTime,
    brings: impl Fn(Path) -> Option<&'a str>,
) -> Findings {
    let (settings, onion) = (&prober.settings, &prober.settings.onion);
    let pair = prober.associations.as_ref().and_then(|associations| associations.current());
    // One from before says nothing if the far end has gone since then.
    let is_there = legs.iter().any(|leg| leg.part == Part::Underlay && leg.answers() > 0);
    let age = |at: WallTime| Duration::from_nanos(begun.0.saturating_sub(at.0));
    let hinted = prober.last_hint.filter(|(at, _)| *at >= begun || is_there && age(*at) < FRESH);
    let quoted = legs.iter().filter(|leg| leg.is_inside()).find_map(|leg| leg.hint);
    let quote = quoted.or(hinted.map(|(_, quote)| quote));
    Findings {
        name: settings.name.clone(),
        encapsulation: onion.encapsulation,
        style: onion.style,
        outer: onion.outer,
        inner: onion.inner,
        quorum: settings.targets.as_ref().map_or(1, |targets| targets.quorum),
        device: None,
        spis: pair.map(|pair| [pair.outbound.spi(), pair.inbound.spi()]),
        any_return: settings.check.return_path == ReturnPath::Any,
        is_checked: settings.check.enabled,
        obstacle: prober.obstacle.as_ref().map(ToString::to_string),
        was_answered: match pair {
            Some(pair) => pair.inbound.highest() > 0,
            None => prober.counters.received > 0,
        },
        reject: prober.last_reject.filter(|(at, _)| *at >= begun).map(|(_, reject)| reject),
        hint: quote.map(|quote| format!("{} says {}", quote.from, quote.says)),
        is_deaf: false,
        legs: legs.iter().map(|leg| view(prober, leg, &brings)).collect(),
        mtu: mtu(prober, legs),
    }
}

fn view<'a>(prober: &Prober, leg: &Leg, brings: &impl Fn(Path) -> Option<&'a str>) -> LegView {
    let Leg { part, style, length, ref unsent, ref hint, .. } = *leg;
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    LegView {
        leg: part,
        style,
        target: leg.inner.far(),
        length: leg.encapsulation.length(prober.settings.onion.outer.family(), length),
        inner_length: length,
        sent: leg.sent(),
        answered: leg.answers(),
        rtt_us: leg.rtt().map(micros),
        astray: leg.astray.map(|astray| Stray { reason: astray.reject, came: came(astray, brings) }),
        hint: hint.map(|quote| format!("{} says {}", quote.from, quote.says)),
        unsent: unsent.clone(),
    }
}

/// How an answer came, in words.
fn came<'a>(Astray { path, interface, .. }: Astray, brings: &impl Fn(Path) -> Option<&'a str>) -> String {
    let tunnel = brings(path).map(|name| format!(", as those of tunnel {name}")).unwrap_or_default();
    match path {
        Path::Bare if interface != 0 => format!("bare, by the device of index {interface}"),
        Path::Bare => "bare".to_owned(),
        Path::Gre { outer, key } => {
            let key = key.map_or_else(|| "without a key".to_owned(), |key| format!("with key {key}"));
            format!("in GRE from {} {key}{tunnel}", outer.far())
        }
        Path::Esp { outer, spi, .. } => format!("in ESP from {} with SPI {spi:#x}{tunnel}", outer.far()),
    }
}

fn mtu(prober: &Prober, legs: &[Leg]) -> Option<Mtu> {
    let (inner, fails) = plan::limits(legs)?;
    let outer = prober.settings.onion.encapsulation.length(prober.settings.onion.outer.family(), inner);
    let failed = legs.iter().find(|leg| Some(leg.length) == fails && leg.part == Part::Size);
    let is_told = legs.iter().any(|leg| {
        leg.part == Part::Size && leg.length > inner && leg.hint.is_some_and(|quote| quote.says.contains("too small"))
    });
    let longer = match failed {
        None => Longer::Untried,
        Some(leg) if leg.unsent.as_deref() == Some(TOO_LONG) => Longer::Refused,
        Some(_) if is_told => Longer::Told,
        Some(_) => Longer::Lost,
    };
    Some(Mtu { inner, outer, longer, fails })
}
