//! More than one tunnel: namespaces, return paths, marks, routes.

use std::os::fd::AsRawFd;

use adit::config::Config;
use adit::daemon::plan::Plan;
use adit::engine::event::Kind as Told;
use adit::engine::settings::ReturnPath;
use adit::engine::{Route, State, Tunnel};
use adit::io::netns;
use adit::reflect::plan::Fault;
use adit::wire::Reject;
use adit::wire::payload::Key;

use crate::by_hand::{Injector, Packet, Puppet};
use crate::kit::{
    FAR, FarEnd, NEAR, OTHER, Pair, Prober, REPLY, REQUEST, Scene, address, plan, seen_from_afar, tunnel, tunnel_of,
};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("paths::each_tunnel_in_its_own_namespace", each_tunnel_in_its_own_namespace),
        case("paths::an_answer_in_another_namespace", an_answer_in_another_namespace),
        case("paths::strict_wants_the_answer_in_the_tunnel_itself", || answer_through_the_other(ReturnPath::Strict)),
        case("paths::any_takes_it_from_another_tunnel_of_ours", || answer_through_the_other(ReturnPath::Any)),
        case("paths::any_takes_it_from_no_stranger", any_takes_it_from_no_stranger),
        case("paths::the_mark_makes_an_answer_authenticated", the_mark_makes_an_answer_authenticated),
        case("paths::without_the_mark_it_is_none", || without_the_mark_it_is_none(None)),
        case("paths::with_another_key's_mark_it_is_none", || without_the_mark_it_is_none(Some(Key::new([2; 16])))),
        case("paths::traffic_moves_away_and_back", traffic_moves_away_and_back),
        case("paths::a_disabled_tunnel_is_left_alone", a_disabled_tunnel_is_left_alone),
    ]
}

/// A plan for one tunnel in each of two namespaces, with the same addresses in both, as the
/// configuration file says it.
fn apart(pairs: [&Pair; 2]) -> Plan {
    let tunnels = pairs.map(|pair| {
        // A path that means the same to every thread of this process.
        let netns = format!("/proc/self/fd/{}", pair.near.as_raw_fd());
        format!(
            r#"
            [[tunnel]]
            name = "in-{netns}"
            netns = "{netns}"
            encapsulation = "gre"
            local_endpoint = "{}"
            remote_endpoint = "{}"
            interface_address = "10.100.0.8/31"
            "#,
            NEAR[0], FAR[0]
        )
        .replacen("in-/proc/self/fd/", "in-", 1)
    });
    let text = format!(
        r#"
        [defaults.health_check]
        interval = "100ms"
        timeout = "400ms"
        down_window = "900ms"
        [defaults.health_check.rules]
        degraded_window = "4s"
        {}
        "#,
        tunnels.concat()
    );
    let config = Config::parse("adit.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    Plan { access: None, state_dir: None, ..Plan::new(config) }
}

fn name(pair: &Pair) -> String {
    format!("in-{}", pair.near.as_raw_fd())
}

fn each_tunnel_in_its_own_namespace() {
    let (one, other, here) = (Pair::new(), Pair::new(), netns::make().unwrap());
    let far = [&one, &other].map(|pair| FarEnd::start(pair, &[tunnel("t", REQUEST)]));
    let prober = Prober::with(&here, apart([&one, &other]));
    [&one, &other].iter().for_each(|pair| prober.await_state(&name(pair), State::Healthy));
    far[0].cut();
    prober.await_state(&name(&one), State::Down);
    prober.await_samples(&name(&other), 5);
    assert_ne!(prober.view(&name(&other)).state, State::Down);
    far[0].heal();
    prober.await_state(&name(&one), State::Healthy);
}

/// Two namespaces are two networks: an answer that is right in all else proves nothing there.
fn an_answer_in_another_namespace() {
    let (one, other, here) = (Pair::new(), Pair::new(), netns::make().unwrap());
    let astray = Injector::open(&other.far);
    let _far = Puppet::start(&one.far, move |probe| {
        astray.send(&[Packet::answer(probe).outward()]);
        Vec::new()
    });
    let prober = Prober::with(&here, apart([&one, &other]));
    prober.await_state(&name(&one), State::Down);
    prober.await_samples(&name(&one), 10);
    assert_eq!(prober.entered(&name(&one)), [State::Down]);
    assert!(prober.rejects(Reject::WrongNamespace) > 0);
}

/// A far side that answers from its other endpoint.
fn detour(pair: &Pair) -> Puppet {
    Puppet::start(&pair.far, |probe| {
        let mut answer = Packet::answer(probe);
        answer.set_outer_source(address(OTHER[0]));
        vec![answer.outward()]
    })
}

/// The far side answers to a probe through one tunnel by way of the other.
fn answer_through_the_other(return_path: ReturnPath) {
    let pair = Pair::new();
    let _far = detour(&pair);
    let mut one = tunnel("one", REQUEST);
    one.check.return_path = return_path;
    let other = tunnel_of("other", REPLY, [NEAR[0], OTHER[0]], 1);
    let prober = Prober::start(&pair, &[one, other]);
    match return_path {
        ReturnPath::Any => prober.await_state("one", State::Healthy),
        ReturnPath::Strict => {
            prober.await_state("one", State::Down);
            prober.await_samples("one", 10);
            assert_eq!(prober.entered("one"), [State::Down]);
            assert!(prober.rejects(Reject::WrongOuter) > 0);
        }
    }
}

fn any_takes_it_from_no_stranger() {
    let pair = Pair::new();
    let _far = detour(&pair);
    let mut one = tunnel("one", REQUEST);
    one.check.return_path = ReturnPath::Any;
    let prober = Prober::start(&pair, &[one]);
    prober.await_state("one", State::Down);
    prober.await_samples("one", 10);
    assert_eq!(prober.entered("one"), [State::Down]);
    assert!(prober.rejects(Reject::WrongOuter) > 0);
}

fn marked(name: &str) -> Tunnel {
    let mut tunnel = tunnel(name, REQUEST);
    tunnel.check.mark_key = Some(Key::new([1; 16]));
    tunnel
}

fn the_mark_makes_an_answer_authenticated() {
    let (with, mut without) = (marked("with"), tunnel("without", REPLY));
    without.onion.encapsulation = adit::wire::gre::Options::keyed(1).into();
    let pair = Pair::new();
    let far = [&with, &without].map(seen_from_afar).into();
    let _far = FarEnd::with(&pair.far, far, with.check.mark_key.clone());
    let prober = Prober::start(&pair, &[with, without]);
    prober.await_state("with", State::Healthy);
    prober.await_state("without", State::Healthy);
    assert_eq!(prober.view("with").assurance, "authenticated");
    assert_eq!(prober.view("without").assurance, "reflected", "who has no key cannot know");
}

fn without_the_mark_it_is_none(key: Option<Key>) {
    let pair = Pair::new();
    let tunnel = marked("t");
    let _far = FarEnd::with(&pair.far, vec![seen_from_afar(&tunnel)], key);
    let prober = Prober::start(&pair, &[tunnel]);
    prober.await_state("t", State::Down);
    prober.await_samples("t", 10);
    assert_eq!(prober.entered("t"), [State::Down]);
    assert!(prober.rejects(Reject::Mark) > 0);
    let view = prober.view("t");
    assert_eq!((view.last_reject.unwrap().reason.as_str(), view.assurance), ("mark", "reflected"));
}

fn traffic_moves_away_and_back() {
    let tunnels = [tunnel("first", REQUEST), tunnel_of("backup", REQUEST, [NEAR[1], FAR[1]], 1)];
    let pair = Pair::new();
    let far = FarEnd::start(&pair, &tunnels);
    let route = |tunnel, priority| Route {
        prefix: "10.20.0.0/16".parse().unwrap(),
        tunnel,
        priority,
        weight: 1,
        device: None,
        via: None,
        place: 0,
        onlink: false,
    };
    let prober =
        Prober::with(&pair.near, Plan { routes: vec![route(0, 100), route(1, 200)], ..plan(tunnels.to_vec()) });
    let carries = |prober: &Prober| {
        let views = prober.ask(|engine, _| engine.lookup(address("10.20.1.1"), None, &Default::default()));
        views.into_iter().filter(|view| view.selected).map(|view| view.tunnel).collect::<Vec<_>>()
    };
    tunnels.iter().for_each(|tunnel| prober.await_state(&tunnel.name, State::Healthy));
    assert_eq!(carries(&prober), ["first"]);

    far.suffer(vec![Fault::cut("first")]);
    prober.await_state("first", State::Down);
    assert_eq!(carries(&prober), ["backup"]);

    // Both down: a penalty reorders, it takes nothing away.
    far.cut();
    prober.await_state("backup", State::Down);
    assert_eq!(carries(&prober), ["first"]);

    far.heal();
    tunnels.iter().for_each(|tunnel| prober.await_state(&tunnel.name, State::Healthy));
    assert_eq!(carries(&prober), ["first"]);

    let events = prober.events();
    let down = events
        .iter()
        .position(|event| matches!(&event.kind, Told::Transition { tunnel, to: State::Down, .. } if tunnel == "first"));
    let moved = events.iter().position(
        |event| matches!(&event.kind, Told::Route { from, to, .. } if *from == ["first"] && *to == ["backup"]),
    );
    assert!(moved.is_some() && down.is_some());
    let degraded = events.iter().position(
        |event| matches!(&event.kind, Told::Transition { tunnel, to: State::Degraded, .. } if tunnel == "first"),
    );
    assert!(degraded < moved, "a route moves because of a transition: {events:#?}");
}

fn a_disabled_tunnel_is_left_alone() {
    let mut disabled = tunnel("disabled", REQUEST);
    (disabled.check.enabled, disabled.onion.encapsulation) = (false, adit::wire::gre::Options::keyed(1).into());
    let scene = Scene::new(&[disabled, tunnel("t", REQUEST)]);
    scene.prober.await_state("t", State::Healthy);
    scene.prober.await_samples("t", 10);
    let view = scene.prober.view("disabled");
    assert_eq!((view.state, view.checked, view.penalty, view.counters.sent), (State::Unknown, false, 0, 0));
}
