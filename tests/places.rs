//! Routes in several tables and namespaces, and what the kernel makes of them.

#![expect(clippy::unwrap_used, reason = "a test's own constants")]

mod sim;

use std::collections::BTreeMap;
use std::net::IpAddr;

use adit::engine::route_view::{RouteView, Whereabouts};
use adit::engine::{Drain, Engine, MAIN, Place, Route, Setup, Standing, Time, WallTime};
use serde_json::{Value, json};
use sim::{at_ms, tunnel};

const TENANT: u32 = 100;

/// The main table of this namespace and of "blue", and a tenant's table here.
fn places() -> Vec<Place> {
    let blue = Some("blue".to_owned());
    vec![Place { netns: None, table: MAIN }, Place { netns: blue, table: MAIN }, Place { netns: None, table: TENANT }]
}

fn route(prefix: &str, place: u32, tunnel: u32, priority: u32) -> Route {
    Route {
        prefix: prefix.parse().unwrap(),
        place,
        tunnel,
        priority,
        weight: 1,
        device: Some(format!("gre{tunnel}")),
        via: None,
        onlink: false,
    }
}

fn engine(routes: Vec<Route>, steers: bool) -> Engine {
    let setup = Setup {
        tunnels: (0..4).map(tunnel).collect(),
        routes,
        places: places(),
        steers,
        secret: sim::secret(),
        record: false,
        associations: BTreeMap::new(),
    };
    Engine::new(Time::ZERO, WallTime(0), setup)
}

/// The same prefix everywhere, over tunnels of its own; and a longer one for the tenant.
fn tenants() -> Vec<Route> {
    vec![
        route("10.0.0.0/8", 0, 0, 100),
        route("10.0.0.0/8", 1, 1, 100),
        route("10.0.0.0/8", 2, 2, 100),
        route("10.0.0.0/8", 2, 3, 200),
        route("10.20.0.0/16", 2, 3, 100),
    ]
}

fn asked(engine: &Engine, destination: &str, table: Option<u32>, netns: Option<&str>) -> Vec<String> {
    let destination: IpAddr = destination.parse().unwrap();
    let whereabouts = Whereabouts { table, netns: netns.map(str::to_owned) };
    let each = [None, Some(7)].map(|flow| {
        let views = engine.lookup(destination, flow, &whereabouts);
        views.into_iter().map(|view| view.tunnel).collect::<Vec<_>>()
    });
    // Where there is only one, each flow takes it.
    assert_eq!(each[0], each[1]);
    let [tunnels, _] = each;
    tunnels
}

#[test]
fn the_same_prefix_has_an_answer_at_each_place() {
    let engine = engine(tenants(), false);
    assert_eq!(asked(&engine, "10.1.1.1", None, None), ["t0", "t1", "t2"]);
    assert_eq!(asked(&engine, "10.20.1.1", None, None), ["t0", "t1", "t3"], "the longer prefix is the tenant's only");
    assert_eq!(asked(&engine, "10.20.1.1", Some(MAIN), None), ["t0", "t1"]);
    assert_eq!(asked(&engine, "10.20.1.1", Some(TENANT), None), ["t3"]);
    assert_eq!(asked(&engine, "10.20.1.1", None, Some("blue")), ["t1"]);
    assert_eq!(asked(&engine, "10.20.1.1", None, Some("")), ["t0", "t3"], "where adit runs");
    assert_eq!(asked(&engine, "10.20.1.1", Some(TENANT), Some("blue")), [""; 0]);
    assert_eq!(asked(&engine, "192.0.2.1", None, None), [""; 0]);
}

#[test]
fn a_penalty_moves_a_prefix_at_its_own_place_only_and_the_event_says_where() {
    let mut engine = engine(tenants(), false);
    engine.set_drain(at_ms(1), 2, Some(Drain::Degraded));
    assert_eq!(asked(&engine, "10.1.1.1", None, None), ["t0", "t1", "t3"]);
    let moved = |engine: &Engine| -> Vec<Value> {
        let told = engine.events().after(0).map(|event| serde_json::to_value(event).unwrap());
        told.filter(|event| event["kind"] == "route").collect()
    };
    let [event] = &moved(&engine)[..] else { panic!("one prefix moves") };
    let mut fields = event.as_object().unwrap().clone();
    ["id", "at"].into_iter().for_each(|field| drop(fields.remove(field)));
    let wanted = json!({"kind": "route", "prefix": "10.0.0.0/8", "table": 100, "from": ["t2"], "to": ["t3"]});
    assert_eq!(Value::Object(fields), wanted);
}

#[test]
fn where_a_route_usually_is_no_event_says() {
    let routes = vec![route("10.0.0.0/8", 0, 0, 100), route("10.0.0.0/8", 0, 1, 200)];
    let blue = vec![route("10.0.0.0/8", 1, 2, 100), route("10.0.0.0/8", 1, 3, 200)];
    let mut engine = engine([routes, blue].concat(), false);
    engine.set_drain(at_ms(1), 0, Some(Drain::Down));
    engine.set_drain(at_ms(1), 2, Some(Drain::Down));
    let told = engine.events().after(0).map(|event| serde_json::to_value(event).unwrap());
    let told: Vec<Value> = told.filter(|event| event["kind"] == "route").collect();
    let [here, blue] = &told[..] else { panic!("two prefixes move: {told:?}") };
    assert!(here.get("table").is_none() && here.get("netns").is_none(), "{here}");
    assert!(blue.get("table").is_none() && blue["netns"] == "blue", "{blue}");
}

#[test]
fn every_view_says_where_its_route_is_and_where_it_leads() {
    let mut routes = tenants();
    routes[1].via = Some([10, 0, 0, 1].into());
    routes[1].device = None;
    let views = engine(routes, false).route_views();
    let places: Vec<_> = views.iter().map(|view| (view.table, view.netns.as_deref())).collect();
    assert_eq!(places, [(254, None), (254, Some("blue")), (100, None), (100, None), (100, None)]);
    let hops: Vec<_> = views.iter().map(|view| (view.device.as_deref(), view.via.as_deref())).collect();
    assert_eq!(hops[..2], [(Some("gre0"), None), (None, Some("10.0.0.1"))]);
}

fn kernel(view: &RouteView) -> (&'static str, Option<u32>, Option<&str>) {
    (view.kernel, view.kernel_metric, view.kernel_reason.as_deref())
}

#[test]
fn what_the_kernel_makes_of_a_route_is_kept_by_its_place_in_the_configuration() {
    // The second is over a tunnel that there is not; the others keep their numbers all the same. The
    // views go prefix by prefix, in another order.
    let mut routes = vec![
        route("10.0.0.0/8", 0, 0, 100),
        route("10.9.0.0/16", 0, 77, 100),
        route("10.20.0.0/16", 0, 1, 100),
        route("10.0.0.0/8", 0, 2, 200),
        route("10.30.0.0/16", 0, 3, 100),
    ];
    routes[4].device = None;
    let words = |engine: &Engine| engine.route_views().iter().map(|view| view.kernel).collect::<Vec<_>>();
    assert_eq!(words(&engine(routes.clone(), false)), ["not managed"; 4]);
    let mut engine = engine(routes, true);
    assert_eq!(words(&engine), ["pending", "pending", "pending", "not managed"], "the last leads nowhere");
    let why = |text: &str| text.to_owned();
    engine.handle_standings([
        (0, Standing::Installed(None)),
        (2, Standing::Waiting(why("there is no device gre1"))),
        (3, Standing::Conflict(why("proto static has it"))),
        (99, Standing::Pending),
    ]);
    let views = engine.route_views();
    let found: Vec<_> = views.iter().map(|view| (view.tunnel.as_str(), kernel(view))).collect();
    let wanted = [
        ("t0", ("installed", Some(100), None)),
        ("t2", ("conflict", None, Some("proto static has it"))),
        ("t1", ("waiting", None, Some("there is no device gre1"))),
        ("t3", ("not managed", None, None)),
    ];
    assert_eq!(found, wanted);
    engine.handle_standings([(3, Standing::Refused(why("Nexthop has invalid gateway")))]);
    engine.handle_standings([(0, Standing::Installed(Some(7)))]);
    assert_eq!(kernel(&engine.route_views()[0]), ("installed", Some(7), None), "another than the effective priority");
    let answer = engine.lookup([10, 20, 0, 1].into(), None, &Whereabouts::default());
    assert_eq!(answer.iter().map(kernel).collect::<Vec<_>>(), [("waiting", None, Some("there is no device gre1"))]);
    assert_eq!(kernel(&engine.route_views()[1]), ("refused", None, Some("Nexthop has invalid gateway")));
}
