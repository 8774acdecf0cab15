//! `adit completions` and `adit man`: made from the command definitions.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::args::{Args, Page};
use super::{Exit, Outcome, manual};

pub(super) fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "adit", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Exit::Done)
}

pub(super) fn man(page: Page, folder: Option<&Path>) -> Outcome {
    if let Some(folder) = folder {
        write_all(folder).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write pages into {}: {error}", folder.display()))
        })?;
        return Ok(Exit::Done);
    }
    let mut out = Vec::new();
    match page {
        Page::Adit => clap_mangen::Man::new(Args::command()).render(&mut out)?,
        Page::Toml => out.extend(manual::page().into_bytes()),
    }
    io::stdout().lock().write_all(&out)?;
    Ok(Exit::Done)
}

fn write_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Args::command(), folder)?;
    fs::write(folder.join("adit.toml.5"), manual::page())
}
