//! Each leg of a tunnel made to fail, with real packets, and found.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;

use adit::daemon::plan::Plan;
use adit::engine::diagnose::conclude::{Culprit, End};
use adit::engine::diagnose::findings::{Longer, Part};
use adit::engine::diagnose::{Diagnosis, Progress};
use adit::engine::numbers::Numbers;
use adit::engine::schedule::mix;
use adit::engine::settings::{Source, Terms};
use adit::engine::{Material, State, Tunnel};
use adit::io::{links, netns};
use adit::reflect::{FarTunnel, Wrap};
use adit::wire::esp::{Algorithm, IvSeed, Keys, Shape};
use adit::wire::payload::Key;
use adit::wire::{Encapsulation, gre};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::burden::HeldUp;
use crate::by_hand::{Injector, Packet, Puppet, Tap, firewall, no_firewall};
use crate::kit::{
    FarEnd, INNER, Pair, Prober, REPLY, REQUEST, REQUEST_BARE, eventually, patient, plan, seen_from_afar, tunnel,
};
use crate::site::Site;
use crate::{Case, case};

const NAME: &str = "t";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("diagnose::a_tunnel_that_is_well_in_gre_and_esp", a_tunnel_that_is_well_in_gre_and_esp),
        case("diagnose::gre_that_is_filtered_at_the_far_end", gre_that_is_filtered_at_the_far_end).with_nft(),
        case("diagnose::a_path_that_is_cut", a_path_that_is_cut).with_nft(),
        case("diagnose::an_mtu_black_hole_to_the_byte", an_mtu_black_hole_to_the_byte).with_iproute(),
        case("diagnose::an_answer_with_another_gre_key", an_answer_with_another_gre_key),
        case("diagnose::keys_and_spis_that_differ", keys_and_spis_that_differ),
        case("diagnose::esp_that_is_blocked_after_it_has_passed", esp_that_is_blocked_after_it_has_passed).with_nft(),
        case("diagnose::an_answer_that_leaks_past_the_tunnel", an_answer_that_leaks_past_the_tunnel),
        case("diagnose::an_answer_through_another_tunnel", an_answer_through_another_tunnel),
        case("diagnose::what_this_host_s_firewall_refuses", what_this_host_s_firewall_refuses).with_nft(),
        case("diagnose::a_stateful_firewall_on_this_side", a_stateful_firewall_on_this_side).with_nft(),
        case("diagnose::an_identifier_that_is_pinned", an_identifier_that_is_pinned),
        case("diagnose::a_path_that_loses_half", a_path_that_loses_half),
        case("diagnose::a_mark_that_nobody_makes", a_mark_that_nobody_makes),
        case("diagnose::answers_that_come_back_changed", answers_that_come_back_changed),
        case("diagnose::a_host_that_lost_what_came_meanwhile", a_host_that_lost_what_came_meanwhile),
        case("diagnose::the_command_from_end_to_end", the_command_from_end_to_end),
        case("diagnose::one_at_a_time_and_no_sample", one_at_a_time_and_no_sample),
        case("diagnose::a_disabled_tunnel_and_one_without_keys", a_disabled_tunnel_and_one_without_keys),
    ]
}

/// A tunnel that waits long for its answers, however busy the machine.
fn calm(style: adit::wire::Style) -> Tunnel {
    Tunnel { check: patient(), ..tunnel(NAME, style) }
}

fn diagnose(prober: &Prober) -> Diagnosis {
    end(prober, begin(prober))
}

fn begin(prober: &Prober) -> u32 {
    prober.ask(|engine, now| engine.begin_diagnosis(now, engine.find(NAME).unwrap())).unwrap()
}

fn end(prober: &Prober, number: u32) -> Diagnosis {
    let mut found = None;
    eventually("the end of a diagnosis", || {
        match prober.ask(move |engine, _| engine.take_diagnosis(number)) {
            Progress::UnderWay => {}
            Progress::Done(diagnosis) => found = Some(*diagnosis),
            Progress::Gone => panic!("it has gone"),
        }
        found.is_some()
    });
    found.unwrap()
}

fn is(diagnosis: &Diagnosis, culprit: Culprit, end: End) {
    let it = &diagnosis.conclusion;
    assert_eq!((it.culprit, it.end, it.ok), (culprit, end, culprit == Culprit::None), "{diagnosis:#?}");
}

/// This side's pair of associations, whose keys are made of one byte each.
fn material(out: u8, back: u8, spi_out: u32) -> Material {
    let key = |byte| {
        let length = Algorithm::Aes256Gcm.key_len();
        Keys::new(Algorithm::Aes256Gcm, Zeroizing::new(vec![byte; length])).unwrap()
    };
    Material { spi_out, spi_in: 0x2001, key_out: key(out), key_in: key(back), esn: true, replay_window: 64 }
}

fn esp(style: adit::wire::Style) -> Tunnel {
    let mut tunnel = calm(style);
    tunnel.onion.encapsulation = Encapsulation::Esp(Shape::new(Algorithm::Aes256Gcm, false));
    tunnel.terms = Some(Terms { source: Source::Installed, esn: true, replay_window: 64 });
    tunnel
}

/// A prober and a far end of an ESP tunnel, each with what it takes for the pair.
fn sealed(pair: &Pair, style: adit::wire::Style, near: &Material, far: &Material) -> (FarEnd, Prober) {
    let tunnel = esp(style);
    let mut wrapped = tunnel.clone();
    wrapped.onion.encapsulation = gre::Options::default().into();
    let theirs = far.reversed();
    let numbers = Numbers::new(1, u64::MAX, theirs.last());
    let wrap = Wrap::Esp { pair: Box::new(theirs.pair(&IvSeed::new([9; 16]), numbers)), udp: false };
    let far = FarTunnel { wrap, ..seen_from_afar(&wrapped) };
    let plan = Plan { material: BTreeMap::from([(0, near.clone())]), ..plan(vec![tunnel]) };
    (FarEnd::with(&pair.far, vec![far], None), Prober::with(&pair.near, plan))
}

fn a_tunnel_that_is_well_in_gre_and_esp() {
    for style in [REQUEST, REPLY, REQUEST_BARE] {
        let pair = Pair::new();
        let ours = calm(style);
        let (_far, prober) = (FarEnd::start(&pair, std::slice::from_ref(&ours)), Prober::start(&pair, &[ours]));
        let it = diagnose(&prober);
        is(&it, Culprit::None, End::None);
        let mtu = it.mtu.unwrap();
        assert_eq!((mtu.inner, mtu.outer, mtu.longer), (1_476, 1_500, Longer::Refused), "{it:#?}");

        let pair = Pair::new();
        let keys = material(1, 2, 0x1001);
        let (_far, prober) = sealed(&pair, style, &keys, &keys);
        let it = diagnose(&prober);
        is(&it, Culprit::None, End::None);
        assert_eq!(it.mtu.unwrap().outer, 1_500, "{it:#?}");
        assert!(it.legs.iter().any(|leg| leg.leg == Part::Underlay && leg.answered > 0), "{it:#?}");
    }
}

fn gre_that_is_filtered_at_the_far_end() {
    let pair = Pair::new();
    let ours = calm(REQUEST);
    let (_far, prober) = (FarEnd::start(&pair, std::slice::from_ref(&ours)), Prober::start(&pair, &[ours]));
    prober.await_state(NAME, State::Healthy);
    firewall(&pair.far, "input", "ip protocol gre drop");
    let it = diagnose(&prober);
    is(&it, Culprit::Encapsulation, End::Path);
    assert!(it.conclusion.sentence.contains("does not get through any more"), "{it:#?}");
    no_firewall(&pair.far);
    is(&diagnose(&prober), Culprit::None, End::None);
}

fn a_path_that_is_cut() {
    let pair = Pair::new();
    let ours = calm(REQUEST);
    let (_far, prober) = (FarEnd::start(&pair, std::slice::from_ref(&ours)), Prober::start(&pair, &[ours]));
    firewall(&pair.far, "input", "drop");
    is(&diagnose(&prober), Culprit::Underlay, End::Path);
}

fn an_mtu_black_hole_to_the_byte() {
    let pair = Pair::new();
    let ours = calm(REQUEST);
    let (_far, prober) = (FarEnd::start(&pair, std::slice::from_ref(&ours)), Prober::start(&pair, &[ours]));
    // A cable drops what its other end is not set to take, and says nothing.
    ip(&pair.far, &["link", "set", "far0", "mtu", "1400"]);
    let it = diagnose(&prober);
    is(&it, Culprit::Mtu, End::Both);
    let mtu = it.mtu.unwrap();
    assert_eq!((mtu.inner, mtu.outer, mtu.longer), (1_376, 1_400, Longer::Lost), "{it:#?}");
    assert!(it.conclusion.remedy[0].contains("mtu 1376"), "{it:#?}");
}

fn ip(namespace: &File, arguments: &[&str]) {
    let output = netns::within(Some(namespace), || Command::new("ip").args(arguments).output()).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn an_answer_with_another_gre_key() {
    let pair = Pair::new();
    let mut ours = calm(REQUEST);
    ours.onion.encapsulation = gre::Options::keyed(4_711).into();
    let _back = Puppet::start(&pair.far, |probe| {
        let mut answer = Packet::answer(probe);
        answer.set_key(4_712);
        vec![answer.outward()]
    });
    let it = diagnose(&Prober::start(&pair, &[ours]));
    is(&it, Culprit::TunnelKey, End::Far);
    assert!(it.conclusion.sentence.contains("with key 4712"), "{it:#?}");
}

fn keys_and_spis_that_differ() {
    let ours = material(1, 2, 0x1001);
    for (theirs, end, word) in [
        (material(1, 3, 0x1001), End::Both, "does not open them"),
        (material(4, 2, 0x1001), End::Far, "other keys or SPIs"),
        (material(1, 2, 0x1007), End::Far, "other keys or SPIs"),
    ] {
        let pair = Pair::new();
        let (_far, prober) = sealed(&pair, REQUEST, &ours, &theirs);
        let it = diagnose(&prober);
        is(&it, Culprit::Association, end);
        assert!(it.conclusion.sentence.contains(word), "{it:#?}");
    }
}

fn esp_that_is_blocked_after_it_has_passed() {
    let pair = Pair::new();
    let keys = material(1, 2, 0x1001);
    let (_far, prober) = sealed(&pair, REQUEST, &keys, &keys);
    prober.await_state(NAME, State::Healthy);
    firewall(&pair.far, "input", "ip protocol esp drop");
    let it = diagnose(&prober);
    is(&it, Culprit::Encapsulation, End::Path);
    assert!(it.conclusion.sentence.contains("ESP (IP protocol 50) does not get through any more"), "{it:#?}");
    assert!(it.conclusion.sentence.contains("IKE"), "{it:#?}");
}

fn an_answer_that_leaks_past_the_tunnel() {
    let pair = Pair::new();
    // Where this side's inner address is a host's, what is sent to it bare arrives.
    let inner = format!("{}/31", INNER[0][0]).parse().unwrap();
    links::configure(Some(&pair.near), "near0", &[inner]).unwrap();
    let _back = Puppet::start(&pair.far, |probe| vec![Packet::answer(probe).bare()]);
    let it = diagnose(&Prober::start(&pair, &[calm(REQUEST)]));
    is(&it, Culprit::Leak, End::Far);
    assert!(it.conclusion.sentence.contains("they come bare, by the device of index"), "{it:#?}");
}

fn an_answer_through_another_tunnel() {
    let pair = Pair::new();
    let other = tunnel("other", REQUEST);
    let mut other = Tunnel { check: patient(), ..other };
    other.onion.encapsulation = gre::Options::keyed(5).into();
    let mut ours = calm(REQUEST);
    ours.onion.encapsulation = gre::Options::keyed(4).into();
    let _back = Puppet::start(&pair.far, |probe| {
        let mut answer = Packet::answer(probe);
        answer.set_key(5);
        vec![answer.outward()]
    });
    let mut any = ours.clone();
    any.check.return_path = adit::engine::settings::ReturnPath::Any;
    let strict = diagnose(&Prober::start(&pair, &[ours, other.clone()]));
    is(&strict, Culprit::TunnelKey, End::Far);
    assert!(strict.conclusion.sentence.contains("as those of tunnel other"), "{strict:#?}");
    is(&diagnose(&Prober::start(&pair, &[any, other])), Culprit::None, End::None);
}

fn what_this_host_s_firewall_refuses() {
    let pair = Pair::new();
    let ours = calm(REQUEST);
    let (_far, prober) = (FarEnd::start(&pair, std::slice::from_ref(&ours)), Prober::start(&pair, &[ours]));
    firewall(&pair.near, "output", "ip protocol gre drop");
    let it = diagnose(&prober);
    is(&it, Culprit::Local, End::Near);
    assert!(it.conclusion.sentence.contains("not permitted"), "{it:#?}");
}

fn a_stateful_firewall_on_this_side() {
    let pair = Pair::new();
    let ours = calm(REQUEST_BARE);
    let (_far, prober) = (FarEnd::start(&pair, std::slice::from_ref(&ours)), Prober::start(&pair, &[ours]));
    firewall(&pair.near, "input", "ct state invalid drop");
    let it = diagnose(&prober);
    is(&it, Culprit::NearFilter, End::Near);
    assert!(it.conclusion.remedy[0].contains("echo-reply accept"), "{it:#?}");
}

/// The flow of the identifier that regular probes have leads nowhere.
fn an_identifier_that_is_pinned() {
    let pair = Pair::new();
    let pinned = Arc::new(OnceLock::new());
    let seen = Arc::clone(&pinned);
    let _back = Puppet::start(&pair.far, move |probe| {
        let is_pinned = *seen.get_or_init(|| probe.identifier()) == probe.identifier();
        if is_pinned { Vec::new() } else { vec![Packet::answer(probe).outward()] }
    });
    let prober = Prober::start(&pair, &[calm(REQUEST)]);
    eventually("a regular probe", || pinned.get().is_some());
    is(&diagnose(&prober), Culprit::Identifier, End::Path);
}

fn a_path_that_loses_half() {
    let pair = Pair::new();
    let mut count = 0;
    let _back = Puppet::start(&pair.far, move |probe| {
        count += 1;
        let is_lost = mix(7, count).is_multiple_of(2);
        if is_lost { Vec::new() } else { vec![Packet::answer(probe).outward()] }
    });
    let prober = Prober::start(&pair, &[calm(REQUEST)]);
    // Six probes may be lucky, or all of one identifier be lost.
    let found: Vec<Diagnosis> = (0..4).map(|_| diagnose(&prober)).collect();
    let losses = found.iter().filter(|it| it.conclusion.culprit == Culprit::Loss);
    assert!(losses.count() > 0, "{found:#?}");
}

fn a_mark_that_nobody_makes() {
    let pair = Pair::new();
    let mut ours = calm(REQUEST);
    ours.check.mark_key = Some(Key::new([5; 16]));
    let (_far, prober) = (FarEnd::start(&pair, std::slice::from_ref(&ours)), Prober::start(&pair, &[ours]));
    is(&diagnose(&prober), Culprit::Mark, End::Far);
}

/// By something that fills checksums in again, as what changes packets on the way does.
fn answers_that_come_back_changed() {
    let payload: fn(&mut Packet) = |answer| answer.change(|payload| payload[30] ^= 1);
    let address: fn(&mut Packet) = |answer| answer.set_inner_source(Ipv4Addr::new(10, 99, 0, 1));
    for change in [payload, address] {
        let pair = Pair::new();
        let _back = Puppet::start(&pair.far, move |probe| {
            let mut answer = Packet::answer(probe);
            change(&mut answer);
            vec![answer.outward()]
        });
        let it = diagnose(&Prober::start(&pair, &[calm(REQUEST)]));
        is(&it, Culprit::Altered, End::Far);
    }
}

/// Nobody answers through the tunnel; but who could say so, when this host's own queue has overflowed?
fn a_host_that_lost_what_came_meanwhile() {
    let pair = Pair::new();
    let tap = Tap::open(&pair.far);
    let prober = Prober::start(&pair, &[calm(REQUEST)]);
    let mut stale = Packet::answer(&tap.take(1)[0]);
    stale.change(|payload| payload[24..32].fill(0xEE));
    let (injector, volley) = (Injector::open(&pair.far), vec![stale.outward(); 500]);
    let number = begin(&prober);
    let held = HeldUp::new(&prober);
    (0..40).for_each(|_| injector.send(&volley));
    held.release();
    is(&end(&prober, number), Culprit::Deaf, End::Near);
    is(&diagnose(&prober), Culprit::Encapsulation, End::Path);
}

fn the_command_from_end_to_end() {
    let site = Site::new();
    site.make_patient();
    let (_daemon, [ams, _fra]) = site.healthy();
    let well = site.say(&["diagnose", "ams-1"]);
    for words in
        ["bare ping", "as regular probes", "reply unidirectional", "3/3", "+ ams-1 is well", "up to 1476 bytes"]
    {
        assert!(well.contains(words), "{words}: {well}");
    }
    assert!(!well.contains('\x1b'), "{well}");
    let json = site.json(&["diagnose", "ams-1", "--json"]);
    assert_eq!((&json["conclusion"]["culprit"], &json["mtu"]["inner"]), (&"none".into(), &1_476.into()), "{json}");
    let unknown = site.adit(&["diagnose", "ams-2"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("did you mean ams-1?"));
    assert_eq!(site.http("GET", "/v1/tunnels/ams-1/diagnose").0, 405, "it changes something");

    drop(ams);
    let sick = site.adit(&["diagnose", "ams-1"]);
    let said = String::from_utf8(sick.stdout).unwrap();
    assert_eq!(sick.status.code(), Some(1), "{said}");
    assert!(said.contains("GRE (IP protocol 47) does not get through any more"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("- 192.0.2.11 answers a bare ping")), "{said}");
}

fn one_at_a_time_and_no_sample() {
    let site = Site::new();
    site.make_patient();
    let (_daemon, _far) = site.healthy();
    let codes = thread::scope(|scope| {
        let ask = || site.http("POST", "/v1/tunnels/ams-1/diagnose").0;
        [scope.spawn(ask), scope.spawn(ask)].map(|asked| asked.join().unwrap())
    });
    assert!(codes == [200, 409] || codes == [409, 200], "{codes:?}");
    let states: Vec<Value> = site.transitions().into_iter().map(|event| event["to"].clone()).collect();
    assert_eq!(states, ["healthy", "healthy"]);
    let view = site.json(&["status", "ams-1", "--json"]);
    let counter = |name: &str| view["counters"][name].as_u64().unwrap();
    assert_eq!(counter("forged") + counter("duplicate") + counter("lost"), 0, "{view}");
    let health: Value = serde_json::from_str(&site.http("GET", "/v1/healthz").2).unwrap();
    for reject in ["unknown-tunnel", "never-sent", "wrong-path", "wrong-inner"] {
        assert!(health["rejected"][reject].as_u64().unwrap_or(0) == 0, "{reject}: {health}");
    }
}

fn a_disabled_tunnel_and_one_without_keys() {
    let site = Site::new();
    let text = site.configuration();
    let off = "interface_address = \"10.100.0.8/31\"\n[tunnel.health_check]\nenabled = false\n";
    let text = text.replacen("interface_address = \"10.100.0.8/31\"\n", off, 1);
    let (before, after) = text.rsplit_once("encapsulation = \"gre\"").unwrap();
    let after = after.replacen("[[route]]", "[tunnel.esp]\nkeys = \"installed\"\n[[route]]", 1);
    fs::write(site.path("adit.conf"), format!("{before}encapsulation = \"esp\"{after}")).unwrap();
    let _far = site.far("ams-1");
    let _daemon = site.daemon();
    let off = site.say(&["diagnose", "ams-1"]);
    assert!(off.contains("+ ams-1 is well") && off.contains("note: it is not checked"), "{off}");
    assert_eq!(site.state("ams-1"), "unknown");
    let bare = site.adit(&["diagnose", "fra-1"]);
    let said = String::from_utf8(bare.stdout).unwrap();
    assert_eq!(bare.status.code(), Some(1), "{said}");
    assert!(said.contains("adit sa install") && said.contains("bare ping"), "{said}");
}
