//! Another configuration, under virtual time: what has not changed does not notice.

#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on must fail")]

mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use adit::engine::event::Kind;
use adit::engine::health::{Rules, State};
use adit::engine::numbers::Numbers;
use adit::engine::penalty::{DEGRADED, DOWN};
use adit::engine::settings::{Source, Terms};
use adit::engine::snapshot::TunnelView;
use adit::engine::{Drain, Engine, Layout, Material, Reloaded, Route, Setup, Standing, Start, Time, Tunnel, WallTime};
use adit::wire::Reject;
use adit::wire::esp::{Algorithm, peek};
use proptest::prelude::*;
use sim::esp::{esp_tunnel, material, seed};
use sim::far::Far;
use sim::{Sim, at_ms, ms, tunnel};

fn layout(tunnels: Vec<Tunnel>) -> Layout {
    Layout { tunnels, routes: Vec::new(), places: Vec::new(), steers: false, associations: BTreeMap::new() }
}

fn counts(kept: usize, changed: usize, added: usize, removed: usize) -> Reloaded {
    Reloaded { kept, changed, added, removed }
}

/// The same tunnel by another way.
fn elsewhere(mut tunnel: Tunnel) -> Tunnel {
    tunnel.onion.ttl = 63;
    tunnel
}

/// The index of a tunnel by its name.
fn find(sim: &Sim, name: &str) -> u32 {
    sim.engine.find(name).unwrap()
}

/// Everything of a tunnel that shows, and what it told.
fn life(sim: &mut Sim, name: &str) -> (TunnelView, Vec<(Time, State)>, Vec<Kind>) {
    let view = sim.view(sim.engine.find(name).unwrap());
    let transitions =
        sim.transitions().into_iter().filter(|(_, of, _)| of == name).map(|(at, _, to)| (at, to)).collect();
    let samples =
        sim.events.iter().filter(|event| matches!(&event.kind, Kind::Sample { tunnel, .. } if tunnel == name));
    (view, transitions, samples.map(|event| event.kind.clone()).collect())
}

/// A minute of a tunnel that is cut for a while.
fn minute(reloads: &[(Time, Vec<Tunnel>)]) -> Sim {
    let mut sim = Sim::recording((0..3).map(tunnel).collect(), Vec::new(), 1, true);
    sim.far.iter_mut().for_each(|far| far.rtt = ms(80));
    let mut script: Vec<(Time, Option<bool>, Vec<Tunnel>)> =
        vec![(at_ms(20_000), Some(true), Vec::new()), (at_ms(24_500), Some(false), Vec::new())];
    script.extend(reloads.iter().map(|(at, tunnels)| (*at, None, tunnels.clone())));
    script.sort_by_key(|(at, ..)| *at);
    for (at, cut, tunnels) in script {
        sim.run_until(at);
        match cut {
            None => drop(sim.reload(layout(tunnels))),
            Some(true) => sim.cut(find(&sim, "t1")),
            Some(false) => sim.heal(find(&sim, "t1")),
        }
    }
    sim.run_until(at_ms(60_000));
    sim
}

#[test]
fn an_untouched_tunnel_lives_as_if_nothing_had_been_reloaded() {
    let mut undisturbed = minute(&[]);
    let known = ["t0", "t1"].map(|name| life(&mut undisturbed, name));
    let others = [
        // Another order, with a new one before and one gone.
        vec![tunnel(7), tunnel(1), tunnel(0)],
        // One changed.
        vec![tunnel(0), tunnel(1), elsewhere(tunnel(2))],
        vec![tunnel(1), tunnel(0)],
        (0..40).rev().map(tunnel).collect(),
    ];
    // All through the bursts of three after a start, a failure, and a recovery; probes are in flight at most
    // of these moments.
    let moments = (10..500).step_by(35).chain((19_900..26_500).step_by(97)).chain([40_000]);
    let mut in_flight = 0;
    for (nth, moment) in moments.enumerate() {
        let other = others[nth % others.len()].clone();
        let again = others[(nth + 1) % others.len()].clone();
        let mut sim = minute(&[(at_ms(moment), other), (at_ms(moment + 1_013), again)]);
        let at = |sent: &&sim::Sent| sent.at < at_ms(moment) && at_ms(moment) < sent.at + ms(80);
        in_flight += sim.sent.iter().filter(at).count();
        for (name, known) in ["t0", "t1"].into_iter().zip(&known) {
            assert_eq!(&life(&mut sim, name), known, "{name}, reloaded at {moment} ms");
        }
        assert_eq!(sim.rejected(Reject::Tag) + sim.rejected(Reject::NeverSent) + sim.rejected(Reject::Duplicate), 0);
    }
    assert!(in_flight > 20, "{in_flight} probes were in flight at a reload");
}

#[test]
fn a_reload_says_what_has_become_of_the_tunnels_and_a_refused_one_why() {
    let mut sim = Sim::new((0..4).map(tunnel).collect(), Vec::new(), 1);
    sim.run_until(at_ms(3_000));
    let before = sim.events.len();
    let mut checked = tunnel(1);
    checked.check.interval = ms(500);
    let tunnels = vec![tunnel(0), checked, elsewhere(tunnel(2)), tunnel(8), tunnel(9)];
    assert_eq!(sim.reload(layout(tunnels)), counts(1, 2, 2, 1));
    sim.command(|engine, now| engine.handle_reload_refused(now, "adit.toml:3:1: no"));
    let told: Vec<Kind> = sim.events[before..].iter().map(|event| event.kind.clone()).collect();
    let Kind::Transition { tunnel, from: State::Healthy, to: State::Unknown, rule: 0, penalty: 0, .. } = &told[0]
    else {
        panic!("{told:?}")
    };
    assert_eq!(tunnel, "t2");
    assert_eq!(told[1], Kind::Reload { kept: 1, changed: 2, added: 2, removed: 1, reason: None });
    let reason = Some("adit.toml:3:1: no".to_owned());
    assert_eq!(told[2..], [Kind::Reload { kept: 5, changed: 0, added: 0, removed: 0, reason }]);
}

#[test]
fn answers_find_no_tunnel_but_their_own() {
    let mut sim = Sim::new((0..3).map(tunnel).collect(), Vec::new(), 1);
    sim.far.iter_mut().for_each(|far| far.rtt = ms(300));
    sim.run_until(at_ms(10_000));
    while sim
        .sent
        .iter()
        .rev()
        .take_while(|sent| sim.now.since(sent.at) < ms(200))
        .map(|sent| sent.tunnel)
        .collect::<BTreeSet<_>>()
        .len()
        < 2
    {
        sim.run_for(ms(1));
    }
    let on_the_way: Vec<u32> =
        sim.sent.iter().filter(|sent| sim.now.since(sent.at) < ms(300)).map(|sent| sent.tunnel).collect();
    // The last takes the first one's place; the first comes back at once, as another one.
    assert_eq!(sim.reload(layout(vec![tunnel(2), elsewhere(tunnel(1))])), counts(1, 1, 0, 1));
    assert_eq!(sim.reload(layout(vec![tunnel(2), elsewhere(tunnel(1)), tunnel(0)])), counts(2, 0, 1, 0));
    let lost = on_the_way.iter().filter(|&&tunnel| tunnel < 2).count() as u64;
    assert!(lost > 0);
    sim.run_for(ms(301));
    assert_eq!(sim.rejected(Reject::UnknownTunnel), lost);
    let strange = [Reject::NeverSent, Reject::Duplicate, Reject::Late, Reject::WrongInner, Reject::WrongOuter];
    assert_eq!(strange.map(|reject| sim.rejected(reject)), [0; 5]);
    sim.run_for(ms(10_000));
    assert_eq!(sim.view(find(&sim, "t2")).counters.lost, 0);
}

#[test]
fn new_and_changed_tunnels_begin_soon_with_three_probes() {
    let slow = |index| {
        let mut tunnel = tunnel(index);
        tunnel.check.interval = ms(60_000);
        tunnel
    };
    let mut sim = Sim::new(vec![slow(0), slow(1)], Vec::new(), 1);
    sim.run_until(at_ms(200_000));
    let begin = sim.now;
    sim.reload(layout(vec![slow(0), elsewhere(slow(1)), slow(5)]));
    assert_eq!([sim.state(1), sim.state(2)], [State::Unknown; 2]);
    sim.run_for(ms(1_100));
    for tunnel in [1, 2] {
        assert_eq!(sim.sent.iter().filter(|sent| sent.at > begin && sent.tunnel == tunnel).count(), 3);
        assert_eq!(sim.state(tunnel), State::Healthy);
    }
}

#[test]
fn a_changed_tunnel_is_as_if_it_were_new_but_for_an_operators_drain() {
    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    sim.run_until(at_ms(5_000));
    sim.command(|engine, now| engine.set_drain(now, 0, Some(Drain::Degraded)));
    sim.cut(0);
    sim.run_to(0, State::Down, ms(5_000));
    assert_eq!(sim.view(0).penalty, DOWN + DEGRADED);
    sim.reload(layout(vec![elsewhere(tunnel(0))]));
    let view = sim.view(0);
    assert_eq!((view.state, view.drained, view.penalty), (State::Unknown, true, DEGRADED));
    assert_eq!((view.window.samples, view.counters.sent, view.rtt), (0, 0, None));
    assert_eq!(view.since, sim.engine.wall(sim.now));
}

/// A drain that ended says for as long as there is no verdict that traffic may come back, and no longer.
#[test]
fn of_a_changed_tunnel_nothing_is_said_because_of_a_drain_long_ago() {
    let drain_and_undrain = |sim: &mut Sim| {
        sim.command(|engine, now| engine.set_drain(now, 0, Some(Drain::Down)));
        sim.command(|engine, now| engine.set_drain(now, 0, None));
    };
    let cost_after_reload = |sim: &mut Sim| {
        while sim.engine.poll_steer().is_some() {}
        sim.reload(Layout { steers: true, ..layout(vec![elsewhere(tunnel(0))]) });
        std::iter::from_fn(|| sim.engine.poll_steer()).last().unwrap().penalty
    };
    let mut before_any_verdict = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    drain_and_undrain(&mut before_any_verdict);
    assert_eq!(cost_after_reload(&mut before_any_verdict), Some(0), "it comes back from the drain");

    let mut judged_since = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    drain_and_undrain(&mut judged_since);
    judged_since.run_to(0, State::Healthy, ms(5_000));
    judged_since.cut(0);
    judged_since.run_to(0, State::Down, ms(10_000));
    assert_eq!(cost_after_reload(&mut judged_since), None, "its routes stay as they were found");

    let mut judged_before = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    judged_before.cut(0);
    judged_before.run_to(0, State::Down, ms(10_000));
    drain_and_undrain(&mut judged_before);
    assert_eq!(cost_after_reload(&mut judged_before), None, "its routes stay as they were found");
}

#[test]
fn other_numbers_of_a_check_keep_what_is_known() {
    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    sim.run_until(at_ms(100_500));
    let before = sim.view(0);
    let mut other = tunnel(0);
    other.check.rules.degraded_window = Duration::from_secs(600);
    other.check.interval = ms(100);
    other.check.timeout = adit::engine::settings::Timeout::Fixed(ms(300));
    assert_eq!(sim.reload(layout(vec![other.clone()])), counts(0, 1, 0, 0));
    let after = sim.view(0);
    assert_eq!((after.state, after.since, after.rtt), (before.state, before.since, before.rtt));
    assert_eq!((after.window.samples, after.window.seconds), (before.window.samples, 600.0));
    assert_eq!(after.counters, before.counters);
    let sent = sim.sent.len();
    sim.run_for(ms(1_000));
    assert!((9..=12).contains(&(sim.sent.len() - sent)), "the next probe does not wait for the old interval");
    other.check.rules.degraded_window = Duration::from_secs(10);
    sim.reload(layout(vec![other]));
    sim.run_for(ms(1_000));
    let view = sim.view(0);
    assert!((24..=32).contains(&view.window.samples), "ten seconds of samples, most of them a second apart: {view:?}");
    assert_eq!(view.state, State::Healthy);
}

#[test]
fn a_rule_that_is_stricter_judges_the_samples_that_there_are_with_the_next_one() {
    let mut sim = Sim::new(vec![tunnel(0)], Vec::new(), 1);
    sim.run_until(at_ms(3_000));
    sim.far[0].lose_every = 10;
    let mut lax = tunnel(0);
    lax.check.rules.degraded_ratio = adit::engine::health::Ratio(900_000);
    sim.reload(layout(vec![lax]));
    sim.run_until(at_ms(60_000));
    assert_eq!(sim.state(0), State::Healthy);
    sim.far[0].lose_every = 0;
    sim.reload(layout(vec![tunnel(0)]));
    assert_eq!(sim.state(0), State::Healthy, "only a sample moves a state");
    sim.run_for(ms(1_100));
    assert_eq!(sim.state(0), State::Degraded);
}

#[test]
fn a_tunnel_that_is_not_checked_any_more_is_unknown_and_says_why_until_it_is_again() {
    let mut sim = Sim::new(vec![tunnel(0)], vec![route("10.0.0.0/8", 0)], 1);
    sim.run_until(at_ms(3_000));
    sim.cut(0);
    sim.run_to(0, State::Down, ms(5_000));
    while sim.engine.poll_steer().is_some() {}
    let mut unchecked = tunnel(0);
    unchecked.check.enabled = false;
    sim.reload(Layout { routes: vec![route("10.0.0.0/8", 0)], ..layout(vec![unchecked]) });
    let view = sim.view(0);
    assert_eq!((view.state, view.penalty, view.checked), (State::Unknown, 0, false));
    assert_eq!(view.reason, "not checked: health_check.enabled is false");
    assert_eq!(sim.engine.routes().penalty(0), 0);
    let costs: Vec<_> = std::iter::from_fn(|| sim.engine.poll_steer()).map(|steer| steer.penalty).collect();
    assert_eq!(costs.last(), Some(&Some(0)));
    let last = sim.events.iter().rev().find_map(|event| {
        let Kind::Transition { from, to, reason, .. } = &event.kind else { return None };
        Some((*from, *to, reason.clone()))
    });
    assert_eq!(last, Some((State::Down, State::Unknown, view.reason)));
    let sent = sim.sent.len();
    sim.run_for(ms(60_000));
    assert_eq!(sim.sent.len(), sent, "nothing is sent");
    sim.heal(0);
    sim.reload(Layout { routes: vec![route("10.0.0.0/8", 0)], ..layout(vec![tunnel(0)]) });
    sim.run_for(ms(900));
    assert_eq!((sim.state(0), sim.sent.len()), (State::Healthy, sent + 3));
}

fn route(prefix: &str, tunnel: u32) -> Route {
    let prefix = prefix.parse().unwrap();
    Route { prefix, tunnel, priority: 100, weight: 1, device: Some("x".into()), via: None, place: 0, onlink: false }
}

#[test]
fn every_cost_is_told_again_and_routes_stay_as_the_kernel_has_them() {
    let tunnels: Vec<Tunnel> = (0..3).map(tunnel).collect();
    let setup = Setup {
        tunnels,
        routes: vec![route("10.0.0.0/8", 0), route("10.0.0.0/8", 1), route("192.0.2.0/24", 2)],
        places: Vec::new(),
        steers: true,
        secret: sim::secret(),
        record: false,
        associations: BTreeMap::new(),
    };
    let mut engine = Engine::new(Time::ZERO, WallTime(0), setup);
    engine.set_drain(Time::ZERO, 1, Some(Drain::Down));
    engine.handle_standings([(0, Standing::Installed(None)), (1, Standing::Waiting("x".to_owned()))]);
    engine.handle_standings([(2, Standing::Installed(None))]);
    while engine.poll_steer().is_some() {}
    let mut dearer = route("192.0.2.0/24", 0);
    dearer.priority = 200;
    let routes = vec![route("198.51.100.0/24", 1), route("10.0.0.0/8", 1), route("10.0.0.0/8", 2), dearer];
    let tunnels = vec![tunnel(2), tunnel(0), tunnel(1)];
    engine.handle_reload(at_ms(1), Layout { routes, steers: true, ..layout(tunnels) });
    let shown: Vec<_> = (0..4).map(|route| engine.routes().standing(route).word()).collect();
    // Tunnels 1 and 2 of now are 0 and 1 of before; the dearer one is another route.
    assert_eq!(shown, ["pending", "installed", "waiting", "pending"]);
    let costs: BTreeMap<u32, Option<u32>> =
        std::iter::from_fn(|| engine.poll_steer()).map(|steer| (steer.tunnel, steer.penalty)).collect();
    assert_eq!(costs, BTreeMap::from([(0, None), (1, None), (2, Some(DOWN))]));
    assert_eq!(engine.routes().penalty(2), DOWN);
    let selected: Vec<u32> = engine.routes().iter().filter(|(.., selected)| *selected).map(|(at, ..)| at).collect();
    assert_eq!(selected, [0, 1, 3]);
}

#[test]
fn what_waits_to_leave_is_of_the_tunnels_that_there_are() {
    let mut sim = Sim::new((0..3).map(tunnel).collect(), Vec::new(), 1);
    sim.run_until(at_ms(5_000));
    sim.far.iter_mut().for_each(|far| far.sending = sim::far::Sending::LocalFault("ENOBUFS"));
    sim.run_for(ms(1_500));
    // Probes wait to be tried again. The far ends of now are asked for no tunnel that there is not.
    sim.reload(layout(vec![tunnel(2)]));
    sim.far = vec![Far::default()];
    sim.haste_allowed = true;
    let sent = sim.sent.len();
    sim.run_for(ms(200));
    assert!(sim.sent[sent..].iter().all(|sent| sent.tunnel == 0));
    assert!(sim.sent.len() > sent, "the one that is left goes on");
    sim.run_for(ms(3_000));
    assert_eq!((sim.state(0), sim.view(0).counters.lost), (State::Healthy, 0));
}

/// ESP tunnels with static keys: the first has the first pair, and so on.
fn sealed(index: u32, esn: bool) -> Tunnel {
    let mut tunnel = esp_tunnel(index, Algorithm::Aes256CbcHmacSha256, false);
    tunnel.terms = Some(Terms { source: Source::Static, esn, replay_window: 64 });
    tunnel
}

fn pair(number: u32, esn: bool) -> Material {
    material(Algorithm::Aes256CbcHmacSha256, number, esn)
}

/// As a record says of keys that it does not know better: from the first number on, all reserved.
fn begun(material: &Material) -> Start {
    Start { pair: Some(material.pair(&seed(1), Numbers::new(1, u64::MAX, material.last()))), lost: None }
}

/// Sends everything, and notes the numbers by SPI.
fn drain(engine: &mut Engine, until: Time, used: &mut Vec<(u32, u32)>) {
    let mut buffer = vec![0; 2048];
    let mut now = Time::ZERO;
    while let Some(next) = engine.next_wakeup(now).filter(|next| *next < until) {
        now = now.max(next);
        engine.handle_wakeup(now);
        engine.handle_timeout(now);
        while let Some(transmit) = engine.poll_transmit(now, &mut buffer) {
            let header = peek(&buffer[20..transmit.length]).unwrap();
            used.push((header.spi, header.sequence));
            engine.handle_sent(now, now, [transmit].iter());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_number_is_used_twice_with_the_same_keys_whatever_is_reloaded(
        steps in prop::collection::vec(prop::collection::vec((0_u32..4, any::<bool>(), any::<bool>()), 0..4), 1..8),
    ) {
        let setup = Setup {
            tunnels: Vec::new(),
            routes: Vec::new(),
            places: Vec::new(),
            steers: false,
            secret: sim::secret(),
            record: false,
            associations: BTreeMap::new(),
        };
        let mut engine = Engine::new(Time::ZERO, WallTime(0), setup);
        let mut used = Vec::new();
        for (nth, step) in (1..).zip(steps) {
            // Each pair of keys once: which tunnel has it, and on which terms, is drawn.
            let (mut tunnels, mut associations, mut taken) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
            for (index, (key, esn, elsewhere)) in (0..).zip(step) {
                if !taken.insert(key) {
                    continue;
                }
                let at = u32::try_from(tunnels.len()).unwrap();
                let mut tunnel = sealed(index, esn);
                tunnel.onion.ttl = if elsewhere { 1 } else { 64 };
                let pair = pair(key, esn);
                if engine.static_pairs().get(tunnel.name.as_str()) != Some(&pair.name()) {
                    associations.insert(at, begun(&pair));
                }
                tunnels.push(tunnel);
            }
            engine.handle_reload(at_ms(10_000 * (nth - 1)), Layout { associations, ..layout(tunnels) });
            drain(&mut engine, at_ms(10_000 * nth), &mut used);
        }
        let sent = used.len();
        used.sort_unstable();
        used.dedup();
        prop_assert_eq!(used.len(), sent);
    }
}

#[test]
fn a_pair_goes_on_with_its_tunnel_even_where_that_is_another_one() {
    let mut sim = Sim::new(Vec::new(), Vec::new(), 1);
    let keys = pair(3, true);
    let first = Layout { associations: BTreeMap::from([(0, begun(&keys))]), ..layout(vec![sealed(0, true)]) };
    assert_eq!(sim.reload(first), counts(0, 0, 1, 0));
    let mut used = Vec::new();
    drain(&mut sim.engine, at_ms(5_000), &mut used);
    let next = |engine: &Engine| engine.associations(None)[0].pair.as_ref().unwrap().next_sequence;
    let before = next(&sim.engine);
    assert!(before > 3);
    assert_eq!(sim.engine.static_pairs(), BTreeMap::from([("t0", keys.name())]));
    assert_eq!(sim.reload(layout(vec![sealed(0, true)])), counts(1, 0, 0, 0));
    assert_eq!(next(&sim.engine), before);
    assert_eq!(sim.reload(layout(vec![elsewhere(sealed(0, true))])), counts(0, 1, 0, 0));
    assert_eq!(next(&sim.engine), before);
    // A pair that was handed over is one of two endpoints: between others it is worth nothing.
    let handed = |far: u32| {
        let mut tunnel = esp_tunnel(9, Algorithm::Aes256CbcHmacSha256, false);
        tunnel.onion.outer = sim::tunnel(far).onion.outer;
        tunnel
    };
    sim.reload(layout(vec![handed(9)]));
    assert_eq!(sim.view(0).obstacle, Some("no-keys"));
    let now = sim.now;
    let installed = begun(&pair(5, false)).pair.unwrap();
    sim.engine.install(now, 0, installed, ms(1_000)).unwrap();
    for (tunnel, obstacle) in [(handed(9), None), (elsewhere(handed(9)), None), (handed(10), Some("no-keys"))] {
        sim.reload(layout(vec![tunnel]));
        assert_eq!(sim.view(0).obstacle, obstacle);
    }
}

#[test]
fn spis_are_those_of_the_tunnels_that_there_are() {
    let mut sim = Sim::new(Vec::new(), Vec::new(), 1);
    let start = |number| begun(&pair(number, false));
    let two = Layout {
        associations: BTreeMap::from([(0, start(0)), (1, start(1))]),
        ..layout(vec![sealed(0, false), sealed(1, false)])
    };
    sim.reload(two);
    assert_eq!(sim.engine.poll_inlets(), Some(vec![(0, 0x2000), (0, 0x2001)]));
    // The two swap their pairs.
    let swapped = Layout {
        associations: BTreeMap::from([(0, start(1)), (1, start(0))]),
        ..layout(vec![sealed(0, false), sealed(1, false)])
    };
    sim.reload(swapped);
    assert_eq!(sim.engine.poll_inlets(), Some(vec![(0, 0x2000), (0, 0x2001)]));
    assert_eq!(sim.engine.whose(pair(1, false).outbound_key()), Some("t0"));
    sim.reload(layout(vec![sealed(1, false)]));
    assert_eq!(sim.engine.poll_inlets(), Some(vec![(0, 0x2000)]));
    assert_eq!(sim.engine.whose(pair(1, false).outbound_key()), None);
    assert_eq!(sim.engine.whose(pair(0, false).outbound_key()), Some("t1"));
}

#[test]
fn rules_are_the_specifications_again_when_nothing_says_otherwise() {
    let mut narrow = tunnel(0);
    narrow.check.rules.recovery_samples = 5;
    let mut sim = Sim::new(vec![narrow], Vec::new(), 1);
    sim.run_until(at_ms(3_000));
    sim.reload(layout(vec![tunnel(0)]));
    sim.cut(0);
    sim.run_to(0, State::Down, ms(5_000));
    sim.heal(0);
    sim.run_to(0, State::Degraded, ms(5_000));
    let begin = sim.now;
    let healthy = sim.run_to(0, State::Healthy, Duration::from_secs(400));
    assert!(healthy.since(begin) > Duration::from_secs(u64::from(Rules::default().recovery_samples) - 5));
}
