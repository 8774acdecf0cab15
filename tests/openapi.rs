//! The description of the local socket says what is served: every field, and every path.

mod sim;

use std::collections::BTreeSet;

use adit::engine::diagnose::Progress;
use adit::engine::diagnose::conclude::Culprit;
use adit::engine::diagnose::findings::Part;
use adit::engine::drain::Reason;
use adit::engine::{Drain, Engine, Order, Reloaded, Route, Setup, Standing, Targets, Time, WallTime};
use adit::io::local::{Applied, OPENAPI};
use adit::wire::esp::Algorithm;
use serde_json::Value;
use sim::{Sim, at_ms};

#[expect(clippy::expect_used, reason = "a description that is no JSON fails the test")]
fn description() -> Value {
    serde_json::from_str(OPENAPI).expect("openapi.json is JSON")
}

/// Checks a value against a schema of the description: as much of JSON Schema as it uses, and
/// stricter in one thing, that no field may be undescribed.
fn check(value: &Value, schema: &Value, all: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return check(value, &all[name], all, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let index = usize::from(value.is_null());
        return check(value, &choices[index], all, at);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let several = schema["type"].as_array();
    let allowed: Vec<&str> = match several {
        Some(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        None => schema["type"].as_str().into_iter().collect(),
    };
    assert!(
        allowed.contains(&kind) || kind == "integer" && allowed.contains(&"number"),
        "{at} is {kind}, not {allowed:?}"
    );
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.contains(value), "{at} is {value}, not one of {values:?}");
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(item, &schema["items"], all, &format!("{at}[{index}]"));
    }
    if let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        let has: BTreeSet<&String> = object.keys().collect();
        assert_eq!(has, properties.keys().collect(), "{at}: the fields are not those described");
        object.iter().for_each(|(name, value)| check(value, &properties[name], all, &format!("{at}.{name}")));
    }
}

#[test]
fn every_view_is_as_described() {
    let route = |tunnel, device: Option<&str>| Route {
        prefix: "10.0.0.0/8".parse().expect("a prefix"),
        place: 0,
        tunnel,
        priority: 100,
        weight: 1,
        device: device.map(str::to_owned),
        via: device.map(|_| [10, 0, 0, 1].into()),
        onlink: false,
    };
    let routes = vec![route(0, None), route(1, Some("gre1"))];
    let mut several = sim::tunnel(0);
    several.targets = Some(Targets { further: vec![[192, 0, 2, 7].into()], quorum: 1 });
    let mut sim = Sim::new(vec![several, sim::tunnel(1)], routes, 3);
    sim.far[0].silent = vec![[192, 0, 2, 7].into()];
    sim.run_until(at_ms(3_000));
    sim.cut(1);
    sim.run_until(at_ms(8_000));
    let order = Order {
        level: Drain::Down,
        until: Some(WallTime(u64::MAX)),
        reason: Reason::new("a new line card").ok(),
        by: Some(1_000),
    };
    sim.command(|engine, now| engine.drain(now, 0, order));
    let all = description()["components"]["schemas"].clone();
    let now = sim.now;
    let described = |value: Value, name: &str| check(&value, &all[name], &all, name);
    for view in Engine::tunnels(&mut sim.engine, now) {
        described(serde_json::to_value(view).expect("a value"), "Tunnel");
    }
    let [waiting, conflict, refused] = ["no device", "proto static", "EINVAL"].map(str::to_owned);
    for standing in [
        Standing::NotManaged,
        Standing::Pending,
        Standing::Installed(None),
        Standing::Installed(Some(100)),
        Standing::Waiting(waiting),
        Standing::Conflict(conflict),
        Standing::Refused(refused),
    ] {
        sim.engine.handle_standings([(1, standing)]);
        for view in sim.engine.route_views() {
            described(serde_json::to_value(view).expect("a value"), "Route");
        }
    }
    for tunnel in 0..2 {
        described(serde_json::to_value(sim.engine.explain(now, tunnel)).expect("a value"), "Explanation");
    }
}

#[test]
fn endpoints_are_as_described() {
    let mut sim = Sim::new(vec![sim::tunnel(0)], vec![sim::route(0)], 3);
    let endpoints = ["10.0.0.5", "192.0.2.9"].map(|address| sim::hosts::endpoint(address, address));
    sim.engine.set_endpoints(Time::ZERO, endpoints.to_vec());
    sim.host("192.0.2.9").forges = true;
    let all = description()["components"]["schemas"].clone();
    for until in [0, 10_000] {
        sim.run_until(at_ms(until));
        for view in sim.engine.endpoints_from(sim.now, 0, 2).0 {
            check(&serde_json::to_value(view).expect("a value"), &all["Endpoint"], &all, "Endpoint");
        }
    }
}

#[test]
fn a_reload_is_as_described() {
    let tunnels = Reloaded { kept: 1, changed: 2, added: 3, removed: 4 };
    let applied = Applied { tunnels, notes: vec!["[daemon] socket takes effect at the next start".to_owned()] };
    let all = description()["components"]["schemas"].clone();
    check(&serde_json::to_value(applied).expect("a value"), &all["Reloaded"], &all, "Reloaded");
}

#[test]
fn associations_are_as_described() {
    let setup = Setup {
        tunnels: (0..2).map(|index| sim::esp::esp_tunnel(index, Algorithm::Aes256Gcm, false)).collect(),
        routes: Vec::new(),
        places: Vec::new(),
        steers: false,
        secret: sim::secret(),
        record: false,
        associations: [(0, sim::esp::started(&sim::esp::gcm(1)))].into(),
    };
    let engine = Engine::new(Time::ZERO, WallTime(0), setup);
    let all = description()["components"]["schemas"].clone();
    let views = engine.associations(None);
    assert_eq!(views.len(), 2);
    for view in views {
        let value = serde_json::to_value(view).expect("a value");
        check(&value["pair"], &all["Associations"]["properties"]["pair"], &all, "pair");
        check(&value, &all["Associations"], &all, "Associations");
    }
}

/// As the interface shows them: `"health":1`, `"seconds":300`, which a strict decoder of integers reads.
#[test]
fn whole_numbers_have_no_fraction() {
    let mut odd = sim::tunnel(1);
    odd.check.rules.degraded_window = sim::ms(2_500);
    let mut sim = Sim::new(vec![sim::tunnel(0), odd], Vec::new(), 3);
    let mut seen = BTreeSet::new();
    for (until, cut) in [(0, false), (3_000, true), (8_000, false), (9_500, false)] {
        sim.run_until(at_ms(until));
        let now = sim.now;
        for view in Engine::tunnels(&mut sim.engine, now) {
            let text = serde_json::to_string(&view).expect("a value");
            let field = |name: &str| {
                let rest = text.split(&format!("\"{name}\":")).nth(1).unwrap_or_default();
                format!("{name} {}", rest.split([',', '}']).next().unwrap_or_default())
            };
            seen.insert(field("health"));
            seen.insert(field("seconds"));
        }
        (0..2).for_each(|index| if cut { sim.cut(index) } else { sim.heal(index) });
    }
    let expected = ["health 0", "health 0.5", "health 1", "health null", "seconds 2.5", "seconds 300"];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn every_path_that_is_served_is_described_and_the_other_way_round() {
    let source = std::fs::read_to_string("src/io/local/api.rs").expect("the source");
    let served: BTreeSet<String> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix(".route(\"")?.split('"').next())
        .map(str::to_owned)
        .collect();
    let described: BTreeSet<String> = description()["paths"].as_object().expect("paths").keys().cloned().collect();
    assert_eq!(served, described);
}

#[test]
fn every_reference_leads_somewhere() {
    let description = description();
    let text = description.to_string();
    let names = text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next());
    for name in names {
        assert!(description["components"]["schemas"][name].is_object(), "{name}");
    }
}

/// A field that must be there is one that is described.
#[test]
fn every_required_field_is_a_property() {
    let all = description()["components"]["schemas"].clone();
    for (name, schema) in all.as_object().expect("schemas") {
        for field in schema["required"].as_array().into_iter().flatten() {
            let field = field.as_str().unwrap_or_else(|| panic!("{name} requires {field}, which is no name"));
            assert!(schema["properties"][field].is_object(), "{name}.{field}");
        }
    }
}

#[test]
fn a_diagnosis_is_as_described() {
    let all = description()["components"]["schemas"].clone();
    let mut sim = Sim::new(vec![sim::tunnel(0), sim::tunnel(1)], Vec::new(), 3);
    sim.run_until(at_ms(1_000));
    // One is answered, through the other one.
    sim.far[0].returns_by = Some(1);
    let mut numbers = Vec::new();
    sim.command(|engine, now| {
        numbers = (0..2).map(|tunnel| engine.begin_diagnosis(now, tunnel).expect("begun")).collect();
    });
    sim.run_for(sim::ms(12_000));
    for number in numbers {
        let Progress::Done(diagnosis) = sim.engine.take_diagnosis(number) else { panic!("it has not ended") };
        check(&serde_json::to_value(diagnosis).expect("a value"), &all["Diagnosis"], &all, "Diagnosis");
    }
    let named = |values: Vec<Value>, schema: &str, field: &str| {
        assert_eq!(all[schema]["properties"][field]["enum"], Value::Array(values), "{schema}.{field}");
    };
    named(Culprit::ALL.iter().map(|it| serde_json::to_value(it).expect("a value")).collect(), "Conclusion", "culprit");
    named(Part::ALL.iter().map(|it| serde_json::to_value(it).expect("a value")).collect(), "Leg", "leg");
}
