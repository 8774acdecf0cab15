//! One file a command. Text, tables and colours live here and nowhere else.
//!
//! | file | holds |
//! | --- | --- |
//! | [`args`] | what can be typed, and its help |
//! | `client` | questions to a running daemon over its local socket |
//! | [`manual`] | the configuration's manual |
//! | `log` | the log, to the journal or to standard error |
//! | `text` | tables, colours, times |
//! | `top` | the screen of all tunnels |
//! | the others | the commands of their names |

pub mod args;
mod check;
mod client;
mod compat;
mod demo;
mod diagnose;
mod discover;
mod drain;
mod endpoints;
mod events;
mod explain;
mod generate;
mod import;
mod log;
pub mod manual;
mod notify;
mod rates;
mod reflect;
mod reload;
pub mod replay;
mod routes;
mod run;
mod sa;
mod status;
mod targets;
mod text;
mod top;

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

/// How a command ended. The numbers are those of `sysexits.h` where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The answer is bad news.
    BadNews = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The daemon cannot be reached.
    Unreachable = 69,
    /// Something outside adit failed: a file, a socket.
    System = 74,
    /// Not permitted: the message names what is missing.
    NotPermitted = 77,
    /// The configuration, or another input file, is wrong.
    BadInput = 78,
}

/// Why a command could not do its work.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the system's list is open")]
        let exit = match error.kind() {
            io::ErrorKind::PermissionDenied => Exit::NotPermitted,
            // Whoever read our output has seen enough.
            io::ErrorKind::BrokenPipe => Exit::Done,
            _ => Exit::System,
        };
        Self::new(exit, error.to_string())
    }
}

type Outcome = Result<Exit, Failure>;

/// How a command ends whose answer is known, however little of it was read: a reader who has seen
/// enough changes no verdict.
fn conclude(written: io::Result<()>, verdict: Exit) -> Outcome {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(verdict),
    }
}

/// Writes a line to standard error. Nobody may be reading there, which is no reason to panic, as
/// `eprintln` does, and to end with another exit code.
fn complain(line: &dyn fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Runs the command that was typed.
#[must_use]
pub fn main() -> ExitCode {
    let Args { command, socket } = Args::parse();
    let outcome = match command {
        Command::Run(run) => run::run(run),
        Command::Demo(demo) => demo::run(demo),
        Command::Check(check) => check::run(&check),
        Command::Discover(discover) => discover::run(&discover),
        Command::Import(import) => import::run(&import),
        Command::Status(status) => status::run(&socket, &status),
        Command::Explain(explain) => explain::run(&socket, &explain),
        Command::Diagnose(diagnose) => diagnose::run(&socket, &diagnose),
        Command::Routes(routes) => routes::run(&socket, &routes),
        Command::Endpoints(endpoints) => endpoints::run(&socket, &endpoints),
        Command::Top => top::run(&socket),
        Command::Events(events) => events::run(&socket, &events),
        Command::Drain(drain) => drain::drain(&socket, &drain),
        Command::Undrain(undrain) => drain::undrain(&socket, &undrain),
        Command::Reload => reload::run(&socket),
        Command::Sa(sa) => sa::run(&socket, &sa),
        Command::Replay(replay) => replay::run(&replay),
        Command::Reflect(reflect) => reflect::run(&reflect),
        Command::Notify(notify) => notify::run(&notify),
        Command::Messenger => run::messenger(),
        Command::Prober => run::prober(),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { page, dir } => generate::man(page, dir.as_deref()),
    };
    let exit = outcome.unwrap_or_else(|failure| {
        match failure.exit {
            Exit::Done => {}
            // These begin with file, line and column, where editors look for them.
            Exit::BadInput => complain(&failure),
            Exit::BadNews | Exit::Usage | Exit::Unreachable | Exit::System | Exit::NotPermitted => {
                complain(&format_args!("adit: {failure}"));
            }
        }
        failure.exit
    });
    ExitCode::from(exit as u8)
}
