//! The pictures of `docs/decision-rules.md`, drawn from what the engine does: each time line from a recording and what
//! `adit replay` says of it, the states with the arrows that there are.
//!
//! `ADIT_WRITE_DOCS=1 cargo test --test pictures` draws them anew.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use adit::engine::Time;
use adit::engine::health::{Health, Rules, State};
use adit::engine::window::Outcome;
use serde_json::Value;

const FOLDER: &str = "docs/pictures";

/// Colours that can be read on a light page and on a dark one; a picture on a page follows the reader's choice.
const STYLE: &str = "<style>
text { font: 13px sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e }
.line { stroke: #59636e; stroke-width: 1.2; fill: none }
.good { stroke: #1a7f37; fill: none; stroke-width: 1.6 }
.bad { stroke: #cf222e; fill: none; stroke-width: 1.8 }
.unknown { fill: #8c959f55 } .healthy { fill: #2da44e55 } .degraded { fill: #d4a72c66 } .down { fill: #cf222e55 }
.edge { stroke: #59636e; stroke-width: 1 }
#tip { fill: #59636e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.small { fill: #9198a1 }
.line, .edge { stroke: #9198a1 }
.good { stroke: #3fb950 }
.bad { stroke: #f85149 }
#tip { fill: #9198a1 }
}
</style>
";

/// Compares a file of the folder with what it should be, or writes it.
fn keep(name: &str, made: &str) {
    let path = format!("{FOLDER}/{name}");
    if std::env::var_os("ADIT_WRITE_DOCS").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == made, "{path} is out of date: ADIT_WRITE_DOCS=1 cargo test --test pictures");
}

/// A sample: when its outcome was known, in seconds, and whether it was a success.
type Sample = (f64, bool);

/// One probe a second, all answered, from a second to another one.
fn answered(from: u32, to: u32) -> impl Iterator<Item = Sample> {
    (from..to).map(|second| (f64::from(second), true))
}

/// A probe that is lost. When its answer is late two more leave, which are answered; it fails at its deadline.
fn lost(at: f64) -> [Sample; 3] {
    [(at + 0.06, true), (at + 0.07, true), (at + 0.5, false)]
}

/// Recordings, each with the part of it that is drawn, in seconds.
fn recordings() -> [(&'static str, Vec<Sample>, [f64; 2]); 4] {
    let cut: Vec<Sample> = [0.01, 0.02]
        .map(|at| (at, true))
        .into_iter()
        .chain(answered(1, 6))
        // The probe of second 6 is late; two more leave before its deadline, and all three fail.
        .chain([(6.5, false), (6.55, false), (6.56, false)])
        .chain((7..14).map(|second| (f64::from(second) + 0.5, false)))
        // The first answer is confirmed at once by two more.
        .chain([(14.01, true), (14.02, true), (14.03, true)])
        .chain(answered(15, 330))
        .collect();
    let single: Vec<Sample> = answered(0, 8).chain(lost(8.0)).chain(answered(9, 20)).collect();
    let lossy: Vec<Sample> =
        answered(0, 20).chain(lost(20.0)).chain(answered(21, 60)).chain(lost(60.0)).chain(answered(61, 400)).collect();
    [
        ("cut", cut.clone(), [0.0, 20.0]),
        ("back", cut, [0.0, 330.0]),
        ("single", single, [0.0, 20.0]),
        ("lossy", lossy, [0.0, 400.0]),
    ]
}

fn recorded(samples: &[Sample]) -> String {
    samples.iter().map(|(t, ok)| format!("{{\"t\": {t:.3}, \"ok\": {ok}}}\n")).collect()
}

struct Transition {
    t: f64,
    to: String,
    rule: u64,
}

fn replayed(file: &str) -> Vec<Transition> {
    let said = Command::new(env!("CARGO_BIN_EXE_adit")).args(["replay", "--json", file]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let lines = String::from_utf8(said.stdout).unwrap();
    let transition = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        Transition {
            t: value["t"].as_f64().unwrap(),
            to: value["to"].as_str().unwrap().to_owned(),
            rule: value["rule"].as_u64().unwrap(),
        }
    };
    lines.lines().map(transition).collect()
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 30.0;
const HEIGHT: u32 = 185;

fn time_line(samples: &[Sample], transitions: &[Transition], [from, to]: [f64; 2]) -> String {
    let x = |t: f64| LEFT + (t - from) / (to - from) * (WIDTH - 2.0 * LEFT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\">\n{STYLE}"
    );
    // Failures last, so that they are above the others.
    for wanted in [true, false] {
        for (t, _) in samples.iter().filter(|(t, ok)| *ok == wanted && (from..=to).contains(t)) {
            let x = x(*t);
            let _ = if wanted {
                writeln!(svg, "<path class=\"good\" d=\"M{x:.1} 16v16\"/>")
            } else {
                writeln!(svg, "<path class=\"bad\" d=\"M{:.1} 18l8 12m0 -12l-8 12\"/>", x - 4.0)
            };
        }
    }
    states(transitions, [from, to], &x, &mut svg);
    scale([from, to], &x, &mut svg);
    svg + "</svg>\n"
}

/// The band of states, and what made each of them.
fn states(transitions: &[Transition], [from, to]: [f64; 2], x: &impl Fn(f64) -> f64, svg: &mut String) {
    let mut state = ("unknown", from);
    let ends = transitions.iter().map(|transition| (transition.t, transition.to.as_str()));
    for (end, next) in ends.chain([(to, "")]) {
        let end = end.min(to);
        let (begin, finish) = (x(state.1), x(end));
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{begin:.1}\" y=\"44\" width=\"{:.1}\" height=\"26\"/>",
            state.0,
            finish - begin
        );
        if finish - begin > 50.0 {
            let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"62\">{}</text>", begin + 5.0, state.0);
        }
        state = (next, end);
    }
    // One below the other where they would touch.
    let mut taken = [f64::MIN; 4];
    for Transition { t, rule, to: state } in transitions.iter().filter(|transition| transition.t <= to) {
        let x = x(*t);
        let row = taken.iter().position(|end| *end < x).unwrap_or(0);
        taken[row] = x + 110.0;
        let (y, left) = (90 + 17 * row, if x > WIDTH - 110.0 { x - 105.0 } else { x });
        let _ = writeln!(
            svg,
            "<path class=\"edge\" d=\"M{x:.1} 40V{}\"/><text x=\"{left:.1}\" y=\"{y}\">rule {rule}: {state}</text>",
            y - 12
        );
    }
}

fn scale([from, to]: [f64; 2], x: &impl Fn(f64) -> f64, svg: &mut String) {
    let step = if to - from > 100.0 { 50.0 } else { 2.0 };
    let _ = writeln!(svg, "<path class=\"line\" d=\"M{:.1} 157H{:.1}\"/>", x(from), x(to));
    let mut t = from;
    while t <= to {
        let _ = writeln!(
            svg,
            "<path class=\"line\" d=\"M{0:.1} 157v5\"/><text class=\"small\" x=\"{1:.1}\" y=\"175\">{t} s</text>",
            x(t),
            x(t) - 8.0
        );
        t += step;
    }
}

#[test]
fn time_lines_are_what_a_replay_says() {
    for (name, samples, span) in recordings() {
        let file = format!("{name}.jsonl");
        keep(&file, &recorded(&samples));
        let transitions = replayed(&format!("{FOLDER}/{file}"));
        let told = transitions.iter().map(|transition| (transition.to.as_str(), transition.rule)).collect::<Vec<_>>();
        let expected: &[(&str, u64)] = match name {
            "cut" | "back" => &[("healthy", 5), ("degraded", 3), ("down", 1), ("degraded", 2), ("healthy", 4)],
            "single" => &[("healthy", 5)],
            _ => &[("healthy", 5), ("degraded", 3), ("healthy", 4)],
        };
        assert_eq!(told, expected, "{name} shows what its text says");
        keep(&format!("{name}.svg"), &time_line(&samples, &transitions, span));
    }
}

/// An arrow between two states: from, to, the rule.
type Arrow = (State, State, u8);

const ARROWS: [Arrow; 8] = [
    (State::Unknown, State::Healthy, 5),
    (State::Unknown, State::Degraded, 5),
    (State::Unknown, State::Down, 1),
    (State::Healthy, State::Degraded, 3),
    (State::Healthy, State::Down, 1),
    (State::Degraded, State::Down, 1),
    (State::Degraded, State::Healthy, 4),
    (State::Down, State::Degraded, 2),
];

/// All arrows that any succession of 16 samples leads along: under rules that are small enough, and under others
/// by which a tunnel is dead before it is lossy, as where probes are many.
fn seen() -> BTreeSet<Arrow> {
    let short = Rules { recovery_samples: 4, degraded_window: Duration::from_secs(5), ..Rules::default() };
    let tolerant = Rules { degraded_min_failures: 5, ..short };
    let mut seen = BTreeSet::new();
    for (rules, bits) in [short, tolerant].into_iter().flat_map(|rules| (0..1_u32 << 16).map(move |bits| (rules, bits)))
    {
        let mut health = Health::new(rules);
        for place in 0..16_u32 {
            let success = bits >> place & 1 == 1;
            let outcome = if success { Outcome::Success(Duration::from_millis(1)) } else { Outcome::Failure };
            // Three a second, then a pause: so that the short window and the long one both come to an end.
            let at = Time::ZERO + Duration::from_millis(u64::from(place / 3) * 1_500 + u64::from(place % 3) * 200);
            seen.extend(health.judge(at, outcome).map(|made| (made.from, made.to, made.reason.rule)));
        }
    }
    seen
}

#[test]
fn the_states_have_the_arrows_that_there_are() {
    assert_eq!(seen(), ARROWS.into_iter().collect());
    keep("states.svg", &diagram());
}

fn diagram() -> String {
    let place = |state| match state {
        State::Unknown => (20.0, 85.0),
        State::Healthy => (300.0, 20.0),
        State::Degraded => (470.0, 150.0),
        State::Down => (640.0, 20.0),
    };
    let mut svg =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 -10 {WIDTH} 225\" width=\"{WIDTH}\">\n{STYLE}");
    svg += "<marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
            <path id=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker>\n";
    for state in State::ALL {
        let (x, y) = place(state);
        let penalty = match state {
            State::Unknown => "as before",
            State::Healthy => "+ 0",
            State::Degraded => "+ 500 000",
            State::Down => "+ 1 000 000",
        };
        let _ = writeln!(
            svg,
            "<rect class=\"{state}\" x=\"{x}\" y=\"{y}\" width=\"110\" height=\"50\" rx=\"8\"/>\
             <text x=\"{}\" y=\"{}\">{state}</text><text class=\"small\" x=\"{}\" y=\"{}\">{penalty}</text>",
            x + 10.0,
            y + 21.0,
            x + 10.0,
            y + 39.0
        );
    }
    for (from, to, rule) in ARROWS {
        let (path, [x, y]) = route(from, to);
        let _ = writeln!(
            svg,
            "<path class=\"line\" marker-end=\"url(#arrow)\" d=\"{path}\"/><text x=\"{x}\" y=\"{y}\">{rule}</text>"
        );
    }
    svg + "</svg>\n"
}

/// Where an arrow goes, and its number stands.
fn route(from: State, to: State) -> (&'static str, [u32; 2]) {
    match (from, to) {
        (State::Unknown, State::Healthy) => ("M130 100L298 55", [205, 70]),
        (State::Unknown, State::Degraded) => ("M130 120L468 175", [300, 140]),
        (State::Unknown, State::Down) => ("M80 85C120 -25 560 -25 640 30", [200, 14]),
        (State::Healthy, State::Degraded) => ("M370 70L488 148", [440, 108]),
        (State::Healthy, State::Down) => ("M410 45L638 45", [520, 40]),
        (State::Degraded, State::Down) => ("M560 150L660 72", [595, 112]),
        (State::Degraded, State::Healthy) => ("M468 168L330 72", [384, 128]),
        (State::Down, State::Degraded) => ("M710 70L582 168", [662, 125]),
        _ => ("", [0, 0]),
    }
}
