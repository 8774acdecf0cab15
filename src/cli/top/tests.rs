//! The model by keys and answers, and whole screens of it.

use std::time::{Duration, SystemTime};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Size;
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

use super::keys::Action;
use super::look::Look;
use super::model::{Change, Focus, Mode, Model, Update};
use super::tunnel::Tunnels;
use super::view;

const LOOK: Look = Look { colours: true, unicode: true };

fn time(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_000_000 + second)
}

fn text_of(second: u64) -> String {
    humantime::format_rfc3339_millis(time(second)).to_string()
}

fn tunnel(name: &str, state: &str, loss: f64, rtt: u64) -> Value {
    let penalty = match state {
        "down" => 1_000_000,
        "degraded" => 500_000,
        _ => 0,
    };
    json!({
        "name": name, "encapsulation": "gre", "type": "request", "direction": "bidirectional", "state": state,
        "since": text_of(0), "drained": false, "stale": false, "penalty": penalty, "checked": true,
        "obstacle": null, "assurance": "reflected",
        "window": { "seconds": 300, "samples": 31, "failures": 2, "loss_ratio": loss },
        "last_30": { "samples": 30, "failures": 2 },
        "rtt": { "last_us": rtt, "min_us": 790, "mean_us": 820, "p99_us": 1400, "jitter_us": 31 },
        "counters": { "sent": 412, "received": 410, "lost": 2 }, "samples": { "success": 410, "failure": 2 },
        "last_failure": { "at": text_of(50), "reason": "timeout" },
        "reason": "rule 3: 2 of 31 samples failed in 300 s", "something": { "new": true },
    })
}

fn told(tunnels: &[Value]) -> Update {
    let all: Tunnels = serde_json::from_value(json!({ "tunnels": tunnels })).unwrap();
    Update::Tunnels(all.tunnels)
}

fn model(tunnels: &[Value]) -> Model {
    let mut model = Model::new(time(65));
    model.take(Update::Asking);
    model.take(told(tunnels));
    model.settle(20);
    model
}

fn four() -> [Value; 4] {
    [
        tunnel("ams-1", "healthy", 0.0, 812),
        tunnel("fra-1", "down", 1.0, 900),
        tunnel("東京-1", "degraded", 0.0645, 23_456),
        tunnel("lon-1", "unknown", 0.0, 700),
    ]
}

fn code(model: &mut Model, code: KeyCode) -> Option<Action> {
    let action = model.press(KeyEvent::new(code, KeyModifiers::NONE));
    model.settle(20);
    action
}

fn keys(model: &mut Model, letters: &str) -> Option<Action> {
    letters.chars().filter_map(|letter| code(model, KeyCode::Char(letter))).last()
}

fn drawn(model: &mut Model, (width, height): (u16, u16), look: Look) -> Buffer {
    view::settle(model, Size { width, height }, look);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model, look)).unwrap();
    terminal.backend().buffer().clone()
}

/// What is to be read, line by line; behind a wide letter there is no cell of its own.
fn lines(buffer: &Buffer) -> Vec<String> {
    let row = |y: u16| {
        let (mut text, mut x) = (String::new(), 0);
        while x < buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            text.push_str(symbol);
            x += u16::try_from(super::look::width(symbol)).unwrap().max(1);
        }
        text.trim_end().to_owned()
    };
    (0..buffer.area.height).map(row).collect()
}

fn screen(model: &mut Model, size: (u16, u16)) -> Vec<String> {
    lines(&drawn(model, size, LOOK))
}

fn names(model: &Model) -> Vec<String> {
    model.visible().map(|(row, _)| row.tunnel.name.clone()).collect()
}

fn chosen(model: &Model) -> &str {
    model.chosen().map_or("-", |row| &row.tunnel.name)
}

/// The answers about the tunnel in the pane.
fn close(name: &str, samples: &[Option<u64>]) -> Update {
    let sample =
        |(second, rtt): (u64, &Option<u64>)| json!({ "at": text_of(second), "ok": rtt.is_some(), "rtt_us": rtt });
    let route = |prefix: &str, table: u32, selected: bool| {
        json!({
            "prefix": prefix, "table": table, "netns": null, "tunnel": name, "priority": 100, "penalty": 1_000_000,
            "effective_priority": 1_000_100, "weight": 1, "selected": selected, "kernel": "installed", "kernel_reason": null,
        })
    };
    Update::Close {
        name: name.to_owned(),
        explanation: json!({
            "samples": (20..).zip(samples).map(sample).collect::<Vec<_>>(),
            "inconclusive": [{ "at": text_of(10), "fault": "stall", "reason": "this host was busy" }],
            "next": [{ "to": "degraded", "rule": 2, "needs": "3 successes", "earliest": text_of(68) }],
            "last_reject": null, "last_hint": { "at": text_of(40), "reason": "host unreachable" },
            "counters": { "sent": 412, "lost": 2 }, "quorum": 1, "targets": [
                { "target": "192.0.2.1", "sent": 206, "answered": 206, "lost": 0, "lost_in_a_row": 0, "rtt_us": 900,
                  "last_answer": text_of(60) },
                { "target": "192.0.2.2", "sent": 206, "answered": 0, "lost": 206, "lost_in_a_row": 206, "rtt_us": null,
                  "last_answer": null },
            ],
        }),
        routes: json!({ "routes": [route("10.20.0.0/16", 254, true), route("10.30.0.0/16", 7, false)] }),
    }
}

fn transition(name: &str, from: &str, to: &str, second: u64) -> Update {
    Update::Event(json!({
        "id": 7, "at": text_of(second), "kind": "transition", "tunnel": name, "from": from, "to": to, "rule": 1,
        "reason": "all of the last 3 samples failed within 1s", "penalty": 1_000_000,
    }))
}

#[test]
fn a_screen_of_eighty_columns() {
    let shown = screen(&mut model(&four()), (80, 24));
    let expected = [
        "adit top  4 tunnels  ✗ 1 down  ▲ 1 degraded  ? 1 unknown  ● 1 healthy",
        "worst first · all states",
        "  TUNNEL   STATE    SINCE       LOSS        RTT   PENALTY",
        "✗ fra-1    down     1m 5s   100.00 %    0.90 ms 1 000 000 15s ago: timeout",
        "▲ 東京-1   degraded 1m 5s     6.45 %   23.45 ms   500 000 15s ago: timeout",
        "? lon-1    unknown  1m 5s     0.00 %    0.70 ms         0 15s ago: timeout",
        "● ams-1    healthy  1m 5s     0.00 %    0.81 ms         0",
    ];
    assert_eq!(shown[..7], expected);
    assert_eq!(shown[7..23], [""; 16]);
    assert_eq!(shown[23], "? help  q quit  Enter pane  s sort  f filter  / search  d drain  u undrain");
}

#[test]
fn a_screen_of_forty_columns() {
    let expected = [
        "adit top  4 tunnels  ✗ 1  ▲ 1  ? 1  ● 1",
        "worst first · all states",
        "  TUNNEL   STATE        LOSS",
        "✗ fra-1    down     100.00 %",
        "▲ 東京-1   degraded   6.45 %",
        "? lon-1    unknown    0.00 %",
        "● ams-1    healthy    0.00 %",
        "",
        "",
        "? help  q quit  Enter pane  s sort  f f…",
    ];
    assert_eq!(screen(&mut model(&four()), (40, 10)), expected);
}

#[test]
fn a_screen_of_two_hundred_columns_has_the_pane_beside_the_list() {
    let mut model = model(&four());
    let mut answer = four();
    answer[0]["samples"]["success"] = json!(411);
    // One of several targets does not answer, which is no failure.
    answer[0]["counters"]["lost"] = json!(3);
    answer[1]["samples"]["failure"] = json!(3);
    model.take(told(&answer));
    let shown = screen(&mut model, (200, 24));
    assert_eq!(
        shown[2],
        "  TUNNEL   STATE    SINCE       LOSS  LAST        RTT        P99     JITTER   PENALTY HISTORY"
    );
    assert!(shown[3].starts_with("✗ fra-1 ") && shown[3].contains("✗ 15s ago: timeout"), "{}", shown[3]);
    assert!(shown[6].starts_with("● ams-1 ") && shown[6].ends_with('█'), "{}", shown[6]);

    code(&mut model, KeyCode::Enter);
    model.take(close("fra-1", &[Some(400), Some(800), None]));
    let shown = screen(&mut model, (200, 24));
    assert!(shown[3].contains("1 000 000") && shown[3].ends_with("│because   rule 3: 2 of 31 samples failed in 300 s"));
    assert!(shown[6].starts_with("● ams-1 "), "the list is there still");
    assert!(shown.iter().any(|line| line.ends_with("▄█✗")), "{shown:#?}");
}

#[test]
fn the_pane_has_all_about_one_tunnel() {
    let mut model = model(&four());
    assert_eq!(model.focus(), Focus::Nothing);
    code(&mut model, KeyCode::Enter);
    assert_eq!(model.focus(), Focus::Tunnel("fra-1".to_owned()));
    assert!(screen(&mut model, (80, 24)).contains(&"explain   (being asked)".to_owned()));
    model.take(close("fra-1", &[Some(400), Some(800), None]));
    model.take(transition("fra-1", "degraded", "down", 30));
    model.take(transition("ams-1", "degraded", "down", 31));
    let second = "worst first · all states · 34s ago: ams-1: degraded -> down; all of the last 3 …";
    assert_eq!(screen(&mut model, (80, 24))[1], second);
    let expected = [
        "✗ fra-1 is down since 35s",
        "because   all of the last 3 samples failed within 1s",
        "penalty   1 000 000",
        "probes    request bidirectional in gre, answers reflected",
        "rtt       last 0.90 ms, least 0.79 ms, mean 0.82 ms, p99 1.40 ms, jitter 0.03 ms",
        "loss      2 of 31 in 300 s (100.00 %)",
        "failure   15s ago: timeout",
        "",
        "history                                                                      ▄█✗",
        "          round-trip times, the newest at the right; ✗ failed, ? no sample",
        "",
        "becomes   degraded (rule 2) after 3 successes; in 3s at the earliest",
        "hint      25s ago: host unreachable",
        "targets   any 1 of 2 must answer",
        "          192.0.2.1: 206 of 206 answered, 0 lost, rtt 0.90 ms",
        "          192.0.2.2: 0 of 206 answered, 206 lost, silent",
        "counted   412 sent, 2 lost",
        "route     10.20.0.0/16  100 + 1 000 000 = 1 000 100  <- traffic  installed",
        "route     10.30.0.0/16 in table 7  100 + 1 000 000 = 1 000 100  installed",
        "events    35s ago: fra-1: degraded -> down; all of the last 3 samples failed",
        "within 1s; penalty 1 000 000",
    ];
    assert_eq!(screen(&mut model, (80, 24))[2..23], expected);
    let narrow = screen(&mut model, (40, 10));
    assert_eq!(narrow[2], "✗ fra-1 is down since 35s");
    code(&mut model, KeyCode::PageDown);
    assert_ne!(screen(&mut model, (40, 10))[2], "✗ fra-1 is down since 35s", "it scrolls");
    for _ in 0..20 {
        code(&mut model, KeyCode::PageDown);
        screen(&mut model, (40, 10));
    }
    let end = screen(&mut model, (40, 10));
    assert!(end[8].starts_with("within 1s; penalty"), "to the end, however often a line is broken: {end:#?}");
    code(&mut model, KeyCode::PageUp);
    assert_ne!(screen(&mut model, (40, 10)), end, "and from there back at once");
    code(&mut model, KeyCode::Down);
    assert_eq!(model.focus(), Focus::Tunnel(chosen(&model).to_owned()), "the pane follows the cursor");
    code(&mut model, KeyCode::Esc);
    assert_eq!(model.focus(), Focus::Nothing);
}

#[test]
fn samples_are_gathered_and_what_is_none_stands_where_it_belongs() {
    let mut model = model(&four());
    model.take(close("fra-1", &[Some(800), Some(800), Some(800)]));
    let Update::Close { name, mut explanation, routes } = close("fra-1", &[None]) else { return };
    explanation["inconclusive"][0]["at"] = json!(text_of(21).replace("000Z", "500Z"));
    model.take(Update::Close { name, explanation, routes });
    let samples: String = {
        let picture = LOOK.picture(model.samples_of("fra-1").unwrap().points(), 6);
        picture.into_iter().map(|span| span.content.into_owned()).collect()
    };
    // The first of them is the same second's, told anew; the one from before all samples is not there.
    assert_eq!(samples, "  ✗█?█");
}

#[test]
fn the_cursor_stays_on_its_tunnel_when_rows_move() {
    let mut model = model(&four());
    assert_eq!(names(&model), ["fra-1", "東京-1", "lon-1", "ams-1"]);
    keys(&mut model, "G");
    assert_eq!(chosen(&model), "ams-1");
    model.take(transition("ams-1", "healthy", "down", 60));
    model.settle(20);
    assert_eq!(names(&model), ["ams-1", "fra-1", "東京-1", "lon-1"], "at once, without another answer");
    assert_eq!(chosen(&model), "ams-1");
    // At the top it stays at the top, so that the worst is never out of sight.
    keys(&mut model, "g");
    let [mut ams, mut fra, ..] = four();
    (ams["state"], fra["state"]) = (json!("healthy"), json!("healthy"));
    model.take(Update::Asking);
    model.take(told(&[ams, fra, four()[2].clone(), four()[3].clone()]));
    model.settle(20);
    assert_eq!(chosen(&model), "東京-1");
}

#[test]
fn a_tunnel_that_is_gone_leaves_the_cursor_where_it_was() {
    let mut model = model(&four());
    keys(&mut model, "jj");
    assert_eq!(chosen(&model), "lon-1");
    let [ams, fra, tokyo, _] = four();
    model.take(told(&[ams, fra, tokyo]));
    model.settle(20);
    assert_eq!(chosen(&model), "ams-1");
    model.take(told(&[]));
    model.settle(20);
    assert_eq!(keys(&mut model, "jkGd"), None);
    assert_eq!(chosen(&model), "-");
    assert!(screen(&mut model, (80, 24)).contains(&"  no tunnels are configured".to_owned()));
}

#[test]
fn an_event_is_not_undone_by_an_answer_that_is_older() {
    let mut model = model(&four());
    model.take(Update::Asking);
    model.take(transition("ams-1", "healthy", "down", 60));
    // Told while it was healthy still.
    model.take(told(&four()));
    model.settle(20);
    assert_eq!(model.counts.0, [2, 1, 1, 0]);
    model.take(Update::Asking);
    model.take(told(&four()));
    model.settle(20);
    assert_eq!(model.counts.0, [1, 1, 1, 1], "this one is newer");
}

#[test]
fn sorting_filtering_and_searching() {
    let mut model = model(&four());
    let mut seen = Vec::new();
    for _ in 0..6 {
        keys(&mut model, "s");
        seen.push((model.sort.words(), names(&model).join(" ")));
    }
    let expected = [
        ("by name", "ams-1 fra-1 lon-1 東京-1"),
        ("most loss first", "fra-1 東京-1 ams-1 lon-1"),
        ("slowest first", "東京-1 fra-1 ams-1 lon-1"),
        ("last changed first", "ams-1 fra-1 東京-1 lon-1"),
        ("highest penalty first", "fra-1 東京-1 ams-1 lon-1"),
        ("worst first", "fra-1 東京-1 lon-1 ams-1"),
    ];
    assert_eq!(seen.iter().map(|(words, names)| (*words, names.as_str())).collect::<Vec<_>>(), expected);
    keys(&mut model, "S");
    assert_eq!(names(&model), ["ams-1", "lon-1", "東京-1", "fra-1"]);
    keys(&mut model, "S");

    let mut shown = Vec::new();
    for _ in 0..7 {
        keys(&mut model, "f");
        shown.push((model.only.words(), names(&model).join(" ")));
    }
    let expected = [
        ("not healthy", "fra-1 東京-1 lon-1"),
        ("down", "fra-1"),
        ("degraded", "東京-1"),
        ("unknown", "lon-1"),
        ("healthy", "ams-1"),
        ("drained", ""),
        ("all states", "fra-1 東京-1 lon-1 ams-1"),
    ];
    assert_eq!(shown.iter().map(|(words, names)| (*words, names.as_str())).collect::<Vec<_>>(), expected);

    keys(&mut model, "/ON-");
    assert_eq!(names(&model), ["lon-1"], "whether letters are great or small");
    assert_eq!(screen(&mut model, (80, 24))[1], "worst first · all states · /ON- · 1 shown");
    code(&mut model, KeyCode::Enter);
    assert_eq!((keys(&mut model, "q"), names(&model).len()), (Some(Action::Quit), 1), "letters are keys again");
    keys(&mut model, "/京");
    assert!(screen(&mut model, (80, 24))[3].contains("no tunnel is shown"));
    code(&mut model, KeyCode::Backspace);
    code(&mut model, KeyCode::Esc);
    assert_eq!(names(&model).len(), 4);
    assert_eq!(model.mode, Mode::Normal);
}

#[test]
fn a_drain_asks_first_and_names_the_tunnel() {
    let mut model = model(&four());
    assert_eq!(keys(&mut model, "d"), None);
    assert_eq!(screen(&mut model, (80, 24))[23], "Drain fra-1, as costly as degraded?  y/n");
    // Whatever moves meanwhile: the question is about the one that it names.
    model.take(transition("ams-1", "healthy", "down", 60));
    assert_eq!(keys(&mut model, "jxd"), None, "neither yes nor no");
    let drain = |down| Some(Action::Change(Change::Drain { name: "fra-1".to_owned(), down }));
    assert_eq!((keys(&mut model, "y"), &model.mode), (drain(false), &Mode::Normal));
    code(&mut model, KeyCode::Down);
    for no in [KeyCode::Char('n'), KeyCode::Esc] {
        keys(&mut model, "D");
        assert_eq!(screen(&mut model, (80, 24))[23], "Drain fra-1, as costly as down?  y/n");
        assert_eq!((code(&mut model, KeyCode::Enter), code(&mut model, no)), (None, None));
        assert_eq!(screen(&mut model, (80, 24))[23], "nothing has been changed");
    }
    assert_eq!(keys(&mut model, "Dy"), drain(true));
    assert_eq!(keys(&mut model, "uy"), Some(Action::Change(Change::Undrain { name: "fra-1".to_owned() })));
    model.take(Update::Done("fra-1: drained; measured down; penalty 1 000 000".to_owned()));
    assert!(screen(&mut model, (80, 24))[23].starts_with("fra-1: drained; measured down"));
    model.take(Update::Refused("only root may change anything".to_owned()));
    assert_eq!(screen(&mut model, (80, 24))[23], "only root may change anything");
    keys(&mut model, "j");
    assert!(screen(&mut model, (80, 24))[23].starts_with("? help"));
}

#[test]
fn a_drain_is_told_with_its_reason_and_how_long_it_lasts() {
    let mut tunnels = four();
    tunnels[0]["drained"] = json!(true);
    tunnels[1]["drained"] = json!(true);
    tunnels[1]["drain"] = json!({ "reason": "new line card", "until": text_of(125), "by": "root" });
    tunnels[2]["drain"] = json!("something that is not known here");
    let mut model = model(&tunnels);
    let shown = screen(&mut model, (120, 24));
    assert!(shown[0].ends_with("● 1 healthy  2 drained"), "{}", shown[0]);
    assert!(shown[3].contains("drained (1m 0s left): new line"), "{}", shown[3]);
    assert!(shown[6].ends_with("drained"), "{}", shown[6]);
    model.take(Update::Event(json!({ "kind": "drain", "tunnel": "ams-1", "drained": false, "penalty": 0 })));
    assert!(screen(&mut model, (120, 24))[0].ends_with("1 drained"));
    // As the event tells it, before there is another answer.
    model.take(Update::Event(json!({
        "kind": "drain", "tunnel": "ams-1", "drained": true, "penalty": 500_000, "as": "degraded", "reason": "new optics",
        "until": text_of(185), "by": 0,
    })));
    let shown = screen(&mut model, (120, 24));
    assert!(shown.iter().any(|line| line.contains("drained (2m 0s left): new o")), "{shown:#?}");
}

#[test]
fn a_drain_that_another_takes_the_place_of_is_named_in_the_question() {
    let mut tunnels = four();
    tunnels[1]["drained"] = json!(true);
    tunnels[1]["drain"] = json!({ "reason": "new line card\u{1b}", "until": text_of(125), "by": "root" });
    tunnels[2]["drained"] = json!(true);
    let mut model = model(&tunnels);
    let mut question = |key: &str| {
        keys(&mut model, key);
        let shown = screen(&mut model, (120, 24))[23].clone();
        code(&mut model, KeyCode::Esc);
        shown
    };
    let held = "(in place of: new line card\\u{1b}, 1m 0s left)  y/n";
    assert_eq!(question("d"), format!("Drain fra-1, as costly as degraded? {held}"));
    assert_eq!(question("D"), format!("Drain fra-1, as costly as down? {held}"));
    assert_eq!(question("u"), "Let traffic come back to fra-1?  y/n");
    assert_eq!(question("jd"), "Drain 東京-1, as costly as degraded?  y/n", "of this one nothing has been said");
}

#[test]
fn events_that_no_answer_comes_for_are_not_kept_for_ever() {
    let mut model = model(&four());
    model.take(Update::Asking);
    (0..12_000).for_each(|second| model.take(transition("ams-1", "healthy", "down", second)));
    assert_eq!(model.fresh(), 10_000);
    model.take(told(&four()));
    model.settle(20);
    assert_eq!((model.counts.0, model.fresh()), ([2, 1, 1, 0], 0), "the newest are those that hold");
}

#[test]
fn every_key_that_moves_a_page_is_in_the_help_and_none_of_them_is_next_to_a_drain() {
    let mut model = model(&four());
    let mut control = |letter| {
        model.press(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        model.settle(20);
        chosen(&model).to_owned()
    };
    assert_eq!(['d', 'f', 'u', 'b'].map(&mut control), ["fra-1", "ams-1", "ams-1", "fra-1"]);
    for key in ["?", "h"] {
        keys(&mut model, key);
        let shown = screen(&mut model, (80, 24)).join("\n");
        assert!(shown.contains("Ctrl-B Ctrl-F") && shown.contains("? h F1") && shown.contains("q, Ctrl-C"), "{shown}");
        code(&mut model, KeyCode::Esc);
    }
}

#[test]
fn a_silent_daemon_is_said_with_since_when() {
    let mut model = model(&four());
    model.now = time(70);
    model.take(Update::Silent("it broke off".to_owned()));
    model.now = time(77);
    model.take(Update::Silent("it broke off".to_owned()));
    let shown = screen(&mut model, (120, 24));
    assert_eq!(shown[1], "worst first · all states · measured 12s ago");
    assert!(shown[2].starts_with("no answer from the daemon since 2026-11-30T00:54:25Z (12s);"), "{}", shown[2]);
    assert!(shown[4].starts_with("✗ fra-1"), "what was known last is shown");
    model.take(Update::Health(json!({ "fail_static": { "reason": "3 of 4 tunnels went down" } })));
    let shown = screen(&mut model, (120, 24));
    assert_eq!(shown[2], "HELD: 3 of 4 tunnels went down");
}

#[test]
fn nothing_that_a_name_holds_reaches_the_terminal() {
    let name = "a\u{1b}[2J\u{202e}b\u{2028}\u{7}c";
    let mut model = model(&[tunnel(name, "down", 0.0, 1)]);
    model.take(Update::Refused("there is no \u{1b}]0;tunnel\u{9c}".to_owned()));
    model.take(transition(name, "healthy", "down", 1));
    let mut explained = close(name, &[None]);
    if let Update::Close { explanation, routes, .. } = &mut explained {
        explanation["next"][0]["needs"] = json!("\u{1b}c\u{2066}");
        explanation["counters"] = json!({ "\u{1b}": 1 });
        routes["routes"][0]["prefix"] = json!("\u{1b}c\u{2066}");
    }
    code(&mut model, KeyCode::Enter);
    model.take(explained);
    for size in [(80, 40), (200, 40)] {
        let text = screen(&mut model, size).join("");
        assert!(text.contains(r"a\u{1b}[2J\u{202e}b"), "{text}");
        keys(&mut model, "/\u{202e}\u{1b}");
        let text = text + &screen(&mut model, size).join("");
        assert!(text.contains(r"/\u{202e}\u{1b}"), "{text}");
        let bad =
            |letter: char| letter.is_control() || ('\u{2028}'..='\u{202e}').contains(&letter) || letter == '\u{2066}';
        assert!(!text.contains(bad), "{text:?}");
        code(&mut model, KeyCode::Esc);
        keys(&mut model, "d");
        assert!(!screen(&mut model, size).join("").contains(bad));
        keys(&mut model, "n");
    }
}

#[test]
fn wide_letters_are_never_cut_in_half() {
    for room in 0..12 {
        for text in ["東京東京-1", "abcdefgh", "é́́東", "नमस्ते", ""] {
            let padded = LOOK.pad(text, room, false);
            assert_eq!(super::look::width(&padded), room, "{text} in {room}: {padded:?}");
        }
    }
    assert_eq!(LOOK.fit("東京東京", 6), "東京…");
    assert_eq!(LOOK.fit("東京東京", 8), "東京東京");
}

#[test]
fn no_colour_where_none_is_wanted_and_no_letter_where_there_are_none() {
    let mut model = model(&four());
    let coloured =
        |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
    assert!(coloured(&drawn(&mut model, (80, 24), LOOK)));
    let plain = Look { colours: false, unicode: false };
    keys(&mut model, "j");
    for keys_typed in ["", "?", "d"] {
        keys(&mut model, keys_typed);
        let buffer = drawn(&mut model, (80, 24), plain);
        assert!(!coloured(&buffer));
        let text = lines(&buffer).join("\n").replace("東京", "");
        assert!(text.is_ascii(), "{text}");
        code(&mut model, KeyCode::Esc);
    }
    // The cursor is seen all the same, and each state by its sign.
    let buffer = drawn(&mut model, (80, 24), plain);
    assert!(buffer[(0, 4)].modifier.contains(Modifier::REVERSED));
    let signs: Vec<&str> = (3..7).map(|y| buffer[(0, y)].symbol()).collect();
    assert_eq!(signs, ["X", "!", "?", "+"]);
}

#[test]
fn every_size_can_be_drawn() {
    let mut model = model(&four());
    model.take(close("fra-1", &[Some(1), None]));
    for mode in ["", "?", "d", "/x", "e"] {
        keys(&mut model, mode);
        for (width, height) in (0..14).flat_map(|a| [(a, 24), (80, a), (a, a), (13 * a, a)]) {
            drawn(&mut model, (width, height), LOOK);
        }
        code(&mut model, KeyCode::Esc);
        code(&mut model, KeyCode::Enter);
    }
}

#[test]
fn a_held_arrow_moves_through_ten_thousand_tunnels_and_only_the_rows_on_the_screen_are_made() {
    let state = |at: usize| ["healthy", "healthy", "degraded", "down"][at % 4];
    let all: Vec<Value> = (0..10_000).map(|at| tunnel(&format!("t-{at:05}"), state(at), 0.0, 1)).collect();
    let mut model = model(&all);
    assert_eq!(model.counts.0, [2_500, 2_500, 0, 5_000]);
    let size = Size { width: 80, height: 24 };
    let room = view::room(&model, size);
    assert_eq!(room, 20);
    for _ in 0..3_000 {
        model.press(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
        assert!(model.is_settled(), "nothing is sorted anew because the cursor moves");
        model.settle(room);
        assert_eq!(model.visible().count(), room);
    }
    assert_eq!(super::list::lines(&model, 80, LOOK).len(), room + 1);
    assert!(model.visible().any(|(row, is_chosen)| is_chosen && row.tunnel.state.word() == "degraded"));
    let shown = screen(&mut model, (80, 24));
    assert!(shown[0].starts_with("adit top  10 000 tunnels  ✗ 2 500 down"), "{}", shown[0]);
    assert_eq!(chosen(&model), "t-02002", "of those that are degraded the 501st");
    keys(&mut model, "/09999");
    assert_eq!(names(&model), ["t-09999"]);
}

#[test]
fn a_stranger_s_answer_is_taken_as_far_as_it_is_known() {
    let odd = json!({ "tunnels": [{ "name": "a", "state": "asleep", "checked": false }, {}], "more": 1 });
    let Tunnels { tunnels } = serde_json::from_value(odd).unwrap();
    let mut model = Model::new(time(0));
    model.take(Update::Tunnels(tunnels));
    let shown = screen(&mut model, (80, 24));
    assert!(shown[3].starts_with("?          unknown  -"), "{}", shown[3]);
    assert!(shown[4].starts_with("? a        unknown  -") && shown[4].ends_with("not checked"), "{}", shown[4]);
    for odd in [json!(null), json!([]), json!({ "from": [1, "a"], "tunnel": 7, "kind": ["transition"] })] {
        model.take(Update::Event(odd.clone()));
        model.take(Update::Health(odd.clone()));
        model.take(Update::Close { name: "a".to_owned(), explanation: odd.clone(), routes: odd });
    }
    keys(&mut model, "G");
    code(&mut model, KeyCode::Enter);
    screen(&mut model, (80, 24));
}

#[test]
fn endpoints_have_a_screen_of_their_own() {
    let mut model = model(&four());
    keys(&mut model, "e");
    assert_eq!(model.focus(), Focus::Endpoints);
    assert_eq!(screen(&mut model, (80, 24))[3], "  the daemon is being asked");
    model.take(Update::Endpoints(json!({ "endpoints": [] })));
    assert_eq!(screen(&mut model, (80, 24))[3], "  no endpoints are configured");
    let endpoint = |name: &str, state: &str| {
        json!({
            "name": name, "address": "10.20.0.5", "netns": "blue", "state": state, "since": text_of(0), "loss_ratio": 0.25,
            "window": { "samples": 8, "failures": 2 }, "rtt": { "last_us": 812 },
            "route": { "prefix": "10.20.0.0/16", "tunnels": ["ams-1", "fra-1"] },
        })
    };
    let all = [endpoint("erp", "reachable"), endpoint("mail\u{1b}", "unreachable"), json!({})];
    model.take(Update::Endpoints(json!({ "endpoints": all })));
    let expected = [
        "  ENDPOINT      ADDRESS       STATE       SINCE      LOSS        RTT ROUTE",
        "● erp           10.20.0.5 in… reachable   1m 5s      25 %    0.81 ms 10.20.0.0/…",
        "✗ mail\\u{1b}    10.20.0.5 in… unreachable 1m 5s      25 %    0.81 ms 10.20.0.0/…",
        "? -             -             -           -             -          - -",
    ];
    assert_eq!(screen(&mut model, (80, 24))[2..6], expected);
    assert!(screen(&mut model, (120, 24))[3].ends_with("10.20.0.0/16 over ams-1, fra-1"));
    assert_eq!(keys(&mut model, "ddyj"), None, "nothing is drained from here");
    assert!(screen(&mut model, (80, 24))[3].starts_with("✗ mail"), "it scrolls");
    keys(&mut model, "e");
    assert_eq!(screen(&mut model, (80, 24))[3].chars().nth(2), Some('f'));
}

/// Run by the next one, on a terminal.
#[test]
#[ignore = "panics, which is what it is for"]
fn panic_on_a_terminal() {
    let _screen = super::screen::Screen::take().unwrap();
    panic!("something that cannot be");
}

#[test]
fn a_panic_is_read_on_the_terminal_as_it_was_before() {
    let keys = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&keys).unwrap();
    rustix::pty::unlockpt(&keys).unwrap();
    let name = rustix::pty::ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
    let line = std::fs::File::options().read(true).write(true).open(name).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&line, size).unwrap();
    let end = || std::process::Stdio::from(line.try_clone().unwrap());
    let mut command = std::process::Command::new("setsid");
    command.arg("--ctty").arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "cli::top::tests::panic_on_a_terminal", "--nocapture"]);
    let status = command
        .env("TERM", "xterm")
        .env("RUST_BACKTRACE", "0")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(101), "it has panicked");

    let modes = rustix::termios::tcgetattr(&line).unwrap().local_modes;
    assert!(modes.contains(rustix::termios::LocalModes::ECHO | rustix::termios::LocalModes::ICANON));
    // With its last end closed the line ends with an error, after all that was said.
    drop((command, line));
    let mut said = Vec::new();
    let _ = std::io::Read::read_to_end(&mut std::fs::File::from(keys), &mut said);
    let said = String::from_utf8_lossy(&said).into_owned();
    let (taken, rest) = said.split_once("\x1b[?1049h").expect("another screen is taken");
    let (left, after) = rest.split_once("\x1b[?1049l").expect("and left");
    let panicked = "something that cannot be";
    assert!(!taken.contains(panicked) && !left.contains(panicked) && after.contains(panicked), "{said:?}");
}
