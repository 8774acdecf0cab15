//! `adit check --explain-rates`: what the numbers of each check mean.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::args;
use super::text::{Table, coloured, short, thousands};
use crate::config::{Config, Tunnel};
use crate::engine::health::Ratio;
use crate::engine::rates::{self, Alarm, Bounds, LOSSES, Loss, Rates, Round, Spread};
use crate::engine::settings::{Check, Timeout};

/// Names that are shown of tunnels with the same check.
const NAMED: usize = 3;

/// Tunnels whose checks mean the same.
struct Group<'a> {
    check: &'a Check,
    round: Round,
    tunnels: Vec<&'a str>,
}

pub(super) fn print(config: &Config, args: &args::Check, out: &mut (impl Write + IsTerminal)) -> io::Result<()> {
    let groups = groups(&config.tunnels);
    if args.json {
        let groups: Vec<Value> = groups.iter().map(|group| group.json(args.rtt)).collect();
        return writeln!(out, "{}", json!({"rtt_seconds": args.rtt.as_secs_f64(), "groups": groups}));
    }
    let colours = coloured(out);
    for (index, group) in groups.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        group.lines(args.rtt, colours).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(())
}

/// What should be known of checks whose own numbers make alarms of nothing.
pub(super) fn hints(config: &Config) -> Vec<String> {
    groups(&config.tunnels).iter().filter_map(Group::hint).collect()
}

/// In the order of the file, by the first tunnel of each.
fn groups(tunnels: &[Tunnel]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for tunnel in tunnels {
        let (check, round) = (&tunnel.check, Round::of(tunnel.targets.as_ref()));
        let place = *known.entry((key(check), round)).or_insert_with(|| {
            groups.push(Group { check, round, tunnels: Vec::new() });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(place) {
            group.tunnels.push(&tunnel.name);
        }
    }
    groups
}

/// What decides about rates.
fn key(check: &Check) -> impl Eq + std::hash::Hash + use<> {
    let rules = &check.rules;
    let timeout = match check.timeout {
        Timeout::Fixed(timeout) => Some(timeout),
        Timeout::Auto => None,
    };
    (
        (check.enabled, check.interval, timeout, check.early_retry),
        (rules.degraded_ratio.0, rules.degraded_min_failures, rules.degraded_window),
        (rules.down_min_samples, rules.down_window, rules.up_samples, rules.recovery_samples),
    )
}

impl Group<'_> {
    fn rates(&self, rtt: Duration) -> Option<Rates> {
        rates::of(self.check, self.round, rtt).filter(|_| self.check.enabled)
    }

    fn lines(&self, rtt: Duration, colours: bool) -> Vec<String> {
        let mut lines = vec![format!("{}: {}", self.names(), self.described())];
        let Some(rates) = self.rates(rtt) else {
            lines.push(if self.check.enabled {
                let (rtt, timeout) = (time(rtt), time(self.check.timeout.longest()));
                format!("  every probe fails: answers take {rtt}, and the time-out is {timeout}; raise timeout")
            } else {
                "  not checked: it stays unknown, and costs nothing".to_owned()
            });
            return lines;
        };
        let rules = &self.check.rules;
        let cut = rates.down.map_or_else(|| "perhaps never".to_owned(), spread);
        lines.push(format!("  a cut is found, down              {cut}"));
        lines.push(format!("  the way back, to degraded         {}", spread(rates.degraded)));
        lines.push(format!("                to healthy          {}", spread(rates.healthy)));
        let [down, degraded] = [rules.down_window, rules.degraded_window].map(humantime::format_duration);
        let ratio = f64::from(rules.degraded_ratio.0) / 1e4;
        let few = rules.degraded_min_failures;
        let degraded = format!("{few} failures in {degraded}, if they are {ratio} % of all");
        lines.push(format!(
            "  rule 1, down: {} failures in {down}; rule 3, degraded: {degraded}",
            rules.down_min_samples
        ));
        lines.extend(table(&rates.losses).lines(colours).into_iter().map(|line| format!("  {line}")));
        lines
    }

    /// One failure changes its state, or three of some hundred call it down every day.
    fn hint(&self) -> Option<String> {
        let rates = self.rates(rates::PATH)?;
        let loss = rates.losses.into_iter().find(|loss| loss.ratio == Ratio(10_000))?;
        let Alarm { mean: degraded, .. } = loss.degraded;
        let is_one =
            degraded.is_exact() && degraded.at_least < self.check.interval.as_secs_f64() * (1.0 / loss.failing + 1.0);
        let after = |mean: Bounds| format!("with 1 % of random loss after {} on average", seconds(mean.at_most));
        let names = self.names();
        if loss.down.mean.at_most < rates::DAY.as_secs_f64() {
            let fewer = if self.round.quorum > 1 { ", or for a smaller quorum" } else { "" };
            let remedy = format!("ask for more samples (down_min_samples), or for a longer down_window{fewer}");
            return Some(format!("{names}: a healthy tunnel is called down {}; {remedy}", after(loss.down.mean)));
        }
        let remedy = "write degraded_min_failures = 2, or more";
        let one = if self.round == Round::SINGLE { "one lost probe" } else { "one round without a quorum" };
        is_one.then(|| format!("{names}: {one} makes it degraded, {}; {remedy}", after(degraded)))
    }

    fn names(&self) -> String {
        let shown = self.tunnels.get(..NAMED.min(self.tunnels.len())).unwrap_or_default().join(", ");
        match self.tunnels.len().saturating_sub(NAMED) {
            0 => shown,
            more => format!("{shown} and {} more", thousands(more as u64)),
        }
    }

    fn described(&self) -> String {
        let Check { interval, timeout, early_retry, .. } = self.check;
        let timeout = match timeout {
            Timeout::Fixed(timeout) => humantime::format_duration(*timeout).to_string(),
            Timeout::Auto => "auto".to_owned(),
        };
        let early = if *early_retry { "" } else { ", without early retry" };
        let round = match self.round {
            Round::SINGLE => String::new(),
            Round { targets, quorum } => format!(", {targets} targets, quorum {quorum}"),
        };
        format!("a probe every {}, time-out {timeout}{early}{round}", humantime::format_duration(*interval))
    }

    fn json(&self, rtt: Duration) -> Value {
        let Check { enabled, interval, early_retry, .. } = self.check;
        let mut group = json!({
            "tunnels": self.tunnels,
            "checked": enabled,
            "interval_seconds": interval.as_secs_f64(),
            "timeout_seconds": rates::of(self.check, self.round, rtt).map(|rates| rates.timeout.as_secs_f64()),
            "early_retry": early_retry,
            "targets": self.round.targets,
            "quorum": self.round.quorum,
        });
        let (Some(rates), Some(group)) = (self.rates(rtt), group.as_object_mut()) else { return group };
        let losses: Vec<Value> = rates.losses.iter().map(loss_json).collect();
        group.insert("down_seconds".to_owned(), rates.down.map_or(Value::Null, spread_json));
        group.insert("degraded_seconds".to_owned(), spread_json(rates.degraded));
        group.insert("healthy_seconds".to_owned(), spread_json(rates.healthy));
        group.insert("loss".to_owned(), losses.into());
        Value::Object(std::mem::take(group))
    }
}

fn spread_json(Spread { best, typical, worst }: Spread) -> Value {
    let [best, typical, worst] = [best, typical, worst].map(|time| time.as_secs_f64());
    json!({"best": best, "typical": typical, "worst": worst})
}

/// What is infinite becomes null: it never happens.
fn loss_json(loss: &Loss) -> Value {
    let bounds = |bounds: Bounds| json!({"at_least": bounds.at_least, "at_most": bounds.at_most});
    let alarm = |rule: u8, Alarm { in_a_day, mean }: Alarm| json!({"rule": rule, "in_a_day": bounds(in_a_day), "mean_seconds": bounds(mean)});
    json!({
        "ratio": f64::from(loss.ratio.0) / 1e6,
        "degraded": alarm(3, loss.degraded),
        "down": alarm(1, loss.down),
    })
}

fn table(losses: &[Loss]) -> Table {
    const HEAD: [&str; 5] =
        ["RANDOM LOSS", "DEGRADED IN A DAY", "ON AVERAGE AFTER", "DOWN IN A DAY", "ON AVERAGE AFTER"];
    const _: () = assert!(LOSSES.len() == 4);
    let mut table = Table::new(&HEAD, &[0, 1, 2, 3, 4]);
    for Loss { ratio, degraded, down, .. } in losses {
        let ratio = format!("{} %", f64::from(ratio.0) / 1e4);
        let cells = [ratio, chance(degraded.in_a_day), mean(degraded.mean), chance(down.in_a_day), mean(down.mean)];
        table.row(cells.map(Into::into).to_vec());
    }
    table
}

fn spread(Spread { best, typical, worst }: Spread) -> String {
    let [best, typical, worst] = [best, typical, worst].map(time);
    format!("{typical} on average ({best} to {worst})")
}

/// A time as exactly as anybody wants it.
fn time(time: Duration) -> String {
    if time < Duration::from_secs(100) { format!("{:.2} s", time.as_secs_f64()) } else { short(time) }
}

/// A probability, or the bounds of one.
fn chance(bounds: Bounds) -> String {
    let (low, high) = (percent(bounds.at_least), percent(bounds.at_most));
    match (bounds.at_least, bounds.at_most) {
        _ if low == high => low,
        (low, _) if low < 1e-8 => format!("at most {high}"),
        (_, most) if most >= 1.0 => format!("at least {low}"),
        _ => format!("{low} to {high}"),
    }
}

fn percent(probability: f64) -> String {
    let percent = probability * 100.0;
    match percent {
        0.0 => "never".to_owned(),
        _ if percent < 1e-6 => "< 0.000001 %".to_owned(),
        _ if percent > 99.99 => "> 99.99 %".to_owned(),
        _ if percent >= 10.0 => format!("{percent:.1} %"),
        _ => format!("{} %", rounded(percent)),
    }
}

/// A small number with two digits that count.
fn rounded(number: f64) -> String {
    let places = (0..8).find(|places| number * 10_f64.powi(*places) >= 9.5).unwrap_or(8);
    let places = usize::try_from(places).unwrap_or(0);
    format!("{number:.places$}")
}

fn mean(bounds: Bounds) -> String {
    let (low, high) = (seconds(bounds.at_least), seconds(bounds.at_most));
    match bounds.at_most {
        _ if low == high => low,
        most if most > 1e12 => format!("at least {low}"),
        _ => format!("{low} to {high}"),
    }
}

fn seconds(seconds: f64) -> String {
    const YEAR: f64 = 365.25 * 86_400.0;
    let years = seconds / YEAR;
    if !seconds.is_finite() {
        "never".to_owned()
    } else if years >= 1e6 {
        "> 1 000 000 years".to_owned()
    } else if years >= 2.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 2 to a million")]
        let years = years.round() as u64;
        format!("{} years", thousands(years))
    } else {
        short(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }
}
