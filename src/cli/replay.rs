//! `adit replay`: recorded samples through the health rules, in no time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::args::{self, Initial};
use super::text::{coloured, style_of, thousands};
use super::{Exit, Failure, Outcome};
use crate::config::{Config, nearest};
use crate::engine::health::{Health, Reason, Rules, Transition};
use crate::engine::window::Outcome as Sample;
use crate::engine::{State, Time, penalty};

/// What a tunnel without a name is called.
const UNNAMED: &str = "tunnel";
/// What is said of a line that tells of a gap.
const GAP: &str = "samples are missing here: from now on the transitions may not be the recorded ones; \
                   a file that begins after this line can be judged by itself, from the state given with --initial";

pub(super) fn run(args: &args::Replay) -> Outcome {
    let rules = args.config.as_deref().map(Book::of).transpose()?;
    let mut replay = Replay { rules, ..Replay::starting_as(state(args.initial)) };
    let mut out = io::stdout().lock();
    let colours = coloured(&out);
    let mut skipped = 0_u64;
    for (number, line) in (1_u64..).zip(open(&args.file)?.split(b'\n')) {
        let taken = replay.take(&line?);
        if let Some(warning) = replay.warning.take() {
            super::complain(&format_args!("adit: {}:{number}: {warning}", args.file.display()));
        }
        match taken {
            Ok(Some((tunnel, transition))) if args.json => writeln!(out, "{}", json(&tunnel, &transition))?,
            Ok(Some((tunnel, transition))) => writeln!(out, "{}", sentence(&tunnel, &transition, colours))?,
            Ok(None) => {}
            Err(_) if args.lenient => skipped += 1,
            Err(problem) => {
                let place = format!("{}:{number}: {problem}", args.file.display());
                return Err(Failure::new(Exit::BadInput, format!("{place}; --lenient skips such lines")));
            }
        }
    }
    if skipped > 0 {
        super::complain(&format_args!("adit: {skipped} malformed lines skipped"));
    }
    Ok(Exit::Done)
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path)
        .map_err(|error| Failure::new(Exit::BadInput, format!("cannot read {}: {error}", path.display())))?;
    Ok(Box::new(BufReader::new(file)))
}

/// The rules that a configuration has for each tunnel.
struct Book {
    tunnels: BTreeMap<String, Rules>,
    defaults: Rules,
    path: String,
}

impl Book {
    fn of(path: &Path) -> Result<Self, Failure> {
        let config = Config::load(path).map_err(|problems| Failure::new(Exit::BadInput, problems.to_string()))?;
        let tunnels = config.tunnels.into_iter().map(|tunnel| (tunnel.name, tunnel.check.rules)).collect();
        Ok(Self { tunnels, defaults: config.rules, path: path.display().to_string() })
    }

    /// What to say of a name that the configuration does not know.
    fn stranger(&self, name: &str) -> String {
        let hint = nearest(name, self.tunnels.keys().map(String::as_str));
        let hint = hint.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        format!("{} has no tunnel {name:?}, which is judged by the rules of its [defaults]{hint}", self.path)
    }
}

const fn state(initial: Initial) -> State {
    match initial {
        Initial::Unknown => State::Unknown,
        Initial::Healthy => State::Healthy,
        Initial::Degraded => State::Degraded,
        Initial::Down => State::Down,
    }
}

/// One line of the input. Fields that are not listed belong to other kinds of event.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    t: Option<&'a RawValue>,
    ok: Option<bool>,
    #[serde(default)]
    inconclusive: bool,
    tunnel: Option<String>,
    kind: Option<String>,
    rtt_us: Option<u64>,
}

/// Recorded samples through the health rules, line by line.
pub struct Replay {
    rules: Option<Book>,
    initial: State,
    tunnels: BTreeMap<String, (Health, Time)>,
    /// Names that the configuration does not know, told once each.
    strangers: BTreeSet<String>,
    /// What a person should know of the last line.
    warning: Option<String>,
}

impl Replay {
    /// By the default rules, each tunnel from this state.
    #[must_use]
    pub const fn starting_as(initial: State) -> Self {
        Self { rules: None, initial, tunnels: BTreeMap::new(), strangers: BTreeSet::new(), warning: None }
    }

    /// Takes a line; gives the tunnel and its transition, if there was one.
    ///
    /// # Errors
    /// Why the line is no sample.
    pub fn take(&mut self, line: &[u8]) -> Result<Option<(String, Transition)>, String> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let line: Line<'_> =
            serde_json::from_slice(line).map_err(|error| format!("no JSON object of a sample: {error}"))?;
        match line.kind.as_deref() {
            None | Some("sample") => self.sample(line),
            // Another run begins: its clock starts anew and it knows nothing yet.
            Some("start") => {
                self.tunnels.clear();
                Ok(None)
            }
            // Keys came or went, say: what was known of the tunnel is forgotten.
            Some("obstacle") => Ok(line.tunnel.and_then(|name| self.forget(name))),
            Some("gap") => {
                self.warning = Some(GAP.to_owned());
                Ok(None)
            }
            Some(_) => Ok(None),
        }
    }

    fn forget(&mut self, name: String) -> Option<(String, Transition)> {
        let rules = self.rules_of(Some(&name));
        let (health, at) = self.tunnels.entry(name.clone()).or_insert_with(|| (Health::new(rules), Time::ZERO));
        let from = health.state();
        *health = Health::new(*health.rules());
        let reason = Reason { rule: 0, alike: 0, samples: 0, failures: 0, span: Duration::ZERO };
        let transition = Transition { at: *at, from, to: State::Unknown, reason };
        (from != State::Unknown).then_some((name, transition))
    }

    fn sample(&mut self, line: Line<'_>) -> Result<Option<(String, Transition)>, String> {
        let t = line.t.ok_or("there is no \"t\"")?;
        let now = seconds(t.get())
            .ok_or_else(|| format!("\"t\" is {}: expected seconds, 0 or more, exact to the nanosecond", t.get()))?;
        let rules = self.rules_of(line.tunnel.as_deref());
        let name = line.tunnel.unwrap_or_else(|| UNNAMED.to_owned());
        let (health, last) =
            self.tunnels.entry(name.clone()).or_insert_with(|| (Health::starting_as(self.initial, rules), Time::ZERO));
        if now < *last {
            return Err(format!("\"t\" goes back from {last} to {now} in tunnel {name}"));
        }
        *last = now;
        let outcome = match (line.ok, line.inconclusive) {
            (_, true) => return Ok(None),
            (Some(true), false) => Sample::Success(Duration::from_micros(line.rtt_us.unwrap_or(0))),
            (Some(false), false) => Sample::Failure,
            (None, false) => return Err("there is neither \"ok\" nor \"inconclusive\"".to_owned()),
        };
        Ok(health.judge(now, outcome).map(|transition| (name, transition)))
    }

    /// The rules for a tunnel; a name that is met for the first time and has none of its own is worth
    /// a warning.
    fn rules_of(&mut self, name: Option<&str>) -> Rules {
        let Some(book) = &self.rules else { return Rules::default() };
        let own = book.tunnels.get(name.unwrap_or(UNNAMED)).copied();
        if let (None, Some(name)) = (own, name)
            && self.strangers.insert(name.to_owned())
        {
            self.warning = Some(book.stranger(name));
        }
        own.unwrap_or(book.defaults)
    }
}

/// A JSON number of seconds, in whole nanoseconds: read as a decimal, because a floating-point
/// number cannot hold every nanosecond of a long recording.
fn seconds(text: &str) -> Option<Time> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // The power of ten by which the digits must be multiplied to be nanoseconds.
    let power = exponent.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some(Time::ZERO);
    }
    let nanos = if power >= 0 {
        let value: u64 = significant.parse().ok()?;
        value.checked_mul(10_u64.checked_pow(power.unsigned_abs())?)?
    } else {
        let cut = usize::try_from(power.unsigned_abs()).ok()?;
        let (kept, dropped) = significant.split_at_checked(significant.len().checked_sub(cut)?)?;
        if dropped.bytes().any(|digit| digit != b'0') {
            return None;
        }
        if kept.is_empty() { 0 } else { kept.parse().ok()? }
    };
    Some(Time::from_nanos(nanos))
}

fn json(tunnel: &str, transition: &Transition) -> String {
    let Transition { at, from, to, reason } = transition;
    let tunnel = serde_json::Value::from(tunnel);
    let penalty = penalty::penalty(transition.penalised(), None);
    format!(r#"{{"t":{at},"tunnel":{tunnel},"from":"{from}","to":"{to}","rule":{},"penalty":{penalty}}}"#, reason.rule)
}

fn sentence(tunnel: &str, transition: &Transition, colours: bool) -> String {
    let Transition { at, from, to, reason } = transition;
    let paint = |state: &State| {
        let style = style_of(state.name());
        if colours { format!("{style}{state}{style:#}") } else { state.to_string() }
    };
    let penalty = thousands(penalty::penalty(transition.penalised(), None).into());
    format!("{at:>12} s  {tunnel}: {} -> {}; {reason}; penalty {penalty}", paint(from), paint(to))
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn seconds_are_exact_to_the_nanosecond() {
        let nanos = |text| seconds(text).map(crate::engine::Time::as_nanos);
        assert_eq!(nanos("0"), Some(0));
        assert_eq!(nanos("12.345"), Some(12_345_000_000));
        assert_eq!(nanos("12345678.123456789"), Some(12_345_678_123_456_789));
        assert_eq!(nanos("1e-9"), Some(1));
        assert_eq!(nanos("2.5E3"), Some(2_500_000_000_000));
        assert_eq!(nanos("0.1000000000"), Some(100_000_000));
        assert_eq!(nanos("0.00e5"), Some(0));
        for wrong in ["-1", "0.0000000001", "\"1\"", "null", "1e30", "", "1e99999999999"] {
            assert_eq!(nanos(wrong), None, "{wrong}");
        }
    }
}
