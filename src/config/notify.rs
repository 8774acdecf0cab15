//! `[[notify]]`: who is told of what, and how.

use super::lines::Lines;
use super::names;
use super::near::nearest;
use super::notation::{self, percent, written};
use super::section::{Section, expected};
use super::tree::{At, Placed, Value};
use super::tunnel::Tunnels;
use super::{defaults, key_file};
use crate::engine::State;
use crate::engine::health::Ratio;
use crate::notice::{Means, Notify, Objective, Sink, matches};

/// The least objective that says anything, and the greatest that can be missed by less than everything.
const LEAST: Ratio = Ratio(10_000);
/// What Cloudflare's alerts have unless told otherwise.
const USUAL: Ratio = Ratio(980_000);

/// Reads every `[[notify]]`.
pub(super) fn read_all(root: &mut Section<'_>, tunnels: &Tunnels) -> Vec<Notify> {
    let mut seen: Vec<(String, At)> = Vec::new();
    let sections = root.sections("notify");
    sections.into_iter().filter_map(|section| read(section, tunnels, &mut seen)).collect()
}

fn read(mut section: Section<'_>, tunnels: &Tunnels, seen: &mut Vec<(String, At)>) -> Option<Notify> {
    let (report, at) = (section.report(), section.at());
    let written_name = section.text("name", "a name", "mail", names::tunnel);
    let on = on(&mut section);
    let slo = slo(&mut section);
    let means = means(&mut section);
    let patterns = patterns(&mut section, tunnels);
    let mut time = |key, range, usual| section.duration(key, range, usual).map(|time| time.value);
    let repeat = time("repeat", defaults::NOTIFY_REPEAT_RANGE, defaults::NOTIFY_REPEAT);
    let timeout = time("timeout", defaults::NOTIFY_TIMEOUT_RANGE, defaults::NOTIFY_TIMEOUT);
    let batch = time("batch", defaults::NOTIFY_BATCH_RANGE, defaults::NOTIFY_BATCH);
    let window = section.duration("slo_window", defaults::SLO_WINDOW_RANGE, defaults::SLO_WINDOW);
    if let Some(window) = window.filter(|_| !section.has("slo")) {
        report.add(window.at, "`slo_window` means nothing without `slo`; write slo = \"98%\" beside it, or remove it");
    }
    if !section.has("on") && !section.has("slo") {
        report.add(at, "this [[notify]] is told nothing; write on = [\"down\", \"healthy\"] or slo = \"98%\" in it");
    }
    section.finish();
    let means = means?;
    let place = written_name.as_ref().map_or(at, |name| name.at);
    let name = written_name.map_or_else(|| default_name(&means), |name| name.value);
    if let Some((_, first)) = seen.iter().find(|(known, _)| *known == name) {
        let first = report.refer(place, *first);
        let why = format!("the [[notify]] of {first} is called {name:?}, too");
        report.add(place, format!("{why}; write another name = \"…\" in one of the two"));
    }
    seen.push((name.clone(), place));
    // One value for both would be a wrong one for one of them: beside states, a target keeps its own.
    let usual = if on.is_empty() { defaults::NOTIFY_SLO_REPEAT } else { defaults::NOTIFY_REPEAT };
    let repeat = repeat.unwrap_or(usual);
    let objective = |target| Objective {
        target,
        window: window.map_or(defaults::SLO_WINDOW, |window| window.value),
        repeat: if on.is_empty() { repeat } else { defaults::NOTIFY_SLO_REPEAT },
    };
    let slo = slo.map(objective);
    let sink = Sink { name, on, slo, tunnels: patterns, repeat, batch: batch.unwrap_or(defaults::NOTIFY_BATCH) };
    Some(Notify { sink, means, timeout: timeout.unwrap_or(defaults::NOTIFY_TIMEOUT) })
}

/// The name of a sink that has none: the program's, or the host's.
fn default_name(means: &Means) -> String {
    let text = match means {
        Means::Exec(command) => command.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned(),
        Means::Webhook(..) => {
            let shown = means.to_string();
            shown.split_once("://").map_or(shown.clone(), |(_, host)| host.to_owned())
        }
    };
    let letter = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let name: String = text.chars().map(letter).take(defaults::NAME_MAX).collect();
    let name = name.trim_matches(['.', '-']);
    if name.is_empty() { "sink".to_owned() } else { name.to_owned() }
}

fn on(section: &mut Section<'_>) -> Vec<State> {
    let names = || State::ALL.into_iter().map(State::name);
    let state = |text: &str| {
        State::from_name(text).ok_or_else(|| {
            let near = nearest(text, names()).unwrap_or("down");
            let all = names().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            format!("has {text:?}, which is no state ({all}); write on = [{near:?}]")
        })
    };
    let read = |value| {
        let mut states = list(value, "on", "states", "[\"down\", \"healthy\"]")?
            .into_iter()
            .map(state)
            .collect::<Result<Vec<_>, _>>()?;
        states.sort_unstable();
        states.dedup();
        Ok(states)
    };
    section.read("on", read).map(|on| on.value).unwrap_or_default()
}

fn slo(section: &mut Section<'_>) -> Option<Ratio> {
    let slo = section.read("slo", |value| notation::ratio(value, LEAST, "slo", USUAL))?;
    if slo.value == Ratio(1_000_000) {
        let why = "asks for every single probe, which no path delivers for long";
        section.report().hint(slo.at, format!("`slo` {why}; 99.9% is the highest that Cloudflare's alerts offer"));
    }
    Some(slo.value)
}

fn patterns(section: &mut Section<'_>, tunnels: &Tunnels) -> Vec<String> {
    let patterns = section.read("tunnels", |value| list(value, "tunnels", "names or patterns", "[\"ams-*\"]"));
    let Some(Placed { at, value: patterns }) = patterns else { return Vec::new() };
    for pattern in &patterns {
        if !tunnels.list.iter().any(|tunnel| matches(pattern, &tunnel.name)) {
            section.report().hint(at, format!("no tunnel has a name like {pattern:?}"));
        }
    }
    patterns.into_iter().map(str::to_owned).collect()
}

/// A list of texts, none of them empty.
fn list<'a>(value: &'a Value, key: &str, what: &str, example: &str) -> Result<Vec<&'a str>, String> {
    let kind = format!("a list of {what}");
    let wrong = |found: &Value| expected(&kind, found, key, example);
    let items = value.as_list().ok_or_else(|| wrong(value))?;
    let text = |item: &'a Placed<Value>| {
        item.value.as_text().filter(|text| !text.is_empty()).ok_or_else(|| wrong(&item.value))
    };
    let texts = items.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    if texts.is_empty() { Err(format!("is an empty list; write {key} = {example}")) } else { Ok(texts) }
}

fn means(section: &mut Section<'_>) -> Option<Means> {
    let exec = section.read("exec", exec);
    let webhook = section.read("webhook", webhook);
    let headers = key_file::headers(section);
    let report = section.report();
    if section.has("exec") == section.has("webhook") {
        let why =
            if section.has("exec") { "has both `exec` and `webhook`" } else { "has neither `exec` nor `webhook`" };
        let remedy = "write exec = [\"/etc/adit/notify.sh\"], or webhook = \"https://hooks.example.com/adit\"";
        report.add(section.at(), format!("this [[notify]] {why}; {remedy}"));
        return None;
    }
    if let Some(headers) = headers.as_ref().filter(|_| section.has("exec")) {
        report.add(headers.at, "`header_file` means nothing to a program; remove it, or write webhook instead of exec");
    }
    let webhook = webhook.map(|webhook| {
        if headers.is_some() && !webhook.value.starts_with("https://") && !is_loopback(&webhook.value) {
            let why = "sends what `header_file` holds where everybody on the way can read it";
            report.hint(webhook.at, format!("`webhook` {why}; write https://"));
        }
        Means::Webhook(webhook.value, headers.map(|headers| headers.value))
    });
    exec.map(|exec| Means::Exec(exec.value)).or(webhook)
}

fn exec(value: &Value) -> Result<Vec<String>, String> {
    const EXAMPLE: &str = "[\"/etc/adit/notify.sh\"]";
    // A list of words, no shell: what a tunnel is called must not be able to become a command.
    if let Some(text) = value.as_text() {
        let words: Vec<_> = text.split_whitespace().map(|word| format!("{word:?}")).collect();
        return Err(format!(
            "must be a list: a program and its arguments, without a shell; write exec = [{}]",
            words.join(", ")
        ));
    }
    let items = value.as_list().ok_or_else(|| expected("a program and its arguments", value, "exec", EXAMPLE))?;
    let words: Option<Vec<String>> = items.iter().map(|item| item.value.as_text().map(str::to_owned)).collect();
    let words = words.ok_or_else(|| format!("must be a list of texts; write exec = {EXAMPLE}"))?;
    if words.iter().any(|word| word.contains('\0')) {
        return Err(format!("holds a zero byte, which no argument can; write exec = {EXAMPLE}"));
    }
    match words.first() {
        Some(program) if program.starts_with('/') && !program.ends_with('/') => Ok(words),
        Some(program) => {
            Err(format!("names the program {program:?}, which is no absolute path of a file; write exec = {EXAMPLE}"))
        }
        None => Err(format!("is an empty list; write exec = {EXAMPLE}")),
    }
}

/// The URL of a webhook. What is wrong with it is told without repeating it: it may hold a secret.
fn webhook(value: &Value) -> Result<String, String> {
    const REMEDY: &str = "write webhook = \"https://hooks.example.com/adit\"";
    let text =
        value.as_text().ok_or_else(|| expected("a URL", value, "webhook", "\"https://hooks.example.com/adit\""))?;
    let uri: hyper::Uri = text.parse().map_err(|error| format!("is no URL ({error}); {REMEDY}"))?;
    let authority = uri.authority().filter(|_| matches!(uri.scheme_str(), Some("http" | "https")));
    let authority = authority.ok_or_else(|| format!("must begin with https:// and a host; {REMEDY}"))?;
    if authority.as_str().contains('@') {
        return Err("has a user before its host; write Authorization: … into a header_file instead".to_owned());
    }
    if authority.host().is_empty() {
        return Err(format!("has no host; {REMEDY}"));
    }
    Ok(text.to_owned())
}

fn is_loopback(url: &str) -> bool {
    let host = url.parse::<hyper::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Writes it out again, with all that it did not say.
pub(super) fn write(notify: &Notify, lines: &mut Lines) {
    let Notify { sink, means, timeout } = notify;
    let list = |texts: &mut dyn Iterator<Item = &str>| {
        toml::Value::Array(texts.map(|text| toml::Value::String(text.to_owned())).collect())
    };
    lines.header("[[notify]]");
    lines.text("name", &sink.name);
    if !sink.on.is_empty() {
        lines.line("on", list(&mut sink.on.iter().map(|state| state.name())));
    }
    if let Some(slo) = &sink.slo {
        lines.text("slo", percent(slo.target));
        lines.text("slo_window", written(slo.window));
    }
    if !sink.tunnels.is_empty() {
        lines.line("tunnels", list(&mut sink.tunnels.iter().map(String::as_str)));
    }
    match means {
        Means::Exec(command) => lines.line("exec", list(&mut command.iter().map(String::as_str))),
        Means::Webhook(url, headers) => {
            lines.text("webhook", url);
            headers.iter().for_each(|headers| lines.path("header_file", &headers.path));
        }
    }
    lines.text("timeout", written(*timeout));
    lines.text("repeat", written(sink.repeat));
    lines.text("batch", written(sink.batch));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sink_without_a_name_has_its_programs_or_hosts() {
        assert_eq!(default_name(&Means::Exec(vec!["/etc/adit/notify.sh".to_owned()])), "notify.sh");
        assert_eq!(
            default_name(&Means::Webhook("https://hooks.example.com:8443/T0/secret".to_owned(), None)),
            "hooks.example.com-8443"
        );
        assert_eq!(default_name(&Means::Webhook("http://[::1]:8080/".to_owned(), None)), "1--8080");
        assert_eq!(default_name(&Means::Exec(vec!["/…".to_owned()])), "sink");
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_it() {
        for url in
            ["ftp://host/secret", "https://user:secret@host/", "secret", "https:///secret", "https://host/ secret"]
        {
            let why = webhook(&Value::Text(url.to_owned())).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
        assert!(webhook(&Value::Text("https://hooks.example.com/T0/B0/x?y=z".to_owned())).is_ok());
        assert!(
            is_loopback("http://[::1]:80/") && is_loopback("http://127.0.0.1/x") && !is_loopback("http://10.0.0.1/")
        );
    }

    #[test]
    fn every_time_that_is_left_out_has_a_default_within_its_range() {
        let ranges = [
            (defaults::NOTIFY_TIMEOUT, defaults::NOTIFY_TIMEOUT_RANGE),
            (defaults::NOTIFY_BATCH, defaults::NOTIFY_BATCH_RANGE),
            (defaults::NOTIFY_REPEAT, defaults::NOTIFY_REPEAT_RANGE),
            (defaults::NOTIFY_SLO_REPEAT, defaults::NOTIFY_REPEAT_RANGE),
            (defaults::SLO_WINDOW, defaults::SLO_WINDOW_RANGE),
        ];
        assert!(ranges.iter().all(|(usual, range): &(Duration, _)| range.contains(usual)));
    }
}
