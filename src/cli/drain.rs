//! `adit drain` and `adit undrain`.

use std::io::{self, Write};
use std::path::Path;

use hyper::body::Bytes;
use nix::unistd::{Uid, User};
use serde_json::{Map, Value};

use super::args;
use super::client::{block_on, escaped, post, post_body};
use super::text::{ago, ahead, clock, printable, thousands};
use super::{Exit, Failure, Outcome};

pub(super) fn drain(socket: &Path, args: &args::Drain) -> Outcome {
    let body = Bytes::from(wanted(args).to_string());
    for name in &args.tunnels {
        let path = format!("/v1/tunnels/{}/drain", escaped(name));
        let tunnel = block_on(post_body(socket, &path, body.clone()))?;
        say(&tunnel)?;
        let is_heard = |wanted: bool, part: &str| !wanted || !tunnel["drain"][part].is_null();
        if !is_heard(args.lasting.is_some() || args.until.is_some(), "until")
            || !is_heard(args.reason.is_some(), "reason")
        {
            let why = "the daemon is of an older version, which knows no end and no reason of a drain: restart it";
            return Err(Failure::new(Exit::System, why.to_owned()));
        }
    }
    Ok(Exit::Done)
}

fn wanted(args: &args::Drain) -> Value {
    let mut wanted = Map::new();
    let mut put =
        |name: &str, value: Option<String>| wanted.extend(value.map(|value| (name.to_owned(), Value::String(value))));
    put("as", Some(if args.down { "down" } else { "degraded" }.to_owned()));
    put("for", args.lasting.map(|span| humantime::format_duration(span).to_string()));
    put("until", args.until.clone());
    put("reason", args.reason.clone());
    Value::Object(wanted)
}

pub(super) fn undrain(socket: &Path, args: &args::Undrain) -> Outcome {
    for name in &args.tunnels {
        say(&block_on(post(socket, &format!("/v1/tunnels/{}/undrain", escaped(name))))?)?;
    }
    Ok(Exit::Done)
}

fn say(tunnel: &Value) -> io::Result<()> {
    let drained = match tunnel["drain"]["until"].as_str() {
        Some(until) => format!("drained until {}", clock(until)),
        None if tunnel["drained"] == true => "drained".to_owned(),
        None => "not drained".to_owned(),
    };
    let penalty = thousands(tunnel["penalty"].as_u64().unwrap_or(0));
    let (name, state) = (tunnel["name"].as_str().unwrap_or("-"), tunnel["state"].as_str().unwrap_or("-"));
    writeln!(io::stdout().lock(), "{name}: {drained}; measured {state}; penalty {penalty}")
}

/// A drain in words: `drained until 14:00 UTC (in 1h 59m): replace the line card`; `None` if there is none.
pub(super) fn words(drain: &Value) -> Option<String> {
    drain["since"].as_str()?;
    let until = drain["until"].as_str().map(|until| format!(" until {} ({})", clock(until), ahead(until)));
    let reason = drain["reason"].as_str().map(|reason| format!(": {}", printable(reason)));
    Some(format!("drained{}{}", until.unwrap_or_default(), reason.unwrap_or_default()))
}

/// The same, with what it costs as, since when, and who asked for it.
pub(super) fn in_full(drain: &Value) -> Option<String> {
    let (words, since) = (words(drain)?, ago(drain["since"].as_str()?));
    let by = user(&drain["by"]).map(|user| format!(" by {user}"));
    Some(format!("{words} (as {}, {since} ago{})", drain["as"].as_str().unwrap_or("-"), by.unwrap_or_default()))
}

/// A user of this host by name, or by number if it has none.
pub(super) fn user(uid: &Value) -> Option<String> {
    let uid = uid.as_u64().and_then(|uid| u32::try_from(uid).ok())?;
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    Some(known.map_or_else(|| format!("user {uid}"), |user| printable(&user.name)))
}
