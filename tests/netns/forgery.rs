//! What a third party may send, and what it may not bring about.

use std::collections::BTreeSet;

use adit::engine::State;
use adit::io::links;
use adit::wire::Reject;

use crate::by_hand::{Injector, Packet, Puppet, Tap};
use crate::kit::{FarEnd, OTHER, Pair, Prober, REPLY, REQUEST, REQUEST_BARE, Scene, address, patient, tunnel};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("forgery::wrong_tags_keep_no_dead_tunnel_alive", wrong_tags_keep_no_dead_tunnel_alive),
        case("forgery::wrong_tags_wake_no_dead_tunnel", wrong_tags_wake_no_dead_tunnel),
        case("forgery::ten_thousand_move_nothing", ten_thousand_move_nothing),
        case("forgery::answers_of_an_earlier_run", answers_of_an_earlier_run),
        case("forgery::answers_once_more", answers_once_more),
        case("forgery::every_flipped_bit_is_refused", every_flipped_bit_is_refused),
        case("forgery::a_true_answer_from_another_sender", a_true_answer_from_another_sender),
        case("forgery::a_true_answer_outside_the_tunnel", a_true_answer_outside_the_tunnel),
        case("forgery::a_probe_seen_on_a_hairpin", a_probe_seen_on_a_hairpin),
    ]
}

/// The answer that somebody makes who has seen the probe but not the key.
fn forged(probe: &Packet) -> Packet {
    let mut answer = Packet::answer(probe);
    answer.change(|payload| payload[40..56].reverse());
    answer
}

fn wrong_tags_keep_no_dead_tunnel_alive() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST)]);
    let _forger = Puppet::start(&scene.pair.far, |probe| vec![forged(probe).outward()]);
    scene.far.cut();
    scene.prober.await_state("t", State::Down);
    let forged = scene.prober.view("t").counters.forged;
    scene.prober.await_view("t", "more forged answers", |view| view.counters.forged > forged + 10);
    let view = scene.prober.view("t");
    assert_eq!(view.state, State::Down, "and stays so");
    assert_eq!(view.counters.forged, scene.prober.rejects(Reject::Tag));
    assert_eq!(view.last_reject.unwrap().reason, "tag");
    scene.far.heal();
    scene.prober.await_state("t", State::Degraded);
}

fn wrong_tags_wake_no_dead_tunnel() {
    let pair = Pair::new();
    let _forger = Puppet::start(&pair.far, |probe| vec![forged(probe).outward(); 3]);
    let prober = Prober::start(&pair, &[tunnel("t", REQUEST)]);
    prober.await_state("t", State::Down);
    prober.await_view("t", "forged answers", |view| view.counters.forged > 50);
    assert_eq!(prober.entered("t"), [State::Down]);
    assert_eq!(prober.view("t").counters.received, 0);
}

fn ten_thousand_move_nothing() {
    const AT_ONCE: usize = 500;
    let mut tunnel = tunnel("t", REQUEST);
    tunnel.check = patient();
    let scene = Scene::healthy(&[tunnel]);
    let probe = Tap::open(&scene.pair.far).take(1).remove(0);
    let injector = Injector::open(&scene.pair.far);
    let volley = vec![forged(&probe).outward(); AT_ONCE];
    let before = scene.prober.view("t").counters.sent;
    for volleys in 1..=20 {
        injector.send(&volley);
        let sent = u64::try_from(volleys * AT_ONCE).unwrap();
        scene.prober.await_view("t", "every forged answer counted", |view| view.counters.forged == sent);
    }
    scene.prober.await_samples("t", 10);
    let view = scene.prober.view("t");
    assert!(view.counters.sent > before, "probing went on");
    assert_eq!((view.counters.lost, view.counters.late, view.counters.duplicate), (0, 0, 0), "{view:#?}");
    assert_eq!(scene.prober.entered("t"), [State::Healthy]);
}

/// All that an eavesdropper recorded before a restart, played to the next run.
fn answers_of_an_earlier_run() {
    let pair = Pair::new();
    let recorded: Vec<_> = {
        let _first = Prober::start(&pair, &[tunnel("t", REQUEST)]);
        Tap::open(&pair.far).take(20).iter().map(|probe| Packet::answer(probe).outward()).collect()
    };
    let _far = Puppet::start(&pair.far, move |_| recorded.clone());
    let second = Prober::start(&pair, &[tunnel("t", REQUEST)]);
    second.await_state("t", State::Down);
    second.await_samples("t", 20);
    assert_eq!(second.entered("t"), [State::Down]);
    assert_eq!(second.all_rejects(), 0, "the kernel's filter knows that they are another run's");
}

/// All that was answered in this very run, once more.
fn answers_once_more() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST)]);
    let mut recorded: Vec<_> =
        Tap::open(&scene.pair.far).take(20).iter().map(|probe| Packet::answer(probe).outward()).collect();
    scene.far.cut();
    // The answers to the last of them might still be awaited by a busy prober.
    scene.prober.await_state("t", State::Down);
    recorded.truncate(15);
    let received = scene.prober.view("t").counters.received;
    let _player = Puppet::start(&scene.pair.far, move |_| recorded.clone());
    scene.prober.await_samples("t", 10);
    let view = scene.prober.view("t");
    assert_eq!(view.state, State::Down);
    assert_eq!(view.counters.received, received, "nothing was received that counts");
    assert!(view.counters.duplicate + view.counters.late >= 15, "{view:#?}");
}

/// One answer for each bit of a payload, with that bit wrong and every checksum right.
fn every_flipped_bit_is_refused() {
    let pair = Pair::new();
    // The mark is nobody's business where no key was agreed upon.
    let covered = 56 * 8;
    let mut bit = 0;
    let flipper = Puppet::start(&pair.far, move |probe| {
        let flipped = (0..16).map(|_| {
            let mut answer = Packet::answer(probe);
            answer.change(|payload| payload[bit / 8] ^= 1 << (bit % 8));
            bit = (bit + 1) % covered;
            answer.outward()
        });
        flipped.collect()
    });
    let prober = Prober::start(&pair, &[tunnel("t", REQUEST)]);
    prober.await_samples("t", 2 * u64::try_from(covered / 16).unwrap());
    drop(flipper);
    assert_eq!(prober.view("t").counters.received, 0);
    assert_eq!(prober.entered("t"), [State::Down]);
    // Where the magic and the epoch are, the kernel's filter looks.
    let met = [Reject::Tag, Reject::Version];
    met.iter().for_each(|reject| assert!(prober.rejects(*reject) > 0, "{reject}"));
    assert_eq!(prober.all_rejects(), met.iter().map(|reject| prober.rejects(*reject)).sum::<u64>(), "and nothing else");
}

/// Somebody who took the true answer, and sends it from elsewhere.
fn a_true_answer_from_another_sender() {
    let pair = Pair::new();
    let _thief = Puppet::start(&pair.far, |probe| {
        let mut answer = Packet::answer(probe);
        answer.set_outer_source(address(OTHER[0]));
        vec![answer.outward()]
    });
    let prober = Prober::start(&pair, &[tunnel("t", REQUEST)]);
    prober.await_state("t", State::Down);
    prober.await_samples("t", 10);
    assert_eq!(prober.entered("t"), [State::Down]);
    assert!(prober.rejects(Reject::WrongOuter) > 0);
}

/// The very answer, but not by the way that is to be proven; in either style.
fn a_true_answer_outside_the_tunnel() {
    let pair = Pair::new();
    // Inside addresses that this host would take bare packets for.
    links::configure(Some(&pair.near), "lo", &["10.100.0.8/32".parse().unwrap()]).unwrap();
    let mut request = tunnel("request", REQUEST);
    request.onion.encapsulation = adit::wire::gre::Options::keyed(1).into();
    let mut reply = tunnel("reply", REPLY);
    reply.onion.encapsulation = adit::wire::gre::Options::keyed(2).into();
    // For this one's sake there is a socket that hears bare answers.
    let mut bare = tunnel("bare", REQUEST_BARE);
    (bare.onion.encapsulation, bare.check) = (adit::wire::gre::Options::keyed(3).into(), patient());
    let _far = FarEnd::start(&pair, std::slice::from_ref(&bare));
    let _hairpin = Puppet::start(&pair.far, |probe| {
        let answered = Packet::answer(probe).bare();
        // Forwarded by the far router's default route instead of into the tunnel.
        let returned = Packet::returned(probe).bare();
        vec![answered, returned]
    });
    let prober = Prober::start(&pair, &[request, reply, bare]);
    for name in ["request", "reply"] {
        prober.await_state(name, State::Down);
        prober.await_samples(name, 10);
        assert_eq!(prober.entered(name), [State::Down]);
        assert_eq!(prober.view(name).last_reject.map(|reject| reject.reason), Some("wrong-path".to_owned()));
    }
    assert!(prober.rejects(Reject::WrongPath) >= 20);
    prober.await_state("bare", State::Healthy);
}

/// The probes turn round before they reach the tunnel: here the far endpoint's address is this
/// host's own, so each is delivered to the very socket that waits for its answer. A reply-style
/// probe is all that its answer would be, but for the way.
fn a_probe_seen_on_a_hairpin() {
    let scene = Scene::healthy(&[tunnel("t", REPLY)]);
    links::configure(Some(&scene.pair.near), "lo", &["192.0.2.11/32".parse().unwrap()]).unwrap();
    scene.prober.await_state("t", State::Down);
    scene.prober.await_samples("t", 10);
    assert_eq!(scene.prober.view("t").state, State::Down);
    assert!(scene.prober.rejects(Reject::WrongOuter) >= 3, "they were seen, and seen through");
    let reasons: BTreeSet<_> = scene.prober.view("t").last_reject.into_iter().map(|reject| reject.reason).collect();
    assert_eq!(reasons, BTreeSet::from(["wrong-outer".to_owned()]));
}
