//! What adit seals, opened by others: scapy and tshark. A trial whose tool is missing says so and is
//! counted as ignored, or fails if `ADIT_REQUIRE_TOOLS` is set, as `.ci/run` does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod sealed;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, ExitCode, Output, Stdio};

use adit::wire::esp::{Algorithm, IvSeed, Keys, Outbound, Shape};
use adit::wire::{Ends, Family, checksum};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// One packet that adit has sealed, with all that it takes to open it.
struct Sealed {
    algorithm: Algorithm,
    key: Vec<u8>,
    spi: u32,
    esn: bool,
    sequence: u64,
    udp: bool,
    outer: Ends,
    /// A whole IP packet.
    packet: Vec<u8>,
    inner: Vec<u8>,
}

fn ends(local: &str, far: &str) -> Ends {
    Ends::new(local.parse().unwrap(), far.parse().unwrap()).unwrap()
}

/// The inner packets are the answers to probes that scapy made.
fn inner_packets() -> Vec<(Family, Vec<u8>)> {
    let fixtures = sealed::all();
    let fixture = fixtures.iter().find(|fixture| fixture.name == "accept-aes128-gcm").unwrap();
    fixture.packets[..5]
        .iter()
        .map(|packet| packet.outcome().unwrap())
        .map(|(family, inner, _)| (family, inner))
        .collect()
}

/// Each algorithm, numbers extended and not, in UDP and not, over and around both families; three
/// numbers of each.
fn sealed() -> Vec<Sealed> {
    let (mut all, inner_packets) = (Vec::new(), inner_packets());
    for variant in 0..Algorithm::ALL.len() * 8 {
        let bit = |at: usize| variant >> at & 1 == 1;
        let (algorithm, esn, udp) = (Algorithm::ALL[variant / 8], bit(0), bit(1));
        let outer = if bit(2) { ends("2001:db8::1", "2001:db8:1::2") } else { ends("192.0.2.1", "203.0.113.2") };
        let spi = 0x1000 + u32::try_from(variant).unwrap();
        let key: Vec<u8> = (0..algorithm.key_len()).map(|at| u8::try_from((at * 7 + variant) % 251).unwrap()).collect();
        let keys = Keys::new(algorithm, Zeroizing::new(key.clone())).unwrap();
        let outbound = Outbound::new(spi, esn, &keys, &IvSeed::new([0x5E; 16]));
        let numbers = if esn { [1, 0xFFFF_FFFF, 0x7_0000_0001] } else { [1, 0x8000_0000, 0xFFFF_FFFF] };
        for (at, sequence) in (variant..).zip(numbers) {
            let (family, inner) = inner_packets[at % inner_packets.len()].clone();
            let packet = seal(&outbound, Shape::new(algorithm, udp), outer, sequence, family, &inner);
            all.push(Sealed { algorithm, key: key.clone(), spi, esn, sequence, udp, outer, packet, inner });
        }
    }
    all
}

/// A whole IP packet.
fn seal(outbound: &Outbound, shape: Shape, outer: Ends, sequence: u64, family: Family, inner: &[u8]) -> Vec<u8> {
    let mut sealed = vec![0; shape.length(inner.len())];
    sealed[shape.inner_at()..][..inner.len()].copy_from_slice(inner);
    outbound.seal(shape, outer, sequence, family, inner.len(), &mut sealed);
    let length = u16::try_from(sealed.len()).unwrap();
    let mut packet = match outer {
        Ends::V4 { local, far } => {
            let [high, low] = (20 + length).to_be_bytes();
            let fields = [0x45, 0, high, low, 0, 1, 0x40, 0, 64, shape.protocol(), 0, 0];
            let mut header = [&fields[..], &local.octets(), &far.octets()].concat();
            let sum = checksum::of(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            header
        }
        Ends::V6 { local, far } => {
            let [high, low] = length.to_be_bytes();
            let fields = [0x60, 0, 0, 0, high, low, shape.protocol(), 64];
            [&fields[..], &local.octets(), &far.octets()].concat()
        }
    };
    packet.extend(sealed);
    packet
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A Python that has scapy: that of the path may be another one than Debian's.
fn python() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let import = "import scapy.layers.ipsec, cryptography";
        Command::new(python).args(["-c", import]).output().is_ok_and(|output| output.status.success())
    })
}

fn scapy_opens_what_adit_seals(python: &str) {
    let all = sealed();
    let questions: Vec<Value> = all
        .iter()
        .map(|sealed| {
            json!({
                "algorithm": sealed.algorithm.name(), "key": hex(&sealed.key), "spi": sealed.spi, "esn": sealed.esn,
                "sequence": sealed.sequence, "udp": sealed.udp, "packet": hex(&sealed.packet),
            })
        })
        .collect();
    let mut child = Command::new(python)
        .args(["fixtures/esp/generate.py", "--open"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(&questions).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let answers: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answers.len(), all.len());
    for (sealed, answer) in all.iter().zip(answers) {
        let what = (sealed.algorithm, sealed.esn, sealed.udp, sealed.outer, sealed.sequence);
        assert_eq!(answer, hex(&sealed.inner), "{what:?}");
    }
}

/// A capture of raw IP packets.
fn capture(packets: &[&Sealed]) -> Vec<u8> {
    const RAW_IP: u32 = 101;
    let mut file: Vec<u8> = [0xA1B2_C3D4_u32, 2 << 16 | 4, 0, 0, 65_535, RAW_IP].map(u32::to_be_bytes).concat();
    for sealed in packets {
        let length = u32::try_from(sealed.packet.len()).unwrap();
        file.extend([0, 0, length, length].map(u32::to_be_bytes).concat());
        file.extend(&sealed.packet);
    }
    file
}

/// An association as a line of tshark's table.
fn line(sealed: &Sealed) -> String {
    let hmac = "HMAC-SHA-256-128 [RFC4868]";
    let (encryption, authentication) = match sealed.algorithm {
        Algorithm::Aes128CbcHmacSha256 | Algorithm::Aes256CbcHmacSha256 => ("AES-CBC [RFC3602]", hmac),
        Algorithm::NullHmacSha256 => ("NULL", hmac),
        Algorithm::Aes128Gcm | Algorithm::Aes256Gcm => ("AES-GCM with 16 octet ICV [RFC4106]", "NULL"),
        Algorithm::ChaCha20Poly1305 => (CHACHA, "NULL"),
    };
    let tail = if authentication == hmac { 32 } else { 0 };
    let (key, authentication_key) = sealed.key.split_at(sealed.key.len() - tail);
    let key_field = |bytes: &[u8]| if bytes.is_empty() { String::new() } else { format!("0x{}", hex(bytes)) };
    let family = if sealed.outer.family() == Family::V4 { "IPv4" } else { "IPv6" };
    let (from, to) = (sealed.outer.local().to_string(), sealed.outer.far().to_string());
    let spi = format!("{:#010x}", sealed.spi);
    let (key, authentication_key) = (key_field(key), key_field(authentication_key));
    let fields = [family, &from, &to, &spi, encryption, &key, authentication, &authentication_key];
    format!("uat:esp_sa:\"{}\"", fields.join("\",\""))
}

const CHACHA: &str = "ChaCha20 with Poly1305 [RFC7634]";

/// What tshark makes of these packets: a line for each, its fields between bars.
fn tshark(packets: &[&Sealed]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture(packets)).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file.path()).args(["-T", "fields", "-E", "separator=|"]);
    command.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    command.args(["-o", "esp.enable_encryption_decode:TRUE", "-o", "esp.enable_authentication_check:TRUE"]);
    command.args(["-o", "udp.check_checksum:TRUE"]);
    let lines: BTreeSet<String> = packets.iter().map(|sealed| line(sealed)).collect();
    command.args(lines.iter().flat_map(|line| ["-o", line]));
    command.output().unwrap()
}

const FIELDS: [&str; 8] = [
    "esp.spi",
    "esp.sequence",
    "esp.protocol",
    "esp.icv_good",
    "icmp.checksum.status",
    "icmpv6.checksum.status",
    "udp.checksum.status",
    "data.data",
];

fn tshark_shows_what_is_inside(chacha: bool) {
    let all = sealed();
    let of = |sealed: &&Sealed| (sealed.algorithm == Algorithm::ChaCha20Poly1305) == chacha;
    let packets: Vec<&Sealed> = all.iter().filter(of).collect();
    let output = tshark(&packets);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    compare(&packets, &String::from_utf8(output.stdout).unwrap());
}

fn tshark_knows_chacha() -> bool {
    let all = sealed();
    let sealed = all.iter().find(|sealed| sealed.algorithm == Algorithm::ChaCha20Poly1305).unwrap();
    tshark(&[sealed]).status.success()
}

fn compare(packets: &[&Sealed], lines: &str) {
    assert_eq!(packets.len(), lines.lines().count());
    for (sealed, line) in packets.iter().zip(lines.lines()) {
        let what = format!("{:?}, extended: {}, UDP: {}: {line}", sealed.algorithm, sealed.esn, sealed.udp);
        let found: Vec<&str> = line.split('|').collect();
        let v4 = sealed.inner[0] >> 4 == 4;
        assert_eq!(found[0], format!("{:#010x}", sealed.spi), "{what}");
        assert_eq!(found[1], (sealed.sequence & 0xFFFF_FFFF).to_string(), "{what}");
        assert_eq!(found[2], if v4 { "0x04" } else { "0x29" }, "{what}");
        // It has no place where the upper half of a number could be told (4.0), so only decrypts.
        assert!(sealed.esn || found[3] == "1", "the ICV, {what}");
        assert_eq!(found[if v4 { 4 } else { 5 }], "1", "the ICMP checksum, {what}");
        let sum = if !sealed.udp {
            ""
        } else if sealed.outer.family() == Family::V4 {
            "3"
        } else {
            "1"
        };
        assert_eq!(found[6], sum, "the UDP checksum, {what}");
        // Behind the headers of IP and ICMP.
        let payload = &sealed.inner[if v4 { 20 } else { 40 } + 8..];
        assert_eq!(found[7], hex(payload), "{what}");
    }
}

/// A trial, which is ignored or fails where its tool is missing.
fn trial(name: &str, missing: Option<&str>, run: impl FnOnce() + Send + 'static) -> Trial {
    let Some(missing) = missing else {
        return Trial::test(name, move || {
            run();
            Ok(())
        });
    };
    let reason = format!("{name}: NOT CHECKED, there is no {missing}");
    eprintln!("{reason}");
    let required = std::env::var_os("ADIT_REQUIRE_TOOLS").is_some();
    Trial::test(name, || Err(Failed::from(reason))).with_ignored_flag(!required)
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let (python, tshark) = (python(), Command::new("tshark").arg("--version").output().is_ok());
    let missing = python.is_none().then_some("Python with scapy (python3-scapy, python3-cryptography)");
    let scapy = move || scapy_opens_what_adit_seals(python.unwrap_or_default());
    let mut trials = vec![
        trial("scapy_opens_what_adit_seals", missing, scapy),
        trial("tshark_shows_what_is_inside", (!tshark).then_some("tshark"), || tshark_shows_what_is_inside(false)),
    ];
    // Version 4.0, Debian 12's, does not; and then nothing can be asked of it.
    let name = "tshark_shows_what_is_inside_chacha20_poly1305";
    if tshark && tshark_knows_chacha() {
        trials.push(trial(name, None, || tshark_shows_what_is_inside(true)));
    } else {
        eprintln!("{name}: NOT CHECKED, there is no tshark that knows it");
        trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
