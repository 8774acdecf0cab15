//! IPsec tunnels: security associations and policies of the kernel's at the router, associations of
//! adit's own at this side.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use adit::daemon::plan::{Exit, Plan};
use adit::engine::health::Rules;
use adit::engine::settings::{Check, ReturnPath, Source, Terms, Timeout};
use adit::engine::{Material, Tunnel};
use adit::io::raw::Leaving;
use adit::wire::esp::{Algorithm, Keys, Shape};
use adit::wire::{Direction, Encapsulation, Ends, Family, Onion, Style, payload};
use libtest_mimic::Failed;
use zeroize::Zeroizing;

use crate::encapsulation::take_out_of_udp;
use crate::router::{Addresses, Lab, Net, address, addresses, whole};

#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) style: Style,
    pub(crate) algorithm: Algorithm,
    pub(crate) outer: Family,
    pub(crate) inner: Family,
    pub(crate) esn: bool,
    pub(crate) udp: bool,
    /// Size of this side's replay window.
    pub(crate) window: u32,
    /// What this side has otherwise than the router.
    pub(crate) wrong: Wrong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Nothing,
    KeyOut,
    KeyIn,
    SpiOut,
    SpiIn,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { style, algorithm, outer, inner, esn, udp, window, wrong } = self;
        let name = algorithm.name();
        write!(f, "{style:?} {name} {inner:?} in {outer:?}, ESN {esn}, UDP {udp}, window {window}, wrong: {wrong:?}")
    }
}

/// The plainest of a style.
pub(crate) const fn plain(style: Style) -> Case {
    Case {
        style,
        algorithm: Algorithm::Aes256Gcm,
        outer: Family::V4,
        inner: Family::V4,
        esn: true,
        udp: false,
        window: 64,
        wrong: Wrong::Nothing,
    }
}

/// Which of a tunnel's pairs of associations: each has keys and SPIs of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    First,
    Second,
}

/// How often probes leave, and how long their answers may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// For many tunnels: an answer may be slow, but not late.
    Patient,
    /// For what is to be found out soon.
    Brisk,
}

/// A lab and what holds port 4500 open at its router.
pub(crate) struct Ipsec {
    pub(crate) lab: Lab,
    pub(crate) cases: Vec<Case>,
    _encapsulation: Vec<OwnedFd>,
}

impl Ipsec {
    pub(crate) fn new(cases: &[Case], pace: Pace) -> Result<Self, Failed> {
        Self::prepared(cases, pace, |_| Ok(()))
    }

    /// With something done in the near namespace before the prober starts.
    pub(crate) fn prepared(
        cases: &[Case],
        pace: Pace,
        prepare: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<Self, Failed> {
        let net = router(cases)?;
        prepare(&net.near)?;
        let encapsulation = take_out_of_udp(&net)?;
        let lab = Lab::start(net, cases.iter().map(Case::to_string).collect(), plan(cases, pace))?;
        Ok(Self { lab, cases: cases.to_vec(), _encapsulation: encapsulation })
    }
}

/// A router with associations and policies for all tunnels.
pub(crate) fn router(cases: &[Case]) -> Result<Net, Failed> {
    let net = Net::new(ROUTER)?;
    let far: String = (1..).zip(cases).map(|(number, case)| far(number, case)).collect();
    net.router_batch(&far)?;
    Ok(net)
}

/// What holds for all tunnels of the router. A policy has no device of its own, so what was sealed
/// arrives by `wan`. A route to the inner addresses must be there before a policy is looked for.
const ROUTER: &str = "
echo 1 > /proc/sys/net/ipv4/conf/wan/accept_local
echo 0 > /proc/sys/net/ipv4/conf/wan/rp_filter
ip route add 10.10.0.0/16 via 192.0.2.1 dev wan
ip -6 route add fd00::/16 via 2001:db8::1 dev wan
";

/// The router's side of one tunnel, for `ip -batch`.
fn far(number: usize, case: &Case) -> String {
    let Addresses { outer: [_, o], inner: [_, t1], .. } = of(number, case);
    let (o_length, t1_length) = (whole(case.outer), whole(case.inner));
    let mut lines = format!("addr replace {o}/{o_length} dev wan nodad\naddr replace {t1}/{t1_length} dev wan nodad\n");
    lines.push_str(&states(number, case, Turn::First));
    for direction in POLICIES {
        lines.push_str(&policy("add", direction, number, case).unwrap_or_default());
    }
    lines
}

/// The router's associations for one tunnel: the inbound one, then the outbound one.
pub(crate) fn states(number: usize, case: &Case, turn: Turn) -> String {
    let Addresses { outer: [p, o], .. } = of(number, case);
    let esn = if case.esn { " esn" } else { "" };
    let encapsulation = if case.udp { " encap espinudp 4500 4500 0.0.0.0" } else { "" };
    let state = |from: &str, to: &str, spi: u32, key: &[u8]| {
        format!(
            "xfrm state add src {from} dst {to} proto esp spi {spi:#x} reqid {number} mode tunnel \
             flag af-unspec{esn} replay-window 64 {}{encapsulation}\n",
            algorithm(case.algorithm, key)
        )
    };
    state(&p, &o, spi_out(number, turn), &key(case.algorithm, number, Whose::Prober(turn)))
        + &state(&o, &p, spi_in(number, turn), &key(case.algorithm, number, Whose::Router(turn)))
}

/// The directions in which a tunnel can have a policy.
pub(crate) const POLICIES: [&str; 3] = ["in", "fwd", "out"];

/// One policy of a tunnel, for `ip xfrm policy add` or `delete`: what lets a request (`in`) or a reply
/// (`fwd`) in, and what seals the answer. The answers of unidirectional styles are not sealed; between
/// public addresses other traffic may go bare.
pub(crate) fn policy(verb: &str, direction: &str, number: usize, case: &Case) -> Option<String> {
    let Addresses { outer: [p, o], inner: [t0, t1], .. } = of(number, case);
    let length = whole(case.inner);
    let is_public = case.style.direction == Direction::Unidirectional;
    let (from, to) = match direction {
        "in" => (&t0, &t1),
        "out" if is_public => return None,
        _ => (&t1, &t0),
    };
    let selector = format!("xfrm policy {verb} src {from}/{length} dst {to}/{length} dir {direction}");
    if verb == "delete" {
        return Some(format!("{selector}\n"));
    }
    let (outer_from, outer_to) = if direction == "out" { (&o, &p) } else { (&p, &o) };
    let level = if is_public { " level use" } else { "" };
    Some(format!("{selector} tmpl src {outer_from} dst {outer_to} proto esp reqid {number} mode tunnel{level}\n"))
}

/// An algorithm as `ip xfrm` wants it.
fn algorithm(algorithm: Algorithm, key: &[u8]) -> String {
    let aead = |name| format!("aead {name} 0x{} 128", hex(key));
    let hmac = |cipher, cipher_len| {
        let (cipher_key, hmac_key) = key.split_at(cipher_len);
        let cipher_key = if cipher_key.is_empty() { "\"\"".to_owned() } else { format!("0x{}", hex(cipher_key)) };
        format!("auth-trunc hmac(sha256) 0x{} 128 enc {cipher} {cipher_key}", hex(hmac_key))
    };
    match algorithm {
        Algorithm::Aes128Gcm | Algorithm::Aes256Gcm => aead("rfc4106(gcm(aes))"),
        Algorithm::ChaCha20Poly1305 => aead("rfc7539esp(chacha20,poly1305)"),
        Algorithm::Aes128CbcHmacSha256 => hmac("cbc(aes)", 16),
        Algorithm::Aes256CbcHmacSha256 => hmac("cbc(aes)", 32),
        Algorithm::NullHmacSha256 => hmac("ecb(cipher_null)", 0),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The two keys of a tunnel as they stand in files: the prober's, then the router's.
pub(crate) fn key_files(number: usize, case: &Case) -> [String; 2] {
    [Whose::Prober(Turn::First), Whose::Router(Turn::First)].map(|whose| hex(&key(case.algorithm, number, whose)))
}

pub(crate) fn spi_out(number: usize, turn: Turn) -> u32 {
    spi(0x1000, number, turn)
}

pub(crate) fn spi_in(number: usize, turn: Turn) -> u32 {
    spi(0x2000, number, turn)
}

fn spi(first: u32, number: usize, turn: Turn) -> u32 {
    let fresh = match turn {
        Turn::First => 0,
        Turn::Second => 0x8_0000,
    };
    first + fresh + u32::try_from(number).unwrap_or(0)
}

/// By whom a key is sealed with.
#[derive(Clone, Copy)]
enum Whose {
    Prober(Turn),
    Router(Turn),
    Nobody,
}

/// A key of its own for each tunnel, each turn and whose it is.
fn key(algorithm: Algorithm, number: usize, whose: Whose) -> Vec<u8> {
    let [number, ..] = number.to_le_bytes();
    let whose = match whose {
        Whose::Prober(Turn::First) => 0,
        Whose::Router(Turn::First) => 1,
        Whose::Prober(Turn::Second) => 2,
        Whose::Router(Turn::Second) => 3,
        Whose::Nobody => 4,
    };
    (0..).take(algorithm.key_len()).map(|at: u8| at.wrapping_mul(37) ^ number ^ (whose << 5)).collect()
}

pub(crate) fn of(number: usize, case: &Case) -> Addresses {
    addresses(number, case.outer, case.inner, case.style.direction)
}

/// This side of all tunnels.
fn plan(cases: &[Case], pace: Pace) -> Plan {
    let leaving = |family| (0, Exit::Raw(Leaving { family, device: None, mark: 0, source: None }));
    Plan {
        bearings: std::collections::BTreeMap::new(),
        fail_static: None,
        endpoints: Vec::new(),
        steering: None,
        tunnels: (1..).zip(cases).map(|(number, case)| tunnel(number, case, pace)).collect(),
        routes: Vec::new(),
        places: Vec::new(),
        namespaces: vec![None],
        egresses: vec![leaving(Family::V4), leaving(Family::V6)],
        material: (0..)
            .zip((1..).zip(cases))
            .map(|(index, (number, case))| (index, material(number, case, Turn::First)))
            .collect(),
        state_dir: None,
        access: None,
        record: None,
        epoch: 0,
    }
}

/// This side's associations.
pub(crate) fn material(number: usize, case: &Case, turn: Turn) -> Material {
    let key = |whose| {
        let bytes = Zeroizing::new(key(case.algorithm, number, whose));
        Keys::new(case.algorithm, bytes).unwrap_or_else(|| unreachable!("of the right length"))
    };
    let spi = |spi, is_wrong| if is_wrong { spi + 0x8000 } else { spi };
    Material {
        spi_out: spi(spi_out(number, turn), case.wrong == Wrong::SpiOut),
        spi_in: spi(spi_in(number, turn), case.wrong == Wrong::SpiIn),
        key_out: key(if case.wrong == Wrong::KeyOut { Whose::Nobody } else { Whose::Prober(turn) }),
        key_in: key(if case.wrong == Wrong::KeyIn { Whose::Nobody } else { Whose::Router(turn) }),
        esn: case.esn,
        replay_window: case.window,
    }
}

fn tunnel(number: usize, case: &Case, pace: Pace) -> Tunnel {
    let Addresses { outer, inner, .. } = of(number, case);
    Tunnel {
        name: format!("t{number}"),
        onion: Onion {
            style: case.style,
            outer: ends(&outer),
            encapsulation: Encapsulation::Esp(Shape::new(case.algorithm, case.udp)),
            inner: ends(&inner),
            ttl: 64,
            dscp: 48,
            size: u16::try_from(payload::LEN).unwrap_or(0),
        },
        check: check(pace),
        namespace: 0,
        egress: match case.outer {
            Family::V4 => 0,
            Family::V6 => 1,
        },
        terms: Some(Terms { source: Source::Installed, esn: case.esn, replay_window: case.window }),
        exit: 0,
        interface: None,
        targets: None,
    }
}

pub(crate) fn check(pace: Pace) -> Check {
    let [interval, timeout, down_window] = match pace {
        Pace::Patient => [1_000, 900, 2_500],
        Pace::Brisk => [300, 250, 450],
    }
    .map(Duration::from_millis);
    Check {
        enabled: true,
        interval,
        timeout: Timeout::Fixed(timeout),
        early_retry: true,
        return_path: ReturnPath::Strict,
        mark_key: None,
        rules: Rules { down_window, ..Rules::default() },
    }
}

pub(crate) fn ends([local, far]: &[String; 2]) -> Ends {
    Ends::new(address(local), address(far)).unwrap_or_else(|| unreachable!("of one family"))
}
