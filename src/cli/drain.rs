//! `adit drain` and `adit undrain`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use super::args;
use super::client::{block_on, escaped, post};
use super::text::thousands;
use super::{Exit, Outcome};

pub(super) fn drain(socket: &Path, args: &args::Drain) -> Outcome {
    change(socket, &format!("/v1/tunnels/{}/drain?down={}", escaped(&args.tunnel), args.down))
}

pub(super) fn undrain(socket: &Path, args: &args::Undrain) -> Outcome {
    change(socket, &format!("/v1/tunnels/{}/undrain", escaped(&args.tunnel)))
}

fn change(socket: &Path, path: &str) -> Outcome {
    let tunnel: Value = block_on(post(socket, path))?;
    let drained = if tunnel["drained"] == true { "drained" } else { "not drained" };
    let penalty = thousands(tunnel["penalty"].as_u64().unwrap_or(0));
    let (name, state) = (tunnel["name"].as_str().unwrap_or("-"), tunnel["state"].as_str().unwrap_or("-"));
    writeln!(io::stdout().lock(), "{name}: {drained}; measured {state}; penalty {penalty}")?;
    Ok(Exit::Done)
}
