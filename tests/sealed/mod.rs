//! The ESP packets of `fixtures/esp`, read for tests.

#![allow(dead_code, reason = "each test uses its part of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

use adit::wire::esp::{Algorithm, Inbound, Keys, udp};
use adit::wire::{Family, Reject};
use zeroize::Zeroizing;

/// One file: an inbound association, and what arrives for it, in this order.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fixture {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) origin: String,
    pub(crate) about: String,
    algorithm: String,
    key: String,
    pub(crate) spi: u32,
    pub(crate) esn: bool,
    pub(crate) window: u32,
    /// Whether the packets begin at a UDP header.
    pub(crate) udp: bool,
    #[serde(rename = "packet")]
    pub(crate) packets: Vec<Packet>,
}

/// One packet, and what becomes of it.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Packet {
    pub(crate) about: String,
    #[serde(rename = "bytes")]
    hex: String,
    opens: Option<String>,
    pub(crate) sequence: Option<u64>,
    inner: Option<String>,
    pub(crate) reject: Option<String>,
    /// The highest number that the association has seen afterwards.
    pub(crate) highest: Option<u64>,
}

/// What came out: family, inner packet, sequence number.
pub(crate) type Outcome = Result<(Family, Vec<u8>, u64), Reject>;

/// All of them, by name.
pub(crate) fn all() -> Vec<Fixture> {
    let files = std::fs::read_dir("fixtures/esp").unwrap().map(|entry| entry.unwrap().path());
    let mut fixtures: Vec<Fixture> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let fixture: Fixture = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Fixture { name: path.file_stem().unwrap().to_str().unwrap().to_owned(), ..fixture }
        })
        .collect();
    assert!(!fixtures.is_empty());
    fixtures.sort_by(|one, other| one.name.cmp(&other.name));
    fixtures
}

/// The labels of all refusals.
pub(crate) fn labels() -> impl Iterator<Item = String> {
    all().into_iter().flat_map(|fixture| fixture.packets).filter_map(|packet| packet.reject)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

impl Fixture {
    pub(crate) fn algorithm(&self) -> Algorithm {
        Algorithm::from_name(&self.algorithm).unwrap()
    }

    pub(crate) fn keys(&self) -> Keys {
        Keys::new(self.algorithm(), Zeroizing::new(bytes(&self.key))).unwrap()
    }

    pub(crate) fn inbound(&self) -> Inbound {
        Inbound::new(self.spi, self.esn, self.window, &self.keys())
    }

    /// Takes UDP off, where there is any, and opens.
    pub(crate) fn open(&self, inbound: &mut Inbound, packet: &[u8]) -> Outcome {
        let packet = if self.udp { udp::parse(packet)? } else { packet };
        let mut scratch = Vec::new();
        inbound.open(packet, &mut scratch).map(|opened| (opened.inner, opened.packet.to_vec(), opened.sequence))
    }
}

impl Packet {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        bytes(&self.hex)
    }

    /// What must come out.
    pub(crate) fn outcome(&self) -> Result<(Family, Vec<u8>, u64), &str> {
        if let Some(label) = &self.reject {
            return Err(label);
        }
        let family = match self.opens.as_deref() {
            Some("v4") => Family::V4,
            Some("v6") => Family::V6,
            ref other => panic!("opens {other:?}"),
        };
        Ok((family, bytes(self.inner.as_deref().unwrap()), self.sequence.unwrap()))
    }
}
