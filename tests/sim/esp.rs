//! Pairs of associations for tests: every key is made of one byte, so that two are easily told apart.

use adit::engine::Tunnel;
use adit::engine::associations::{Material, Start};
use adit::engine::numbers::Numbers;
use adit::engine::settings::{Source, Terms};
use adit::wire::Encapsulation;
use adit::wire::esp::{Algorithm, IvSeed, Keys, Shape};
use zeroize::Zeroizing;

/// Every number is reserved.
pub(crate) const ALL: u64 = u64::MAX;

pub(crate) fn material(algorithm: Algorithm, number: u32, esn: bool) -> Material {
    let key = |byte: u32| {
        let byte = u8::try_from(byte % 251).unwrap();
        Keys::new(algorithm, Zeroizing::new(vec![byte; algorithm.key_len()])).unwrap()
    };
    Material {
        spi_out: 0x1000 + number,
        spi_in: 0x2000 + number,
        key_out: key(2 * number),
        key_in: key(2 * number + 1),
        esn,
        replay_window: 64,
    }
}

pub(crate) fn gcm(number: u32) -> Material {
    material(Algorithm::Aes256Gcm, number, false)
}

pub(crate) fn seed(number: u8) -> IvSeed {
    IvSeed::new([number; 16])
}

/// Numbers that are all reserved.
pub(crate) fn numbers(material: &Material) -> Numbers {
    Numbers::new(1, ALL, material.last())
}

pub(crate) fn esp_tunnel(index: u32, algorithm: Algorithm, udp: bool) -> Tunnel {
    let mut tunnel = super::tunnel(index);
    tunnel.onion.encapsulation = Encapsulation::Esp(Shape::new(algorithm, udp));
    tunnel.terms = Some(Terms { source: Source::Installed, esn: false, replay_window: 64 });
    tunnel
}

pub(crate) fn started(material: &Material) -> Start {
    Start { pair: Some(material.pair(&seed(100), numbers(material))), lost: None }
}
