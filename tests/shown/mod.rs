//! Pages of documentation, read as a test reads them: what they show, and what is to be done with it.
//!
//! Comments, which no reader sees, say what the block below them is:
//!
//! | comment | the block below |
//! | --- | --- |
//! | `<!-- run: PLACE -->` | commands, run at that place (a network namespace), by `sh -e` |
//! | `<!-- session: PLACE: COMMAND; COMMAND -->` | commands, given there one after the other, as a person does: those named go on at a terminal of their own, the others end well sooner or later |
//! | `<!-- file: PLACE PATH -->` | a file, written there; `>>PATH` appends to it |
//! | `<!-- shown: WHY -->` | neither; its commands exist all the same, and its configuration loads |
//!
//! And two stand alone: `<!-- stage: PLACES` begins a script that makes the places' network, and
//! `<!-- then: PLACE: COMMAND -->` is a command that ends well sooner or later.

#![allow(dead_code, reason = "each target of tests uses its part of it")]

use clap::CommandFactory;

/// One step of a page, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Stage { places: Vec<String>, script: String },
    Run { place: String, script: String },
    Session { place: String, lasting: Vec<String>, script: String },
    File { place: String, path: String, text: String },
    Then { place: String, command: String },
    Shown { kind: String, text: String },
}

/// The steps of a page. A picture (`text`) is none; any other block must say what it is.
pub(crate) fn steps(page: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    let mut marker = None;
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            steps.extend(block(marker.take(), kind, text.join("\n") + "\n")?);
        } else if let Some(comment) = line.strip_prefix("<!-- ") {
            let mut comment = comment.to_owned();
            while !comment.ends_with("-->") {
                comment = format!("{comment}\n{}", lines.next().ok_or("a comment does not end")?);
            }
            let comment = comment.trim_end_matches("-->").trim().to_owned();
            match alone(&comment)? {
                Some(step) => steps.push(step),
                None => marker = Some(comment),
            }
        } else if let (Some(marker), false) = (&marker, line.is_empty()) {
            return Err(format!("no block below {marker:?}"));
        }
    }
    Ok(steps)
}

fn alone(comment: &str) -> Result<Option<Step>, String> {
    if let Some(rest) = comment.strip_prefix("stage: ") {
        let (places, script) = rest.split_once('\n').unwrap_or((rest, ""));
        let places = places.split_whitespace().map(str::to_owned).collect();
        return Ok(Some(Step::Stage { places, script: script.to_owned() }));
    }
    let Some(rest) = comment.strip_prefix("then: ") else { return Ok(None) };
    let (place, command) = rest.split_once(": ").ok_or(format!("{rest:?}: where?"))?;
    Ok(Some(Step::Then { place: place.to_owned(), command: command.to_owned() }))
}

fn block(marker: Option<String>, kind: &str, text: String) -> Result<Option<Step>, String> {
    if kind == "text" {
        return Ok(None);
    }
    let marker = marker.ok_or(format!("nothing says what is to be done with\n{text}"))?;
    let (what, rest) = marker.split_once(": ").ok_or(format!("{marker:?} says nothing"))?;
    Ok(Some(match (what, rest.split_once(' ')) {
        ("run", None) => Step::Run { place: rest.to_owned(), script: text },
        ("file", Some((place, path))) => Step::File { place: place.to_owned(), path: path.to_owned(), text },
        ("session", _) => {
            let (place, lasting) = rest.split_once(": ").unwrap_or((rest, ""));
            let lasting = lasting.split("; ").filter(|command| !command.is_empty()).map(str::to_owned).collect();
            Step::Session { place: place.to_owned(), lasting, script: text }
        }
        ("shown", Some(_)) => Step::Shown { kind: kind.to_owned(), text },
        _ => return Err(format!("{marker:?}: run: PLACE, session: PLACE: …, file: PLACE PATH, or shown: WHY")),
    }))
}

/// That each `adit` in this code is a command that exists, with the options that are given; how many there are.
pub(crate) fn commands<'a>(code: impl Iterator<Item = &'a str>) -> usize {
    let known = adit::cli::args::Args::command();
    let mut shown = 0;
    for code in code {
        let code = code.split('#').next().unwrap_or_default();
        let mut words = code.split_whitespace().skip_while(|&word| word != "adit").skip(1);
        let Some(name) = words.next().filter(|name| name.chars().all(|letter| letter.is_ascii_lowercase())) else {
            continue;
        };
        // `systemctl start adit` ends there, `ip netns exec far adit reflect` goes on.
        let mut command = known.find_subcommand(name).unwrap_or_else(|| panic!("{code}: there is no adit {name}"));
        let mut words = words.take_while(|word| !matches!(*word, "|" | "&&" | "||")).peekable();
        while let Some(inner) = words.peek().and_then(|word| command.find_subcommand(word)) {
            command = inner;
            words.next();
        }
        for option in words.filter(|word| word.starts_with("--")) {
            let option = option.trim_start_matches('-').trim_end_matches([';', ',']);
            let has = |argument: &clap::Arg| argument.get_long() == Some(option);
            assert!(command.get_arguments().any(has), "{code}: adit {name} has no --{option}");
        }
        shown += 1;
    }
    shown
}
