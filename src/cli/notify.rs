//! `adit notify test`: whether people would be told. And what `adit check` says of that.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;

use super::client::block_on;
use super::text::{Table, printable};
use super::{Exit, Failure, Outcome, args};
use crate::config::{Config, nearest};
use crate::daemon::messenger::host;
use crate::io::clock::Clock;
use crate::io::deliver::{Report, deliver};
use crate::io::sandbox;
use crate::notice::{Means, Message, Notify, Outcome as Told};

pub(super) fn run(args::Notify::Test { sink, config }: &args::Notify) -> Outcome {
    let config = Config::load(config).map_err(|problems| Failure::new(Exit::BadInput, problems.to_string()))?;
    let chosen = choose(&config.notify, sink.as_deref())?;
    lay_down()?;
    let (wall, host) = (Clock::start().wall(), host());
    let mut table = Table::new(&["SINK", "BY", "RESULT"], &[]);
    let mut exit = Exit::Done;
    for Notify { sink, means, timeout } in chosen {
        let message = Message::test(&sink.name, &host, wall);
        let Report { outcome, words } = block_on(async { Ok(deliver(&sink.name, means, message, *timeout).await) })?;
        let result = match outcome {
            Told::Told => format!("told: {words}"),
            Told::Failed => format!("not told: {words}"),
            Told::Again => format!("not told: {words} (the daemon would try again)"),
        };
        if outcome != Told::Told {
            exit = Exit::BadNews;
        }
        table.row(vec![sink.name.clone().into(), means.to_string().into(), result.into()]);
    }
    super::conclude(table.print(), exit)
}

/// What is told runs as under the daemon: without a capability. Whoever tries it may be root.
fn lay_down() -> Result<(), Failure> {
    let gaps = sandbox::renounce();
    let why = || format!("programs would be run with capabilities, so none is: {}", gaps.join("; "));
    if gaps.is_empty() { Ok(()) } else { Err(Failure::new(Exit::System, why())) }
}

fn choose<'a>(notify: &'a [Notify], wanted: Option<&str>) -> Result<Vec<&'a Notify>, Failure> {
    let Some(wanted) = wanted else {
        let nobody = || Failure::new(Exit::BadNews, "the configuration has no [[notify]]: nobody is told");
        return if notify.is_empty() { Err(nobody()) } else { Ok(notify.iter().collect()) };
    };
    let names = || notify.iter().map(|notify| notify.sink.name.as_str());
    let found = notify.iter().find(|notify| notify.sink.name == wanted);
    found.map(|found| vec![found]).ok_or_else(|| {
        let hint = nearest(wanted, names()).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        Failure::new(Exit::Usage, format!("no [[notify]] is called {}{hint}", printable(wanted)))
    })
}

/// What `adit check` should say of programs that cannot be run: here and now, by whoever asks.
pub(super) fn hints(config: &Config) -> Vec<String> {
    let hint = |notify: &Notify| {
        let Means::Exec(command) = &notify.means else { return None };
        let program = command.first()?;
        let why = unrunnable(program)?;
        Some(format!("[[notify]] {:?}: {program:?} {why}", notify.sink.name))
    };
    config.notify.iter().filter_map(hint).collect()
}

/// Why a program cannot be run.
fn unrunnable(program: &str) -> Option<String> {
    match fs::metadata(program) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some("is not there; write it, and chmod 0755 it".to_owned())
        }
        Err(error) => Some(format!("cannot be looked at: {error}")),
        Ok(found) if !found.is_file() => Some("is no file".to_owned()),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Some("cannot be executed; chmod 0755 it".to_owned()),
        Ok(_) => None,
    }
}
