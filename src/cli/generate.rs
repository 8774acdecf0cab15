//! `adit completions` and `adit man`: made from the command definitions.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::args::Args;
use super::{Exit, Outcome};

pub(super) fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "adit", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Exit::Done)
}

pub(super) fn man(folder: Option<&Path>) -> Outcome {
    if let Some(folder) = folder {
        let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Args::command(), folder));
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write pages into {}: {error}", folder.display()))
        })?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Args::command()).render(&mut page)?;
        io::stdout().lock().write_all(&page)?;
    }
    Ok(Exit::Done)
}
