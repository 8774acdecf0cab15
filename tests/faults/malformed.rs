//! Packets that contradict themselves, made of answers that would be taken.

use std::io::Read;

use adit::io::netns;
use adit::wire::probe::{self, Arrived, Outermost};
use adit::wire::{checksum, ip};
use socket2::{Domain, Socket, Type};

use crate::by_hand::{Injector, Packet, Puppet, Tap};
use crate::crowd::health;
use crate::kit::{PATIENCE, eventually, uninterrupted};
use crate::sealed;
use crate::site::Site;
use crate::table::{Row, row};

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row(
            "fault_10_gre_headers_that_are_wrong_are_refused_and_end_nothing",
            "refused by the filter in the kernel or by the parser, counted where the parser sees them, and no panic",
            || refused(GRE_WRONGS),
        ),
        row("fault_11_inner_packets_that_are_wrong_are_refused_and_end_nothing", "the same", || refused(INNER_WRONGS)),
        row(
            "fault_12_esp_that_is_wrong_is_refused_and_does_not_move_the_replay_window",
            "refused and counted; what does not open moves no window, so the true answers go on being taken",
            esp,
        ),
    ]
}

/// Where things are in an answer: IPv4, GRE without options, IPv4, ICMP.
const GRE: usize = 20;
const INNER: usize = 24;
const MESSAGE: usize = 44;

/// What is wrong, and how to do that to an answer. Outer lengths and checksums are put right afterwards.
type Wrong = (&'static str, fn(&mut Vec<u8>));

const GRE_WRONGS: &[Wrong] = &[
    ("routing bit", |bytes| bytes[GRE] |= 0x40),
    ("strict source route bit", |bytes| bytes[GRE] |= 0x08),
    ("recursion control", |bytes| bytes[GRE] |= 0x07),
    ("version 1", |bytes| bytes[GRE + 1] |= 1),
    ("version 7", |bytes| bytes[GRE + 1] |= 7),
    ("checksum, key and sequence announced, and nothing behind", |bytes| {
        bytes[GRE] |= 0xB0;
        bytes.truncate(GRE + 6);
    }),
    ("a checksum announced that is none", |bytes| {
        bytes[GRE] |= 0x80;
        bytes.splice(INNER..INNER, [0x12, 0x34, 0, 0]);
    }),
    ("a key that nobody has", |bytes| {
        bytes[GRE] |= 0x20;
        bytes.splice(INNER..INNER, [0, 0, 0x12, 0x67]);
    }),
    ("another protocol", |bytes| bytes[GRE + 2..GRE + 4].copy_from_slice(&[0x65, 0x58])),
    ("the other family", |bytes| bytes[GRE + 2..GRE + 4].copy_from_slice(&[0x86, 0xDD])),
    ("half a header", |bytes| bytes.truncate(GRE + 2)),
    ("no header", |bytes| bytes.truncate(GRE)),
];

const INNER_WRONGS: &[Wrong] = &[
    ("header length below the least", |bytes| bytes[INNER] = 0x44),
    ("header length beyond the end", |bytes| {
        bytes[INNER] = 0x4F;
        bytes.truncate(INNER + 40);
    }),
    ("no header length", |bytes| bytes[INNER] = 0x40),
    ("options where there are none", |bytes| bytes[INNER] = 0x46),
    ("version 6", |bytes| bytes[INNER] = 0x65),
    ("longer than the packet", |bytes| bytes[INNER + 2..INNER + 4].copy_from_slice(&[0x40, 0])),
    ("shorter than its header", |bytes| bytes[INNER + 2..INNER + 4].copy_from_slice(&[0, 8])),
    ("of no length", |bytes| bytes[INNER + 2..INNER + 4].fill(0)),
    ("more fragments", |bytes| bytes[INNER + 6] |= 0x20),
    ("a later fragment", |bytes| bytes[INNER + 7] = 9),
    ("a wrong header checksum", |bytes| bytes[INNER + 10] ^= 0xFF),
    ("another protocol", |bytes| bytes[INNER + 9] = ip::ICMPV6),
    ("a code where there is none", |bytes| bytes[MESSAGE + 1] = 1),
    ("a wrong ICMP checksum", |bytes| bytes[MESSAGE + 2] ^= 0xFF),
    ("half a message", |bytes| bytes.truncate(MESSAGE + 4)),
    ("half a payload", |bytes| bytes.truncate(MESSAGE + 40)),
    ("another magic", |bytes| bytes[MESSAGE + 8] ^= 0x20),
    ("another version of ours", |bytes| bytes[MESSAGE + 12] += 1),
    ("nothing", |bytes| bytes.truncate(INNER)),
];

/// A packet with this wrong, whose outer header is right.
fn spoil(answer: &[u8], (_, spoil): &Wrong) -> Vec<u8> {
    let mut bytes = answer.to_vec();
    spoil(&mut bytes);
    let length = u16::try_from(bytes.len()).unwrap();
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes[10..12].fill(0);
    let sum = checksum::of(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Far ends that make nothing but these of their answers: no tunnel comes up by them. And one that sends them
/// before each true answer: none minds.
fn refused(wrongs: &'static [Wrong]) {
    let site = Site::new();
    let daemon = site.daemon();
    let probe = Tap::open(&site.pair.far).take(1).remove(0);
    for wrong in wrongs {
        let bytes = spoil(&Packet::answer(&probe).outward().1, wrong);
        let parsed = probe::outermost(Arrived::V4(&bytes));
        // A key nobody has is no mistake of the packet's.
        let is_plain = matches!(parsed, Ok(Outermost::Plain(_)));
        assert_eq!(is_plain, wrong.0 == "a key that nobody has", "{}: {parsed:?}", wrong.0);
    }
    let far = Puppet::start(&site.pair.far, |probe| {
        let (to, answer) = Packet::answer(probe).outward();
        wrongs.iter().map(|wrong| (to, spoil(&answer, wrong))).collect()
    });
    site.await_state("ams-1", "down");
    let prober = daemon.prober();
    let counted = |name: &str| sum(&site, name);
    let before = counted("lost");
    eventually("more failures", || counted("lost") > before + 20);
    assert_eq!(counted("received"), 0);
    drop(far);
    let _far = Puppet::start(&site.pair.far, |probe| {
        let (to, answer) = Packet::answer(probe).outward();
        wrongs.iter().map(|wrong| (to, spoil(&answer, wrong))).chain([(to, answer.clone())]).collect()
    });
    // So none of the last ones was lost for what came before it.
    site.await_state("ams-1", "healthy");
    let rejected = health(&site)["rejected"].clone();
    let kinds = rejected.as_object().unwrap();
    assert!(kinds.len() >= 2 && !kinds.contains_key("duplicate"), "{rejected:#}");
    assert_eq!(daemon.prober(), prober, "it lives");
    assert!(!site.read("adit.conf.log").contains("panicked"));
}

fn sum(site: &Site, name: &str) -> u64 {
    let all: serde_json::Value = serde_json::from_str(&site.http("GET", "/v1/tunnels").2).unwrap();
    all["tunnels"].as_array().unwrap().iter().map(|view| view["counters"][name].as_u64().unwrap()).sum()
}

/// The far end's answers as they come, and what somebody makes of them who has no key.
fn esp() {
    const EACH: usize = 100;
    let site = sealed::site("static");
    let text = site.read("adit.conf").replace("\"400ms\"", "\"5s\"").replace("\"900ms\"", "\"12s\"");
    site.write("adit.conf", &text.replace("degraded_window = \"4s\"\n", ""));
    let _far = sealed::reflector(&site, true);
    let _daemon = site.daemon();
    site.say(&["sa", "begin", "ams-1"]);
    site.await_state("ams-1", "healthy");
    let answer = esp_answer(&site);
    let changed = |at: usize, value: u8| {
        let mut bytes = answer.clone();
        bytes[at] = value;
        bytes
    };
    let last = answer.len() - 1;
    let icv = changed(last, answer[last] ^ 1);
    // Behind the IP header and the SPI.
    let ahead = changed(24, 0x7F);
    let cut = spoil(&answer, &("half a packet", |bytes| bytes.truncate(40)));
    let injector = Injector::open(&site.pair.far);
    for packet in [&icv, &answer, &ahead, &cut] {
        let to = crate::kit::address(crate::kit::NEAR[0]);
        injector.send(&vec![(to, packet.clone()); EACH]);
    }
    let rejected = |reason: &str| health(&site)["rejected"][reason].as_u64().unwrap_or(0);
    let wanted = |reason, count: usize| rejected(reason) >= count.try_into().unwrap();
    eventually("all of them refused", || {
        wanted("esp-icv", 2 * EACH) && wanted("esp-replay", EACH) && wanted("esp-truncated", EACH)
    });
    let (received, lost) = (sum(&site, "received"), lost_of_esp(&site));
    eventually("more answers", || sum(&site, "received") > received + 20);
    assert_eq!((lost, lost_of_esp(&site)), (0, 0), "the window has moved");
    assert_eq!(site.entered(), ["healthy"]);
}

fn lost_of_esp(site: &Site) -> u64 {
    site.json(&["status", "ams-1", "--json"])["counters"]["lost"].as_u64().unwrap()
}

/// An ESP packet as it comes to the prober, from its IP header on.
fn esp_answer(site: &Site) -> Vec<u8> {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(50.into()));
    let socket = netns::within(Some(&site.pair.near), open).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = vec![0; 2_048];
    let length = uninterrupted(|| (&socket).read(&mut bytes)).unwrap();
    bytes.truncate(length);
    assert_eq!(bytes[12..16], [192, 0, 2, 11], "an answer of the far end");
    bytes
}
