//! `adit sa`: the security associations of ESP tunnels.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hyper::body::Bytes;
use serde_json::Value;
use zeroize::Zeroizing;

use super::args;
use super::client::{block_on, escaped, get, post, post_body};
use super::text::{Cell, Table, coloured, style_of, thousands};
use super::{Exit, Failure, Outcome};

/// A pair takes a few hundred bytes.
const LONGEST: u64 = 16 << 10;

pub(super) fn run(socket: &Path, args: &args::Sa) -> Outcome {
    match args {
        args::Sa::Install { tunnel, file } => install(socket, tunnel, file),
        args::Sa::Show { tunnel, json } => show(socket, tunnel.as_deref(), *json),
        args::Sa::Begin { tunnel, at } => begin(socket, tunnel, *at),
    }
}

fn install(socket: &Path, tunnel: &str, file: &Path) -> Outcome {
    let text = read(file)?;
    let path = format!("/v1/tunnels/{}/sa", escaped(tunnel));
    // The copy that leaves by the socket is the library's, and cannot be wiped.
    let answer = block_on(post_body(socket, &path, Bytes::copy_from_slice(&text)))?;
    told(&answer, "installed")
}

fn begin(socket: &Path, tunnel: &str, at: Option<u64>) -> Outcome {
    let at = at.map(|at| format!("?at={at}")).unwrap_or_default();
    let answer = block_on(post(socket, &format!("/v1/tunnels/{}/sa/begin{at}", escaped(tunnel))))?;
    if answer["keys"] != "installed" {
        return told(&answer, "begun");
    }
    let noted = "noted for all tunnels: no keys will be installed that were installed before";
    writeln!(io::stdout().lock(), "{tunnel}: {noted}; `adit sa install` takes fresh ones")?;
    Ok(Exit::Done)
}

/// Says what is in use now.
fn told(answer: &Value, what: &str) -> Outcome {
    let pair = &answer["pair"];
    let (name, next) = (answer["tunnel"].as_str().unwrap_or("-"), pair["next_sequence"].as_u64().unwrap_or(0));
    let (out, back) = (spi(&pair["spi_out"]), spi(&pair["spi_in"]));
    let algorithm = pair["algorithm"].as_str().unwrap_or("-");
    writeln!(io::stdout().lock(), "{name}: {what}: {algorithm}, SPI {out} out, {back} in, from number {next}")?;
    if let Some(obstacle) = answer["obstacle"].as_str() {
        return Err(Failure::new(Exit::BadNews, format!("{name} cannot be probed yet: {obstacle}")));
    }
    Ok(Exit::Done)
}

/// Reads a pair: from a file that only its owner may read, or from standard input.
fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut text = Zeroizing::new(Vec::with_capacity(usize::try_from(LONGEST).unwrap_or(0) + 1));
    let wrong = |why: String| Failure::new(Exit::BadInput, format!("{}: {why}", file.display()));
    if file == Path::new("-") {
        if io::stdin().is_terminal() {
            writeln!(io::stderr(), "reading the pair from the terminal; end it with Ctrl-D")?;
        }
        io::stdin().lock().take(LONGEST + 1).read_to_end(&mut text)?;
    } else {
        let opened = File::open(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let mode = opened.metadata()?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(wrong(format!("others than its owner may use it (mode {mode:04o}); run chmod 0600 on it")));
        }
        opened.take(LONGEST + 1).read_to_end(&mut text)?;
    }
    if text.len() as u64 > LONGEST {
        return Err(wrong(format!("longer than {LONGEST} bytes, which no pair is")));
    }
    Ok(text)
}

fn show(socket: &Path, tunnel: Option<&str>, json: bool) -> Outcome {
    let path = tunnel.map_or_else(|| "/v1/sa".to_owned(), |tunnel| format!("/v1/tunnels/{}/sa", escaped(tunnel)));
    let answer = block_on(get(socket, &path))?;
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &answer).map_err(io::Error::other)?;
        writeln!(out)?;
        return Ok(Exit::Done);
    }
    let Some(list) = answer["associations"].as_array() else {
        one(&answer).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        return Ok(Exit::Done);
    };
    if list.is_empty() {
        writeln!(out, "no tunnel is encapsulated in ESP by adit")?;
        return Ok(Exit::Done);
    }
    for line in table(list).lines(coloured(&io::stdout())) {
        writeln!(out, "{line}")?;
    }
    for (name, why) in list.iter().filter_map(|view| Some((view["tunnel"].as_str()?, view["obstacle"].as_str()?))) {
        writeln!(out, "{name}: {why}")?;
    }
    Ok(Exit::Done)
}

/// What fits a terminal of 80 columns, for a name of 9 letters; [`one`] has the rest.
fn table(list: &[Value]) -> Table {
    let mut table = Table::new(&["TUNNEL", "ALGORITHM", "SPI OUT", "SPI IN", "USED", "KEY OUT"], &[4]);
    for view in list {
        let (pair, name) = (&view["pair"], text(&view["tunnel"]));
        table.row(vec![
            if view["obstacle"].is_null() { name.into() } else { Cell::styled(name, style_of("down")) },
            text(&pair["algorithm"]).into(),
            spi(&pair["spi_out"]).into(),
            spi(&pair["spi_in"]).into(),
            used(pair).into(),
            text(&pair["fingerprint_out"]).chars().take(12).collect::<String>().into(),
        ]);
    }
    table
}

/// Everything about one tunnel's pair.
fn one(view: &Value) -> Vec<String> {
    let pair = &view["pair"];
    let number = |value: &Value| value.as_u64().map_or_else(|| "-".to_owned(), thousands);
    let bits = pair["esn"].as_bool().map(|esn| if esn { 64 } else { 32 });
    let retiring: Vec<String> = view["retiring"].as_array().into_iter().flatten().map(spi).collect();
    let mut lines = vec![("tunnel", text(&view["tunnel"])), ("keys", text(&view["keys"]))];
    if let Some(bits) = bits {
        lines.extend([
            ("algorithm", text(&pair["algorithm"])),
            ("SPI out", spi(&pair["spi_out"])),
            ("SPI in", spi(&pair["spi_in"])),
            ("key out", format!("fingerprint {}", text(&pair["fingerprint_out"]))),
            ("key in", format!("fingerprint {}", text(&pair["fingerprint_in"]))),
            ("numbers", format!("{bits} bits, next {}, used {}", number(&pair["next_sequence"]), used(pair))),
            ("received", format!("up to {}, window {}", number(&pair["highest_received"]), pair["replay_window"])),
        ]);
    }
    lines.push(("retiring", if retiring.is_empty() { "-".to_owned() } else { retiring.join(", ") }));
    lines.push(("obstacle", text(&view["obstacle"])));
    lines.iter().map(|(name, value)| format!("{name:<13} {value}")).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn used(pair: &Value) -> String {
    let share = pair["used_per_mille"].as_u64().map(|used| format!("{}.{} %", used / 10, used % 10));
    share.unwrap_or_else(|| "-".to_owned())
}

fn spi(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |spi| format!("{spi:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_widest_pair_fits_a_terminal_of_80_columns() {
        let pair = json!({"algorithm": "aes256-cbc-hmac-sha256", "spi_out": u32::MAX, "spi_in": u32::MAX, "esn": true,
            "replay_window": 4096, "next_sequence": u64::MAX, "used_per_mille": 1_000, "highest_received": u64::MAX,
            "fingerprint_out": "f".repeat(32), "fingerprint_in": "0".repeat(32)});
        let view = json!({"tunnel": "frankfurt", "keys": "installed", "pair": pair, "retiring": [u32::MAX],
            "obstacle": null});
        let lines = [table(std::slice::from_ref(&view)).lines(false), one(&view)].concat();
        assert!(lines.iter().any(|line| line.contains("18 446 744 073 709 551 615")), "{lines:#?}");
        for line in lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
