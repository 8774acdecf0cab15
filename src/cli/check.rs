//! `adit check`: every problem of a configuration, or the whole of it with its defaults.

use std::io::{self, Write};

use super::args;
use super::{Exit, Failure, Outcome};
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
    } else {
        writeln!(out, "{path}: good: {} tunnels, {} routes", config.tunnels.len(), config.routes.len())?;
    }
    Ok(Exit::Done)
}
