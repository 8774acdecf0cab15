//! What is seen of the demo: a table that stays in place below the lines of what happens, or lines
//! only, or JSON.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::Style;
use serde_json::{Value, json};

use super::stage::{DOWN_WINDOW, INTERVAL, RECOVERY};
use super::{Report, args};
use crate::cli::text::{Cell, Table, coloured, millis, style_of, thousands};
use crate::cli::{Exit, Failure, Outcome, events};
use crate::engine::event::Event;
use crate::engine::explain::Explanation;
use crate::engine::route_view::RouteView;
use crate::engine::snapshot::TunnelView;
use crate::engine::{Engine, Time};
use crate::io::local::Handle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Live,
    Plain,
    Json,
}

pub(super) struct Screen {
    manner: Manner,
    coloured: bool,
    /// Lines of the table that stand on the screen.
    drawn: usize,
    /// Nobody reads any more; what the demo verifies it verifies all the same.
    closed: bool,
}

impl Screen {
    pub(super) fn new(args: &args::Demo) -> Self {
        let out = io::stdout();
        let manner = match (args.json, args.plain || !out.is_terminal()) {
            (true, _) => Manner::Json,
            (false, true) => Manner::Plain,
            (false, false) => Manner::Live,
        };
        Self { manner, coloured: coloured(&out), drawn: 0, closed: false }
    }

    pub(super) fn opening(&mut self, window: Duration) -> Result<(), Failure> {
        let lines = [
            "adit demo: real packets in network namespaces of its own; nothing outside them is touched.".to_owned(),
            format!(
                "Compressed in time: a probe every {} ms instead of 10 s, windows of {} ms and {:.1} s instead of",
                INTERVAL.as_millis(),
                DOWN_WINDOW.as_millis(),
                window.as_secs_f64()
            ),
            format!("1 s and 5 min, {RECOVERY} clean samples on the way back instead of 30. The rules are the same."),
        ];
        match self.manner {
            Manner::Json => Ok(()),
            Manner::Live | Manner::Plain => lines.iter().try_for_each(|line| self.line(line)),
        }
    }

    pub(super) fn phase(&mut self, name: &str, what: &str) -> Result<(), Failure> {
        match self.manner {
            Manner::Json => self.line(&json!({"kind": "phase", "phase": name, "what": what}).to_string()),
            Manner::Live | Manner::Plain => {
                let bold = if self.coloured { Style::new().bold() } else { Style::new() };
                self.line("")?;
                self.line(&format!("{bold}{name}: {what}{bold:#}"))
            }
        }
    }

    /// Shows an event that happened so long after the first one.
    pub(super) fn event(&mut self, event: &Event, since: Duration) -> Result<(), Failure> {
        match self.manner {
            Manner::Json => self.line(&serde_json::to_string(event).map_err(io::Error::other)?),
            Manner::Live | Manner::Plain => {
                let event = serde_json::to_value(event).map_err(io::Error::other)?;
                self.line(&format!("{:>7.3} s  {}", since.as_secs_f64(), events::what(&event, self.coloured)))
            }
        }
    }

    /// Draws the table anew.
    pub(super) async fn refresh(&mut self, handle: &Handle) -> Result<(), Failure> {
        if self.manner != Manner::Live {
            return Ok(());
        }
        if let Some((tunnels, routes)) = handle.ask(look).await {
            self.draw(&tunnels, &routes)?;
        }
        Ok(())
    }

    fn draw(&mut self, tunnels: &[(TunnelView, Explanation)], routes: &[RouteView]) -> Result<(), Failure> {
        let mut table = Table::new(&["TUNNEL", "PROBES", "STATE", "SAMPLES", "RTT", "PENALTY"], &[4, 5]);
        for (view, explanation) in tunnels {
            let strip = explanation.samples.iter().rev().take(12).rev();
            table.row(vec![
                view.name.clone().into(),
                format!("{}, {}, in {}", view.kind, view.direction, view.encapsulation).into(),
                Cell::styled(view.state.name(), style_of(view.state.name())),
                strip.map(|sample| if sample.ok { '+' } else { '-' }).collect::<String>().into(),
                view.rtt.map_or_else(|| "-".to_owned(), |rtt| millis(rtt.last_us)).into(),
                thousands(view.penalty.into()).into(),
            ]);
        }
        let mut lines = vec![String::new()];
        lines.extend(table.lines(self.coloured));
        lines.push(String::new());
        let routes = serde_json::to_value(routes).map_err(io::Error::other)?;
        lines.extend(crate::cli::routes::table(&json!({ "routes": routes })).lines(self.coloured));
        self.clear()?;
        self.write(&(lines.join("\n") + "\n"))?;
        self.drawn = lines.len();
        Ok(())
    }

    /// A line above the table.
    fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.clear()?;
        self.write(&format!("{line}\n"))
    }

    /// Takes the table off the screen.
    fn clear(&mut self) -> Result<(), Failure> {
        let drawn = std::mem::take(&mut self.drawn);
        if drawn > 0 {
            self.write(&format!("\x1b[{drawn}A\x1b[J"))?;
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.closed = true,
            written => written?,
        }
        Ok(())
    }

    pub(super) fn closing(&mut self, report: &Report) -> Outcome {
        let good = report.missing.is_empty();
        match self.manner {
            Manner::Json => self.line(&result(report).to_string())?,
            Manner::Live | Manner::Plain => {
                // The last table stays.
                self.drawn = 0;
                self.line("")?;
                summary(report).iter().try_for_each(|line| self.line(line))?;
            }
        }
        Ok(if good { Exit::Done } else { Exit::BadNews })
    }
}

fn look(engine: &mut Engine, now: Time) -> (Vec<(TunnelView, Explanation)>, Vec<RouteView>) {
    let views = engine.tunnels(now);
    let explained = (0..).zip(views).filter_map(|(tunnel, view)| Some((view, engine.explain(now, tunnel)?)));
    (explained.collect(), engine.route_views())
}

fn summary(report: &Report) -> Vec<String> {
    let time = |duration: Option<Duration>| {
        duration.map_or_else(|| "not seen".to_owned(), |duration| format!("{} ms", duration.as_millis()))
    };
    let mut lines = vec![
        format!("detection   {:>9}   from the cut to the verdict \"down\"", time(report.detection)),
        format!("failover    {:>9}   from the cut to the moved route", time(report.failover)),
        format!(
            "kernel      {:>9}   from the cut to where the kernel was seen to send by the other way",
            time(report.kernel)
        ),
        format!("alive again {:>9}   from the healing to \"degraded\"", time(report.alive)),
        format!("fail-back   {:>9}   from the healing to the route being back", time(report.failback)),
    ];
    match report.missing.as_slice() {
        [] => lines.push("Everything that should happen was seen.".to_owned()),
        missing => lines.push(format!("NOT SEEN: {}", missing.join("; "))),
    }
    lines
}

fn result(report: &Report) -> Value {
    let millis =
        |duration: Option<Duration>| duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    json!({
        "kind": "result",
        "ok": report.missing.is_empty(),
        "missing": report.missing,
        "detection_ms": millis(report.detection),
        "failover_ms": millis(report.failover),
        "kernel_ms": millis(report.kernel),
        "alive_ms": millis(report.alive),
        "failback_ms": millis(report.failback),
    })
}
