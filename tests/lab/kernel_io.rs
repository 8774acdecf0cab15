//! Sending through the kernel's own tunnel devices.

use std::fs::File;
use std::io;
use std::net::IpAddr;

use adit::io::device::{self, DeviceSender};
use adit::io::netns;
use adit::wire::payload::{Fields, Key, Secret};
use adit::wire::probe::{Stamp, Template};
use adit::wire::{Direction, Encapsulation, Ends, Onion, Style};
use libtest_mimic::{Failed, Trial};
use nix::errno::Errno;

use crate::kinds::{KINDS, Kind, kind};
use crate::two::{Tap, Two, index};

pub(crate) fn trials() -> Vec<Trial> {
    let through = |kind: &Kind| {
        let kind = *kind;
        trial(kind, format!("probes_leave_through_a_{}_device_and_arrive_whole", kind.name), move || leave(kind))
    };
    let mut trials: Vec<Trial> = KINDS.iter().filter(|kind| kind.name != "gretap").map(through).collect();
    trials.extend(["gre", "vti", "xfrm", "wireguard"].map(|name| {
        let kind = kind(name);
        trial(kind, format!("a_{name}_device_takes_probes_that_no_route_leads_to"), move || no_route(kind))
    }));
    let gre = |name: &str, test: fn() -> Result<(), Failed>| trial(kind("gre"), name.to_owned(), test);
    trials.extend([
        gre("a_device_that_is_down_or_gone_refuses_and_an_up_one_takes_at_once", down_and_gone),
        gre("a_device_that_takes_no_bare_packets_is_refused_at_opening", refused),
        trial(kind("wireguard"), "wireguard_says_that_a_destination_is_no_peer's".to_owned(), no_peer),
    ]);
    trials
}

/// A trial that needs a kind of device. Only the kernel of the lab's second back end must have all
/// of them.
pub(crate) fn trial(kind: Kind, name: String, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    let set = |name, value: &str| std::env::var(name).is_ok_and(|set| value.is_empty() || set == value);
    let required = set("ADIT_REQUIRE_LAB", "") && set("ADIT_LAB_BACKEND", "qemu");
    let missing = if required || !matches!(kind.name, "xfrm" | "wireguard") { None } else { kind.missing() };
    if let Some(reason) = &missing {
        eprintln!("lab: skipped: {name}: {}", reason.lines().next_back().unwrap_or_default());
    }
    Trial::test(name, test).with_ignored_flag(missing.is_some())
}

/// A probe's inner packet, with its source and destination.
pub(crate) struct Packet {
    ends: [IpAddr; 2],
    bytes: Vec<u8>,
}

/// A probe as the engine makes it.
pub(crate) fn probe(style: adit::wire::Kind, inner: [&str; 2]) -> Result<Packet, Failed> {
    let ends = |[here, there]: [&str; 2]| Ends::new(here.parse().ok()?, there.parse().ok()?);
    let (outer, inner) = ends(["192.0.2.1", "192.0.2.2"]).zip(ends(inner)).ok_or("wrong addresses")?;
    let style = Style { kind: style, direction: Direction::Bidirectional };
    let onion = Onion { style, outer, encapsulation: Encapsulation::Device, inner, ttl: 64, dscp: 48, size: 72 };
    let secret = Secret { key: Key::new([7; 16]), epoch: 1 };
    let fields = Fields { tunnel: 0, sequence: 1, sent: 1 };
    let mut bytes = vec![0; 512];
    let stamp = Stamp { fields, identifier: 1, ip_id: 1 };
    let length = Template::new(&onion).emit(&stamp, &secret, None, &mut bytes).ok_or("too short")?;
    let ends = match style.kind {
        adit::wire::Kind::Request => [inner.local(), inner.far()],
        adit::wire::Kind::Reply => [inner.far(), inner.local()],
    };
    Ok(Packet { ends, bytes: bytes[..length].to_vec() })
}

pub(crate) const INNER: [[&str; 2]; 2] = [["10.9.0.0", "10.9.0.1"], ["fd00:9::", "fd00:9::1"]];
pub(crate) const STYLES: [adit::wire::Kind; 2] = [adit::wire::Kind::Request, adit::wire::Kind::Reply];

pub(crate) fn open(namespace: &File, name: &str) -> io::Result<DeviceSender> {
    netns::within(Some(namespace), || device::open(name, false))
}

/// What the kernel says to one packet.
pub(crate) fn send(sender: &DeviceSender, packet: &Packet) -> Result<(), Errno> {
    let mut result = Ok(());
    sender.send(&[(packet.ends[1], &packet.bytes)], |_, error| result = Err(error));
    result
}

/// Sends each style in each inner family the kind has, and finds each twice at the far side: on the
/// wire, encapsulated or sealed, and out of the tunnel device, as it was sent. What the device would
/// not let out must be known before; it gets out once the address is elsewhere.
fn leave(kind: Kind) -> Result<(), Failed> {
    let two = Two::new()?;
    kind.join(&two)?;
    let sender = open(&two.near, "tun9")?;
    assert_eq!(sender.index(), index(&two.near, "tun9")?);
    let mut kept = Vec::new();
    for &v6 in kind.inner {
        for style in STYLES {
            let packet = probe(style, INNER[usize::from(v6)])?;
            match withheld(&two, &packet)? {
                Some(_) => kept.push((style, v6)),
                None => arrives(kind, &two, &sender, &packet)?,
            }
        }
    }
    let expected = if kind.name.starts_with("vti") { vec![(STYLES[1], false)] } else { Vec::new() };
    assert_eq!(kept, expected);
    for (style, v6) in kept {
        let packet = probe(style, INNER[usize::from(v6)])?;
        assert_eq!(dropped(&two, &sender, &packet)?, 1, "what is withheld is dropped");
        two.near("ip addr flush dev tun9; ip addr add 10.9.0.0/32 dev lo; ip route add 10.9.0.1/32 dev tun9")?;
        assert_eq!(withheld(&two, &packet)?, None);
        arrives(kind, &two, &sender, &packet)?;
    }
    nothing_is_received(&two.near)
}

/// Sends a packet and finds it at the far side.
fn arrives(kind: Kind, two: &Two, sender: &DeviceSender, packet: &Packet) -> Result<(), Failed> {
    let (tun, wire) = (index(&two.far, "tun9")?, index(&two.far, "wire")?);
    let tap = Tap::open(&two.far)?;
    let (to, inner) = (packet.ends[1], &packet.bytes);
    let what = format!("to {to} through {}", kind.name);
    send(sender, packet).map_err(|error| format!("{what}: {error}"))?;
    tap.find(wire, &format!("{what}, on the wire"), |outer| {
        let protocol = if outer[0] >> 4 == 4 { outer[9] } else { outer[6] };
        // Of WireGuard's messages only those of type 4 carry anything.
        let carries =
            protocol == kind.protocol && outer.len() >= inner.len() + 20 && (protocol != 17 || outer[28] == 4);
        carries && outer.ends_with(inner) != kind.sealed
    })?;
    tap.find(tun, &format!("{what}, out of the device"), |packet| packet == inner)?;
    Ok(())
}

fn withheld(two: &Two, packet: &Packet) -> io::Result<Option<&'static str>> {
    let [source, destination] = packet.ends;
    netns::within(Some(&two.near), || device::withheld("tun9", source, destination))
}

/// How many packets the device has dropped for want of a way by one that the kernel took.
fn dropped(two: &Two, sender: &DeviceSender, packet: &Packet) -> Result<u64, Failed> {
    let count = || {
        let table = netns::within(Some(&two.near), || std::fs::read_to_string("/proc/thread-self/net/dev"))?;
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix("tun9:"));
        let number = line.and_then(|line| line.split_whitespace().nth(14)?.parse().ok());
        number.ok_or_else(|| Failed::from(format!("no carrier errors of tun9 in {table}")))
    };
    let before: u64 = count()?;
    send(sender, packet)?;
    Ok(count()? - before)
}

/// No packet socket of a namespace has a protocol, so none gets anything (packet(7)).
fn nothing_is_received(namespace: &File) -> Result<(), Failed> {
    let table = netns::within(Some(namespace), || std::fs::read_to_string("/proc/thread-self/net/packet"))?;
    let protocols: Vec<_> = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(3)).collect();
    if protocols == ["0000"] { Ok(()) } else { Err(format!("not one deaf socket: {table}").into()) }
}

/// The device has no address and no route, and what it is to carry goes to nowhere or to this host.
fn no_route(kind: Kind) -> Result<(), Failed> {
    let two = Two::new()?;
    kind.join(&two)?;
    two.near("ip addr flush dev tun9; ip addr add 10.9.0.0/32 dev lo; ip addr add fd00:9::/128 dev lo nodad")?;
    let sender = open(&two.near, "tun9")?;
    for inner in INNER {
        for style in STYLES {
            let packet = probe(style, inner)?;
            let seals_by_route = matches!(kind.name, "vti" | "xfrm");
            if seals_by_route && packet.ends[1].to_string() == INNER[1][1] {
                assert!(withheld(&two, &packet)?.is_some());
                assert_eq!(dropped(&two, &sender, &packet)?, 1, "what is withheld is dropped");
            } else {
                assert_eq!(withheld(&two, &packet)?, None);
                arrives(kind, &two, &sender, &packet)?;
            }
        }
    }
    Ok(())
}

fn down_and_gone() -> Result<(), Failed> {
    let two = Two::new()?;
    kind("gre").join(&two)?;
    let (sender, packet) = (open(&two.near, "tun9")?, probe(STYLES[1], INNER[0])?);
    assert_eq!(send(&sender, &packet), Ok(()));
    two.near("ip link set tun9 down")?;
    assert_eq!(send(&sender, &packet), Err(Errno::ENETDOWN));
    assert_eq!(open(&two.near, "tun9")?.index(), sender.index(), "a device that is down can be opened");
    two.near("ip link set tun9 up")?;
    assert_eq!(send(&sender, &packet), Ok(()), "nothing is left of the time when it was down");
    let long = [packet.bytes.as_slice(), &[0; 1_500]].concat();
    let mut refused = Vec::new();
    let batch = [&packet.bytes, &long, &packet.bytes].map(|bytes| (packet.ends[1], bytes.as_slice()));
    sender.send(&batch, |place, error| refused.push((place, error)));
    assert_eq!(refused, [(1, Errno::EMSGSIZE)]);

    two.near("ip link del tun9")?;
    assert_eq!(send(&sender, &packet), Err(Errno::ENXIO));
    let missing = open(&two.near, "tun9").err().ok_or("opened a device that is gone")?;
    assert_eq!((missing.kind(), missing.to_string().contains("no device tun9")), (io::ErrorKind::NotFound, true));
    two.near("ip link add tun9 type gre local 192.0.2.1 remote 192.0.2.2 ttl 64; ip link set tun9 up")?;
    assert_eq!(send(&sender, &packet), Err(Errno::ENXIO), "another device, though of the same name");
    let again = open(&two.near, "tun9")?;
    assert_ne!(again.index(), sender.index());
    let (tap, t) = (Tap::open(&two.far)?, index(&two.far, "tun9")?);
    assert_eq!(send(&again, &packet), Ok(()));
    tap.find(t, "the inner packet", |arrived| arrived == packet.bytes)?;
    Ok(())
}

fn refused() -> Result<(), Failed> {
    let two = Two::new()?;
    kind("gretap").join(&two)?;
    two.near(
        "ip link add any4 type gre local 192.0.2.1 key 7
         ip link add any6 type ip6gre local 2001:db8::1 key 7
         ip link add multi4 type gre local 192.0.2.1 remote 239.0.0.1
         ip link add loose6 type ip6gre remote 2001:db8::2
         modprobe tun || true; ip tuntap add tun8 mode tun; ip tuntap add tap8 mode tap",
    )?;
    let cases = [
        ("tun9", "Ethernet-like"),
        ("wire", "Ethernet-like"),
        ("lo", "no layer-3 tunnel"),
        ("any4", "fixed endpoints"),
        ("any6", "fixed endpoints"),
        ("multi4", "fixed endpoints"),
        ("loose6", "fixed endpoints"),
        ("tap8", "Ethernet-like"),
    ];
    for (name, reason) in cases {
        let error = open(&two.near, name).err().ok_or_else(|| format!("{name} was opened"))?;
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}: {error}");
        assert!(error.to_string().contains(reason), "{name}: {error}");
    }
    open(&two.near, "tun8")?;
    Ok(())
}

fn no_peer() -> Result<(), Failed> {
    let two = Two::new()?;
    kind("wireguard").join(&two)?;
    let sender = open(&two.near, "tun9")?;
    assert_eq!(send(&sender, &probe(STYLES[0], ["10.9.0.0", "10.10.0.1"])?), Err(Errno::ENOKEY));
    two.near(
        "peer=$(wg show tun9 peers); wg set tun9 peer $peer remove
         wg set tun9 peer $peer allowed-ips 10.9.0.0/31",
    )?;
    assert_eq!(send(&sender, &probe(STYLES[0], INNER[0])?), Err(Errno::EDESTADDRREQ));
    Ok(())
}
