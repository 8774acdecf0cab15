//! `adit import`: a configuration from a Cloudflare export.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use super::args::{self, Side as Word};
use super::{Exit, Failure, Outcome, conclude, text};
use crate::config::import::{Host, Import, Side, import};

/// No export is longer, in bytes: some hundred thousand routes.
const MOST: u64 = 256 << 20;

pub(super) fn run(args: &args::Import) -> Outcome {
    let files = args.files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    let side = match args.side {
        Word::Customer => Side::Customer,
        Word::Cloudflare => Side::Cloudflare,
    };
    let host = Host { side, endpoint: args.endpoint };
    let Import { text, tunnels, left_out, .. } =
        import(&files, host).map_err(|problems| Failure::new(Exit::BadInput, problems.to_string()))?;
    let written = io::stdout().lock().write_all(text.as_bytes());
    if tunnels > 0 {
        if left_out > 0 {
            super::complain(&format_args!("adit: {left_out} of the tunnels are left out; the comments say why"));
        }
        return conclude(written, Exit::Done);
    }
    conclude(written, Exit::BadNews)?;
    let none = match left_out {
        0 => "there is no tunnel in it; export gre_tunnels, ipsec_tunnels or cf_interconnects, too".to_owned(),
        _ => format!("none of its {left_out} tunnels can be this host's as it is; the comments say why"),
    };
    Err(Failure::new(Exit::BadNews, none))
}

/// A file's name, fit to be shown, and its bytes.
fn read(path: &Path) -> Result<(String, Vec<u8>), Failure> {
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let name = text::printable(&name);
    let mut bytes = Vec::new();
    let source: io::Result<Box<dyn Read>> = match path {
        path if path == Path::new("-") => Ok(Box::new(io::stdin())),
        path => File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
    };
    source
        .and_then(|source| source.take(MOST + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::new(Exit::BadInput, format!("{name}: cannot be read: {error}")))?;
    if bytes.len() as u64 > MOST {
        let most = MOST >> 20;
        return Err(Failure::new(Exit::BadInput, format!("{name}: more than {most} MiB; give it in several files")));
    }
    Ok((name, bytes))
}
