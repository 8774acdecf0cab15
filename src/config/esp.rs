//! `[tunnel.esp]`.

use super::defaults;
use super::key_file::{self, Bytes, KeyFile};
use super::near::nearest;
use super::section::{Section, expected};
use super::tree::{Placed, Value};
use super::tunnel::Esp;
use crate::engine::Material;
use crate::engine::settings::{Source, Terms};
use crate::wire::esp::{Algorithm, Keys, SPI_MIN, Shape, replay};

/// Which program a tunnel is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// `adit run`.
    Prober,
    /// `adit reflect`.
    Reflector,
}

/// A `[tunnel.esp]` without fault. Without `Debug`: it holds keys.
pub(super) struct Sealing {
    pub(super) esp: Esp,
    pub(super) shape: Shape,
    /// What stands in the file of a pair whose keys are static.
    pub(super) pair: Option<Pair>,
}

/// A pair of associations as it stands in the file.
pub(super) struct Pair {
    pub(super) spi_out: Placed<u32>,
    pub(super) spi_in: Placed<u32>,
    pub(super) key_out: Placed<KeyFile<Keys>>,
    pub(super) key_in: Placed<KeyFile<Keys>>,
}

/// What a pair consists of, why it must be there, and an example.
const PAIR: [(&str, &str, &str); 4] = [
    ("spi_out", "it names the association of the probes", "0x1001"),
    ("spi_in", "it names the association of the answers", "0x2001"),
    ("key_out_file", "static keys come from files", "\"/etc/adit/keys/ams-1.out\""),
    ("key_in_file", "static keys come from files", "\"/etc/adit/keys/ams-1.in\""),
];

/// Reads `[tunnel.esp]` of a tunnel.
pub(super) fn read(tunnel: &mut Section<'_>, side: Side) -> Option<Sealing> {
    let mut section = tunnel.section("esp", "[tunnel.esp]")?;
    let source = source(&mut section, side);
    let algorithm = algorithm(&mut section, source);
    let pair = if source == Some(Source::Installed) {
        let why = "comes with each pair that `adit sa install` hands over; remove it, or write keys = \"static\"";
        PAIR.iter().for_each(|(key, ..)| section.refuse(key, why));
        None
    } else {
        pair(&mut section, source.is_some(), algorithm)
    };
    let esn = section.boolean("esn", defaults::ESN).map_or(defaults::ESN, |esn| esn.value);
    let replay_window =
        section.read("replay_window", replay_window).map_or(defaults::REPLAY_WINDOW, |window| window.value);
    let udp = section.boolean("udp_encapsulation", false).is_some_and(|udp| udp.value);
    section.finish();
    let terms = Terms { source: source?, esn, replay_window };
    let material = pair.as_ref().map(|pair| pair.material(esn, replay_window));
    let algorithm = match terms.source {
        Source::Static => algorithm.filter(|_| material.is_some())?,
        Source::Installed => algorithm.unwrap_or(defaults::ALGORITHM),
    };
    Some(Sealing { esp: Esp { terms, material }, shape: Shape::new(algorithm, udp), pair })
}

/// Reads `keys`. It has no default: all else follows from it, and keys that nobody hands over are
/// noticed late.
fn source(section: &mut Section<'_>, side: Side) -> Option<Source> {
    let from_files = side == Side::Reflector || PAIR.iter().any(|(key, ..)| section.has(key));
    let example = if from_files { "\"static\"" } else { "\"installed\", or \"static\" for keys from files" };
    section.require("keys", "it says where the keys come from", example);
    let source = section.choice("keys", &[("installed", Source::Installed), ("static", Source::Static)])?;
    if (side, source.value) == (Side::Reflector, Source::Installed) {
        let why = "the reflector has no local socket to install keys over";
        let what = "write keys = \"static\", and the SPIs and key files of the pair";
        section.report().add(source.at, format!("`keys` cannot be \"installed\" here: {why}; {what}"));
        return None;
    }
    Some(source.value)
}

fn algorithm(section: &mut Section<'_>, source: Option<Source>) -> Option<Algorithm> {
    let is_static = source == Some(Source::Static);
    let usual = if is_static { Algorithm::Aes256CbcHmacSha256 } else { defaults::ALGORITHM };
    if is_static {
        section.require("algorithm", "the keys in the files are keys of it", &format!("{:?}", usual.name()));
    }
    let read = section.read("algorithm", |value| {
        let name = value.as_text().unwrap_or_default();
        match Algorithm::from_name(name) {
            Some(algorithm) if is_static && algorithm.is_counter_mode() => Err(counter_mode(algorithm)),
            Some(algorithm) => Ok(algorithm),
            None => Err(unknown_algorithm(value, name, is_static, usual)),
        }
    });
    read.map(|algorithm| algorithm.value)
}

fn unknown_algorithm(value: &Value, name: &str, is_static: bool, usual: Algorithm) -> String {
    let fit = Algorithm::ALL.into_iter().filter(|algorithm| !is_static || !algorithm.is_counter_mode());
    let names: Vec<_> = fit.map(Algorithm::name).collect();
    let list = names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ");
    let proposed = nearest(name, names).unwrap_or(usual.name());
    expected(&list, value, "algorithm", &format!("{proposed:?}"))
}

/// Why a cipher that must never see one nonce twice cannot have keys that stay.
fn counter_mode(algorithm: Algorithm) -> String {
    let own = if algorithm == Algorithm::ChaCha20Poly1305 { "RFC 7634" } else { "RFC 4106 section 2" };
    let why =
        "with keys that stay the same, a lost record or a copied disk would use a nonce twice, which gives the key";
    let what = format!("write keys = \"installed\", or algorithm = {:?}", Algorithm::Aes256CbcHmacSha256.name());
    format!("cannot be {:?} with static keys: {why} away ({own}, RFC 8221 section 3); {what}", algorithm.name())
}

fn pair(section: &mut Section<'_>, required: bool, algorithm: Option<Algorithm>) -> Option<Pair> {
    if required {
        PAIR.iter().for_each(|(key, why, example)| section.require(key, why, example));
    }
    let spi_out = section.read("spi_out", |value| spi(value, "spi_out", 0x1001));
    let spi_in = section.read("spi_in", |value| spi(value, "spi_in", 0x2001));
    let key_out = key(section, "key_out_file", "/etc/adit/keys/ams-1.out", algorithm);
    let key_in = key(section, "key_in_file", "/etc/adit/keys/ams-1.in", algorithm);
    let pair = Pair { spi_out: spi_out?, spi_in: spi_in?, key_out: key_out?, key_in: key_in? };
    if pair.key_out.value.key.fingerprint() == pair.key_in.value.key.fingerprint() {
        let other = section.report().refer(pair.key_in.at, pair.key_out.at);
        let why = "each association of the pair has a key of its own (RFC 4301 section 4.1)";
        let what = format!("`key_in_file` holds the same key as `key_out_file` in {other}: {why}; write another one");
        section.report().add(pair.key_in.at, format!("{what} into one of them"));
    }
    Some(pair)
}

impl Pair {
    fn material(&self, esn: bool, replay_window: u32) -> Material {
        Material {
            spi_out: self.spi_out.value,
            spi_in: self.spi_in.value,
            key_out: self.key_out.value.key.clone(),
            key_in: self.key_in.value.key.clone(),
            esn,
            replay_window,
        }
    }
}

/// An SPI; those below 256 are reserved.
fn spi(value: &Value, key: &str, example: u32) -> Result<u32, String> {
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
    number.filter(|&spi| spi >= SPI_MIN).ok_or_else(|| {
        // A number in quotes is meant; only the quotes are not.
        let quoted = value.as_text().and_then(|text| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        });
        let example = quoted.filter(|&spi| spi >= SPI_MIN).unwrap_or(example);
        const KIND: &str = "a number from 0x100 (those below are reserved: RFC 4303 section 2.1) to 0xffffffff";
        expected(KIND, value, key, &format!("{example:#x}"))
    })
}

fn replay_window(value: &Value) -> Result<u32, String> {
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
    let fits = |number: &u32| *number == 0 || (replay::NARROWEST..=replay::WIDEST).contains(number);
    number.filter(fits).ok_or_else(|| {
        let kind = format!("a whole number from {} to {}, or 0 for none", replay::NARROWEST, replay::WIDEST);
        expected(&kind, value, "replay_window", &defaults::REPLAY_WINDOW.to_string())
    })
}

/// Reads a key. Without an algorithm there is none, but what is wrong with the file is said all the same.
fn key(
    section: &mut Section<'_>,
    key: &'static str,
    example: &str,
    algorithm: Option<Algorithm>,
) -> Option<Placed<KeyFile<Keys>>> {
    let Some(algorithm) = algorithm else {
        key_file::read(section, key, example, "a key, as hex digits or base64,", |_| Some(()));
        return None;
    };
    let (length, cipher) = (algorithm.key_len(), algorithm.cipher_key_len());
    let parts = match cipher {
        0 => "all of it HMAC's".to_owned(),
        _ => format!("{cipher} of the cipher, then {} of HMAC", length - cipher),
    };
    let digits = 2 * length;
    let name = algorithm.name();
    let what = format!("a key of {length} bytes for {name} ({parts}), as {digits} hex digits or base64,");
    key_file::read(section, key, example, &what, |bytes: Bytes| Keys::new(algorithm, bytes))
}
