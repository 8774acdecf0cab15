//! The four styles, in and over both families, and the GRE options.

use adit::engine::{State, Tunnel};
use adit::wire::{Direction, Kind, Reject, Style, gre};

use crate::kit::{
    FAR, FarEnd, NEAR, Pair, Prober, REPLY, REQUEST, REQUEST_BARE, Scene, seen_from_afar, tunnel, tunnel_of,
};
use crate::{Case, case};

const NAME: &str = "t";
const FAMILIES: [&str; 2] = ["v4", "v6"];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [Kind::Request, Kind::Reply] {
        for direction in [Direction::Bidirectional, Direction::Unidirectional] {
            for (inner, inner_family) in FAMILIES.iter().enumerate() {
                for (outer, outer_family) in FAMILIES.iter().enumerate() {
                    let style = Style { kind, direction };
                    let tunnel = tunnel_of(NAME, style, [NEAR[outer], FAR[outer]], inner);
                    let title = format!("styles::{kind:?}_{direction:?}_{inner_family}_in_{outer_family}");
                    cases.push(case(title.to_lowercase(), || is_healthy_until_it_is_cut(tunnel)));
                }
            }
        }
    }
    let options = [
        ("key", gre::Options { key: Some(4_711), ..gre::Options::default() }),
        ("checksum", gre::Options { checksum: true, ..gre::Options::default() }),
        ("sequence", gre::Options { sequence: true, ..gre::Options::default() }),
        ("everything", gre::Options { key: Some(u32::MAX), checksum: true, sequence: true }),
    ];
    for (title, gre) in options {
        for style in [REQUEST, REPLY, REQUEST_BARE] {
            for (outer, outer_family) in FAMILIES.iter().enumerate() {
                let title = format!("gre::{title}_{:?}_{:?}_over_{outer_family}", style.kind, style.direction);
                let mut tunnel = tunnel_of(NAME, style, [NEAR[outer], FAR[outer]], 0);
                tunnel.onion.encapsulation = gre.into();
                cases.push(case(title.to_lowercase(), || is_healthy_until_it_is_cut(tunnel)));
            }
        }
    }
    cases.push(case("gre::another_key_at_the_far_end_is_never_healthy", another_key_at_the_far_end_is_never_healthy));
    cases.push(case("gre::an_answer_with_another_key_is_refused", an_answer_with_another_key_is_refused));
    cases
}

fn is_healthy_until_it_is_cut(tunnel: Tunnel) {
    let scene = Scene::healthy(&[tunnel]);
    scene.far.cut();
    scene.prober.await_state(NAME, State::Down);
    scene.far.heal();
    scene.prober.await_state(NAME, State::Degraded);

    let entered = scene.prober.entered(NAME);
    let first = |state| entered.iter().position(|&entered| entered == state);
    assert_eq!(first(State::Healthy), Some(0), "{entered:?}");
    assert!(first(State::Degraded) < first(State::Down), "degraded on the way down: {entered:?}");
    assert_eq!(scene.prober.all_rejects(), late(&scene.prober), "every answer was as it must be");
}

/// Answers that a busy machine has held up; nothing else may have been refused.
fn late(prober: &Prober) -> u64 {
    prober.rejects(Reject::Late)
}

/// The far router does not know the tunnel: it hears nothing.
fn another_key_at_the_far_end_is_never_healthy() {
    for theirs in [Some(4_712), None] {
        let mut ours = tunnel(NAME, REQUEST);
        ours.onion.encapsulation = gre::Options::keyed(4_711).into();
        let pair = Pair::new();
        let mut far = seen_from_afar(&ours);
        far.wrap = adit::reflect::Wrap::Gre(gre::Options { key: theirs, ..gre::Options::default() });
        let _far = FarEnd::with(&pair.far, vec![far], None);
        let prober = Prober::start(&pair, &[ours]);
        prober.await_state(NAME, State::Down);
        prober.await_samples(NAME, 10);
        assert_eq!(prober.entered(NAME), [State::Down]);
        assert_eq!(prober.view(NAME).counters.received, 0);
    }
}

/// The far router answers through another tunnel between the same endpoints.
fn an_answer_with_another_key_is_refused() {
    let mut ours = tunnel(NAME, REQUEST);
    ours.onion.encapsulation = gre::Options::keyed(4_711).into();
    let pair = Pair::new();
    let back = crate::by_hand::Puppet::start(&pair.far, |probe| {
        let mut answer = crate::by_hand::Packet::answer(probe);
        answer.set_key(4_712);
        vec![answer.outward()]
    });
    let prober = Prober::start(&pair, &[ours]);
    prober.await_state(NAME, State::Down);
    prober.await_samples(NAME, 10);
    assert_eq!(prober.entered(NAME), [State::Down]);
    assert!(prober.rejects(Reject::WrongKey) > 0);
    drop(back);
}
