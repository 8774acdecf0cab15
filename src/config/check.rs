//! `health_check`: as written, laid over the defaults, and made into the engine's [`Check`].

use std::net::IpAddr;
use std::time::Duration;

use super::key_file::{self, KeyFile};
use super::rules::WrittenRules;
use super::section::{Section, expected};
use super::source::Report;
use super::targets::{self, Addresses};
use super::tree::{At, Placed, Value};
use super::{defaults, notation, possible};
use crate::engine::health::Rules;
use crate::engine::settings::{Check, ReturnPath, Timeout};
use crate::wire::{Direction, Kind, Style, payload};

/// A probing rate by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// A probe a minute.
    Low,
    /// One every ten seconds.
    Mid,
    /// One a second.
    High,
}

impl Rate {
    const CHOICES: [(&'static str, Self); 3] = [("mid", Self::Mid), ("low", Self::Low), ("high", Self::High)];

    /// The time from one probe to the next at a single prober.
    #[must_use]
    pub const fn interval(self) -> Duration {
        match self {
            Self::Low => Duration::from_secs(60),
            Self::Mid => Duration::from_secs(10),
            Self::High => Duration::from_secs(1),
        }
    }

    /// The name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Mid => "mid",
            Self::High => "high",
        }
    }
}

/// How often a tunnel is probed, as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cadence {
    /// `rate`.
    Rate(Rate),
    /// `interval`.
    Interval(Duration),
}

impl Cadence {
    /// The interval of one of `servers` probers that together keep this cadence. What is longer
    /// than [`defaults::STRETCH_MAX`] by itself stays as it is.
    fn shared_by(self, servers: u32) -> Duration {
        let alone = match self {
            Self::Rate(rate) => rate.interval(),
            Self::Interval(interval) => interval,
        };
        alone.saturating_mul(servers).min(defaults::STRETCH_MAX.max(alone))
    }
}

/// A `health_check` table, as far as it says anything.
#[derive(Clone, Default)]
pub(super) struct HealthCheck {
    enabled: Option<Placed<bool>>,
    kind: Option<Placed<Kind>>,
    direction: Option<Placed<Direction>>,
    cadence: Option<Placed<Cadence>>,
    timeout: Option<Placed<Timeout>>,
    early_retry: Option<Placed<bool>>,
    target: Option<Placed<IpAddr>>,
    targets: Option<Placed<Addresses>>,
    quorum: Option<Placed<u32>>,
    is_own_quorum: bool,
    return_path: Option<Placed<ReturnPath>>,
    size: Option<Placed<u16>>,
    mark_key: Option<Placed<KeyFile<payload::Key>>>,
    rules: WrittenRules,
}

impl HealthCheck {
    /// Reads `[….health_check]` of a section.
    pub(super) fn read(parent: &mut Section<'_>, title: &str) -> Self {
        let Some(mut section) = parent.section("health_check", title) else { return Self::default() };
        let read = Self {
            enabled: section.boolean("enabled", true),
            kind: section.choice("type", &[("request", Kind::Request), ("reply", Kind::Reply)]),
            direction: section.choice(
                "direction",
                &[("bidirectional", Direction::Bidirectional), ("unidirectional", Direction::Unidirectional)],
            ),
            cadence: cadence(&mut section),
            timeout: section.read("timeout", timeout),
            early_retry: section.boolean("early_retry", defaults::EARLY_RETRY),
            target: section.address("target", "192.0.2.1"),
            targets: targets::read(&mut section),
            quorum: targets::quorum(&mut section),
            is_own_quorum: section.has("quorum"),
            return_path: section.choice("return_path", &[("strict", ReturnPath::Strict), ("any", ReturnPath::Any)]),
            size: size(&mut section),
            mark_key: key_file::mark(&mut section),
            rules: WrittenRules::read(&mut section, title),
        };
        read.refuse_twice(section.report());
        section.finish();
        read
    }

    /// The numbers of the health rules, all of them.
    pub(super) fn rules(&self) -> Rules {
        self.rules.resolve()
    }

    /// This one, and where it says nothing, the defaults.
    pub(super) fn over(&self, below: &Self) -> Self {
        Self {
            enabled: self.enabled.or(below.enabled),
            kind: self.kind.or(below.kind),
            direction: self.direction.or(below.direction),
            cadence: self.cadence.or(below.cadence),
            timeout: self.timeout.or(below.timeout),
            early_retry: self.early_retry.or(below.early_retry),
            // They say the same in two ways.
            target: if self.targets.is_some() { None } else { self.target.or(below.target) },
            targets: if self.target.is_some() { None } else { self.targets.clone().or_else(|| below.targets.clone()) },
            quorum: self.quorum.or(below.quorum),
            is_own_quorum: self.is_own_quorum,
            return_path: self.return_path.or(below.return_path),
            size: self.size.or(below.size),
            mark_key: self.mark_key.clone().or_else(|| below.mark_key.clone()),
            rules: self.rules.over(&below.rules),
        }
    }

    /// A way back that a unidirectional probe's answer cannot take. Only where the tunnel itself
    /// asks for it: among the defaults it speaks to the other tunnels.
    pub(super) fn refuse_return_path(&self, direction: Direction, report: &Report) {
        if let (Some(Placed { at, value: ReturnPath::Any }), Direction::Unidirectional) = (self.return_path, direction)
        {
            let why = "the answer to a unidirectional probe comes back bare, through no tunnel";
            report.add(at, format!("`return_path` cannot be \"any\" here: {why}; remove it"));
        }
    }

    /// The probe style.
    pub(super) fn style(&self) -> Style {
        Style {
            kind: self.kind.map_or(Kind::Request, |kind| kind.value),
            direction: self.direction.map_or(Direction::Bidirectional, |direction| direction.value),
        }
    }

    /// The far inner address that was asked for.
    pub(super) const fn target(&self) -> Option<Placed<IpAddr>> {
        self.target
    }

    /// The same, of several.
    pub(super) const fn targets(&self) -> Option<&Placed<Addresses>> {
        self.targets.as_ref()
    }

    /// How many of them must answer, as it was written.
    pub(super) const fn quorum(&self) -> Option<Placed<u32>> {
        self.quorum
    }

    /// The same, where the tunnel itself says so: among the defaults it speaks to those with several targets.
    pub(super) fn own_quorum(&self) -> Option<Placed<u32>> {
        self.quorum.filter(|_| self.is_own_quorum)
    }

    fn refuse_twice(&self, report: &Report) {
        if let (Some(_), Some(targets)) = (&self.target, &self.targets) {
            let why = "`targets` and `target` say the same thing twice; keep one of the two";
            report.add(targets.at, why.to_owned());
        }
    }

    /// The payload's size, and where it was written.
    pub(super) fn size(&self) -> (u16, Option<At>) {
        self.size.map_or((defaults::SIZE, None), |size| (size.value, Some(size.at)))
    }

    /// How often, as it was written.
    pub(super) fn cadence(&self) -> Cadence {
        self.cadence.map_or(Cadence::Rate(defaults::RATE), |cadence| cadence.value)
    }

    /// The file of the reflector's key.
    pub(super) fn mark_key_file(&self) -> Option<&KeyFile<payload::Key>> {
        self.mark_key.as_ref().map(|key| &key.value)
    }

    /// What the engine is told.
    pub(super) fn resolve(&self, servers: u32, report: &Report) -> Check {
        let timeout = self.timeout.map_or(Timeout::Fixed(defaults::TIMEOUT), |timeout| timeout.value);
        let check = Check {
            enabled: self.enabled.is_none_or(|enabled| enabled.value),
            interval: self.cadence().shared_by(servers),
            timeout,
            early_retry: self.early_retry.map_or(defaults::EARLY_RETRY, |early| early.value),
            return_path: match self.style().direction {
                Direction::Bidirectional => self.return_path.map_or(ReturnPath::Strict, |path| path.value),
                Direction::Unidirectional => ReturnPath::Strict,
            },
            mark_key: self.mark_key_file().map(|file| file.key.clone()),
            rules: self.rules(),
        };
        possible::judge(&check, &self.rules, self.timeout.map(|timeout| timeout.at), report);
        check
    }
}

fn cadence(section: &mut Section<'_>) -> Option<Placed<Cadence>> {
    let rate = section.choice("rate", &Rate::CHOICES);
    let interval = section.duration("interval", defaults::INTERVAL, Rate::Mid.interval());
    if let (Some(rate), Some(interval)) = (rate, interval) {
        let name = rate.value.name();
        let why = format!("`interval` and `rate` ({name}) say the same thing twice; keep one of the two");
        section.report().add(interval.at, why);
    }
    let interval = interval.map(|Placed { at, value }| Placed { at, value: Cadence::Interval(value) });
    interval.or(rate.map(|Placed { at, value }| Placed { at, value: Cadence::Rate(value) }))
}

fn timeout(value: &Value) -> Result<Timeout, String> {
    match value.as_text() {
        Some("auto") => Ok(Timeout::Auto),
        Some(word) if word.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            Err(expected("a time with its unit, or \"auto\"", value, "timeout", "\"auto\""))
        }
        Some(_) | None => {
            notation::duration(value, &defaults::TIMEOUT_RANGE, "timeout", defaults::TIMEOUT).map(Timeout::Fixed)
        }
    }
}

fn size(section: &mut Section<'_>) -> Option<Placed<u16>> {
    const WHY: &str = " (bytes after the ICMP header; the probe's own take the first 72)";
    const MAX: u32 = 9_000;
    const _: () = assert!(payload::LEN == 72 && defaults::PACKET_MAX == MAX as usize);
    let size = section.integer("size", u32::from(defaults::SIZE)..=MAX, WHY, defaults::SIZE.into())?;
    Some(Placed { at: size.at, value: u16::try_from(size.value).ok()? })
}
