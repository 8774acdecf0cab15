//! The golden packets of `fixtures/packets`, read for tests, and the numbers that all of them share
//! (its README.md has them in a table).

#![allow(dead_code, reason = "each test uses its part of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

use std::net::{IpAddr, Ipv6Addr};

use adit::wire::payload::{Fields, Key, Secret};
use adit::wire::probe::Arrived;
use adit::wire::{Direction, Ends, Family, Kind, Onion, Path, Style, gre};

pub(crate) const FIELDS: Fields = Fields { tunnel: 7, sequence: 0x1_0000_0042, sent: 1_234_567_890_123 };
pub(crate) const IDENTIFIER: u16 = 0x1234;
pub(crate) const OUTER_ID: u16 = 0x4242;
pub(crate) const INNER_ID: u16 = 0x4343;
pub(crate) const CS6: u8 = 48;

/// The epoch of the vectors.
pub(crate) const EPOCH: u64 = 0x0123_4567_89ab_cdef;

pub(crate) fn secret() -> Secret {
    Secret { key: Key::new(std::array::from_fn(|i| u8::try_from(i).unwrap())), epoch: EPOCH }
}

pub(crate) fn mark_key() -> Key {
    Key::new(std::array::from_fn(|i| u8::try_from(0x10 + i).unwrap()))
}

/// One file.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fixture {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) origin: String,
    pub(crate) about: String,
    pub(crate) way: String,
    style: Option<String>,
    direction: Option<String>,
    outer: Option<String>,
    inner: Option<String>,
    pub(crate) key: Option<u32>,
    #[serde(default)]
    pub(crate) checksum: bool,
    pub(crate) gre_sequence: Option<u32>,
    #[serde(default)]
    pub(crate) accept: bool,
    #[serde(default)]
    pub(crate) marked: bool,
    pub(crate) reject: Option<String>,
    #[serde(rename = "bytes")]
    hex: String,
}

/// All of them, by name.
pub(crate) fn all() -> Vec<Fixture> {
    let files = std::fs::read_dir("fixtures/packets").unwrap().map(|entry| entry.unwrap().path());
    let mut fixtures: Vec<Fixture> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let fixture: Fixture = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Fixture { name: path.file_stem().unwrap().to_str().unwrap().to_owned(), ..fixture }
        })
        .collect();
    fixtures.sort_by(|one, other| one.name.cmp(&other.name));
    fixtures
}

/// Those whose names begin so.
pub(crate) fn named(prefix: &str) -> Vec<Fixture> {
    let mut fixtures = all();
    fixtures.retain(|fixture| fixture.name.starts_with(prefix));
    assert!(!fixtures.is_empty(), "no fixtures {prefix}*");
    fixtures
}

fn family(name: Option<&str>) -> Family {
    match name {
        Some("v4") => Family::V4,
        Some("v6") => Family::V6,
        _ => panic!("no family: {name:?}"),
    }
}

impl Fixture {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let digits: Vec<u32> = self.hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.style.as_deref() {
            Some("request") => Kind::Request,
            Some("reply") => Kind::Reply,
            ref other => panic!("{}: style {other:?}", self.name),
        }
    }

    pub(crate) fn direction(&self) -> Direction {
        match self.direction.as_deref() {
            Some("bidirectional") => Direction::Bidirectional,
            Some("unidirectional") => Direction::Unidirectional,
            ref other => panic!("{}: direction {other:?}", self.name),
        }
    }

    /// P and O.
    pub(crate) fn outer(&self) -> Ends {
        endpoints(family(self.outer.as_deref()))
    }

    /// T0 and T1 inside the tunnel; P and O where the answer travels outside it.
    pub(crate) fn inner(&self) -> Ends {
        let family = family(self.inner.as_deref());
        match self.direction() {
            Direction::Unidirectional => endpoints(family),
            Direction::Bidirectional => match family {
                Family::V4 => ends("10.100.0.8", "10.100.0.9"),
                Family::V6 => ends("fd00:100::8", "fd00:100::9"),
            },
        }
    }

    /// The way in which the answer comes.
    pub(crate) fn path(&self) -> Path {
        match self.direction() {
            Direction::Unidirectional => Path::Bare,
            Direction::Bidirectional => Path::Gre { outer: self.outer(), key: self.key },
        }
    }

    pub(crate) fn onion(&self) -> Onion {
        Onion {
            style: Style { kind: self.kind(), direction: self.direction() },
            outer: self.outer(),
            encapsulation: adit::wire::Encapsulation::Gre(gre::Options {
                key: self.key,
                checksum: self.checksum,
                sequence: self.gre_sequence.is_some(),
            }),
            inner: self.inner(),
            ttl: 64,
            dscp: CS6,
            size: 72,
        }
    }
}

fn endpoints(family: Family) -> Ends {
    match family {
        Family::V4 => ends("192.0.2.1", "203.0.113.2"),
        Family::V6 => ends("2001:db8::1", "2001:db8:1::2"),
    }
}

pub(crate) fn ends(local: &str, far: &str) -> Ends {
    Ends::new(local.parse::<IpAddr>().unwrap(), far.parse::<IpAddr>().unwrap()).unwrap()
}

/// A whole packet as a raw socket would hand it over: IPv6 without its header, the addresses
/// beside it.
pub(crate) fn arrived(bytes: &[u8]) -> Arrived<'_> {
    let address = |at: usize| bytes[at..at + 16].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets)).unwrap();
    if bytes.len() >= 40 && bytes[0] >> 4 == 6 {
        Arrived::V6 { protocol: bytes[6], source: address(8), destination: address(24), payload: &bytes[40..] }
    } else {
        Arrived::V4(bytes)
    }
}
