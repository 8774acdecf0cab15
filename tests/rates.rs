//! What `adit check --explain-rates` says, against the engine itself in virtual time: detection and the way back by
//! cutting and healing, the chances by losing probes at random. All seeds are fixed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use adit::engine::health::{Health, Ratio, Rules, State};
use adit::engine::rates::{self, Bounds, Rates, Round, Spread};
use adit::engine::schedule::mix;
use adit::engine::settings::{Check, ReturnPath, Timeout};
use adit::engine::window::Outcome;
use adit::engine::{Targets, Time, rates::DAY};
use proptest::prelude::*;
use sim::{Sim, ms, tunnel};

/// The path of all these: an answer takes so long.
const PATH: Duration = Duration::from_millis(10);

fn check(interval: u64, timeout: u64) -> Check {
    Check {
        enabled: true,
        interval: ms(interval),
        timeout: Timeout::Fixed(ms(timeout)),
        early_retry: true,
        return_path: ReturnPath::Strict,
        mark_key: None,
        rules: Rules::default(),
    }
}

fn with(mut check: Check, change: impl FnOnce(&mut Check)) -> Check {
    change(&mut check);
    check
}

fn said(check: &Check) -> Rates {
    rates::of(check, Round::SINGLE, PATH).unwrap()
}

fn sim(check: &Check, seed: u64) -> Sim {
    let mut settings = tunnel(0);
    settings.check = check.clone();
    let mut sim = Sim::new(vec![settings], Vec::new(), seed);
    (sim.by_ticks, sim.far[0].rtt) = (true, PATH);
    sim
}

/// Checks of every kind: those by name, tight and wide ones, others' rules.
fn checks() -> Vec<(&'static str, Check)> {
    vec![
        ("high", check(1_000, 500)),
        ("high, auto", with(check(1_000, 500), |check| check.timeout = Timeout::Auto)),
        ("high, no early retry", with(check(1_000, 400), |check| check.early_retry = false)),
        ("mid", check(10_000, 500)),
        ("low", check(60_000, 500)),
        ("sub-second", with(check(100, 60), |check| check.rules.down_window = ms(300))),
        ("regular ones alone fill the window", check(100, 300)),
        ("five samples", with(check(200, 100), |check| check.rules.down_min_samples = 5)),
        (
            "one sample",
            with(check(1_000, 200), |check| {
                (check.early_retry, check.rules.down_min_samples) = (false, 1);
            }),
        ),
        ("slow", with(check(2_000, 1_500), |check| check.rules.down_window = ms(4_000))),
    ]
}

/// That the times measured are within what is said, and on average what is said.
fn agrees(name: &str, what: &str, times: &[Duration], said: Spread, slack: Duration) {
    let count = u32::try_from(times.len()).unwrap();
    let mean = times.iter().sum::<Duration>() / count;
    let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    println!("{name}: {what}: {mean:?} ({least:?} to {most:?}), said {said:?}");
    assert!(*least + slack >= said.best, "{name}: {what} after {least:?}, said {said:?}");
    assert!(*most <= said.worst + slack, "{name}: {what} after {most:?}, said {said:?}");
    let tolerance = slack + (said.worst - said.best) / 10;
    assert!(mean.abs_diff(said.typical) <= tolerance, "{name}: {what}: a mean of {mean:?}, said {said:?}");
}

#[test]
fn a_cut_is_found_when_it_is_said_to_be() {
    for (name, check) in checks() {
        let said = said(&check).down.unwrap();
        let mut sim = sim(&check, 1);
        sim.run_for(check.interval * 40);
        let mut times = Vec::new();
        for _ in 0..100 {
            let pause = sim.part_of(check.interval * 4);
            sim.run_for(check.rules.down_window + check.interval + pause);
            let cut = sim.now;
            sim.cut(0);
            times.push(sim.run_to(0, State::Down, said.worst * 2).since(cut));
            sim.heal(0);
            sim.run_to(0, State::Degraded, Duration::from_secs(200));
        }
        agrees(name, "down", &times, said, ms(40));
    }
}

#[test]
fn the_way_back_takes_as_long_as_it_is_said_to() {
    for (name, mut check) in checks() {
        // As many samples as there are in five minutes are not needed for this.
        let window = if check.interval < ms(500) { check.interval * 200 } else { check.rules.degraded_window };
        check.rules.degraded_window = window;
        let said = said(&check);
        let mut sim = sim(&check, 2);
        sim.run_for(check.interval * 40);
        let (mut degraded, mut healthy) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            sim.cut(0);
            let pause = sim.part_of(check.interval);
            sim.run_for(window + check.interval * 4 + pause);
            sim.heal(0);
            let healed = sim.now;
            degraded.push(sim.run_to(0, State::Degraded, said.degraded.worst * 4).since(healed));
            healthy.push(sim.run_to(0, State::Healthy, said.healthy.worst * 2).since(healed));
        }
        let step = check.interval / 5;
        agrees(name, "degraded", &degraded, said.degraded, ms(40) + step);
        // By jitter, sums of many intervals are nearly what they usually are.
        agrees(name, "healthy", &healthy, said.healthy, ms(40) + step);
    }
}

/// Whether a number counted in so many trials can come of the probability that is said.
fn comes_of(name: &str, counted: usize, trials: usize, said: Bounds) {
    let share = counted as f64 / trials as f64;
    // Four deviations, and a trial.
    let slack = |chance: f64| 4.0 * (chance * (1.0 - chance) / trials as f64).sqrt() + 1.0 / trials as f64;
    println!("{name}: {share:.4} of {trials}, said {said:?}");
    assert!(share + slack(said.at_least) >= said.at_least, "{name}: {share}, said {said:?}");
    assert!(share <= said.at_most + slack(said.at_most), "{name}: {share}, said {said:?}");
}

/// The real engine, real packets, many tunnels: how many have been other than healthy, and down.
#[test]
fn the_engine_under_random_loss_does_what_is_said() {
    let three = |quorum| Round { targets: 3, quorum };
    for (check, round, ppm, seconds) in [
        (check(1_000, 500), Round::SINGLE, 50_000, 25),
        (check(1_000, 500), Round::SINGLE, 20_000, 60),
        (check(10_000, 500), Round::SINGLE, 50_000, 400),
        (check(200, 100), Round::SINGLE, 200_000, 40),
        (check(1_000, 500), three(3), 20_000, 25),
        (check(1_000, 500), three(2), 100_000, 60),
    ] {
        let settings: Vec<_> = (0..200).map(|index| with_check(index, &check, round)).collect();
        let mut sim = Sim::new(settings, Vec::new(), u64::from(ppm));
        (sim.gaps_allowed, sim.by_ticks) = (true, true);
        sim.far.iter_mut().for_each(|far| far.rtt = PATH);
        sim.run_for(check.interval * 31);
        (0..200).for_each(|index| assert_eq!(sim.state(index), State::Healthy));
        sim.far.iter_mut().for_each(|far| far.loss_ppm = ppm);
        let begun = sim.now;
        sim.run_for(ms(seconds * 1_000));
        let told = sim.transitions().into_iter().filter(|(at, ..)| *at > begun);
        let (mut left, mut down) = (BTreeSet::new(), BTreeSet::new());
        for (_, name, to) in told {
            if to == State::Down {
                down.insert(name.clone());
            }
            left.insert(name);
        }
        let time = sim.now.since(begun);
        let said = rates::within(&check, round, PATH, Ratio(ppm), time).unwrap();
        let name = format!("{:?}, {round:?} at {ppm} ppm for {time:?}", check.interval);
        comes_of(&format!("{name}, not healthy"), left.len(), 200, said[0]);
        comes_of(&format!("{name}, down"), down.len(), 200, said[1]);
    }
}

fn with_check(index: u32, check: &Check, round: Round) -> adit::engine::Tunnel {
    let mut settings = tunnel(index);
    settings.check = check.clone();
    let further: Vec<_> = (2..=u8::try_from(round.targets).unwrap()).map(|last| [192, 0, 2, last].into()).collect();
    settings.targets = (!further.is_empty()).then_some(Targets { further, quorum: round.quorum as usize });
    settings
}

/// One tunnel's samples from a healthy state on, judged by the real rules: when it is healthy no more, and down.
fn judged(check: &Check, loss: Ratio, time: Duration, seed: u64) -> [bool; 2] {
    let mut drawn = 0;
    let mut random = || {
        drawn += 1;
        (mix(seed, drawn) >> 11) as f64 / 9_007_199_254_740_992.0
    };
    let Timeout::Fixed(timeout) = check.timeout else { panic!("not for these") };
    let early = if check.early_retry { ms(20) } else { timeout };
    let mut health = Health::starting_as(State::Healthy, check.rules);
    let mut due: BTreeMap<(Time, u32), Outcome> = BTreeMap::new();
    let (mut sent, mut number, mut left) = (Time::ZERO, 0, false);
    // The long window is full before anything is lost.
    let begun = Time::ZERO + check.rules.degraded_window;
    let end = begun + time;
    let success = Outcome::Success(PATH);
    while sent < end {
        sent = sent + check.interval.mul_f64(0.95 + 0.1 * random());
        while let Some(entry) = due.first_entry().filter(|entry| entry.key().0 < sent) {
            let ((at, _), outcome) = entry.remove_entry();
            let transition = health.judge(at, outcome);
            left |= transition.is_some();
            if health.state() == State::Down {
                return [true, true];
            }
        }
        let mut probe = |at: Time, lost: bool| {
            number += 1;
            let known = if lost { (at + timeout, Outcome::Failure) } else { (at + PATH, success) };
            due.insert((known.0, number), known.1);
        };
        let lost = |chance: f64| sent >= begun && chance < f64::from(loss.0) / 1e6;
        let regular = lost(random());
        probe(sent, regular);
        if regular {
            (0..2).for_each(|_| probe(sent + early, lost(random())));
        }
    }
    [left, false]
}

#[test]
fn the_rules_under_random_loss_do_what_is_said() {
    let hour = Duration::from_secs(3_600);
    for (name, check, ppm, time, trials) in [
        ("high, 0.1 %", check(1_000, 500), 1_000, hour, 120),
        ("high, 1 %", check(1_000, 500), 10_000, hour / 20, 700),
        ("mid, 0.1 %", check(10_000, 500), 1_000, hour * 24, 60),
        ("mid, 1 %", check(10_000, 500), 10_000, hour, 400),
        ("low, 1 %", check(60_000, 500), 10_000, hour * 24, 500),
        ("low, 5 %", check(60_000, 500), 50_000, hour * 2, 2_000),
        ("five times a second, 0.1 %", check(200, 100), 1_000, hour / 6, 60),
        ("ten times a second, 1 %", check(100, 60), 10_000, hour / 60, 60),
        (
            "one failure",
            with(check(1_000, 500), |check| check.rules.degraded_min_failures = 1),
            10_000,
            hour / 60,
            2_000,
        ),
        ("five failures", with(check(10_000, 500), |check| check.rules.degraded_min_failures = 5), 50_000, hour, 1_000),
        (
            "a share of 5 %",
            with(check(10_000, 500), |check| check.rules.degraded_ratio = Ratio(50_000)),
            20_000,
            hour * 6,
            300,
        ),
        ("down, 20 %", check(1_000, 500), 200_000, hour / 60, 2_000),
        (
            "down, 30 %, no early retry",
            with(check(2_000, 400), |check| check.early_retry = false),
            300_000,
            hour / 120,
            2_000,
        ),
        (
            "two beats in a row, 40 %",
            with(check(250, 100), |check| check.rules.down_window = ms(400)),
            400_000,
            hour / 120,
            1_000,
        ),
        ("down, mid, 10 %", check(10_000, 500), 100_000, hour, 1_000),
    ] {
        let said = rates::within(&check, Round::SINGLE, PATH, Ratio(ppm), time).unwrap();
        let ends: Vec<[bool; 2]> = (0..trials).map(|trial| judged(&check, Ratio(ppm), time, trial << 20 | 7)).collect();
        let count = |which: usize| ends.iter().filter(|end| end[which]).count();
        comes_of(&format!("{name}: not healthy"), count(0), ends.len(), said[0]);
        comes_of(&format!("{name}: down"), count(1), ends.len(), said[1]);
    }
}

/// Where a share of failures decides, there must be that many before anything happens.
#[test]
fn what_a_share_decides_takes_as_many_failures_as_that_share_is() {
    let check = with(check(100, 60), |check| check.rules.degraded_ratio = Ratio(10_000));
    let loss = said(&check).losses.into_iter().find(|loss| loss.ratio == Ratio(50_000)).unwrap();
    // Some 30 of 3000, at 0.055 a regular probe.
    let least = Duration::from_secs_f64(loss.degraded.mean.at_least);
    assert!((ms(45_000)..ms(56_000)).contains(&least), "{least:?}");
    let left = |time| (0..40).filter(|trial| judged(&check, loss.ratio, time, trial << 20 | 9)[0]).count();
    assert!(left(least / 2) <= 2 && left(least * 2) >= 38, "{} {}", left(least / 2), left(least * 2));
}

/// The rates by name are such that both are known exactly.
#[test]
fn of_the_rates_by_name_all_is_known_exactly() {
    for interval in [1_000, 10_000, 60_000] {
        for loss in said(&check(interval, 500)).losses {
            for alarm in [loss.degraded, loss.down] {
                assert!(alarm.in_a_day.is_exact() && alarm.mean.is_exact(), "{interval} ms: {loss:?}");
            }
            // Three of three lost.
            let chance = f64::from(loss.ratio.0) / 1e6;
            let mean = interval as f64 / 1e3 / chance.powi(3);
            assert!((loss.down.mean.at_least / mean - 1.0).abs() < 1e-9, "{loss:?}");
        }
    }
}

#[test]
fn a_path_slower_than_the_time_out_has_no_rates() {
    assert_eq!(rates::of(&check(1_000, 500), Round::SINGLE, ms(500)), None);
    assert!(rates::of(&check(1_000, 500), Round::SINGLE, ms(499)).is_some());
}

/// Numbers of rules, times in milliseconds, and whether early retry and an automatic time-out are chosen.
type Numbers = ([u32; 5], [u64; 5], [bool; 2]);

fn any_numbers() -> impl Strategy<Value = Numbers> {
    let rules = (1_u32..1_000_000, 1_u32..200, 1_u32..=64, 1_u32..=64, 1_u32..=64);
    let times = (10_u64..3_600_000, 1_u64..60_000, 10_u64..86_400_000, 10_u64..86_400_000, 0_u64..70_000);
    let rules = rules.prop_map(<[u32; 5]>::from);
    (rules, times.prop_map(<[u64; 5]>::from), any::<[bool; 2]>())
}

/// The check that such numbers make, and a path.
fn numbered((rules, times, [early_retry, auto]): Numbers) -> (Check, Duration) {
    let [interval, timeout, one, other, path] = times;
    let mut check = check(interval, timeout);
    (check.early_retry, check.timeout) = (early_retry, if auto { Timeout::Auto } else { check.timeout });
    check.rules = Rules {
        degraded_ratio: Ratio(rules[0]),
        degraded_min_failures: rules[1],
        degraded_window: ms(one.max(other)),
        down_min_samples: rules[2],
        down_window: ms(one.min(other)),
        up_samples: rules[3],
        recovery_samples: rules[4],
    };
    (check, ms(path))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn of_any_check_what_is_said_makes_sense(numbers in any_numbers()) {
        let (check, path) = numbered(numbers);
        let Some(rates) = rates::of(&check, Round::SINGLE, path) else {
            prop_assert!(path >= rates_timeout(&check, path));
            return Ok(());
        };
        for spread in [Some(rates.degraded), Some(rates.healthy), rates.down].into_iter().flatten() {
            prop_assert!(spread.best <= spread.typical && spread.typical <= spread.worst, "{spread:?}");
        }
        let mut last = [0.0; 2];
        for loss in &rates.losses {
            for (alarm, last) in [loss.degraded, loss.down].into_iter().zip(&mut last) {
                let Bounds { at_least, at_most } = alarm.in_a_day;
                prop_assert!((0.0..=1.0).contains(&at_least) && (at_least..=1.0).contains(&at_most), "{loss:?}");
                prop_assert!(alarm.mean.at_least > 0.0 && alarm.mean.at_least <= alarm.mean.at_most, "{loss:?}");
                // More loss is not less alarm.
                prop_assert!(at_most >= *last - 1e-9, "{loss:?}");
                *last = at_most;
            }
        }
    }
}

fn rates_timeout(check: &Check, path: Duration) -> Duration {
    match check.timeout {
        Timeout::Fixed(timeout) => timeout,
        Timeout::Auto => (path * 3).clamp(Timeout::AUTO_MIN, Timeout::AUTO_MAX),
    }
}

fn explained(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adit"));
    let output = command.args(["check", "--explain-rates"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_table_in_the_documentation_is_what_is_printed() {
    let printed = explained(&["--config", "fixtures/config/ok/rates.toml"]);
    let page = std::fs::read_to_string("docs/rates.md").unwrap();
    let config = std::fs::read_to_string("fixtures/config/ok/rates.toml").unwrap();
    assert!(page.contains(&format!("```toml\n{config}```")), "docs/rates.md does not show the configuration");
    assert!(page.contains(&format!("```text\n{printed}```")), "docs/rates.md does not show this:\n{printed}");
}

fn config_of(count: usize) -> String {
    let tunnel = |index: usize| {
        let far = std::net::Ipv4Addr::from(0x6440_0001 + u32::try_from(index).unwrap());
        let inner = std::net::Ipv4Addr::from(0x0A00_0000 + 2 * u32::try_from(index).unwrap());
        let rate = ["low", "mid", "high"][index % 3];
        format!(
            "[[tunnel]]\nname = \"t{index}\"\nlocal_endpoint = \"192.0.2.1\"\nremote_endpoint = \"{far}\"\n\
             interface_address = \"{inner}/31\"\n[tunnel.health_check]\nrate = \"{rate}\"\n"
        )
    };
    (0..count).map(tunnel).collect()
}

#[test]
fn tunnels_with_the_same_check_stand_together_however_many_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.toml");
    std::fs::write(&file, config_of(10_000)).unwrap();
    let file = file.to_str().unwrap();
    let text = explained(&["--config", file]);
    assert!(text.lines().count() < 60, "{text}");
    assert!(text.starts_with("t0, t3, t6 and 3 331 more: a probe every 1m, time-out 500ms\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&explained(&["--json", "--config", file])).unwrap();
    let groups = json["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 3);
    assert_eq!(groups.iter().map(|group| group["tunnels"].as_array().unwrap().len()).sum::<usize>(), 10_000);
    let high = &groups[2];
    assert_eq!((&high["interval_seconds"], &high["timeout_seconds"]), (&1.0.into(), &0.5.into()));
    assert_eq!(high["loss"][0]["ratio"], 0.001);
    assert!(high["down_seconds"]["typical"].as_f64().unwrap() < high["down_seconds"]["worst"].as_f64().unwrap());
    let odd = folder.path().join("odd.toml");
    let text = config_of(2).replacen("rate = \"low\"", "enabled = false", 1).replacen(
        "rate = \"mid\"",
        "timeout = \"15ms\"",
        1,
    );
    std::fs::write(&odd, text).unwrap();
    let odd = odd.to_str().unwrap();
    let text = explained(&["--config", odd]);
    assert!(text.contains("t0: a probe every 10s, time-out 500ms\n  not checked"), "{text}");
    assert!(
        text.contains("every probe fails: answers take 0.02 s, and the time-out is 0.01 s; raise timeout"),
        "{text}"
    );
    assert!(!explained(&["--rtt", "5ms", "--config", odd]).contains("every probe fails"));
    serde_json::from_str::<serde_json::Value>(&explained(&["--json", "--config", odd])).unwrap();
}

#[test]
fn every_configuration_that_loads_can_be_explained() {
    let mut count = 0;
    for entry in std::fs::read_dir("fixtures/config/ok").unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(config) = adit::config::Config::load(&entry) else { continue };
        for tunnel in &config.tunnels {
            count += 1;
            let rates = rates::of(&tunnel.check, Round::of(tunnel.targets.as_ref()), ms(1));
            assert!(
                rates.is_none_or(|rates| rates.down.is_some()),
                "{}: {} has no detection",
                entry.display(),
                tunnel.name
            );
        }
    }
    assert!(count > 10);
    assert_eq!(DAY.as_secs(), 86_400);
}

/// Standard error of `adit check`.
fn hints(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.toml");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_adit")).args(["check", "--config"]).arg(&file).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_check_that_makes_alarms_of_nothing_is_hinted_at() {
    let with = |rules: &str| config_of(1).replace("rate = \"low\"", rules);
    for good in ["rate = \"low\"", "rate = \"mid\"", "rate = \"high\"", "timeout = \"auto\"", "enabled = false"] {
        assert_eq!(hints(&with(good)), "", "{good}");
    }
    let one = hints(&with("rules = { degraded_min_failures = 1 }"));
    assert!(one.contains("hint: t0: one lost probe makes it degraded, with 1 % of random loss after 16m 40s"), "{one}");
    let down = hints(&with("early_retry = false\nrules = { down_min_samples = 1 }"));
    assert!(down.contains("hint: t0: a healthy tunnel is called down with 1 % of random loss after 16m 40s"), "{down}");
    // Of three targets that must all answer some answer is missing thrice as often; of two that suffice, hardly ever.
    let three = |rules: &str, quorum: u8| {
        with(&format!("{rules}\ntargets = [\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\"]\nquorum = {quorum}"))
    };
    let all = hints(&three("rate = \"high\"", 3));
    assert!(all.contains("t0: a healthy tunnel is called down with 1 % of random loss after 10h"), "{all}");
    assert!(all.contains("or for a smaller quorum"), "{all}");
    assert_eq!(hints(&three("rate = \"high\"", 2)), "");
    let one = hints(&three("rules = { degraded_min_failures = 1 }", 2));
    assert!(
        one.contains("t0: one round without a quorum makes it degraded, with 1 % of random loss after 9h"),
        "{one}"
    );
}

#[test]
fn tunnels_with_other_targets_or_another_quorum_stand_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("targets.toml");
    let targets = "rate = \"mid\"\ntargets = [\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\"]\nquorum = 1";
    let text = config_of(5).replace("rate = \"low\"", "rate = \"mid\"").replacen("rate = \"mid\"", targets, 1);
    std::fs::write(&file, text).unwrap();
    let arguments = ["--config", file.to_str().unwrap()];
    let text = explained(&arguments);
    assert!(text.starts_with("t0: a probe every 10s, time-out 500ms, 3 targets, quorum 1\n"), "{text}");
    assert!(text.contains("\nt1, t3, t4: a probe every 10s, time-out 500ms\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&explained(&["--json", arguments[0], arguments[1]])).unwrap();
    let group = |place: usize| [&json["groups"][place]["targets"], &json["groups"][place]["quorum"]];
    assert_eq!(
        (group(0), group(1)),
        ([3, 1].map(serde_json::Value::from).each_ref(), [1, 1].map(serde_json::Value::from).each_ref())
    );
    // None is rounded to nothing: one in a thousand lost thrice at once, and that twice in five minutes.
    let mean = json["groups"][0]["loss"][0]["degraded"]["mean_seconds"]["at_least"].as_f64().unwrap();
    assert!((2e17..4e17).contains(&mean), "{mean}");
}
