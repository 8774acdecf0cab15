//! A diagnosis finds which leg fails, disturbs no verdict, and says what to change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use adit::engine::diagnose::conclude::{Culprit, End, conclude};
use adit::engine::diagnose::findings::{Findings, LegView, Longer, Mtu, Part, Stray};
use adit::engine::diagnose::{Bearings, Diagnosis, NotBegun, Progress};
use adit::engine::settings::Timeout;
use adit::engine::{State, Targets, Tunnel};
use adit::wire::esp::{Algorithm, Shape};
use adit::wire::payload::Key;
use adit::wire::{Direction, Encapsulation, Ends, Kind, Reject, Style, gre};
use sim::far::Sending;
use sim::router::Router;
use sim::{Sim, at_ms, ms};

const STYLES: [Style; 4] = [
    Style { kind: Kind::Request, direction: Direction::Bidirectional },
    Style { kind: Kind::Reply, direction: Direction::Bidirectional },
    Style { kind: Kind::Request, direction: Direction::Unidirectional },
    Style { kind: Kind::Reply, direction: Direction::Unidirectional },
];
const REQUEST: Style = STYLES[0];
const REPLY: Style = STYLES[1];
const REQUEST_BARE: Style = STYLES[2];
const REPLY_BARE: Style = STYLES[3];

fn tunnel(style: Style) -> Tunnel {
    let mut tunnel = sim::tunnel(0);
    tunnel.onion.style = style;
    if style.direction == Direction::Unidirectional {
        tunnel.onion.inner = tunnel.onion.outer;
    }
    tunnel
}

fn target(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// A tunnel with three targets, the first of which is the far router's own address inside.
fn three_targets(quorum: usize) -> Tunnel {
    Tunnel { targets: Some(Targets { further: vec![target(2), target(3)], quorum }), ..tunnel(REQUEST) }
}

/// One tunnel and a second one beside it, after some seconds.
fn scene(tunnel: Tunnel) -> Sim {
    let inside = sim::tunnel(0).onion.inner;
    let mut sim = Sim::new(vec![tunnel, sim::tunnel(1)], Vec::new(), 7);
    sim.engine.set_bearings([(0, Bearings { inside: Some(inside), ..Bearings::default() })].into());
    sim.run_until(at_ms(3_000));
    sim
}

fn diagnose(sim: &mut Sim) -> Diagnosis {
    let mut number = 0;
    sim.command(|engine, now| number = engine.begin_diagnosis(now, 0).unwrap());
    for _ in 0..200 {
        sim.run_for(ms(100));
        match sim.engine.take_diagnosis(number) {
            Progress::UnderWay => {}
            Progress::Done(diagnosis) => return *diagnosis,
            Progress::Gone => panic!("it has gone"),
        }
    }
    panic!("it does not end")
}

fn diagnosed(style: Style, set: impl FnOnce(&mut Router)) -> Diagnosis {
    let mut sim = scene(tunnel(style));
    set(&mut sim.far[0].router);
    diagnose(&mut sim)
}

#[test]
fn a_tunnel_that_is_well_is_called_well_in_every_style() {
    for style in STYLES {
        let it = diagnosed(style, |_| {});
        assert_eq!((it.conclusion.culprit, it.conclusion.ok), (Culprit::None, true), "{it:#?}");
        let mtu = it.mtu.unwrap();
        assert_eq!((mtu.inner, mtu.outer, mtu.longer), (1476, 1500, Longer::Refused), "{it:#?}");
        let legs = it.legs.iter().filter(|leg| leg.leg != Part::Size);
        assert!(legs.clone().all(|leg| leg.answered == 3 && leg.sent == 3), "{it:#?}");
        let fresh: Vec<Style> = legs.filter(|leg| leg.leg == Part::Fresh).map(|leg| leg.style).collect();
        assert_eq!(fresh, STYLES, "all styles fit");
    }
}

#[test]
fn each_setting_of_the_far_router_is_found() {
    type Set = fn(&mut Router);
    let rows: [(&str, Style, Set, Culprit, End); 16] = [
        ("ct, reply", REPLY, |far| far.drops_invalid = true, Culprit::ReplyFilter, End::Far),
        ("ct, bare reply", REPLY_BARE, |far| far.drops_invalid = true, Culprit::ReplyFilter, End::Far),
        ("accept_local, reply", REPLY, |far| far.accept_local = false, Culprit::AcceptLocal, End::Far),
        ("accept_local, bare reply", REPLY_BARE, |far| far.accept_local = false, Culprit::AcceptLocal, End::Far),
        ("ip_forward", REPLY, |far| far.forwards = false, Culprit::Forwarding, End::Far),
        ("ip_forward, bare", REPLY_BARE, |far| far.forwards = false, Culprit::Forwarding, End::Far),
        ("rp_filter, request", REQUEST_BARE, |far| far.rp_filter = true, Culprit::ReversePath, End::Far),
        ("rp_filter, reply", REPLY_BARE, |far| far.rp_filter = true, Culprit::ReversePath, End::Far),
        ("echo_ignore_all", REQUEST, |far| far.answers_requests = false, Culprit::EchoFilter, End::Far),
        ("echo_ignore_all, bare", REQUEST_BARE, |far| far.answers_requests = false, Culprit::EchoFilter, End::Far),
        ("no route back", REQUEST, |far| far.returns_inside = false, Culprit::ReturnPath, End::Far),
        ("no route back, reply", REPLY, |far| far.returns_inside = false, Culprit::ReturnPath, End::Far),
        ("near ct", REQUEST_BARE, |far| far.near_drops_invalid = true, Culprit::NearFilter, End::Near),
        ("near ct, reply", REPLY_BARE, |far| far.near_drops_invalid = true, Culprit::NearFilter, End::Near),
        ("gre filtered", REQUEST, |far| far.has_tunnel = false, Culprit::Encapsulation, End::Path),
        ("black hole", REQUEST, |far| far.path = 1400, Culprit::Mtu, End::Both),
    ];
    for (what, style, set, culprit, end) in rows {
        let it = diagnosed(style, set);
        assert_eq!(
            (it.conclusion.culprit, it.conclusion.end, it.conclusion.ok),
            (culprit, end, false),
            "{what}: {it:#?}"
        );
        assert!(!it.conclusion.remedy.is_empty(), "{what}");
    }
}

#[test]
fn what_is_no_style_is_found_as_well() {
    let cut = |far: &mut Router| (far.answers_pings, far.has_tunnel) = (false, false);
    assert_eq!(diagnosed(REQUEST, cut).conclusion.culprit, Culprit::Underlay);

    let leak = diagnosed(REQUEST, |far| (far.returns_inside, far.leaks) = (false, true));
    assert_eq!((leak.conclusion.culprit, leak.conclusion.end), (Culprit::Leak, End::Far), "{leak:#?}");
    assert!(leak.conclusion.sentence.contains("they come bare"), "{leak:#?}");

    let mut sim = scene(tunnel(REQUEST));
    sim.far[0].returns_by = Some(1);
    let leak = diagnose(&mut sim);
    assert_eq!(leak.conclusion.culprit, Culprit::Leak, "{leak:#?}");
    assert!(leak.conclusion.sentence.contains("as those of tunnel t1"), "{leak:#?}");
    assert!(leak.conclusion.remedy.iter().any(|remedy| remedy.contains("return_path")), "{leak:#?}");

    let mut marked = tunnel(REQUEST);
    marked.check.mark_key = Some(Key::new([3; 16]));
    assert_eq!(diagnose(&mut scene(marked)).conclusion.culprit, Culprit::Mark);

    let quiet = diagnosed(REQUEST, |far| far.answers_pings = false);
    assert!(quiet.conclusion.ok, "nobody must answer bare pings: {quiet:#?}");
    assert!(quiet.notes.iter().any(|note| note.contains("answers no bare pings")), "{quiet:#?}");
}

#[test]
fn the_longest_packet_is_found_to_the_byte() {
    for path in [600, 1290, 1337, 1399, 1436, 1477, 1491] {
        let mtu = diagnosed(REQUEST, |far| far.path = path).mtu.unwrap();
        assert_eq!((mtu.outer, mtu.inner, mtu.longer), (path, path - 24, Longer::Lost), "{path}");
    }
    let link = diagnosed(REQUEST, |far| far.link = 1450).mtu.unwrap();
    assert_eq!((link.outer, link.longer), (1450, Longer::Refused));
    let jumbo = diagnosed(REQUEST, |far| (far.link, far.path) = (9_000, 9_000)).mtu.unwrap();
    assert_eq!((jumbo.outer, jumbo.longer), (9_000, Longer::Untried));
}

/// Who waits long for answers has no time for as many rounds, and is told so.
#[test]
fn where_time_is_up_it_says_between_what_the_limit_lies() {
    let mut slow = tunnel(REQUEST);
    slow.check.timeout = Timeout::Fixed(ms(3_000));
    let mut sim = scene(slow);
    sim.far[0].router.path = 1337;
    let it = diagnose(&mut sim);
    let (mtu, limit) = (it.mtu.unwrap(), 1337 - 24);
    let fails = mtu.fails.unwrap();
    assert!(mtu.inner <= limit && limit < fails && fails > mtu.inner + 1, "{it:#?}");
    let words = format!("the limit lies between {} and {fails}:", mtu.inner);
    assert!(it.conclusion.culprit == Culprit::Mtu && it.conclusion.sentence.contains(&words), "{it:#?}");
}

/// Makes targets silent to regular probes and to those of a diagnosis.
fn silence(sim: &mut Sim, targets: &[IpAddr]) {
    sim.far[0].silent = targets.to_vec();
    sim.far[0].router.silent = targets.to_vec();
    sim.run_for(ms(5_000));
}

#[test]
fn a_tunnel_that_is_down_for_its_further_targets_is_not_called_well() {
    let mut sim = scene(three_targets(2));
    sim.gaps_allowed = true;
    assert!(diagnose(&mut sim).conclusion.ok);
    silence(&mut sim, &[target(2), target(3)]);
    assert_eq!(sim.state(0), State::Down);
    let it = diagnose(&mut sim);
    assert_eq!((it.conclusion.culprit, it.conclusion.end, it.conclusion.ok), (Culprit::Target, End::Far, false));
    let words = "t0 carries packets, but 2 of 3 targets are silent: 192.0.2.2, 192.0.2.3; quorum 2";
    assert_eq!(it.conclusion.sentence, words, "{it:#?}");
}

#[test]
fn a_first_target_that_is_dead_is_a_note_where_the_others_suffice() {
    let mut sim = scene(three_targets(2));
    sim.gaps_allowed = true;
    silence(&mut sim, &[sim::tunnel(0).onion.inner.far()]);
    assert_eq!(sim.state(0), State::Healthy);
    let it = diagnose(&mut sim);
    assert_eq!((it.conclusion.culprit, it.conclusion.ok), (Culprit::None, true), "{it:#?}");
    assert!(it.notes.iter().any(|note| note.contains("1 of 3 targets is silent: 10.100.0.1; quorum 2")), "{it:#?}");
    assert_eq!(it.mtu.unwrap().inner, 1476, "long probes go to one that answers");
}

#[test]
fn a_target_behind_the_far_router_that_is_dead_is_told_from_the_tunnel() {
    let mut behind = tunnel(REQUEST);
    behind.onion.inner = Ends::new(behind.onion.inner.local(), target(9)).unwrap();
    let mut sim = scene(behind.clone());
    assert!(diagnose(&mut sim).conclusion.ok);
    silence(&mut sim, &[target(9)]);
    assert_eq!(sim.state(0), State::Down);
    let it = diagnose(&mut sim);
    assert_eq!((it.conclusion.culprit, it.conclusion.end), (Culprit::Target, End::Far), "{it:#?}");
    assert_eq!(it.conclusion.sentence, "t0 carries packets, but its target 192.0.2.9 is silent");
    let router = it.legs.iter().find(|leg| leg.leg == Part::Router).unwrap();
    assert_eq!((router.target, router.answered), (sim::tunnel(0).onion.inner.far(), 3));
    // Where the tunnel itself is dead, it is not the target's fault.
    let mut sim = scene(behind);
    sim.far[0].router.has_tunnel = false;
    assert_eq!(diagnose(&mut sim).conclusion.culprit, Culprit::Encapsulation);
}

#[test]
fn an_identifier_that_a_device_has_pinned_is_found() {
    let mut sim = scene(tunnel(REQUEST));
    sim.keep_bytes = true;
    sim.run_for(ms(2_000));
    let probe = &sim.sent.iter().rfind(|sent| sent.tunnel == 0).unwrap().bytes;
    sim.far[0].router.pinned = Some(u16::from_be_bytes([probe[48], probe[49]]));
    assert_eq!(diagnose(&mut sim).conclusion.culprit, Culprit::Identifier);
}

#[test]
fn what_this_host_refuses_is_its_own() {
    for (sending, word) in [
        (Sending::Refused("Operation not permitted"), "not permitted"),
        (Sending::Refused("Network is unreachable"), "unreachable"),
        (Sending::Missing, "missing"),
        (Sending::LocalFault("No buffer space available"), "No buffer space"),
    ] {
        let mut sim = scene(tunnel(REQUEST));
        sim.far[0].sending = sending;
        let it = diagnose(&mut sim);
        assert_eq!((it.conclusion.culprit, it.conclusion.end), (Culprit::Local, End::Near), "{it:#?}");
        assert!(it.conclusion.sentence.contains(word), "{it:#?}");
        assert!(it.legs.iter().all(|leg| leg.sent == 0 && leg.unsent.is_some()), "{it:#?}");
    }
}

#[test]
fn a_disabled_tunnel_is_diagnosed_and_stays_unknown() {
    let mut off = tunnel(REQUEST);
    off.check.enabled = false;
    let mut sim = scene(off);
    let it = diagnose(&mut sim);
    assert!(it.conclusion.ok && !it.checked, "{it:#?}");
    assert!(it.notes[0].contains("not checked"), "{it:#?}");
    let view = sim.view(0);
    assert_eq!((view.state, view.counters.sent, view.counters.received), (State::Unknown, 0, 0));
}

#[test]
fn a_tunnel_without_keys_is_pinged_and_says_what_it_lacks() {
    let mut sim = Sim::new(vec![sim::esp::esp_tunnel(0, Algorithm::Aes256Gcm, false)], Vec::new(), 7);
    sim.run_until(at_ms(1_000));
    let it = diagnose(&mut sim);
    assert_eq!(it.conclusion.culprit, Culprit::Local, "{it:#?}");
    assert!(it.conclusion.remedy[0].contains("adit sa install"), "{it:#?}");
    let sent: Vec<(Part, usize)> =
        it.legs.iter().map(|leg| (leg.leg, leg.sent)).filter(|(_, sent)| *sent > 0).collect();
    assert_eq!(sent, [(Part::Underlay, 3)]);
}

/// Laws 1, 2 and 4: beside a diagnosis everything goes on as without one.
#[test]
fn it_is_no_sample_and_in_no_counter() {
    let mut with = scene(tunnel(REQUEST));
    let mut without = scene(tunnel(REQUEST));
    with.far[0].router.path = 1400;
    with.far[0].router.drops_invalid = true;
    let begun = with.now;
    diagnose(&mut with);
    without.run_until(with.now);
    assert!(with.now > begun + ms(1_000), "it takes its time");
    assert!(with.far[0].router.legs > 30, "it has sent something");
    assert_eq!(with.view(0), without.view(0));
    assert_eq!(with.engine.rejects(), without.engine.rejects());
    assert_eq!(with.events, without.events);
    let regular = |sim: &Sim| sim.sent.iter().map(|sent| (sent.at, sent.tunnel, sent.sequence)).collect::<Vec<_>>();
    assert_eq!(regular(&with), regular(&without));
}

/// A router that drops GRE packets out of order sees one ascending series.
#[test]
fn gre_sequence_numbers_go_on_ascending() {
    let mut numbered = tunnel(REQUEST);
    numbered.onion.encapsulation = gre::Options { sequence: true, ..gre::Options::default() }.into();
    let mut sim = scene(numbered);
    let before = sim.sent.iter().filter(|sent| sent.tunnel == 0).map(|sent| sent.sequence).max().unwrap();
    let legs = {
        assert!(diagnose(&mut sim).conclusion.ok);
        u64::from(sim.far[0].router.legs)
    };
    sim.run_for(ms(2_000));
    let all: Vec<u64> = sim.sent.iter().filter(|sent| sent.tunnel == 0).map(|sent| sent.sequence).collect();
    assert!(all.is_sorted(), "{all:?}");
    // All but the bare ping took one from the same series.
    assert!(*all.last().unwrap() > before + legs - 10, "{before} {legs} {all:?}");
    assert_eq!(sim.view(0).counters.lost, 0);
}

/// The number that a GRE packet bears.
fn gre_number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes[24..].first_chunk().unwrap())
}

/// The same where each round is a probe to each of several targets; and nothing is taken for lost.
#[test]
fn gre_sequence_numbers_of_several_targets_go_on_ascending() {
    let mut numbered = three_targets(2);
    numbered.onion.encapsulation = gre::Options { sequence: true, ..gre::Options::default() }.into();
    let mut sim = scene(numbered);
    (sim.keep_bytes, sim.gaps_allowed) = (true, true);
    for _ in 0..3 {
        assert!(diagnose(&mut sim).conclusion.ok);
    }
    sim.run_for(ms(10_000));
    let regular = sim.sent.iter().filter(|sent| sent.tunnel == 0 && !sent.bytes.is_empty());
    let regular = regular.map(|sent| (sent.at, gre_number(&sent.bytes)));
    let legs = sim.far[0].router.numbers.iter().copied();
    let mut all: Vec<_> = regular.chain(legs.clone()).collect();
    all.sort_unstable();
    assert!(legs.count() > 60, "more than are remembered for long");
    let numbers: Vec<u32> = all.into_iter().map(|(_, number)| number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    let view = sim.view(0);
    assert_eq!((sim.state(0), view.counters.lost, view.counters.late, view.last_failure), (State::Healthy, 0, 0, None));
}

#[test]
fn one_at_a_time_a_tunnel_and_a_bound_over_all() {
    let mut sim = Sim::new((0..6).map(sim::tunnel).collect(), Vec::new(), 7);
    sim.run_until(at_ms(1_000));
    sim.command(|engine, now| {
        let numbers: Vec<u32> = (0..4).map(|tunnel| engine.begin_diagnosis(now, tunnel).unwrap()).collect();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 4);
        assert_eq!(engine.begin_diagnosis(now, 0), Err(NotBegun::UnderWay));
        assert_eq!(engine.begin_diagnosis(now, 4), Err(NotBegun::TooMany));
    });
    sim.run_for(ms(12_000));
    sim.command(|engine, now| {
        let number = engine.begin_diagnosis(now, 0).unwrap();
        assert!(engine.begin_diagnosis(now, 4).is_ok(), "all others have ended");
        assert_eq!(engine.take_diagnosis(number), Progress::UnderWay);
        assert_eq!(engine.take_diagnosis(7), Progress::Gone);
    });
}

#[test]
fn a_tunnel_that_goes_takes_its_diagnosis_with_it() {
    let mut sim = scene(tunnel(REQUEST));
    let mut number = 0;
    sim.command(|engine, now| number = engine.begin_diagnosis(now, 0).unwrap());
    sim.run_for(ms(100));
    let layout = adit::engine::Layout {
        tunnels: vec![sim::tunnel(1)],
        routes: Vec::new(),
        places: Vec::new(),
        steers: false,
        associations: BTreeMap::new(),
    };
    sim.reload(layout);
    sim.run_for(ms(5_000));
    assert_eq!(sim.engine.take_diagnosis(number), Progress::Gone);
}

fn leg(part: Part, style: Style, answered: usize) -> LegView {
    LegView {
        leg: part,
        style,
        target: IpAddr::from([10, 100, 0, 9]),
        length: 124,
        inner_length: 100,
        sent: 3,
        answered,
        rtt_us: Some(812),
        astray: None,
        hint: None,
        unsent: None,
    }
}

/// A tunnel whose far endpoint is there, and of which nothing else is known to answer.
fn silent(encapsulation: Encapsulation) -> Findings {
    let ends = |local: [u8; 4], far: [u8; 4]| Ends::V4 { local: local.into(), far: far.into() };
    Findings {
        name: "ams-1".to_owned(),
        encapsulation,
        style: REQUEST,
        outer: ends([198, 51, 100, 1], [203, 0, 113, 10]),
        inner: ends([10, 100, 0, 8], [10, 100, 0, 9]),
        quorum: 1,
        device: None,
        spis: matches!(encapsulation, Encapsulation::Esp(_)).then_some([0x1001, 0x2001]),
        any_return: false,
        is_checked: true,
        obstacle: None,
        was_answered: false,
        reject: None,
        hint: None,
        is_deaf: false,
        legs: vec![leg(Part::Underlay, REQUEST_BARE, 3), leg(Part::Regular, REQUEST, 0), leg(Part::Fresh, REQUEST, 0)],
        mtu: None,
    }
}

fn gre_keyed() -> Findings {
    silent(gre::Options::keyed(4_711).into())
}

fn esp() -> Findings {
    silent(Encapsulation::Esp(Shape::new(Algorithm::Aes256Gcm, false)))
}

fn answering(legs: &[(Part, Style)]) -> Findings {
    let more = legs.iter().map(|&(part, style)| leg(part, style, 3));
    let mut it = gre_keyed();
    it.legs.extend(more);
    it
}

/// Every culprit, and what an operator must read of it.
#[test]
fn every_culprit_has_its_sentence() {
    let astray = |reason| {
        let mut it = gre_keyed();
        it.legs[1].astray = Some(Stray { reason, came: "in GRE from 203.0.113.10 with key 4712".to_owned() });
        it
    };
    let own = |set: &dyn Fn(&mut Findings)| {
        let mut it = gre_keyed();
        (it.legs[1].answered, it.legs[2].answered) = (3, 3);
        set(&mut it);
        it
    };
    let style = |style, mut it: Findings| {
        it.style = style;
        it.legs[1..3].iter_mut().for_each(|leg| leg.style = style);
        it
    };
    let reply = |legs: &[(Part, Style)]| style(REPLY, answering(legs));
    let request_passes = (Part::Fresh, REQUEST);
    let longer = Mtu { inner: 1376, outer: 1400, longer: Longer::Lost, fails: Some(1377) };
    let rows = [
        (own(&|_| {}), Culprit::None, End::None, "ams-1 is well: its probes are answered in 0.81 ms"),
        (
            Findings { obstacle: Some("no-keys: run `adit sa install`".to_owned()), ..barred() },
            Culprit::Local,
            End::Near,
            "cannot be probed",
        ),
        (barred(), Culprit::Local, End::Near, "do not leave this host: Operation not permitted"),
        (Findings { is_deaf: true, ..gre_keyed() }, Culprit::Deaf, End::Near, "ask again"),
        (without_ping(gre_keyed()), Culprit::Underlay, End::Path, "neither bare nor through ams-1"),
        (gre_keyed(), Culprit::Encapsulation, End::Path, "GRE (IP protocol 47) does not get through at all"),
        (
            Findings { was_answered: true, ..esp() },
            Culprit::Encapsulation,
            End::Path,
            "an IKE daemon may go on calling it alive",
        ),
        (
            Findings {
                hint: Some("203.0.113.10 says port unreachable: it has no such tunnel".to_owned()),
                ..gre_keyed()
            },
            Culprit::TunnelKey,
            End::Far,
            "with key 4711",
        ),
        (Findings { reject: Some(Reject::WrongKey), ..gre_keyed() }, Culprit::TunnelKey, End::Far, "another key"),
        (astray(Reject::WrongKey), Culprit::TunnelKey, End::Far, "with key 4712"),
        (esp(), Culprit::Association, End::Far, "other keys or SPIs"),
        (Findings { reject: Some(Reject::EspIcv), ..esp() }, Culprit::Association, End::Both, "does not open them"),
        (answering(&[(Part::Router, REQUEST)]), Culprit::Target, End::Far, "its target 10.100.0.9 is silent"),
        (answering(&[(Part::Fresh, REQUEST_BARE)]), Culprit::ReturnPath, End::Far, "nothing comes back inside"),
        (astray(Reject::WrongPath), Culprit::Leak, End::Far, "leak past ams-1"),
        (reply(&[request_passes, (Part::Tracked, REPLY)]), Culprit::ReplyFilter, End::Far, "connection tracking"),
        (reply(&[request_passes, (Part::Foreign, REPLY)]), Culprit::AcceptLocal, End::Far, "an address of its own"),
        (reply(&[request_passes]), Culprit::Forwarding, End::Far, "does not forward"),
        (answering(&[(Part::Fresh, REPLY)]), Culprit::EchoFilter, End::Far, "answers no requests"),
        (
            style(REQUEST_BARE, answering(&[(Part::Fresh, REQUEST)])),
            Culprit::ReversePath,
            End::Far,
            "reverse-path filter",
        ),
        (
            style(REQUEST_BARE, answering(&[(Part::Tracked, REQUEST_BARE)])),
            Culprit::NearFilter,
            End::Near,
            "stateful firewall on this side",
        ),
        (own(&|it| it.legs[1].answered = 0), Culprit::Identifier, End::Path, "fresh identifier"),
        (astray(Reject::Mark), Culprit::Mark, End::Far, "mark_key_file"),
        (Findings { reject: Some(Reject::Tag), ..gre_keyed() }, Culprit::Altered, End::Far, "come back changed"),
        (own(&|it| it.mtu = Some(longer)), Culprit::Mtu, End::Both, "up to 1376 bytes"),
        (own(&|it| (it.legs[1].answered, it.legs[2].answered) = (2, 2)), Culprit::Loss, End::Path, "4 of 6"),
        (
            own(&|it| (it.legs[1].answered, it.legs[2].answered, it.mtu) = (1, 2, Some(longer))),
            Culprit::Loss,
            End::Path,
            "3 of 6",
        ),
    ];
    let mut seen = BTreeSet::new();
    for (findings, culprit, end, words) in rows {
        let it = conclude(&findings);
        assert_eq!((it.culprit, it.end), (culprit, end), "{it:#?}");
        assert!(it.sentence.contains(words), "{words}: {it:#?}");
        assert_eq!(it.ok, culprit == Culprit::None);
        assert_eq!(it.remedy.is_empty(), it.ok, "{it:#?}");
        assert!(!it.sentence.contains('\n') && !it.sentence.ends_with('.'), "one sentence: {it:#?}");
        seen.insert(culprit);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), Culprit::ALL);
}

/// IPv6 has neither `accept_local` nor `rp_filter`.
#[test]
fn no_remedy_for_ipv6_names_a_setting_of_ipv4() {
    let inner = Ends::new("fd00::8".parse().unwrap(), "fd00::9".parse().unwrap()).unwrap();
    let of = |style, legs: &[(Part, Style)]| {
        let mut it = Findings { style, inner, ..answering(legs) };
        it.legs[1..3].iter_mut().for_each(|leg| leg.style = style);
        it
    };
    let pinned = {
        let mut it = of(REQUEST, &[]);
        it.legs[2].answered = 3;
        it
    };
    let request = (Part::Fresh, REQUEST);
    let rows = [
        (of(REPLY, &[request, (Part::Foreign, REPLY)]), Culprit::Forwarding, "drops sources of its own"),
        (of(REPLY, &[request]), Culprit::Forwarding, "net.ipv6.conf.all.forwarding=1"),
        (of(REPLY, &[request, (Part::Tracked, REPLY)]), Culprit::ReplyFilter, "icmpv6 type echo-reply"),
        (of(REQUEST, &[(Part::Fresh, REPLY)]), Culprit::EchoFilter, "net.ipv6.icmp.echo_ignore_all=0"),
        (of(REQUEST_BARE, &[request]), Culprit::ReversePath, "fib saddr . iif oif missing drop"),
        (of(REQUEST_BARE, &[]), Culprit::Encapsulation, "fib saddr . iif oif missing drop"),
        (pinned, Culprit::Identifier, "-p icmpv6"),
    ];
    for (findings, culprit, words) in rows {
        let it = conclude(&findings);
        assert_eq!(it.culprit, culprit, "{it:#?}");
        let remedy = it.remedy.join("\n");
        assert!(remedy.contains(words) && !remedy.contains("net.ipv4"), "{it:#?}");
    }
}

fn barred() -> Findings {
    let mut it = gre_keyed();
    for leg in &mut it.legs {
        (leg.sent, leg.unsent) = (0, Some("Operation not permitted".to_owned()));
    }
    it
}

fn without_ping(mut it: Findings) -> Findings {
    it.legs[0].answered = 0;
    it
}

#[test]
fn the_document_has_every_conclusion() {
    let document = include_str!("../docs/troubleshooting.md");
    for culprit in Culprit::ALL {
        let name = serde_json::to_value(culprit).unwrap().as_str().unwrap().to_owned();
        assert!(document.contains(&format!("\n### {name}\n")), "{name}");
    }
    let linked = document.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
    for name in linked {
        assert!(document.contains(&format!("\n### {name}\n")), "{name}");
    }
}
