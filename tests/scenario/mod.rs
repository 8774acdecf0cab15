//! Reads one scenario, plays it, and says where it went otherwise than expected.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use adit::engine::event::Kind;
use adit::engine::health::State;
use adit::engine::settings::{ReturnPath, Timeout};
use adit::engine::{Drain, Route, Time, Tunnel};
use serde::{Deserialize, Deserializer};

use crate::sim::far::Sending;
use crate::sim::{self, Sim};

/// A duration as an operator writes it: `1.5s`, `500ms`, `5m 30s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
struct Span(Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |why: String| serde::de::Error::custom(format!("{text:?} is no duration: {why}"));
        if let Some((whole, rest)) = text.split_once('.') {
            let digits = rest.strip_suffix('s').ok_or_else(|| wrong("only seconds have decimals".to_owned()))?;
            let nanos = format!("{digits:0<9}").parse().map_err(|error| wrong(format!("{error}")))?;
            let seconds = whole.parse().map_err(|error| wrong(format!("{error}")))?;
            return Ok(Self(Duration::new(seconds, nanos)));
        }
        humantime::parse_duration(&text).map(Self).map_err(|error| wrong(error.to_string()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    about: String,
    until: Span,
    #[serde(default)]
    seed: u64,
    tunnel: Vec<TunnelText>,
    #[serde(default)]
    route: Vec<RouteText>,
    #[serde(default)]
    timeline: Vec<Step>,
    #[serde(default)]
    expect: Vec<Expect>,
    #[serde(default)]
    check: Vec<Check>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TunnelText {
    name: String,
    count: Option<u32>,
    interval: Option<Span>,
    timeout: Option<String>,
    down_window: Option<Span>,
    degraded_window: Option<Span>,
    early_retry: Option<bool>,
    enabled: Option<bool>,
    return_path: Option<String>,
    rtt: Option<Span>,
    jitter: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteText {
    prefix: String,
    tunnel: String,
    priority: u32,
    weight: Option<u32>,
}

/// What happens at one moment, to one tunnel or to all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at: Span,
    tunnel: Option<String>,
    cut: Option<bool>,
    lose_next: Option<u32>,
    lose_every: Option<u32>,
    loss_percent: Option<u32>,
    rtt: Option<Span>,
    jitter: Option<Span>,
    copies: Option<u32>,
    forges: Option<bool>,
    send: Option<String>,
    returns_by: Option<String>,
    drain: Option<String>,
    stall: Option<Span>,
    suspend: Option<Span>,
    overflow: Option<bool>,
}

/// A transition of a tunnel or a change of a prefix's routes. All that happen must be listed, each
/// tunnel's and each prefix's in their order.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    tunnel: Option<String>,
    becomes: Option<String>,
    prefix: Option<String>,
    carried_by: Option<Vec<String>>,
    between: [Span; 2],
}

/// How things stand at one moment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    at: Span,
    #[serde(default)]
    states: BTreeMap<String, String>,
    /// Destination address: tunnels that carry its traffic.
    #[serde(default)]
    traffic: BTreeMap<String, Vec<String>>,
    /// Destination address: effective priority by tunnel.
    #[serde(default)]
    priorities: BTreeMap<String, BTreeMap<String, u32>>,
    /// Tunnel: counter: value.
    #[serde(default)]
    counters: BTreeMap<String, BTreeMap<String, Bound>>,
    /// Tunnel: failures in the long window.
    #[serde(default)]
    failures: BTreeMap<String, Bound>,
    /// The prober's own troubles so far: these and no others.
    faults: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Bound {
    Exactly(u64),
    Words(String),
}

impl Bound {
    fn holds(&self, value: u64) -> bool {
        match self {
            Self::Exactly(wanted) => value == *wanted,
            Self::Words(words) => match words.rsplit_once(' ').map(|(how, number)| (how, number.parse())) {
                Some(("at least", Ok(least))) => value >= least,
                Some(("at most", Ok(most))) => value <= most,
                _ => panic!("neither a number nor \"at least …\" nor \"at most …\": {words:?}"),
            },
        }
    }
}

/// Plays a scenario; what was otherwise than it says.
pub(crate) fn run(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let scenario: Scenario = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(!scenario.about.is_empty());
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut run = Run { sim: start(&scenario), wrong: Vec::new() };
    run.play(&scenario);
    run.compare(&scenario);
    run.wrong.into_iter().map(|wrong| format!("{file}: {wrong}")).collect()
}

fn start(scenario: &Scenario) -> Sim {
    let mut tunnels: Vec<Tunnel> = Vec::new();
    let mut paths = Vec::new();
    for text in &scenario.tunnel {
        for number in 0..text.count.unwrap_or(1) {
            let mut tunnel = sim::tunnel(u32::try_from(tunnels.len()).unwrap());
            tunnel.name = if text.count.is_some() { format!("{}-{number}", text.name) } else { text.name.clone() };
            let check = &mut tunnel.check;
            check.interval = text.interval.map_or(check.interval, |span| span.0);
            check.timeout = match text.timeout.as_deref() {
                None => check.timeout,
                Some("auto") => Timeout::Auto,
                Some(fixed) => Timeout::Fixed(humantime::parse_duration(fixed).unwrap()),
            };
            check.rules.down_window = text.down_window.map_or(check.rules.down_window, |span| span.0);
            check.rules.degraded_window = text.degraded_window.map_or(check.rules.degraded_window, |span| span.0);
            check.early_retry = text.early_retry.unwrap_or(check.early_retry);
            check.enabled = text.enabled.unwrap_or(check.enabled);
            check.return_path = match text.return_path.as_deref() {
                None | Some("strict") => ReturnPath::Strict,
                Some("any") => ReturnPath::Any,
                Some(other) => panic!("return_path {other:?}"),
            };
            tunnels.push(tunnel);
            paths.push((text.rtt, text.jitter));
        }
    }
    let index = |name: &str| tunnels.iter().position(|tunnel| tunnel.name == name).unwrap();
    let routes = scenario.route.iter().map(|text| Route {
        prefix: text.prefix.parse().unwrap(),
        tunnel: u32::try_from(index(&text.tunnel)).unwrap(),
        priority: text.priority,
        weight: text.weight.unwrap_or(1),
        device: None,
        via: None,
        place: 0,
        onlink: false,
    });
    let routes = routes.collect();
    let mut sim = Sim::new(tunnels, routes, scenario.seed);
    for (far, (rtt, jitter)) in sim.far.iter_mut().zip(paths) {
        far.rtt = rtt.map_or(far.rtt, |span| span.0);
        far.jitter = jitter.map_or(far.jitter, |span| span.0);
    }
    sim
}

struct Run {
    sim: Sim,
    wrong: Vec<String>,
}

enum Moment<'a> {
    Check(&'a Check),
    Step(&'a Step),
}

impl Run {
    fn play(&mut self, scenario: &Scenario) {
        let checks = scenario.check.iter().map(|check| (check.at.0, Moment::Check(check)));
        let steps = scenario.timeline.iter().map(|step| (step.at.0, Moment::Step(step)));
        // At one moment, what is to be looked at comes before what changes.
        let mut moments: Vec<(Duration, Moment<'_>)> = checks.chain(steps).collect();
        moments.sort_by_key(|(at, _)| *at);
        for (at, moment) in moments {
            self.sim.run_until(Time::ZERO + at);
            match moment {
                Moment::Check(check) => self.check(check),
                Moment::Step(step) => self.act(step),
            }
        }
        self.sim.run_until(Time::ZERO + scenario.until.0);
    }

    /// Tunnels that a name means: `*` and no name mean all, `many-*` all that begin so.
    fn named(&self, name: Option<&str>) -> Vec<u32> {
        let name = name.unwrap_or("*");
        let fits =
            |tunnel: &Tunnel| name.strip_suffix('*').map_or(tunnel.name == name, |stem| tunnel.name.starts_with(stem));
        let found: Vec<u32> =
            (0..).zip(&self.sim.tunnels).filter(|(_, tunnel)| fits(tunnel)).map(|(at, _)| at).collect();
        assert!(!found.is_empty(), "no tunnel {name:?}");
        found
    }

    fn act(&mut self, step: &Step) {
        for index in self.named(step.tunnel.as_deref()) {
            match step.cut {
                Some(true) => self.sim.cut(index),
                Some(false) => self.sim.heal(index),
                None => {}
            }
            let returns_by = step.returns_by.as_deref().map(|name| self.named(Some(name))[0]);
            let far = &mut self.sim.far[index as usize];
            far.lose_next = step.lose_next.unwrap_or(far.lose_next);
            far.lose_every = step.lose_every.unwrap_or(far.lose_every);
            far.loss_ppm = step.loss_percent.map_or(far.loss_ppm, |percent| percent * 10_000);
            far.rtt = step.rtt.map_or(far.rtt, |span| span.0);
            far.jitter = step.jitter.map_or(far.jitter, |span| span.0);
            far.copies = step.copies.unwrap_or(far.copies);
            far.forges = step.forges.unwrap_or(far.forges);
            far.returns_by = returns_by.or(far.returns_by);
            far.sending = step.send.as_deref().map_or(far.sending, sending);
            let drain = step.drain.as_deref().map(|drain| match drain {
                "none" => None,
                "degraded" => Some(Drain::Degraded),
                "down" => Some(Drain::Down),
                other => panic!("drain {other:?}"),
            });
            if let Some(drain) = drain {
                self.sim.command(|engine, now| engine.set_drain(now, index, drain));
            }
        }
        self.sim.overflowing = step.overflow.unwrap_or(self.sim.overflowing);
        if let Some(span) = step.suspend {
            self.sim.command(|engine, now| engine.handle_suspend(now, span.0));
        }
        if let Some(span) = step.stall {
            self.sim.stall(span.0);
        }
    }

    fn check(&mut self, check: &Check) {
        let at = humantime::format_duration(check.at.0);
        for (name, state) in &check.states {
            for index in self.named(Some(name)) {
                let found = self.sim.state(index);
                let name = &self.sim.tunnels[index as usize].name;
                if found.name() != state {
                    self.wrong.push(format!("at {at}, {name} is {found}, not {state}"));
                }
            }
        }
        for (address, tunnels) in &check.traffic {
            let routes = self.sim.engine.lookup(address.parse().unwrap(), None, &Default::default());
            let found: Vec<String> = routes.into_iter().map(|route| route.tunnel).collect();
            if found != *tunnels {
                self.wrong.push(format!("at {at}, traffic to {address} goes by {found:?}, not {tunnels:?}"));
            }
        }
        for (address, priorities) in &check.priorities {
            let table = self.sim.engine.routes();
            let named = |tunnel: u32| self.sim.tunnels[tunnel as usize].name.clone();
            let found: BTreeMap<String, u32> = table
                .candidates(0, address.parse().unwrap())
                .map(|(_, route, _)| (named(route.tunnel), table.effective_priority(route)))
                .collect();
            if found != *priorities {
                self.wrong.push(format!("at {at}, effective priorities to {address} are {found:?}"));
            }
        }
        for (name, counters) in &check.counters {
            let index = self.named(Some(name))[0];
            let found = serde_json::to_value(self.sim.view(index).counters).unwrap();
            for (counter, bound) in counters {
                let value = found[counter].as_u64().unwrap_or_else(|| panic!("no counter {counter:?}"));
                if !bound.holds(value) {
                    self.wrong.push(format!("at {at}, {name} counts {value} {counter}, not {bound:?}"));
                }
            }
        }
        for (name, bound) in &check.failures {
            let index = self.named(Some(name))[0];
            let failures = self.sim.view(index).window.failures;
            if !bound.holds(failures) {
                self.wrong.push(format!("at {at}, {name} has {failures} failures, not {bound:?}"));
            }
        }
        if let Some(faults) = &check.faults {
            let found: Vec<&str> = self.sim.engine.self_view().local_faults.iter().map(|(name, _)| *name).collect();
            if found != *faults {
                self.wrong.push(format!("at {at}, local faults are {found:?}, not {faults:?}"));
            }
        }
    }

    /// Compares what was told with what was expected.
    fn compare(&mut self, scenario: &Scenario) {
        let mut expected: BTreeMap<String, VecDeque<Expect>> = BTreeMap::new();
        for expect in &scenario.expect {
            match (&expect.tunnel, &expect.prefix) {
                (Some(name), None) => {
                    let state = expect.becomes.as_deref().and_then(State::from_name);
                    assert!(state.is_some(), "no state: {expect:?}");
                    for index in self.named(Some(name)) {
                        let name = self.sim.tunnels[index as usize].name.clone();
                        expected.entry(name).or_default().push_back(expect.clone());
                    }
                }
                (None, Some(prefix)) => expected.entry(prefix.clone()).or_default().push_back(expect.clone()),
                (Some(_), Some(_)) | (None, None) => panic!("a tunnel or a prefix: {expect:?}"),
            }
        }
        for event in &self.sim.events {
            let (who, what) = if let Kind::Transition { tunnel, to, .. } = &event.kind {
                (tunnel, to.to_string())
            } else if let Kind::Route { prefix, to, .. } = &event.kind {
                (prefix, format!("by {}", to.join(", ")))
            } else {
                continue;
            };
            let at = Duration::from_nanos(event.at.0);
            let Some(expect) = expected.get_mut(who).and_then(VecDeque::pop_front) else {
                self.wrong.push(format!("not expected: {who} {what} at {at:?}"));
                continue;
            };
            let wanted = expect.becomes.clone().unwrap_or_default();
            let wanted = expect.carried_by.as_ref().map_or(wanted, |tunnels| format!("by {}", tunnels.join(", ")));
            let [from, to] = expect.between;
            if wanted != what || at < from.0 || at > to.0 {
                let window = format!("{:?} to {:?}", from.0, to.0);
                self.wrong.push(format!("{who} {what} at {at:?}; expected {wanted} at {window}"));
            }
        }
        for (who, left) in expected {
            for expect in left {
                let what = expect.becomes.unwrap_or_else(|| format!("by {:?}", expect.carried_by));
                self.wrong.push(format!("did not happen: {who} {what}"));
            }
        }
    }
}

/// What the kernel answers to a sending: `fine` or the error's name, in the specification's two
/// classes.
fn sending(name: &str) -> Sending {
    const LOCAL: [&str; 3] = ["ENOBUFS", "EAGAIN", "ENOMEM"];
    const REFUSED: [&str; 7] =
        ["ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "EADDRNOTAVAIL", "EPERM", "ENODEV", "EMSGSIZE"];
    let find = |names: &[&'static str]| names.iter().copied().find(|of| *of == name);
    match (find(&LOCAL), find(&REFUSED)) {
        (Some(name), _) => Sending::LocalFault(name),
        (None, Some(name)) => Sending::Refused(name),
        (None, None) if name == "fine" => Sending::Fine,
        (None, None) => panic!("no such error: {name:?}"),
    }
}
