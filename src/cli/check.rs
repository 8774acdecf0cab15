//! `adit check`: every problem of a configuration, or the whole of it with its defaults.

use std::io::{self, Write};

use super::{Exit, Failure, Outcome};
use super::{args, compat, notify, rates};
use crate::config::{Config, ReflectConfig};

pub(super) fn run(args: &args::Check) -> Outcome {
    let mut out = io::stdout().lock();
    let path = args.config.display();
    if args.reflect {
        let config =
            ReflectConfig::load(&args.config).map_err(|problems| Failure::new(Exit::BadInput, problems.to_string()))?;
        writeln!(out, "{path}: good: {} tunnels, {} faults", config.tunnels.len(), config.faults.len())?;
        return Ok(Exit::Done);
    }
    let config = Config::load(&args.config).map_err(|problems| Failure::new(Exit::BadInput, problems.to_string()))?;
    if args.effective {
        write!(out, "{}", config.effective())?;
    } else if args.explain_rates {
        rates::print(&config, args, &mut out)?;
    } else {
        writeln!(out, "{path}: good: {}", contents(&config))?;
    }
    out.flush()?;
    // Beside a configuration that may be on its way into a file. That nobody listens changes nothing.
    let mut aside = io::stderr().lock();
    for hint in &config.hints {
        let _ = writeln!(aside, "{} hint: {}", hint.location(), hint.message);
    }
    let hints = compat::hints(&config).into_iter().chain(notify::hints(&config)).chain(rates::hints(&config));
    for hint in hints {
        let _ = writeln!(aside, "{path}: hint: {hint}");
    }
    Ok(Exit::Done)
}

/// What a configuration is made of.
fn contents(config: &Config) -> String {
    let (tunnels, routes) = (config.tunnels.len(), config.routes.len());
    match config.policy.len() {
        0 => format!("{tunnels} tunnels, {routes} routes"),
        rules => format!("{tunnels} tunnels, {routes} routes, {rules} policy rules"),
    }
}
