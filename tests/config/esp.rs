//! ESP and device tunnels: what they mean, and files of keys in every state.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use adit::config::{Config, ReflectConfig, Tunnel};
use adit::engine::Material;
use adit::engine::settings::{Source, Terms};
use adit::wire::Encapsulation;
use adit::wire::esp::{Algorithm, Fingerprint, Keys, Shape};
use nix::sys::stat::Mode;
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::{Fixtures, ends, good, parse};

/// The fingerprint of these bytes as a key, under no SPI.
fn fingerprint(algorithm: Algorithm, bytes: &[u8]) -> Fingerprint {
    Keys::new(algorithm, Zeroizing::new(bytes.to_vec())).unwrap().fingerprint()
}

fn material(tunnel: &Tunnel) -> &Material {
    tunnel.esp.as_ref().unwrap().material.as_ref().unwrap()
}

fn shape(tunnel: &Tunnel) -> Shape {
    let Encapsulation::Esp(shape) = tunnel.onion.encapsulation else { panic!("{} is no ESP", tunnel.name) };
    shape
}

/// Keys in a folder of their own, and a tunnel that uses them.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write("out", "a0".repeat(64));
        files.write("in", "b1".repeat(64));
        files
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
        self.chmod(name, 0o600);
    }

    pub(super) fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn load(&self) -> Result<Config, String> {
        let text = "[[tunnel]]\nname = \"ams-1\"\nencapsulation = \"esp\"\nlocal_endpoint = \"198.51.100.1\"\n\
                    remote_endpoint = \"203.0.113.10\"\ninterface_address = \"10.100.0.8/31\"\n\
                    [tunnel.esp]\nkeys = \"static\"\nspi_out = 0x1001\nspi_in = 0x2001\n\
                    algorithm = \"aes256-cbc-hmac-sha256\"\nkey_out_file = \"out\"\nkey_in_file = \"in\"\n";
        Config::parse(self.path("adit.toml"), text).map_err(|problems| problems.to_string())
    }

    /// What is said of a file with this text in place of the outbound key.
    fn refusal(&self, text: impl AsRef<[u8]>) -> String {
        self.write("out", text);
        self.load().err().unwrap()
    }
}

#[test]
fn a_static_pair_is_whole() {
    let tunnels = Fixtures::new().tunnels("esp.toml");
    let tunnel = &tunnels["static"];
    assert_eq!(shape(tunnel), Shape::new(Algorithm::Aes256CbcHmacSha256, false));
    let terms = Terms { source: Source::Static, esn: true, replay_window: 64 };
    assert_eq!(tunnel.esp.as_ref().unwrap().terms, terms);
    let pair = material(tunnel);
    assert_eq!((pair.spi_out, pair.spi_in, pair.esn, pair.replay_window), (0x1001, 0x2001, true, 64));
    let null = material(&tunnels["null"]);
    assert_eq!((null.spi_out, null.spi_in, null.key_out.algorithm()), (256, 256, Algorithm::NullHmacSha256));
    assert_eq!(tunnels["null"].onion.inner, tunnels["null"].onion.outer);
}

#[test]
fn the_keys_are_the_bytes_in_the_files() {
    let files = Files::new();
    let algorithm = Algorithm::Aes256CbcHmacSha256;
    let config = files.load().unwrap();
    let pair = material(&config.tunnels[0]);
    assert_eq!(pair.key_out.fingerprint(), fingerprint(algorithm, &[0xa0; 64]));
    assert_eq!(pair.key_in.fingerprint(), fingerprint(algorithm, &[0xb1; 64]));
    for text in [format!("0x{} 0x{}\n", "A0".repeat(32), "a0".repeat(32)), format!("{}oA==\n", "oKCg\n".repeat(21))] {
        files.write("out", text);
        let config = files.load().unwrap();
        assert_eq!(material(&config.tunnels[0]).key_out.fingerprint(), fingerprint(algorithm, &[0xa0; 64]));
    }
}

#[test]
fn installed_keys_come_later_and_with_defaults() {
    let tunnels = Fixtures::new().tunnels("esp.toml");
    let (plain, other) = (&tunnels["installed"], &tunnels["installed-otherwise"]);
    let terms = Terms { source: Source::Installed, esn: true, replay_window: 64 };
    assert_eq!(plain.esp.as_ref().unwrap().terms, terms);
    assert!(plain.esp.as_ref().unwrap().material.is_none());
    assert_eq!(shape(plain), Shape::new(Algorithm::Aes256Gcm, false));
    let terms = Terms { source: Source::Installed, esn: false, replay_window: 4096 };
    assert_eq!(other.esp.as_ref().unwrap().terms, terms);
    assert_eq!(shape(other), Shape::new(Algorithm::ChaCha20Poly1305, true));
}

#[test]
fn the_far_side_has_the_same_pair_crosswise() {
    let fixtures = Fixtures::new();
    let tunnels = fixtures.tunnels("esp.toml");
    let far = good(ReflectConfig::load(&fixtures.path("reflect-esp.toml")));
    assert_eq!(far.state_dir, fixtures.path("state"));
    let pairs = [
        (material(&tunnels["static"]), material(&far.tunnels[0])),
        (material(&tunnels["as-for-ip-xfrm"]), material(&tunnels["its-far-end"])),
    ];
    for (one, other) in pairs {
        let other = other.reversed();
        assert_eq!((one.spi_out, one.spi_in), (other.spi_out, other.spi_in));
        let keys = |pair: &Material| [&pair.key_out, &pair.key_in].map(|keys| keys.fingerprint());
        assert_eq!(keys(one), keys(&other));
    }
    let plain = good(ReflectConfig::parse("far.toml", ""));
    assert_eq!(plain.state_dir, PathBuf::from("/var/lib/adit-reflect"));
}

#[test]
fn what_the_kernel_wraps_needs_no_endpoints() {
    let tunnels = Fixtures::new().tunnels("device.toml");
    assert!(tunnels.values().all(|tunnel| tunnel.onion.encapsulation == Encapsulation::Device && tunnel.esp.is_none()));
    let gre = &tunnels["gre"];
    assert_eq!((gre.device.as_deref(), gre.onion.outer), (Some("gre1"), ends("198.51.100.1", "203.0.113.10")));
    assert_eq!(gre.onion.inner, ends("10.100.0.8", "10.100.0.9"));
    let wireguard = &tunnels["wireguard"];
    assert_eq!((wireguard.onion.outer, wireguard.onion.size), (wireguard.onion.inner, 8972));
    assert_eq!(tunnels["wireguard-slowly"].onion.outer, ends("10.100.0.10", "192.0.2.1"));
    let policy = &tunnels["policy"];
    assert_eq!((&policy.device, policy.underlay_device.as_deref(), policy.mark), (&None, Some("vrf-blue"), 16));
    assert_eq!(tunnels["unidirectional"].onion.inner, ends("2001:db8::1", "2001:db8:1::1"));
}

#[test]
fn endpoints_that_were_not_written_are_not_written_out() {
    let fixtures = Fixtures::new();
    let text = fixtures.load("device.toml").effective();
    assert_eq!(text.matches("local_endpoint").count(), 2);
    assert_eq!((text.matches("ttl = ").count(), text.matches("mark = ").count()), (0, 1));
    let esp = fixtures.load("esp.toml").effective();
    for line in ["spi_out = 0x1001", "spi_in = 0xffffffff", "keys = \"installed\"", "algorithm = \"aes256-gcm\""] {
        assert!(esp.contains(line), "{line} is not in\n{esp}");
    }
    assert!(esp.contains(&format!("key_out_file = {:?}", fixtures.path("../keys/esp-64.out"))), "{esp}");
}

#[test]
fn a_key_that_others_may_use_is_refused() {
    let files = Files::new();
    for mode in [0o600, 0o400, 0o700] {
        files.chmod("out", mode);
        assert!(files.load().is_ok(), "{mode:o}");
    }
    for mode in [0o601, 0o602, 0o604, 0o610, 0o620, 0o640, 0o644, 0o660, 0o777] {
        files.chmod("out", mode);
        let said = files.load().err().unwrap();
        assert!(
            said.contains(&format!("others than its owner may use it (mode {mode:04o}); run chmod 0600")),
            "{said}"
        );
    }
}

#[test]
fn what_stands_in_a_wrong_file_is_not_repeated() {
    let files = Files::new();
    for text in ["0f1e2d3c4b5a6978", "correct-horse-battery-staple", "c29tZXRoaW5n", "0x0f1e2d3c4b5a6978f"] {
        let said = files.refusal(text);
        let parts = text.as_bytes().windows(4).map(|part| str::from_utf8(part).unwrap());
        assert!(parts.into_iter().all(|part| !said.contains(part)), "{text}: {said}");
    }
    // Bytes, which are not text.
    let said = files.refusal([0xFF; 64]);
    assert!(said.contains("holds something else than hex digits or base64; write a key of 64 bytes"), "{said}");
}

#[test]
fn a_wrong_length_is_said_in_bytes() {
    let files = Files::new();
    for length in (0..=100).filter(|length| *length != 64) {
        let said = files.refusal("5c".repeat(length));
        assert!(said.contains(&format!("holds {length} bytes; write a key of 64 bytes")), "{said}");
    }
}

#[test]
fn a_pipe_in_place_of_a_key_holds_nothing_up() {
    let files = Files::new();
    fs::remove_file(files.path("out")).unwrap();
    nix::unistd::mkfifo(&files.path("out"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let said = files.load().err().unwrap();
    assert!(said.contains("is not a file"), "{said}");
}

#[test]
fn the_same_key_twice_is_refused_however_it_is_written() {
    let files = Files::new();
    files.write("in", format!("{}oA==\n", "oKCg".repeat(21)));
    let said = files.load().err().unwrap();
    assert!(said.contains("`key_in_file` holds the same key as `key_out_file` in line 12"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn tunnels_that_differ_in_one_thing_can_be_told_apart() {
    let tunnel = |name: &str, more: &str, esp: &str| {
        format!(
            "[[tunnel]]\nname = \"{name}\"\nlocal_endpoint = \"198.51.100.1\"\nremote_endpoint = \"203.0.113.10\"\n\
             interface_address = \"10.100.0.8/31\"\n{more}{esp}\n"
        )
    };
    let installed = "encapsulation = \"esp\"\n[tunnel.esp]\nkeys = \"installed\"\n";
    let device = "encapsulation = \"device\"\n";
    let text = [tunnel("gre", "", ""), tunnel("esp", "", installed), tunnel("esp-2", "", installed)].concat();
    let text =
        text + &tunnel("device", "device = \"gre1\"\n", device) + &tunnel("device-2", "device = \"gre1\"\n", device);
    assert_eq!(parse(&text).tunnels.len(), 5);
}
