//! The health rules: the specification's vectors word for word, and each rule at its boundaries.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data must fail")]

mod naive;

use std::fmt::Write;
use std::time::Duration;

use adit::engine::Time;
use adit::engine::health::{Health, Ratio, Rules, State};
use adit::engine::window::Outcome;

const SUCCESS: Outcome = Outcome::Success(Duration::from_millis(10));
const FAILURE: Outcome = Outcome::Failure;

/// Seconds, written with up to nine decimals, as a time: no floating point on the way.
fn time(seconds: &str) -> Time {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let nanos: u64 = format!("{fraction:0<9}").parse().unwrap_or_else(|_| panic!("time {seconds:?}"));
    Time::from_nanos(whole.parse::<u64>().unwrap_or_else(|_| panic!("time {seconds:?}")) * 1_000_000_000 + nanos)
}

fn outcome(letter: &str) -> Outcome {
    match letter {
        "S" => SUCCESS,
        "F" => FAILURE,
        _ => panic!("neither S nor F: {letter:?}"),
    }
}

/// How long a series without an end goes on: well past the latest transition in the table.
const OPEN_END: &str = "4000";

/// Reads `F@0 S@0.2, then S every 0.1 s from 0.5 to 250, F@251`.
fn samples(text: &str) -> Vec<(Time, Outcome)> {
    let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty() && *word != "then").collect();
    let mut samples = Vec::new();
    let mut rest = &words[..];
    while let [word, after @ ..] = rest {
        rest = after;
        if let Some((letter, at)) = word.split_once('@') {
            samples.push((time(at), outcome(letter)));
            continue;
        }
        let ["every", step, "s", "from", from, tail @ ..] = rest else { panic!("not understood: {rest:?}") };
        let (until, tail) = match tail {
            ["to", until, tail @ ..] => (*until, tail),
            _ => (OPEN_END, tail),
        };
        let step = time(step).since(Time::ZERO);
        let times = std::iter::successors(Some(time(from)), |at| Some(*at + step));
        samples.extend(times.take_while(|at| *at <= time(until)).map(|at| (at, outcome(word))));
        rest = tail;
    }
    samples
}

/// Reads `degraded@0.5, down@0.6 (why)` or `none: why`.
fn transitions(text: &str) -> Vec<String> {
    let stated = text.split(['(', ';', ':']).next().unwrap();
    stated.split(',').map(str::trim).filter(|word| *word != "none").map(str::to_owned).collect()
}

fn replay(health: &mut Health, samples: impl IntoIterator<Item = (Time, Outcome)>) -> Vec<String> {
    let judged = samples.into_iter().filter_map(|(at, outcome)| health.judge(at, outcome));
    judged.map(|transition| format!("{}@{}", transition.to, transition.at)).collect()
}

fn healthy() -> Health {
    Health::starting_as(State::Healthy, Rules::default())
}

#[test]
fn every_vector_of_the_specification() {
    let table = std::fs::read_to_string("fixtures/replay/vectors.md").unwrap();
    let lines = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let mut judged = 0;
    let mut wrong = String::new();
    for line in lines.skip(2) {
        let (given, expected) = line.split_once(" | ").unwrap();
        let found = replay(&mut healthy(), samples(given));
        if found != transitions(expected) {
            writeln!(wrong, "{given}\n  expected {expected}\n  found    {found:?}").unwrap();
        }
        judged += 1;
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert_eq!(judged, 12, "the table in the specification has twelve lines");
}

#[test]
fn the_notation_is_read_as_it_is_meant() {
    assert_eq!(samples("F@0, then S every 0.1 s from 0.5 to 0.7, F@251.25").len(), 5);
    assert_eq!(samples("S every 1 s from 2").last().unwrap().0, time(OPEN_END));
    assert_eq!(time("250.05").as_nanos(), 250_050_000_000);
    assert_eq!(transitions("degraded@1, healthy@300 (at 300, it leaves)"), ["degraded@1", "healthy@300"]);
    assert!(transitions("none: a single loss").is_empty());
}

/// Replays `line` from a first state.
fn from(state: State, line: &str) -> Vec<String> {
    replay(&mut Health::starting_as(state, Rules::default()), samples(line))
}

#[test]
fn rule_1_takes_three_failures_and_no_success_within_a_second() {
    for state in [State::Unknown, State::Healthy, State::Degraded] {
        let ends_down = |line| from(state, line).last().is_some_and(|last| last.starts_with("down@"));
        assert!(ends_down("F@5 F@5 F@5"), "{state}: three at one instant");
        assert!(ends_down("F@5 F@5.5 F@5.999999999"), "{state}: all within");
        assert!(!ends_down("F@5 F@5.5 F@6"), "{state}: the first is exactly a second old");
        assert!(!ends_down("F@5 F@5.9"), "{state}: only two");
        assert!(!ends_down("S@5 F@5 F@5 F@5"), "{state}: a success among them");
        assert!(!ends_down("S@5 F@5.1 F@5.2 F@5.999999999"), "{state}: the success is still in");
        assert!(ends_down("S@5 F@5.1 F@5.2 F@6"), "{state}: the success is exactly a second old");
        assert!(ends_down("S@5 F@5.1 F@5.2 F@5.3 F@6.0"), "{state}: down as soon as the success is out");
    }
}

#[test]
fn rule_1_comes_before_rule_3_and_before_rule_5() {
    assert_eq!(from(State::Unknown, "F@0 F@0.1 F@0.2"), ["down@0.2"]);
    // Two failures long out of the short window, then three at once: one transition a sample.
    assert_eq!(from(State::Healthy, "F@0 F@0 F@0"), ["degraded@0", "down@0"]);
}

#[test]
fn rule_2_takes_three_successes_in_a_row_however_far_apart() {
    assert_eq!(from(State::Down, "S@1 S@100"), Vec::<String>::new());
    assert_eq!(from(State::Down, "S@1 S@100 S@100000"), ["degraded@100000"]);
    assert_eq!(from(State::Down, "S@1 S@2 F@3 S@4 S@5 F@6"), Vec::<String>::new());
    assert_eq!(from(State::Down, "S@1 S@2 F@3 S@4 S@5 S@6"), ["degraded@6"]);
    assert_eq!(from(State::Down, "F@1 F@1 F@1 F@1"), Vec::<String>::new(), "down goes nowhere but up");
}

#[test]
fn rule_3_takes_two_failures_and_one_in_a_thousand_within_five_minutes() {
    assert_eq!(from(State::Healthy, "F@0"), Vec::<String>::new());
    assert_eq!(from(State::Healthy, "F@0 F@299.999999999"), ["degraded@299.999999999"]);
    assert_eq!(from(State::Healthy, "F@0 F@300"), Vec::<String>::new());
    // Exactly two in two thousand is at least 0.1 %, two in 2 001 is below.
    assert_eq!(from(State::Healthy, "F@0, then S every 0.1 s from 0.1 to 199.8, F@199.85"), ["degraded@199.85"]);
    assert_eq!(from(State::Healthy, "F@0, then S every 0.1 s from 0.1 to 199.9, F@199.95"), Vec::<String>::new());
    // It is looked at on every sample: a success too can be the one that decides, when clean
    // samples leave the window and the failures do not.
    let dense = "S every 0.1 s from 0.1 to 250, F@250.01 F@250.02, then S every 60 s from 310 to 600";
    assert_eq!(from(State::Healthy, dense), ["degraded@370"]);
}

#[test]
fn rule_4_takes_thirty_clean_samples_and_five_minutes_below_the_limit() {
    let thirty = "S every 60 s from 60 to 1740";
    assert_eq!(from(State::Degraded, thirty), Vec::<String>::new(), "29 samples are not 30");
    assert_eq!(from(State::Degraded, "S every 60 s from 60 to 1800"), ["healthy@1800"]);
    assert_eq!(from(State::Degraded, "S every 0.001 s from 0.001 to 0.03"), ["healthy@0.03"]);
    assert_eq!(from(State::Degraded, "F@0, then S every 1 s from 1 to 29"), Vec::<String>::new());
    assert_eq!(from(State::Degraded, "F@0, then S every 1 s from 1 to 30"), ["healthy@30"], "one failure is not lossy");
    assert_eq!(from(State::Degraded, "F@0 F@0, then S every 1 s from 1 to 299"), Vec::<String>::new());
    assert_eq!(from(State::Degraded, "F@0 F@0, then S every 1 s from 1 to 300"), ["healthy@300"]);
    assert_eq!(
        from(State::Degraded, "F@0 F@0, then S every 0.1 s from 0.1 to 280"),
        ["healthy@199.9"],
        "the 2 001st sample brings two failures below 0.1 %"
    );
}

/// "Holds no failure" is meant literally: a coarser ratio widens rule 3, not what counts as clean.
#[test]
fn rule_4_asks_for_thirty_samples_without_a_failure_whatever_the_ratio() {
    for ratio in [1, 100_000, 500_000, 1_000_000].map(Ratio) {
        let rules = Rules { degraded_ratio: ratio, ..Rules::default() };
        let end = |line| replay(&mut Health::starting_as(State::Degraded, rules), samples(line));
        let failing = "S every 10 s from 10 to 200, F@205, then S every 10 s from 210 to 490";
        assert_eq!(end(failing), Vec::<String>::new(), "{ratio:?}: 29 after the failure");
        let failing = "S every 10 s from 10 to 200, F@205, then S every 10 s from 210 to 500";
        assert_eq!(end(failing), ["healthy@500"], "{ratio:?}: the 30th after the failure");
    }
}

#[test]
fn rule_5_gives_the_first_verdict_on_the_third_sample() {
    assert_eq!(from(State::Unknown, "S@0 S@1"), Vec::<String>::new());
    assert_eq!(from(State::Unknown, "S@0 S@1 S@2"), ["healthy@2"]);
    assert_eq!(from(State::Unknown, "F@0 S@1 S@2"), ["healthy@2"], "one failure is forgiven");
    assert_eq!(from(State::Unknown, "F@0 F@1 S@2"), ["degraded@2"]);
    assert_eq!(from(State::Unknown, "F@0 F@1 F@2"), ["degraded@2"], "too far apart to be down");
    assert_eq!(from(State::Unknown, "F@0 F@1 F@301"), ["healthy@301"], "the first two are out of W5");
}

#[test]
fn there_is_one_transition_for_one_sample() {
    // Degraded long ago, thirty clean samples, the failures leave: healthy, and only that.
    let mut health = healthy();
    let line = samples("F@0 F@0.1 F@0.2, S@10 S@10.1 S@10.2, then S every 1 s from 11 to 400");
    assert_eq!(replay(&mut health, line), ["degraded@0.1", "down@0.2", "degraded@10.2", "healthy@301"]);
}

#[test]
fn the_reason_names_rule_and_numbers() {
    let mut health = healthy();
    let reasons: Vec<String> = samples("F@0 F@0.5 F@0.6, then S every 1 s from 10 to 400")
        .into_iter()
        .filter_map(|(at, outcome)| health.judge(at, outcome))
        .map(|transition| transition.reason.to_string())
        .collect();
    assert_eq!(
        reasons,
        [
            "rule 3: 2 of 2 samples failed in 5m",
            "rule 1: all of the last 3 samples failed within 1s",
            "rule 2: the last 3 samples are successes",
            "rule 4: the last 30 samples are clean, and so are the last 5m",
        ]
    );
}

/// The closed form against counting up, where counting up ends.
#[test]
fn the_failures_that_a_ratio_still_wants_are_counted_exactly() {
    for ratio in [1, 1_000, 333_333, 500_000, 900_000, 999_000, 1_000_000].map(Ratio) {
        for (samples, failures) in
            (0..40_u64).flat_map(|samples| (0..=samples).map(move |failures| (samples, failures)))
        {
            let counted = (0..50_000_u64).find(|more| ratio.reached(failures + more, samples + more));
            assert_eq!(ratio.missing(failures, samples), counted, "{ratio:?}, {failures} of {samples}");
        }
    }
    let nearly_all = Ratio(999_999);
    assert_eq!(nearly_all.missing(0, 1), Some(999_999));
    assert_eq!(nearly_all.missing(0, 10_000), Some(9_999_990_000), "without counting up");
    assert!(nearly_all.reached(9_999_990_000, 10_000_000_000) && !nearly_all.reached(9_999_989_999, 9_999_999_999));
    assert_eq!(Ratio(1_000_000).missing(5, 6), None, "with one success it is never all of them");
    assert_eq!(Ratio(1_000_000).missing(6, 6), Some(0));
}

/// Every script of successes and failures up to this many samples, at spacings on both sides of
/// every boundary, against the naive model; from every state.
#[test]
fn every_short_script_agrees_with_the_naive_model() {
    const LENGTH: u32 = 10;
    let second = 1_000_000_000;
    // The third sample falls in, on and out of the short window; then in and out of the long one.
    for gap in [second / 3, second / 2, second / 2 + 1, second, 150 * second, 150 * second - 1, 300 * second] {
        let small = Rules { recovery_samples: 4, ..Rules::default() };
        for rules in [Rules::default(), small, Rules { degraded_ratio: Ratio(400_000), ..small }] {
            for (script, state) in (0..1_u32 << LENGTH).flat_map(|script| State::ALL.map(|state| (script, state))) {
                let mut health = Health::starting_as(state, rules);
                let mut model = naive::Naive::starting_as(state, rules);
                for step in 0..LENGTH {
                    let failed = script >> step & 1 == 1;
                    let at = u64::from(step) * gap;
                    let found = health.judge(Time::from_nanos(at), if failed { FAILURE } else { SUCCESS });
                    let expected = model.judge(at, failed);
                    let found = found.map(|transition| (transition.reason.rule, transition.to));
                    assert_eq!(found, expected, "from {state}, script {script:#b}, step {step}, gap {gap}, {rules:?}");
                    assert_eq!(health.state(), model.state);
                }
            }
        }
    }
}
